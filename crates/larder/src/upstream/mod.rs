//! The way to origins: a [`Call`] is a request, and its answer is a head and the source of a body. Addresses, connections and
//! permits are known here; why a request is sent and what becomes of the response is not.
//!
//! One [`Upstreams`] per worker; nothing in here is shared between threads. [`Upstreams::call`] knows no protocol: HTTP/1.1 is
//! the room `h1`, HTTP/2 the room `h2`; `by_h2` decides between them. Callers see no connection; one that a dropped [`BodySource`] had is closed.

mod ask_neighbours;
mod body;
mod by_h2;
mod by_parents;
mod call;
mod carrier;
mod connect;
mod dns;
mod dns_cache;
mod exchange;
mod fault;
#[cfg(feature = "ftp")]
mod ftp;
mod group;
mod group_call;
mod group_checks;
mod h1;
mod h2;
mod idle;
mod local;
mod memory;
mod neighbour_health;
mod outages;
mod parents;
mod permits;
mod pool;
mod ranges;
#[cfg(test)]
mod tests;
mod unreachable;
mod wait_limit;
mod waiting;
mod wanted;

pub use ask_neighbours::{AskedNeighbour, NeighbourFound, NeighbourQuestion};
pub use body::BodySource;
pub use call::{Call, CallEvent, OutgoingBody};
pub use dns::ResolverChoice;
pub use exchange::{OriginResponse, Switched, Upgraded};
pub use fault::{CertificateTrouble, DnsTrouble, TlsTrouble, UpstreamFault, UpstreamFaultKind};
pub use group::{GroupState, Groups};
pub use group_checks::check_members;
pub use h1::HeldPermit;
pub use memory::Memory;
pub use neighbour_health::{NeighbourAnswerCounts, NeighbourHealths, ParentHealths, ParentReport};
pub use outages::Outage;
pub use pool::{AskedOrigin, Unread};
pub use ranges::{ExtraRange, RangePace, RangesFound, RangesKnown};

use crate::client::Client;
use crate::config::SiteOrigin;
use crate::config::url::show_local;
use crate::mount::Mounts;
use crate::reach::Reach;
use crate::record::WayNote;
use crate::ticker::Ticker;
use crate::tls::{ALPN_HTTP_1_1, ALPN_HTTP_2};
use crate::wire::Wire;
use bytes::BytesMut;
use connect::Opened;
use dns::Dns;
use h1::Connection;
use idle::{ConnectionChoice, IdleConnection};
use larder_rules::rule::Priority;
use larder_wire::parse::HeadLimits;
use larder_wire::proxy_protocol::{Addresses, SentHeader};
use larder_wire::{Host, Scheme, Url};
use permits::{Grant, Permit};
use pool::Pool;
use std::cell::Cell;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use wait_limit::LimitClock;
use wanted::Wanted;

/// Times, limits and trust for all origins of a worker.
#[derive(Clone)]
pub struct Settings {
    /// Until a new connection is open, name lookup and TLS included; also how long a request waits for a permit.
    pub connect_timeout: Duration,
    /// From the end of the request to the first byte of the answer, and again after each interim head.
    pub first_byte_timeout: Duration,
    /// Without any progress while a head or body is read or a request is written.
    pub idle_timeout: Duration,
    /// How long an idle connection is kept.
    pub keep_alive: Duration,
    /// Requests under way at one origin, per worker; each has a connection of its own, and idle ones make room for it.
    pub connections_per_origin_max: usize,
    /// Idle connections to one origin, per worker.
    pub idle_per_origin_max: usize,
    /// Idle connections to all origins together, per worker.
    pub idle_max: usize,
    /// Requests that wait for a permit of one origin, per worker.
    pub waiting_max: usize,
    /// How long the oldest request may wait for a permit before the origin counts as behind.
    pub delay_target: Duration,
    /// The part of an origin's permits, and of its queue, that one client may have.
    pub client_share_percent: u32,
    /// Fetches from one origin that go on although nobody reads them, per worker.
    pub unread_per_origin_max: usize,
    /// Such fetches from all origins together, per worker.
    pub unread_max: usize,
    /// When a download gets further range requests.
    pub range_pace: RangePace,
    /// Interim (1xx) heads before the answer.
    pub interim_heads_max: u32,
    /// Limits of a response head.
    pub head_limits: HeadLimits,
    /// Where addresses of names come from.
    pub resolver: ResolverChoice,
    /// Names that are known without asking; `/etc/hosts`.
    pub hosts_file: PathBuf,
    /// The knowledge that all workers of a server share.
    pub memory: Arc<Memory>,
    /// The applications that this server runs.
    pub mounts: Arc<Mounts>,
    /// The groups of origins.
    pub groups: Arc<Groups>,
    /// Trust and versions; the protocol list (ALPN) is set here, whatever it holds.
    pub tls: Arc<rustls::ClientConfig>,
}

impl Settings {
    /// The defaults, with this trust.
    pub fn new(tls: Arc<rustls::ClientConfig>) -> Settings {
        Settings {
            connect_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
            keep_alive: Duration::from_secs(30),
            connections_per_origin_max: 256,
            idle_per_origin_max: 64,
            idle_max: 512,
            waiting_max: 1024,
            delay_target: Duration::from_secs(3),
            client_share_percent: 100,
            unread_per_origin_max: 64,
            unread_max: 256,
            range_pace: RangePace::default(),
            interim_heads_max: 32,
            head_limits: HeadLimits::default(),
            resolver: ResolverChoice::default(),
            hosts_file: "/etc/hosts".into(),
            memory: Arc::default(),
            mounts: Arc::default(),
            groups: Arc::default(),
            tls,
        }
    }
}

/// A setting with which no request could ever succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingsFault {
    /// `connections_per_origin_max` is 0.
    NoConnections,
    /// The list of name servers is empty.
    NoNameServers,
}

impl fmt::Display for SettingsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SettingsFault::NoConnections => "connections_per_origin_max is 0; give it at least 1",
            SettingsFault::NoNameServers => "the list of name servers is empty; name one, or use the system's",
        })
    }
}

impl std::error::Error for SettingsFault {}

/// A server that requests go to; all requests to it share its connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Clear text or TLS.
    pub scheme: Scheme,
    /// Its name or address.
    pub host: Host,
    /// Its port.
    pub port: u16,
    /// The name for SNI and certificate, where it is another one than the host.
    pub tls_name: Option<Host>,
    /// Whether it is asked through parents: such connections are others than those to itself.
    pub by_parents: bool,
}

impl Origin {
    /// The origin that serves a URL.
    pub fn of(url: &Url) -> Origin {
        Origin::named(url, None)
    }

    /// The one that serves this URL, with the certificate of this name.
    pub fn named(url: &Url, tls_name: Option<&Host>) -> Origin {
        Origin {
            scheme: url.scheme,
            host: url.host.clone(),
            port: url.port,
            tls_name: tls_name.cloned(),
            by_parents: false,
        }
    }

    /// Whether it is the one that serves this URL, with the certificate of this name.
    pub fn serves(&self, url: &Url, tls_name: Option<&Host>) -> bool {
        !self.by_parents
            && self.port == url.port
            && self.scheme == url.scheme
            && self.host == url.host
            && self.tls_name.as_ref() == tls_name
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match show_local(&self.host) {
            Some(name) => f.write_str(&name),
            None => {
                let through = if self.by_parents { " through a parent" } else { "" };
                write!(f, "{}://{}:{}{through}", self.scheme.as_str(), self.host, self.port)
            }
        }
    }
}

/// Events of one origin or of several, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections opened.
    pub opened: u64,
    /// Requests that got a connection which had served before.
    pub reused: u64,
    /// Attempts to open a connection that failed.
    pub failed: u64,
    /// Connections closed because bytes came after the end of an answer.
    pub desynchronised: u64,
    /// Connections that began with a header of the PROXY protocol.
    pub proxy_headers: u64,
    /// Requests sent by HTTP/2.
    pub http2_requests: u64,
    /// Requests that the origin had not processed by HTTP/2, and that were sent again.
    pub http2_unprocessed: u64,
    /// Connections of HTTP/2 ended for a fault of the origin, or at a limit.
    pub http2_faults: u64,
}

impl Counts {
    /// Both together.
    pub fn plus(self, other: Counts) -> Counts {
        Counts {
            opened: self.opened + other.opened,
            reused: self.reused + other.reused,
            failed: self.failed + other.failed,
            desynchronised: self.desynchronised + other.desynchronised,
            proxy_headers: self.proxy_headers + other.proxy_headers,
            http2_requests: self.http2_requests + other.http2_requests,
            http2_unprocessed: self.http2_unprocessed + other.http2_unprocessed,
            http2_faults: self.http2_faults + other.http2_faults,
        }
    }
}

/// One origin at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginStats {
    /// Which one.
    pub origin: Origin,
    /// Connections: in use, idle or being opened.
    pub open: usize,
    /// Those of them that are idle.
    pub idle: usize,
    /// Those of them that speak HTTP/2.
    pub http2_connections: usize,
    /// Requests under way on these.
    pub http2_streams: usize,
    /// Requests that wait for a permit.
    pub waiting: usize,
    /// Whether requests have waited for too long, and still do.
    pub is_behind: bool,
    /// Its events so far.
    pub counts: Counts,
}

/// All origins of a worker at this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Those that are remembered, in no order.
    pub origins: Vec<OriginStats>,
    /// The counts of those that are not remembered any more.
    pub forgotten: Counts,
}

impl Stats {
    /// The counts of all origins together.
    pub fn total(&self) -> Counts {
        self.origins.iter().fold(self.forgotten, |sum, origin| sum.plus(origin.counts))
    }
}

/// A worker's way to all origins; a handle that costs nothing to clone.
#[derive(Clone)]
pub struct Upstreams {
    shared: Rc<Shared>,
}

struct Shared {
    settings: Settings,
    clock: LimitClock,
    pool: Pool,
    /// Room of a connection that came back: whoever reads next takes it.
    spare: Cell<BytesMut>,
    dns: Dns,
    tls: TlsConnector,
    /// TLS that offers HTTP/2 too.
    tls_http2: TlsConnector,
}

impl Upstreams {
    /// Prepares a way to origins whose time limits are exact. Opens nothing yet.
    pub fn new(settings: Settings) -> Result<Upstreams, SettingsFault> {
        Upstreams::with(settings, LimitClock::Exact)
    }

    /// Prepares a worker's way to origins, with time limits on its coarse clock.
    pub fn on(settings: Settings, ticker: &Rc<Ticker>) -> Result<Upstreams, SettingsFault> {
        Upstreams::with(settings, LimitClock::Coarse(Rc::clone(ticker)))
    }

    fn with(settings: Settings, clock: LimitClock) -> Result<Upstreams, SettingsFault> {
        if settings.connections_per_origin_max == 0 {
            return Err(SettingsFault::NoConnections);
        }
        if matches!(&settings.resolver, ResolverChoice::Servers(servers) if servers.is_empty()) {
            return Err(SettingsFault::NoNameServers);
        }
        let tls = |protocols: &[&[u8]]| {
            let mut tls = (*settings.tls).clone();
            tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            TlsConnector::from(Arc::new(tls))
        };
        let shared = Shared {
            pool: Pool::new(&settings),
            clock,
            spare: Cell::default(),
            dns: Dns::new(&settings.resolver, &settings.hosts_file, &settings.memory, settings.connect_timeout),
            tls: tls(&[ALPN_HTTP_1_1]),
            tls_http2: tls(&[ALPN_HTTP_2, ALPN_HTTP_1_1]),
            settings,
        };
        Ok(Upstreams { shared: Rc::new(shared) })
    }

    /// A connection to the origin of a URL for one request: the idle one that was used last, or a new one, no further than
    /// `reach` permits. When the origin has all it may have, waits in a queue, at most `connect_timeout`.
    async fn connection(
        &self,
        (url, tls_name): (&Url, Option<&Host>),
        choice: ConnectionChoice,
        wanted: Wanted<'_>,
        now: Instant,
        (asked_by, on): ((Option<Client>, Priority), &dyn Fn(CallEvent)),
    ) -> Result<Connection, UpstreamFault> {
        if let Some(parents) = parents::of(url, wanted.reach) {
            // Boxed, as all that is large and rare here: a fetch is copied as it begins.
            let through = (wanted.reach, &parents);
            let asked = self.connection_by_parents((url, tls_name), choice, through, now, (asked_by, on));
            return Box::pin(asked).await;
        }
        let origin = self.shared.pool.origin((url, tls_name), now);
        let (permit, handed_on, now) = match Permit::try_take(&origin, asked_by.0) {
            Some(permit) => (permit, None, now),
            None => {
                // Boxed, as all that is large and rare here: a fetch is copied as it begins.
                let Grant { permit, connection } = Box::pin(Permit::wait(&origin, asked_by)).await?;
                (permit, connection, Instant::now())
            }
        };
        if url.host.is_local() {
            // Boxed, as all that is large and rare here.
            return Box::pin(self.local(permit, choice, (handed_on, now), wanted, on)).await;
        }
        self.connection_with(permit, (choice, handed_on), wanted, now, on).await
    }

    /// A connection of HTTP/1.1 for a request that has its permit.
    async fn connection_with(
        &self,
        permit: Permit,
        (choice, handed_on): (ConnectionChoice, Option<IdleConnection>),
        wanted: Wanted<'_>,
        now: Instant,
        on: &dyn Fn(CallEvent),
    ) -> Result<Connection, UpstreamFault> {
        let origin = Rc::clone(permit.origin());
        if let Some(idle) = origin.idle_for(choice, wanted, handed_on, now) {
            origin.count(|counts| counts.reused += 1);
            return Ok(Connection::again(idle, permit, Rc::clone(&self.shared), now));
        }
        origin.make_room();
        on(CallEvent::Connecting);
        self.shared.settings.memory.outages.tries(permit.origin().origin(), now);
        Box::pin(self.open(permit, wanted, on)).await
    }

    async fn open(
        &self,
        permit: Permit,
        wanted: Wanted<'_>,
        on: &dyn Fn(CallEvent),
    ) -> Result<Connection, UpstreamFault> {
        let opened = self.open_wire(&permit, &self.shared.tls, wanted, on).await?;
        Ok(Connection::opened(opened, permit, Rc::clone(&self.shared)))
    }

    /// Opens a connection for a request that has its permit, with this TLS.
    async fn open_wire(
        &self,
        permit: &Permit,
        tls: &TlsConnector,
        wanted: Wanted<'_>,
        on: &dyn Fn(CallEvent),
    ) -> Result<Opened, UpstreamFault> {
        let Shared { settings, dns, .. } = &*self.shared;
        let (origin, favourite) = (permit.origin().origin(), permit.origin().favourite());
        match connect::open(dns, tls, settings, (origin, favourite), wanted, &|| on(CallEvent::Accepted)).await {
            Ok(opened) => {
                permit.origin().count(|counts| counts.proxy_headers += u64::from(opened.header.is_some()));
                self.heard_from(permit.origin().origin(), opened.peer.ip());
                permit.origin().prefer(opened.peer.ip());
                permit.origin().count(|counts| counts.opened += 1);
                Ok(opened)
            }
            Err(fault) => {
                if fault.is_out_of_reach() {
                    settings.memory.outages.failed(permit.origin().origin(), Instant::now());
                } else if fault.is_after_contact() {
                    settings.memory.outages.forget(permit.origin().origin());
                }
                permit.origin().count(|counts| counts.failed += 1);
                Err(fault)
            }
        }
    }

    /// The applications that this server runs.
    pub fn mounts(&self) -> &Mounts {
        &self.shared.settings.mounts
    }

    /// The groups of origins.
    pub fn groups(&self) -> &Groups {
        &self.shared.settings.groups
    }

    /// The state of the way to the origin of a URL. Once in a while a request may try although it was out of reach.
    pub fn outage(&self, url: &Url) -> Outage {
        self.shared.settings.memory.outages.look(&Origin::of(url), Instant::now())
    }

    /// Whether the origin of a URL was out of reach a moment ago.
    pub fn is_out_of_reach(&self, url: &Url) -> bool {
        self.shared.settings.memory.outages.is_known(&Origin::of(url), Instant::now())
    }

    /// No connection to the origin of a URL came about within a time that a request would wait.
    pub fn is_silent(&self, url: &Url) {
        self.shared.settings.memory.outages.failed(&Origin::of(url), Instant::now());
    }

    /// A captive portal answers in the place of a URL's origin.
    pub fn is_behind_portal(&self, url: &Url) {
        self.shared.settings.memory.outages.behind_portal(&Origin::of(url), Instant::now());
    }

    /// Whether a captive portal answered in the place of a URL's origin a moment ago.
    pub fn was_behind_portal(&self, url: &Url) -> bool {
        self.shared.settings.memory.outages.is_portal(&Origin::of(url), Instant::now())
    }

    /// Whether any origin was out of reach of late.
    fn knows_outages(&self) -> bool {
        !self.shared.settings.memory.outages.is_empty()
    }

    /// An origin answered. When the network seemed to be away until then, the addresses that were silent may answer too.
    fn heard_from(&self, origin: &Origin, from: IpAddr) {
        let memory = &self.shared.settings.memory;
        if !self.knows_outages() {
            return;
        }
        if memory.outages.answered(origin, from, Instant::now()) {
            memory.unreachable.forget_all();
        }
    }

    /// The origin of a URL, for a fetch that may go on when its clients have left.
    pub fn asked(&self, url: &Url) -> AskedOrigin {
        self.shared.pool.asked(url)
    }

    /// When a download gets further range requests.
    pub fn range_pace(&self) -> RangePace {
        self.shared.settings.range_pace
    }

    /// The knowledge of a URL's origin about several ranges at once.
    pub fn ranges_known(&self, url: &Url) -> RangesKnown {
        self.shared.settings.memory.ranges.known(&Origin::of(url), Instant::now())
    }

    /// Remembers what was found of it.
    pub fn ranges_found(&self, url: &Url, found: RangesFound) {
        self.shared.settings.memory.ranges.found(Origin::of(url), found, Instant::now());
    }

    /// A permit for one more range request beside a running download: fewer than `max` are under way at the origin, nothing that is
    /// known of it speaks against it, and [`Upstreams::has_spare_permit`] holds.
    pub fn extra_range(&self, url: &Url, client: Client, max: usize) -> Option<ExtraRange> {
        // Servers of FTP count the connections of an address, and may refuse its next request.
        if url.scheme == Scheme::Ftp || !self.has_spare_permit(url, client) {
            return None;
        }
        self.shared.settings.memory.ranges.begin(Origin::of(url), max, Instant::now())
    }

    /// Whether a request of this client would get its permit at once and leave a quarter of the origin's permits to requests that
    /// clients wait for.
    pub fn has_spare_permit(&self, url: &Url, client: Client) -> bool {
        let permits = &self.shared.pool.origin((url, None), Instant::now()).permits;
        permits.waiting() == 0 && permits.has_room_to_spare(client)
    }

    /// Whether a request that no client asks for would get its permit at once.
    fn has_room(&self, url: &Url, tls_name: Option<&Host>) -> bool {
        self.shared.pool.origin((url, tls_name), Instant::now()).permits.has_room(None)
    }

    /// Plain TCP to any host and port, for a CONNECT: the same name lookup and race, and no limit per origin. `on` is told the way, where
    /// parents are meant.
    pub async fn tunnel(
        &self,
        host: &Host,
        port: u16,
        reach: &Reach,
        on: &dyn Fn(Box<WayNote>),
    ) -> Result<Wire, UpstreamFault> {
        let url = Url { scheme: Scheme::Https, host: host.clone(), port, path: "/".into() };
        match parents::of(&url, reach) {
            Some(parents) => self.tunnel_by_parents((host, port), (reach, &parents), on).await,
            None => {
                let Shared { dns, settings, .. } = &*self.shared;
                connect::open_plain(dns, settings, (host, port), reach, settings.connect_timeout).await
            }
        }
    }

    /// Plain TCP to the origin of a site that passes its clients' TLS through. It is told of the client first, where its site says so.
    pub async fn pass_through(
        &self,
        origin: &SiteOrigin,
        proxied: Option<Addresses>,
        reach: &Reach,
    ) -> Result<Wire, UpstreamFault> {
        let Shared { dns, settings, .. } = &*self.shared;
        let to = (&origin.host, origin.port);
        let mut wire = connect::open_plain(dns, settings, to, reach, settings.connect_timeout).await?;
        if let Some(version) = origin.proxy_protocol {
            connect::begin_with(&mut wire, &SentHeader { version, addresses: proxied }).await?;
        }
        Ok(wire)
    }

    /// Whether a host leads to this address, as far as name servers say within the time of a connection; a name that none knows leads nowhere.
    pub async fn leads_to(&self, host: &Host, ip: IpAddr) -> bool {
        let Shared { dns, settings, .. } = &*self.shared;
        let asked = async {
            let mut answers = dns.ask(host);
            while !answers.is_done() {
                if answers.next().await.is_ok_and(|known| known.iter().any(|known| known.to_canonical() == ip)) {
                    return true;
                }
            }
            false
        };
        tokio::time::timeout(settings.connect_timeout, asked).await.unwrap_or(false)
    }

    /// Fetches that go on although nobody reads them.
    #[cfg(test)]
    pub fn unread(&self) -> usize {
        self.shared.pool.unread()
    }

    /// Counts of connections and events.
    pub fn stats(&self) -> Stats {
        self.shared.pool.stats()
    }

    /// Closes idle connections whose time is over or which their origin has closed. Requests do this on their
    /// way, at most once a second; a worker without requests should call it from a timer.
    pub fn sweep(&self) {
        self.shared.pool.sweep();
    }
}
