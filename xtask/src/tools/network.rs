//! The networks in which a download is repeated: as it is, gone in different ways, and later.
//!
//! A network that is gone is one of a namespace of its own (`unshare`, as root): nothing of this machine's changes.

use super::Bench;
use crate::shell;
use std::process::Command;

/// Under which circumstances a tool downloads again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// As usual.
    Usual,
    /// As usual, with a store that was filled twenty hours ago by Larder's clock.
    Later,
    /// That filling. Only Larder's clock is wrong: some tools hang with another one. Its certificates begin a day before they are made, so
    /// that they are good today.
    Earlier,
    /// `larder run --offline`.
    Offline,
    /// Connections are refused, and there is no way out of the machine.
    Refused,
    /// Packets vanish.
    Dropped,
    /// Names can't be resolved.
    NoNames,
}

impl Condition {
    /// Those of the table, behind the second run.
    pub const OF_TABLE: [Condition; 5] =
        [Condition::Offline, Condition::Refused, Condition::Dropped, Condition::Later, Condition::NoNames];

    /// The name in the table.
    pub fn title(self) -> &'static str {
        match self {
            Condition::Usual => "second run",
            Condition::Later => "20 h later",
            Condition::Earlier => "20 h earlier",
            Condition::Offline => "--offline",
            Condition::Refused => "refused",
            Condition::Dropped => "dropped",
            Condition::NoNames => "no DNS",
        }
    }

    /// No origin can be reached.
    pub fn is_cut_off(self) -> bool {
        matches!(self, Condition::Offline | Condition::Refused | Condition::Dropped)
    }

    /// The name of a tool's store: conditions that are cut off or later meet one that is twenty hours old.
    pub fn store(self) -> &'static str {
        let is_old = self.is_cut_off() || matches!(self, Condition::Later | Condition::Earlier);
        if is_old && Condition::Earlier.lacks().is_none() { "old-store" } else { "store" }
    }

    /// The thing that it needs of the machine and that is not there.
    pub fn lacks(self) -> Option<&'static str> {
        let is_root = rustix::process::geteuid().is_root();
        match self {
            Condition::Later | Condition::Earlier if shell::find_program("faketime").is_none() => Some("faketime"),
            Condition::Refused | Condition::Dropped | Condition::NoNames if !is_root => Some("root"),
            Condition::Dropped if shell::find_program("python3").is_none() => Some("python3"),
            _ => None,
        }
    }

    /// Words before a tool's own: the tool has the right time.
    pub fn before_tool(self) -> &'static [&'static str] {
        match self {
            Condition::Earlier => &["env", "-u", "LD_PRELOAD", "-u", "FAKETIME", "-u", "FAKETIME_DONT_FAKE_MONOTONIC"],
            _ => &[],
        }
    }

    /// A command under this condition.
    pub fn command(self, program: &str, bench: &Bench) -> Command {
        let within = |unshare: &[&str], script: String| {
            let mut command = Command::new("unshare");
            command.args(unshare).args(["--", "sh", "-ec", &format!("{script}\nexec \"$@\""), "sh", program]);
            command
        };
        match self {
            Condition::Usual | Condition::Offline | Condition::Later => Command::new(program),
            Condition::Earlier => {
                let mut command = Command::new("faketime");
                command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").args(["-f", "-20h", program]);
                command
            }
            Condition::Refused => within(&["-n"], "ip link set lo up".into()),
            Condition::Dropped => {
                let names = bench.resolver("198.18.0.53");
                let ports: Vec<String> = bench.ports.iter().map(u16::to_string).collect();
                within(
                    &["-n", "-m"],
                    format!(
                        "mount --bind {names} /etc/resolv.conf\nip link set lo up\nip link add d0 type veth peer name d1\n\
                         ip addr add 198.18.0.2/15 dev d0\nip link set d0 up\nip link set d1 up\n\
                         ip neigh add 198.18.0.1 lladdr 02:00:00:00:00:01 dev d0 nud permanent\n\
                         ip route add default via 198.18.0.1\n\
                         set -- python3 -c '{DEAF}' {} -- \"$@\"",
                        ports.join(" ")
                    ),
                )
            }
            Condition::NoNames => {
                let names = bench.resolver("127.0.0.9");
                within(&["-m"], format!("mount --bind {names} /etc/resolv.conf"))
            }
        }
    }
}

/// Listens on ports with queues that are full, which drops what comes, and becomes the command behind `--`.
const DEAF: &str = "\
import os, socket, sys
end = sys.argv.index(\"--\")
kept = []
for port in sys.argv[1:end]:
    deaf = socket.socket(); deaf.bind((\"127.0.0.1\", int(port))); deaf.listen(0)
    for _ in range(3):
        one = socket.socket(); one.setblocking(False); one.connect_ex((\"127.0.0.1\", int(port))); kept.append(one)
    kept.append(deaf)
[one.set_inheritable(True) for one in kept]
os.execvp(sys.argv[end + 1], sys.argv[end + 1:])
";
