//! The LDAP servers of a login: threads that ask them, each with one connection, and the next server where one is away.

use super::ldap::{Connection, Found};
use crate::config::Ldap;
use larder_people::ldap::Password;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::client::Resumption;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Checks that wait for a thread. Further ones are refused.
const QUEUE_MAX: usize = 256;

/// Threads, and so connections.
const THREADS_MAX: usize = 4;

/// A connection that was idle for longer is not used again.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// A server that was away is asked after the others for so long.
const AWAY_FOR: Duration = Duration::from_secs(10);

/// A check, which has the connection of its thread.
pub(super) type Check = Box<dyn FnOnce(&mut Option<(usize, Connection)>) + Send>;

/// The servers of one login. Its threads begin with the first check, and end with it.
pub(super) struct Directory {
    servers: Arc<Servers>,
    queue: Mutex<Option<SyncSender<Check>>>,
}

struct Servers {
    config: Ldap,
    tls: OnceLock<Arc<ClientConfig>>,
    /// By server: when it was last found to be away.
    away: Mutex<Vec<Option<Instant>>>,
    /// How long the last wrong password took: an unknown user is refused no earlier.
    refused_within: Mutex<Duration>,
}

impl Directory {
    /// Asks nobody yet.
    pub fn new(config: &Ldap) -> Directory {
        let away = Mutex::new(vec![None; config.servers.len()]);
        let (tls, refused_within) = (OnceLock::new(), Mutex::default());
        Directory {
            servers: Arc::new(Servers { config: config.clone(), tls, away, refused_within }),
            queue: Mutex::default(),
        }
    }

    /// The TLS of new connections: as towards origins, but that it offers no HTTP, and takes up no session of it.
    pub fn connect_with(&self, tls: &ClientConfig) {
        let mut own = tls.clone();
        own.alpn_protocols.clear();
        own.resumption = Resumption::in_memory_sessions(self.servers.config.servers.len());
        let _ = self.servers.tls.set(Arc::new(own));
    }

    /// Asks the servers one after the other; the error has all that was wrong.
    pub fn find(
        &self,
        connection: &mut Option<(usize, Connection)>,
        credential: (&str, &Password),
        secret: Option<&Password>,
    ) -> Result<Found, String> {
        self.servers.find(connection, credential, secret)
    }

    /// How long the last wrong password took.
    pub fn refused_within(&self) -> Duration {
        *self.servers.refused_within.lock()
    }

    /// Where checks wait for a thread.
    pub fn queue(&self) -> io::Result<SyncSender<Check>> {
        let mut queue = self.queue.lock();
        if let Some(queue) = &*queue {
            return Ok(queue.clone());
        }
        let (send, receive) = sync_channel::<Check>(QUEUE_MAX);
        let receive = Arc::new(Mutex::new(receive));
        for number in 0..THREADS_MAX {
            let receive = Arc::clone(&receive);
            std::thread::Builder::new().name(format!("ldap-{number}")).spawn(move || work(&receive))?;
        }
        *queue = Some(send.clone());
        Ok(send)
    }
}

fn work(checks: &Mutex<Receiver<Check>>) {
    let mut connection = None;
    loop {
        let check = checks.lock().recv();
        let Ok(check) = check else { return };
        // A check that meets a broken invariant takes no thread with it, but its connection.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&mut connection)));
        if done.is_err() {
            connection = None;
        }
    }
}

impl Servers {
    /// Asks the servers one after the other; the error has all that was wrong.
    fn find(
        &self,
        connection: &mut Option<(usize, Connection)>,
        credential: (&str, &Password),
        secret: Option<&Password>,
    ) -> Result<Found, String> {
        let began = Instant::now();
        let mut order: Vec<usize> = (0..self.config.servers.len()).collect();
        let away = self.away.lock().clone();
        order.sort_by_key(|at| away.get(*at).copied().flatten().is_some_and(|since| since.elapsed() < AWAY_FOR));
        let mut troubles = Vec::new();
        for at in order {
            match self.ask(at, connection, credential, secret) {
                Ok(found) => {
                    if found == Found::Wrong {
                        *self.refused_within.lock() = began.elapsed();
                    }
                    return Ok(found);
                }
                Err(error) => {
                    *connection = None;
                    if let Some(away) = self.away.lock().get_mut(at) {
                        *away = Some(Instant::now());
                    }
                    troubles.extend(self.config.servers.get(at).map(|server| format!("{server}: {error}")));
                }
            }
        }
        Err(troubles.join("; "))
    }

    /// Asks one server, on the connection that is there, or on a new one where that has been closed meanwhile.
    fn ask(
        &self,
        at: usize,
        connection: &mut Option<(usize, Connection)>,
        credential: (&str, &Password),
        secret: Option<&Password>,
    ) -> io::Result<Found> {
        let (config, end) = (&self.config, Instant::now() + self.config.timeout);
        let server = config.servers.get(at).ok_or(io::ErrorKind::NotFound)?;
        let usable = connection.take().filter(|(of, open)| *of == at && open.used.elapsed() < IDLE_MAX);
        if let Some((_, mut open)) = usable {
            let closed = [
                io::ErrorKind::UnexpectedEof,
                io::ErrorKind::ConnectionReset,
                io::ErrorKind::ConnectionAborted,
                io::ErrorKind::BrokenPipe,
            ];
            match open.find(config, credential, secret, end.saturating_duration_since(Instant::now())) {
                Err(error) if closed.contains(&error.kind()) => {}
                Err(error) => return Err(error),
                Ok(found) => {
                    open.used = Instant::now();
                    *connection = Some((at, open));
                    return Ok(found);
                }
            }
        }
        let mut open = Connection::open(server, config, self.tls.get(), end)?;
        let found = open.find(config, credential, secret, end.saturating_duration_since(Instant::now()))?;
        open.used = Instant::now();
        *connection = Some((at, open));
        Ok(found)
    }
}
