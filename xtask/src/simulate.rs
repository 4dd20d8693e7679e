//! The simulation of the whole server for many seeds, or for one. It is a unit test of `larder`, because its seams exist in unit tests
//! only (docs/simulation.md); this chore says which seeds it plays.

use crate::shell::{self, Trouble};
use std::process::Command;

/// Which seeds.
#[derive(clap::Args)]
pub struct Args {
    /// How many seeds are played.
    #[arg(long)]
    seeds: Option<u64>,
    /// The first seed; alone, the only one, with its trace.
    #[arg(long)]
    seed: Option<u64>,
}

/// Seeds that are played when nothing is said.
const SEEDS: u64 = 10_000;

/// Plays the seeds; a red one is printed with what is left of its plan and its trace.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let root = shell::workspace()?;
    let seeds = args.seeds.unwrap_or(if args.seed.is_some() { 1 } else { SEEDS });
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["test", "--quiet", "-p", "larder", "--lib", "--"]);
    command.args(["simulation::tests::all_laws_hold_for_all_seeds", "--exact", "--nocapture"]);
    command.env("LARDER_SEED", args.seed.unwrap_or(0).to_string()).env("LARDER_SEEDS", seeds.to_string());
    shell::call(command.env("RUST_BACKTRACE", "0")).map_err(|_| "the simulation is red: see above".to_owned())
}
