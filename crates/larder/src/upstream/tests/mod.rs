//! Origins played over loopback around this room.

mod call;
mod connect;
mod exchange;
mod groups;
mod limits;
mod play;
mod streaming;
mod tls;
