//! Threads that work beside those that serve.

/// These threads have this much less of a core than those that serve, where both want it. One that runs only where nobody else wants a
/// core would hold locks that workers wait for (docs/decisions/104).
const NICE: i32 = 10;

/// Lowers the priority of the calling thread, which has no worker's requests to serve.
pub fn lower_priority() {
    // On Linux this is about the calling thread alone. Where it is refused the thread works on as it is.
    let _ = rustix::process::setpriority_process(None, NICE);
}
