//! A connection with the one request that it carries: bytes of the request go out by its [`Sender`], those of the response come
//! in by its [`Receiver`], both at once if need be. At the end it is idle again or closed.

use super::super::Shared;
use super::super::connect::Opened;
use super::super::fault::UpstreamFault;
use super::super::group::MemberRequest;
use super::super::idle::IdleConnection;
use super::super::parents::Through;
use super::super::permits::Permit;
use super::link::{Link, Sender};
use super::receive::{Inbound, Receiver};
use super::upload::Upload;
use crate::client::Client;
use crate::config::parent::Parent;
use crate::mount::{Spool, Turn};
use crate::record::Peer;
use crate::wire::Wire;
use bytes::{Bytes, BytesMut};
use larder_wire::framing::Framing;
use larder_wire::proxy_protocol::SentHeader;
use larder_wire::{Fields, Method, ResponseHead};
use socket2::SockRef;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// A connection to an origin for one request, until it is dropped (which closes it) or released.
pub(in crate::upstream) struct Connection(Box<Lease>);

/// Boxed as a whole: a connection goes from hand to hand while a fetch goes on.
struct Lease {
    link: Link,
    inbound: Inbound,
    permit: Permit,
    /// The rest of a request that was answered before its end.
    upload: Option<Box<Upload>>,
}

impl Connection {
    pub fn opened(opened: Opened, permit: Permit, shared: Rc<Shared>) -> Connection {
        let peer = Peer::Address(opened.peer);
        Connection::local((opened.wire, peer), opened.header, permit, shared)
    }

    /// A new connection through a parent.
    pub fn through(through: Through, permit: Permit, shared: Rc<Shared>) -> Connection {
        let Through { wire, number, parent } = through;
        let (peer, parent) = (Peer::Parent(number), Some(parent));
        let idle = IdleConnection { wire, peer, origin_keeps: None, acknowledged_within: None, parent, header: None };
        Connection::with(idle, false, permit, shared, Instant::now())
    }

    /// A new connection to an origin itself, as to one of this machine, which began with this header of the PROXY protocol.
    pub fn local(
        (wire, peer): (Wire, Peer),
        header: Option<Box<SentHeader>>,
        permit: Permit,
        shared: Rc<Shared>,
    ) -> Connection {
        let idle = IdleConnection { wire, peer, origin_keeps: None, acknowledged_within: None, parent: None, header };
        Connection::with(idle, false, permit, shared, Instant::now())
    }

    pub fn again(idle: IdleConnection, permit: Permit, shared: Rc<Shared>, now: Instant) -> Connection {
        Connection::with(idle, true, permit, shared, now)
    }

    fn with(idle: IdleConnection, reused: bool, permit: Permit, shared: Rc<Shared>, leased_at: Instant) -> Connection {
        let link = Link {
            wire: RefCell::new(idle.wire),
            peer: idle.peer,
            parent: idle.parent,
            header: idle.header,
            acknowledged_within: Cell::new(idle.acknowledged_within),
            wait_limit: shared.clock.wait_limit(),
            shared,
            leased_at,
            reused,
            answered: Cell::new(false),
            sending: Cell::new(false),
            request_whole: Cell::new(false),
            waiting_since: Cell::new(None),
        };
        Connection(Box::new(Lease { link, inbound: Inbound::default(), permit, upload: None }))
    }

    /// Whether it has served an earlier request.
    pub fn is_reused(&self) -> bool {
        self.0.link.reused
    }

    /// The connection counts as broken when the origin's system has not acknowledged within this time what was sent, or within
    /// that to connect: a network that went away since the last request looks like a slow origin otherwise. Only for a request
    /// without a body: an origin that reads a body slowly acknowledges slowly too.
    pub fn acknowledge_within(&self, time: Option<Duration>) {
        let link = &self.0.link;
        let time = time.unwrap_or(link.settings().connect_timeout);
        if link.acknowledged_within.replace(Some(time)) == Some(time) {
            return;
        }
        let set = |stream: &TcpStream| SockRef::from(stream).set_tcp_user_timeout(Some(time));
        // Where the system does not know that option, the time to the first byte counts.
        let _ = match &*link.wire.borrow() {
            Wire::Tcp(stream) => set(stream),
            Wire::TlsClient(stream) => set(stream.get_ref().0),
            Wire::TlsWithin(stream) => set(stream.get_ref().0.get_ref().0),
            _ => Ok(()),
        };
    }

    /// When there was a connection for this request.
    pub fn leased_at(&self) -> Instant {
        self.0.link.leased_at
    }

    /// The parent that reads the requests, where one does.
    pub fn parent(&self) -> Option<&Arc<Parent>> {
        self.0.link.parent.as_ref().filter(|through| through.reads_requests).map(|through| &through.parent)
    }

    /// The header of the PROXY protocol with which it began.
    pub fn header(&self) -> Option<SentHeader> {
        self.0.link.header.as_deref().copied()
    }

    /// The far end.
    pub fn peer(&self) -> Peer {
        self.0.link.peer
    }

    /// Sends a whole request without a body. If the future is dropped half-way, the connection is good for nothing. A request
    /// with a body goes through [`Connection::split_mut`].
    pub async fn send(&mut self, mut bytes: &[u8]) -> Result<(), UpstreamFault> {
        let link = &self.0.link;
        link.send(&mut bytes, &link.wait_limit).await?;
        link.request_whole.set(true);
        Ok(())
    }

    /// The next head of the response; see [`Receiver::response`].
    pub async fn response(&mut self, asked: &Method) -> Result<ResponseHead, UpstreamFault> {
        self.receiver().response(asked).await
    }

    /// The incoming half: [`Receiver::body`] gives the pieces of the response's body.
    pub fn receiver(&mut self) -> Receiver<'_> {
        let Lease { link, inbound, .. } = &mut *self.0;
        Receiver::new(link, inbound)
    }

    /// The next piece of the response's body. The rest of the request is sent meanwhile.
    pub async fn next_piece_while_sending(&mut self) -> Result<Option<Bytes>, UpstreamFault> {
        let Lease { link, inbound, upload, .. } = &mut *self.0;
        let Some(rest) = upload else { return Receiver::new(link, inbound).body().await };
        let mut sender = Sender::new(link);
        let mut receiver = Receiver::new(link, inbound);
        tokio::select! {
            piece = receiver.body() => return piece,
            _ = rest.send(Some(&mut sender)) => {}
        }
        // The request is over, or the origin takes no more of it.
        *upload = None;
        receiver.body().await
    }

    /// Waits for `work` and sends the rest of the request meanwhile.
    pub async fn send_beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let Lease { link, upload, .. } = &mut *self.0;
        let Some(rest) = upload else { return work.await };
        let mut work = pin!(work);
        let mut sender = Sender::new(link);
        tokio::select! {
            done = &mut work => return done,
            _ = rest.send(Some(&mut sender)) => {}
        }
        *upload = None;
        work.await
    }

    /// The rest of a request that was answered early: it is sent while the body of the response is read, and no longer. The connection serves
    /// no other request, because it is not known whether the origin will read this one to its end.
    pub(super) fn send_rest_of(&mut self, upload: Box<Upload>) {
        self.0.inbound.is_for_this_alone();
        self.0.upload = Some(upload);
    }

    /// Whether the rest of the request is still to be sent.
    pub fn is_sending(&self) -> bool {
        self.0.upload.is_some()
    }

    /// Whether the far end is a process of an application that this server runs.
    pub fn is_of_process(&self) -> bool {
        self.0.link.is_of_process()
    }

    /// The turn of a request that waits in such a process behind others; `None` where it is served at once.
    pub fn turn(&self) -> Option<Turn> {
        match &*self.0.link.wire.borrow() {
            Wire::Mount(stream) => stream.turn(),
            _ => None,
        }
    }

    /// The buffer for what the client has not taken yet of the answer of such a process; `None` where none is needed.
    pub fn answer_spool(&self, client: Option<Client>) -> Option<Spool> {
        match &*self.0.link.wire.borrow() {
            Wire::Mount(stream) => stream.answer_spool(client),
            _ => None,
        }
    }

    /// Whether the response was read to its end.
    pub fn is_over(&self) -> bool {
        self.0.inbound.is_over()
    }

    /// Where the body of the response ends.
    pub fn framing(&self) -> Framing {
        self.0.inbound.framing()
    }

    /// The trailers of the response, once its body was read to the end; `None` when there were none.
    pub fn trailers(&mut self) -> Option<Fields> {
        self.0.inbound.take_trailers()
    }

    /// Both directions at once: a request body can be sent while an early answer is watched for (RFC 9112
    /// section 9.3). The request counts as sent once [`Sender::end`] was called; without that the connection
    /// is never used again. While the sender lives, the time to the first byte does not count.
    pub fn split_mut(&mut self) -> (Sender<'_>, Receiver<'_>) {
        let Lease { link, inbound, .. } = &mut *self.0;
        (Sender::new(link), Receiver::new(link, inbound))
    }

    /// Makes the connection idle, or closes it when it is not fit for another request: this one or its response is not over, a
    /// side does not keep alive, or bytes came behind the end of the response.
    pub fn release(self) {
        let lease = self.0;
        if lease.inbound.is_desynchronised() {
            lease.permit.origin().count(|counts| counts.desynchronised += 1);
            return;
        }
        if !lease.link.request_whole.get() || !lease.inbound.may_serve_again() {
            return;
        }
        let Lease { link, inbound, permit, .. } = *lease;
        let origin_keeps = inbound.origin_keeps();
        link.shared.spare.set(inbound.into_unread());
        let acknowledged_within = link.acknowledged_within.get();
        let mut wire = link.wire.into_inner();
        if let Wire::Mount(stream) = &mut wire {
            stream.rest();
        }
        let (parent, header) = (link.parent, link.header);
        let idle = IdleConnection { wire, peer: link.peer, origin_keeps, acknowledged_within, parent, header };
        link.shared.pool.put(idle, permit);
    }

    /// The bare stream, and the bytes that were read from it behind the last head: after a 101 they are no HTTP. The permit
    /// counts among those of the origin until it is dropped.
    pub fn into_tunnel(self) -> (Wire, BytesMut, HeldPermit) {
        let Lease { link, inbound, permit, .. } = *self.0;
        (link.wire.into_inner(), inbound.into_unread(), HeldPermit { _permit: permit, _member: None })
    }
}

/// The permit of a connection that left HTTP; given back when it is dropped.
#[must_use]
pub struct HeldPermit {
    _permit: Permit,
    /// The request at a member of a group.
    _member: Option<Box<MemberRequest>>,
}

impl HeldPermit {
    /// The connection is one to a member of a group.
    pub(in crate::upstream) fn is_of(&mut self, member: MemberRequest) {
        self._member = Some(Box::new(member));
    }
}
