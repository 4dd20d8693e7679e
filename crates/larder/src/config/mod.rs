//! The settings of a server, as plain values that are right by construction.
//!
//! [`Config::default`] is useful as it is. [`Loaded::read`] puts a file and flags over it, [`table`] lists every
//! setting once (the parser, `larder config` and `docs/settings.md` come from it), [`Report`] shows all that is
//! wrong at once. Behind this border nothing is checked twice.

mod access;
pub mod acme;
pub mod application;
pub mod bandwidth;
mod cluster;
pub mod compression;
pub mod container;
pub mod descriptors;
mod foreign;
mod forward;
pub mod helper;
pub mod icap;
mod ldap;
pub mod list;
mod listen;
mod log_format;
pub mod login;
pub mod manual;
mod mirrors;
mod names;
mod neighbours;
pub mod next_hop;
pub mod origin;
mod overload;
pub mod parent;
mod parse;
pub mod places;
mod presets;
pub mod proxy_variables;
pub mod python;
mod report;
pub mod rule;
mod secret;
pub mod setting;
mod site_route;
mod sites;
pub mod spelling;
mod store_rule;
mod store_rules;
pub mod table;
pub mod units;
pub mod url;

pub use access::{Access, EXTERNAL_MAX};
pub use acme::{Acme, AcmeChallenge, SiteCertificate};
pub use cluster::{Apart, CLUSTER_NAME_BYTES_MAX, ClusterSettings, is_reachable, is_subject_word, read_cluster_secret};
pub use foreign::hint as foreign_hint;
pub use forward::{ForwardHooks, ForwardParents};
pub use helper::{ForwardHelpers, Helper, HelperFailure};
pub use icap::{Icap, IcapStage, OnNewTag, PREVIEW_BYTES_MAX, PreviewSetting};
pub use larder_rules::{HostPattern, Networks, PathPattern};
pub use ldap::{Ldap, LdapFilter, LdapServer};
pub use list::{List, ListSource};
pub use listen::{
    CertificateDemand, CertificateUser, ClientCertificates, Forwarding, Listen, Transparent, listen_address,
};
pub use log_format::{LogField, LogFormat, Part, Template, TextsLogged};
pub use login::{Login, LoginScheme, SiteForm};
pub use mirrors::{Mirror, MirrorRule, MirrorSetting, Mirroring};
pub use neighbours::Neighbours;
pub use origin::{OriginGroup, OriginHttp2, OriginMember};
pub use overload::Overload;
pub use parse::{Flag, Loaded, ValueSource};
pub use presets::PRESETS;
pub use python::{Mount, Python};
pub use report::{Problem, Report};
pub use secret::Secret;
pub use site_route::SiteRoute;
pub use sites::{Ambiguous, Sites};
pub use store_rule::{FieldPattern, ParameterPattern, StoreRule};
pub use store_rules::{KeyRule, Presets, StoreRules};
pub use url::SiteOrigin;

use compression::Compression;
use larder_cache::policy::SetCookie;
use larder_wire::proxy_protocol::ProxyVersion;
use larder_wire::{Host, Url};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// All settings of one server.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where clients are served; never empty.
    pub listens: Vec<Listen>,
    /// Where the page and the metrics are; `None` switches them off.
    pub admin: Option<SocketAddr>,
    /// The authority that issues certificates of sites.
    pub acme: Acme,
    /// Neighbouring caches that may ask what is stored here.
    pub neighbours: Neighbours,
    /// When a queue counts as overloaded.
    pub overload: Overload,
    /// The cluster that this server is a node of.
    pub cluster: ClusterSettings,
    /// The token that a client of the page must present; required unless `admin` is of this machine alone.
    pub admin_token: Option<Secret>,
    /// Patterns of further files.
    pub include: Vec<String>,
    /// The folder for the local CA, the control socket and what the disk keeps; `None`: the user's cache folder.
    pub store: Option<PathBuf>,
    /// Budget of the memory store, bookkeeping included.
    pub memory_bytes: u64,
    /// Budget of the disk store; 0 keeps everything in memory. `None`: not said.
    pub disk_bytes: Option<u64>,
    /// The disk store, but for its size.
    pub disk: DiskSettings,
    /// Largest object that is kept in memory.
    pub memory_object_bytes_max: u64,
    /// Largest object that is kept at all.
    pub object_bytes_max: u64,
    /// Worker threads; at least 1.
    pub workers: usize,
    /// Whether the process gives up what its settings do not name.
    pub sandbox: bool,
    /// Origins served as a reverse proxy, the longest prefix first among equal hosts.
    pub sites: Sites,
    /// Presets of store rules that count for the forward proxy.
    pub presets: Vec<String>,
    /// The operator's own store rules, in the order of the file.
    pub store_rules: Vec<StoreRule>,
    /// The rules about requests, as they are written, in the order of the files and their lines.
    pub rules: Arc<Vec<rule::RuleSettings>>,
    /// The same rules, compiled.
    pub rule_table: Arc<rule::RuleTable>,
    /// Upstreams that have a short name on listeners that are a mirror.
    pub mirrors: Vec<Arc<Mirror>>,
    /// Lists of hosts, URLs and networks.
    pub lists: Vec<Arc<List>>,
    /// Proxies through which requests may go.
    pub parents: Vec<Arc<parent::Parent>>,
    /// The caches that are asked beforehand.
    pub siblings: Vec<Arc<parent::Sibling>>,
    /// Those through which requests of the forward proxy go.
    pub forward_parents: ForwardParents,
    /// Limits of bandwidth.
    pub bandwidths: Vec<Arc<bandwidth::BandwidthSettings>>,
    /// The hooks of the forward proxy.
    pub forward: ForwardHooks,
    /// The surroundings of applications in Python.
    pub pythons: Vec<Arc<Python>>,
    /// The groups of origins that sites name.
    pub origins: Vec<Arc<OriginGroup>>,
    /// Whether any origin is told of the client by the PROXY protocol.
    pub tells_origins_of_clients: bool,
    /// The services of ICAP, in the order in which they are asked.
    pub icaps: Vec<Arc<Icap>>,
    /// The applications in Python that sites and listeners have as their origins.
    pub mounts: Vec<Arc<Mount>>,
    /// Programs that speak the line protocols of Squid's helpers.
    pub helpers: Vec<Arc<Helper>>,
    /// How people say who they are.
    pub logins: Vec<Arc<Login>>,
    /// Those of them that are pages.
    pub login_pages: Vec<Arc<Login>>,
    /// Those of them that are forms of sites, and that a site or a rule asks for.
    pub site_forms: Vec<SiteForm>,
    /// How much is accepted of anything.
    pub limits: Limits,
    /// How long is waited for anything.
    pub timeouts: Timeouts,
    /// Networks that may use the proxy, and the ones it may reach.
    pub access: Access,
    /// Whether clients of the forward proxy may ask for files of FTP servers.
    pub forward_ftp: bool,
    /// Programs that change what is asked for through the forward proxy.
    pub forward_helpers: ForwardHelpers,
    /// The access log, if any.
    pub log: Option<Log>,
    /// Whether its lines leave out the values of queries.
    pub log_hides_query: bool,
    /// Hosts that an intercepting listener tunnels without opening TLS.
    pub intercept: Intercept,
    /// The way to origins.
    pub upstream: UpstreamSettings,
    /// Lifetimes of responses that give none, and the kind of cache.
    pub policy: PolicySettings,
    /// Records of the last requests.
    pub records: Records,
    /// The export of requests as spans of traces.
    pub tracing: Tracing,
}

/// The export of requests as spans of traces.
#[derive(Clone, Debug, PartialEq)]
pub struct Tracing {
    /// The base URL of a collector; `None`: nobody.
    pub otlp: Option<Url>,
    /// The share of requests that are sampled, where their sender does not decide it.
    pub sample: f64,
    /// The name of this server at the collector.
    pub service: String,
    /// Spans that wait for a slow collector; further ones are dropped and counted.
    pub queue_spans_max: usize,
}

impl Default for Tracing {
    fn default() -> Tracing {
        Tracing { otlp: None, sample: 0.01, service: "larder".to_owned(), queue_spans_max: 8_192 }
    }
}

/// Records of the last requests take a small part of the memory, however long they are.
const MEMORY_BYTES_PER_REQUEST: u64 = 20_000;

/// Records of the last requests, from which they can be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records {
    /// So many requests, over all workers.
    pub requests_max: usize,
    /// Values of queries are left out.
    pub hide_query: bool,
    /// Each answer says the name of its request.
    pub name_answers: bool,
}

impl Default for Records {
    fn default() -> Records {
        Records { requests_max: 4_000, hide_query: false, name_answers: false }
    }
}

/// No object is longer.
const PETABYTE: u64 = 1 << 50;

/// How the disk store is used.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskSettings {
    /// Folders; empty: `disk` below the store's folder.
    pub folders: Vec<PathBuf>,
    /// Bytes that stay free on the file system.
    pub free_bytes_min: u64,
    /// How much of what was stored last a power cut may lose.
    pub sync: Duration,
    /// Which objects go to disk.
    pub admission: DiskAdmission,
}

impl Default for DiskSettings {
    fn default() -> DiskSettings {
        DiskSettings {
            folders: Vec::new(),
            free_bytes_min: 1_000_000_000,
            sync: Duration::from_secs(5),
            admission: DiskAdmission::Auto,
        }
    }
}

/// Which objects go to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskAdmission {
    /// Each.
    All,
    /// Those asked for a second time of late.
    SeenTwice,
    /// Each while there is free room, then those seen twice.
    Auto,
}

impl DiskAdmission {
    /// All of them.
    pub const ALL: [DiskAdmission; 3] = [DiskAdmission::All, DiskAdmission::SeenTwice, DiskAdmission::Auto];

    /// The word of the setting.
    pub fn as_str(self) -> &'static str {
        match self {
            DiskAdmission::All => "all",
            DiskAdmission::SeenTwice => "seen-twice",
            DiskAdmission::Auto => "auto",
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        let memory_bytes = 256_000_000;
        Config {
            listens: vec![Listen::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 3128)))],
            admin: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 3129))),
            acme: Acme::default(),
            neighbours: Neighbours::default(),
            overload: Overload::default(),
            cluster: ClusterSettings::default(),
            admin_token: None,
            include: Vec::new(),
            store: None,
            memory_bytes,
            disk_bytes: None,
            disk: DiskSettings::default(),
            memory_object_bytes_max: Config::memory_object_bytes_max_for(memory_bytes),
            object_bytes_max: PETABYTE,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            sandbox: false,
            sites: Sites::default(),
            presets: Vec::new(),
            store_rules: Vec::new(),
            rules: Arc::default(),
            rule_table: Arc::default(),
            mirrors: Vec::new(),
            lists: Vec::new(),
            parents: Vec::new(),
            siblings: Vec::new(),
            forward_parents: ForwardParents::default(),
            bandwidths: Vec::new(),
            forward: ForwardHooks::default(),
            pythons: Vec::new(),
            origins: Vec::new(),
            icaps: Vec::new(),
            mounts: Vec::new(),
            tells_origins_of_clients: false,
            helpers: Vec::new(),
            logins: Vec::new(),
            login_pages: Vec::new(),
            site_forms: Vec::new(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            access: Access::default(),
            forward_ftp: true,
            forward_helpers: ForwardHelpers::default(),
            log: None,
            log_hides_query: false,
            intercept: Intercept::default(),
            upstream: UpstreamSettings::default(),
            policy: PolicySettings::default(),
            records: Records::default(),
            tracing: Tracing::default(),
        }
    }
}

impl Config {
    /// Whether nobody can connect to a listener but programs of this machine.
    pub fn is_of_this_machine(&self) -> bool {
        self.listens.iter().all(Listen::is_of_this_machine)
    }

    /// Whether the page answers nobody, for others can connect to a listener and there is no token.
    pub fn page_is_closed(&self) -> bool {
        self.admin.is_some() && self.admin_token.is_none() && !self.is_of_this_machine()
    }

    /// How many of the last requests are kept: with little memory, one for each 20 kB of it.
    pub fn requests_kept_max(&self) -> usize {
        let fitting = usize::try_from(self.memory_bytes / MEMORY_BYTES_PER_REQUEST).unwrap_or(usize::MAX);
        self.records.requests_max.min(fitting)
    }

    /// Bytes that all partial heads on one worker may hold together.
    pub fn heads_under_way_bytes_max(&self) -> usize {
        self.limits.heads_bytes_max.div_ceil(self.workers.max(1))
    }

    /// The default limit of one object: a quarter of the memory, so that one download cannot sweep out the rest.
    pub fn memory_object_bytes_max_for(memory_bytes: u64) -> u64 {
        memory_bytes / 4
    }

    /// The default limit of one object on disk: a quarter of the disk, so that one download cannot sweep out the rest.
    pub fn object_bytes_max_for(disk_bytes: Option<u64>) -> u64 {
        disk_bytes.filter(|&bytes| bytes > 0).map_or(PETABYTE, |bytes| bytes / 4)
    }

    /// The folders of the disk store.
    pub fn disk_folders(&self) -> Vec<PathBuf> {
        match &*self.disk.folders {
            [] => self.store_folder().map(|folder| folder.join("disk")).into_iter().collect(),
            named => named.to_vec(),
        }
    }

    /// The folder of the control socket and of what the disk keeps; `None` when nothing is said and the user has
    /// no home.
    pub fn store_folder(&self) -> Option<PathBuf> {
        self.store.clone().or_else(|| user_folder("XDG_CACHE_HOME", ".cache"))
    }

    /// The folder of the local CA: with a store named it lies there, else in the user's data folder, for a
    /// cache folder may be emptied at any time and trust in the CA would go with it.
    pub fn authority_folder(&self) -> Option<PathBuf> {
        self.lasting_folder().map(|folder| folder.join("ca"))
    }

    /// The folder of the account at the authority of `[acme]` and of the certificates that it has issued, beside that of the local CA.
    pub fn acme_folder(&self) -> Option<PathBuf> {
        self.lasting_folder().map(|folder| folder.join("acme"))
    }

    fn lasting_folder(&self) -> Option<PathBuf> {
        self.store.clone().or_else(|| user_folder("XDG_DATA_HOME", ".local/share"))
    }
}

/// Larder's folder by the rules of the XDG base directories, where a relative path in the variable is void.
pub(crate) fn user_folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(below_home));
    named.or_else(home).map(|folder| folder.join("larder"))
}

/// The place of a table in a file. It is no part of the table's value, so all places are equal.
#[derive(Clone, Debug, Default)]
pub struct SourceLine(pub Option<(std::sync::Arc<str>, usize)>);

impl PartialEq for SourceLine {
    fn eq(&self, _: &SourceLine) -> bool {
        true
    }
}

impl std::fmt::Display for SourceLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some((file, line)) => write!(f, "{file}:{line}"),
            None => f.write_str("default"),
        }
    }
}

/// A certificate chain and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate and those above it.
    pub chain: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// A part of the URL space that is served from an origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Hosts of the site; never empty.
    pub hosts: Vec<HostPattern>,
    /// Paths that begin so belong to the site; begins with `/`. It is forwarded, not cut off.
    pub prefix: String,
    /// Where it comes from; a path in it is put before the request's.
    pub origin: Arc<SiteOrigin>,
    /// Which `Host` the origin sees.
    pub host_header: HostHeader,
    /// Where its certificate comes from.
    pub certificate: SiteCertificate,
    /// Whether the origin is asked by HTTP/2; as `upstream.http2` says where `None`.
    pub http2: Option<OriginHttp2>,
    /// The version of the PROXY protocol by which the origin is told of the client.
    pub proxy_protocol: Option<ProxyVersion>,
    /// The codings that Larder gives to its responses.
    pub compression: Arc<Compression>,
    /// Whether its TLS goes to the origin unopened.
    pub pass_through: bool,
    /// The `[[python]]` whose processes run the application that is its origin; empty: the only one, or the defaults.
    pub python: String,
    /// Files with hooks, in the order in which they run; below the folder of the `[[python]]`.
    pub hooks: Vec<String>,
    /// The name of the processes that run these hooks; `None` where there are none.
    pub hooked_by: Option<Host>,
    /// Further origins, which hooks may choose by name.
    pub routes: Vec<SiteRoute>,
    /// The `[[login]]` that its clients need; empty: none.
    pub login: String,
    /// The helpers of `external_acl` that have to permit a request.
    pub external: Vec<String>,
    /// The helper of `url_rewrite`; empty: none.
    pub url_rewrite: String,
    /// The helper of `store_id`; empty: none.
    pub store_id: String,
    /// Where it stands.
    pub place: SourceLine,
}

/// Which `Host` an origin behind a reverse proxy sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostHeader {
    /// The one that the client asked for, so that the origin makes links that work for the client.
    Client,
    /// The authority of the origin's URL, for origins that know themselves by that name only.
    Origin,
}

impl HostHeader {
    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            HostHeader::Client => "client",
            HostHeader::Origin => "origin",
        }
    }
}

/// Limits of sizes and numbers. A request beyond a limit is answered 4xx or 503, or waits; each limit says which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Start line and fields of a message, and trailers; more is 431 to a client, 502 from an origin.
    pub head_bytes_max: usize,
    /// Request target; more is 414.
    pub target_bytes_max: usize,
    /// Fields in a head; more is 431 to a client, 502 from an origin.
    pub fields_max: usize,
    /// Request body; more is 413.
    pub body_bytes_max: Option<u64>,
    /// Open client connections; further ones are answered 503 and closed.
    pub connections_max: usize,
    /// Open connections of one client.
    pub connections_per_client_max: Option<usize>,
    /// Bytes that all partial heads hold together.
    pub heads_bytes_max: usize,
    /// The bytes of a long answer from disk that may wait in the kernel to be sent; half of that for others.
    pub unsent_bytes_max: u32,
    /// Requests that wait until one of those under way at their origin ends; further ones are answered 503.
    pub waiting_per_origin_max: usize,
    /// Of an origin's connections and of those places to wait, the part that one client may have.
    pub origin_share_percent: u32,
    /// A request body has to come that fast on average, its client's silence taken together.
    pub upload_bytes_per_second_min: u64,
    /// An answer has to be taken that fast on average.
    pub download_bytes_per_second_min: u64,
    /// Bodies that are being coded at once; further ones are stored and sent as they are.
    pub codings_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_bytes_max: 64 << 10,
            target_bytes_max: 16 << 10,
            fields_max: 128,
            body_bytes_max: None,
            connections_max: 10_000,
            connections_per_client_max: Some(2_500),
            heads_bytes_max: 8_000_000,
            unsent_bytes_max: 1 << 20,
            waiting_per_origin_max: 1_024,
            origin_share_percent: 50,
            upload_bytes_per_second_min: 100,
            download_bytes_per_second_min: 100,
            codings_max: 16,
        }
    }
}

/// How long is waited for anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From a request's first byte (a new connection: from its opening, TLS included) to the end of its head; then 408.
    pub head: Duration,
    /// Between two requests of a client's connection; then it is closed.
    pub idle: Duration,
    /// Without a further byte of a request's body; then 408.
    pub body: Duration,
    /// The silence of a client during a whole request body; what it sends earns more by `upload_bytes_per_second_min`.
    pub upload_silence: Duration,
    /// Without progress in writing to a client; then the connection is closed.
    pub write: Duration,
    /// The time that a client may take nothing of a whole answer; what it takes earns more.
    pub download_stall: Duration,
    /// For how long a client that has ended its direction is still taken to wait for its answer.
    pub half_closed: Duration,
    /// To resolve, connect and finish TLS with an origin; then 504.
    pub connect: Duration,
    /// For a silent origin where a stored response may stand in for its answer; then that one is sent.
    pub before_stale: Duration,
    /// From the request's end to the head of the origin's answer; then 504.
    pub first_byte: Duration,
    /// Without a further byte of an origin's body, or without progress in writing to it.
    pub origin_idle: Duration,
    /// For a request as a whole.
    pub request: Option<Duration>,
    /// Without a byte in either direction of a tunnel.
    pub tunnel_idle: Duration,
    /// After SIGTERM, for requests to end.
    pub drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            head: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            body: Duration::from_secs(60),
            upload_silence: Duration::from_secs(30),
            write: Duration::from_secs(60),
            download_stall: Duration::from_secs(60),
            half_closed: Duration::from_secs(3),
            connect: Duration::from_secs(10),
            before_stale: Duration::from_millis(800),
            first_byte: Duration::from_secs(60),
            origin_idle: Duration::from_secs(60),
            request: None,
            tunnel_idle: Duration::from_secs(900),
            drain: Duration::from_secs(30),
        }
    }
}

/// Where the access log goes, and its form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Where to.
    pub to: LogTo,
    /// The format of a line.
    pub format: LogFormat,
    /// Bytes of lines that wait for a slow sink; further lines are dropped and counted.
    pub queue_bytes_max: usize,
}

impl Log {
    pub(crate) fn to_stdout() -> Log {
        Log { to: LogTo::Stdout, format: LogFormat::Combined, queue_bytes_max: 16_000_000 }
    }
}

/// Where an access log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTo {
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
    /// A file that is appended to.
    File(PathBuf),
    /// The system's log, by its datagram socket.
    Syslog(PathBuf),
}

/// Exceptions of intercepting listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intercept {
    /// Hosts that are tunnelled unopened.
    pub pass: Vec<HostPattern>,
}

/// The way to origins. Certificates are always verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// Requests under way at one origin, each on a connection of its own; further ones wait (`waiting_per_origin_max`).
    pub connections_per_origin_max: usize,
    /// Unused connections kept to one origin.
    pub idle_per_origin_max: usize,
    /// Unused connections kept to all origins together.
    pub idle_max: usize,
    /// Fetches from one origin that go on although their clients have left.
    pub unread_fetches_per_origin_max: usize,
    /// As `unread_fetches_per_origin_max`, over all origins together.
    pub unread_fetches_max: usize,
    /// Requests at once for one large download, the first one included; 1 for never more than that.
    pub parallel_ranges: usize,
    /// Whether that is for the origins of sites too.
    pub parallel_for_sites: bool,
    /// How long an unused connection is kept.
    pub idle: Duration,
    /// The resolver of host names.
    pub resolver: ResolverKind,
    /// Memory for answers of name servers.
    pub dns_bytes_max: usize,
    /// PEM files with certificates to trust besides those of the system.
    pub extra_roots: Vec<PathBuf>,
    /// Whether origins with https are asked by HTTP/2, where nothing else is said of one.
    pub http2: OriginHttp2,
}

impl Default for UpstreamSettings {
    fn default() -> UpstreamSettings {
        UpstreamSettings {
            connections_per_origin_max: 512,
            idle_per_origin_max: 64,
            idle_max: 8192,
            unread_fetches_per_origin_max: 64,
            unread_fetches_max: 256,
            parallel_ranges: 6,
            parallel_for_sites: false,
            idle: Duration::from_secs(30),
            resolver: ResolverKind::Dns,
            dns_bytes_max: 1 << 20,
            extra_roots: Vec::new(),
            http2: OriginHttp2::Off,
        }
    }
}

/// The resolver of host names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolverKind {
    /// Asked directly: the hosts file, then the servers of resolv.conf; the TTL is honoured.
    Dns,
    /// The system's resolver with all its plug-ins, which tells no TTL.
    System,
}

impl ResolverKind {
    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            ResolverKind::Dns => "dns",
            ResolverKind::System => "system",
        }
    }
}

/// The kind of cache, and lifetimes where the origin gives none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySettings {
    /// Whether the cache is shared or private (RFC 9111 section 1).
    pub mode: CacheMode,
    /// The handling of answers that set a cookie.
    pub set_cookie: SetCookie,
    /// Share of the time since Last-Modified that an answer without a lifetime stays fresh (RFC 9111 section 4.2.2).
    pub heuristic_percent: u32,
    /// The longest such lifetime.
    pub heuristic_max: Duration,
    /// How long an answer that says nothing at all of its freshness stays fresh.
    pub unlabelled: Duration,
    /// As `unlabelled`, for files that a `larder run` fetches.
    pub unlabelled_run: Duration,
    /// As `unlabelled_run`, for files whose name has a version or a digest.
    pub unlabelled_run_named: Duration,
    /// Answers of git are stored on all listeners, not for a `larder run` alone.
    pub git: bool,
}

impl Default for PolicySettings {
    fn default() -> PolicySettings {
        PolicySettings {
            mode: CacheMode::Shared,
            set_cookie: SetCookie::Pass,
            heuristic_percent: 10,
            heuristic_max: Duration::from_secs(86_400),
            unlabelled: Duration::ZERO,
            unlabelled_run: Duration::from_secs(600),
            unlabelled_run_named: Duration::from_secs(90 * 86_400),
            git: false,
        }
    }
}

/// The word in the configuration for what becomes of answers that set a cookie.
pub fn set_cookie_word(choice: SetCookie) -> &'static str {
    match choice {
        SetCookie::Pass => "pass",
        SetCookie::Strip => "strip",
        SetCookie::Keep => "keep",
    }
}

/// Whom the cache serves (RFC 9111 section 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheMode {
    /// Many users: nothing private is kept.
    Shared,
    /// One user.
    Private,
}

impl CacheMode {
    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            CacheMode::Shared => "shared",
            CacheMode::Private => "private",
        }
    }
}
