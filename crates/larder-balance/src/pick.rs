//! The choice of a member, and the reasons that `explain` gives.

use crate::ticket::{MemberId, Ticket};
use std::fmt;
use std::time::{Duration, Instant};

/// The facts of a request that a choice depends on.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Now.
    pub now: Instant,
    /// The hash of the key, for [`Balance::RingHash`](crate::Balance::RingHash).
    pub key: u64,
    /// The hash of the name of the member that the client's cookie names.
    pub sticky: Option<u64>,
    /// It may be sent a second time, so that it may try a member that failed before.
    pub is_repeatable: bool,
    /// Members that this request was sent to already.
    pub tried: &'a [MemberId],
}

/// Why a member was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// By the balance.
    Balance,
    /// The client's cookie names it.
    Cookie,
    /// It was ejected, and this request finds out whether it works again.
    Trial,
    /// No other than a backup may be asked.
    Backup,
    /// None may be asked, so the least bad is.
    LeastBad,
}

impl Why {
    /// The word that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            Why::Balance => "balance",
            Why::Cookie => "cookie",
            Why::Trial => "trial",
            Why::Backup => "backup",
            Why::LeastBad => "least-bad",
        }
    }
}

/// Why a member was passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassedOver {
    /// This request was sent to it already.
    Tried,
    /// An administrator lets it run dry.
    Draining,
    /// An administrator took it out.
    Maintenance,
    /// Checks say that it is down.
    Down,
    /// Its requests failed; for so long it gets none.
    Ejected(Duration),
    /// Its ejection is over, and another request is to try it or does so now.
    TrialDue,
    /// As many requests are under way at it as may be.
    Full,
}

impl PassedOver {
    /// The word that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            PassedOver::Tried => "tried",
            PassedOver::Draining => "draining",
            PassedOver::Maintenance => "maintenance",
            PassedOver::Down => "down",
            PassedOver::Ejected(_) => "ejected",
            PassedOver::TrialDue => "trial-due",
            PassedOver::Full => "full",
        }
    }
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PassedOver::Ejected(left) => write!(f, "ejected for another {:.1} s", left.as_secs_f64()),
            other => f.write_str(other.as_str()),
        }
    }
}

/// A member for a request.
#[derive(Debug)]
pub struct Pick {
    /// Its place in the settings.
    pub at: usize,
    /// Why it was chosen.
    pub why: Why,
    /// The members that could not be, by their places. Backups that are not needed are not among them.
    pub passed_over: Vec<(usize, PassedOver)>,
    /// To tell the group what becomes of the request.
    pub ticket: Ticket,
}

/// No member can get a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMember {
    /// As many requests are under way at the group, or at each of its members, as may be.
    Full,
    /// An administrator has taken all out.
    TakenOut,
    /// The request was sent to all of them.
    AllTried,
}

impl NoMember {
    /// The word that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            NoMember::Full => "full",
            NoMember::TakenOut => "taken-out",
            NoMember::AllTried => "all-tried",
        }
    }
}

impl fmt::Display for NoMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoMember::Full => "as many requests are under way as may be",
            NoMember::TakenOut => "all members are drained or in maintenance",
            NoMember::AllTried => "all members were tried",
        })
    }
}
