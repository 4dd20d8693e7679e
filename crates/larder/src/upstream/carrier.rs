//! The connection or stream that carries a response, whatever its protocol.

use super::fault::UpstreamFault;
use super::permits::Permit;
use super::{h1, h2};
use crate::client::Client;
use crate::mount::Spool;
use crate::record::Peer;
use bytes::Bytes;
use larder_wire::Fields;
use larder_wire::framing::Framing;
use std::future::Future;

/// The carrier of one response. Dropped before its end, it ends the response; a connection of HTTP/1.1 is closed by that.
pub(super) enum Carrier {
    /// A connection, which has one request at a time.
    H1(h1::Connection),
    /// A stream beside others, and the permit of its request.
    H2(h2::Stream, Permit),
}

impl Carrier {
    /// The far end.
    pub fn peer(&self) -> Peer {
        match self {
            Carrier::H1(connection) => connection.peer(),
            Carrier::H2(stream, _) => stream.peer(),
        }
    }

    /// The length of the response's body, if the head says it.
    pub fn length(&self) -> Option<u64> {
        match self {
            Carrier::H1(connection) => match connection.framing() {
                Framing::Length(length) => Some(length),
                Framing::None => Some(0),
                Framing::Chunked | Framing::UntilClose => None,
            },
            Carrier::H2(stream, _) => stream.length(),
        }
    }

    /// The next piece of the response's body; `None` at its end. The rest of the request is sent meanwhile.
    pub async fn next_piece(&mut self) -> Result<Option<Bytes>, UpstreamFault> {
        match self {
            Carrier::H1(connection) if !connection.is_sending() => connection.receiver().body().await,
            // Boxed, because they are rare and large: a fetch is copied as it begins.
            Carrier::H1(connection) => Box::pin(connection.next_piece_while_sending()).await,
            Carrier::H2(stream, _) => Box::pin(stream.next_piece()).await,
        }
    }

    /// Waits for `work` and sends the rest of the request meanwhile.
    pub async fn send_beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        match self {
            Carrier::H1(connection) => connection.send_beside(work).await,
            Carrier::H2(stream, _) => stream.send_beside(work).await,
        }
    }

    /// Whether the rest of the request is still to be sent.
    pub fn is_sending(&self) -> bool {
        match self {
            Carrier::H1(connection) => connection.is_sending(),
            Carrier::H2(stream, _) => stream.is_sending(),
        }
    }

    /// Whether the far end is a process of an application that this server runs.
    pub fn is_of_process(&self) -> bool {
        matches!(self, Carrier::H1(connection) if connection.is_of_process())
    }

    /// The buffer for the part of the answer of such a process that the client has not taken yet; `None` where none is needed.
    pub fn answer_spool(&self, client: Option<Client>) -> Option<Spool> {
        match self {
            Carrier::H1(connection) => connection.answer_spool(client),
            Carrier::H2(..) => None,
        }
    }

    /// Whether the response was read to its end.
    pub fn is_over(&self) -> bool {
        match self {
            Carrier::H1(connection) => connection.is_over(),
            Carrier::H2(stream, _) => stream.is_over(),
        }
    }

    /// The trailers of the response, once its body was read to the end; `None` when there were none.
    pub fn trailers(&mut self) -> Option<Fields> {
        match self {
            Carrier::H1(connection) => connection.trailers(),
            Carrier::H2(stream, _) => stream.trailers(),
        }
    }

    /// The response is over: the connection may serve again.
    pub fn release(self) {
        match self {
            Carrier::H1(connection) => connection.release(),
            Carrier::H2(stream, permit) => drop((stream, permit)),
        }
    }
}
