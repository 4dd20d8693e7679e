//! Comparisons: of stores on disk in `disk`, of all that a request costs in `table`, of Larder with itself in `curves`,
//! `features` and `workers`, of load generators in `generators`: the server alone on core 0, the load and the origin on core 1 (`workers` has both on both),
//! contestants taken in turn within each round so that a drift of the machine meets all of them.
//!
//! The figure to compare is the server's CPU time per request: requests per second measure the load
//! generator as soon as the server is faster, and a shared machine moves them more than CPU time.

mod blocked;
mod cells;
mod curves;
mod disk;
mod disk_report;
mod disk_results;
mod features;
mod field;
mod generators;
mod generators_page;
mod http2;
mod http3;
mod icap;
mod overheard;
mod profile;
mod proof;
mod reload;
mod report;
mod script_peers;
mod scripts;
mod table;
mod tool;
mod workers;

use crate::results;
use crate::shell::{self, Trouble};
use field::Kind;
pub use report::machine;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::{Path, PathBuf};
use table::Plan;

/// Which comparison, and how long.
#[derive(clap::Args)]
pub struct Args {
    /// The subject of the comparison.
    #[arg(value_enum)]
    what: What,
    /// Alternated rounds: 7, for curves and profile 5, for features and workers 15, for stores on disk and scripts 3.
    #[arg(long)]
    rounds: Option<usize>,
    /// Length of each run: 1 s, 2 s for stores on disk, 3 s for generators.
    #[arg(long)]
    seconds: Option<u64>,
    /// Rows of the table, by their keys; all without it.
    #[arg(long = "cell", num_args = 1..)]
    cells: Vec<String>,
    /// With `peers`, `hits` or `scripts`: an earlier build of Larder, which then plays alone beside the present one.
    #[arg(long, value_name = "PATH")]
    against: Option<PathBuf>,
    /// With `scripts` or `reload`: a build of Larder that is taken for the present one, in place of one made for this.
    #[arg(long, value_name = "PATH")]
    larder: Option<PathBuf>,
    /// With `scripts`: an interpreter beside which granian is installed, with which pages are compared.
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Show the page only; otherwise it is written to docs/results/.
    #[arg(long)]
    dry: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// A fixed reply from a bare event loop: the least a server can need here.
    Limit,
    /// The table's rows of memory hits.
    Hits,
    /// The whole table: Larder, packaged peers and the limit.
    Peers,
    /// Larder's hits as connections and objects grow, and the memory of both.
    Curves,
    /// Larder's hits with and without each feature.
    Features,
    /// Larder's hits by two workers that share a store, and by two that share nothing.
    Workers,
    /// Where the time of a hit of Larder goes, by `perf`.
    Profile,
    /// Whether wrk and the referee's `hammer` say the same of Larder and packaged peers.
    Generators,
    /// Fills and hits of stores on disk: Larder and packaged peers.
    Disk,
    /// Hooks of each stage, remembered decisions and pages of scripts, with the CPU time of their processes.
    Scripts,
    /// Refusals by a list of a million names and hits of 16 KB: Larder and Squid, with lists of their own and with squidGuard.
    Blocked,
    /// HTTP/2 with clients: Larder, nginx, HAProxy and H2O, asked by h2load.
    Http2,
    /// HTTP/3 with clients: Larder beside a bare server on the same library of QUIC.
    Http3,
    /// Bodies of 1 MB through an ICAP service and without, and a service that is killed under load.
    Icap,
    /// Hits while rules and a list of millions of names are read anew.
    Reload,
}

impl What {
    fn as_str(self) -> &'static str {
        match self {
            What::Limit => "limit",
            What::Hits => "hits",
            What::Peers => "peers",
            What::Curves => "curves",
            What::Features => "features",
            What::Workers => "workers",
            What::Profile => "profile",
            What::Generators => "generators",
            What::Disk => "disk",
            What::Scripts => "scripts",
            What::Blocked => "blocked",
            What::Http2 => "http2",
            What::Http3 => "http3",
            What::Icap => "icap",
            What::Reload => "reload",
        }
    }
}

const HITS: [&str; 4] = ["hit-600", "hit-16k", "hit-1m", "close-600"];
const ROUNDS: usize = 7;
const SECONDS: u64 = 1;
const CURVE_ROUNDS: usize = 5;
/// More than elsewhere: these differences are small.
const FEATURE_ROUNDS: usize = 15;
const DISK_ROUNDS: usize = 3;
/// Two builds then take less than two minutes.
const SCRIPT_ROUNDS: usize = 3;
const DISK_SECONDS: u64 = 2;
/// Of the referee's measured phase, whose clock has ticks of 10 ms.
const GENERATOR_SECONDS: u64 = 3;

/// Descriptors for nginx, and for ten thousand connections with as many to the origin.
const DESCRIPTORS: u64 = 262_144;

/// Raises the limit of open files for this process and the servers it starts: as far as it is let.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let wide =
        Rlimit { current: Some(DESCRIPTORS), maximum: Some(limit.maximum.map_or(DESCRIPTORS, |m| m.max(DESCRIPTORS))) };
    let all = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if setrlimit(Resource::Nofile, wide).is_err() {
        // Without the right to more it stays at what it was.
        setrlimit(Resource::Nofile, all).ok();
    }
}

/// Runs a comparison, prints its page, and says whether any request went wrong.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let root = shell::workspace()?;
    if args.rounds == Some(0) || args.seconds == Some(0) {
        return Err("at least one round of one second: nothing would be measured".into());
    }
    raise_descriptors();
    match args.what {
        What::Disk => compare_stores(args, &root),
        What::Curves => draw(args, &root, CURVE_ROUNDS, curves::play),
        What::Features => draw(args, &root, FEATURE_ROUNDS, features::play),
        What::Workers => draw(args, &root, FEATURE_ROUNDS, workers::play),
        What::Profile => draw(args, &root, CURVE_ROUNDS, profile::play),
        What::Blocked => draw(args, &root, ROUNDS, blocked::play),
        What::Reload => measure_reloads(args, &root),
        What::Http2 => draw(args, &root, ROUNDS, http2::play),
        What::Http3 => draw(args, &root, ROUNDS, http3::play),
        What::Icap => draw(args, &root, ROUNDS, icap::play),
        What::Generators => compare_generators(args, &root),
        What::Scripts => measure_scripts(args, &root),
        What::Peers => fill_the_table(args, &args.cells, None, &root),
        What::Hits => fill_the_table(args, &HITS.map(str::to_owned), None, &root),
        What::Limit => fill_the_table(args, &HITS.map(str::to_owned), Some(&[Kind::Limit]), &root),
    }
}

fn compare_stores(args: &Args, root: &Path) -> Result<(), Trouble> {
    shell::need_program("taskset")?;
    let (rounds, seconds) = (args.rounds.unwrap_or(DISK_ROUNDS), args.seconds.unwrap_or(DISK_SECONDS));
    let (page, wrong) = disk::play(root, rounds, seconds)?;
    if wrong > 0 {
        return Err(format!("{wrong} answers were wrong: no result"));
    }
    if args.dry { Ok(()) } else { results::publish(root, args.what.as_str(), &page) }
}

/// Larder alone.
fn draw(
    args: &Args,
    root: &Path,
    rounds: usize,
    play: fn(&Path, usize, u64) -> Result<String, Trouble>,
) -> Result<(), Trouble> {
    table::need_tools()?;
    let page = play(root, args.rounds.unwrap_or(rounds), args.seconds.unwrap_or(SECONDS))?;
    println!("{page}");
    if args.dry { Ok(()) } else { results::publish(root, args.what.as_str(), &page) }
}

/// The same caches by two generators.
fn compare_generators(args: &Args, root: &Path) -> Result<(), Trouble> {
    ["wrk", "taskset"].into_iter().try_for_each(|tool| shell::need_program(tool).map(drop))?;
    let (rounds, seconds) = (args.rounds.unwrap_or(ROUNDS), args.seconds.unwrap_or(GENERATOR_SECONDS));
    let page = generators::play(root, rounds, seconds)?;
    println!("{page}");
    if args.dry { Ok(()) } else { results::publish(root, args.what.as_str(), &page) }
}

/// Scripts, by one build or by two.
fn measure_scripts(args: &Args, root: &Path) -> Result<(), Trouble> {
    ["wrk", "taskset", "python3"].into_iter().try_for_each(|tool| shell::need_program(tool).map(drop))?;
    let programs = scripts::Programs {
        larder: args.larder.as_deref(),
        against: args.against.as_deref(),
        python: args.python.as_deref(),
    };
    let page = scripts::play(root, &programs, args.rounds.unwrap_or(SCRIPT_ROUNDS), args.seconds.unwrap_or(SECONDS))?;
    println!("{page}");
    // A page of another build must not take the place of that of this one.
    let is_of_this = args.larder.is_none();
    if args.dry || !is_of_this { Ok(()) } else { results::publish(root, args.what.as_str(), &page) }
}

/// Reloads, by one build.
fn measure_reloads(args: &Args, root: &Path) -> Result<(), Trouble> {
    let larder = shell::given_or_published_larder(root, args.larder.as_ref())?;
    let page = reload::play(&larder, args.seconds.unwrap_or(SECONDS))?;
    println!("{page}");
    if args.dry || args.larder.is_some() { Ok(()) } else { results::publish(root, args.what.as_str(), &page) }
}

fn fill_the_table(args: &Args, keys: &[String], only: Option<&'static [Kind]>, root: &Path) -> Result<(), Trouble> {
    let mut plan = Plan::of(keys, only, args.rounds.unwrap_or(ROUNDS), args.seconds.unwrap_or(SECONDS))?;
    if let Some(before) = &args.against {
        plan = plan.against(before.clone());
    }
    table::need_tools()?;
    println!("{}", plan.said());
    let results = plan.play(root)?;
    let command =
        format!("cargo xtask bench {}{}", args.what.as_str(), if args.against.is_some() { " --against …" } else { "" });
    let page = report::page(&command, &plan, &results);
    println!("{page}");
    // The page of some rows must not take the place of that of all.
    if args.dry || !args.cells.is_empty() || matches!(args.what, What::Limit) {
        return Ok(());
    }
    match args.against {
        Some(_) => results::publish(root, "against-before", &page),
        None => results::publish(root, args.what.as_str(), &page),
    }
}
