//! Programs of the machine: where they are, and one that is run to its end.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A command before the start may take this long.
const PREPARE_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);

/// A program in some folders before all others, in `PATH`, beside this one or in the `sbin` folders; the reason against it names its package.
pub(super) fn find_program(
    name: &str,
    package: &str,
    first: impl IntoIterator<Item = PathBuf>,
) -> Result<PathBuf, String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.to_path_buf()));
    let folders = first.into_iter().chain(std::env::split_paths(&path).collect::<Vec<_>>()).chain(beside);
    let folders = folders.chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from));
    let found = folders.map(|folder| folder.join(name)).find(|file| is_program(file));
    found.ok_or_else(|| format!("{name} is not installed ({package})"))
}

pub(super) fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

/// Runs a command before the start of an entry of this name, in its folder, until it has ended well.
pub(super) fn run_to_end(name: &str, words: &[String], folder: &Path) -> Result<(), String> {
    let [program, arguments @ ..] = words else { return Ok(()) };
    let fail =
        |reason: String| format!("{}: the command {:?} before the start failed: {reason}", name, words.join(" "));
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| fail(error.to_string()))?;
    let begun = Instant::now();
    loop {
        match child.try_wait().map_err(|error| fail(error.to_string()))? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(fail(status.to_string())),
            None if begun.elapsed() > PREPARE_MAX => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(fail(format!("it took more than {} s", PREPARE_MAX.as_secs())));
            }
            None => std::thread::sleep(POLL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_in_the_folders_that_come_first_and_a_failure_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("sh");
        std::fs::write(&own, "#!/bin/sh\nexit 3\n").unwrap();
        assert_ne!(find_program("sh", "", [folder.path().to_owned()]).unwrap(), own, "it is no program yet");
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find_program("sh", "", [folder.path().to_owned()]).unwrap(), own);
        let missing = find_program("no-such-program", "apt-get install it", []).unwrap_err();
        assert_eq!(missing, "no-such-program is not installed (apt-get install it)");
        let run = |words: &[&str]| {
            run_to_end("one", &words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), folder.path())
        };
        assert!(run(&["true"]).is_ok() && run(&[]).is_ok());
        let error = run(&[&own.display().to_string()]).unwrap_err();
        assert!(error.starts_with("one: the command ") && error.contains("exit status: 3"), "{error}");
    }
}
