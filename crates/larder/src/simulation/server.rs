//! The server of a run: all of it but its threads, its listening sockets and its admin side.

use super::disk;
use super::plan::Plan;
use super::world::World;
use crate::cache_settings::{cache_settings, run_policy, site_policy};
use crate::config::{Config, Loaded};
use crate::env::{Common, Policies};
use crate::in_memory::{MemoryStream, StreamSettings};
use crate::listen;
use crate::listener::Listener;
use crate::lists::Keeper;
use crate::log::AccessLog;
use crate::record::Query;
use crate::script::Nursery;
use crate::server::upstream_settings;
use crate::shared::{OpenListener, Parts, Shared, StoreFolder, listener};
use crate::socket::Socket;
use crate::tls::served::CertificateStamp;
use crate::tls::{self, Roots};
use crate::upstream::{RangePace, ResolverChoice};
use crate::worker::Worker;
use larder_cache::cache::Cache;
use larder_cache::store::Steps;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::JoinHandle;

/// The server of a run.
pub struct Simulated {
    /// The state that its workers share.
    pub shared: Arc<Shared>,
    /// Its workers.
    pub workers: Vec<Rc<Worker>>,
    /// The work of the store, where it has a disk.
    pub steps: Vec<Steps>,
    /// The access log.
    pub log: PathBuf,
    listener: Arc<Listener>,
    serving: Vec<JoinHandle<()>>,
}

/// Bodies are short here, and so are the times in which they come.
const RANGE_PACE: RangePace = RangePace {
    object_bytes_min: 20_000,
    window: Duration::from_millis(100),
    left_seconds_min: 0.2,
    chunk_seconds: 0.2,
    chunk_bytes_min: 2_000,
    chunk_bytes_max: 50_000,
    silent_max: Duration::from_millis(1_000),
    block_bytes: 1_000,
};

/// A line of the log.
const LINE: &str = "{id} {method} {url} {status} {outcome} {complete}";

fn config_text(plan: &Plan, log: &Path, reloaded: bool) -> String {
    let (top, tables) = plan.settings.split_first().expect("there is a first line");
    let log = format!("[log]\nto = \"{}\"\nformat = \"{LINE}\"", log.display());
    let text = [&[top.clone(), log], tables].concat().join("\n");
    if reloaded {
        text.replace("idle = \"3s\"", "idle = \"2s\"").replace("body = \"6s\"", "body = \"5s\"")
    } else {
        text
    }
}

fn load(text: &str) -> Result<Loaded, String> {
    Loaded::parse("simulation", text, &[]).map_err(|report| report.to_string())
}

/// It is costly to make, and no run uses it.
fn client_tls() -> Arc<rustls::ClientConfig> {
    static CONFIG: OnceLock<Arc<rustls::ClientConfig>> = OnceLock::new();
    let make = || tls::client_config(&Roots::none().into()).expect("a client without roots");
    Arc::clone(CONFIG.get_or_init(make))
}

impl Simulated {
    /// Starts the server of a plan in an empty folder.
    pub fn start(plan: &Plan, folder: &Path) -> Simulated {
        let log_path = folder.join("access.log");
        let text = config_text(plan, &log_path, false);
        let mut config = Config {
            admin: None,
            store: Some(folder.join("store")),
            disk_bytes: Some(plan.disk.map_or(0, |disk| disk.bytes)),
            workers: plan.workers,
            ..load(&text).unwrap_or_else(|report| panic!("{report}\n{text}")).config
        };
        let store_folder = StoreFolder::of(&mut config).expect("a folder");
        let (log, _writer) =
            AccessLog::open(config.log.as_ref(), Query::hidden_if(config.log_hides_query)).expect("a log");
        let (store, steps) = plan.disk.as_ref().map(disk::open).unzip();
        let cache = Cache::over(cache_settings(&config, plan.seed), store);
        let policy = cache.settings().policy.clone();
        let policies = Policies { site: site_policy(policy.clone()), run: run_policy(&config, policy) };
        let upstream = crate::upstream::Settings {
            resolver: ResolverChoice::Servers(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 53))]),
            range_pace: RANGE_PACE,
            hosts_file: folder.join("hosts"),
            ..upstream_settings(&config, client_tls())
        };
        let listens = config.listens.clone();
        let common = Common::new(config, cache, policies, log, "larder-simulated".to_owned());
        let again = config_text(plan, &log_path, true);
        let list_keeper = Keeper::new(Arc::clone(&common.lists), store_folder.path(), client_tls());
        let shared = Arc::new(Shared::new(Parts {
            common,
            sources: Default::default(),
            reread: Some(Box::new(move || load(&again))),
            roots: Roots::none().into(),
            client_tls: client_tls(),
            nursery: Nursery::new(Arc::clone(&upstream.mounts), store_folder.path().to_owned()),
            folder: store_folder,
            groups: Arc::clone(&upstream.groups),
            admin: None,
            nodes: None,
            list_keeper,
        }));
        let listener = listener(&listens[0], &shared.common.site_certificates).expect("a listener");
        let (configured, bound) = (listens[0].address, listens[0].address);
        shared.listeners.lock().push(OpenListener {
            configured,
            bound,
            files: CertificateStamp::default(),
            listener: Arc::clone(&listener),
            file: None,
            has_quic_socket: false,
        });
        shared.note_own_addresses(shared.listeners.lock().iter());
        let (mut workers, mut serving) = (Vec::new(), Vec::new());
        for number in 0..plan.workers {
            let commands = shared.commands();
            let worker = Worker::new(Arc::clone(&shared), number, upstream.clone()).expect("a worker");
            serving.push(tokio::task::spawn_local(Rc::clone(&worker).serve(Vec::new(), commands)));
            workers.push(worker);
        }
        Simulated { shared, workers, steps: steps.unwrap_or_default(), log: log_path, listener, serving }
    }

    /// Accepts a connection of a client; gives the client's end.
    pub fn connect(
        &self,
        world: &World,
        client: u8,
        worker: usize,
        port: u16,
        streams: [StreamSettings; 2],
    ) -> MemoryStream {
        let (near, far) = MemoryStream::pair(streams[0], streams[1]);
        world.accepts(far.observer());
        let address = SocketAddr::from((Ipv4Addr::new(10, 1, 0, client + 1), port));
        listen::begin(self.workers[worker].space(), &self.listener, Socket::simulated(far), address);
        near
    }

    /// Tells the workers to stop, and waits until they have.
    pub async fn stop(&mut self) {
        self.shared.drain();
        for serving in self.serving.drain(..) {
            let _ = serving.await;
        }
    }
}
