//! Faults of a peer, as values: the side that made it, its kind, and the status to answer with.

use std::fmt;

/// The peer whose message is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The one who asked us.
    Client,
    /// The one we asked.
    Origin,
}

impl Side {
    /// The word that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            Side::Client => "client",
            Side::Origin => "origin",
        }
    }
}

/// The kinds of fault in a message. Each kind has one word for logs and one status for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// A line does not end in CR LF, or a CR or LF stands where none may (RFC 9112 section 2.2).
    LineEnd,
    /// The request line is not `method SP target SP version` (RFC 9112 section 3).
    RequestLine,
    /// The status line is malformed (RFC 9112 section 4).
    StatusLine,
    /// The major version is not 1 (RFC 9110 section 2.5).
    Version,
    /// A field line is malformed: bad name, space before the colon, folding, NUL (RFC 9112 section 5).
    FieldLine,
    /// The target has a form or a byte that this method does not permit (RFC 9112 section 3.2).
    Target,
    /// `Host` is missing, doubled or malformed (RFC 9112 section 3.2).
    Host,
    /// `Content-Length` is no number, or several that differ (RFC 9112 section 6.3).
    ContentLength,
    /// `Transfer-Encoding` is unknown, misplaced, or stands beside `Content-Length` (RFC 9112 section 6.1).
    TransferEncoding,
    /// A chunk is malformed (RFC 9112 section 7.1).
    Chunk,
    /// A trailer field is malformed (RFC 9112 section 7.1.2).
    Trailer,
    /// The start line is longer than `target_bytes_max` allows.
    TargetTooLong,
    /// The head is longer than `head_bytes_max`.
    HeadTooLong,
    /// The head has more fields than `fields_max`.
    TooManyFields,
    /// The body is longer than permitted.
    BodyTooLong,
    /// The message ended before its framing said so (RFC 9112 section 8).
    Truncated,
    /// Frames or field lists of HTTP/2 that no message has (RFC 9113).
    Http2,
}

impl FaultKind {
    /// The word that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            FaultKind::LineEnd => "line-end",
            FaultKind::RequestLine => "request-line",
            FaultKind::StatusLine => "status-line",
            FaultKind::Version => "version",
            FaultKind::FieldLine => "field-line",
            FaultKind::Target => "target",
            FaultKind::Host => "host",
            FaultKind::ContentLength => "content-length",
            FaultKind::TransferEncoding => "transfer-encoding",
            FaultKind::Chunk => "chunk",
            FaultKind::Trailer => "trailer",
            FaultKind::TargetTooLong => "target-too-long",
            FaultKind::HeadTooLong => "head-too-long",
            FaultKind::TooManyFields => "too-many-fields",
            FaultKind::BodyTooLong => "body-too-long",
            FaultKind::Truncated => "truncated",
            FaultKind::Http2 => "http2",
        }
    }

    /// The status a client gets when it sent such a request.
    pub fn client_status(self) -> u16 {
        match self {
            FaultKind::TargetTooLong => 414,
            FaultKind::HeadTooLong | FaultKind::TooManyFields => 431,
            FaultKind::BodyTooLong => 413,
            FaultKind::Version => 505,
            _ => 400,
        }
    }
}

/// A broken message: who broke it, how, and a sentence for the person who reads the error page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The side that sent the message.
    pub side: Side,
    /// The kind of fault.
    pub kind: FaultKind,
    /// One fact in lower case without a full stop, such as `two Host fields`.
    pub detail: &'static str,
}

impl Fault {
    /// A fault in what a client sent.
    pub fn client(kind: FaultKind, detail: &'static str) -> Fault {
        Fault { side: Side::Client, kind, detail }
    }

    /// A fault in what an origin sent.
    pub fn origin(kind: FaultKind, detail: &'static str) -> Fault {
        Fault { side: Side::Origin, kind, detail }
    }

    /// The status to answer: by kind for a client's fault, 502 for an origin's.
    pub fn status(&self) -> u16 {
        match self.side {
            Side::Client => self.kind.client_status(),
            Side::Origin => 502,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} fault {}: {}", self.side.as_str(), self.kind.as_str(), self.detail)
    }
}

impl std::error::Error for Fault {}
