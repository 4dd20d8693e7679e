//! Lists of hosts, URLs and networks, as long as they come, and countries of addresses: read from the formats in which they are published, compiled to one
//! block of bytes, and looked up in about a cache miss for each label of a name.
//!
//! [`mod@format`] turns lines into [`entry::Entry`]s, [`builder`] gathers their hashes, [`compiled`] is the list that is looked up.
//! Only [`disk`] opens files; nothing here knows a network, a clock or a thread.
//!
//! Names and URLs are kept as 64-bit hashes (SipHash-1-3) under a key that is drawn for each compilation, so that nobody can
//! choose a name that collides with one of the list. By chance, a name that is not in a list of n names is taken for one of them with a
//! probability of n / 2^64 for each of its labels, and never more than 10 / 2^48 (1 in 28 million million) for short lists.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod builder;
pub mod compiled;
pub mod countries;
pub mod disk;
mod draft;
pub mod entry;
mod expressions;
mod filters;
pub mod format;
mod hash;
mod input;
mod lines;
mod name;
mod network;
mod table;
mod url;

pub use builder::{Builder, Options};
pub use compiled::{Compiled, CompiledFault, Found, Provenance, Subject};
pub use countries::Countries;
pub use draft::{Draft, Sample, Tally};
pub use entry::{Entry, NameReach};
pub use filters::HAS_ENGINE;
pub use format::Format;
pub use hash::HashKey;
pub use network::AddressRange;

/// The name that a person wrote, in the form of the DNS; `None` where it is none.
pub fn ascii_name(text: &str) -> Option<String> {
    name::Name::parse(text.as_bytes()).map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned())
}
