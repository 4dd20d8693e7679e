//! The connections to one server of a service: those in use, those that are idle, and messages that wait for one.

use super::Trouble;
use crate::config::Icap;
use crate::reach::Reach;
use crate::upstream::Upstreams;
use larder_wire::icap::Service as Url;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// An idle connection is closed after this time.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// All connections to one server, of all workers.
pub(super) struct Connections {
    settings: Arc<Icap>,
    url: Url,
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
    state: Mutex<State>,
}

struct State {
    idle: Vec<Idle>,
    /// The permits that there are, in use or not.
    places: usize,
}

/// A connection without a question. It belongs to no worker, so it is none of a runtime's.
struct Idle {
    wire: std::net::TcpStream,
    since: Instant,
}

/// A connection that serves a question.
pub(super) struct Connection {
    pub(super) wire: TcpStream,
    /// It has served another question.
    pub(super) is_reused: bool,
    home: Arc<Connections>,
    permit: OwnedSemaphorePermit,
}

impl Connection {
    /// Gives the connection back for the next question.
    pub(super) fn release(self) {
        self.home.park(self.wire, self.permit);
    }

    /// The name of the server.
    pub(super) fn name(&self) -> String {
        self.home.name()
    }
}

/// Connections at this moment.
pub(super) struct ConnectionCounts {
    pub(super) busy: usize,
    pub(super) idle: usize,
    pub(super) max: usize,
    pub(super) waiting: usize,
}

impl Connections {
    pub(super) fn new(settings: &Arc<Icap>, url: &Url) -> Connections {
        let places = settings.connections_max;
        Connections {
            settings: Arc::clone(settings),
            url: url.clone(),
            permits: Arc::new(Semaphore::new(places)),
            waiting: AtomicUsize::new(0),
            state: Mutex::new(State { idle: Vec::new(), places }),
        }
    }

    pub(super) fn name(&self) -> String {
        format!("{} ({})", self.settings.name, self.url)
    }

    pub(super) fn counts(&self) -> ConnectionCounts {
        let state = self.state.lock();
        ConnectionCounts {
            busy: state.places.saturating_sub(self.permits.available_permits()),
            idle: state.idle.len(),
            max: state.places,
            waiting: self.waiting.load(Ordering::Relaxed),
        }
    }

    /// Closes the idle ones.
    pub(super) fn close_idle(&self) {
        self.state.lock().idle.clear();
    }

    /// Lets there be so many connections. Those in use that are too many end by themselves.
    pub(super) fn fit(&self, wanted: usize) {
        let mut state = self.state.lock();
        if wanted > state.places {
            self.permits.add_permits(wanted - state.places);
            state.places = wanted;
        } else {
            state.places -= self.permits.forget_permits(state.places - wanted);
            let places = state.places;
            state.idle.truncate(places);
        }
    }

    /// A connection for one question, idle or new; `is_fresh`: a new one.
    pub(super) async fn connect(
        self: &Arc<Connections>,
        upstreams: &Upstreams,
        is_fresh: bool,
    ) -> Result<Connection, Trouble> {
        let permit = self.permit().await?;
        let home = Arc::clone(self);
        // As many are open as there are permits in use and idle connections: a new one takes the place of an idle one.
        while let Some(idle) = self.take_idle() {
            if is_fresh {
                break;
            }
            if let Some(wire) = idle.revive() {
                return Ok(Connection { wire, is_reused: true, home, permit });
            }
        }
        let opening = upstreams.tunnel(&self.url.host, self.url.port, &Reach::Configured, &|_| ());
        let opened = match timeout(self.settings.connect_timeout, opening).await {
            Ok(opened) => opened.map_err(|fault| Trouble::Connect(fault.detail))?,
            Err(_) => return Err(Trouble::Connect("it accepted none within `connect_timeout`".to_owned())),
        };
        let wire = opened.into_tcp().map_err(|error| Trouble::Connect(error.to_string()))?;
        // A question in several writes would wait for acknowledgements.
        let _ = wire.set_nodelay(true);
        Ok(Connection { wire, is_reused: false, home, permit })
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, Trouble> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok(permit);
        }
        let _waits = Waiting::begin(&self.waiting, self.settings.waiting_max).ok_or(Trouble::Full)?;
        match timeout(self.settings.connect_timeout, Arc::clone(&self.permits).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(Trouble::NoConnection),
        }
    }

    fn take_idle(&self) -> Option<Idle> {
        self.state.lock().idle.pop()
    }

    /// Takes a connection back that can serve again.
    fn park(&self, wire: TcpStream, permit: OwnedSemaphorePermit) {
        let now = Instant::now();
        if let Ok(wire) = wire.into_std() {
            let mut state = self.state.lock();
            state.idle.retain(|idle| now - idle.since < IDLE_MAX);
            if state.idle.len() < state.places {
                state.idle.push(Idle { wire, since: now });
            }
        }
        drop(permit);
    }
}

impl Idle {
    /// The connection for a question of this worker; `None` where the service has closed it, or sent something unasked.
    fn revive(self) -> Option<TcpStream> {
        let is_silent =
            matches!(self.wire.peek(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
        let is_young = self.since.elapsed() < IDLE_MAX;
        (is_silent && is_young).then(|| TcpStream::from_std(self.wire).ok())?
    }
}

/// A message that waits for a connection.
struct Waiting<'a>(&'a AtomicUsize);

impl Waiting<'_> {
    fn begin(waiting: &AtomicUsize, max: usize) -> Option<Waiting<'_>> {
        if waiting.fetch_add(1, Ordering::Relaxed) < max {
            return Some(Waiting(waiting));
        }
        waiting.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
