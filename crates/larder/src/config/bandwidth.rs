//! Limits of bandwidth: one `[[bandwidth]]`.

use super::SourceLine;
use super::setting::{Field, Setting, word};
use larder_rules::bandwidth::{Bandwidth, BandwidthBy, parse_rate, show_rate};

/// One `[[bandwidth]]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BandwidthSettings {
    /// The name by which rules refer to it.
    pub name: String,
    /// Bytes a second; 0 before one is said.
    pub rate: u64,
    /// Bytes that may be sent at once after a pause.
    pub burst: Option<u64>,
    /// The clients that share the limit.
    pub by: BandwidthBy,
    /// Answers from the store are not limited.
    pub hits_are_free: bool,
    /// Where it stands.
    pub place: SourceLine,
}

impl BandwidthSettings {
    /// The limit as the engine has it.
    pub fn limit(&self) -> Bandwidth {
        Bandwidth {
            name: self.name.as_str().into(),
            rate: self.rate.max(1),
            // A timer is late by a millisecond or two, and no rate is to suffer for that.
            burst: self.burst.unwrap_or(self.rate).max(self.rate / 100).max(1),
            by: self.by,
            hits: !self.hits_are_free,
        }
    }
}

type OfBandwidth = Setting<BandwidthSettings>;

/// Settings of one `[[bandwidth]]`.
pub static BANDWIDTH: &[Setting<BandwidthSettings>] = &[
    OfBandwidth::new("bandwidth.name", Field::Name(|b| &mut b.name))
        .required()
        .about("The name by which `do.bandwidth` of rules refers to it, of letters, digits, `-`, `_` and `.`."),
    OfBandwidth::new(
        "bandwidth.rate",
        Field::Text {
            form: "bandwidth",
            read: |b| show_rate(b.rate),
            write: |b, text| parse_rate(text).map(|rate| b.rate = rate).is_some(),
        },
    )
    .required()
    .about("`500kB/s` or `16Mbit/s`: bytes or bits a second of answers' bodies and of tunnels, towards clients, that all who share the limit get together; at most 100GB/s."),
    OfBandwidth::new("bandwidth.burst", Field::SizeIfAny(|b| &mut b.burst))
        .between(1, 1 << 40)
        .default_words("the bytes of one second")
        .about("Bytes that may be sent at once after a pause; at least those of a hundredth of a second."),
    OfBandwidth::new(
        "bandwidth.by",
        Field::Text {
            form: "all, network, client or user",
            read: |b| b.by.as_str().to_owned(),
            write: |b, text| word(&BandwidthBy::ALL, BandwidthBy::as_str, text).map(|by| b.by = by).is_some(),
        },
    )
    .about("The clients that share the limit: all together, those of a network (24 bits of IPv4, 48 of IPv6), each client (an IPv4 address, or an IPv6 network of 64 bits) or each user (the client, where nobody has logged in)."),
    OfBandwidth::new("bandwidth.hits_are_free", Field::Flag(|b| &mut b.hits_are_free))
        .about("Answers from the store are not limited, as by Squid's delay pools: the limit is for the line to the origins."),
];
