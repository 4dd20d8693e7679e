//! Larder: a web cache that is a forward proxy, a reverse proxy and an interceptor.
//!
//! `exchange` serves a request from its head to its record: the module to open first.

// `println!` and its like panic when their stream is closed: `diagnostics` writes to people instead.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod allocator;
mod base64;
pub mod bind;
mod body_pieces;
mod box_in_place;
pub mod cache_settings;
mod caught;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
pub mod control;
pub mod credential_secret;
pub mod deferred;
pub mod demo;
pub mod diagnostics;
pub mod digest;
pub mod disk;
pub mod doctor;
pub mod env;
pub mod exchange;
pub mod explain;
pub mod fetch;
pub mod git;
pub mod h1;
pub mod handed_out;
pub mod handshake;
mod hashing;
pub mod helper;
pub mod hook;
pub mod icap;
mod in_memory;
mod latency;
mod lines;
pub mod listen;
pub mod listener;
pub mod lists;
pub mod live;
pub mod lockfile;
pub mod log;
pub mod manager;
pub mod mount;
pub mod neighbours;
pub mod outbox;
mod overload;
pub mod package_index;
pub mod page;
pub mod partial_heads;
pub mod people;
pub mod permit;
mod planted;
mod prefetch;
pub mod purge;
pub mod rates;
pub mod reach;
pub mod record;
pub mod rehearse;
pub mod reload;
pub mod request_body;
pub mod rules;
pub mod run;
pub mod sampling;
pub mod script;
pub mod server;
pub mod settle;
pub mod shared;
mod simulation;
pub mod socket;
pub mod store;
pub mod tally;
pub mod ticker;
pub mod tls;
pub mod tokens;
pub mod top;
pub mod trace;
pub mod tunnel;
pub mod upstream;
pub mod visitors;
pub mod wire;
pub mod worker;

pub use allocator::Allocator;
