//! File descriptors: each connection takes one, and a served miss a second one to the origin.

use super::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Kept aside for listeners, files, the resolver and the runtime, and for each worker.
const RESERVED: u64 = 128;
const RESERVED_PER_WORKER: u64 = 8;

/// Raises the process's limit as far as it may, lowers `connections_max` to the number that fits then, and reports
/// that.
pub fn fit(config: &mut Config) -> Option<String> {
    let limit = getrlimit(Resource::Nofile);
    let mut soft = limit.current.unwrap_or(u64::MAX);
    let wanted = descriptors(config);
    let most = limit.maximum.unwrap_or(u64::MAX).min(wanted);
    let raised = Rlimit { current: Some(most), maximum: limit.maximum };
    if soft < most && setrlimit(Resource::Nofile, raised).is_ok() {
        soft = most;
    }
    let fits = connections_of(soft, config.workers);
    if fits >= config.limits.connections_max {
        return None;
    }
    let asked = std::mem::replace(&mut config.limits.connections_max, fits);
    Some(format!(
        "{soft} file descriptors allow {fits} client connections, not {asked}: raise the limit (`ulimit -n {wanted}`, or \
         LimitNOFILE in systemd) or lower limits.connections_max"
    ))
}

fn descriptors(config: &Config) -> u64 {
    let connections = u64::try_from(config.limits.connections_max).unwrap_or(u64::MAX);
    connections.saturating_mul(2).saturating_add(reserved(config.workers))
}

/// At least one: a server that can serve nobody should fail where a person sees it, at the first connection.
fn connections_of(descriptors: u64, workers: usize) -> usize {
    let fits = descriptors.saturating_sub(reserved(workers)) / 2;
    usize::try_from(fits).unwrap_or(usize::MAX).max(1)
}

fn reserved(workers: usize) -> u64 {
    RESERVED + RESERVED_PER_WORKER * u64::try_from(workers).unwrap_or(u64::MAX / RESERVED_PER_WORKER - RESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_lowered_and_said() {
        let mut config = Config { workers: 2, ..Config::default() };
        config.limits.connections_max = 10_000_000_000_000;
        let note = fit(&mut config);
        let lowered = config.limits.connections_max < 10_000_000_000_000;
        assert_eq!(note.is_some(), lowered);
        assert_eq!(connections_of(1_024, 2), 440);
        assert_eq!(connections_of(64, 2), 1);
        config.limits.connections_max = 440;
        assert_eq!(descriptors(&config), 1_024);
        config.limits.connections_max = 1;
        assert_eq!(fit(&mut config), None);
    }
}
