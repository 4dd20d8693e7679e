//! All that a cache knows, and nothing of the network.
//!
//! [`key`] names an object, [`policy`] is RFC 9111 as pure functions of values and `now`, [`head`] is a response head with
//! what was decided about it, [`entry`] is where the client side and the server side meet ([`entry::Reader`],
//! [`entry::Writer`]), [`extents`] are the byte ranges that are present, [`index`] finds, [`evict`] makes room, and
//! [`cache`] puts them together: `find` answers what a request may have. [`store`] is the disk tier below: keys, ids and
//! bytes.

// `println!` and its kin panic where nobody reads them.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod cache;
pub mod entry;
pub mod evict;
pub mod extents;
pub mod head;
pub mod index;
pub mod key;
pub mod policy;
pub mod search;
pub mod store;
pub mod tags;

mod zeros;
