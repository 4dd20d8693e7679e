//! Origins played over loopback around `larder::upstream`.

mod connect;
mod exchange;
mod limits;
mod play;
mod streaming;
mod tls;
