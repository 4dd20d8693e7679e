//! Carries a body from the origin to the entry, at the pace that the entry allows.

use super::checked::{BadBody, Checked};
use super::failure;
use crate::upstream::{BodySource, UpstreamFault};
use bytes::Bytes;
use larder_cache::cache::{Cache, Fill, Writer};
use larder_cache::entry::{PinnedEntry, Room};
use larder_wire::Fields;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Where the pieces of a body go.
pub(super) enum Sink {
    /// An entry, from its start on.
    Entry(Writer),
    /// A hole of an entry.
    Hole(Fill, Arc<Cache>),
    /// A hole that nobody has asked for yet; so long its body may bring nothing before it ends with [`STALLED`].
    Ahead(Fill, Arc<Cache>, Duration),
}

/// The word for a body ahead of a download that brought nothing for too long.
pub(super) const STALLED: &str = "stalled";

impl Sink {
    /// The number of readers.
    pub(super) fn readers(&self) -> usize {
        match self {
            Sink::Entry(writer) => writer.readers(),
            Sink::Hole(fill, _) | Sink::Ahead(fill, ..) => fill.readers(),
        }
    }

    /// The entry.
    fn entry(&self) -> &PinnedEntry {
        match self {
            Sink::Entry(writer) => writer.entry(),
            Sink::Hole(fill, _) | Sink::Ahead(fill, ..) => fill.entry(),
        }
    }

    /// Where the body begins.
    fn start(&self) -> u64 {
        match self {
            Sink::Entry(_) => 0,
            Sink::Hole(fill, _) | Sink::Ahead(fill, ..) => fill.hole().start,
        }
    }

    async fn room(&mut self) -> Room {
        match self {
            Sink::Entry(writer) => writer.room().await,
            Sink::Hole(fill, cache) | Sink::Ahead(fill, cache, _) => fill.room(cache).await,
        }
    }

    fn push(&mut self, piece: Bytes) {
        match self {
            Sink::Entry(writer) => writer.push(piece),
            Sink::Hole(fill, cache) | Sink::Ahead(fill, cache, _) => fill.push(cache, piece),
        }
    }

    /// The part of the next piece that belongs into a hole.
    fn fitting(&mut self, piece: Bytes) -> Bytes {
        match self {
            Sink::Entry(_) => piece,
            Sink::Hole(fill, _) | Sink::Ahead(fill, ..) => fill.fitting(piece),
        }
    }

    /// The next piece of the body that goes there. `None` when it brought nothing for too long.
    async fn next_of(&self, body: &mut BodySource) -> Option<Result<Option<Bytes>, UpstreamFault>> {
        match self {
            // Boxed, because a timer is large, and each fetch would have the room for it.
            Sink::Ahead(.., silent_max) => Box::pin(timeout(*silent_max, body.next())).await.ok(),
            _ => Some(body.next().await),
        }
    }

    /// Whether a hole is filled, even if the origin sends more.
    fn is_full(&self) -> bool {
        matches!(self, Sink::Hole(fill, _) | Sink::Ahead(fill, ..) if fill.is_full())
    }

    fn finish(self, trailers: Option<Fields>) {
        match self {
            Sink::Entry(writer) => writer.finish(trailers),
            Sink::Hole(fill, cache) | Sink::Ahead(fill, cache, _) => {
                let entry = fill.entry().clone();
                drop(fill);
                cache.look_later(&entry);
            }
        }
    }

    /// Fails the entry or the hole; gives the word for the fault.
    fn fail(self, fault: &UpstreamFault) -> &'static str {
        match self {
            Sink::Entry(writer) => writer.fail(failure(fault)),
            Sink::Hole(fill, _) | Sink::Ahead(fill, ..) => fill.fail(failure(fault)),
        }
        fault.kind.as_str()
    }

    /// Ends a body that is not the one that was named: nothing of it stays, and its readers do not get its end. Gives the word.
    fn refuse(self, bad: &BadBody) -> &'static str {
        let failure = bad.failure();
        let word = failure.word;
        match self {
            Sink::Entry(writer) => writer.refuse(failure),
            Sink::Hole(fill, cache) | Sink::Ahead(fill, cache, _) => {
                cache.refuse(fill.entry(), failure.clone());
                fill.fail(failure);
            }
        }
        word
    }
}

/// Carries the body to its end. The error is the word for the fault that broke the response off.
pub(super) async fn pour(
    mut sink: Sink,
    mut body: BodySource,
    checked: Option<Box<Checked>>,
) -> Result<(), &'static str> {
    if let Some(checked) = checked {
        // Boxed, because few bodies have a named digest.
        return Box::pin(pour_checked(sink, body, checked)).await;
    }
    loop {
        if !sink.is_full() {
            let room = match body.works_beside() {
                false => sink.room().await,
                // Boxed, because it is rare and large: a fetch is copied as it begins.
                true => Box::pin(body.work_beside(sink.room())).await,
            };
            if room == Room::Gone {
                return Ok(());
            }
        }
        let Some(next) = sink.next_of(&mut body).await else { return Err(STALLED) };
        match next {
            Ok(Some(_)) if sink.is_full() => return Ok(()),
            Ok(Some(piece)) => sink.push(piece),
            Ok(None) => {
                sink.finish(body.trailers());
                return Ok(());
            }
            Err(fault) => return Err(sink.fail(&fault)),
        }
    }
}

/// [`pour`] for a body whose digest was named.
async fn pour_checked(mut sink: Sink, mut body: BodySource, mut checked: Box<Checked>) -> Result<(), &'static str> {
    let entry = sink.entry().clone();
    let mut at = sink.start();
    let is_over = loop {
        if !sink.is_full() {
            let room = match body.works_beside() {
                false => sink.room().await,
                true => Box::pin(body.work_beside(sink.room())).await,
            };
            if room == Room::Gone {
                break false;
            }
        }
        let Some(next) = sink.next_of(&mut body).await else { return Err(STALLED) };
        match next {
            Ok(Some(_)) if sink.is_full() => break true,
            Ok(Some(piece)) => {
                let piece = sink.fitting(piece);
                if piece.is_empty() {
                    continue;
                }
                let end = at + piece.len() as u64;
                match checked.piece(&entry, at, piece).await {
                    Ok(ready) => ready.into_iter().for_each(|piece| sink.push(piece)),
                    Err(bad) => return Err(sink.refuse(&bad)),
                }
                at = end;
            }
            Ok(None) => match checked.last_piece(&entry) {
                Ok(last) => {
                    last.into_iter().for_each(|piece| sink.push(piece));
                    break true;
                }
                Err(bad) => return Err(sink.refuse(&bad)),
            },
            Err(fault) => return Err(sink.fail(&fault)),
        }
    };
    if let Err(bad) = checked.afterwards(&entry).await {
        return Err(sink.refuse(&bad));
    }
    match sink {
        _ if !is_over => {}
        Sink::Entry(writer) if checked.is_for_readers() => writer.finish_for_readers(body.trailers()),
        Sink::Hole(fill, cache) if checked.is_for_readers() => {
            cache.drop_entry(fill.entry());
            Sink::Hole(fill, cache).finish(body.trailers());
        }
        sink => sink.finish(body.trailers()),
    }
    Ok(())
}
