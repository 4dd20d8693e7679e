//! The life of an entry: one value, whose every state holds what there is in it and nothing else.
//!
//! ```text
//!             ┌── redirect ──► Redirected
//! Waiting ────┼── begin, pass ──► Arriving ── settle ──► Settled
//!             └── fail ──► Failed ◄── fail ──┘ (or Settled, where the rest can be asked for)
//! ```

use super::{Failure, PinnedEntry};
use crate::head::StoredHead;
use std::sync::Arc;

/// How far a response is.
pub(super) enum Life {
    /// Asked for; no head yet.
    Waiting,
    /// The head is here, the body arrives from its start on.
    Arriving(Response),
    /// The stream from the start is over: what is here is here, and holes are filled on demand.
    Settled(Response),
    /// A validation said that another entry is the answer.
    Redirected(Box<Redirection>),
    /// It will never be complete.
    Failed(Box<Failed>),
}

/// A head and whose it is.
pub(super) struct Response {
    pub(super) head: Arc<StoredHead>,
    pub(super) audience: Audience,
}

/// The requests that a response answers; from them follows how much of its body stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    /// All: the response is stored, and its whole body stays for later readers.
    Everybody,
    /// The requests that read it already: it turned out too long to be stored. Its body passes through a window.
    Readers,
    /// The request that caused the fetch: requests that followed ask for themselves. Its body passes through a window.
    Asker,
}

/// Which stored response is the answer.
pub(super) struct Redirection {
    pub(super) entry: PinnedEntry,
    pub(super) reason: ReuseReason,
    /// The head of the answer to the request that was validated; without it, that of the entry.
    pub(super) own: Option<Arc<StoredHead>>,
    /// [`Audience::Asker`]: the validation was for the request that caused it alone.
    pub(super) audience: Audience,
}

/// The end of a fetch that brought no complete response.
pub(super) struct Failed {
    pub(super) failure: Failure,
    /// The head, if one had come before.
    pub(super) response: Option<Response>,
}

/// Why a stored response is the answer to a request that went to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReuseReason {
    /// The origin said that it is the answer still.
    Unchanged,
    /// The origin is in trouble, and the stored response may stand in (RFC 5861 section 4).
    StaleIfError,
    /// The network is away, and a user who asked for that on this machine (`larder run`) may have it at any age. Others judge by
    /// themselves.
    NetworkAway,
}

impl Life {
    /// The head and its audience, once they are here.
    pub(super) fn response(&self) -> Option<&Response> {
        match self {
            Life::Arriving(response) | Life::Settled(response) => Some(response),
            Life::Failed(failed) => failed.response.as_ref(),
            Life::Waiting | Life::Redirected(_) => None,
        }
    }

    fn response_mut(&mut self) -> Option<&mut Response> {
        match self {
            Life::Arriving(response) | Life::Settled(response) => Some(response),
            Life::Failed(failed) => failed.response.as_mut(),
            Life::Waiting | Life::Redirected(_) => None,
        }
    }

    /// The head, once it is here.
    pub(super) fn head(&self) -> Option<&Arc<StoredHead>> {
        self.response().map(|response| &response.head)
    }

    /// Puts another head in the place of the one that is here.
    pub(super) fn replace_head(&mut self, head: StoredHead) {
        if let Some(response) = self.response_mut() {
            response.head = Arc::new(head);
        }
    }

    /// The head is here, and the body arrives from its start on.
    pub(super) fn begin(&mut self, head: StoredHead, audience: Audience) {
        *self = Life::Arriving(Response { head: Arc::new(head), audience });
    }

    /// The stream from the start is over. False without a head: then there is nothing that could be complete.
    pub(super) fn settle(&mut self) -> bool {
        match std::mem::replace(self, Life::Waiting) {
            Life::Arriving(response) | Life::Settled(response) => {
                *self = Life::Settled(response);
                true
            }
            other => {
                *self = other;
                false
            }
        }
    }

    /// A body that turned out too long is stored no more: the readers that are here get it to its end.
    pub(super) fn let_pass(&mut self) {
        if let Some(response) = self.response_mut()
            && response.audience == Audience::Everybody
        {
            response.audience = Audience::Readers;
        }
    }

    /// It will never be complete.
    pub(super) fn fail(&mut self, failure: Failure) {
        let response = match std::mem::replace(self, Life::Waiting) {
            Life::Arriving(response) | Life::Settled(response) => Some(response),
            Life::Failed(failed) => failed.response,
            Life::Waiting | Life::Redirected(_) => None,
        };
        *self = Life::Failed(Box::new(Failed { failure, response }));
    }

    /// The audience, as far as is known: a fetch that has no head yet may be for everybody.
    fn audience(&self) -> Audience {
        match self {
            Life::Waiting => Audience::Everybody,
            Life::Redirected(to) => to.audience,
            _ => self.response().map_or(Audience::Everybody, |response| response.audience),
        }
    }

    /// Requests that follow the fetch may have its answer.
    pub(super) fn is_shared(&self) -> bool {
        self.audience() != Audience::Asker
    }

    /// It may still become, or already is, a whole response for everybody.
    pub(super) fn is_useful(&self) -> bool {
        !matches!(self, Life::Failed(_)) && self.audience() == Audience::Everybody
    }

    /// Only what the slowest reader has not taken yet stays.
    pub(super) fn passes(&self) -> bool {
        self.response().is_some_and(|response| response.audience != Audience::Everybody)
    }

    /// A response that is stored: its head is here, and its body stays as far as it comes.
    pub(super) fn stored(&self) -> Option<&Arc<StoredHead>> {
        match self {
            Life::Arriving(response) | Life::Settled(response) if response.audience == Audience::Everybody => {
                Some(&response.head)
            }
            _ => None,
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        matches!(self, Life::Settled(_))
    }

    pub(super) fn is_arriving(&self) -> bool {
        matches!(self, Life::Arriving(_))
    }

    /// The stream from the start is still to come, or under way.
    pub(super) fn is_under_way(&self) -> bool {
        matches!(self, Life::Waiting | Life::Arriving(_))
    }

    /// Why it will never be complete.
    pub(super) fn failure(&self) -> Option<&Failure> {
        match self {
            Life::Failed(failed) => Some(&failed.failure),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::FailureKind;
    use super::*;
    use larder_wire::ResponseHead;
    use larder_wire::date::Stamp;

    fn head() -> StoredHead {
        StoredHead::new(ResponseHead::new(200), None, Stamp(0))
    }

    fn failure() -> Failure {
        Failure { status: 502, word: "test", detail: "a test".into(), kind: FailureKind::Answer }
    }

    #[test]
    fn a_life_takes_three_words() {
        assert!(size_of::<Life>() <= 24, "{}", size_of::<Life>());
    }

    #[test]
    fn what_has_no_head_never_settles() {
        let mut life = Life::Waiting;
        assert!(!life.settle() && life.is_under_way());
        life.fail(failure());
        assert!(!life.settle() && life.failure().is_some());
    }

    #[test]
    fn what_passed_is_never_stored_again() {
        let mut life = Life::Waiting;
        life.begin(head(), Audience::Everybody);
        assert!(life.stored().is_some() && life.is_useful() && !life.passes());
        life.let_pass();
        assert!(life.stored().is_none() && life.passes() && life.is_shared() && !life.is_useful());
        assert!(life.settle());
        assert!(life.is_settled() && life.stored().is_none());
        life.begin(head(), Audience::Asker);
        life.let_pass();
        assert!(!life.is_shared(), "what is for one request alone is not given to those who followed");
    }

    #[test]
    fn a_failure_keeps_the_head_that_came_before() {
        let mut life = Life::Waiting;
        life.begin(head(), Audience::Asker);
        life.fail(failure());
        assert!(life.head().is_some() && !life.is_shared() && !life.is_useful());
        assert!(life.stored().is_none(), "what failed is stored nowhere");
    }
}
