//! Load generators: what they are told, what they print, and one sample: a load for some seconds with what the
//! kernel says of CPU time before and after.

use super::field::on_core;
use crate::lab::Lab;
use crate::processes::{Cpu, ticks_per_second};
use crate::shell::{self, Trouble};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How requests are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tool {
    /// wrk with one thread.
    Wrk {
        /// Open at once.
        connections: usize,
        /// Whether each request has a connection of its own.
        closes: bool,
    },
    /// ab; for one request at a time the cores are kept awake.
    Ab {
        /// Requests at once.
        connections: usize,
        /// Whether connections are kept.
        keeps: bool,
    },
    /// h2load with one thread, over HTTP/2.
    H2load {
        /// Open at once.
        connections: usize,
        /// Streams under way on each of them.
        streams: usize,
    },
    /// The client of HTTP/3 in this workspace.
    Http3 {
        /// Where it was built.
        program: PathBuf,
        /// The certificate that it trusts.
        chain: PathBuf,
        /// A port of UDP on 127.0.0.1.
        port: u16,
        /// The length of a right body.
        bytes: usize,
        /// Open at once.
        connections: usize,
        /// Requests under way on each of them.
        streams: usize,
    },
    /// `openssl s_time -new`: full handshakes, some at once, and nothing else.
    Handshakes,
}

/// The requests of a load, beyond one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Script {
    /// The address alone.
    Plain,
    /// Requests sent in batches.
    Pipeline(usize),
    /// A query of its own for each request.
    Unique,
    /// In absolute form, for a forward proxy: the address and its authority.
    Forward(String, String),
    /// So many names that are blocked, of a forward proxy.
    Blocked(u64),
    /// Numbered objects below a folder, each as likely as the others.
    Uniform(&'static str, u64),
    /// Numbered objects one after the other, from this one on, of so many.
    Sequence(&'static str, u64, u64),
    /// Numbered objects of many hosts, few of them asked for often.
    Zipf(&'static str, u64, u64),
}

/// A load, ready to play.
#[derive(Clone, Debug)]
pub struct Load {
    /// The generator.
    pub tool: Tool,
    /// Where to, and what for where the script does not say.
    pub url: String,
    /// The requests.
    pub script: Script,
    /// The status of a right answer.
    pub status: u16,
}

/// The results of a run.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// CPU of the server's processes per request.
    pub cpu_micros: f64,
    /// The kernel's share of it.
    pub kernel_share: f64,
    /// Requests per second, as the load generator counts.
    pub rate: f64,
    /// The 99th percentile of latency; of tools that say it.
    pub p99_millis: f64,
    /// Socket errors and answers with another status.
    pub errors: u64,
    /// Cores that other processes and the hypervisor took meanwhile.
    pub noise_cores: f64,
    /// CPU of the origin per request: not near 0 means that these were no hits.
    pub origin_micros: f64,
}

const HANDSHAKERS: usize = 4;
/// Sets seeds of second runs apart; those of `table` stay below.
const SECOND_RUN: u64 = 1 << 50;

/// A run in which others took more than this says little.
pub const QUIET_CORES_MAX: f64 = 0.15;

impl Load {
    /// Plays it, and once more where that was not quiet: the quieter one of the two counts.
    /// `origin` is the process of one, where one runs.
    pub fn sample(
        &self,
        lab: &Lab,
        server: u32,
        origin: impl Into<Option<u32>>,
        seconds: u64,
        seed: u64,
    ) -> Result<Sample, Trouble> {
        let origin = origin.into();
        let first = self.sample_once(lab, server, origin, seconds, seed)?;
        if first.noise_cores <= QUIET_CORES_MAX {
            return Ok(first);
        }
        Ok(first.or_quieter(self.sample_once(lab, server, origin, seconds, seed | SECOND_RUN)?))
    }

    /// Plays it against a server whose first process is `server`.
    pub(super) fn sample_once(
        &self,
        lab: &Lab,
        server: u32,
        origin: Option<u32>,
        seconds: u64,
        seed: u64,
    ) -> Result<Sample, Trouble> {
        let cpu_of_origin = || origin.map_or(Ok(Cpu::default()), Cpu::of_tree);
        let awake = if matches!(self.tool, Tool::Ab { connections: 1, .. }) {
            vec![Idler::start(0)?, Idler::start(1)?]
        } else {
            Vec::new()
        };
        let others = |awake: &[Idler]| -> Result<f64, Trouble> {
            let mut seconds = cpu_of_origin()?.total() + Cpu::own_and_waited_for()?.total();
            for idler in awake {
                seconds += Cpu::of_tree(idler.0.id())?.total();
            }
            Ok(seconds)
        };
        let (machine, known, began) = (Machine::now()?, others(&awake)?, Instant::now());
        let (cpu, source) = (Cpu::of_tree(server)?, cpu_of_origin()?);
        let printed = self.play(lab, seconds, seed)?;
        let (cpu, source) = (Cpu::of_tree(server)?.since(cpu), cpu_of_origin()?.since(source));
        let (machine, known) = (Machine::now()?.since(machine), others(&awake)? - known);
        let wall = began.elapsed().as_secs_f64();
        if printed.requests == 0 {
            return Err(format!("no answer from {}", self.url));
        }
        let (requests, foreign) = (printed.requests as f64, (machine.busy_seconds() - cpu.total() - known).max(0.0));
        Ok(Sample {
            cpu_micros: cpu.total() / requests * 1e6,
            kernel_share: cpu.system / cpu.total().max(1e-9),
            rate: printed.rate,
            p99_millis: printed.p99_millis,
            errors: printed.errors,
            noise_cores: (foreign + machine.steal_seconds()) / wall,
            origin_micros: source.total() / requests * 1e6,
        })
    }

    fn play(&self, lab: &Lab, seconds: u64, seed: u64) -> Result<Printed, Trouble> {
        match &self.tool {
            &Tool::Wrk { connections, closes } => self.wrk(lab, connections, closes, seconds, seed),
            &Tool::Ab { connections, keeps } => {
                let mut command = on_core(1, "ab")?;
                command.args(["-q", "-d", "-S", "-r", "-c", &connections.to_string(), "-n", "3000000"]);
                command.args(keeps.then_some("-k")).args(["-t", &seconds.to_string(), &self.url]);
                Printed::of_ab(&shell::ask(&mut command)?, self.status)
            }
            Tool::H2load { connections, streams } => {
                let mut command = on_core(1, "h2load")?;
                command.args(["-t", "1", "-c", &connections.to_string(), "-m", &streams.to_string()]);
                command.args(["-D", &seconds.to_string(), &self.url]);
                Printed::of_h2load(&shell::ask(&mut command)?)
            }
            Tool::Http3 { program, chain, port, bytes, connections, streams } => {
                let mut command = on_core(1, &program.display().to_string())?;
                command.arg("load").arg(port.to_string()).arg(chain).arg(&self.url);
                command
                    .args([*bytes, *connections, *streams].map(|number| number.to_string()))
                    .arg(seconds.to_string());
                Printed::of_http3(&shell::ask(&mut command)?)
            }
            Tool::Handshakes => self.handshakes(seconds),
        }
    }

    fn wrk(&self, lab: &Lab, connections: usize, closes: bool, seconds: u64, seed: u64) -> Result<Printed, Trouble> {
        let mut command = on_core(1, "wrk")?;
        command.args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s"), "--latency"]);
        if closes {
            command.args(["-H", "Connection: close"]);
        }
        let script = self.script.text();
        if let Some((name, text)) = script {
            command.arg("-s").arg(written_once(lab, name, text)?);
        }
        command.arg(&self.url);
        if script.is_some() {
            command.arg("--").args(self.script.arguments(seed));
        }
        Printed::of_wrk(&shell::ask(&mut command)?, self.status)
    }

    /// Some at once, or the server would be asleep half of the time.
    fn handshakes(&self, seconds: u64) -> Result<Printed, Trouble> {
        let target = self.url.trim_start_matches("https://").split('/').next().unwrap_or_default();
        let mut running = Vec::new();
        for _ in 0..HANDSHAKERS {
            let mut command = on_core(1, "openssl")?;
            command.args(["s_time", "-new", "-connect", target, "-time", &(seconds + 1).to_string()]);
            let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
            running.push(child.map_err(|error| format!("cannot start openssl: {error}"))?);
        }
        let mut sum = Printed::default();
        for child in running {
            let output = child.wait_with_output().map_err(|error| format!("waiting for openssl: {error}"))?;
            let printed = Printed::of_handshakes(&String::from_utf8_lossy(&output.stdout))?;
            sum.requests += printed.requests;
            sum.errors += printed.errors + u64::from(!output.status.success());
        }
        sum.rate = sum.requests as f64 / (seconds + 1) as f64;
        sum.p99_millis = f64::NAN;
        Ok(sum)
    }
}

impl Sample {
    /// The quieter one of two runs. An error counts, whichever run it came in.
    pub fn or_quieter(self, second: Sample) -> Sample {
        let errors = self.errors + second.errors;
        let quieter = if second.noise_cores < self.noise_cores { second } else { self };
        Sample { errors, ..quieter }
    }
}

impl Script {
    /// Name and text of the file.
    fn text(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Script::Plain => None,
            Script::Pipeline(_) => Some(("pipeline.lua", include_str!("../../load/pipeline.lua"))),
            Script::Unique => Some(("unique.lua", include_str!("../../load/unique.lua"))),
            Script::Forward(..) => Some(("forward.lua", include_str!("../../load/forward.lua"))),
            Script::Blocked(_) => Some(("blocked.lua", include_str!("../../load/blocked.lua"))),
            Script::Uniform(..) => Some(("uniform.lua", include_str!("../../load/uniform.lua"))),
            Script::Sequence(..) => Some(("sequence.lua", include_str!("../../load/sequence.lua"))),
            Script::Zipf(..) => Some(("zipf.lua", include_str!("../../load/zipf.lua"))),
        }
    }

    fn arguments(&self, seed: u64) -> Vec<String> {
        match self {
            Script::Plain => vec![],
            Script::Pipeline(depth) => vec![depth.to_string()],
            Script::Unique => vec![seed.to_string()],
            Script::Forward(url, authority) => vec![url.clone(), authority.clone()],
            Script::Blocked(count) => vec![count.to_string(), seed.to_string()],
            Script::Uniform(folder, count) => vec![(*folder).to_owned(), count.to_string(), seed.to_string()],
            Script::Sequence(folder, first, count) => vec![(*folder).to_owned(), first.to_string(), count.to_string()],
            Script::Zipf(folder, count, hosts) => {
                vec![(*folder).to_owned(), count.to_string(), hosts.to_string(), seed.to_string()]
            }
        }
    }
}

fn written_once(lab: &Lab, name: &str, text: &str) -> Result<PathBuf, Trouble> {
    let path = lab.path().join(name);
    if path.is_file() { Ok(path) } else { lab.write(name, text) }
}

/// Takes a core whenever nobody else wants it: a virtual core that sleeps is slow to wake, which loads of one
/// request at a time would measure.
struct Idler(Child);

impl Idler {
    fn start(core: usize) -> Result<Idler, Trouble> {
        let mut command = on_core(core, "chrt")?;
        command.args(["--idle", "0", "sh", "-c", "while :; do :; done"]).stdin(Stdio::null());
        let child = command.spawn().map_err(|error| format!("cannot start chrt: {error}"))?;
        std::thread::sleep(Duration::from_millis(20));
        Ok(Idler(child))
    }
}

impl Drop for Idler {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
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

/// Two wrk at once, one on each core; their sums.
pub fn two_wrk(urls: &[String; 2], connections: usize, seconds: u64) -> Result<Printed, Trouble> {
    let mut running = Vec::new();
    for (core, url) in urls.iter().enumerate() {
        let mut command = on_core(core, "wrk")?;
        command.args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s"), "--latency", url]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        running.push(child.map_err(|error| format!("cannot start wrk: {error}"))?);
    }
    let mut sum = Printed { p99_millis: f64::NAN, ..Printed::default() };
    for child in running {
        let output = child.wait_with_output().map_err(|error| format!("waiting for wrk: {error}"))?;
        let printed = Printed::of_wrk(&String::from_utf8_lossy(&output.stdout), 200)?;
        sum.requests += printed.requests;
        sum.rate += printed.rate;
        sum.errors += printed.errors;
    }
    Ok(sum)
}

/// The figures that a generator prints.
#[derive(Debug, Default, PartialEq)]
pub struct Printed {
    /// Answers.
    pub requests: u64,
    /// Answers per second.
    pub rate: f64,
    /// The 99th percentile of latency; of tools that say it.
    pub p99_millis: f64,
    /// Socket errors and answers with another status.
    pub errors: u64,
}

impl Printed {
    fn of_wrk(printed: &str, status: u16) -> Result<Printed, Trouble> {
        let line = |start: &str| printed.lines().find_map(|line| line.trim().strip_prefix(start)).map(str::trim);
        let requests: Option<u64> =
            printed.lines().find_map(|line| line.trim().split_once(" requests in")?.0.parse().ok());
        let requests = requests.filter(|count| *count > 0).ok_or_else(|| format!("wrk got no answer: {printed}"))?;
        let rate = line("Requests/sec:").and_then(|text| text.parse().ok()).ok_or("wrk printed no rate")?;
        let sockets = line("Socket errors:").map_or(0, sum_of_numbers);
        let refused = line("Non-2xx or 3xx responses:").map_or(0, sum_of_numbers);
        let p99_millis = line("99%").and_then(millis).unwrap_or(f64::NAN);
        Ok(Printed { requests, rate, p99_millis, errors: sockets + odd(requests, refused, status) })
    }

    fn of_ab(printed: &str, status: u16) -> Result<Printed, Trouble> {
        let number = |start: &str| {
            let line = printed.lines().find_map(|line| line.trim().strip_prefix(start))?;
            line.split_whitespace().next()?.parse::<f64>().ok()
        };
        let requests = number("Complete requests:").ok_or_else(|| format!("ab got no answer: {printed}"))? as u64;
        let failed = number("Failed requests:").unwrap_or(0.0) as u64;
        let refused = number("Non-2xx responses:").unwrap_or(0.0) as u64;
        Ok(Printed {
            requests,
            rate: number("Requests per second:").unwrap_or(f64::NAN),
            p99_millis: number("99%").unwrap_or(f64::NAN),
            errors: failed + odd(requests, refused, status),
        })
    }

    /// It tells no percentiles.
    fn of_h2load(printed: &str) -> Result<Printed, Trouble> {
        let line = |start: &str| printed.lines().find_map(|line| line.strip_prefix(start));
        let numbers = |line: &str| -> Vec<u64> {
            let words = line.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
            words.filter_map(|word| word.parse().ok()).collect()
        };
        let requests = line("requests: ").map(numbers).unwrap_or_default();
        let [_total, _started, done, _succeeded, failed, errored, _timeout] = requests[..] else {
            return Err(format!("h2load got no answer: {}", shell::last_lines(printed, 5)));
        };
        // In one of `2xx, 3xx, 4xx, 5xx` the digit before the letters is a number too.
        let statuses = line("status codes: ").map(numbers).unwrap_or_default();
        let other: u64 = statuses.iter().skip(2).step_by(2).sum();
        let rate = line("finished in ").and_then(|line| line.split_once(", ")?.1.split_once(" req/s")?.0.parse().ok());
        let rate = rate.ok_or("h2load printed no rate")?;
        Ok(Printed { requests: done, rate, p99_millis: f64::NAN, errors: failed.max(other) + errored })
    }

    fn of_http3(printed: &str) -> Result<Printed, Trouble> {
        let figure = |name: &str| {
            let text = printed.trim().split(", ").find_map(|part| part.strip_prefix(name));
            text.and_then(|text| text.trim().parse::<f64>().ok())
                .ok_or_else(|| format!("the client printed no {name}: {printed}"))
        };
        let (requests, errors) = (figure("requests")? as u64, figure("errors")? as u64);
        Ok(Printed { requests, errors, rate: figure("rate")?, p99_millis: f64::NAN })
    }

    /// One character for each connection, `r` where a session went on; then `N connections in …`.
    fn of_handshakes(printed: &str) -> Result<Printed, Trouble> {
        let counts = printed.lines().find_map(|line| line.split_once(" connections in")?.0.trim().parse().ok());
        let requests = counts.ok_or_else(|| format!("openssl made no handshake: {}", shell::last_lines(printed, 3)))?;
        let continued = printed.lines().filter(|line| !line.contains(' ')).flat_map(str::chars).filter(|c| *c == 'r');
        Ok(Printed { requests, errors: continued.count() as u64, ..Printed::default() })
    }
}

/// Answers whose status was not the wanted one.
fn odd(requests: u64, refused: u64, status: u16) -> u64 {
    if status < 400 { refused } else { requests.saturating_sub(refused) }
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
        let printed = "Running 1s test @ http://127.0.0.1:1/600\n  1 threads and 64 connections\n  Latency Distribution\n     \
                    50%  598.00us\n     75%  0.9ms\n     99%    1.20s\n  71530 requests in 1.10s, 57.1MB read\n  \
                    Socket errors: connect 0, read 2, write 0, timeout 1\n  Non-2xx or 3xx responses: 7\n\
                    Requests/sec:  65027.10\nTransfer/sec:     51.91MB\n";
        let wanted = Printed { requests: 71530, rate: 65027.1, p99_millis: 1200.0, errors: 10 };
        assert_eq!(Printed::of_wrk(printed, 200).unwrap(), wanted);
        assert_eq!(Printed::of_wrk(printed, 403).unwrap().errors, 71526);
        assert!(Printed::of_wrk("unable to connect", 200).is_err());
    }

    #[test]
    fn what_ab_prints_is_read() {
        let printed = "Complete requests:      7500\nFailed requests:        2\nNon-2xx responses:      1\n\
                    Requests per second:    7433.98 [#/sec] (mean)\n  99%      3\n";
        let wanted = Printed { requests: 7500, rate: 7433.98, p99_millis: 3.0, errors: 3 };
        assert_eq!(Printed::of_ab(printed, 200).unwrap(), wanted);
    }

    #[test]
    fn what_h2load_prints_is_read() {
        let printed = "finished in 1.00s, 52105.00 req/s, 32.44MB/s\nrequests: 52105 total, 52361 started, 52105 done, 52100 succeeded, 5 failed, \
                    2 errored, 0 timeout\nstatus codes: 52100 2xx, 0 3xx, 3 4xx, 2 5xx\ntraffic: 32.44MB (34015540) total\n";
        let read = Printed::of_h2load(printed).unwrap();
        assert_eq!((read.requests, read.rate, read.errors), (52105, 52105.0, 7));
        assert!(Printed::of_h2load("[ERROR] connect").is_err());
    }

    #[test]
    fn what_openssl_prints_is_read() {
        let printed = "Collecting connection statistics for 2 seconds\n**r*\n\n4 connections in 0.01s; 400.00 \
                    connections/user sec, bytes read 0\n4 connections in 2 real seconds, 0 bytes read per connection\n";
        let read = Printed::of_handshakes(printed).unwrap();
        assert_eq!((read.requests, read.errors), (4, 1));
        assert!(Printed::of_handshakes("ERROR").is_err());
    }
}
