//! HTTP messages as values: heads, fields, framing, dates, directives, structured fields, URLs.
//!
//! Bytes go in, values come out. There is no socket, no async and no clock here: whoever needs the
//! time passes it in. That makes every rule of this crate a plain function that a table, a property
//! or a fuzzer can reach.
//!
//! Read in this order: [`fields`] (the ordered list of header fields), [`head`] (request and response
//! heads), [`parse`] (bytes to heads), [`framing`] (where a body ends), [`body`] (decoding it),
//! [`encode`] (values to bytes); then what a cache reads: [`date`], [`directives`], [`etag`],
//! [`range`], [`structured`]; at last [`icap`], which carries heads of HTTP to a service that may change them, and the
//! datagrams of neighbouring caches, [`icp`] and [`htcp`], [`socks`], by which a server connects in a client's place, and
//! [`proxy_protocol`], by which a balancer says whose connection it passes on.

// `println!` and its kin panic where nobody reads them.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod body;
pub mod credential;
pub mod date;
mod decimal;
pub mod directives;
pub mod encode;
pub mod etag;
pub mod fault;
pub mod field_list;
pub mod fields;
pub mod framing;
pub mod h2;
pub mod h3;
pub mod head;
pub mod hop;
pub mod htcp;
pub mod icap;
pub mod icp;
pub mod method;
pub mod names;
pub mod parse;
pub mod proxy_protocol;
pub mod range;
pub mod reading;
pub mod socks;
mod static_fields;
pub mod structured;
pub mod target;

pub use fault::{Fault, FaultKind, Side};
pub use fields::Fields;
pub use head::{Reason, RequestHead, ResponseHead, Version};
pub use method::Method;
pub use target::{Host, Scheme, Target, Url};
