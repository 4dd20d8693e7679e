//! Open files: how many this process and the caches that it starts may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit that is asked for.
const WISHED: u64 = 65_536;
/// Of those, as many as the referee needs beside connections: ledgers, logs, and looks at `/proc`.
const SPARE: u64 = 200;

/// Raises the limit of open files as far as may be, for the caches inherit it; says how many connections with their origin's
/// side it allows.
pub fn connections_max() -> u64 {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: Some(WISHED), maximum: Some(WISHED) };
    let allowed = Rlimit { current: before.maximum, maximum: before.maximum };
    let wanted = before.maximum.is_some_and(|maximum| maximum < WISHED);
    if !wanted || setrlimit(Resource::Nofile, raised).is_err() {
        // A limit that may not be raised stays as it was.
        let _ = setrlimit(Resource::Nofile, allowed);
    }
    let now = getrlimit(Resource::Nofile).current.unwrap_or(WISHED);
    (now.min(WISHED) / 2).saturating_sub(SPARE).max(16)
}
