//! Robots: each draws what to ask, asks it from its own address, and judges what it got.

mod ask;
mod demand;
mod judge;
mod pending;
mod request;

pub use ask::{Ask, Desk, Job, Outcome, Report, trouble_of};
pub use demand::{Demand, Kindred, Wish};
pub use judge::{Case, Findings, Judge, Verdict};
pub use pending::Pending;
pub use request::write_request;

use crate::distribution::Distribution;
use crate::ledger::Mode;
use crate::link::Link;
use larder_wire::Version;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// What all robots have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct RobotSettings {
    /// How many there are.
    pub count: u32,
    /// How many share an address.
    pub per_address: u32,
    /// When each asks.
    pub pace: Pace,
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
    /// Kinds of requests with their shares; the rest is basic.
    pub kinds: Vec<(Kindred, f64)>,
    /// Requests that a connection carries; `None` for any number.
    pub uses: Option<Distribution>,
    /// Connections that a robot may have open.
    pub connections_max: u32,
    /// Requests that may wait for one.
    pub waiting_max: usize,
    /// What requests say they speak.
    pub version: Version,
    /// Share of the robots that accept compressed variants.
    pub accepts_gzip: f64,
    /// How long a reply may take.
    pub timeout: Duration,
    /// The link between robots and cache.
    pub link: Link,
}

/// When a robot asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// At random times, so many a second on the average, whatever the replies do.
    Poisson(f64),
    /// With a constant gap, whatever the replies do.
    Constant(Duration),
    /// As soon as the last reply has come.
    BestEffort,
}

/// Which name a repetition repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// Any of the window, each as likely as the others.
    Uniform,
    /// Recent ones first: `1 + last − int((last + 1) ^ (U ^ s))`.
    Recent(f64),
    /// Rank by rank with this exponent, over the whole window; the rank of a name follows from its number.
    Zipf(f64),
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
}

impl Route {
    /// Where to connect for an object of this server.
    pub fn hop(&self, server: u32) -> SocketAddr {
        self.address.unwrap_or_else(|| SocketAddr::from((crate::origin::server_address(server), self.origin_port)))
    }
}

/// The address of a robot: 127.64.0.1 and up.
pub fn robot_address(robot: u32, per_address: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x7F40_0001 + robot / per_address.max(1))
}
