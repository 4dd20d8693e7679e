//! Request methods and what RFC 9110 section 9 says of them.

use std::fmt;

/// A request method. Methods are case-sensitive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Connect,
    Options,
    Trace,
    Patch,
    /// Not in RFC 9110; what caches use for "forget this URL".
    Purge,
    /// Any other token.
    Other(Box<str>),
}

impl Method {
    /// The method that a token names. The caller has checked that it is a token.
    pub fn from_token(token: &str) -> Method {
        match token {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "DELETE" => Method::Delete,
            "CONNECT" => Method::Connect,
            "OPTIONS" => Method::Options,
            "TRACE" => Method::Trace,
            "PATCH" => Method::Patch,
            "PURGE" => Method::Purge,
            other => Method::Other(other.into()),
        }
    }

    /// The token as it goes on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Method::Other(token) => token,
            named => named.known().unwrap_or_default(),
        }
    }

    /// The token of a method that has a name here.
    pub fn known(&self) -> Option<&'static str> {
        Some(match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Connect => "CONNECT",
            Method::Options => "OPTIONS",
            Method::Trace => "TRACE",
            Method::Patch => "PATCH",
            Method::Purge => "PURGE",
            Method::Other(_) => return None,
        })
    }

    /// Read-only by definition (RFC 9110 section 9.2.1). An unknown method is not.
    pub fn is_safe(&self) -> bool {
        matches!(self, Method::Get | Method::Head | Method::Options | Method::Trace)
    }

    /// May be sent again when a connection broke (RFC 9110 section 9.2.2).
    pub fn is_idempotent(&self) -> bool {
        self.is_safe() || matches!(self, Method::Put | Method::Delete)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
