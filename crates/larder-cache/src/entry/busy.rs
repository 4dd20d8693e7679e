//! What an entry needs only while it is written, waited for or read in part. Most of what is stored is whole and nobody
//! waits for it, so most entries do without this.

use super::{Failure, Phase, State};
use crate::store::{Put, Putting};
use larder_wire::Fields;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Readers that wait, holes that are being filled, and what is on its way to the disk.
#[derive(Default)]
pub(super) struct Busy {
    /// Body bytes that came from the start on, whether they are still here or not.
    pub(super) received: u64,
    pub(super) trailers: Option<Box<Fields>>,
    pub(super) readers: Vec<Option<Place>>,
    seated: usize,
    pub(super) writer: Option<Waker>,
    /// The fetch that is told when a reader leaves. Holds nothing busy.
    watcher: Option<Waker>,
    pub(super) fills: Vec<Filling>,
    fill_count: u64,
    /// What is on its way to the disk.
    puts: Vec<Putting>,
    /// The origin was reached for this fetch, as far as is known.
    pub(super) is_reached: bool,
    /// Its client was answered with a stored response because the origin was silent: the fetch goes on without readers, and
    /// whoever may have that response need not wait.
    pub(super) is_late: bool,
}

/// One reader's place in an entry that is not whole.
#[derive(Default)]
pub(super) struct Place {
    pub(super) position: u64,
    waker: Option<Waker>,
    /// What it was waiting for will not come.
    pub(super) failed: Option<Failure>,
}

/// A hole that somebody is filling.
pub(super) struct Filling {
    pub(super) number: u64,
    /// What is still to come.
    pub(super) range: Range<u64>,
    /// The origin said that these bytes belong to the same representation.
    pub(super) confirmed: bool,
    pub(super) waker: Option<Waker>,
}

impl Busy {
    fn is_over(&self) -> bool {
        let written = self.puts.is_empty() && self.fills.is_empty() && self.writer.is_none();
        written && self.seated == 0 && self.trailers.is_none()
    }

    fn sit(&mut self) -> usize {
        self.seated += 1;
        match self.readers.iter().position(Option::is_none) {
            Some(free) if self.readers.len() > self.seated => {
                self.readers[free] = Some(Place::default());
                free
            }
            _ => {
                self.readers.push(Some(Place::default()));
                self.readers.len() - 1
            }
        }
    }

    /// Takes on a hole; gives the number under which it is known.
    pub(super) fn begin_fill(&mut self, range: Range<u64>) -> u64 {
        self.fill_count += 1;
        self.fills.push(Filling { number: self.fill_count, range, confirmed: false, waker: None });
        self.fill_count
    }
}

impl State {
    /// To write what only a busy entry has.
    pub(super) fn busy(&mut self) -> &mut Busy {
        self.busy.get_or_insert_default()
    }

    /// Gives back what a whole entry that nobody waits for does not need.
    pub(super) fn rest(&mut self) {
        if !matches!(self.phase, Phase::Waiting | Phase::Filling)
            && self.busy.as_ref().is_some_and(|busy| busy.is_over())
        {
            self.busy = None;
        }
    }

    pub(super) fn is_late(&self) -> bool {
        self.busy.as_ref().is_some_and(|busy| busy.is_late)
    }

    pub(super) fn received(&self) -> u64 {
        self.busy.as_ref().map_or(0, |busy| busy.received)
    }

    pub(super) fn fills(&self) -> &[Filling] {
        self.busy.as_ref().map_or(&[], |busy| &busy.fills)
    }

    /// How many clients have a place here.
    pub(super) fn seated(&self) -> usize {
        self.busy.as_ref().map_or(0, |busy| busy.seated)
    }

    pub(super) fn sit(&mut self) -> usize {
        self.busy().sit()
    }

    pub(super) fn leave(&mut self, seat: usize) {
        let busy = self.busy();
        busy.readers[seat] = None;
        busy.seated -= 1;
    }

    pub(super) fn place(&self, seat: Option<usize>) -> Option<&Place> {
        self.busy.as_ref()?.readers.get(seat?)?.as_ref()
    }

    pub(super) fn place_mut(&mut self, seat: Option<usize>) -> Option<&mut Place> {
        self.busy.as_mut()?.readers.get_mut(seat?)?.as_mut()
    }

    fn places(&mut self) -> impl Iterator<Item = &mut Place> {
        self.busy.iter_mut().flat_map(|busy| busy.readers.iter_mut().flatten())
    }

    /// Remembers what goes to disk, and only as long as it is on its way: an entry may be renewed all day.
    pub(super) fn add_puts(&mut self, puts: impl IntoIterator<Item = Putting>) {
        self.look_at_puts();
        for put in puts {
            let puts = &mut self.busy().puts;
            puts.reserve_exact(1); // mostly there is one alone
            puts.push(put);
        }
    }

    pub(super) fn look_at_puts(&mut self) {
        let Some(busy) = &mut self.busy else { return };
        let mut cx = Context::from_waker(Waker::noop());
        let refused = &mut self.refused;
        busy.puts.retain_mut(|putting| match Pin::new(putting).poll(&mut cx) {
            Poll::Pending => true,
            Poll::Ready(put) => {
                *refused |= put != Put::Stored;
                false
            }
        });
        self.rest();
    }

    /// How much is on its way to the disk.
    pub(super) fn puts(&self) -> usize {
        self.busy.as_ref().map_or(0, |busy| busy.puts.len())
    }

    pub(super) fn wake_readers(&mut self) {
        for place in self.places() {
            if let Some(waker) = place.waker.take() {
                waker.wake();
            }
        }
    }

    pub(super) fn wake_writers(&mut self) {
        let Some(busy) = &mut self.busy else { return };
        let fills = busy.fills.iter_mut().filter_map(|fill| fill.waker.take());
        let watcher = busy.watcher.take();
        busy.writer.take().into_iter().chain(fills).chain(watcher).for_each(Waker::wake);
    }

    /// This task is woken when a reader leaves.
    pub(super) fn watch(&mut self, cx: &Context<'_>) {
        let watcher = &mut self.busy().watcher;
        match watcher {
            Some(waker) => waker.clone_from(cx.waker()),
            empty => *empty = Some(cx.waker().clone()),
        }
    }

    /// Who stands in this range gets what is here, and no more.
    pub(super) fn fail_readers(&mut self, range: &Range<u64>, failure: &Failure) {
        for place in self.places().filter(|place| range.contains(&place.position)) {
            place.failed = Some(failure.clone());
        }
        self.wake_readers();
    }

    pub(super) fn wait(&mut self, seat: Option<usize>, cx: &Context<'_>) {
        if let Some(place) = self.place_mut(seat) {
            match &mut place.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                empty => *empty = Some(cx.waker().clone()),
            }
        }
    }

    /// The first byte that some reader still wants.
    pub(super) fn slowest(&self) -> u64 {
        let places = self.busy.iter().flat_map(|busy| busy.readers.iter().flatten());
        places.map(|place| place.position).min().unwrap_or(u64::MAX)
    }
}
