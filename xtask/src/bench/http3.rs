//! HTTP/3 with clients: Larder beside the least that a server on the same library of QUIC needs. No packaged server here speaks HTTP/3.

use super::field::on_core;
use super::report::{figure, machine, median_of, ratio};
use super::table::{Origin, Played, play_cells};
use super::tool::{Load, Sample, Script, Tool};
use crate::lab::{self, Lab};
use crate::shell::{self, Trouble};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Larder's CPU time for a hit is at most so many times that of the bare server.
const RATIO_MAX: f64 = 1.25;

/// The program of both ends, an example of the package `larder`.
const ENDS: &str = "http3";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Server {
    Larder,
    LarderWithoutLog,
    Bare,
}

impl Server {
    const ALL: [Server; 3] = [Server::Larder, Server::LarderWithoutLog, Server::Bare];

    fn as_str(self) -> &'static str {
        match self {
            Server::Larder => "larder",
            Server::LarderWithoutLog => "larder, no log",
            Server::Bare => "bare",
        }
    }
}

struct Cell {
    name: &'static str,
    path: &'static str,
    bytes: usize,
    connections: usize,
    streams: usize,
}

#[rustfmt::skip]
const CELLS: [Cell; 4] = [
    Cell { name: "hit 600 B, 8 × 32", path: "/600", bytes: 600, connections: 8, streams: 32 },
    Cell { name: "hit 600 B, 64 × 1", path: "/600", bytes: 600, connections: 64, streams: 1 },
    Cell { name: "hit 16 KB, 8 × 32", path: "/16k", bytes: 16_384, connections: 8, streams: 32 },
    Cell { name: "hit 1 MB, 8 × 1", path: "/1m", bytes: 1 << 20, connections: 8, streams: 1 },
];

/// A server with the port that answers a cell.
struct Running {
    server: Server,
    ports: [u16; CELLS.len()],
    ids: [u32; CELLS.len()],
}

type Samples = Played<Server>;

/// Plays all and gives the page.
pub fn play(root: &Path, rounds: usize, seconds: u64) -> Result<String, Trouble> {
    shell::build_published(root, "larder", &["larder"])?;
    shell::build_published_example(root, "larder", ENDS)?;
    let larder = shell::published(root, "larder");
    let ends = shell::published(root, "examples").join(ENDS);
    let (mut lab, origin) = Origin::in_a_new_lab()?;
    let mut running = Vec::new();
    for server in Server::ALL {
        running.push(start(server, (&larder, &ends), &mut lab, &origin)?);
    }
    let sample = |at: usize, each: &Running, round| {
        CELLS[at].load(at, each, (&ends, &lab)).sample(&lab, each.ids[at], origin.id, seconds, round)
    };
    let samples = play_cells("http3", rounds, CELLS.len(), &running, |each| each.server, sample)?;
    let version = shell::ask(Command::new(&larder).arg("--version"))?;
    Ok(page(version.trim(), rounds, seconds, &samples))
}

fn start(server: Server, (larder, ends): (&Path, &Path), lab: &mut Lab, origin: &Origin) -> Result<Running, Trouble> {
    let file = |name: &str| lab.path().join(name).display().to_string();
    let (chain, key) = (file("leaf.pem"), file("leaf.key"));
    let mut running = Running { server, ports: [0; CELLS.len()], ids: [0; CELLS.len()] };
    if server == Server::Bare {
        for (at, cell) in CELLS.iter().enumerate() {
            let port = lab::free_port()?;
            let mut command = on_core(0, &ends.display().to_string())?;
            command.args(["limit", &port.to_string(), &chain, &key, &cell.bytes.to_string()]);
            running.ids[at] = lab.start(&format!("bare-{at}"), &mut command, port)?;
            running.ports[at] = port;
        }
        return Ok(running);
    }
    let name = server.as_str().replace(", ", "-").replace(' ', "-");
    let (port, log) = (lab::free_port()?, file(&format!("{name}/access.log")));
    let log = if server == Server::Larder { log } else { "none".to_owned() };
    let text = format!(
        "memory = \"1GB\"\ndisk = \"0\"\nstore = \"{}\"\nworkers = 1\nadmin = \"none\"\n\
         [[listen]]\naddress = \"127.0.0.1:{port}\"\norigin = \"http://127.0.0.1:{}\"\nhttp3 = true\n\
         tls = [{{ chain = \"{chain}\", key = \"{key}\" }}]\n\
         [limits]\nconnections_per_client_max = \"none\"\norigin_share_percent = 100\n[log]\nto = \"{log}\"\n",
        file(&format!("{name}/store")),
        origin.port
    );
    let conf = lab.write(&format!("{name}/larder.toml"), text)?;
    let mut command = on_core(0, &larder.display().to_string())?;
    let id = lab.start(&name, command.arg("--config").arg(conf), port)?;
    (running.ports, running.ids) = ([port; CELLS.len()], [id; CELLS.len()]);
    Ok(running)
}

impl Cell {
    fn load(&self, at: usize, running: &Running, (ends, lab): (&PathBuf, &Lab)) -> Load {
        let tool = Tool::Http3 {
            program: ends.clone(),
            chain: lab.path().join("leaf.pem"),
            port: running.ports[at],
            bytes: self.bytes,
            connections: self.connections,
            streams: self.streams,
        };
        Load { tool, url: self.path.to_owned(), script: Script::Plain, status: 200 }
    }
}

fn page(version: &str, rounds: usize, seconds: u64, samples: &Samples) -> String {
    let mut text = format!(
        "# HTTP/3 with clients\n\n`cargo xtask bench http3`: {version} with one worker, or the bare server, alone on core 0, a client on quinn \
         and the origin on core 1; a warm-up and {rounds} alternated rounds of {seconds} s, medians; {}. Figures are CPU time of the \
         server per request, user and kernel, the work of QUIC and TLS included; ratios are Larder's to the bare server's, round by \
         round. `8 × 32`: so many connections with so many requests under way on each. The bare server (`crates/larder/examples/http3.rs`) \
         is on quinn too, as Larder is: it answers each stream with the same bytes, reads no frame, and keeps no log. No packaged server \
         of this system speaks HTTP/3, so that none stands beside.\n\n\
         | | larder | larder, no log | bare | goal | |\n|---|---:|---:|---:|---|---|\n",
        machine(),
    );
    for (at, cell) in CELLS.iter().enumerate() {
        let of = |server| samples.get(&(at, server)).map(Vec::as_slice).unwrap_or_default();
        let figures: Vec<String> = Server::ALL
            .iter()
            .map(|server| {
                let micros = figure(median_of(of(*server), |sample| sample.cpu_micros));
                format!("{micros} µs, {:.0}/s", median_of(of(*server), |sample| sample.rate))
            })
            .collect();
        let ratio = ratio(of(Server::Larder), of(Server::Bare));
        let met = if ratio <= RATIO_MAX { "met" } else { "**missed**" };
        let _ =
            writeln!(text, "| {} | {} | ≤ {RATIO_MAX} × bare | {ratio:.2} × {met} |", cell.name, figures.join(" | "));
    }
    let errors: u64 = samples.values().flatten().flatten().map(|sample| sample.errors).sum();
    let noise: Vec<Option<Sample>> = samples.values().flatten().copied().collect();
    let noise = median_of(&noise, |sample| sample.noise_cores);
    let _ =
        writeln!(text, "\nErrors: {errors}. Cores that other processes and the hypervisor took, median: {noise:.2}.");
    text
}
