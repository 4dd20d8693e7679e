//! Carries a request's body from the client's connection to the fetch that sends it.

use super::stream::{BodyEnd, ClientStream};
use crate::request_body::Piece;
use std::collections::VecDeque;
use tokio::sync::mpsc;

/// Pieces that may wait for the fetch. No more is read from the client while the queue is full.
const PIECES_MAX: usize = 4;

/// The client's end of a request body on its way to the fetch.
pub struct Upload {
    pieces: mpsc::Sender<Piece>,
    /// Pieces that were read from the client and not yet taken by the fetch.
    held: VecDeque<Piece>,
}

impl Upload {
    /// The client's end and the fetch's end.
    pub fn new() -> (Upload, mpsc::Receiver<Piece>) {
        Upload::after(Vec::new())
    }

    /// [`Upload::new`] of a body of which these pieces were read already.
    pub fn after(read: Vec<Piece>) -> (Upload, mpsc::Receiver<Piece>) {
        let (pieces, taken) = mpsc::channel(PIECES_MAX);
        (Upload { pieces, held: read.into() }, taken)
    }

    /// Moves one piece. False after the last piece, and when the fetch takes no more. Cancel-safe.
    pub async fn step<S: ClientStream>(&mut self, stream: &mut S) -> Result<bool, BodyEnd> {
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
