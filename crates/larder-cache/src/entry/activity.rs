//! The state of an entry that exists only while it is written, waited for or read in part. Most stored responses are whole and nobody
//! waits for them, so most entries do without an [`Activity`].

use super::{Failure, State};
use crate::store::{Put, Putting};
use larder_wire::Fields;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// Readers that wait, holes that are being filled, and writes that are on their way to the disk.
#[derive(Default)]
pub(super) struct Activity {
    /// Body bytes that came from the start on, whether they are still here or not.
    pub(super) received: u64,
    /// Body bytes that came in any way: from the start on, and into holes.
    pub(super) brought: u64,
    pub(super) trailers: Option<Box<Fields>>,
    readers: Vec<Option<ReaderSlot>>,
    reader_count: usize,
    /// Readers that came since the activity began, those included that have left.
    readers_ever: usize,
    pub(super) writer: Option<Waker>,
    /// The fetch that is told when a reader leaves. An entry does not keep its activity for that alone.
    watcher: Option<Waker>,
    pub(super) fills: Vec<HoleFill>,
    fill_count: u64,
    /// Writes that are on their way to the disk.
    puts: Vec<Putting>,
    /// How far the fetch came towards its origin.
    pub(super) contact: Contact,
    /// The client of the fetch was answered with a stored response because the origin was silent: the fetch goes on without
    /// readers, and requests that may have that response need not wait.
    pub(super) is_late: bool,
    /// Its last reader held the fetch back, and left.
    is_left_held: bool,
}

/// How far a fetch came towards its origin, as far as is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contact {
    /// Not far: it may be waiting for its turn here.
    #[default]
    Unknown,
    /// A connection is being made since this moment.
    Connecting(Instant),
    /// An address has accepted a connection, and TLS is under way.
    Accepted,
    /// There is a connection.
    Made,
}

/// A fetch that its readers hold back stays so far ahead of the fastest of them.
const HELD_BYTES: u64 = 256 * 1024;

/// One reader of an entry that is not whole.
#[derive(Default)]
pub(super) struct ReaderSlot {
    pub(super) position: u64,
    waker: Option<Waker>,
    /// Its client takes the body at a limited pace, and the fetch is not to be faster.
    holds_back: bool,
    /// Why the bytes that the reader was waiting for will not come.
    pub(super) failed: Option<Failure>,
}

/// A hole that a fetch is filling.
pub(super) struct HoleFill {
    pub(super) number: u64,
    /// The bytes that are still to come.
    pub(super) range: Range<u64>,
    /// The origin said that these bytes belong to the same representation.
    pub(super) confirmed: bool,
    /// Nobody has asked for them: they are fetched ahead of the stream, and others will follow them.
    pub(super) is_ahead: bool,
    pub(super) waker: Option<Waker>,
}

impl Activity {
    fn is_over(&self) -> bool {
        let written = self.puts.is_empty() && self.fills.is_empty() && self.writer.is_none();
        written && self.reader_count == 0 && self.trailers.is_none()
    }

    fn add_reader(&mut self) -> usize {
        self.reader_count += 1;
        self.readers_ever += 1;
        match self.readers.iter().position(Option::is_none) {
            Some(free) if self.readers.len() > self.reader_count => {
                self.readers[free] = Some(ReaderSlot::default());
                free
            }
            _ => {
                self.readers.push(Some(ReaderSlot::default()));
                self.readers.len() - 1
            }
        }
    }

    /// Takes on a hole; returns the number under which it is known.
    pub(super) fn begin_fill(&mut self, range: Range<u64>, is_ahead: bool) -> u64 {
        self.fill_count += 1;
        self.fills.push(HoleFill { number: self.fill_count, range, confirmed: false, is_ahead, waker: None });
        self.fill_count
    }
}

#[cfg(test)]
impl super::Entry {
    /// It holds nothing that it needs only while it is written, waited for or read in part.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.state.read().activity.is_none()
    }
}

impl State {
    /// The activity, made now if the entry had none.
    pub(super) fn activity(&mut self) -> &mut Activity {
        self.activity.get_or_insert_default()
    }

    /// Gives back what a whole entry that nobody waits for does not need.
    pub(super) fn rest(&mut self) {
        if !self.life.is_under_way() && self.activity.as_ref().is_some_and(|activity| activity.is_over()) {
            self.activity = None;
        }
    }

    pub(super) fn is_late(&self) -> bool {
        self.activity.as_ref().is_some_and(|activity| activity.is_late)
    }

    pub(super) fn received(&self) -> u64 {
        self.activity.as_ref().map_or(0, |activity| activity.received)
    }

    pub(super) fn fills(&self) -> &[HoleFill] {
        self.activity.as_ref().map_or(&[], |activity| &activity.fills)
    }

    /// How many readers the entry has that came while it was not whole.
    pub(super) fn reader_count(&self) -> usize {
        self.activity.as_ref().map_or(0, |activity| activity.reader_count)
    }

    /// How many readers came since the activity began.
    pub(super) fn readers_ever(&self) -> usize {
        self.activity.as_ref().map_or(0, |activity| activity.readers_ever)
    }

    /// Gives a new reader its slot. A fetch that was held back for others goes on.
    pub(super) fn add_reader(&mut self) -> usize {
        if self.readers_mut().any(|reader| reader.holds_back) {
            self.wake_writers();
        }
        let activity = self.activity();
        activity.is_left_held = false;
        activity.add_reader()
    }

    /// Whether the last reader held the fetch back: without one it is not to be faster, so it ends.
    pub(super) fn is_left_held(&self) -> bool {
        self.activity.as_ref().is_some_and(|activity| activity.is_left_held)
    }

    /// The fetch goes no further ahead of this reader, if all others say so too.
    pub(super) fn hold_back(&mut self, slot: Option<usize>) {
        if let Some(reader) = self.reader_mut(slot) {
            reader.holds_back = true;
        }
    }

    /// Whether a fetch that has come up to this byte waits for its fastest reader: all of them hold it back, and none of them is
    /// within [`HELD_BYTES`] of it.
    pub(super) fn is_held_back(&self, at: u64) -> bool {
        let readers = || self.activity.iter().flat_map(|activity| activity.readers.iter().flatten());
        let furthest = readers().map(|reader| reader.position).max();
        furthest.is_some_and(|furthest| at.saturating_sub(furthest) >= HELD_BYTES)
            && readers().all(|reader| reader.holds_back)
    }

    pub(super) fn remove_reader(&mut self, slot: usize) {
        let activity = self.activity();
        let left = activity.readers[slot].take();
        activity.reader_count -= 1;
        activity.is_left_held = activity.reader_count == 0 && left.is_some_and(|reader| reader.holds_back);
    }

    pub(super) fn reader(&self, slot: Option<usize>) -> Option<&ReaderSlot> {
        self.activity.as_ref()?.readers.get(slot?)?.as_ref()
    }

    pub(super) fn reader_mut(&mut self, slot: Option<usize>) -> Option<&mut ReaderSlot> {
        self.activity.as_mut()?.readers.get_mut(slot?)?.as_mut()
    }

    fn readers_mut(&mut self) -> impl Iterator<Item = &mut ReaderSlot> {
        self.activity.iter_mut().flat_map(|activity| activity.readers.iter_mut().flatten())
    }

    /// Remembers writes while they are on their way to the disk, and no longer: an entry may be renewed all day.
    pub(super) fn add_puts(&mut self, puts: impl IntoIterator<Item = Putting>) {
        self.drop_finished_puts();
        for put in puts {
            let puts = &mut self.activity().puts;
            puts.reserve_exact(1); // mostly there is one alone
            puts.push(put);
        }
    }

    /// Forgets the writes that are over by now.
    pub(super) fn drop_finished_puts(&mut self) {
        let Some(activity) = &mut self.activity else { return };
        let mut cx = Context::from_waker(Waker::noop());
        let on_disk = &mut self.on_disk;
        activity.puts.retain_mut(|putting| match Pin::new(putting).poll(&mut cx) {
            Poll::Pending => true,
            Poll::Ready(put) => {
                if put != Put::Stored {
                    on_disk.refuse();
                }
                false
            }
        });
        self.rest();
    }

    /// How many writes are on their way to the disk.
    pub(super) fn put_count(&self) -> usize {
        self.activity.as_ref().map_or(0, |activity| activity.puts.len())
    }

    pub(super) fn wake_readers(&mut self) {
        for reader in self.readers_mut() {
            if let Some(waker) = reader.waker.take() {
                waker.wake();
            }
        }
    }

    pub(super) fn wake_writers(&mut self) {
        let Some(activity) = &mut self.activity else { return };
        let fills = activity.fills.iter_mut().filter_map(|fill| fill.waker.take());
        let watcher = activity.watcher.take();
        activity.writer.take().into_iter().chain(fills).chain(watcher).for_each(Waker::wake);
    }

    /// This task is woken when a reader leaves.
    pub(super) fn watch(&mut self, cx: &Context<'_>) {
        let watcher = &mut self.activity().watcher;
        match watcher {
            Some(waker) => waker.clone_from(cx.waker()),
            empty => *empty = Some(cx.waker().clone()),
        }
    }

    /// The readers whose next byte lies in this range get what is here, and no more.
    pub(super) fn fail_readers(&mut self, range: &Range<u64>, failure: &Failure) {
        for reader in self.readers_mut().filter(|reader| range.contains(&reader.position)) {
            reader.failed = Some(failure.clone());
        }
        self.wake_readers();
    }

    /// This task is woken when there is news for its reader.
    pub(super) fn wait(&mut self, slot: Option<usize>, cx: &Context<'_>) {
        if let Some(reader) = self.reader_mut(slot) {
            match &mut reader.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                empty => *empty = Some(cx.waker().clone()),
            }
        }
    }

    /// The first byte that some reader still wants; the greatest number when there is no reader.
    pub(super) fn slowest(&self) -> u64 {
        let readers = self.activity.iter().flat_map(|activity| activity.readers.iter().flatten());
        readers.map(|reader| reader.position).min().unwrap_or(u64::MAX)
    }
}
