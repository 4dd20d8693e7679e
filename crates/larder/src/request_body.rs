//! The body of a request as a transport hands it over: its declared length, and its pieces.

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
