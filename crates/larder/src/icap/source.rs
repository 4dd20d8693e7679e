//! The body of a message on its way to a service: where its pieces come from, and those that are kept.

use super::Trouble;
use crate::request_body::Piece;
use crate::upstream::{BodySource, UpstreamFault, UpstreamFaultKind};
use bytes::Bytes;
use larder_wire::Fields;
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::rc::Rc;
use tokio::sync::mpsc;

/// Where the pieces of a body come from.
pub enum Origin {
    /// There is no body, or no more of it.
    None,
    /// The answer of an origin.
    Answer(Box<BodySource>),
    /// The request of a client, or a stored response. A sender that is dropped before the end has left.
    Pieces(mpsc::Receiver<Piece>),
}

/// A body of which pieces may have been taken before they are given to somebody.
pub struct Body {
    /// Pieces that come first.
    pub held: VecDeque<Bytes>,
    /// The others.
    pub origin: Origin,
    /// The end came behind the pieces that are held, with these trailer fields.
    pub end: Option<Fields>,
    /// The declared length.
    pub length: Option<u64>,
    /// Why the pieces broke off, where they are those of a service's reply.
    pub fault: Option<Rc<OnceCell<UpstreamFault>>>,
}

impl Body {
    /// No body.
    pub fn none() -> Body {
        Body { held: VecDeque::new(), origin: Origin::None, end: Some(Fields::new()), length: Some(0), fault: None }
    }

    /// The body of an origin's answer.
    pub fn of_answer(body: BodySource) -> Body {
        let length = body.length();
        Body { held: VecDeque::new(), origin: Origin::Answer(Box::new(body)), end: None, length, fault: None }
    }

    /// A body whose pieces come from another task.
    pub fn of_pieces(pieces: mpsc::Receiver<Piece>, length: Option<u64>) -> Body {
        Body { held: VecDeque::new(), origin: Origin::Pieces(pieces), end: None, length, fault: None }
    }

    /// The body of a service's reply, on its way to the next service or to the origin. `fault` says why its pieces broke off.
    pub fn of_reply(pieces: mpsc::Receiver<Piece>, fault: Rc<OnceCell<UpstreamFault>>, length: Option<u64>) -> Body {
        Body { fault: Some(fault), ..Body::of_pieces(pieces, length) }
    }

    /// Whether it is known to have no byte.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && (self.end.is_some() || self.length == Some(0))
    }

    /// The next piece; `None` at the end. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Trouble> {
        if let Some(piece) = self.held.pop_front() {
            return Ok(Some(piece));
        }
        if self.end.is_some() {
            return Ok(None);
        }
        match &mut self.origin {
            Origin::None => self.end = Some(Fields::new()),
            Origin::Answer(body) => match body.next().await.map_err(Trouble::Source)? {
                Some(piece) => return Ok(Some(piece)),
                None => self.end = Some(body.trailers().unwrap_or_default()),
            },
            Origin::Pieces(pieces) => match pieces.recv().await {
                Some(Piece::Data(piece)) => return Ok(Some(piece)),
                Some(Piece::End(trailers)) => self.end = Some(trailers),
                None => {
                    let of_reply = self.fault.as_ref().and_then(|fault| fault.get().cloned());
                    let detail = "the message that a service looked at broke off";
                    let fault = of_reply.unwrap_or_else(|| UpstreamFault::new(UpstreamFaultKind::ClientGone, detail));
                    return Err(Trouble::Source(fault));
                }
            },
        }
        Ok(None)
    }

    /// Puts pieces back that were taken last.
    pub fn put_back(&mut self, pieces: VecDeque<Bytes>) {
        for piece in pieces.into_iter().rev() {
            self.held.push_front(piece);
        }
    }
}

/// Copies of the pieces that were given to a service, as long as they are few.
pub(super) struct Kept {
    pieces: Option<VecDeque<Bytes>>,
    bytes: u64,
    bytes_max: u64,
}

impl Kept {
    pub(super) fn new(bytes_max: u64) -> Kept {
        Kept { pieces: Some(VecDeque::new()), bytes: 0, bytes_max }
    }

    /// Keeps a piece that is about to be given away. One that would be too much lets all of them go.
    pub(super) fn piece(&mut self, piece: &Bytes) {
        self.bytes = self.bytes.saturating_add(piece.len() as u64);
        if self.bytes > self.bytes_max {
            self.pieces = None;
        }
        if let Some(pieces) = &mut self.pieces {
            pieces.push_back(piece.clone());
        }
    }

    /// Keeps a piece of the preview, however long it is: it is in memory until the service says what it wants.
    pub(super) fn piece_of_preview(&mut self, piece: &Bytes) {
        self.bytes_max = self.bytes_max.max(self.bytes.saturating_add(piece.len() as u64));
        self.piece(piece);
    }

    /// Lets all of them go.
    pub(super) fn forget(&mut self) {
        self.pieces = None;
    }

    /// All pieces that were given away; `None` where they are not all here.
    pub(super) fn take(&mut self) -> Option<VecDeque<Bytes>> {
        self.pieces.take()
    }

    pub(super) fn is_whole(&self) -> bool {
        self.pieces.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pieces_that_are_put_back_come_again_in_their_order() {
        let (sender, receiver) = mpsc::channel(4);
        for piece in ["a", "b"] {
            sender.send(Piece::Data(piece.into())).await.unwrap();
        }
        sender.send(Piece::End(Fields::new())).await.unwrap();
        let mut body = Body::of_pieces(receiver, None);
        let mut kept = Kept::new(2);
        while let Some(piece) = body.next().await.unwrap() {
            kept.piece(&piece);
        }
        body.put_back(kept.take().unwrap());
        assert_eq!(body.next().await.unwrap().as_deref(), Some(&b"a"[..]));
        assert_eq!(body.next().await.unwrap().as_deref(), Some(&b"b"[..]));
        assert!(body.next().await.unwrap().is_none() && body.end.is_some());
    }

    #[tokio::test]
    async fn a_sender_that_leaves_is_trouble_and_a_long_body_is_not_kept() {
        let (sender, receiver) = mpsc::channel(4);
        sender.send(Piece::Data("abc".into())).await.unwrap();
        drop(sender);
        let mut body = Body::of_pieces(receiver, None);
        let mut kept = Kept::new(2);
        kept.piece(&body.next().await.unwrap().unwrap());
        assert!(!kept.is_whole() && kept.take().is_none());
        assert!(matches!(body.next().await, Err(Trouble::Source(_))));
    }

    #[tokio::test]
    async fn a_reply_that_breaks_off_is_trouble_of_its_service() {
        let (sender, pieces) = mpsc::channel(1);
        let fault = Rc::new(OnceCell::new());
        let of_service = UpstreamFault::new(UpstreamFaultKind::Icap, "it broke off");
        fault.set(of_service.clone()).unwrap();
        drop(sender);
        let mut body = Body::of_reply(pieces, fault, None);
        assert_eq!(body.next().await, Err(Trouble::Source(of_service)));
    }
}
