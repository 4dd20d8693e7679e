//! The network namespace of the lab: its origins have a name and an address there that are not this machine's own, as those of a
//! company's registry. Answers from addresses that are closed to clients elsewhere are not kept under a name, and tools in Go ask
//! `localhost` without a proxy, whatever the variables say.

use crate::shell::{self, Trouble};
use std::net::Ipv4Addr;
use std::process::Command;

/// The variable that says where the network of the machine is found, within the namespace.
const OUTSIDE: &str = "LARDER_LAB_OUTSIDE";

/// An address for documentation (RFC 5737), and a name for examples (RFC 6761).
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
const NAME: &str = "packages.example";

fn is_within() -> bool {
    std::env::var_os(OUTSIDE).is_some()
}

/// The name of the lab's origins.
pub(super) fn lab_name() -> String {
    if is_within() { NAME.to_owned() } else { "localhost".to_owned() }
}

/// Where the lab's origins listen.
pub(super) fn address() -> Ipv4Addr {
    if is_within() { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST }
}

/// Runs this chore in a namespace that is made for it and ends with it; `None` where it runs there already, or can't be made.
pub(super) fn enter() -> Option<Result<(), Trouble>> {
    let programs = ["unshare", "nsenter", "ip"].iter().all(|name| shell::find_program(name).is_some());
    if is_within() || !programs || !rustix::process::geteuid().is_root() {
        return None;
    }
    Some(run_within())
}

fn run_within() -> Result<(), Trouble> {
    let trouble = |error: &dyn std::fmt::Display| format!("making the lab's network: {error}");
    let own = std::env::current_exe().map_err(|error| trouble(&error))?;
    let folder = tempfile::tempdir().map_err(|error| trouble(&error))?;
    let hosts = folder.path().join("hosts");
    let names = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    std::fs::write(&hosts, format!("{names}\n{ADDRESS} {NAME}\n")).map_err(|error| trouble(&error))?;
    let script = format!(
        "ip link set lo up\nip addr add {ADDRESS}/32 dev lo\nmount --bind {} /etc/hosts\nexec \"$@\"",
        hosts.display()
    );
    let mut command = Command::new("unshare");
    command.args(["-n", "-m", "--", "sh", "-ec", &script, "sh"]).arg(own).args(std::env::args_os().skip(1));
    command.env(OUTSIDE, format!("/proc/{}/ns/net", std::process::id()));
    match command.status().map_err(|error| trouble(&error))?.success() {
        true => Ok(()),
        false => Err("see above".to_owned()),
    }
}

/// The command in the network of the machine, where registries are reached.
pub(super) fn outside(command: Command) -> Command {
    let Some(network) = std::env::var_os(OUTSIDE) else { return command };
    let mut outside = Command::new("nsenter");
    outside.arg(format!("--net={}", network.display())).arg("--").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outside.env(name, value),
            None => outside.env_remove(name),
        };
    }
    outside
}
