//! ICAP/1.0 as a client speaks it (RFC 3507): requests to bytes, and bytes to replies. No socket here.
//!
//! A client asks a service to look at a request (REQMOD) or a response (RESPMOD) of HTTP, and the service leaves it as it is
//! (204), changes it, or answers a request itself (200). The heads of HTTP lie within the ICAP message as they are, their bodies
//! always in chunks, whatever the heads say of their length; `Encapsulated` says where each part begins (section 4.4).
//!
//! Use: [`options`] writes the question that a client asks first, [`Capabilities::of`] reads the answer. [`Question`] writes a
//! REQMOD or RESPMOD; the body follows in chunks, of which [`Question::preview`] may hold back all but the first bytes.
//! [`reply`] reads an answer, whose body a [`Decoder`](crate::body::Decoder) of chunks decodes.

mod capabilities;
mod question;
mod reply;

use crate::Host;
use crate::target::authority_parts;
pub use capabilities::{Capabilities, Transfer};
pub use question::{END_OF_PREVIEW, PREVIEW_IS_WHOLE, Preview, Question, options};
pub use reply::{Reply, Subject, reply};
use std::fmt;

/// The port of `icap:` URLs that name none (RFC 3507 section 4.2).
pub const DEFAULT_PORT: u16 = 1344;

/// The method by which a service is asked to change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vector {
    /// A request, before it is answered (section 4.8).
    Reqmod,
    /// A response (section 4.9).
    Respmod,
}

impl Vector {
    /// As on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Vector::Reqmod => "REQMOD",
            Vector::Respmod => "RESPMOD",
        }
    }
}

/// The URL of a service: `icap://host:port/path`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Service {
    /// The host.
    pub host: Host,
    /// The port, filled in where the URL names none.
    pub port: u16,
    /// Path and query; begins with `/`.
    pub path: Box<str>,
}

impl Service {
    /// `None` where the text is no URL of this scheme, or has user information, a fragment or a byte that no target may have.
    pub fn parse(text: &str) -> Option<Service> {
        let rest = text.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("icap://")).and(text.get(7..))?;
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (host, port) = authority_parts(authority.as_bytes())?;
        let host = Host::parse(std::str::from_utf8(host).ok()?)?;
        let is_target = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        let path = if path.starts_with('/') { path.into() } else { format!("/{path}").into() };
        is_target.then_some(Service { host, port: port.unwrap_or(DEFAULT_PORT), path })
    }

    /// Host, and the port where it is not the usual one.
    pub fn authority(&self) -> String {
        match self.port {
            DEFAULT_PORT => self.host.to_string(),
            port => format!("{}:{port}", self.host),
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "icap://{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_services() {
        for (text, wanted) in [
            ("icap://127.0.0.1/echo", Some("icap://127.0.0.1/echo")),
            ("ICAP://Av.Example:1344/squidclamav", Some("icap://av.example/squidclamav")),
            ("icap://[::1]:11344/a?b=c", Some("icap://[::1]:11344/a?b=c")),
            ("icap://av.example", Some("icap://av.example/")),
            ("icap://av.example?x", Some("icap://av.example/?x")),
            ("icap://", None),
            ("icap:/av.example/x", None),
            ("http://av.example/x", None),
            ("icap://a@b/x", None),
            ("icap://av.example:99999/x", None),
            ("icap://av.example/x y", None),
            ("icap://av.example/x#y", None),
            ("icäp://av.example/x", None),
        ] {
            assert_eq!(Service::parse(text).map(|service| service.to_string()).as_deref(), wanted, "{text}");
        }
    }
}
