//! Client identity: the addresses that count as one client where limits are per client.

use std::net::{IpAddr, Ipv6Addr};

/// A client as limits see it: an IPv4 address, or a network of 64 bits in IPv6, where one host may choose among all
/// addresses of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client(IpAddr);

/// The part of an IPv6 address that names a network.
const NETWORK: u128 = !(u64::MAX as u128);

impl Client {
    /// Its address in 16 bytes.
    pub fn octets(self) -> [u8; 16] {
        match self.0 {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        }
    }

    /// The client at this address.
    pub fn at(address: IpAddr) -> Client {
        Client(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK)),
            address => address,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_host_are_one_client() {
        let same = |a: &str, b: &str| Client::at(a.parse().unwrap()) == Client::at(b.parse().unwrap());
        assert!(same("2001:db8::1", "2001:db8::ffff:1:2:3") && !same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1") && !same("10.0.0.1", "10.0.0.2"));
    }
}
