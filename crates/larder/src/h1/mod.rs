//! HTTP/1.1 with clients: a transport of exchanges.

pub mod connection;
pub mod head_cache;
pub mod idle;
pub mod quick;
pub mod render;
pub mod serve;
mod slot;

pub use connection::Connection;
pub use serve::{Start, serve};

use crate::clock;
use crate::coded_heads::CodedHeads;
use crate::env::{Env, PeerFacts};
use crate::listener::Listener;
use crate::outbox::Outbox;
use crate::partial_heads::HeadsUnderWay;
use crate::permit::WorkerConnections;
use crate::tls::interception::Interception;
use crate::wire::Wire;
use bytes::BytesMut;
use head_cache::HeadCache;
use idle::IdleConnections;
use larder_wire::parse::HeadLimits;
use larder_wire::socks::server::{CONNECTED, refusal_for};
use larder_wire::{Host, Version};
use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

/// The state that all HTTP/1.1 connections of a worker share.
pub struct Workspace {
    /// The context of the worker.
    pub env: Rc<Env>,
    /// Counts of open connections, and the list of clients.
    pub connections: Rc<WorkerConnections>,
    /// The local CA, and the hosts whose tunnels are not intercepted.
    pub interception: Arc<Interception>,
    /// Limits of a head, in the form the parser takes.
    pub head_limits: HeadLimits,
    /// Heads of earlier requests, with the memos of their judgements.
    pub heads: HeadCache,
    /// Bytes of heads that are not whole yet, which have a limit together.
    pub heads_under_way: Rc<HeadsUnderWay>,
    /// The buffer into which sockets are read first.
    pub scratch: RefCell<Box<[u8]>>,
    /// Connections between two requests.
    pub idle: IdleConnections,
    /// Empty inboxes of idle connections.
    pub inboxes: RefCell<Vec<BytesMut>>,
    /// Empty outboxes of idle connections.
    pub outboxes: RefCell<Vec<Outbox>>,
    /// A buffer for the key of the request that `h1::quick` looks up.
    pub keys: RefCell<Vec<u8>>,
    /// Serves a connection whose client speaks HTTP/2 to its end. That module knows this one, so it is named here by whoever knows both.
    pub http2: ServeHttp2,
    /// Heads of answers by HTTP/2 and by HTTP/3 that were coded.
    pub coded_heads: OfVersions<RefCell<CodedHeads>>,
    /// The lines `Via` and the beginning of `Cache-Status`, by the version that a response came in.
    pub answered_by: [String; 2],
}

/// One for each version whose heads are coded.
#[derive(Default)]
pub struct OfVersions<T> {
    /// That of HTTP/2.
    pub http2: T,
    /// That of HTTP/3.
    pub http3: T,
}

/// The replies to a client that wants a tunnel, and did not ask for it by HTTP.
#[derive(Clone, Copy)]
pub struct TunnelReply {
    /// The tunnel is open.
    pub opened: &'static [u8],
    /// It is not, for which a CONNECT would have got this status; without it the connection is reset.
    pub refused: Option<fn(u16) -> [u8; 10]>,
}

impl TunnelReply {
    /// The replies at this listener.
    pub fn of(listener: &Listener) -> TunnelReply {
        match listener.socks {
            true => TunnelReply { opened: CONNECTED, refused: Some(refusal_for) },
            false => TunnelReply { opened: b"", refused: None },
        }
    }
}

/// [`crate::h2::serve`].
pub type ServeHttp2 = fn(Rc<Workspace>, PeerFacts, Wire, BytesMut) -> Pin<Box<dyn Future<Output = ()>>>;

const SCRATCH_BYTES: usize = 64 * 1024;

impl Workspace {
    /// Whether TLS in a tunnel of this client to this host is intercepted.
    pub fn intercepts(&self, peer: &PeerFacts, host: &Host) -> bool {
        peer.listener.intercept && self.interception.pass.find(peer.address.ip(), host, clock::now()).is_none()
    }

    /// The state of a worker without connections.
    pub fn new(
        env: &Rc<Env>,
        connections: Rc<WorkerConnections>,
        interception: Arc<Interception>,
        http2: ServeHttp2,
    ) -> io::Result<Rc<Workspace>> {
        let config = &env.common.config;
        let limits = &config.limits;
        let answered_by = |version| format!("Via: {}\r\nCache-Status: larder", env.common.via(version));
        Ok(Rc::new(Workspace {
            connections,
            interception,
            http2,
            head_limits: HeadLimits {
                head_bytes_max: limits.head_bytes_max,
                target_bytes_max: limits.target_bytes_max.min(limits.head_bytes_max),
                fields_max: limits.fields_max,
            },
            heads: HeadCache::default(),
            heads_under_way: HeadsUnderWay::new(config.heads_under_way_bytes_max()),
            scratch: RefCell::new(vec![0; SCRATCH_BYTES].into()),
            idle: IdleConnections::new()?,
            inboxes: RefCell::default(),
            outboxes: RefCell::default(),
            keys: RefCell::default(),
            coded_heads: OfVersions::default(),
            answered_by: [answered_by(Version::Http10), answered_by(Version::Http11)],
            env: Rc::clone(env),
        }))
    }
}
