//! File descriptors: each connection takes one, a served miss a second one to the origin, and unused connections to origins
//! one each.

use super::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Kept aside for listeners, files, the resolver and the runtime, and for each worker.
const RESERVED: u64 = 128;
const RESERVED_PER_WORKER: u64 = 8;

/// Unused connections to origins take at most this part of all descriptors.
const IDLE_PART: u64 = 4;

/// Raises the process's limit as far as it may, lowers `upstream.idle_max` and `connections_max` to the numbers that fit then,
/// and reports that of the latter.
pub fn fit(config: &mut Config) -> Option<String> {
    let limit = getrlimit(Resource::Nofile);
    let mut soft = limit.current.unwrap_or(u64::MAX);
    let wanted = descriptors(config);
    let most = limit.maximum.unwrap_or(u64::MAX).min(wanted);
    let raised = Rlimit { current: Some(most), maximum: limit.maximum };
    if soft < most && setrlimit(Resource::Nofile, raised).is_ok() {
        soft = most;
    }
    if soft < wanted {
        let idle_max = usize::try_from(soft / IDLE_PART).unwrap_or(usize::MAX);
        config.upstream.idle_max = config.upstream.idle_max.min(idle_max);
    }
    let fits = connections_of(soft.saturating_sub(count(config.upstream.idle_max)), config.workers);
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
    let idle = count(config.upstream.idle_max).saturating_add(reserved(config.workers));
    count(config.limits.connections_max).saturating_mul(2).saturating_add(idle)
}

/// At least one: a server that can serve nobody should fail where a person sees it, at the first connection.
fn connections_of(descriptors: u64, workers: usize) -> usize {
    let fits = descriptors.saturating_sub(reserved(workers)) / 2;
    usize::try_from(fits).unwrap_or(usize::MAX).max(1)
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
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
        config.upstream.idle_max = 0;
        config.limits.connections_max = 10_000_000_000_000;
        let note = fit(&mut config);
        let lowered = config.limits.connections_max < 10_000_000_000_000;
        assert_eq!(note.is_some(), lowered);
        assert_eq!(connections_of(1_024, 2), 440);
        assert_eq!(connections_of(64, 2), 1);
        config.limits.connections_max = 440;
        assert_eq!(descriptors(&config), 1_024);
        config.upstream.idle_max = 100;
        assert_eq!(descriptors(&config), 1_124);
        config.limits.connections_max = 1;
        assert_eq!((fit(&mut config), config.upstream.idle_max), (None, 100));
    }
}
