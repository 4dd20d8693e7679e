//! The machine and the settings of its network, for the head of a ledger.

use super::energy::{self, Counters};
use super::text;
use crate::ledger::{Machine, Tuning};
use std::fs;
use std::path::Path;

/// Settings of the kernel that changed published figures before, or may.
const SETTINGS: [&str; 14] = [
    "net.core.somaxconn",
    "net.core.netdev_max_backlog",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_syncookies",
    "fs.file-max",
];

/// The machine this runs on; `own_cores` is what the referee was bound to.
pub fn machine(own_cores: &str) -> Machine {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |name: &str| {
        let line = processors.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let one_line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    Machine {
        processor: processor(value),
        cores: std::thread::available_parallelism().map_or(0, |cores| cores.get() as u32),
        own_cores: own_cores.to_owned(),
        memory: text::field(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemTotal:").unwrap_or(0) * 1_024,
        smt: one_line("/sys/devices/system/cpu/smt/active"),
        system: distribution(),
        kernel: format!("{} {}", one_line("/proc/sys/kernel/ostype"), one_line("/proc/sys/kernel/osrelease")),
        virtual_machine: value("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        power: power(Path::new("/sys/class/power_supply")).to_owned(),
        energy: Counters::new(Path::new(energy::FOLDER)).names(),
    }
}

/// The model of the processor. A guest is often told a family's name alone: the numbers say which model it is.
fn processor(value: impl Fn(&str) -> Option<String>) -> String {
    let name = value("model name").unwrap_or_default();
    let numbers = [("family", "cpu family"), ("model", "model\t"), ("stepping", "stepping")];
    let known: Vec<String> =
        numbers.iter().filter_map(|(word, field)| Some(format!("{word} {}", value(field)?))).collect();
    if known.is_empty() { name } else { format!("{name} ({})", known.join(", ")) }
}

/// The distribution with its version, as `Debian GNU/Linux 12 (bookworm)`; empty where none is named.
pub fn distribution() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or(String::new(), |name| name.trim_matches('"').to_owned())
}

/// The type of the file system that a path lies on, such as `ext4` or `tmpfs`; empty where the kernel does not tell.
pub fn file_system(path: &Path) -> String {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    type_at(&mounts, &path)
}

/// The type of the deepest mount above a path; of two at one place the later one hides the earlier.
fn type_at(mounts: &str, path: &Path) -> String {
    let of_line = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let at = words.next().filter(|at| path.starts_with(at))?.to_owned();
        Some((at.len(), words.next()?.to_owned()))
    };
    mounts.lines().filter_map(of_line).max_by_key(|(length, _)| *length).map_or(String::new(), |(_, kind)| kind)
}

/// Where the power comes from; empty where no supply is listed, as on most servers.
fn power(folder: &Path) -> &'static str {
    let supplies = fs::read_dir(folder).into_iter().flatten().flatten();
    let value = |supply: &Path, name: &str| fs::read_to_string(supply.join(name)).unwrap_or_default().trim().to_owned();
    let words = supplies.map(|supply| {
        let supply = supply.path();
        match value(&supply, "type").as_str() {
            // A charger or a battery of a mouse is no supply of the machine.
            _ if value(&supply, "scope") == "Device" => "",
            "Mains" | "USB" if value(&supply, "online") == "1" => "mains",
            "Battery" if value(&supply, "status") == "Discharging" => "battery",
            "Battery" => "mains",
            _ => "",
        }
    });
    // A battery that empties says more than a plug.
    words.max_by_key(|word| ["", "mains", "battery"].iter().position(|known| known == word)).unwrap_or("")
}

/// The settings of the system that both sides share, and the limit of open files of the referee.
pub fn system_tuning() -> Vec<Tuning> {
    let mut all: Vec<Tuning> = SETTINGS.iter().filter_map(|name| setting(name)).collect();
    all.extend(frequency());
    if let Some(commit) = option_env!("BUILT_FROM") {
        all.push(Tuning { whose: "referee".to_owned(), name: "commit".to_owned(), value: commit.to_owned() });
    }
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    if let Some(line) = limits.lines().find(|line| line.starts_with("Max open files")) {
        let soft = line.split_whitespace().nth(3).unwrap_or("").to_owned();
        all.push(Tuning { whose: "referee".to_owned(), name: "open files".to_owned(), value: soft });
    }
    all
}

fn setting(name: &str) -> Option<Tuning> {
    let text = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok()?;
    let value = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(Tuning { whose: "system".to_owned(), name: name.to_owned(), value })
}

/// The governor of the processor's frequency, where it can be told.
fn frequency() -> Option<Tuning> {
    let text = fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").ok()?;
    Some(Tuning { whose: "system".to_owned(), name: "cpufreq governor".to_owned(), value: text.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_power_supply_is_told_where_the_system_lists_it() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(power(folder.path()), "");
        let supply = |name: &str, values: &[(&str, &str)]| {
            fs::create_dir_all(folder.path().join(name)).unwrap();
            values.iter().for_each(|(file, value)| fs::write(folder.path().join(name).join(file), value).unwrap());
        };
        supply("mouse", &[("type", "Battery\n"), ("scope", "Device\n"), ("status", "Discharging\n")]);
        supply("AC", &[("type", "Mains\n"), ("online", "0\n")]);
        assert_eq!(power(folder.path()), "");
        supply("AC", &[("online", "1\n")]);
        assert_eq!(power(folder.path()), "mains");
        supply("BAT0", &[("type", "Battery\n"), ("status", "Discharging\n")]);
        assert_eq!(power(folder.path()), "battery");
        supply("BAT0", &[("status", "Charging\n")]);
        assert_eq!(power(folder.path()), "mains");
    }

    #[test]
    fn a_path_lies_on_the_deepest_and_latest_mount_above_it() {
        let mounts =
            "/dev/a / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n/dev/b /srv xfs rw 0 0\n/dev/c /srv btrfs rw 0 0\n";
        for (path, kind) in [("/tmp/x", "ext4"), ("/dev/shm/y", "tmpfs"), ("/srv/z", "btrfs"), ("/srvx", "ext4")] {
            assert_eq!(type_at(mounts, Path::new(path)), kind, "{path}");
        }
        assert_eq!(type_at("", Path::new("/")), "");
    }

    #[test]
    fn a_processor_is_named_with_its_numbers() {
        let value = |name: &str| match name {
            "model name" => Some("A chip".to_owned()),
            "cpu family" => Some("25".to_owned()),
            "model\t" => Some("17".to_owned()),
            _ => None,
        };
        assert_eq!(processor(value), "A chip (family 25, model 17)");
        assert_eq!(processor(|name| (name == "model name").then(|| "B".to_owned())), "B");
    }

    #[test]
    fn this_machine_is_described() {
        let machine = machine("0");
        assert!(machine.cores > 0 && machine.memory > 1 << 20 && machine.kernel.starts_with("Linux "), "{machine:?}");
        assert!(system_tuning().iter().any(|each| each.name == "open files" && !each.value.is_empty()));
    }
}
