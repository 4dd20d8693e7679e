//! The access log: a line per request, written by a thread of its own so that no worker ever waits for a disk.
//!
//! A worker appends to lines of its own and hands them over a few times a second. The lines that wait for the thread
//! are bounded (`log.queue_bytes_max`); beyond that lines are dropped and counted.

mod line;
mod sink;

use line::Before;
pub use line::host;
pub use sink::Sink;

use crate::config::{Log, LogFormat, TextsLogged};
use crate::live::{Copy, Live};
use crate::record::{Names, Query, Record};
use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Orders that wait for the thread; `log.queue_bytes_max` is met first unless they are tiny.
const ORDERS_MAX: usize = 4_096;

/// A worker's lines are handed over before their time when they are this many bytes.
const BUNDLE_BYTES_MAX: usize = 128 * 1024;

/// How long the end of the server waits for the last lines.
const FINISH_WITHIN: Duration = Duration::from_secs(5);

/// Settings of the log that workers read.
#[derive(Debug)]
struct Setup {
    format: LogFormat,
    query: Query,
    texts: TextsLogged,
    queue_bytes_max: usize,
}

/// The lines of one worker that were not handed over yet.
#[derive(Debug, Default)]
pub struct Lines {
    bytes: RefCell<Vec<u8>>,
    setup: Copy<Setup>,
    before: Before,
}

/// The workers' end of the log.
#[derive(Debug)]
pub struct AccessLog {
    on: AtomicBool,
    setup: Live<Setup>,
    orders: SyncSender<Order>,
    waiting_bytes: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
    restarts: Arc<AtomicU64>,
}

enum Order {
    Write(Vec<u8>),
    Reopen,
    Become(Option<Sink>),
    /// Says when all that came before is written.
    Finish(SyncSender<()>),
}

impl AccessLog {
    /// Opens the log and starts its thread. Values of queries stand in its lines or do not.
    pub fn open(log: Option<&Log>, query: Query) -> io::Result<(AccessLog, JoinHandle<()>)> {
        let sink = log.map(|log| Sink::open(&log.to)).transpose()?;
        let (orders, ordered) = sync_channel(ORDERS_MAX);
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let (dropped, restarts) = <(Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        let counts = (Arc::clone(&waiting_bytes), Arc::clone(&dropped), Arc::clone(&restarts));
        let writer = Writer { sink, waiting: counts.0, dropped: counts.1, restarts: counts.2, told: false };
        let writer = std::thread::Builder::new().name("log".into()).spawn(move || writer.run(&ordered))?;
        let setup = Live::new(setup(log, query));
        let on = AtomicBool::new(log.is_some());
        Ok((AccessLog { on, setup, orders, waiting_bytes, dropped, restarts }, writer))
    }

    /// Changes the settings, with a sink that is open already; `None` ends the log.
    pub fn change(&self, log: Option<(&Log, Sink)>, query: Query) {
        self.setup.replace(setup(log.as_ref().map(|(log, _)| *log), query));
        self.on.store(log.is_some(), Ordering::Relaxed);
        self.tell(Order::Become(log.map(|(_, sink)| sink)));
    }

    /// Whether somebody reads the log, and which texts its lines have.
    pub fn texts(&self, lines: &Lines) -> Option<TextsLogged> {
        self.is_on().then(|| lines.setup.of(&self.setup).texts)
    }

    /// Whether somebody reads the log.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Appends a record's line to a worker's own lines.
    pub fn line(&self, record: &Record, names: &Names, lines: &Lines) {
        let setup = lines.setup.of(&self.setup);
        let mut bytes = lines.bytes.borrow_mut();
        line::append(record, (names, &lines.before), (&setup.format, setup.query), &mut bytes);
        if bytes.len() >= BUNDLE_BYTES_MAX {
            drop(bytes);
            self.hand_over(lines);
        }
    }

    /// Hands a worker's lines to the thread, or drops and counts them when too many wait.
    pub fn hand_over(&self, lines: &Lines) {
        let length = lines.bytes.borrow().len();
        if length == 0 {
            return;
        }
        // About as many will come until the next time: to grow for a few more would copy all of them.
        let bytes = lines.bytes.replace(Vec::with_capacity(length + length / 8));
        let max = lines.setup.of(&self.setup).queue_bytes_max;
        if self.waiting_bytes.load(Ordering::Relaxed).saturating_add(length) > max {
            self.dropped.fetch_add(line_count(&bytes), Ordering::Relaxed);
            return;
        }
        self.waiting_bytes.fetch_add(length, Ordering::Relaxed);
        if let Err(TrySendError::Full(order) | TrySendError::Disconnected(order)) =
            self.orders.try_send(Order::Write(bytes))
        {
            self.waiting_bytes.fetch_sub(length, Ordering::Relaxed);
            if let Order::Write(bytes) = order {
                self.dropped.fetch_add(line_count(&bytes), Ordering::Relaxed);
            }
        }
    }

    /// Opens the file anew, after a rotation moved it away.
    pub fn reopen(&self) {
        self.tell(Order::Reopen);
    }

    /// Waits until all that was handed over is written, at most for a moment: a sink that hangs must not keep the
    /// server from ending.
    pub fn finish(&self) {
        let (tell, written) = sync_channel(1);
        if self.orders.try_send(Order::Finish(tell)).is_ok() {
            let _ = written.recv_timeout(FINISH_WITHIN);
        }
    }

    /// Lines that were lost because their sink was too slow, had no room or was gone.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// How often the thread met a broken invariant and went on.
    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// An order that finds the queue full is dropped: the queue is full of lines, and the caller must not wait.
    fn tell(&self, order: Order) {
        if self.orders.try_send(order).is_err() {
            tracing::error!("the access log is too far behind to be reopened or changed: send the signal again");
        }
    }
}

fn setup(log: Option<&Log>, query: Query) -> Setup {
    let format = log.map_or(LogFormat::Combined, |log| log.format.clone());
    Setup { texts: format.texts(), format, query, queue_bytes_max: log.map_or(0, |log| log.queue_bytes_max) }
}

fn line_count(lines: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', lines).count() as u64
}

/// The thread's end.
struct Writer {
    sink: Option<Sink>,
    waiting: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
    restarts: Arc<AtomicU64>,
    /// The trouble that lines can't be written was reported.
    told: bool,
}

impl Writer {
    /// Runs until all senders of orders are gone; no error ends it before.
    fn run(mut self, orders: &Receiver<Order>) {
        while let Ok(order) = orders.recv() {
            if catch_unwind(AssertUnwindSafe(|| self.carry_out(order))).is_err() {
                self.restarts.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn carry_out(&mut self, order: Order) {
        let result = match order {
            Order::Become(other) => {
                self.sink = other;
                Ok(())
            }
            Order::Reopen => self.sink.as_mut().map_or(Ok(()), Sink::reopen),
            Order::Write(lines) => {
                let result = self.sink.as_mut().map_or(Ok(()), |sink| sink.write(&lines));
                self.waiting.fetch_sub(lines.len(), Ordering::Relaxed);
                result.map_err(|lost| {
                    self.dropped.fetch_add(lost.lines, Ordering::Relaxed);
                    lost.why
                })
            }
            Order::Finish(tell) => {
                let _ = tell.try_send(());
                return;
            }
        };
        if let (Err(error), false) = (&result, self.told) {
            tracing::error!(%error, "cannot write the access log; requests are served all the same");
        }
        self.told = result.is_err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LogTo;
    use crate::page::Page;
    use crate::record::Number;
    use std::path::{Path, PathBuf};

    fn to(path: PathBuf, queue_bytes_max: usize) -> Log {
        Log { to: LogTo::File(path), format: LogFormat::Combined, queue_bytes_max }
    }

    fn count(path: &Path) -> usize {
        std::fs::read_to_string(path).unwrap_or_default().lines().count()
    }

    fn record() -> Record {
        Record::refused("127.0.0.1:1".parse().unwrap(), &Page::new(400, "word", "what", "remedy"), Number::default())
    }

    #[test]
    fn a_file_that_was_moved_away_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
        let (log, writer) = AccessLog::open(Some(&to(path.clone(), 1 << 20)), Query::Kept).unwrap();
        let lines = Lines::default();
        let write = |many: usize| {
            (0..many).for_each(|_| log.line(&record(), &Names::default(), &lines));
            log.hand_over(&lines);
            while log.waiting_bytes.load(Ordering::Relaxed) > 0 {
                std::thread::yield_now();
            }
        };
        write(2);
        std::fs::rename(&path, &old).unwrap();
        write(1);
        assert_eq!((count(&old), count(&path)), (2, 1), "renamed");
        std::fs::remove_file(&path).unwrap();
        log.reopen();
        write(3);
        assert_eq!(count(&path), 3, "reopened");
        let other = folder.path().join("other.log");
        let changed = to(other.clone(), 1 << 20);
        log.change(Some((&changed, Sink::open(&changed.to).unwrap())), Query::Kept);
        write(1);
        assert_eq!((count(&path), count(&other)), (3, 1), "changed");
        log.change(None, Query::Kept);
        assert!(!log.is_on());
        drop(log);
        writer.join().unwrap();
    }

    #[test]
    fn what_does_not_fit_the_queue_is_dropped_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let (log, writer) = AccessLog::open(Some(&to(path.clone(), 10)), Query::Kept).unwrap();
        let lines = Lines::default();
        (0..5).for_each(|_| log.line(&record(), &Names::default(), &lines));
        log.hand_over(&lines);
        assert_eq!(log.dropped(), 5);
        drop(log);
        writer.join().unwrap();
        assert_eq!(count(&path), 0);
    }
}
