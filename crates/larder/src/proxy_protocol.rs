//! Connections that a load balancer passes on: a header of the PROXY protocol comes before their first byte and says whose they are
//! (`listen.proxy_protocol`, docs/proxy-protocol.md).

use crate::client::ShownAddress;
use crate::h1::Workspace;
use crate::listener::Listener;
use crate::permit::ConnectionPermit;
use crate::socket::Socket;
use crate::ticker::Wait;
use larder_wire::Host;
use larder_wire::proxy_protocol::{ProxyFault, ProxyHeader, parse};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::AsyncReadExt;

/// Most headers come in the first packet, with the beginning of what the client sends.
const READ_BYTES: usize = 2_048;

/// A client's connection, of which some bytes may have been read.
pub struct Arrival {
    /// The socket.
    pub socket: Socket,
    /// Bytes of the client that were read.
    pub read: Vec<u8>,
    /// The client.
    pub address: SocketAddr,
    /// The address that the client has connected to, where the kernel brought the connection here instead.
    pub destination: Option<SocketAddr>,
    /// The address of the balancer that the client has connected to, where one passes the connection on.
    pub at_balancer: Option<SocketAddr>,
    /// Whether a balancer has ended the client's TLS.
    pub is_by_tls: bool,
    /// The name for which that TLS asked.
    pub sni: Option<Box<Host>>,
}

/// Serves the connection of a client, or refuses it.
pub type Welcome = fn(&Rc<Workspace>, &Arc<Listener>, Arrival);

/// Reads the header of a connection that a balancer has opened, and has it welcomed as its client's.
pub fn begin(
    space: &Rc<Workspace>,
    listener: &Arc<Listener>,
    (socket, balancer): (Socket, SocketAddr),
    welcome: Welcome,
) {
    let env = &space.env;
    let (permit, full) = ConnectionPermit::take_for_balancer(&space.connections, env, balancer.ip());
    if full.is_some() {
        env.tally.connections_refused.add(1);
        return env.finish_unanswered(listener, balancer, "connections-max");
    }
    let mut incoming = Incoming { socket, read: Vec::new(), balancer, welcome };
    match incoming.read_now() {
        Ok(None) => {}
        Ok(Some(said)) => {
            drop(permit);
            return incoming.end(space, listener, said);
        }
        // It closed, as monitors do that look whether the port is open.
        Err(_) => return,
    }
    let (space, listener) = (Rc::clone(space), Arc::clone(listener));
    tokio::task::spawn_local(async move {
        let timer = space.env.ticker.timer();
        let limit = space.env.config().timeouts.head;
        match timer.limit(limit, Wait::Busy, incoming.read_on()).await {
            Ok(Ok(said)) => {
                drop(permit);
                incoming.end(&space, &listener, said);
            }
            Ok(Err(_)) => {}
            Err(_) => incoming.refuse(&space, &listener, "it did not come in time"),
        }
    });
}

/// A connection whose header is being read.
struct Incoming {
    socket: Socket,
    read: Vec<u8>,
    balancer: SocketAddr,
    welcome: Welcome,
}

type Said = Result<ProxyHeader, ProxyFault>;

impl Incoming {
    /// Reads what is here; `None` where that is not all of the header.
    fn read_now(&mut self) -> io::Result<Option<Said>> {
        let mut room = [0; READ_BYTES];
        match self.socket.read_now(&mut room) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(many) => Ok(self.take(room.get(..many).unwrap_or_default())),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads until the header is whole or wrong: at most its longest and one read are held.
    async fn read_on(&mut self) -> io::Result<Said> {
        let mut room = [0; READ_BYTES];
        loop {
            let many = match self.socket.read(&mut room).await? {
                0 if self.read.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
                0 => return Ok(Err(ProxyFault::Absent)),
                many => many,
            };
            if let Some(said) = self.take(room.get(..many).unwrap_or_default()) {
                return Ok(said);
            }
        }
    }

    /// Adds bytes; what stays in `read` behind a header is the client's.
    fn take(&mut self, bytes: &[u8]) -> Option<Said> {
        self.read.extend_from_slice(bytes);
        match parse(&self.read) {
            Ok(None) => None,
            Ok(Some((header, length))) => {
                self.read.drain(..length);
                Some(Ok(header))
            }
            Err(fault) => Some(Err(fault)),
        }
    }

    fn end(self, space: &Rc<Workspace>, listener: &Arc<Listener>, said: Said) {
        match said {
            Ok(ProxyHeader { addresses: Some(addresses), .. })
                if addresses.source.ip().to_canonical().is_unspecified() =>
            {
                // It stands for clients at a Unix socket, which a balancer must not be able to name.
                self.refuse(space, listener, "its header names a client that has no address");
            }
            Ok(header) => {
                let Incoming { socket, read, balancer, welcome } = self;
                // Without addresses it is the balancer's own connection, as that of a health check.
                let address = header.addresses.map_or(balancer, |addresses| addresses.source);
                let at_balancer = header.addresses.map(|addresses| addresses.destination);
                let sni = header.authority.map(Box::new);
                let is_by_tls = header.is_by_tls;
                let arrival = Arrival { socket, read, address, destination: None, at_balancer, is_by_tls, sni };
                welcome(space, listener, arrival);
            }
            Err(fault) => self.refuse(space, listener, &fault.to_string()),
        }
    }

    fn refuse(&self, space: &Workspace, listener: &Listener, why: &str) {
        space.env.tally.proxy_headers_refused.add(1);
        tracing::info!(
            "a connection of {}, which `listen.proxy_protocol` names, was closed: {why}",
            ShownAddress(self.balancer.ip())
        );
        space.env.finish_unanswered(listener, self.balancer, "proxy-protocol");
    }
}
