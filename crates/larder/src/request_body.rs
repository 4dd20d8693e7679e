//! The body of a request as values, on its way from a client to an origin.

use bytes::Bytes;
use larder_wire::framing::{self, Framing};
use larder_wire::{Fault, Fields, RequestHead};

/// A piece of a request's body.
#[derive(Debug)]
pub enum Piece {
    /// Some of its bytes.
    Data(Bytes),
    /// Its end, with the trailer fields.
    End(Fields),
}

/// The body of a request as its head declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBody {
    /// None follows.
    None,
    /// So many bytes follow.
    Known(u64),
    /// Bytes follow, their number is not known before their end.
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
