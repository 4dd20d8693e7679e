//! Figures of processes from `/proc`. Where there is none, as on other systems than Linux, they are not known.

use std::fs;
use std::time::Duration;

/// Memory of a process that is in use, without what is swapped out.
pub(super) fn resident_bytes(pid: Option<u32>) -> Option<u64> {
    let status = fs::read_to_string(path(pid, "status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

/// User and system time of a process.
pub(super) fn cpu_time(pid: Option<u32>) -> Option<Duration> {
    /// The unit of CPU times in `/proc`, 100 to the second on every Linux that runs here.
    const TICK: Duration = Duration::from_millis(10);
    let stat = fs::read_to_string(path(pid, "stat")).ok()?;
    // The name of the program, which stands between parentheses, may have spaces.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11).map(str::parse::<u32>);
    Some(TICK * fields.next()?.ok()?.saturating_add(fields.next()?.ok()?))
}

/// The file of a process; without a number that of this one.
fn path(pid: Option<u32>, file: &str) -> String {
    pid.map_or_else(|| format!("/proc/self/{file}"), |pid| format!("/proc/{pid}/{file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_no_other_one_that_has_ended() {
        if std::path::Path::new("/proc/self/stat").exists() {
            let own = std::process::id();
            assert!(resident_bytes(None).is_some_and(|bytes| bytes > 100_000));
            assert!(
                resident_bytes(Some(own)).is_some() && cpu_time(Some(own)) >= cpu_time(None).map(|_| Duration::ZERO)
            );
        }
        assert_eq!((resident_bytes(Some(u32::MAX)), cpu_time(Some(u32::MAX))), (None, None));
    }
}
