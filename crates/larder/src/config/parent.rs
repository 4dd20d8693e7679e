//! Parents, proxies through which requests of the forward proxy go, and siblings, caches that are asked beforehand. One `[[parent]]`, one
//! `[[sibling]]`.

use super::secret::{self, Secret};
use super::setting::{Field, Setting};
use super::{HostPattern, Networks, SourceLine};
use larder_rules::network;
use larder_wire::{Host, Scheme, Url, socks};

/// One `[[parent]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Parent {
    /// The name by which `forward.parents` refers to it.
    pub name: String,
    /// The protocol that it speaks.
    pub protocol: ParentProtocol,
    /// Where it listens: a host and a port.
    pub url: Url,
    /// The login that stands in its URL, until it is taken for `user` and `password`.
    pub login_in_url: Option<(String, Secret)>,
    /// The user that it asks for.
    pub user: String,
    /// That user's password.
    pub password: Option<Secret>,
    /// Where it answers questions about what it has stored.
    pub questions: QuestionPorts,
    /// The URLs that it is for.
    pub schemes: ParentSchemes,
    /// Where it stands.
    pub place: SourceLine,
}

impl Parent {
    /// Its URL, without a login.
    pub fn shown_url(&self) -> String {
        let (scheme, host, port) = (self.protocol.as_str(), &self.url.host, self.url.port);
        if host.is_local() { String::new() } else { format!("{scheme}://{host}:{port}") }
    }

    /// Takes its URL: `http://`, `https://` or `socks5://`, perhaps a login, a host and perhaps a port. False where the text is none.
    pub(super) fn read_url(&mut self, text: &str) -> bool {
        const SCHEMES: [(&str, ParentProtocol, u16); 4] = [
            ("http://", ParentProtocol::Http, 80),
            ("https://", ParentProtocol::Https, 443),
            ("socks5://", ParentProtocol::Socks5, socks::DEFAULT_PORT),
            // The same: names are looked up by the parent in any case.
            ("socks5h://", ParentProtocol::Socks5, socks::DEFAULT_PORT),
        ];
        let starts = |scheme: &str| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
        let Some((scheme, protocol, port)) = SCHEMES.into_iter().find(|(scheme, ..)| starts(scheme)) else {
            return false;
        };
        let rest = text.get(scheme.len()..).unwrap_or_default();
        let (login, authority) = match rest.rsplit_once('@') {
            Some((login, authority)) => (Some(login), authority),
            None => (None, rest),
        };
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let with_port = if has_port { authority.to_owned() } else { with_port(authority, port) };
        let Some(url) = Url::parse(&format!("http://{with_port}")).filter(|url| &*url.path == "/") else {
            return false;
        };
        let login = match login {
            None => None,
            Some(login) => match login_in_url(login) {
                Some(login) => Some(login),
                None => return false,
            },
        };
        (self.protocol, self.url, self.login_in_url) = (protocol, url, login);
        true
    }
}

/// The authority with this port, before a `/` at its end.
fn with_port(authority: &str, port: u16) -> String {
    format!("{}:{port}", authority.trim_end_matches('/'))
}

/// `user:password`, with `%XX` undone in both.
fn login_in_url(text: &str) -> Option<(String, Secret)> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let (user, password) = (undone(user)?, undone(password)?);
    let is_good = !user.is_empty() && !user.contains(':') && !user.chars().any(char::is_control);
    is_good.then(|| (user, Secret::new(password)))
}

/// A text with `%XX` undone; `None` where that leaves none.
fn undone(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, behind @ ..] = rest {
        rest = behind;
        let byte = match (first, behind) {
            (b'%', [high, low, behind @ ..]) => {
                rest = behind;
                let digit = |digit: &u8| char::from(*digit).to_digit(16);
                u8::try_from(digit(high)? * 16 + digit(low)?).ok()?
            }
            (b'%', _) => return None,
            (byte, _) => *byte,
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok()
}

/// The protocol that a parent speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ParentProtocol {
    /// HTTP, in clear text.
    #[default]
    Http,
    /// HTTP over TLS.
    Https,
    /// SOCKS version 5; it looks names up.
    Socks5,
}

impl ParentProtocol {
    /// The scheme of its URLs.
    pub fn as_str(self) -> &'static str {
        match self {
            ParentProtocol::Http => "http",
            ParentProtocol::Https => "https",
            ParentProtocol::Socks5 => "socks5",
        }
    }
}

/// The URLs that a parent is for. Variables of the environment are for one scheme each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ParentSchemes {
    /// All.
    #[default]
    All,
    /// Those of http.
    Http,
    /// Those of https, and tunnels.
    Https,
    /// Those that no variable of their own names a parent for.
    Others {
        /// http has one.
        has_http: bool,
        /// https has one.
        has_https: bool,
    },
}

impl ParentSchemes {
    /// Whether URLs of this scheme are among them.
    pub fn has(self, scheme: Scheme) -> bool {
        match self {
            ParentSchemes::All => true,
            ParentSchemes::Http => scheme == Scheme::Http,
            ParentSchemes::Https => scheme == Scheme::Https,
            ParentSchemes::Others { has_http, has_https } => match scheme {
                Scheme::Http => !has_http,
                Scheme::Https => !has_https,
                Scheme::Ftp => true,
            },
        }
    }
}

impl Default for Parent {
    fn default() -> Parent {
        let url = Url { scheme: Scheme::Http, host: Host::local("parent:"), port: 3128, path: "/".into() };
        Parent {
            name: String::new(),
            protocol: ParentProtocol::Http,
            url,
            login_in_url: None,
            user: String::new(),
            password: None,
            questions: QuestionPorts::default(),
            schemes: ParentSchemes::All,
            place: SourceLine::default(),
        }
    }
}

/// The ports of UDP at which a neighbouring cache answers questions about what it has stored. With both, it is asked by HTCP, which
/// knows the fields of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuestionPorts {
    /// That of ICP (RFC 2186).
    pub icp: Option<usize>,
    /// That of HTCP (RFC 2756).
    pub htcp: Option<usize>,
}

impl QuestionPorts {
    /// Whether it is asked at all.
    pub fn is_any(self) -> bool {
        self.icp.is_some() || self.htcp.is_some()
    }
}

/// One `[[sibling]]`: a cache that is asked for what it has stored, and for nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct Sibling {
    /// The name that the metrics and logs show.
    pub name: String,
    /// Where it serves HTTP: scheme http, a host and a port.
    pub url: Url,
    /// Where it answers questions about what it has stored.
    pub questions: QuestionPorts,
    /// Where it stands.
    pub place: SourceLine,
}

impl Default for Sibling {
    fn default() -> Sibling {
        let Parent { name, url, questions, place, .. } = Parent::default();
        Sibling { name, url, questions, place }
    }
}

/// The hosts that are asked without a parent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DirectHosts {
    hosts: Vec<HostPattern>,
    networks: Networks,
    texts: Vec<String>,
}

impl DirectHosts {
    /// The texts by which they were configured.
    pub(super) fn texts(&self) -> Vec<String> {
        self.texts.clone()
    }

    /// One more: a host pattern, an address or a network; false where it is none.
    pub(super) fn push(&mut self, text: &str) -> bool {
        let is_known = match network(text) {
            Some(network) => {
                self.networks.push(network);
                true
            }
            None => HostPattern::parse(text).map(|host| self.hosts.push(host)).is_some(),
        };
        self.texts.push(text.to_owned());
        is_known
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        *self = DirectHosts::default();
    }

    /// Whether this host is one of them. An address is looked for among the networks as it stands in the URL; names are not looked up.
    pub fn contains(&self, host: &Host) -> bool {
        let ip = host.ip().map(|ip| ip.to_canonical());
        ip.is_some_and(|ip| self.networks.contains(ip)) || self.is_named(host)
    }

    fn is_named(&self, host: &Host) -> bool {
        self.hosts.iter().any(|pattern| pattern.matches(host))
    }
}

/// Whether a host is this machine by its form. A parent's `localhost` is another machine.
pub fn is_this_machine(host: &Host) -> bool {
    let name = host.as_str().strip_suffix('.').unwrap_or(host.as_str());
    match host.ip() {
        Some(ip) => ip.to_canonical().is_loopback(),
        None => name == "localhost" || name.ends_with(".localhost"),
    }
}

type OfParent = Setting<Parent>;
type OfSibling = Setting<Sibling>;

fn show_url(url: &Url) -> String {
    if url.host.is_local() { String::new() } else { format!("http://{}", url.authority()) }
}

fn read_url(text: &str) -> Option<Url> {
    Url::parse(text).filter(|url| url.scheme == Scheme::Http && &*url.path == "/")
}

const ICP_PORT_ABOUT: &str = "The port of UDP at which it answers ICP (RFC 2186), mostly `3130`: it is asked whether it has stored what is missing here.";
const HTCP_PORT_ABOUT: &str = "The port of UDP at which it answers HTCP (RFC 2756), mostly `4827`. HTCP knows the fields of requests; with both ports it is the one that is used.";

/// Settings of one `[[parent]]`.
pub static PARENT: &[Setting<Parent>] = &[
    OfParent::new("parent.name", Field::Name(|p| &mut p.name))
        .required()
        .about("The name by which `forward.parents` refers to it, of letters, digits, `-`, `_` and `.`."),
    OfParent::new(
        "parent.url",
        Field::Text {
            form: "http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT",
            read: Parent::shown_url,
            write: |p, text| p.read_url(text),
        },
    )
    .required()
    .about("Where the proxy listens: `http://proxy.example:3128`, `https://proxy.example:3129` for one that is spoken to over TLS, whose certificate is verified as those of origins are, or `socks5://proxy.example:1080` for one that speaks SOCKS 5. TLS to origins goes through each of them untouched. A login may stand before the host (`socks5://joe:pear@proxy.example`), with `%XX` for other letters; it is shown nowhere."),
    OfParent::new(
        "parent.user",
        Field::Text {
            form: "name or none",
            read: |p| p.user.clone(),
            write: |p, text| {
                text.clone_into(&mut p.user);
                !text.contains(':') && !text.chars().any(char::is_control)
            },
        },
    )
    .default_words("none")
    .about("The user that it asks for, by Basic (RFC 7617), or by SOCKS (RFC 1929)."),
    OfParent::new(
        "parent.password",
        Field::Text {
            form: "secret or none",
            read: |p| p.password.as_ref().map_or(String::new(), |_| "(hidden)".to_owned()),
            // Of any length: others have chosen it.
            write: |p, text| secret::resolve(text).map(|text| p.password = Some(Secret::new(text))).is_ok(),
        },
    )
    .default_words("none")
    .about("The password of that user; best `${FILE:PATH}` or `${ENV:NAME}`."),
    OfParent::new("parent.icp_port", Field::CountOrNone(|p| &mut p.questions.icp))
        .between(1, 65_535)
        .default_words("none")
    .about(ICP_PORT_ABOUT),
    OfParent::new("parent.htcp_port", Field::CountOrNone(|p| &mut p.questions.htcp))
        .between(1, 65_535)
        .default_words("none")
    .about(HTCP_PORT_ABOUT),
];

/// Settings of one `[[sibling]]`.
pub static SIBLING: &[Setting<Sibling>] = &[
    OfSibling::new("sibling.name", Field::Name(|s| &mut s.name))
        .required()
        .about("Its name, of letters, digits, `-`, `_` and `.`."),
    OfSibling::new(
        "sibling.url",
        Field::Text {
            form: "http://HOST:PORT",
            read: |s| show_url(&s.url),
            write: |s, text| read_url(text).map(|url| s.url = url).is_some(),
        },
    )
    .required()
    .about("Where the cache serves HTTP: `http://cache-2.example:3128`. Responses that it says it has are asked for here, with `Cache-Control: only-if-cached`."),
    OfSibling::new("sibling.icp_port", Field::CountOrNone(|s| &mut s.questions.icp))
        .between(1, 65_535)
        .default_words("none")
    .about(ICP_PORT_ABOUT),
    OfSibling::new("sibling.htcp_port", Field::CountOrNone(|s| &mut s.questions.htcp))
        .between(1, 65_535)
        .default_words("none")
    .about(HTCP_PORT_ABOUT),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_and_what_is_named_are_direct() {
        let mut direct = DirectHosts::default();
        for text in ["*.corp.example", "10.0.0.0/8", "2001:db8::1"] {
            assert!(direct.push(text), "{text}");
        }
        assert!(!direct.push("a b"));
        let has = |host: &str| {
            let host = Host::parse(host).unwrap();
            direct.contains(&host) || is_this_machine(&host)
        };
        for host in [
            "localhost",
            "a.localhost",
            "localhost.",
            "127.0.0.1",
            "[::1]",
            "a.corp.example",
            "10.1.2.3",
            "[2001:db8::1]",
            "[::ffff:10.0.0.1]",
        ] {
            assert!(has(host), "{host}");
        }
        for host in ["corp.example", "example", "11.0.0.1", "[2001:db8::2]", "notlocalhost"] {
            assert!(!has(host), "{host}");
        }
    }
}
