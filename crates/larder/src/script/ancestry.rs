//! Which processes of the machine belong to scripts: those that run them, and all that these have started. They may not command the server.

use super::descendants::pid_of;
use super::orphans;
use crate::children;
use rustix::io::Errno;
use rustix::process::test_kill_process;
use std::fs;

/// Parents that are looked at: more than any chain has that is not made to be long.
const PARENTS_MAX: usize = 4_096;

/// Whether a process is one of a script, or may be: one that has ended already tells nothing of its parents. Descendants stay below
/// the process of their script (`PR_SET_CHILD_SUBREAPER`) for as long as it lives, and are children of this process after that, until
/// they are ended too.
pub fn may_be_of_script(pid: u32) -> bool {
    if !children::is_any_of_script() && !orphans::are_adopted() {
        return false;
    }
    let (mut at, own) = (pid, std::process::id());
    for _ in 0..PARENTS_MAX {
        if children::is_of_script(at) {
            return true;
        }
        // Scripts and all that they start have the user of this process. Parents of another one may be hidden (`hidepid` of /proc,
        // `ProtectProc=` of a unit), as those of a command are that root starts as this user.
        if is_of_another_user(at) {
            return false;
        }
        match parent(at) {
            Some(parent) if parent == own => return orphans::is_one(at),
            Some(0 | 1) => return false,
            Some(parent) => at = parent,
            // A parent that has ended since was below the same process as its child is now; the process that asks has to be there.
            None => return true,
        }
    }
    true
}

/// Whether a process is there and this one may send it no signal; root may to all.
fn is_of_another_user(pid: u32) -> bool {
    pid_of(pid).is_some_and(|pid| test_kill_process(pid) == Err(Errno::PERM))
}

/// The parent of a process, proc_pid_stat(5).
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::children::OwnChild;
    use std::process::{Command, Stdio};

    #[test]
    fn what_a_script_has_started_is_of_it_and_its_server_is_not() {
        let spawn = || Command::new("sh").args(["-c", "sleep 60 & echo $!; wait"]).stdout(Stdio::piped()).spawn();
        let (mut script, own) = OwnChild::start_script(spawn, |script| Some(script.id())).unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(script.stdout.take().unwrap()), &mut line).unwrap();
        let below: u32 = line.trim().parse().unwrap();
        assert!(may_be_of_script(script.id()) && may_be_of_script(below));
        assert!(!may_be_of_script(std::process::id()));
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(below as i32).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        script.wait().unwrap();
        assert!(may_be_of_script(below), "it has ended, and tells nothing any more");
        drop(own);
    }

    /// Says to a copy of this test that it is the command.
    const COMMAND: &str = "LARDER_TEST_HIDDEN_PARENT";

    #[test]
    fn a_command_whose_parent_is_hidden_and_of_another_user_is_of_no_script() {
        if std::env::var_os(COMMAND).is_some() {
            let spawn = || Command::new("sleep").arg("60").spawn();
            let (mut script, _own) = OwnChild::start_script(spawn, |script| Some(script.id())).unwrap();
            assert_eq!(parent(std::os::unix::process::parent_id()), None, "the parent is not hidden");
            assert!(!may_be_of_script(std::process::id()), "taken for one of a script");
            assert!(may_be_of_script(script.id()));
            script.kill().unwrap();
            script.wait().unwrap();
            return;
        }
        let mut unshare = Command::new("unshare");
        let may_unshare =
            unshare.args(["--mount", "--pid", "--fork", "true"]).status().is_ok_and(|status| status.success());
        if !rustix::process::geteuid().is_root() || !may_unshare {
            return println!("skipped: needs root and its name spaces, to mount /proc and to be another user");
        }
        // Process 1 of a new name space, below it root's shell, and below that the command as another user. The program is
        // opened before, for that user may not reach its folder.
        let script = "mount -t proc -o hidepid=invisible proc /proc && sh -c 'setpriv --reuid 65534 --regid 65534 --clear-groups \
                      /proc/self/fd/0 --exact script::ancestry::tests::a_command_whose_parent_is_hidden_and_of_another_user_is_of_no_script \
                      && exit 0'; exit $?";
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]).env(COMMAND, "1");
        unshare.stdin(fs::File::open("/proc/self/exe").unwrap());
        let output = unshare.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
