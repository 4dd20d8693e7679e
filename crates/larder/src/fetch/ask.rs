//! Sends a request to an origin and waits for the final head. Passes interim heads on and sends the request's body meanwhile.

use super::Fetch;
use crate::client::Client;
use crate::clock;
use crate::record::Reuse;
use crate::request_body::{Piece, RequestBody};
use crate::upstream::{Connection, Fresh, Retry, Sender, UpstreamFault, UpstreamFaultKind};
use bytes::{Buf, Bytes};
use larder_cache::policy::Times;
use larder_wire::date::Stamp;
use larder_wire::{Fault, FaultKind, Fields, ResponseHead, Version, encode, hop};
use std::time::Instant;
use tokio::sync::mpsc;

/// A final head, the connection on which the body follows, and what is left of the request's body.
pub(super) struct OriginAnswer {
    pub(super) head: ResponseHead,
    pub(super) times: Times,
    pub(super) connection: Connection,
    pub(super) uplink: Option<Box<Uplink>>,
}

/// The part of a request's body that is still to be sent.
pub(super) struct Uplink {
    pieces: mpsc::Receiver<Piece>,
    chunked: bool,
    /// Bytes that were taken from the client and are not sent yet.
    unsent: Unsent,
    over: bool,
}

/// A piece with its framing, or the request's head.
type Unsent = bytes::buf::Chain<bytes::buf::Chain<Bytes, Bytes>, Bytes>;

impl Uplink {
    fn new(head: Vec<u8>, pieces: mpsc::Receiver<Piece>, chunked: bool) -> Uplink {
        Uplink { pieces, chunked, unsent: framed(head, Bytes::new(), b""), over: false }
    }

    /// Sends until the body is over. Cancel-safe: the next call sends the bytes that this one did not.
    async fn send(&mut self, sender: &mut Sender<'_>) -> Result<(), UpstreamFault> {
        loop {
            sender.send(&mut self.unsent).await?;
            if self.over {
                return Ok(());
            }
            self.unsent = match self.pieces.recv().await {
                Some(Piece::Data(data)) if self.chunked => {
                    let mut size = Vec::with_capacity(16);
                    encode::chunk_head(&mut size, data.len());
                    framed(size, data, encode::CHUNK_END)
                }
                Some(Piece::Data(data)) => framed(Vec::new(), data, b""),
                Some(Piece::End(trailers)) => {
                    self.over = true;
                    let mut last = Vec::new();
                    if self.chunked {
                        encode::last_chunk(&mut last, &trailers);
                    }
                    framed(last, Bytes::new(), b"")
                }
                None => {
                    return Err(UpstreamFault::new(
                        UpstreamFaultKind::ClientGone,
                        "the client left before its request was complete",
                    ));
                }
            };
        }
    }
}

fn framed(before: Vec<u8>, data: Bytes, after: &'static [u8]) -> Unsent {
    Bytes::from(before).chain(data).chain(Bytes::from_static(after))
}

impl Fetch {
    /// Sends the request and waits for the final head. One retry, on a new connection, where RFC 9110 section
    /// 9.2.2 allows it: an idempotent request without a body whose kept-alive connection was closed unanswered.
    pub(super) async fn ask_origin(&mut self, fields: &Fields) -> Result<OriginAnswer, UpstreamFault> {
        let method = self.request.method.clone();
        let repeatable = method.is_idempotent() && self.body.is_none();
        let first = if repeatable { Fresh::ReuseAllowed } else { Fresh::NewOnly };
        match self.attempt(fields, first).await {
            Err(fault) if fault.retry == Retry::Safe && repeatable => {
                Box::pin(self.attempt(fields, Fresh::NewOnly)).await
            }
            other => other,
        }
    }

    async fn attempt(&mut self, fields: &Fields, fresh: Fresh) -> Result<OriginAnswer, UpstreamFault> {
        let now = self.notes.attempt();
        let requested = self.env.stamp_at(now);
        if self.notes.attempts.get() > 1 {
            self.writer.reached(false);
        }
        let mut connection = self.lease(fresh, now).await?;
        let reuse = if connection.reused() { Reuse::Again } else { Reuse::New };
        if let Some(time) = self.silent_for.filter(|_| reuse == Reuse::Again) {
            connection.acknowledged_within(time);
        }
        self.writer.reached(true);
        self.notes.connected(connection.leased_at().into_std(), connection.peer(), reuse);
        let mut bytes = Vec::with_capacity(512);
        encode::request_head(&mut bytes, &self.request.method, &self.ask.target(), Version::Http11, fields);
        match self.body.take() {
            None => {
                connection.send(&bytes).await?;
                let head = self.final_head(&mut connection).await?;
                let times = self.answered(&head, requested);
                Ok(OriginAnswer { head, times, connection, uplink: None })
            }
            Some((pieces, length)) => {
                let chunked = length == RequestBody::Unknown;
                let mut uplink = Uplink::new(bytes, pieces, chunked);
                let head = Box::pin(self.exchange(&mut connection, &mut uplink)).await?;
                let times = self.answered(&head, requested);
                let uplink = (!uplink.over).then(|| Box::new(uplink));
                Ok(OriginAnswer { head, times, connection, uplink })
            }
        }
    }

    async fn lease(&self, fresh: Fresh, now: Instant) -> Result<Connection, UpstreamFault> {
        let (reach, client) = (self.env.reach(self.ask.asker()), Some(Client::at(self.client.ip())));
        self.env.upstreams.connection_at(self.ask.connects_to(), fresh, &reach, now.into(), client).await
    }

    fn answered(&self, head: &ResponseHead, requested: Stamp) -> Times {
        let now = clock::instant();
        self.notes.answered(now, head.status);
        Times { requested, received: self.env.stamp_at(now) }
    }

    async fn final_head(&self, connection: &mut Connection) -> Result<ResponseHead, UpstreamFault> {
        loop {
            let head = connection.response(&self.request.method).await?;
            if !head.is_interim() {
                return usable_head(head);
            }
            self.tell_interim(head);
        }
    }

    /// Sends the body while watching for an early response (RFC 9112 section 9.5). The rest of it is sent while the response's
    /// body comes.
    async fn exchange(&self, connection: &mut Connection, uplink: &mut Uplink) -> Result<ResponseHead, UpstreamFault> {
        let (sender, mut receiver) = connection.split_mut();
        let mut sender = Some(sender);
        let mut broken = None;
        loop {
            tokio::select! {
                sent = send_all(uplink, sender.as_mut()), if sender.is_some() => match sent {
                    Ok(()) => {
                        if let Some(sender) = sender.take() {
                            sender.end();
                        }
                    }
                    Err(fault) if fault.kind == UpstreamFaultKind::ClientGone => return Err(fault),
                    // An origin that refuses a body answers and then closes; its answer is worth more than this fault.
                    Err(fault) => {
                        broken = Some(fault);
                        sender = None;
                    }
                },
                head = receiver.response(&self.request.method) => match head {
                    Ok(head) if head.is_interim() => self.tell_interim(head),
                    Ok(head) => return usable_head(head),
                    Err(fault) => return Err(broken.unwrap_or(fault)),
                },
            }
        }
    }

    fn tell_interim(&self, mut head: ResponseHead) {
        hop::strip(&mut head.fields);
        if let Some(interim) = &self.interim {
            interim.tell(head);
        }
    }
}

pub(super) async fn send_all(uplink: &mut Uplink, sender: Option<&mut Sender<'_>>) -> Result<(), UpstreamFault> {
    match sender {
        Some(sender) => uplink.send(sender).await,
        None => std::future::pending().await,
    }
}

/// Refuses a 101: no fetch offers to upgrade, so the origin is at fault (RFC 9110 section 15.2.2).
fn usable_head(head: ResponseHead) -> Result<ResponseHead, UpstreamFault> {
    if head.status != 101 {
        return Ok(head);
    }
    let fault = Fault::origin(FaultKind::StatusLine, "101 was not asked for");
    Err(UpstreamFault::new(UpstreamFaultKind::Wire(fault), "the origin switched protocols though nobody asked"))
}
