//! HTTP/1.1 to origins: a connection carries one request at a time, and serves again where both sides permit it. Framing,
//! and what a connection that ends says about its request, are known here and nowhere above.

mod connection;
mod exchange;
mod link;
mod receive;
mod upload;

pub(super) use connection::Connection;
pub use connection::HeldPermit;
pub(super) use exchange::{ask, ask_upgrade};
