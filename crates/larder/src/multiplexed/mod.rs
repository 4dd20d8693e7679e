//! Parts that HTTP/2 and HTTP/3 share: requests come as lists of fields, and answers go as such. The judge of heads is the parser of
//! HTTP/1.1 for both.

pub mod authority;
pub mod head;
pub mod priority;
pub mod render;

/// Bytes of an answer that may wait for the window of its stream before its exchange waits too; most of them are the store's.
pub const QUEUED_BYTES_MAX: usize = 256 * 1024;
