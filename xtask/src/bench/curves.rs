//! Curves of Larder alone: the cost of a hit as connections and objects grow, and the memory that each of them takes.
//! Larder alone.

use super::field::{self, Contestant, Extras, Kind, Stage, USUAL};
use super::proof;
use super::report::{figure, machine, median_of, ratio};
use super::table::{Origin, turn};
use super::tool::{Load, Sample, Script, Tool};
use crate::http::Connection;
use crate::lab::Lab;
use crate::processes::resident_kb_of_tree;
use crate::shell::Trouble;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

const OPEN: [usize; 5] = [1, 10, 100, 1_000, 10_000];
const BUSY_MAX: usize = 64;
const OBJECTS: [u64; 4] = [1, 1_000, 100_000, 1_000_000];
const ROOMY: Extras = Extras { memory: "4GB", ..USUAL };
/// Objects of 16 bytes, for a count of which those of 1 KB would not fit.
const TINY_OBJECTS: [u64; 3] = [1_000, 100_000, 10_000_000];
const TINY_ROOMY: Extras = Extras { memory: "14GB", ..USUAL };
const TINY_NEEDS_BYTES: f64 = 15e9;
/// The default of the memory store.
const IDLE: Extras = Extras { memory: "256MB", ..USUAL };
const ON_DISK: Extras = Extras { memory: "4MB", disk: "4GB", ..USUAL };
/// Objects that fill the memory tier before memory of objects on disk is counted, and those that are counted.
const DISK_FIRST: u64 = 20_000;
const DISK_COUNTED: u64 = 200_000;
const OBJECT_BYTES: f64 = 1024.0;
/// A curve is flat while it stays below this much over the smallest case that keeps the server busy.
const FLAT: f64 = 1.10;

/// A point of a curve.
struct Point {
    count: u64,
    samples: Vec<Option<Sample>>,
}

/// A measured quantity with its limit.
struct Taken {
    name: String,
    value: f64,
    most: f64,
    unit: &'static str,
}

/// Plays all and gives the page.
pub fn play(root: &Path, rounds: usize, seconds: u64) -> Result<String, Trouble> {
    field::build(root)?;
    let mut taken = Vec::new();
    let (connections, bare, version) = grow_connections(root, rounds, seconds, &mut taken)?;
    let objects = grow_objects(root, rounds, seconds, &mut taken)?;
    let tiny = match free_bytes()? >= TINY_NEEDS_BYTES {
        true => grow_tiny(root, rounds, seconds)?,
        false => Vec::new(),
    };
    objects_on_disk(root, &mut taken)?;
    Ok(page(rounds, seconds, &version, [&connections, &bare], [&objects, &tiny], &taken))
}

fn grow_connections(
    root: &Path,
    rounds: usize,
    seconds: u64,
    taken: &mut Vec<Taken>,
) -> Result<(Vec<Point>, Vec<Point>, String), Trouble> {
    let (mut lab, origin) = Origin::in_a_new_lab()?;
    let idle = Contestant::start_larder("idle", &IDLE, root, &mut lab, origin.port)?;
    let resident = |server: &Contestant| -> Result<f64, Trouble> {
        std::thread::sleep(SETTLE);
        Ok(resident_kb_of_tree(server.id)? as f64 * 1024.0)
    };
    taken.push(Taken {
        name: format!("idle process with {} of memory store, resident", IDLE.memory),
        value: resident(&idle)? / 1e6,
        most: 10.0,
        unit: "MB",
    });
    proof::prove_hit(&hits(&idle, 1), &lab)?;
    hits(&idle, BUSY_MAX).sample(&lab, idle.id, origin.id, seconds, 0)?;
    let before = resident(&idle)?;
    let kept = open_idle(&idle, fitting() - BUSY_MAX, Vec::new())?;
    let value = (resident(&idle)? - before) / kept.len() as f64;
    let name = format!("idle kept connection, of {}, at the same process", kept.len());
    taken.push(Taken { name, value, most: 2048.0, unit: "bytes" });
    drop(kept);
    lab.end_last();
    let server = Contestant::start_larder("connections", &USUAL, root, &mut lab, origin.port)?;
    proof::prove_hit(&hits(&server, 1), &lab)?;
    hits(&server, BUSY_MAX).sample(&lab, server.id, origin.id, seconds, 0)?;
    let points = grow(&server, &lab, &origin, rounds, seconds)?;
    lab.end_last();
    let limit = Contestant::start(Kind::Limit, Stage::Memory, root, &mut lab, origin.port, None)?;
    let bare = grow(&limit, &lab, &origin, rounds, seconds)?;
    Ok((points, bare, server.version))
}

/// The most connections that there are descriptors for: each may need one towards the origin too, and the server has
/// some of its own.
fn fitting() -> usize {
    let most = OPEN.into_iter().max().unwrap_or(BUSY_MAX);
    (field::descriptors() as usize / 2).saturating_sub(300).clamp(BUSY_MAX, most)
}

/// Hits of one object by so many connections.
fn hits(server: &Contestant, connections: usize) -> Load {
    let tool = Tool::Wrk { connections, closes: false };
    let url = format!("http://127.0.0.1:{}/600", server.doors.plain);
    Load { tool, url, script: Script::Plain, status: 200 }
}

/// All counts in each round, from few to many: some connections ask, the others were opened before.
fn grow(server: &Contestant, lab: &Lab, origin: &Origin, rounds: usize, seconds: u64) -> Result<Vec<Point>, Trouble> {
    let open = OPEN.map(|open| open.min(fitting()));
    let mut points: Vec<Point> = open.map(|count| Point { count: count as u64, samples: vec![] }).into();
    for round in 0..rounds {
        let mut idle = Vec::new();
        for (at, open) in open.into_iter().enumerate() {
            let busy = open.min(BUSY_MAX);
            idle = open_idle(server, open - busy, idle)?;
            let sample = hits(server, busy).sample(lab, server.id, origin.id, seconds, 0)?;
            points[at].samples.push(Some(sample));
            server.empty_log();
        }
        println!("connections, round {} of {rounds}", round + 1);
    }
    Ok(points)
}

/// Opens connections until there are so many.
fn open_idle(server: &Contestant, count: usize, mut idle: Vec<Connection>) -> Result<Vec<Connection>, Trouble> {
    while idle.len() < count {
        let opened = open_and_ask(server.doors.plain);
        idle.push(opened.map_err(|trouble| format!("idle connection {}: {trouble}", idle.len()))?);
    }
    Ok(idle)
}

fn open_and_ask(port: u16) -> Result<Connection, Trouble> {
    let mut connection = Connection::open(port)?;
    let request = format!("GET /600 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    let answer = connection.ask(request.as_bytes(), false)?;
    match (answer.status, answer.keeps) {
        (200, true) => Ok(connection),
        (status, _) => Err(format!("a connection that was to stay got {status} and an end")),
    }
}

/// A server for each count, all filled before the rounds: so they alternate.
fn grow_objects(root: &Path, rounds: usize, seconds: u64, taken: &mut Vec<Taken>) -> Result<Vec<Point>, Trouble> {
    let (mut lab, origin) = Origin::in_a_new_lab()?;
    let head = head_bytes(origin.port)?;
    let mut servers = Vec::new();
    for (at, count) in OBJECTS.into_iter().enumerate() {
        let server = Contestant::start_larder(&format!("objects-{count}"), &ROOMY, root, &mut lab, origin.port)?;
        // The buffers of the load's connections are not the objects'.
        proof::fill(server.doors.plain, FOLDER, 1, None)?;
        let before = resident_kb_of_tree(server.id)?;
        proof::fill(server.doors.plain, FOLDER, count, None)?;
        server.empty_log();
        println!("{count} objects are there");
        if at + 1 == OBJECTS.len() {
            std::thread::sleep(SETTLE);
            let grown = (resident_kb_of_tree(server.id)? - before) as f64 * 1024.0;
            let value = grown / count as f64 - OBJECT_BYTES - head;
            let name = format!("object of 1 KB in memory, of {count}, beyond body and head as received");
            taken.push(Taken { name, value, most: 250.0, unit: "bytes" });
        }
        servers.push(server);
    }
    draw_objects(&lab, &origin, &servers, (FOLDER, &OBJECTS), rounds, seconds)
}

/// Asks each server for any of its objects, in alternated rounds; the first one warms up.
fn draw_objects(
    lab: &Lab,
    origin: &Origin,
    servers: &[Contestant],
    (folder, counts): (&'static str, &[u64]),
    rounds: usize,
    seconds: u64,
) -> Result<Vec<Point>, Trouble> {
    let mut points: Vec<Point> = counts.iter().map(|&count| Point { count, samples: vec![] }).collect();
    for round in 0..=rounds {
        let mut order: Vec<usize> = (0..counts.len()).collect();
        turn(&mut order, round);
        for at in order {
            let load = load_of(&servers[at], Script::Uniform(folder, counts[at]));
            let sample = load.sample(lab, servers[at].id, origin.id, seconds, round as u64)?;
            servers[at].empty_log();
            if round > 0 {
                points[at].samples.push(Some(sample));
            }
        }
        println!("objects below {folder}, round {round} of {rounds}");
    }
    Ok(points)
}

fn load_of(server: &Contestant, script: Script) -> Load {
    let tool = Tool::Wrk { connections: BUSY_MAX, closes: false };
    Load { tool, url: format!("http://127.0.0.1:{}/", server.doors.plain), script, status: 200 }
}

/// Like [`grow`], with many more objects, and smaller ones.
fn grow_tiny(root: &Path, rounds: usize, seconds: u64) -> Result<Vec<Point>, Trouble> {
    let (mut lab, origin) = Origin::in_a_new_lab()?;
    let mut servers = Vec::new();
    for count in TINY_OBJECTS {
        let server = Contestant::start_larder(&format!("tiny-{count}"), &TINY_ROOMY, root, &mut lab, origin.port)?;
        fill_by_load(&server, &lab, &origin, count)?;
        println!("{count} objects of 16 bytes are there");
        servers.push(server);
    }
    draw_objects(&lab, &origin, &servers, (TINY_FOLDER, &TINY_OBJECTS), rounds, seconds)
}

/// Has all objects fetched by the load generator, which does not wait for one before it asks for the next. The few that
/// were under way when a run ended are asked for by the first round.
fn fill_by_load(server: &Contestant, lab: &Lab, origin: &Origin, count: u64) -> Result<(), Trouble> {
    let mut before = None;
    loop {
        let there = metric(server.doors.admin, "larder_store_objects")? as u64;
        if there >= count - count / 1000 {
            return Ok(());
        }
        if before == Some(there) {
            return Err(format!("{there} of {count} objects are there, and no more come"));
        }
        before = Some(there);
        let load = load_of(server, Script::Sequence(TINY_FOLDER, there, count));
        load.sample(lab, server.id, origin.id, FILL_SECONDS, 0)?;
        server.empty_log();
    }
}

/// Memory that is free for new processes.
fn free_bytes() -> Result<f64, Trouble> {
    let text = std::fs::read_to_string("/proc/meminfo").map_err(|error| format!("/proc/meminfo: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kb = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kb.map(|kb| kb * 1024.0).ok_or_else(|| "no MemAvailable in /proc/meminfo".to_owned())
}

const FOLDER: &str = "/k/";
const TINY_FOLDER: &str = "/t/";
/// One run of the load generator while it fills.
const FILL_SECONDS: u64 = 20;
const SETTLE: Duration = Duration::from_millis(1500);

/// Bytes of the origin's head as text.
fn head_bytes(origin: u16) -> Result<f64, Trouble> {
    let request = format!("GET {FOLDER}1 HTTP/1.1\r\nHost: 127.0.0.1:{origin}\r\n\r\n");
    let answer = Connection::open(origin)?.ask(request.as_bytes(), false)?;
    let fields: usize = answer.fields.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    Ok(fields as f64)
}

fn objects_on_disk(root: &Path, taken: &mut Vec<Taken>) -> Result<(), Trouble> {
    let (mut lab, origin) = Origin::in_a_new_lab()?;
    let server = Contestant::start_larder("on-disk", &ON_DISK, root, &mut lab, origin.port)?;
    proof::fill(server.doors.plain, FOLDER, DISK_FIRST, None)?;
    std::thread::sleep(SETTLE);
    let before = resident_kb_of_tree(server.id)?;
    proof::fill(server.doors.plain, FOLDER, DISK_FIRST + DISK_COUNTED, None)?;
    std::thread::sleep(SETTLE);
    let grown = resident_kb_of_tree(server.id)?.saturating_sub(before) as f64 * 1024.0;
    let name = format!("memory of an object of 1 KB on disk, of {DISK_COUNTED}");
    taken.push(Taken { name, value: grown / DISK_COUNTED as f64, most: 48.0, unit: "bytes" });
    let (index, objects) = index_of_disk(server.doors.admin)?;
    let name = format!("the same as the store says, its index over {objects} objects");
    taken.push(Taken { name, value: index / objects.max(1.0), most: 48.0, unit: "bytes" });
    Ok(())
}

/// Bytes of the index and objects on disk, from the metrics.
fn index_of_disk(admin: u16) -> Result<(f64, f64), Trouble> {
    Ok((metric(admin, "larder_store_disk_index_bytes")?, metric(admin, "larder_store_disk_objects")?))
}

/// A number that a server says of itself.
fn metric(admin: u16, name: &str) -> Result<f64, Trouble> {
    let request = format!("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{admin}\r\n\r\n");
    let text = Connection::open(admin)?.ask(request.as_bytes(), false)?.body;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse::<f64>().ok()).ok_or_else(|| format!("no {name} in the metrics"))
}

fn page(
    rounds: usize,
    seconds: u64,
    version: &str,
    [connections, bare]: [&[Point]; 2],
    [objects, tiny]: [&[Point]; 2],
    taken: &[Taken],
) -> String {
    let mut text = format!(
        "# Cost as connections and objects grow\n\n`cargo xtask bench curves`: {version}, log and metrics on, server alone on core 0, \
         load and origin on core 1; {rounds} rounds of {seconds} s, medians; {}. CPU time of the server per hit in µs. Flat means here: \
         at most {FLAT} × the point that others are compared with, round by round.\n\n## Open connections\n\n\
         At most {BUSY_MAX} of them ask for one object of 600 B (fewer keep the server from being busy, so that it sleeps and \
         wakes for each request); the others have asked once and stay.\n\n",
        machine(),
    );
    text.push_str(&curve("connections", connections, 2));
    text.push_str("\nThe bare event loop of `xtask bench limit`, which keeps nothing but a socket for each:\n\n");
    text.push_str(&curve("connections", bare, 2));
    text.push_str(
        "\n## Objects in memory\n\n1 KB each, drawn uniformly by 64 connections. Where all of them are in the processor's caches \
         the bodies are too; a million of them are 2 GB.\n\n",
    );
    text.push_str(&curve("objects", objects, 1));
    match tiny {
        [] => text
            .push_str("\nThe curve to 10,000,000 objects of 16 bytes was left out: it takes 15 GB of free memory.\n"),
        tiny => {
            text.push_str("\n16 bytes each, the same way:\n\n");
            text.push_str(&curve("objects", tiny, 0));
        }
    }
    text.push_str(
        "\n## Memory\n\nGrowth of the resident memory.\n\n| what | takes | at most | |\n|---|---:|---:|---|\n",
    );
    for Taken { name, value, most, unit } in taken {
        let met = if value <= most { "met" } else { "**missed**" };
        writeln!(text, "| {name} | {value:.1} {unit} | {most:.0} {unit} | {met} |").ok();
    }
    text
}

/// A table whose goal begins behind the point that the others are compared with.
fn curve(what: &str, points: &[Point], base: usize) -> String {
    let mut text = format!(
        "| {what} | µs | ratio | goal | | requests/s | noise | errors |\n|---:|---:|---:|---:|---|---:|---:|---:|\n"
    );
    for (at, point) in points.iter().enumerate() {
        let ratio = ratio(&point.samples, &points[base].samples);
        let (goal, met) = match at {
            at if at <= base => ("–".to_owned(), ""),
            _ => (format!("≤ {FLAT}"), if ratio <= FLAT { "met" } else { "**missed**" }),
        };
        writeln!(
            text,
            "| {} | {} | {ratio:.2} | {goal} | {met} | {:.0} | {:.2} | {} |",
            point.count,
            figure(median_of(&point.samples, |sample| sample.cpu_micros)),
            median_of(&point.samples, |sample| sample.rate),
            median_of(&point.samples, |sample| sample.noise_cores),
            point.samples.iter().flatten().map(|sample| sample.errors).sum::<u64>(),
        )
        .ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_behind_the_base_are_judged() {
        let point = |count, micros| Point {
            count,
            samples: vec![Some(Sample {
                cpu_micros: micros,
                kernel_share: 0.5,
                rate: 1.0,
                p99_millis: 1.0,
                errors: 0,
                noise_cores: 0.0,
                origin_micros: 0.0,
            })],
        };
        let text = curve("objects", &[point(1, 5.0), point(10, 5.0), point(100, 5.4), point(1000, 6.0)], 1);
        let verdicts: Vec<&str> = text.lines().skip(2).map(|line| line.split(" | ").nth(4).unwrap()).collect();
        assert_eq!(verdicts, ["", "", "met", "**missed**"]);
    }
}
