//! `cacheoff check` and the plan before a run.

use super::{Asked, Plan, explain};
use crate::workload::{Builtin, PageWorkload, Report, Workload, load, markdown};
use std::process::ExitCode;

/// Explains a workload in English and says what an ideal cache would do with it.
#[derive(clap::Args, Debug)]
pub struct CheckArgs {
    /// A workload that comes with the program, or a file
    #[arg(required_unless_present = "markdown")]
    workload: Option<String>,
    /// A variant of the workload
    #[arg(long)]
    variant: Option<String>,
    /// Requests per second at peak
    #[arg(long)]
    peak: Option<f64>,
    /// Phases are so many times as long: 0.01 plays 14 hours in 8 minutes
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Bytes of the cache under test, for workloads that fill it
    #[arg(long)]
    cache_bytes: Option<u64>,
    /// Knobs of the workload to change
    #[arg(long, value_name = "KNOB=VALUE")]
    set: Vec<String>,
    /// Print the reference of all knobs
    #[arg(long)]
    markdown: bool,
}

impl CheckArgs {
    /// Prints the explanation; the error is everything that is wrong.
    pub fn run(&self) -> Result<ExitCode, String> {
        if self.markdown {
            print!("{}", markdown());
            return Ok(ExitCode::SUCCESS);
        }
        let changes = self.set.iter().map(|given| {
            let (knob, value) = given.split_once('=').ok_or_else(|| format!("--set {given}: write KNOB=VALUE"))?;
            Ok((knob.trim().to_owned(), value.trim().to_owned()))
        });
        let changes = changes.collect::<Result<Vec<_>, String>>()?;
        let name = self.workload.as_deref().unwrap_or_default();
        let workload = find(name, self.variant.as_deref(), &changes)?;
        for (flag, value) in [("--scale", Some(self.scale)), ("--peak", self.peak)] {
            if value.is_some_and(|value| !(value > 0.0 && value <= 1e8)) {
                return Err(format!("{flag} {}: give a number above 0", value.unwrap_or_default()));
            }
        }
        let scaled = workload.scaled(self.scale);
        let asked = Asked { peak_per_s: self.peak, cache_bytes: self.cache_bytes };
        print!("{}", explain(&scaled.workload, &Plan::of(&scaled.workload, &asked)));
        for note in &scaled.notes {
            println!("\nscale: {note}");
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A workload that comes with the program, or one in a file.
pub fn find(name: &str, variant: Option<&str>, changes: &[(String, String)]) -> Result<Workload, String> {
    let said = |report: Report| report.to_string();
    if let Some(workload) = PageWorkload::named(name) {
        return Err(format!("{name} is a workload for application servers and no file: {}", workload.about));
    }
    if let Some(builtin) = Builtin::named(name) {
        return load(&format!("{name}.toml"), builtin.text, variant, changes).map_err(said);
    }
    let text = std::fs::read_to_string(name).map_err(|error| {
        format!("no workload {name} comes with the program (see cacheoff list), and as a file: {error}")
    })?;
    load(name, &text, variant, changes).map_err(said)
}
