//! The checks of a change that take less than a minute.
//!
//! A test program that has passed and was not linked anew since is not run again: a change in one crate leaves those of the crates
//! below it as they were. Files that tests read as they run are not seen by that; `cargo xtask ci` runs everything.

use crate::ci::{self, Book};
use crate::shell::{self, Trouble};
use crate::tidy;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

/// Which scenarios to play.
#[derive(clap::Args)]
pub struct Args {
    /// A folder of `scenarios/`, or any part of a script's path.
    #[arg(default_value = "basics")]
    scenarios: String,
}

/// Seeds of the simulation of the whole server that are played.
const SEEDS: &str = "50";

/// Format, house rules, lints, links of the documentation, unit tests and some scenarios.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let root = shell::workspace()?;
    let mut book = Book::new();
    book.step("format", || ci::simple(ci::cargo(&root, &["fmt", "--all", "--check"])));
    book.step("tidy", || ci::checked(tidy::run(&tidy::Args::default())));
    book.step("lints", || ci::simple(ci::cargo(&root, &ci::LINTS)));
    book.step("documentation", || ci::documentation(&root));
    let mut programs = Vec::new();
    book.step("build", || ci::checked(test_programs(&root).map(|built| programs = built)));
    let passed = Passed::read(&shell::target_folder(&root));
    for program in programs {
        if program.name == "scenarios" {
            book.step("scenarios", || {
                ci::tests(program.command().env("SCENARIO", format!("scenarios/{}", args.scenarios)))
            });
        } else if !passed.has(&program) {
            book.step(&format!("tests {}", program.name), || {
                let tally = ci::tests(program.command().env("LARDER_SEEDS", SEEDS));
                if tally.failed == 0 {
                    passed.note(&program);
                }
                tally
            });
        }
    }
    book.close()
}

/// A program of tests that was built.
struct TestProgram {
    name: String,
    path: PathBuf,
    /// The folder of its crate, where cargo runs it.
    folder: PathBuf,
}

impl TestProgram {
    /// From a line that cargo prints for each part that it built or found built.
    fn read(line: &str) -> Option<TestProgram> {
        let built: Value = serde_json::from_str(line).ok()?;
        let is_test = built["profile"]["test"].as_bool()?;
        Some(TestProgram {
            name: built["target"]["name"].as_str().filter(|_| is_test)?.to_owned(),
            path: built["executable"].as_str()?.into(),
            folder: Path::new(built["manifest_path"].as_str()?).parent()?.to_owned(),
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder).arg("--quiet");
        command
    }

    /// When it was linked, in nanoseconds.
    fn linked(&self) -> Option<u128> {
        let modified = self.path.metadata().ok()?.modified().ok()?;
        Some(modified.duration_since(UNIX_EPOCH).ok()?.as_nanos())
    }
}

fn test_programs(root: &Path) -> Result<Vec<TestProgram>, Trouble> {
    let flags = ["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"];
    let mut cargo = ci::cargo(root, &flags);
    let said = shell::ask(cargo.args(["--lib", "--bin", "xtask", "--test", "scenarios"]))?;
    Ok(said.lines().filter_map(TestProgram::read).collect())
}

/// The programs that passed: a file for each, with the time at which it was linked.
struct Passed(PathBuf);

impl Passed {
    fn read(target: &Path) -> Passed {
        Passed(target.join("quick"))
    }

    fn place(&self, program: &TestProgram) -> Option<PathBuf> {
        Some(self.0.join(program.path.file_name()?))
    }

    fn has(&self, program: &TestProgram) -> bool {
        let noted = self.place(program).and_then(|place| std::fs::read_to_string(place).ok());
        noted.is_some_and(|noted| Some(noted) == program.linked().map(|linked| linked.to_string()))
    }

    /// Without this note the program runs again, and that is all.
    fn note(&self, program: &TestProgram) {
        if let (Some(place), Some(linked)) = (self.place(program), program.linked()) {
            let _ = std::fs::create_dir_all(&self.0).and_then(|()| std::fs::write(place, linked.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_of_tests_are_read() {
        let line = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","target":{{"name":"n"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let program = TestProgram::read(&line(true, "\"/t/n-1\"")).unwrap();
        assert_eq!((program.name.as_str(), program.folder), ("n", PathBuf::from("/a")));
        assert!(TestProgram::read(&line(false, "\"/t/n\"")).is_none());
        assert!(TestProgram::read(&line(true, "null")).is_none());
        assert!(TestProgram::read("Compiling n").is_none());
    }

    #[test]
    fn a_program_that_is_linked_anew_has_not_passed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n-1");
        std::fs::write(&path, "").unwrap();
        let program = TestProgram { name: "n".into(), path: path.clone(), folder: folder.path().into() };
        let passed = Passed::read(folder.path());
        assert!(!passed.has(&program));
        passed.note(&program);
        assert!(passed.has(&program));
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
        std::fs::File::options().write(true).open(path).unwrap().set_modified(later).unwrap();
        assert!(!passed.has(&program));
    }
}
