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

/// Keeps the answer to somebody who is known by a cookie from the caches between. A credential in `Authorization` would do so by itself
/// (RFC 9111 section 3.5), unless the origin lets others have the answer; that is as here.
pub(super) fn for_person(answer: AnswerSource) -> AnswerSource {
    let AnswerSource::Entry { reader, stored, outcome, verbatim, refill } = answer else { return answer };
    let head = deliver::head_for_client(&stored, outcome);
    let settles = |member: &[u8]| {
        let name = member.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
        ["public", "s-maxage", "must-revalidate", "private", "no-store"]
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
    };
    if head.fields.members("Cache-Control").any(settles) {
        return AnswerSource::Entry { reader, stored, outcome, verbatim, refill };
    }
    let mut own = head.clone();
    own.fields.push("Cache-Control", "private");
    let own = StoredHead::new(own, stored.terms.clone(), stored.received).with_reason(stored.not_stored());
    AnswerSource::Entry { reader, stored: Arc::new(own), outcome, verbatim, refill }
}
