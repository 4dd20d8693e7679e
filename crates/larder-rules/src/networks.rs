//! Sets of networks. However long they are, a lookup costs a binary search.

use ipnet::IpNet;
use std::net::{IpAddr, Ipv6Addr};

/// Networks in the order in which they were configured, and the ranges that they cover together.
#[derive(Clone, Debug, Default)]
pub struct Networks {
    listed: Vec<IpNet>,
    v4: Ranges,
    v6: Ranges,
}

impl Networks {
    /// One more. One of IPv4 addresses that are written as those of IPv6 (RFC 4291 section 2.5.5.2) is one of IPv4: addresses are looked
    /// for in that form.
    pub fn push(&mut self, net: IpNet) {
        let net = plain(net);
        self.listed.push(net);
        let ranges = if net.addr().is_ipv4() { &mut self.v4 } else { &mut self.v6 };
        ranges.add(number(net.network()), number(net.broadcast()));
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Networks::default();
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// As they were said.
    pub fn iter(&self) -> impl Iterator<Item = &IpNet> {
        self.listed.iter()
    }

    /// Whether one of them has this address. An IPv4 client on a dual-stack listener comes as `::ffff:a.b.c.d` and is
    /// meant by the IPv4 networks.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let ranges = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        ranges.contain(number(address))
    }
}

fn plain(net: IpNet) -> IpNet {
    let mapped = match net {
        IpNet::V6(net) => net.addr().to_ipv4_mapped().zip(net.prefix_len().checked_sub(96)),
        IpNet::V4(_) => None,
    };
    mapped.and_then(|(address, length)| IpNet::new(address.into(), length).ok()).unwrap_or(net)
}

/// The word for the network of clients that come by a Unix socket.
pub const UNIX_CLIENTS: &str = "unix";

/// A network, an address for a network of one, or `unix`: clients of a Unix socket have no address, so the unspecified one stands for all of
/// them (`::/128`).
pub fn network(text: &str) -> Option<IpNet> {
    if text == UNIX_CLIENTS {
        return Some(IpAddr::from(Ipv6Addr::UNSPECIFIED).into());
    }
    text.parse().ok().or_else(|| text.parse::<std::net::IpAddr>().ok().map(IpNet::from))
}

impl FromIterator<IpNet> for Networks {
    fn from_iter<I: IntoIterator<Item = IpNet>>(nets: I) -> Networks {
        let mut networks = Networks::default();
        nets.into_iter().for_each(|net| networks.push(net));
        networks
    }
}

/// Networks are equal when they were written alike; the ranges follow from that.
impl PartialEq for Networks {
    fn eq(&self, other: &Networks) -> bool {
        self.listed == other.listed
    }
}

impl Eq for Networks {}

/// Numbers from the first to the last, both included; in order, and none touches another.
#[derive(Clone, Debug, Default)]
struct Ranges(Vec<(u128, u128)>);

impl Ranges {
    /// Joins the new one with all that it overlaps or touches.
    fn add(&mut self, mut first: u128, mut last: u128) {
        let from = self.0.partition_point(|(_, end)| end.saturating_add(1) < first);
        let to = self.0.partition_point(|(start, _)| *start <= last.saturating_add(1));
        if let (Some((start, _)), Some((_, end))) = (self.0[from..to].first(), self.0[from..to].last()) {
            (first, last) = (first.min(*start), last.max(*end));
        }
        self.0.splice(from..to, [(first, last)]);
    }

    fn contain(&self, number: u128) -> bool {
        let after = self.0.partition_point(|(start, _)| *start <= number);
        after > 0 && number <= self.0[after - 1].1
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(texts: &[&str]) -> Networks {
        texts.iter().map(|text| text.parse::<IpNet>().unwrap()).collect()
    }

    #[test]
    fn mapped_networks_are_those_of_ipv4() {
        let nets = of(&["::ffff:10.1.0.0/112", "::ffff:127.0.0.5/128"]);
        for (address, wanted) in [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("127.0.0.5", true),
            ("10.2.0.1", false),
            ("127.0.0.6", false),
        ] {
            assert_eq!(nets.contains(address.parse().unwrap()), wanted, "{address}");
        }
    }

    #[test]
    fn each_family_has_its_own_networks() {
        let nets = of(&["10.0.0.0/8", "::1/128", "fe80::/10", "0.0.0.0/32", "255.255.255.255/32"]);
        for (address, wanted) in [
            ("10.0.0.0", true),
            ("10.255.255.255", true),
            ("9.255.255.255", false),
            ("11.0.0.0", false),
            ("::ffff:10.1.2.3", true),
            ("::1", true),
            ("::2", false),
            ("0.0.0.0", true),
            ("255.255.255.255", true),
            ("febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", true),
            ("::a00:1", false),
        ] {
            assert_eq!(nets.contains(address.parse().unwrap()), wanted, "{address}");
        }
        assert!(of(&["::/0"]).contains("::".parse().unwrap()) && !of(&["::/0"]).contains("1.2.3.4".parse().unwrap()));
        assert!(of(&["0.0.0.0/0"]).contains("255.255.255.255".parse().unwrap()));
        assert_eq!(of(&["10.0.0.0/9", "10.128.0.0/9", "10.0.0.0/8"]).v4.0.len(), 1);
    }

    proptest! {
        #[test]
        fn a_set_has_what_one_of_its_networks_has(
            nets in prop::collection::vec((0u32..1 << 12, 20u8..=32), 0..40),
            asked in prop::collection::vec(0u32..1 << 12, 40),
        ) {
            let net = |(low, bits): (u32, u8)| IpNet::new(IpAddr::from((0x0a00_0000 | low).to_be_bytes()), bits).unwrap();
            let nets: Vec<IpNet> = nets.into_iter().map(net).collect();
            let set: Networks = nets.iter().copied().collect();
            for low in asked {
                let address = IpAddr::from((0x0a00_0000 | low).to_be_bytes());
                prop_assert_eq!(set.contains(address), nets.iter().any(|net| net.contains(&address)), "{}", address);
            }
        }
    }
}
