//! Hits while the table of rules is read anew each second, and while a list of millions of names is replaced: is any hit late?
//!
//! Requests are due at fixed times and counted from then. Each reload has to take effect, or the run is none.

use super::report::machine;
use super::table::Origin;
use crate::http::Connection;
use crate::lab::{self, Lab};
use crate::shell::{self, Trouble};
use std::fmt::Write;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Rules of the table, none of which holds for a hit.
const RULES: usize = 1_000;
/// Names of the list.
const NAMES: usize = 5_000_000;
/// Clients, and hits a second of all of them.
const CLIENTS: u32 = 4;
const RATE: u32 = 2_000;
/// Seconds from one replacement of the list to the next.
const LIST_EVERY: Duration = Duration::from_secs(10);
/// The longest that a change may take until it holds.
const HOLDS_WITHIN: Duration = Duration::from_secs(60);

/// How often it is asked whether a change holds, and how many times where none is made: as many as a reload of the rules takes.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOKS: usize = 3;

/// The changes made in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    /// The file is written and asked about as for a change of rules, and nobody reads it: what the referee itself costs the hits.
    Written,
    Rules,
    List,
}

/// Names of phases, their changes, and how many seconds of `--seconds` they last.
const PHASES: [(&str, Change, u64); 5] = [
    ("quiet", Change::None, 10),
    ("rules written, not read", Change::Written, 20),
    ("rules each second", Change::Rules, 20),
    ("a list each 10 s", Change::List, 40),
    ("quiet again", Change::None, 10),
];

struct Stand {
    lab: Lab,
    id: u32,
    port: u16,
    origin: u16,
    names: PathBuf,
    changes: usize,
    added: usize,
}

struct Row {
    name: &'static str,
    changes: usize,
    /// The longest time from a change until it held.
    held_after: Duration,
    /// Sorted.
    took: Vec<Duration>,
    wrong: u64,
}

/// Plays all and gives the page; a phase is `seconds` times as long as it stands in the table.
pub fn play(larder: &Path, seconds: u64) -> Result<String, Trouble> {
    let (lab, origin) = Origin::in_a_new_lab()?;
    let mut stand = Stand::start(larder, lab, &origin)?;
    let version = shell::ask(Command::new(larder).arg("--version"))?;
    let mut rows = Vec::new();
    for (name, change, lasts) in PHASES {
        rows.push(stand.phase(name, change, Duration::from_secs(lasts * seconds))?);
        println!("reload, {name}");
    }
    Ok(page(version.trim(), &rows))
}

impl Stand {
    fn start(larder: &Path, lab: Lab, origin: &Origin) -> Result<Stand, Trouble> {
        let names = lab.path().join("names");
        let lines: String = (0..NAMES).map(|at| format!("n{at}.listed.test\n")).collect();
        std::fs::write(&names, lines).map_err(|error| format!("writing {}: {error}", names.display()))?;
        let port = lab::free_port()?;
        let conf = lab.path().join("larder.toml");
        let mut stand = Stand { id: 0, port, origin: origin.port, names, changes: 0, added: 0, lab };
        stand.write_configuration()?;
        stand.id = stand.lab.start("larder", Command::new(larder).arg("--config").arg(conf), port)?;
        stand.wait_until(&|stand| stand.status("n0.listed.test", "/600").is_ok_and(|status| status == 403))?;
        (stand.status("a.test", "/600")? == 200).then_some(()).ok_or("the object is not there")?;
        Ok(stand)
    }

    /// The table with one rule that tells this edition from the others.
    fn write_configuration(&self) -> Result<(), Trouble> {
        let rule = |at: usize| match at % 4 {
            0 => format!("host = \"*.h{at}.test\""),
            1 => format!("path = \"/p{at}/**\""),
            2 => format!("path_regex = \"^/r{at}/[0-9]+$\""),
            _ => format!("user_agent = \"agent-{at}\""),
        };
        let rules: String =
            (0..RULES).map(|at| format!("[[rule]]\nwhen = {{ {} }}\ndo = {{ deny = true }}\n", rule(at))).collect();
        let text = format!(
            "store = \"{}/store\"\nadmin = \"none\"\nworkers = 2\ndisk = \"0\"\nmemory = \"64MB\"\n[[listen]]\naddress = \"127.0.0.1:{}\"\norigin = \"http://127.0.0.1:{}\"\n\
             [log]\nto = \"none\"\n[[list]]\nname = \"names\"\nformat = \"domains\"\nsource = {:?}\n{rules}\
             [[rule]]\nwhen = {{ path = \"/edition/{}\" }}\ndo = {{ deny = true }}\n[[rule]]\nwhen = {{ list = \"names\" }}\ndo = {{ deny = true }}\n",
            self.lab.path().display(),
            self.port,
            self.origin,
            self.names.display().to_string(),
            self.changes,
        );
        self.lab.write("larder.toml", text).map(drop)
    }

    fn status(&self, host: &str, path: &str) -> Result<u16, Trouble> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        Ok(Connection::open(self.port)?.ask(request.as_bytes(), false)?.status)
    }

    fn wait_until(&self, holds: &dyn Fn(&Stand) -> bool) -> Result<Duration, Trouble> {
        let began = Instant::now();
        while !holds(self) {
            if began.elapsed() > HOLDS_WITHIN {
                return Err(format!("a change did not hold within {HOLDS_WITHIN:?}"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(began.elapsed())
    }

    /// Makes a change and waits until it holds.
    fn change(&mut self, change: Change) -> Result<Duration, Trouble> {
        match change {
            Change::None => return Ok(Duration::ZERO),
            Change::Written => {
                self.write_configuration()?;
                let path = format!("/edition/{}", self.changes + 1);
                for _ in 0..LOOKS {
                    self.status("a.test", &path)?;
                    std::thread::sleep(LOOK_EVERY);
                }
                return Ok(Duration::ZERO);
            }
            Change::Rules => {
                self.changes += 1;
                self.write_configuration()?;
            }
            Change::List => {
                self.added += 1;
                let opened = std::fs::OpenOptions::new().append(true).open(&self.names);
                let added =
                    opened.and_then(|mut file| file.write_all(format!("new{}.listed.test\n", self.added).as_bytes()));
                added.map_err(|error| format!("writing {}: {error}", self.names.display()))?;
            }
        }
        let id = i32::try_from(self.id).ok().and_then(rustix::process::Pid::from_raw).ok_or("no process")?;
        rustix::process::kill_process(id, rustix::process::Signal::HUP).map_err(|error| format!("SIGHUP: {error}"))?;
        let (host, path) = match change {
            Change::List => (format!("new{}.listed.test", self.added), "/600".to_owned()),
            _ => ("a.test".to_owned(), format!("/edition/{}", self.changes)),
        };
        self.wait_until(&|stand| stand.status(&host, &path).is_ok_and(|status| status == 403))
    }

    fn phase(&mut self, name: &'static str, change: Change, lasts: Duration) -> Result<Row, Trouble> {
        let (port, began, has_failed) = (self.port, Instant::now(), AtomicBool::new(false));
        let every = if change == Change::List { LIST_EVERY } else { Duration::from_secs(1) };
        let mut row = Row { name, changes: 0, held_after: Duration::ZERO, took: Vec::new(), wrong: 0 };
        std::thread::scope(|scope| {
            let has_failed = &has_failed;
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| scope.spawn(move || client(number, port, began, lasts, has_failed)))
                .collect();
            let mut changed = Ok(());
            while change != Change::None && began.elapsed() + every <= lasts {
                match self.change(change) {
                    Ok(held) => row.held_after = row.held_after.max(held),
                    Err(trouble) => {
                        has_failed.store(true, Ordering::Relaxed);
                        changed = Err(trouble);
                        break;
                    }
                }
                row.changes += 1;
                let next = began + every * u32::try_from(row.changes).unwrap_or(u32::MAX);
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            for client in clients {
                let (took, wrong) = client.join().map_err(|_| "a client ended in a panic".to_owned())??;
                row.took.extend(took);
                row.wrong += wrong;
            }
            changed
        })?;
        row.took.sort_unstable();
        Ok(row)
    }
}

/// One request after the other, each when it is due; gives their times and how many were no hits.
fn client(
    number: u32,
    port: u16,
    began: Instant,
    lasts: Duration,
    has_failed: &AtomicBool,
) -> Result<(Vec<Duration>, u64), Trouble> {
    let (mut took, mut wrong, mut connection) = (Vec::new(), 0, Connection::open(port)?);
    for turn in 0.. {
        let due = Duration::from_secs(1) * (turn * CLIENTS + number) / RATE;
        if due >= lasts || has_failed.load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep((began + due).saturating_duration_since(Instant::now()));
        let answer = connection.ask(b"GET /600 HTTP/1.1\r\nHost: a.test\r\n\r\n", false)?;
        took.push((began + due).elapsed());
        let is_hit = answer.field("cache-status").is_some_and(|said| said.contains("; hit"));
        wrong += u64::from(answer.status != 200 || answer.body.len() != 600 || !is_hit);
    }
    Ok((took, wrong))
}

fn page(version: &str, rows: &[Row]) -> String {
    let mut text = format!(
        "# Reloads under load\n\n`cargo xtask bench reload`: {version} with two workers, {RULES} rules of four kinds and a list of {NAMES} names; {RATE} hits of 600 B a second by {CLIENTS} clients, \
         counted from the time at which each was due; clients, Larder and the thread that compiles lists share two cores; {}. A change of rules writes the file anew and sends SIGHUP, a change of \
         the list adds a name to it; each has to hold before the next is made, and `holds after` is the longest time until it did. `rules written, not read` does all of that but the signal: what writing and asking cost the hits.\n\n\
         | phase | changes | holds after, ms | hits | wrong | p50 µs | p99 µs | p99.9 µs | longest ms |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        machine(),
    );
    for row in rows {
        let part = |thousandths: usize| {
            let at = (row.took.len() * thousandths / 1_000).min(row.took.len().saturating_sub(1));
            row.took.get(at).map_or(f64::NAN, |took| took.as_secs_f64() * 1e6)
        };
        let held = if row.held_after.is_zero() {
            "–".to_owned()
        } else {
            format!("{:.0}", row.held_after.as_secs_f64() * 1e3)
        };
        let _ = writeln!(
            text,
            "| {} | {} | {held} | {} | {} | {:.0} | {:.0} | {:.0} | {:.1} |",
            row.name,
            row.changes,
            row.took.len(),
            row.wrong,
            part(500),
            part(990),
            part(999),
            part(1_000) / 1e3
        );
    }
    text
}
