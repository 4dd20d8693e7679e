//! The body of an origin's response, piece by piece, whatever protocol carries it.

use super::fault::UpstreamFault;
use super::h1;
use bytes::Bytes;
use larder_wire::Fields;
use larder_wire::framing::Framing;
use std::future::Future;

/// The body of a response. The connection is given back when the body is over, and closed when this is dropped before.
pub struct BodySource {
    /// `None` once the body is over.
    connection: Option<h1::Connection>,
    trailers: Option<Box<Fields>>,
    length: Option<u64>,
}

impl BodySource {
    /// The body that follows the head on this connection.
    pub(super) fn of(connection: h1::Connection) -> BodySource {
        let length = match connection.framing() {
            Framing::Length(length) => Some(length),
            Framing::None => Some(0),
            Framing::Chunked | Framing::UntilClose => None,
        };
        let mut body = BodySource { connection: Some(connection), trailers: None, length };
        body.release_if_over();
        body
    }

    /// The length of the body, if the head says it.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// The next piece; `None` at the end. Nothing is read before it is asked for. Meanwhile the rest of the request's body is
    /// sent, if the origin answered before it was over; what is unsent when the response is over stays so, and the connection is
    /// closed. Cancel-safe. After a fault there is nothing but that fault.
    pub async fn next(&mut self) -> Result<Option<Bytes>, UpstreamFault> {
        let Some(connection) = &mut self.connection else { return Ok(None) };
        let piece = match connection.is_sending() {
            false => connection.receiver().body().await?,
            // Boxed, because it is rare and large: a fetch is copied as it begins.
            true => Box::pin(connection.next_piece_while_sending()).await?,
        };
        self.release_if_over();
        Ok(piece)
    }

    /// The trailer fields, once the body is over; `None` where there are none.
    pub fn trailers(&mut self) -> Option<Fields> {
        self.trailers.take().map(|trailers| *trailers)
    }

    /// Whether the request's body is still on its way to the origin: then [`BodySource::send_beside`] is for all waits.
    pub fn is_sending(&self) -> bool {
        self.connection.as_ref().is_some_and(h1::Connection::is_sending)
    }

    /// Waits for `work` and sends the rest of the request's body meanwhile. The reader of the response may wait for the client,
    /// and the client for its request to be taken.
    pub async fn send_beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        match &mut self.connection {
            Some(connection) => connection.send_beside(work).await,
            None => work.await,
        }
    }

    fn release_if_over(&mut self) {
        if let Some(mut connection) = self.connection.take_if(|connection| connection.is_over()) {
            self.trailers = connection.trailers().map(Box::new);
            connection.release();
        }
    }
}
