//! The directory of a login: LDAP servers, and how users and groups are found there.

use larder_people::ldap_text::Filter;
use larder_wire::Host;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LdapServer {
    /// Whether TLS begins with the connection (`ldaps`).
    pub tls: bool,
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
}

impl LdapServer {
    /// Reads `ldap://host[:port]` or the same with `ldaps`.
    pub fn parse(text: &str) -> Option<LdapServer> {
        let (scheme, rest) = text.split_once("://")?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "ldap" => false,
            "ldaps" => true,
            _ => return None,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok().filter(|port| *port > 0)?),
            _ => (rest, if tls { 636 } else { 389 }),
        };
        Some(LdapServer { tls, host: Host::parse(host)?, port })
    }

    /// Whether it is this machine.
    pub fn is_here(&self) -> bool {
        self.host.as_str() == "localhost" || self.host.ip().is_some_and(|ip| ip.is_loopback())
    }
}

impl fmt::Display for LdapServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "ldaps" } else { "ldap" };
        write!(f, "{scheme}://{}:{}", self.host.as_str(), self.port)
    }
}

/// A filter with its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LdapFilter {
    /// As it was written.
    pub text: String,
    /// As it is sent.
    pub filter: Filter,
}

impl LdapFilter {
    /// Reads one that has one of these words.
    pub fn parse(text: &str, words: &[&str]) -> Option<LdapFilter> {
        let filter = Filter::parse(text).ok()?;
        words.iter().any(|word| text.contains(word)).then(|| LdapFilter { text: text.to_owned(), filter })
    }
}

/// The settings `ldap…` of a login.
#[derive(Clone, Debug, PartialEq)]
pub struct Ldap {
    /// The servers; empty: none. The next one is asked when one is away.
    pub servers: Vec<LdapServer>,
    /// The name by which a user binds, with `{user}`; empty: it is searched for.
    pub user_dn: String,
    /// Where users are searched for.
    pub base: String,
    /// The filter of that search.
    pub filter: Option<LdapFilter>,
    /// The name by which searches are made; empty: nobody's.
    pub bind_dn: String,
    /// The file with its password.
    pub password_file: Option<PathBuf>,
    /// The attribute of a user that has the groups; empty: none.
    pub groups: String,
    /// Where groups are.
    pub groups_base: String,
    /// The filter by which a user's groups are searched for.
    pub groups_filter: Option<LdapFilter>,
    /// Whether TLS begins on the connection by StartTLS.
    pub start_tls: bool,
    /// Whether passwords may go to another machine without TLS.
    pub cleartext: bool,
    /// How long one server has for a check.
    pub timeout: Duration,
}

impl Default for Ldap {
    fn default() -> Ldap {
        Ldap {
            servers: Vec::new(),
            user_dn: String::new(),
            base: String::new(),
            filter: None,
            bind_dn: String::new(),
            password_file: None,
            groups: String::new(),
            groups_base: String::new(),
            groups_filter: None,
            start_tls: false,
            cleartext: false,
            timeout: Duration::from_secs(5),
        }
    }
}

impl Ldap {
    /// A fault of these settings together, and its remedy.
    pub fn trouble(&self) -> Option<(String, &'static str)> {
        const SEARCH: &str = "write ldap_base = \"ou=people,dc=example\" and ldap_filter = \"(uid={user})\"";
        let is_search = !self.base.is_empty() || self.filter.is_some();
        let has_service = !self.bind_dn.is_empty();
        let exposed = self.servers.iter().find(|server| !server.tls && !self.start_tls && !server.is_here());
        let (message, hint) = match () {
            () if self.servers.is_empty() => {
                ("settings of LDAP need `ldap`", "write ldap = [\"ldaps://ldap.example\"]")
            }
            () if self.user_dn.is_empty() && !is_search => {
                ("a login by LDAP needs either `ldap_user_dn`, or `ldap_base` and `ldap_filter`", SEARCH)
            }
            () if !self.user_dn.is_empty() && is_search => (
                "`ldap_user_dn` says the name of a user, so nothing is searched by `ldap_base` and `ldap_filter`",
                "leave out either",
            ),
            () if is_search && (self.base.is_empty() || self.filter.is_none()) => {
                ("a search for users needs both `ldap_base` and `ldap_filter`", SEARCH)
            }
            () if has_service != self.password_file.is_some() => {
                ("`ldap_bind_dn` and `ldap_password_file` belong together", "write both, or none")
            }
            () if self.groups_filter.is_some() && self.groups_base.is_empty() => {
                ("`ldap_groups_filter` needs `ldap_groups_base`", "write ldap_groups_base = \"ou=groups,dc=example\"")
            }
            () if !self.groups_base.is_empty() && self.groups_filter.is_none() && self.groups.is_empty() => {
                ("`ldap_groups_base` needs `ldap_groups` or `ldap_groups_filter`", "write ldap_groups = \"memberOf\"")
            }
            () if self.start_tls && self.servers.iter().any(|server| server.tls) => {
                ("`ldap_start_tls` is for servers of ldap://", "leave it out: ldaps:// has TLS from the beginning")
            }
            () => match exposed.filter(|_| !self.cleartext) {
                None => return None,
                Some(server) => {
                    let message = format!("passwords would go to {server} as they are, for all between to read");
                    return Some((message, "write ldaps://, or ldap_start_tls = true, or ldap_cleartext = true"));
                }
            },
        };
        Some((message.to_owned(), hint))
    }
}
