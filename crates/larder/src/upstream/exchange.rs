//! One request to an origin and the response to it, whatever protocol carries them. When a request may be sent a second
//! time is decided here.

use super::body::BodySource;
use super::call::{Call, CallEvent};
use super::fault::{Retry, UpstreamFault};
use super::h1;
use super::idle::ConnectionChoice;
use super::{HeldPermit, Origin, Upstreams};
use crate::record::{Peer, Reuse};
use crate::wire::Wire;
use bytes::BytesMut;
use larder_wire::ResponseHead;
use tokio::time::Instant;

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
    Declined(OriginResponse),
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

impl Upstreams {
    /// Sends a request and waits for the final head of the response. When the origin has all the requests that it may have, the
    /// call waits in a queue, at most `connect_timeout`.
    ///
    /// The request is sent a second time where RFC 9110 section 9.2.2 and RFC 9112 section 9.3.1 allow it: an idempotent one
    /// without a body, whose connection had served before and ended without a byte of an answer. Any other request gets a new
    /// connection, so that this can't happen to it.
    pub async fn call(&self, call: &mut Call<'_>) -> Result<OriginResponse, UpstreamFault> {
        if call.body.is_some() && call.to.host.is_local() {
            // Boxed, as all that is large and rare here.
            Box::pin(self.gather(call)).await?;
        }
        let repeatable = call.method.is_idempotent() && call.body.is_none();
        let first = if repeatable { ConnectionChoice::IdleAllowed } else { ConnectionChoice::NewOnly };
        match self.attempt(call, first).await {
            Err(fault) if repeatable && fault.retry == Retry::IfIdempotent => {
                (call.on)(CallEvent::Retried);
                call.begins = Instant::now();
                Box::pin(self.attempt(call, ConnectionChoice::NewOnly)).await
            }
            attempted => attempted,
        }
    }

    async fn attempt(&self, call: &mut Call<'_>, choice: ConnectionChoice) -> Result<OriginResponse, UpstreamFault> {
        let connection = self.connect_for(call, choice).await?;
        let is_reused = connection.is_reused();
        let (head, connection) = h1::ask(connection, call).await?;
        if is_reused
            && self.knows_outages()
            && let Some(address) = connection.peer().address()
        {
            self.heard_from(&Origin::of(call.to), address.ip());
        }
        Ok(response(head, connection, call))
    }

    /// Sends a request that offers to change to one of the protocols in `offer` (RFC 9110 section 7.8). It is never sent a
    /// second time.
    pub async fn upgrade(&self, call: &mut Call<'_>, offer: &str) -> Result<Upgraded, UpstreamFault> {
        let connection = self.connect_for(call, ConnectionChoice::NewOnly).await?;
        let (head, connection, protocols) = h1::ask_upgrade(connection, call, offer).await?;
        let Some(protocols) = protocols else { return Ok(Upgraded::Declined(response(head, connection, call))) };
        let (stream, read, permit) = connection.into_tunnel();
        Ok(Upgraded::Switched(Box::new(Switched { head, protocols, stream, read, permit })))
    }

    async fn connect_for(&self, call: &Call<'_>, choice: ConnectionChoice) -> Result<h1::Connection, UpstreamFault> {
        let connection = self.connection(call.to, choice, call.reach, call.begins, (call.client, call.on)).await?;
        let reuse = if connection.is_reused() { Reuse::Again } else { Reuse::New };
        (call.on)(CallEvent::Connected { at: connection.leased_at(), peer: connection.peer(), reuse });
        Ok(connection)
    }
}

fn response(head: ResponseHead, connection: h1::Connection, call: &Call<'_>) -> OriginResponse {
    let peer = connection.peer();
    OriginResponse { head, body: BodySource::of(connection, call.client), peer, requested: call.begins }
}
