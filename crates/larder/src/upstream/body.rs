//! The body of an origin's response, piece by piece, whatever protocol carries it.

use super::carrier::Carrier;
use super::fault::{UpstreamFault, UpstreamFaultKind};
use super::group::MemberRequest;
use crate::client::Client;
use crate::mount::Spool;
use crate::request_body::Piece;
use bytes::Bytes;
use larder_wire::Fields;
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use tokio::sync::mpsc;

/// The body of a response. Its connection is given back when the body is over. When this is dropped before, a connection of HTTP/1.1 is
/// closed, and a stream of HTTP/2 reset.
pub struct BodySource {
    /// `None` once the body is over.
    carrier: Option<Carrier>,
    trailers: Option<Box<Fields>>,
    length: Option<u64>,
    client: Option<Client>,
    ahead: Option<Box<ReadAhead>>,
    /// The request at a member of a group, under way until the body is over.
    member: Option<Box<MemberRequest>>,
    handed: Option<Box<Handed>>,
}

/// Pieces that do not come from the connection, or were taken from it before.
struct Handed {
    /// Those that come first.
    held: VecDeque<Bytes>,
    /// The others, where another task makes them.
    pieces: Option<mpsc::Receiver<Piece>>,
    /// Why that task broke off.
    fault: Rc<OnceCell<UpstreamFault>>,
}

/// The part of a body that was read before its reader had room, so that the process that makes it is free for others.
struct ReadAhead {
    spool: Spool,
    /// The fault that comes behind it.
    fault: Option<UpstreamFault>,
}

impl BodySource {
    /// The body that follows the head on this carrier; `client` is the one that it is for.
    pub(super) fn of(carrier: Carrier, client: Option<Client>) -> BodySource {
        let mut body = BodySource {
            length: carrier.length(),
            carrier: Some(carrier),
            trailers: None,
            client,
            ahead: None,
            member: None,
            handed: None,
        };
        body.release_if_over();
        body
    }

    /// The body is that of a member of a group.
    pub(super) fn is_of(&mut self, member: MemberRequest) {
        self.member = self.carrier.is_some().then(|| Box::new(member));
    }

    /// A body whose pieces another task makes. A sender that is dropped before the end has left a fault.
    pub fn of_pieces(
        pieces: mpsc::Receiver<Piece>,
        fault: Rc<OnceCell<UpstreamFault>>,
        length: Option<u64>,
    ) -> BodySource {
        let handed = Handed { held: VecDeque::new(), pieces: Some(pieces), fault };
        BodySource {
            carrier: None,
            trailers: None,
            length,
            client: None,
            ahead: None,
            member: None,
            handed: Some(Box::new(handed)),
        }
    }

    /// No body.
    pub fn empty() -> BodySource {
        BodySource::of_length(Some(0))
    }

    /// A body of this length whose pieces are put back into it.
    pub fn of_length(length: Option<u64>) -> BodySource {
        BodySource { carrier: None, trailers: None, length, client: None, ahead: None, member: None, handed: None }
    }

    /// Puts pieces back that were taken last, and the trailer fields where the end was seen.
    pub fn put_back(&mut self, pieces: VecDeque<Bytes>, trailers: Option<Fields>) {
        if let Some(trailers) = trailers.filter(|trailers| !trailers.is_empty()) {
            self.trailers = Some(Box::new(trailers));
        }
        if !pieces.is_empty() {
            let begun = || Box::new(Handed { held: VecDeque::new(), pieces: None, fault: Rc::default() });
            let handed = self.handed.get_or_insert_with(begun);
            pieces.into_iter().rev().for_each(|piece| handed.held.push_front(piece));
        }
    }

    /// The length of the body, if the head says it.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// The next piece; `None` at the end. Nothing is read before it is asked for, but beside the waits of
    /// [`BodySource::work_beside`]. Meanwhile the rest of the request's body is sent, if the origin answered before it was over;
    /// what is unsent when the response is over stays so, and the connection is closed. Cancel-safe. After a fault there is nothing
    /// but that fault.
    pub async fn next(&mut self) -> Result<Option<Bytes>, UpstreamFault> {
        if let Some(handed) = &mut self.handed {
            match handed.next().await {
                Some(Ok(Piece::Data(piece))) => return Ok(Some(piece)),
                Some(Ok(Piece::End(trailers))) => {
                    self.handed = None;
                    self.put_back(VecDeque::new(), Some(trailers));
                    return Ok(None);
                }
                Some(Err(fault)) => return Err(fault),
                None => self.handed = None,
            }
        }
        if let Some(ahead) = &mut self.ahead {
            // Boxed, because it is rare and large: a fetch is copied as it begins.
            match Box::pin(ahead.spool.take()).await {
                Ok(Some(piece)) => return Ok(Some(piece)),
                Ok(None) => ahead.fault.clone().map_or(Ok(()), Err)?,
                Err(error) => {
                    let detail = format!("a buffer of the answer can't be read: {error}");
                    return Err(UpstreamFault::new(UpstreamFaultKind::Truncated, detail));
                }
            }
        }
        self.next_of_origin().await
    }

    async fn next_of_origin(&mut self) -> Result<Option<Bytes>, UpstreamFault> {
        let Some(carrier) = &mut self.carrier else { return Ok(None) };
        let piece = carrier.next_piece().await;
        if let (Err(fault), Some(member)) = (&piece, &mut self.member) {
            member.broke_off(fault);
            self.member = None;
        }
        self.release_if_over();
        piece
    }

    /// The trailer fields, once the body is over; `None` where there are none.
    pub fn trailers(&mut self) -> Option<Fields> {
        self.trailers.take().map(|trailers| *trailers)
    }

    /// Whether something is to be done while the reader of the response waits: then [`BodySource::work_beside`] is for all waits.
    pub fn works_beside(&self) -> bool {
        self.carrier.as_ref().is_some_and(|carrier| carrier.is_sending() || carrier.is_of_process())
    }

    /// Waits for `work`, which may be a wait for the client. Meanwhile the rest of the request's body is sent, for the client may wait
    /// for that; and the answer of a process with few places is read ahead.
    pub async fn work_beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        while self.may_read_ahead() {
            let read = tokio::select! {
                biased;
                done = &mut work => return done,
                read = self.next_of_origin() => read,
            };
            let Some(ahead) = &mut self.ahead else { break };
            match read {
                Ok(Some(piece)) => {
                    ahead.spool.push(piece);
                    ahead.spool.settle().await;
                }
                Ok(None) => {}
                Err(fault) => {
                    ahead.fault = Some(fault);
                    self.carrier = None;
                }
            }
        }
        match &mut self.carrier {
            Some(carrier) => carrier.send_beside(work).await,
            None => work.await,
        }
    }

    fn may_read_ahead(&mut self) -> bool {
        let Some(carrier) = &self.carrier else { return false };
        if self.ahead.is_none() {
            let spool = carrier.answer_spool(self.client);
            self.ahead = spool.map(|spool| Box::new(ReadAhead { spool, fault: None }));
        }
        self.ahead.as_mut().is_some_and(|ahead| ahead.spool.has_room())
    }

    fn release_if_over(&mut self) {
        if let Some(mut carrier) = self.carrier.take_if(|carrier| carrier.is_over()) {
            self.trailers = carrier.trailers().map(Box::new);
            carrier.release();
            self.member = None;
        }
    }
}

impl Handed {
    /// The next piece; `None` where those of the connection follow. Cancel-safe.
    async fn next(&mut self) -> Option<Result<Piece, UpstreamFault>> {
        if let Some(piece) = self.held.pop_front() {
            return Some(Ok(Piece::Data(piece)));
        }
        let piece = self.pieces.as_mut()?.recv().await;
        Some(piece.ok_or_else(|| match self.fault.get() {
            Some(fault) => fault.clone(),
            None => UpstreamFault::new(UpstreamFaultKind::Truncated, "the task that made the body has ended"),
        }))
    }
}
