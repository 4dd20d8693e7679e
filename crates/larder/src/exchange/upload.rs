//! Carries a request's body from the client's connection to the fetch that sends it.

use super::stream::{BodyEnd, ClientStream};
use crate::request_body::Piece;
use crate::upstream::UpstreamFault;
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::rc::Rc;
use tokio::sync::mpsc;

/// Pieces that may wait for the fetch. No more is read from the client while the queue is full.
const PIECES_MAX: usize = 4;

/// The client's end of a request body on its way to the fetch.
pub struct Upload {
    pieces: mpsc::Sender<Piece>,
    /// Pieces that were read from the client and not yet taken by the fetch.
    held: VecDeque<Piece>,
    /// The fetch's end, where the body goes by way of a service that has it already.
    looked_at: Option<mpsc::Receiver<Piece>>,
    /// Why that broke off.
    fault: Option<Rc<OnceCell<UpstreamFault>>>,
    is_over: bool,
}

impl Upload {
    /// The client's end and the fetch's end.
    pub fn new() -> (Upload, mpsc::Receiver<Piece>) {
        Upload::after(Vec::new())
    }

    /// [`Upload::new`] of a body of which these pieces were read already.
    pub fn after(read: Vec<Piece>) -> (Upload, mpsc::Receiver<Piece>) {
        let (pieces, taken) = mpsc::channel(PIECES_MAX);
        (Upload { pieces, held: read.into(), looked_at: None, fault: None, is_over: false }, taken)
    }

    /// A body that comes from a service, while what is left of the client's goes on by `upload` to that service. `fault` says why it
    /// broke off, where the service gave another body.
    pub fn by_way_of(
        upload: Option<Upload>,
        looked_at: mpsc::Receiver<Piece>,
        fault: Option<Rc<OnceCell<UpstreamFault>>>,
    ) -> Upload {
        let mut upload = upload.unwrap_or_else(|| Upload { is_over: true, ..Upload::new().0 });
        (upload.looked_at, upload.fault) = (Some(looked_at), fault);
        upload
    }

    /// The pieces for the fetch, where they come by way of a service.
    pub fn take_looked_at(&mut self) -> Option<mpsc::Receiver<Piece>> {
        self.looked_at.take()
    }

    /// Why the pieces broke off, where a service gave them.
    pub fn fault(&self) -> Option<Rc<OnceCell<UpstreamFault>>> {
        self.fault.clone()
    }

    /// Moves one piece. False after the last piece, and when the fetch takes no more. Cancel-safe.
    pub async fn step<S: ClientStream>(&mut self, stream: &mut S) -> Result<bool, BodyEnd> {
        if self.is_over {
            return Ok(false);
        }
        if self.held.is_empty() {
            self.held.push_back(stream.next_body_piece().await?);
        }
        let Ok(place) = self.pieces.reserve().await else { return Ok(false) };
        let Some(piece) = self.held.pop_front() else { return Ok(true) };
        let more = matches!(piece, Piece::Data(_));
        place.send(piece);
        Ok(more)
    }
}
