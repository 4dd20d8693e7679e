//! The texts of /proc as values.

use std::collections::BTreeSet;

/// Clock ticks per second in /proc: the kernel's promise to programs, whatever its own clock is.
const TICKS_PER_S: f64 = 100.0;

/// The words of a command, as they are typed into a shell.
pub(super) fn command(words: impl Iterator<Item = String>) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "_@%+=:,./-".contains(letter);
    let typed = words.map(|word| match !word.is_empty() && word.chars().all(is_plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', r"'\''")),
    });
    typed.collect::<Vec<_>>().join(" ")
}

/// The fields of `/proc/PID/stat` that matter here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stat {
    pub parent: u32,
    pub session: u32,
    pub user_s: f64,
    pub kernel_s: f64,
    /// Of its children that ended and were waited for, with theirs.
    pub ended_user_s: f64,
    pub ended_kernel_s: f64,
    pub threads: u64,
}

pub(super) fn stat(text: &str) -> Option<Stat> {
    // The name in parentheses may hold anything, parentheses too.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some(Stat {
        parent: number(1)? as u32,
        session: number(3)? as u32,
        user_s: number(11)? / TICKS_PER_S,
        kernel_s: number(12)? / TICKS_PER_S,
        ended_user_s: number(13)? / TICKS_PER_S,
        ended_kernel_s: number(14)? / TICKS_PER_S,
        threads: number(17)? as u64,
    })
}

/// Figures of one process, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Process {
    pub user_s: f64,
    pub kernel_s: f64,
    pub ended_user_s: f64,
    pub ended_kernel_s: f64,
    pub memory: u64,
    pub descriptors: u64,
    pub processes: u64,
    pub threads: u64,
    pub written: u64,
    pub read: u64,
}

impl Process {
    pub fn cpu(&self) -> f64 {
        self.user_s + self.kernel_s
    }

    /// With the CPU of its children that have ended, which /proc counts to the parent that waited for them.
    pub fn with_ended(self) -> Self {
        self.plus(self.ended())
    }

    /// The CPU of its children that have ended, alone.
    pub fn ended(self) -> Self {
        Self { user_s: self.ended_user_s, kernel_s: self.ended_kernel_s, ..Self::default() }
    }

    pub fn plus(self, other: Self) -> Self {
        Self {
            user_s: self.user_s + other.user_s,
            kernel_s: self.kernel_s + other.kernel_s,
            ended_user_s: self.ended_user_s + other.ended_user_s,
            ended_kernel_s: self.ended_kernel_s + other.ended_kernel_s,
            memory: self.memory + other.memory,
            descriptors: self.descriptors + other.descriptors,
            processes: self.processes + other.processes,
            threads: self.threads + other.threads,
            written: self.written + other.written,
            read: self.read + other.read,
        }
    }
}

/// CPU of the whole machine since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct MachineTimes {
    pub busy_s: f64,
    pub steal_s: f64,
}

pub(super) fn machine_times(text: &str) -> MachineTimes {
    let ticks: Vec<f64> =
        text.lines().next().unwrap_or("").split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    let seconds = |index: usize| ticks.get(index).copied().unwrap_or(0.0) / TICKS_PER_S;
    // user, nice, system, irq, softirq; not idle (3) and iowait (4).
    MachineTimes { busy_s: [0, 1, 2, 5, 6].into_iter().map(seconds).sum(), steal_s: seconds(7) }
}

/// The number after a name in `name: number` lines.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line[name.len()..].split_whitespace().next()?.parse().ok()
}

/// Sockets that listen on a port, as links in `/proc/PID/fd` name them.
pub(super) fn listening(table: &str, port: u16) -> BTreeSet<String> {
    const LISTEN: &str = "0A";
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = rows.filter(|row| {
        let local = row.get(1).and_then(|address| address.rsplit_once(':'));
        row.get(3) == Some(&LISTEN) && local.is_some_and(|(_, hex)| u16::from_str_radix(hex, 16) == Ok(port))
    });
    ours.filter_map(|row| row.get(9).map(|inode| format!("socket:[{inode}]"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_typed_again() {
        let words = ["cacheoff", "official", "--by", "the project", "--peak=100", "it's", ""];
        assert_eq!(
            command(words.into_iter().map(str::to_owned)),
            r"cacheoff official --by 'the project' --peak=100 'it'\''s' ''"
        );
    }

    #[test]
    fn stat_is_read_whatever_the_name_is() {
        let text = "77 (a) b) c) S 12 77 70 0 -1 4194560 1 0 0 0 150 50 25 75 20 0 3 0 100 1 2";
        let expected = Stat {
            parent: 12,
            session: 70,
            user_s: 1.5,
            kernel_s: 0.5,
            ended_user_s: 0.25,
            ended_kernel_s: 0.75,
            threads: 3,
        };
        assert_eq!(stat(text), Some(expected));
        assert_eq!(stat("77 (short) S 1"), None);
        assert_eq!(stat(""), None);
    }

    #[test]
    fn idle_time_is_not_work_and_steal_is_apart() {
        let times = machine_times("cpu  100 0 200 9000 50 0 100 300 0 0\ncpu0 1 2 3\n");
        assert_eq!((times.busy_s, times.steal_s), (4.0, 3.0));
        assert_eq!(machine_times(""), MachineTimes::default());
    }

    #[test]
    fn a_listening_socket_is_found_and_a_connected_one_is_not() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:0C38 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1\n\
             1: 0100007F:0C38 0100007F:9999 01 00000000:00000000 00:00000000 00000000 0 0 4712 1\n";
        assert_eq!(listening(table, 3_128).into_iter().collect::<Vec<_>>(), ["socket:[4711]"]);
        assert!(listening(table, 3_129).is_empty());
    }

    #[test]
    fn fields_are_read_by_name() {
        assert_eq!(field("Rss: 12 kB\nPss:      345 kB\n", "Pss:"), Some(345));
        assert_eq!(field("Pss: x", "Pss:"), None);
    }
}
