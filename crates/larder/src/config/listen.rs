//! Listeners: the addresses on which clients are served, how connections come there, and the certificates that TLS asks clients for.

use super::application::ORIGIN_FORM;
use super::setting::{Field, Setting, word};
use super::{CertificateFiles, MirrorRule, MirrorSetting, Mirroring, Networks, SiteOrigin, Sites, SourceLine, url};
use larder_rules::network;
use larder_wire::Host;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

/// One address on which clients are served.
#[derive(Clone, Debug, PartialEq)]
pub struct Listen {
    /// Address and port; port 0 takes a free one. Where it listens on a Unix socket, an address that stands for its path: listeners are told
    /// apart by it, and nobody binds it.
    pub address: SocketAddr,
    /// The path of the Unix socket on which it listens.
    pub socket: Option<PathBuf>,
    /// The mode of that socket's file.
    pub mode: u32,
    /// Certificates to serve TLS with, chosen by SNI, the first one when none fits; empty: clear text.
    pub tls: Vec<CertificateFiles>,
    /// Whether TLS is served with the certificates of sites, beside those in `tls`.
    pub site_certificates: bool,
    /// Which certificates of clients TLS asks for.
    pub clients: ClientCertificates,
    /// Whether CONNECT tunnels are opened with certificates of the local CA.
    pub intercept: bool,
    /// Whether clients may speak HTTP/2.
    pub http2: bool,
    /// Whether clients may speak HTTP/3, over UDP at the same port.
    pub http3: bool,
    /// Whether it is a forward proxy; `None`: [`Listen::forwarding`] decides.
    pub forward: Option<bool>,
    /// Everything that is asked here goes to this origin (a reverse proxy of one site).
    pub origin: Option<Arc<SiteOrigin>>,
    /// Which URLs clients may ask for in the path.
    pub mirror: MirrorSetting,
    /// Further names of this server that a client of the mirror may use.
    pub mirror_hosts: Vec<Host>,
    /// Networks of balancers whose connections begin with a header of the PROXY protocol.
    pub proxy_protocol: Networks,
    /// How the kernel brings connections here that clients have opened to other servers.
    pub transparent: Transparent,
    /// Whether clients speak SOCKS here.
    pub socks: bool,
    /// Whether TLS to sites that say so goes to their origins unopened.
    pub pass_through: bool,
    /// The name of a listening socket that the program was started with, which takes the place of one of its own.
    pub activation: Option<String>,
    /// Where it stands.
    pub place: SourceLine,
}

impl Listen {
    /// A plain listener: the configured sites, or a forward proxy where there are none.
    pub fn at(address: SocketAddr) -> Listen {
        Listen {
            address,
            socket: None,
            mode: MODE,
            tls: Vec::new(),
            site_certificates: false,
            clients: ClientCertificates::default(),
            intercept: false,
            http2: true,
            http3: false,
            forward: None,
            origin: None,
            mirror: MirrorSetting::default(),
            mirror_hosts: Vec::new(),
            proxy_protocol: Networks::default(),
            transparent: Transparent::Off,
            socks: false,
            pass_through: false,
            activation: None,
            place: SourceLine::default(),
        }
    }

    /// Whether clients speak TLS here.
    pub fn is_tls(&self) -> bool {
        self.site_certificates || !self.tls.is_empty()
    }

    /// The address as it is written.
    pub fn name(&self) -> String {
        match &self.socket {
            Some(path) => format!("{UNIX}{}", path.display()),
            None => self.address.to_string(),
        }
    }

    fn listen_on(&mut self, text: &str) -> bool {
        let Some(address) = listen_address(text) else { return false };
        self.address = address;
        self.socket = text.strip_prefix(UNIX).map(PathBuf::from);
        true
    }

    /// Whether clients may use it as a forward proxy.
    pub fn forwarding(&self) -> Forwarding {
        match self.forward {
            _ if self.origin.is_some() => Forwarding::Off,
            Some(true) => Forwarding::On,
            Some(false) => Forwarding::Off,
            None if self.intercept || self.socks || self.transparent.is_on() => Forwarding::On,
            None => Forwarding::WithoutSites,
        }
    }

    /// How it decides about URLs in the path.
    pub fn mirroring(&self) -> MirrorRule {
        MirrorRule {
            // A path at a transparent listener is meant for the server that the client has connected to, and SOCKS knows of no paths.
            setting: if self.socks || self.transparent.is_on() {
                MirrorSetting::Always(Mirroring::None)
            } else {
                self.mirror
            },
            is_plain_proxy: self.is_of_this_machine() && self.forwarding() != Forwarding::Off,
            has_origin: self.origin.is_some(),
            names: self.mirror_hosts.clone().into(),
        }
    }

    /// Whether only programs of this machine can connect to it. A balancer of this machine passes on the connections of others, and so does
    /// the kernel to a transparent listener, whatever address that is bound to.
    pub fn is_of_this_machine(&self) -> bool {
        self.address.ip().to_canonical().is_loopback() && self.proxy_protocol.is_empty() && !self.transparent.is_on()
    }
}

/// The beginning of the address of a listener on a Unix socket; its path follows.
const UNIX: &str = "unix:";
/// The mode of a socket: its owner and group may connect.
const MODE: u32 = 0o660;
/// The network that nobody is in (RFC 6666), of which addresses stand for paths of sockets.
const DISCARDED: u128 = 0x0100 << 112;

/// The address of a listener: address and port, or `unix:` and the path of a socket, for which an address stands that nobody has.
pub fn listen_address(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix(UNIX) {
        Some(path) if url::is_socket_path(path) => {
            let number = u128::from(larder_balance::hash(path.as_bytes()));
            Some(SocketAddr::new(Ipv6Addr::from_bits(DISCARDED | number).into(), 0))
        }
        Some(_) => None,
        None => text.parse().ok(),
    }
}

/// Whether a listener is a forward proxy. A listener that serves sites is none unless it is configured as one:
/// otherwise every client of the site could reach through it addresses that only this machine and its network can
/// reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarding {
    /// The listener forwards requests for any host.
    On,
    /// The listener serves its sites alone.
    #[default]
    Off,
    /// The listener forwards as long as no site is configured.
    WithoutSites,
}

impl Forwarding {
    /// Whether it is one beside these sites.
    pub fn beside(self, sites: &Sites) -> bool {
        match self {
            Forwarding::On => true,
            Forwarding::Off => false,
            Forwarding::WithoutSites => sites.is_empty(),
        }
    }
}

/// How connections come to a transparent listener, which clients have opened to other servers (docs/transparent.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transparent {
    /// It is an ordinary listener.
    #[default]
    Off,
    /// By a rule REDIRECT, which changes the destination; the kernel knows the first one (`SO_ORIGINAL_DST`).
    Redirect,
    /// By a rule TPROXY, which leaves the destination as it is (`IP_TRANSPARENT`).
    Tproxy,
}

impl Transparent {
    const ALL: [Transparent; 3] = [Transparent::Off, Transparent::Redirect, Transparent::Tproxy];

    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Transparent::Off => "off",
            Transparent::Redirect => "redirect",
            Transparent::Tproxy => "tproxy",
        }
    }

    /// Whether the listener is transparent.
    pub fn is_on(self) -> bool {
        self != Transparent::Off
    }
}

/// Which certificates of clients a listener asks for, and what they count as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientCertificates {
    /// Whether clients show one.
    pub demand: CertificateDemand,
    /// The file of authorities whose certificates count.
    pub authorities: Option<PathBuf>,
    /// The file of revocation lists.
    pub revoked: Option<PathBuf>,
    /// The kind of name in the certificate that is the user.
    pub user: CertificateUser,
}

/// Whether a listener asks its clients for certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CertificateDemand {
    /// No.
    #[default]
    None,
    /// A client may go on without one.
    Request,
    /// The handshake fails without one.
    Require,
}

impl CertificateDemand {
    const ALL: [CertificateDemand; 3] =
        [CertificateDemand::None, CertificateDemand::Request, CertificateDemand::Require];

    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            CertificateDemand::None => "none",
            CertificateDemand::Request => "request",
            CertificateDemand::Require => "require",
        }
    }
}

/// The kind of name in a client's certificate that is the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CertificateUser {
    /// A certificate makes no user.
    #[default]
    None,
    /// The common name of its subject.
    Cn,
    /// Its first address of mail.
    Email,
    /// Its first host name.
    Dns,
    /// Its first URI.
    Uri,
}

impl CertificateUser {
    const ALL: [CertificateUser; 5] = [
        CertificateUser::None,
        CertificateUser::Cn,
        CertificateUser::Email,
        CertificateUser::Dns,
        CertificateUser::Uri,
    ];

    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            CertificateUser::None => "none",
            CertificateUser::Cn => "cn",
            CertificateUser::Email => "email",
            CertificateUser::Dns => "dns",
            CertificateUser::Uri => "uri",
        }
    }
}

type OfListen = Setting<Listen>;

/// Settings of one `[[listen]]`.
pub static LISTEN: &[Setting<Listen>] = &[
    OfListen::new(
        "listen.address",
        Field::Text {
            form: "ADDR:PORT or unix:/PATH",
            read: Listen::name,
            write: Listen::listen_on,
        },
    )
    .required()
    .about("Address and port where clients are served, as `0.0.0.0:8080` or `[::]:8080`; port 0 takes a free one. `unix:/run/larder.sock` is a Unix socket ([unix-sockets.md](unix-sockets.md))."),
    OfListen::new(
        "listen.mode",
        Field::Text {
            form: "octal digits",
            read: |l| format!("{:04o}", l.mode),
            write: |l, text| {
                let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && text.len() <= 4);
                mode.map(|mode| l.mode = mode).is_some()
            },
        },
    )
    .about("The mode of the file of a Unix socket, as `0666`: whoever may write to it may connect."),
    OfListen::new("listen.intercept", Field::Flag(|l| &mut l.intercept)).about(
        "Whether CONNECT tunnels are opened with certificates of the local CA (`larder ca`), which clients must trust.",
    ),
    OfListen::new("listen.site_certificates", Field::Flag(|l| &mut l.site_certificates)).about(
        "Whether TLS is served with the certificates of sites (`site.certificate`, [acme.md](acme.md)). Files in `tls` come first, for the names that they have.",
    ),
    OfListen::new("listen.http2", Field::Flag(|l| &mut l.http2)).about(
        "Whether clients may speak HTTP/2 ([http2.md](http2.md)): over TLS and inside intercepted tunnels by ALPN, in clear text by its preface (prior knowledge).",
    ),
    OfListen::new("listen.http3", Field::Flag(|l| &mut l.http3)).about(
        "Whether clients may speak HTTP/3 ([http3.md](http3.md)), over UDP at the same port. A listener for that has `tls` or `site_certificates`, serves sites, and is no forward proxy; its answers over TCP say by `Alt-Svc` that there is HTTP/3.",
    ),
    OfListen::new("listen.forward", Field::FlagOrAuto(|l| &mut l.forward)).about(
        "Whether clients may use this listener as a forward proxy. `auto`: yes where no site is configured or `intercept` is set. A listener with an `origin` never is.",
    ),
    OfListen::new(
        "listen.origin",
        Field::Text {
            form: ORIGIN_FORM,
            read: |l| l.origin.as_deref().map_or("none".to_owned(), |origin| url::show(origin)),
            write: |l, text| {
                l.origin = url::parse_origin(text).map(SiteOrigin::new).map(Arc::new);
                l.origin.is_some()
            },
        },
    )
    .about("Everything that is asked here comes from this origin: a reverse proxy of one site. As `site.origin`, it may be a socket or an application in Python."),
    OfListen::new(
        "listen.mirror",
        Field::Text {
            form: "auto, all, named or none",
            read: |l| l.mirror.as_str().to_owned(),
            write: |l, text| {
                let choice = word(&MirrorSetting::ALL, MirrorSetting::as_str, text);
                choice.map(|choice| l.mirror = choice).is_some()
            },
        },
    )
    .about(
        "Which URLs clients may ask for in the path (`/https://host/path`, docs/mirror.md): `all`, those below an origin of a \
         `[[mirror]]` (`named`) or `none`. `auto`: `all` on a forward proxy that only this machine can connect to, while no site \
         is configured.",
    ),
    OfListen::new(
        "listen.mirror_hosts",
        Field::Texts {
            form: "host names",
            read: |l| l.mirror_hosts.iter().map(ToString::to_string).collect(),
            clear: |l| l.mirror_hosts.clear(),
            push: |l, text| Host::parse(text).map(|host| l.mirror_hosts.push(host)).is_some(),
        },
    )
    .about("Names of this server by which clients may ask its mirror, beside addresses and `localhost`."),
    OfListen::new(
        "listen.proxy_protocol",
        Field::Texts {
            form: "networks",
            read: |l| l.proxy_protocol.iter().map(ToString::to_string).collect(),
            clear: |l| l.proxy_protocol.clear(),
            push: |l, text| network(text).map(|net| l.proxy_protocol.push(net)).is_some(),
        },
    )
    .about("Networks of load balancers (`unix` for those at a Unix socket) whose connections begin with a header of the PROXY protocol, version 1 or 2, that names the client ([proxy-protocol.md](proxy-protocol.md)). Such a connection without a proper header is closed; those from elsewhere come without one."),
    OfListen::new(
        "listen.transparent",
        Field::Text {
            form: "off, redirect or tproxy",
            read: |l| l.transparent.as_str().to_owned(),
            write: |l, text| {
                let choice = word(&Transparent::ALL, Transparent::as_str, text);
                choice.map(|choice| l.transparent = choice).is_some()
            },
        },
    )
    .about("Serves connections that clients have opened to other servers, and that rules of the kernel bring here: `redirect` (the destination before REDIRECT counts) or `tproxy` (Linux, needs `CAP_NET_ADMIN`). HTTP and TLS are told apart by their first byte; `intercept` says whether TLS is opened. `larder intercept --print` shows such rules ([transparent.md](transparent.md)). A change needs a restart."),
    OfListen::new(
        "listen.activation",
        Field::Text {
            form: "a name",
            read: |l| l.activation.clone().unwrap_or_else(|| "none".to_owned()),
            write: |l, text| {
                l.activation = Some(text.to_owned()).filter(|text| !text.is_empty() && text != "none");
                !text.is_empty()
            },
        },
    )
    .about("The name of a listening socket of TCP that systemd passes at the start (`FileDescriptorName=`, [activation.md](activation.md)): it is used, and `address` says only which listener is meant in logs and explanations. A change needs a restart."),
    OfListen::new("listen.socks", Field::Flag(|l| &mut l.socks)).about(
        "Whether clients speak SOCKS 5 here, and nothing else ([socks.md](socks.md)): each connection is judged as a CONNECT, and `intercept` opens its TLS. A login by password is one of `access.login`.",
    ),
    OfListen::new("listen.pass_through", Field::Flag(|l| &mut l.pass_through)).about(
        "Whether TLS whose ClientHello names a `[[site]]` with `pass_through` goes to its origin unopened ([pass-through.md](pass-through.md)). With `[[listen.tls]]` all other TLS is served by these certificates; without it TLS is refused, and HTTP in clear text is served.",
    ),
    OfListen::new(
        "listen.client_certificates",
        Field::Text {
            form: "none, request or require",
            read: |l| l.clients.demand.as_str().to_owned(),
            write: |l, text| {
                let demand = word(&CertificateDemand::ALL, CertificateDemand::as_str, text);
                demand.map(|demand| l.clients.demand = demand).is_some()
            },
        },
    )
    .about("Whether TLS asks clients for a certificate ([people.md](people.md)): `require` ends the handshake of a client without one, `request` lets it go on; a certificate that is not valid ends it in both. Rules see its names by `when.certificate`."),
    OfListen::new("listen.client_ca", Field::PathIfAny(|l| &mut l.clients.authorities))
        .default_words("none")
        .about("PEM file with the authorities whose certificates count for `client_certificates`. Those of the system never do."),
    OfListen::new("listen.client_crl", Field::PathIfAny(|l| &mut l.clients.revoked))
        .default_words("none")
        .about("PEM file with lists of revoked certificates, one of each authority in the chain. A list past its `nextUpdate` lets no certificate in. Read again when it has changed."),
    OfListen::new(
        "listen.certificate_user",
        Field::Text {
            form: "none, cn, email, dns or uri",
            read: |l| l.clients.user.as_str().to_owned(),
            write: |l, text| {
                let user = word(&CertificateUser::ALL, CertificateUser::as_str, text);
                user.map(|user| l.clients.user = user).is_some()
            },
        },
    )
    .about("The name in the client's certificate that is the user, where no login asks for another one: the common name of its subject, or the first address of mail, host name or URI in it."),
];
