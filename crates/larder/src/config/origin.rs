//! Origins that are groups of members: one `[[origin]]`, which sites name by its name.

use super::SourceLine;
use super::application::ORIGIN_GROUP;
use larder_balance::{Balance, Checks, Eject, Hedge, Retry};
use larder_wire::proxy_protocol::ProxyVersion;
use larder_wire::{Host, Scheme, Url};
use std::sync::Arc;
use std::time::Duration;

/// A group of origins.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginGroup {
    /// The name by which sites refer to it.
    pub name: String,
    /// How a member is chosen.
    pub balance: Balance,
    /// The key of `ring-hash`.
    pub key: BalanceKey,
    /// The cookie of `sticky`.
    pub cookie: String,
    /// The check of each member, if there is one.
    pub check: Option<OriginCheck>,
    /// When a member whose requests fail gets none.
    pub eject: OriginEject,
    /// How often a request that failed is sent to another member.
    pub retry: OriginRetry,
    /// When a second request is sent beside a late one.
    pub hedge: Option<OriginHedge>,
    /// From its recovery until a member gets its whole share.
    pub slow_start: Duration,
    /// Requests under way at all members, over all workers.
    pub requests_max: usize,
    /// Its members.
    pub members: Vec<Arc<OriginMember>>,
    /// Where it stands.
    pub place: SourceLine,
}

impl Default for OriginGroup {
    fn default() -> OriginGroup {
        OriginGroup {
            name: String::new(),
            balance: Balance::default(),
            key: BalanceKey::Url,
            cookie: "larder_member".to_owned(),
            check: None,
            eject: OriginEject::default(),
            retry: OriginRetry::default(),
            hedge: None,
            slow_start: Duration::from_secs(10),
            requests_max: 65_536,
            members: Vec::new(),
            place: SourceLine::default(),
        }
    }
}

impl OriginGroup {
    /// The host of the URL that stands for the group of this name.
    pub fn host_of(name: &str) -> Host {
        Host::local(&format!("{ORIGIN_GROUP}{name}"))
    }

    /// The settings of its balance.
    pub fn balance_settings(&self) -> larder_balance::Settings {
        let member = |member: &Arc<OriginMember>| larder_balance::Member {
            name: member.name.clone(),
            weight: narrow(member.weight),
            is_backup: member.backup,
            requests_max: member.requests_max,
        };
        let OriginEject { failures, time, time_max, out_percent_max, .. } = self.eject;
        larder_balance::Settings {
            balance: self.balance,
            eject: Eject { failures: narrow(failures), time, time_max, out_percent_max },
            retry: Retry { percent: self.retry.percent, tries_max: narrow(self.retry.tries_max) },
            hedge: self.hedge.as_ref().map(|hedge| Hedge { percentile: hedge.percentile, time_min: hedge.time_min }),
            checks: self.check.as_ref().map(|it| Checks { rise: narrow(it.rise), fall: narrow(it.fall) }),
            slow_start: self.slow_start,
            requests_max: self.requests_max,
            members: self.members.iter().map(member).collect(),
        }
    }
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Statuses that mean that a member is in trouble, where nothing else is said.
const TROUBLE: [u16; 4] = [500, 502, 503, 504];

/// When a member whose requests fail gets none.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginEject {
    /// Failures in a row; 0 for never.
    pub failures: usize,
    /// Statuses that count as failures.
    pub statuses: Vec<u16>,
    /// For how long at first.
    pub time: Duration,
    /// For how long at most.
    pub time_max: Duration,
    /// The part of the members that is out at most.
    pub out_percent_max: u32,
}

impl Default for OriginEject {
    fn default() -> OriginEject {
        let Eject { failures, time, time_max, out_percent_max } = Eject::default();
        let failures = usize::try_from(failures).unwrap_or(usize::MAX);
        OriginEject { failures, statuses: TROUBLE.to_vec(), time, time_max, out_percent_max }
    }
}

/// How often a request that failed is sent to another member.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginRetry {
    /// Further tries, in percent of requests.
    pub percent: u32,
    /// Tries of one request.
    pub tries_max: usize,
    /// Statuses after which there is another try.
    pub statuses: Vec<u16>,
}

impl Default for OriginRetry {
    fn default() -> OriginRetry {
        let Retry { percent, tries_max } = Retry::default();
        let tries_max = usize::try_from(tries_max).unwrap_or(usize::MAX);
        OriginRetry { percent, tries_max, statuses: TROUBLE.to_vec() }
    }
}

/// When a second request is sent beside a late one.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginHedge {
    /// Once it took longer than so many percent of requests.
    pub percentile: u32,
    /// Never sooner than this.
    pub time_min: Duration,
}

impl Default for OriginHedge {
    fn default() -> OriginHedge {
        let Hedge { percentile, time_min } = Hedge::default();
        OriginHedge { percentile, time_min }
    }
}

/// The part of a request that leads it to its member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BalanceKey {
    /// Host, path and query.
    Url,
    /// The client's address.
    Client,
    /// The value of this field.
    Field(String),
    /// The value of this cookie.
    Cookie(String),
}

impl BalanceKey {
    /// Reads it: `url`, `client`, `field:NAME` or `cookie:NAME`.
    pub fn parse(text: &str) -> Option<BalanceKey> {
        match text.split_once(':') {
            Some(("field", name)) if is_token(name) => Some(BalanceKey::Field(name.to_owned())),
            Some(("cookie", name)) if is_token(name) => Some(BalanceKey::Cookie(name.to_owned())),
            Some(_) => None,
            None if text == "url" => Some(BalanceKey::Url),
            None => (text == "client").then_some(BalanceKey::Client),
        }
    }

    /// As [`BalanceKey::parse`] reads it.
    pub fn show(&self) -> String {
        match self {
            BalanceKey::Url => "url".to_owned(),
            BalanceKey::Client => "client".to_owned(),
            BalanceKey::Field(name) => format!("field:{name}"),
            BalanceKey::Cookie(name) => format!("cookie:{name}"),
        }
    }
}

/// Whether a text is a token (RFC 9110 section 5.6.2), as names of fields and cookies are.
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Which `Host` a member gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MemberHost {
    /// That of the client's request.
    #[default]
    Client,
    /// That of the member's own URL.
    Own,
    /// This one.
    Named(String),
}

/// Whether an origin is asked by HTTP/2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OriginHttp2 {
    /// Never.
    #[default]
    Off,
    /// Where the origin chooses it in the handshake of TLS (ALPN).
    Auto,
    /// In clear text, because the origin is known to speak it.
    PriorKnowledge,
}

impl OriginHttp2 {
    /// All of them.
    pub const ALL: [OriginHttp2; 3] = [OriginHttp2::Off, OriginHttp2::Auto, OriginHttp2::PriorKnowledge];

    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            OriginHttp2::Off => "off",
            OriginHttp2::Auto => "auto",
            OriginHttp2::PriorKnowledge => "prior-knowledge",
        }
    }

    /// The word for the choice of one origin; `default` where it has none of its own.
    pub(super) fn choice(chosen: Option<OriginHttp2>) -> &'static str {
        chosen.map_or("default", OriginHttp2::as_str)
    }

    /// Reads the choice of one origin; false where the word is none.
    pub(super) fn choose(chosen: &mut Option<OriginHttp2>, text: &str) -> bool {
        *chosen = OriginHttp2::ALL.into_iter().find(|http2| http2.as_str() == text);
        chosen.is_some() || text == "default"
    }

    /// The reason why this is nothing for an origin of this scheme, and the remedy; `None` where it is.
    pub(super) fn unfit(self, scheme: Scheme) -> Option<(&'static str, &'static str)> {
        match (self, scheme) {
            (OriginHttp2::Auto, Scheme::Http) => Some((
                "`http2 = \"auto\"` is chosen in the handshake of TLS, and this origin has none",
                "write its URL with https, or http2 = \"prior-knowledge\" where it speaks HTTP/2 in clear text",
            )),
            (OriginHttp2::PriorKnowledge, Scheme::Https) => {
                Some(("`http2 = \"prior-knowledge\"` is for an origin in clear text", "write http2 = \"auto\""))
            }
            _ => None,
        }
    }
}

/// The word in the configuration for the version of the PROXY protocol by which an origin is told of the client.
pub(super) fn proxy_protocol_word(version: Option<ProxyVersion>) -> &'static str {
    version.map_or("off", ProxyVersion::as_str)
}

/// Reads that word; false where it is none.
pub(super) fn choose_proxy_protocol(version: &mut Option<ProxyVersion>, text: &str) -> bool {
    *version = [ProxyVersion::One, ProxyVersion::Two].into_iter().find(|version| version.as_str() == text);
    version.is_some() || text == "off"
}

/// The reason why an origin that is asked by HTTP/2 is not told of the client, and the remedy.
pub(super) const PROXY_PROTOCOL_BESIDE_HTTP2: (&str, &str) = (
    "`proxy_protocol` names one client for a connection, and streams of several clients share one of HTTP/2",
    "leave out one of the two",
);

/// A member of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginMember {
    /// Its name in commands and on pages; its URL where none is given.
    pub name: String,
    /// Where it is.
    pub url: Url,
    /// Its share of requests, compared with the others.
    pub weight: usize,
    /// It is asked only where no other one may be.
    pub backup: bool,
    /// Which `Host` it gets.
    pub host: MemberHost,
    /// The name that its certificate is for, where it is another one than that of its URL.
    pub sni: Option<Host>,
    /// Whether it is asked by HTTP/2; as `upstream.http2` says where `None`.
    pub http2: Option<OriginHttp2>,
    /// The version of the PROXY protocol by which it is told of the client.
    pub proxy_protocol: Option<ProxyVersion>,
    /// Requests under way at it, over all workers.
    pub requests_max: usize,
}

impl Default for OriginMember {
    fn default() -> OriginMember {
        OriginMember {
            name: String::new(),
            // Stands where one is missing; such a configuration is never handed out.
            url: Url { scheme: Scheme::Http, host: Host::local("unix:/"), port: 80, path: "/".into() },
            weight: 1,
            backup: false,
            host: MemberHost::Client,
            sni: None,
            http2: None,
            proxy_protocol: None,
            requests_max: 4_096,
        }
    }
}

/// An active check of members.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginCheck {
    /// The target that is asked for.
    pub path: String,
    /// How often.
    pub every: Duration,
    /// How long a member may take.
    pub timeout: Duration,
    /// The statuses of a good answer.
    pub statuses: Vec<u16>,
    /// Good ones in a row until a member is up again.
    pub rise: usize,
    /// Bad ones in a row until it is down.
    pub fall: usize,
    /// The `Host` of the check; that of the member where none is given.
    pub host: Option<String>,
}

impl Default for OriginCheck {
    fn default() -> OriginCheck {
        OriginCheck {
            path: "/".to_owned(),
            every: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            statuses: vec![200, 204],
            rise: 2,
            fall: 3,
            host: None,
        }
    }
}
