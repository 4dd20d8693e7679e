//! Messages of the program on standard error and standard output: warnings, the effect of a signal, the summary of a
//! run.
//!
//! No message can end the process or hold it up. A write that fails is forgotten, and from [`begin`] on, as in a
//! server, a thread of its own writes: a pipe that nobody reads or a terminal that was stopped holds up that thread
//! alone. Messages beyond a limit of waiting ones are dropped and counted. Standard error belongs to the process, so
//! this does too.

use crate::panics;
use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tracing_subscriber::fmt::MakeWriter;

/// Texts that may wait for the thread.
const WAITING_MAX: usize = 1_024;

/// How long the end of the process waits for the last messages.
const FINISH_WITHIN: Duration = Duration::from_secs(1);

static THREAD: OnceLock<SyncSender<Order>> = OnceLock::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);

enum Order {
    Write(Stream, Vec<u8>),
    /// Reports when all that came before is written.
    Finish(SyncSender<()>),
}

/// Where something is said.
#[derive(Clone, Copy)]
enum Stream {
    Error,
    Output,
}

/// An error with its causes, on one line.
pub fn in_one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

/// Says a line on standard error.
pub fn say(line: impl fmt::Display) {
    put(Stream::Error, format!("{line}\n").into_bytes());
}

/// Says a text on standard error as it is.
pub fn say_text(text: impl fmt::Display) {
    put(Stream::Error, text.to_string().into_bytes());
}

/// Says a text on standard output as it is, where it matters little whether somebody reads it.
pub fn announce(text: impl fmt::Display) {
    put(Stream::Output, text.to_string().into_bytes());
}

/// Starts the thread that writes, so that no other thread waits for a stream. Without it, the thread that has a message
/// writes it.
pub fn begin() {
    let (orders, ordered) = sync_channel(WAITING_MAX);
    if std::thread::Builder::new().name("diagnostics".into()).spawn(move || write_all_of(&ordered)).is_ok() {
        let _ = THREAD.set(orders);
    }
}

/// Waits until all that was said is written, at most for a moment.
pub fn finish() {
    let Some(orders) = THREAD.get() else { return };
    let (tell, written) = sync_channel(1);
    if orders.try_send(Order::Finish(tell)).is_ok() {
        let _ = written.recv_timeout(FINISH_WITHIN);
    }
}

/// Texts that were dropped because too many waited.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Sends panic messages the same way; the default hook waits for standard error.
pub fn tell_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        say(format_args!("larder: a broken invariant in thread {name}: {panic}"));
        let trace = std::backtrace::Backtrace::capture();
        let trace = (trace.status() == std::backtrace::BacktraceStatus::Captured).then(|| trace.to_string());
        if let Some(trace) = &trace {
            say(trace);
        }
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        panics::report(name, place, panic.payload_as_str().unwrap_or_default(), trace);
    }));
}

fn put(stream: Stream, text: Vec<u8>) {
    let Some(orders) = THREAD.get() else { return write(stream, &text) };
    match orders.try_send(Order::Write(stream, text)) {
        Ok(()) => {}
        Err(TrySendError::Full(_)) => {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        Err(TrySendError::Disconnected(order)) => {
            if let Order::Write(stream, text) = order {
                write(stream, &text);
            }
        }
    }
}

/// Nothing in here can fail.
fn write_all_of(orders: &Receiver<Order>) {
    while let Ok(order) = orders.recv() {
        match order {
            Order::Write(stream, text) => write(stream, &text),
            Order::Finish(tell) => {
                let _ = tell.try_send(());
            }
        }
    }
}

fn write(stream: Stream, text: &[u8]) {
    // An error means that the reader is gone or has no room, and there is nowhere else to report it.
    let _ = match stream {
        Stream::Error => Unlocked(io::stderr().as_fd()).write_all(text),
        Stream::Output => Unlocked(io::stdout().as_fd()).write_all(text),
    };
}

/// A descriptor that is written to without the lock of the standard library, which a thread that hangs would hold.
pub struct Unlocked<'a>(pub BorrowedFd<'a>);

impl Write for Unlocked<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where the lines of `tracing` go.
#[derive(Clone, Copy)]
pub struct Diagnostics;

impl Write for Diagnostics {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        put(Stream::Error, bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Diagnostics {
    type Writer = Diagnostics;

    fn make_writer(&self) -> Diagnostics {
        *self
    }
}
