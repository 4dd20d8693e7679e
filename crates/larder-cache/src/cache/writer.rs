//! The write side of an entry: a fetch puts its response into the entry, the index, the eviction order and the disk.

use super::fill::Fill;
use super::patience::Patience;
use super::spool::Spool;
use super::{Cache, Fate};
use crate::entry::{Contact, DiskLocation, Failure, FailureKind, Limits, PinnedEntry, ReuseReason, Room, Watch};
use crate::head::StoredHead;
use crate::key::Key;
use crate::policy::NotStored;
use crate::store::INLINE_BYTES_MAX;
use bytes::Bytes;
use larder_wire::Fields;
use larder_wire::structured::no_vary_search;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Whether a response goes to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// The disk takes it.
    Yes,
    /// The disk does not take it: it was asked for only once.
    NotYet,
    /// The disk does not take it: it is behind with its writes.
    Behind,
}

/// The one writer of an entry. Dropping it before [`Writer::finish`] marks the entry failed and wakes
/// all readers.
#[must_use]
pub struct Writer {
    cache: Arc<Cache>,
    entry: PinnedEntry,
    candidates: Vec<(PinnedEntry, Arc<StoredHead>)>,
    /// Fills behind an answer that was already given, so it goes on without readers.
    unattended: bool,
    /// Whether the disk takes it, once that was asked.
    admitted: Option<Admitted>,
    patience: Patience,
    /// Boxed: a response that is not stored has none, and a writer is moved often.
    spool: Option<Box<Spool>>,
    /// It is not kept once its readers have it.
    is_for_its_readers: bool,
    done: bool,
}

impl Writer {
    pub(super) fn new(
        cache: Arc<Cache>,
        entry: PinnedEntry,
        candidates: Vec<(PinnedEntry, Arc<StoredHead>)>,
        unattended: bool,
    ) -> Writer {
        Writer {
            cache,
            entry,
            candidates,
            unattended,
            admitted: None,
            patience: Patience::default(),
            spool: None,
            is_for_its_readers: false,
            done: false,
        }
    }

    /// Stored responses that a validation may name.
    pub fn candidates(&self) -> &[(PinnedEntry, Arc<StoredHead>)] {
        &self.candidates
    }

    /// How many readers wait for it.
    pub fn readers(&self) -> usize {
        self.entry.readers()
    }

    /// The key of the entry.
    pub fn key(&self) -> Key {
        self.entry.key()
    }

    /// The entry.
    pub fn entry(&self) -> &PinnedEntry {
        &self.entry
    }

    /// The number of the last invalidation rule when this fetch began.
    pub fn epoch(&self) -> u64 {
        self.entry.epoch()
    }

    /// Nobody waits for this fetch: it refreshes behind an answer already given.
    pub fn is_unattended(&self) -> bool {
        self.unattended || self.entry.is_late()
    }

    /// Says how far the fetch came towards its origin, as far as is known.
    pub fn contact(&self, contact: Contact) {
        self.entry.set_contact(contact);
    }

    /// Sees who wants what this writer brings, and what `fill` does.
    pub fn watch(&self, fill: Option<&Fill>) -> Watch {
        let hole = fill.map(|fill| (fill.entry().clone(), fill.number()));
        Watch::new(self.entry.clone(), &self.limits(), hole)
    }

    fn limits(&self) -> Limits {
        self.cache.limits(self.unattended)
    }

    /// All who ask while it comes get it, as of any response that is stored; then it leaves memory, and never goes to disk. To be called
    /// before [`Writer::store`]. For a response that a neighbour keeps.
    pub fn is_for_its_readers(&mut self) {
        self.is_for_its_readers = true;
        self.admitted = Some(Admitted::NotYet);
    }

    /// Whether a body of this length may be kept, in memory or on disk.
    pub fn takes(&mut self, length: u64) -> bool {
        length <= self.cache.object_bytes_max(false) || (self.admits() && length <= self.cache.object_bytes_max(true))
    }

    /// Why [`Writer::takes`] did not.
    pub fn why_not_taken(&self) -> NotStored {
        if self.admitted == Some(Admitted::Behind) { NotStored::DiskBehind } else { NotStored::TooLong }
    }

    /// Whether it goes to disk, where that was asked and there is one.
    pub fn admitted(&self) -> Option<Admitted> {
        self.admitted.filter(|_| self.cache.disk().is_some())
    }

    /// Whether it goes to disk.
    fn admits(&mut self) -> bool {
        let (cache, entry) = (&self.cache, &self.entry);
        let admitted = *self.admitted.get_or_insert_with(|| match cache.disk() {
            Some(store) if store.admits(entry.id_hash) => {
                let takes = !cache.settings.pass_by_disk || store.takes_body(entry.key().text());
                if takes { Admitted::Yes } else { Admitted::Behind }
            }
            _ => Admitted::NotYet,
        });
        admitted == Admitted::Yes
    }

    /// Publishes a head whose response is stored and shared; `length` where the origin said it. A body too long
    /// for the store passes through a window instead, and the answer is then for the asking request alone.
    pub fn store(&mut self, stored: StoredHead, length: Option<u64>) {
        if length.is_some_and(|length| !self.takes(length)) {
            return self.pass(stored, length);
        }
        let admitted = self.admits();
        self.cache.rename(&self.entry, no_vary_search(&stored.head.fields));
        let is_alone = admitted && length.is_some_and(|length| length > self.cache.object_bytes_max(false));
        self.entry.begin(stored, length, is_alone);
        self.cache.install(&self.entry, admitted);
        if length.is_some_and(|length| length > INLINE_BYTES_MAX as u64) {
            self.begin_spool();
        }
        self.entry.wake_readers();
    }

    /// From here on the body goes to disk as it comes.
    fn begin_spool(&mut self) {
        let Some(location) = self.take_location() else { return };
        let mut spool = Spool::new(Arc::clone(&location), 0);
        self.entry.begin_on_disk(location).into_iter().for_each(|piece| spool.push(piece));
        self.spool = Some(Box::new(spool));
    }

    fn take_location(&mut self) -> Option<Arc<DiskLocation>> {
        let admitted = self.admits() && self.spool.is_none();
        let store = self.cache.disk().filter(|_| admitted)?;
        Some(DiskLocation::new(store, self.entry.key()))
    }

    /// Publishes the head of a whole of which only this part follows, into the fill that it gives back. The caller has
    /// seen to it that more can be asked for: the length is known and the validator strong.
    pub fn store_part(mut self, stored: StoredHead, part: &Range<u64>, length: u64) -> Option<Fill> {
        self.done = true;
        self.cache.rename(&self.entry, no_vary_search(&stored.head.fields));
        let location = self.take_location();
        let is_alone = location.is_some() && length > self.cache.object_bytes_max(false);
        self.entry.begin_in_parts(stored, length, location, is_alone);
        let mut fill = Fill::begin(&self.entry, part);
        if let Some(fill) = &mut fill {
            fill.confirm(part);
        }
        let admitted = self.admits();
        self.cache.install(&self.entry, admitted);
        // Not before: a renewal of the entry that it replaces would write over it.
        self.entry.write_head_of_part();
        self.cache.admit(&self.entry);
        self.entry.wake_readers();
        fill
    }

    /// Publishes a head whose response is for the asking request alone; requests that followed are set free.
    pub fn pass(&mut self, stored: StoredHead, length: Option<u64>) {
        self.cache.detach(&self.entry);
        self.entry.pass(stored, length);
    }

    /// Waits until the next piece may be pushed.
    pub async fn room(&mut self) -> Room {
        poll_fn(|cx| self.poll_room(cx)).await
    }

    /// Says whether the next piece may be pushed; wakes the task when it may.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Room> {
        if self.poll_disk(cx).is_pending() {
            return Poll::Pending;
        }
        self.entry.poll_room(cx, &self.limits())
    }

    /// A body that goes to disk waits for it, within reason.
    fn poll_disk(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let ready = self.poll_spool(cx);
        let Some(store) = self.cache.disk().filter(|_| self.admitted == Some(Admitted::Yes)) else { return ready };
        if ready.is_ready() {
            self.patience.goes_on(store);
            return Poll::Ready(());
        }
        if !self.cache.settings.pass_by_disk || self.patience.waits(store, self.entry.key().text(), cx) {
            return Poll::Pending;
        }
        self.pass_by_disk();
        Poll::Ready(())
    }

    /// Writes nothing more of the body to disk.
    fn pass_by_disk(&mut self) {
        self.admitted = Some(Admitted::Behind);
        let key = self.entry.key();
        if let Some(store) = self.cache.disk() {
            store.pass_by(key.text());
        }
        match &mut self.spool {
            Some(spool) => spool.give_up(),
            // An older response may lie there, which must not be the answer once memory has let go of this one.
            None => self.cache.forget_unseen(key.text()),
        }
        if self.entry.is_alone_on_disk() && !self.entry.passes() {
            self.let_pass();
        }
    }

    fn poll_spool(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // A piece that the queue before the disk refuses would be nowhere once it has left memory.
        let waits = self.admitted == Some(Admitted::Yes);
        if waits && self.cache.disk().is_some_and(|store| store.queue_room(cx).is_pending()) {
            return Poll::Pending;
        }
        let Some(spool) = &mut self.spool else { return Poll::Ready(()) };
        let written: Vec<Range<u64>> = std::iter::from_fn(|| spool.poll_written(cx)).collect();
        if spool.is_refused() {
            if self.entry.is_stored_on_disk_alone() {
                self.let_pass();
            }
            return Poll::Ready(());
        }
        if !self.entry.drop_written(written) {
            return Poll::Ready(());
        }
        let full = spool.writing_bytes() >= self.cache.settings.window_bytes;
        if full || spool.poll_room(cx).is_pending() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Appends a piece of the body and wakes the readers.
    pub fn push(&mut self, piece: Bytes) {
        let appended = self.entry.append(piece.clone());
        if !appended.is_stored {
            return;
        }
        match &mut self.spool {
            Some(spool) => spool.push(piece),
            None if appended.received > INLINE_BYTES_MAX as u64 => self.begin_spool(),
            None => {}
        }
        self.make_room(appended.received);
    }

    /// The body is whole.
    pub fn finish(mut self, trailers: Option<Fields>) {
        self.done = true;
        if !self.entry.settle(trailers) {
            return self.cache.detach(&self.entry);
        }
        if self.is_for_its_readers {
            return self.cache.detach(&self.entry);
        }
        match &mut self.spool {
            Some(spool) => self.entry.finish_on_disk(spool.finish()),
            None => {
                if let Some(location) = self.take_location() {
                    self.entry.put_on_disk(location);
                } else if self.admitted().is_some() {
                    self.cache.prove_later(&self.entry);
                }
            }
        }
        self.cache.admit(&self.entry);
    }

    /// A validation, or the origin's trouble, made `entry` the answer.
    pub fn redirect(self, entry: &PinnedEntry, reason: ReuseReason) {
        self.redirect_to(entry, reason, None, true);
    }

    /// A validation said that `entry` is still the answer; the request that was validated gets it with this head, and
    /// requests that followed with that of the entry.
    pub fn redirect_with(self, entry: &PinnedEntry, own: StoredHead) {
        self.redirect_to(entry, ReuseReason::Unchanged, Some(Arc::new(own)), true);
    }

    /// A validation said so to the asking request alone: requests that followed are set free.
    pub fn redirect_alone(self, entry: &PinnedEntry, own: StoredHead) {
        self.redirect_to(entry, ReuseReason::Unchanged, Some(Arc::new(own)), false);
    }

    fn redirect_to(mut self, entry: &PinnedEntry, reason: ReuseReason, own: Option<Arc<StoredHead>>, shared: bool) {
        self.done = true;
        self.cache.detach(&self.entry);
        self.entry.redirect(entry.clone(), reason, own, shared);
    }

    /// There will be no answer, or no more of it.
    pub fn fail(mut self, failure: Failure) {
        self.end_failed(failure);
    }

    /// The body is not the one that was to come: nothing of it stays, in memory or on disk.
    pub fn refuse(mut self, failure: Failure) {
        self.done = true;
        self.spool = None;
        self.cache.refuse(&self.entry, failure);
    }

    /// The body is whole, and nobody gets it but those who read it already.
    pub fn finish_for_readers(mut self, trailers: Option<Fields>) {
        self.spool = None;
        if !self.entry.passes() {
            self.cache.drop_entry(&self.entry);
            self.entry.let_pass();
        }
        self.finish(trailers);
    }

    /// The budget holds at once: others go, or this body leaves memory as soon as it is on disk, or, without a disk, it
    /// stops being kept.
    fn make_room(&mut self, received: u64) {
        let admitted = self.admits();
        let has_room = received <= self.cache.object_bytes_max(false) && self.cache.make_room();
        if has_room || self.entry.is_alone_on_disk() {
            return;
        }
        if !admitted || received > self.cache.object_bytes_max(true) {
            return self.let_pass();
        }
        self.entry.go_alone();
        self.begin_spool();
    }

    /// Keeps the body no more.
    fn let_pass(&mut self) {
        self.spool = None;
        let why = if self.admitted == Some(Admitted::Behind) { Fate::DiskBehind } else { Fate::TooLong };
        self.cache.note_passed(&self.entry, why);
        self.cache.detach(&self.entry);
        self.entry.let_pass();
    }

    /// The part of a stored answer that came stays, if the rest of the same can be asked for and it would be kept as a whole.
    fn end_failed(&mut self, failure: Failure) {
        self.done = true;
        if !self.is_for_its_readers && self.entry.settle_in_part(&failure) {
            self.entry.add_puts(self.spool.iter_mut().flat_map(|spool| spool.finish()));
            return self.cache.admit(&self.entry);
        }
        self.cache.detach(&self.entry);
        self.entry.fail(failure);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.done {
            self.end_failed(Failure {
                status: 502,
                word: "abandoned",
                detail: "the fetch was given up".into(),
                kind: FailureKind::Answer,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache;
    use crate::entry::{Arrival, Entry};
    use crate::policy::{self, Storable, Times};
    use crate::store::{Settings, Store};
    use larder_wire::ResponseHead;
    use larder_wire::date::Stamp;
    use larder_wire::parse::{self, Parsed};

    const KEY: &[u8] = b"http://a.example/x";

    fn lab() -> (tempfile::TempDir, Arc<Store>, Arc<Cache>) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&[folder.path().to_path_buf()], &Settings::small()).unwrap();
        let cache = Cache::over(cache::Settings::default(), Some(Arc::clone(&store)));
        (folder, store, cache)
    }

    /// The activity of an entry is larger than the entry itself.
    #[test]
    fn an_entry_that_nobody_asks_for_holds_nothing_more_once_it_is_on_disk() {
        let (_folder, store, cache) = lab();
        let (reader, mut writer) = cache.beside(KEY);
        let entry = reader.entry().clone();
        writer.store(StoredHead::new(ResponseHead::new(200), None, Stamp(0)), Some(1));
        writer.push(vec![1].into());
        writer.finish(None);
        drop(reader);
        store.sync().wait();
        assert!(entry.on_disk().is_some());
        cache.account_for_disk(std::time::Instant::now());
        assert!(entry.is_at_rest());
    }

    /// A response that a neighbour keeps: all who ask while it comes get it, and nothing of it stays, in memory or on disk.
    #[test]
    fn a_response_for_its_readers_leaves_with_them() {
        let (_folder, store, cache) = lab();
        for turn in 0..3 {
            let (reader, mut writer) = cache.beside(KEY);
            writer.is_for_its_readers();
            writer.store(StoredHead::new(ResponseHead::new(200), None, Stamp(0)), Some(100_000));
            writer.push(vec![1; 100_000].into());
            writer.finish(None);
            assert!(reader.is_ready(&(0..100_000)), "{turn}: its reader has all of it");
            drop(reader);
            store.sync().wait();
            assert_eq!((cache.stats().objects, store.stats().heads), (0, 0), "{turn}");
        }
        assert!(cache.stats().memory_bytes < 100_000, "its memory is free again");
    }

    /// A neighbour keeps it: the part that came before it broke off is of no more use here than all of it would have been.
    #[test]
    fn a_response_for_its_readers_that_breaks_off_leaves_with_them() {
        for (is_for_its_readers, left) in [(false, 1), (true, 0)] {
            let (_folder, store, cache) = lab();
            let (mut reader, mut writer) = cache.beside(KEY);
            if is_for_its_readers {
                writer.is_for_its_readers();
            }
            writer.store(mendable(), Some(100_000));
            writer.push(vec![1; 50_000].into());
            drop(writer);
            let (mut cx, mut read) = (Context::from_waker(std::task::Waker::noop()), Vec::new());
            let came = reader.poll_read(&mut cx, 0..100_000, &mut read);
            assert!(matches!(came, Poll::Ready(Ok(50_000))), "{came:?}");
            let lacks = reader.poll_read(&mut cx, 50_000..100_000, &mut read);
            assert!(matches!(lacks, Poll::Ready(Err(_))), "its reader waits for no more: {lacks:?}");
            drop(reader);
            store.sync().wait();
            assert_eq!((cache.stats().objects, store.stats().heads), (left, left), "{is_for_its_readers}");
        }
    }

    /// The head of a response of which parts can be put together.
    fn mendable() -> StoredHead {
        let mut head = ResponseHead::new(200);
        head.fields.push("ETag", "\"v1\"");
        head.fields.push("Cache-Control", "max-age=60");
        let request = parse::request(b"GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n", &Default::default());
        let Ok(Parsed::Complete { head: request, .. }) = request else { panic!("{request:?}") };
        let times = Times { requested: Stamp(9), received: Stamp(9) };
        let storable = policy::storable(&request, &head, times, &policy::Settings::default());
        let Storable::Yes(terms) = storable else { panic!("{storable:?}") };
        StoredHead::new(head, Some(terms), Stamp(9))
    }

    /// An entry of a part is left when its body and its head are on disk.
    #[test]
    fn a_part_that_nobody_asks_for_holds_nothing_more_once_it_is_on_disk() {
        let (_folder, store, cache) = lab();
        let (reader, writer) = cache.beside(KEY);
        let entry = reader.entry().clone();
        let fill = writer.store_part(mendable(), &(3..4), 10);
        let mut fill = fill.expect("a strong tag permits a part");
        fill.push(&cache, vec![1].into());
        drop(fill);
        cache.look_later(&entry);
        drop(reader);
        store.sync().wait();
        cache.account_for_disk(std::time::Instant::now());
        assert!(entry.on_disk().is_some());
        assert!(entry.is_at_rest());
    }

    #[test]
    fn a_fetch_that_ends_without_a_head_fails_its_entry_and_leaves_nothing_behind() {
        let cache = Cache::new(cache::Settings::default());
        let (mut reader, writer) = cache.beside(KEY);
        writer.finish(None);
        let arrival = reader.poll_arrival(&Context::from_waker(std::task::Waker::noop()));
        assert!(matches!(&arrival, Poll::Ready(Arrival::Failed(_))), "{arrival:?}");
        assert_eq!(cache.stats().objects, 0);
    }

    #[test]
    fn only_users_pin_an_entry() {
        let cache = Cache::new(cache::Settings::default());
        let (reader, mut writer) = cache.beside(KEY);
        let entry: Arc<Entry> = Arc::clone(reader.entry());
        writer.store(StoredHead::new(ResponseHead::new(200), None, Stamp(0)), Some(1));
        writer.push(vec![1].into());
        drop(reader);
        assert!(entry.is_pinned(), "its fetch goes on");
        let watch = writer.watch(None);
        writer.finish(None);
        assert!(entry.is_pinned(), "its fetch is watched");
        drop(watch);
        assert!(!entry.is_pinned(), "this look at it is no use of it");
        let hit = cache.open(&entry).unwrap();
        assert!(entry.is_pinned());
        let (validating, writer) = cache.beside(KEY);
        drop(hit);
        assert!(entry.is_pinned(), "a validation may name it");
        let named = writer.candidates()[0].0.clone();
        writer.redirect(&named, ReuseReason::Unchanged);
        drop(named);
        assert!(entry.is_pinned(), "it is the answer to a request that has not looked yet");
        drop(validating);
        assert!(!entry.is_pinned());
    }
}
