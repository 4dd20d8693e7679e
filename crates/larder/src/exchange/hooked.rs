//! Hooks that work on an answer: `found` before a stored response is used, `respond` before an answer goes to its client. The
//! store has neither's work: the one decides about this request alone, the other changes the head that this client gets.

use super::away;
use super::deliver::{self, AnswerSource};
use super::relay::key_of;
use super::stream::ClientStream;
use crate::clock;
use crate::hook::{AnswerFacts, CallTrouble, Decided, Effects, FailedCall, FoundEffects, HitFacts, RespondEffects};
use crate::page::Page;
use crate::record::Record;
use crate::rules::{self, Ask, HookedBy};
use larder_cache::head::StoredHead;
use larder_cache::policy::{self, Asked, Usable};
use larder_cache::tags;
use larder_wire::date::Stamp;
use larder_wire::{RequestHead, ResponseHead, Url};
use std::rc::Rc;
use std::sync::Arc;

/// The decision about a stored response that is about to be used.
pub(super) enum OnHit {
    /// It is used, or there is none.
    Use,
    /// The origin is asked all the same, and its answer is stored.
    Miss,
    /// The request goes to its origin, and the answer is not stored.
    Pass,
    /// This is the answer.
    Answer(Page),
}

/// Asks the `found` hooks of the site about the stored response that would answer this request.
pub(super) async fn found<S: ClientStream>(
    stream: &mut S,
    request: &RequestHead,
    ask: &Ask,
    (asked, key): (&Asked, Option<&[u8]>),
    record: &mut Record,
) -> OnHit {
    let Some(hooked) = ask.hooked_by.as_deref().filter(|hooked| hooked.at_found) else { return OnHit::Use };
    let key = key.map_or_else(|| key_of(ask, &stream.env().common.cache), <[u8]>::to_vec);
    let Some((stored, now)) = usable(stream, request, (ask, asked, &key)).await else { return OnHit::Use };
    let Some(terms) = &stored.terms else { return OnHit::Use };
    let hit = HitFacts {
        age: terms.age(now),
        ttl: terms.remaining(now),
        stale: !terms.is_fresh(now),
        tags: tags::names(&stored.head.fields).map(|tag| String::from_utf8_lossy(tag).into_owned()).collect(),
    };
    let about = (request, &ask.url, &stored.head, Some(&hit));
    let (effects, place) = match asked_about::<S, FoundEffects>(stream, hooked, about, record).await {
        Ok(Some(Decided { effects, note, .. })) => {
            let place = note.at();
            record.note_hook(note);
            (effects, place)
        }
        Ok(None) => return OnHit::Use,
        Err(page) => return page.map_or(OnHit::Use, OnHit::Answer),
    };
    match &*effects {
        FoundEffects { answer: Some(answer), .. } => OnHit::Answer(rules::page_of_hook(answer, place)),
        FoundEffects { passes: true, .. } => OnHit::Pass,
        FoundEffects { misses: true, .. } => OnHit::Miss,
        FoundEffects { .. } => OnHit::Use,
    }
}

/// The stored response that would answer the request without the origin, and the moment.
async fn usable<S: ClientStream>(
    stream: &mut S,
    request: &RequestHead,
    (ask, asked, key): (&Ask, &Asked, &[u8]),
) -> Option<(Arc<StoredHead>, Stamp)> {
    let cache = Arc::clone(&stream.env().common.cache);
    let (asked, _) = away::asked(stream.env(), stream.peer(), ask.weigh(*asked), ask);
    let mut now = stream.env().stamp_at(clock::instant());
    let mut peek = cache.peek(key, request, now);
    if peek.may_be_on_disk {
        // The disk may take its time. The answer to an earlier request of the connection does not wait for it.
        let _ = stream.flush().await;
        cache.take_up(key).await;
        now = stream.env().stamp_at(clock::instant());
        peek = cache.peek(key, request, now);
    }
    let stored = &peek.selected()?.head;
    let usable = policy::usable(stored.terms.as_ref()?, &asked, now, &cache.settings().policy);
    (!matches!(usable, Usable::Validate(_))).then(|| (Arc::clone(stored), now))
}

/// Asks hooks about a response. `Err` has the page for a client whose request is denied because they failed; without one the
/// request goes on as if there were no hook.
async fn asked_about<S: ClientStream, E: Effects>(
    stream: &mut S,
    hooked: &HookedBy,
    (request, url, head, hit): (&RequestHead, &Url, &ResponseHead, Option<&HitFacts>),
    record: &mut Record,
) -> Result<Option<Decided<E>>, Option<Page>> {
    let env = Rc::clone(stream.env());
    // The answer to an earlier request of the connection does not wait for a process.
    let _ = stream.flush().await;
    // A rule that is gone, at a reload for a moment, is not taken to permit.
    let Some(mount) = env.upstreams.mounts().find(&hooked.host) else {
        return Err(Some(rules::denied_by_hook(&CallTrouble::Busy)));
    };
    let name = env.common.names.name(record.number).to_string();
    let about = AnswerFacts {
        request,
        url,
        client: stream.peer().address.ip(),
        name: &name,
        answer: (head.status, &head.fields),
        hit,
    };
    env.hooks.ask_about::<E>(&mount, &about).await.map_err(|FailedCall { trouble, note }| {
        record.note_hook(*note);
        (!rules::may_go_on(&mount, &trouble)).then(|| rules::denied_by_hook(&trouble))
    })
}

/// The work of `respond` hooks on the answer to one request.
pub(super) struct Responding {
    hooked: Box<HookedBy>,
    url: Url,
}

/// An answer as its client gets it.
pub(super) struct Responded {
    /// The answer.
    pub answer: AnswerSource,
    /// The names of the fields that hooks gave it; a 304 has them too.
    pub given: Vec<String>,
}

impl From<AnswerSource> for Responded {
    fn from(answer: AnswerSource) -> Responded {
        Responded { answer, given: Vec::new() }
    }
}

impl Responding {
    /// For a request whose answer `respond` hooks may work on.
    pub fn of(ask: &Ask) -> Option<Box<Responding>> {
        let hooked = ask.hooked_by.as_ref().filter(|hooked| hooked.at_respond)?;
        Some(Box::new(Responding { hooked: hooked.clone(), url: ask.url.clone() }))
    }

    /// Lets the hooks work on the head of an answer. Pages of Larder's own and answers of hooks go as they are.
    pub async fn respond<S: ClientStream>(
        &self,
        stream: &mut S,
        request: &RequestHead,
        answer: AnswerSource,
        record: &mut Record,
    ) -> Responded {
        let AnswerSource::Entry { reader, stored, outcome, verbatim, refill } = answer else { return answer.into() };
        // The head for the client that caused the fetch has fields that others do not get.
        let head = deliver::head_for_client(&stored, outcome);
        let about = (request, &self.url, head, None);
        let effects = match asked_about::<S, RespondEffects>(stream, &self.hooked, about, record).await {
            Ok(Some(Decided { effects, note, .. })) => {
                record.note_hook(note);
                effects
            }
            Err(Some(page)) => return AnswerSource::Page(page).into(),
            Ok(None) | Err(None) => {
                return AnswerSource::Entry { reader, stored, outcome, verbatim, refill }.into();
            }
        };
        if effects.is_nothing() {
            return AnswerSource::Entry { reader, stored, outcome, verbatim, refill }.into();
        }
        let mut own = head.clone();
        effects.change(&mut own.fields);
        let own = StoredHead::new(own, stored.terms.clone(), stored.received).with_reason(stored.not_stored());
        let given = effects.set.iter().map(|(name, _)| name.clone()).collect();
        Responded { answer: AnswerSource::Entry { reader, stored: Arc::new(own), outcome, verbatim, refill }, given }
    }
}
