//! Tests and checks, counted: passed, failed, and those that could not run here.

use crate::shell::Trouble;

/// Counts of the steps' tests and findings, added up.
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
    /// A check that either went well or did not.
    pub fn of(outcome: &Result<(), Trouble>) -> Tally {
        match outcome {
            Ok(()) => Tally { passed: 1, ..Tally::default() },
            Err(_) => Tally { failed: 1, ..Tally::default() },
        }
    }

    /// A check that found so many kinds of trouble: one that passed if there is none, however many requests it sent.
    pub fn of_check(troubles: usize) -> Tally {
        Tally { passed: usize::from(troubles == 0), failed: troubles, skipped: 0 }
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

/// Whether everything must run, because all that is needed was installed.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false" && value != "0")
}

/// A tool that is missing is a skip on a desk and a failure where everything must run.
pub fn missing(what: &str) -> Tally {
    println!("{}: {what} (.ci/run installs what is needed)", if in_ci() { "FAILED" } else { "skipped" });
    if in_ci() { Tally { failed: 1, ..Tally::default() } } else { Tally::skipped() }
}
