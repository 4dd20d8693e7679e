//! The quick lookup: finds a stored response that answers at once, without a reader, a fetch or a wait.

use super::object::ObjectState;
use super::{Cache, choose};
use crate::entry::{Body, Looked, Patience, Whole};
use crate::head::StoredHead;
use crate::policy::{self, Asked, Terms, Usable};
use larder_wire::RequestHead;
use larder_wire::date::Stamp;

/// A question to [`Cache::fresh`].
pub struct Glance<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The request, which may choose among variants.
    pub request: &'a RequestHead,
    /// The demands of the request on caches.
    pub asked: &'a Asked,
    /// The time of the look.
    pub now: Stamp,
}

impl Cache {
    /// Has a fresh response for this request answered with whose body is at hand as a whole and not longer than that; or
    /// nothing: the look that begins no fetch and waits for nobody. `answer` runs under the locks of the response, so that
    /// nothing of it must be shared first: it must be short, and must not call the cache.
    pub fn fresh<T>(&self, glance: &Glance<'_>, bytes_max: u64, answer: &mut impl FnMut(&Whole<'_>) -> T) -> Option<T> {
        if self.gate.is_shut(glance.now) {
            return None;
        }
        // Most often nobody else is there, and the object need not be taken out of the index to be looked at.
        let looked = self.index.look(glance.key, |object| match object.try_read() {
            Some(state) => self.fresh_in(&state, glance, bytes_max, Patience::None, answer),
            None => Looked::Busy,
        });
        match looked {
            None => self.fresh_on_disk(glance, bytes_max, answer),
            Some(Looked::Answered(answered)) => Some(answered),
            Some(Looked::Nothing) => None,
            Some(Looked::Busy) => {
                let object = self.index.find(glance.key)?;
                let state = object.read();
                match self.fresh_in(&state, glance, bytes_max, Patience::Waits, answer) {
                    Looked::Answered(answered) => Some(answered),
                    Looked::Nothing | Looked::Busy => None,
                }
            }
        }
    }

    fn fresh_in<T>(
        &self,
        state: &ObjectState,
        glance: &Glance<'_>,
        bytes_max: u64,
        patience: Patience,
        answer: &mut impl FnMut(&Whole<'_>) -> T,
    ) -> Looked<T> {
        let chosen;
        let entry = match state.variants() {
            [only] => only,
            _ => match choose(state, glance.request) {
                Some((entry, _)) => {
                    chosen = entry;
                    &chosen
                }
                None => return Looked::Nothing,
            },
        };
        if !entry.is_judged(self.epoch()) {
            return Looked::Nothing;
        }
        let is_for_it = |terms: &Terms| {
            terms.answers(glance.request)
                && policy::usable(terms, glance.asked, glance.now, &self.settings.policy) == Usable::Fresh
        };
        let looked = entry.whole(is_for_it, bytes_max, patience, answer);
        if let Looked::Answered(_) = looked {
            entry.used();
        }
        looked
    }

    /// [`Cache::fresh`] of a key that memory knows nothing of and need not take up.
    fn fresh_on_disk<T>(
        &self,
        glance: &Glance<'_>,
        bytes_max: u64,
        answer: &mut impl FnMut(&Whole<'_>) -> T,
    ) -> Option<T> {
        let disk = self.disk.as_ref().filter(|_| !self.budget.takes_up())?;
        let head = disk.glance(glance.key)?;
        let body = head.body.filter(|body| body.len() as u64 <= bytes_max)?;
        let stored = StoredHead::decode_tagged(&head.meta, head.tags).ok()?;
        let terms = stored.terms.as_ref().filter(|terms| terms.answers(glance.request))?;
        if policy::usable(terms, glance.asked, glance.now, &self.settings.policy) != Usable::Fresh {
            return None;
        }
        Some(answer(&Whole { stored: &stored, length: body.len() as u64, body: Body::Disk(body) }))
    }
}
