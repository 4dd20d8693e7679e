//! A server: its listeners, its workers, and what they share. Two of them can live in one process.

use crate::access::Ask;
use crate::clock;
use crate::config::{Config, Listen, LogTo, PolicySettings, ResolverKind, Said, TextsLogged};
use crate::control::{self, History, Pulse};
use crate::disk;
use crate::listen::{self, Clients, Door};
use crate::live::Live;
use crate::log::{AccessLog, Lines};
use crate::reach::OwnAddresses;
use crate::record::{Counters, Names, Record, Ring, Run, Tally};
use crate::reload::{self, Again};
use crate::run::control::{RunStarted, RunStats};
use crate::run::folder::Temporary;
use crate::tls::ca::Authority;
use crate::tls::pass::PassList;
use crate::tls::server::Certificates;
use crate::tls::{self, Roots, TlsError};
use crate::trace::Traces;
use crate::upstream::{self, ResolverChoice, SettingsFault};
use crate::visitors::{self, Visitor};
use crate::worker::Worker;
use larder_cache::cache::{self, Cache};
use larder_cache::policy;
use larder_cache::store::{OpenFault, Store};
use larder_wire::{Method, ResponseHead, Version};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

/// A running server. Dropping it stops it at once; [`Server::stop`] lets requests end first.
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    admin: Option<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
}

/// What the workers of one server have together.
pub struct Shared {
    /// The settings that the server was started with.
    pub config: Config,
    /// The settings that hold; what a reload may change is looked up here, by a worker through [`Worker::config`].
    pub live: Live<Config>,
    /// Where this server listens, `larder run`s and the page included.
    pub own_addresses: Live<OwnAddresses>,
    /// Where they were said.
    pub said: Mutex<SaidPlaces>,
    /// How often they were reloaded.
    pub reloads: reload::Counts,
    pub(crate) again: Option<Again>,
    /// Where the page is.
    admin: Option<SocketAddr>,
    pub(crate) doors: Mutex<Vec<OpenDoor>>,
    /// The store.
    pub cache: Arc<Cache>,
    /// The rules for what sites bring: a site is close to its origin, so `CDN-Cache-Control` is meant for it.
    pub site_policy: policy::Settings,
    /// The rules for what a `larder run` fetches.
    pub run_policy: policy::Settings,
    /// Hosts whose tunnels are not opened.
    pub pass: PassList,
    /// What was counted since the start.
    pub counters: Counters,
    /// Open client connections.
    pub connections: AtomicUsize,
    /// How often what lasts as long as a worker met a broken invariant and began anew.
    pub worker_restarts: AtomicU64,
    /// The same of the thread of the admin listener.
    pub control_restarts: AtomicU64,
    /// The same by client, where that is limited.
    pub clients: Clients,
    /// The ways to origins, by worker; a worker stands here from when it serves.
    pub upstream: Mutex<BTreeMap<usize, upstream::Stats>>,
    /// Who came, by worker.
    pub visitor_lists: Mutex<BTreeMap<usize, Vec<(IpAddr, Visitor)>>>,
    /// The totals of the last hour.
    pub history: History,
    /// The last minutes, second by second.
    pub pulse: Pulse,
    /// Names requests.
    pub names: Names,
    /// Seats of those who listen to all that happens.
    pub(crate) listening: Arc<tokio::sync::Semaphore>,
    /// Held by a purge that counts what it is about.
    pub(crate) counting: tokio::sync::Semaphore,
    /// Places of questions to workers.
    looking: Arc<tokio::sync::Semaphore>,
    /// When the server started.
    pub started: Duration,
    draining: AtomicBool,
    /// The name of this server in `Via`.
    pub via_name: String,
    via: [String; 2],
    answered_by: [String; 2],
    boundary_seed: u64,
    boundaries: AtomicU64,
    pub(crate) log: AccessLog,
    /// Spans of sampled requests, when somebody collects them.
    pub traces: Option<Traces>,
    roots: Roots,
    authority: Mutex<Option<Arc<Authority>>>,
    runs: Mutex<HashMap<String, OpenRun>>,
    runs_opened: AtomicU64,
    pub(crate) commands: Mutex<Vec<UnboundedSender<Command>>>,
    /// Held for as long as the server lives, so that no other takes the same folder.
    folder_taken: StoreFolder,
}

/// Where settings were said, by name.
pub type SaidPlaces = BTreeMap<&'static str, Said>;

/// What a server is started with.
pub struct Plan {
    /// The settings.
    pub config: Config,
    /// Where they were said.
    pub said: SaidPlaces,
    /// How they are read again; without it there is no reload.
    pub again: Option<Again>,
}

impl From<Config> for Plan {
    fn from(config: Config) -> Plan {
        Plan { config, said: SaidPlaces::new(), again: None }
    }
}

/// A configured listener that is open.
pub(crate) struct OpenDoor {
    pub(crate) configured: SocketAddr,
    /// Its sockets' address, with the port that was free.
    pub(crate) bound: SocketAddr,
    pub(crate) door: Arc<Door>,
}

struct OpenRun {
    run: Arc<Run>,
    door: Arc<Door>,
    bound: SocketAddr,
}

/// What a worker is told.
pub enum Command {
    /// Serve on this socket too.
    Open(TcpListener, Arc<Door>),
    /// Look at the last requests.
    Look(Box<dyn FnOnce(&Ring) + Send>),
    /// Let requests end, accept no more.
    Drain,
}

/// Why a server did not start.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Listen(SocketAddr, io::Error),
    /// A file or folder is not as it must be.
    File(PathBuf, io::Error),
    /// Another server uses the folder.
    InUse(PathBuf),
    /// Certificates, keys or roots.
    Tls(TlsError),
    /// Settings of the way to origins.
    Upstream(SettingsFault),
    /// A worker has nowhere to wait for its clients.
    Worker(io::Error),
    /// A thread cannot be started.
    Thread(io::Error),
    /// The disk store.
    Disk(OpenFault),
    /// The way to the collector of traces.
    Traces(io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Listen(address, error) if error.kind() == io::ErrorKind::AddrInUse => {
                write!(
                    f,
                    "{address} is in use: stop the other program, or choose an address with --listen (or --admin)"
                )
            }
            StartError::Listen(address, _) => write!(f, "cannot listen on {address}"),
            StartError::File(path, _) => write!(f, "cannot use {}", path.display()),
            StartError::InUse(path) => {
                write!(f, "another larder uses {}: stop it, or choose a folder with --store", path.display())
            }
            StartError::Tls(_) => f.write_str("the certificates are not usable"),
            StartError::Upstream(_) => f.write_str("the settings of [upstream] are not usable"),
            StartError::Worker(_) => f.write_str("cannot wait for clients: raise the open file limit"),
            StartError::Thread(_) => f.write_str("cannot start a thread"),
            StartError::Disk(_) => f.write_str("the disk store does not open"),
            StartError::Traces(_) => f.write_str("traces cannot be sent: check `otlp` in [tracing]"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StartError::Listen(_, error)
            | StartError::File(_, error)
            | StartError::Worker(error)
            | StartError::Thread(error) => Some(error),
            StartError::InUse(_) => None,
            StartError::Tls(error) => Some(error),
            StartError::Upstream(error) => Some(error),
            StartError::Disk(error) => Some(error),
            StartError::Traces(error) => Some(error),
        }
    }
}

impl Server {
    /// Opens everything that can fail, then starts the workers.
    pub fn start(plan: impl Into<Plan>) -> Result<Server, StartError> {
        let mut plan: Plan = plan.into();
        let folder = StoreFolder::of(&mut plan.config)?;
        let config = &plan.config;
        let roots = tls::roots(&config.upstream.extra_roots).map_err(StartError::Tls)?;
        let client_tls = tls::client_config(&roots).map_err(StartError::Tls)?;
        let doors = config.listens.iter().map(door).collect::<Result<Vec<_>, _>>()?;
        // Before clients can come, for it may take a moment. Its thread ends with the last of its senders.
        let (log, _writer) = open_log(config)?;
        let mut sockets = Vec::new();
        for listen in &config.listens {
            let bound = listen::bind_for(listen.address, config.workers);
            sockets.push(bound.map_err(|error| StartError::Listen(listen.address, error))?);
        }
        let addresses: Vec<SocketAddr> = sockets.iter().filter_map(|each| each.first()?.local_addr().ok()).collect();
        let admin_socket = config.admin.map(bind_admin).transpose()?;
        let admin = admin_socket.as_ref().and_then(|socket| socket.local_addr().ok());
        let disk = open_disk(config)?;
        let upstream = upstream_settings(config, Arc::clone(&client_tls));
        let mut shared = Shared::new(plan, roots, log, folder, disk);
        shared.admin = admin;
        shared.traces = Traces::open(&shared.config, &shared.via_name, client_tls).map_err(StartError::Traces)?;
        let shared = Arc::new(shared);
        let configured = shared.config.listens.iter().map(|listen| listen.address);
        let open = configured.zip(&addresses).zip(&doors).map(|((configured, &bound), door)| OpenDoor {
            configured,
            bound,
            door: Arc::clone(door),
        });
        shared.doors.lock().extend(open);
        shared.note_own_addresses(shared.doors.lock().iter());
        let mut server = Server { shared, addresses, admin, threads: Vec::new() };
        server.start_workers(sockets, &doors, &upstream)?;
        server.start_control(admin_socket)?;
        Ok(server)
    }

    fn start_workers(
        &mut self,
        mut sockets: Vec<Vec<TcpListener>>,
        doors: &[Arc<Door>],
        upstream: &upstream::Settings,
    ) -> Result<(), StartError> {
        for number in 0..self.shared.config.workers {
            let (tell, told) = unbounded_channel();
            self.shared.commands.lock().push(tell);
            let own = sockets.iter_mut().zip(doors).filter_map(|(each, door)| Some((each.pop()?, Arc::clone(door))));
            let own: Vec<_> = own.collect();
            let (shared, upstream) = (Arc::clone(&self.shared), upstream.clone());
            let work = move || start_worker(shared, number, upstream, own, told);
            let thread = std::thread::Builder::new().name(format!("worker-{number}")).spawn(work);
            self.threads.push(thread.map_err(StartError::Thread)?);
        }
        Ok(())
    }

    fn start_control(&mut self, admin: Option<TcpListener>) -> Result<(), StartError> {
        let socket = Some(self.shared.folder_taken.control_socket()?);
        let shared = Arc::clone(&self.shared);
        let (tell, told) = unbounded_channel();
        self.shared.commands.lock().push(tell);
        let work = move || control::run(&shared, admin, socket, told);
        let thread = std::thread::Builder::new().name("control".into()).spawn(work);
        self.threads.push(thread.map_err(StartError::Thread)?);
        Ok(())
    }

    /// Where clients are served, in the order of the configuration.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where the status page is.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// What all workers share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Lets nobody in any more, waits for requests to end (at most `timeouts.drain`) and stops.
    pub fn stop(mut self) {
        self.drain();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        if let Some(disk) = self.shared.cache.disk() {
            disk.close();
        }
        self.shared.log.finish();
        if let Some(traces) = &self.shared.traces {
            traces.finish();
        }
    }

    fn drain(&self) {
        self.shared.draining.store(true, Ordering::Relaxed);
        for worker in self.shared.commands.lock().iter() {
            let _ = worker.send(Command::Drain);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.drain();
    }
}

fn start_worker(
    shared: Arc<Shared>,
    number: usize,
    upstream: upstream::Settings,
    doors: Vec<(TcpListener, Arc<Door>)>,
    commands: UnboundedReceiver<Command>,
) {
    match Worker::new(shared, number, upstream) {
        Ok(worker) => worker.run(doors, commands),
        Err(error) => tracing::error!(%error, "a worker cannot start"),
    }
}

impl Shared {
    fn new(plan: Plan, roots: Roots, log: AccessLog, folder: StoreFolder, disk: Option<Arc<Store>>) -> Shared {
        let Plan { config, said, again } = plan;
        let seed = RandomState::new().hash_one("larder");
        let via_name = format!("larder-{:06x}", seed & 0xff_ffff);
        let via = [format!("1.0 {via_name}"), format!("1.1 {via_name}")];
        let cache = Cache::over(cache_settings(&config, seed), disk);
        Shared {
            pass: PassList::new(config.intercept.pass.clone()),
            run_policy: policy::Settings {
                unlabelled_file_seconds: config.policy.unlabelled_run.as_secs(),
                unlabelled_named_seconds: config.policy.unlabelled_run_named.as_secs(),
                ..cache.settings().policy.clone()
            },
            site_policy: site_policy(cache.settings().policy.clone()),
            cache,
            counters: Counters::default(),
            connections: AtomicUsize::new(0),
            worker_restarts: AtomicU64::new(0),
            control_restarts: AtomicU64::new(0),
            clients: Clients::default(),
            upstream: Mutex::default(),
            visitor_lists: Mutex::default(),
            history: History::default(),
            pulse: Pulse::default(),
            names: Names::default(),
            listening: Arc::new(tokio::sync::Semaphore::new(control::LISTENING_MAX)),
            counting: tokio::sync::Semaphore::new(1),
            looking: Arc::new(tokio::sync::Semaphore::new(LOOKS_MAX)),
            started: clock::wall(),
            draining: AtomicBool::new(false),
            via: via.clone(),
            answered_by: via.map(|via| format!("Via: {via}\r\nCache-Status: larder")),
            via_name,
            boundary_seed: RandomState::new().hash_one("boundary"),
            boundaries: AtomicU64::new(0),
            log,
            traces: None,
            roots,
            authority: Mutex::new(None),
            runs: Mutex::default(),
            runs_opened: AtomicU64::new(0),
            commands: Mutex::default(),
            folder_taken: folder,
            live: Live::new(config.clone()),
            own_addresses: Live::new(OwnAddresses::default()),
            admin: None,
            said: Mutex::new(said),
            reloads: reload::Counts::default(),
            again,
            doors: Mutex::default(),
            config,
        }
    }

    /// Our member of a `Via` list for a message that came in this version (RFC 9110 section 7.6.3).
    pub fn via(&self, received: Version) -> &str {
        match received {
            Version::Http10 => &self.via[0],
            Version::Http11 => &self.via[1],
        }
    }

    /// The lines by which an answer that came to us in this version says who has passed it on: `Via`, and `Cache-Status`
    /// as far as it is always the same.
    pub fn answered_by(&self, received: Version) -> &str {
        match received {
            Version::Http10 => &self.answered_by[0],
            Version::Http11 => &self.answered_by[1],
        }
    }

    /// A multipart boundary that no body can be made to contain beforehand.
    pub fn boundary(&self) -> String {
        let number = self.boundaries.fetch_add(1, Ordering::Relaxed);
        format!("larder-{:016x}", self.boundary_seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Who came, on all workers together.
    pub fn visitors(&self) -> BTreeMap<IpAddr, Visitor> {
        visitors::together(self.visitor_lists.lock().values())
    }

    /// Whether requests are served: all workers are there, and the server does not go down.
    pub fn is_ready(&self) -> bool {
        !self.draining.load(Ordering::Relaxed) && self.upstream.lock().len() == self.config.workers
    }

    /// Whether the server goes down.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Whether somebody reads the access log, and which texts its lines have.
    pub fn logs(&self, lines: &Lines) -> Option<TextsLogged> {
        self.log.texts(lines)
    }

    /// Puts a finished record where its readers look.
    pub fn tell(&self, tally: &Tally, run: Option<&Run>, mut record: Box<Record>) {
        tally.count(&record);
        if let Some(run) = run {
            run.count(&record);
        }
        if self.log.is_on() {
            self.log.line(&record, &self.names, &tally.lines);
        }
        if let (Some(traces), Some(sampled)) = (&self.traces, record.sampled.take()) {
            traces.end(*sampled, &record, &self.names, &tally.spans);
        }
        tally.ring.keep(record);
    }

    /// What `look` finds in the records of each worker, as far as these answer in time.
    pub async fn look<T: Send + 'static>(&self, look: impl Fn(&Ring) -> T + Clone + Send + 'static) -> Vec<T> {
        let asked = self.commands.lock().iter().map(|worker| self.ask(worker, look.clone())).collect::<Vec<_>>();
        let mut found = Vec::new();
        for answer in asked {
            // Who has no records, and who goes down, lets go of the question.
            if let Ok(Ok(answer)) = tokio::time::timeout(LOOK_WITHIN, answer).await {
                found.push(answer);
            }
        }
        found
    }

    fn ask<T: Send + 'static>(
        &self,
        worker: &UnboundedSender<Command>,
        look: impl FnOnce(&Ring) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (tell, told) = oneshot::channel();
        if let Ok(place) = Arc::clone(&self.looking).try_acquire_owned() {
            let look = Box::new(move |ring: &Ring| {
                let _place = place;
                let _ = tell.send(look(ring));
            });
            let _ = worker.send(Command::Look(look));
        }
        told
    }

    /// Log lines that were lost.
    pub fn log_lines_dropped(&self) -> u64 {
        self.log.dropped()
    }

    /// Opens the file of the access log anew, for those who moved it away.
    pub fn reopen_log(&self) {
        self.log.reopen();
    }

    /// Hands a worker's log lines and spans on.
    pub fn log_out(&self, tally: &Tally) {
        self.log.hand_over(&tally.lines);
        if let Some(traces) = &self.traces {
            traces.hand_over(&tally.spans);
        }
    }

    /// After an unsafe method that succeeded, what it may have changed is forgotten (RFC 9111 section 4.4).
    pub fn forget_unsafe(&self, method: &Method, ask: &Ask, response: &ResponseHead) {
        if !method.is_safe() {
            for changed in policy::invalidated(method, &ask.url, response) {
                let mut key = Vec::new();
                ask.key_for(&changed, &self.cache, &mut key);
                self.cache.invalidate(&key);
            }
        }
    }

    /// The local CA, made now if it was not needed before.
    pub fn authority(&self) -> Result<Arc<Authority>, TlsError> {
        let mut place = self.authority.lock();
        if let Some(authority) = &*place {
            return Ok(Arc::clone(authority));
        }
        let folder = self.config.authority_folder().unwrap_or_else(|| self.folder().join("ca"));
        let authority = Arc::new(Authority::open(&folder, clock::now())?);
        *place = Some(Arc::clone(&authority));
        Ok(authority)
    }

    /// The folder of the control socket and of what is written for runs; nobody else's while the server lives.
    fn folder(&self) -> &Path {
        &self.folder_taken.path
    }

    /// Opens an intercepting listener for one `larder run`.
    pub fn open_run(&self) -> Result<RunStarted, StartError> {
        let authority = self.authority().map_err(StartError::Tls)?;
        let ca_bundle = self.folder().join("ca-bundle.pem");
        let certificates = self.roots.certificates.iter().cloned().chain([authority.certificate().clone()]);
        tls::bundle::write(&ca_bundle, certificates, []).map_err(StartError::Tls)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let sockets =
            listen::bind_for(address, self.config.workers).map_err(|error| StartError::Listen(address, error))?;
        let proxy = sockets[0].local_addr().map_err(|error| StartError::Listen(address, error))?;
        let id = format!("run-{}", self.runs_opened.fetch_add(1, Ordering::Relaxed) + 1);
        let run = Arc::new(Run::new(id.clone()));
        let door = Arc::new(Door::of_run(Arc::clone(&run)));
        self.runs.lock().insert(id.clone(), OpenRun { run, door: Arc::clone(&door), bound: proxy });
        self.note_own_addresses(self.doors.lock().iter());
        self.open_on_workers(sockets, &door);
        Ok(RunStarted { id, proxy, ca_bundle })
    }

    /// Closes the listener of a run; `None` when there is no such run.
    pub fn close_run(&self, id: &str) -> Option<RunStats> {
        let open = self.runs.lock().remove(id)?;
        open.door.close();
        self.note_own_addresses(self.doors.lock().iter());
        Some(open.run.stats())
    }

    /// Where this server listens is out of reach for its own clients: noted before a listener opens. Whoever holds the
    /// doors calls it, so that the last word is the right one.
    pub(crate) fn note_own_addresses<'d>(&self, doors: impl IntoIterator<Item = &'d OpenDoor>) {
        let runs: Vec<SocketAddr> = self.runs.lock().values().map(|open| open.bound).collect();
        let doors = doors.into_iter().map(|open| open.bound);
        self.own_addresses.replace(doors.chain(runs).chain(self.admin).collect());
    }
}

/// The store as the configuration wants it.
pub(crate) fn cache_settings(config: &Config, seed: u64) -> cache::Settings {
    let defaults = cache::Settings::default();
    cache::Settings {
        memory_bytes: config.memory_bytes,
        memory_object_bytes_max: config.memory_object_bytes_max,
        object_bytes_max: config.object_bytes_max,
        window_bytes: defaults.window_bytes.min(config.memory_bytes / 8),
        policy: policy_settings(&config.policy),
        seed,
        ..defaults
    }
}

/// A worker in the middle of something long is not waited for.
const LOOK_WITHIN: Duration = Duration::from_secs(1);

/// Questions to workers that were not answered yet. A worker that is busy for long is asked no more: its answer is missing.
const LOOKS_MAX: usize = 1_024;

pub(crate) fn door(listen: &Listen) -> Result<Arc<Door>, StartError> {
    let tls = match listen.tls.as_slice() {
        [] => None,
        files => {
            let certificates = Certificates::load(files).map_err(StartError::Tls)?;
            Some(certificates.into_config().map_err(StartError::Tls)?)
        }
    };
    Ok(Arc::new(Door::of(listen, tls)))
}

/// A device that fails at the start must not keep the server from serving.
fn open_disk(config: &Config) -> Result<Option<Arc<Store>>, StartError> {
    match disk::open(config) {
        Err(OpenFault::Io(folder, error)) => {
            tracing::warn!("the disk store in {} does not open: {error}. Nothing is kept on disk", folder.display());
            Ok(None)
        }
        opened => opened.map_err(StartError::Disk),
    }
}

fn bind_admin(address: SocketAddr) -> Result<TcpListener, StartError> {
    let mut sockets = listen::bind_for(address, 1).map_err(|error| StartError::Listen(address, error))?;
    Ok(sockets.remove(0))
}

fn open_log(config: &Config) -> Result<(AccessLog, JoinHandle<()>), StartError> {
    let path = match config.log.as_ref().map(|log| &log.to) {
        Some(LogTo::File(path) | LogTo::Syslog(path)) => path.clone(),
        _ => PathBuf::from("the log"),
    };
    AccessLog::open(config.log.as_ref()).map_err(|error| StartError::File(path, error))
}

fn upstream_settings(config: &Config, tls: Arc<rustls::ClientConfig>) -> upstream::Settings {
    let (limits, timeouts, settings) = (&config.limits, &config.timeouts, &config.upstream);
    upstream::Settings {
        connect_timeout: timeouts.connect,
        first_byte_timeout: timeouts.first_byte,
        idle_timeout: timeouts.origin_idle,
        keep_alive: settings.idle,
        connections_per_origin_max: settings.connections_per_origin_max.div_ceil(config.workers),
        idle_per_origin_max: settings.idle_per_origin_max.div_ceil(config.workers),
        waiting_max: limits.waiting_per_origin_max.div_ceil(config.workers),
        client_share_percent: limits.origin_share_percent,
        unread_per_origin_max: settings.unread_fetches_per_origin_max.div_ceil(config.workers),
        unread_max: settings.unread_fetches_max.div_ceil(config.workers),
        head_limits: larder_wire::parse::HeadLimits {
            head_bytes_max: limits.head_bytes_max,
            target_bytes_max: limits.target_bytes_max,
            fields_max: limits.fields_max,
        },
        resolver: match settings.resolver {
            ResolverKind::Dns => ResolverChoice::Dns,
            ResolverKind::System => ResolverChoice::System,
        },
        memory: Arc::new(upstream::Memory::new(settings.dns_bytes_max)),
        ..upstream::Settings::new(tls)
    }
}

/// The rules for what sites bring.
pub fn site_policy(policy: policy::Settings) -> policy::Settings {
    policy::Settings { targeted: vec!["CDN-Cache-Control".to_owned()], ..policy }
}

/// The rules for what a forward proxy brings.
pub fn policy_settings(settings: &PolicySettings) -> policy::Settings {
    policy::Settings {
        mode: match settings.mode {
            crate::config::CacheMode::Shared => policy::Mode::Shared,
            crate::config::CacheMode::Private => policy::Mode::Private,
        },
        set_cookie: settings.set_cookie,
        heuristic_percent: settings.heuristic_percent,
        heuristic_max_seconds: settings.heuristic_max.as_secs(),
        unlabelled_seconds: settings.unlabelled.as_secs(),
        ..policy::Settings::default()
    }
}

/// The folder of one server: nobody else's for as long as this lives.
pub struct StoreFolder {
    path: PathBuf,
    _lock: File,
    /// What stands in for a folder that can't be used; it goes with the server.
    _temporary: Option<Temporary>,
}

impl StoreFolder {
    /// The configured one. Where there is none, or where it can't be written, a temporary one stands in and nothing is kept
    /// on disk: a cache without a store serves, one that does not start serves nobody.
    fn of(config: &mut Config) -> Result<StoreFolder, StartError> {
        let trouble = match config.store_folder().map(StoreFolder::take) {
            Some(Err(StartError::File(path, error))) => {
                format!("{} cannot be used: {error}; choose another folder with --store", path.display())
            }
            Some(taken) => return taken,
            None => {
                "neither HOME nor XDG_CACHE_HOME is set, so there is no folder for the store; name one with --store"
                    .to_owned()
            }
        };
        let temporary = Temporary::new().map_err(|error| StartError::File(std::env::temp_dir(), error))?;
        let path = temporary.path().join("store");
        tracing::warn!("{trouble}. Until then nothing is kept on disk, and {} stands in", path.display());
        config.store = Some(path.clone());
        if config.disk.folders.is_empty() {
            config.disk_bytes = Some(0);
        }
        let mut folder = StoreFolder::take(path)?;
        folder._temporary = Some(temporary);
        Ok(folder)
    }

    fn take(path: PathBuf) -> Result<StoreFolder, StartError> {
        let wrong = |error| StartError::File(path.clone(), error);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(wrong)?;
        let lock = File::create(path.join("larder.lock")).map_err(wrong)?;
        let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        rustix::fs::flock(&lock, operation).map_err(|_| StartError::InUse(path.clone()))?;
        Ok(StoreFolder { path, _lock: lock, _temporary: None })
    }

    fn control_socket(&self) -> Result<std::os::unix::net::UnixListener, StartError> {
        let path = crate::run::control::socket(&self.path);
        let _ = fs::remove_file(&path);
        let listener =
            std::os::unix::net::UnixListener::bind(&path).map_err(|error| StartError::File(path.clone(), error))?;
        // A folder that others made may be open, and so may the umask.
        let closed = fs::set_permissions(&path, fs::Permissions::from_mode(0o600));
        closed.and_then(|()| listener.set_nonblocking(true)).map_err(|error| StartError::File(path, error))?;
        Ok(listener)
    }
}

impl Drop for StoreFolder {
    fn drop(&mut self) {
        let _ = fs::remove_file(crate::run::control::socket(&self.path));
    }
}
