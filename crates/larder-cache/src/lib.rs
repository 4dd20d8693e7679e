//! All that a cache knows, and nothing of the network.
//!
//! [`key`] names an object, [`policy`] is RFC 9111 as pure functions of values and `now`, [`head`] is a response head with
//! what was decided about it, [`entry`] is one response, where the client side and the server side meet, [`extents`] are
//! the byte ranges of a body that are present, [`index`] finds, [`evict`] makes room, [`store`] is the disk tier, which knows
//! keys, ids and bytes. [`cache`] puts them together: [`cache::Cache::find`] answers what a request may have, with an
//! [`entry::Reader`] and for one request per fetch a [`cache::Writer`].
//!
//! Modules stand on floors, and each uses only those below it (`xtask/tidy.toml`): budget, evict,
//! extents, key, policy, search, tags, zeros; then head, index, store; then entry; then cache.

// `println!` and its like panic when their stream is closed.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod budget;
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
