//! The answer to a request that the rules allow: from the store, from a fetch that is under way, or from one that begins now.

use super::away;
use super::deliver::{self, AnswerSource};
use super::head_alone;
use super::hooked::{self, OnHit};
use super::offline;
use super::posted::{self, ReadBody};
use super::presence::{Gone, Presence};
use super::relay::{FetchEvent, Relay, failed, key_of, new_fetch, news, only_if_cached, take_interim, without_store};
use super::stream::ClientStream;
use super::upload::Upload;
use super::why;
use crate::clock;
use crate::config::Apart;
use crate::env::Env;
use crate::fetch::{self, AttachedFetch, Fetch, FetchKind, Interim, Posted, Refill};
use crate::page::Page;
use crate::reach::{self, Asker};
use crate::record::{Cause, Outcome, Record};
use crate::request_body::RequestBody;
use crate::rules::Ask;
use crate::upstream::{Outage, UpstreamFaultKind};
use larder_cache::cache::{Cache, Disk, Fill, Found, Hit, Joins, Writer};
use larder_cache::entry::{Arrival, Contact, Failure, FailureKind, Gap, PinnedEntry, Reader, ReuseReason};
use larder_cache::head::StoredHead;
use larder_cache::policy::{self, Asked, StaleWhy};
use larder_rules::rule::Priority;
use larder_wire::date::Stamp;
use larder_wire::{Method, RequestHead};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Finds the answer to a request that the rules allow. `key` is given where the key was made already. Futures of the rarer
/// cases are boxed: they would make this future larger, which is copied once when it begins.
pub async fn look_up<S: ClientStream>(
    stream: &mut S,
    request: &Rc<RequestHead>,
    ask: Ask,
    key: Option<Vec<u8>>,
    body: RequestBody,
    upload: &mut Option<Upload>,
    record: &mut Record,
) -> AnswerSource {
    if ask.passes() {
        why::note_rules(&ask, record);
        return Box::pin(without_store(stream, request, (ask, body, None), upload, record)).await;
    }
    let shorter = ask.as_looked_up(request).map(Rc::new);
    let request = shorter.as_ref().unwrap_or(request);
    let Some((asked, joins)) = wants(request, body) else {
        return Box::pin(with_body(stream, request, ask, body, upload, record)).await;
    };
    let for_head_alone = match request.method {
        Method::Head => Box::pin(head_alone::key(stream, request, &ask)).await,
        _ => None,
    };
    let (joins, key) = match for_head_alone {
        Some(key) => (Joins::Yes, Some(key)),
        None => (joins, key),
    };
    let mut is_missed = false;
    if ask.asks_found() {
        match Box::pin(hooked::found(stream, request, &ask, (&asked, key.as_deref()), record)).await {
            OnHit::Use => {}
            OnHit::Miss => is_missed = true,
            OnHit::Pass => return Box::pin(without_store(stream, request, (ask, body, None), upload, record)).await,
            OnHit::Answer(page) => return AnswerSource::Page(page),
        }
    }
    let wanted = Wanted { asked, is_missed, joins, key, body, posted: None };
    find_answer(stream, request, ask, wanted, upload, record).await
}

/// A request as it is looked up.
struct Wanted {
    asked: Asked,
    /// A hook says that no stored response is to be used before the origin was asked.
    is_missed: bool,
    joins: Joins,
    key: Option<Vec<u8>>,
    body: RequestBody,
    /// The body, where it was read and is a part of the key.
    posted: Option<Rc<Posted>>,
}

async fn find_answer<S: ClientStream>(
    stream: &mut S,
    request: &Rc<RequestHead>,
    ask: Ask,
    Wanted { asked, is_missed, joins, key, body, posted }: Wanted,
    upload: &mut Option<Upload>,
    record: &mut Record,
) -> AnswerSource {
    let is_offline = stream.peer().listener.is_offline();
    if let Some(page) = apart(stream.env(), record.stamp()) {
        return AnswerSource::Page(page);
    }
    let (asked, outage) = away::asked(stream.env(), stream.peer(), ask.weigh(asked), &ask);
    why::note_rules(&ask, record);
    let cache = Arc::clone(&stream.env().common.cache);
    let key = key.unwrap_or_else(|| key_of(&ask, &cache));
    // A stored response may stand in for an answer that does not come as the request permits it, whatever a hook says.
    let find_as = Asked { no_cache: asked.no_cache || is_missed, ..asked };
    let (asked, find_as, key, cache, posted) = (&asked, &find_as, &key, &cache, posted.as_ref());
    record.trail.asks(*asked);
    let mut disk = Disk::Ask;
    let mut lost = false;
    let mut now = record.stamp();
    for turn in 0..TURNS_MAX {
        if turn > 0 {
            now = stream.env().stamp_at(clock::instant()); // it may have waited for long
        }
        let mut found = cache.find(key, request, find_as, now, joins, disk);
        if let Found::OnDisk(load) = found {
            // The disk may take its time. The answer to an earlier request of the connection does not wait for it.
            let _ = stream.flush().await;
            load.finish().await;
            (disk, now) = (Disk::Seen, stream.env().stamp_at(clock::instant()));
            found = cache.find(key, request, find_as, now, joins, disk);
        }
        let cause = why::note(cache, key, request, &found, (disk, now), lost, record);
        let cause = if is_missed && !asked.no_cache && cause == Cause::Request { Cause::Hook } else { cause };
        let is_hit = found.is_hit();
        let mut lookup = Lookup { stream, request, ask: &ask, asked, outage, key, cache, posted, record };
        let answer = match found {
            Found::Fresh(hit) => {
                let outcome = if hit.filling { Outcome::Collapsed } else { Outcome::Hit };
                lookup.stored(hit, outcome).await
            }
            Found::Stale(hit, why) => lookup.stale(hit, why).await,
            Found::Revalidate(hit, writer) => {
                lookup.refresh(writer);
                lookup.stored(hit, Outcome::HitRevalidating).await
            }
            Found::OnDisk(_) => None, // not with `Disk::Seen`
            Found::Unsatisfiable => Some(lookup.nothing_stored()),
            Found::InFlight(reader) => Box::pin(lookup.follow(reader)).await,
            // A response that is not stored is requested as the client does: its condition or range saves bytes.
            Found::Pass(reader, writer) if joins == Joins::No || !deliver::is_plain(&request.fields) => {
                match lookup.stand_in().filter(|_| body == RequestBody::None) {
                    Some(stand_in) => Box::pin(lookup.ask_alone(reader, writer, cause, stand_in)).await,
                    None => {
                        let relay = Relay { request, ask, body, posted: None, cause };
                        return Box::pin(relay.answer_into(reader, writer, stream, upload, record)).await;
                    }
                }
            }
            Found::Validate(stored, _, reader, writer) => lookup.validate(stored, reader, writer, cause).await,
            Found::Missing(reader, writer, _) | Found::Pass(reader, writer) => lookup.lead(reader, writer, cause).await,
        };
        if let Some(answer) = answer {
            return answer;
        }
        lost = is_hit;
    }
    if is_offline {
        return AnswerSource::Page(offline::not_stored(stream.peer(), request, &ask, record));
    }
    let relay = Relay { request, ask, body, posted: posted.cloned(), cause: Cause::NotShared };
    Box::pin(relay.answer(stream, upload, record)).await
}

/// The refusal of what stored responses could answer, where settings want it while purges of other nodes may not be known here.
fn apart(env: &Env, now: Stamp) -> Option<Page> {
    if !env.common.cache.gate().is_shut(now) || env.config().cluster.apart != Apart::Refuse {
        return None;
    }
    let text = "This node of the cluster may not have heard of purges that others made.";
    Some(Page::new(503, "apart", text.to_owned(), "Ask another node, or come again in a moment."))
}

/// Answers a request that is no plain question: its body is read and looked up where it is a question all the same, and else no
/// stored response can answer it.
async fn with_body<S: ClientStream>(
    stream: &mut S,
    request: &Rc<RequestHead>,
    ask: Ask,
    body: RequestBody,
    upload: &mut Option<Upload>,
    record: &mut Record,
) -> AnswerSource {
    // A body that a service has looked at is not here to be read.
    if upload.is_some() || !posted::is_question(stream, request, &ask, body) {
        return without_store(stream, request, (ask, body, None), upload, record).await;
    }
    let read = match posted::read(stream, request).await {
        Ok(read) => read,
        Err(answer) => return answer,
    };
    let posted = match read {
        ReadBody::Whole(posted) => posted,
        begun @ ReadBody::Begun(_) => {
            return without_store(stream, request, (ask, body, Some(begun)), upload, record).await;
        }
    };
    if posted.question.is_none() {
        let whole = Some(ReadBody::Whole(posted));
        return without_store(stream, request, (ask, body, whole), upload, record).await;
    }
    let asked = posted::asked(stream, request, &ask, &posted);
    let key = Some(posted::key(&ask, &stream.env().common.cache, request, &posted));
    let body = RequestBody::None;
    let wanted = Wanted { asked, is_missed: false, joins: Joins::Yes, key, body, posted: Some(posted) };
    find_answer(stream, request, ask, wanted, upload, record).await
}

/// How often a request is looked up before it is passed on by itself. A second lookup is usual after a fetch whose answer
/// turned out to be for its own client alone.
const TURNS_MAX: usize = 3;

/// Whether the store is asked for this request at all, and whether it takes part in shared fetches.
pub fn wants(request: &RequestHead, body: RequestBody) -> Option<(Asked, Joins)> {
    let readable = policy::answerable(request) && matches!(body, RequestBody::None | RequestBody::Known(0));
    let fields = &request.fields;
    // These conditions guard a change at the origin; only it can tell (RFC 9110 section 13.2.1).
    if !readable || fields.contains("If-Match") || fields.contains("If-Unmodified-Since") {
        return None;
    }
    let asked = Asked::of(request);
    let joins = match request.method {
        Method::Get if !asked.no_store() && fields.contains("Authorization") => Joins::Apart,
        Method::Get if !asked.no_store() => Joins::Yes,
        _ => Joins::No,
    };
    Some((asked, joins))
}

/// One lookup of a request. A method gives `None` where the response that was found can't answer this request, or not any
/// more: then the request is looked up again.
struct Lookup<'a, S> {
    stream: &'a mut S,
    request: &'a Rc<RequestHead>,
    ask: &'a Ask,
    asked: &'a Asked,
    outage: Outage,
    key: &'a [u8],
    cache: &'a Arc<Cache>,
    posted: Option<&'a Rc<Posted>>,
    record: &'a mut Record,
}

impl<S: ClientStream> Lookup<'_, S> {
    /// Answers with a stored response. If bytes that this request needs are missing, the first such hole is fetched before the
    /// head goes out, so that a change of the object is noticed in time.
    async fn stored(&mut self, hit: Hit, outcome: Outcome) -> Option<AnswerSource> {
        self.stored_with(hit, None, outcome).await
    }

    /// [`Lookup::stored`] with a head that is for this client alone, where there is one.
    async fn stored_with(
        &mut self,
        mut hit: Hit,
        own: Option<Arc<StoredHead>>,
        outcome: Outcome,
    ) -> Option<AnswerSource> {
        if hit.reader.began_incomplete() {
            for range in deliver::needed(self.request, own.as_ref().unwrap_or(&hit.stored), hit.length) {
                // The answer to an earlier request of the connection does not wait for this one's bytes.
                if hit.reader.waits_for_gap(&range) {
                    let _ = self.stream.flush().await;
                }
                match hit.reader.gap(range).await {
                    // Another request filled a hole meanwhile, maybe by an older part: then the age has changed.
                    Gap::None if !hit.is_current() => return None,
                    Gap::None => {}
                    Gap::Void => return None,
                    Gap::Hole(_) if self.asked.only_if_cached() => return Some(self.nothing_stored()),
                    Gap::Hole(hole) => {
                        if !hit.reader.entry().is_mendable() || self.is_judged() {
                            self.cache.drop_entry(hit.reader.entry());
                            return None;
                        }
                        let settings = &self.cache.settings().policy;
                        if !policy::shares_with_authorized(self.request, &hit.stored.head, settings) {
                            return self.relay().await;
                        }
                        let fill = Fill::begin(hit.reader.entry(), &hole)?;
                        let (reader, writer) = self.cache.beside(hit.reader.entry().key().text());
                        let mut fetch = self.fetch(FetchKind::Hole, writer);
                        fetch.fill = Some(fill);
                        return self.arrive(fetch, reader, Cause::Partial, Some(hit), Patience::default()).await;
                    }
                }
            }
        }
        Some(self.entry(hit.reader, own.unwrap_or(hit.stored), outcome))
    }

    /// Answers with a stored response that is past its lifetime.
    async fn stale(&mut self, hit: Hit, why: StaleWhy) -> Option<AnswerSource> {
        let answer = self.stored(hit, Outcome::HitStale).await;
        if why == StaleWhy::Offline && answer.is_some() {
            self.note_away();
        }
        answer
    }

    /// Answers with a stored response because the origin's answer does not come.
    async fn stood_in(&mut self, hit: Hit) -> Option<AnswerSource> {
        let answer = self.stored(hit, Outcome::HitError).await;
        if answer.is_some() && self.stream.env().upstreams.is_out_of_reach(self.ask.connects_to()) {
            self.note_away();
        }
        answer
    }

    fn note_away(&self) {
        let Some(run) = self.stream.peer().listener.online_run() else { return };
        run.network_was_away(self.stream.env().upstreams.was_behind_portal(self.ask.connects_to()));
    }

    /// The answer where the origin is not to be asked and the store has none.
    fn nothing_stored(&mut self) -> AnswerSource {
        AnswerSource::Page(match self.stream.peer().listener.is_offline() {
            true => offline::not_stored(self.stream.peer(), self.request, self.ask, self.record),
            false => only_if_cached(),
        })
    }

    /// Passes the request on unchanged, for this client alone: parts of an authenticated answer must not be combined with parts
    /// that every client may get (RFC 9111 section 3.5).
    async fn relay(&mut self) -> Option<AnswerSource> {
        let (reader, writer) = self.cache.alone(&key_of(self.ask, self.cache));
        let fetch = self.fetch(FetchKind::Relay, writer);
        let mut answer = Box::pin(self.arrive(fetch, reader, Cause::Partial, None, Patience::default())).await;
        if let Some(AnswerSource::Entry { verbatim, .. }) = &mut answer {
            *verbatim = true;
        }
        answer
    }

    /// Revalidates in the background, if this request got the writer for that.
    fn refresh(&mut self, writer: Option<Writer>) {
        let Some(writer) = writer else { return };
        let mut fetch = self.fetch(FetchKind::Share, writer);
        fetch.is_for_reader = false;
        self.record.leads(&fetch.notes);
        fetch::start_detached(fetch);
    }

    /// Begins a fetch that validates a stored response. The reader of that response is given up: while the response is still coming
    /// in, the reader would hold back all others.
    async fn validate(&mut self, stored: Hit, reader: Reader, writer: Writer, cause: Cause) -> Option<AnswerSource> {
        drop(stored);
        self.lead(reader, writer, cause).await
    }

    /// Begins a fetch and waits for its answer.
    async fn lead(&mut self, reader: Reader, writer: Writer, cause: Cause) -> Option<AnswerSource> {
        let kind = if fetch::asks_part(self.request) { FetchKind::Part } else { FetchKind::Share };
        // Where nothing was stored under the key when the fetch began, nothing can stand in for its answer.
        let patience = if writer.candidates().is_empty() { Patience::default() } else { self.patience() };
        let mut fetch = self.fetch(kind, writer);
        fetch.silent_for = patience.limit;
        self.arrive(fetch, reader, cause, None, patience).await
    }

    /// Sends a request to the origin whose answer is for this client alone (a HEAD, a `no-store`), while a stored response may
    /// be sent if the origin fails.
    async fn ask_alone(
        &mut self,
        mut reader: Reader,
        writer: Writer,
        cause: Cause,
        stand_in: StandIn,
    ) -> Option<AnswerSource> {
        let on_error = stand_in.why == StandInRule::OnError;
        let patience = self.patience();
        let mut fetch = self.fetch(FetchKind::Relay, writer);
        fetch.silent_for = patience.limit;
        let interim = take_interim(&mut fetch);
        why::begins(self.record, cause, &fetch.notes);
        let instead = match self.arrival(fetch::attach(fetch), &interim, &mut reader, patience).await {
            Err(Gone) => return Some(AnswerSource::Page(deliver::client_gone())),
            Ok(Arrived::Silent(hit)) => Some(hit),
            Ok(Arrived::News(Arrival::Head(stored))) if on_error && fetch::is_trouble(stored.head.status) => {
                self.instead_of(FailureKind::Answer)
            }
            Ok(Arrived::News(Arrival::Head(stored))) => {
                let outcome = Outcome::Miss(cause);
                return Some(AnswerSource::Entry { reader, stored, outcome, verbatim: true, refill: None });
            }
            Ok(Arrived::News(Arrival::Failed(failure))) => match self.instead_of(failure.kind) {
                None => return Some(self.failed(&failure)),
                instead => instead,
            },
            Ok(Arrived::News(Arrival::Use(..) | Arrival::Alone)) => None,
        };
        drop(reader);
        Box::pin(self.stood_in(instead?)).await
    }

    /// The stored response that may be sent now instead of the origin's answer. The result keeps it in memory.
    fn stand_in(&self) -> Option<StandIn> {
        let env = self.stream.env();
        let policy = fetch::policy_of(&env.common, &self.ask.route, self.stream.peer().listener.run.is_some());
        let now = env.stamp_at(clock::instant());
        let find = |asked: &Asked| self.cache.stand_in(self.key, self.request, asked, now, policy);
        let is_online_run = self.stream.peer().listener.online_run().is_some();
        let (entry, why) = match find(self.asked) {
            Some((entry, policy::StandIn::OnError)) => (entry, StandInRule::OnError),
            Some((entry, policy::StandIn::OutOfReach)) if !is_online_run => (entry, StandInRule::OutOfReach),
            _ if is_online_run => (find(&self.asked.without_network())?.0, StandInRule::NetworkAway),
            _ => return None,
        };
        Some(StandIn { entry, why })
    }

    /// The stored response that may be sent because the fetch failed so.
    fn instead_of(&self, kind: FailureKind) -> Option<Hit> {
        let held = self.stand_in()?;
        let least = match held.why {
            StandInRule::OnError => FailureKind::Answer,
            StandInRule::OutOfReach => FailureKind::Disconnected,
            StandInRule::NetworkAway => FailureKind::OutOfReach,
        };
        (kind >= least).then(|| self.cache.open(&held.entry))?
    }

    /// How long this request waits for the origin before a stored response is sent instead.
    fn patience(&self) -> Patience {
        let held = self.stand_in();
        let limit = held.as_ref().map(|held| match held.why {
            StandInRule::NetworkAway => self.wait_for_connection(),
            StandInRule::OnError | StandInRule::OutOfReach => self.stream.env().config().timeouts.before_stale,
        });
        Patience { limit, held }
    }

    /// How long a connection to the origin may take before the origin counts as out of reach for a run.
    fn wait_for_connection(&self) -> Duration {
        let usual = self.stream.env().config().timeouts.before_stale;
        if self.outage == Outage::None { usual } else { usual.min(away::DOUBTED_WAIT) }
    }

    /// Gives the stored response to send now that the time is up, if there is one. A response that may be sent only while the
    /// origin is out of reach has to wait while a connection to the origin exists; that is checked again after `LOOK_AGAIN`.
    fn time_is_up(&self, reader: &Reader, patience: &mut Patience) -> Option<Hit> {
        patience.limit = Some(LOOK_AGAIN);
        // It may have been purged since, or have grown too old.
        let Some(held) = self.stand_in() else {
            *patience = Patience { limit: None, held: None };
            return None;
        };
        let waits = match held.why {
            StandInRule::OnError => false,
            StandInRule::OutOfReach => reader.contact() == Contact::Made,
            StandInRule::NetworkAway => !self.is_silent(reader.contact()),
        };
        let hit = if waits { None } else { self.cache.open(&held.entry) };
        patience.held = Some(held);
        if hit.is_some() {
            reader.leave_late();
        }
        hit
    }

    /// Whether a connection was waited for in vain, which is remembered. A fetch that waits for its turn here says nothing.
    fn is_silent(&self, contact: Contact) -> bool {
        let upstreams = &self.stream.env().upstreams;
        match contact {
            Contact::Connecting(since) if clock::instant() - since >= self.wait_for_connection() => {
                upstreams.is_silent(self.ask.connects_to());
                true
            }
            Contact::Connecting(_) => upstreams.is_out_of_reach(self.ask.connects_to()),
            Contact::Unknown | Contact::Accepted | Contact::Made => false,
        }
    }

    /// The error page of a fetch that came to nothing. A run whose origin is out of reach remembers what it missed.
    fn failed(&mut self, failure: &Failure) -> AnswerSource {
        let is_away = || self.stream.env().upstreams.is_out_of_reach(self.ask.connects_to());
        if self.stream.peer().listener.online_run().is_some() && is_away() {
            offline::remember(self.stream.peer(), self.request, self.ask);
        }
        failed(failure, self.record)
    }

    /// Starts the fetch and waits for its head. `mending` is the stored response whose hole it fills.
    async fn arrive(
        &mut self,
        mut fetch: Box<Fetch>,
        mut reader: Reader,
        cause: Cause,
        mending: Option<Hit>,
        patience: Patience,
    ) -> Option<AnswerSource> {
        let interim = take_interim(&mut fetch);
        why::begins(self.record, cause, &fetch.notes);
        let arrival = match self.arrival(fetch::attach(fetch), &interim, &mut reader, patience).await {
            Ok(Arrived::News(arrival)) => arrival,
            Ok(Arrived::Silent(hit)) => {
                drop(reader);
                return Box::pin(self.stood_in(hit)).await;
            }
            Err(Gone) => return Some(AnswerSource::Page(deliver::client_gone())),
        };
        match (arrival, mending) {
            (Arrival::Head(stored), _) => Some(self.entry(reader, stored, Outcome::Miss(cause))),
            (Arrival::Use(entry, ReuseReason::Unchanged, own), Some(hit)) => {
                let stored = own.or_else(|| entry.stored_head())?;
                Some(self.entry(hit.reader, stored, Outcome::Miss(cause)))
            }
            (Arrival::Use(entry, reason, own), _) => {
                let hit = self.cache.open(&entry)?;
                match reason {
                    ReuseReason::Unchanged => Box::pin(self.stored_with(hit, own, Outcome::Validated)).await,
                    ReuseReason::StaleIfError | ReuseReason::NetworkAway => Box::pin(self.stood_in(hit)).await,
                }
            }
            (Arrival::Failed(failure), _) => Some(self.failed(&failure)),
            (Arrival::Alone, _) => None,
        }
    }

    /// Waits for the head until the client is gone. Answers to earlier requests of the connection are written first.
    async fn arrival(
        &mut self,
        mut attached: AttachedFetch,
        interim: &Interim,
        reader: &mut Reader,
        mut patience: Patience,
    ) -> Result<Arrived, Gone> {
        if self.stream.unwritten_bytes() > 0 {
            let _ = attached.beside(self.stream.flush()).await;
        }
        self.stream.lend_buffers();
        let mut presence = Presence::new(self.stream.env());
        let arrived = loop {
            let news = attached.beside(poll_fn(|cx| news(interim, reader, cx)));
            match presence.wait_within(&*self.stream, patience.limit, news).await? {
                Some(FetchEvent::Interim(head)) => {
                    self.stream.interim(&head);
                    let _ = attached.beside(self.stream.flush()).await;
                }
                Some(FetchEvent::Arrival(arrival)) => break Arrived::News(arrival),
                None => {
                    if let Some(hit) = self.time_is_up(reader, &mut patience) {
                        break Arrived::Silent(hit);
                    }
                }
            }
        };
        self.stream.borrow_buffer();
        Ok(arrived)
    }

    /// Waits for another request's fetch; its answer may be one for this request too.
    async fn follow(&mut self, mut reader: Reader) -> Option<AnswerSource> {
        let _ = self.stream.flush().await;
        let mut patience = self.patience();
        if reader.is_late()
            && let Some(hit) = self.time_is_up(&reader, &mut patience)
        {
            return self.stood_in(hit).await;
        }
        let mut presence = Presence::new(self.stream.env());
        let arrival = loop {
            match presence.wait_within(&*self.stream, patience.limit, reader.arrival()).await {
                Ok(Some(arrival)) => break arrival,
                Ok(None) => {
                    if let Some(hit) = self.time_is_up(&reader, &mut patience) {
                        return self.stood_in(hit).await;
                    }
                }
                Err(Gone) => return Some(AnswerSource::Page(deliver::client_gone())),
            }
        };
        match arrival {
            Arrival::Head(stored) => {
                // `no-cache`: each request has its own validation (RFC 9111 section 5.2.2.4).
                let fits = stored.terms.as_ref().is_some_and(|terms| !terms.no_cache && terms.answers(self.request));
                let length = reader.length();
                let hit = Hit { filling: true, reader, stored, length };
                if fits { self.stored(hit, Outcome::Collapsed).await } else { None }
            }
            // That rule was the run's for which the fetch began: others look for themselves.
            Arrival::Use(_, ReuseReason::NetworkAway, _) if self.stream.peer().listener.online_run().is_none() => None,
            Arrival::Use(entry, reason, _) => {
                let hit = self.cache.open(&entry)?;
                let fits = hit.stored.terms.as_ref().is_some_and(|terms| terms.answers(self.request));
                match reason {
                    _ if !fits => None,
                    ReuseReason::Unchanged => self.stored(hit, Outcome::Collapsed).await,
                    ReuseReason::StaleIfError | ReuseReason::NetworkAway => self.stood_in(hit).await,
                }
            }
            // The fetch was refused because it began for a client that may reach fewer addresses.
            Arrival::Failed(failure)
                if failure.word == reach::REFUSED && self.ask.asker() == Some(Asker::ThisMachine) =>
            {
                None
            }
            // The fetch was refused for its client's share of the origin, or for its low priority.
            Arrival::Failed(failure) if self.asks_although_refused(failure.word) => None,
            // The fetch began for an ordinary client, to whom this response may not be sent.
            Arrival::Failed(failure) => match self.instead_of_unreachable(failure.kind) {
                Some(hit) => self.stood_in(hit).await,
                None => Some(self.failed(&failure)),
            },
            Arrival::Alone => None,
        }
    }

    /// Whether a fetch that was refused for the one who began it may be granted to this request.
    fn asks_although_refused(&self, word: &str) -> bool {
        let is_shed = word == UpstreamFaultKind::Shed.as_str();
        word == UpstreamFaultKind::ClientBusy.as_str() || (is_shed && self.ask.priority() > Priority::Low)
    }

    /// The stored response that a run may have while its origin is out of reach.
    fn instead_of_unreachable(&self, kind: FailureKind) -> Option<Hit> {
        let is_away = self.stream.peer().listener.online_run().is_some() && kind == FailureKind::OutOfReach;
        is_away.then(|| self.instead_of(kind))?
    }

    fn entry(&self, reader: Reader, stored: Arc<StoredHead>, outcome: Outcome) -> AnswerSource {
        // More of a response can be fetched only if it is stored, and never for a request with `only-if-cached`.
        let is_whole = !reader.began_incomplete() || self.is_judged();
        let may_refill = !is_whole && stored.terms.is_some() && !self.asked.only_if_cached();
        let refill = may_refill.then(|| Box::new(self.refill()));
        AnswerSource::Entry { reader, stored, outcome, verbatim: false, refill }
    }

    /// Whether a service looks at answers to this request, as wholes: nothing is put together of parts then.
    fn is_judged(&self) -> bool {
        fetch::is_judged(self.stream.env(), &self.request.method, self.ask)
    }

    fn refill(&self) -> Refill {
        Refill {
            env: Rc::clone(self.stream.env()),
            ask: self.ask.clone(),
            request: Rc::clone(self.request),
            client: self.stream.peer().address,
            connected_to: self.stream.peer().proxied().map(|proxied| proxied.destination),
            for_run: self.stream.peer().listener.run.is_some(),
        }
    }

    fn fetch(&mut self, kind: FetchKind, writer: Writer) -> Box<Fetch> {
        let what = (self.ask.clone(), kind, self.posted);
        new_fetch(self.stream.env(), self.stream.peer(), self.request, what, writer, self.record.notes())
    }
}

/// A stored response that may be sent instead of the origin's answer.
struct StandIn {
    entry: PinnedEntry,
    why: StandInRule,
}

/// The rule by which a stored response may be sent instead of the origin's answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StandInRule {
    /// See [`policy::stale_if_error`]: for any trouble of the origin.
    OnError,
    /// See [`policy::disconnected`]: only while the origin is out of reach.
    OutOfReach,
    /// A run whose network is away: only while no connection comes about (decision 040).
    NetworkAway,
}

/// How long a request waits for its origin before a stored response is sent instead.
#[derive(Default)]
struct Patience {
    /// The time until that is decided; `None` where no stored response may be sent.
    limit: Option<Duration>,
    /// The stored response; it stays in memory while this is held.
    held: Option<StandIn>,
}

/// How often a waiting request checks whether its origin is still in reach.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The result of waiting for an origin.
enum Arrived {
    News(Arrival),
    /// The origin was silent for too long, and this stored response is sent.
    Silent(Hit),
}
