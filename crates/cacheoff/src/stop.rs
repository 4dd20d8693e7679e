//! Ctrl-C and SIGTERM. The first one asks everything to end in order: plays end their ledgers, and the caches that were
//! started here are stopped. A second one ends the program at once, and these caches with it.
//!
//! The state is the process's own: signals come to a process, and so do its children.

use crate::proc;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::io;
use std::process::{Child, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
/// The first processes of the caches that run.
static STARTED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// How often a pause looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);

/// Hears both signals from here on; to be called before anything is started.
pub fn catch_signals() -> Result<(), String> {
    let failed = |error: io::Error| format!("signals cannot be waited for: {error}");
    let runtime = Builder::new_current_thread().enable_io().build().map_err(failed)?;
    let guard = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    drop(guard);
    std::thread::spawn(move || {
        loop {
            let number = runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => 2,
                    _ = terminate.recv() => 15,
                }
            });
            if ASKED.swap(true, Relaxed) {
                end_at_once(128 + number);
            }
            eprintln!("stopping; what was measured until now is kept");
        }
    });
    Ok(())
}

/// Set when a signal came.
pub fn flag() -> Arc<AtomicBool> {
    Arc::clone(&ASKED)
}

/// Whether a signal came.
pub fn is_asked() -> bool {
    ASKED.load(Relaxed)
}

/// Sleeps, unless a signal came or comes.
pub fn pause(time: Duration) {
    let until = Instant::now() + time;
    while !is_asked() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(LOOK));
    }
}

/// Runs a command with handlers of signals from its start on.
pub fn with_signals(command: impl FnOnce() -> Result<ExitCode, String>) -> Result<ExitCode, String> {
    catch_signals()?;
    command()
}

/// Starts the first process of a cache, or of another program that is measured. A signal that ends the program meanwhile waits until the process is known, and
/// ends it too.
pub fn start(spawn: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    let child = spawn()?;
    started.insert(child.id());
    Ok(child)
}

/// It has ended.
pub fn ended(pid: u32) {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
}

fn end_at_once(status: i32) -> ! {
    // Held until the end, so that no other cache is started.
    let started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    for pid in started.iter().flat_map(|root| proc::tree(*root).into_iter().chain([*root])) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    std::process::exit(status)
}
