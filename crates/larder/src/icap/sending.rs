//! A question on its way to a service: its head, a preview, and the rest of the body once the service wants it.

use super::Trouble;
use super::source::{Body, Kept};
use bytes::{Buf, Bytes};
use larder_wire::encode;
use larder_wire::icap::{END_OF_PREVIEW, PREVIEW_IS_WHOLE};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::WriteHalf;
use tokio::time::{Instant, timeout};

/// How far a question is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The body is given piece by piece.
    Body,
    /// All that may be sent before the service says what it wants is here.
    Preview,
    /// The last byte is here.
    Last,
}

/// A question that is being sent.
pub(super) struct Sending {
    body: Body,
    kept: Kept,
    unsent: Unsent,
    phase: Phase,
    /// The rest of a piece, of which the preview has the beginning.
    rest: Option<Bytes>,
    bytes: u64,
    bytes_max: u64,
    silence_max: Duration,
    /// It waits for the sender of the message, not for the service.
    waits_for_body: bool,
    /// Since when the service has all that it may have for now.
    since: Option<Instant>,
}

type Unsent = bytes::buf::Chain<bytes::buf::Chain<Bytes, Bytes>, Bytes>;

/// The limits of one question.
#[derive(Clone, Copy)]
pub(super) struct SendLimits {
    /// The bytes of the preview; `None`: the whole body at once.
    pub(super) preview: Option<u64>,
    /// So much is kept of the body.
    pub(super) kept_bytes_max: u64,
    /// Longer bodies are refused.
    pub(super) bytes_max: u64,
    /// How long the service may take no byte.
    pub(super) silence_max: Duration,
}

impl Sending {
    /// A question that begins with `head`. Waits for as much of the body as the preview has.
    pub(super) async fn begin(head: Vec<u8>, mut body: Body, limits: SendLimits) -> Result<Sending, Trouble> {
        let mut kept = Kept::new(limits.kept_bytes_max);
        let mut begin = head;
        let (mut phase, mut rest, mut bytes) = (Phase::Body, None, 0);
        if body.is_empty() {
            phase = Phase::Last;
        } else if let Some(wanted) = limits.preview {
            phase = Phase::Preview;
            let mut left = wanted;
            while left > 0 {
                let mut piece = match body.next().await {
                    Ok(Some(piece)) => piece,
                    Ok(None) => break,
                    Err(trouble) => return Err(trouble),
                };
                // A chunk without a byte would be the end.
                if piece.is_empty() {
                    continue;
                }
                if bytes + piece.len() as u64 > limits.bytes_max {
                    return Err(Trouble::TooLong);
                }
                kept.piece_of_preview(&piece);
                if piece.len() as u64 > left {
                    rest = Some(piece.split_off(usize::try_from(left).unwrap_or(usize::MAX).min(piece.len())));
                }
                encode::chunk_head(&mut begin, piece.len());
                begin.extend_from_slice(&piece);
                begin.extend_from_slice(encode::CHUNK_END);
                left -= piece.len() as u64;
                bytes += piece.len() as u64;
            }
            // Whether more follows a preview that is full is known for bodies of a declared length.
            let is_whole = rest.is_none() && (body.end.is_some() || body.length == Some(bytes));
            if is_whole {
                phase = Phase::Last;
            }
            begin.extend_from_slice(if is_whole { PREVIEW_IS_WHOLE } else { END_OF_PREVIEW });
        }
        Ok(Sending {
            body,
            kept,
            unsent: framed(begin, Bytes::new(), b""),
            phase,
            rest,
            bytes,
            bytes_max: limits.bytes_max,
            silence_max: limits.silence_max,
            waits_for_body: false,
            since: None,
        })
    }

    /// Whether there is something to send now.
    pub(super) fn is_active(&self) -> bool {
        self.since.is_none()
    }

    /// Since when the service has all that it may have for now.
    pub(super) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Whether the service waits for the sender of the message.
    pub(super) fn waits_for_body(&self) -> bool {
        self.is_active() && self.waits_for_body
    }

    /// Whether the service has seen a preview, and says now whether it wants more.
    pub(super) fn is_paused(&self) -> bool {
        self.phase == Phase::Preview && self.since.is_some()
    }

    /// The service wants the rest of the body.
    pub(super) fn go_on(&mut self) {
        (self.phase, self.since) = (Phase::Body, None);
    }

    /// No piece is kept any longer.
    pub(super) fn forget(&mut self) {
        self.kept.forget();
    }

    /// The connection is of no use for sending any longer: only a reply may come.
    pub(super) fn give_up(&mut self) {
        self.since.get_or_insert_with(Instant::now);
        self.phase = Phase::Body;
    }

    /// Whether the connection can serve another question, as far as sending goes.
    pub(super) fn is_settled(&self) -> bool {
        self.since.is_some() && self.phase != Phase::Body
    }

    /// Whether the body can be had as it was.
    pub(super) fn is_intact(&self) -> bool {
        self.kept.is_whole()
    }

    /// The body as it was before the question; `None` where pieces are gone.
    pub(super) fn into_body(mut self) -> Option<Box<Body>> {
        let pieces = self.kept.take()?;
        self.body.put_back(pieces);
        Some(Box::new(self.body))
    }

    /// Sends until there is nothing to send for now. Cancel-safe.
    pub(super) async fn send(&mut self, to: &mut WriteHalf<'_>) -> Result<(), Trouble> {
        loop {
            self.waits_for_body = false;
            while self.unsent.has_remaining() {
                // The service may be busy with what it has, but it takes a byte from time to time.
                match timeout(self.silence_max, to.write_buf(&mut self.unsent)).await {
                    Ok(Ok(0)) | Ok(Err(_)) => return Err(Trouble::Broken("the connection ended while it was asked")),
                    Ok(Ok(_)) => {}
                    Err(_) => return Err(Trouble::Silent("it took no byte of the question")),
                }
            }
            if self.phase != Phase::Body {
                self.since = Some(Instant::now());
                return Ok(());
            }
            self.waits_for_body = true;
            let piece = match self.rest.take() {
                // It was kept and counted with the piece that it is of.
                Some(rest) => {
                    self.bytes += rest.len() as u64;
                    Some(rest)
                }
                None => {
                    let piece = self.body.next().await?;
                    if let Some(piece) = &piece {
                        self.kept.piece(piece);
                        self.bytes += piece.len() as u64;
                    }
                    piece
                }
            };
            if self.bytes > self.bytes_max {
                return Err(Trouble::TooLong);
            }
            self.unsent = match piece {
                Some(piece) if piece.is_empty() => continue,
                Some(piece) => {
                    let mut size = Vec::with_capacity(16);
                    encode::chunk_head(&mut size, piece.len());
                    framed(size, piece, encode::CHUNK_END)
                }
                None => {
                    self.phase = Phase::Last;
                    let mut last = Vec::new();
                    encode::last_chunk(&mut last, self.body.end.as_ref().unwrap_or(&larder_wire::Fields::new()));
                    framed(last, Bytes::new(), b"")
                }
            };
        }
    }
}

fn framed(before: Vec<u8>, data: Bytes, after: &'static [u8]) -> Unsent {
    Bytes::from(before).chain(data).chain(Bytes::from_static(after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_body::Piece;
    use larder_wire::Fields;
    use tokio::sync::mpsc;

    async fn begun(pieces: &[&'static str], bytes_max: u64) -> Result<Vec<u8>, Trouble> {
        let (sender, receiver) = mpsc::channel(8);
        for piece in pieces {
            sender.send(Piece::Data(Bytes::from_static(piece.as_bytes()))).await.unwrap();
        }
        sender.send(Piece::End(Fields::new())).await.unwrap();
        let limits =
            SendLimits { preview: Some(16), kept_bytes_max: 0, bytes_max, silence_max: Duration::from_secs(1) };
        let sending = Sending::begin(Vec::new(), Body::of_pieces(receiver, None), limits).await?;
        let mut unsent = sending.unsent;
        Ok(unsent.copy_to_bytes(unsent.remaining()).to_vec())
    }

    #[tokio::test]
    async fn a_preview_has_no_empty_chunk_and_no_more_than_may_be_asked_about() {
        let whole = begun(&["", "ab", "", "c"], 3).await.unwrap();
        assert_eq!(String::from_utf8(whole).unwrap(), "2\r\nab\r\n1\r\nc\r\n0; ieof\r\n\r\n");
        assert_eq!(begun(&["ab", "cd"], 3).await, Err(Trouble::TooLong));
    }
}
