//! Names of the visible servers, for a forward proxy that has to look them up: they stand in the `/etc/hosts` that the
//! entry sees, in a mount namespace of its own.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Where resolvers look first.
const HOSTS: &str = "/etc/hosts";

/// The names and addresses of so many visible servers, in the form of `/etc/hosts`; `name` gives them.
pub fn hosts(servers: u32, name: impl Fn(u32) -> (std::net::Ipv4Addr, String)) -> String {
    let mut text = std::fs::read_to_string(HOSTS).unwrap_or_default();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    for (address, name) in (0..servers).map(name) {
        let _ = writeln!(text, "{address} {name}");
    }
    text
}

/// A command that runs a program which sees this file as `/etc/hosts`. It becomes the program: their process is one.
pub(super) fn seeing(program: &Path, hosts: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !rustix::process::getuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["sh", "-c", &format!("mount --bind \"$1\" {HOSTS} && shift && exec \"$@\""), "sh"]);
    command.arg(hosts).arg(program);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_program_sees_the_names_and_others_do_not() {
        let text = hosts(3, |server| (Ipv4Addr::new(127, 9, 9, server as u8), format!("s{server}.cacheoff.test")));
        assert!(text.ends_with("127.9.9.2 s2.cacheoff.test\n") && text.contains("s0.cacheoff.test"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hosts");
        std::fs::write(&file, &text).unwrap();
        let Ok(output) = seeing(Path::new("cat"), &file).arg(HOSTS).output() else { return };
        if !output.status.success() {
            eprintln!("passed over: no namespaces here ({})", String::from_utf8_lossy(&output.stderr));
            return;
        }
        assert_eq!(String::from_utf8_lossy(&output.stdout), text);
        assert!(!std::fs::read_to_string(HOSTS).unwrap_or_default().contains("s2.cacheoff.test"));
    }
}
