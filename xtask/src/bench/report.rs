//! The page of the table, as Markdown: a row for each cell with its goals, then every contestant of every cell.

use super::cells::Cell;
use super::field::Kind;
use super::table::{Plan, Results};
use super::tool::{QUIET_CORES_MAX, Sample};
use std::fmt::Write;

/// The whole page.
pub fn page(command: &str, plan: &Plan, results: &Results) -> String {
    let mut text = format!("# CPU per request beside the peers and the limit\n\n{}\n\n", conditions(command, plan));
    for (kind, version) in &results.versions {
        writeln!(text, "- {}: {version}", kind.as_str()).ok();
    }
    for (kind, trouble) in &results.absent {
        let reason = trouble.lines().last().unwrap_or_default();
        writeln!(text, "- {}: did not start: {reason}", kind.as_str()).ok();
    }
    text.push_str("\n## The table\n\n");
    text.push_str("| cell | larder µs | best peer | ratio | goal | | limit | ratio | goal | | noise | errors |\n");
    text.push_str("|---|---:|---|---:|---:|---|---|---:|---:|---|---:|---:|\n");
    for (at, cell) in plan.cells.iter().enumerate() {
        text.push_str(&summary(plan, results, at, cell));
    }
    for (at, cell) in plan.cells.iter().enumerate() {
        writeln!(text, "\n## {} (`{}`)\n", cell.name, cell.key).ok();
        text.push_str(&details(results, at, cell));
    }
    text
}

fn conditions(command: &str, plan: &Plan) -> String {
    format!(
        "`{command}`. Server alone on core 0; load (wrk with one thread and 64 connections where the cell says nothing \
         else) and origin on core 1; a warm-up and {} alternated rounds of {} s, medians; {}. Figures are CPU time of the \
         server's processes per request, user and kernel, in µs. Ratio: Larder's to the other's, round by round, the \
         median. Noise: cores that other processes and the hypervisor took; a run above {QUIET_CORES_MAX} \
         is repeated once, and left out where two quiet ones are left. The best peer is the one with the lowest median. Larder writes its access log and \
         counts its metrics; the peers run without logs. Each contestant was asked twice before and after the rounds by \
         another client: the origin names each answer, so the same name twice is a hit, and the bodies were compared. The \
         look-up by itself: `cargo bench -p larder-cache --bench look_up`. Disk hits: 100 MB of \
         objects with their files in the page cache, memory tiers of 4 MB (Varnish: a file as its storage). Denied: Larder by \
         the client's address, the others by the path. Left \
         out: H2O (no cache), Squid and Apache (the slowest in each of these cells).",
        plan.rounds,
        plan.seconds,
        machine(),
    )
}

fn summary(plan: &Plan, results: &Results, at: usize, cell: &Cell) -> String {
    let own = samples(results, at, Kind::Larder);
    let peer = best_peer(results, at, cell);
    let limit = cell.field.iter().copied().find(|kind| matches!(kind, Kind::Limit | Kind::Relay));
    let other = cell.goal.own.and_then(|(_, key)| plan.cells.iter().position(|cell| cell.key == key));
    let against_peer = match (cell.goal.own, peer) {
        (Some((goal, key)), _) => {
            let its = other.map(|at| samples(results, at, Kind::Larder)).unwrap_or_default();
            verdict(&format!("its own {key}"), &own, &its, Some(goal))
        }
        (None, Some(kind)) => verdict(kind.as_str(), &own, &samples(results, at, kind), cell.goal.peer),
        (None, None) => NOTHING.to_owned(),
    };
    let against_limit = limit
        .map_or(NOTHING.to_owned(), |kind| verdict(kind.as_str(), &own, &samples(results, at, kind), cell.goal.limit));
    let all: Vec<Sample> = cell.field.iter().flat_map(|kind| samples(results, at, *kind)).flatten().collect();
    let errors: u64 = all.iter().map(|sample| sample.errors).sum();
    let noise = median(all.iter().map(|sample| sample.noise_cores).collect());
    let micros = figure(median_of(&own, |sample| sample.cpu_micros));
    format!("| {} | {micros} | {against_peer} | {against_limit} | {noise:.2} | {errors} |\n", cell.name)
}

const NOTHING: &str = "– | | | ";

/// Four columns: who, the ratio, the goal, and whether it was met.
fn verdict(name: &str, own: &[Option<Sample>], its: &[Option<Sample>], goal: Option<f64>) -> String {
    let its_micros = median_of(its, |sample| sample.cpu_micros);
    let ratio = ratio(own, its);
    if ratio.is_nan() {
        return format!("{name} – | | {} | not measured", goal.map_or(String::new(), |goal| format!("≤ {goal:.2}")));
    }
    let (goal, met) = match goal {
        Some(goal) => (format!("≤ {goal:.2}"), if ratio <= goal { "met" } else { "**missed**" }),
        None => ("–".to_owned(), ""),
    };
    format!("{name} {} | {ratio:.2} | {goal} | {met}", figure(its_micros))
}

fn details(results: &Results, at: usize, cell: &Cell) -> String {
    let mut text = String::from(
        "| server | µs | lowest | highest | kernel | requests/s | p99 ms | origin µs | noise | rounds | errors | proof |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for kind in cell.field {
        let proof = match results.proofs.get(&(at, *kind)) {
            Some(Ok(proof)) => proof.clone(),
            Some(Err(trouble)) => format!("**{}**", trouble.lines().last().unwrap_or_default()),
            None => "did not start".to_owned(),
        };
        text.push_str(&row(kind.as_str(), &samples(results, at, *kind), &proof));
    }
    text
}

fn row(name: &str, samples: &[Option<Sample>], proof: &str) -> String {
    let all: Vec<Sample> = samples.iter().flatten().copied().collect();
    if all.is_empty() {
        return format!("| {name} | – | | | | | | | | 0 | | {proof} |\n");
    }
    let micros = || all.iter().map(|sample| sample.cpu_micros);
    let of = |pick: fn(&Sample) -> f64| median_of(samples, pick);
    let p99 = of(|sample| sample.p99_millis);
    format!(
        "| {name} | {} | {} | {} | {:.0} % | {:.0} | {} | {:.1} | {:.2} | {} of {} | {} | {proof} |\n",
        figure(of(|sample| sample.cpu_micros)),
        figure(micros().fold(f64::INFINITY, f64::min)),
        figure(micros().fold(0.0, f64::max)),
        of(|sample| sample.kernel_share) * 100.0,
        of(|sample| sample.rate),
        if p99.is_nan() { "–".to_owned() } else { format!("{p99:.2}") },
        of(|sample| sample.origin_micros),
        of(|sample| sample.noise_cores),
        quiet(samples).len(),
        samples.len(),
        all.iter().map(|sample| sample.errors).sum::<u64>(),
    )
}

fn samples(results: &Results, cell: usize, kind: Kind) -> Vec<Option<Sample>> {
    results.samples.get(&(cell, kind)).cloned().unwrap_or_default()
}

fn best_peer(results: &Results, at: usize, cell: &Cell) -> Option<Kind> {
    let peers = cell.field.iter().copied().filter(|kind| kind.is_peer());
    let with_median = peers.map(|kind| (kind, median_of(&samples(results, at, kind), |sample| sample.cpu_micros)));
    with_median.filter(|(_, micros)| !micros.is_nan()).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(kind, _)| kind)
}

/// Round by round, so that a slow drift of the machine cancels: the median.
pub fn ratio(own: &[Option<Sample>], its: &[Option<Sample>]) -> f64 {
    median(ratios(own, its))
}

/// Of each round that was quiet for both, where there are two; else of each.
pub fn ratios(own: &[Option<Sample>], its: &[Option<Sample>]) -> Vec<f64> {
    let pairs: Vec<(Sample, Sample)> = own.iter().zip(its).filter_map(|(a, b)| Some(((*a)?, (*b)?))).collect();
    let is_quiet = |pair: &&(Sample, Sample)| pair.0.noise_cores.max(pair.1.noise_cores) <= QUIET_CORES_MAX;
    let quiet: Vec<(Sample, Sample)> = pairs.iter().filter(is_quiet).copied().collect();
    let chosen = if quiet.len() > 1 { quiet } else { pairs };
    chosen.iter().map(|(a, b)| a.cpu_micros / b.cpu_micros).collect()
}

/// The median of the rounds to trust.
pub fn median_of(samples: &[Option<Sample>], pick: fn(&Sample) -> f64) -> f64 {
    let picked = quiet(samples).iter().map(pick).filter(|value| !value.is_nan()).collect();
    median(picked)
}

/// The rounds to trust: the quiet ones, or all where fewer than two were.
fn quiet(samples: &[Option<Sample>]) -> Vec<Sample> {
    let all = samples.iter().flatten().copied();
    let quiet: Vec<Sample> = all.clone().filter(|sample| sample.noise_cores <= QUIET_CORES_MAX).collect();
    if quiet.len() > 1 { quiet } else { all.collect() }
}

/// Microseconds with as many digits as say something.
pub fn figure(micros: f64) -> String {
    match micros {
        micros if micros.is_nan() => "–".to_owned(),
        micros if micros < 100.0 => format!("{micros:.2}"),
        micros => format!("{micros:.0}"),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(cpu_micros: f64, noise_cores: f64) -> Option<Sample> {
        Some(Sample {
            cpu_micros,
            kernel_share: 0.5,
            rate: 1.0,
            p99_millis: 1.0,
            errors: 0,
            noise_cores,
            origin_micros: 0.0,
        })
    }

    #[test]
    fn medians_and_quiet_rounds() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
        assert_eq!(quiet(&[sample(1.0, 0.1), sample(1.0, 0.5), sample(1.0, 0.0)]).len(), 2);
        assert_eq!(quiet(&[sample(1.0, 0.1), None, sample(1.0, 0.6)]).len(), 2);
    }

    #[test]
    fn ratios_go_round_by_round() {
        // The machine is twice as slow in the second round, which spoils neither its ratio nor the median.
        let own = [sample(6.0, 0.0), sample(12.0, 0.0), None, sample(90.0, 0.9)];
        let its = [sample(10.0, 0.0), sample(20.0, 0.0), sample(10.0, 0.0), sample(10.0, 0.0)];
        assert!((ratio(&own, &its) - 0.6).abs() < 1e-9);
        assert!(ratio(&own, &[]).is_nan());
    }

    #[test]
    fn a_verdict_says_who_how_much_and_whether() {
        let (own, its) = ([sample(6.0, 0.0)], [sample(10.0, 0.0)]);
        assert_eq!(verdict("nginx", &own, &its, Some(0.7)), "nginx 10.00 | 0.60 | ≤ 0.70 | met");
        assert_eq!(verdict("nginx", &own, &its, Some(0.5)), "nginx 10.00 | 0.60 | ≤ 0.50 | **missed**");
        assert_eq!(verdict("nginx", &own, &[], Some(0.5)), "nginx – | | ≤ 0.50 | not measured");
    }
}
