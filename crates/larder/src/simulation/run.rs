//! One run of a plan, from the start of the server to the count of its records.

use super::client::Client;
use super::disk;
use super::laws;
use super::origin::Origins;
use super::plan::{Event, Plan};
use super::server::Simulated;
use super::world::{Violation, World};
use crate::clock;
use crate::in_memory::network;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use tokio::runtime::LocalOptions;
use tokio::time::{sleep, timeout};

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The first law that was broken.
    pub violation: Option<Violation>,
    /// All events, in order.
    pub trace: Vec<String>,
    /// Answers that clients got.
    pub answers: usize,
}

/// How often the laws of each moment are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(37);

/// Behind the last client, all time limits of the settings run out.
const SETTLES_WITHIN: Duration = Duration::from_secs(25);

/// Workers that were told to stop do so within `timeouts.drain` and a little more.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

/// The wall clock at the beginning: 22 November 2026.
const WALL: Duration = Duration::from_secs(1_795_305_600);

/// Plays a plan on this thread.
pub fn run(plan: &Plan) -> Outcome {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build_local(LocalOptions::default())
        .expect("a runtime");
    let (world, server) = runtime.block_on(play(plan, folder.path()));
    // This drops what is left of the tasks, as the end of a worker does.
    drop(runtime);
    laws::of_records(&world, &server.borrow());
    clock::simulate(None);
    Outcome { violation: world.violation(), answers: world.answers.get(), trace: world.take_trace() }
}

async fn play(plan: &Plan, folder: &Path) -> (Rc<World>, Rc<RefCell<Simulated>>) {
    clock::simulate(Some(WALL));
    let world = World::new(Rc::new(plan.clone()));
    let _network = network::install(Origins::new(&world));
    let server = Rc::new(RefCell::new(Simulated::start(plan, folder)));
    if let Some(disk) = plan.disk {
        let steps = std::mem::take(&mut server.borrow_mut().steps);
        tokio::task::spawn_local(disk::work(Rc::clone(&world), disk, steps));
    }
    sleep(Duration::from_millis(10)).await;
    let tasks_before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let observer = tokio::task::spawn_local(observe(Rc::clone(&world), Rc::clone(&server)));
    let events = tokio::task::spawn_local(happen(Rc::clone(&world), Rc::clone(&server)));
    let clients: Vec<_> = (0..plan.connections.len())
        .map(|number| tokio::task::spawn_local(visit(Rc::clone(&world), Rc::clone(&server), number)))
        .collect();
    for client in clients {
        if client.await.is_err() {
            world.broken("the simulation itself holds", "a client met a broken invariant");
        }
    }
    let _ = events.await;
    sleep(SETTLES_WITHIN).await;
    server.borrow().workers.iter().for_each(|worker| worker.env().upstreams.sweep());
    sleep(LOOK_EVERY).await;
    observer.abort();
    let _ = observer.await;
    if !world.is_draining.get() {
        laws::of_the_end(&world, &server.borrow(), tasks_before);
    }
    world.is_draining.set(true);
    if timeout(STOPS_WITHIN, stop(&server)).await.is_err() {
        world.broken("everything ends", "the workers do not stop");
    }
    (world, server)
}

#[allow(clippy::await_holding_refcell_ref, reason = "nobody else borrows the server any more")]
async fn stop(server: &RefCell<Simulated>) {
    server.borrow_mut().stop().await;
}

async fn observe(world: Rc<World>, server: Rc<RefCell<Simulated>>) {
    loop {
        sleep(LOOK_EVERY).await;
        laws::of_each_moment(&world, &server.borrow());
    }
}

async fn visit(world: Rc<World>, server: Rc<RefCell<Simulated>>, number: usize) {
    let plan = &world.plan.connections[number];
    sleep(Duration::from_millis(plan.at_millis)).await;
    if world.is_draining.get() {
        return;
    }
    world.trace(|| format!("client {number}: connects to worker {} as client {}", plan.worker, plan.client));
    let port = 20_000 + number as u16;
    let stream = server.borrow().connect(&world, plan.client, plan.worker, port, [plan.sends, plan.gets]);
    Client::new(&world, number, stream).play().await;
}

async fn happen(world: Rc<World>, server: Rc<RefCell<Simulated>>) {
    let mut events = world.plan.events.clone();
    events.sort_by_key(|(at, _)| *at);
    for (at, event) in events {
        sleep(Duration::from_millis(at).saturating_sub(world.time())).await;
        world.trace(|| format!("{event:?}"));
        let server = server.borrow();
        match event {
            Event::Change(object) => world.change(object),
            Event::Jump(seconds) => clock::jump(Duration::from_secs(seconds)),
            Event::Reload => {
                if let Err(report) = server.shared.reload() {
                    world.broken("the simulation itself holds", report);
                }
            }
            Event::PurgeAll => {
                use larder_cache::store::rules::{Force, Scope};
                let next = world.sent.borrow().len();
                let _ = server.shared.common.cache.purge([Scope::All], Force::Hard);
                world.purged.borrow_mut().iter_mut().for_each(|serial| *serial = next);
            }
            Event::Drain => {
                world.is_draining.set(true);
                server.shared.drain();
            }
        }
    }
}
