//! The table of a comparison, as Markdown.

use super::Run;
use super::contestant::Contestant;
use super::measure::{LOADS, Load, Sample};
use std::fmt::Write;

/// A run in which others took more than this is left out where at least two quiet ones are left.
const QUIET_CORES_MAX: f64 = 0.15;

/// All loads, each with a row per contestant; ratios are to the first one.
pub fn table(title: &str, rounds: usize, seconds: u64, contestants: &[Contestant], runs: &[Run]) -> String {
    let mut text = format!("# {title}\n\n{}\n\n", conditions(rounds, seconds));
    for contestant in contestants {
        writeln!(text, "- {}: {}", contestant.kind.as_str(), contestant.version).ok();
    }
    for load in LOADS {
        writeln!(text, "\n## {}\n", load.name).ok();
        text.push_str("| server | µs CPU a request | best | kernel | ratio | requests/s | p50 ms | p99 ms | noise | runs | errors |\n");
        text.push_str("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
        for (number, contestant) in contestants.iter().enumerate() {
            text.push_str(&row(contestant.kind.as_str(), &of(runs, number, load), &of(runs, 0, load)));
        }
    }
    text
}

fn of(runs: &[Run], contestant: usize, load: Load) -> Vec<Sample> {
    runs.iter().filter(|run| run.contestant == contestant && run.load == load).map(|run| run.sample).collect()
}

fn row(name: &str, samples: &[Sample], first: &[Sample]) -> String {
    let quiet = quiet(samples);
    let median_of = |pick: fn(&Sample) -> f64| median(quiet.iter().map(|at| pick(&samples[*at])).collect());
    // Round by round, so that a slow drift of the machine cancels.
    let ratio = median(quiet.iter().map(|at| samples[*at].cpu_micros / first[*at].cpu_micros).collect());
    let best = samples.iter().map(|sample| sample.cpu_micros).fold(f64::INFINITY, f64::min);
    let errors: u64 = samples.iter().map(|sample| sample.errors).sum();
    let no_hits = if median_of(|sample| sample.origin_micros) > 1.0 { " (the origin was asked)" } else { "" };
    format!(
        "| {name}{no_hits} | {:.2} | {best:.2} | {:.0} % | {ratio:.2} | {:.0} | {:.2} | {:.2} | {:.2} | {} of {} | {errors} |\n",
        median_of(|sample| sample.cpu_micros),
        median_of(|sample| sample.kernel_share) * 100.0,
        median_of(|sample| sample.rate),
        median_of(|sample| sample.median_millis),
        median_of(|sample| sample.p99_millis),
        median_of(|sample| sample.noise_cores),
        quiet.len(),
        samples.len(),
    )
}

/// The rounds to trust: the quiet ones, or all where fewer than two were.
fn quiet(samples: &[Sample]) -> Vec<usize> {
    let quiet: Vec<usize> = (0..samples.len()).filter(|at| samples[*at].noise_cores <= QUIET_CORES_MAX).collect();
    if quiet.len() > 1 { quiet } else { (0..samples.len()).collect() }
}

/// The middle, or between the two in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => values[len / 2],
        len => (values[len / 2 - 1] + values[len / 2]) / 2.0,
    }
}

/// Cores, processor and kernel.
pub fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = info.lines().filter(|line| line.starts_with("processor")).count();
    let name = model.map_or("unknown", |(_, name)| name);
    format!("{cores} cores, {name}, Linux {}", read("/proc/sys/kernel/osrelease").trim())
}

fn conditions(rounds: usize, seconds: u64) -> String {
    format!(
        "Server on core 0, wrk (1 thread, 64 connections) and the origin on core 1; {rounds} alternated rounds of \
         {seconds} s, medians. {}. Compare the CPU time: wrk itself is the limit of requests/s. \
         Ratio: CPU time to that of the first row, round by round. Noise: cores that other processes and the hypervisor \
         took; rounds above {QUIET_CORES_MAX} are left out where two quiet ones are left.",
        machine(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quiet_rounds() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
        let sample = |noise_cores| Sample {
            cpu_micros: 1.0,
            kernel_share: 0.5,
            rate: 1.0,
            median_millis: 1.0,
            p99_millis: 1.0,
            errors: 0,
            noise_cores,
            origin_micros: 0.0,
        };
        assert_eq!(quiet(&[sample(0.1), sample(0.5), sample(0.0)]), [0, 2]);
        assert_eq!(quiet(&[sample(0.1), sample(0.5), sample(0.6)]), [0, 1, 2]);
    }
}
