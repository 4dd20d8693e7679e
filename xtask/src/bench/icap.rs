//! An ICAP service that changes nothing, beside none: bodies of 1 MB that are not stored. And what clients see of a service that is
//! killed under load and comes back: who is refused, who waits, and whether a wrong byte gets through.

use super::field::on_core;
use super::report::{figure, machine, median};
use super::table::{Origin, turn};
use super::tool::{Load, Sample, Script, Tool};
use crate::http::{Answer, Connection};
use crate::icap_echo::{self, Echo};
use crate::lab::{self, Lab};
use crate::processes;
use crate::shell::{self, Trouble};
use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 4;
/// Of the throughput without a service.
const RATIO_MIN: f64 = 0.7;
/// Clients of the killed service, each with a request every so often.
const CLIENTS: usize = 8;
const EVERY: Duration = Duration::from_millis(10);
/// The length of each phase, at least: it runs, it is killed, it is back.
const PHASE: Duration = Duration::from_secs(4);
/// The last client ends then, whether the service is back or not.
const ENDS_WITHIN: Duration = Duration::from_secs(120);
const PHASES: [&str; 3] = ["it runs", "it is killed", "it is back"];

/// A Larder with a service, or without one.
struct Contestant {
    name: &'static str,
    id: u32,
    port: u16,
    samples: Vec<Sample>,
}

/// Plays all and gives the page.
pub fn play(root: &Path, rounds: usize, seconds: u64) -> Result<String, Trouble> {
    if !icap_echo::is_installed() {
        return Err("c-icap with its echo is not installed (Debian: c-icap)".to_owned());
    }
    shell::build_published(root, "larder", &["larder"])?;
    let (mut lab, origin) = Origin::in_a_new_lab()?;
    let echo = Echo::start(&mut lab)?;
    let mut contestants = Vec::new();
    for (name, more) in
        [("no service", None), ("echo", Some("")), ("echo, `preview = \"none\"`", Some("preview = \"none\"\n"))]
    {
        let service = more.map(|more| service(echo, more)).unwrap_or_default();
        let (id, port) = start(root, &mut lab, &origin, &format!("larder-{}", contestants.len()), &service)?;
        contestants.push(Contestant { name, id, port, samples: Vec::new() });
    }
    for round in 0..=rounds {
        let mut order: Vec<usize> = (0..contestants.len()).collect();
        turn(&mut order, round);
        for at in order {
            let url = format!("http://127.0.0.1:{}/nc/1m", contestants[at].port);
            let tool = Tool::Wrk { connections: CONNECTIONS, closes: false };
            let load = Load { tool, url, script: Script::Plain, status: 200 };
            let sample = load.sample(&lab, contestants[at].id, origin.id, seconds, round as u64)?;
            // The first one warms up.
            if round > 0 {
                contestants[at].samples.push(sample);
            }
        }
        println!("icap, round {round} of {rounds}");
    }
    let mut text = throughput(rounds, seconds, &contestants);
    text += &killed_page(root)?;
    Ok(text)
}

fn service(echo: Echo, more: &str) -> String {
    format!("[[icap]]\nname = \"echo\"\nurls = [\"{}\"]\n{more}", echo.url())
}

fn start(root: &Path, lab: &mut Lab, origin: &Origin, name: &str, more: &str) -> Result<(u32, u16), Trouble> {
    let port = lab::free_port()?;
    let folder = lab.folder(name)?.display().to_string();
    let text = format!(
        "store = \"{folder}/store\"\nadmin = \"none\"\nworkers = 1\ndisk = \"0\"\nmemory = \"64MB\"\n[[listen]]\naddress = \"127.0.0.1:{port}\"\norigin = \"http://127.0.0.1:{}\"\n\
         [limits]\nconnections_per_client_max = \"none\"\norigin_share_percent = 100\n[log]\nto = \"none\"\n{more}",
        origin.port
    );
    let conf = lab.write(&format!("{name}/larder.toml"), text)?;
    let mut command = on_core(0, &shell::published(root, "larder").display().to_string())?;
    let id = lab.start(name, command.arg("--config").arg(conf), port)?;
    Ok((id, port))
}

fn throughput(rounds: usize, seconds: u64, contestants: &[Contestant]) -> String {
    let mut text = format!(
        "# An ICAP service\n\n`cargo xtask bench icap`: bodies of 1 MB that are not stored, one worker on core 0; wrk with {CONNECTIONS} connections on core 1; nginx as the origin and \
         c-icap with its echo wherever the system likes, so that all share two cores; a warm-up and {rounds} alternated rounds of {seconds} s, medians; {}. By the settings' defaults the echo \
         says of each second message after its preview that it stays as it is (204), and gives the others back whole; with `preview = \"none\"` it gives all back.\n\n\
         | service | MB/s | of that without | goal | | CPU of Larder a body, µs | p99 ms | errors |\n|---|---:|---:|---:|---|---:|---:|---:|\n",
        machine(),
    );
    let rate = |contestant: &Contestant| median(contestant.samples.iter().map(|sample| sample.rate).collect());
    let without = rate(&contestants[0]);
    for (place, contestant) in contestants.iter().enumerate() {
        let of = |pick: fn(&Sample) -> f64| median(contestant.samples.iter().map(pick).collect());
        let ratio = rate(contestant) / without;
        let verdict = if ratio >= RATIO_MIN { "met" } else { "**missed**" };
        let judged =
            if place == 0 { "– | – | ".to_owned() } else { format!("{ratio:.2} | ≥ {RATIO_MIN} | {verdict}") };
        let errors: u64 = contestant.samples.iter().map(|sample| sample.errors).sum();
        let (cpu, p99) = (figure(of(|it| it.cpu_micros)), of(|it| it.p99_millis));
        let _ = writeln!(
            text,
            "| {} | {:.0} | {judged} | {cpu} | {p99:.1} | {errors} |",
            contestant.name,
            rate(contestant) * 1.048_576
        );
    }
    text
}

/// One request of a client.
#[derive(Clone, Copy)]
struct Seen {
    phase: usize,
    is_hit: bool,
    took: Duration,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Right,
    /// 503 of Larder.
    Refused,
    /// The connection ended before the answer did.
    BrokenOff,
    /// Anything else.
    Wrong,
}

fn killed_page(root: &Path) -> Result<String, Trouble> {
    let mut text = format!(
        "\n## A service that is killed\n\n{CLIENTS} clients ask every {} ms, in turns for an object of 16 KB that is stored and for one that is not. After {} s every process of c-icap gets a \
         SIGKILL, {} s later it is started again, as often as it takes: its port is held for a while by connections that were open. Each body is compared.\n\n\
         | `on_failure` | phase | requests | right | 503 | broken off | wrong | p99 ms | longest ms |\n|---|---|---|---:|---:|---:|---:|---:|---:|\n",
        EVERY.as_millis(),
        PHASE.as_secs(),
        PHASE.as_secs(),
    );
    for on_failure in ["deny", "pass"] {
        let seen = killed(root, on_failure)?;
        for (phase, name) in PHASES.into_iter().enumerate() {
            for is_hit in [true, false] {
                let of: Vec<Seen> =
                    seen.iter().filter(|seen| seen.phase == phase && seen.is_hit == is_hit).copied().collect();
                let many = |outcome| of.iter().filter(|seen| seen.outcome == outcome).count();
                let [right, refused, broken, wrong] =
                    [Outcome::Right, Outcome::Refused, Outcome::BrokenOff, Outcome::Wrong].map(many);
                let mut times: Vec<f64> = of.iter().map(|seen| seen.took.as_secs_f64() * 1e3).collect();
                times.sort_by(f64::total_cmp);
                let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or(f64::NAN);
                let longest = times.last().copied().unwrap_or(f64::NAN);
                let what = if is_hit { "hits" } else { "misses" };
                let _ = writeln!(
                    text,
                    "| {on_failure} | {name} | {what} | {right} | {refused} | {broken} | {wrong} | {p99:.1} | {longest:.1} |"
                );
            }
        }
    }
    Ok(text)
}

/// All requests while a service runs, is killed, and comes back.
fn killed(root: &Path, on_failure: &str) -> Result<Vec<Seen>, Trouble> {
    let (mut lab, origin) = Origin::in_a_new_lab()?;
    let echo = Echo::start(&mut lab)?;
    let service = service(echo, &format!("on_failure = \"{on_failure}\"\n"));
    let (_, port) = start(root, &mut lab, &origin, "larder", &service)?;
    let wanted = ask(&mut None, origin.port, false).map(|answer| answer.body)?;
    // Stored before the clients come.
    ask(&mut None, port, true)?;
    let (began, seen) = (Instant::now(), Mutex::new(Vec::new()));
    let back = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let client = || {
                let own = client(port, began, &back, &wanted);
                seen.lock().unwrap_or_else(PoisonError::into_inner).extend(own);
            };
            scope.spawn(client);
        }
        std::thread::sleep(PHASE);
        processes::kill_tree(echo.id)?;
        std::thread::sleep((began + 2 * PHASE).saturating_duration_since(Instant::now()));
        echo.start_again(&mut lab).map(|_| back.store(true, Ordering::Relaxed))
    })?;
    Ok(seen.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn client(port: u16, began: Instant, back: &AtomicBool, wanted: &[u8]) -> Vec<Seen> {
    let (mut seen, mut connection, mut is_hit, mut since_back) = (Vec::new(), None, false, None);
    while since_back.is_none_or(|since: Instant| since.elapsed() < PHASE) && began.elapsed() < ENDS_WITHIN {
        is_hit = !is_hit;
        let sent = Instant::now();
        if back.load(Ordering::Relaxed) {
            since_back.get_or_insert(sent);
        }
        let answer = ask(&mut connection, port, is_hit);
        let phase = if since_back.is_some() { 2 } else { usize::from(sent.duration_since(began) >= PHASE) };
        let outcome = match answer {
            Ok(answer) if answer.status == 200 && answer.body == wanted => Outcome::Right,
            Ok(answer) if answer.status == 503 => Outcome::Refused,
            Ok(_) => Outcome::Wrong,
            Err(_) => Outcome::BrokenOff,
        };
        seen.push(Seen { phase, is_hit, took: sent.elapsed(), outcome });
        std::thread::sleep(EVERY);
    }
    seen
}

/// Asks on a connection that is kept.
fn ask(connection: &mut Option<Connection>, port: u16, is_hit: bool) -> Result<Answer, Trouble> {
    let path = if is_hit { "/16k" } else { "/nc/16k" };
    let mut open = match connection.take() {
        Some(open) => open,
        None => Connection::open(port)?,
    };
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    let answer = open.ask(request.as_bytes(), false)?;
    if answer.keeps {
        *connection = Some(open);
    }
    Ok(answer)
}
