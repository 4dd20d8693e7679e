//! Carries a body from the origin to the entry, at the pace that the entry allows.

use super::failure;
use crate::upstream::{BodySource, UpstreamFault};
use bytes::Bytes;
use larder_cache::cache::{Cache, Fill, Writer};
use larder_cache::entry::Room;
use larder_wire::Fields;
use std::sync::Arc;

/// Where the pieces of a body go.
pub(super) enum Sink {
    /// An entry, from its start on.
    Entry(Writer),
    /// A hole of an entry.
    Hole(Fill, Arc<Cache>),
}

impl Sink {
    /// The number of readers.
    pub(super) fn readers(&self) -> usize {
        match self {
            Sink::Entry(writer) => writer.readers(),
            Sink::Hole(fill, _) => fill.readers(),
        }
    }

    async fn room(&mut self) -> Room {
        match self {
            Sink::Entry(writer) => writer.room().await,
            Sink::Hole(fill, cache) => fill.room(cache).await,
        }
    }

    fn push(&mut self, piece: Bytes) {
        match self {
            Sink::Entry(writer) => writer.push(piece),
            Sink::Hole(fill, cache) => fill.push(cache, piece),
        }
    }

    /// Whether a hole is filled, even if the origin sends more.
    fn is_full(&self) -> bool {
        matches!(self, Sink::Hole(fill, _) if fill.is_full())
    }

    fn finish(self, trailers: Option<Fields>) {
        match self {
            Sink::Entry(writer) => writer.finish(trailers),
            Sink::Hole(fill, cache) => {
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
            Sink::Hole(fill, _) => fill.fail(failure(fault)),
        }
        fault.kind.as_str()
    }
}

/// Carries the body to its end. The error is the word for the fault that broke the response off.
pub(super) async fn pour(mut sink: Sink, mut body: BodySource) -> Result<(), &'static str> {
    loop {
        if !sink.is_full() {
            let room = match body.is_sending() {
                false => sink.room().await,
                // Boxed, because it is rare and large: a fetch is copied as it begins.
                true => Box::pin(body.send_beside(sink.room())).await,
            };
            if room == Room::Gone {
                return Ok(());
            }
        }
        match body.next().await {
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
