//! Binding of listening sockets: one for each worker on the same address.

use crate::config::{Listen, Transparent};
use crate::deferred;
use socket2::{Domain, Protocol, Type};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

const BACKLOG: i32 = 4_096;

/// A listening socket that other workers can share the address of.
pub fn bind(address: SocketAddr, transparent: Transparent) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    if transparent == Transparent::Tproxy {
        accept_any_destination(&socket, address)?;
    }
    socket.bind(&address.into())?;
    // An optimisation: without it, connections are accepted before their first bytes are here.
    let _ = deferred::until_spoken(&socket);
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// As many sockets on one address as there are workers; port 0 is the same free port for all. An address
/// that another program listens on is refused, even if that program would share it.
pub fn bind_for(address: SocketAddr, workers: usize) -> io::Result<Vec<TcpListener>> {
    bind_each(address, workers, Transparent::Off)
}

/// [`bind_for`] for a listener of the configuration, with the options that it needs.
pub fn bind_listener(listen: &Listen, workers: usize) -> io::Result<Vec<TcpListener>> {
    bind_each(listen.address, workers, listen.transparent)
}

fn bind_each(address: SocketAddr, workers: usize, transparent: Transparent) -> io::Result<Vec<TcpListener>> {
    probe(address)?;
    let first = bind(address, transparent)?;
    let address = first.local_addr()?;
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets.push(bind(address, transparent)?);
    }
    Ok(sockets)
}

/// Bytes that the kernel may hold of a socket of UDP in each direction, where its own limit permits: a burst of packets must not be lost
/// while its worker does other things.
const UDP_BUFFER_BYTES: usize = 2 << 20;

/// A socket of UDP for HTTP/3, at the address where a listener's sockets are bound. It is shared with no other program.
pub fn bind_quic(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    let _ = socket.set_recv_buffer_size(UDP_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(UDP_BUFFER_BYTES);
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Takes connections whose destination is no address of this machine, as TPROXY brings them.
fn accept_any_destination(socket: &socket2::Socket, address: SocketAddr) -> io::Result<()> {
    let set = if address.is_ipv4() { socket.set_ip_transparent_v4(true) } else { socket.set_ip_transparent_v6(true) };
    set.map_err(|error| {
        let needs =
            "IP_TRANSPARENT, which `transparent = \"tproxy\"` needs, was refused: give the program CAP_NET_ADMIN";
        io::Error::new(error.kind(), format!("{needs} ({error})"))
    })
}

/// With `SO_REUSEPORT` two Larders would silently share a port. Bound without it, the second one gets an error.
fn probe(address: SocketAddr) -> io::Result<()> {
    if address.port() == 0 {
        return Ok(());
    }
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(1)
}
