//! The checks of a change that take less than a minute.
//!
//! A test program that has passed and was not linked anew since is not run again: a change in one crate leaves those of the crates
//! below it as they were. Files that tests read as they run are not seen by that; `cargo xtask ci` runs everything.

use crate::ci::{self, Book};
use crate::shell::{self, Trouble};
use crate::test_program::{self, TestProgram};
use crate::tidy;
use std::path::{Path, PathBuf};

/// Which scenarios to play.
#[derive(clap::Args)]
pub struct Args {
    /// A folder of `scenarios/`, or any part of a script's path.
    #[arg(default_value = "basics")]
    scenarios: String,
}

/// The test programs that are quick, as cargo selects them.
const SELECTED: [&str; 5] = ["--lib", "--bin", "xtask", "--test", "scenarios"];

/// Seeds of the simulation of the whole server that are played.
const SEEDS: &str = "50";

/// Format, house rules, lints, links of the documentation, unit tests and some scenarios.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let root = shell::workspace()?;
    let mut book = Book::new();
    book.step("format", || ci::simple(shell::cargo(&root, &["fmt", "--all", "--check"])));
    book.step("tidy", || ci::checked(tidy::run(&tidy::Args::default())));
    book.step("lints", || ci::simple(shell::cargo(&root, &ci::LINTS)));
    book.step("documentation", || ci::documentation(&root));
    let mut programs = Vec::new();
    book.step("build", || ci::checked(test_program::built(&root, &SELECTED).map(|built| programs = built)));
    let passed = Passed::read(&shell::target_folder(&root));
    for program in programs {
        if program.name == "scenarios" {
            book.step("scenarios", || {
                ci::followed(program.command().arg("--quiet").env("SCENARIO", format!("scenarios/{}", args.scenarios)))
            });
        } else if !passed.has(&program) {
            book.step(&format!("tests {}", program.name), || {
                let tally = ci::followed(program.command().arg("--quiet").env("LARDER_SEEDS", SEEDS));
                if tally.failed == 0 {
                    passed.note(&program);
                }
                tally
            });
        }
    }
    book.close()
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
