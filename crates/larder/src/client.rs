//! Client identity: the addresses that count as one client where limits are per client, and clients that have none.

use larder_rules::UNIX_CLIENTS;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The address of clients that have none, for they come by a Unix socket: the unspecified one, which no connection of TCP comes from and no
/// header of the PROXY protocol may claim. In lists of networks it is called `unix`.
pub const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

/// Whether a client has an address.
pub fn has_address(address: IpAddr) -> bool {
    address != NO_ADDRESS.ip()
}

/// The address of a client as logs and pages show it: `unix` where it has none.
pub struct ShownAddress(pub IpAddr);

impl fmt::Display for ShownAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match has_address(self.0) {
            true => self.0.to_canonical().fmt(f),
            false => f.write_str(UNIX_CLIENTS),
        }
    }
}

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

    /// The client at this address; `None` where it has none, so that limits per client do not take all who come by a socket for one.
    pub fn if_known(address: IpAddr) -> Option<Client> {
        has_address(address).then(|| Client::at(address))
    }

    /// The client at this address.
    pub fn at(address: IpAddr) -> Client {
        Client(match address.to_canonical() {
            // Its network has the clients without an address, too.
            IpAddr::V6(address) if address.is_loopback() => IpAddr::V6(address),
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
        assert!(!same("::", "::1"));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1") && !same("10.0.0.1", "10.0.0.2"));
    }
}
