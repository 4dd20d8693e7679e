//! One run: the load generator for some seconds, and what the kernel says about CPU time before and after.

use super::BODIES;
use super::contestant::{Contestant, on_core};
use crate::http;
use crate::processes::{Cpu, ticks_per_second};
use crate::shell::{self, Trouble};
use std::time::Instant;

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The words in the table.
    pub name: &'static str,
    path: &'static str,
    connection_per_request: bool,
}

/// The loads of a comparison: two sizes, connections kept and not.
pub const LOADS: [Load; 4] = [
    Load { name: "600 B, keep-alive", path: "/600", connection_per_request: false },
    Load { name: "16 KB, keep-alive", path: "/16k", connection_per_request: false },
    Load { name: "600 B, a connection per request", path: "/600", connection_per_request: true },
    Load { name: "16 KB, a connection per request", path: "/16k", connection_per_request: true },
];

const CONNECTIONS: usize = 64;

/// What a run showed.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// CPU of the server's processes per request.
    pub cpu_micros: f64,
    /// The kernel's share of it.
    pub kernel_share: f64,
    /// Requests per second, as the load generator counts.
    pub rate: f64,
    /// Latencies in milliseconds.
    pub median_millis: f64,
    /// The 99th percentile.
    pub p99_millis: f64,
    /// Socket errors and answers other than 2xx.
    pub errors: u64,
    /// Cores that other processes and the hypervisor took meanwhile.
    pub noise_cores: f64,
    /// CPU of the origin per request: not near 0 means that these were no hits.
    pub origin_micros: f64,
}

/// Bodies of all contestants, each asked twice; they must be the origin's.
pub fn bodies(contestants: &[Contestant]) -> Result<Vec<Vec<u8>>, Trouble> {
    let mut all = Vec::new();
    for contestant in contestants {
        for (path, len) in BODIES {
            let mut body = Vec::new();
            for _ in 0..2 {
                let answer = http::get(contestant.port, path)?;
                if answer.status != 200 || answer.body.len() != len {
                    let name = contestant.kind.as_str();
                    return Err(format!("{name}: {path}: status {}, {} bytes", answer.status, answer.body.len()));
                }
                body = answer.body;
            }
            all.push(body);
        }
    }
    Ok(all)
}

/// Plays a load against a server.
pub fn sample(contestant: &Contestant, load: Load, seconds: u64, origin: u32) -> Result<Sample, Trouble> {
    let mut command = on_core(1, "wrk")?;
    command.args(["-t1", &format!("-c{CONNECTIONS}"), &format!("-d{seconds}s"), "--latency"]);
    if load.connection_per_request {
        command.args(["-H", "Connection: close"]);
    }
    command.arg(format!("http://127.0.0.1:{}{}", contestant.port, load.path));
    let began = Instant::now();
    let (server, source, own) = (Cpu::of_tree(contestant.id)?, Cpu::of_tree(origin)?, Cpu::own_and_waited_for()?);
    let machine = Machine::now()?;
    let said = shell::ask(&mut command)?;
    let (server, source) = (Cpu::of_tree(contestant.id)?.since(server), Cpu::of_tree(origin)?.since(source));
    let machine = Machine::now()?.since(machine);
    let wall = began.elapsed().as_secs_f64();
    let wrk = Wrk::read(&said)?;
    let own = Cpu::own_and_waited_for()?.since(own);
    let foreign = (machine.busy_seconds() - server.total() - source.total() - own.total()).max(0.0);
    let requests = wrk.requests as f64;
    Ok(Sample {
        cpu_micros: server.total() / requests * 1e6,
        kernel_share: server.system / server.total().max(1e-9),
        rate: wrk.rate,
        median_millis: wrk.median_millis,
        p99_millis: wrk.p99_millis,
        errors: wrk.errors,
        noise_cores: (foreign + machine.steal_seconds()) / wall,
        origin_micros: source.total() / requests * 1e6,
    })
}

/// Ticks of each core from proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal.
struct Machine {
    cores: Vec<[f64; 8]>,
}

impl Machine {
    fn now() -> Result<Machine, Trouble> {
        let text = std::fs::read_to_string("/proc/stat").map_err(|error| format!("reading /proc/stat: {error}"))?;
        let rows = text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
        let read = |line: &str| {
            let mut ticks = [0.0; 8];
            for (place, word) in ticks.iter_mut().zip(line.split_whitespace().skip(1)) {
                *place = word.parse().unwrap_or(0.0);
            }
            ticks
        };
        Ok(Machine { cores: rows.map(read).collect() })
    }

    fn since(&self, earlier: Machine) -> Machine {
        let mut cores = self.cores.clone();
        for (core, before) in cores.iter_mut().zip(&earlier.cores) {
            core.iter_mut().zip(before).for_each(|(now, then)| *now -= then);
        }
        Machine { cores }
    }

    fn busy_seconds(&self) -> f64 {
        let busy = |ticks: &[f64; 8]| ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6];
        self.cores.iter().map(busy).sum::<f64>() / ticks_per_second()
    }

    fn steal_seconds(&self) -> f64 {
        self.cores.iter().map(|ticks| ticks[7] / ticks_per_second()).sum()
    }
}

/// What wrk prints.
#[derive(Debug, PartialEq)]
struct Wrk {
    requests: u64,
    rate: f64,
    median_millis: f64,
    p99_millis: f64,
    errors: u64,
}

impl Wrk {
    fn read(said: &str) -> Result<Wrk, Trouble> {
        let line = |start: &str| said.lines().find_map(|line| line.trim().strip_prefix(start)).map(str::trim);
        let requests = said.lines().find_map(|line| line.trim().split_once(" requests in")?.0.parse().ok());
        let requests = requests.filter(|count| *count > 0).ok_or_else(|| format!("wrk got no answer: {said}"))?;
        let rate = line("Requests/sec:").and_then(|text| text.parse().ok()).ok_or("wrk said no rate")?;
        let sockets = line("Socket errors:").map_or(0, sum_of_numbers);
        let statuses = line("Non-2xx or 3xx responses:").map_or(0, sum_of_numbers);
        Ok(Wrk {
            requests,
            rate,
            median_millis: line("50%").and_then(millis).unwrap_or(f64::NAN),
            p99_millis: line("99%").and_then(millis).unwrap_or(f64::NAN),
            errors: sockets + statuses,
        })
    }
}

fn sum_of_numbers(text: &str) -> u64 {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse::<u64>().ok()).sum()
}

fn millis(text: &str) -> Option<f64> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let value: f64 = text[..text.len() - unit.len()].parse().ok()?;
    match unit {
        "us" => Some(value / 1e3),
        "ms" => Some(value),
        "s" => Some(value * 1e3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrk_prints_is_read() {
        let said = "Running 1s test @ http://127.0.0.1:1/600\n  1 threads and 64 connections\n  Latency Distribution\n     \
                    50%  598.00us\n     75%  0.9ms\n     99%    1.20s\n  71530 requests in 1.10s, 57.1MB read\n  \
                    Socket errors: connect 0, read 2, write 0, timeout 1\n  Non-2xx or 3xx responses: 7\n\
                    Requests/sec:  65027.10\nTransfer/sec:     51.91MB\n";
        let read = Wrk::read(said).unwrap();
        let wanted = Wrk { requests: 71530, rate: 65027.1, median_millis: 0.598, p99_millis: 1200.0, errors: 10 };
        assert_eq!(read, wanted);
        assert!(Wrk::read("unable to connect").is_err());
    }
}
