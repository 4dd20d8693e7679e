//! One request to an origin and the response to it, whatever protocol carries them. When a request may be sent a second
//! time is decided here.

use super::body::BodySource;
use super::call::{Call, CallEvent};
use super::carrier::Carrier;
use super::fault::{Retry, UpstreamFault, UpstreamFaultKind};
use super::group::GroupState;
use super::h1;
use super::idle::ConnectionChoice;
use super::wanted::Wanted;
use super::{HeldPermit, Origin, Upstreams};
use crate::config::OriginHttp2;
use crate::config::url::group_name;
use crate::mount::{TURN_WITHIN, Turn};
use crate::record::{OriginProtocol, Peer, Reuse};
use crate::wire::Wire;
use bytes::BytesMut;
use larder_wire::{Host, Method, ResponseHead};
use std::pin::pin;
use std::sync::Arc;
use tokio::time::{Instant, timeout};

/// A response of an origin.
pub struct OriginResponse {
    /// The final head.
    pub head: ResponseHead,
    /// The body, which follows.
    pub body: BodySource,
    /// The far end of the connection.
    pub peer: Peer,
    /// When the request that was answered began.
    pub requested: Instant,
}

/// The answer to a request that offers to leave HTTP.
pub enum Upgraded {
    /// The origin leaves HTTP.
    Switched(Box<Switched>),
    /// The origin answers by HTTP.
    Declined(Box<OriginResponse>),
}

impl Upgraded {
    /// The head of the answer.
    pub fn head(&self) -> &ResponseHead {
        match self {
            Upgraded::Switched(switched) => &switched.head,
            Upgraded::Declined(response) => &response.head,
        }
    }
}

/// A connection that left HTTP.
pub struct Switched {
    /// The head of the 101.
    pub head: ResponseHead,
    /// The protocols that the origin chose, each of which was offered.
    pub protocols: String,
    /// The bare connection.
    pub stream: Wire,
    /// Bytes behind the head that were read already.
    pub read: BytesMut,
    /// Counts among the origin's requests until it is dropped.
    pub permit: HeldPermit,
}

/// How often a request goes to yet another process because one ended that had not read it.
const UNREAD_MAX: u32 = 3;

impl Upstreams {
    /// Sends a request and waits for the final head of the response. When the origin has all the requests that it may have, the
    /// call waits in a queue, at most `connect_timeout`.
    ///
    /// The request is sent a second time where RFC 9110 section 9.2.2 and RFC 9112 section 9.3.1 allow it: an idempotent one
    /// without a body, whose connection had served before and ended without a byte of an answer, or that a process of an application
    /// has not read. Any other request gets a new connection, so that this can't happen to it.
    pub async fn call(&self, call: &mut Call<'_>) -> Result<OriginResponse, UpstreamFault> {
        if call.to.host.is_local() {
            // Boxed, as all that is large and rare here.
            if let Some(group) = self.group(&call.to.host)? {
                return Box::pin(self.call_group(call, group)).await;
            }
            if call.body.is_some() {
                Box::pin(self.gather(call)).await?;
            }
        }
        self.call_one(call).await
    }

    /// The group that a host stands for; `None` where it is no group's.
    fn group(&self, host: &Host) -> Result<Option<Arc<GroupState>>, UpstreamFault> {
        let Some(name) = group_name(host) else { return Ok(None) };
        let group = self.groups().find(host).ok_or_else(|| {
            let detail = format!("the group {name} is not configured any more");
            UpstreamFault::new(UpstreamFaultKind::NoMember, detail)
        })?;
        Ok(Some(group))
    }

    /// [`Upstreams::call`] for an origin that is no group.
    pub(super) async fn call_one(&self, call: &mut Call<'_>) -> Result<OriginResponse, UpstreamFault> {
        if call.http2 != OriginHttp2::Off && self.may_go_by_h2(call) {
            // Boxed, as all that is large and rare here.
            return Box::pin(self.call_by_h2(call)).await;
        }
        let repeatable = call.method.is_idempotent() && call.body.is_none();
        let first = match repeatable {
            // A process passes over these where they have been taken back before their turn.
            true if call.to.host.is_local() && matches!(call.method, Method::Get | Method::Head) => {
                ConnectionChoice::InTurn
            }
            true => ConnectionChoice::IdleAllowed,
            false => ConnectionChoice::NewOnly,
        };
        match self.attempt(call, first).await {
            // Boxed, as all that is large and rare here.
            Err(fault) if repeatable && fault.retry != Retry::No => Box::pin(self.attempt_again(call)).await,
            attempted => attempted,
        }
    }

    /// Sends a request once more, on a new connection; and again where a process ended that had not read it. Those tries together wait
    /// for connections no longer than `connect_timeout`: an application that takes requests and drops them holds none for one time each.
    async fn attempt_again(&self, call: &mut Call<'_>) -> Result<OriginResponse, UpstreamFault> {
        let mut tries_left = UNREAD_MAX;
        let mut patience = self.shared.settings.connect_timeout;
        let mut unread = None;
        loop {
            (call.on)(CallEvent::Retried);
            call.begins = Instant::now();
            let connected = self.connect_for(call, ConnectionChoice::NewOnly);
            let connection = match unread {
                None => connected.await?,
                Some(fault) => timeout(patience, connected).await.unwrap_or(Err(fault))?,
            };
            patience = patience.saturating_sub(call.begins.elapsed());
            match self.ask_on(connection, call).await {
                Err(fault) if fault.retry == Retry::Unread && tries_left > 0 => {
                    tries_left -= 1;
                    unread = Some(fault);
                }
                attempted => return attempted,
            }
        }
    }

    async fn attempt(&self, call: &mut Call<'_>, choice: ConnectionChoice) -> Result<OriginResponse, UpstreamFault> {
        let connection = self.connect_for(call, choice).await?;
        self.ask_on(connection, call).await
    }

    pub(super) async fn ask_on(
        &self,
        connection: h1::Connection,
        call: &mut Call<'_>,
    ) -> Result<OriginResponse, UpstreamFault> {
        let peer = connection.peer();
        let asked = self.ask_connected(connection, call).await;
        if let (Err(fault), Peer::Process(pid)) = (&asked, peer)
            && fault.kind == UpstreamFaultKind::FirstByteTimeout
        {
            self.note_hung(call, fault, pid);
        }
        asked
    }

    async fn ask_connected(
        &self,
        connection: h1::Connection,
        call: &mut Call<'_>,
    ) -> Result<OriginResponse, UpstreamFault> {
        let is_reused = connection.is_reused();
        let (head, connection) = match connection.turn() {
            // Boxed, as all that is large and rare here.
            None if connection.parent().is_some() => Box::pin(self.ask_parent(connection, call)).await?,
            None => h1::ask(connection, call).await?,
            Some(turn) => match Box::pin(ask_in_turn(connection, call, turn)).await? {
                Some(answered) => answered,
                None => return Box::pin(self.attempt(call, ConnectionChoice::IdleAllowed)).await,
            },
        };
        if is_reused
            && self.knows_outages()
            && let Some(address) = connection.peer().address()
        {
            self.heard_from(&Origin::named(call.to, call.tls_name), address.ip());
        }
        Ok(response(head, connection, call))
    }

    /// Sends a request that offers to change to one of the protocols in `offer` (RFC 9110 section 7.8). It is never sent a
    /// second time.
    pub async fn upgrade(&self, call: &mut Call<'_>, offer: &str) -> Result<Upgraded, UpstreamFault> {
        if let Some(group) = self.group(&call.to.host)? {
            return Box::pin(self.upgrade_group(call, offer, group)).await;
        }
        self.upgrade_one(call, offer).await
    }

    /// [`Upstreams::upgrade`] for an origin that is no group.
    pub(super) async fn upgrade_one(&self, call: &mut Call<'_>, offer: &str) -> Result<Upgraded, UpstreamFault> {
        let connection = self.connect_for(call, ConnectionChoice::NewOnly).await?;
        let (head, connection, protocols) = h1::ask_upgrade(connection, call, offer).await?;
        let Some(protocols) = protocols else {
            return Ok(Upgraded::Declined(Box::new(response(head, connection, call))));
        };
        let (stream, read, permit) = connection.into_tunnel();
        Ok(Upgraded::Switched(Box::new(Switched { head, protocols, stream, read, permit })))
    }

    async fn connect_for(&self, call: &Call<'_>, choice: ConnectionChoice) -> Result<h1::Connection, UpstreamFault> {
        let header = call.sent_header();
        let connection = self
            .connection(
                (call.to, call.tls_name),
                choice,
                Wanted { reach: call.reach, header: header.as_ref() },
                call.begins,
                ((call.client, call.priority), call.on),
            )
            .await?;
        note_connected(call, &connection);
        Ok(connection)
    }
}

/// Sends a request to a process that has others before it. `None` where its turn did not come soon: then it was taken back, so that
/// it does not wait behind a slow one for longer. A process that ends takes it along before its turn, so it may be sent again.
async fn ask_in_turn(
    connection: h1::Connection,
    call: &mut Call<'_>,
    turn: Turn,
) -> Result<Option<(ResponseHead, h1::Connection)>, UpstreamFault> {
    let mut asked = pin!(h1::ask(connection, call));
    let answered = match timeout(TURN_WITHIN, &mut asked).await {
        Ok(answered) => answered,
        Err(_) if turn.has_come() => asked.await,
        Err(_) => return Ok(None),
    };
    answered.map(Some).map_err(|fault| match fault.kind {
        UpstreamFaultKind::Reset if fault.retry == Retry::No && !turn.has_come() => {
            UpstreamFault { retry: Retry::IfIdempotent, ..fault }
        }
        _ => fault,
    })
}

/// Tells of a connection of HTTP/1.1 for a request.
pub(super) fn note_connected(call: &Call<'_>, connection: &h1::Connection) {
    let reuse = if connection.is_reused() { Reuse::Again } else { Reuse::New };
    let (at, peer) = (connection.leased_at(), connection.peer());
    (call.on)(CallEvent::Connected { at, peer, reuse, protocol: OriginProtocol::Http11, header: connection.header() });
}

fn response(head: ResponseHead, connection: h1::Connection, call: &Call<'_>) -> OriginResponse {
    response_on(head, Carrier::H1(connection), call)
}

/// The response whose body follows on this carrier.
pub(super) fn response_on(head: ResponseHead, carrier: Carrier, call: &Call<'_>) -> OriginResponse {
    let peer = carrier.peer();
    let body = BodySource::of(carrier, call.client);
    OriginResponse { head, body, peer, requested: call.begins }
}
