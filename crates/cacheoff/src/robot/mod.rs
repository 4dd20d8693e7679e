//! Robots: each draws what to ask, asks it from its own address, and judges what it got.

mod ask;
mod case;
mod demand;
mod dial;
mod h2;
mod job;
mod judge;
mod labels;
mod multipart;
mod pending;
mod rejudge;
mod request;
mod retrial;
mod script;
mod shelf;

pub use ask::{After, Ask, Outcome};
pub use case::{Case, Remark, Turn, Wrong};
pub use demand::{Demand, Kindred, Part, Parts, Wish};
pub use dial::trouble_of;
pub use h2::{Multiplexed, Room, StreamOutcome, StreamSettings};
pub use job::{Desk, Job, Report};
pub use judge::{Findings, Judge, Verdict};
pub use pending::{Company, Pending, Purge};
pub use request::{write_connect, write_request};
pub use retrial::{Bench, Retrial};
pub use script::{Line, Script};
pub use shelf::Shelf;

use crate::distribution::Distribution;
use crate::ledger::Mode;
use crate::link::Link;
use crate::origin::Hosts;
use larder_wire::Version;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Settings that all robots share.
#[derive(Clone, Debug, PartialEq)]
pub struct RobotSettings {
    /// How many there are.
    pub count: u32,
    /// How many share an address.
    pub per_address: u32,
    /// The addresses that they ask from.
    pub addresses: RobotAddresses,
    /// When each asks.
    pub pace: Pace,
    /// All ask at once when a phase begins.
    pub together: bool,
    /// Probability that a request repeats a name.
    pub recurrence: f64,
    /// Share of the requests whose names all robots of a worker share.
    pub public: f64,
    /// Which name a repetition repeats.
    pub popularity: Popularity,
    /// Names that are asked for more often for a while.
    pub hot_set: Option<HotSet>,
    /// Probability with which the smallest of nine neighbours is taken.
    pub discrimination: f64,
    /// Shares of the content types among requests that no page makes.
    pub direct: Vec<(u8, f64)>,
    /// Probability that an embedded object is asked for.
    pub embed_recurrence: f64,
    /// Whether a page that was answered 304 leads to what it embeds.
    pub embeds_of_304: bool,
    /// Kinds of requests with their shares; the rest is basic.
    pub kinds: Vec<(Special, f64)>,
    /// Bytes of a POST or PUT.
    pub post_bytes: Distribution,
    /// Share of the requests with a body that hold it back until they are told to go on.
    pub expect_continue: f64,
    /// How parts are asked for.
    pub ranges: Ranges,
    /// Requests that a connection carries; `None` for any number.
    pub uses: Option<Distribution>,
    /// Connections that a robot may have open.
    pub connections_max: u32,
    /// Requests that are sent on one before the first of them is answered.
    pub pipeline: u32,
    /// Requests that may wait for one.
    pub waiting_max: usize,
    /// The HTTP version that requests name, over HTTP/1.
    pub version: Version,
    /// Robots speak HTTP/2, with these limits.
    pub streams: Option<StreamSettings>,
    /// Share of the replies whose reading a robot breaks off.
    pub abort: f64,
    /// Bytes per second that a connection is read at; 0 for as they come.
    pub read_bytes_per_s: u64,
    /// Share of the requests with a cookie of the robot.
    pub cookie: f64,
    /// Share of the requests of a user who is logged in.
    pub logged_in: f64,
    /// Whether each logs in at the proxy.
    pub proxy_login: bool,
    /// The status that the cache must give by itself, if it must.
    pub expected: Option<u16>,
    /// Share of the robots that accept compressed variants.
    pub accepts_gzip: f64,
    /// Seconds that an origin may take at most: think time and link.
    pub delay_s_max: u64,
    /// How long a reply may take.
    pub timeout: Duration,
    /// The link between robots and cache.
    pub link: Link,
}

impl RobotSettings {
    /// Whether robots send what makes caches drop, or mark as stale, what they have stored (RFC 9111 section 4.4).
    pub fn may_invalidate(&self) -> bool {
        self.kinds
            .iter()
            .any(|(kind, share)| *share > 0.0 && matches!(kind, Special::Post | Special::Put | Special::Purge))
    }
}

impl Default for RobotSettings {
    /// One robot that asks plain questions about one type of objects.
    fn default() -> Self {
        Self {
            count: 1,
            per_address: 1,
            addresses: RobotAddresses::default(),
            pace: Pace::Closed(Distribution::Constant(0.0)),
            together: false,
            recurrence: 1.0,
            public: 1.0,
            popularity: Popularity::Uniform,
            hot_set: None,
            discrimination: 0.0,
            direct: vec![(0, 1.0)],
            embed_recurrence: 1.0,
            embeds_of_304: false,
            kinds: Vec::new(),
            post_bytes: Distribution::Constant(0.0),
            expect_continue: 0.0,
            ranges: Ranges {
                bytes: Distribution::Constant(1.0),
                suffix: 0.0,
                parts: Distribution::Constant(1.0),
                parallel: Distribution::Constant(1.0),
            },
            uses: None,
            connections_max: 4,
            pipeline: 1,
            waiting_max: 1_000,
            version: Version::Http11,
            streams: None,
            abort: 0.0,
            read_bytes_per_s: 0,
            cookie: 0.0,
            logged_in: 0.0,
            proxy_login: false,
            expected: None,
            accepts_gzip: 0.0,
            delay_s_max: 1,
            timeout: Duration::from_secs(10),
            link: Link::default(),
        }
    }
}

/// When a robot asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// At random times, so many a second on the average, whatever the replies do.
    Poisson(f64),
    /// With a constant gap, whatever the replies do.
    Constant(Duration),
    /// After the last reply and a pause in seconds.
    Closed(Distribution),
    /// At the times of a log, each request by the next robot.
    Log,
}

/// A kind of request that is not basic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// If-Modified-Since before the last change.
    ModifiedBefore,
    /// If-Modified-Since after the last change.
    ModifiedAfter,
    /// If-None-Match with the current tag.
    TagMatch,
    /// Past the cache.
    Reload,
    /// The head alone.
    Head,
    /// With a body, to be handled.
    Post,
    /// With a body, to be stored.
    Put,
    /// A part.
    Part,
    /// Invalidation of its URL.
    Purge,
}

/// How parts are asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranges {
    /// Bytes of a part.
    pub bytes: Distribution,
    /// Share of those that are asked for as the end of an object.
    pub suffix: f64,
    /// Parts that one request asks for.
    pub parts: Distribution,
    /// Parts into which a basic request is divided.
    pub parallel: Distribution,
}

/// The factors of a phase on probabilities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Multipliers {
    /// Of repetition.
    pub recurrence: f64,
    /// Of requests that are not basic.
    pub special: f64,
    /// Of the hot set.
    pub hot: f64,
}

/// Which name a repetition repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// Any of the window, each as likely as the others.
    Uniform,
    /// Recent ones first: `1 + last − int((last + 1) ^ (U ^ s))`.
    Recent(f64),
    /// Of a fixed set, by a rank with this exponent; a share of the ranks gets another object each hour.
    Zipf {
        /// Weight of a rank: `rank ^ -exponent`.
        exponent: f64,
        /// Share of the ranks.
        churn_per_hour: f64,
    },
    /// Of a fixed set, one after the other.
    Sequence,
    /// A tree whose pages link to so many others each, breadth first.
    Tree(u32),
    /// Lists and segments of channels.
    Live {
        /// Length of a segment.
        segment: Duration,
        /// Segments in a list.
        window: u32,
    },
}

/// Names that are hot for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HotSet {
    /// Its share of the working set.
    pub share: f64,
    /// Probability that a repetition is one of it.
    pub probability: f64,
}

/// Whom the robots speak to.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Origins, a forward proxy, a reverse proxy.
    pub mode: Mode,
    /// Where to connect, but for origins.
    pub address: Option<SocketAddr>,
    /// `Host` of a reverse proxy's site; empty for the visible server.
    pub host: String,
    /// Port of the origins.
    pub origin_port: u16,
    /// Addresses of the visible servers; if none was given, those of loopback.
    pub hosts: Hosts,
    /// Whether visible servers have names instead of addresses; before a workload is derived: whether the cache knows them.
    pub names: bool,
    /// Whether robots speak TLS: through a tunnel of a forward proxy, else to whom they connect.
    pub tls: bool,
    /// The method that invalidates a URL in the cache; empty if it knows none.
    pub purge: String,
}

impl Route {
    /// The address of a visible server.
    pub fn server(&self, server: u32) -> Ipv4Addr {
        self.hosts.at(server).unwrap_or_else(|| crate::origin::server_address(server))
    }

    /// Where to connect for an object of this server.
    pub fn hop(&self, server: u32) -> SocketAddr {
        self.address.unwrap_or_else(|| SocketAddr::from((self.server(server), self.origin_port)))
    }

    /// Whether requests go through tunnels, each to one origin.
    pub fn tunnels(&self) -> bool {
        self.tls && self.mode == Mode::Forward
    }

    /// Whom a connection that is used for this server speaks with: requests for others need another one.
    pub fn end(&self, server: u32) -> SocketAddr {
        match self.tunnels() {
            true => SocketAddr::from((self.server(server), self.origin_port)),
            false => self.hop(server),
        }
    }

    /// Whom a connection that carries many requests speaks with: an address, and the server if each has a name of its own, as
    /// browsers have a connection for each host.
    pub fn authority(&self, server: u32) -> (SocketAddr, u32) {
        (self.end(server), if self.is_one() { 0 } else { server })
    }

    /// Whether all servers are asked of one, by its address.
    pub fn is_one(&self) -> bool {
        self.mode == Mode::Forward || !self.host.is_empty() && !self.names
    }

    /// The host in whose name the other end of TLS must have a certificate.
    pub fn peer(&self, server: u32) -> String {
        match self.mode {
            _ if self.names => server_name(server),
            Mode::Reverse if !self.host.is_empty() => host_of(&self.host).to_owned(),
            Mode::Reverse => self.hop(server).ip().to_string(),
            Mode::Forward | Mode::NoProxy | Mode::Pages => self.server(server).to_string(),
        }
    }
}

/// A `Host` without its port.
fn host_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// The name of a visible server, in a domain that nobody has (RFC 6761).
pub fn server_name(server: u32) -> String {
    format!("server{server}.cacheoff.test")
}

/// Addresses that were given for the robots of this process, which are those of some workers of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RobotAddresses {
    /// The addresses; if none was given, each robot has its own on loopback.
    pub hosts: Hosts,
    /// The first worker of the process.
    pub first: u16,
    /// Workers of the process.
    pub own: u16,
    /// Workers of the run.
    pub of: u16,
}

impl Default for RobotAddresses {
    fn default() -> Self {
        Self { hosts: Hosts::default(), first: 0, own: 1, of: 1 }
    }
}

/// The address of a robot: 127.64.0.1 and up, or one of those that were given, in turn.
pub fn robot_address(robot: u32, settings: &RobotSettings) -> Ipv4Addr {
    let (given, each) = (&settings.addresses, settings.per_address.max(1));
    let (round, worker) = (robot / u32::from(given.of.max(1)), robot % u32::from(given.of.max(1)));
    let place = round.saturating_mul(u32::from(given.own)) + worker.saturating_sub(u32::from(given.first));
    given.hosts.at(place / each).unwrap_or_else(|| Ipv4Addr::from(0x7F40_0001 + robot / each))
}
