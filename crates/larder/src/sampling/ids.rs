//! The names of traces and spans.

use std::fmt;

/// The name of a trace; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(pub u128);

/// The name of a span; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(pub u64);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
