//! Chores in one language. Continuous integration calls what people call.

mod agents;
mod applications;
mod attack;
mod bench;
mod browser;
mod causes;
mod ci;
mod cluster;
mod conformance;
mod crash;
mod crowd;
mod dist;
mod endure;
mod fuzz;
mod http;
mod icap_echo;
mod lab;
mod law;
mod load;
mod misbehave;
mod model;
mod office;
mod origins;
mod overload;
mod parts;
mod peers;
mod processes;
mod products;
mod quick;
mod results;
mod same_bytes;
mod shell;
mod simulate;
mod small_memory;
mod stall;
mod tally;
mod test_program;
mod tidy;
mod tools;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The chores of this workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of the Larder workspace")]
struct Chores {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Everything that must hold before a change goes in: format, lints, tidy, documentation, tests, end to end.
    Ci(ci::Args),
    /// The checks that take less than a minute: format, tidy, lints, unit tests and one folder of scenarios.
    Quick(quick::Args),
    /// Fuzz targets one after another.
    Fuzz(fuzz::Args),
    /// House rules that the compiler does not know: arrows between modules, lengths, words, clock reads.
    Tidy(tidy::Args),
    /// Cacheoff on several machines, in network namespaces with shaped links: the figures of one process, a dead agent, a clock.
    Agents(agents::Args),
    /// Clients and origins that mean harm, and a good client beside them: memory, descriptors, hits and misses.
    Attack(attack::Args),
    /// A server whose surroundings fail in turn under load: standard error, log, names, disk, clock.
    Endure(endure::Args),
    /// A script that hangs, crashes, eats memory or forks without an end, and a healthy one beside it.
    Misbehave(misbehave::Args),
    /// An office: users, a group, a list, a limit of bandwidth, a helper and an ICAP service in one configuration.
    Office(office::Args),
    /// Real tools through `larder run`: the same files, and the second time from the store.
    Tools(tools::Args),
    /// Real applications in Python behind Larder: Flask, FastAPI and Django's admin in a real browser, large bodies.
    Applications(applications::Args),
    /// The page in a real browser: a walk through all of it, accessibility, silence of the console.
    Browser(browser::Args),
    /// Random requests with and without Larder: the same bytes by every way.
    SameBytes(same_bytes::Args),
    /// A mixed load: each miss has one cause, the same in the log, the metrics and `Cache-Status`, and one that fits.
    Causes(causes::Args),
    /// Random conversations, each answer judged by a model of the RFCs: who gets which bytes and fields, and how old.
    Model(model::Args),
    /// Conformance with the RFCs, case by case: Larder's results, and with `--peers` those of packaged caches beside
    /// them.
    Conformance(conformance::Args),
    /// Three nodes of a cluster and a server of NATS: the time until a purge is applied on all of them.
    Cluster(cluster::Args),
    /// A thousand clients miss one object at once: requests to the origin, time to the first byte, memory.
    Crowd(crowd::Args),
    /// A group of three origins while they are killed, slow and lying: errors, the p99, and recovery.
    Origins(origins::Args),
    /// More requests than their origin can answer: hits, steady replies, a client with few requests, low priority.
    Overload(overload::Args),
    /// Ranges out of a long object: the right bytes, and how many move from the origin.
    Parts(parts::Args),
    /// A site through caches with hardly any memory: nothing is fetched twice, and how much memory it takes.
    SmallMemory(small_memory::Args),
    /// Hits while the store is being filled: the late ones, and stalls.
    Stall(stall::Args),
    /// The whole server in memory, with clients, origins, time and faults drawn from seeds: each law holds at each step.
    Simulate(simulate::Args),
    /// All that is shipped: archive, packages of Debian and RPM, wheel, container image, with their sums.
    Dist(dist::Args),
    /// Power cuts and killed processes: everything is read back and judged.
    Crash(crash::Args),
    /// The process that `crash` kills.
    #[command(hide = true)]
    CrashChild(crash::ChildArgs),
    /// The newest versions of the caches that a contest compares, built from sources that are at hand.
    Products(products::Args),
    /// Memory hits: CPU time per request of Larder, packaged peers and the machine's limit, side by side.
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let outcome = match Chores::parse().chore {
        Chore::Ci(args) => ci::run(&args),
        Chore::Quick(args) => quick::run(&args),
        Chore::Agents(args) => agents::run(&args),
        Chore::Applications(args) => applications::run(&args),
        Chore::Attack(args) => attack::run(&args),
        Chore::Dist(args) => dist::run(&args),
        Chore::Endure(args) => endure::run(&args),
        Chore::Browser(args) => browser::run(&args),
        Chore::Tools(args) => tools::run(&args),
        Chore::Fuzz(args) => fuzz::run(&args),
        Chore::SameBytes(args) => same_bytes::run(&args),
        Chore::Bench(args) => bench::run(&args),
        Chore::Crash(args) => crash::run(&args),
        Chore::CrashChild(args) => crash::child(&args),
        Chore::Causes(args) => causes::run(&args),
        Chore::Conformance(args) => conformance::run(&args),
        Chore::Cluster(args) => cluster::run(&args),
        Chore::Crowd(args) => crowd::run(&args),
        Chore::Misbehave(args) => misbehave::run(&args),
        Chore::Model(args) => model::run(&args),
        Chore::Office(args) => office::run(&args),
        Chore::Origins(args) => origins::run(&args),
        Chore::Overload(args) => overload::run(&args),
        Chore::Products(args) => products::run(&args),
        Chore::Parts(args) => parts::run(&args),
        Chore::Simulate(args) => simulate::run(&args),
        Chore::SmallMemory(args) => small_memory::run(&args),
        Chore::Stall(args) => stall::run(&args),
        Chore::Tidy(args) => tidy::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("xtask: {trouble}");
            ExitCode::FAILURE
        }
    }
}
