//! Comparisons: of stores on disk in `disk`, of memory hits here: the server alone on core 0, the load and the origin on core 1, contestants
//! taken in turn within each round so that a drift of the machine meets all of them.
//!
//! The figure to compare is the server's CPU time per request: requests per second measure the load
//! generator as soon as the server is faster, and a shared machine moves them more than CPU time.

mod contestant;
mod disk;
mod disk_report;
mod measure;
mod report;

use crate::lab::{self, Lab};
use crate::shell::{self, Trouble};
use contestant::{Contestant, Kind};
use measure::{LOADS, Load, Sample};
use std::path::Path;
use std::process::Command;

/// Which comparison, and how long.
#[derive(clap::Args)]
pub struct Args {
    /// The contestants.
    #[arg(value_enum)]
    what: What,
    /// Alternated rounds: 7 for memory hits, 3 for stores on disk.
    #[arg(long)]
    rounds: Option<usize>,
    /// Length of each run.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Show the table only; otherwise that of `hits` or `disk` is written to docs/results/.
    #[arg(long)]
    dry: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// A fixed reply from a bare event loop: the least a server can need here.
    Limit,
    /// Larder, the peers and the limit.
    Hits,
    /// The packaged peers and the limit, without Larder.
    Peers,
    /// Fills and hits of stores on disk: Larder and packaged peers.
    Disk,
}

impl What {
    fn contestants(self) -> &'static [Kind] {
        match self {
            What::Limit => &[Kind::Limit],
            What::Hits => &[Kind::Larder, Kind::Nginx, Kind::Varnish, Kind::Limit],
            What::Peers => &[Kind::Nginx, Kind::Varnish, Kind::Limit],
            What::Disk => &[],
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            What::Limit => "limit",
            What::Hits => "hits",
            What::Peers => "peers",
            What::Disk => "disk",
        }
    }
}

/// The bodies that the origin has, by path.
pub const BODIES: [(&str, usize); 2] = [("/600", 600), ("/16k", 16_384)];

/// Runs a comparison, prints its table, and says whether any request went wrong.
pub fn run(args: &Args) -> Result<(), Trouble> {
    match args.what {
        What::Disk => compare_stores(args),
        What::Limit | What::Hits | What::Peers => compare_memory_hits(args),
    }
}

fn compare_stores(args: &Args) -> Result<(), Trouble> {
    shell::need_program("taskset")?;
    let root = shell::workspace()?;
    let (page, wrong) = disk::play(&root, args.rounds.unwrap_or(DISK_ROUNDS), args.seconds)?;
    if wrong > 0 {
        return Err(format!("{wrong} answers were wrong: no result"));
    }
    if args.dry { Ok(()) } else { publish(&root, args.what, &page) }
}

const HIT_ROUNDS: usize = 7;
const DISK_ROUNDS: usize = 3;

fn compare_memory_hits(args: &Args) -> Result<(), Trouble> {
    let rounds = args.rounds.unwrap_or(HIT_ROUNDS);
    for tool in ["wrk", "taskset", "nginx"] {
        shell::need_program(tool)?;
    }
    let root = shell::workspace()?;
    let kinds = args.what.contestants();
    contestant::build(&root, kinds)?;
    let mut lab = Lab::new()?;
    let origin = start_origin(&mut lab)?;
    let mut contestants = Vec::new();
    for kind in kinds {
        contestants.push(Contestant::start(*kind, &root, &mut lab, origin.port)?);
    }
    let before = measure::bodies(&contestants)?;
    let runs = play(rounds, args.seconds, &contestants, origin.id)?;
    if measure::bodies(&contestants)? != before {
        return Err("a contestant's bodies are not the same after the rounds: no result".into());
    }
    let title = format!("Memory hits: {}", args.what.as_str());
    let table = report::table(&title, rounds, args.seconds, &contestants, &runs);
    println!("{table}");
    let errors: u64 = runs.iter().map(|run| run.sample.errors).sum();
    if errors > 0 {
        return Err(format!("{errors} requests failed: no result"));
    }
    if args.dry || !matches!(args.what, What::Hits) {
        return Ok(());
    }
    publish(&root, args.what, &table)
}

fn publish(root: &Path, what: What, table: &str) -> Result<(), Trouble> {
    let date = shell::ask(Command::new("date").arg("+%F"))?;
    let folder = root.join("docs/results");
    let file = folder.join(format!("{}-{}.md", date.trim(), what.as_str()));
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, table));
    written.map_err(|error| format!("writing {}: {error}", file.display()))?;
    println!("written to {}", file.display());
    Ok(())
}

/// One run of a load against a contestant.
pub struct Run {
    /// Index into the contestants.
    pub contestant: usize,
    /// What was sent.
    pub load: Load,
    /// What came out.
    pub sample: Sample,
}

struct Origin {
    id: u32,
    port: u16,
}

fn start_origin(lab: &mut Lab) -> Result<Origin, Trouble> {
    for (path, len) in BODIES {
        // Different bytes at each place, so that a body cut or shifted is not the same.
        let body: Vec<u8> = (0..len).map(|at| b'a' + (at / 7 % 26) as u8).collect();
        lab.write(&format!("origin/root{path}"), body)?;
    }
    let port = lab::free_port()?;
    let root = lab.path().join("origin/root");
    let fill = [("port", port.to_string()), ("root", root.display().to_string())];
    let conf = lab::configuration(lab, "origin", include_str!("../../peers/origin.conf"), &fill)?;
    let id = lab.start("origin", contestant::on_core(1, "nginx")?.arg("-c").arg(conf), port)?;
    Ok(Origin { id, port })
}

fn play(rounds: usize, seconds: u64, contestants: &[Contestant], origin: u32) -> Result<Vec<Run>, Trouble> {
    let mut runs = Vec::new();
    for contestant in contestants {
        for load in LOADS {
            measure::sample(contestant, load, 1, origin)?;
        }
    }
    for round in 0..rounds {
        for load in LOADS {
            // Another one begins each round, and every second round goes backwards.
            let mut order: Vec<usize> = (0..contestants.len()).collect();
            order.rotate_left(round % contestants.len());
            if round % 2 == 1 {
                order.reverse();
            }
            for contestant in order {
                let sample = measure::sample(&contestants[contestant], load, seconds, origin)?;
                runs.push(Run { contestant, load, sample });
            }
        }
        println!("round {} of {}", round + 1, rounds);
    }
    Ok(runs)
}
