//! Threads that work beside those that serve.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// These threads have this much less of a core than those that serve, where both want it. One that runs only where nobody else wants a
/// core would hold locks that workers wait for (docs/decisions/104).
const NICE: i32 = 10;

/// A thread that serves, and wakes up, waits for the end of another one's slice, which is some milliseconds.
const GIVES_WAY_AFTER: Duration = Duration::from_micros(100);

thread_local! {
    static GAVE_WAY: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Lowers the priority of the calling thread, which has no worker's requests to serve.
pub fn lower_priority() {
    // On Linux this is about the calling thread alone. Where it is refused the thread works on as it is.
    let _ = rustix::process::setpriority_process(None, NICE);
}

/// Gives the core to a thread that waits for it, if this one has had it for a while: to be called often in long work.
pub fn give_way() {
    let now = Instant::now();
    if GAVE_WAY.get().is_none_or(|before| now.duration_since(before) >= GIVES_WAY_AFTER) {
        std::thread::yield_now();
        GAVE_WAY.set(Some(Instant::now()));
    }
}
