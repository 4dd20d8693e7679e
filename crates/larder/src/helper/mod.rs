//! Helpers: programs that speak the line protocols of Squid's helpers. A thread of its own starts their processes, replaces those that
//! end and asks them; workers put questions into a bounded queue ([`Pool`]) and wait for the answer without being blocked. Answers
//! are remembered for a time. The lines themselves are in `larder-people`.

mod child;
mod pool;
#[cfg(test)]
mod tests;

pub use pool::{Conversation, HelperTrouble, Pool, PoolCounts};

use crate::config::Helper;
use crate::script::environment_of;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::LocalOptions;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Orders that may wait.
const ORDERS_MAX: usize = 1_024;

/// At the end, processes get so long to end by themselves.
const STOP_WITHIN: Duration = Duration::from_secs(2);

/// The helpers of a server. The thread begins with the first one.
#[derive(Default)]
pub struct Helpers {
    pools: RwLock<HashMap<String, Arc<Pool>>>,
    thread: Mutex<Option<Thread>>,
}

struct Thread {
    orders: mpsc::Sender<Arc<Pool>>,
    handle: JoinHandle<()>,
}

impl Helpers {
    /// Has exactly these helpers from now on. All processes begin anew, since they have read files that may have changed; old ones
    /// answer what they were asked, and end. Fails where the thread can't be had; then nothing changes.
    pub fn have(&self, helpers: &[Arc<Helper>]) -> io::Result<()> {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            if helpers.is_empty() {
                return Ok(());
            }
            *thread = Some(begin()?);
        }
        let new: HashMap<_, _> =
            helpers.iter().map(|helper| (helper.name.clone(), Pool::new(Arc::clone(helper)))).collect();
        if let Some(thread) = &*thread {
            for pool in new.values() {
                let _ = thread.orders.try_send(Arc::clone(pool));
            }
        }
        let old = std::mem::replace(&mut *self.pools.write(), new);
        old.values().for_each(|pool| pool.stop());
        Ok(())
    }

    /// The helper with this name.
    pub fn find(&self, name: &str) -> Option<Arc<Pool>> {
        self.pools.read().get(name).map(Arc::clone)
    }

    /// All helpers, by their names.
    pub fn all(&self) -> Vec<Arc<Pool>> {
        let mut all: Vec<Arc<Pool>> = self.pools.read().values().map(Arc::clone).collect();
        all.sort_by(|a, b| a.config().name.cmp(&b.config().name));
        all
    }

    /// Lets all processes end, and waits for it.
    pub fn stop(&self) {
        self.pools.write().drain().for_each(|(_, pool)| pool.stop());
        let Some(Thread { orders, handle }) = self.thread.lock().take() else { return };
        drop(orders);
        let _ = handle.join();
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Why the program of a helper can't be started.
pub fn program_trouble(helper: &Helper) -> Option<String> {
    let name = helper.command.first()?;
    if name.contains('/') {
        let path = Path::new(name);
        return match (path.is_file(), may_execute(path)) {
            (true, true) => None,
            (true, false) => Some(format!("{name} can't be executed by the user that Larder runs as: `chmod a+x` it")),
            (false, _) => Some(format!("there is no program {name}: write its path into `command`")),
        };
    }
    let environment = environment_of(&helper.inherit, &helper.environment);
    let folders = environment.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let folders = folders.unwrap_or(OsStr::new("/bin:/usr/bin"));
    let is_there =
        std::env::split_paths(folders).map(|folder| folder.join(name)).any(|path| path.is_file() && may_execute(&path));
    (!is_there).then(|| format!("no folder of its PATH has a program {name}: write its path into `command`"))
}

fn may_execute(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

fn begin() -> io::Result<Thread> {
    let (orders, ordered) = mpsc::channel(ORDERS_MAX);
    let (begun, begins) = std::sync::mpsc::channel();
    let work = move || {
        let options = LocalOptions::default();
        match tokio::runtime::Builder::new_current_thread().enable_all().build_local(options) {
            Ok(runtime) => {
                let _ = begun.send(Ok(()));
                runtime.block_on(run(ordered));
            }
            Err(error) => drop(begun.send(Err(error))),
        }
    };
    let handle = std::thread::Builder::new().name("helpers".into()).spawn(work)?;
    begins.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
    Ok(Thread { orders, handle })
}

async fn run(mut orders: mpsc::Receiver<Arc<Pool>>) {
    let mut pools = JoinSet::new();
    while let Some(pool) = orders.recv().await {
        pools.spawn_local(child::supervise(pool));
        while pools.try_join_next().is_some() {}
    }
    let ended = async { while pools.join_next().await.is_some() {} };
    // Processes that do not end are killed with the tasks that hold them.
    let _ = tokio::time::timeout(STOP_WITHIN, ended).await;
}
