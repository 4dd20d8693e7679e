//! Sockets on which clients are served, and what becomes of a connection before its first request.

use crate::caught;
use crate::client::Client;
use crate::config::{Forwarding, Listen, SiteOrigin};
use crate::deferred;
use crate::journey::{self, First};
use crate::lobby;
use crate::page::Page;
use crate::reach::Asker;
use crate::record::Run;
use crate::respond;
use crate::session::Session;
use crate::socket::{Listener, Socket};
use crate::ticker::Wait;
use crate::tls::HandshakeTrouble;
use crate::wire::{Rewound, Wire};
use crate::worker::Worker;
use bytes::BytesMut;
use parking_lot::Mutex;
use socket2::{Domain, Protocol, Type};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

/// One listener, as all workers see it.
#[derive(Default)]
pub struct Door {
    /// The address in the configuration.
    pub address: Option<SocketAddr>,
    /// Serves TLS with these certificates.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Opens CONNECT tunnels with certificates of the local CA.
    pub intercept: bool,
    /// Whether clients may use it as a forward proxy.
    pub forwarding: Forwarding,
    /// Who can connect to it.
    pub asker: Asker,
    /// Everything asked here goes to this origin.
    pub origin: Option<Arc<SiteOrigin>>,
    /// The `larder run` that this listener belongs to.
    pub run: Option<Arc<Run>>,
    closed: AtomicBool,
    changing: Notify,
    successor: OnceLock<Arc<Door>>,
}

impl Door {
    /// A door with the settings of a listener, except its certificates.
    pub fn of(listen: &Listen, tls: Option<Arc<rustls::ServerConfig>>) -> Door {
        Door {
            address: Some(listen.address),
            tls,
            intercept: listen.intercept,
            forwarding: listen.forwarding(),
            asker: Asker::at(listen),
            origin: listen.origin.clone(),
            ..Door::default()
        }
    }

    /// The door of one `larder run`.
    pub fn of_run(run: Arc<Run>) -> Door {
        Door {
            intercept: true,
            forwarding: Forwarding::On,
            asker: Asker::ThisMachine,
            run: Some(run),
            ..Door::default()
        }
    }

    /// Lets nobody in any more, on any worker.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.changing.notify_waiters();
    }

    /// From now on those who come to this door enter by the other one; the sockets stay.
    pub fn give_way_to(&self, other: Arc<Door>) {
        let _ = self.successor.set(other);
        self.changing.notify_waiters();
    }

    /// This door, or the last one to which it gave way: what a reload forbids ends on open connections too.
    pub fn in_force(&self) -> &Door {
        let mut door = self;
        while let Some(successor) = door.successor.get() {
            door = successor;
        }
        door
    }

    /// Waits until this door closes (`None`) or gives way to another one.
    async fn wait_changed(&self) -> Option<Arc<Door>> {
        let changing = self.changing.notified();
        tokio::pin!(changing);
        changing.as_mut().enable();
        if !self.closed.load(Ordering::Acquire) && self.successor.get().is_none() {
            changing.await;
        }
        self.successor.get().cloned()
    }
}

const BACKLOG: i32 = 4_096;

/// A listening socket that other workers can share the address of.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    // Without it connections are let in while they are silent, as ever.
    let _ = deferred::until_spoken(&socket);
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// As many sockets on one address as there are workers; port 0 is the same free port for all. An address
/// that another program listens on is refused, even if that program would share it.
pub fn bind_for(address: SocketAddr, workers: usize) -> io::Result<Vec<TcpListener>> {
    probe(address)?;
    let first = bind(address)?;
    let address = first.local_addr()?;
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets.push(bind(address)?);
    }
    Ok(sockets)
}

/// With `SO_REUSEPORT` two Larders would silently share a port: without it the second is told.
fn probe(address: SocketAddr) -> io::Result<()> {
    if address.port() == 0 {
        return Ok(());
    }
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(1)
}

/// Lets clients in until the door closes or the worker drains.
pub async fn accept(worker: Rc<Worker>, socket: TcpListener, mut door: Arc<Door>) {
    let listener = match Listener::new(socket) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot listen"),
    };
    let timer = worker.ticker.timer();
    loop {
        let let_in = listener.accept(|socket, peer| {
            caught::at_once(&worker.shared.worker_restarts, || welcome(&worker, &door, socket, peer));
        });
        let accepted = tokio::select! {
            accepted = timer.limit(Duration::MAX, Wait::Idle, let_in) => accepted,
            changed = door.wait_changed() => match changed {
                Some(successor) => {
                    door = successor;
                    continue;
                }
                None => return,
            },
        };
        match accepted {
            Ok(Ok(())) => {}
            // No descriptor is free: those that are in use will be, and the backlog waits.
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(_) => return,
        }
    }
}

/// A connection counts for as long as this lives.
pub struct Guest {
    worker: Rc<Worker>,
    address: IpAddr,
}

/// Which limit a new connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    /// `limits.connections_max`.
    Server,
    /// `limits.connections_per_client_max`.
    Client,
}

impl Guest {
    /// Counts a connection, and says whether it is one too many.
    fn enter(worker: &Rc<Worker>, address: IpAddr) -> (Guest, Option<Full>) {
        let (shared, config) = (&worker.shared, worker.config());
        let limits = &config.limits;
        let open = shared.connections.fetch_add(1, Ordering::Relaxed);
        worker.sessions.set(worker.sessions.get() + 1);
        worker.visitors.enter(address);
        let of_client = limits.connections_per_client_max.map(|max| (shared.clients.enter(address), max));
        let guest = Guest { worker: Rc::clone(worker), address };
        let full = match of_client {
            _ if open >= limits.connections_max => Some(Full::Server),
            Some((open, max)) if open >= max => Some(Full::Client),
            _ => None,
        };
        (guest, full)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let shared = &self.worker.shared;
        shared.connections.fetch_sub(1, Ordering::Relaxed);
        self.worker.sessions.set(self.worker.sessions.get() - 1);
        self.worker.visitors.leave(self.address);
        if shared.config.limits.connections_per_client_max.is_some() {
            shared.clients.leave(self.address);
        }
    }
}

/// Open connections by client; kept only where there is a limit for them.
#[derive(Default)]
pub struct Clients {
    open: Mutex<HashMap<Client, usize>>,
}

impl Clients {
    /// How many were open before this one.
    fn enter(&self, address: IpAddr) -> usize {
        let mut open = self.open.lock();
        let count = open.entry(Client::at(address)).or_default();
        *count += 1;
        *count - 1
    }

    fn leave(&self, address: IpAddr) {
        let mut open = self.open.lock();
        let client = Client::at(address);
        if let Some(count) = open.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                open.remove(&client);
            }
        }
    }
}

fn welcome(worker: &Rc<Worker>, door: &Arc<Door>, socket: Socket, peer: SocketAddr) {
    worker.tally.connections.add(1);
    let (guest, full) = Guest::enter(worker, peer.ip());
    if let Some(full) = full {
        worker.tally.connections_refused.add(1);
        return refuse(guest, full, door, socket, peer);
    }
    let (worker, door) = (Rc::clone(worker), Arc::clone(door));
    let Some(config) = door.tls.clone() else {
        let mut session = Session::new(worker, door, peer, Wire::Client(socket), BytesMut::new());
        session.guest = Some(guest);
        return lobby::enter(session);
    };
    tokio::task::spawn_local(async move {
        let _guest = guest;
        let stream = Rewound::new(Vec::new(), socket);
        match Box::pin(shake_hands(&worker, config, stream)).await {
            Ok(wire) => {
                journey::serve(Session::new(worker, door, peer, wire, BytesMut::new()), First::Rest).await;
            }
            // Who came and went asked for nothing; those who look whether somebody listens do so all the time.
            Err(HandshakeTrouble::Closed) => {}
            Err(trouble) => worker.tell_unanswered(&door, peer, trouble.as_str()),
        }
    });
}

/// TLS with a client, within the time that a head may take.
pub async fn shake_hands(
    worker: &Rc<Worker>,
    config: Arc<rustls::ServerConfig>,
    stream: Rewound,
) -> Result<Wire, HandshakeTrouble> {
    // The first answer follows the handshake's own last write, and must not wait until that is acknowledged.
    stream.socket().send_at_once();
    let timer = worker.ticker.timer();
    let limit = worker.config().timeouts.head;
    let accept = TlsAcceptor::from(config).accept(stream);
    match timer.limit(limit, Wait::Busy, accept).await {
        Ok(Ok(stream)) => Ok(Wire::TlsServer(Box::new(stream))),
        Ok(Err(error)) => {
            worker.tally.handshakes_failed.add(1);
            Err(HandshakeTrouble::of(&error))
        }
        Err(_) => {
            worker.tally.handshakes_failed.add(1);
            Err(HandshakeTrouble::Late)
        }
    }
}

/// Overload refuses early and says so, instead of growing.
fn refuse(guest: Guest, full: Full, door: &Arc<Door>, socket: Socket, peer: SocketAddr) {
    let (word, what, remedy) = match full {
        Full::Server => (
            "connections-max",
            "This cache has as many connections as it may have.",
            "Try again in a moment; the administrator can raise limits.connections_max.",
        ),
        Full::Client => (
            "connections-per-client-max",
            "This client has as many connections as it may have.",
            "Close some; the administrator can raise limits.connections_per_client_max.",
        ),
    };
    if door.tls.is_some() {
        // A handshake is what there is no room for.
        return guest.worker.tell_unanswered(door, peer, word);
    }
    let page = Page::new(503, word, what, remedy).closing().with("Retry-After", "5");
    let wire = Wire::Client(socket);
    let mut session = Session::new(Rc::clone(&guest.worker), Arc::clone(door), peer, wire, BytesMut::new());
    tokio::task::spawn_local(async move {
        let _guest = guest;
        respond::page_without_request(&mut session, &page);
        session.worker.tell_refused(&session.door, peer, &page);
        session.close().await;
    });
}
