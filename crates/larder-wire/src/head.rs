//! The two heads: what stands before a body.

use crate::target::authority_parts;
use crate::{Fault, FaultKind, Fields, Host, Method, Scheme, Target, Url};
use std::fmt;
use std::ops::Deref;

/// The version a message says it speaks. A higher minor of 1 is read as 1.1 (RFC 9110 section 2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0: no chunks, no keep-alive unless said.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2 (RFC 9113): of a client's request alone.
    Http2,
    /// HTTP/3 (RFC 9114): of a client's request alone.
    Http3,
}

impl Version {
    /// As on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2.0",
            Version::Http3 => "HTTP/3.0",
        }
    }
}

/// A request without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// To what, in the form it was asked.
    pub target: Target,
    /// The client's version.
    pub version: Version,
    /// The field lines in their order. Those of a head that was read are not changed any more.
    pub fields: Fields,
    /// The host that the parser found in `Host`.
    pub(crate) parsed_host: ParsedHost,
}

/// The host that a request names in its fields, and the port there: looked at once when the head is read, and used when
/// its URL is made. It says nothing that the fields do not say, so all of them are equal.
#[derive(Clone, Debug, Default)]
pub(crate) struct ParsedHost(pub(crate) Option<(Host, Option<u16>)>);

impl PartialEq for ParsedHost {
    fn eq(&self, _: &ParsedHost) -> bool {
        true
    }
}

impl Eq for ParsedHost {}

/// A response without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// 100 to 999.
    pub status: u16,
    /// The reason phrase, possibly empty; kept for forwarding, otherwise without meaning.
    pub reason: Reason,
    /// The origin's version.
    pub version: Version,
    /// The field lines in their order.
    pub fields: Fields,
}

/// A reason phrase. The usual one of a status takes no memory of its own.
#[derive(Clone)]
pub struct Reason(Phrase);

#[derive(Clone)]
enum Phrase {
    Usual(u16),
    Own(Box<str>),
}

impl Reason {
    /// The phrase that RFC 9110 section 15 gives this status.
    pub fn usual(status: u16) -> Reason {
        Reason(Phrase::Usual(status))
    }

    /// The phrase, which takes no memory of its own where it is the usual one of this status.
    pub fn of(status: u16, phrase: &str) -> Reason {
        Reason::of_bytes(status, phrase.as_bytes())
    }

    /// Like [`Reason::of`], for received bytes; bytes that are not UTF-8 are replaced.
    pub(crate) fn of_bytes(status: u16, phrase: &[u8]) -> Reason {
        Reason(match phrase == reason(status).as_bytes() {
            true => Phrase::Usual(status),
            false => Phrase::Own(String::from_utf8_lossy(phrase).into()),
        })
    }

    /// Bytes on the heap, for exact budgets.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Phrase::Usual(_) => 0,
            Phrase::Own(text) => text.len(),
        }
    }
}

impl Deref for Reason {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            Phrase::Usual(status) => reason(*status),
            Phrase::Own(text) => text,
        }
    }
}

impl PartialEq for Reason {
    fn eq(&self, other: &Reason) -> bool {
        **self == **other
    }
}

impl Eq for Reason {}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// True when the connection may serve another message after this one, as far as the head says
/// (RFC 9112 section 9.3): 1.1 unless `Connection: close`, 1.0 only with `Connection: keep-alive`.
pub fn keeps_alive(version: Version, fields: &Fields) -> bool {
    match version {
        _ if fields.has_member("Connection", "close") => false,
        Version::Http11 | Version::Http2 | Version::Http3 => true,
        Version::Http10 => fields.has_member("Connection", "keep-alive"),
    }
}

impl RequestHead {
    /// A head of our own making.
    pub fn new(method: Method, target: Target, version: Version, fields: Fields) -> RequestHead {
        RequestHead { method, target, version, fields, parsed_host: ParsedHost::default() }
    }

    /// The client is willing to send another request on this connection.
    pub fn keeps_alive(&self) -> bool {
        keeps_alive(self.version, &self.fields)
    }

    /// The URL that a request asks for (RFC 9110 section 7.1), on a listener of that scheme. An absolute target wins
    /// over `Host`, also where they disagree (RFC 9112 section 3.2.2): a proxy that forwards the request then writes
    /// `Host` anew from [`Url::authority`]. A CONNECT names no URL; ask for its target instead.
    pub fn url(&self, scheme: Scheme) -> Result<Url, Fault> {
        let path: &str = match &self.target {
            Target::Absolute(url) => return Ok(url.clone()),
            Target::Authority(..) => return Err(Fault::client(FaultKind::Target, "a CONNECT names no URL")),
            Target::Origin(path) => path,
            Target::Asterisk => "*",
        };
        let authority = match &self.parsed_host.0 {
            Some(parsed) => Some(parsed.clone()),
            None => match self.fields.get("Host") {
                Some(value) => authority_parts(value).and_then(|(host, port)| Some((Host::of_ascii(host)?, port))),
                None => return Err(Fault::client(FaultKind::Host, "no Host field, and none in the target")),
            },
        };
        match authority {
            Some((host, port)) => {
                Ok(Url { scheme, host, port: port.unwrap_or(scheme.default_port()), path: path.into() })
            }
            None => Err(Fault::client(FaultKind::Host, "the Host field is no host with an optional port")),
        }
    }
}

impl ResponseHead {
    /// A head of our own making.
    pub fn new(status: u16) -> ResponseHead {
        ResponseHead { status, reason: Reason::usual(status), version: Version::Http11, fields: Fields::new() }
    }

    /// The origin will answer another request on this connection.
    pub fn keeps_alive(&self) -> bool {
        keeps_alive(self.version, &self.fields)
    }

    /// A 1xx that another head follows. 101 is final: what follows it is no HTTP any more.
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }
}

/// The usual phrase of a status (RFC 9110 section 15, and those of RFC 5842, 6585 and 8297 that are sent here); empty for others.
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        508 => "Loop Detected",
        511 => "Network Authentication Required",
        _ => "",
    }
}
