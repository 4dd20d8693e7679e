//! Worker threads: a poll loop each, with its robots and its share of the origins; and what it costs them.

mod attribution;
mod crowd;
mod held;
mod ideal;
mod past;
mod poll;
mod rehearsal;
mod seat;
mod slots;
mod timers;
mod worker;

pub(crate) use poll::{Poll, Ready};
pub(crate) use rehearsal::{Partner, rehearse};
pub(crate) use seat::{Seat, listeners};
pub(crate) use slots::{Slot, Slots};
pub(crate) use worker::{Piece, Worker};

use crate::object::Law;
use crate::origin::OriginSettings;
pub use crate::random::Seal;
use crate::robot::{Line, RobotSettings, Route};
use crate::tls::Tls;
use std::sync::Arc;
use std::time::Duration;

/// Everything that a run needs to know, as numbers: the workload with its peak and scale worked in.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The object law.
    pub law: Law,
    /// The secret that signs what origins answer.
    pub seal: Seal,
    /// Origins.
    pub origins: OriginSettings,
    /// Robots.
    pub robots: RobotSettings,
    /// Whom the robots speak to.
    pub route: Route,
    /// How TLS is spoken, by those who do.
    pub tls: Option<Tls>,
    /// When the working set stops growing.
    pub freeze_at: Option<Duration>,
    /// After how many new cachable objects it stops growing.
    pub freeze_after: Option<u64>,
    /// How many objects there are if none is ever new (`hammer`); names then come from a shelf.
    pub preset: Option<u64>,
    /// The log that is replayed; empty if robots draw what they ask.
    pub log: Arc<[Line]>,
    /// Worker threads.
    pub workers: u16,
    /// How long replies under way are waited for at the end.
    pub drain: Duration,
}
