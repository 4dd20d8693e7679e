//! The body of a request on its way to the origin, with its framing.

use super::super::fault::UpstreamFault;
use super::link::Sender;
use crate::request_body::{Piece, Pieces};
use bytes::{Buf, Bytes};
use larder_wire::encode;

/// The part of a request that is still to be sent.
pub(super) struct Upload {
    pieces: Pieces,
    is_chunked: bool,
    /// Bytes that were taken from the client and are not sent yet.
    unsent: Unsent,
    has_last: bool,
    is_over: bool,
}

/// A piece with its framing, or the request's head.
type Unsent = bytes::buf::Chain<bytes::buf::Chain<Bytes, Bytes>, Bytes>;

impl Upload {
    /// A request of which nothing is sent yet.
    pub fn new(head: Vec<u8>, pieces: Pieces, is_chunked: bool) -> Upload {
        Upload { pieces, is_chunked, unsent: framed(head, Bytes::new(), b""), has_last: false, is_over: false }
    }

    /// Whether the request was sent to its end.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Sends until the request is over; without a sender, waits for ever. Cancel-safe: the next call sends the bytes that this
    /// one did not.
    pub async fn send(&mut self, sender: Option<&mut Sender<'_>>) -> Result<(), UpstreamFault> {
        let Some(sender) = sender else { return std::future::pending().await };
        loop {
            sender.send(&mut self.unsent).await?;
            if self.has_last {
                self.is_over = true;
                return Ok(());
            }
            self.unsent = match self.pieces.recv().await {
                Some(Piece::Data(data)) if self.is_chunked => {
                    let mut size = Vec::with_capacity(16);
                    encode::chunk_head(&mut size, data.len());
                    framed(size, data, encode::CHUNK_END)
                }
                Some(Piece::Data(data)) => framed(Vec::new(), data, b""),
                Some(Piece::End(trailers)) => {
                    self.has_last = true;
                    let mut last = Vec::new();
                    if self.is_chunked {
                        encode::last_chunk(&mut last, &trailers);
                    }
                    framed(last, Bytes::new(), b"")
                }
                None => return Err(UpstreamFault::client_left()),
            };
        }
    }
}

fn framed(before: Vec<u8>, data: Bytes, after: &'static [u8]) -> Unsent {
    Bytes::from(before).chain(data).chain(Bytes::from_static(after))
}
