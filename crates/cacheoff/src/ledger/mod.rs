//! The ledger: what a run measured, as plain data, and the file it is kept in.
//!
//! A worker owns a [`Recorder`] and hands over an [`Interval`] each second; intervals of all workers merge into one
//! and go to the file as [`Record`]s ([`Writer`]). [`Ledger::read`] takes a file back, a torn one too, and the report is
//! a function of ledgers alone. The file is described in `docs/ledger.md`.

mod coarse;
mod file;
mod histogram;
mod interval;
mod merge;
mod recorder;
mod run;
#[cfg(test)]
mod tests;
mod words;

pub use coarse::{Coarse, Grid};
pub use file::{LedgerFault, Writer};
pub use histogram::{Bucket, Histogram, Tally};
pub use interval::{
    Class, Connections, EXHIBITS_MAX, Errors, Exhibit, Figures, Interval, Levels, Load, OriginFigures, Service, Streams,
};
pub use recorder::{Beside, Recorder, Reply, Served};
pub use run::{
    AgentPart, Downtime, End, Entry, Ideal, Link, Listener, Machine, Mode, Note, Outcome, PhasePlan, PhaseStart, Price,
    Run, Stage, StreamFacts, Target, TlsFacts, Tuning, WorkloadFacts,
};
use serde::{Deserialize, Serialize};
pub use words::{Kind, MissCause, Side, Trouble};

/// One line of a ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// The first line.
    Run(Box<Run>),
    /// A phase begins.
    Phase(PhaseStart),
    /// One interval.
    Interval(Box<Interval>),
    /// A whole phase whose intervals have coarse histograms.
    Total(Box<Interval>),
    /// The result of a kill or a power cut.
    Downtime(Downtime),
    /// A remark.
    Note(Note),
    /// The last line of a run.
    End(End),
    /// Behind it, in the ledger of an agent's part: how the coordinator judged the whole run.
    Verdict(End),
}

/// A whole ledger in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// The head.
    pub run: Run,
    /// Phases that began, in order.
    pub phases: Vec<PhaseStart>,
    /// Intervals in order.
    pub intervals: Vec<Interval>,
    /// Phases whose intervals have coarse histograms, as exact as they were counted.
    pub totals: Vec<Interval>,
    /// Results of kills and power cuts.
    pub downtimes: Vec<Downtime>,
    /// Remarks.
    pub notes: Vec<Note>,
    /// The end; [`Outcome::Unfinished`] if the file has none.
    pub end: End,
    /// In the ledger of an agent's part, the end of the whole run by the word of its coordinator, if that came.
    pub verdict: Option<End>,
}

impl Ledger {
    /// All intervals of a phase as one.
    pub fn phase(&self, phase: u16) -> Interval {
        if let Some(total) = self.totals.iter().find(|total| total.phase == phase) {
            return total.clone();
        }
        let mut whole = Interval { phase, ..Interval::default() };
        for interval in self.intervals.iter().filter(|interval| interval.phase == phase) {
            if whole.length_us == 0 {
                whole.at_us = interval.at_us;
            }
            whole.extend(interval);
        }
        whole
    }

    /// Takes in the next record.
    pub fn push(&mut self, record: Record) {
        match record {
            Record::Run(run) => self.run = *run,
            Record::Phase(phase) => self.phases.push(phase),
            Record::Interval(interval) => self.intervals.push(*interval),
            Record::Total(total) => self.totals.push(*total),
            Record::Downtime(downtime) => self.downtimes.push(downtime),
            Record::Note(note) => self.notes.push(note),
            Record::End(end) => self.end = end,
            Record::Verdict(end) => self.verdict = Some(end),
        }
    }
}
