//! Writes a body to disk as it comes, in whole blocks.

use crate::entry::DiskLocation;
use crate::key::Key;
use crate::store::{BLOCK_BYTES, Put, Putting, Store};
use bytes::Bytes;
use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Gathers pieces up to the end of their block and hands them to the store.
pub(super) struct Spool {
    location: Arc<DiskLocation>,
    /// Where the gathered pieces begin.
    at: u64,
    gathered: Vec<Bytes>,
    gathered_bytes: u64,
    writing: VecDeque<(Range<u64>, Putting)>,
    writing_bytes: u64,
    refused: bool,
}

impl Spool {
    pub(super) fn new(location: Arc<DiskLocation>, at: u64) -> Spool {
        Spool {
            location,
            at,
            gathered: Vec::new(),
            gathered_bytes: 0,
            writing: VecDeque::new(),
            writing_bytes: 0,
            refused: false,
        }
    }

    /// Takes the next piece.
    pub(super) fn push(&mut self, mut piece: Bytes) {
        while !piece.is_empty() && !self.refused {
            let end = self.at + self.gathered_bytes;
            let missing = BLOCK_BYTES - end % BLOCK_BYTES;
            let part = piece.split_to(piece.len().min(missing as usize));
            let full = part.len() as u64 == missing;
            self.gathered_bytes += part.len() as u64;
            self.gathered.push(part);
            if full {
                self.flush();
            }
        }
    }

    /// Hands over what is gathered though its block is not full.
    pub(super) fn flush(&mut self) {
        if self.gathered.is_empty() {
            return;
        }
        let range = self.at..self.at + self.gathered_bytes;
        let pieces = std::mem::take(&mut self.gathered);
        let putting = self.location.put_extent(self.at, pieces);
        self.writing.push_back((range.clone(), putting));
        self.writing_bytes += self.gathered_bytes;
        (self.at, self.gathered_bytes) = (range.end, 0);
    }

    /// Hands over all that is left, and what is not known to be written yet.
    pub(super) fn finish(&mut self) -> impl Iterator<Item = Putting> {
        self.flush();
        std::mem::take(&mut self.writing).into_iter().map(|(_, putting)| putting)
    }

    /// How much is handed over and not known to be written.
    pub(super) fn writing_bytes(&self) -> u64 {
        self.writing_bytes
    }

    /// The store did not take some of it, and gets no more.
    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Hands over no more.
    pub(super) fn give_up(&mut self) {
        self.refused = true;
        self.gathered.clear();
        self.gathered_bytes = 0;
    }

    /// The store that it goes to.
    pub(super) fn store(&self) -> &Store {
        &self.location.store
    }

    /// The key under which it lies there.
    pub(super) fn key(&self) -> &Key {
        &self.location.key
    }

    /// A range that has been written since the last call; wakes the task when there is another.
    pub(super) fn poll_written(&mut self, cx: &mut Context<'_>) -> Option<Range<u64>> {
        while let Some((range, putting)) = self.writing.front_mut() {
            let Poll::Ready(put) = Pin::new(putting).poll(cx) else { return None };
            let range = range.clone();
            self.writing_bytes -= range.end - range.start;
            self.writing.pop_front();
            match put {
                Put::Stored => return Some(range),
                Put::Refused(_) => self.refused = true,
            }
        }
        None
    }

    /// Ready when the store takes more.
    pub(super) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        self.location.store.queue_room(cx)
    }
}
