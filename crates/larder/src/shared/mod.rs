//! The state of a running server that its workers and its admin side share, and the commands to the workers.

mod folder;

pub use folder::StoreFolder;

use crate::acme;
use crate::bind::{self, SocketFile};
use crate::clock;
use crate::config::{Config, Listen, Loaded, ValueSource};
use crate::env::Common;
use crate::listener::{Listener, TlsOfListener};
use crate::lists::Keeper;
use crate::permit::OpenConnections;
use crate::record::{Network, Ring, Run, RunStats, Way};
use crate::run::control::RunStarted;
use crate::script::Nursery;
use crate::tls::clients::ClientTrust;
use crate::tls::interception::Interception;
use crate::tls::served::{CertificateStamp, ServedCertificate};
use crate::tls::server::Certificates;
use crate::tls::site_certificates::SiteCertificates;
use crate::tls::{self, TlsError, TrustedRoots};
use crate::upstream::{self, Groups, SettingsFault};
use crate::visitors::{self, Visitor};
use larder_cache::store::OpenFault;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

/// The state of one server.
pub struct Shared {
    /// The context of all requests.
    pub common: Arc<Common>,
    /// Where the settings in force were set.
    pub sources: Mutex<ValueSources>,
    /// Settings of before, until no worker holds them.
    pub retired: Mutex<Vec<Arc<Config>>>,
    /// Counts of reloads.
    pub reloads: ReloadCounts,
    /// Reads the configuration again; without it there is no reload.
    pub reread: Option<Reread>,
    /// Where the admin side listens.
    pub admin: Option<SocketAddr>,
    /// Where other nodes of the cluster ask this one.
    pub nodes: Option<SocketAddr>,
    /// The open listeners of the configuration.
    pub listeners: Mutex<Vec<OpenListener>>,
    /// Open client connections.
    pub connections: Arc<OpenConnections>,
    /// The local CA, and the hosts whose tunnels are not intercepted.
    pub interception: Arc<Interception>,
    /// The processes of applications in Python.
    pub nursery: Nursery,
    /// Keeps the lists as their sources are.
    pub list_keeper: Keeper,
    /// Keeps the certificates of sites.
    pub acme: acme::Keeper,
    /// The groups of origins.
    pub groups: Arc<Groups>,
    /// Counts of the questions of neighbouring caches.
    pub neighbours: NeighbourCounts,
    /// How often the admin side's thread met a broken invariant and began anew.
    pub control_restarts: AtomicU64,
    /// Statistics of connections to origins, by worker. A worker is listed once it serves.
    pub upstream: Mutex<BTreeMap<usize, upstream::Stats>>,
    /// The list of clients of each worker.
    pub visitor_lists: Mutex<BTreeMap<usize, Vec<(IpAddr, Visitor)>>>,
    /// When the server started.
    pub started: Duration,
    /// Limits the questions to workers that wait for an answer.
    questions: Arc<tokio::sync::Semaphore>,
    draining: AtomicBool,
    roots: TrustedRoots,
    runs: Mutex<HashMap<String, OpenRun>>,
    runs_opened: AtomicU64,
    commands: Mutex<Vec<Sender<Command>>>,
    folder: StoreFolder,
}

/// Where settings were set, by their names.
pub type ValueSources = BTreeMap<&'static str, ValueSource>;

/// Reads the configuration again; `Err` has all that is wrong with it.
pub type Reread = Box<dyn Fn() -> Result<Loaded, String> + Send + Sync>;

/// Counts of reloads.
#[derive(Debug, Default)]
pub struct ReloadCounts {
    /// Reloads that took effect.
    pub done: AtomicU64,
    /// Reloads that were refused; the settings before them stayed in force.
    pub refused: AtomicU64,
}

/// Counts of the questions of neighbouring caches, by their answers.
#[derive(Debug, Default)]
pub struct NeighbourCounts {
    /// Fresh responses are stored.
    pub hits: AtomicU64,
    /// None is.
    pub misses: AtomicU64,
    /// The rules deny the request, or the order to purge.
    pub denied: AtomicU64,
    /// Purged by order of a neighbour.
    pub cleared: AtomicU64,
    /// Datagrams that are no message of the protocol.
    pub unread: AtomicU64,
    /// Answers that took too long, and were not given.
    pub late: AtomicU64,
    /// Answers that met a broken invariant.
    pub restarts: AtomicU64,
    /// Datagrams of others than `neighbours.from`, which get no answer.
    pub strangers: AtomicU64,
}

/// A configured listener that is open.
pub struct OpenListener {
    /// Its address in the configuration.
    pub configured: SocketAddr,
    /// Its sockets' address, with the port that was free.
    pub bound: SocketAddr,
    /// The files of its certificates as they were before they were read.
    pub files: CertificateStamp,
    /// The listener.
    pub listener: Arc<Listener>,
    /// The file of its Unix socket, where it has one.
    pub file: Option<SocketFile>,
    /// Whether a worker has a socket of UDP for it: once it has spoken HTTP/3, also where it speaks that no more.
    pub has_quic_socket: bool,
}

struct OpenRun {
    run: Arc<Run>,
    listener: Arc<Listener>,
    bound: SocketAddr,
}

/// A command for a worker.
pub enum Command {
    /// Accept connections on this socket too.
    Open(TcpListener, Arc<Listener>),
    /// Serve HTTP/3 on this socket too.
    OpenQuic(UdpSocket, Arc<Listener>),
    /// Look at the last requests.
    Look(Box<dyn FnOnce(&Ring) + Send>),
    /// Let requests end, accept no more.
    Drain,
}

/// The parts of a server that [`Shared`] is made of.
pub struct Parts {
    /// The context of all requests.
    pub common: Common,
    /// Where the settings were set.
    pub sources: ValueSources,
    /// Reads the configuration again.
    pub reread: Option<Reread>,
    /// Certificates that origins are verified by.
    pub roots: TrustedRoots,
    /// TLS towards origins, which an authority of certificates is one of.
    pub client_tls: Arc<rustls::ClientConfig>,
    /// The folder of the control socket.
    pub folder: StoreFolder,
    /// Where the admin side listens.
    pub admin: Option<SocketAddr>,
    /// Where other nodes of the cluster ask this one.
    pub nodes: Option<SocketAddr>,
    /// The processes of applications in Python; none was started yet.
    pub nursery: Nursery,
    /// Keeps the lists; it has none yet.
    pub list_keeper: Keeper,
    /// The groups of origins.
    pub groups: Arc<Groups>,
}

impl Shared {
    /// A server without listeners and workers yet.
    pub fn new(parts: Parts) -> Shared {
        let Parts { common, sources, reread, roots, client_tls, folder, admin, nodes, nursery, list_keeper, groups } =
            parts;
        let config = &common.config;
        let authority_folder = config.authority_folder().unwrap_or_else(|| folder.path().join("ca"));
        let pass = config.intercept.pass.clone();
        let common = Arc::new(common);
        // Verdicts on requests for a challenge that came before it was opened hold no more.
        let opened = {
            let common = Arc::clone(&common);
            move || common.live.touch()
        };
        let of_sites = Arc::clone(&common.site_certificates);
        Shared {
            interception: Arc::new(Interception::new(authority_folder, pass)),
            connections: Arc::default(),
            sources: Mutex::new(sources),
            retired: Mutex::default(),
            reloads: ReloadCounts::default(),
            reread,
            admin,
            nodes,
            listeners: Mutex::default(),
            nursery,
            list_keeper,
            acme: acme::Keeper::new(of_sites, client_tls, opened, &folder.path().join("acme")),
            groups,
            control_restarts: AtomicU64::new(0),
            upstream: Mutex::default(),
            visitor_lists: Mutex::default(),
            started: clock::wall(),
            questions: Arc::new(tokio::sync::Semaphore::new(QUESTIONS_MAX)),
            neighbours: NeighbourCounts::default(),
            draining: AtomicBool::new(false),
            roots,
            runs: Mutex::default(),
            runs_opened: AtomicU64::new(0),
            commands: Mutex::default(),
            folder,
            common,
        }
    }

    /// The folder of the server.
    pub fn folder(&self) -> &StoreFolder {
        &self.folder
    }

    /// The clients of all workers together.
    pub fn visitors(&self) -> BTreeMap<IpAddr, Visitor> {
        visitors::together(self.visitor_lists.lock().values())
    }

    /// Whether requests are served: all workers are there, and the server does not stop.
    pub fn is_ready(&self) -> bool {
        let has_purges =
            self.common.cluster.as_ref().is_none_or(|cluster| {
                cluster.is_ready(self.common.cache.gate(), self.common.live.value().cluster.apart)
            });
        !self.is_draining() && has_purges && self.upstream.lock().len() == self.common.config.workers
    }

    /// Whether the server stops.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// A new queue of commands, for a worker or for the admin side.
    pub fn commands(&self) -> Receiver<Command> {
        let (send, receive) = channel(COMMANDS_MAX);
        self.commands.lock().push(send);
        receive
    }

    /// Tells all workers to accept no more connections and to let requests end.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        for worker in self.commands.lock().iter() {
            let _ = worker.try_send(Command::Drain);
        }
        // From here on nobody connects, and the next program may take the path. A reload that is under way ends first.
        self.listeners.lock().iter_mut().for_each(|open| drop(open.file.take()));
    }

    /// Applies `look` to the last requests of each worker, as far as the workers answer in time.
    pub async fn look<T: Send + 'static>(&self, look: impl Fn(&Ring) -> T + Clone + Send + 'static) -> Vec<T> {
        let asked = self.commands.lock().iter().map(|worker| self.ask(worker, look.clone())).collect::<Vec<_>>();
        let mut found = Vec::new();
        for answer in asked {
            // The admin side has no records, and a worker that stops drops the question.
            if let Ok(Ok(answer)) = tokio::time::timeout(LOOK_WITHIN, answer).await {
                found.push(answer);
            }
        }
        found
    }

    fn ask<T: Send + 'static>(
        &self,
        worker: &Sender<Command>,
        look: impl FnOnce(&Ring) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (send, receive) = oneshot::channel();
        if let Ok(permit) = Arc::clone(&self.questions).try_acquire_owned() {
            let look = Box::new(move |ring: &Ring| {
                let _permit = permit;
                let _ = send.send(look(ring));
            });
            give(worker, Command::Look(look));
        }
        receive
    }

    /// Opens a listener for one `larder run`: an intercepting one, or one that only is a mirror and needs no CA.
    pub fn open_run(&self, network: Network, way: Way) -> Result<RunStarted, StartError> {
        let ca_bundle = match way {
            Way::Proxy => Some(self.write_ca_bundle()?),
            Way::Mirror => None,
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let sockets = bind::bind_for(address, self.common.config.workers)
            .map_err(|error| StartError::Listen(address.to_string(), error))?;
        let proxy = sockets[0].local_addr().map_err(|error| StartError::Listen(address.to_string(), error))?;
        let id = format!("run-{}", self.runs_opened.fetch_add(1, Ordering::Relaxed) + 1);
        let run = Arc::new(Run::new(id.clone(), network));
        // It has no `[[listen]]` of its own: HTTP/2 is spoken where any other listener speaks it.
        let http2 = self.common.live.value().listens.iter().any(|listen| listen.http2);
        let listener = Arc::new(Listener::of_run(Arc::clone(&run), way, http2));
        listener.note_bound(proxy, false);
        self.runs.lock().insert(id.clone(), OpenRun { run, listener: Arc::clone(&listener), bound: proxy });
        self.note_own_addresses(self.listeners.lock().iter());
        self.open_on_workers(sockets, &listener);
        Ok(RunStarted { id, proxy, ca_bundle })
    }

    /// Writes the roots of the system and the certificate of the local CA to a file for clients.
    fn write_ca_bundle(&self) -> Result<PathBuf, StartError> {
        let authority = self.interception.authority().map_err(StartError::Tls)?;
        let ca_bundle = self.folder.path().join("ca-bundle.pem");
        let certificates = self.roots.wait().certificates.iter().cloned().chain([authority.certificate().clone()]);
        tls::bundle::write(&ca_bundle, certificates, []).map_err(StartError::Tls)?;
        Ok(ca_bundle)
    }

    /// Closes the listener of a run; `None` when there is no such run.
    pub fn close_run(&self, id: &str) -> Option<RunStats> {
        let open = self.runs.lock().remove(id)?;
        open.listener.close();
        self.note_own_addresses(self.listeners.lock().iter());
        Some(open.run.stats())
    }

    /// Has each worker accept connections on one of these sockets.
    pub fn open_on_workers(&self, sockets: Vec<TcpListener>, listener: &Arc<Listener>) {
        for (worker, socket) in self.commands.lock().iter().zip(sockets) {
            give(worker, Command::Open(socket, Arc::clone(listener)));
        }
    }

    /// Has one of the workers serve HTTP/3 on this socket; the number of the listener says which.
    pub fn open_quic_on_worker(&self, socket: UdpSocket, listener: &Arc<Listener>, number: usize) {
        let commands = self.commands.lock();
        let workers = self.common.config.workers.max(1);
        if let Some(worker) = commands.get(number % workers) {
            give(worker, Command::OpenQuic(socket, Arc::clone(listener)));
        }
    }

    /// Updates the addresses on which this server listens, which its clients may not reach through it; called before a listener
    /// opens. The caller holds the lock of the listeners, so that two updates can't overtake each other.
    pub fn note_own_addresses<'l>(&self, listeners: impl IntoIterator<Item = &'l OpenListener>) {
        let runs: Vec<SocketAddr> = self.runs.lock().values().map(|open| open.bound).collect();
        let listeners = listeners.into_iter().map(|open| open.bound);
        self.common.own_addresses.replace(listeners.chain(runs).chain(self.admin).chain(self.nodes).collect());
    }
}

/// Gives a worker a command other than `Drain`, which has the last place and so is not lost. The caller holds the lock of the
/// senders, so that nobody else takes that place meanwhile.
fn give(worker: &Sender<Command>, command: Command) {
    if worker.capacity() > 1 {
        let _ = worker.try_send(command);
    }
}

/// How long a worker's answer is waited for.
const LOOK_WITHIN: Duration = Duration::from_secs(1);

/// Questions to workers that were not answered yet. Beyond that a busy worker is not asked, and its answer is missing.
const QUESTIONS_MAX: usize = 1_024;

/// Commands that wait for one worker: as many questions as there may be, room for listeners that open meanwhile, and a place
/// for `Drain`.
const COMMANDS_MAX: usize = QUESTIONS_MAX + 1_024;

/// The listener of a table `[[listen]]`, with its certificates and, where it shows them, those of sites.
pub fn listener(listen: &Listen, of_sites: &Arc<SiteCertificates>) -> Result<Arc<Listener>, StartError> {
    let clients = ClientTrust::load(&listen.clients).map_err(StartError::Tls)?;
    let tls = match listen.is_tls() {
        false => None,
        true => {
            let mut certificates = Certificates::load(&listen.tls).map_err(StartError::Tls)?;
            if listen.site_certificates {
                certificates = certificates.and_of_sites(Arc::clone(of_sites));
            }
            let certificates = Arc::new(certificates);
            let config = certificates.config(clients.as_deref(), listen.http2).map_err(StartError::Tls)?;
            let quic = listen.http3.then(|| certificates.quic_config(clients.as_deref()));
            let quic = quic.transpose().map_err(StartError::Tls)?;
            Some(TlsOfListener { tls: config, quic, certificates })
        }
    };
    let read = listen.tls.iter().filter_map(|files| ServedCertificate::read(files).transpose());
    let served = read.collect::<Result<Vec<_>, _>>().map_err(StartError::Tls)?;
    let mut listener = Listener::of(listen, tls, clients);
    listener.served = served;
    listener.tell_ends();
    Ok(Arc::new(listener))
}

/// Why a server did not start.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Listen(String, io::Error),
    /// HTTP/3 can't be served at an address.
    ListenUdp(SocketAddr, io::Error),
    /// A file or folder is not as it must be.
    File(PathBuf, io::Error),
    /// Another server uses the folder.
    InUse(PathBuf),
    /// Certificates, keys or roots.
    Tls(TlsError),
    /// Settings of connections to origins.
    Upstream(SettingsFault),
    /// A worker can't create the descriptor of its idle connections.
    Worker(io::Error),
    /// A thread cannot be started.
    Thread(io::Error),
    /// The disk store.
    Disk(OpenFault),
    /// The connection to the collector of traces.
    Traces(io::Error),
    /// The files of logins.
    People(String),
    /// The thread or the folder of the processes of applications.
    Scripts(io::Error),
    /// A list that is a file can't be read.
    List(String),
    /// The thread of the lists.
    Lists(io::Error),
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
            StartError::ListenUdp(address, _) => write!(f, "cannot serve HTTP/3 at {address}, UDP"),
            StartError::File(path, _) => write!(f, "cannot use {}", path.display()),
            StartError::InUse(path) => {
                write!(f, "another larder uses {}: stop it, or choose a folder with --store", path.display())
            }
            StartError::Tls(_) => f.write_str("the certificates are not usable"),
            StartError::Upstream(_) => f.write_str("the settings of [upstream] are not usable"),
            StartError::Worker(_) => f.write_str("cannot wait for clients: raise the open file limit"),
            StartError::Thread(_) => f.write_str("cannot start a thread"),
            StartError::Disk(_) => f.write_str("the disk store does not open"),
            StartError::Scripts(_) => f.write_str("the applications of [[python]] cannot be started"),
            StartError::List(trouble) => f.write_str(trouble),
            StartError::Lists(_) => f.write_str("the lists of [[list]] cannot be kept"),
            StartError::People(trouble) => write!(f, "the logins are not usable: {trouble}"),
            StartError::Traces(_) => f.write_str("traces cannot be sent: check `otlp` in [tracing]"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StartError::Listen(_, error)
            | StartError::ListenUdp(_, error)
            | StartError::File(_, error)
            | StartError::Worker(error)
            | StartError::Thread(error) => Some(error),
            StartError::InUse(_) | StartError::List(_) | StartError::People(_) => None,
            StartError::Tls(error) => Some(error),
            StartError::Upstream(error) => Some(error),
            StartError::Disk(error) => Some(error),
            StartError::Traces(error) | StartError::Scripts(error) | StartError::Lists(error) => Some(error),
        }
    }
}
