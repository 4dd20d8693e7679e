//! Everything that must hold before a change goes in, as one command with one total at its end.
//!
//! Steps run in order of what they cost; a red step does not keep the later ones from running, so that one
//! run shows all there is to mend. All steps that compile use the same profile and features.

use crate::shell::{self, Trouble};
use crate::tally::Tally;
use crate::test_program::{self, TestProgram};
use crate::{attack, browser, causes, conformance, model, same_bytes, tidy, tools};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

/// The parts to leave out.
#[derive(clap::Args)]
pub struct Args {
    /// Leave out the end-to-end part with real tools.
    #[arg(long)]
    quick: bool,
}

/// Clippy, as it runs everywhere.
pub const LINTS: [&str; 7] = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];

/// Runs all steps and prints the total.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let root = shell::workspace()?;
    let mut book = Book::new();
    book.step("format", || simple(shell::cargo(&root, &["fmt", "--all", "--check"])));
    book.step("lints", || simple(shell::cargo(&root, &LINTS)));
    book.step("tidy", || checked(tidy::run(&tidy::Args::default())));
    book.step("documentation", || documentation(&root));
    book.step("licences", || licences(&root));
    book.step("build", || checked(shell::build(&root)));
    book.step("tests", || tests(&root));
    book.step("python", || python(&root));
    if !args.quick {
        end_to_end(&mut book);
    }
    book.close()
}

fn end_to_end(book: &mut Book) {
    book.step("same bytes", || counted(same_bytes::play(&same_bytes::Args::brief())));
    book.step("causes", || counted(causes::play(&causes::Args::brief())));
    book.step("attacks", || counted(shell::workspace().and_then(|root| attack::play(shell::built_larder(&root)))));
    book.step("conformance", || counted(conformance::play_larder()));
    book.step("model", || counted(model::play(&model::Args::brief())));
    book.step("browser", || counted(browser::play(&browser::Args::default())));
    book.step("real tools", || counted(tools::play(&tools::Args::default())));
}

fn counted(outcome: Result<Tally, Trouble>) -> Tally {
    outcome.unwrap_or_else(|trouble| checked(Err(trouble)))
}

/// The total so far and the steps that were red.
pub struct Book {
    began: Instant,
    total: Tally,
    lines: Vec<String>,
}

impl Book {
    pub fn new() -> Book {
        Book { began: Instant::now(), total: Tally::default(), lines: Vec::new() }
    }

    pub fn step(&mut self, name: &str, work: impl FnOnce() -> Tally) {
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

    pub fn close(self) -> Result<(), Trouble> {
        println!("\n== summary");
        for line in &self.lines {
            println!("{line}");
        }
        let Tally { passed, failed, skipped } = self.total;
        println!("{skipped} skipped, {} s", self.began.elapsed().as_secs());
        println!("{passed} passed, {failed} failed");
        if failed == 0 { Ok(()) } else { Err("some of it is red".into()) }
    }
}

/// A command that passes or fails as a whole.
pub fn simple(mut command: Command) -> Tally {
    checked(shell::call(&mut command))
}

/// A link that leads nowhere is a fault of its text.
pub fn documentation(root: &Path) -> Tally {
    let mut doc = shell::cargo(root, &["doc", "--workspace", "--no-deps", "--quiet"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    simple(doc)
}

/// A check that passes or fails as a whole; its trouble is printed.
pub fn checked(outcome: Result<(), Trouble>) -> Tally {
    if let Err(trouble) = &outcome {
        println!("{trouble}");
    }
    Tally::of(&outcome)
}

/// cargo-deny takes minutes to build: it is used where it is installed and never asked for.
fn licences(root: &Path) -> Tally {
    if shell::find_program("cargo-deny").is_none() {
        println!("skipped: cargo-deny is not installed (cargo install --locked cargo-deny)");
        return Tally::skipped();
    }
    simple(shell::cargo(root, &["deny", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"]))
}

/// Test programs that run at once. Most of the time of the long ones is waiting: for ends, for limits, for other caches.
const LANES: usize = 2;

/// Tests of the longest program, that of Larder as a whole, that run at once.
const LONGEST_THREADS: &str = "3";

/// Runs all test programs of the workspace, and counts their tests. Each one's output is printed when it has ended.
fn tests(root: &Path) -> Tally {
    let mut programs = match test_program::built(root, &[]) {
        Ok(programs) => programs,
        Err(trouble) => return checked(Err(trouble)),
    };
    // Those that take longest, of Larder and Cacheoff, begin first.
    programs
        .sort_by_key(|program| (!is_longest(program), program.name != "all", !program.folder.ends_with("cacheoff")));
    let (waiting, total) = (Mutex::new(programs.into_iter()), Mutex::new(Tally::default()));
    let next = || waiting.lock().ok()?.next();
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                while let Some(program) = next() {
                    let tally = run_program(&program);
                    if let Ok(mut total) = total.lock() {
                        total.add(tally);
                    }
                }
            });
        }
    });
    total.into_inner().unwrap_or_default()
}

/// The setting of Rust's test programs for [`LONGEST_THREADS`].
const THREADS: &str = "RUST_TEST_THREADS";

fn is_longest(program: &TestProgram) -> bool {
    program.name == "all" && program.folder.ends_with("larder")
}

fn run_program(program: &TestProgram) -> Tally {
    let began = Instant::now();
    let mut command = program.command();
    if is_longest(program) && std::env::var_os(THREADS).is_none() {
        command.env(THREADS, LONGEST_THREADS);
    }
    let output = command.stderr(Stdio::inherit()).output();
    let (said, is_good) = match &output {
        Ok(output) => (String::from_utf8_lossy(&output.stdout), output.status.success()),
        Err(error) => (format!("it cannot be started: {error}").into(), false),
    };
    let mut tally = Tally::default();
    said.lines().for_each(|line| tally.add(read_result(line).unwrap_or_default()));
    let (name, folder) = (&program.name, program.folder.file_name().unwrap_or_default());
    println!("-- {name} of {}, {} s\n{said}", folder.display(), began.elapsed().as_secs());
    // A test program that crashes has no result line.
    if tally.failed == 0 && !is_good {
        println!("{name}: {}", output.map_or_else(|error| error.to_string(), |output| output.status.to_string()));
        tally.failed = 1;
    }
    tally
}

/// Runs one test program, whose output is shown as it comes, and counts its tests.
pub fn followed(command: &mut Command) -> Tally {
    let mut tally = Tally::default();
    let run = shell::follow(command, |line| {
        tally.add(read_result(line).unwrap_or_default());
    });
    // A test program that crashes has no result line.
    if tally.failed == 0 && !matches!(run, Ok(true)) {
        tally.failed = 1;
    }
    tally
}

/// The tests of the runtime for scripts, which need nothing but an interpreter.
fn python(root: &Path) -> Tally {
    if shell::find_program("python3").is_none() {
        println!("skipped: python3 is not installed (.ci/run installs it)");
        return Tally::skipped();
    }
    let mut command = Command::new("python3");
    command.current_dir(root).args(["-m", "unittest", "discover", "-s", "python/tests"]);
    let mut tally = Tally::default();
    // Python's test runner says all on standard error.
    let run = command.output();
    match &run {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            print!("{said}");
            said.lines().for_each(|line| tally.add(read_python_result(line).unwrap_or_default()));
        }
        Err(error) => println!("python3 cannot be started: {error}"),
    }
    if tally.failed == 0 && !run.is_ok_and(|output| output.status.success()) {
        tally.failed = 1;
    }
    tally
}

/// `Ran 221 tests in 18.3s`, and `FAILED (failures=1, errors=2, skipped=3)`: those that failed or were skipped are among the run.
fn read_python_result(line: &str) -> Option<Tally> {
    if let Some(rest) = line.strip_prefix("Ran ") {
        return Some(Tally { passed: rest.split(' ').next()?.parse().ok()?, ..Tally::default() });
    }
    let inside = line.split_once(" (")?.1.strip_suffix(')').filter(|_| line.starts_with("FAILED ("))?;
    let count =
        |word: &str| inside.split(", ").find_map(|part| part.strip_prefix(word)?.parse::<usize>().ok()).unwrap_or(0);
    Some(Tally { failed: count("failures=") + count("errors="), ..Tally::default() })
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

    #[test]
    fn result_lines_of_python_are_counted() {
        assert_eq!(read_python_result("Ran 221 tests in 18.327s"), Some(Tally { passed: 221, failed: 0, skipped: 0 }));
        let line = "FAILED (failures=18, errors=3, skipped=1)";
        assert_eq!(read_python_result(line), Some(Tally { passed: 0, failed: 21, skipped: 0 }));
        assert_eq!(read_python_result("OK (skipped=1)"), None);
        assert_eq!(read_python_result("FAIL: test_x (a.B)"), None);
    }
}
