//! Clients that may use the server, and destinations that they may reach.

use super::Networks;
use larder_rules::{UNIX_CLIENTS, network};
use std::path::PathBuf;

/// Helpers of `external_acl` that one request has to be permitted by, at most.
pub const EXTERNAL_MAX: usize = 8;

/// Networks that may use the proxy, and the ones it may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Addresses that may use the forward proxy; sites are open to everybody.
    pub clients: Networks,
    /// Networks that clients of other machines may reach through the forward proxy, closed as they are without this.
    pub destinations: Networks,
    /// Ports that CONNECT may reach; empty: any. `None`: that of https, and any for clients of this machine.
    pub connect_ports: Option<Vec<u16>>,
    /// Addresses that may use the method `PURGE`; empty: it goes to the origin as any other.
    pub purge: Networks,
    /// The `[[login]]` that clients of the forward proxy need; empty: none.
    pub login: String,
    /// The helpers of `external_acl` that have to permit a request.
    pub external: Vec<String>,
    /// The file by which the countries of clients are known.
    pub country_file: Option<PathBuf>,
}

impl Default for Access {
    fn default() -> Access {
        let loopback = ["127.0.0.0/8", "::1/128"];
        let private = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fc00::/7", "fe80::/10"];
        let clients =
            loopback.iter().chain(&private).filter_map(|text| text.parse().ok()).chain(network(UNIX_CLIENTS)).collect();
        Access {
            clients,
            destinations: Networks::default(),
            connect_ports: None,
            purge: Networks::default(),
            login: String::new(),
            external: Vec::new(),
            country_file: None,
        }
    }
}

/// The port of https.
const HTTPS: u16 = 443;

impl Access {
    /// Whether a client at `address` may use the forward proxy.
    pub fn may_proxy(&self, address: std::net::IpAddr) -> bool {
        self.clients.contains(address)
    }

    /// Whether a client at `address` may purge; `None` when nobody is asked, for the method is one of the origin.
    pub fn may_purge(&self, address: std::net::IpAddr) -> Option<bool> {
        (!self.purge.is_empty()).then(|| self.purge.contains(address))
    }

    /// Whether CONNECT may reach `port` from a listener that is of this machine alone, or of others too.
    pub fn may_connect(&self, port: u16, of_this_machine: bool) -> bool {
        match &self.connect_ports {
            None => of_this_machine || port == HTTPS,
            Some(ports) => ports.is_empty() || ports.contains(&port),
        }
    }
}
