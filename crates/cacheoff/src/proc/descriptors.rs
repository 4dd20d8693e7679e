//! Open files: how many this process and the caches that it starts may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit that is asked for.
const WISHED: u64 = 65_536;
/// Of those, as many as the referee needs beside connections: ledgers, logs, and looks at `/proc`.
const SPARE: u64 = 200;

/// Raises the limit of open files as far as may be, for the caches inherit it; says how many connections it allows,
/// each of which takes so many files of this process: two with the side of an origin.
pub fn connections_max(files: u64) -> u64 {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: Some(WISHED), maximum: Some(WISHED) };
    let allowed = Rlimit { current: before.maximum, maximum: before.maximum };
    let wanted = before.maximum.is_some_and(|maximum| maximum < WISHED);
    if !wanted || setrlimit(Resource::Nofile, raised).is_err() {
        // A limit that may not be raised stays as it was.
        let _ = setrlimit(Resource::Nofile, allowed);
    }
    let now = getrlimit(Resource::Nofile).current.unwrap_or(WISHED);
    (now.min(WISHED) / files.max(1)).saturating_sub(SPARE).max(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_without_its_origins_side_takes_one_file() {
        let (both, alone) = (connections_max(2), connections_max(1));
        assert!(both >= 16 && (alone == 2 * both + SPARE || both == 16), "{both} {alone}");
    }
}
