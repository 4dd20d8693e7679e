//! Origins played over loopback around this room.

mod call;
mod connect;
mod exchange;
mod groups;
mod h2;
mod h2_play;
mod limits;
mod play;
mod proxied;
mod streaming;
mod tls;
