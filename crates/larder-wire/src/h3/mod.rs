//! HTTP/3 (RFC 9114): frames, and field compression without a dynamic table (QPACK, RFC 9204). QUIC is another crate's.
//!
//! Read in this order: [`varint`], [`frame`], [`qpack`], [`message`] (the stream of a request), [`control`] (streams of the connection).

pub mod control;
pub mod frame;
pub mod message;
pub mod qpack;
mod static_table;
pub mod varint;

use std::fmt;

/// Codes of errors (RFC 9114 section 8.1, RFC 9204 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum ErrorCode {
    /// No error: an end as it should be.
    NoError = 0x100,
    /// The protocol was broken, in no way that has a code of its own.
    Protocol = 0x101,
    /// Something went wrong within.
    Internal = 0x102,
    /// A stream of a kind that may not be opened, or not once more.
    StreamCreation = 0x103,
    /// A stream that lasts as long as its connection was closed.
    ClosedCriticalStream = 0x104,
    /// A frame where it may not be.
    FrameUnexpected = 0x105,
    /// A frame of another form than its type has.
    Frame = 0x106,
    /// The peer makes too much work.
    ExcessiveLoad = 0x107,
    /// An identifier that can't be.
    Id = 0x108,
    /// SETTINGS that can't be.
    Settings = 0x109,
    /// The control stream begins with another frame than SETTINGS.
    MissingSettings = 0x10a,
    /// The request was not begun: it may be sent again.
    RequestRejected = 0x10b,
    /// The request, or its answer, is not wanted any more.
    RequestCancelled = 0x10c,
    /// The stream ended before its request did.
    RequestIncomplete = 0x10d,
    /// A malformed message.
    Message = 0x10e,
    /// The connection of a CONNECT ended.
    Connect = 0x10f,
    /// An earlier version of HTTP is wanted.
    VersionFallback = 0x110,
    /// A field section that can't be decoded.
    QpackDecompression = 0x200,
    /// An instruction on the encoder's stream that can't be.
    QpackEncoderStream = 0x201,
    /// An instruction on the decoder's stream that can't be.
    QpackDecoderStream = 0x202,
}

impl ErrorCode {
    /// The number in frames of QUIC.
    pub fn number(self) -> u64 {
        self as u64
    }

    /// The name in the RFC, as logs show it.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorCode::NoError => "H3_NO_ERROR",
            ErrorCode::Protocol => "H3_GENERAL_PROTOCOL_ERROR",
            ErrorCode::Internal => "H3_INTERNAL_ERROR",
            ErrorCode::StreamCreation => "H3_STREAM_CREATION_ERROR",
            ErrorCode::ClosedCriticalStream => "H3_CLOSED_CRITICAL_STREAM",
            ErrorCode::FrameUnexpected => "H3_FRAME_UNEXPECTED",
            ErrorCode::Frame => "H3_FRAME_ERROR",
            ErrorCode::ExcessiveLoad => "H3_EXCESSIVE_LOAD",
            ErrorCode::Id => "H3_ID_ERROR",
            ErrorCode::Settings => "H3_SETTINGS_ERROR",
            ErrorCode::MissingSettings => "H3_MISSING_SETTINGS",
            ErrorCode::RequestRejected => "H3_REQUEST_REJECTED",
            ErrorCode::RequestCancelled => "H3_REQUEST_CANCELLED",
            ErrorCode::RequestIncomplete => "H3_REQUEST_INCOMPLETE",
            ErrorCode::Message => "H3_MESSAGE_ERROR",
            ErrorCode::Connect => "H3_CONNECT_ERROR",
            ErrorCode::VersionFallback => "H3_VERSION_FALLBACK",
            ErrorCode::QpackDecompression => "QPACK_DECOMPRESSION_FAILED",
            ErrorCode::QpackEncoderStream => "QPACK_ENCODER_STREAM_ERROR",
            ErrorCode::QpackDecoderStream => "QPACK_DECODER_STREAM_ERROR",
        }
    }
}

/// The extent of a fault (RFC 9114 section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The connection is closed.
    Connection,
    /// The stream is reset.
    Stream,
}

/// A fault of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct H3Fault {
    /// The connection or the stream alone.
    pub scope: Scope,
    /// Its code.
    pub code: ErrorCode,
    /// The reason in words, for people.
    pub detail: &'static str,
}

impl H3Fault {
    /// A fault that ends the connection.
    pub const fn connection(code: ErrorCode, detail: &'static str) -> H3Fault {
        H3Fault { scope: Scope::Connection, code, detail }
    }

    /// A fault that ends a stream.
    pub const fn stream(code: ErrorCode, detail: &'static str) -> H3Fault {
        H3Fault { scope: Scope::Stream, code, detail }
    }
}

impl fmt::Display for H3Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.detail)
    }
}

impl std::error::Error for H3Fault {}
