//! Accepts connections of QUIC on a listener's UDP socket.

use super::acknowledged::Acknowledged;
use super::connection::{self, Leaving};
use super::{Link, STREAMS_MAX, number};
use crate::caught;
use crate::client::Client;
use crate::env::{ConnectedTo, PeerFacts};
use crate::h1::Workspace;
use crate::listener::Listener;
use crate::people::ClientCertificate;
use crate::permit::ConnectionPermit;
use crate::ticker::Wait;
use crate::tls::HandshakeTrouble;
use larder_wire::h3::ErrorCode;
use larder_wire::{Host, Scheme};
use quinn::TransportConfig;
use quinn::crypto::rustls::HandshakeData;
use quinn::{Connecting, ConnectionError, Endpoint, EndpointConfig, Incoming, ServerConfig, TokioRuntime};
use rustls::pki_types::CertificateDer;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// With so many handshakes under way a client has to show first that it gets what is sent to its address (RFC 9000 section 8.1.2).
const HANDSHAKES_BEFORE_RETRY: usize = 64;
/// Handshakes under way at a listener. The first packets of further ones are ignored; their clients send them again.
const HANDSHAKES_MAX: usize = 1_024;
/// Those of one client among them, whose address is proved: others have room beside it.
const HANDSHAKES_PER_CLIENT_MAX: usize = 64;
/// Bytes of a handshake's packets that QUIC holds before it is taken up, for each and for all.
const INCOMING_BYTES_MAX: u64 = 16 * 1024;
const INCOMING_BYTES_TOTAL_MAX: u64 = 4 << 20;
/// Bytes of a request's body that a client may send before they are taken.
const STREAM_WINDOW_BYTES: u32 = 128 * 1024;
/// Bytes of all bodies of a connection that were not taken: as many as its streams may have, so that none holds up the others.
const CONNECTION_WINDOW_BYTES: u32 = STREAM_WINDOW_BYTES * STREAMS_MAX;
/// Bytes of a connection's answers that wait in QUIC to be sent, or for a word that they have come.
const UNACKNOWLEDGED_BYTES_MAX: u64 = 1 << 20;
/// Streams in one direction that a client may have open: three have a meaning.
const UNI_STREAMS_MAX: u32 = 16;

/// Serves HTTP/3 on this socket until the listener closes or the worker drains. Where a reload switches it off, the socket stays for the
/// connections of before and to refuse new ones, and serves again when another reload switches it on.
pub async fn accept(space: Rc<Workspace>, socket: UdpSocket, mut listener: Arc<Listener>) {
    let env = Rc::clone(&space.env);
    let mut settings = config(&listener);
    let endpoint = match open(socket, settings.clone()) {
        Ok(endpoint) => endpoint,
        Err(error) => return tracing::error!(%error, "cannot serve HTTP/3"),
    };
    let handshakes = Rc::new(Handshakes::default());
    let mut leaving = Rc::new(Leaving::default());
    let timer = env.ticker.timer();
    loop {
        let accepted = tokio::select! {
            accepted = timer.limit(Duration::MAX, Wait::Idle, endpoint.accept()) => accepted,
            changed = listener.changed() => match changed {
                Some(successor) => {
                    settings = config(&successor);
                    match &settings {
                        Some(settings) => endpoint.set_server_config(Some(settings.clone())),
                        None => std::mem::take(&mut leaving).begin(),
                    }
                    listener = successor;
                    continue;
                }
                None => break,
            },
        };
        let Ok(Some(incoming)) = accepted else { break };
        match &settings {
            Some(settings) => {
                let first_packet = || begin(&space, &listener, (&handshakes, &leaving), settings, incoming);
                caught::call(&env.common.worker_restarts, first_packet);
            }
            // The client goes to HTTP/2 at once.
            None => incoming.refuse(),
        }
    }
    // The socket stays until the last connection has ended.
    endpoint.set_server_config(None);
    leaving.begin();
}

fn open(socket: UdpSocket, settings: Option<ServerConfig>) -> io::Result<Endpoint> {
    Endpoint::new(EndpointConfig::default(), settings, socket, Arc::new(TokioRuntime))
}

/// The settings of QUIC with the certificates of this listener.
fn config(listener: &Listener) -> Option<ServerConfig> {
    let tls = Arc::clone(listener.quic.as_ref()?);
    let mut config = ServerConfig::with_crypto(tls);
    config
        .max_incoming(HANDSHAKES_MAX)
        .incoming_buffer_size(INCOMING_BYTES_MAX)
        .incoming_buffer_size_total(INCOMING_BYTES_TOTAL_MAX);
    Some(config)
}

/// The settings of one connection, whose acknowledged bytes count here.
fn of_connection(settings: &ServerConfig, acknowledged: &Acknowledged) -> Arc<ServerConfig> {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(STREAMS_MAX.into())
        .max_concurrent_uni_streams(UNI_STREAMS_MAX.into())
        .stream_receive_window(STREAM_WINDOW_BYTES.into())
        .receive_window(CONNECTION_WINDOW_BYTES.into())
        .send_window(UNACKNOWLEDGED_BYTES_MAX)
        .datagram_receive_buffer_size(None)
        // A connection without requests ends after `timeouts.idle`; with one, after the limits of that.
        .max_idle_timeout(None)
        .congestion_controller_factory(acknowledged.counter());
    let mut settings = settings.clone();
    settings.transport_config(Arc::new(transport));
    Arc::new(settings)
}

/// The fate of the first packet of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    /// Its handshake begins.
    Begins,
    /// The client proves its address first: a Retry is sent, and nothing is kept.
    ProvesAddress,
    /// Nothing is sent.
    Ignored,
}

/// How far a client has shown that it gets what is sent to its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressProof {
    /// Not yet: the address may be another's, and counts for nobody.
    Missing,
    /// By a token, which a Retry or an earlier connection has given it; so many of its handshakes are under way.
    Token(usize),
}

impl Admission {
    /// With so many handshakes under way. A client that has proved its address can't be asked for it again.
    fn of(handshakes: usize, proof: AddressProof) -> Admission {
        match (handshakes, proof) {
            (HANDSHAKES_MAX.., _) | (_, AddressProof::Token(HANDSHAKES_PER_CLIENT_MAX..)) => Admission::Ignored,
            (HANDSHAKES_BEFORE_RETRY.., AddressProof::Missing) => Admission::ProvesAddress,
            _ => Admission::Begins,
        }
    }
}

/// Handshakes under way.
#[derive(Default)]
struct Handshakes {
    all: Cell<usize>,
    /// By client, those whose addresses are proved; at most as many as all.
    by_client: RefCell<HashMap<Client, usize>>,
}

/// Counts a handshake for as long as it lives.
struct Handshake {
    of: Rc<Handshakes>,
    client: Option<Client>,
}

impl Handshakes {
    fn of_client(&self, client: Client) -> usize {
        self.by_client.borrow().get(&client).copied().unwrap_or(0)
    }

    fn begin(self: &Rc<Handshakes>, client: Option<Client>) -> Handshake {
        self.all.set(self.all.get() + 1);
        if let Some(client) = client {
            *self.by_client.borrow_mut().entry(client).or_default() += 1;
        }
        Handshake { of: Rc::clone(self), client }
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.of.all.set(self.of.all.get() - 1);
        if let Some(client) = self.client {
            let mut by_client = self.of.by_client.borrow_mut();
            if let Entry::Occupied(mut count) = by_client.entry(client) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }
}

/// Begins a handshake, or has the client prove its address first.
fn begin(
    space: &Rc<Workspace>,
    listener: &Arc<Listener>,
    (handshakes, leaving): (&Rc<Handshakes>, &Rc<Leaving>),
    settings: &ServerConfig,
    incoming: Incoming,
) {
    let tally = &space.env.tally;
    let address = incoming.remote_address();
    let client = incoming.remote_address_validated().then(|| Client::at(address.ip()));
    let proof = client.map_or(AddressProof::Missing, |client| AddressProof::Token(handshakes.of_client(client)));
    match Admission::of(handshakes.all.get(), proof) {
        Admission::Begins => {}
        Admission::ProvesAddress => {
            tally.http3_retries.add(1);
            let _ = incoming.retry();
            return;
        }
        Admission::Ignored => {
            tally.http3_handshakes_ignored.add(1);
            return incoming.ignore();
        }
    }
    let handshake = handshakes.begin(client);
    let acknowledged = Acknowledged::default();
    let connecting = match incoming.accept_with(of_connection(settings, &acknowledged)) {
        Ok(connecting) => connecting,
        Err(error) => return failed(space, listener, address, &error),
    };
    let (space, listener, leaving) = (Rc::clone(space), Arc::clone(listener), Rc::clone(leaving));
    tokio::task::spawn_local(async move {
        if let Some((link, permit)) = shake_hands(space, listener, (address, connecting), acknowledged).await {
            drop(handshake);
            connection::serve(link, permit, &leaving).await;
        }
    });
}

/// Does the handshake with a client, within `timeouts.head`. A connection counts once that is done: before, its address may be another's.
async fn shake_hands(
    space: Rc<Workspace>,
    listener: Arc<Listener>,
    (address, connecting): (SocketAddr, Connecting),
    acknowledged: Acknowledged,
) -> Option<(Rc<Link>, ConnectionPermit)> {
    let env = Rc::clone(&space.env);
    let limit = env.config().timeouts.head;
    let quic = match env.ticker.timer().limit(limit, Wait::Busy, connecting).await {
        Ok(Ok(quic)) => quic,
        Ok(Err(error)) => {
            failed(&space, &listener, address, &error);
            return None;
        }
        Err(_) => {
            env.tally.handshakes_failed.add(1);
            env.finish_unanswered(&listener, address, HandshakeTrouble::Late.as_str());
            return None;
        }
    };
    // It came from the address of its first packet: until it is done QUIC takes no packet from elsewhere, and takes any one after that.
    env.tally.connections.add(1);
    let (permit, full) = ConnectionPermit::take(&space.connections, &env, address.ip());
    let peer = match facts(&listener, address, &quic) {
        Ok(peer) if full.is_none() => peer,
        Ok(_) => {
            env.tally.connections_refused.add(1);
            let word = full.map_or("connections-max", |full| full.as_str());
            quic.close(number(ErrorCode::ExcessiveLoad), word.as_bytes());
            env.finish_unanswered(&listener, address, word);
            return None;
        }
        Err(trouble) => {
            if let HandshakeTrouble::ClientNotTrusted(_, why) = &trouble {
                tracing::info!("the certificate of the client {address} lets it not in: {why}");
            }
            quic.close(number(ErrorCode::Protocol), trouble.as_str().as_bytes());
            env.finish_unanswered(&listener, address, trouble.as_str());
            return None;
        }
    };
    env.tally.http3_connections.add(1);
    let link = Link {
        space,
        quic,
        peer: Rc::new(peer),
        open: RefCell::default(),
        next_request: Cell::new(0),
        stream_ended: tokio::sync::Notify::new(),
        meters: RefCell::default(),
        turns: Rc::default(),
        acknowledged,
        given_up: Cell::new(0),
        urgencies: RefCell::default(),
        section_bytes_max: Cell::new(u64::MAX),
        text: RefCell::default(),
        fields: RefCell::default(),
        has_ended: Cell::new(false),
    };
    Some((Rc::new(link), permit))
}

/// The facts of a connection that its requests are judged by.
fn facts(
    listener: &Arc<Listener>,
    address: SocketAddr,
    quic: &quinn::Connection,
) -> Result<PeerFacts, HandshakeTrouble> {
    let data = quic.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
    let sni = data.and_then(|data| data.server_name).and_then(|name| Host::parse(&name)).map(Box::new);
    let certificate = match &listener.clients {
        Some(trust) => {
            let shown = quic.peer_identity().and_then(|shown| shown.downcast::<Vec<CertificateDer<'static>>>().ok());
            let shown = shown.as_ref().and_then(|chain| chain.first());
            shown.map(|shown| ClientCertificate::of(shown, trust).map(Arc::new)).transpose()?
        }
        None => None,
    };
    let to = quic.local_ip().zip(listener.port()).map(|(ip, port)| SocketAddr::new(ip.to_canonical(), port));
    let connected_to = to.map(|address| Box::new(ConnectedTo { address, is_elsewhere: false }));
    Ok(PeerFacts { certificate, sni, connected_to, ..PeerFacts::at(listener, address, Scheme::Https) })
}

/// Records a handshake that failed. A client that closed before its end asked for nothing.
fn failed(space: &Workspace, listener: &Listener, address: SocketAddr, error: &ConnectionError) {
    if let ConnectionError::TransportError(error) = error {
        let trouble = HandshakeTrouble::Protocol(error.to_string());
        space.env.tally.handshakes_failed.add(1);
        space.env.finish_unanswered(listener, address, trouble.as_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_prove_their_addresses_once_many_shake_hands() {
        use AddressProof::{Missing, Token};
        for (handshakes, proof, admission) in [
            (0, Missing, Admission::Begins),
            (63, Missing, Admission::Begins),
            (64, Missing, Admission::ProvesAddress),
            (64, Token(0), Admission::Begins),
            (1_023, Missing, Admission::ProvesAddress),
            (1_023, Token(63), Admission::Begins),
            (1_024, Missing, Admission::Ignored),
            (1_024, Token(0), Admission::Ignored),
            // One client leaves room to others.
            (64, Token(64), Admission::Ignored),
        ] {
            assert_eq!(Admission::of(handshakes, proof), admission, "{handshakes} {proof:?}");
        }
    }

    #[test]
    fn handshakes_count_for_clients_that_have_proved_their_addresses() {
        let handshakes = Rc::new(Handshakes::default());
        let [one, other] = [1, 2].map(|last| Client::at([192, 0, 2, last].into()));
        let held = [handshakes.begin(Some(one)), handshakes.begin(None), handshakes.begin(Some(one))];
        assert_eq!((handshakes.all.get(), handshakes.of_client(one), handshakes.of_client(other)), (3, 2, 0));
        drop(held);
        assert_eq!((handshakes.all.get(), handshakes.by_client.borrow().len()), (0, 0));
    }
}
