//! Carries a body from the origin's connection to the entry, at the pace that the entry allows.

use super::ask::{Uplink, send_all};
use super::failure;
use crate::upstream::{Connection, Receiver, UpstreamFault};
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

/// Carries the body to its end, and the rest of the request's body to the origin meanwhile. The error is the word for the fault
/// that broke the response off.
pub(super) async fn pour(
    mut sink: Sink,
    mut connection: Connection,
    uplink: Option<Box<Uplink>>,
) -> Result<(), &'static str> {
    if let Some(uplink) = uplink {
        return Box::pin(pour_both(sink, connection, uplink)).await;
    }
    loop {
        if !sink.is_full() && sink.room().await == Room::Gone {
            return Ok(());
        }
        match connection.body().await {
            Ok(Some(_)) if sink.is_full() => return Ok(()),
            Ok(Some(piece)) => sink.push(piece),
            Ok(None) => {
                sink.finish(connection.trailers());
                connection.release();
                return Ok(());
            }
            Err(fault) => return Err(sink.fail(&fault)),
        }
    }
}

/// Carries both bodies. The connection is not reused, because it is not known whether the origin read the whole request.
async fn pour_both(mut sink: Sink, mut connection: Connection, mut uplink: Box<Uplink>) -> Result<(), &'static str> {
    let (sender, mut receiver) = connection.split_mut();
    let mut sender = Some(sender);
    loop {
        tokio::select! {
            sent = send_all(&mut uplink, sender.as_mut()), if sender.is_some() => {
                if let (Ok(()), Some(sender)) = (sent, sender.take()) {
                    sender.end();
                }
            }
            piece = next_piece(&mut sink, &mut receiver) => match piece {
                Ok(Some(piece)) => sink.push(piece),
                Ok(None) => {
                    sink.finish(receiver.trailers());
                    return Ok(());
                }
                Err(Some(fault)) => return Err(sink.fail(&fault)),
                Err(None) => return Ok(()),
            },
        }
    }
}

/// The next piece of the response's body; `Err(None)` when nobody wants the rest. Cancel-safe.
async fn next_piece(sink: &mut Sink, receiver: &mut Receiver<'_>) -> Result<Option<Bytes>, Option<UpstreamFault>> {
    if sink.room().await == Room::Gone {
        return Err(None);
    }
    receiver.body().await.map_err(Some)
}
