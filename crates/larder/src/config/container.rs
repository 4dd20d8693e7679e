//! The memory limit of the container (cgroup) that this process lives in.

use super::Config;
use std::path::Path;

/// A process takes more than its store: of the limit, the store gets at most this part by default.
const SHARE: u64 = 2;
/// Beside the store: code, connections, the runtime.
const BESIDE_BYTES: u64 = 24_000_000;

/// Lowers a memory budget that is not configured to half of the container's limit, and reports that; warns of a
/// configured one that does not fit.
pub fn fit(config: &mut Config, is_said: bool) -> Option<String> {
    fit_to(config, is_said, limit_bytes()?)
}

fn fit_to(config: &mut Config, is_said: bool, limit: u64) -> Option<String> {
    let needs = config.memory_bytes.saturating_add(config.memory_bytes / 10).saturating_add(BESIDE_BYTES);
    if needs <= limit {
        return None;
    }
    let asked = config.memory_bytes;
    if is_said {
        return Some(format!(
            "memory = {asked} bytes and what goes with it exceed the {limit} bytes of this container: lower `memory`, or raise the limit"
        ));
    }
    config.memory_bytes = (limit / SHARE).min(asked);
    config.memory_object_bytes_max = Config::memory_object_bytes_max_for(config.memory_bytes);
    Some(format!("the container has {limit} bytes of memory: `memory` is {}, not {asked}", config.memory_bytes))
}

/// The memory that this process may have as one of its control group (`MemoryMax=` of a unit, the limit of a container), in bytes.
pub fn limit_bytes() -> Option<u64> {
    limit_bytes_below(Path::new("/"))
}

/// The smallest limit on the way from this process's group to the root, in either version of cgroups.
fn limit_bytes_below(root: &Path) -> Option<u64> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    groups.lines().filter_map(|line| limit_of(root, line)).min()
}

/// A line is `NUMBER:CONTROLLERS:PATH`; version 2 has no controllers.
fn limit_of(root: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':');
    let (controllers, path) = (parts.nth(1)?, parts.next()?);
    let (base, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        named if named.split(',').any(|name| name == "memory") => ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return None,
    };
    let base = root.join(base);
    let own = base.join(path.trim_start_matches('/'));
    // Inside a container the path may be that of the host: then the mount itself is the group.
    let folders = own.ancestors().take_while(|folder| folder.starts_with(&base));
    folders.filter_map(|folder| std::fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, text: &str) {
        std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        std::fs::write(root.join(name), text).unwrap();
    }

    #[test]
    fn the_smallest_limit_on_the_way_up_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(limit_bytes_below(root), None);
        write(root, "proc/self/cgroup", "0::/a/b\n");
        assert_eq!(limit_bytes_below(root), None);
        write(root, "sys/fs/cgroup/a/b/memory.max", "max\n");
        write(root, "sys/fs/cgroup/a/memory.max", "100000000\n");
        assert_eq!(limit_bytes_below(root), Some(100_000_000));
        write(root, "proc/self/cgroup", "5:cpu:/x\n4:memory:/y\n");
        write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "50000000\n");
        assert_eq!(limit_bytes_below(root), Some(50_000_000));
    }

    #[test]
    fn a_default_is_lowered_and_a_wish_is_warned_of() {
        let mut config = Config::default();
        assert!(fit_to(&mut config, false, 100_000_000).is_some());
        assert_eq!((config.memory_bytes, config.memory_object_bytes_max), (50_000_000, 12_500_000));
        assert_eq!(fit_to(&mut config, true, 1 << 40), None);
        config.memory_bytes = 200_000_000;
        assert!(fit_to(&mut config, true, 100_000_000).unwrap().contains("lower `memory`"));
        assert_eq!(config.memory_bytes, 200_000_000);
    }
}
