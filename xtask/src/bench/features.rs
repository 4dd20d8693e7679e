//! The cost of each feature: the same 600 B hit by the same binary with and without it, in alternated rounds.

use super::field::{self, Contestant, Extras, USUAL};
use super::proof;
use super::report::{figure, machine, median_of, ratio};
use super::table::{Origin, turn};
use super::tool::{Load, Sample, Script, Tool};
use crate::shell::Trouble;
use std::fmt::Write;
use std::path::Path;

/// The servers that take part, all of them Larder.
const VARIANTS: [(&str, Extras); 6] = [
    ("usual", USUAL),
    ("no-log", Extras { log: false, ..USUAL }),
    ("no-records", Extras { records: 0, ..USUAL }),
    ("bare", Extras { log: false, records: 0, ..USUAL }),
    ("rules", Extras { rules: RULES, ..USUAL }),
    ("table", Extras { table: RULES, ..USUAL }),
];
const RULES: usize = 1000;

/// Where a variant is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Plain,
    Forward,
    /// As a forward proxy, for a path that a rule denies.
    Denied,
    Tls,
}

/// The loads: a variant by its name, and a listener of it.
const LOADS: [(&str, Door); 9] = [
    ("usual", Door::Plain),
    ("no-log", Door::Plain),
    ("no-records", Door::Plain),
    ("bare", Door::Plain),
    ("usual", Door::Tls),
    ("usual", Door::Forward),
    ("rules", Door::Forward),
    ("table", Door::Forward),
    ("table", Door::Denied),
];

/// A row: what is compared, the load with it, the load without it, and how far apart they may be.
struct Row {
    name: &'static str,
    with: usize,
    without: usize,
    goal: Option<f64>,
}

const ROWS: [Row; 8] = [
    Row { name: "log and records, both against neither", with: 0, without: 3, goal: Some(1.03) },
    Row { name: "access log", with: 0, without: 1, goal: None },
    Row { name: "records for `explain`", with: 0, without: 2, goal: None },
    Row { name: "TLS", with: 4, without: 0, goal: None },
    Row { name: "being asked as a forward proxy, not as a site", with: 5, without: 0, goal: None },
    Row { name: "1,000 client networks and 1,000 sites in the rules", with: 6, without: 5, goal: None },
    Row { name: "1,000 rules of the table and a list of 5 million names", with: 7, without: 5, goal: None },
    Row {
        name: "a request that a rule denies with a page of 600 B, to a hit of the same size",
        with: 8,
        without: 7,
        goal: Some(0.83),
    },
];

/// Plays all and gives the page.
pub fn play(root: &Path, rounds: usize, seconds: u64) -> Result<String, Trouble> {
    field::build(root)?;
    let (mut lab, origin) = Origin::in_a_new_lab()?;
    let mut servers = Vec::new();
    for (name, extras) in &VARIANTS {
        servers.push(Contestant::start_larder(name, extras, root, &mut lab, origin.port)?);
    }
    let server = |name: &str| VARIANTS.iter().position(|(other, _)| *other == name).map_or(0, |at| at);
    let mut samples: Vec<Vec<Option<Sample>>> = vec![Vec::new(); LOADS.len()];
    for (name, door) in LOADS {
        let load = load(door, &servers[server(name)], origin.port);
        if door == Door::Denied {
            continue;
        }
        proof::prove_hit(&load, &lab).map_err(|trouble| format!("{name} {door:?}: {trouble}"))?;
    }
    for round in 0..=rounds {
        let mut order: Vec<usize> = (0..LOADS.len()).collect();
        turn(&mut order, round);
        for at in order {
            let (name, door) = LOADS[at];
            let server = &servers[server(name)];
            let sample = load(door, server, origin.port).sample(&lab, server.id, origin.id, seconds, 0)?;
            server.empty_log();
            // The first one warms up.
            if round > 0 {
                samples[at].push(Some(sample));
            }
        }
        println!("round {round} of {rounds}");
    }
    Ok(page(rounds, seconds, &servers[0].version, &samples))
}

fn load(door: Door, server: &Contestant, origin: u16) -> Load {
    let tool = Tool::Wrk { connections: 64, closes: false };
    let doors = server.doors;
    let (url, script) = match door {
        Door::Plain => (format!("http://127.0.0.1:{}/600", doors.plain), Script::Plain),
        Door::Tls => (format!("https://127.0.0.1:{}/600", doors.tls), Script::Plain),
        Door::Forward | Door::Denied => {
            let authority = format!("127.0.0.1:{origin}");
            let path = if door == Door::Denied { "denied" } else { "600" };
            let script = Script::Forward(format!("http://{authority}/{path}"), authority);
            (format!("http://127.0.0.1:{}/", doors.forward), script)
        }
    };
    Load { tool, url, script, status: if door == Door::Denied { 403 } else { 200 } }
}

fn page(rounds: usize, seconds: u64, version: &str, samples: &[Vec<Option<Sample>>]) -> String {
    let mut text = format!(
        "# Cost of features\n\n`cargo xtask bench features`: a memory hit of 600 B by {version}, 64 kept connections, server alone \
         on core 0, wrk on core 1; a warm-up and {rounds} alternated rounds of {seconds} s, medians; {}. CPU time of the server per \
         request in µs; the ratio is of that with the feature to that without, round by round. Where a row \
         does not speak of them, log and records are on. The metrics and the checksums of the disk store have no switch.\n\n\
         | feature | with µs | without µs | ratio | goal | | noise | errors |\n|---|---:|---:|---:|---:|---|---:|---:|\n",
        machine(),
    );
    for row in &ROWS {
        let (with, without) = (&samples[row.with], &samples[row.without]);
        let ratio = ratio(with, without);
        let (goal, met) = match row.goal {
            Some(goal) => (format!("≤ {goal:.2}"), if ratio <= goal { "met" } else { "**missed**" }),
            None => ("–".to_owned(), ""),
        };
        let both: Vec<Option<Sample>> = with.iter().chain(without).copied().collect();
        writeln!(
            text,
            "| {} | {} | {} | {ratio:.3} | {goal} | {met} | {:.2} | {} |",
            row.name,
            figure(median_of(with, |sample| sample.cpu_micros)),
            figure(median_of(without, |sample| sample.cpu_micros)),
            median_of(&both, |sample| sample.noise_cores),
            both.iter().flatten().map(|sample| sample.errors).sum::<u64>(),
        )
        .ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_name_loads_and_loads_name_variants() {
        assert!(ROWS.iter().all(|row| row.with < LOADS.len() && row.without < LOADS.len() && row.with != row.without));
        assert!(LOADS.iter().all(|(name, _)| VARIANTS.iter().any(|(other, _)| other == name)));
    }
}
