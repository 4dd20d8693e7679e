//! Origins played over loopback around this room.

mod call;
mod connect;
mod exchange;
mod limits;
mod play;
mod streaming;
mod tls;
