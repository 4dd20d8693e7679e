//! The place of a worker in its run, and the sockets on which origins listen.

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

const BACKLOG: i32 = 4096;

/// The place of a worker in its run.
pub struct Seat {
    /// Its number.
    pub number: u16,
    /// Where origins listen, if it has some.
    pub listener: Option<TcpListener>,
    /// Workers of this process whose robots are through.
    pub through: Arc<AtomicUsize>,
    /// All of them, and one more if others decide too.
    pub partners: usize,
}

/// Listening sockets of the origins, one for each worker, all on one port; 0 lets the kernel choose.
///
/// They listen on every address, because visible servers have an address each, unless one alone was given; a peer from
/// another machine is dropped, unless addresses were given for such peers.
pub fn listeners(port: u16, workers: u16, only: Option<Ipv4Addr>) -> io::Result<Vec<TcpListener>> {
    let mut all: Vec<TcpListener> = Vec::new();
    for _ in 0..workers {
        let port = match all.first() {
            Some(first) => first.local_addr()?.port(),
            None => port,
        };
        let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if workers > 1 {
            socket.set_reuse_port(true)?;
        }
        socket.bind(&SockAddr::from(SocketAddr::from((only.unwrap_or(Ipv4Addr::UNSPECIFIED), port))))?;
        socket.listen(BACKLOG)?;
        all.push(socket.into());
    }
    Ok(all)
}
