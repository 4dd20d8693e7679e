//! A server: creates its parts and starts its threads. Two servers can live in one process.

use crate::activation::PassedSockets;
use crate::bind::{self, SocketFile};
use crate::cache_settings::{cache_settings, run_policy, site_policy};
use crate::cluster::{self, Cluster};
use crate::config::{Config, Listen, LogTo, ResolverKind};
use crate::control::{self, Admin};
use crate::disk;
use crate::env::{Common, Policies};
use crate::listener::Listener;
use crate::lists::Keeper;
use crate::log::AccessLog;
use crate::mount::Mounts;
use crate::neighbours;
use crate::panics;
use crate::purge;
use crate::record::Query;
use crate::reload;
use crate::script::Nursery;
use crate::shared::{Command, OpenListener, Parts, Reread, Shared, StartError, StoreFolder, ValueSources, listener};
use crate::tls::served::CertificateStamp;
use crate::tls::{self, TrustedRoots};
use crate::trace::Traces;
use crate::upstream::{self, Groups, ResolverChoice};
use crate::worker::Worker;
use larder_cache::cache::Cache;
use larder_cache::store::{OpenFault, Store};
use std::hash::{BuildHasher, RandomState};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use tokio::sync::mpsc::Receiver;

/// A running server. Dropping it stops it at once; [`Server::stop`] lets requests end first.
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
    /// The thread `upkeep` ends with it.
    upkeep: Option<Sender<()>>,
}

/// The parameters that a server is started with.
pub struct Plan {
    /// The settings.
    pub config: Config,
    /// Where they were said.
    pub sources: ValueSources,
    /// Reads them again; without it there is no reload.
    pub reread: Option<Reread>,
    /// Listening sockets that the program was started with.
    pub passed: PassedSockets,
}

impl From<Config> for Plan {
    fn from(config: Config) -> Plan {
        Plan { config, sources: ValueSources::new(), reread: None, passed: PassedSockets::default() }
    }
}

impl Server {
    /// Opens everything that can fail, then starts the workers.
    pub fn start(plan: impl Into<Plan>) -> Result<Server, StartError> {
        let mut plan: Plan = plan.into();
        let folder = StoreFolder::of(&mut plan.config)?;
        panics::report_into(folder.path());
        let config = &plan.config;
        let roots = TrustedRoots::read(&config.upstream.extra_roots).map_err(StartError::Tls)?;
        let client_tls = tls::client_config(&roots).map_err(StartError::Tls)?;
        let files: Vec<CertificateStamp> = config.listens.iter().map(CertificateStamp::of).collect();
        let of_sites = Arc::default();
        let listeners = config.listens.iter().map(|listen| listener(listen, &of_sites));
        let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
        // The log is opened before clients can come, for that may take a moment. Its thread ends with the last sender.
        let (log, _writer) = open_log(config)?;
        let sockets = listening_sockets(config, std::mem::take(&mut plan.passed))?;
        let quic_sockets = quic_sockets(config, &sockets)?;
        let addresses: Vec<SocketAddr> = bound_addresses(config, &sockets);
        let admin_socket = config.admin.map(bind_admin).transpose()?;
        let admin = admin_socket.as_ref().and_then(|socket| socket.local_addr().ok());
        let neighbour_sockets = open_for_neighbours(config)?;
        let for_nodes = open_for_nodes(config)?;
        let disk = open_disk(config)?;
        let mounts = Arc::new(Mounts::default());
        let groups: Arc<Groups> = Arc::default();
        groups.have(&config.origins);
        let upstream = upstream::Settings {
            mounts: Arc::clone(&mounts),
            groups: Arc::clone(&groups),
            ..upstream_settings(config, Arc::clone(&client_tls))
        };
        let nursery = Nursery::new(Arc::clone(&mounts), folder.path().to_owned());
        let Plan { config, sources, reread, .. } = plan;
        let mut common = common(config, disk, log);
        common.site_certificates = of_sites;
        let (cluster, cluster_orders) = Cluster::open(&common.config.cluster, &common.cache).unzip();
        common.cluster = cluster;
        common.parent_healths = Arc::clone(&upstream.memory.parents);
        common.traces =
            Traces::open(&common.config, &common.via_name, Arc::clone(&client_tls)).map_err(StartError::Traces)?;
        common.people.fetch_with(Arc::clone(&client_tls));
        let people = common.people.prepare(&common.config).map_err(StartError::People)?;
        common.people.have(people, &common.config).map_err(StartError::Scripts)?;
        let list_keeper = Keeper::new(Arc::clone(&common.lists), folder.path(), Arc::clone(&client_tls));
        let country_file = common.config.access.country_file.as_deref();
        let lists = list_keeper.prepare(&common.config.lists, country_file).map_err(StartError::List)?;
        list_keeper.have(&common.config.lists, lists).map_err(StartError::Lists)?;
        let nodes = for_nodes.as_ref().map(|open| open.bound);
        let parts =
            Parts { common, sources, reread, roots, client_tls, folder, admin, nodes, nursery, list_keeper, groups };
        let shared = Arc::new(Shared::new(parts));
        note_listeners(&shared, &addresses, &listeners, files);
        shared.acme.have(&shared.common.config).map_err(StartError::Thread)?;
        shared.nursery.have(&shared.common.config.mounts).map_err(StartError::Scripts)?;
        let mut server = Server { shared, addresses, threads: Vec::new(), upkeep: None };
        server.start_cluster(cluster_orders)?;
        let (mut sockets, mut listeners) = (sockets, listeners);
        if let Some(ForNodes { sockets: of_nodes, listener, .. }) = for_nodes {
            sockets.push(of_nodes);
            listeners.push(listener);
        }
        server.start_workers(sockets, &listeners, &upstream)?;
        for (number, (socket, listener)) in quic_sockets.into_iter().zip(&listeners).enumerate() {
            if let Some(socket) = socket {
                server.shared.open_quic_on_worker(socket, listener, number);
            }
        }
        server.start_control(admin_socket)?;
        server.start_neighbours(neighbour_sockets)?;
        server.start_upkeep()?;
        Ok(server)
    }

    fn start_upkeep(&mut self) -> Result<(), StartError> {
        let (ends, ended) = channel();
        let shared = Arc::downgrade(&self.shared);
        let work = move || reload::keep_up(&shared, &ended);
        let thread = std::thread::Builder::new().name("upkeep".into()).spawn(work);
        self.threads.push(thread.map_err(StartError::Thread)?);
        self.upkeep = Some(ends);
        Ok(())
    }

    fn start_neighbours(&mut self, sockets: neighbours::Sockets) -> Result<(), StartError> {
        if sockets.are_closed() {
            return Ok(());
        }
        let (shared, commands) = (Arc::clone(&self.shared), self.shared.commands());
        let work = move || neighbours::run(&shared, sockets, commands);
        let thread = std::thread::Builder::new().name("neighbours".into()).spawn(work);
        self.threads.push(thread.map_err(StartError::Thread)?);
        Ok(())
    }

    /// The thread of the cluster ends when the server begins to drain: after two seconds what is left is validated before its use.
    fn start_cluster(&mut self, orders: Option<cluster::Orders>) -> Result<(), StartError> {
        let (Some(cluster), Some(orders)) = (self.shared.common.cluster.clone(), orders) else { return Ok(()) };
        let work = cluster_work(&self.shared, cluster, orders);
        let thread = std::thread::Builder::new().name("cluster".into()).spawn(work);
        self.threads.push(thread.map_err(StartError::Thread)?);
        Ok(())
    }

    fn start_workers(
        &mut self,
        mut sockets: Vec<Vec<TcpListener>>,
        listeners: &[Arc<Listener>],
        upstream: &upstream::Settings,
    ) -> Result<(), StartError> {
        for number in 0..self.shared.common.config.workers {
            let commands = self.shared.commands();
            let own = sockets.iter_mut().zip(listeners);
            let own: Vec<_> = own.filter_map(|(each, listener)| Some((each.pop()?, Arc::clone(listener)))).collect();
            let (shared, upstream) = (Arc::clone(&self.shared), upstream.clone());
            let work = move || start_worker(shared, number, upstream, own, commands);
            let thread = std::thread::Builder::new().name(format!("worker-{number}")).spawn(work);
            self.threads.push(thread.map_err(StartError::Thread)?);
        }
        Ok(())
    }

    fn start_control(&mut self, admin_socket: Option<TcpListener>) -> Result<(), StartError> {
        let socket = Some(self.shared.folder().control_socket()?);
        let admin = Arc::new(Admin::new(Arc::clone(&self.shared)));
        let pages = Arc::downgrade(&admin);
        let manager_page = move |path: &str| control::squid_page(&*pages.upgrade()?, path);
        let _ = self.shared.common.manager_pages.set(Box::new(manager_page));
        let commands = self.shared.commands();
        let work = move || control::run(&admin, admin_socket, socket, commands);
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
        self.shared.admin
    }

    /// The state that its workers and its admin side share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Accepts no more connections, waits for requests to end (at most `timeouts.drain`) and stops.
    pub fn stop(mut self) {
        self.shared.drain();
        drop(self.upkeep.take());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        self.shared.nursery.stop();
        self.shared.list_keeper.stop();
        self.shared.acme.stop();
        self.shared.common.people.stop();
        if let Some(disk) = self.shared.common.cache.disk() {
            disk.close();
        }
        self.shared.common.log.finish();
        if let Some(traces) = &self.shared.common.traces {
            traces.finish();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.drain();
    }
}

fn start_worker(
    shared: Arc<Shared>,
    number: usize,
    upstream: upstream::Settings,
    listeners: Vec<(TcpListener, Arc<Listener>)>,
    commands: Receiver<Command>,
) {
    match Worker::new(shared, number, upstream) {
        Ok(worker) => worker.run(listeners, commands),
        Err(error) => tracing::error!(%error, "a worker cannot start"),
    }
}

/// Notes the listeners of the configuration and where their sockets are.
fn note_listeners(
    shared: &Shared,
    addresses: &[SocketAddr],
    listeners: &[Arc<Listener>],
    files: Vec<CertificateStamp>,
) {
    let configured = shared.common.config.listens.iter();
    let open = configured.zip(addresses).zip(listeners).zip(files);
    let open = open.map(|(((listen, &bound), listener), files)| {
        listener.note_bound(bound, false);
        let (configured, file) = (listen.address, SocketFile::of(listen));
        let has_quic_socket = listener.quic.is_some();
        OpenListener { configured, bound, files, listener: Arc::clone(listener), file, has_quic_socket }
    });
    shared.listeners.lock().extend(open);
    shared.note_own_addresses(shared.listeners.lock().iter());
}

/// The address for other nodes of the cluster.
struct ForNodes {
    bound: SocketAddr,
    sockets: Vec<TcpListener>,
    listener: Arc<Listener>,
}

/// The sockets at which other nodes ask this one, where they do.
fn open_for_nodes(config: &Config) -> Result<Option<ForNodes>, StartError> {
    let Some(address) = config.cluster.listen.filter(|_| config.cluster.is_on()) else { return Ok(None) };
    let failed = |error| StartError::Listen(address.to_string(), error);
    let sockets = bind::bind_for(address, config.workers).map_err(failed)?;
    let bound = sockets.first().map_or(Ok(address), TcpListener::local_addr).map_err(failed)?;
    let listener = Arc::new(Listener::of_nodes(address, &config.cluster.advertise, &config.listens));
    listener.note_bound(bound, false);
    Ok(Some(ForNodes { bound, sockets, listener }))
}

#[cfg(feature = "cluster")]
fn cluster_work(shared: &Arc<Shared>, cluster: Arc<Cluster>, orders: cluster::Orders) -> impl FnOnce() + Send + use<> {
    let (shared, mut commands) = (Arc::clone(shared), shared.commands());
    let config = &shared.common.config;
    let (of_apart, of_load, of_keys) = (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(&shared));
    let around = cluster::Surroundings {
        settings: config.cluster.clone(),
        name: cluster::node_name(&config.cluster),
        address: cluster::node_address(config),
        home: shared.nodes.and_then(|bound| config.cluster.advertised(bound)),
        capacity: config.memory_bytes.saturating_add(config.disk_bytes.unwrap_or(0)),
        folder: shared.folder().path().to_owned(),
        cache: Arc::clone(&shared.common.cache),
        purge_keys: Box::new(move |text| purge::begin_by_keys(&of_keys.common, text)),
        apart: Box::new(move || of_apart.common.live.value().cluster.apart),
        load: Box::new(move || {
            let common = &of_load.common;
            (common.counters.requests.load(Ordering::Relaxed), common.live.edition())
        }),
    };
    let stop = async move {
        while let Some(command) = commands.recv().await {
            if matches!(command, Command::Drain) {
                break;
            }
        }
    };
    move || cluster::run(cluster, orders, around, stop)
}

/// A configuration with a cluster does not come here.
#[cfg(not(feature = "cluster"))]
fn cluster_work(_: &Arc<Shared>, _: Arc<Cluster>, _: cluster::Orders) -> impl FnOnce() + Send + use<> {
    || ()
}

/// The context of a server's requests.
fn common(config: Config, disk: Option<Arc<Store>>, log: AccessLog) -> Common {
    let seed = RandomState::new().hash_one("larder");
    let cache = Cache::over(cache_settings(&config, seed), disk);
    let policy = &cache.settings().policy;
    let policies = Policies { site: site_policy(policy.clone()), run: run_policy(&config, policy.clone()) };
    Common::new(config, cache, policies, log, format!("larder-{:06x}", seed & 0xff_ffff))
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

/// The sockets of each listener: new ones, or one that the program was started with.
fn listening_sockets(config: &Config, mut passed: PassedSockets) -> Result<Vec<Vec<TcpListener>>, StartError> {
    let open = |listen: &Listen| {
        let sockets = match &listen.activation {
            Some(name) => passed.for_listener(name, config.workers),
            None => bind::bind_listener(listen, config.workers),
        };
        sockets.map_err(|error| StartError::Listen(listen.name(), error))
    };
    let sockets = config.listens.iter().map(open).collect();
    for name in passed.names() {
        tracing::warn!(
            "no listener has `activation = {name:?}`: connections to that socket, which was passed, get no answer"
        );
    }
    sockets
}

/// The sockets of HTTP/3, at the ports of the listeners that speak it.
fn quic_sockets(config: &Config, sockets: &[Vec<TcpListener>]) -> Result<Vec<Option<UdpSocket>>, StartError> {
    let open = |(listen, sockets): (&Listen, &Vec<TcpListener>)| {
        let bound = bind::address_of(sockets, listen);
        let socket = listen.http3.then(|| bind::bind_quic(bound)).transpose();
        socket.map_err(|error| StartError::ListenUdp(bound, error))
    };
    config.listens.iter().zip(sockets).map(open).collect()
}

/// The addresses of the sockets of each listener; the one that stands for it where its socket has none.
fn bound_addresses(config: &Config, sockets: &[Vec<TcpListener>]) -> Vec<SocketAddr> {
    config.listens.iter().zip(sockets).map(|(listen, each)| bind::address_of(each, listen)).collect()
}

fn bind_admin(address: SocketAddr) -> Result<TcpListener, StartError> {
    let mut sockets = bind::bind_for(address, 1).map_err(|error| StartError::Listen(address.to_string(), error))?;
    Ok(sockets.remove(0))
}

fn open_log(config: &Config) -> Result<(AccessLog, JoinHandle<()>), StartError> {
    let path = match config.log.as_ref().map(|log| &log.to) {
        Some(LogTo::File(path) | LogTo::Syslog(path)) => path.clone(),
        _ => PathBuf::from("the log"),
    };
    AccessLog::open(config.log.as_ref(), Query::hidden_if(config.log_hides_query))
        .map_err(|error| StartError::File(path, error))
}

/// Unused connections to origins that this server keeps. One with TLS takes about so much memory, others far less.
fn idle_max(config: &Config) -> usize {
    const MEMORY_BYTES: u64 = 16 << 10;
    const AT_LEAST: u64 = 64;
    let fits = (config.memory_bytes / MEMORY_BYTES).max(AT_LEAST);
    config.upstream.idle_max.min(usize::try_from(fits).unwrap_or(usize::MAX))
}

/// The settings of connections to origins, of one worker.
pub fn upstream_settings(config: &Config, tls: Arc<rustls::ClientConfig>) -> upstream::Settings {
    let (limits, timeouts, settings) = (&config.limits, &config.timeouts, &config.upstream);
    upstream::Settings {
        connect_timeout: timeouts.connect,
        first_byte_timeout: timeouts.first_byte,
        idle_timeout: timeouts.origin_idle,
        keep_alive: settings.idle,
        connections_per_origin_max: settings.connections_per_origin_max.div_ceil(config.workers),
        idle_per_origin_max: settings.idle_per_origin_max.div_ceil(config.workers),
        idle_max: idle_max(config).div_ceil(config.workers),
        waiting_max: limits.waiting_per_origin_max.div_ceil(config.workers),
        delay_target: config.overload.origin_delay,
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

fn open_for_neighbours(config: &Config) -> Result<neighbours::Sockets, StartError> {
    let open = |address: Option<SocketAddr>| {
        let opened = address
            .map(|address| neighbours::open(address).map_err(|error| StartError::Listen(address.to_string(), error)));
        opened.transpose()
    };
    Ok(neighbours::Sockets { icp: open(config.neighbours.icp)?, htcp: open(config.neighbours.htcp)? })
}
