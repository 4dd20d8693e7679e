//! Accepts connections of clients.

use crate::caught;
use crate::client::ShownAddress;
use crate::env::{ConnectedTo, PeerFacts};
use crate::h1::{self, Connection, Start, Workspace};
use crate::h2;
use crate::handshake::shake_hands;
use crate::listener::Listener;
use crate::pass_through;
use crate::people::ClientCertificate;
use crate::permit::{ConnectionPermit, Full};
use crate::proxy_protocol::{self, Arrival};
use crate::socket::{Acceptor, Socket};
use crate::socks;
use crate::ticker::Wait;
use crate::tls::HandshakeTrouble;
use crate::transparent;
use crate::wire::{Rewound, Wire};
use bytes::BytesMut;
use larder_wire::Scheme;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// Accepts connections until the listener closes or the worker drains.
pub async fn accept(space: Rc<Workspace>, socket: TcpListener, mut listener: Arc<Listener>) {
    let env = Rc::clone(&space.env);
    let acceptor = match Acceptor::new(socket) {
        Ok(acceptor) => acceptor,
        Err(error) => return tracing::error!(%error, "cannot listen"),
    };
    let timer = env.ticker.timer();
    loop {
        let accepting = acceptor.accept(|socket, address| {
            caught::call(&env.common.worker_restarts, || begin(&space, &listener, socket, address));
        });
        let accepted = tokio::select! {
            accepted = timer.limit(Duration::MAX, Wait::Idle, accepting) => accepted,
            changed = listener.changed() => match changed {
                Some(successor) => {
                    listener = successor;
                    continue;
                }
                None => return,
            },
        };
        match accepted {
            Ok(Ok(())) => {}
            // No descriptor is free. Connections in use will end, and the backlog waits.
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(_) => return,
        }
    }
}

/// Begins to serve a connection that was accepted, or refuses it.
pub fn begin(space: &Rc<Workspace>, listener: &Arc<Listener>, socket: Socket, address: SocketAddr) {
    space.env.tally.connections.add(1);
    if listener.proxy_protocol.contains(address.ip()) {
        return proxy_protocol::begin(space, listener, (socket, address), welcome);
    }
    if listener.transparent.is_on() {
        return transparent::begin(space, listener, (socket, address), welcome);
    }
    let read = Vec::new();
    let arrival = Arrival { socket, read, address, destination: None, at_balancer: None, is_by_tls: false, sni: None };
    welcome(space, listener, arrival);
}

/// Serves the connection of a client that is known, or refuses it.
fn welcome(space: &Rc<Workspace>, listener: &Arc<Listener>, arrival: Arrival) {
    let env = &space.env;
    let Arrival { socket, read, address, destination, at_balancer, is_by_tls, sni } = arrival;
    // The kernel is asked where an origin is told of it, and nowhere else.
    let own = || at_balancer.or_else(|| env.config().tells_origins_of_clients.then(|| socket.local_address().ok())?);
    let connected_to = match destination {
        Some(address) => Some(ConnectedTo { address, is_elsewhere: true }),
        None => own().map(|address| ConnectedTo { address, is_elsewhere: false }),
    };
    let (permit, full) = ConnectionPermit::take(&space.connections, env, address.ip());
    let scheme = if listener.tls.is_some() || is_by_tls { Scheme::Https } else { Scheme::Http };
    let connected_to = connected_to.map(Box::new);
    let peer = PeerFacts { connected_to, sni, ..PeerFacts::at(listener, address, scheme) };
    if let Some(full) = full {
        env.tally.connections_refused.add(1);
        return refuse(space, permit, full, peer, socket);
    }
    if listener.socks {
        return socks::begin(space, peer, (socket, read), permit);
    }
    // Which sites there are is asked of the settings in force, and the listener's own word before that costs nothing.
    if listener.pass_through && env.config().sites.pass_any_through() {
        return pass_through::begin(space, peer, (socket, read), permit, serve);
    }
    serve(space, peer, (socket, read), permit);
}

/// Serves a connection by TLS with the certificates of its listener, or in clear text where that has none.
fn serve(space: &Rc<Workspace>, peer: PeerFacts, (socket, read): (Socket, Vec<u8>), permit: ConnectionPermit) {
    let space = Rc::clone(space);
    let address = peer.address;
    let Some(config) = peer.listener.tls.clone() else {
        let serves_nodes = peer.listener.serves_nodes;
        let mut connection = Connection::new(space, peer, Wire::Client(socket), BytesMut::from(read.as_slice()));
        connection.permit = Some(permit);
        if serves_nodes {
            tokio::task::spawn_local(h1::serve::serve_node(connection));
            return;
        }
        return h1::idle::serve_accepted(connection);
    };
    tokio::task::spawn_local(async move {
        let _permit = permit;
        let stream = Rewound::new(read, Wire::Client(socket));
        let shaken = Box::pin(shake_hands(&space.env, config, stream)).await;
        match shaken.and_then(|wire| Ok((certificate_of(&wire, &peer.listener)?, wire))) {
            // The handshake was all that its authority wanted.
            Ok((_, mut wire)) if wire.validates_a_name() => {
                let _ = wire.shutdown().await;
                space.env.finish_unanswered(&peer.listener, address, "acme-challenge");
            }
            Ok((certificate, wire)) => {
                let peer = PeerFacts { certificate, sni: wire.server_name(), ..peer };
                if wire.speaks_http2() {
                    return h2::serve(space, peer, wire, BytesMut::new()).await;
                }
                h1::serve(Connection::new(space, peer, wire, BytesMut::new()), Start::NextRequest).await;
            }
            // A client that closed before its handshake asked for nothing, as monitors do that check whether the port is open.
            Err(HandshakeTrouble::Closed) => {}
            Err(trouble) => {
                if let HandshakeTrouble::ClientNotTrusted(_, why) = &trouble {
                    let client = ShownAddress(address.ip());
                    tracing::info!("the certificate of the client {client} lets it not in: {why}");
                }
                space.env.finish_unanswered(&peer.listener, address, trouble.as_str());
            }
        }
    });
}

/// The certificate that a client has shown in its handshake, where the listener asks for one.
fn certificate_of(wire: &Wire, listener: &Listener) -> Result<Option<Arc<ClientCertificate>>, HandshakeTrouble> {
    let Some(trust) = &listener.clients else { return Ok(None) };
    let shown = wire.client_certificate();
    shown.map(|shown| ClientCertificate::of(shown, trust).map(Arc::new)).transpose()
}

/// Refuses a connection over a limit: with an error page, or on a listener of TLS or SOCKS by closing it.
fn refuse(space: &Rc<Workspace>, permit: ConnectionPermit, full: Full, peer: PeerFacts, socket: Socket) {
    if peer.listener.tls.is_some() || peer.listener.socks {
        // An error page would need a handshake, which costs more than is to be spent on a refusal; a client of SOCKS can't read one.
        return space.env.finish_unanswered(&peer.listener, peer.address, full.as_str());
    }
    let page = full.page();
    let mut connection = Connection::new(Rc::clone(space), peer, Wire::Client(socket), BytesMut::new());
    tokio::task::spawn_local(async move {
        let _permit = permit;
        h1::serve::answer_no_request(&mut connection, &page);
        connection.close().await;
    });
}
