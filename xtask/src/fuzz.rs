//! Fuzz targets one after another, each for a given time. The targets live in `fuzz/`, which needs a nightly
//! compiler and cargo-fuzz; their corpora are played by the ordinary tests too.

use crate::shell::{self, Trouble};
use std::path::Path;
use std::process::Command;

/// Which targets, and how long each.
#[derive(clap::Args)]
pub struct Args {
    /// One target; without it, all.
    target: Option<String>,
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Processes at a time for a target.
    #[arg(long, default_value_t = 1)]
    jobs: u32,
}

/// Bytes of one input: more finds nothing in a parser whose limits are below.
const INPUT_BYTES_MAX: u32 = 64 << 10;

/// Fuzzes, and prints a row per target.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let root = shell::workspace()?;
    if shell::find_program("cargo-fuzz").is_none() {
        return Err(
            "cargo-fuzz is not installed: cargo install --locked cargo-fuzz, and rustup toolchain install nightly"
                .into(),
        );
    }
    let known = targets(&root)?;
    let chosen: Vec<&String> =
        known.iter().filter(|name| args.target.as_ref().is_none_or(|only| only == *name)).collect();
    if chosen.is_empty() {
        return Err(format!("no such target; there are: {}", known.join(", ")));
    }
    let mut rows = Vec::new();
    for target in chosen {
        println!("== {target}, {} s", args.seconds);
        let (found, runs) = fuzz(&root, target, args)?;
        rows.push((target, found, runs));
    }
    println!("\n== summary");
    for (target, found, runs) in &rows {
        println!("{target:16} {:10} {runs} runs", if *found { "A FINDING" } else { "no finding" });
    }
    let findings = rows.iter().filter(|(_, found, _)| *found).count();
    if findings == 0 { Ok(()) } else { Err(format!("{findings} targets have findings, see fuzz/artifacts")) }
}

fn targets(root: &Path) -> Result<Vec<String>, Trouble> {
    let list = shell::ask(cargo_fuzz(root).arg("list"))?;
    Ok(list.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect())
}

/// With the lowest priority: fuzzing fills what is idle.
fn cargo_fuzz(root: &Path) -> Command {
    let mut command = Command::new("nice");
    command.current_dir(root).args(["-n", "19", "cargo", "+nightly", "fuzz"]);
    // Set by `cargo run` for the stable compiler of this very program.
    for name in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC"] {
        command.env_remove(name);
    }
    command
}

/// Whether there was a finding, and how many inputs were tried.
fn fuzz(root: &Path, target: &str, args: &Args) -> Result<(bool, u64), Trouble> {
    let corpus = format!("fuzz/corpus/{target}");
    let seeds = format!("fuzz/seeds/{target}");
    std::fs::create_dir_all(root.join(&corpus)).map_err(|error| format!("making {corpus}: {error}"))?;
    let mut command = cargo_fuzz(root);
    command.args(["run", target, &corpus]);
    if root.join(&seeds).is_dir() {
        command.arg(&seeds);
    }
    command.args(["--jobs", &args.jobs.to_string(), "--"]);
    command.args([format!("-max_total_time={}", args.seconds), format!("-max_len={INPUT_BYTES_MAX}")]);
    command.args(["-print_final_stats=1", "-timeout=10", "-rss_limit_mb=2048"]);
    let (mut runs, mut last) = (0, 0);
    let went_well = shell::follow_errors(&mut command, |line| {
        if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
            runs += count.trim().parse::<u64>().unwrap_or(0);
        }
        last = progress(line).unwrap_or(last);
    })?;
    Ok((!went_well, if runs > 0 { runs } else { last }))
}

/// `#12345 DONE …`, in case that a job says no statistics.
fn progress(line: &str) -> Option<u64> {
    line.strip_prefix('#')?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_lines_are_read() {
        assert_eq!(progress("#4194304\tpulse  cov: 512 ft: 900"), Some(4_194_304));
        assert_eq!(progress("INFO: Seed: 1"), None);
    }
}
