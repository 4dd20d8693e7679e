//! Limits of bandwidth: a bucket per key from which the bytes of answers are taken before they are sent (Squid's delay pools). The
//! bucket is one number, as in the generic cell rate algorithm (ITU-T I.371): the moment at which it is full again.

use crate::moments::Moments;
use std::net::IpAddr;

/// One `[[bandwidth]]`: bytes a second that all who share a bucket get together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// The name by which rules refer to it.
    pub name: Box<str>,
    /// Bytes a second; at least 1.
    pub rate: u64,
    /// Bytes that may be sent at once after a pause; at least 1.
    pub burst: u64,
    /// The clients that share a bucket.
    pub by: BandwidthBy,
    /// Answers from the store are limited too.
    pub hits: bool,
}

/// The clients that share a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BandwidthBy {
    /// All together: Squid's class 1.
    #[default]
    All,
    /// The clients of a network: of IPv4 with 24 bits, of IPv6 with 48.
    Network,
    /// Each client address; of IPv6 its network of 64 bits.
    Client,
    /// Each user; the client's address where nobody has logged in.
    User,
}

impl BandwidthBy {
    /// All of them.
    pub const ALL: [BandwidthBy; 4] = [BandwidthBy::All, BandwidthBy::Network, BandwidthBy::Client, BandwidthBy::User];

    /// The word of settings.
    pub fn as_str(self) -> &'static str {
        match self {
            BandwidthBy::All => "all",
            BandwidthBy::Network => "network",
            BandwidthBy::Client => "client",
            BandwidthBy::User => "user",
        }
    }

    /// The key of a client's bucket.
    pub fn key(self, client: IpAddr, user: Option<&str>) -> Box<[u8]> {
        match (self, user) {
            (BandwidthBy::All, _) => Box::default(),
            (BandwidthBy::Network, _) => network_key(client).into(),
            // The first byte of an address is 0 or above 127.
            (BandwidthBy::User, Some(user)) => [b"user ", user.as_bytes()].concat().into(),
            (BandwidthBy::Client | BandwidthBy::User, _) => crate::rate::client_key(client).into(),
        }
    }
}

/// The network of 24 or 48 bits that a client is in.
fn network_key(client: IpAddr) -> [u8; 8] {
    match client.to_canonical() {
        IpAddr::V4(address) => u64::from(u32::from(address) & !0xff).to_be_bytes(),
        IpAddr::V6(address) => (((u128::from(address) >> 80) as u64) << 16 | 1 << 63).to_be_bytes(),
    }
}

/// The units of rates. Network people count bits, and disks bytes; both are written out.
const UNITS: [(&str, u64, u64); 12] = [
    ("B", 1, 1),
    ("kB", 1_000, 1),
    ("MB", 1_000_000, 1),
    ("GB", 1_000_000_000, 1),
    ("KiB", 1 << 10, 1),
    ("MiB", 1 << 20, 1),
    ("GiB", 1 << 30, 1),
    ("bit", 1, 8),
    ("kbit", 1_000, 8),
    ("Mbit", 1_000_000, 8),
    ("Gbit", 1_000_000_000, 8),
    ("Mibit", 1 << 20, 8),
];

/// The greatest rate, in bytes a second: 100 GB/s.
pub const RATE_MAX: u64 = 100_000_000_000;

/// Bytes a second of `500kB/s`, `2MB/s` or `16Mbit/s`; between 1 and [`RATE_MAX`]. The case of letters does not matter, but for a `b` alone,
/// which may be bits or bytes.
pub fn parse_rate(text: &str) -> Option<u64> {
    let (amount, per) = text.split_once('/')?;
    if per.trim() != "s" {
        return None;
    }
    let amount = amount.trim();
    let end = amount.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = amount.split_at(end);
    let unit = unit.trim();
    let is_unit = |name: &str| name.eq_ignore_ascii_case(unit) && name.ends_with('B') == unit.ends_with('B');
    let (_, factor, parts) = UNITS.iter().find(|(name, ..)| is_unit(name))?;
    let bytes = number.parse::<u64>().ok()?.checked_mul(*factor)? / parts;
    (1..=RATE_MAX).contains(&bytes).then_some(bytes)
}

/// A rate as [`parse_rate`] reads it back.
pub fn show_rate(bytes: u64) -> String {
    let whole =
        UNITS.iter().filter(|(_, factor, parts)| *parts == 1 && bytes >= *factor && bytes.is_multiple_of(*factor));
    match whole.max_by_key(|(_, factor, _)| *factor) {
        Some((unit, factor, _)) => format!("{}{unit}/s", bytes / factor),
        None => format!("{bytes}B/s"),
    }
}

/// The buckets of all limits, in a table of constant size: with more than 65,536 keys at once, those that waited longest begin
/// anew with a full bucket.
#[derive(Debug)]
pub struct Buckets {
    moments: Moments,
}

const NANOS: u64 = 1_000_000_000;

impl Buckets {
    /// Full buckets; `seed` is drawn, so that no client can choose its place.
    pub fn new(seed: u64) -> Buckets {
        Buckets { moments: Moments::new(seed) }
    }

    /// Takes bytes out of the bucket of `key`, at a moment in nanoseconds that never runs backwards. Gives the nanoseconds after
    /// which they may be sent: whoever takes later waits longer, so that all who share a bucket get their turn.
    pub fn take(&self, limit: &Bandwidth, key: &[u8], bytes: u64, now_nanos: u64) -> u64 {
        let nanos = |bytes: u64| {
            let nanos = u128::from(bytes) * u128::from(NANOS) / u128::from(limit.rate.max(1));
            u64::try_from(nanos).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
        };
        let full = nanos(limit.burst);
        self.moments.with((&limit.name, key), |spent_until| {
            // A bucket that was full for a while has no more in it than one that has just become full.
            let from = (*spent_until).max(now_nanos.saturating_sub(full));
            *spent_until = from.saturating_add(nanos(bytes));
            // The last of these bytes drops out of the bucket when it is spent.
            from.saturating_add(nanos(bytes)).saturating_sub(now_nanos)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limit(rate: u64, burst: u64, by: BandwidthBy) -> Bandwidth {
        Bandwidth { name: "a".into(), rate, burst, by, hits: true }
    }

    #[test]
    fn rates_are_read_and_shown() {
        for (text, bytes, shown) in [
            ("500kB/s", 500_000, "500kB/s"),
            ("16Mbit/s", 2_000_000, "2MB/s"),
            ("100KB/s", 100_000, "100kB/s"),
            ("8mbit/s", 1_000_000, "1MB/s"),
            ("1 MiB/s", 1 << 20, "1MiB/s"),
            ("1500B/s", 1_500, "1500B/s"),
            ("8bit/s", 1, "1B/s"),
            ("100GB/s", RATE_MAX, "100GB/s"),
        ] {
            assert_eq!(parse_rate(text), Some(bytes), "{text}");
            assert_eq!(show_rate(bytes), shown);
            assert_eq!(parse_rate(shown), Some(bytes));
        }
        for wrong in [
            "",
            "1MB",
            "1/s",
            "MB/s",
            "0MB/s",
            "7bit/s",
            "101GB/s",
            "1MB/m",
            "-1MB/s",
            "1mb/s",
            "99999999999999999999GB/s",
        ] {
            assert_eq!(parse_rate(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_waits_in_turn() {
        let (buckets, now) = (Buckets::new(1), 10 * NANOS);
        let limit = limit(1_000, 500, BandwidthBy::All);
        let waits: Vec<u64> = (0..5).map(|_| buckets.take(&limit, b"", 250, now) / 1_000_000).collect();
        assert_eq!(waits, [0, 0, 250, 500, 750]);
        // A client with another bucket waits for nobody.
        assert_eq!(buckets.take(&limit, b"other", 250, now), 0);
        // A second later all of it is sent, and a quarter of a second's bytes are in the bucket again.
        assert_eq!(buckets.take(&limit, b"", 250, now + NANOS), 0);
    }

    #[test]
    fn keys_are_apart() {
        let [a, b, c]: [IpAddr; 3] = ["10.0.0.1", "10.0.0.2", "::ffff:10.0.0.1"].map(|text| text.parse().unwrap());
        let by = BandwidthBy::Client;
        assert_ne!(by.key(a, None), by.key(b, None));
        assert_eq!(by.key(a, None), by.key(c, None));
        assert_eq!(BandwidthBy::Network.key(a, None), BandwidthBy::Network.key(b, None));
        assert_eq!(BandwidthBy::All.key(a, None), BandwidthBy::All.key(b, Some("u")));
        assert_ne!(BandwidthBy::User.key(a, Some("u")), BandwidthBy::User.key(a, Some("v")));
        assert_eq!(BandwidthBy::User.key(a, Some("u")), BandwidthBy::User.key(b, Some("u")));
        assert_eq!(BandwidthBy::User.key(a, None), by.key(a, None));
        let [a, b, c]: [IpAddr; 3] =
            ["2001:db8:1:2::1", "2001:db8:1:3::1", "2001:db8:2::1"].map(|text| text.parse().unwrap());
        assert_ne!(by.key(a, None), by.key(b, None));
        assert_eq!(BandwidthBy::Network.key(a, None), BandwidthBy::Network.key(b, None));
        assert_ne!(BandwidthBy::Network.key(a, None), BandwidthBy::Network.key(c, None));
    }

    proptest! {
        #[test]
        fn over_any_time_no_more_than_the_rate_and_one_burst(
            rate in 1u64..10_000_000, burst in 1u64..1_000_000,
            takes in prop::collection::vec((0u64..2_000_000_000, 1u64..100_000), 1..60)
        ) {
            let buckets = Buckets::new(3);
            let limit = limit(rate, burst, BandwidthBy::All);
            let begin = 1_000 * NANOS * 1_000;
            let (mut now, mut sent) = (begin, Vec::new());
            for (gap, bytes) in takes {
                now += gap;
                let at = now + buckets.take(&limit, b"k", bytes, now);
                sent.push((at, bytes));
            }
            // No window that begins with the first byte has more in it.
            let mut total = 0u128;
            sent.sort_unstable();
            for (at, bytes) in sent {
                total += u128::from(bytes);
                let allowed = u128::from(burst) + u128::from(at - begin) * u128::from(rate) / u128::from(NANOS);
                // Each take is rounded down by less than a byte's time.
                prop_assert!(total <= allowed + 60 * (1 + u128::from(rate) / u128::from(NANOS)), "{total} {allowed}");
            }
        }

        #[test]
        fn any_text_is_a_rate_or_none(text in "[0-9a-zA-Z/ ]{0,12}") {
            if let Some(bytes) = parse_rate(&text) {
                prop_assert_eq!(parse_rate(&show_rate(bytes)), Some(bytes));
            }
        }
    }
}
