//! The cost of scripts: hooks of each stage, remembered decisions and pages, by the CPU time of the server with all its processes, beside
//! an earlier build of it in the same rounds.

use super::field::{self, on_core};
use super::report::{figure, machine, median_of, ratio};
use super::script_peers::{self, APPLICATION, POLICY};
use super::table::turn;
use super::tool::{Load, Sample, Script, Tool};
use crate::lab::{self, Lab};
use crate::shell::{self, Trouble};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

/// By which listener a row asks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Door {
    /// A site with hooks.
    Hooked,
    /// The same origin without hooks.
    Bare,
    /// The same origin, at a server without any script.
    Alone,
    /// The application.
    Application,
    /// The forward proxy with hooks, which earlier builds do not have.
    Forward,
}

struct Row {
    name: &'static str,
    door: Door,
    path: &'static str,
    /// Requests at once.
    depth: usize,
}

const fn row(name: &'static str, door: Door, path: &'static str, depth: usize) -> Row {
    Row { name, door, path, depth }
}

const ROWS: [Row; 15] = [
    row("hit, a server without scripts", Door::Alone, "/plain", 15),
    row("hit, no hooks at this site", Door::Bare, "/plain", 15),
    row("hit, no filter matches", Door::Hooked, "/plain", 15),
    row("`request`, remembered", Door::Hooked, "/remembered/a", 15),
    row("`request`", Door::Hooked, "/request/a", 1),
    row("`request`", Door::Hooked, "/request/a", 15),
    row("`request`", Door::Hooked, "/request/a", 64),
    row("`found`", Door::Hooked, "/found/a", 15),
    row("`respond`", Door::Hooked, "/respond/a", 15),
    row("`page`", Door::Hooked, "/page", 1),
    row("`page`", Door::Hooked, "/page", 15),
    row("WSGI, 13 bytes", Door::Application, "/", 1),
    row("WSGI, 13 bytes", Door::Application, "/", 15),
    row("forward proxy, no filter matches", Door::Forward, "/plain", 15),
    row("forward proxy, `request`", Door::Forward, "/request/a", 15),
];

/// One build of Larder.
struct Build {
    version: String,
    id: u32,
    /// Ports of the doors; none for what the build does not have.
    hooked: u16,
    bare: u16,
    application: u16,
    forward: Option<u16>,
    /// Process and port of a server without scripts.
    alone: (u32, u16),
}

/// The programs that take part.
pub struct Programs<'a> {
    /// The present build; `None`: it is built.
    pub larder: Option<&'a Path>,
    /// An earlier build beside it.
    pub against: Option<&'a Path>,
    /// An interpreter beside which granian is installed.
    pub python: Option<&'a Path>,
}

/// Plays all and gives the page.
pub fn play(root: &Path, programs: &Programs<'_>, rounds: usize, seconds: u64) -> Result<String, Trouble> {
    let program = match programs.larder {
        Some(path) => path.to_owned(),
        None => {
            field::build(root)?;
            PathBuf::from(field::built(root, "larder"))
        }
    };
    let mut lab = Lab::new()?;
    let origin = origin()?;
    let mut builds = vec![Build::start("present", &program, &mut lab, origin)?];
    if let Some(before) = programs.against {
        builds.push(Build::start("before", before, &mut lab, origin)?);
    }
    let mut samples: Vec<Vec<Vec<Option<Sample>>>> = vec![vec![Vec::new(); ROWS.len()]; builds.len()];
    for round in 0..=rounds {
        let mut order: Vec<(usize, usize)> =
            (0..ROWS.len()).flat_map(|row| (0..builds.len()).map(move |build| (row, build))).collect();
        turn(&mut order, round);
        for (at, which) in order {
            let (row, build) = (&ROWS[at], &builds[which]);
            let Some(load) = build.load(row, origin) else { continue };
            let sample = load
                .sample_once(&lab, build.server_of(row), None, seconds, 0)
                .map_err(|trouble| format!("{}: {trouble}", row.name))?;
            if sample.errors > 0 {
                return Err(format!(
                    "{} at depth {}: {} answers were wrong: no result",
                    row.name, row.depth, sample.errors
                ));
            }
            // The first one warms up.
            if round > 0 {
                samples[which][at].push(Some(sample));
            }
        }
        println!("round {round} of {rounds}");
    }
    let text = page((rounds, seconds), &builds, &samples);
    let beside = script_peers::Programs { larder: &program, python: programs.python };
    Ok(text + &script_peers::play(&mut lab, &beside, rounds, seconds)?)
}

impl Build {
    fn start(name: &str, program: &Path, lab: &mut Lab, origin: u16) -> Result<Build, Trouble> {
        let folder = lab.folder(&format!("{name}/scripts"))?;
        lab.write(&format!("{name}/scripts/policy.py"), POLICY)?;
        lab.write(&format!("{name}/scripts/app.py"), APPLICATION)?;
        let settings = shell::ask(Command::new(program).args(["config", "--markdown"]))?;
        let has_forward = settings.contains("\n## `[forward]`\n");
        let [hooked, bare, application, forward] =
            [lab::free_port()?, lab::free_port()?, lab::free_port()?, lab::free_port()?];
        let listen = |port: u16, more: &str| format!("[[listen]]\naddress = \"127.0.0.1:{port}\"\n{more}");
        let text = format!(
            "store = \"{store}\"\nadmin = \"none\"\nworkers = 1\ndisk = \"0\"\nmemory = \"64MB\"\n{}{}{}{}{}\
             [[site]]\nhosts = [\"hooked.test\"]\norigin = \"http://127.0.0.1:{origin}\"\nhooks = [\"policy.py\"]\n\
             [[python]]\nname = \"bench\"\nfolder = \"{folder}\"\nprocesses = 1\n[records]\nrequests_max = 0\n",
            listen(hooked, ""),
            listen(bare, &format!("origin = \"http://127.0.0.1:{origin}\"\n")),
            listen(application, "origin = \"wsgi:app\"\n"),
            listen(forward, "forward = true\n"),
            if has_forward { "[forward]\nhooks = [\"policy.py\"]\n" } else { "" },
            store = lab.path().join(name).join("store").display(),
            folder = folder.display(),
        );
        let file = lab.write(&format!("{name}/larder.toml"), text)?;
        let version = shell::ask(Command::new(program).arg("--version"))?.trim().to_owned();
        let mut command = on_core(0, &program.to_string_lossy())?;
        let id = lab.start(name, command.arg("--config").arg(file), hooked)?;
        let forward = has_forward.then_some(forward);
        let alone = Build::start_alone(name, program, lab, origin)?;
        Ok(Build { version, id, hooked, bare, application, forward, alone })
    }

    /// A server of the same origin that has no scripts.
    fn start_alone(name: &str, program: &Path, lab: &mut Lab, origin: u16) -> Result<(u32, u16), Trouble> {
        let (name, port) = (format!("{name}-alone"), lab::free_port()?);
        let text = format!(
            "store = \"{}\"\nadmin = \"none\"\nworkers = 1\ndisk = \"0\"\nmemory = \"64MB\"\n\
             [[listen]]\naddress = \"127.0.0.1:{port}\"\norigin = \"http://127.0.0.1:{origin}\"\n[records]\nrequests_max = 0\n",
            lab.folder(&name)?.join("store").display(),
        );
        let file = lab.write(&format!("{name}/larder.toml"), text)?;
        let mut command = on_core(0, &program.to_string_lossy())?;
        Ok((lab.start(&name, command.arg("--config").arg(file), port)?, port))
    }

    /// The process that answers a row.
    fn server_of(&self, row: &Row) -> u32 {
        if row.door == Door::Alone { self.alone.0 } else { self.id }
    }

    /// The load of a row; `None` where the build does not have its door.
    fn load(&self, row: &Row, origin: u16) -> Option<Load> {
        let path = row.path;
        let (port, script) = match row.door {
            Door::Bare => (self.bare, Script::Plain),
            Door::Alone => (self.alone.1, Script::Plain),
            Door::Application => (self.application, Script::Plain),
            Door::Hooked => (self.hooked, Script::Forward(path.to_owned(), "hooked.test".to_owned())),
            Door::Forward => {
                let authority = format!("127.0.0.1:{origin}");
                (self.forward?, Script::Forward(format!("http://{authority}{path}"), authority))
            }
        };
        let tool = Tool::Wrk { connections: row.depth, closes: false };
        Some(Load { tool, url: format!("http://127.0.0.1:{port}{path}"), script, status: 200 })
    }
}

/// An origin of 500 bytes that are fresh for an hour, in this process: it is asked once for each path.
fn origin() -> Result<u16, Trouble> {
    let trouble = |error: std::io::Error| format!("no origin: {error}");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(trouble)?;
    let port = listener.local_addr().map_err(trouble)?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(&stream));
        }
    });
    Ok(port)
}

fn serve(stream: &TcpStream) -> Option<()> {
    const BYTES: usize = 500;
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            lines.read_line(&mut line).ok().filter(|&read| read > 0)?;
        }
        let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Length: {BYTES}\r\n\r\n");
        (&*stream).write_all((head + &"x".repeat(BYTES)).as_bytes()).ok()?;
    }
}

fn page((rounds, seconds): (usize, u64), builds: &[Build], samples: &[Vec<Vec<Option<Sample>>>]) -> String {
    let versions: Vec<&str> = builds.iter().map(|build| build.version.as_str()).collect();
    let before = if builds.len() > 1 { " before µs | ratio |" } else { "" };
    let mut text = format!(
        "# Cost of scripts\n\n`cargo xtask bench scripts`: one worker and one process of hooks on core 0, wrk on core 1, kept connections; \
         a warm-up and {rounds} alternated rounds of {seconds} s, medians; {}; {}. CPU time per request in µs of the server with all \
         its processes, by the scheduler's count. Each hook does the least that its stage can do.\n\n\
         | request | at once | CPU µs |{before} requests/s | p99 ms | noise |\n|---|---:|---:|{}---:|---:|---:|\n",
        versions.join(" beside "),
        machine(),
        if builds.len() > 1 { "---:|---:|" } else { "" },
    );
    for (at, row) in ROWS.iter().enumerate() {
        let own = &samples[0][at];
        let beside = samples.get(1).map_or(String::new(), |before| match before[at].is_empty() {
            true => " – | – |".to_owned(),
            false => format!(
                " {} | {:.3} |",
                figure(median_of(&before[at], |sample| sample.cpu_micros)),
                ratio(own, &before[at])
            ),
        });
        writeln!(
            text,
            "| {} | {} | {} |{beside} {:.0} | {:.2} | {:.2} |",
            row.name,
            row.depth,
            figure(median_of(own, |sample| sample.cpu_micros)),
            median_of(own, |sample| sample.rate),
            median_of(own, |sample| sample.p99_millis),
            median_of(own, |sample| sample.noise_cores),
        )
        .ok();
    }
    text.push_str("\n| goal | measured | | |\n|---|---:|---|---|\n");
    for goal in goals(&samples[0]) {
        let met = if goal.found <= goal.at_most { "met" } else { "**missed**" };
        writeln!(text, "| {} | {:.3} | ≤ {} | {met} |", goal.what, goal.found, goal.at_most).ok();
    }
    text
}

struct Goal {
    what: &'static str,
    found: f64,
    at_most: f64,
}

/// The goals of rows of one build.
fn goals(samples: &[Vec<Option<Sample>>]) -> [Goal; 4] {
    let at = |name: &str, depth: usize| {
        ROWS.iter().position(|row| row.name == name && row.depth == depth).map_or(&[][..], |at| &samples[at])
    };
    let cpu = |of: &[Option<Sample>]| median_of(of, |sample| sample.cpu_micros);
    let bare = at("hit, no hooks at this site", 15);
    let goal = |what, found, at_most| Goal { what, found, at_most };
    [
        goal(
            "a hit of a site without hooks, to one of a server without scripts",
            ratio(bare, at("hit, a server without scripts", 15)),
            1.01,
        ),
        goal("µs that a remembered decision adds to a hit", cpu(at("`request`, remembered", 15)) - cpu(bare), 0.5),
        goal("µs that a call adds to a hit, at 15", cpu(at("`request`", 15)) - cpu(bare), 6.0),
        goal("µs that a call adds to a hit, at 64", cpu(at("`request`", 64)) - cpu(bare), 3.5),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_all_rows_and_an_earlier_build_beside_them_where_there_is_one() {
        let build = |forward| Build {
            version: "larder 1".into(),
            id: 1,
            hooked: 1,
            bare: 2,
            application: 3,
            forward,
            alone: (2, 5),
        };
        let sample = |cpu_micros| Sample {
            cpu_micros,
            kernel_share: 0.5,
            rate: 1000.0,
            p99_millis: 1.0,
            errors: 0,
            noise_cores: 0.0,
            origin_micros: 0.0,
        };
        let of = |cpu_micros: f64| vec![vec![Some(sample(cpu_micros)); 2]; ROWS.len()];
        let mut before = of(10.0);
        before[ROWS.len() - 1].clear();
        let alone = page((2, 1), &[build(Some(4))], &[of(5.0)]);
        assert!(alone.contains("| `page` | 15 | 5.00 | 1000 | 1.00 | 0.00 |"), "{alone}");
        let both = page((2, 1), &[build(Some(4)), build(None)], &[of(5.0), before]);
        assert!(both.contains("| `page` | 15 | 5.00 | 10.00 | 0.500 | 1000 |"), "{both}");
        assert!(both.contains("| forward proxy, `request` | 15 | 5.00 | – | – | 1000 |"), "{both}");
        assert!(build(None).load(&ROWS[ROWS.len() - 1], 9).is_none());
        assert!(alone.contains("µs that a remembered decision adds to a hit | 0.000 | ≤ 0.5 | met |"), "{alone}");
        assert!(alone.contains("without scripts | 1.000 | ≤ 1.01 | met |"), "{alone}");
    }
}
