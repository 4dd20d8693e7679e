//! Work that takes the time of a core that no other thread wants (`SCHED_IDLE`, sched(7)): a worker that wakes up takes the core from it
//! at once. Beside a thread that is merely nice, a worker waits for the end of a slice, 3 ms and more (docs/decisions/104). No crate
//! here has a safe function for it.

#![allow(unsafe_code)]

use std::ffi::c_int;

/// `SCHED_IDLE` of Linux, the same on every processor.
const IDLE: c_int = 5;

/// The part of `struct sched_param` that there is on Linux.
#[repr(C)]
struct Parameters {
    priority: c_int,
}

// SAFETY: the signature of `sched_setscheduler` in POSIX, where `pid_t` is an `int` on Linux.
unsafe extern "C" {
    fn sched_setscheduler(thread: c_int, policy: c_int, parameters: *const Parameters) -> c_int;
}

/// Gives the calling thread, and those that it starts, the idle priority; where the system has none, they are as nice as can be.
pub fn take() {
    let parameters = Parameters { priority: 0 };
    // SAFETY: the kernel reads one `Parameters`, which lives until the call returns, and keeps no pointer to it; 0 is the calling thread.
    if unsafe { sched_setscheduler(0, IDLE, &raw const parameters) } != 0 {
        // On Linux this is about the calling thread alone.
        let _ = rustix::process::setpriority_process(None, 19);
    }
    // A thread that wakes up in what is left of the ordinary slice would wait for its end.
    std::thread::yield_now();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Field 41 of /proc/thread-self/stat, proc_pid_stat(5).
    fn policy() -> Option<c_int> {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").ok()?;
        stat.rsplit(')').next()?.split_whitespace().nth(38)?.parse().ok()
    }

    #[test]
    fn one_thread_takes_it_alone() {
        let before = policy();
        let taken = std::thread::spawn(|| {
            take();
            policy()
        });
        assert_eq!((taken.join().unwrap(), policy()), (Some(IDLE), before));
    }
}
