//! Connections of robots: from an address of their own, and what it says of a cache if there is none.

use super::Route;
use crate::ledger::Trouble;
use crate::tls::Channel;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;

/// Begins to connect; TLS waits until that is done.
pub(super) fn open(
    from: Ipv4Addr,
    secure: Option<Arc<ClientConfig>>,
    server: u32,
    route: &Route,
) -> io::Result<Channel> {
    let stream: TcpStream = dial(from, route.hop(server))?.into();
    let Some(config) = secure else { return Ok(Channel::clear(stream)) };
    let name = ServerName::try_from(route.peer(server)).map_err(io::Error::other)?;
    Channel::client(stream, config, name)
}

fn dial(from: Ipv4Addr, to: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&SockAddr::from(SocketAddr::from((from, 0))))?;
    match socket.connect(&SockAddr::from(to)) {
        Ok(()) => Ok(socket),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// The kind of trouble that an error of the system is.
pub fn trouble_of(error: &io::Error) -> Trouble {
    let errno = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    match errno {
        Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => Trouble::NoDescriptors,
        Some(rustix::io::Errno::ADDRNOTAVAIL | rustix::io::Errno::ADDRINUSE) => Trouble::NoPorts,
        _ => match error.kind() {
            ErrorKind::ConnectionRefused => Trouble::ConnectRefused,
            ErrorKind::TimedOut => Trouble::ConnectTimeout,
            // Only TLS says so.
            ErrorKind::InvalidData => Trouble::Tls,
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => Trouble::Reset,
            _ => Trouble::Other,
        },
    }
}
