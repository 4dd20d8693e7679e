//! HTTP/2 (RFC 9113): frames, field compression (HPACK, RFC 7541), and windows.
//!
//! Read in this order: [`frame`], [`huffman`], [`hpack`], [`flow`].

pub mod flow;
pub mod frame;
pub mod hpack;
pub mod huffman;

use std::fmt;

/// The first bytes of a client (RFC 9113 section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Codes of errors (RFC 9113 section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ErrorCode {
    /// No error: an end as it should be.
    NoError = 0,
    /// The protocol was broken, in no way that has a code of its own.
    Protocol = 1,
    /// Something went wrong within.
    Internal = 2,
    /// More was sent than the window permits.
    FlowControl = 3,
    /// SETTINGS were not acknowledged in time.
    SettingsTimeout = 4,
    /// A frame for a half-closed stream.
    StreamClosed = 5,
    /// A frame of a wrong size.
    FrameSize = 6,
    /// The stream was not begun: it may be sent again.
    RefusedStream = 7,
    /// The stream is not wanted any more.
    Cancel = 8,
    /// The state of field compression is lost.
    Compression = 9,
    /// The connection of a CONNECT ended.
    Connect = 10,
    /// The peer makes too much work.
    EnhanceYourCalm = 11,
    /// TLS is not good enough.
    InadequateSecurity = 12,
    /// HTTP/1.1 is wanted.
    Http11Required = 13,
}

impl ErrorCode {
    /// The code of a number; one that is not known is like an internal error (RFC 9113 section 7).
    pub fn of(number: u32) -> ErrorCode {
        use ErrorCode::*;
        const ALL: [ErrorCode; 14] = [
            NoError,
            Protocol,
            Internal,
            FlowControl,
            SettingsTimeout,
            StreamClosed,
            FrameSize,
            RefusedStream,
            Cancel,
            Compression,
            Connect,
            EnhanceYourCalm,
            InadequateSecurity,
            Http11Required,
        ];
        usize::try_from(number).ok().and_then(|at| ALL.get(at).copied()).unwrap_or(Internal)
    }

    /// The word that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorCode::NoError => "no-error",
            ErrorCode::Protocol => "protocol-error",
            ErrorCode::Internal => "internal-error",
            ErrorCode::FlowControl => "flow-control-error",
            ErrorCode::SettingsTimeout => "settings-timeout",
            ErrorCode::StreamClosed => "stream-closed",
            ErrorCode::FrameSize => "frame-size-error",
            ErrorCode::RefusedStream => "refused-stream",
            ErrorCode::Cancel => "cancel",
            ErrorCode::Compression => "compression-error",
            ErrorCode::Connect => "connect-error",
            ErrorCode::EnhanceYourCalm => "enhance-your-calm",
            ErrorCode::InadequateSecurity => "inadequate-security",
            ErrorCode::Http11Required => "http-1-1-required",
        }
    }
}

/// The extent of a fault (RFC 9113 section 5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The connection, by GOAWAY.
    Connection,
    /// This stream, by RST_STREAM.
    Stream(u32),
}

/// A fault of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct H2Fault {
    /// The connection or the stream that it ends.
    pub scope: Scope,
    /// Its code.
    pub code: ErrorCode,
    /// The reason in words, for people.
    pub detail: &'static str,
}

impl H2Fault {
    /// A fault that ends the connection.
    pub const fn connection(code: ErrorCode, detail: &'static str) -> H2Fault {
        H2Fault { scope: Scope::Connection, code, detail }
    }

    /// A fault that ends a stream.
    pub const fn stream(stream: u32, code: ErrorCode, detail: &'static str) -> H2Fault {
        H2Fault { scope: Scope::Stream(stream), code, detail }
    }
}

impl fmt::Display for H2Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope {
            Scope::Connection => write!(f, "{}: {}", self.code.as_str(), self.detail),
            Scope::Stream(id) => write!(f, "stream {id}: {}: {}", self.code.as_str(), self.detail),
        }
    }
}

impl std::error::Error for H2Fault {}
