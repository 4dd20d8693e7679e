//! The thread of the nursery.

use super::cgroups::ControlGroups;
use super::files::ScriptFolder;
use super::group::{Group, Means};
use super::orphans;
use super::process::{Event, Happened};
use crate::config::Mount;
use crate::mount::{Faulty, MountState, Mounts};
use larder_wire::Host;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::LocalOptions;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// How often files are looked at, and pauses end.
const TICK: Duration = Duration::from_millis(200);

/// How often the children of processes are counted: a script that starts others without an end makes hundreds meanwhile.
const COUNT_EVERY: Duration = Duration::from_millis(50);

/// Orders and events that may wait.
const QUEUE_MAX: usize = 1_024;

/// At the end, processes get so long beyond what their requests may take.
const STOP_WITHIN: Duration = Duration::from_secs(2);

/// Starts, watches and ends the processes of applications. Its thread begins with the first application.
pub struct Nursery {
    mounts: Arc<Mounts>,
    store: PathBuf,
    thread: Mutex<Option<Thread>>,
}

struct Thread {
    orders: mpsc::Sender<Order>,
    handle: JoinHandle<()>,
}

enum Order {
    /// These are the applications.
    Have(Vec<Arc<Mount>>),
    /// Take up files that have changed.
    Reload,
    /// Tell the applications, each with the number of its newest version.
    Tell(SyncSender<Vec<(Arc<MountState>, u64)>>),
    /// End all processes.
    Stop,
}

/// An application whose newest version is being loaded, or is known to be good or not.
pub struct Loading {
    /// The application.
    pub state: Arc<MountState>,
    /// The number of that version.
    pub generation: u64,
}

impl Nursery {
    /// A nursery without applications; the folder is the server's.
    pub fn new(mounts: Arc<Mounts>, store: PathBuf) -> Nursery {
        Nursery { mounts, store, thread: Mutex::new(None) }
    }

    /// The applications, as workers see them.
    pub fn mounts(&self) -> &Arc<Mounts> {
        &self.mounts
    }

    /// Has exactly these applications from now on. Fails where the thread or its folder can't be had; then nothing changes.
    pub fn have(&self, mounts: &[Arc<Mount>]) -> io::Result<()> {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            if mounts.is_empty() {
                return Ok(());
            }
            *thread = Some(self.begin()?);
        }
        if let Some(thread) = &*thread {
            // Requests that come before the nursery has heard of an application wait for its processes.
            let new = mounts.iter().filter(|mount| self.mounts.find(&mount.host).is_none());
            new.for_each(|mount| drop(self.mounts.add(Arc::clone(mount))));
            let _ = thread.orders.try_send(Order::Have(mounts.to_vec()));
        }
        Ok(())
    }

    /// Takes up files that have changed, and tries again what could not be loaded.
    pub fn reload(&self) {
        if let Some(thread) = &*self.thread.lock() {
            let _ = thread.orders.try_send(Order::Reload);
        }
    }

    /// The applications once all orders before this are carried out.
    pub fn loading(&self) -> Vec<Loading> {
        /// Orders are carried out at once; a nursery that is ending carries out none.
        const TOLD_WITHIN: Duration = Duration::from_secs(5);
        let (tell, told) = sync_channel(1);
        match &*self.thread.lock() {
            Some(thread) => drop(thread.orders.try_send(Order::Tell(tell))),
            None => return Vec::new(),
        }
        let all = told.recv_timeout(TOLD_WITHIN).unwrap_or_default();
        all.into_iter().map(|(state, generation)| Loading { state, generation }).collect()
    }

    /// Lets all processes end, and waits for it.
    pub fn stop(&self) {
        let Some(thread) = self.thread.lock().take() else { return };
        let _ = thread.orders.try_send(Order::Stop);
        drop(thread.orders);
        let _ = thread.handle.join();
    }

    fn begin(&self) -> io::Result<Thread> {
        let folder = ScriptFolder::below(&self.store)?;
        self.mounts.buffer_in(folder.path().to_owned());
        let (orders, ordered) = mpsc::channel(QUEUE_MAX);
        let mounts = Arc::clone(&self.mounts);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        // A runtime that can't be had here can't be had in the thread either.
        drop(runtime?);
        let work = move || {
            let options = LocalOptions::default();
            match tokio::runtime::Builder::new_current_thread().enable_all().build_local(options) {
                Ok(runtime) => runtime.block_on(run(mounts, folder, ordered)),
                Err(error) => tracing::error!(%error, "the nursery of scripts has no runtime"),
            }
        };
        let handle = std::thread::Builder::new().name("scripts".into()).spawn(work)?;
        Ok(Thread { orders, handle })
    }
}

async fn run(mounts: Arc<Mounts>, folder: ScriptFolder, mut orders: mpsc::Receiver<Order>) {
    let (events, mut happened) = mpsc::channel::<Event>(QUEUE_MAX);
    let (faulty, mut faults) = mpsc::channel::<Faulty>(QUEUE_MAX);
    let means = Rc::new(Means { folder, events, faulty, numbers: Cell::new(0), control_groups: ControlGroups::make() });
    let mut groups = Groups { mounts, means, by_host: BTreeMap::new(), leaving: Vec::new() };
    let (mut ticks, mut counts) = (interval(TICK), interval(COUNT_EVERY));
    counts.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stop_at = None;
    if let Err(error) = orphans::adopt() {
        tracing::warn!(%error, "children of scripts that outlive their process are not known as such");
    }
    loop {
        tokio::select! {
            Some(faulty) = faults.recv() => {
                groups.all().filter(|group| group.has(faulty.number)).for_each(|group| group.end_faulty(faulty));
            }
            Some(event) = happened.recv() => {
                let is_end = matches!(event.what, Happened::Ended(_));
                if let Some(group) = groups.all().find(|group| group.has(event.number)) {
                    group.take(event);
                }
                if is_end {
                    orphans::end_all_beside();
                }
            }
            order = orders.recv(), if stop_at.is_none() => match order {
                Some(Order::Have(mounts)) => groups.have(&mounts),
                Some(Order::Reload) => groups.by_host.values_mut().for_each(Group::reload),
                Some(Order::Tell(to)) => {
                    let versions = groups.by_host.values().map(|it| (Arc::clone(&it.state), it.state.newest()));
                    let _ = to.try_send(versions.collect());
                }
                Some(Order::Stop) | None => {
                    groups.all().for_each(Group::stop);
                    stop_at = Some(Instant::now() + STOP_WITHIN);
                }
            },
            _ = counts.tick() => groups.all().for_each(|group| {
                group.tell_those_that_end();
                group.end_closed();
                group.count_descendants();
            }),
            _ = ticks.tick() => {
                groups.all().for_each(Group::tick);
                orphans::end_all_beside();
                if let Ok(control_groups) = &groups.means.control_groups {
                    control_groups.tidy();
                }
            }
        }
        groups.leaving.retain(|group| !group.is_over());
        if let Some(at) = stop_at {
            if groups.all().all(|group| group.is_over()) {
                // A search beside this thread might not begin any more.
                orphans::end_all();
                return;
            }
            if Instant::now() >= at {
                groups.all().for_each(Group::kill);
            }
        }
    }
}

struct Groups {
    mounts: Arc<Mounts>,
    means: Rc<Means>,
    by_host: BTreeMap<Host, Group>,
    /// Those that are not configured any more and end.
    leaving: Vec<Group>,
}

impl Groups {
    fn all(&mut self) -> impl Iterator<Item = &mut Group> {
        self.by_host.values_mut().chain(&mut self.leaving)
    }

    fn have(&mut self, wanted: &[Arc<Mount>]) {
        let is_wanted = |host: &Host| wanted.iter().any(|mount| mount.host == *host);
        let gone: Vec<Host> = self.by_host.keys().filter(|host| !is_wanted(host)).cloned().collect();
        for host in gone {
            if let Some(mut group) = self.by_host.remove(&host) {
                group.stop();
                self.mounts.remove(&host);
                self.leaving.push(group);
            }
        }
        for mount in wanted {
            match self.by_host.get_mut(&mount.host) {
                Some(group) => group.configure(Arc::clone(mount)),
                None => {
                    let known = self.mounts.find(&mount.host);
                    let state = known.unwrap_or_else(|| self.mounts.add(Arc::clone(mount)));
                    let group = Group::start(Rc::clone(&self.means), Arc::clone(mount), state);
                    self.by_host.insert(mount.host.clone(), group);
                }
            }
        }
    }
}
