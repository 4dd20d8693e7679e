//! The body of a request as a transport hands it over: its declared length, and its pieces.

use bytes::Bytes;
use larder_wire::framing::{self, Framing};
use larder_wire::{Fault, Fields, RequestHead};
use std::collections::VecDeque;
use tokio::sync::mpsc;

/// A piece of a request's body.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Some of its bytes.
    Data(Bytes),
    /// Its end, with the trailer fields.
    End(Fields),
}

/// The body of a request as its head declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBody {
    /// No body.
    None,
    /// A body of this many bytes.
    Known(u64),
    /// A body whose length is not known before its end.
    Unknown,
}

impl RequestBody {
    /// The body that the framing of a request declares.
    pub fn of(request: &RequestHead) -> Result<RequestBody, Fault> {
        framing::of_request(request).map(|framing| match framing {
            Framing::None => RequestBody::None,
            Framing::Length(length) => RequestBody::Known(length),
            Framing::Chunked | Framing::UntilClose => RequestBody::Unknown,
        })
    }
}

/// The bytes of a body that are kept so that it can be sent once more.
const KEPT_BYTES_MAX: usize = 128 * 1024;

/// The pieces of a request's body as they come. A sender that is dropped before the last one means that the client has left.
#[derive(Debug)]
pub struct Pieces {
    /// Those that were taken before, and come first.
    again: VecDeque<Piece>,
    rest: mpsc::Receiver<Piece>,
    /// Those that were taken, where they are kept.
    kept: Option<Vec<Piece>>,
    kept_bytes: usize,
}

impl From<mpsc::Receiver<Piece>> for Pieces {
    fn from(rest: mpsc::Receiver<Piece>) -> Pieces {
        Pieces { again: VecDeque::new(), rest, kept: None, kept_bytes: 0 }
    }
}

impl Pieces {
    /// Keeps from now on what is taken, as long as that is little.
    pub fn keep(&mut self) {
        (self.kept, self.kept_bytes) = (Some(Vec::new()), 0);
    }

    /// The next piece; `None` where the client has left. Cancel-safe.
    pub async fn recv(&mut self) -> Option<Piece> {
        let piece = match self.again.pop_front() {
            Some(piece) => piece,
            None => self.rest.recv().await?,
        };
        if let Some(kept) = &mut self.kept {
            if let Piece::Data(data) = &piece {
                self.kept_bytes += data.len();
            }
            match self.kept_bytes > KEPT_BYTES_MAX {
                true => self.kept = None,
                false => kept.push(piece.clone()),
            }
        }
        Some(piece)
    }

    /// The body from its beginning, where all pieces that were taken are kept.
    pub fn again(self) -> Option<Pieces> {
        let again = self.kept?.into_iter().chain(self.again).collect();
        Some(Pieces { again, rest: self.rest, kept: None, kept_bytes: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_small_body_comes_again_from_its_beginning() {
        for (bytes, is_kept) in [(KEPT_BYTES_MAX / 2, true), (KEPT_BYTES_MAX, false)] {
            let (to, pieces) = mpsc::channel(8);
            let mut pieces = Pieces::from(pieces);
            pieces.keep();
            for byte in [1, 2] {
                to.try_send(Piece::Data(vec![byte; bytes].into())).unwrap();
                assert!(matches!(pieces.recv().await, Some(Piece::Data(data)) if data[0] == byte));
            }
            to.try_send(Piece::End(Fields::new())).unwrap();
            let again = pieces.again();
            assert_eq!(again.is_some(), is_kept);
            let Some(mut again) = again else { continue };
            for byte in [1, 2] {
                assert!(matches!(again.recv().await, Some(Piece::Data(data)) if data[0] == byte));
            }
            assert!(matches!(again.recv().await, Some(Piece::End(_))));
            assert!(again.again().is_none());
        }
    }
}
