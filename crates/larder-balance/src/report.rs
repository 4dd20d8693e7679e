//! The state of a group for people: pages, metrics, commands.

use crate::settings::Admin;
use std::time::Duration;

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that were sent to it, further tries and hedges included.
    pub requests: u64,
    /// Those of them that failed.
    pub failures: u64,
    /// Its ejections.
    pub ejections: u64,
    /// Failures for which it was not ejected, because too many members were out.
    pub ejections_spared: u64,
    /// Checks that were made.
    pub checks: u64,
    /// Those of them that failed.
    pub checks_failed: u64,
}

/// The state of a member in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It gets its share.
    Up,
    /// It has recovered, and gets a part of its share.
    SlowStart,
    /// Its requests fail, and it gets few: too many others are ejected for it to be.
    Suspect,
    /// Its requests failed, and it gets none.
    Ejected,
    /// Its ejection is over, and one request tries it or will.
    Trial,
    /// Checks say that it is down.
    Down,
    /// An administrator lets it run dry.
    Draining,
    /// An administrator took it out.
    Maintenance,
}

impl MemberState {
    /// The word that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            MemberState::Up => "up",
            MemberState::SlowStart => "slow-start",
            MemberState::Suspect => "suspect",
            MemberState::Ejected => "ejected",
            MemberState::Trial => "trial",
            MemberState::Down => "down",
            MemberState::Draining => "draining",
            MemberState::Maintenance => "maintenance",
        }
    }
}

/// A member at a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberReport {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: MemberState,
    /// The decision of an administrator.
    pub admin: Admin,
    /// It is a backup.
    pub is_backup: bool,
    /// Its weight.
    pub weight: u32,
    /// The share of its requests that it gets while it is up, in its slow start or suspect; the suspect ones have theirs together.
    pub share: f64,
    /// Until its ejection is over.
    pub ejected_for: Option<Duration>,
    /// Failures since the last success.
    pub failures_in_a_row: u32,
    /// Requests under way at it.
    pub under_way: usize,
    /// Its average time from a request to the head of the answer, over requests without a body.
    pub response_time: Option<Duration>,
    /// Its counts.
    pub counts: Counts,
}

/// A group at a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupReport {
    /// Requests under way at all members.
    pub under_way: usize,
    /// Requests, without further tries and hedges; those that were refused count.
    pub requests: u64,
    /// Further tries of requests that failed.
    pub retries: u64,
    /// Second requests beside late ones.
    pub hedges: u64,
    /// Tries and hedges that the budget did not permit.
    pub budget_spent: u64,
    /// Requests for which no member could be chosen.
    pub refused: u64,
    /// When a request counts as late, where hedges are sent and enough is known.
    pub late_after: Option<Duration>,
    /// Its members, in the order of the settings.
    pub members: Vec<MemberReport>,
}
