//! Limits of rates, by the generic cell rate algorithm (ITU-T I.371): one number per client, no timer, no window that begins anew.

use crate::moments::Moments;
use std::fmt;
use std::net::IpAddr;

/// A rate, and by what requests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests in `seconds`.
    pub requests: u32,
    /// The time for them.
    pub seconds: u32,
    /// Requests that may come at once; at least 1.
    pub burst: u32,
    /// By what they are counted.
    pub by: RateBy,
}

/// By what requests are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateBy {
    /// The client's address; of IPv6 its network of 64 bits.
    #[default]
    Client,
    /// The user; the client where nobody has logged in.
    User,
    /// The host of the URL.
    Host,
    /// All together.
    All,
}

impl RateBy {
    /// All of them.
    pub const ALL: [RateBy; 4] = [RateBy::Client, RateBy::User, RateBy::Host, RateBy::All];

    /// The word of settings.
    pub fn as_str(self) -> &'static str {
        match self {
            RateBy::Client => "client",
            RateBy::User => "user",
            RateBy::Host => "host",
            RateBy::All => "all",
        }
    }
}

impl RateLimit {
    /// `10/s`, `600/m`, `5000/h`: so many requests in a second, a minute, an hour. The burst is that of one second, and at least 1.
    pub fn parse(text: &str) -> Option<RateLimit> {
        let (requests, unit) = text.split_once('/')?;
        let seconds = match unit.trim() {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            _ => return None,
        };
        let requests = requests.trim().parse().ok().filter(|requests| (1..=1_000_000).contains(requests))?;
        Some(RateLimit { requests, seconds, burst: (requests / seconds).max(1), by: RateBy::Client })
    }

    /// Microseconds from one request to the next at this rate.
    fn interval_micros(&self) -> u64 {
        (u64::from(self.seconds) * 1_000_000 / u64::from(self.requests.max(1))).max(1)
    }
}

impl fmt::Display for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.seconds {
            1 => "s",
            60 => "m",
            _ => "h",
        };
        write!(f, "{}/{unit}", self.requests)
    }
}

/// The counted requests of all clients, in a table of constant size (`moments`).
#[derive(Debug)]
pub struct RateTable {
    moments: Moments,
}

impl RateTable {
    /// An empty table; `seed` is drawn, so that no client can choose its place.
    pub fn new(seed: u64) -> RateTable {
        RateTable { moments: Moments::new(seed) }
    }

    /// Counts a request of `key` under the rule with this name, at a moment in microseconds that never runs backwards. `Err` has the
    /// seconds after which another one is permitted.
    pub fn count(&self, limit: &RateLimit, (rule, key): (&str, &[u8]), now_micros: u64) -> Result<(), u64> {
        let interval = limit.interval_micros();
        self.moments.with((rule, key), |free_at| {
            let ahead = (*free_at).max(now_micros) - now_micros;
            let room = interval.saturating_mul(u64::from(limit.burst.max(1)) - 1);
            if ahead > room {
                return Err((ahead - room).div_ceil(1_000_000).max(1));
            }
            *free_at = (*free_at).max(now_micros) + interval;
            Ok(())
        })
    }
}

/// The client as a rate counts it: whoever has one IPv6 address has its network of 64 bits.
pub fn client_key(client: IpAddr) -> [u8; 8] {
    match client.to_canonical() {
        IpAddr::V4(address) => u64::from(u32::from(address)).to_be_bytes(),
        // Its network has the clients without an address, too.
        IpAddr::V6(address) if address.is_loopback() => u64::MAX.to_be_bytes(),
        IpAddr::V6(address) => ((u128::from(address) >> 64) as u64 | 1 << 63).to_be_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moments::KEYS_MAX;
    use proptest::prelude::*;

    #[test]
    fn a_burst_and_then_the_rate() {
        let table = RateTable::new(1);
        let limit = RateLimit::parse("10/s").unwrap();
        let at = |micros: u64| table.count(&limit, ("r", b"a"), micros);
        assert_eq!((0..20).filter(|_| at(1_000_000).is_ok()).count(), 10);
        assert_eq!(at(1_000_000), Err(1));
        assert_eq!((at(1_100_000), at(1_100_000)), (Ok(()), Err(1)));
        assert_eq!(table.count(&limit, ("r", b"b"), 1_100_000), Ok(()));
        let slow = RateLimit { burst: 1, ..RateLimit::parse("2/h").unwrap() };
        assert_eq!(table.count(&slow, ("s", b"a"), 0), Ok(()));
        assert_eq!(table.count(&slow, ("s", b"a"), 0), Err(1_800));
        for wrong in ["", "10", "0/s", "10/d", "x/s", "-1/s"] {
            assert_eq!(RateLimit::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_flood_of_clients_takes_no_more_memory_and_blocks_nobody() {
        let table = RateTable::new(2);
        let limit = RateLimit::parse("1/s").unwrap();
        for client in 0..3 * KEYS_MAX as u64 {
            assert_eq!(table.count(&limit, ("r", &client.to_be_bytes()), client), Ok(()), "{client}");
        }
    }

    proptest! {
        #[test]
        fn over_any_time_no_more_than_the_rate_and_one_burst(
            requests in 1u32..50, burst in 1u32..20, gaps in prop::collection::vec(0u64..200_000, 1..200)
        ) {
            let table = RateTable::new(3);
            let limit = RateLimit { requests, seconds: 1, burst, by: RateBy::Client };
            let (mut now, mut passed) = (5_000_000, 0);
            for gap in &gaps {
                now += gap;
                passed += u64::from(table.count(&limit, ("r", b"a"), now).is_ok());
            }
            let interval = 1_000_000 / u64::from(requests);
            prop_assert!(passed <= u64::from(burst) + (now - 5_000_000) / interval + 1);
            prop_assert!(passed >= 1);
        }
    }
}
