//! `cacheoff merge`: the ledgers of the agents of one run become one.

use crate::ledger::{Ledger, Outcome};
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Merges the ledgers of the agents of one run.
#[derive(clap::Args, Debug)]
pub struct MergeArgs {
    /// The ledgers that agents wrote
    #[arg(required = true, value_name = "LEDGER")]
    ledgers: Vec<PathBuf>,
    /// Where the whole is written
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

impl MergeArgs {
    /// Reads, merges, writes.
    pub fn run(&self) -> Result<ExitCode, String> {
        let parts = self.ledgers.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
        let whole = Ledger::merge(parts)?;
        let failed = |error| format!("{} cannot be written: {error}", self.output.display());
        let out = File::create_new(&self.output).map_err(failed)?;
        whole.write(BufWriter::new(out)).map_err(failed)?;
        match &whole.end.outcome {
            Outcome::Complete => {}
            Outcome::Interrupted => eprintln!("the run was ended before its last phase was over"),
            Outcome::Unfinished => eprintln!("the run has no end: an agent was killed"),
            Outcome::Failed(reason) => eprintln!("the run failed: {reason}"),
        }
        whole.end.invalid.iter().for_each(|reason| eprintln!("invalid: {reason}"));
        Ok(ExitCode::SUCCESS)
    }
}

fn read(path: &Path) -> Result<Ledger, String> {
    let failed = |reason: &dyn std::fmt::Display| format!("{}: {reason}", path.display());
    let file = File::open(path).map_err(|error| failed(&error))?;
    Ledger::read(BufReader::new(file)).map_err(|fault| failed(&fault))
}
