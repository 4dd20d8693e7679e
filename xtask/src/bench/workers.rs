//! The cost of a second worker: one Larder with two against two Larders with one each, which share nothing.
//!
//! On two cores the load has no core of its own, so requests per second say nothing. Both arrangements have the same
//! threads on the same cores under the same load; what a hit costs more in one process is the price of what its workers
//! share: the store, its locks, and the lines of the processor's caches.

use super::field::{self, Contestant, Extras, USUAL};
use super::proof;
use super::report::{figure, machine, median};
use super::table::{Origin, turn};
use super::tool::{self, Load, Script, Tool};
use crate::processes::{Cpu, voluntary_switches};
use crate::shell::Trouble;
use std::fmt::Write;
use std::path::Path;

/// Connections of each of the two loads.
const CONNECTIONS: usize = 32;
/// Two workers are to do so many times the work of one.
const SCALE_MIN: f64 = 1.85;

/// Servers that play together, and what the others are compared with.
struct Arrangement {
    name: &'static str,
    servers: Vec<Contestant>,
    samples: Vec<Sample>,
}

struct Sample {
    cpu_micros: f64,
    rate: f64,
    /// How often threads of the servers went to sleep, per 1,000 hits.
    sleeps: f64,
    errors: u64,
}

/// Plays all and gives the page.
pub fn play(root: &Path, rounds: usize, seconds: u64) -> Result<String, Trouble> {
    field::build(root)?;
    let (mut lab, origin) = Origin::in_a_new_lab()?;
    let mut start = |name: &str, workers, cores| {
        let extras = Extras { workers, cores, ..USUAL };
        Contestant::start_larder(name, &extras, root, &mut lab, origin.port)
    };
    let apart = vec![start("first", 1, "0")?, start("second", 1, "1")?];
    let together = vec![start("both", 2, "0,1")?];
    let version = together[0].version.clone();
    let mut arrangements = [
        Arrangement { name: "two processes with a worker each", servers: apart, samples: Vec::new() },
        Arrangement { name: "one process with two workers", servers: together, samples: Vec::new() },
    ];
    for server in arrangements.iter().flat_map(|arrangement| &arrangement.servers) {
        let load = Load {
            tool: Tool::Wrk { connections: 1, closes: false },
            url: url(server),
            script: Script::Plain,
            status: 200,
        };
        proof::prove_hit(&load, &lab)?;
    }
    for round in 0..=rounds {
        let mut order = [0, 1];
        turn(&mut order, round);
        for at in order {
            let sample = arrangements[at].sample(seconds)?;
            // The first one warms up.
            if round > 0 {
                arrangements[at].samples.push(sample);
            }
        }
        println!("workers, round {round} of {rounds}");
    }
    Ok(page(rounds, seconds, &version, &arrangements))
}

fn url(server: &Contestant) -> String {
    format!("http://127.0.0.1:{}/600", server.doors.plain)
}

impl Arrangement {
    /// Each load is on the core that is not its server's, where the servers have one core each.
    fn sample(&self, seconds: u64) -> Result<Sample, Trouble> {
        let urls = [1, 0].map(|at| url(self.servers.get(at).unwrap_or(&self.servers[0])));
        let before = (self.cpu_seconds()?, self.sleeps()?);
        let said = tool::two_wrk(&urls, CONNECTIONS, seconds)?;
        let after = (self.cpu_seconds()?, self.sleeps()?);
        self.servers.iter().for_each(Contestant::empty_log);
        let requests = said.requests as f64;
        Ok(Sample {
            cpu_micros: (after.0 - before.0) / requests * 1e6,
            rate: said.rate,
            sleeps: (after.1 - before.1) as f64 / requests * 1e3,
            errors: said.errors,
        })
    }

    fn cpu_seconds(&self) -> Result<f64, Trouble> {
        self.servers.iter().map(|server| Ok(Cpu::of_tree(server.id)?.total())).sum()
    }

    fn sleeps(&self) -> Result<u64, Trouble> {
        self.servers.iter().map(|server| voluntary_switches(server.id)).sum()
    }

    fn median_of(&self, pick: fn(&Sample) -> f64) -> f64 {
        median(self.samples.iter().map(pick).collect())
    }
}

fn page(rounds: usize, seconds: u64, version: &str, arrangements: &[Arrangement; 2]) -> String {
    let mut text = format!(
        "# Cost of a second worker\n\n`cargo xtask bench workers`: a memory hit of 600 B by {version}, log and records on; two \
         wrk with {CONNECTIONS} kept connections each, one on either core; a warm-up and {rounds} alternated rounds of {seconds} s, \
         medians; {}. The load has no core of its own, so that the figure is CPU time per hit, not hits per second.\n\n\
         | arrangement | CPU µs a hit | hits/s | sleeps per 1,000 hits | errors |\n|---|---:|---:|---:|---:|\n",
        machine(),
    );
    for arrangement in arrangements {
        writeln!(
            text,
            "| {} | {} | {:.0} | {:.1} | {} |",
            arrangement.name,
            figure(arrangement.median_of(|sample| sample.cpu_micros)),
            arrangement.median_of(|sample| sample.rate),
            arrangement.median_of(|sample| sample.sleeps),
            arrangement.samples.iter().map(|sample| sample.errors).sum::<u64>(),
        )
        .ok();
    }
    let pairs = arrangements[1].samples.iter().zip(&arrangements[0].samples);
    let ratio = median(pairs.map(|(together, apart)| together.cpu_micros / apart.cpu_micros).collect());
    let scale = 2.0 / ratio;
    let met = if scale >= SCALE_MIN { "met" } else { "**missed**" };
    writeln!(
        text,
        "\nRatio, round by round: {ratio:.3}. So two workers do {scale:.2} times the work of one where each has a core: goal ≥ {SCALE_MIN}, {met}."
    )
    .ok();
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_of_sharing_becomes_a_scale() {
        let arrangement = |name, micros: [f64; 3]| {
            let sample = |cpu_micros| Sample { cpu_micros, rate: 1.0, sleeps: 2.0, errors: 0 };
            Arrangement { name, servers: Vec::new(), samples: micros.map(sample).into() }
        };
        let page_of = |together| {
            page(3, 1, "larder", &[arrangement("apart", [5.0, 6.0, 5.0]), arrangement("together", together)])
        };
        assert!(
            page_of([5.0, 6.6, 5.0])
                .ends_with("two workers do 2.00 times the work of one where each has a core: goal ≥ 1.85, met.\n")
        );
        assert!(page_of([6.0, 7.2, 6.0]).contains("do 1.67 times"), "{}", page_of([6.0, 7.2, 6.0]));
        assert!(page_of([6.0, 7.2, 6.0]).ends_with("**missed**.\n"));
    }
}
