//! The choice between HTTP/2 and HTTP/1.1 for a request, and which connection of HTTP/2 it gets: one that has room, or a new one, for which
//! one request at a time connects while the others wait. When a request that the origin did not process is sent again is decided here.

use super::Upstreams;
use super::call::{Call, CallEvent};
use super::carrier::Carrier;
use super::exchange::{OriginResponse, note_connected, response_on};
use super::fault::{Retry, UpstreamFault, UpstreamFaultKind};
use super::h2::{self, Protocol, Stream};
use super::idle::ConnectionChoice;
use super::permits::{Grant, OriginState, Permit};
use super::wanted::Wanted;
use super::{h1, parents};
use crate::config::OriginHttp2;
use crate::record::{OriginProtocol, Reuse};
use larder_wire::Scheme;
use std::rc::Rc;
use tokio::time::{Instant, timeout};

/// How often a request is sent again that the origin did not process.
const UNPROCESSED_MAX: u32 = 3;

/// A stream, or a connection of HTTP/1.1 where the origin speaks that.
enum Leased {
    H1(h1::Connection),
    H2(Stream, Permit),
}

/// Which connections a request may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// Any.
    First,
    /// One that was opened since its second try began: an older one broke.
    Fresh,
}

impl Upstreams {
    /// Whether HTTP/2 may carry a request, as far as its URL says. Parents, sockets and gateways are asked by HTTP/1.1, and so
    /// are origins that are told of the client by the PROXY protocol: a connection that streams of several clients share is nobody's.
    pub(super) fn may_go_by_h2(&self, call: &Call<'_>) -> bool {
        let is_permitted = match call.to.scheme {
            Scheme::Https => call.http2 == OriginHttp2::Auto,
            Scheme::Http => call.http2 == OriginHttp2::PriorKnowledge,
            Scheme::Ftp => false,
        };
        is_permitted
            && call.proxy_protocol.is_none()
            && !call.to.host.is_local()
            && parents::of(call.to, call.reach).is_none()
    }

    /// Sends a request by HTTP/2, or by HTTP/1.1 where its origin speaks that. It is sent again where the origin did not process it, and
    /// otherwise as [`Upstreams::call`] sends one again whose connection had served before.
    pub(super) async fn call_by_h2(&self, call: &mut Call<'_>) -> Result<OriginResponse, UpstreamFault> {
        let has_body = call.body.is_some();
        let repeatable = call.method.is_idempotent() && !has_body;
        let (mut choice, mut tries_left) = (Choice::First, UNPROCESSED_MAX);
        loop {
            let fault = match self.attempt_by_h2(call, choice).await {
                Ok(response) => return Ok(response),
                Err(fault) => fault,
            };
            let is_whole = call.body.is_some() == has_body;
            match fault.retry {
                Retry::Unprocessed if is_whole && tries_left > 0 => {
                    tries_left -= 1;
                    self.shared
                        .pool
                        .origin((call.to, call.tls_name), call.begins)
                        .count(|it| it.http2_unprocessed += 1);
                }
                Retry::IfIdempotent if repeatable && choice == Choice::First => choice = Choice::Fresh,
                _ => return Err(fault),
            }
            (call.on)(CallEvent::Retried);
            call.begins = Instant::now();
        }
    }

    async fn attempt_by_h2(&self, call: &mut Call<'_>, choice: Choice) -> Result<OriginResponse, UpstreamFault> {
        match self.lease(call, choice).await? {
            Leased::H1(connection) => {
                note_connected(call, &connection);
                self.ask_on(connection, call).await
            }
            Leased::H2(stream, permit) => {
                let reuse = if stream.is_reused() { Reuse::Again } else { Reuse::New };
                let (at, peer) = (stream.leased_at(), stream.peer());
                (call.on)(CallEvent::Connected { at, peer, reuse, protocol: OriginProtocol::Http2, header: None });
                let (head, stream) = h2::ask(stream, call).await?;
                if let Some(address) = peer.address() {
                    self.heard_from_again(call, address.ip());
                }
                Ok(response_on(head, Carrier::H2(stream, permit), call))
            }
        }
    }

    /// A stream for a request, or a connection of HTTP/1.1. When the origin has all the requests that it may have, waits in a queue.
    async fn lease(&self, call: &Call<'_>, choice: Choice) -> Result<Leased, UpstreamFault> {
        let origin = self.shared.pool.origin((call.to, call.tls_name), call.begins);
        let asked_by = (call.client, call.priority);
        let (permit, handed_on) = match Permit::try_take(&origin, asked_by.0) {
            Some(permit) => (permit, None),
            None => {
                let Grant { permit, connection } = Permit::wait(&origin, asked_by).await?;
                (permit, connection)
            }
        };
        let since = (choice == Choice::Fresh).then_some(call.begins);
        let deadline = Instant::now() + self.shared.settings.connect_timeout;
        loop {
            if origin.http2.protocol(Instant::now()) == Protocol::Http11 {
                // The rules of a kept connection that closed are those of HTTP/1.1 again.
                let repeatable = call.method.is_idempotent() && call.body.is_none();
                let choice = match repeatable && choice == Choice::First {
                    true => ConnectionChoice::IdleAllowed,
                    false => ConnectionChoice::NewOnly,
                };
                let wanted = Wanted { reach: call.reach, header: None };
                let connection =
                    self.connection_with(permit, (choice, handed_on), wanted, Instant::now(), call.on).await?;
                return Ok(Leased::H1(connection));
            }
            if let Some(link) = origin.http2.with_room(call.reach, since) {
                origin.count(|counts| {
                    counts.http2_requests += 1;
                    counts.reused += u64::from(link.has_served());
                });
                return Ok(Leased::H2(Stream::on(link, Instant::now()), permit));
            }
            let mut under_way = match origin.http2.dial() {
                Ok(dial) => {
                    let opened = self.open_by_h2(&origin, permit, call).await;
                    let (end, leased) = match opened {
                        Ok(leased) => (Ok(()), Ok(leased)),
                        Err(fault) => (Err(fault.clone()), Err(fault)),
                    };
                    dial.ended(end);
                    return leased;
                }
                Err(under_way) => under_way,
            };
            // The time of one connection is enough for all of them.
            let wait = timeout(deadline.saturating_duration_since(Instant::now()), under_way.wait_for(Option::is_some));
            let end = match wait.await {
                Ok(Ok(end)) => end.clone(),
                // It was given up with its request.
                Ok(Err(_)) => None,
                Err(_) => return Err(self.too_slow(&origin)),
            };
            match end {
                // The address that it found may be one for its client alone.
                Some(Err(fault)) if fault.kind != UpstreamFaultKind::OutOfReach => return Err(fault),
                _ => {}
            }
        }
    }

    /// Opens a connection, on which the request has the first stream.
    async fn open_by_h2(
        &self,
        origin: &Rc<OriginState>,
        permit: Permit,
        call: &Call<'_>,
    ) -> Result<Leased, UpstreamFault> {
        origin.make_room();
        (call.on)(CallEvent::Connecting);
        let began = Instant::now();
        let wanted = Wanted { reach: call.reach, header: None };
        self.shared.settings.memory.outages.tries(origin.origin(), began);
        let opened = self.open_wire(&permit, &self.shared.tls_http2, wanted, call.on).await?;
        if call.to.scheme == Scheme::Https && !opened.wire.speaks_http2() {
            origin.http2.speaks_http11(Instant::now());
            return Ok(Leased::H1(h1::Connection::opened(opened, permit, Rc::clone(&self.shared))));
        }
        let left = self.shared.settings.connect_timeout.saturating_sub(began.elapsed());
        let ready = match timeout(left, h2::open(opened, &self.shared)).await {
            Ok(ready) => ready,
            Err(_) => Err(self.too_slow(origin)),
        };
        let ready = ready.inspect_err(|_| origin.count(|counts| counts.failed += 1))?;
        let link = ready.serve(&origin.http2, origin.origin())?;
        origin.count(|counts| counts.http2_requests += 1);
        Ok(Leased::H2(Stream::on(link, Instant::now()), permit))
    }

    fn too_slow(&self, origin: &OriginState) -> UpstreamFault {
        let seconds = self.shared.settings.connect_timeout.as_secs_f64();
        let detail = format!("no connection of HTTP/2 to {} was ready within {seconds} s", origin.origin());
        UpstreamFault::new(UpstreamFaultKind::ConnectTimeout, detail).after_contact()
    }

    fn heard_from_again(&self, call: &Call<'_>, from: std::net::IpAddr) {
        if self.knows_outages() {
            self.heard_from(&super::Origin::named(call.to, call.tls_name), from);
        }
    }
}
