//! The outcome of a case: a function of what was seen.

use super::cases::{Case, Level};
use super::expect::{Expectation, Seen};
use super::text::Variables;

/// The outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The requirement or recommendation was met.
    Passed,
    /// It did not; what was seen.
    Failed(String),
    /// The product does what the RFC permits or leaves open.
    Yes,
    /// It does not; what was seen.
    No(String),
    /// The situation of which the case speaks did not come about; why not.
    NoPremise(String),
}

impl Outcome {
    /// A word about the observation, where it needs one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Outcome::Passed | Outcome::Yes => None,
            Outcome::Failed(reason) | Outcome::No(reason) | Outcome::NoPremise(reason) => Some(reason),
        }
    }
}

/// Judges what was seen of the steps of a case.
pub fn judge(case: &Case, all: &[Seen], variables: &Variables) -> Outcome {
    let contents: Vec<Vec<u8>> =
        case.steps.iter().map(|step| variables.fill(step.answer.content()).into_bytes()).collect();
    let check = |expectation: &Expectation, seen: &Seen| {
        // Variables are filled before the text is read: a date may stand for a field's value.
        let filled = Expectation::read(&variables.fill(&expectation.to_string()))?;
        filled.judge(seen, variables.path(), &contents).map_err(|instead| format!("step {}: {instead}", seen.step))
    };
    for (step, seen) in case.steps.iter().zip(all) {
        for (expectations, is_premise) in [(&step.given, true), (&step.expect, false)] {
            let Some(Err(reason)) = expectations.iter().map(|one| check(one, seen)).find(Result::is_err) else {
                continue;
            };
            return match (is_premise, case.level) {
                (true, _) => Outcome::NoPremise(reason),
                (false, Level::Must | Level::Should) => Outcome::Failed(reason),
                (false, Level::May | Level::Behaviour) => Outcome::No(reason),
            };
        }
    }
    if case.level.binds() { Outcome::Passed } else { Outcome::Yes }
}
