//! Running programs and finding the workspace: what every chore needs of the machine.

use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// An error of a chore, as the sentence that is printed.
pub type Trouble = String;

/// The workspace folder: the nearest one upwards that has `xtask/tidy.toml`.
pub fn workspace() -> Result<PathBuf, Trouble> {
    let here = std::env::current_dir().map_err(|error| format!("no current folder: {error}"))?;
    let found = here.ancestors().find(|folder| folder.join("xtask/tidy.toml").is_file());
    found
        .map(Path::to_path_buf)
        .ok_or_else(|| format!("no workspace at or above {}: run this inside a clone", here.display()))
}

/// A program on the search path; servers are often in folders that a user's path leaves out.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(extra).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The program's path, or a sentence that names the remedy.
pub fn need_program(name: &str) -> Result<PathBuf, Trouble> {
    find_program(name).ok_or_else(|| format!("{name} is not installed: install the package that has it (see .ci/run)"))
}

/// Builds everything as the tests are built, so that nothing is compiled twice with other features. Benches are left
/// out: the lints read them, and nobody here runs them without optimisation.
pub fn build(root: &Path) -> Result<(), Trouble> {
    call(Command::new("cargo").current_dir(root).args([
        "build",
        "--workspace",
        "--lib",
        "--bins",
        "--tests",
        "--quiet",
    ]))
}

/// A call of cargo in the workspace.
pub fn cargo(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(args);
    command
}

/// The `larder` that [`build`] made.
pub fn built_larder(root: &Path) -> PathBuf {
    target_folder(root).join("debug/larder")
}

/// Builds programs of a package as they are published, with the profile `dist`: what is measured is what people get.
pub fn build_published(root: &Path, package: &str, programs: &[&str]) -> Result<(), Trouble> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(["build", "--profile", "dist", "--quiet", "-p", package]);
    call(cargo.args(programs.iter().flat_map(|program| ["--bin", program])))
}

/// Builds an example of a package as it is published; it lies in the folder `examples` beside the programs.
pub fn build_published_example(root: &Path, package: &str, example: &str) -> Result<(), Trouble> {
    let mut cargo = Command::new("cargo");
    call(cargo.current_dir(root).args(["build", "--profile", "dist", "--quiet", "-p", package, "--example", example]))
}

/// A program that [`build_published`] made.
pub fn published(root: &Path, program: &str) -> PathBuf {
    target_folder(root).join("dist").join(program)
}

/// The `larder` that is given, else the published build of this workspace, made now.
pub fn given_or_published_larder(root: &Path, given: Option<&PathBuf>) -> Result<PathBuf, Trouble> {
    if let Some(path) = given {
        return Ok(path.clone());
    }
    build_published(root, "larder", &["larder"])?;
    Ok(published(root, "larder"))
}

/// Where cargo puts what it builds.
pub fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Runs a command with its output on the terminal; an exit status other than 0 is trouble.
pub fn call(command: &mut Command) -> Result<(), Trouble> {
    let shown = format!("{command:?}");
    let status = command.status().map_err(|error| format!("cannot start {shown}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{shown} ended with {status}")) }
}

/// Runs a command quietly and gives its standard output; its error output is shown only in the trouble.
pub fn ask(command: &mut Command) -> Result<String, Trouble> {
    let shown = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("cannot start {shown}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{shown} ended with {}: {}", output.status, last_lines(&said, 12)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command, shows each line of its standard output as it comes, and hands it to `read`.
/// Gives whether the command succeeded.
pub fn follow(command: &mut Command, read: impl FnMut(&str)) -> Result<bool, Trouble> {
    let mut child = spawn(command.stdout(Stdio::piped()))?;
    let output = child.stdout.take();
    follow_lines(child, output, read)
}

/// Like [`follow`], for the error output, which fuzzers write to.
pub fn follow_errors(command: &mut Command, read: impl FnMut(&str)) -> Result<bool, Trouble> {
    let mut child = spawn(command.stderr(Stdio::piped()))?;
    let output = child.stderr.take();
    follow_lines(child, output, read)
}

fn spawn(command: &mut Command) -> Result<Child, Trouble> {
    command.spawn().map_err(|error| format!("cannot start {}: {error}", command.get_program().display()))
}

fn follow_lines(mut child: Child, output: Option<impl Read>, mut read: impl FnMut(&str)) -> Result<bool, Trouble> {
    let output = output.ok_or("the child has no output to read")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = line.map_err(|error| format!("reading a child's output: {error}"))?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        read(&line);
    }
    io::stdout().flush().ok();
    let status = child.wait().map_err(|error| format!("waiting for a child: {error}"))?;
    Ok(status.success())
}

/// The result of a bounded command.
pub struct Bounded {
    /// Its exit status; `None` when its time was over.
    pub status: Option<i32>,
    /// Both outputs, mixed, the end of them.
    pub said: String,
}

/// Runs a command in a process group of its own for at most `seconds_max`, then ends the group.
pub fn bounded(command: &mut Command, seconds_max: u64) -> Result<Bounded, Trouble> {
    let shown = command.get_program().display().to_string();
    let trouble = |error: io::Error| format!("running {shown}: {error}");
    let mut output = tempfile::tempfile().map_err(trouble)?;
    let (out, err) = (output.try_clone().map_err(trouble)?, output.try_clone().map_err(trouble)?);
    let command = command.process_group(0).stdin(Stdio::null()).stdout(out).stderr(err);
    let mut child = command.spawn().map_err(trouble)?;
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(trouble)? {
            break Some(status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(-1));
        }
        if began.elapsed() > Duration::from_secs(seconds_max) {
            end_group(&mut child);
            break None;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    output.rewind().map_err(trouble)?;
    let mut said = Vec::new();
    output.read_to_end(&mut said).map_err(trouble)?;
    Ok(Bounded { status, said: last_lines(&String::from_utf8_lossy(&said), 40) })
}

/// Kills what is left of a process group, and waits for its first process.
pub fn end_group(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
    }
    child.wait().ok();
}

/// The end of a long text.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Files that git knows or would add, relative to `root`: what is in the tree, without what is ignored.
pub fn tree_files(root: &Path) -> Result<Vec<String>, Trouble> {
    let list = ask(Command::new("git").current_dir(root).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
    ]))?;
    let mut files: Vec<String> =
        list.split('\0').filter(|name| !name.is_empty() && root.join(name).is_file()).map(str::to_owned).collect();
    files.sort();
    files.dedup();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_signals_and_ends_of_patience() {
        let run = |script: &str| bounded(Command::new("sh").args(["-c", script]), 1).unwrap();
        assert_eq!(run("exit 7").status, Some(7));
        assert_eq!(run("kill -TERM $$").status, Some(143));
        let late = run("echo begun; sleep 20 & sleep 20");
        assert_eq!((late.status, late.said.as_str()), (None, "begun"));
    }

    #[test]
    fn lines_are_followed() {
        let mut lines = Vec::new();
        let went_well =
            follow(Command::new("sh").args(["-c", "echo a; echo b; exit 1"]), |line| lines.push(line.to_owned()));
        assert_eq!((went_well, lines), (Ok(false), vec!["a".to_owned(), "b".to_owned()]));
    }
}
