//! The context of every exchange: settings, store, connections to origins and records. A server has one [`Common`]; each of its
//! workers has one [`Env`], which holds it. Neither knows a transport, a listener's socket or the admin side.

mod guard;

pub use guard::RecordGuard;

use crate::client::has_address;
use crate::clock::{self, Carried, Steps};
use crate::cluster::Cluster;
use crate::compression::UnderWay;
use crate::config::{Config, TextsLogged};
use crate::credential_secret::CredentialSecret;
use crate::handed_out::HandedOut;
use crate::hook::{HookLines, HookedVerdict};
use crate::icap::Services;
use crate::listener::Listener;
use crate::lists::{ListSet, Lists};
use crate::live::{self, Held, Live};
use crate::log::{AccessLog, Lines};
use crate::overload::StandingDelay;
use crate::package_index::IndexDigests;
use crate::page::Page;
use crate::people::{ClientCertificate, ConnectionLogin, People, User};
use crate::rates::Rates;
use crate::reach::{Asker, OwnAddresses, Reach, Way};
use crate::record::{Names, Number, Query, Readers, Record, Run};
use crate::tally::{Counters, Tally};
use crate::ticker::Ticker;
use crate::tls::site_certificates::SiteCertificates;
use crate::tokens::Tokens;
use crate::trace::Traces;
use crate::upstream::{NeighbourHealths, ParentHealths, Upstreams};
use bytes::Bytes;
use larder_cache::cache::Cache;
use larder_cache::policy;
use larder_rules::Matched;
use larder_rules::memo::PathMemo;
use larder_wire::date::Stamp;
use larder_wire::proxy_protocol::Addresses;
use larder_wire::{Host, RequestHead, Scheme, Version};
use std::cell::{OnceCell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Renders a page of the cache manager by its path; `None` when there is no such page.
pub type ManagerPages = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The context that all requests of a server share.
pub struct Common {
    /// The settings that the server was started with.
    pub config: Config,
    /// The settings in force. Workers read them by [`Env::config`].
    pub live: Live<Config>,
    /// Addresses on which this server listens, those of `larder run` and of the admin side included.
    pub own_addresses: Live<OwnAddresses>,
    /// Lists of hosts, URLs and networks. Workers read them by [`Env::lists`].
    pub lists: Arc<Lists>,
    /// The store.
    pub cache: Arc<Cache>,
    /// The caching rules for sites: a site is close to its origin, so `CDN-Cache-Control` is meant for it.
    pub site_policy: policy::Settings,
    /// The caching rules for a `larder run`.
    pub run_policy: policy::Settings,
    /// URLs with a signature that redirections have just handed out.
    pub handed_out: HandedOut,
    /// The digests that indexes of packages name.
    pub index_digests: Arc<IndexDigests>,
    /// The neighbouring caches that are asked.
    pub neighbour_healths: NeighbourHealths,
    /// The parents that connections were made to.
    pub parent_healths: Arc<ParentHealths>,
    /// The secret for keys by credential.
    pub credential_secret: CredentialSecret,
    /// Requests counted by rules with a rate.
    pub rates: Rates,
    /// Logins and helpers.
    pub people: People,
    /// Tokens of container registries.
    pub tokens: Tokens,
    /// Services of ICAP.
    pub icap: Services,
    /// The certificates of sites, and open challenges of their authority.
    pub site_certificates: Arc<SiteCertificates>,
    /// Counters since the start.
    pub counters: Counters,
    /// Turns numbers of requests into names and back.
    pub names: Names,
    /// The access log.
    pub log: AccessLog,
    /// Spans of sampled requests, where a collector is configured.
    pub traces: Option<Traces>,
    /// The cluster that this server is a node of, if any.
    pub cluster: Option<Arc<Cluster>>,
    /// The pages of Squid's cache manager, which the admin side renders; set once at the start.
    pub manager_pages: OnceLock<ManagerPages>,
    /// How often a task or thread of a worker met a broken invariant and began anew.
    pub worker_restarts: AtomicU64,
    /// Workers that come too late to their work.
    pub workers_behind: AtomicU64,
    /// Bodies that are being coded.
    pub codings: UnderWay,
    /// Held by a purge that counts its matches.
    pub purge_counting: tokio::sync::Semaphore,
    /// The name of this server in `Via`.
    pub via_name: String,
    via: [String; 4],
    boundary_seed: u64,
    boundaries: AtomicU64,
}

impl Common {
    /// The context of a server with these settings, over this store.
    pub fn new(config: Config, cache: Arc<Cache>, policies: Policies, log: AccessLog, via_name: String) -> Common {
        Common {
            live: Live::new(config.clone()),
            icap: Services::new(Arc::clone(&cache), config.store.clone()),
            own_addresses: Live::new(OwnAddresses::default()),
            lists: Arc::default(),
            cache,
            site_policy: policies.site,
            run_policy: policies.run,
            handed_out: HandedOut::default(),
            index_digests: Arc::default(),
            neighbour_healths: NeighbourHealths::default(),
            parent_healths: Arc::default(),
            credential_secret: CredentialSecret::new(config.store.clone()),
            rates: Rates::default(),
            people: People::of_store(config.store.clone()),
            tokens: Tokens::default(),
            site_certificates: Arc::default(),
            counters: Counters::default(),
            names: Names::default(),
            log,
            traces: None,
            cluster: None,
            manager_pages: OnceLock::new(),
            worker_restarts: AtomicU64::new(0),
            workers_behind: AtomicU64::new(0),
            codings: UnderWay::new(config.workers),
            purge_counting: tokio::sync::Semaphore::new(1),
            via: ["1.0", "1.1", "2.0", "3.0"].map(|version| format!("{version} {via_name}")),
            via_name,
            boundary_seed: RandomState::new().hash_one("boundary"),
            boundaries: AtomicU64::new(0),
            config,
        }
    }

    /// This server's member of a `Via` list for a message received in this version (RFC 9110 section 7.6.3).
    pub fn via(&self, received: Version) -> &str {
        match received {
            Version::Http10 => &self.via[0],
            Version::Http11 => &self.via[1],
            Version::Http2 => &self.via[2],
            Version::Http3 => &self.via[3],
        }
    }

    /// A multipart boundary that is not predictable, so that no body can contain it on purpose.
    pub fn boundary(&self) -> String {
        let number = self.boundaries.fetch_add(1, Ordering::Relaxed);
        format!("larder-{:016x}", self.boundary_seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Which texts of a request the access log needs; `None` while there is no log.
    pub fn logs(&self, lines: &Lines) -> Option<TextsLogged> {
        self.log.texts(lines)
    }

    /// Hands a finished record to its readers: counters, the run's summary, log, trace, and the ring of the last requests.
    pub fn finish(&self, tally: &Tally, run: Option<&Run>, mut record: Box<Record>) {
        tally.count(&record);
        if let Some(run) = run {
            run.count(&record);
        }
        if self.log.is_on() {
            self.log.line(&record, &self.names, &tally.lines);
        }
        if let (Some(traces), Some(sampled)) = (&self.traces, record.sampled.take()) {
            traces.end(*sampled, &record, &self.names, &tally.spans);
        }
        tally.ring.keep(record);
    }

    /// Adds a worker's counts to the sums, and hands its log lines and spans to their threads.
    pub fn gather(&self, tally: &Tally) {
        self.counters.add(tally);
        self.log.hand_over(&tally.lines);
        if let Some(traces) = &self.traces {
            traces.hand_over(&tally.spans);
        }
    }
}

/// The caching rules beside those of the forward proxy, which are the store's own.
pub struct Policies {
    /// For sites.
    pub site: policy::Settings,
    /// For a `larder run`.
    pub run: policy::Settings,
}

/// The context that all requests on one worker share. Nothing in here is touched by another thread.
pub struct Env {
    /// The context of all workers.
    pub common: Arc<Common>,
    /// The coarse clock.
    pub ticker: Rc<Ticker>,
    /// Connections to origins.
    pub upstreams: Upstreams,
    /// The wall clock.
    pub clock: Carried,
    /// Counts and records.
    pub tally: Tally,
    /// Room for the pieces of a body; empty between deliveries.
    pub pieces: RefCell<Vec<Bytes>>,
    /// Verdicts of the table of rules, by path.
    pub rule_paths: RefCell<PathMemo<Matched>>,
    /// Verdicts that depended on hooks, by path.
    pub hooked_paths: RefCell<PathMemo<Rc<HookedVerdict>>>,
    /// The hasher for the contexts of these verdicts.
    pub rule_contexts: RandomState,
    settings: live::Copy<Config>,
    own_addresses: live::Copy<OwnAddresses>,
    lists: live::Copy<ListSet>,
    /// Connections to processes of hooks, and decisions that are remembered.
    pub hooks: HookLines,
    /// How late the worker comes to its work.
    delay: RefCell<StandingDelay>,
}

/// A worker is behind once it has been late for so long.
const LATE_FOR: Duration = Duration::from_secs(1);

impl Env {
    /// The context of the worker with this number, from 0.
    pub fn new(common: Arc<Common>, number: usize, ticker: Rc<Ticker>, upstreams: Upstreams) -> Rc<Env> {
        let tally = Tally::default();
        let config = &common.config;
        let query = Query::hidden_if(config.records.hide_query);
        tally.ring.begin(number, config.requests_kept_max().div_ceil(config.workers.max(1)), query);
        let has_gate = common.cluster.is_some();
        Rc::new(Env {
            ticker,
            upstreams,
            // A machine that slept must find its gate shut.
            clock: Carried::new(if has_gate { Steps::AtOnce } else { Steps::Soon }),
            tally,
            pieces: RefCell::default(),
            rule_paths: RefCell::new(PathMemo::new(RandomState::new().hash_one("paths"))),
            hooked_paths: RefCell::new(PathMemo::new(RandomState::new().hash_one("hooked"))),
            rule_contexts: RandomState::new(),
            settings: live::Copy::default(),
            hooks: HookLines::default(),
            own_addresses: live::Copy::default(),
            lists: live::Copy::default(),
            delay: RefCell::default(),
            common,
        })
    }

    /// Notes how late the worker came to its work.
    pub fn note_delay(&self, delay: Duration) {
        let target = self.config().overload.worker_delay;
        let mut standing = self.delay.borrow_mut();
        let was_behind = standing.is_behind();
        standing.note(delay, (target, LATE_FOR), clock::instant().into());
        match (was_behind, standing.is_behind()) {
            (false, true) => self.common.workers_behind.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.common.workers_behind.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// Whether the worker has come too late to its work for some time.
    pub fn is_behind(&self) -> bool {
        self.delay.borrow().is_behind()
    }

    /// The settings in force.
    pub fn config(&self) -> Rc<Held<Config>> {
        self.settings.of(&self.common.live)
    }

    /// The edition of the settings that [`Env::config`] gave last.
    pub fn edition(&self) -> u64 {
        self.settings.edition()
    }

    /// The addresses on which this server listens now.
    pub fn own_addresses(&self) -> Rc<Held<OwnAddresses>> {
        self.own_addresses.of(&self.common.own_addresses)
    }

    /// The edition of the addresses that [`Env::own_addresses`] gave last.
    pub fn own_addresses_edition(&self) -> u64 {
        self.own_addresses.edition()
    }

    /// The lists in force.
    pub fn lists(&self) -> Rc<Held<ListSet>> {
        self.lists.of(self.common.lists.live())
    }

    /// The edition of the lists that [`Env::lists`] gave last: a memo of a judgement by lists holds for this one alone.
    pub fn lists_edition(&self) -> u64 {
        self.lists.edition()
    }

    /// Which addresses a request may connect to. `asker` is `None` for an origin of the configuration.
    pub fn reach(&self, asker: Option<Asker>) -> Reach {
        match asker {
            None => Reach::Configured,
            Some(asker) => {
                Reach::Asked { asker, config: self.config(), own: self.own_addresses(), way: Way::default() }
            }
        }
    }

    /// The wall clock in seconds, from a reading of the monotonic clock that was just taken.
    pub fn stamp_at(&self, now: Instant) -> Stamp {
        Stamp(self.clock.wall_at(now).as_secs())
    }

    /// The number for a request that was just read.
    pub fn next_number(&self) -> Number {
        self.tally.ring.number()
    }

    /// Begins the record of a request that was just read.
    pub fn begin_record(&self, request: &RequestHead, peer: &PeerFacts) -> Box<Record> {
        let readers = Readers { logged: self.common.logs(&self.tally.lines), kept: self.tally.ring.is_on() };
        let (number, spare) = (self.next_number(), self.tally.ring.spare());
        let mut record = Record::begin(request, peer.address, readers, number, &self.clock, spare);
        record.trail.listener = peer.listener.address;
        if let Some(name) = peer.certificate.as_ref().and_then(|certificate| certificate.name()) {
            record.note_certificate(name);
        }
        if let Some(traces) = &self.common.traces {
            record.sampled = traces.begin(request, self.config().tracing.sample, &self.tally.spans);
        }
        record
    }

    /// Begins the record of a request in a guard, which finishes it however the request ends.
    pub fn begin_guarded(self: &Rc<Self>, request: &RequestHead, peer: &PeerFacts) -> RecordGuard {
        RecordGuard::new(self, peer.listener.run.as_ref(), self.begin_record(request, peer))
    }

    /// Ends a record now, and hands it to its readers.
    pub fn finish(&self, run: Option<&Run>, mut record: Box<Record>) {
        record.ends(self.clock.ends());
        self.common.finish(&self.tally, run, record);
    }

    /// Records bytes that were no request, and were answered with this page.
    pub fn finish_refused(&self, listener: &Listener, address: SocketAddr, page: &Page) {
        self.finish_at(listener, Record::refused(address, page, self.next_number()));
    }

    /// Records bytes that were no request, or a request whose record was lost, where no answer could be sent.
    pub fn finish_unanswered(&self, listener: &Listener, address: SocketAddr, word: &'static str) {
        self.finish_at(listener, Record::unanswered(address, word, self.next_number()));
    }

    fn finish_at(&self, listener: &Listener, mut record: Record) {
        record.trail.listener = listener.address;
        self.finish(listener.run.as_deref(), Box::new(record));
    }
}

/// The facts about a client's connection that requests on it are judged by.
#[derive(Clone)]
pub struct PeerFacts {
    /// The listener that accepted it.
    pub listener: Arc<Listener>,
    /// The client's address.
    pub address: SocketAddr,
    /// The scheme of the connection: TLS or clear text. URLs of origin-form requests begin with it.
    pub scheme: Scheme,
    /// The host and port of the CONNECT inside which the connection was opened.
    pub inside: Option<Box<(Host, u16)>>,
    /// The address that the client has connected to, where it is another server's, or where an origin may be told of it.
    pub connected_to: Option<Box<ConnectedTo>>,
    /// Whether it is TLS that a site has passed through: its CONNECT is Larder's own word for it.
    pub is_passed_through: bool,
    /// The certificate that the client has shown to the listener.
    pub certificate: Option<Arc<ClientCertificate>>,
    /// The name for which the client's TLS asked, on this listener or inside the tunnel.
    pub sni: Option<Box<Host>>,
    /// The user who opened that tunnel, and the login of the connection for schemes that authenticate connections; empty for nearly all.
    pub login: OnceCell<Arc<ConnectionLogin>>,
}

/// The address that a client has connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectedTo {
    /// The address; that of the balancer where one passes the connection on.
    pub address: SocketAddr,
    /// Whether it is another server's, and the kernel brought the connection here instead.
    pub is_elsewhere: bool,
}

impl PeerFacts {
    /// A connection of which no more is known than its listener, its client and its scheme.
    pub fn at(listener: &Arc<Listener>, address: SocketAddr, scheme: Scheme) -> PeerFacts {
        PeerFacts {
            listener: Arc::clone(listener),
            address,
            scheme,
            inside: None,
            connected_to: None,
            is_passed_through: false,
            certificate: None,
            sni: None,
            login: OnceCell::new(),
        }
    }

    /// The line by which answers tell the client of HTTP/3, where its listener serves that.
    pub fn alt_svc(&self) -> Option<&str> {
        match self.inside {
            None => self.listener.alt_svc(),
            Some(_) => None,
        }
    }

    /// The address that the client has connected to, where the kernel brought the connection here instead.
    pub fn destination(&self) -> Option<SocketAddr> {
        self.connected_to.as_deref().filter(|to| to.is_elsewhere).map(|to| to.address)
    }

    /// The far end of a tunnel that was asked for with this host and port: the server that the client has connected to, where that is known.
    pub fn tunnel_end(&self, host: &Host, port: u16) -> (Host, u16) {
        let connected = self.destination().map(|to| (Host::from(to.ip().to_canonical()), to.port()));
        connected.unwrap_or_else(|| (host.clone(), port))
    }

    /// The client and the address that it connected to, as an origin is told of them by the PROXY protocol; `None` where that is not known.
    /// A connection that was accepted before a reload asked for it has the address of its listener.
    pub fn proxied(&self) -> Option<Addresses> {
        if !has_address(self.address.ip()) {
            return None;
        }
        let connected_to = self.connected_to.as_deref().map(|to| to.address);
        let destination = connected_to.or_else(|| self.listener.bound())?;
        Some(Addresses { source: self.address, destination })
    }

    /// The user who opened the tunnel inside which the connection is.
    pub fn tunnel_user(&self) -> Option<&Arc<User>> {
        self.login.get()?.tunnel_user()
    }
}
