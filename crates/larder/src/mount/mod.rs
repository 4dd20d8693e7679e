//! Applications in Python as workers of the server see them: which processes of an application serve, and which of them has
//! room for one more request. Processes are started, watched and ended by the nursery (`script`), which tells the
//! [`Mounts`] about them; a worker leases one for each request.

mod condition;
mod failures;
mod hook_counts;
mod hooks;
mod lease;
mod log_budget;
mod running;
mod spool;
mod stage;
mod stream;
mod turns;

pub use condition::Condition;
pub use failures::{FailedLoad, Failure, Failures};
pub use hook_counts::{HookBook, HookCounts, HookName, HookSums};
pub use hooks::{Asked, Declared, Hook, HookPlace, Hooks, NamedRoute};
pub use lease::{MountTrouble, ProcessLease, Room};
pub use log_budget::{LOG_BURST_BYTES_MAX, LOG_BYTES_PER_SECOND_MAX, LogBudget};
pub use running::{RunningCall, RunningNote, UntrueNote};
pub use spool::{BufferBudget, FILE_EXTENSION, Spool};
pub use stage::Stage;
pub use stream::{MountStream, connect_socket, is_closed};
pub use turns::{TURN_WITHIN, Turn};

use crate::client::Client;
use crate::clock;
use crate::config::application::Interface;
use crate::config::{Mount, Python};
use failures::{TARGET_BYTES_MAX, TRACEBACK_BYTES_MAX, WORD_BYTES_MAX, cut};
use larder_wire::Host;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use turns::Turns;

/// The field with the name of the request, for an application that this server runs.
pub const REQUEST_NAME: &str = "Larder-Request";

/// Bounds of processes that are remembered.
const BOUNDS_MAX: usize = 16;

/// A version of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// That of the files as they are.
    Newest,
    /// The last one that could be loaded.
    LastGood,
}

/// The facts about an application beside its processes, for people.
#[derive(Clone, Debug, Default)]
pub struct MountReport {
    /// The version of the interpreter; empty before one was ready.
    pub python: String,
    /// How often all processes were begun anew.
    pub generation: u64,
    /// The newest of these versions of which it is known whether it can be loaded.
    pub settled: u64,
    /// When the version that serves was loaded.
    pub loaded_at: Option<Duration>,
    /// Why the application, or its newest version, could not be loaded.
    pub load_failure: Option<FailedLoad>,
    /// The bounds of its processes that are in force.
    pub confined: Vec<String>,
    /// Those that the system lacks.
    pub lacks: Vec<String>,
    /// A process that is importing the application for long.
    pub late_load: Option<LateLoad>,
    /// The last requests that failed.
    pub failures: Failures,
}

/// A process that has not begun to serve for long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateLoad {
    /// The system's number.
    pub pid: u32,
    /// When it was started.
    pub since: Duration,
    /// The line where it was when that was looked at; empty as long as that is not known.
    pub place: String,
}

/// All applications of a server, by the names that their origins have.
#[derive(Default)]
pub struct Mounts {
    by_host: RwLock<HashMap<Host, Arc<MountState>>>,
    /// Where buffers have their files, once that is known.
    folder: OnceLock<PathBuf>,
}

impl Mounts {
    /// The application that is the origin of this name.
    pub fn find(&self, host: &Host) -> Option<Arc<MountState>> {
        self.by_host.read().get(host).cloned()
    }

    /// All of them, in the order of their names.
    pub fn all(&self) -> Vec<Arc<MountState>> {
        let mut all: Vec<_> =
            self.by_host.read().iter().map(|(host, state)| (host.clone(), Arc::clone(state))).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all.into_iter().map(|(_, state)| state).collect()
    }

    /// Adds an application whose processes are being started.
    pub fn add(&self, mount: Arc<Mount>) -> Arc<MountState> {
        let folder = self.folder.get().cloned().unwrap_or_else(std::env::temp_dir);
        let state = Arc::new(MountState::new(mount, folder));
        self.by_host.write().insert(state.mount().host.clone(), Arc::clone(&state));
        state
    }

    /// Buffers of applications that are added from now on have their files in this folder.
    pub fn buffer_in(&self, folder: PathBuf) {
        let _ = self.folder.set(folder);
    }

    /// Forgets an application.
    pub fn remove(&self, host: &Host) {
        if let Some(state) = self.by_host.write().remove(host) {
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
    /// Those of them that a process has to serve at once.
    waiting_for_place: AtomicUsize,
    /// Those of them that have not looked for room yet.
    giving_way: AtomicUsize,
    /// Counts of events since the start.
    pub counts: MountCounts,
    /// The bytes in its buffers.
    pub buffers: BufferBudget,
    /// The bytes that it may write into the log.
    pub log: LogBudget,
    /// Counts of each of its hooks.
    pub hook_book: HookBook,
    /// The hooks of the version that was loaded last: their filters are known also while no process of it serves.
    last_hooks: Mutex<Option<Arc<Hooks>>>,
    /// Where buffers have their files.
    folder: PathBuf,
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
    /// Processes that were killed because they wrote what is no reply, closed a connection or their socket without an end, or said that
    /// they can't be loaded though they served.
    pub broken: AtomicU64,
    /// Generations that could not load the application.
    pub load_failures: AtomicU64,
}

impl MountState {
    fn new(mount: Arc<Mount>, folder: PathBuf) -> MountState {
        MountState {
            mount: RwLock::new(mount),
            serving: Mutex::default(),
            changed: Notify::new(),
            waiting: AtomicUsize::new(0),
            waiting_for_place: AtomicUsize::new(0),
            giving_way: AtomicUsize::new(0),
            counts: MountCounts::default(),
            buffers: BufferBudget::default(),
            log: LogBudget::default(),
            hook_book: HookBook::default(),
            last_hooks: Mutex::default(),
            folder,
            report: Mutex::default(),
        }
    }

    /// The facts about it, for people.
    pub fn report(&self) -> MountReport {
        self.report.lock().clone()
    }

    /// The number of the version that was begun last.
    pub fn newest(&self) -> u64 {
        self.report.lock().generation
    }

    /// Whether the application, or its newest version, could not be loaded.
    pub fn has_load_failure(&self) -> bool {
        self.report.lock().load_failure.is_some()
    }

    /// Whether the version of this number, or a later one, could be loaded; `None` as long as that is not known.
    pub fn outcome_of(&self, generation: u64) -> Option<Result<(), FailedLoad>> {
        let report = self.report.lock();
        (report.settled >= generation).then(|| report.load_failure.clone().map_or(Ok(()), Err))
    }

    /// Notes something about it.
    pub fn note(&self, change: impl FnOnce(&mut MountReport)) {
        change(&mut self.report.lock());
    }

    /// Counts a request that failed, and notes it.
    pub fn failed(&self, failure: Failure) {
        self.counts.errors.fetch_add(1, Ordering::Relaxed);
        self.note_failure(failure);
    }

    /// Notes a request that failed and is counted elsewhere.
    pub fn note_failure(&self, failure: Failure) {
        self.report.lock().failures.push(failure);
    }

    /// Notes where a process hung that was ended: with the failure of its request, which may become known a moment later.
    pub fn was_at(&self, pid: u32, place: &str) {
        self.report.lock().failures.was_at(pid, place);
    }

    /// Notes a version that could not be loaded.
    pub fn load_failed(&self, mut failure: FailedLoad) {
        self.counts.load_failures.fetch_add(1, Ordering::Relaxed);
        failure.at = clock::wall();
        cut(&mut failure.hint, TARGET_BYTES_MAX);
        cut(&mut failure.traceback, TRACEBACK_BYTES_MAX);
        let mut report = self.report.lock();
        (report.load_failure, report.settled) = (Some(failure), report.generation);
    }

    /// Notes that a process has loaded the application: in its newest version, or in one before, which goes on because the newest can't
    /// be loaded.
    pub fn loaded(&self, mut python: String, version: Version, is_first_of_its_version: bool) {
        cut(&mut python, WORD_BYTES_MAX);
        let mut report = self.report.lock();
        report.python = python;
        if version == Version::Newest {
            (report.load_failure, report.settled) = (None, report.generation);
        }
        if is_first_of_its_version {
            report.loaded_at = Some(clock::wall());
        }
    }

    /// Notes the bounds of its processes: those in force, and those that the system lacks.
    pub fn confined(&self, mut confined: Vec<String>, mut lacks: Vec<String>) {
        for bounds in [&mut confined, &mut lacks] {
            bounds.truncate(BOUNDS_MAX);
            bounds.iter_mut().for_each(|bound| cut(bound, TARGET_BYTES_MAX));
        }
        let mut report = self.report.lock();
        (report.confined, report.lacks) = (confined, lacks);
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

    /// The buffer for a request's body, where a process gets the request after all of it. `None` for applications whose processes
    /// serve many requests at once.
    pub fn request_spool(self: &Arc<Self>, client: Option<Client>) -> Option<Spool> {
        self.spool(client, |python| python.request_buffer_bytes_max)
    }

    /// The buffer for what a client has not taken yet of an answer, where that would hold a process.
    pub fn answer_spool(self: &Arc<Self>, client: Option<Client>) -> Option<Spool> {
        self.spool(client, |python| python.answer_buffer_bytes_max)
    }

    fn spool(self: &Arc<Self>, client: Option<Client>, bytes_max: fn(&Python) -> u64) -> Option<Spool> {
        let mount = self.mount.read();
        let bytes_max = bytes_max(&mount.python);
        let is_buffered = mount.application.interface == Interface::Wsgi && bytes_max > 0;
        is_buffered.then(|| Spool::new(Arc::clone(self), client, bytes_max))
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

    /// Whether a process serves.
    pub fn serves(&self) -> bool {
        !self.serving.lock().processes.is_empty()
    }

    /// The processes that serve.
    pub fn processes(&self) -> Vec<Arc<Process>> {
        self.serving.lock().processes.clone()
    }

    /// The hooks of the processes that serve. While there is none, those of the version that was loaded last: requests that their
    /// filters let through wait for a process, or fail, and others go on. `None` before any was loaded.
    pub fn hooks(&self) -> Option<Arc<Hooks>> {
        let serving = self.serving.lock().processes.first().map(|process| process.hooks.clone());
        serving.unwrap_or_else(|| self.last_hooks.lock().clone())
    }

    /// These hooks were loaded.
    pub fn have_hooks(&self, hooks: &Arc<Hooks>) {
        *self.last_hooks.lock() = Some(Arc::clone(hooks));
    }

    /// Whether the processes that serve run this version of hooks.
    pub fn runs(&self, hooks: &Arc<Hooks>) -> bool {
        let serving = self.serving.lock();
        serving.processes.first().and_then(|process| process.hooks.as_ref()).is_some_and(|own| Arc::ptr_eq(own, hooks))
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
    /// Requests that it serves at once.
    pub requests_max: usize,
    /// When it was ready.
    pub ready_at: Duration,
    /// The hooks that it runs, where it serves no requests.
    pub hooks: Option<Arc<Hooks>>,
    /// Its note of the call that it runs, where it serves hooks.
    pub running: Option<Arc<RunningNote>>,
    /// The number of the last call that was made of it.
    last_call: AtomicU32,
    under_way: AtomicUsize,
    /// The order of its requests, where it serves one at a time.
    turns: Option<Mutex<Turns>>,
    /// When a reply of it was read last, by whichever worker: nanoseconds of the clock that all processes share.
    replied_at: AtomicU64,
    /// It gets no further requests: the nursery was told to end it.
    is_faulty: AtomicBool,
    nursery: mpsc::Sender<Faulty>,
}

/// A process that is to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faulty {
    /// The number of the process.
    pub number: u64,
    /// The reason.
    pub fault: ProcessFault,
}

/// Why a process can't serve any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessFault {
    /// A request goes on although its time is over: in the hook at this place, where it can be only one.
    Hangs(Option<u16>),
    /// It broke the rules of its connections, in this way.
    Broken(&'static str),
    /// It closed something. The process may be ending by itself.
    Closed(Closed),
}

/// Something that a process has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// A connection.
    Connection,
    /// The socket that it accepts connections on.
    Socket,
}

impl Process {
    /// A process that is ready. `nursery` is told when it hangs.
    pub fn new(number: u64, pid: u32, socket: PathBuf, requests_max: usize, nursery: mpsc::Sender<Faulty>) -> Process {
        Process {
            number,
            pid,
            socket,
            requests_max,
            ready_at: clock::wall(),
            hooks: None,
            running: None,
            last_call: AtomicU32::new(0),
            under_way: AtomicUsize::new(0),
            turns: turns::of_process(requests_max),
            replied_at: AtomicU64::new(0),
            is_faulty: AtomicBool::new(false),
            nursery,
        }
    }

    /// A number for a call, which no call under way has; not 0.
    pub fn number_call(&self) -> u32 {
        loop {
            let number = self.last_call.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            if number != 0 {
                return number;
            }
        }
    }

    /// Requests under way in it, those that wait for their turn included.
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    fn has_room(&self) -> bool {
        !self.is_faulty.load(Ordering::Relaxed) && self.under_way() < self.requests_max
    }

    /// It serves one request at a time, in the order in which they were sent.
    pub fn serves_one_at_a_time(&self) -> bool {
        self.turns.is_some()
    }

    /// Whether it may get a request that waits behind those that it has.
    fn has_turn(&self, now: Instant) -> bool {
        !self.is_faulty.load(Ordering::Relaxed)
            && self.turns.as_ref().is_some_and(|turns| turns.lock().take_one_more(now))
    }

    /// It gets no further request, and the nursery ends it.
    pub fn fails(&self, fault: ProcessFault) {
        if !self.is_faulty.swap(true, Ordering::Relaxed) {
            // A full queue means that the nursery ends others just now; the next request that meets the fault tells again.
            if self.nursery.try_send(Faulty { number: self.number, fault }).is_err() {
                self.is_faulty.store(false, Ordering::Relaxed);
            }
        }
    }

    /// A reply of it was read.
    pub fn replied(&self) {
        let now = u64::try_from(clock::shared().as_nanos()).unwrap_or(u64::MAX);
        self.replied_at.store(now, Ordering::Relaxed);
    }

    /// When a reply of it was read last, by the clock that all processes share.
    pub fn replied_at(&self) -> Duration {
        Duration::from_nanos(self.replied_at.load(Ordering::Relaxed))
    }

    /// The call that it notes as the one that it runs; `None` while it notes none. Fails where the note can't be true: no call of that
    /// number was made, or its time has not come.
    pub fn running_call(&self) -> Result<Option<RunningCall>, UntrueNote> {
        let Some(call) = self.running.as_ref().and_then(|note| note.read()) else { return Ok(None) };
        match call.is_credible(self.last_call.load(Ordering::Relaxed)) {
            true => Ok(Some(call)),
            false => Err(UntrueNote),
        }
    }
}
