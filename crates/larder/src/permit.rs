//! Permits of client connections: counted for the server, for each client, and for each worker.

use crate::client::{Client, has_address};
use crate::env::Env;
use crate::page::Page;
use crate::visitors::Visitors;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Open client connections of a server.
#[derive(Default)]
pub struct OpenConnections {
    open: AtomicUsize,
    /// Streams of HTTP/2 and HTTP/3 that wait beside others of their connections.
    streams: AtomicUsize,
    /// By client; counted only where `limits.connections_per_client_max` is set.
    by_client: Mutex<HashMap<Client, usize>>,
}

impl OpenConnections {
    /// How many are open now.
    pub fn count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a connection of a client; gives the number that it had before.
    fn enter(&self, address: IpAddr) -> usize {
        let mut by_client = self.by_client.lock();
        let count = by_client.entry(Client::at(address)).or_default();
        *count += 1;
        *count - 1
    }

    fn leave(&self, address: IpAddr) {
        let mut by_client = self.by_client.lock();
        let client = Client::at(address);
        if let Some(count) = by_client.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                by_client.remove(&client);
            }
        }
    }
}

/// Open client connections of a worker, and its list of clients.
pub struct WorkerConnections {
    all: Arc<OpenConnections>,
    open: Cell<usize>,
    /// Clients of this worker.
    pub visitors: Visitors,
}

impl WorkerConnections {
    /// None are open yet.
    pub fn new(all: Arc<OpenConnections>) -> Rc<WorkerConnections> {
        Rc::new(WorkerConnections { all, open: Cell::new(0), visitors: Visitors::default() })
    }

    /// How many are open on this worker.
    pub fn count(&self) -> usize {
        self.open.get()
    }
}

/// The limit that a new connection exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// `limits.connections_max`.
    Server,
    /// `limits.connections_per_client_max`.
    Client,
}

impl Full {
    /// The error page.
    pub fn page(self) -> Page {
        let (word, what, remedy) = match self {
            Full::Server => (
                self.as_str(),
                "This cache has as many connections as it may have.",
                "Try again in a moment; the administrator can raise limits.connections_max.",
            ),
            Full::Client => (
                self.as_str(),
                "This client has as many connections as it may have.",
                "Close some; the administrator can raise limits.connections_per_client_max.",
            ),
        };
        Page::new(503, word, what, remedy).closing().with("Retry-After", "5")
    }

    /// The word that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            Full::Server => "connections-max",
            Full::Client => "connections-per-client-max",
        }
    }
}

/// A stream of HTTP/2 or HTTP/3 that waits beside others of its connection counts as a further connection for as long as this lives.
pub struct StreamPermit {
    all: Arc<OpenConnections>,
    /// The client, where `limits.connections_per_client_max` is set.
    counted: Option<IpAddr>,
}

impl StreamPermit {
    /// Counts a stream, unless it is one too many.
    pub fn take(of: &WorkerConnections, env: &Env, address: IpAddr) -> Result<StreamPermit, Full> {
        let config = env.config();
        let limits = &config.limits;
        let all = &of.all;
        let per_client_max = limits.connections_per_client_max.filter(|_| has_address(address));
        let of_client = per_client_max.map(|max| (all.enter(address), max));
        let open = all.streams.fetch_add(1, Ordering::Relaxed) + all.open.load(Ordering::Relaxed);
        let permit = StreamPermit { all: Arc::clone(all), counted: of_client.is_some().then_some(address) };
        match of_client {
            _ if open >= limits.connections_max => Err(Full::Server),
            Some((open, max)) if open >= max => Err(Full::Client),
            _ => Ok(permit),
        }
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.all.streams.fetch_sub(1, Ordering::Relaxed);
        if let Some(address) = self.counted {
            self.all.leave(address);
        }
    }
}

/// A connection counts as open for as long as its permit lives.
pub struct ConnectionPermit {
    of: Rc<WorkerConnections>,
    address: IpAddr,
    is_counted_by_client: bool,
}

impl ConnectionPermit {
    /// Counts a connection, and says whether it is one too many. All clients without an address are no one client.
    pub fn take(of: &Rc<WorkerConnections>, env: &Env, address: IpAddr) -> (ConnectionPermit, Option<Full>) {
        let per_client_max = env.config().limits.connections_per_client_max.filter(|_| has_address(address));
        ConnectionPermit::counted(of, env, address, per_client_max)
    }

    /// Like [`take`](Self::take), for a balancer, whose connections are those of many clients.
    pub fn take_for_balancer(
        of: &Rc<WorkerConnections>,
        env: &Env,
        address: IpAddr,
    ) -> (ConnectionPermit, Option<Full>) {
        ConnectionPermit::counted(of, env, address, None)
    }

    fn counted(
        of: &Rc<WorkerConnections>,
        env: &Env,
        address: IpAddr,
        per_client_max: Option<usize>,
    ) -> (ConnectionPermit, Option<Full>) {
        let connections_max = env.config().limits.connections_max;
        let open = of.all.open.fetch_add(1, Ordering::Relaxed);
        of.open.set(of.open.get() + 1);
        of.visitors.enter(address);
        let of_client = per_client_max.map(|max| (of.all.enter(address), max));
        let permit = ConnectionPermit { of: Rc::clone(of), address, is_counted_by_client: of_client.is_some() };
        let full = match of_client {
            _ if open >= connections_max => Some(Full::Server),
            Some((open, max)) if open >= max => Some(Full::Client),
            _ => None,
        };
        (permit, full)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.of.all.open.fetch_sub(1, Ordering::Relaxed);
        self.of.open.set(self.of.open.get() - 1);
        self.of.visitors.leave(self.address);
        if self.is_counted_by_client {
            self.of.all.leave(self.address);
        }
    }
}
