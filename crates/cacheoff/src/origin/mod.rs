//! Origin servers: stateless, many visible addresses behind one listening socket. The object law answers; think time,
//! limits on the use of connections, links and faults are the workload's.

mod answer;
mod chunks;
mod hosts;
mod parts;
mod serve;

pub use answer::{Answer, Departure, Manner, Payload, answer};
pub use hosts::{AddressRange, Hosts};
pub use parts::Parts;
pub use serve::{Next, Serve, Site};

pub use crate::wire::Fault;

use crate::distribution::Distribution;
use crate::link::Link;
use crate::workload::RangeManner;
use std::time::Duration;

/// Settings that all origins share.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginSettings {
    /// Visible servers.
    pub servers: u32,
    /// Port that they listen on.
    pub port: u16,
    /// Whether any robot's request may reach them, so that connections of both sides take open files of this process.
    pub are_asked: bool,
    /// The addresses that this process answers on; if none was given, all of loopback, to peers from there.
    pub listens: Hosts,
    /// Seconds between a request and the first byte of its answer; `None` for at once.
    pub think: Option<Distribution>,
    /// Requests that a connection may carry; `None` for any number.
    pub uses: Option<Distribution>,
    /// How long a connection may be idle.
    pub idle: Duration,
    /// The link between cache and origins.
    pub link: Link,
    /// Faults with their probabilities.
    pub faults: Vec<(Fault, f64)>,
    /// Refusals come in bursts of so long; zero spreads them.
    pub burst: Duration,
    /// Answers have no length: they are chunked, or end with the connection.
    pub chunked: bool,
    /// How requests for ranges are answered.
    pub ranges: RangeManner,
}

impl Default for OriginSettings {
    /// One server that answers at once and makes no mistakes.
    fn default() -> Self {
        Self {
            servers: 1,
            port: 0,
            are_asked: true,
            listens: Hosts::default(),
            think: None,
            uses: None,
            idle: Duration::from_secs(15),
            link: Link::default(),
            faults: Vec::new(),
            burst: Duration::ZERO,
            chunked: false,
            ranges: RangeManner::Quiet,
        }
    }
}

/// The number of the visible server that has an address.
pub fn server_number(address: std::net::Ipv4Addr) -> Option<u32> {
    u32::from(address).checked_sub(0x7F80_0001).filter(|_| address.is_loopback())
}

/// The address of a visible server: 127.128.0.1 and up.
pub fn server_address(server: u32) -> std::net::Ipv4Addr {
    std::net::Ipv4Addr::from(0x7F80_0001 + server)
}
