//! One record per request, many readers: access log, counters, run totals and `Cache-Status` all say
//! the same words.

mod cause;
mod group;
mod hooks;
mod icap;
mod measures;
mod number;
mod ring;
mod run;
mod run_hosts;
mod trail;
mod way;

pub use cause::Cause;
pub use group::{GroupNote, TryEnd, TryNote};
pub use hooks::HookTrail;
pub use icap::{IcapDid, IcapNote, IcapTrail};
pub use measures::{CLASSES, Count, Measures, Sums as OutcomeSums};
pub use number::{Id, Names, Number};
pub use ring::{Query, RECORD_BYTES_MAX, Ring, shortened, without_values};
pub use run::{LaterRequest, Network, Run, RunExchange, RunMiss, RunStats, Way};
pub use run_hosts::RunHost;
pub use trail::{
    Detail, Fetches, Keeping, Notes, OriginProtocol, Parallel, ParallelLimit, Peer, ProxyHeaderNote, Reuse, Rule,
    Trail, Variant,
};
pub use way::{ParentOrder, TakenWay, WayNote};

use crate::clock::{self, Carried};
use crate::config::TextsLogged;
use crate::hook::HookNote;
use crate::page::Page;
use crate::sampling::Sampled;
use larder_cache::policy::Coding;
use larder_people::note::HelperNote;
use larder_rules::rule::RuleNote;
use larder_wire::date::Stamp;
use larder_wire::{Method, RequestHead, ResponseHead, Scheme, Target, Url, Version};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How an answer came about. Each answer has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// From the store, fresh.
    Hit,
    /// From the store, stale as the client permitted.
    HitStale,
    /// From the store, stale, while it is validated behind the answer (RFC 5861 section 3).
    HitRevalidating,
    /// From the store, stale, because the origin is in trouble (RFC 5861 section 4).
    HitError,
    /// From the store, after the origin said that it has not changed.
    Validated,
    /// From a fetch that another request began.
    Collapsed,
    /// Fetched; the cause says why it was not in the store.
    Miss(Cause),
    /// A tunnel that was not opened.
    Tunnel,
    /// A CONNECT whose tunnel was opened: the requests inside have records of their own.
    Opened,
    /// An answer of our own: a refusal, a fault, a limit.
    Own(&'static str),
    /// The origin could not be had.
    Failed(&'static str),
}

impl Outcome {
    /// The word of logs and pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Hit => "hit",
            Outcome::HitStale => "hit-stale",
            Outcome::HitRevalidating => "hit-revalidating",
            Outcome::HitError => "hit-error",
            Outcome::Validated => "validated",
            Outcome::Collapsed => "collapsed",
            Outcome::Miss(cause) => cause.as_str(),
            Outcome::Tunnel => "tunnel",
            Outcome::Opened => "opened",
            Outcome::Own(word) | Outcome::Failed(word) => word,
        }
    }

    /// The word of the kind, as in the metrics: all misses are `miss`.
    pub fn class_word(self) -> &'static str {
        match self {
            Outcome::Opened => self.as_str(),
            other => measures::CLASSES[other.class()],
        }
    }

    /// An origin was asked for it.
    pub fn asks_origin(self) -> bool {
        matches!(self, Outcome::Miss(_) | Outcome::Validated | Outcome::HitError | Outcome::Failed(_))
    }

    /// The body came from the store.
    pub fn is_from_store(self) -> bool {
        use Outcome::*;
        matches!(self, Hit | HitStale | HitRevalidating | HitError | Validated | Collapsed)
    }
}

/// The outcome before anything is decided.
const UNDECIDED: Outcome = Outcome::Own("unfinished");

/// The readers of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readers {
    /// The access log, with these texts.
    pub logged: Option<TextsLogged>,
    /// The ring of the last requests, for explanations.
    pub kept: bool,
}

/// Texts that are recorded for the access log alone, where its lines have them.
#[derive(Debug, Default)]
pub struct LogTexts {
    /// The field `Referer`.
    pub referer: Option<Box<str>>,
    /// The field `User-Agent`.
    pub agent: Option<Box<str>>,
    /// The media type of the answer.
    pub content_type: Option<Box<str>>,
}

/// Facts that few records have, in an allocation of their own.
#[derive(Debug, Default)]
pub struct Extras {
    /// Texts for the access log alone.
    pub texts: LogTexts,
    /// The work of hooks on the request.
    pub hooks: HookTrail,
    /// The work of ICAP services on the request, and on the answer for its client.
    pub icap: IcapTrail,
    /// The answers of helpers about it.
    pub helpers: Box<[HelperNote]>,
    /// The rules that held for it.
    pub rules: Option<Arc<RuleNote>>,
    /// The user who has logged in.
    pub user: Option<Arc<str>>,
    /// The name in the certificate that the client has shown to the listener.
    pub certificate: Option<Arc<str>>,
    /// How long its answer waited under limits of bandwidth, where any counted.
    pub waited: Option<Duration>,
    /// The way of its tunnel, where parents were meant.
    pub way: Option<Box<WayNote>>,
    /// The notes of its last fetch, where no detail keeps them for the log.
    pub notes: Option<Rc<Notes>>,
}

impl Extras {
    /// Whether there is anything in it but texts for the log.
    fn explain(&self) -> bool {
        !self.hooks.is_empty()
            || !self.icap.is_empty()
            || !self.helpers.is_empty()
            || self.rules.is_some()
            || self.user.is_some()
            || self.certificate.is_some()
            || self.waited.is_some()
            || self.way.is_some()
    }

    /// Bytes that it refers to, but for the texts.
    fn count_bytes(&self) -> usize {
        let rules = self.rules.as_ref().map_or(0, |note| note.heap_bytes());
        let user = self.user.as_ref().map_or(0, |user| user.len());
        let certificate = self.certificate.as_ref().map_or(0, |name| name.len());
        let helpers: usize = self.helpers.iter().map(|note| size_of::<HelperNote>() + note.heap_bytes()).sum();
        self.hooks.count_bytes() + self.icap.count_bytes() + helpers + rules + user + certificate
    }
}

/// The facts about one request when it is over.
#[derive(Debug)]
pub struct Record {
    /// Its number in this process.
    pub number: Number,
    /// When its head was read.
    pub at: Duration,
    /// The client.
    pub peer: IpAddr,
    /// Its method; `None` for bytes that were no request.
    pub method: Option<Method>,
    /// The requested URL, without credentials (a target has none: they are refused).
    pub url: String,
    /// The client's version.
    pub version: Version,
    /// Facts that few records have.
    pub extras: Option<Box<Extras>>,
    /// The status of the answer.
    pub status: u16,
    /// Body bytes that were handed to the client's socket.
    pub bytes: u64,
    /// How the answer came about.
    pub outcome: Outcome,
    /// Why it was not stored, where it could have been.
    pub not_stored: Option<&'static str>,
    /// The answer went out to its end.
    pub complete: bool,
    /// The decisions on the way.
    pub trail: Trail,
    /// Details of the decisions, unless the request was answered at once.
    pub detail: Option<Box<Detail>>,
    /// Its place in a trace, when it is sampled.
    pub sampled: Option<Box<Sampled>>,
    /// The emptied detail of an earlier record, used again for this one.
    blank: Option<Box<Detail>>,
    readers: Readers,
    time: Time,
}

/// The measured times of a request.
#[derive(Clone, Copy, Debug)]
enum Time {
    /// When its head was read.
    Since(Instant),
    /// All of it, in microseconds.
    Took(u64),
}

impl Record {
    /// Begins the record of a request that was just read, in the memory of an old record where there is one. Texts are
    /// copied only where a reader needs them.
    pub fn begin(
        request: &RequestHead,
        peer: SocketAddr,
        readers: Readers,
        number: Number,
        clock: &Carried,
        spare: Option<Box<Record>>,
    ) -> Box<Record> {
        let mut place = spare;
        let mut url = place.as_mut().map(|over| std::mem::take(&mut over.url)).unwrap_or_default();
        url.clear();
        let blank = place.as_mut().and_then(|over| over.blank.take());
        let started = clock.begins();
        let begun = Record {
            number,
            at: clock.wall_at(started),
            peer: peer.ip(),
            method: Some(request.method.clone()),
            url,
            version: request.version,
            extras: None,
            status: 0,
            bytes: 0,
            outcome: UNDECIDED,
            not_stored: None,
            complete: false,
            trail: Trail::default(),
            detail: None,
            sampled: None,
            blank,
            readers,
            time: Time::Since(started),
        };
        let mut record = match place {
            None => Box::new(begun),
            Some(mut place) => {
                *place = begun;
                place
            }
        };
        if readers.logged.is_some_and(|texts| texts.of_request) {
            let text = |name| request.fields.text(name).map(Box::from);
            let (referer, agent) = (text("Referer"), text("User-Agent"));
            if referer.is_some() || agent.is_some() {
                record.extras.get_or_insert_default().texts = LogTexts { referer, agent, content_type: None };
            }
        }
        record
    }

    /// The record of bytes that were no request, and were answered with this page.
    pub fn refused(peer: SocketAddr, page: &Page, number: Number) -> Record {
        let record = Record::unanswered(peer, page.word, number);
        Record { status: page.status, complete: true, ..record }
    }

    /// The record of bytes that were no request, and could not be answered.
    pub fn unanswered(peer: SocketAddr, word: &'static str, number: Number) -> Record {
        Record {
            number,
            at: clock::wall(),
            peer: peer.ip(),
            method: None,
            url: String::new(),
            version: Version::Http11,
            extras: None,
            status: 0,
            bytes: 0,
            outcome: Outcome::Own(word),
            not_stored: None,
            complete: false,
            trail: Trail::default(),
            detail: None,
            sampled: None,
            blank: None,
            readers: Readers { logged: None, kept: true },
            time: Time::Since(clock::instant()),
        }
    }

    /// Notes the media type of the answer.
    pub fn typed(&mut self, head: &ResponseHead) {
        if self.readers.logged.is_some_and(|texts| texts.of_answer)
            && let Some(text) = head.fields.text("Content-Type").and_then(|text| text.split(';').next())
        {
            self.extras.get_or_insert_default().texts.content_type = Some(text.into());
        }
    }

    /// Notes the target as it came, where no URL was made of it; a path behind the host of the field `Host`, where there is one.
    pub fn asked(&mut self, request: &RequestHead, scheme: Scheme) {
        if !(self.is_read() && self.url.is_empty()) {
            return;
        }
        if matches!(request.target, Target::Origin(_))
            && request.fields.count("Host") == 1
            && let Some(host) = request.fields.text("Host")
            && Url::parse(&format!("{}://{host}/", scheme.as_str())).is_some()
        {
            self.url.extend([scheme.as_str(), "://", host]);
        }
        request.target.write_to(&mut self.url);
    }

    /// When its head was read, in whole seconds.
    pub fn stamp(&self) -> Stamp {
        Stamp(self.at.as_secs())
    }

    /// Microseconds since its head was read, or that all of it took.
    pub fn micros(&self) -> u64 {
        match self.time {
            Time::Since(started) => micros(clock::instant().saturating_duration_since(started)),
            Time::Took(micros) => micros,
        }
    }

    /// It is over now.
    pub fn ends(&mut self, now: Instant) {
        if let Time::Since(started) = self.time {
            self.time = Time::Took(micros(now.saturating_duration_since(started)));
        }
    }

    /// Ends the record of a request whose answer breaks off: an outcome that was decided by then stays, else this word
    /// is its outcome. An answer that was complete by then stays complete.
    pub fn breaks_off(&mut self, word: &'static str, why: &str) {
        if self.complete {
            return;
        }
        if self.outcome == UNDECIDED {
            self.outcome = Outcome::Own(word);
        }
        if let Some(detail) = self.detail()
            && detail.trouble.is_none()
        {
            detail.trouble = Some(why.into());
        }
    }

    /// Whether a reader needs the URL.
    pub fn is_read(&self) -> bool {
        self.readers.logged.is_some() || self.readers.kept || self.sampled.is_some()
    }

    /// Whether somebody may ask for an explanation.
    pub fn is_kept(&self) -> bool {
        self.readers.kept
    }

    /// The notes in detail, where somebody may ask for them.
    pub fn detail(&mut self) -> Option<&mut Detail> {
        let blank = &mut self.blank;
        let begun = || blank.take().unwrap_or_default();
        self.readers.kept.then(|| &mut **self.detail.get_or_insert_with(begun))
    }

    /// Empties its detail, so that the record which is written in this place holds nothing of a long one.
    fn forget_detail(&mut self) {
        if let Some(detail) = self.detail.take() {
            self.blank = Some(detail.anew());
        }
    }

    /// Notes the work of hooks, where a reader needs it.
    pub fn note_hook(&mut self, note: HookNote) {
        if self.is_read() {
            self.extras.get_or_insert_default().hooks.push(note);
        }
    }

    /// Notes the rules that hold for it, where a reader needs it.
    pub fn note_rules(&mut self, note: &Arc<RuleNote>) {
        if self.is_read() && !note.rule.is_empty() {
            self.extras.get_or_insert_default().rules = Some(Arc::clone(note));
        }
    }

    /// Notes the coding that Larder gave the body, where it gave one.
    pub fn note_coding(&mut self, coded: Option<Coding>) {
        if self.is_read() {
            self.trail.coded = coded;
        }
    }

    /// The coding that Larder gave the body.
    pub fn coded(&self) -> Option<Coding> {
        self.trail.coded
    }

    /// The rules that held for it, where any did.
    pub fn rules(&self) -> Option<&RuleNote> {
        self.extras.as_deref().and_then(|extras| extras.rules.as_deref())
    }

    /// Notes how long the answer waited under limits of bandwidth, where a reader needs it.
    pub fn note_waited(&mut self, waited: Duration) {
        if self.is_read() {
            self.extras.get_or_insert_default().waited = Some(waited);
        }
    }

    /// How long the answer waited under limits of bandwidth, where any counted.
    pub fn waited(&self) -> Option<Duration> {
        self.extras.as_deref().and_then(|extras| extras.waited)
    }

    /// Notes the user, where a reader needs it.
    pub fn note_user(&mut self, user: &Arc<str>) {
        if self.is_read() {
            self.extras.get_or_insert_default().user = Some(Arc::clone(user));
        }
    }

    /// Notes the way of its tunnel, where a reader needs it.
    pub fn note_way(&mut self, way: Box<WayNote>) {
        if self.is_read() {
            self.extras.get_or_insert_default().way = Some(way);
        }
    }

    /// The way of its tunnel, where parents were meant.
    pub fn way_of_tunnel(&self) -> Option<&WayNote> {
        self.extras.as_deref()?.way.as_deref()
    }

    /// Looks at the way of its tunnel, or of its last fetch, where parents or siblings were meant.
    pub fn with_way<T>(&self, look: impl FnOnce(&WayNote) -> T) -> Option<T> {
        let extras = self.extras.as_deref();
        if let Some(way) = extras.and_then(|extras| extras.way.as_deref()) {
            return Some(look(way));
        }
        self.last_fetch()?.way.borrow().as_deref().map(look)
    }

    /// Whether its last fetch asked the origin by HTTP/2.
    pub fn is_by_http2(&self) -> bool {
        self.last_fetch().is_some_and(|fetch| fetch.protocol.get() == OriginProtocol::Http2)
    }

    /// Looks at the work of hooks on the answer to its last fetch, where any were asked.
    pub fn with_fetched_hook<T>(&self, look: impl FnOnce(&HookNote) -> T) -> Option<T> {
        self.last_fetch()?.by_hook.borrow().as_deref().map(look)
    }

    fn last_fetch(&self) -> Option<&Rc<Notes>> {
        let fetches = self.detail.iter().flat_map(|detail| detail.fetches.iter().map(|(_, notes)| notes));
        fetches.last().or_else(|| self.extras.as_deref()?.notes.as_ref())
    }

    /// Notes the name in the client's certificate, where a reader needs it.
    pub fn note_certificate(&mut self, name: &Arc<str>) {
        if self.is_read() {
            self.extras.get_or_insert_default().certificate = Some(Arc::clone(name));
        }
    }

    /// The name in the client's certificate.
    pub fn certificate(&self) -> Option<&str> {
        self.extras.as_deref()?.certificate.as_deref()
    }

    /// The user who has logged in.
    pub fn user(&self) -> Option<&str> {
        self.extras.as_deref()?.user.as_deref()
    }

    /// The work of hooks on it, where any were asked.
    pub fn hooks(&self) -> Option<&HookTrail> {
        self.extras.as_deref().map(|extras| &extras.hooks).filter(|hooks| !hooks.is_empty())
    }

    /// Notes the work of an ICAP service, where a reader needs it.
    pub fn note_icap(&mut self, note: IcapNote) {
        if self.is_read() {
            self.extras.get_or_insert_default().icap.push(note);
        }
    }

    /// Notes the answers of helpers, where a reader needs them.
    pub fn note_helpers(&mut self, notes: &[HelperNote]) {
        if !notes.is_empty() && self.is_read() {
            self.extras.get_or_insert_default().helpers = notes.into();
        }
    }

    /// The answers of helpers about it.
    pub fn helpers(&self) -> &[HelperNote] {
        self.extras.as_deref().map_or(&[], |extras| &extras.helpers)
    }

    /// The helpers that were asked, with their answers; empty where none was.
    pub fn helper_words(&self) -> String {
        let words: Vec<String> = self.helpers().iter().map(HelperNote::word).collect();
        words.join(",")
    }

    /// How long the request waited for helpers, in microseconds; `None` where none was asked.
    pub fn helper_micros(&self) -> Option<u64> {
        let helpers = self.helpers();
        (!helpers.is_empty()).then(|| helpers.iter().filter_map(|note| note.micros).fold(0, u64::saturating_add))
    }

    /// The work of ICAP services on it, and on the answer for its client.
    pub fn icap(&self) -> impl Iterator<Item = &IcapNote> {
        self.extras.iter().flat_map(|extras| extras.icap.iter())
    }

    /// The services that were asked about the request or its answer, with their work; empty where none was.
    pub fn icap_words(&self) -> String {
        let mut words = Vec::new();
        self.each_icap(|note| words.push(note.word()));
        words.join(",")
    }

    /// How long the request waited for services, in microseconds; `None` where none was asked.
    pub fn icap_micros(&self) -> Option<u64> {
        let mut micros: Option<u64> = None;
        self.each_icap(|note| micros = Some(micros.unwrap_or(0).saturating_add(note.micros)));
        micros
    }

    fn each_icap(&self, mut each: impl FnMut(&IcapNote)) {
        self.icap().for_each(&mut each);
        let fetches = self.detail.iter().flat_map(|detail| detail.fetches.iter());
        fetches.for_each(|(_, notes)| notes.by_icap.borrow().iter().for_each(&mut each));
    }

    /// Notes for a fetch that begins.
    pub fn notes(&mut self) -> Rc<Notes> {
        let notes = self.detail().map(|detail| detail.fetches.notes()).unwrap_or_default();
        if !self.readers.kept && self.readers.logged.is_some() {
            self.extras.get_or_insert_default().notes = Some(Rc::clone(&notes));
        }
        notes.request.set(Some(self.number));
        notes
    }

    /// Notes that a fetch begins for the request, as a part of its trace.
    pub fn leads(&mut self, notes: &Notes) {
        if let Some(sampled) = &mut self.sampled {
            let _ = notes.sampled.set(sampled.fetch());
        }
    }

    /// Bytes of the record, all that it refers to included. Cheap for a hit, which has no detail.
    pub fn count_bytes(&self) -> usize {
        let method = self.method.as_ref().filter(|method| method.known().is_none());
        size_of::<Record>()
            + self.url.capacity()
            + method.map_or(0, |method| method.as_str().len())
            + self.sampled.as_ref().map_or(0, |_| size_of::<Sampled>())
            + self.trail.count_bytes()
            + self.extras.as_ref().map_or(0, |extras| size_of::<Extras>() + extras.count_bytes())
            + self.detail.as_ref().map_or(0, |detail| detail.count_bytes())
            + self.blank.as_ref().map_or(0, |_| Detail::BLANK_BYTES)
    }

    /// A text for the log, where it was copied.
    pub fn text(&self, which: impl FnOnce(&LogTexts) -> Option<&str>) -> Option<&str> {
        self.extras.as_deref().and_then(|extras| which(&extras.texts))
    }
}

fn micros(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000).saturating_add(time.subsec_micros().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousands are kept, and each request writes over the oldest: a larger record pushes more out of the processor's
    /// caches.
    #[test]
    fn a_record_is_small() {
        assert!(size_of::<Record>() <= 320, "{}", size_of::<Record>());
    }
}
