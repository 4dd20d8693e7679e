//! A request body that was read before its answer was looked up, and is sent as it is if an origin has to be asked.

use crate::git::Question;
use crate::request_body::{Piece, RequestBody};
use crate::upstream::OutgoingBody;
use bytes::Bytes;
use larder_wire::Fields;
use tokio::sync::mpsc;

/// The body of a POST whose answer may be stored.
#[derive(Debug)]
pub struct Posted {
    /// Its bytes.
    pub body: Bytes,
    /// Its question; `None` where its answer may not be stored.
    pub question: Option<Question>,
}

impl Posted {
    /// Gives the fields of the request the length of this body.
    pub(super) fn declare(&self, fields: &mut Fields) {
        fields.set("Content-Length", self.body.len().to_string());
        // The body is here, so nobody waits for leave to send it.
        fields.remove("Expect");
    }

    /// The body for one call of the origin.
    pub(super) fn outgoing(&self) -> OutgoingBody {
        let (sending, pieces) = mpsc::channel(2);
        for piece in [Piece::Data(self.body.clone()), Piece::End(Fields::new())] {
            // There is room for both.
            let _ = sending.try_send(piece);
        }
        OutgoingBody { pieces: pieces.into(), length: RequestBody::Known(self.body.len() as u64), is_gathered: false }
    }
}
