//! Binding of listening sockets: one for each worker on the same address, or one of this machine (a Unix socket) that workers share.

use crate::config::{Listen, Transparent};
use crate::deferred;
use socket2::{Domain, Protocol, SockAddr, Type};
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

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
    match &listen.socket {
        Some(path) => bind_unix(path, listen.mode, workers),
        None => bind_each(listen.address, workers, listen.transparent),
    }
}

/// A Unix socket, once for each worker: they share what waits in it. The type says TCP; of such a socket the descriptor alone is used
/// (`socket::Acceptor`).
fn bind_unix(path: &Path, mode: u32, workers: usize) -> io::Result<Vec<TcpListener>> {
    remove_abandoned(path)?;
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    // Until it listens nobody can connect, whatever the mode was before.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)?;
    let socket = TcpListener::from(OwnedFd::from(socket));
    let mut sockets = Vec::new();
    for _ in 1..workers {
        sockets.push(socket.try_clone()?);
    }
    sockets.push(socket);
    Ok(sockets)
}

/// The address that the sockets of a listener have, which is known where port 0 was asked for; that of the configuration where they have
/// none, as Unix sockets.
pub fn address_of(sockets: &[TcpListener], listen: &Listen) -> SocketAddr {
    sockets.first().and_then(|socket| socket.local_addr().ok()).unwrap_or(listen.address)
}

/// Removes a socket on which nobody listens any more, as one of a program that was killed.
fn remove_abandoned(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        let text = "there is a file that is no socket, which stays: move it, or choose another path";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    let asking = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    asking.set_nonblocking(true)?;
    match asking.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        // A queue that is full is somebody's.
        Ok(()) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) => Err(error),
    }
}

/// The file of a Unix socket, which is removed with this; a file that another program has put in its place stays.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and number.
    file: (u64, u64),
}

impl SocketFile {
    /// That of a listener whose socket was just bound; `None` for one with an address.
    pub fn of(listen: &Listen) -> Option<SocketFile> {
        let path = listen.socket.clone()?;
        let file = number(&path)?;
        Some(SocketFile { path, file })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its mode, which may be another one after a reload; a file that another program has put in its place keeps its own.
    pub fn change_mode(&self, mode: u32) -> io::Result<()> {
        if number(&self.path) != Some(self.file) {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the file of the socket is not there any more"));
        }
        fs::set_permissions(&self.path, fs::Permissions::from_mode(mode))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if number(&self.path) == Some(self.file) {
            // One that stays is taken for abandoned by the next start.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn number(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

fn bind_each(address: SocketAddr, workers: usize, transparent: Transparent) -> io::Result<Vec<TcpListener>> {
    probe(address)?;
    let first = bind(address, transparent)?;
    let bound = first.local_addr()?;
    let mut sockets = Vec::new();
    for _ in 1..workers {
        sockets.push(match bind(bound, transparent) {
            // No setting names the port that the kernel chose, so a sandbox refuses it (docs/sandbox.md): the workers share what waits
            // in one socket.
            Err(error) if address.port() == 0 && error.kind() == io::ErrorKind::PermissionDenied => {
                first.try_clone()?
            }
            bound => bound?,
        });
    }
    sockets.push(first);
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
