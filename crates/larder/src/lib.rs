//! Larder: a web cache that is a forward proxy, a reverse proxy and an interceptor.
//!
//! `journey` is the request's way through the rooms and the module to open first.

// `println!` and its kin panic where nobody reads them: `diagnostics` says things to people.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod access;
mod ahead;
mod allocator;
mod caught;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
pub mod control;
pub mod deferred;
pub mod diagnostics;
pub mod disk;
pub mod doctor;
pub mod explain;
pub mod fetch;
pub mod heads;
pub mod journey;
mod lines;
pub mod listen;
pub mod live;
pub mod lobby;
pub mod log;
pub mod obtain;
pub mod outbox;
pub mod page;
pub mod partial_heads;
mod place;
pub mod presence;
pub mod purge;
pub mod reach;
pub mod record;
pub mod rehearse;
pub mod reload;
pub mod respond;
pub mod run;
pub mod server;
pub mod session;
pub mod settle;
pub mod socket;
pub mod store;
pub mod ticker;
pub mod tls;
pub mod top;
pub mod trace;
pub mod tunnel;
pub mod upload;
pub mod upstream;
pub mod visitors;
pub mod wire;
pub mod worker;

pub use allocator::Allocator;
