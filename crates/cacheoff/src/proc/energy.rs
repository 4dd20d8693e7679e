//! Energy that the machine took, by the counters of its processor (RAPL), where the kernel shows them and this user may
//! read them: usually root on real machines, nobody in virtual ones.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel shows them.
pub const FOLDER: &str = "/sys/class/powercap";

/// Counters that can be read, for the time between two readings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    zones: Vec<Zone>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Zone {
    name: String,
    path: PathBuf,
    /// The largest value in microjoules, after which it begins at zero.
    largest: u64,
    /// The value at the last reading.
    before: u64,
}

impl Counters {
    /// The counters below this folder, read for the first time. Packages and their memory are what counts: cores and
    /// graphics are parts of a package, and the zone of the whole board has packages in it.
    pub fn new(folder: &Path) -> Self {
        let folders = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let zones = folders.filter_map(|path| {
            let name = fs::read_to_string(path.join("name")).ok()?.trim().to_owned();
            let counts = name.starts_with("package") || name == "dram";
            // The same counters are shown a second time by their memory-mapped registers.
            let twice = path.file_name().is_some_and(|name| name.to_string_lossy().contains("-mmio"));
            let (largest, before) = (number(&path, "max_energy_range_uj")?, number(&path, "energy_uj")?);
            (counts && !twice).then_some(Zone { name, path, largest, before })
        });
        let mut zones: Vec<Zone> = zones.collect();
        zones.sort_by(|a, b| a.path.cmp(&b.path));
        Self { zones }
    }

    /// Their names, such as `package-0, dram`; empty where none can be read.
    pub fn names(&self) -> String {
        self.zones.iter().map(|zone| zone.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Microjoules since the last reading; nothing where no counter can be read, or one of them not any more. A counter
    /// that began again at zero did so once: even at 300 W that takes minutes.
    pub fn since(&mut self) -> Option<u64> {
        let mut sum = 0_u64;
        let mut all = !self.zones.is_empty();
        for zone in &mut self.zones {
            let Some(now) = number(&zone.path, "energy_uj") else {
                all = false;
                continue;
            };
            let used = if now >= zone.before {
                now - zone.before
            } else {
                zone.largest.saturating_sub(zone.before).saturating_add(now)
            };
            (zone.before, sum) = (now, sum.saturating_add(used));
        }
        all.then_some(sum)
    }
}

fn number(folder: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stand-in for a zone of the kernel.
    fn zone(folder: &Path, zone: &str, name: &str, energy_uj: u64) {
        let path = folder.join(zone);
        fs::create_dir_all(&path).unwrap();
        for (file, text) in [("name", name), ("max_energy_range_uj", "1000"), ("energy_uj", &energy_uj.to_string())] {
            fs::write(path.join(file), format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn packages_and_their_memory_are_read_once_and_counters_go_round() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        for (name, what) in
            [("intel-rapl:0", "package-0"), ("intel-rapl-mmio:0", "package-0"), ("intel-rapl:0:0", "core")]
        {
            zone(path, name, what, 900);
        }
        zone(path, "intel-rapl:0:2", "dram", 100);
        zone(path, "intel-rapl:1", "psys", 7);
        fs::create_dir(path.join("intel-rapl")).unwrap();
        let mut counters = Counters::new(path);
        assert_eq!(counters.names(), "package-0, dram");
        assert_eq!(counters.since(), Some(0));
        zone(path, "intel-rapl:0", "package-0", 950);
        zone(path, "intel-rapl:0:2", "dram", 130);
        assert_eq!(counters.since(), Some(80));
        zone(path, "intel-rapl:0", "package-0", 20);
        assert_eq!(counters.since(), Some(70), "950 to 1000, and 20 more");
        fs::remove_file(path.join("intel-rapl:0:2/energy_uj")).unwrap();
        assert_eq!(counters.since(), None, "a part of the energy is no figure");
    }

    #[test]
    fn where_nothing_can_be_read_nothing_is_told() {
        let folder = tempfile::tempdir().unwrap();
        for place in [folder.path().to_owned(), folder.path().join("absent")] {
            let mut counters = Counters::new(&place);
            assert_eq!((counters.names(), counters.since()), (String::new(), None));
        }
    }
}
