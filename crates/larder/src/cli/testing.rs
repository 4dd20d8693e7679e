//! `larder test`: runs tests of hooks by the interpreter that would run the hooks, with the package `larder` at hand. No server, no
//! network, nothing installed.

use super::{Flags, TROUBLE, WRONG};
use crate::config::application::{Application, Interface};
use crate::config::places::Here;
use crate::config::{Mount, Python, units};
use crate::diagnostics;
use crate::run::folder::Temporary;
use crate::script;
use clap::Args;
use larder_wire::Host;
use serde_json::json;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Args)]
#[command(after_help = "\
Examples:
  larder test                        the files test_*.py of this folder
  larder test policy.py              the tests in it and in test_policy.py; without any, its hooks and a test to begin with
  larder test -k utm                 the tests whose names have `utm` in them

A test is a function test_*, a method test_* of a class Test* or of a unittest.TestCase, or an example in a docstring (>>>):

  from larder.testing import call

  def test_utm_is_dropped():
      decision = call(\"policy.py\", \"GET http://shop.example/?utm_source=x&id=1\")
      assert decision.query == \"id=1\"

A hook that takes longer than `hook_time` of that [[python]] (50 ms without a word) fails its test, as it would fail its request.
pytest runs the same files, with PYTHONPATH set to what `larder scripts --library FOLDER` wrote.
The interpreter is that of the [[python]] in whose folder the file lies, else .venv/bin/python beside it, $VIRTUAL_ENV or python3.

Exit status: 0 all passed; 1 something failed, or no test ran; 2 there is no such file, or no interpreter.")]
pub(super) struct TestFlags {
    /// Files of tests or of hooks, or folders with files test_*.py
    #[arg(value_name = "FILE", default_value = ".", hide_default_value = true)]
    files: Vec<PathBuf>,
    /// Only the tests whose names have this text in them, in upper or lower case
    #[arg(short = 'k', value_name = "TEXT", default_value = "", hide_default_value = true)]
    pattern: String,
    /// Print the result as JSON, and what tests print on standard error
    #[arg(long)]
    json: bool,
    /// End a test that takes longer, and show where it was
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time_of)]
    time: Duration,
    /// The interpreter
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Configuration file whose [[python]] name interpreters, or none; else that which `larder` would read
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

fn time_of(text: &str) -> Result<Duration, String> {
    let time = units::parse_duration(text).filter(|time| (TIME_MIN..=TIME_MAX).contains(time));
    time.ok_or_else(|| "a time from 10ms to 1d is needed, like 30s".to_owned())
}

const TIME_MIN: Duration = Duration::from_millis(10);
const TIME_MAX: Duration = Duration::from_secs(86_400);

pub(super) fn test(flags: &TestFlags) -> u8 {
    let played = files_of(&flags.files).and_then(|files| Ok((mount_for(flags, &files[0])?, files)));
    let (mount, files) = match played {
        Ok(played) => played,
        Err(trouble) => {
            diagnostics::say(format_args!("error: {trouble}"));
            return WRONG;
        }
    };
    if let Some(trouble) = script::trouble(&mount) {
        diagnostics::say(format_args!("error: {trouble}, or --python"));
        return WRONG;
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            diagnostics::say(format_args!("error: no runtime: {error}; raise the open file limit"));
            return TROUBLE;
        }
    };
    match runtime.block_on(play(flags, &mount, &files)) {
        Ok((Some(status), _)) => status,
        Ok((None, ended)) => {
            diagnostics::say(format_args!(
                "error: the interpreter ended before the tests did ({ended}): a test or a hook ended the process, or hung where \
                 nothing interrupts it"
            ));
            TROUBLE
        }
        Err(error) => {
            diagnostics::say(format_args!("error: the tests can't be run: {}", diagnostics::in_one_line(&error)));
            TROUBLE
        }
    }
}

/// The files that are named, and those of the folders that are named.
fn files_of(named: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for path in named {
        let shown = path.display();
        if path.is_dir() {
            let found = tests_in(path).map_err(|error| format!("cannot list {shown}: {error}"))?;
            if found.is_empty() {
                return Err(format!(
                    "the folder {shown} has no file test_*.py; `larder new script` writes one to begin with"
                ));
            }
            files.extend(found);
        } else if !path.is_file() {
            return Err(format!("there is no file {shown}"));
        } else if path.extension().is_none_or(|extension| extension != "py") {
            return Err(format!("{shown} is no file in Python (.py)"));
        } else {
            files.push(path.clone());
        }
    }
    let mut absolute: Vec<PathBuf> = Vec::new();
    for file in files {
        let file = std::path::absolute(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        if !absolute.contains(&file) {
            absolute.push(file);
        }
    }
    Ok(absolute)
}

fn tests_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let is_tests = |name: &str| {
        let stem = name.strip_suffix(".py").unwrap_or_default();
        stem.starts_with("test_") || stem.ends_with("_test")
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_tests) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// The surroundings of the hooks that lie in the folder of this file.
fn mount_for(flags: &TestFlags, file: &Path) -> Result<Mount, String> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let configured = Flags { config: flags.config.clone(), ..Flags::default() };
    let (loaded, report) = configured.examine(Here::Looked);
    match report {
        Some(report) if flags.config.is_some() => return Err(report.to_string()),
        Some(_) => diagnostics::say(format_args!(
            "warning: the configuration is wrong (`larder check` says where), and the interpreter may be another one"
        )),
        None => {}
    }
    let resolved = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (within, pythons) = (resolved(folder), &loaded.config.pythons);
    let around = pythons.iter().filter(|python| within.starts_with(resolved(&python.folder)));
    let mut python = match around.max_by_key(|python| resolved(&python.folder).components().count()) {
        Some(python) => Python::clone(python),
        None => Python { folder: folder.to_owned(), ..Python::default() },
    };
    if flags.python.is_some() {
        python.interpreter.clone_from(&flags.python);
    }
    let application = Application { interface: Interface::Wsgi, name: "larder test".to_owned() };
    let host = Host::parse("localhost").ok_or("localhost is no name")?;
    Ok(Mount { host, application, python: Arc::new(python), routes: Vec::new() })
}

/// Runs the tests. Gives the exit status that the runner wrote at its end, if it came so far, and that of its process.
async fn play(flags: &TestFlags, mount: &Mount, files: &[PathBuf]) -> io::Result<(Option<u8>, ExitStatus)> {
    let folder = Temporary::new()?;
    script::write_library(folder.path())?;
    let outcome = folder.path().join("outcome");
    let order = json!({
        "files": files,
        "pattern": flags.pattern,
        "json": flags.json,
        "seconds": flags.time.as_secs_f64(),
        "hook_seconds": mount.python.hook_time.as_secs_f64(),
        "outcome": outcome,
    });
    // Ctrl-C is for the child too, which shows how far it came; the folder is removed after that.
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut child = Command::new(script::interpreter(mount))
        .args([
            "-c",
            "import os, sys; sys.path[0] = os.environ.pop('LARDER_LIBRARY'); from larder._runner import main; main()",
        ])
        .env("LARDER_LIBRARY", folder.path())
        .env("LARDER_TEST", order.to_string())
        .kill_on_drop(true)
        .spawn()?;
    let ended = loop {
        tokio::select! {
            ended = child.wait() => break ended?,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => child.start_kill()?,
        }
    };
    let status = fs::read_to_string(&outcome).ok().and_then(|text| text.trim().parse().ok());
    Ok((status, ended))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_stand_for_their_tests_and_other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        assert!(files_of(&[folder.path().to_owned()]).unwrap_err().contains("larder new script"));
        for name in ["test_b.py", "a_test.py", "policy.py", "test_c.txt", "larder.toml"] {
            fs::write(path(name), "").unwrap();
        }
        let found = files_of(&[folder.path().to_owned(), path("test_b.py"), path("policy.py")]).unwrap();
        assert_eq!(found, ["a_test.py", "test_b.py", "policy.py"].map(path));
        assert!(files_of(&[path("absent.py")]).unwrap_err().contains("there is no file"));
        assert!(files_of(&[path("larder.toml")]).unwrap_err().contains("no file in Python"));
    }

    #[test]
    fn times_are_those_of_a_test() {
        assert_eq!(time_of("30s"), Ok(Duration::from_secs(30)));
        for bad in ["0s", "1ms", "x", "2d", "-1s", ""] {
            assert!(time_of(bad).is_err(), "{bad}");
        }
    }
}
