//! The laws of the server as a whole: those that hold at each moment, and those of the end, when all clients and origins are done.

use super::server::Simulated;
use super::world::World;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const LIMITS: &str = "limits hold";
const WANTED: &str = "no fetch goes on without a reader or a reason";
const ENDS: &str = "everything ends";
const RECORDS: &str = "one record per exchange";

/// A client that left is noticed within a second of `timeouts.half_closed`, and a tick.
const NOTICED_WITHIN: Duration = Duration::from_millis(3_500);

/// The laws that hold at each moment.
pub fn of_each_moment(world: &World, server: &Simulated) {
    let config = &server.shared.common.config;
    let many = |max: usize| max.div_ceil(config.workers);
    let open_max = many(config.upstream.connections_per_origin_max);
    let waiting_max = many(config.limits.waiting_per_origin_max);
    let unread_max = many(config.upstream.unread_fetches_max);
    for (number, worker) in server.workers.iter().enumerate() {
        let upstreams = &worker.env().upstreams;
        for origin in upstreams.stats().origins {
            let (open, idle, waiting) = (origin.open, origin.idle, origin.waiting);
            if open > open_max || waiting > waiting_max || idle > open {
                world.broken(LIMITS, format!("worker {number}: {origin:?}, permitted {open_max} and {waiting_max}"));
            }
            if waiting > 0 && open - idle < open_max && config.limits.origin_share_percent == 100 {
                world.broken("a free permit goes to the first who waits", format!("worker {number}: {origin:?}"));
            }
        }
        if upstreams.unread() > unread_max {
            world.broken(LIMITS, format!("worker {number}: {} fetches that nobody reads", upstreams.unread()));
        }
    }
    if world.open_clients() > server.shared.connections.count() {
        world.broken(LIMITS, "more connections are open than are counted");
    }
    fetches_are_wanted(world);
}

fn fetches_are_wanted(world: &World) {
    let wanted = world.waiting.borrow();
    for (number, fetch) in &*world.fetches.borrow() {
        let (waiting, last) = wanted[fetch.object];
        if waiting > 0 || last.max(fetch.since).elapsed() < NOTICED_WITHIN {
            continue;
        }
        // Bodies here are shorter than what is fetched to its end for the store alone (decision 005). Behind a stale answer the
        // object is fetched for the next client.
        let may_refresh = world.plan.objects[fetch.object].life.contains("stale-while-revalidate");
        let has_reason = if fetch.has_head { fetch.may_be_stored } else { may_refresh };
        if !has_reason {
            world.broken(WANTED, format!("fetch {number}: {fetch:?}"));
        }
    }
}

/// The laws of the end, before the server stops.
pub fn of_the_end(world: &World, server: &Simulated, tasks_before: usize) {
    for (number, worker) in server.workers.iter().enumerate() {
        let upstreams = &worker.env().upstreams;
        for origin in upstreams.stats().origins.iter().filter(|origin| origin.open + origin.waiting > 0) {
            world.broken(ENDS, format!("worker {number} still holds permits: {origin:?}"));
        }
        let held = (upstreams.unread(), worker.space().heads_under_way.bytes(), worker.space().connections.count());
        if held != (0, 0, 0) {
            world.broken(ENDS, format!("worker {number}: unread fetches, bytes of heads, connections: {held:?}"));
        }
    }
    let open = (world.open_clients(), server.shared.connections.count(), world.fetches.borrow().len());
    if open != (0, 0, 0) {
        world.broken(ENDS, format!("open streams of clients, connections that are counted, fetches: {open:?}"));
    }
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    if tasks > tasks_before {
        world.broken(ENDS, format!("{tasks} tasks in place of {tasks_before}"));
    }
}

/// The laws of the records, after the workers have stopped.
pub fn of_records(world: &World, server: &Simulated) {
    let common = &server.shared.common;
    server.workers.iter().for_each(|worker| common.gather(&worker.env().tally));
    common.log.finish();
    let counters = &common.counters;
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    // The next number of a worker says how many it gave.
    let begun: u64 = server.workers.iter().map(|worker| (worker.env().next_number().0 >> 12) - 1).sum();
    let kinds = [&counters.hits, &counters.misses, &counters.failures, &counters.refusals, &counters.tunnels]
        .map(of)
        .iter()
        .sum();
    let by_outcome: u64 = counters.measures.by_outcome().iter().map(|sums| sums.requests()).sum();
    let text = std::fs::read_to_string(&server.log).unwrap_or_default();
    let names: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    let counts = [begun, of(&counters.requests), kinds, by_outcome, text.lines().count() as u64, names.len() as u64];
    if counts.iter().any(|count| *count != counts[0]) {
        world.broken(RECORDS, format!("begun, counted, of each kind, of each outcome, lines, names: {counts:?}"));
    }
    let (answers, asked) = (world.answers.get() as u64, world.begun.get() + world.plan.connections.len());
    if begun < answers || begun > asked as u64 {
        world.broken(RECORDS, format!("{begun} records of {asked} requests and connections, {answers} answers"));
    }
    let broken = of(&counters.panics) + common.worker_restarts.load(Ordering::Relaxed);
    if broken > 0 {
        world.broken("no invariant breaks", format!("{broken} panics"));
    }
}
