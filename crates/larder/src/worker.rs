//! A worker: one thread, one runtime, its own sockets. A connection lives and dies on its worker.

use crate::allocator;
use crate::caught;
use crate::clock;
use crate::env::Env;
use crate::h1::{self, Workspace};
use crate::h2;
use crate::h3;
use crate::icap;
use crate::listen;
use crate::listener::Listener;
use crate::permit::WorkerConnections;
use crate::shared::{Command, Shared, StartError};
use crate::ticker::{TICK, Ticker};
use crate::upstream::{self, Upstreams};
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::LocalOptions;
use tokio::sync::mpsc::Receiver;

/// One worker of a server.
pub struct Worker {
    shared: Arc<Shared>,
    number: usize,
    env: Rc<Env>,
    space: Rc<Workspace>,
}

/// After so many ticks a worker publishes the statistics of its connections to origins, and its list of clients.
const PUBLISH_TICKS: u64 = 10;

/// How often a draining worker checks whether all connections have ended.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// Time for the error pages of requests that the end of the drain has ended.
const ERROR_PAGES_WAIT: Duration = Duration::from_secs(1);

impl Worker {
    /// Prepares the worker with this number, from 0; opens nothing.
    pub fn new(shared: Arc<Shared>, number: usize, settings: upstream::Settings) -> Result<Rc<Worker>, StartError> {
        let ticker = Ticker::new();
        let upstreams = Upstreams::on(settings, &ticker).map_err(StartError::Upstream)?;
        let env = Env::new(Arc::clone(&shared.common), number, ticker, upstreams);
        let connections = WorkerConnections::new(Arc::clone(&shared.connections));
        let interception = Arc::clone(&shared.interception);
        let space = Workspace::new(&env, connections, interception, h2::serve).map_err(StartError::Worker)?;
        Ok(Rc::new(Worker { shared, number, env, space }))
    }

    /// Serves until told to stop.
    pub fn run(self: Rc<Worker>, listeners: Vec<(TcpListener, Arc<Listener>)>, commands: Receiver<Command>) {
        let runtime =
            match tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
                Ok(runtime) => runtime,
                Err(error) => return tracing::error!(%error, "a worker has no runtime: raise the open file limit"),
            };
        runtime.block_on(Rc::clone(&self).serve(listeners, commands));
        // This drops the tasks of requests that are not over, and so finishes their records.
        drop(runtime);
        self.env.common.gather(&self.env.tally);
    }

    /// The context of the worker.
    #[cfg(test)]
    pub fn env(&self) -> &Rc<Env> {
        &self.env
    }

    /// The state of the worker's connections.
    #[cfg(test)]
    pub fn space(&self) -> &Rc<Workspace> {
        &self.space
    }

    /// Serves on the runtime of this thread until told to stop.
    pub async fn serve(
        self: Rc<Worker>,
        listeners: Vec<(TcpListener, Arc<Listener>)>,
        mut commands: Receiver<Command>,
    ) {
        let restarts = &self.env.common.worker_restarts;
        let worker = Rc::clone(&self);
        tokio::task::spawn_local(async move {
            caught::again(&worker.env.common.worker_restarts, || Rc::clone(&worker).keep_time()).await;
        });
        if let Err(error) = h1::idle::start(&self.space) {
            return tracing::error!(%error, "a worker can't wait for idle connections: raise the open file limit");
        }
        self.publish();
        if self.number == 0 {
            tokio::task::spawn_local(upstream::check_members(self.env.upstreams.clone()));
            let env = Rc::clone(&self.env);
            let services = move || env.config().icaps.iter().map(|icap| env.common.icap.of(icap)).collect();
            tokio::task::spawn_local(icap::look(services, self.env.upstreams.clone()));
        }
        for (socket, listener) in listeners {
            tokio::task::spawn_local(listen::accept(Rc::clone(&self.space), socket, listener));
        }
        while let Some(command) = commands.recv().await {
            match command {
                Command::Open(socket, listener) => {
                    tokio::task::spawn_local(listen::accept(Rc::clone(&self.space), socket, listener));
                }
                Command::OpenQuic(socket, listener) => {
                    tokio::task::spawn_local(h3::accept(Rc::clone(&self.space), socket, listener));
                }
                Command::Look(look) => caught::call(restarts, || look(&self.env.tally.ring)),
                Command::Drain => {
                    self.env.ticker.drain();
                    break;
                }
            }
        }
        self.wait_for_clients(self.env.config().timeouts.drain).await;
        // Requests that are not over end with an error page.
        self.env.ticker.end();
        self.env.hooks.give_up_requests();
        self.wait_for_clients(ERROR_PAGES_WAIT).await;
    }

    async fn wait_for_clients(&self, at_most: Duration) {
        let deadline = tokio::time::Instant::now() + at_most;
        while self.space.connections.count() > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    }

    /// Runs the coarse clock. With each tick the worker hands over its counters and log lines, so that no request has to write to
    /// memory that workers share.
    async fn keep_time(self: Rc<Worker>) {
        let common = &self.env.common;
        let (mut ticks, mut accounted) = (0, 0);
        loop {
            let (begun, passed) = (clock::instant(), self.env.ticker.next().await);
            let in_time = TICK.saturating_mul(u32::try_from(passed).unwrap_or(u32::MAX));
            self.env.note_delay(clock::instant().saturating_duration_since(begun).saturating_sub(in_time));
            ticks += passed;
            common.gather(&self.env.tally);
            common.cache.account_for_disk(clock::instant());
            let heads = self.space.heads_under_way.bytes() as u64;
            common.cache.account_for_others(accounted, heads);
            accounted = heads;
            allocator::give_back(common.config.memory_bytes);
            if ticks >= PUBLISH_TICKS {
                ticks = 0;
                self.publish();
            }
        }
    }

    fn publish(&self) {
        self.shared.upstream.lock().insert(self.number, self.env.upstreams.stats());
        self.shared.visitor_lists.lock().insert(self.number, self.space.connections.visitors.list());
    }
}
