//! HTTP/2 with clients: Larder and packaged servers that speak it too, asked by h2load, in clear text by prior knowledge and over
//! TLS.

use super::field::{self, Contestant, Doors, on_core};
use super::report::{figure, machine, median_of, ratio};
use super::table::{Origin, Played, play_cells};
use super::tool::{Load, Sample, Script, Tool};
use crate::lab::{self, Lab};
use crate::shell::{self, Trouble};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// The servers, Larder first, as it is by default and as the others are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Server {
    Larder,
    LarderWithoutLog,
    Nginx,
    Haproxy,
    H2o,
}

impl Server {
    const ALL: [Server; 5] = [Server::Larder, Server::LarderWithoutLog, Server::Nginx, Server::Haproxy, Server::H2o];

    fn as_str(self) -> &'static str {
        match self {
            Server::Larder => "larder",
            Server::LarderWithoutLog => "larder, no log",
            Server::Nginx => "nginx",
            Server::Haproxy => "haproxy",
            Server::H2o => "h2o",
        }
    }
}

/// A load, and the goals: µs, and the ratio to H2O or to the best of the others.
struct Cell {
    name: &'static str,
    is_tls: bool,
    path: &'static str,
    connections: usize,
    streams: usize,
    micros_max: Option<f64>,
    ratio_max: f64,
    beside: Beside,
}

/// The figure that Larder's is compared with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    H2o,
    Best,
}

impl Beside {
    fn as_str(self) -> &'static str {
        match self {
            Beside::H2o => "H2O",
            Beside::Best => "the best of the others",
        }
    }
}

#[rustfmt::skip]
const CELLS: [Cell; 6] = [
    Cell { name: "clear text, hit 600 B, 8 × 32", is_tls: false, path: "/600", connections: 8, streams: 32, micros_max: Some(3.0), ratio_max: 0.9, beside: Beside::H2o },
    Cell { name: "TLS, hit 600 B, 8 × 32", is_tls: true, path: "/600", connections: 8, streams: 32, micros_max: Some(4.5), ratio_max: 1.0, beside: Beside::H2o },
    Cell { name: "TLS, hit 16 KB, 8 × 32", is_tls: true, path: "/16k", connections: 8, streams: 32, micros_max: None, ratio_max: 0.8, beside: Beside::H2o },
    Cell { name: "clear text, hit 600 B, 64 × 1", is_tls: false, path: "/600", connections: 64, streams: 1, micros_max: None, ratio_max: 0.9, beside: Beside::Best },
    Cell { name: "TLS, hit 600 B, 64 × 1", is_tls: true, path: "/600", connections: 64, streams: 1, micros_max: None, ratio_max: 0.9, beside: Beside::Best },
    Cell { name: "clear text, uncachable 600 B, origin HTTP/1.1, 8 × 32", is_tls: false, path: "/nc/600", connections: 8, streams: 32, micros_max: None, ratio_max: 1.0, beside: Beside::Best },
];

struct Running {
    server: Server,
    doors: Doors,
    id: u32,
    version: String,
}

type Samples = Played<Server>;

/// Plays all and gives the page.
pub fn play(root: &Path, rounds: usize, seconds: u64) -> Result<String, Trouble> {
    ["h2load", "haproxy", "h2o"].into_iter().try_for_each(|program| shell::need_program(program).map(drop))?;
    field::build(root)?;
    let (mut lab, origin) = Origin::in_a_new_lab()?;
    let mut running = Vec::new();
    for server in Server::ALL {
        let started = start(server, root, &mut lab, &origin)?;
        CELLS.iter().try_for_each(|cell| prove(cell, &started))?;
        running.push(started);
    }
    let sample =
        |at: usize, each: &Running, round| CELLS[at].load(each).sample(&lab, each.id, origin.id, seconds, round);
    let samples = play_cells("http2", rounds, CELLS.len(), &running, |each| each.server, sample)?;
    Ok(page(rounds, seconds, &running, &samples))
}

fn start(server: Server, root: &Path, lab: &mut Lab, origin: &Origin) -> Result<Running, Trouble> {
    if matches!(server, Server::Larder | Server::LarderWithoutLog) {
        let log = server == Server::Larder;
        let name = if log { "larder" } else { "larder-no-log" };
        let larder = Contestant::start_larder(name, &field::Extras { log, ..field::USUAL }, root, lab, origin.port)?;
        return Ok(Running { server, doors: larder.doors, id: larder.id, version: larder.version });
    }
    let doors = Doors::free()?;
    let descriptors = field::descriptors();
    let fill = [
        ("plain", doors.plain.to_string()),
        ("tls", doors.tls.to_string()),
        ("origin", origin.port.to_string()),
        ("lab", lab.path().display().to_string()),
        ("cache", field::memory_folder(lab)?.display().to_string()),
        ("descriptors", descriptors.to_string()),
        ("open", descriptors.saturating_sub(5_000).clamp(1_000, 200_000).to_string()),
    ];
    let (program, flag, template) = match server {
        Server::Nginx => ("nginx", "-v", nginx()),
        Server::Haproxy => ("haproxy", "-v", haproxy()),
        _ => ("h2o", "--version", include_str!("../../peers/http2-h2o.conf").to_owned()),
    };
    let version = field::said_version(program, flag)?;
    let conf = lab::configuration(lab, server.as_str(), &template, &fill)?;
    let mut command = on_core(0, program)?;
    match server {
        Server::Haproxy => command.args(["-db", "-f"]).arg(conf),
        _ => command.arg("-c").arg(conf),
    };
    let id = lab.start(server.as_str(), &mut command, doors.plain)?;
    Ok(Running { server, doors, id, version })
}

/// The configuration of the table, with other words on the lines that name an address to listen on.
fn over_http2(template: &str, from: &str, to: &str) -> String {
    let is_door = |line: &str| line.contains("127.0.0.1:{plain}") || line.contains("127.0.0.1:{tls}");
    template
        .split_inclusive('\n')
        .map(|line| if is_door(line) { line.replace(from, to) } else { line.to_owned() })
        .collect()
}

/// With `tcp_nopush` replies of lone streams come 40 ms late; what may not be cached would wait for the lock of its key.
fn nginx() -> String {
    over_http2(include_str!("../../peers/bench-nginx.conf"), " backlog", " http2 backlog")
        .replace("tcp_nopush on;", "tcp_nopush off;")
        .replace(
            "    location / {",
            "    location /nc/ { proxy_cache off; proxy_pass http://origin; }\n    location / {",
        )
}

fn haproxy() -> String {
    let plain =
        over_http2(include_str!("../../peers/bench-haproxy.cfg"), "{plain} backlog", "{plain} proto h2 backlog");
    over_http2(&plain, "both.pem", "both.pem alpn h2")
}

impl Cell {
    fn url(&self, running: &Running) -> String {
        match self.is_tls {
            true => format!("https://127.0.0.1:{}{}", running.doors.tls, self.path),
            false => format!("http://127.0.0.1:{}{}", running.doors.plain, self.path),
        }
    }

    fn load(&self, running: &Running) -> Load {
        let tool = Tool::H2load { connections: self.connections, streams: self.streams };
        Load { tool, url: self.url(running), script: Script::Plain, status: 200 }
    }

    fn is_hit(&self) -> bool {
        !self.path.starts_with("/nc/")
    }
}

/// Another client gets the whole body over HTTP/2, and a cache gives the same answer twice.
fn prove(cell: &Cell, running: &Running) -> Result<(), Trouble> {
    let ask = || -> Result<String, Trouble> {
        let mut curl = Command::new(shell::need_program("curl")?);
        curl.args([
            "-sk",
            "-o",
            "/dev/null",
            "-w",
            "%{http_version} %{response_code} %{size_download} %header{answer-name}",
        ]);
        shell::ask(curl.arg(if cell.is_tls { "--http2" } else { "--http2-prior-knowledge" }).arg(cell.url(running)))
    };
    let bytes = if cell.path.ends_with("16k") { 16_384 } else { 600 };
    let wanted = format!("2 200 {bytes}");
    ask()?;
    let (first, second) = (ask()?, ask()?);
    let is_cache = running.server != Server::H2o && cell.is_hit();
    if !first.trim().starts_with(&wanted) || (is_cache && first != second) {
        let name = running.server.as_str();
        return Err(format!("{name}: {}: {first:?}, then {second:?} in place of {wanted:?}", cell.name));
    }
    Ok(())
}

fn page(rounds: usize, seconds: u64, running: &[Running], samples: &Samples) -> String {
    let mut text = format!(
        "# HTTP/2 with clients\n\n`cargo xtask bench http2`: each server alone on core 0 with one worker, h2load with one thread and the origin \
         on core 1; a warm-up and {rounds} alternated rounds of {seconds} s, medians; {}. Figures are CPU time of the server's \
         processes per request, user and kernel; ratios are Larder's to the other's, round by round. `8 × 32`: so many \
         connections with so many streams under way on each. Larder writes its access log, the others and the second Larder write none; goals are about the first. nginx has no cache and so no lock for what may not be cached. H2O has no cache: its hits are files \
         that it reads itself, and it passes on what may not be cached.\n\n",
        machine(),
    );
    for each in running {
        let _ = writeln!(text, "- {}: {}", each.server.as_str(), each.version);
    }
    let names: Vec<&str> = running.iter().map(|each| each.server.as_str()).collect();
    let _ = write!(text, "\n| | {} | goal | |\n|---|{}---|---|\n", names.join(" | "), "---:|".repeat(names.len()));
    for (at, cell) in CELLS.iter().enumerate() {
        let of = |server| samples.get(&(at, server)).map(Vec::as_slice).unwrap_or_default();
        let figures: Vec<String> = running
            .iter()
            .map(|each| {
                let micros = figure(median_of(of(each.server), |sample| sample.cpu_micros));
                format!("{micros} µs, {:.0}/s", median_of(of(each.server), |sample| sample.rate))
            })
            .collect();
        let (goal, met) = cell.judged(&of);
        let _ = writeln!(text, "| {} | {} | {goal} | {met} |", cell.name, figures.join(" | "));
    }
    let errors: u64 = samples.values().flatten().flatten().map(|sample| sample.errors).sum();
    let noise: Vec<Option<Sample>> = samples.values().flatten().copied().collect();
    let noise = median_of(&noise, |sample| sample.noise_cores);
    let _ =
        writeln!(text, "\nErrors: {errors}. Cores that other processes and the hypervisor took, median: {noise:.2}.");
    text
}

impl Cell {
    /// The goal in words, and the figure beside it.
    fn judged<'a>(&self, of: &impl Fn(Server) -> &'a [Option<Sample>]) -> (String, String) {
        let micros = median_of(of(Server::Larder), |sample| sample.cpu_micros);
        let others: &[Server] = match self.beside {
            Beside::H2o => &[Server::H2o],
            Beside::Best => &[Server::Nginx, Server::Haproxy, Server::H2o],
        };
        // The largest one is the ratio to the best of them.
        let ratio = others.iter().map(|other| ratio(of(Server::Larder), of(*other))).fold(0.0, f64::max);
        let mut goal = format!("≤ {:.2} × {}", self.ratio_max, self.beside.as_str());
        if let Some(most) = self.micros_max {
            goal = format!("≤ {most} µs, {goal}");
        }
        let is_met = ratio <= self.ratio_max && self.micros_max.is_none_or(|most| micros <= most);
        (goal, format!("{ratio:.2} × {}", if is_met { "met" } else { "**missed**" }))
    }
}
