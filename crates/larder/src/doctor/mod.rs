//! `larder doctor`: whether the surroundings are what a Larder needs, and what to change.
//!
//! It looks at this machine alone; the only questions that leave it are look-ups of the names of configured origins.

mod confinement;
mod disk;
mod system;

use crate::config::Loaded;
use crate::settle::settle;
use std::fmt;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The subject of the check.
    pub what: String,
    /// How it is.
    pub state: State,
    /// The finding in a sentence.
    pub says: String,
    /// The remedy; empty when all is well.
    pub remedy: String,
}

/// How a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// As it should be.
    Well,
    /// It works, and could be better.
    Poor,
    /// The server will not start, or will fail at its work.
    Bad,
}

impl State {
    /// The word at the beginning of a line.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Well => "ok",
            State::Poor => "poor",
            State::Bad => "BAD",
        }
    }
}

impl Finding {
    fn well(what: impl Into<String>, says: impl Into<String>) -> Finding {
        Finding { what: what.into(), state: State::Well, says: says.into(), remedy: String::new() }
    }

    fn poor(what: impl Into<String>, says: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { what: what.into(), state: State::Poor, says: says.into(), remedy: remedy.into() }
    }

    fn bad(what: impl Into<String>, says: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { what: what.into(), state: State::Bad, says: says.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:5} {:22} {}", self.state.as_str(), self.what, self.says)?;
        match self.remedy.is_empty() {
            true => Ok(()),
            false => writeln!(f, "{:28} → {}", "", self.remedy),
        }
    }
}

/// Runs all checks. `loaded` is not settled yet, so that settings that will be lowered are found.
pub fn examine(loaded: &Loaded) -> Vec<Finding> {
    let config = &loaded.config;
    let mut settled = loaded.clone();
    settle(&mut settled);
    let mut findings = system::ports(config);
    findings.extend(system::page(config));
    findings.push(system::open_files(config));
    findings.push(system::backlog());
    findings.push(system::memory(config));
    findings.extend(disk::store(&settled));
    findings.push(system::clock());
    findings.extend(system::names(config));
    findings.extend(system::trust(config));
    findings.extend(system::certificates(config));
    findings.push(confinement::sandbox(config));
    findings
}

/// The worst of all states.
pub fn worst(findings: &[Finding]) -> State {
    findings.iter().map(|finding| finding.state).max().unwrap_or(State::Well)
}
