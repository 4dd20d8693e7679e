//! The messages between coordinator and agents.

use crate::contest::Discipline as Played;
use crate::journal::Note;
use crate::ledger::{End, Interval, Machine, Mode, Run};
use crate::origin::AddressRange;
use crate::workload::{Scaled, load};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// From the coordinator.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToAgent {
    /// It is so late here, in microseconds since 1970; what does your clock say?
    Clock(u64),
    /// Play this part; say whether you can.
    Prepare(Box<Assignment>),
    /// Fetch so much through the cache from the origins of each of these agents.
    Probe(Vec<SocketAddr>),
    /// The run begins at this time, in microseconds since 1970.
    Start(u64),
    /// The state of all parts together.
    Steer(Steer),
    /// Answers of origins on another agent to your robots; all until the time are known with them.
    Notes { from: u16, until_us: u64, notes: Vec<Note> },
    /// The robots of all agents are through.
    Through,
    /// End now.
    Stop,
    /// The whole run ended so; write it down behind the part's own end, and say that it is done.
    Verdict(Box<End>),
}

/// From an agent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToCoordinator {
    /// The clock of the question, and its own.
    Clock(u64, u64),
    /// It can play.
    Ready(Box<Machine>),
    /// It cannot, or not now.
    Refused(String),
    /// The ways to the origins, one for each that was asked for.
    Probed(Vec<Result<Way, String>>),
    /// How far it is.
    Status(Status),
    /// Its counts in an interval.
    Interval(Box<Interval>),
    /// Deeds of its origins for robots elsewhere; all until the time, in microseconds since the run began.
    Notes { until_us: u64, notes: Vec<Note>, lost: u64 },
    /// It has played, and how that ended if not well.
    Done(Option<String>),
}

/// A way from robots through the cache to origins.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Way {
    /// Microseconds until the connection stood.
    pub connect_us: u64,
    /// Bytes per second of one transfer.
    pub bytes_per_s: f64,
}

/// How far an agent is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Status {
    /// The phase that it counts.
    pub phase: u16,
    /// Replies, and bytes of cachable misses, in it.
    pub counts: [u64; 2],
    /// Workers whose working set is frozen.
    pub frozen: usize,
    /// Its robots are through.
    pub is_through: bool,
}

/// The state of all parts together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Steer {
    /// Ends of the phases that are known, in nanoseconds since the run began.
    pub ends: Vec<u64>,
    /// The phase that the counts belong to.
    pub phase: u16,
    /// Replies, and bytes of cachable misses, in it.
    pub counts: [u64; 2],
    /// The factor that thermostats have brought the load to.
    pub heat: f64,
}

/// A workload, to the letter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Discipline {
    /// The name that messages use.
    pub name: String,
    /// Its file.
    pub text: String,
    /// Its variant.
    pub variant: Option<String>,
    /// Knobs that are changed.
    pub changes: Vec<(String, String)>,
    /// The factor of its phases.
    pub scale: f64,
}

impl Discipline {
    /// Of a play whose file is this.
    pub fn new(played: &Played, name: String, text: String, scale: f64) -> Self {
        Self { name, text, variant: played.variant.clone(), changes: played.changes.clone(), scale }
    }

    /// The workload.
    pub fn load(&self) -> Result<Scaled, String> {
        if !(self.scale > 0.0 && self.scale <= 100.0) {
            return Err(format!("scale {}: it is above 0 and at most 100", self.scale));
        }
        let workload = load(&self.name, &self.text, self.variant.as_deref(), &self.changes);
        Ok(workload.map_err(|report| report.to_string())?.scaled(self.scale))
    }
}

/// The part of an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Assignment {
    /// The version of the coordinator.
    pub version: String,
    /// The workload.
    pub discipline: Discipline,
    /// Requests per second at peak, of the whole run.
    pub peak: Option<f64>,
    /// Bytes of the cache, for phases that fill it.
    pub cache_bytes: Option<u64>,
    /// Seed.
    pub seed: u64,
    /// The mark in the URLs of the run.
    pub tag: u32,
    /// The secret that signs echoes.
    pub seal: [u64; 2],
    /// How the cache is asked, and where.
    pub mode: Mode,
    /// Its address.
    pub address: Option<SocketAddr>,
    /// Its site.
    pub host: String,
    /// Its method of invalidation.
    pub purge: String,
    /// Port of all origins.
    pub port: u16,
    /// Addresses of all origins.
    pub hosts: Vec<AddressRange>,
    /// Those of this agent.
    pub listens: Vec<AddressRange>,
    /// Addresses of its robots.
    pub robots: Vec<AddressRange>,
    /// Its first worker.
    pub first: u16,
    /// Its workers.
    pub own: u16,
    /// Workers of the run that share the robots.
    pub of: u16,
    /// Agents whose origins may answer its robots.
    pub sources: Vec<u16>,
    /// The head of its ledger.
    pub head: Box<Run>,
}

impl Assignment {
    /// Whether the agent has robots.
    pub fn has_robots(&self) -> bool {
        self.first < self.of
    }
}
