//! Larder: a web cache that is a forward proxy, a reverse proxy and an interceptor.
//!
//! `journey` is the request's way through the rooms and the module to open first.

pub mod cli;
pub mod clock;
pub mod config;
pub mod run;
pub mod tls;
pub mod upstream;
pub mod wire;
