//! Notes of a request to a group of origins: which members were asked, why, and what came of it.

use crate::config::OriginMember;
use larder_balance::{PassedOver, Why};
use std::sync::Arc;

/// A request to a group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupNote {
    /// The name of the group.
    pub group: Box<str>,
    /// The requests that were sent, in their order.
    pub tries: Vec<TryNote>,
    /// Why no further member could be asked, where that was wanted.
    pub refused: Option<&'static str>,
    /// The `Set-Cookie` that leads the client to the same member again; for an answer that nobody else gets.
    pub cookie: Option<Box<str>>,
}

/// A request to one member.
#[derive(Clone, Debug, PartialEq)]
pub struct TryNote {
    /// The member.
    pub member: Arc<OriginMember>,
    /// Why it was chosen.
    pub why: Why,
    /// The members that could not be, and why.
    pub passed_over: Vec<(Arc<OriginMember>, PassedOver)>,
    /// It was sent beside another one that was late.
    pub is_hedge: bool,
    /// Microseconds until its end, of one that was answered or outrun.
    pub micros: u64,
    /// Its end.
    pub end: TryEnd,
}

/// The end of a request to one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryEnd {
    /// An answer with this status.
    Answered(u16),
    /// A fault, by its word.
    Failed(&'static str),
    /// Another member answered first.
    Outrun,
    /// The client left, or time was over.
    GivenUp,
}

/// Members that were passed over and are kept in a note, of each try.
const PASSED_OVER_MAX: usize = 3;
/// Requests that are kept in a note.
const TRIES_MAX: usize = 4;

impl GroupNote {
    /// Cuts what a note need not have: thousands of them are kept. They are not counted among the bytes of records, because a fetch that
    /// outlives its record writes its note later; so cut, one takes less than a kilobyte.
    pub(super) fn bound(&mut self) {
        self.tries.truncate(TRIES_MAX);
        for each in &mut self.tries {
            each.passed_over.truncate(PASSED_OVER_MAX);
            each.passed_over.shrink_to_fit();
        }
        self.tries.shrink_to_fit();
    }
}
