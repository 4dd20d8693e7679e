//! Whether two load generators that share no code say the same of a cache: wrk, which fills the table, and the referee's
//! `hammer`. Both ask the same process for the same object over as many connections, one directly after the other, so
//! that nothing differs but the generator, and how the CPU time of the process is read.

use super::field;
use super::generators_page::{self, BODY_BYTES, CONNECTIONS, Generator, Met, Played};
use super::overheard::Ear;
use super::table::turn;
use super::tool::{Load, QUIET_CORES_MAX, Sample, Script, Tool};
use crate::http;
use crate::lab::Lab;
use crate::shell::{self, Trouble};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Entries of the referee, each with the configuration it has there.
const CACHES: [&str; 5] = ["larder", "nginx", "varnish", "trafficserver", "haproxy"];
/// The length of `hammer` at a scale of 1.
const HAMMER_SECONDS: f64 = 20.0;
/// The shortest that it can be: it brings the objects into the cache.
const FILL_SCALE: f64 = 0.005;
/// The least that six digits of a share of 1 can say.
const ALL_HITS_MIN: f64 = 0.99999;

/// Plays both against each cache and gives the page.
pub fn play(root: &Path, rounds: usize, seconds: u64) -> Result<String, Trouble> {
    field::build(root)?;
    shell::build_published(root, "cacheoff", &["cacheoff"])?;
    let lab = Lab::new()?;
    println!("{}", plan(rounds, seconds));
    let mut all: Vec<Played> = CACHES.into_iter().map(Played::new).collect();
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..all.len()).collect();
        turn(&mut order, round);
        for at in order {
            let played = &mut all[at];
            match meet(root, &lab, played.name, first_and_second(round, at), seconds) {
                Ok(met) => played.keep(met),
                Err(trouble) => played.miss(trouble),
            }
            println!("round {} of {rounds}, {}", round + 1, played.said());
        }
    }
    Ok(generators_page::page(rounds, seconds, &all))
}

/// Seconds that a turn takes beyond the two measured phases: the start, the objects, and what `hammer` has around its
/// phase.
const TURN_EXTRA_SECONDS: u64 = 5;

fn plan(rounds: usize, seconds: u64) -> String {
    let turns = rounds * CACHES.len();
    let minutes = (turns as u64 * (2 * seconds + TURN_EXTRA_SECONDS)).div_ceil(60);
    format!("{}: {turns} turns, about {minutes} minutes, more where it is not quiet", CACHES.join(", "))
}

/// Each cache meets the other one first in the next round, and in each round some meet the one first and some the other.
fn first_and_second(round: usize, cache: usize) -> [Generator; 2] {
    let mut order = [Generator::Wrk, Generator::Hammer];
    order.rotate_left((round + cache) % 2);
    order
}

fn meet(root: &Path, lab: &Lab, name: &str, order: [Generator; 2], seconds: u64) -> Result<Met, Trouble> {
    let [port, way, origin] = ports()?;
    let held = Held::start(root, name, port, way)?;
    let ear = Ear::start(way, origin)?;
    let hammer = Hammer { root, lab, name, port, origin };
    hammer.play(FILL_SCALE)?;
    let path = ear.heard().ok_or("the robots asked the origin for nothing: the cache had all before")?;
    judge(port, &path)?;
    let wrk = Load {
        tool: Tool::Wrk { connections: CONNECTIONS, closes: false },
        url: format!("http://127.0.0.1:{port}{path}"),
        script: Script::Plain,
        status: 200,
    };
    let (mut by_wrk, mut by_hammer) = (None, None);
    for generator in order {
        match generator {
            // No origin listens meanwhile, so what is not a hit is an error.
            Generator::Wrk => by_wrk = Some(wrk.sample(lab, held.id, None, seconds, 0)?),
            Generator::Hammer => by_hammer = Some(hammer.sample(seconds)?),
        }
    }
    let (wrk, hammer) = by_wrk.zip(by_hammer).ok_or("not both generators were played")?;
    Ok(Met { product: held.product.clone(), wrk, hammer })
}

/// Where the search for free ports begins: below those that the kernel gives to whoever connects. One of these may belong
/// to a connection of wrk's when the origin of the next heat wants to listen there.
const PORTS: Range<u16> = 20_000..32_000;

/// Three free ones of 127.0.0.1: those that other processes of this command try first are others.
fn ports() -> Result<[u16; 3], Trouble> {
    let start = std::process::id() as usize * 3 % PORTS.len();
    let tried = PORTS.cycle().skip(start).take(PORTS.len());
    let mut free = tried.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let mut next = || free.next().ok_or("no free port between 20000 and 32000: end some of what listens there");
    Ok([next()?, next()?, next()?])
}

/// The object that was overheard, from the cache: with its origin gone it can only be a hit.
fn judge(port: u16, path: &str) -> Result<(), Trouble> {
    let answer = http::get(port, path)?;
    match (answer.status, answer.body.len()) {
        (200, BODY_BYTES) => Ok(()),
        (status, bytes) => Err(format!("{path}: status {status} with {bytes} bytes, not a hit of {BODY_BYTES}")),
    }
}

/// A cache that the referee has started as one of its entries. Dropping it ends it.
struct Held {
    child: Child,
    id: u32,
    product: String,
}

impl Held {
    fn start(root: &Path, name: &str, port: u16, origin: u16) -> Result<Held, Trouble> {
        let mut command = Command::new(cacheoff(root));
        command.args(["hold", name, "--port", &port.to_string(), "--origin-port", &origin.to_string(), "--cores", "0"]);
        // The entry of Larder is to be the one of this workspace.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", shell::target_folder(root).join("dist").display()));
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let child = child.map_err(|error| format!("cannot start cacheoff: {error}"))?;
        let mut held = Held { child, id: 0, product: String::new() };
        let mut line = String::new();
        if let Some(output) = held.child.stdout.take() {
            let read = BufReader::new(output).read_line(&mut line);
            read.map_err(|error| format!("reading what cacheoff says of {name}: {error}"))?;
        }
        (held.id, held.product) = read_held(&line).ok_or_else(|| format!("{name} did not start"))?;
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // The end of its input is its end; it has its own patience with the cache.
        drop(self.child.stdin.take());
        self.child.wait().ok();
    }
}

/// `process TAB address TAB product`.
fn read_held(line: &str) -> Option<(u32, String)> {
    let mut words = line.trim().split('\t');
    let id = words.next()?.parse().ok()?;
    Some((id, words.nth(1)?.to_owned()))
}

/// `cacheoff contest --workload hammer` at a cache that runs.
struct Hammer<'a> {
    root: &'a Path,
    lab: &'a Lab,
    name: &'a str,
    port: u16,
    origin: u16,
}

impl Hammer<'_> {
    /// Plays it, and once more where that was not quiet, as is done with wrk.
    fn sample(&self, seconds: u64) -> Result<Sample, Trouble> {
        let scale = seconds as f64 / HAMMER_SECONDS;
        let first = self.play(scale)?;
        if first.noise_cores <= QUIET_CORES_MAX {
            return Ok(first);
        }
        Ok(first.or_quieter(self.play(scale)?))
    }

    fn play(&self, scale: f64) -> Result<Sample, Trouble> {
        let figures = self.lab.path().join("hammer.prom");
        let mut command = Command::new(cacheoff(self.root));
        command.args(["contest", "--workload", &format!("hammer:scale={scale}"), "--rounds", "1", "--entries", ""]);
        command.args(["--ask", &format!("{}=127.0.0.1:{}", self.name, self.port), "--cache-cores", "0"]);
        command.args(["--origin-port", &self.origin.to_string()]).arg("--prometheus").arg(&figures);
        command.arg("--folder").arg(self.lab.folder("ledgers")?);
        // A contest of which a heat failed has gone well itself: the reason stands among what it says meanwhile.
        let output =
            command.stdin(Stdio::null()).output().map_err(|error| format!("cannot start cacheoff: {error}"))?;
        let text = std::fs::read_to_string(&figures);
        let text = text.map_err(|error| format!("reading {}: {error}", figures.display()))?;
        read_figures(&text).map_err(|trouble| {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            said.lines().rfind(|line| line.contains(" failed: ")).map_or(trouble, str::to_owned)
        })
    }
}

/// From the metrics of a run, which have other units.
fn read_figures(text: &str) -> Result<Sample, Trouble> {
    let figure = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("cacheoff_")?.strip_prefix(key));
        let value = lines.find_map(|rest| rest.strip_prefix('{')?.rsplit_once("} ")?.1.parse::<f64>().ok());
        value.ok_or_else(|| format!("hammer has no figure {key}"))
    };
    let hits = figure("dhr")?;
    if hits < ALL_HITS_MIN {
        return Err(format!("hammer: {hits} of the replies were hits, not all"));
    }
    Ok(Sample {
        cpu_micros: figure("cpu_us")?,
        kernel_share: f64::NAN,
        rate: figure("rps")?,
        p99_millis: figure("p99")? / 1e3,
        errors: figure("errors")? as u64,
        noise_cores: figure("steal")? + figure("others")?,
        origin_micros: f64::NAN,
    })
}

fn cacheoff(root: &Path) -> std::path::PathBuf {
    shell::published(root, "cacheoff")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_generator_is_first_in_turn() {
        for cache in 0..CACHES.len() {
            let (first, second) = (first_and_second(0, cache), first_and_second(1, cache));
            assert_eq!([first[1], first[0]], second);
        }
        assert_eq!(first_and_second(2, 0), [Generator::Wrk, Generator::Hammer]);
        assert!(plan(7, 3).contains("35 turns, about 7 minutes"), "{}", plan(7, 3));
    }

    #[test]
    fn ports_are_three_and_none_that_a_connection_gets() {
        let [first, second, third] = ports().unwrap();
        assert!(first != second && second != third && first != third);
        assert!([first, second, third].iter().all(|port| PORTS.contains(port)));
    }

    #[test]
    fn what_a_held_cache_says_is_read() {
        assert_eq!(read_held("17\t127.0.0.1:80\tnginx 1.22.1\n"), Some((17, "nginx 1.22.1".to_owned())));
        assert_eq!(read_held("-\t127.0.0.1:80\tnginx\n"), None);
        assert_eq!(read_held(""), None);
    }

    #[test]
    fn figures_of_hammer_are_read() {
        let text = |dhr: &str| {
            format!(
                "# HELP cacheoff_rps Replies.\ncacheoff_rps{{workload=\"hammer\",label=\"a 7\",round=\"1\"}} 100.5\n\
                 cacheoff_p99{{round=\"1\"}} 2500\ncacheoff_p99_9{{round=\"1\"}} 9\ncacheoff_errors{{round=\"1\"}} 2\n\
                 cacheoff_dhr{{round=\"1\"}} {dhr}\ncacheoff_dhr_ideal{{round=\"1\"}} 1\ncacheoff_cpu_us{{round=\"1\"}} 8.25\n\
                 cacheoff_steal{{round=\"1\"}} 0.01\ncacheoff_others{{round=\"1\"}} 0.02\n"
            )
        };
        let sample = read_figures(&text("1")).unwrap();
        assert_eq!((sample.cpu_micros, sample.rate, sample.p99_millis, sample.errors), (8.25, 100.5, 2.5, 2));
        assert!((sample.noise_cores - 0.03).abs() < 1e-9);
        assert!(read_figures(&text("0.98")).unwrap_err().contains("0.98 of the replies were hits"));
        assert!(read_figures("cacheoff_dhr{} 1\n").unwrap_err().contains("no figure cpu_us"));
    }
}
