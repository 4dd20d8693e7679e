//! Sends a request to an origin and fills an entry with the response.
//!
//! A fetch runs within the task of the client that waits for it until the response's head is here ([`AttachedFetch`]), and in its own task
//! after that. It goes on without the client while [`Writer::room`] gives room, and knows the client only as the sender of a body.

use crate::box_in_place::box_in_place;
use crate::clock;
use crate::cluster::place_of;
use crate::config::StoreRules;
use crate::env::{Common, Env};
use crate::git::{self, Question};
use crate::icap::validation_of_judged;
use crate::record::{Keeping, Notes};
use crate::rules::{self, Ask, Route};
use crate::upstream::{BodySource, OutgoingBody, UpstreamFault};
use ask::OriginAnswer;
use checked::{AskedFile, Checked};
use compressed::Begun;
use larder_cache::cache::{Fill, Writer};
use larder_cache::entry::{Failure, FailureKind, PinnedEntry, ReuseReason};
use larder_cache::head::StoredHead;
use larder_cache::policy::{self, Asked, FreshnessFacts, HeadSays, HookTerms, NotStored, Storable, Terms, Times};
use larder_wire::date::Stamp;
use larder_wire::etag::ETag;
use larder_wire::{Fields, Method, RequestHead, ResponseHead, hop};
use parallel::Ahead;
use pour::{Sink, pour};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use validated::freshen;

mod adopt;
mod ask;
mod attached;
pub mod by_table;
mod checked;
mod compressed;
mod forward;
mod home;
mod hooked;
mod icap;
mod neighbours;
mod parallel;
mod part;
mod portal;
mod posted;
mod pour;
mod registry;
mod validated;

pub use adopt::{adopt, adopt_instead};
pub use attached::AttachedFetch;
pub use forward::forwarded;
pub use home::{BEHIND, REFUSED};
pub use icap::{
    WithoutService, before_question, fault_of, icap_services, is_judged, request_for_service, source_of,
    source_of_reply,
};
pub use neighbours::neighbours_of;
pub use part::{Refill, asks_part};
pub use posted::Posted;

/// One request to an origin.
pub struct Fetch {
    /// The context of the worker.
    pub env: Rc<Env>,
    /// The URL, and the route to its origin.
    pub ask: Ask,
    /// The request as the client sent it; the rules of RFC 9111 look at this one.
    pub request: Rc<RequestHead>,
    /// The address of the client.
    pub client: SocketAddr,
    /// The address that the client connected to, where the origin may be told of it.
    pub connected_to: Option<SocketAddr>,
    /// The request came through the listener of a `larder run`.
    pub for_run: bool,
    /// The client waits for the answer, or reads it.
    pub is_for_reader: bool,
    /// Another node of the cluster asks.
    pub for_node: bool,
    /// The answer comes from the home of the key, and is not kept here.
    pub is_cold_copy: Cell<bool>,
    /// The purpose, which decides what the origin is asked for.
    pub kind: FetchKind,
    /// Writes the response into its entry.
    pub writer: Writer,
    /// The hole of a stored response that the answer is to fill.
    pub fill: Option<Fill>,
    /// The request's body.
    pub body: Option<OutgoingBody>,
    /// Why that body broke off, where it comes from a service.
    pub body_fault: Option<Rc<OnceCell<UpstreamFault>>>,
    /// The request's body where it was read before, and is a part of the key.
    pub posted: Option<Rc<Posted>>,
    /// Where interim heads go.
    pub interim: Option<Rc<Interim>>,
    /// How long the origin may be silent before a stored response stands in for its answer; `None` where none may.
    pub silent_for: Option<Duration>,
    /// The terms that hooks of the forward proxy gave to the answer.
    pub terms_by_hook: Cell<Option<HookTerms>>,
    /// Notes for the record of the request and for `explain`.
    pub notes: Rc<Notes>,
}

/// Interim heads on their way to the client. The client's task looks for them after each poll of the fetch.
#[derive(Debug, Default)]
pub struct Interim(RefCell<VecDeque<ResponseHead>>);

/// The end of the key of a redirection that only a HEAD asked for. No URL has a `#`.
pub const HEAD_ALONE: &[u8] = b"#HEAD";

/// Interim heads that may wait for the client. Further ones are dropped: they are only hints.
const INTERIM_MAX: usize = 4;

impl Interim {
    fn tell(&self, head: ResponseHead) {
        let mut waiting = self.0.borrow_mut();
        if waiting.len() < INTERIM_MAX {
            waiting.push_back(head);
        }
    }

    /// Takes the first of the heads that wait.
    pub fn next(&self) -> Option<ResponseHead> {
        self.0.borrow_mut().pop_front()
    }
}

/// The purpose of a fetch: decides about the fields that the origin gets, and whether the response may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchKind {
    /// The whole object, for the store and for all who follow. The client's ranges and conditions are not sent.
    Share,
    /// The first range that the client asks for, for the store and for all who follow.
    Part,
    /// A hole of a stored response. The origin may also answer with a new response, which is stored.
    Hole,
    /// The client's request unchanged. The response is for this client alone.
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

    /// Whether the response may be stored.
    fn is_shared(self) -> bool {
        self != FetchKind::Relay
    }

    /// Whether a stored response may be validated by this fetch, or be sent if it fails. One with a hole that is being fetched
    /// can't.
    fn is_for_whole(self) -> bool {
        matches!(self, FetchKind::Share | FetchKind::Part)
    }
}

/// How long objects of git that are named by their ids are fresh: as long as any response may be.
const PACK_SECONDS: u64 = 365 * 86_400;

/// Whether a response may be stored or change what is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keepable {
    Yes,
    /// No: it comes from an address that other clients may not reach.
    No,
    /// No: a hook says so, or failed.
    NotByHook,
    /// No: a service of ICAP was not asked, or made of it an answer that may not be for all.
    NotByIcap,
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

/// Begins a fetch that no client waits for, as a task of its own.
pub fn start_detached(fetch: Box<Fetch>) {
    drop(attach(fetch));
}

/// Runs a fetch of a sampled request, and ends its span.
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
    let validates = fetch.kind.is_for_whole() && fetch.posted.is_none() && {
        let about = fetch.asked_about();
        policy::conditional(&mut fields, about.map(|(_, head, terms)| (head, terms)))
    };
    fetch.notes.conditional.set(validates);
    fetch.notes.kind.set(fetch.kind.as_str());
    let mut answer = match fetch.ask_past_portal(&fields).await {
        Ok(answer) => answer,
        Err(fault) => return give_up(fetch, &fault),
    };
    if validates && answer.head.status == 304 {
        if let Some(validated) = freshen(&fetch, &answer) {
            return match validated.for_all {
                true => fetch.writer.redirect_with(&validated.entry, validated.own),
                false => fetch.writer.redirect_alone(&validated.entry, validated.own),
            };
        }
        // The 304 names no response that is stored here, so the whole object is requested.
        answer = match fetch.ask_anew().await {
            Ok(answer) => answer,
            Err(fault) => return give_up(fetch, &fault),
        };
    }
    if let Some(fill) = fetch.fill.take() {
        // Boxed, because it is rare.
        match Box::pin(fill_hole(fetch, fill, answer)).await {
            Some(goes_on) => (fetch, answer) = goes_on,
            None => return,
        }
    }
    if fetch.posted.is_none() && !fetch.ask.route.is_to_destination() {
        // By what the origin says: whatever hooks and services make of its answer, it has done what was asked.
        invalidate_changed(&fetch.env.common, &fetch.request.method, &fetch.ask, &answer.head);
    }
    let keepable = fetch.keepable_after_hooks(&mut answer).await;
    match fetch.past_icap(&mut answer, keepable).await {
        Ok(judged) => take(fetch, answer, judged).await,
        Err(fault) => give_up(fetch, &fault),
    }
}

/// Publishes the head of an answer and carries its body to the entry. `is_changed`: a service gave the body.
async fn take(mut fetch: Box<Fetch>, answer: OriginAnswer, (keepable, is_changed): (Keepable, bool)) {
    let OriginAnswer { head, times, body, .. } = answer;
    if fetch.kind.is_for_whole()
        && is_trouble(head.status)
        && let Some(stale) = fetch.stale_instead(policy::stale_if_error)
    {
        return fetch.writer.redirect(&stale, ReuseReason::StaleIfError);
    }
    if fetch.is_cold_copy.get() {
        fetch.writer.is_for_its_readers();
    }
    let declared = declared_length(&head, &fetch.request.method, &body);
    // Such a body is checked before it is coded, and has no length in its entry.
    let checked_length = declared.filter(|_| !fetch.may_code(&head, declared));
    let mut checked = if is_changed { None } else { fetch.checked(&head, checked_length) };
    if let Some(checked) = &mut checked
        && let Err(bad) = checked.of_empty(fetch.writer.entry())
    {
        fetch.notes.broke_off(bad.failure().word);
        return fetch.writer.refuse(bad.failure());
    }
    let notes = Rc::clone(&fetch.notes);
    // A body whose digest is named is hashed as it comes, from its start on.
    let ahead = if checked.is_none() && !fetch.is_judged() { Ahead::of(&fetch, &head, declared) } else { None };
    // A stored part is held against what is named for the whole.
    let part_of = (head.status == 206)
        .then(|| (Rc::clone(&fetch.env), fetch.ask.url.clone(), fetch.client.ip(), fetch.is_for_reader));
    let Some((sink, coder)) = publish(fetch, head, declared, times, keepable) else { return };
    if let (Sink::Hole(fill, _), Some((env, url, client, is_for_reader))) = (&sink, part_of) {
        checked = checked_parts(&env, &notes, &AskedFile { url: &url, client, is_for_reader }, fill.entry());
    }
    if let (Some(ahead), Sink::Entry(writer), None) = (ahead, &sink, &coder) {
        (*ahead).begin(writer.entry());
    }
    if sink.readers() > 1 {
        // All who wait get the head before the body takes the worker's time.
        tokio::task::yield_now().await;
    }
    let poured = match (coder, sink) {
        // Boxed, because few bodies are coded.
        (Some(begun), Sink::Entry(writer)) => Box::pin(begun.pour(writer, body, checked)).await,
        (_, sink) => pour(sink, body, checked).await,
    };
    poured.unwrap_or_else(|word| notes.broke_off(word));
}

/// Fills a hole by the answer to the request for it. Gives the answer that is to be published instead, if it is to be.
async fn fill_hole(mut fetch: Box<Fetch>, fill: Fill, mut answer: OriginAnswer) -> Option<(Box<Fetch>, OriginAnswer)> {
    match part::fill(&fetch, fill, &answer) {
        part::Filled::By(filled) => {
            let (fill, own) = *filled;
            let checked = checked_parts(&fetch.env, &fetch.notes, &fetch.asked_file(), fill.entry());
            fetch.writer.redirect_with(fill.entry(), own);
            let sink = Sink::Hole(fill, Arc::clone(&fetch.env.common.cache));
            let poured = pour(sink, answer.body, checked).await;
            poured.unwrap_or_else(|word| fetch.notes.broke_off(word));
            return None;
        }
        part::Filled::ByAnother => {}
        part::Filled::AskAgain => {
            drop(answer);
            if fetch.writer.readers() == 0 {
                // The hole was for an answer that has begun, which was told that its rest does not come.
                return None;
            }
            fetch.kind = FetchKind::Part;
            answer = match fetch.ask_anew().await {
                Ok(answer) => answer,
                Err(fault) => {
                    give_up(fetch, &fault);
                    return None;
                }
            };
        }
    }
    Some((fetch, answer))
}

impl Fetch {
    /// Sends the request, and takes no portal's page for the answer.
    async fn ask_past_portal(&mut self, fields: &Fields) -> Result<OriginAnswer, UpstreamFault> {
        let answer = self.ask_origin(fields).await?;
        self.past_portal(answer).await
    }

    /// Sends the request a second time, with the fields for its present `kind`.
    async fn ask_anew(&mut self) -> Result<OriginAnswer, UpstreamFault> {
        // The home of the key may have given the first answer, and the origin may give this one.
        self.is_cold_copy.set(false);
        let fields = self.fields_for_origin();
        Box::pin(self.ask_origin(&fields)).await
    }

    /// The fields as the origin gets them (RFC 9110 section 7.6).
    fn fields_for_origin(&self) -> Fields {
        let mut fields = forwarded(&self.env, &self.request, &self.ask, self.client, &self.notes);
        match self.kind {
            FetchKind::Relay if self.is_judged() => icap::ask_judged_whole(&self.request, &mut fields),
            FetchKind::Relay => {}
            FetchKind::Part if self.is_judged() => part::ask_whole(&mut fields),
            FetchKind::Part => part::ask_first(&mut fields),
            FetchKind::Share | FetchKind::Hole => part::ask_whole(&mut fields),
        }
        if let Some(fill) = &self.fill {
            part::ask_hole(&mut fields, fill);
        }
        if let Some(posted) = &self.posted {
            posted.declare(&mut fields);
        }
        self.offer_codings(&mut fields);
        fields
    }

    /// The file that is asked for, as indexes of packages may name it.
    fn asked_file(&self) -> AskedFile<'_> {
        AskedFile { url: &self.ask.url, client: self.client.ip(), is_for_reader: self.is_for_reader }
    }

    /// The check of the body after this head, where its digest is named.
    fn checked(&self, head: &ResponseHead, declared: Option<u64>) -> Option<Box<Checked>> {
        if head.status == 200 && self.git_question(head).is_some() {
            return Some(Checked::of_git((&self.env, &self.notes), declared));
        }
        Checked::of_answer((&self.env, &self.notes), (&self.request.method, &self.asked_file()), head, declared)
    }

    /// The question of git's that this is the answer to, where such answers are stored.
    fn git_question(&self, head: &ResponseHead) -> Option<Question> {
        if !self.policy().git {
            return None;
        }
        match &self.posted {
            Some(posted) => posted.question.filter(|_| git::is_upload_pack_answer(&head.fields)),
            None => {
                let is_refs = self.request.method == Method::Get && git::is_refs(&self.ask.url.path);
                (is_refs && git::is_refs_answer(&head.fields)).then_some(Question::Refs)
            }
        }
    }

    /// Whether the answer is stored under a key for HEAD alone.
    fn is_for_head_alone(&self) -> bool {
        self.request.method == Method::Head && self.kind.is_shared() && self.writer.key().text().ends_with(HEAD_ALONE)
    }

    /// Whether the response may be stored, and on which terms.
    fn storable(&self, head: &mut ResponseHead, times: Times, settings: &policy::Settings) -> Storable {
        if self.is_for_head_alone() {
            let is_redirection = matches!(head.status, 301..=303 | 307 | 308) && head.fields.contains("Location");
            let config = self.env.config();
            let rules = rules::store_rules(&config, &self.ask.route, self.for_run);
            let is_kept = head.status == 200 && keeps_heads(&self.ask, rules, &self.request);
            if !is_redirection && !is_kept {
                return Storable::No(NotStored::Method);
            }
            let mut as_get = (*self.request).clone();
            as_get.method = Method::Get;
            return policy::storable(&as_get, head, times, settings);
        }
        let Some(question) = self.git_question(head) else {
            return policy::storable(&self.request, head, times, settings);
        };
        // Servers speak the protocol that this field names, and do not say so.
        head.fields.push("Vary", "Git-Protocol, Accept-Encoding");
        // The answer to a POST is not validated, and no parts of it can be asked for.
        head.fields.remove("ETag");
        head.fields.remove("Last-Modified");
        let lifetime = if question == Question::Pack { PACK_SECONDS } else { 0 };
        policy::storable_by_protocol(&self.request, head, times, settings, lifetime)
    }

    /// The stored response that may be used although its origin is in trouble, by the rule `permits`.
    fn stale_instead(&self, permits: impl Fn(&Terms, &Asked, Stamp, &policy::Settings) -> bool) -> Option<PinnedEntry> {
        let (asked, now) = (self.ask.weigh(Asked::of(&self.request)), clock::now());
        let stored = self.writer.candidates().iter();
        let terms = stored.filter_map(|(entry, kept)| Some((kept.terms.as_ref()?, (entry, kept))));
        let (entry, kept) = policy::choose(terms, &self.request)?;
        let permitted = permits(kept.terms.as_ref()?, &asked, now, self.policy());
        // It may have been purged since the fetch began.
        let permitted = permitted && self.env.common.cache.is_stored(entry, now);
        permitted.then(|| entry.clone())
    }

    /// The responses that are stored under this key.
    fn stored(&self) -> impl Iterator<Item = (&PinnedEntry, &ResponseHead, &Terms)> {
        let candidates = self.writer.candidates().iter();
        candidates.filter_map(|(entry, kept)| Some((entry, &kept.head, kept.terms.as_ref()?)))
    }

    /// The stored responses that the origin is asked about: those that this request selects. RFC 9111 section 4.3.1
    /// allows to ask about the other variants too; but servers that compress on the fly give two codings one tag,
    /// and a 304 would then name the wrong one.
    ///
    /// One that is not coded for want of room is not asked about: a 304 would keep it so.
    fn asked_about(&self) -> impl Iterator<Item = (&PinnedEntry, &ResponseHead, &Terms)> {
        self.stored().filter(|(_, _, terms)| self.selects(terms) && !self.is_to_be_coded(terms))
    }

    /// Whether this request selects a stored response, or takes a part from it where none is stored for it.
    fn selects(&self, terms: &Terms) -> bool {
        let is_for_another = || self.stored().any(|(_, _, terms)| terms.answers(&self.request));
        terms.answers(&self.request) || (terms.answers_in_part(&self.request) && !is_for_another())
    }

    /// Whether a part would take the place of a stored response that this request did not select: that of requests without a coding, which
    /// this one refuses.
    fn would_replace_another(&self, terms: &Terms) -> bool {
        !terms.vary.matches(&self.request)
            && self.stored().any(|(_, _, stored)| stored.vary == terms.vary && !self.selects(stored))
    }

    /// Drops the stored responses that this request selects: the origin has a newer one, which is not stored.
    fn forget_selected(&self) {
        for (entry, kept) in self.writer.candidates() {
            if kept.terms.as_ref().is_some_and(|terms| self.selects(terms)) {
                self.env.common.cache.drop_entry(entry);
            }
        }
    }

    /// Updates or invalidates a stored response by the answer to a HEAD (RFC 9111 section 4.3.5).
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
            HeadSays::Freshens if self.is_to_be_coded(terms) => {}
            HeadSays::Freshens => {
                let by_rule = self.policy_by_rule(&kept.head);
                let settings = by_rule.as_ref().unwrap_or_else(|| self.policy());
                let head = validation_of_judged(&kept.head, head);
                match policy::renew(&self.request, (&kept.head, terms), &head, times, settings) {
                    Ok((head, terms)) => {
                        entry.renew(StoredHead::new(head, Some(terms), times.received), self.writer.epoch());
                    }
                    Err(NotStored::Coded) => cache.drop_entry(&entry),
                    Err(_) => {}
                }
            }
        }
    }

    /// Whether a response may change what other clients get. One to an authenticated request may not, unless it says that it is
    /// for all (RFC 9111 section 3.5).
    fn speaks_for_all(&self, head: &ResponseHead) -> bool {
        policy::may_update(&self.request, head, self.policy()) != Err(NotStored::Authorization)
    }

    /// Puts the word of the table of rules into the head of an answer.
    fn apply_rules(&self, head: &mut ResponseHead) {
        if let Some(storing) = self.ask.by_table.as_ref().and_then(|by_table| by_table.storing.as_ref()) {
            by_table::apply(storing, head, self.request.fields.contains("Authorization"));
        }
    }

    /// The caching rules for this answer, where a rule, a store rule or hooks of the forward proxy say something of it. A lifetime by the
    /// table of rules counts before one by a store rule, and a hook's before both.
    fn policy_by_rule(&self, response: &ResponseHead) -> Option<policy::Settings> {
        let storing = self.ask.by_table.as_ref().and_then(|by_table| by_table.storing.as_ref());
        if let Some(by_table) = storing.and_then(|storing| by_table::policy(storing, self.policy())) {
            return Some(policy::Settings { hook: self.terms_by_hook.get(), ..by_table });
        }
        let config = self.env.config();
        let rules = rules::store_rules(&config, &self.ask.route, self.for_run);
        let found = if rules.is_empty() { None } else { rules.lifetime(&self.ask.url, &self.request, response) };
        let rule = found.map(|(rule, terms)| {
            self.notes.store_rule.replace(Some(rule.to_string().into()));
            terms
        });
        let hook = self.terms_by_hook.get();
        (rule.is_some() || hook.is_some()).then(|| policy::Settings { rule, hook, ..self.policy().clone() })
    }

    /// Whether a store rule knows that this URL never has HTML.
    fn is_never_html(&self) -> bool {
        let config = self.env.config();
        rules::store_rules(&config, &self.ask.route, self.for_run).never_html(&self.ask.url, &self.request)
    }

    /// Whether bytes of this response may be put together with those of another one that has the same validators. Members of a group may
    /// have files of one time and different bytes; a strong entity tag alone says that they are the same.
    fn may_combine_parts(&self, head: &ResponseHead) -> bool {
        !self.ask.route.is_to_group() || ETag::of(&head.fields).is_some_and(|tag| !tag.weak)
    }

    /// The caching rules for this fetch.
    fn policy(&self) -> &policy::Settings {
        policy_of(&self.env.common, &self.ask.route, self.for_run)
    }
}

/// The check of a body that is put together of parts, where its digest is named.
fn checked_parts(env: &Rc<Env>, notes: &Rc<Notes>, asked: &AskedFile<'_>, entry: &PinnedEntry) -> Option<Box<Checked>> {
    let stored = entry.stored_head()?;
    Checked::of_parts((env, notes), asked, &stored.head, entry.length())
}

/// The caching rules for responses that come by this route.
pub fn policy_of<'a>(common: &'a Common, route: &Route, for_run: bool) -> &'a policy::Settings {
    match route {
        Route::Forward(_) if for_run => &common.run_policy,
        Route::Forward(_) | Route::Destination(..) => &common.cache.settings().policy,
        Route::Site { .. } => &common.site_policy,
    }
}

/// After an unsafe method that succeeded, responses that it may have changed are invalidated (RFC 9111 section 4.4). Homes are told of
/// them by the keys that have a home.
pub fn invalidate_changed(common: &Common, method: &Method, ask: &Ask, response: &ResponseHead) {
    if method.is_safe() {
        return;
    }
    let homes = common.cluster.as_ref().and_then(|cluster| cluster.homes.as_ref());
    // The keys of others would take the places of those that homes are to be told of.
    let homes = homes.filter(|_| home::may_have_home(ask));
    let mut key = Vec::new();
    let mut invalidate = |write: &dyn Fn(&mut Vec<u8>)| {
        key.clear();
        write(&mut key);
        common.cache.invalidate(&key);
    };
    for changed in policy::invalidated(method, &ask.url, response) {
        let of_url = ask.of_url(&changed);
        invalidate(&|key| of_url.key(&common.cache, key));
        if let Some(homes) = homes {
            homes.note_void(place_of_home(&of_url));
        }
        if ask.by_hook.is_some() {
            let unhooked = ask.unhooked().of_url(&changed);
            invalidate(&|key| unhooked.key(&common.cache, key));
        }
    }
    if ask.by_rule.is_some() {
        invalidate(&|key| ask.key(&common.cache, key));
        if let Some(homes) = homes {
            homes.note_void(place_of_home(ask));
        }
    }
}

/// The place of the key of a question to other nodes.
fn place_of_home(ask: &Ask) -> u64 {
    let mut key = Vec::with_capacity(128);
    ask.key_at_first(&mut key);
    place_of(&key)
}

fn give_up(fetch: Box<Fetch>, fault: &UpstreamFault) {
    fetch.notes.trouble.set(Some(fault.kind.as_str()));
    if fetch.kind.is_for_whole() {
        let distance = fault.distance();
        let permits = |terms: &Terms, asked: &Asked, now, settings: &policy::Settings| {
            (distance >= FailureKind::Disconnected && policy::disconnected(terms, asked, now))
                || (distance >= FailureKind::Answer && policy::stale_if_error(terms, asked, now, settings))
        };
        if let Some(stale) = fetch.stale_instead(permits) {
            return fetch.writer.redirect(&stale, ReuseReason::StaleIfError);
        }
        let of_run = |terms: &Terms, asked: &Asked, now, _: &policy::Settings| {
            policy::disconnected(terms, &asked.without_network(), now)
        };
        let is_away = fetch.for_run && distance == FailureKind::OutOfReach;
        if let Some(stale) = is_away.then(|| fetch.stale_instead(of_run)).flatten() {
            return fetch.writer.redirect(&stale, ReuseReason::NetworkAway);
        }
    }
    tracing::debug!(url = %fetch.ask.url, %fault, "fetch failed");
    if let Some(fill) = fetch.fill {
        fill.fail(failure(fault));
    }
    fetch.writer.fail(failure(fault));
}

/// The status, word and detail that a client and the record get for a fault upstream.
pub fn failure(fault: &UpstreamFault) -> Failure {
    Failure {
        status: fault.status(),
        word: fault.kind.as_str(),
        detail: fault.to_string().into(),
        kind: fault.distance(),
    }
}

/// Decides whether the response is stored, and publishes its head: for the store and all who follow, or for this client alone.
/// The body goes to the sink that is returned, by way of the coder beside it where there is one.
fn publish(
    mut fetch: Box<Fetch>,
    mut head: ResponseHead,
    declared: Option<u64>,
    times: Times,
    keepable: Keepable,
) -> Option<(Sink, Option<Box<Begun>>)> {
    let cache = Arc::clone(&fetch.env.common.cache);
    let too_long = declared.is_some_and(|length| !fetch.writer.takes(length));
    let mut coder = None;
    let by_rule = fetch.policy_by_rule(&head);
    let settings = by_rule.as_ref().unwrap_or_else(|| fetch.policy());
    policy::dated(&mut head, times.received);
    let storable = match fetch.kind {
        _ if keepable == Keepable::No => Storable::No(NotStored::Address),
        _ if keepable == Keepable::NotByHook => Storable::No(NotStored::Hook),
        _ if keepable == Keepable::NotByIcap => Storable::No(NotStored::Icap),
        _ if fetch.is_page_instead(&head) => Storable::No(NotStored::Portal),
        // An error is about this signature, and others would get it for theirs.
        _ if fetch.ask.key_is_without_signature() && !matches!(head.status, 200 | 206) => {
            Storable::No(NotStored::Status)
        }
        FetchKind::Relay => Storable::No(NotStored::Method),
        _ if head.status == 206 && !fetch.may_combine_parts(&head) => Storable::No(NotStored::Partial),
        // A 206 to a request without a range.
        FetchKind::Share | FetchKind::Hole if head.status == 206 => Storable::No(NotStored::Partial),
        _ => fetch.storable(&mut head, times, settings),
    };
    match storable {
        Storable::Yes(_) if too_long => {
            let why = fetch.writer.why_not_taken();
            pass(&mut fetch, head, declared, why, times);
        }
        Storable::Yes(mut terms) if head.status == 206 => match part::whole_of(&head) {
            Some((range, length)) => {
                let of_part = head;
                let mut head = policy::whole_head(&of_part);
                fetch.vary_part(&mut head, &mut terms, length);
                if fetch.would_replace_another(&terms) {
                    // As it came: what was said of the whole is not so of this part.
                    pass(&mut fetch, of_part, declared, NotStored::OtherVariant, times);
                    return Some((Sink::Entry(fetch.writer), None));
                }
                let weighed = FreshnessFacts::of(&terms, times.received);
                fetch.notes.keeping.replace(Some(Keeping::Stored { terms: weighed, on_disk: None }));
                let kept = kept(head, terms, settings, (times, false));
                let fill = fetch.writer.store_part(kept, &range, length);
                return fill.map(|fill| (Sink::Hole(fill, Arc::clone(&cache)), None));
            }
            None => pass(&mut fetch, head, declared, NotStored::Partial, times),
        },
        Storable::Yes(mut terms) => {
            coder = fetch.begin_coding(&mut head, &mut terms, declared);
            let weighed = FreshnessFacts::of(&terms, times.received);
            let kept = kept(head, terms, settings, (times, fetch.is_for_head_alone()));
            // The answer to a HEAD has no body, whatever length it declares.
            let length = match fetch.request.method == Method::Head {
                true => Some(0),
                false => declared.filter(|_| coder.is_none()),
            };
            fetch.writer.store(kept, length);
            let on_disk = fetch.writer.admitted();
            fetch.notes.keeping.replace(Some(Keeping::Stored { terms: weighed, on_disk }));
        }
        Storable::No(why) => pass(&mut fetch, head, declared, why, times),
    }
    Some((Sink::Entry(fetch.writer), coder))
}

/// Whether the answer to a HEAD is stored for later ones: by a rule, and for the tags of a registry's mirror.
pub fn keeps_heads(ask: &Ask, rules: StoreRules<'_>, request: &RequestHead) -> bool {
    ask.registry.is_some() && ask.url.path.contains("/manifests/") || rules.keeps_heads(&ask.url, request)
}

/// The head as it is stored, with a second one for the client that asked where that one gets more fields. The length is known by the body, but
/// not that of a body which nobody asked for.
fn kept(
    mut head: ResponseHead,
    terms: Terms,
    settings: &policy::Settings,
    (times, is_for_head_alone): (Times, bool),
) -> StoredHead {
    let mut kept = policy::head_to_store(&head, settings);
    hop::strip(&mut head.fields);
    let stated: &[&str] = if is_for_head_alone { &["Age"] } else { &["Content-Length", "Age"] };
    for &name in stated {
        kept.fields.remove(name);
        head.fields.remove(name);
    }
    let withheld = kept.fields.len() < head.fields.len();
    let kept = StoredHead::new(kept, Some(terms), times.received);
    if withheld { kept.with_head_for_asker(head) } else { kept }
}

/// Publishes a head for this client alone, and remembers under the key that the response was not stored.
fn pass(fetch: &mut Fetch, mut head: ResponseHead, mut declared: Option<u64>, why: NotStored, times: Times) {
    if fetch.kind.is_shared() {
        fetch.notes.keeping.replace(Some(Keeping::Not(why)));
        if why.is_of_key() {
            fetch.env.common.cache.mark_pass(fetch.writer.key().text(), times.received, why);
        }
        let is_of_origin = !matches!(why, NotStored::Address | NotStored::Portal);
        if head.status < 500 && is_of_origin && fetch.speaks_for_all(&head) {
            fetch.forget_selected();
        }
    } else if fetch.request.method == Method::Head && !matches!(why, NotStored::Address | NotStored::Portal) {
        fetch.learn_from_head(&head, times);
    }
    if fetch.code_head_of_passing(&mut head, declared, times) {
        declared = None;
    }
    hop::strip(&mut head.fields);
    if let Some(cookie) = fetch.notes.member_cookie() {
        head.fields.push("Set-Cookie", &*cookie);
    }
    state_length(&mut head, declared, &fetch.request.method);
    // A node that asks is told of the address, whatever the kind of the fetch.
    let is_told = fetch.kind.is_shared() || (fetch.for_node && why == NotStored::Address);
    let why = is_told.then_some(why);
    fetch.writer.pass(StoredHead::passing(head, why, times.received), declared);
}

/// The length that the head declares: of the body that follows, or that a GET would get.
fn declared_length(head: &ResponseHead, asked: &Method, body: &BodySource) -> Option<u64> {
    match *asked == Method::Head {
        true => head.fields.text("Content-Length")?.parse().ok(),
        false => body.length(),
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
