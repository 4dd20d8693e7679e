//! The work of the table of rules on the head of an answer, for one client: what is stored stays as it is.

use super::deliver::{self, AnswerSource};
use super::hooked::Responded;
use crate::rules::AnswerChanges;
use larder_cache::head::StoredHead;
use std::sync::Arc;

/// Changes the fields of an answer. Pages of Larder's own go as they are.
pub(super) fn change(changes: &AnswerChanges, responded: Responded) -> Responded {
    let Responded { answer, mut given } = responded;
    let AnswerSource::Entry { reader, stored, outcome, verbatim, refill } = answer else {
        return Responded { answer, given };
    };
    let mut own = deliver::head_for_client(&stored, outcome).clone();
    changes.change(&mut own.fields);
    let own = StoredHead::new(own, stored.terms.clone(), stored.received).with_reason(stored.not_stored());
    given.extend(changes.given());
    Responded { answer: AnswerSource::Entry { reader, stored: Arc::new(own), outcome, verbatim, refill }, given }
}
