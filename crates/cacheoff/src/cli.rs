//! The command line.

use crate::stop;
use clap::Parser;
use std::process::ExitCode;

/// The referee for web caches.
#[derive(Parser)]
#[command(name = "cacheoff", version)]
enum Cli {
    /// Plays a workload against one cache, or against none
    Run(crate::run::command::RunArgs),
    /// Plays workloads against several caches in alternation
    Contest(ContestLine),
    /// Plays the whole sequence of a cache-off against one living cache after the other
    Official(crate::official::command::OfficialArgs),
    /// Finds the highest rate at which a bound holds
    Peak(crate::run::peak::PeakArgs),
    /// Proves that the referee plays what a workload declares, and adds nothing: one table for the tree
    Proof(crate::proof::ProofArgs),
    /// An entry of a contest, held for another generator
    #[command(hide = true)]
    Hold(crate::contest::hold::HoldArgs),
    /// Makes reports of ledgers
    Report(crate::report::command::ReportArgs),
    /// Makes and checks signed bundles of results
    Bundle(crate::bundle::command::BundleArgs),
    /// Kills a cache and measures how long it takes to serve again
    Kill(crate::kill::command::KillArgs),
    /// Cuts the power under the store of a cache and measures what is left
    PowerCut(crate::power_cut::command::PowerCutArgs),
    /// Measures what the generator itself can do, beside wrk and ab
    Ceiling(crate::ceiling::CeilingArgs),
    /// The fixed responder of `ceiling`
    #[command(hide = true)]
    Responder(crate::ceiling::ResponderArgs),
    /// Plays a part of a run on several machines, for a coordinator that has the token
    Agent(crate::run::agents::AgentArgs),
    /// Merges the ledgers of the agents of one run
    Merge(crate::merge::MergeArgs),
    /// Records the load of a cache at work
    Record(crate::record::command::RecordArgs),
    /// Looks at TIME-WAIT
    Msl(crate::msl::MslArgs),
    /// Explains a workload in English and says what an ideal cache would do with it
    Check(crate::plan::command::CheckArgs),
    /// Replays a log or trace through reference policies, without a network
    Simulate(crate::simulate::command::SimulateArgs),
    /// Lists the workloads that come with the program, or prints the file of one
    List(crate::list::ListArgs),
}

#[derive(clap::Args)]
struct ContestLine {
    #[command(flatten)]
    contest: crate::contest::command::ContestArgs,
    /// Requests per second at peak
    #[arg(long)]
    peak: Option<f64>,
    /// Phases are so many times as long
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Seed of the first round; each later round has the next one
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the command line.
pub fn main() -> ExitCode {
    let done = match Cli::parse() {
        Cli::Run(args) => stop::with_signals(|| args.run()),
        Cli::Contest(line) => stop::with_signals(|| {
            let cores = line.contest.own_cores();
            let mut play = |heat: &crate::contest::Heat<'_>| {
                // A seed for each round, the same for all entries.
                let seed = line.seed.wrapping_add(u64::from(heat.round.saturating_sub(1)));
                if heat.discipline.asks_for_pages() {
                    return crate::pages::command::heat(heat, line.peak, line.scale, seed, &cores);
                }
                crate::run::command::heat(heat, line.peak, line.scale, seed, &cores)
            };
            let facts = |discipline: &crate::contest::Discipline| match discipline.asks_for_pages() {
                true => crate::pages::command::facts(discipline, line.peak, line.scale),
                false => crate::run::command::facts(discipline, line.peak, line.scale),
            };
            let kill = &mut |discipline: &crate::contest::Discipline,
                             spec: &crate::contest::EntrySpec,
                             post: &crate::contest::Post,
                             round: u32| match discipline.cuts_power() {
                true => crate::power_cut::command::cut_entry(discipline, spec, post, round),
                false => crate::kill::command::kill_entry(spec, post),
            };
            let check = |discipline: &crate::contest::Discipline| match discipline.cuts_power() {
                true => crate::power_cut::command::check(discipline),
                false if discipline.asks_for_pages() => crate::pages::command::check(discipline, line.peak, line.scale),
                false => crate::run::command::check(discipline, line.peak, line.scale),
            };
            line.contest.run(&mut crate::contest::Players { play: &mut play, kill, facts: &facts }, &check)
        }),
        Cli::Official(args) => stop::with_signals(|| args.run()),
        Cli::Peak(args) => stop::with_signals(|| args.run()),
        Cli::Proof(args) => stop::with_signals(|| args.run()),
        Cli::Hold(args) => args.run(),
        Cli::Report(args) => args.run(),
        Cli::Bundle(args) => args.run(),
        Cli::Kill(args) => stop::with_signals(|| args.run()),
        Cli::PowerCut(args) => stop::with_signals(|| args.run()),
        Cli::Ceiling(args) => stop::with_signals(|| args.run()),
        Cli::Responder(args) => args.run(),
        Cli::Agent(args) => stop::with_signals(|| args.run()),
        Cli::Merge(args) => args.run(),
        Cli::Record(args) => stop::with_signals(|| args.run()),
        Cli::Msl(args) => stop::with_signals(|| args.run()),
        Cli::Check(args) => args.run(),
        Cli::Simulate(args) => args.run(),
        Cli::List(args) => args.run(),
    };
    done.unwrap_or_else(|reason| {
        eprintln!("cacheoff: {reason}");
        ExitCode::from(2)
    })
}
