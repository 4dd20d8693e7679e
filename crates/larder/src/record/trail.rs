//! Decisions about a request, as values. The part that each hit pays for is small; the rest is noted where an origin is
//! asked anyway.

use super::ring::beginning;
use super::{Cause, GroupNote, IcapTrail, Number, WayNote};
use crate::clock;
use crate::digest::DigestSource;
use crate::hook::HookNote;
use crate::prefetch::prefetch;
use crate::sampling::Sampled;
use larder_cache::cache::{Admitted, Fate, Peek, Whole};
use larder_cache::key::Key;
use larder_cache::policy::vary::VARY_NAMES_MAX;
use larder_cache::policy::{Asked, Coding, FreshnessFacts, Grace, NotStored, Terms, Usable};
use larder_wire::date::Stamp;
use larder_wire::proxy_protocol::{ProxyVersion, SentHeader};
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

/// The decisions that every request meets.
#[derive(Clone, Debug, Default)]
pub struct Trail {
    /// The listener, as it stands in the configuration; `None` for that of a `larder run`.
    pub listener: Option<SocketAddr>,
    /// By which rule it was served.
    pub rule: Option<Rule>,
    /// Which edition of the settings held.
    pub edition: u64,
    /// Why an origin was asked, whatever came of it.
    pub cause: Option<Cause>,
    /// The coding that Larder gave the body.
    pub coded: Option<Coding>,
    /// The request's cache directives, once they were looked at.
    asked: Option<Wishes>,
    /// The freshness of the stored response, and the judgement of it.
    pub weighed: Option<(FreshnessFacts, Usable)>,
}

/// By which rule a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The forward proxy, by `access.clients`.
    Forward,
    /// The origin of the listener.
    Listener,
    /// A site, by its place among the sites that were in force.
    Site(u16),
    /// It came through a tunnel that was opened.
    Tunnel,
    /// Its URL stood in the path of a request to the mirror.
    Mirror,
    /// A purge or an explanation names a URL, whichever rule serves it.
    Question,
}

/// The cache directives of a request. Nearly all requests have none.
#[derive(Clone, Debug)]
struct Wishes(Option<Box<Asked>>);

impl Trail {
    /// Notes what the request asked of a cache.
    pub fn asks(&mut self, asked: Asked) {
        self.asked = Some(Wishes((asked != Asked::default()).then(|| Box::new(asked))));
    }

    /// The request's cache directives, if they were looked at.
    pub fn asked(&self) -> Option<Asked> {
        self.asked.as_ref().map(|Wishes(asked)| asked.as_deref().copied().unwrap_or_default())
    }

    /// Bytes that it refers to.
    pub(super) fn count_bytes(&self) -> usize {
        let asked = matches!(self.asked, Some(Wishes(Some(_))));
        let grace = self.weighed.as_ref().is_some_and(|(weighed, _)| weighed.grace.is_some());
        usize::from(asked) * size_of::<Asked>() + usize::from(grace) * size_of::<Grace>()
    }

    /// Notes how a stored response was judged.
    pub fn weigh(&mut self, terms: Option<&Terms>, now: Stamp, usable: Usable) {
        self.weighed = terms.map(|terms| (FreshnessFacts::of(terms, now), usable));
    }
}

/// Details of a request that was not answered at once.
#[derive(Debug, Default)]
pub struct Detail {
    /// The key under which was looked; what is stored or under way there has the same one.
    pub key: Option<Key>,
    /// How often was looked.
    pub looks: u8,
    /// The word for the result of the last lookup.
    pub found: &'static str,
    /// Whether the disk was asked for the key.
    pub disk_asked: bool,
    /// The responses that were stored under the key.
    pub variants: Vec<Variant>,
    /// Stored responses beyond those.
    pub variants_more: usize,
    /// How the response that was stored before ended.
    pub fate: Option<(Fate, Stamp)>,
    /// Why the last answer was not stored.
    pub not_stored_before: Option<NotStored>,
    /// It waited for another request's fetch.
    pub followed: bool,
    /// The fetches that it began, and why.
    pub fetches: Fetches,
    /// The origin's trouble, in a sentence.
    pub trouble: Option<std::sync::Arc<str>>,
    /// The work of store rules on the request, in words.
    pub by_rule: Vec<String>,
}

/// The fetches of one request. Nearly all have one, thousands of which are kept: it has no list of its own.
#[derive(Debug, Default)]
pub struct Fetches {
    first: Option<(Cause, Rc<Notes>)>,
    others: Vec<(Cause, Rc<Notes>)>,
    /// Notes of an earlier request, whose memory is used again.
    blank: Option<Rc<Notes>>,
}

impl Fetches {
    /// Another one began.
    pub fn push(&mut self, cause: Cause, notes: Rc<Notes>) {
        match self.first {
            None => self.first = Some((cause, notes)),
            Some(_) => self.others.push((cause, notes)),
        }
    }

    /// Notes for the next one.
    pub(super) fn notes(&mut self) -> Rc<Notes> {
        let Some(mut notes) = self.blank.take() else { return Rc::default() };
        match Rc::get_mut(&mut notes) {
            Some(over) => {
                *over = Notes::default();
                notes
            }
            // Its fetch goes on.
            None => Rc::default(),
        }
    }

    /// In the order in which they began.
    pub fn iter(&self) -> impl Iterator<Item = &(Cause, Rc<Notes>)> {
        self.first.iter().chain(&self.others)
    }
}

impl Detail {
    /// The largest size of an empty one that is to be written over.
    pub(super) const BLANK_BYTES: usize = size_of::<Detail>() + BLANK_VARIANTS_MAX * size_of::<Variant>() + NOTES_BYTES;

    /// An empty one, in the place of one that is over.
    pub(super) fn anew(mut self: Box<Detail>) -> Box<Detail> {
        let mut variants = std::mem::take(&mut self.variants);
        variants.clear();
        variants.shrink_to(BLANK_VARIANTS_MAX);
        let blank = self.fetches.first.take().map(|(_, notes)| notes).or_else(|| self.fetches.blank.take());
        *self = Detail { variants, fetches: Fetches { blank, ..Fetches::default() }, ..Detail::default() };
        self
    }

    /// Cuts texts whose length clients or origins chose; see [`super::Ring::keep`].
    pub(super) fn bound(&mut self) {
        let mut left = VARIANTS_BYTES_MAX;
        self.variants.truncate(VARIANTS_MAX);
        for variant in &mut self.variants {
            let taken: usize = variant.by.iter().map(text_bytes).sum();
            left = match left.checked_sub(taken) {
                Some(left) => left,
                None => {
                    let fits = |text: &&String| {
                        left = left.saturating_sub(text_bytes(text));
                        left > 0
                    };
                    variant.by = variant.by.iter().take_while(fits).cloned().chain(["…".to_owned()]).collect();
                    variant.by.shrink_to_fit();
                    0
                }
            };
        }
        if self.trouble.as_ref().is_some_and(|trouble| trouble.len() > TROUBLE_BYTES_MAX) {
            self.trouble = self.trouble.take().map(|trouble| beginning(&trouble, TROUBLE_BYTES_MAX).into());
        }
        self.fetches.others.truncate(OTHER_FETCHES_MAX);
        self.fetches.others.shrink_to(OTHER_FETCHES_MAX);
    }

    /// Forgets the responses that were stored; their number stays.
    pub(super) fn forget_variants(&mut self) {
        self.variants_more += std::mem::take(&mut self.variants).len();
    }

    /// Bytes that it holds, all it refers to included. A key counts as if nobody shared it.
    pub(super) fn count_bytes(&self) -> usize {
        let by = self.variants.iter().map(|variant| {
            variant.by.iter().map(text_bytes).sum::<usize>()
                + (variant.by.capacity() - variant.by.len()) * size_of::<String>()
        });
        let fetches = self.fetches.iter().map(|_| NOTES_BYTES).sum::<usize>()
            + self.fetches.others.capacity() * size_of::<(Cause, Rc<Notes>)>()
            + self.fetches.blank.as_ref().map_or(0, |_| NOTES_BYTES);
        size_of::<Detail>()
            + self.key.as_ref().map_or(0, Key::heap_bytes)
            + self.variants.capacity() * size_of::<Variant>()
            + by.sum::<usize>()
            + fetches
            + self.trouble.as_ref().map_or(0, |trouble| trouble.len())
    }

    /// Prefetches all that it refers to, because it will be read soon.
    pub(super) fn prefetch(&self) {
        if let Some((_, notes)) = &self.fetches.first {
            prefetch(&**notes);
        }
        if let Some(key) = &self.key {
            prefetch(key.text());
        }
    }

    /// A response was read from disk and sent, without a place in memory.
    pub fn read_from_disk(&mut self, key: &[u8], whole: &Whole<'_>, now: Stamp) {
        let terms = whole.stored.terms.as_ref();
        self.key = Some(Key::from_text(key.to_vec()));
        self.looks = 1;
        self.found = "fresh";
        self.variants.reserve_exact(1);
        self.variants.push(Variant {
            by: terms.map(by).unwrap_or_default(),
            matches: true,
            chosen: true,
            in_memory: false,
            on_disk: true,
            remaining: terms.map_or(0, |terms| terms.remaining(now)),
            length: Some(whole.length),
        });
    }
}

/// With its counts, and with the terms that it may refer to.
const NOTES_BYTES: usize = size_of::<Notes>() + 2 * size_of::<usize>() + size_of::<Grace>();

/// Room for so many is kept for the next record in the same place; most have one.
const BLANK_VARIANTS_MAX: usize = 2;
/// The texts of all variants of one record.
const VARIANTS_BYTES_MAX: usize = 1_500;
/// A longer sentence about an origin's trouble is cut.
const TROUBLE_BYTES_MAX: usize = 512;
/// Fetches of one request beyond the first that are noted.
const OTHER_FETCHES_MAX: usize = 3;

fn text_bytes(text: &String) -> usize {
    size_of::<String>() + text.capacity()
}

/// A stored response that was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// The fields by which it was chosen, with their values where these are no secrets.
    pub by: Vec<String>,
    /// It answers the request's fields.
    pub matches: bool,
    /// It was the one that counted.
    pub chosen: bool,
    /// It was in memory.
    pub in_memory: bool,
    /// It was on disk.
    pub on_disk: bool,
    /// Seconds of freshness that it had left; below 0 since when it was stale.
    pub remaining: i64,
    /// The length of its body.
    pub length: Option<u64>,
}

/// More are counted, not shown.
const VARIANTS_MAX: usize = 16;
/// A longer value of a field by which variants are chosen is cut.
const VALUE_CHARS_MAX: usize = 80;

impl Variant {
    /// The stored responses that are shown, and how many more there are.
    pub fn all_of(peek: &Peek, now: Stamp) -> (Vec<Variant>, usize) {
        let shown = peek.variants.iter().enumerate().take(VARIANTS_MAX).map(|(at, stored)| {
            let terms = stored.head.terms.as_ref();
            Variant {
                by: terms.map(by).unwrap_or_default(),
                matches: stored.matches,
                chosen: peek.chosen == Some(at),
                in_memory: stored.in_memory,
                on_disk: stored.on_disk,
                remaining: terms.map_or(0, |terms| terms.remaining(now)),
                length: stored.length,
            }
        });
        (shown.collect(), peek.variants.len().saturating_sub(VARIANTS_MAX))
    }
}

/// `name: value` for fields of content negotiation, `name: …` for all others: they may say who somebody is.
fn by(terms: &Terms) -> Vec<String> {
    let lines = terms.vary.as_bytes().split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let lines = lines.take(VARY_NAMES_MAX);
    let shown = |line: &[u8]| {
        let text = String::from_utf8_lossy(line);
        match text.split_once(':') {
            None => format!("{}: none", beginning(&text, VALUE_CHARS_MAX)),
            Some((name, value)) if is_open(name) && value.len() <= VALUE_CHARS_MAX => format!("{name}: {value}"),
            Some((name, _)) => format!("{}: …", beginning(name, VALUE_CHARS_MAX)),
        }
    };
    lines.map(shown).collect()
}

fn is_open(name: &str) -> bool {
    // `accept-encoding/` and an offer: the choice of a coding.
    name.starts_with("accept-encoding/")
        || ["accept", "accept-encoding", "accept-language", "accept-charset", "origin", "x-forwarded-proto"]
            .contains(&name)
}

/// Whether an answer was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// It is stored.
    Stored {
        /// On these terms.
        terms: FreshnessFacts,
        /// On disk too; `None` without a disk, or where that was not asked yet.
        on_disk: Option<Admitted>,
    },
    /// It is not.
    Not(NotStored),
}

/// Notes of a fetch, written by the fetch and read for explanations; both live on one worker.
#[derive(Debug)]
pub struct Notes {
    began: Instant,
    /// How often a connection was asked for.
    pub attempts: Cell<u8>,
    /// The address that was asked, and whether its connection had served before.
    pub peer: Cell<Option<(Peer, Reuse)>>,
    /// The protocol of that connection.
    pub protocol: Cell<OriginProtocol>,
    /// The header of the PROXY protocol with which that connection began, where it did.
    pub proxy_header: Cell<Option<ProxyHeaderNote>>,
    /// Microseconds from the beginning until there was a connection.
    pub connected_micros: Cell<Option<u64>>,
    /// Microseconds from the beginning until the head of the answer was here.
    pub answered_micros: Cell<Option<u64>>,
    /// The status of the answer.
    pub status: Cell<Option<u16>>,
    /// Stored responses were named, to be validated.
    pub conditional: Cell<bool>,
    /// Whether the answer was stored.
    pub keeping: RefCell<Option<Keeping>>,
    /// The request that the fetch is for.
    pub request: Cell<Option<Number>>,
    /// The kind of fetch.
    pub kind: Cell<&'static str>,
    /// The word for the origin's trouble.
    pub trouble: Cell<Option<&'static str>>,
    /// The source of the digest that the body was found to have.
    pub digest: Cell<Option<DigestSource>>,
    /// The further range requests for the same download, where any were thought of.
    pub parallel: Cell<Option<Parallel>>,
    /// Its place in a trace, when its request is sampled.
    pub sampled: OnceCell<Sampled>,
    /// The answer is that of a captive portal.
    pub portal: Cell<bool>,
    /// The store rule that said something of the answer's lifetime.
    pub store_rule: RefCell<Option<Box<str>>>,
    /// The work of hooks on the answer.
    pub by_hook: RefCell<Option<Box<HookNote>>>,
    /// The members of a group that were asked; those of the last request where several were sent.
    pub group: RefCell<Option<Box<GroupNote>>>,
    /// The way to the origin, where parents, siblings or nodes of the cluster are meant.
    pub way: RefCell<Option<Box<WayNote>>>,
    /// The work of ICAP services on the answer.
    pub by_icap: RefCell<IcapTrail>,
}

/// How several range requests brought one download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallel {
    /// Requests at once, the first one included: the most that brought more than fewer.
    pub most: u8,
    /// Range requests ahead of the first one, in all.
    pub requests: u16,
    /// Why there are no more.
    pub limit: ParallelLimit,
}

/// Why no more range requests are sent for one download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParallelLimit {
    /// It is being found out.
    Open,
    /// The setting.
    Setting,
    /// One more brought no more bytes a second.
    NoGain,
    /// The download was about to end.
    Short,
    /// The origin answers ranges with the whole object, or refuses them.
    Forbidden,
    /// An earlier download found that this origin is to be left alone for a while.
    LeftAlone,
    /// A request brought nothing for seconds.
    Slow,
    /// The origin said 429 or 503.
    Busy,
    /// A request failed.
    Trouble,
    /// Another answer than the part came: the object has changed, or its parts are not for all.
    Changed,
    /// The client or the origin has as many requests under way as it may have.
    Permits,
    /// The store has no room ahead of the download, or nobody wants the rest.
    NotWanted,
}

impl ParallelLimit {
    /// The word that the API and logs show.
    pub fn as_str(self) -> &'static str {
        match self {
            ParallelLimit::Open => "open",
            ParallelLimit::Setting => "setting",
            ParallelLimit::NoGain => "no-gain",
            ParallelLimit::Short => "short",
            ParallelLimit::Forbidden => "forbidden",
            ParallelLimit::LeftAlone => "left-alone",
            ParallelLimit::Slow => "slow",
            ParallelLimit::Busy => "busy",
            ParallelLimit::Trouble => "trouble",
            ParallelLimit::Changed => "changed",
            ParallelLimit::Permits => "permits",
            ParallelLimit::NotWanted => "not-wanted",
        }
    }
}

/// The far end of a connection to an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// An address of the network.
    Address(SocketAddr),
    /// A Unix socket of this machine.
    Socket,
    /// A process of this server, by the system's number.
    Process(u32),
    /// A parent, through which the origin is asked: its place among the `[[parent]]`s, from 1. A second address here would make each
    /// record larger.
    Parent(u8),
    /// A sibling, which has stored the response: its place among the `[[sibling]]`s, from 1.
    Sibling(u8),
    /// Another node of the cluster, the home of the key; the way has its name.
    Home,
}

impl Peer {
    /// The address, where it has one.
    pub fn address(self) -> Option<SocketAddr> {
        match self {
            Peer::Address(address) => Some(address),
            Peer::Socket | Peer::Process(_) | Peer::Parent(_) | Peer::Sibling(_) | Peer::Home => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Address(address) => address.fmt(f),
            Peer::Socket => f.write_str("its socket"),
            Peer::Process(pid) => write!(f, "process {pid}"),
            Peer::Parent(number) => write!(f, "parent {number}"),
            Peer::Sibling(number) => write!(f, "sibling {number}"),
            Peer::Home => f.write_str("another node"),
        }
    }
}

/// The protocol of a connection to an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OriginProtocol {
    /// HTTP/1.1, one request at a time.
    #[default]
    Http11,
    /// HTTP/2, on a stream beside others.
    Http2,
}

impl OriginProtocol {
    /// The version as logs and traces show it.
    pub fn as_str(self) -> &'static str {
        match self {
            OriginProtocol::Http11 => "1.1",
            OriginProtocol::Http2 => "2",
        }
    }
}

/// The header of the PROXY protocol with which a connection to an origin began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeaderNote {
    /// Its version.
    pub version: ProxyVersion,
    /// Whether it named the client; else the connection was Larder's own.
    pub names_client: bool,
}

impl ProxyHeaderNote {
    /// The note of a header that was sent.
    pub fn of(header: SentHeader) -> ProxyHeaderNote {
        ProxyHeaderNote { version: header.version, names_client: header.addresses.is_some() }
    }
}

impl fmt::Display for ProxyHeaderNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whom = if self.names_client { "the client" } else { "nobody, as one of Larder's own" };
        write!(f, "a header of the PROXY protocol ({}) that names {whom}", self.version.as_str())
    }
}

/// Whether a connection had served before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// It had.
    Again,
    /// It was opened for this.
    New,
}

impl Default for Notes {
    fn default() -> Notes {
        Notes {
            began: clock::instant(),
            attempts: Cell::new(0),
            peer: Cell::new(None),
            protocol: Cell::default(),
            proxy_header: Cell::default(),
            connected_micros: Cell::new(None),
            answered_micros: Cell::new(None),
            status: Cell::new(None),
            conditional: Cell::new(false),
            keeping: RefCell::new(None),
            request: Cell::new(None),
            kind: Cell::new("share"),
            trouble: Cell::new(None),
            digest: Cell::new(None),
            parallel: Cell::new(None),
            sampled: OnceCell::new(),
            portal: Cell::new(false),
            by_hook: RefCell::default(),
            by_icap: RefCell::default(),
            store_rule: RefCell::new(None),
            group: RefCell::new(None),
            way: RefCell::new(None),
        }
    }
}

impl Notes {
    /// The answer broke off: nothing of it is kept as whole.
    pub fn broke_off(&self, word: &'static str) {
        self.trouble.set(Some(word));
        self.keeping.replace(None);
    }

    /// Microseconds since the fetch began.
    pub fn micros(&self) -> u64 {
        self.micros_at(clock::instant())
    }

    fn micros_at(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }

    /// Notes that a connection is asked for; gives the time. The first time is the beginning of the fetch.
    pub fn attempt(&self) -> Instant {
        let before = self.attempts.get();
        self.attempts.set(before.saturating_add(1));
        if before == 0 { self.began } else { clock::instant() }
    }

    /// Members of a group were asked.
    pub fn group_asked(&self, mut note: Box<GroupNote>) {
        note.bound();
        self.group.replace(Some(note));
    }

    /// A way was taken, or none led to the origin.
    pub fn way_taken(&self, note: Box<WayNote>) {
        self.way.replace(Some(note));
    }

    /// Takes the `Set-Cookie` for the client that asked, where there is one.
    pub fn member_cookie(&self) -> Option<Box<str>> {
        self.group.borrow_mut().as_mut()?.cookie.take()
    }

    /// There is a connection, since this moment.
    pub fn connected(&self, at: Instant, peer: Peer, reuse: Reuse) {
        self.connected_micros.set(Some(self.micros_at(at)));
        self.peer.set(Some((peer, reuse)));
    }

    /// The head of an answer is here, since this moment.
    pub fn answered(&self, at: Instant, status: u16) {
        self.answered_micros.set(Some(self.micros_at(at)));
        self.status.set(Some(status));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Box<Detail> {
        let notes = Rc::new(Notes::default());
        notes.broke_off("reset");
        notes.attempt();
        notes.answered(clock::instant(), 200);
        notes.conditional.set(true);
        notes.kind.set("part");
        let mut fetches = Fetches::default();
        fetches.push(Cause::NotStored, notes);
        fetches.push(Cause::Stale, Rc::default());
        let variant = Variant {
            by: vec!["accept: a".to_owned()],
            matches: true,
            chosen: true,
            in_memory: true,
            on_disk: true,
            remaining: 1,
            length: Some(2),
        };
        Box::new(Detail {
            key: Some(Key::from_text(b"http://a.example/secret".to_vec())),
            looks: 2,
            found: "fresh",
            disk_asked: true,
            variants: vec![variant],
            variants_more: 3,
            fate: Some((Fate::Expired, Stamp(4))),
            not_stored_before: Some(NotStored::Method),
            followed: true,
            fetches,
            trouble: Some("b".into()),
            by_rule: vec!["c".to_owned()],
        })
    }

    /// Memory is used again, and notes of an earlier request must not show.
    #[test]
    fn in_the_place_of_a_detail_nothing_of_it_is_left() {
        let mut anew = full().anew();
        assert_eq!(anew.fetches.iter().count(), 0);
        let notes = anew.fetches.notes();
        assert_eq!(format!("{anew:?}"), format!("{:?}", Detail::default()));
        let fresh = Notes { began: notes.began, ..Notes::default() };
        assert_eq!(format!("{notes:?}"), format!("{fresh:?}"));
    }

    #[test]
    fn notes_are_written_over_unless_their_fetch_goes_on() {
        let over = |held: bool| {
            let detail = full();
            let before = Rc::clone(&detail.fetches.iter().next().unwrap().1);
            let place = Rc::as_ptr(&before);
            let fetch = held.then(|| Rc::clone(&before));
            drop(before);
            let notes = detail.anew().fetches.notes();
            let kept = fetch.map(|fetch| fetch.status.get());
            (Rc::as_ptr(&notes) == place, kept)
        };
        assert_eq!(over(false), (true, None));
        assert_eq!(over(true), (false, Some(Some(200))));
    }
}
