//! Applications in Python as workers of the server see them: which processes of an application serve, and which of them has
//! room for one more request. Processes are started, watched and ended by the nursery (`script`), which tells the
//! [`Mounts`] about them; a worker leases one for each request.

mod hooks;
mod lease;
mod stream;

pub use hooks::{Asked, Declared, Hook, Hooks};
pub use lease::{MountTrouble, ProcessLease};
pub use stream::{MountStream, connect_socket};

use crate::config::Mount;
use larder_wire::Host;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

/// Failures of requests that are remembered of one application.
const FAILURES_MAX: usize = 16;

/// A request that raised an exception.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Failure {
    /// The name of the request.
    #[serde(default)]
    pub request: String,
    /// Its method.
    #[serde(default)]
    pub method: String,
    /// Its target.
    #[serde(default)]
    pub target: String,
    /// The traceback.
    pub traceback: String,
}

/// The facts about an application beside its processes, for people.
#[derive(Clone, Debug, Default)]
pub struct MountReport {
    /// The version of the interpreter; empty before one was ready.
    pub python: String,
    /// How often all processes were begun anew.
    pub generation: u64,
    /// Why the application, or its newest version, could not be loaded: a traceback.
    pub load_failure: Option<String>,
    /// The last requests that raised an exception, the newest last.
    pub failures: VecDeque<Failure>,
}

/// All applications of a server, by the names that their origins have.
#[derive(Default)]
pub struct Mounts(RwLock<HashMap<Host, Arc<MountState>>>);

impl Mounts {
    /// The application that is the origin of this name.
    pub fn find(&self, host: &Host) -> Option<Arc<MountState>> {
        self.0.read().get(host).cloned()
    }

    /// All of them, in the order of their names.
    pub fn all(&self) -> Vec<Arc<MountState>> {
        let mut all: Vec<_> = self.0.read().iter().map(|(host, state)| (host.clone(), Arc::clone(state))).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all.into_iter().map(|(_, state)| state).collect()
    }

    /// Adds an application whose processes are being started.
    pub fn add(&self, mount: Arc<Mount>) -> Arc<MountState> {
        let state = Arc::new(MountState::new(mount));
        self.0.write().insert(state.mount().host.clone(), Arc::clone(&state));
        state
    }

    /// Forgets an application.
    pub fn remove(&self, host: &Host) {
        if let Some(state) = self.0.write().remove(host) {
            state.fail("it is not configured any more".to_owned());
        }
    }
}

/// One application: its settings, its processes that serve, and counts.
pub struct MountState {
    mount: RwLock<Arc<Mount>>,
    serving: Mutex<Serving>,
    /// A process has room, or has come or gone.
    changed: Notify,
    /// Requests that wait for a process.
    waiting: AtomicUsize,
    /// Counts of events since the start.
    pub counts: MountCounts,
    report: Mutex<MountReport>,
}

impl fmt::Debug for MountState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.mount().application.name)
    }
}

#[derive(Default)]
struct Serving {
    processes: Vec<Arc<Process>>,
    /// Why there is no process, once that is known.
    failed: Option<String>,
}

/// Counts of events of one application since the start.
#[derive(Debug, Default)]
pub struct MountCounts {
    /// Requests that got a process.
    pub requests: AtomicU64,
    /// Requests that raised an exception.
    pub errors: AtomicU64,
    /// Processes started.
    pub started: AtomicU64,
    /// Processes that ended by themselves.
    pub ended: AtomicU64,
    /// Processes that were killed because a request hung.
    pub hung: AtomicU64,
    /// Generations that could not load the application.
    pub load_failures: AtomicU64,
}

impl MountState {
    fn new(mount: Arc<Mount>) -> MountState {
        MountState {
            mount: RwLock::new(mount),
            serving: Mutex::default(),
            changed: Notify::new(),
            waiting: AtomicUsize::new(0),
            counts: MountCounts::default(),
            report: Mutex::default(),
        }
    }

    /// The facts about it, for people.
    pub fn report(&self) -> MountReport {
        self.report.lock().clone()
    }

    /// Notes something about it.
    pub fn note(&self, change: impl FnOnce(&mut MountReport)) {
        change(&mut self.report.lock());
    }

    /// Notes a request that raised an exception.
    pub fn failed(&self, failure: Failure) {
        self.counts.errors.fetch_add(1, Ordering::Relaxed);
        let failures = &mut self.report.lock().failures;
        if failures.len() == FAILURES_MAX {
            failures.pop_front();
        }
        failures.push_back(failure);
    }

    /// Its settings.
    pub fn mount(&self) -> Arc<Mount> {
        Arc::clone(&self.mount.read())
    }

    /// Other settings, which hold from the next request on.
    pub fn configure(&self, mount: Arc<Mount>) {
        *self.mount.write() = mount;
    }

    /// The time from the end of a request to the head of its answer.
    pub fn request_time(&self) -> Duration {
        self.mount.read().python.request_time
    }

    /// These processes serve from now on; requests under way at others go on.
    pub fn serve_by(&self, processes: Vec<Arc<Process>>) {
        let mut serving = self.serving.lock();
        if !processes.is_empty() {
            serving.failed = None;
        }
        serving.processes = processes;
        drop(serving);
        self.changed.notify_waiters();
    }

    /// No process can be had, for this reason. Requests fail at once while there is none.
    pub fn fail(&self, why: String) {
        self.serving.lock().failed = Some(why);
        self.changed.notify_waiters();
    }

    /// The processes that serve.
    pub fn processes(&self) -> Vec<Arc<Process>> {
        self.serving.lock().processes.clone()
    }

    /// The hooks of the processes that serve; `None` while there is none.
    pub fn hooks(&self) -> Option<Arc<Hooks>> {
        self.serving.lock().processes.first()?.hooks.clone()
    }

    /// Why it can't be loaded, where it can't.
    pub fn trouble(&self) -> Option<String> {
        self.serving.lock().failed.clone()
    }

    /// Requests that wait for a process.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// A process that has imported its application.
pub struct Process {
    /// Its number since the start of the server.
    pub number: u64,
    /// The system's number.
    pub pid: u32,
    /// Its socket.
    pub socket: PathBuf,
    /// Requests that it may have at once.
    pub requests_max: usize,
    /// The hooks that it runs, where it serves no requests.
    pub hooks: Option<Arc<Hooks>>,
    under_way: AtomicUsize,
    is_hung: AtomicBool,
    nursery: mpsc::Sender<Hung>,
}

/// A process hangs, or has closed its socket: the nursery ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hung {
    /// The number of the process.
    pub number: u64,
}

impl Process {
    /// A process that is ready. `nursery` is told when it hangs.
    pub fn new(number: u64, pid: u32, socket: PathBuf, requests_max: usize, nursery: mpsc::Sender<Hung>) -> Process {
        Process {
            number,
            pid,
            socket,
            requests_max,
            hooks: None,
            under_way: AtomicUsize::new(0),
            is_hung: AtomicBool::new(false),
            nursery,
        }
    }

    /// Requests under way in it.
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    fn has_room(&self) -> bool {
        !self.is_hung.load(Ordering::Relaxed) && self.under_way() < self.requests_max
    }

    /// A request goes on in it although its time is over.
    fn hangs(&self) {
        if !self.is_hung.swap(true, Ordering::Relaxed) {
            // A full queue means that the nursery ends others just now; this one takes no request meanwhile, and the next request
            // that finds its time over tells again.
            if self.nursery.try_send(Hung { number: self.number }).is_err() {
                self.is_hung.store(false, Ordering::Relaxed);
            }
        }
    }
}
