//! Connections that clients have opened to other servers, and that rules of the kernel bring here (`listen.transparent`,
//! docs/transparent.md): the address that the client has connected to is found out, and the first byte tells HTTP from TLS. A ClientHello
//! is taken for a CONNECT to the name in it; what is done with HTTP decides `rules`.

use crate::config::Transparent;
use crate::env::{ConnectedTo, PeerFacts};
use crate::h1::serve::serve_tunnel;
use crate::h1::{Connection, Workspace};
use crate::listener::Listener;
use crate::permit::ConnectionPermit;
use crate::proxy_protocol::{Arrival, Welcome};
use crate::reach::Reach;
use crate::rehearse;
use crate::socket::Socket;
use crate::ticker::Wait;
use crate::tls::hello::{Hello, RECORD_HANDSHAKE};
use crate::tunnel::{self, FirstBytes};
use crate::wire::Wire;
use bytes::BytesMut;
use larder_wire::{Host, Scheme};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::AsyncReadExt;

/// Most requests, and most ClientHellos, come whole in the first read.
const READ_BYTES: usize = 4_096;

/// Reads the first bytes of a connection, and has it served as what they begin.
pub fn begin(
    space: &Rc<Workspace>,
    listener: &Arc<Listener>,
    (socket, address): (Socket, SocketAddr),
    welcome: Welcome,
) {
    let client = Client { space: Rc::clone(space), listener: Arc::clone(listener), address };
    let to = match destination(&socket, client.listener.transparent, address) {
        Ok(to) => to,
        Err(error) => {
            return client.refuse("transparent-destination", &format!("its destination is not known: {error}"));
        }
    };
    if !Reach::NotHere(space.env.own_addresses()).permits(to) {
        return client
            .refuse("transparent-loop", "it was meant for Larder itself, and no rule of the kernel brought it here");
    }
    let mut first = BytesMut::zeroed(READ_BYTES);
    match socket.read_now(&mut first) {
        // A look whether the port is open.
        Ok(0) => {}
        Ok(many) => {
            first.truncate(many);
            client.serve((socket, to), first, welcome);
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            first.clear();
            client.wait((socket, to), first, welcome);
        }
        Err(_) => {}
    }
}

/// The address that the client has connected to.
fn destination(socket: &Socket, transparent: Transparent, client: SocketAddr) -> io::Result<SocketAddr> {
    let to = match transparent {
        Transparent::Redirect => socket.original_destination(client.ip().to_canonical().is_ipv4())?,
        Transparent::Tproxy | Transparent::Off => socket.local_address()?,
    };
    Ok(SocketAddr::new(to.ip().to_canonical(), to.port()))
}

/// The client of such a connection.
struct Client {
    space: Rc<Workspace>,
    listener: Arc<Listener>,
    address: SocketAddr,
}

impl Client {
    /// Waits for the first bytes. A client that sends none within `timeouts.head` waits for a server that speaks first, which no protocol
    /// that is served here has.
    fn wait(self, (mut socket, to): (Socket, SocketAddr), mut first: BytesMut, welcome: Welcome) {
        let Some(permit) = self.permit() else { return };
        tokio::task::spawn_local(async move {
            let env = &self.space.env;
            let limit = env.config().timeouts.head;
            match env.ticker.timer().limit(limit, Wait::Busy, socket.read_buf(&mut first)).await {
                Ok(Ok(1..)) => {
                    drop(permit);
                    self.serve((socket, to), first, welcome);
                }
                Ok(_) => {}
                Err(_) => self.refuse("transparent-silent", "no byte came in time"),
            }
        });
    }

    fn serve(self, (socket, to): (Socket, SocketAddr), first: BytesMut, welcome: Welcome) {
        if first.first() != Some(&RECORD_HANDSHAKE) {
            let read = first.to_vec();
            let (address, destination) = (self.address, Some(to));
            let arrival =
                Arrival { socket, read, address, destination, at_balancer: None, is_by_tls: false, sni: None };
            return welcome(&self.space, &self.listener, arrival);
        }
        let Some(permit) = self.permit() else { return };
        tokio::task::spawn_local(async move {
            // Boxed, because the task lives as long as its tunnel.
            if let Some(connection) = Box::pin(self.tunnel((socket, to), first, permit)).await {
                let (connection, connect) = connection;
                serve_tunnel(connection, connect).await;
            }
        });
    }

    /// Reads the ClientHello; gives the connection with the CONNECT that it stands for.
    async fn tunnel(
        self,
        (mut socket, to): (Socket, SocketAddr),
        mut first: BytesMut,
        permit: ConnectionPermit,
    ) -> Option<(Box<Connection>, larder_wire::RequestHead)> {
        let env = Rc::clone(&self.space.env);
        let limit = env.config().timeouts.head;
        let hello = tunnel::first_bytes(&env, &self.space.heads_under_way, limit, (&mut socket, &mut first));
        let hello: Hello = match env.ticker.timer().limit(limit, Wait::Busy, hello).await {
            Ok(FirstBytes::Tls(hello)) => hello,
            Ok(FirstBytes::Other) => {
                self.refuse("transparent-tls", "its first byte began TLS, and no ClientHello followed");
                return None;
            }
            Ok(FirstBytes::NotWhole) | Err(_) => {
                self.refuse("transparent-tls", "its ClientHello was not whole in time");
                return None;
            }
        };
        let host = hello.host(&Host::from(to.ip()));
        let connect = match rehearse::connect(&host, to.port()) {
            Ok(connect) => connect,
            Err(why) => {
                self.refuse("transparent-tls", &why);
                return None;
            }
        };
        let connected_to = Some(Box::new(ConnectedTo { address: to, is_elsewhere: true }));
        let peer = PeerFacts { connected_to, ..PeerFacts::at(&self.listener, self.address, Scheme::Https) };
        let mut connection = Connection::new(self.space, peer, Wire::Client(socket), first);
        connection.permit = Some(permit);
        Some((connection, connect))
    }

    /// Counts the connection; `None`: it is one too many, and closed.
    fn permit(&self) -> Option<ConnectionPermit> {
        let env = &self.space.env;
        let (permit, full) = ConnectionPermit::take(&self.space.connections, env, self.address.ip());
        if let Some(full) = full {
            env.tally.connections_refused.add(1);
            env.finish_unanswered(&self.listener, self.address, full.as_str());
            return None;
        }
        Some(permit)
    }

    fn refuse(&self, word: &'static str, why: &str) {
        let env = &self.space.env;
        env.tally.transparent_refused.add(1);
        tracing::info!("a connection of {} to a transparent listener was closed: {why}", self.address);
        env.finish_unanswered(&self.listener, self.address, word);
    }
}
