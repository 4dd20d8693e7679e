//! `cacheoff peak`: the highest rate that holds a bound, by runs at several rates. The rate doubles until the bound
//! breaks, then the gap between the last that held and the first that did not is halved.

use super::command::RunArgs;
use crate::ledger::{Ledger, Outcome};
use crate::report::{Summary, Threshold};
use std::path::PathBuf;
use std::process::ExitCode;

/// Finds the highest rate that holds a bound.
#[derive(clap::Args, Debug)]
pub struct PeakArgs {
    /// The run; --peak is the rate of the first one
    #[command(flatten)]
    run: RunArgs,
    /// Conditions that must hold, such as 'p99<20ms,errors.share<0.1%'
    #[arg(long, value_name = "CONDITIONS")]
    bound: String,
    /// How near the two rates must be at the end, as a share
    #[arg(long, default_value_t = 0.05)]
    within: f64,
    /// Runs at most
    #[arg(long, default_value_t = 16)]
    runs: u32,
    /// Folder for the ledgers
    #[arg(long, default_value = "peak")]
    folder: PathBuf,
}

/// The state of the search for the peak.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// The highest rate that held.
    pub held: Option<f64>,
    /// The lowest rate that did not.
    pub broke: Option<f64>,
}

impl Search {
    /// The rate to try next; `None` when the two are near enough.
    pub fn next(&self, first: f64, within: f64) -> Option<f64> {
        match (self.held, self.broke) {
            (None, None) => Some(first),
            (Some(held), None) => Some(held * 2.0),
            (None, Some(broke)) => Some(broke / 2.0).filter(|rate| *rate >= first / 1024.0),
            (Some(held), Some(broke)) => (broke - held > within * held).then_some((held + broke) / 2.0),
        }
    }

    /// Takes in how a rate did.
    pub fn learn(&mut self, rate: f64, holds: bool) {
        match holds {
            true => self.held = Some(self.held.map_or(rate, |held| held.max(rate))),
            false => self.broke = Some(self.broke.map_or(rate, |broke| broke.min(rate))),
        }
    }
}

impl PeakArgs {
    /// Searches, and prints each step.
    pub fn run(&self) -> Result<ExitCode, String> {
        let bound = Threshold::parse_all(&self.bound)?;
        if bound.is_empty() || self.within.is_nan() || self.within <= 0.0 {
            return Err("give --bound a condition, such as 'p99<20ms', and --within a share above 0".to_owned());
        }
        let first = self.run.peak().ok_or("say with --peak at which rate to begin")?;
        std::fs::create_dir_all(&self.folder)
            .map_err(|error| format!("the folder {} cannot be made: {error}", self.folder.display()))?;
        let mut search = Search { held: None, broke: None };
        for number in 1..=self.runs {
            let Some(rate) = search.next(first, self.within) else { break };
            let ledger = self.run.at(rate, &self.folder.join(format!("{number:02}.ledger")))?;
            let reason = broken(&bound, &ledger);
            println!("{rate:.1}/s {}", reason.as_deref().unwrap_or("holds"));
            if ledger.end.outcome == Outcome::Interrupted {
                break;
            }
            search.learn(rate, reason.is_none());
        }
        match search.held {
            Some(held) if search.broke.is_none() => {
                println!(
                    "{held:.1}/s, the highest rate that was tried, held {}: more --runs find where it ends",
                    self.bound
                );
            }
            Some(held) => println!("the highest rate that held {}: {held:.1}/s", self.bound),
            None => println!("no rate held {}", self.bound),
        }
        Ok(if search.held.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Why a run is not one that held: the bound, or that its figures do not count.
fn broken(bound: &[Threshold], ledger: &Ledger) -> Option<String> {
    let summary = Summary::of(ledger);
    let spoilt = summary.findings.iter().find(|finding| finding.weight.spoils()).map(|finding| finding.text.clone());
    bound.iter().find_map(|each| each.broken_by(&summary)).or(spoilt)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(first: f64, real: f64) -> (Option<f64>, u32) {
        let mut search = Search { held: None, broke: None };
        for runs in 0..40 {
            let Some(rate) = search.next(first, 0.05) else { return (search.held, runs) };
            search.learn(rate, rate <= real);
        }
        panic!("no end");
    }

    #[test]
    fn the_peak_is_found_from_below_and_from_above() {
        for (first, real) in [(10.0, 873.0), (5000.0, 873.0), (873.0, 873.0)] {
            let (held, runs) = found(first, real);
            let held = held.unwrap();
            assert!(held <= real && held > real * 0.94 && runs < 16, "{held} after {runs} runs");
        }
        assert_eq!(found(100.0, 0.0).0, None);
    }
}
