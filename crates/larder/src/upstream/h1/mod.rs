//! HTTP/1.1 to origins: a connection carries one request at a time, and serves again where both sides permit it. Framing,
//! idle connections, and what a connection that ends says about its request are known here and nowhere above.

mod connection;
mod exchange;
mod idle;
mod link;
mod receive;
mod upload;

pub use connection::HeldPermit;
pub(super) use connection::{Connection, ConnectionChoice};
pub(super) use exchange::{ask, ask_upgrade};
pub(super) use idle::{IdleConnection, IdleConnections};
