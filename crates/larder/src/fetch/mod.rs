//! Asks an origin and fills an entry with the answer: the server side of the meeting place.
//!
//! A fetch goes on by itself: as a task of its own, or, until its head is here, within the task of the client that waits
//! for it ([`AttachedFetch`]). It outlives that client when [`Writer::room`] says so, and knows it only as the sender of a request
//! body.

use crate::box_in_place::box_in_place;
use crate::clock;
use crate::env::{Common, Env};
use crate::reach;
use crate::record::{Keeping, Notes};
use crate::request_body::{Piece, RequestBody};
use crate::rules::{Ask, Route};
use crate::upstream::{Connection, UpstreamFault};
use ask::OriginAnswer;
use larder_cache::cache::{Fill, Writer};
use larder_cache::entry::{Failure, PinnedEntry, ReuseReason};
use larder_cache::head::StoredHead;
use larder_cache::policy::{self, Asked, HeadSays, NotStored, Storable, Terms, Times, Weighed};
use larder_wire::date::Stamp;
use larder_wire::etag::ETag;
use larder_wire::framing::Framing;
use larder_wire::{Fields, Method, RequestHead, ResponseHead, hop};
use pour::{Sink, pour};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

mod ask;
mod attached;
mod forward;
mod part;
mod pour;

pub use attached::AttachedFetch;
pub use forward::forwarded;
pub use part::{Refill, asks_part};

/// One request to an origin.
pub struct Fetch {
    /// The worker that fetches.
    pub env: Rc<Env>,
    /// What for, and where.
    pub ask: Ask,
    /// The request as the client sent it; the rules of RFC 9111 look at this one.
    pub request: Rc<RequestHead>,
    /// Who sent it.
    pub client: SocketAddr,
    /// It came through the listener of a `larder run`.
    pub for_run: bool,
    /// How it is changed on the way.
    pub kind: FetchKind,
    /// Where the answer goes.
    pub writer: Writer,
    /// The hole of a stored response that the answer is to fill.
    pub fill: Option<Fill>,
    /// The pieces of the request's body, and what is known of its length.
    pub body: Option<(mpsc::Receiver<Piece>, RequestBody)>,
    /// Where interim heads go.
    pub interim: Option<Rc<Interim>>,
    /// How long the origin may be silent before a stored response stands in for its answer; `None` where none may.
    pub silent_for: Option<Duration>,
    /// What is noted of it, for those who explain.
    pub notes: Rc<Notes>,
}

/// Interim heads on their way to the client, which looks for them after each turn of the fetch.
#[derive(Debug, Default)]
pub struct Interim(RefCell<VecDeque<ResponseHead>>);

/// Interim heads that wait for the client; more are dropped, for they are hints.
const INTERIM_MAX: usize = 4;

impl Interim {
    fn tell(&self, head: ResponseHead) {
        let mut waiting = self.0.borrow_mut();
        if waiting.len() < INTERIM_MAX {
            waiting.push_back(head);
        }
    }

    /// The one that came first of those that wait.
    pub fn next(&self) -> Option<ResponseHead> {
        self.0.borrow_mut().pop_front()
    }
}

/// What a request is for; decides what of it the origin sees, and what becomes of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchKind {
    /// The whole object, for the store and whoever follows: ranges and conditions of the client stay here.
    Share,
    /// The part that the client asked for first, for the store and whoever follows.
    Part,
    /// What is missing of a stored response; the answer may also be a new one, for the store.
    Hole,
    /// What the client asked, word for word; the answer is for it alone.
    Relay,
}

impl FetchKind {
    /// The word that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            FetchKind::Share => "whole",
            FetchKind::Part => "part",
            FetchKind::Hole => "hole",
            FetchKind::Relay => "relay",
        }
    }

    /// The answer may be stored.
    fn is_shared(self) -> bool {
        self != FetchKind::Relay
    }

    /// What is stored may stand in for the answer; what is missing of it can't stand in for itself.
    fn is_for_whole(self) -> bool {
        matches!(self, FetchKind::Share | FetchKind::Part)
    }
}

/// Whether an answer may have to do with what is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keepable {
    Yes,
    /// It comes from an address that is closed to other clients.
    No,
}

/// Begins a fetch for a client that waits for its answer.
pub fn attach(fetch: Box<Fetch>) -> AttachedFetch {
    let (env, watch) = (Rc::clone(&fetch.env), fetch.writer.watch(fetch.fill.as_ref()));
    let asks = env.upstreams.asked(fetch.ask.connects_to());
    match fetch.notes.sampled.get() {
        None => AttachedFetch::new(box_in_place(|| run(fetch)), watch, asks, env),
        Some(_) => AttachedFetch::new(Box::pin(run_traced(fetch)), watch, asks, env),
    }
}

/// Begins a fetch behind an answer, as a task of its own.
pub fn start_detached(fetch: Box<Fetch>) {
    drop(attach(fetch));
}

/// The same for a fetch that has a place in a trace.
async fn run_traced(fetch: Box<Fetch>) {
    let (env, notes) = (Rc::clone(&fetch.env), Rc::clone(&fetch.notes));
    let (method, url) = (fetch.request.method.clone(), fetch.ask.url_at_origin());
    Box::pin(run(fetch)).await;
    if let Some(traces) = &env.common.traces {
        traces.end_fetch(&method, &url, &notes, &env.tally.spans);
    }
}

async fn run(mut fetch: Box<Fetch>) {
    let mut fields = fetch.fields_for_origin();
    let validates = fetch.kind.is_for_whole() && {
        let about = fetch.asked_about();
        policy::conditional(&mut fields, about.map(|(_, head, terms)| (head, terms)))
    };
    fetch.notes.conditional.set(validates);
    fetch.notes.kind.set(fetch.kind.as_str());
    let mut answer = match fetch.ask_origin(&fields).await {
        Ok(answer) => answer,
        Err(fault) => return give_up(fetch, &fault),
    };
    if validates && answer.head.status == 304 {
        if let Some(validated) = freshen(&fetch, &answer) {
            answer.connection.release();
            return match validated.for_all {
                true => fetch.writer.redirect_with(&validated.entry, validated.own),
                false => fetch.writer.redirect_alone(&validated.entry, validated.own),
            };
        }
        // It names nothing that is stored here: the whole is asked for.
        answer.connection.release();
        answer = match fetch.ask_anew().await {
            Ok(answer) => answer,
            Err(fault) => return give_up(fetch, &fault),
        };
    }
    if let Some(fill) = fetch.fill.take() {
        match part::fill(&fetch, fill, &answer) {
            part::Filled::By(filled) => {
                let (fill, own) = *filled;
                fetch.writer.redirect_with(fill.entry(), own);
                let sink = Sink::Hole(fill, Arc::clone(&fetch.env.common.cache));
                let poured = pour(sink, answer.connection, None).await;
                return poured.unwrap_or_else(|word| fetch.notes.broke_off(word));
            }
            part::Filled::ByAnother => {}
            part::Filled::AskAgain => {
                drop(answer);
                if fetch.writer.readers() == 0 {
                    // It was for the rest of an answer that has begun: that one has been told.
                    return;
                }
                fetch.kind = FetchKind::Part;
                answer = match fetch.ask_anew().await {
                    Ok(answer) => answer,
                    Err(fault) => return give_up(fetch, &fault),
                };
            }
        }
    }
    let OriginAnswer { head, times, connection, uplink } = answer;
    if fetch.kind.is_for_whole()
        && is_trouble(head.status)
        && let Some(stale) = fetch.stale_instead(policy::stale_if_error)
    {
        return fetch.writer.redirect(&stale, ReuseReason::StaleIfError);
    }
    invalidate_changed(&fetch.env.common, &fetch.request.method, &fetch.ask, &head);
    let declared = declared_length(&head, &fetch.request.method, connection.framing());
    let notes = Rc::clone(&fetch.notes);
    let keepable = fetch.keepable(&connection);
    let Some(sink) = publish(fetch, head, declared, times, keepable) else { return };
    if sink.readers() > 1 {
        // Everybody gets the head before the body takes the worker's time.
        tokio::task::yield_now().await;
    }
    pour(sink, connection, uplink).await.unwrap_or_else(|word| notes.broke_off(word));
}

impl Fetch {
    /// Sends the request once more, as it is to be by now.
    async fn ask_anew(&mut self) -> Result<OriginAnswer, UpstreamFault> {
        let fields = self.fields_for_origin();
        Box::pin(self.ask_origin(&fields)).await
    }

    /// The fields as the origin gets them (RFC 9110 section 7.6).
    fn fields_for_origin(&self) -> Fields {
        let mut fields = forwarded(&self.env, &self.request, &self.ask, self.client, &self.notes);
        if matches!(self.body, Some((_, RequestBody::Unknown))) {
            fields.push("Transfer-Encoding", "chunked");
        }
        match self.kind {
            FetchKind::Relay => {}
            FetchKind::Part => part::ask_first(&mut fields),
            FetchKind::Share | FetchKind::Hole => part::ask_whole(&mut fields),
        }
        if let Some(fill) = &self.fill {
            part::ask_hole(&mut fields, fill);
        }
        fields
    }

    /// Whether what came by this connection may be stored for all clients, or change what is stored.
    fn keepable(&self, connection: &Connection) -> Keepable {
        let is_closed = connection.peer().is_some_and(|peer| !reach::may_keep(&self.ask.url.host, peer.ip()));
        match self.ask.route {
            Route::Forward(_) if is_closed => Keepable::No,
            _ => Keepable::Yes,
        }
    }

    /// The stored response that may be used although its origin is in trouble, by the rule `permits`.
    fn stale_instead(&self, permits: impl Fn(&Terms, &Asked, Stamp, &policy::Settings) -> bool) -> Option<PinnedEntry> {
        let (asked, now) = (Asked::of(&self.request), clock::now());
        let stored = self.writer.candidates().iter();
        let terms = stored.filter_map(|(entry, kept)| Some((kept.terms.as_ref()?, (entry, kept))));
        let (entry, kept) = policy::choose(terms, &self.request)?;
        let permitted = permits(kept.terms.as_ref()?, &asked, now, self.policy());
        // It may have been purged since the fetch began.
        let permitted = permitted && self.env.common.cache.is_stored(entry, now);
        permitted.then(|| entry.clone())
    }

    /// What is stored under this key.
    fn stored(&self) -> impl Iterator<Item = (&PinnedEntry, &ResponseHead, &Terms)> {
        let candidates = self.writer.candidates().iter();
        candidates.filter_map(|(entry, kept)| Some((entry, &kept.head, kept.terms.as_ref()?)))
    }

    /// The stored responses that the origin is asked about: those that this request selects. RFC 9111 section 4.3.1
    /// allows to ask about the other variants too; but servers that compress on the fly give two codings one tag,
    /// and a 304 would then name the wrong one.
    fn asked_about(&self) -> impl Iterator<Item = (&PinnedEntry, &ResponseHead, &Terms)> {
        self.stored().filter(|(_, _, terms)| terms.answers(&self.request))
    }

    /// The origin has another answer now, one that is not stored: the stored one is not served any more.
    fn forget_selected(&self) {
        for (entry, kept) in self.writer.candidates() {
            if kept.terms.as_ref().is_some_and(|terms| terms.answers(&self.request)) {
                self.env.common.cache.drop_entry(entry);
            }
        }
    }

    /// The answer to a HEAD says something of what a GET brought (RFC 9111 section 4.3.5).
    fn learn_from_head(&self, head: &ResponseHead, times: Times) {
        let cache = &self.env.common.cache;
        let Some((entry, kept)) = cache.stored(self.writer.key().text(), &self.request) else { return };
        let Some(terms) = &kept.terms else { return };
        let mut stored = kept.head.clone();
        if let Some(length) = entry.length() {
            stored.fields.set("Content-Length", length.to_string());
        }
        match policy::head_says(&stored, terms, head) {
            HeadSays::Nothing => {}
            HeadSays::Invalidates if !self.speaks_for_all(head) => {}
            HeadSays::Invalidates => {
                let mut terms = terms.clone();
                terms.expire(times.received);
                entry.renew(StoredHead::new(kept.head.clone(), Some(terms), kept.received), 0);
            }
            HeadSays::Freshens => {
                if let Ok((head, terms)) = policy::renew(&self.request, (&kept.head, terms), head, times, self.policy())
                {
                    entry.renew(StoredHead::new(head, Some(terms), times.received), self.writer.epoch());
                }
            }
        }
    }

    /// What the answer says of the object holds for others too: not, where the one who asked has authenticated and the answer
    /// does not say so (RFC 9111 section 3.5).
    fn speaks_for_all(&self, head: &ResponseHead) -> bool {
        policy::may_update(&self.request, head, self.policy()) != Err(NotStored::Authorization)
    }

    /// The rules for this fetch: a site is close to its origin, as a CDN is; a run wants everything the second time.
    fn policy(&self) -> &policy::Settings {
        policy_of(&self.env.common, &self.ask.route, self.for_run)
    }
}

/// The caching rules for responses that come by this route.
pub fn policy_of<'a>(common: &'a Common, route: &Route, for_run: bool) -> &'a policy::Settings {
    match route {
        Route::Forward(_) if for_run => &common.run_policy,
        Route::Forward(_) => &common.cache.settings().policy,
        Route::Site { .. } => &common.site_policy,
    }
}

/// After an unsafe method that succeeded, responses that it may have changed are invalidated (RFC 9111 section 4.4).
pub fn invalidate_changed(common: &Common, method: &Method, ask: &Ask, response: &ResponseHead) {
    if !method.is_safe() {
        for changed in policy::invalidated(method, &ask.url, response) {
            let mut key = Vec::new();
            ask.key_for(&changed, &common.cache, &mut key);
            common.cache.invalidate(&key);
        }
    }
}

fn give_up(fetch: Box<Fetch>, fault: &UpstreamFault) {
    fetch.notes.trouble.set(Some(fault.kind.as_str()));
    if fetch.kind.is_for_whole() {
        let permits = |terms: &Terms, asked: &Asked, now, settings: &policy::Settings| {
            policy::disconnected(terms, asked, now) || policy::stale_if_error(terms, asked, now, settings)
        };
        if let Some(stale) = fetch.stale_instead(permits) {
            return fetch.writer.redirect(&stale, ReuseReason::StaleIfError);
        }
    }
    tracing::debug!(url = %fetch.ask.url, %fault, "fetch failed");
    if let Some(fill) = fetch.fill {
        fill.fail(failure(fault));
    }
    fetch.writer.fail(failure(fault));
}

/// What a fault upstream means for the client.
pub fn failure(fault: &UpstreamFault) -> Failure {
    Failure { status: fault.status(), word: fault.kind.as_str(), detail: fault.to_string().into() }
}

/// What a 304 came to.
struct Validated {
    /// The stored response that answers the request.
    entry: PinnedEntry,
    /// Its head for the one who asked.
    own: StoredHead,
    /// What is stored was renewed, so that it answers others too.
    for_all: bool,
}

/// A 304: the stored responses that it names are answers still, with fields brought up to date (RFC 9111 section
/// 4.3.4). Gives the one that answers this request, if one does.
fn freshen(fetch: &Fetch, answer: &OriginAnswer) -> Option<Validated> {
    if fetch.keepable(&answer.connection) == Keepable::No {
        return None;
    }
    let (head, times) = (&answer.head, answer.times);
    let asked: Vec<(&PinnedEntry, &ResponseHead, &Terms)> = fetch.asked_about().collect();
    let set: Vec<(&ResponseHead, &Terms)> = asked.iter().map(|(_, head, terms)| (*head, *terms)).collect();
    let own = |stored, head| {
        let (head, terms) = policy::answer_to_asker(stored, head, times, fetch.policy());
        StoredHead::new(head, Some(terms), times.received)
    };
    let Some(&at) = policy::named_by(&set, head).first() else {
        let (entry, stored, terms) = *asked.iter().find(|(_, _, terms)| is_weakly_named(terms, head))?;
        let mut head = head.clone();
        head.fields.remove("ETag");
        let for_all = renew(fetch, entry, (stored, terms), &head, times);
        return Some(Validated { entry: entry.clone(), own: own(stored, &head), for_all });
    };
    let (chosen, stored_of_chosen, _) = asked[at];
    let strong = ETag::of(&head.fields).filter(|tag| !tag.weak);
    let mut for_all = true;
    for (entry, stored, terms) in fetch.stored() {
        let named = strong.as_ref().is_some_and(|tag| terms.etag.as_ref().is_some_and(|own| own.strong_eq(tag)));
        if named || Arc::ptr_eq(entry, chosen) {
            for_all &= renew(fetch, entry, (stored, terms), head, times);
        }
    }
    Some(Validated { entry: chosen.clone(), own: own(stored_of_chosen, head), for_all })
}

/// False when the 304 is for the one who asked alone.
fn renew(
    fetch: &Fetch,
    entry: &PinnedEntry,
    stored: (&ResponseHead, &Terms),
    head: &ResponseHead,
    times: Times,
) -> bool {
    let why = match policy::renew(&fetch.request, stored, head, times, fetch.policy()) {
        Ok((head, terms)) => {
            entry.renew(StoredHead::new(head, Some(terms), times.received), fetch.writer.epoch());
            return true;
        }
        Err(why) => why,
    };
    let cache = &fetch.env.common.cache;
    fetch.notes.keeping.replace(Some(Keeping::Not(why)));
    cache.mark_pass(fetch.writer.key().text(), times.received, why);
    // What is for one user says nothing of what others have; what forbids to keep it says it to all.
    if policy::may_update(&fetch.request, head, fetch.policy()).is_ok() {
        cache.drop_entry(entry);
    }
    false
}

/// Servers that compress on the fly call the result `W/"x"` in a 200 and `"x"` in the 304 for it. They were asked by
/// that weak tag, with the same request fields, so their 304 means that stored response; its own tag stays.
fn is_weakly_named(terms: &Terms, head: &ResponseHead) -> bool {
    let said = ETag::of(&head.fields);
    said.is_some_and(|said| terms.etag.as_ref().is_some_and(|own| own.weak_eq(&said)))
}

/// Publishes the head: stored and shared, or for the one who asked. The body goes to what it gives back.
fn publish(
    mut fetch: Box<Fetch>,
    mut head: ResponseHead,
    declared: Option<u64>,
    times: Times,
    keepable: Keepable,
) -> Option<Sink> {
    let cache = Arc::clone(&fetch.env.common.cache);
    let too_long = declared.is_some_and(|length| !fetch.writer.takes(length));
    let settings = fetch.policy();
    policy::dated(&mut head, times.received);
    let storable = match fetch.kind {
        _ if keepable == Keepable::No => Storable::No(NotStored::Address),
        FetchKind::Relay => Storable::No(NotStored::Method),
        // Nobody asked for a part.
        FetchKind::Share | FetchKind::Hole if head.status == 206 => Storable::No(NotStored::Partial),
        _ => policy::storable(&fetch.request, &head, times, settings),
    };
    match storable {
        Storable::Yes(_) if too_long => pass(&mut fetch, head, declared, NotStored::TooLong, times),
        Storable::Yes(terms) if head.status == 206 => match part::whole_of(&head) {
            Some((range, length)) => {
                let head = policy::whole_head(&head);
                let weighed = Weighed::of(&terms, times.received);
                fetch.notes.keeping.replace(Some(Keeping::Stored { terms: weighed, on_disk: None }));
                let kept = kept(head, terms, settings, times);
                let fill = fetch.writer.store_part(kept, &range, length);
                return fill.map(|fill| Sink::Hole(fill, Arc::clone(&cache)));
            }
            None => pass(&mut fetch, head, declared, NotStored::Partial, times),
        },
        Storable::Yes(terms) => {
            let weighed = Weighed::of(&terms, times.received);
            let kept = kept(head, terms, settings, times);
            fetch.writer.store(kept, declared);
            let on_disk = fetch.writer.is_admitted();
            fetch.notes.keeping.replace(Some(Keeping::Stored { terms: weighed, on_disk }));
        }
        Storable::No(why) => pass(&mut fetch, head, declared, why, times),
    }
    Some(Sink::Entry(fetch.writer))
}

/// The head as it is kept, and as the first client gets it.
fn kept(mut head: ResponseHead, terms: Terms, settings: &policy::Settings, times: Times) -> StoredHead {
    let mut kept = policy::kept_head(&head, settings);
    hop::strip(&mut head.fields);
    for name in ["Content-Length", "Age"] {
        kept.fields.remove(name);
        head.fields.remove(name);
    }
    let withheld = kept.fields.len() < head.fields.len();
    let kept = StoredHead::new(kept, Some(terms), times.received);
    if withheld { kept.with_head_for_asker(head) } else { kept }
}

/// Publishes a head whose answer is for the one who asked, and remembers that.
fn pass(fetch: &mut Fetch, mut head: ResponseHead, declared: Option<u64>, why: NotStored, times: Times) {
    if fetch.kind.is_shared() {
        fetch.notes.keeping.replace(Some(Keeping::Not(why)));
        fetch.env.common.cache.mark_pass(fetch.writer.key().text(), times.received, why);
        if head.status < 500 && why != NotStored::Address && fetch.speaks_for_all(&head) {
            fetch.forget_selected();
        }
    } else if fetch.request.method == Method::Head && why != NotStored::Address {
        fetch.learn_from_head(&head, times);
    }
    hop::strip(&mut head.fields);
    state_length(&mut head, declared, &fetch.request.method);
    let why = fetch.kind.is_shared().then_some(why);
    fetch.writer.pass(StoredHead::passing(head, why, times.received), declared);
}

/// The length that the head declares: of the body that follows, or that a GET would get.
fn declared_length(head: &ResponseHead, asked: &Method, framing: Framing) -> Option<u64> {
    match framing {
        Framing::Length(length) => Some(length),
        Framing::None if *asked == Method::Head => head.fields.text("Content-Length")?.parse().ok(),
        Framing::None => Some(0),
        Framing::Chunked | Framing::UntilClose => None,
    }
}

/// Removes `Content-Length`, which the answer gets anew from the length of its body. Only the answer to a HEAD keeps the
/// one that the origin stated, for its own body is empty whatever a GET would get (RFC 9110 section 8.6).
fn state_length(head: &mut ResponseHead, declared: Option<u64>, asked: &Method) {
    head.fields.remove("Content-Length");
    if let Some(length) = declared.filter(|_| *asked == Method::Head) {
        head.fields.push("Content-Length", length.to_string());
    }
}

/// Statuses that mean the origin is in trouble (RFC 5861 section 4).
pub fn is_trouble(status: u16) -> bool {
    matches!(status, 500 | 502 | 503 | 504)
}

/// Takes over an answer that somebody else asked for, to be passed on to the one reader of `writer`.
pub fn adopt(mut writer: Writer, mut head: ResponseHead, connection: Connection, asked: &Method) {
    let declared = declared_length(&head, asked, connection.framing());
    let received = clock::now();
    policy::dated(&mut head, received);
    hop::strip(&mut head.fields);
    state_length(&mut head, declared, asked);
    writer.pass(StoredHead::passing(head, None, received), declared);
    tokio::task::spawn_local(async {
        // Who reads it is told by the entry.
        let _ = pour(Sink::Entry(writer), connection, None).await;
    });
}
