//! Sends the request of a fetch to its origin, and notes what happens on the way to the response.

use super::{Fetch, Keepable};
use crate::client::Client;
use crate::clock;
use crate::reach::{self, Reach};
use crate::record::{Peer, ProxyHeaderNote};
use crate::rules::Route;
use crate::upstream::{BodySource, Call, CallEvent, OriginResponse, OutgoingBody, UpstreamFault, UpstreamFaultKind};
use larder_cache::entry::Contact;
use larder_cache::policy::Times;
use larder_rules::rule::Priority;
use larder_wire::proxy_protocol::Addresses;
use larder_wire::{Fields, Host, ResponseHead, Url, hop};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// A final head, and the body that follows.
pub(super) struct OriginAnswer {
    pub(super) head: ResponseHead,
    pub(super) times: Times,
    pub(super) body: BodySource,
    /// The far end of the connection to the origin.
    pub(super) peer: Peer,
    /// The host that led to this address, where a redirect was followed to it.
    pub(super) followed_to: Option<Host>,
}

/// How long a file waits for indexes that are being read. The longest that are known take a second.
const INDEXES_WAIT_MAX: Duration = Duration::from_secs(2);

impl Fetch {
    /// Sends the request and waits for the final head.
    pub(super) async fn ask_origin(&mut self, fields: &Fields) -> Result<OriginAnswer, UpstreamFault> {
        let body = self.body.take().or_else(|| self.posted.as_ref().map(|posted| posted.outgoing()));
        if let Some(registry) = self.ask.registry.clone() {
            return Box::pin(self.ask_registry(&registry, fields)).await;
        }
        if body.is_none() && self.asks_home(fields) {
            // Boxed, because it is rare.
            return Box::pin(self.ask_with_home(fields)).await;
        }
        if self.asks_neighbours() && body.is_none() {
            // Boxed, because it is rare.
            return Box::pin(self.ask_with_neighbours(fields)).await;
        }
        self.send(self.ask.connects_to(), &self.ask.target(), fields, body).await
    }

    /// Sends the request to this origin and waits for the final head.
    pub(super) async fn send(
        &self,
        to: &Url,
        target: &str,
        fields: &Fields,
        body: Option<OutgoingBody>,
    ) -> Result<OriginAnswer, UpstreamFault> {
        let reach = self.ask.reach(&self.env);
        self.send_within(&reach, (to, target), fields, body).await
    }

    /// Sends the request no further than this, and waits for the final head.
    pub(super) async fn send_within(
        &self,
        reach: &Reach,
        (to, target): (&Url, &str),
        fields: &Fields,
        body: Option<OutgoingBody>,
    ) -> Result<OriginAnswer, UpstreamFault> {
        let this = self;
        if this.ask.priority() == Priority::Low && this.env.is_behind() {
            return Err(UpstreamFault::shed("this worker of the cache comes to its work too late"));
        }
        let mut call = Call {
            to,
            tls_name: this.ask.tls_name(),
            method: &this.request.method,
            target,
            fields,
            body,
            reach,
            client: Client::if_known(this.client.ip()),
            priority: this.ask.priority(),
            begins: this.begin_attempt().into(),
            silent_for: this.silent_for,
            http2: this.ask.http2(&this.env.config()),
            proxy_protocol: this.ask.proxy_protocol(),
            // The connection of a fetch that nobody waits for is Larder's own.
            proxied: this
                .connected_to
                .filter(|_| this.is_for_reader)
                .map(|destination| Addresses { source: this.client, destination }),
            on: &|event| this.note(event),
        };
        let called = this.env.upstreams.call(&mut call).await;
        let OriginResponse { mut head, body, peer, requested } = called.map_err(|fault| this.fault_of_body(fault))?;
        if matches!(this.ask.route, Route::Site { .. }) {
            // The site is served here: where else its origin can be had (RFC 7838) would lead clients past the cache and its rules.
            head.fields.remove("Alt-Svc");
        }
        let now = clock::instant();
        this.notes.answered(now, head.status);
        let times = Times { requested: this.env.stamp_at(requested.into_std()), received: this.env.stamp_at(now) };
        let brings_file = matches!(head.status, 200 | 206 | 301..=303 | 307 | 308);
        if brings_file && self.env.common.index_digests.is_learning() && self.ask.may_be_named() {
            // Boxed, because it is rare.
            Box::pin(self.indexes_are_read()).await;
        }
        Ok(OriginAnswer { head, times, body, peer, followed_to: None })
    }

    /// The fault as the service left it from which the request's body came: the client is still here.
    fn fault_of_body(&self, fault: UpstreamFault) -> UpstreamFault {
        let of_service = || self.body_fault.as_ref()?.get().cloned();
        match fault.kind {
            UpstreamFaultKind::ClientGone => of_service().unwrap_or(fault),
            _ => fault,
        }
    }

    /// Waits until the indexes are read that the client got just now: one of them may name the digest of this file.
    async fn indexes_are_read(&self) {
        let settled = self.env.common.index_digests.settled(self.client.ip(), &self.ask.url);
        let _ = tokio::time::timeout(INDEXES_WAIT_MAX, settled).await;
    }

    /// Whether a response from this address may be stored for all clients, or change what is stored.
    pub(super) fn keepable(&self, answer: &OriginAnswer) -> Keepable {
        let host = answer.followed_to.as_ref().unwrap_or(&self.ask.url.host);
        match self.ask.route {
            Route::Destination(..) => Keepable::No,
            // The parent, sibling or node has looked the name up, and says where it led to nobody.
            Route::Forward(_) if matches!(answer.peer, Peer::Parent(_) | Peer::Sibling(_) | Peer::Home) => {
                Keepable::Yes
            }
            Route::Forward(_) if !answer.peer.address().is_some_and(|peer| reach::may_keep(host, peer.ip())) => {
                Keepable::No
            }
            // Rules deny the address to some, and these would find what is stored. Where the URL has the address, it is judged each time.
            Route::Forward(_)
                if host.ip().is_none()
                    && answer.peer.address().is_some_and(|peer| self.is_closed_to_some(peer.ip())) =>
            {
                Keepable::No
            }
            _ => Keepable::Yes,
        }
    }

    fn is_closed_to_some(&self, ip: IpAddr) -> bool {
        let lists = self.env.lists();
        reach::closes_to_some(&self.env.config(), lists.countries().map(|countries| &**countries), ip)
    }

    pub(super) fn begin_attempt(&self) -> Instant {
        let now = self.notes.attempt();
        if self.notes.attempts.get() > 1 {
            self.writer.contact(Contact::Unknown);
        }
        now
    }

    pub(super) fn note(&self, event: CallEvent) {
        match event {
            CallEvent::Connecting => self.writer.contact(Contact::Connecting(clock::instant())),
            CallEvent::Accepted => self.writer.contact(Contact::Accepted),
            CallEvent::Connected { at, peer, reuse, protocol, header } => {
                self.writer.contact(Contact::Made);
                self.notes.connected(at.into_std(), peer, reuse);
                self.notes.protocol.set(protocol);
                self.notes.proxy_header.set(header.map(ProxyHeaderNote::of));
            }
            CallEvent::Retried => {
                self.begin_attempt();
            }
            CallEvent::Interim(mut head) => {
                hop::strip(&mut head.fields);
                if let Some(interim) = &self.interim {
                    interim.tell(head);
                }
            }
            CallEvent::GroupAsked(note) => self.notes.group_asked(note),
            CallEvent::WayTaken(note) => self.notes.way_taken(note),
            CallEvent::Unexpected(status) => self.notes.answered(clock::instant(), status),
        }
    }
}
