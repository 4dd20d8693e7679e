//! TLS that goes to the origin of a site unopened (`listen.pass_through`, docs/pass-through.md): the name in the ClientHello chooses the site.
//! All else on such a listener is served as if it had not been looked at.

use crate::client::ShownAddress;
use crate::env::PeerFacts;
use crate::h1::serve::serve_tunnel;
use crate::h1::{Connection, Workspace};
use crate::permit::ConnectionPermit;
use crate::rehearse;
use crate::socket::Socket;
use crate::ticker::Wait;
use crate::tls::hello::RECORD_HANDSHAKE;
use crate::tunnel::{self, FirstBytes};
use crate::wire::Wire;
use bytes::BytesMut;
use larder_wire::{Host, Scheme};
use std::io;
use std::rc::Rc;
use tokio::io::AsyncReadExt;

/// Most ClientHellos, and most requests, come whole in the first read.
const READ_BYTES: usize = 4_096;

/// The port of https, for a listener that has no port.
const HTTPS: u16 = 443;

/// Serves a connection that is not passed through, of which these bytes were read.
pub type Serve = fn(&Rc<Workspace>, PeerFacts, (Socket, Vec<u8>), ConnectionPermit);

/// Looks at the first bytes of a connection, and passes it through or has it served.
pub fn begin(
    space: &Rc<Workspace>,
    peer: PeerFacts,
    (socket, mut read): (Socket, Vec<u8>),
    permit: ConnectionPermit,
    serve: Serve,
) {
    if read.is_empty() {
        let mut room = [0; READ_BYTES];
        match socket.read_now(&mut room) {
            // A look whether the port is open.
            Ok(0) => return,
            Ok(many) => read.extend_from_slice(room.get(..many).unwrap_or_default()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => return,
        }
    }
    let is_tls = read.first().is_none_or(|first| *first == RECORD_HANDSHAKE);
    if !is_tls {
        return serve(space, peer, (socket, read), permit);
    }
    let client = Client { space: Rc::clone(space), peer, permit, serve };
    tokio::task::spawn_local(async move {
        // Boxed, because the task lives as long as its tunnel.
        if let Some((connection, connect)) = Box::pin(client.look(socket, BytesMut::from(read.as_slice()))).await {
            serve_tunnel(connection, connect).await;
        }
    });
}

/// The client of a connection that may be passed through.
struct Client {
    space: Rc<Workspace>,
    peer: PeerFacts,
    permit: ConnectionPermit,
    serve: Serve,
}

impl Client {
    /// Reads the ClientHello; gives the connection, with the CONNECT that it stands for, where a site passes it through.
    async fn look(
        self,
        mut socket: Socket,
        mut first: BytesMut,
    ) -> Option<(Box<Connection>, larder_wire::RequestHead)> {
        let env = Rc::clone(&self.space.env);
        let timer = env.ticker.timer();
        let limit = env.config().timeouts.head;
        if first.is_empty() {
            first.reserve(READ_BYTES);
            match timer.limit(limit, Wait::Busy, socket.read_buf(&mut first)).await {
                Ok(Ok(1..)) => {}
                Ok(_) => return None,
                Err(_) => return self.serve(socket, &first),
            }
        }
        if first.first() != Some(&RECORD_HANDSHAKE) {
            return self.serve(socket, &first);
        }
        let hello = tunnel::first_bytes(&env, &self.space.heads_under_way, limit, (&mut socket, &mut first));
        let named = match timer.limit(limit, Wait::Busy, hello).await {
            Ok(FirstBytes::Tls(hello)) => hello.sni.as_deref().and_then(Host::parse),
            Ok(FirstBytes::Other) if self.peer.listener.tls.is_some() => return self.serve(socket, &first),
            Ok(FirstBytes::Other) => return self.refuse("its first byte began TLS, and no ClientHello followed"),
            // Nobody knows whose it would have been: the certificate of another site is no answer.
            Ok(FirstBytes::NotWhole) | Err(_) => return self.refuse("its ClientHello was not whole in time"),
        };
        let is_of_site = |host: &Host| env.config().sites.passed_through(host).is_some();
        match named {
            Some(host) if is_of_site(&host) => self.pass(socket, first, host),
            _ if self.peer.listener.tls.is_some() => self.serve(socket, &first),
            Some(host) => self.refuse(&format!(
                "no site with `pass_through` has the host {host}, and the listener has no certificate"
            )),
            None => self.refuse("its ClientHello names no server, and the listener has no certificate"),
        }
    }

    fn pass(self, socket: Socket, first: BytesMut, host: Host) -> Option<(Box<Connection>, larder_wire::RequestHead)> {
        let port = self.peer.listener.port().unwrap_or(HTTPS);
        let connect = match rehearse::connect(&host, port) {
            Ok(connect) => connect,
            Err(why) => return self.refuse(&why),
        };
        let sni = Some(Box::new(host));
        let peer = PeerFacts { is_passed_through: true, sni, scheme: Scheme::Https, ..self.peer };
        let mut connection = Connection::new(self.space, peer, Wire::Client(socket), first);
        connection.permit = Some(self.permit);
        Some((connection, connect))
    }

    /// Has the connection served as if nobody had looked at it.
    fn serve<T>(self, socket: Socket, first: &[u8]) -> Option<T> {
        (self.serve)(&self.space, self.peer, (socket, first.to_vec()), self.permit);
        None
    }

    fn refuse<T>(self, why: &str) -> Option<T> {
        let (env, address) = (&self.space.env, self.peer.address);
        env.tally.pass_through_refused.add(1);
        let client = ShownAddress(address.ip());
        tracing::info!("a connection of {client} to a listener with `pass_through` was closed: {why}");
        env.finish_unanswered(&self.peer.listener, address, "pass-through");
        None
    }
}
