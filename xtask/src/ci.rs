//! Everything that must hold before a change goes in, as one command with one total at its end.
//!
//! Steps run in order of what they cost; a red step does not keep the later ones from running, so that one
//! run shows all there is to mend. All steps that compile use the same profile and features.

use crate::shell::{self, Trouble};
use crate::{attack, browser, causes, model, same_bytes, tidy, tools};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// What to leave out.
#[derive(clap::Args)]
pub struct Args {
    /// Leave out the end-to-end part with real tools.
    #[arg(long)]
    quick: bool,
}

/// What the steps found, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tests and checks that passed.
    pub passed: usize,
    /// Tests and checks that failed.
    pub failed: usize,
    /// Checks that could not run here.
    pub skipped: usize,
}

impl Tally {
    /// A single check.
    pub fn of(outcome: &Result<(), Trouble>) -> Tally {
        match outcome {
            Ok(()) => Tally { passed: 1, ..Tally::default() },
            Err(_) => Tally { failed: 1, ..Tally::default() },
        }
    }

    /// A check that could not run.
    pub fn skipped() -> Tally {
        Tally { skipped: 1, ..Tally::default() }
    }

    /// Adds another tally.
    pub fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// Runs all steps and prints the total.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let root = shell::workspace()?;
    let mut book = Book::new();
    book.step("format", || simple(cargo(&root, &["fmt", "--all", "--check"])));
    book.step("lints", || {
        simple(cargo(&root, &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))
    });
    book.step("tidy", || checked(tidy::run(&tidy::Args::default())));
    book.step("documentation", || {
        let mut doc = cargo(&root, &["doc", "--workspace", "--no-deps", "--quiet"]);
        doc.env("RUSTDOCFLAGS", "-D warnings");
        simple(doc)
    });
    book.step("licences", || licences(&root));
    book.step("build", || checked(shell::build(&root)));
    book.step("tests", || tests(&root));
    if !args.quick {
        end_to_end(&mut book);
    }
    book.close()
}

fn end_to_end(book: &mut Book) {
    book.step("same bytes", || counted(same_bytes::play(&same_bytes::Args::brief())));
    book.step("causes", || counted(causes::play(&causes::Args::brief())));
    book.step("attacks", || counted(shell::workspace().and_then(|root| attack::play(shell::built_larder(&root)))));
    book.step("model", || counted(model::play(&model::Args::brief())));
    book.step("browser", || counted(browser::play(&browser::Args::default())));
    book.step("real tools", || counted(tools::play(&tools::Args::default())));
}

fn counted(outcome: Result<Tally, Trouble>) -> Tally {
    outcome.unwrap_or_else(|trouble| checked(Err(trouble)))
}

/// The total so far and the steps that were red.
struct Book {
    began: Instant,
    total: Tally,
    lines: Vec<String>,
}

impl Book {
    fn new() -> Book {
        Book { began: Instant::now(), total: Tally::default(), lines: Vec::new() }
    }

    fn step(&mut self, name: &str, work: impl FnOnce() -> Tally) {
        println!("\n== {name}");
        let began = Instant::now();
        let tally = work();
        let word = if tally.failed > 0 { "FAILED" } else { "ok" };
        self.lines.push(format!(
            "{name:14} {word:6} {:5} passed {:3} failed {:3} skipped {:4} s",
            tally.passed,
            tally.failed,
            tally.skipped,
            began.elapsed().as_secs()
        ));
        self.total.add(tally);
    }

    fn close(self) -> Result<(), Trouble> {
        println!("\n== summary");
        for line in &self.lines {
            println!("{line}");
        }
        let Tally { passed, failed, skipped } = self.total;
        println!("{skipped} skipped, {} s", self.began.elapsed().as_secs());
        println!("{passed} passed, {failed} failed");
        if failed == 0 { Ok(()) } else { Err("ci is red".into()) }
    }
}

fn cargo(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(args);
    command
}

fn simple(mut command: Command) -> Tally {
    checked(shell::call(&mut command))
}

fn checked(outcome: Result<(), Trouble>) -> Tally {
    if let Err(trouble) = &outcome {
        println!("{trouble}");
    }
    Tally::of(&outcome)
}

/// A tool that is missing is a skip on a desk and a failure where everything must run.
pub fn missing(what: &str) -> Tally {
    let in_ci = std::env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false" && value != "0");
    println!("{}: {what} (.ci/run installs what is needed)", if in_ci { "FAILED" } else { "skipped" });
    if in_ci { Tally { failed: 1, ..Tally::default() } } else { Tally::skipped() }
}

/// cargo-deny takes minutes to build: it is used where it is installed and never asked for.
fn licences(root: &Path) -> Tally {
    if shell::find_program("cargo-deny").is_none() {
        println!("skipped: cargo-deny is not installed (cargo install --locked cargo-deny)");
        return Tally::skipped();
    }
    simple(cargo(root, &["deny", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"]))
}

/// All tests of the workspace, counted from what each test program says.
fn tests(root: &Path) -> Tally {
    let mut tally = Tally::default();
    let run = shell::follow(&mut cargo(root, &["test", "--workspace", "--no-fail-fast"]), |line| {
        tally.add(read_result(line).unwrap_or_default());
    });
    // A test program that does not compile or that crashes has no result line.
    if tally.failed == 0 && !matches!(run, Ok(true)) {
        tally.failed = 1;
    }
    tally
}

/// `test result: ok. 12 passed; 0 failed; …`
fn read_result(line: &str) -> Option<Tally> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |word: &str| {
        let part = counts.split(';').find_map(|part| part.trim().strip_suffix(word))?;
        part.trim().parse().ok()
    };
    Some(Tally { passed: count("passed")?, failed: count("failed")?, skipped: count("ignored")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_of_test_programs_are_counted() {
        let line = "test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(read_result(line), Some(Tally { passed: 12, failed: 1, skipped: 2 }));
        assert_eq!(read_result("running 3 tests"), None);
    }
}
