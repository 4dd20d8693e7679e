//! The last requests of a worker. No other thread touches it: the admin side sends the worker a question.

use super::{IcapTrail, LogTexts, Number, Record};
use crate::prefetch::prefetch;
use larder_cache::key::Key;
use larder_wire::Method;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// A longer URL or key is cut, so that the size of a kept record has a bound.
const TEXT_BYTES_MAX: usize = 1_024;

/// A longer name of a user is cut: helpers and tokens may name anything.
const USER_BYTES_MAX: usize = 256;

/// The largest size of a kept record, whatever clients and origins send.
pub const RECORD_BYTES_MAX: usize = 9_000;

/// The mean size of all records at most, per record that may be kept: where records are longer, fewer are kept. A usual
/// one has a few hundred bytes.
const RECORD_BYTES_MEAN_MAX: usize = 1_500;

/// So many requests may be under way at once and still find the place of one that is over.
const SPARE_MAX: usize = 64;

/// The last requests of one worker.
#[derive(Default)]
pub struct Ring {
    held: RefCell<VecDeque<Box<Record>>>,
    requests_max: Cell<usize>,
    /// Bytes of the records that are held. A record that is held takes the same until it goes.
    bytes: Cell<usize>,
    query: Cell<Query>,
    /// Numbers that were given.
    last: Cell<Number>,
    /// Old records, whose memory the next requests use again.
    #[expect(clippy::vec_box, reason = "a box is taken out as it is: its memory is what is kept")]
    spare: RefCell<Vec<Box<Record>>>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} of {})", self.len(), self.requests_max.get())
    }
}

/// Whether values of queries are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Query {
    /// They are.
    #[default]
    Kept,
    /// Only the names are.
    Hidden,
}

impl Query {
    /// As a setting says.
    pub fn hidden_if(hides: bool) -> Query {
        if hides { Query::Hidden } else { Query::Kept }
    }
}

impl Ring {
    /// Begins for a worker: so many requests are kept.
    pub fn begin(&self, worker: usize, requests_max: usize, query: Query) {
        self.last.set(Number::first_of(worker));
        self.requests_max.set(requests_max);
        self.query.set(query);
    }

    /// Whether anything is kept.
    pub fn is_on(&self) -> bool {
        self.requests_max.get() > 0
    }

    /// The number of a request that begins.
    pub fn number(&self) -> Number {
        self.last.set(self.last.get().next());
        self.last.get()
    }

    /// An old record, whose memory is used again for another.
    pub fn spare(&self) -> Option<Box<Record>> {
        self.spare.borrow_mut().pop()
    }

    /// Keeps a finished record, in place of the oldest.
    pub fn keep(&self, mut record: Box<Record>) {
        let taken = self.bound(&mut record);
        let requests_max = self.requests_max.get();
        if requests_max == 0 {
            return self.put_by(record);
        }
        let mut held = self.held.borrow_mut();
        if held.len() >= requests_max {
            look_ahead(&held);
        }
        let bytes_max = requests_max.saturating_mul(RECORD_BYTES_MEAN_MAX).max(RECORD_BYTES_MAX);
        let mut bytes = self.bytes.get() + taken;
        while held.len() >= requests_max || bytes > bytes_max {
            let Some(oldest) = held.pop_front() else { break };
            bytes -= oldest.count_bytes();
            self.put_by(oldest);
        }
        self.bytes.set(bytes);
        held.push_back(record);
    }

    /// Cuts every text of a record whose length a client or an origin chose, so that a record takes at most
    /// [`RECORD_BYTES_MAX`], and gives its size. The only place where that is done: a new text in a record is cut here too.
    fn bound(&self, record: &mut Record) -> usize {
        record.extras = record.extras.take().filter(|extras| extras.explain());
        if let Some(extras) = &mut record.extras {
            extras.texts = LogTexts::default();
            if let Some(user) = extras.user.as_mut().filter(|user| user.len() > USER_BYTES_MAX) {
                let mut name = user.to_string();
                cut(&mut name, USER_BYTES_MAX);
                *user = name.into();
            }
            extras.hooks.bound(self.query.get());
        }
        if self.query.get() == Query::Hidden {
            record.url = without_values(&record.url);
        }
        cut(&mut record.url, TEXT_BYTES_MAX);
        if let Some(Method::Other(token)) = &mut record.method
            && token.len() > METHOD_BYTES_MAX
        {
            *token = token[..METHOD_BYTES_MAX].into();
        }
        if let Some(detail) = &mut record.detail {
            if let Some(key) = &mut detail.key {
                self.shorten(key);
            }
            detail.bound();
        }
        fit(record)
    }

    fn put_by(&self, mut over: Box<Record>) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_MAX {
            over.forget_detail();
            spare.push(over);
        }
    }

    /// A key is shared with the store, unless it has to be cut or its query hidden.
    fn shorten(&self, key: &mut Key) {
        let query = self.query.get();
        if key.text().len() > TEXT_BYTES_MAX || (query == Query::Hidden && key.text().contains(&b'?')) {
            *key = Key::from_text(shortened(&String::from_utf8_lossy(key.text()), query).into_bytes());
        }
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.held.borrow().len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The requests that are kept, the last that ended first, as `pick` sees them, until it has `many`.
    pub fn pick<T>(&self, many: usize, mut pick: impl FnMut(&Record) -> Option<T>) -> Vec<T> {
        self.held.borrow().iter().rev().filter_map(|record| pick(record)).take(many).collect()
    }

    /// Shows each request that is kept.
    pub fn each(&self, mut show: impl FnMut(&Record)) {
        self.held.borrow().iter().for_each(|record| show(record));
    }

    /// The request with this number, as `read` sees it.
    pub fn find<T>(&self, number: Number, read: impl FnOnce(&Record) -> T) -> Option<T> {
        self.held.borrow().iter().rev().find(|record| record.number == number).map(|record| read(record))
    }
}

/// Prefetches the parts of the oldest records some requests before they are written over. They lie in no cache of the
/// processor, and each part is found by way of the one before (decision 022).
fn look_ahead(held: &VecDeque<Box<Record>>) {
    if let Some(record) = held.get(8) {
        prefetch(&**record);
    }
    if let Some(record) = held.get(5) {
        if let Some(start) = record.url.as_bytes().first() {
            prefetch(start);
        }
        if let Some(detail) = &record.detail {
            prefetch(&**detail);
        }
        // Refused requests have the note of their rules there.
        if let Some(extras) = &record.extras {
            prefetch(&**extras);
        }
    }
    if let Some(record) = held.get(2) {
        if let Some(detail) = &record.detail {
            detail.prefetch();
        }
        if let Some(note) = record.extras.as_ref().and_then(|extras| extras.rules.as_ref()) {
            prefetch(&**note);
        }
    }
}

/// A method is a token, so it may be cut anywhere; a client may send one of a whole request line.
const METHOD_BYTES_MAX: usize = 64;

/// Takes parts off a record that has the most of everything at once, those that explain least first; gives its size.
fn fit(record: &mut Record) -> usize {
    const PARTS: [fn(&mut Record); 3] = [
        |record| record.extras.iter_mut().for_each(|extras| extras.icap = IcapTrail::default()),
        |record| record.detail.iter_mut().for_each(|detail| detail.forget_variants()),
        |record| record.extras.iter_mut().for_each(|extras| extras.rules = None),
    ];
    let mut bytes = record.count_bytes();
    for take_off in PARTS {
        if bytes <= RECORD_BYTES_MAX {
            break;
        }
        take_off(record);
        bytes = record.count_bytes();
    }
    bytes
}

fn cut(text: &mut String, bytes_max: usize) {
    if text.capacity() > bytes_max {
        *text = beginning(text, bytes_max).to_owned();
    }
}

/// The first so many bytes of a text, or fewer where a character would be torn.
pub(super) fn beginning(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

/// A URL as it may be kept or told elsewhere: with a bound, and without the values of its query where these are hidden.
pub fn shortened(url: &str, query: Query) -> String {
    let mut text = if query == Query::Hidden { without_values(url) } else { url.to_owned() };
    cut(&mut text, TEXT_BYTES_MAX);
    text
}

/// `http://a.example/x?q=1&r=2` becomes `http://a.example/x?q=…&r=…`.
pub fn without_values(url: &str) -> String {
    let Some((path, query)) = url.split_once('?') else { return url.to_owned() };
    let parts = query.split('&').map(|part| match part.split_once('=') {
        Some((name, value)) if !value.is_empty() => format!("{name}=…"),
        Some(_) => part.to_owned(),
        // A part without a `=` is a value without a name, and is hidden.
        None => "…".to_owned(),
    });
    format!("{path}?{}", parts.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hook::HookNote;
    use crate::mount::{Hooks, Stage};
    use crate::page::Page;
    use crate::record::{Cause, Detail, Fetches, IcapDid, IcapNote, Variant};
    use larder_wire::icap::Vector;
    use std::rc::Rc;
    use std::sync::Arc;

    fn record(ring: &Ring, url: &str) -> Box<Record> {
        let page = Page::new(400, "w", "x", "y");
        let mut record = Box::new(Record::refused("127.0.0.1:1".parse().unwrap(), &page, ring.number()));
        record.url = url.to_owned();
        record
    }

    fn urls(ring: &Ring) -> Vec<String> {
        ring.pick(10, |record| Some(record.url.clone()))
    }

    #[test]
    fn the_last_ones_stay() {
        let ring = Ring::default();
        ring.begin(3, 2, Query::Kept);
        for url in ["a", "b", "c"] {
            ring.keep(record(&ring, url));
        }
        assert_eq!(urls(&ring), ["c", "b"]);
        assert_eq!(ring.pick(1, |record| Some(record.number.worker())), [3]);
        let numbers = ring.pick(2, |record| Some(record.number));
        assert_eq!(ring.find(numbers[1], |record| record.url.clone()).as_deref(), Some("b"));
        assert_eq!(ring.find(Number(7), |_| ()), None);
        let off = Ring::default();
        off.keep(record(&off, "a"));
        assert!(off.is_empty() && !off.is_on());
    }

    #[test]
    fn places_of_those_that_went_are_for_the_next_ones_and_bounded() {
        let ring = Ring::default();
        ring.begin(0, 1, Query::Kept);
        for _ in 0..2 * SPARE_MAX {
            ring.keep(record(&ring, "a"));
        }
        assert_eq!(std::iter::from_fn(|| ring.spare()).count(), SPARE_MAX);
        let off = Ring::default();
        off.keep(record(&off, &"a".repeat(60_000)));
        assert!(off.spare().is_some_and(|over| over.url.capacity() <= TEXT_BYTES_MAX));
    }

    #[test]
    fn texts_are_short_and_values_hidden() {
        let ring = Ring::default();
        ring.begin(0, 2, Query::Hidden);
        ring.keep(record(&ring, &format!("http://a/{}", "ü".repeat(2_000))));
        ring.keep(record(&ring, "http://a/x?token=s3cret&empty=&s3cret"));
        let urls = urls(&ring);
        assert_eq!(urls[0], "http://a/x?token=…&empty=&…");
        assert!(urls[1].len() <= TEXT_BYTES_MAX && urls[1].ends_with('ü'));
    }

    /// Every text as long as a head may make it, and as many of everything as can be noted.
    fn largest(ring: &Ring) -> Box<Record> {
        let long = "ü".repeat(32_000);
        let mut record = record(ring, &long);
        record.method = Some(Method::from_token(&"M".repeat(16_000)));
        let variant = Variant {
            by: (0..15_500).map(|name| format!("x-{name}: {long}", long = &long[..8])).chain([long.clone()]).collect(),
            matches: true,
            chosen: true,
            in_memory: true,
            on_disk: true,
            remaining: 1,
            length: Some(1),
        };
        let mut fetches = Fetches::default();
        for _ in 0..100 {
            fetches.push(Cause::Stale, Rc::default());
        }
        record.detail = Some(Box::new(Detail {
            key: Some(Key::from_text(long.clone().into_bytes())),
            variants: vec![variant; 16],
            fetches,
            trouble: Some(long.as_str().into()),
            ..Detail::default()
        }));
        record.note_user(&long.as_str().into());
        let service: Arc<str> = "scan".into();
        for _ in 0..100 {
            record.note_icap(IcapNote::new(&service, Vector::Reqmod, IcapDid::Failed, 1, Some(&long)));
            record.note_hook(HookNote::begin(Stage::Request, &Hooks::default(), &[]).did(&long).asks_for(&long));
        }
        record
    }

    #[test]
    fn a_record_takes_no_more_than_was_promised() {
        let ring = Ring::default();
        ring.begin(0, 1, Query::Kept);
        ring.keep(largest(&ring));
        let taken = ring.pick(1, |record| Some(record.count_bytes())).remove(0);
        assert!(taken <= RECORD_BYTES_MAX, "{taken}");
        let off = Ring::default();
        off.keep(largest(&off));
        assert!(off.spare().is_some_and(|over| over.count_bytes() <= RECORD_BYTES_MAX));
    }

    #[test]
    fn of_long_records_fewer_are_kept() {
        let ring = Ring::default();
        ring.begin(0, 100, Query::Kept);
        for _ in 0..100 {
            ring.keep(record(&ring, "http://a.example/usual"));
        }
        assert_eq!(ring.len(), 100);
        for _ in 0..300 {
            ring.keep(largest(&ring));
        }
        let taken: usize = ring.pick(100, |record| Some(record.count_bytes())).iter().sum();
        assert!(ring.len() > 10 && taken <= 100 * RECORD_BYTES_MEAN_MAX, "{} take {taken}", ring.len());
        for _ in 0..200 {
            ring.keep(record(&ring, "http://a.example/usual"));
        }
        assert_eq!(ring.len(), 100);
    }

    #[test]
    fn what_is_usual_is_kept_as_it_was() {
        let ring = Ring::default();
        ring.begin(0, 1, Query::Kept);
        let mut usual = record(&ring, "http://a.example/");
        usual.method = Some(Method::from_token("PROPFIND"));
        let by = vec!["accept-encoding: gzip".to_owned(), "x-user: …".to_owned()];
        let variant = Variant { by, ..Variant::default() };
        let trouble = Some("no route to host".into());
        usual.detail = Some(Box::new(Detail { variants: vec![variant.clone()], trouble, ..Detail::default() }));
        let shown = format!("{usual:?}");
        ring.keep(usual);
        assert_eq!(ring.pick(1, |record| Some(format!("{record:?}"))), [shown]);
    }

    #[test]
    fn a_key_is_shared_unless_some_of_it_is_not_to_be_kept() {
        let kept = |query, text: &str| {
            let ring = Ring::default();
            ring.begin(0, 1, query);
            let key = Key::from_text(text.as_bytes().to_vec());
            let mut record = record(&ring, "http://a/");
            record.detail = Some(Box::new(Detail { key: Some(key.clone()), ..Detail::default() }));
            ring.keep(record);
            let kept = ring.pick(1, |record| record.detail.as_ref()?.key.clone()).remove(0);
            (String::from_utf8(kept.text().to_vec()).unwrap(), std::ptr::eq(kept.text(), key.text()))
        };
        assert_eq!(kept(Query::Kept, "http://a/?b=c"), ("http://a/?b=c".to_owned(), true));
        assert_eq!(kept(Query::Hidden, "http://a/b"), ("http://a/b".to_owned(), true));
        assert_eq!(kept(Query::Hidden, "http://a/?b=c"), ("http://a/?b=…".to_owned(), false));
        let (long, shared) = kept(Query::Kept, &format!("http://a/{}", "x".repeat(2_000)));
        assert!(long.len() == TEXT_BYTES_MAX && !shared);
    }
}
