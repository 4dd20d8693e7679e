//! A request to an origin as its caller gives it, and the events on the way to the response.

use crate::client::Client;
use crate::config::OriginHttp2;
use crate::reach::Reach;
use crate::record::{GroupNote, OriginProtocol, Peer, Reuse, WayNote};
use crate::request_body::{Pieces, RequestBody};
use larder_rules::rule::Priority;
use larder_wire::proxy_protocol::{Addresses, ProxyVersion, SentHeader};
use larder_wire::{Fields, Host, Method, ResponseHead, Url};
use std::time::Duration;
use tokio::time::Instant;

/// A request to an origin.
pub struct Call<'a> {
    /// A URL of the origin: its scheme, host and port say where to connect.
    pub to: &'a Url,
    /// The name for SNI and certificate, where it is another one than the host of that URL.
    pub tls_name: Option<&'a Host>,
    /// The method.
    pub method: &'a Method,
    /// The target in origin form.
    pub target: &'a str,
    /// The fields, `Content-Length` included where the length of the body is known. Fields of the connection are added here.
    pub fields: &'a Fields,
    /// The body as its pieces come.
    pub body: Option<OutgoingBody>,
    /// How far a connection may lead.
    pub reach: &'a Reach,
    /// The client for whom the origin is asked; it may have its share of the permits.
    pub client: Option<Client>,
    /// The class in which the request waits for its permit.
    pub priority: Priority,
    /// When the request began; a second try sets the moment anew.
    pub begins: Instant,
    /// How long the origin may be silent before a stored response is sent instead of its answer; `None` where none may.
    pub silent_for: Option<Duration>,
    /// Whether the origin may be asked by HTTP/2.
    pub http2: OriginHttp2,
    /// The version of the PROXY protocol whose header a new connection begins with; `None`: it begins with none. Such a request goes by
    /// HTTP/1.1.
    pub proxy_protocol: Option<ProxyVersion>,
    /// The client and the address that it connected to, for that header; `None` where the request is Larder's own.
    pub proxied: Option<Addresses>,
    /// Called with each event on the way to the response.
    pub on: &'a dyn Fn(CallEvent),
}

impl Call<'_> {
    /// The header with which a connection for this request begins.
    pub(super) fn sent_header(&self) -> Option<SentHeader> {
        self.proxy_protocol.map(|version| SentHeader { version, addresses: self.proxied })
    }
}

/// The body of a request to an origin.
pub struct OutgoingBody {
    /// Its pieces. A sender that is dropped before the last one means that the client has left.
    pub pieces: Pieces,
    /// Its length, as far as it is known.
    pub length: RequestBody,
    /// Its beginning, or all of it, is here: nobody waits for leave to send it, and its length may be one that the head did not say.
    pub is_gathered: bool,
}

/// An event on the way to a response.
#[derive(Debug)]
pub enum CallEvent {
    /// A new connection is being made: the request has its permit.
    Connecting,
    /// An address has accepted the new connection; TLS comes next.
    Accepted,
    /// The request can go out: there is a connection.
    Connected {
        /// Since this moment.
        at: Instant,
        /// The far end.
        peer: Peer,
        /// Whether the connection has served other requests.
        reuse: Reuse,
        /// The protocol that it speaks.
        protocol: OriginProtocol,
        /// The header of the PROXY protocol with which it began, where it did.
        header: Option<SentHeader>,
    },
    /// The way that was taken, where parents are meant, or that none led there.
    WayTaken(Box<WayNote>),
    /// The request is sent a second time.
    Retried,
    /// An interim head came.
    Interim(ResponseHead),
    /// The members of a group that were asked, and what came of each.
    GroupAsked(Box<GroupNote>),
    /// A head with this status came that the request does not permit; the call fails.
    Unexpected(u16),
}
