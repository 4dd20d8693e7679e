//! The workload: one TOML file as plain data, parsed once and checked before anything runs. Words are Web Polygraph's.
//!
//! `table` has every knob once: the parser and `docs/workloads.md` come from it. Shares are numbers from 0 to 1, times
//! in distributions are seconds, sizes bytes. Nothing here reads a file, a socket or a clock.

mod builtin;
mod draft;
mod knob;
mod manual;
mod mix;
mod pages;
mod parse;
mod report;
mod scale;
mod sense;
mod table;
mod units;

pub use builtin::{BUILTIN, Builtin};
pub use manual::markdown;
pub use mix::Mix;
pub use pages::{PAGE_WORKLOADS, PageKind, PagePlan, PageVariant, PageWorkload};
pub use parse::{load, variants};
pub use report::Report;
pub use scale::Scaled;
pub use units::parse_size;

use crate::distribution::Distribution;
use crate::object::Refused;
use std::time::Duration;

/// A workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// The variant of it, if one was asked for.
    pub variant: Option<String>,
    /// The system that it models, in a sentence or two.
    pub about: String,
    /// Its file, word for word.
    pub text: String,
    /// Requests per second at peak, if nobody asks for another.
    pub peak_per_s: Option<f64>,
    /// The clients.
    pub robots: Robots,
    /// The kinds of request.
    pub requests: Requests,
    /// Which objects they ask for.
    pub interest: Interest,
    /// The origins.
    pub servers: Servers,
    /// Between robots and the cache.
    pub client_link: Link,
    /// Between the cache and the origins.
    pub server_link: Link,
    /// Content types; the order is their number.
    pub contents: Vec<Content>,
    /// Phases in order.
    pub phases: Vec<Phase>,
    /// When the result counts.
    pub rules: Rules,
    /// The log that is replayed, if that is what robots do.
    pub replay: Option<Replay>,
}

/// The clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Robots {
    /// When a robot sends its next request.
    pub pace: Pace,
    /// How many there are, if neither peak nor rate says.
    pub count: u64,
    /// Protocol they speak.
    pub protocol: Protocol,
    /// Whether the connection is TLS; clear text is then an error.
    pub tls: bool,
    /// Requests that a connection serves; 1 closes each.
    pub connection_uses: Distribution,
    /// Connections that a robot holds at once; 0 is no limit.
    pub connections_max: u32,
    /// Share of the objects embedded in a page that are asked for.
    pub embed_recurrence: f64,
    /// Whether a page that was answered 304 leads to what it embeds.
    pub embeds_of_304: bool,
    /// Requests that are sent on a connection before the first of them is answered.
    pub pipeline: u32,
    /// Requests under way at once on a connection of HTTP/2.
    pub streams_max: u32,
    /// Bytes of a body that may come over HTTP/2 before the robot has read any of it.
    pub stream_window_bytes: u64,
    /// Bytes of all bodies of a connection that may come so.
    pub connection_window_bytes: u64,
    /// Share of the replies whose reading is broken off.
    pub abort: f64,
    /// Bytes per second at which a robot reads; 0 is as they come.
    pub read_bytes_per_s: u64,
    /// Robots that share an address.
    pub per_address: u32,
    /// All robots start in the same second, and again at each phase.
    pub together: bool,
    /// Each logs in at the proxy as a user of its own.
    pub proxy_login: bool,
}

impl Robots {
    /// Whether the connection is TLS: `h2` always is.
    pub fn speaks_tls(&self) -> bool {
        self.tls || self.protocol == Protocol::H2
    }
}

/// When a robot sends its next request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// At times of a Poisson process, whatever the replies do: an open loop.
    Poisson {
        /// Requests per second of one robot; what pages embed counts.
        rate_per_s: f64,
    },
    /// At even times, whatever the replies do.
    Constant {
        /// Requests per second of one robot.
        rate_per_s: f64,
    },
    /// After the reply and a pause: a closed loop. No pause is Web Polygraph's best effort.
    Closed {
        /// Seconds from a reply to the next request.
        pause: Distribution,
    },
}

impl Pace {
    /// After the reply at once.
    pub const BEST_EFFORT: Self = Self::Closed { pause: Distribution::Constant(0.0) };

    /// Requests per second of one robot; `None` if replies decide.
    pub fn rate_per_s(&self) -> Option<f64> {
        match *self {
            Self::Poisson { rate_per_s } | Self::Constant { rate_per_s } => Some(rate_per_s),
            Self::Closed { .. } => None,
        }
    }
}

/// Protocols between robots and cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0 with `Connection: keep-alive`.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2 in the clear, by prior knowledge.
    H2c,
    /// HTTP/2 over TLS, by ALPN.
    H2,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Http10, Self::Http11, Self::H2c, Self::H2];

    /// The word of workloads and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "http/1.0",
            Self::Http11 => "http/1.1",
            Self::H2c => "h2c",
            Self::H2 => "h2",
        }
    }

    /// Whether it is HTTP/2.
    pub fn is_http2(self) -> bool {
        matches!(self, Self::H2c | Self::H2)
    }
}

/// Requests besides plain GET. Shares of all requests; the rest is basic.
#[derive(Clone, Debug, PartialEq)]
pub struct Requests {
    /// If-Modified-Since a second before the last change: the answer is 200.
    pub ims_200: f64,
    /// If-Modified-Since a second after the last change: the answer is 304.
    pub ims_304: f64,
    /// If-None-Match with the tag that the robot got, or the current one.
    pub if_none_match: f64,
    /// `Cache-Control: no-cache`.
    pub reload: f64,
    /// `Range`.
    pub range: f64,
    /// Bytes of such a range.
    pub range_bytes: Distribution,
    /// Share of the ranges that ask for the end of an object.
    pub range_suffix: f64,
    /// Parts that one such request asks for.
    pub range_parts: Distribution,
    /// Ranges into which an object is divided and asked for at once; 1 asks for it as a whole.
    pub parallel_ranges: Distribution,
    /// POST, of which a body is drawn.
    pub post: f64,
    /// PUT, of which a body is drawn.
    pub put: f64,
    /// Bytes of such a body.
    pub post_bytes: Distribution,
    /// Share of the requests with a body that ask before they send it.
    pub expect_continue: f64,
    /// HEAD.
    pub head: f64,
    /// Requests with a cookie of the robot.
    pub cookie: f64,
    /// Requests with a query string of the object's own.
    pub query: f64,
    /// Requests that accept gzip.
    pub accept_gzip: f64,
    /// Requests with a robot's authorization, as of a user who is logged in.
    pub logged_in: f64,
    /// Purges of the URL of an object that somebody asked for.
    pub purges: f64,
    /// The reply that the cache must give by itself, such as 403; 0 is none.
    pub expected_status: u16,
}

/// Which objects are asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Interest {
    /// Share of the requests that ask for an object again.
    pub recurrence: f64,
    /// Share of the interest that all robots have in common; the rest is each robot's own.
    pub public: f64,
    /// How an object is chosen among those asked for before.
    pub popularity: Popularity,
    /// Share of the working set that is hot.
    pub hot_set: f64,
    /// Probability that a repeat comes from the hot set.
    pub hot_probability: f64,
    /// Probability that the smallest of nine neighbours is taken instead.
    pub bhr_discrimination: f64,
    /// When the working set stops growing.
    pub working_set: WorkingSet,
}

/// How an object is chosen among those asked for before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// Each with the same probability.
    Uniform,
    /// Web Polygraph's popZipf: the n newest with weights that fall, by this skew.
    Recent {
        /// The skew.
        skew: f64,
    },
    /// By a rank that an object keeps for its life.
    Zipf {
        /// Weight of a rank: `rank ^ -alpha`.
        alpha: f64,
        /// Share of the ranks that get another object each hour.
        churn_per_hour: f64,
    },
    /// One after the other.
    Sequence,
    /// Along the links of pages, breadth first, as a crawler goes.
    Tree {
        /// Pages that a page links to.
        fan: u32,
    },
    /// Playlists and segments of channels, at the live edge.
    Live {
        /// Seconds of a segment.
        segment_s: f64,
        /// Segments that a playlist names.
        window: u32,
    },
}

/// When the working set stops growing; then it slides: each new object pushes the oldest out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WorkingSet {
    /// It grows to the end.
    Unlimited,
    /// At this time after the start.
    FreezeAt(Duration),
    /// When so many cachable misses were answered per 1 request per second of peak.
    CapPerRate(f64),
    /// When so many cachable misses were answered.
    Cap(u64),
    /// So many objects, all of them there from the start.
    Fixed(u64),
}

/// The origins.
#[derive(Clone, Debug, PartialEq)]
pub struct Servers {
    /// Visible servers without any robots.
    pub count: u64,
    /// Visible servers per robot on top.
    pub per_robot: f64,
    /// Seconds from a request to its reply.
    pub think: Distribution,
    /// Requests that a connection serves.
    pub connection_uses: Distribution,
    /// A connection without a request for so long is closed.
    pub idle: Duration,
    /// Share of the replies that are broken off.
    pub abort: f64,
    /// URLs have names, not addresses.
    pub names: bool,
    /// Replies have no length and are chunked, or end with the connection under HTTP/1.0.
    pub chunked: bool,
    /// How requests for ranges are answered.
    pub ranges: RangeManner,
    /// Share of the replies that redirect to another object.
    pub redirect: f64,
    /// Faults on demand.
    pub faults: Faults,
}

/// Shares of the replies that go wrong at the origin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// The connection ends before the body does.
    pub truncate: f64,
    /// The body stops half-way for ever.
    pub stall: f64,
    /// The connection is reset.
    pub reset: f64,
    /// Content-Length says less or more than comes.
    pub wrong_length: f64,
    /// 503.
    pub errors: f64,
    /// Errors come in bursts of so long; zero spreads them.
    pub burst: Duration,
}

/// How an origin answers a request for a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RangeManner {
    /// By the part; it does not say beforehand that it would.
    #[default]
    Quiet,
    /// By the part, and each answer says so (`Accept-Ranges`).
    Stated,
    /// By the whole object, whatever each answer says.
    Ignored,
    /// By 403, whatever each answer says.
    Refused,
}

impl RangeManner {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Quiet, Self::Stated, Self::Ignored, Self::Refused];

    /// The word in a workload.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Stated => "stated",
            Self::Ignored => "ignored",
            Self::Refused => "refused",
        }
    }
}

/// A link, the same both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Link {
    /// From one end to the other.
    pub delay: Duration,
    /// Largest addition to it.
    pub jitter: Duration,
    /// Bits per second; 0 is unlimited.
    pub bits_per_s: u64,
    /// Share of the packets that are lost.
    pub loss: f64,
}

/// A content type.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// Its name in reports.
    pub name: String,
    /// Its share of all requests, as declared.
    pub share: f64,
    /// Its share of the requests that are not for embedded objects; `None` goes by `share`.
    pub direct: Option<f64>,
    /// The `Content-Type` of its replies.
    pub media: String,
    /// Body sizes in bytes.
    pub size: Distribution,
    /// No body is larger.
    pub size_bytes_max: u64,
    /// Share of the objects that a store may keep.
    pub cachable: f64,
    /// How the cache refuses its objects, if it must.
    pub refused: Refused,
    /// Endings of its URLs with their shares.
    pub endings: Vec<(String, f64)>,
    /// The objects that a page of this type embeds.
    pub embeds: Option<Embeds>,
    /// How its objects change.
    pub life: Life,
    /// Share of the replies that carry a digest which is verified.
    pub checksum: f64,
    /// Variants, told apart by `Accept-Encoding`; 1 is none.
    pub variants: u8,
    /// Whether replies carry a strong ETag.
    pub etag: bool,
    /// Whether each client gets a body of its own.
    pub personal: bool,
    /// `Cache-Control` of what a store may keep.
    pub cache_control: String,
}

/// The objects that a page embeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Embeds {
    /// How many objects.
    pub count: Distribution,
    /// Numbers of their content types, with shares.
    pub contents: Vec<(u8, f64)>,
}

/// How the objects of a type change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Life {
    /// Seconds of an object's cycle; `None` never changes it within a run: modified a year before, expires a year after.
    pub cycle: Option<Distribution>,
    /// How far a change strays from its place, as a share of the cycle.
    pub variance: f64,
    /// Share of the replies that say `Last-Modified`.
    pub with_modified: f64,
    /// From what `Expires` counts.
    pub expires: Expires,
    /// Seconds that are added.
    pub expires_after: Distribution,
}

/// From what `Expires` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expires {
    /// From the last change.
    LastChange,
    /// From the reply.
    Now,
    /// From the next change.
    NextChange,
}

impl Expires {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::LastChange, Self::Now, Self::NextChange];

    /// The word of workloads.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LastChange => "last change",
            Self::Now => "now",
            Self::NextChange => "next change",
        }
    }
}

/// A phase. The first of its goals that is reached ends it; without any it ends at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// Goal: time.
    pub length: Option<Duration>,
    /// Goal: replies.
    pub replies: Option<u64>,
    /// Goal: bytes of cachable misses.
    pub fill_bytes: Option<u64>,
    /// Goal: cachable misses of so many times the size of the cache.
    pub fill_caches: Option<f64>,
    /// Goal, in addition to the others: the working set is frozen.
    pub until_frozen: bool,
    /// Goal that ends the run: errors, or, below 1, their share.
    pub errors: Option<f64>,
    /// The load follows the response time.
    pub thermostat: Option<Thermostat>,
    /// Whether its figures are reported.
    pub logged: bool,
    /// The cache has no power while it lasts, and nobody asks.
    pub dark: bool,
    /// Share of the robots that are alive.
    pub populus: Factor,
    /// Multiplier of the rate.
    pub load: Factor,
    /// Multiplier of the recurrence.
    pub recurrence: Factor,
    /// Multiplier of the share of requests that are not basic.
    pub special: Factor,
    /// Multiplier of the probability of the hot set. Ours; Web Polygraph has no such factor.
    pub hot: Factor,
}

/// The load goes up and down so that the mean response time stays between two bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thermostat {
    /// Seconds below which the load rises.
    pub low_s: f64,
    /// Seconds above which it falls.
    pub high_s: f64,
    /// By which share of itself, each second.
    pub step: f64,
}

/// A factor that goes evenly from one value to another over a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factor {
    /// At the beginning.
    pub from: f64,
    /// At the end.
    pub to: f64,
}

impl Factor {
    /// Always this.
    pub const fn flat(value: f64) -> Self {
        Self { from: value, to: value }
    }

    /// The middle.
    pub fn mean(&self) -> f64 {
        (self.from + self.to) / 2.0
    }
}

/// When the result counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Largest share of errors.
    pub errors_max: f64,
    /// Lowest document hit ratio.
    pub dhr_min: Option<f64>,
    /// The phase whose figures are the result; the busiest logged one if empty.
    pub report_phase: String,
}

/// A log that is replayed.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// Its form: `squid`, `combined`, `json`, `oracle`, `columns` or `auto`.
    pub form: String,
    /// How much faster than it was written.
    pub speed: f64,
}

impl Workload {
    /// Shares of what is really asked for, by content type: pages bring what they embed.
    pub fn real_shares(&self) -> Vec<f64> {
        self.mix(1.0).contents
    }

    /// The mean size of the bodies of what is asked for, in bytes; replies without a body are not counted.
    pub fn body_mean(&self) -> f64 {
        self.real_shares().iter().zip(&self.contents).map(|(share, content)| share * content.size_mean()).sum()
    }

    /// Shares of the requests that are not for embedded objects, by content type.
    pub fn direct_shares(&self) -> Vec<f64> {
        normal(self.contents.iter().map(|content| content.direct.unwrap_or(content.share)).collect())
    }

    /// The number of a content type.
    pub fn content_named(&self, name: &str) -> Option<usize> {
        self.contents.iter().position(|content| content.name == name)
    }
}

impl Content {
    /// Share of its objects on which a hit is offered: a store may keep them, and they are the same for all clients.
    pub fn offerable(&self) -> f64 {
        if self.personal { 0.0 } else { self.cachable }
    }

    /// The mean size of its bodies in bytes.
    pub fn size_mean(&self) -> f64 {
        self.size.mean_up_to(self.size_bytes_max as f64)
    }
}

/// Weights as shares of their sum.
fn normal(weights: Vec<f64>) -> Vec<f64> {
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| if total > 0.0 { weight / total } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests;
