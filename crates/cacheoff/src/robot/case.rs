//! The facts by which a reply is judged, and the ways in which it can be wrong.

use super::Wish;
use crate::journal::{Deeds, Journal};
use crate::ledger::Trouble;
use crate::object::Law;
use crate::wire::Xact;

/// Seconds by which clocks and roundings may differ.
pub(super) const TOLERANCE_S: u64 = 2;

/// A kind of trouble, with a word on what was expected and what came.
pub type Wrong = (Trouble, String);

/// A rule that a right reply breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remark {
    /// A stored answer that is so many seconds old says no `Age`.
    MissingAge(u64),
    /// A reload was answered from the store.
    HitOnReload,
}

impl Remark {
    /// Its name.
    pub fn trouble(self) -> Trouble {
        match self {
            Self::MissingAge(_) => Trouble::MissingAge,
            Self::HitOnReload => Trouble::HitOnReload,
        }
    }

    /// Says how the rule is broken.
    pub fn detail(self) -> String {
        match self {
            Self::MissingAge(age) => format!("a hit that is {age} s old says no Age (RFC 9111 section 4)"),
            Self::HitOnReload => "a reload was answered from the store (RFC 9111 section 5.2.1 permits it)".to_owned(),
        }
    }
}

/// The judge's knowledge besides the reply.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The object law.
    pub law: &'a Law,
    /// The request.
    pub wish: &'a Wish,
    /// The journal of the origins.
    pub journal: &'a Journal,
    /// Whether the cache is a gateway: the origin of what it sends (RFC 9110 section 3.7).
    pub gateway: bool,
    /// The name of the transaction.
    pub xact: Xact,
    /// Requests of late on the connection, if robots send several at once.
    pub turns: &'a [Turn],
    /// The origins' answers to it, as far as they are known.
    pub deeds: Option<Deeds>,
    /// Whether nobody else can have brought the object into the cache.
    pub first: bool,
    /// When the request was sent, in seconds since 1970.
    pub asked: u64,
    /// The second in which the last purge was sent that the cache acknowledged before this request was sent.
    pub purged: Option<u64>,
    /// Now, in seconds since 1970.
    pub now: u64,
    /// The status that the cache must give by itself, if it must.
    pub expected: Option<u16>,
    /// Seconds that an origin may take: think time and link, and more where one was seen to take more.
    pub delay_s_max: u64,
}

/// A request on a connection that carries several at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The number of its transaction.
    pub number: u64,
    /// The seed of the body that it gets.
    pub seed: u64,
}

impl Case<'_> {
    /// The seeds of the bodies that belong to other requests of the connection.
    pub(super) fn others(&self, own: u64) -> Vec<u64> {
        self.turns.iter().map(|turn| turn.seed).filter(|seed| *seed != own).collect()
    }

    /// The variant that the robot must get.
    pub(super) fn variant(&self) -> u8 {
        let coded = self.law.content(&self.wish.name).variants > 1 && !self.wish.kind.is_partial();
        if coded { self.wish.variant } else { 0 }
    }
}
