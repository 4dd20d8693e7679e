//! The addresses that the forward proxy may connect to. Addresses are judged and not names, each at the moment of its
//! connection: a name may be spelled in many ways, and may lead to another address than before. Origins that stand in
//! the configuration are not judged here.

use crate::config::next_hop::{HopsByRule, HopsOrder, NextHops};
use crate::config::parent::Parent;
use crate::config::rule::ClosedDestinations;
use crate::config::{Config, Listen, Networks};
use crate::live::Held;
use larder_lists::countries::Countries;
use larder_wire::{Host, Url};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;

/// The word for a refusal.
pub const REFUSED: &str = "out-of-reach";

/// The clients that can connect to a forward proxy's listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asker {
    /// Programs of this machine alone. They reach closed addresses without the proxy, so they may through it.
    ThisMachine,
    /// A command of this machine that does not use the network: nothing is connected to for it.
    OfflineRun,
    /// Anywhere.
    #[default]
    Elsewhere,
}

impl Asker {
    /// The clients of a listener.
    pub fn at(listen: &Listen) -> Asker {
        match listen.is_of_this_machine() {
            true => Asker::ThisMachine,
            false => Asker::Elsewhere,
        }
    }
}

/// Addresses on which this server listens itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnAddresses(Vec<SocketAddr>);

impl FromIterator<SocketAddr> for OwnAddresses {
    fn from_iter<I: IntoIterator<Item = SocketAddr>>(addresses: I) -> OwnAddresses {
        OwnAddresses(addresses.into_iter().collect())
    }
}

impl OwnAddresses {
    /// Those of a configuration, for rehearsals.
    pub fn of(config: &Config) -> OwnAddresses {
        config.listens.iter().map(|listen| listen.address).chain(config.admin).chain(config.cluster.listen).collect()
    }

    /// Whether a connection to this address would arrive here.
    pub fn lead_here(&self, to: SocketAddr) -> bool {
        let mut listeners = self.0.iter().filter(|own| own.port() == to.port()).peekable();
        if listeners.peek().is_none() {
            return false;
        }
        // The kernel takes the unspecified address for loopback.
        let ip = match meant(to.ip()) {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        let is_local = ip.is_loopback() || is_of_this_machine(ip);
        listeners.any(|own| if own.ip().is_unspecified() { is_local } else { own.ip().to_canonical() == ip })
    }
}

/// Whether an interface of this machine has the address: the kernel then chooses it as the source, too. No packet is sent.
fn is_of_this_machine(ip: IpAddr) -> bool {
    const ANY_PORT: u16 = 9;
    let any: IpAddr = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((ip, ANY_PORT))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == ip)
}

/// How far a request may go.
#[derive(Clone)]
pub enum Reach {
    /// To an origin of the configuration, wherever that is.
    Configured,
    /// To a server of the configuration that is not this one.
    NotHere(Rc<Held<OwnAddresses>>),
    /// To an address that a client of the forward proxy may reach.
    Asked {
        /// The client that asks.
        asker: Asker,
        /// The settings that hold.
        config: Rc<Held<Config>>,
        /// Where this server listens.
        own: Rc<Held<OwnAddresses>>,
        /// Through which parents.
        way: Way,
    },
    /// Over an open connection through one of these parents, and nowhere else.
    Through(Rc<[Arc<Parent>]>),
}

/// The choice of rules about one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReachByRule {
    /// Through whom it goes.
    pub hops: Option<Arc<HopsByRule>>,
    /// Where it may not lead.
    pub closed: Option<Arc<[Arc<ClosedDestinations>]>>,
    /// The countries of addresses, where a rule denies destinations by them.
    pub countries: CountriesInForce,
}

/// The countries of addresses as one file has them.
#[derive(Clone, Default)]
pub struct CountriesInForce(pub Option<Arc<Countries>>);

/// They are compared by their file: there are half a million ranges.
impl PartialEq for CountriesInForce {
    fn eq(&self, other: &CountriesInForce) -> bool {
        self.0.as_ref().map(Arc::as_ptr) == other.0.as_ref().map(Arc::as_ptr)
    }
}

impl std::fmt::Debug for CountriesInForce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CountriesInForce({} ranges)", self.0.as_ref().map_or(0, |countries| countries.ranges_len()))
    }
}

impl ReachByRule {
    /// Whether rules choose nothing.
    pub fn is_empty(&self) -> bool {
        self.hops.is_none() && self.closed.is_none()
    }

    /// The rule by which a request may not lead to this address.
    fn closes(&self, ip: IpAddr) -> Option<&str> {
        let mut closed = self.closed.iter().flat_map(|closed| closed.iter());
        let countries = self.countries.0.as_deref();
        let found = closed.find(|closed| closed.has(ip, countries) || closed.has(meant(ip), countries))?;
        Some(&found.rule)
    }
}

/// The choice of the parents through which a request goes, beside that of the settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Way {
    /// The choice of rules.
    pub by_rule: ReachByRule,
    /// The parent that goes before others, by its place, and why.
    pub first: Option<(u8, HopsOrder)>,
    /// The origin is asked itself: no parent that was meant leads there.
    pub is_direct: bool,
}

impl Reach {
    /// With this choice of rules.
    pub fn by_rule(mut self, by_rule: ReachByRule) -> Reach {
        if let Reach::Asked { way, .. } = &mut self {
            way.by_rule = by_rule;
        }
        self
    }

    /// With this parent before others.
    pub fn first_by(mut self, place: u8, order: HopsOrder) -> Reach {
        if let Reach::Asked { way, .. } = &mut self {
            way.first = Some((place, order));
        }
        self
    }

    /// To the origin itself.
    pub fn directly(mut self) -> Reach {
        if let Reach::Asked { way, .. } = &mut self {
            way.is_direct = true;
        }
        self
    }

    /// Those that a request for this URL is sent to; `None`: to the origin itself. A tunnel is asked for by a URL of https.
    pub fn next_hops(&self, url: &Url) -> Option<NextHops> {
        let Reach::Asked { config, way, .. } = self else { return None };
        if !config.forward_parents.is_any || way.is_direct {
            return None;
        }
        let hops = config.next_hops(url, way.by_rule.hops.as_deref())?;
        Some(match way.first {
            Some((place, order)) => hops.with_first(place, order),
            None => hops,
        })
    }

    /// Whether a connection may lead to this address.
    pub fn permits(&self, to: SocketAddr) -> bool {
        match self {
            Reach::Configured => true,
            Reach::NotHere(own) => !own.lead_here(to),
            Reach::Asked { asker: Asker::OfflineRun, .. } | Reach::Through(_) => false,
            Reach::Asked { asker, config, own, way } => {
                permits(*asker, &config.access.destinations, own, to) && way.by_rule.closes(to.ip()).is_none()
            }
        }
    }

    /// The rule by which a request may not lead to this address.
    pub fn closed_by(&self, ip: IpAddr) -> Option<&str> {
        match self {
            Reach::Asked { way, .. } => way.by_rule.closes(ip),
            _ => None,
        }
    }

    /// Whether a rule denies this address to some clients, be it not to this one.
    pub fn is_closed_to_some(&self, ip: IpAddr) -> bool {
        matches!(self, Reach::Asked { config, way, .. } if closes_to_some(config, way.by_rule.countries.0.as_deref(), ip))
    }
}

/// Whether a rule denies this address to some clients. An answer that a name brings from there is kept for nobody: stored answers are found by
/// their URL, whoever asks.
pub fn closes_to_some(config: &Config, countries: Option<&Countries>, ip: IpAddr) -> bool {
    config.rule_table.closes(ip, countries) || config.rule_table.closes(meant(ip), countries)
}

/// The addresses that a host in this form stands for: its own, and the one that is meant.
pub fn each_literal(host: &Host, each: &mut dyn FnMut(IpAddr)) {
    if let Some(ip) = host.ip() {
        each(ip);
        if meant(ip) != ip {
            each(meant(ip));
        }
    }
}

fn permits(asker: Asker, opened: &Networks, own: &OwnAddresses, to: SocketAddr) -> bool {
    !own.lead_here(to) && (asker != Asker::Elsewhere || !is_closed(to.ip()) || is_opened(opened, to.ip()))
}

fn is_opened(opened: &Networks, ip: IpAddr) -> bool {
    opened.contains(ip) || opened.contains(meant(ip))
}

/// Whether the form of a host (an address, `localhost`) shows that it is out of reach. Such a request is refused before
/// any lookup.
pub fn refuses_form(asker: Asker, opened: &Networks, own: &OwnAddresses, host: &Host, port: u16) -> bool {
    let refuses = |ip: IpAddr| !permits(asker, opened, own, SocketAddr::new(ip, port));
    match host.ip() {
        Some(ip) => refuses(ip),
        None => is_localhost(host) && refuses(Ipv4Addr::LOCALHOST.into()) && refuses(Ipv6Addr::LOCALHOST.into()),
    }
}

/// Whether an answer from this address may be kept for all clients. Stored answers are found by their URL, whoever asks:
/// one from an address that is closed to clients elsewhere is kept only where the URL says so by its form, for those are
/// refused before anything is looked up. So a name that leads to a closed address gives them nothing, whatever networks are
/// opened later or were before.
pub fn may_keep(host: &Host, peer: IpAddr) -> bool {
    !is_closed(peer) || host.ip().is_some() || is_localhost(host)
}

/// `localhost` and all names below it mean this machine (RFC 6761 section 6.3).
pub fn is_localhost(host: &Host) -> bool {
    let name = host.as_str().trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}

/// Whether an address is closed to clients elsewhere: it is one of this machine or its link, a multicast address, no
/// address of a host at all, or a metadata service of a cloud.
pub fn is_closed(ip: IpAddr) -> bool {
    is_closed_as_it_is(ip) || is_closed_as_it_is(meant(ip))
}

fn is_closed_as_it_is(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            ip.is_loopback() || ip.is_link_local() || ip.is_multicast() || is_no_host(ip) || METADATA_V4.contains(&ip)
        }
        IpAddr::V6(ip) => {
            ip.is_loopback()
                || ip.is_unicast_link_local()
                || ip.is_multicast()
                || ip.is_unspecified()
                || ip.segments()[0] & 0xffc0 == SITE_LOCAL
                || METADATA_V6.contains(&ip)
        }
    }
}

/// `0.0.0.0/8` (this network), `192.0.0.0/24` (protocols), and `240.0.0.0/4` (reserved, with the broadcast address): RFC 6890.
fn is_no_host(ip: Ipv4Addr) -> bool {
    let [first, second, third, _] = ip.octets();
    first == 0 || first >= 240 || (first, second, third) == (192, 0, 0)
}

/// `fec0::/10`, which was for sites before `fc00::/7` (RFC 3879).
const SITE_LOCAL: u16 = 0xfec0;

/// Metadata services of clouds, which tell machines their secrets, beside the link-local `169.254.169.254`: Azure,
/// Alibaba.
const METADATA_V4: [Ipv4Addr; 2] = [Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(100, 100, 100, 200)];
/// The same: Amazon, Google.
const METADATA_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)];

/// The IPv4 address to which an IPv6 address leads, where it does: mapped and compatible (RFC 4291 section 2.5.5), behind a
/// NAT64 (RFC 6052, RFC 8215), a 6to4 relay (RFC 3056) or a Teredo relay (RFC 4380). Any other address is itself.
fn meant(ip: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = ip else { return ip };
    let v4 = |high: u16, low: u16| IpAddr::V4((u32::from(high) << 16 | u32::from(low)).into());
    match v6.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => ip,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 1, _, _, _, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        [0x2001, 0, _, _, _, _, high, low] => v4(!high, !low),
        _ => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn closed_addresses_stay_closed_in_every_form() {
        for closed in [
            "127.0.0.1",
            "127.255.255.254",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0.0.0.0",
            "::127.0.0.1",
            "::169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::127.0.0.1",
            "64:ff9b:1:abcd:1:2:127.0.0.1",
            "2002:7f00:1::1",
            "2002:a9fe:a9fe::",
            "2001:0:1:2:3:4:80ff:fffe",
        ] {
            assert!(is_closed(ip(closed)), "{closed}");
        }
    }

    #[test]
    fn hosts_of_networks_are_open() {
        for open in [
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "192.0.1.1",
            "198.18.0.1",
            "223.255.255.255",
            "93.184.216.34",
            "fd00::1",
            "fc00::1",
            "2001:db8::1",
            "2606:2800:220:1::1",
            "::ffff:10.0.0.1",
            "64:ff9b::93.184.216.34",
            "2002:5db8:d822::1",
        ] {
            assert!(!is_closed(ip(open)), "{open}");
        }
    }

    fn networks(texts: &[&str]) -> Networks {
        texts.iter().map(|text| text.parse::<ipnet::IpNet>().unwrap()).collect()
    }

    #[test]
    fn own_addresses_are_out_of_reach_for_all() {
        let own: OwnAddresses =
            ["127.0.0.1:3129", "0.0.0.0:8080", "[::1]:3130"].map(|text| text.parse().unwrap()).into_iter().collect();
        let all = networks(&["0.0.0.0/0", "::/0"]);
        let permits = |to: &str| permits(Asker::ThisMachine, &all, &own, to.parse().unwrap());
        for refused in [
            "127.0.0.1:3129",
            "0.0.0.0:3129",
            "[::ffff:127.0.0.1]:3129",
            "[::ffff:0.0.0.0]:3129",
            "[64:ff9b::127.0.0.1]:3129",
            "127.0.0.1:8080",
            "127.9.9.9:8080",
            "[::1]:8080",
            "[::]:8080",
            "[::1]:3130",
            "[::]:3130",
        ] {
            assert!(!permits(refused), "{refused}");
        }
        for permitted in ["127.0.0.2:3129", "127.0.0.1:3130", "127.0.0.1:9000", "192.0.2.1:3129", "192.0.2.1:8080"] {
            assert!(permits(permitted), "{permitted}");
        }
    }

    #[test]
    fn networks_are_opened_by_the_address_that_is_meant() {
        let own = OwnAddresses::default();
        let opened = networks(&["127.0.0.0/8", "169.254.169.254/32"]);
        let permits = |to: &str| permits(Asker::Elsewhere, &opened, &own, SocketAddr::new(ip(to), 80));
        for open in ["127.0.0.1", "::ffff:127.0.0.1", "169.254.169.254", "64:ff9b::127.0.0.1", "10.0.0.1"] {
            assert!(permits(open), "{open}");
        }
        for closed in ["169.254.169.253", "::1", "0.0.0.0"] {
            assert!(!permits(closed), "{closed}");
        }
    }

    #[test]
    fn a_form_is_refused_where_nothing_of_it_can_be_reached() {
        let (none, own) = (Networks::default(), OwnAddresses::default());
        let refuses =
            |asker, opened: &Networks, host: &str| refuses_form(asker, opened, &own, &Host::parse(host).unwrap(), 80);
        for host in ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "localhost", "a.localhost.", "169.254.169.254"] {
            assert!(refuses(Asker::Elsewhere, &none, host), "{host}");
            assert!(!refuses(Asker::ThisMachine, &none, host), "{host}");
        }
        // These spellings of addresses are names for the parser; the resolver makes addresses of them.
        for host in ["127.1", "0x7f.1", "2130706433", "017700000001", "localhost.example", "10.0.0.1", "a.example"] {
            assert!(!refuses(Asker::Elsewhere, &none, host), "{host}");
        }
        assert!(!refuses(Asker::Elsewhere, &networks(&["::1/128"]), "localhost"));
    }

    #[test]
    fn what_a_name_brings_from_a_closed_address_is_kept_for_nobody() {
        let keeps = |host: &str, peer: &str| may_keep(&Host::parse(host).unwrap(), ip(peer));
        assert!(keeps("a.example", "93.184.216.34") && keeps("intranet.example", "10.0.0.1"));
        assert!(keeps("127.0.0.1", "127.0.0.1") && keeps("localhost", "::1") && keeps("[::1]", "::1"));
        assert!(!keeps("a.example", "127.0.0.1") && !keeps("metadata.google.internal", "169.254.169.254"));
        assert!(!keeps("2130706433", "127.0.0.1") && !keeps("0x7f.1", "127.0.0.1"));
    }

    #[test]
    fn this_machine_knows_its_addresses() {
        assert!(is_of_this_machine(ip("127.0.0.1")));
        assert!(!is_of_this_machine(ip("192.0.2.1")));
    }
}
