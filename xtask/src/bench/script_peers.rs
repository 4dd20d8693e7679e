//! Pages of scripts, asked by `ab` as their servers have been compared for decades: an application and a `page` hook of Larder beside
//! granian, uWSGI and nginx with perl; and each single response time of a rendered page.

use super::field::on_core;
use super::report::{figure, median, median_of, ratio};
use super::table::turn;
use super::tool::{Load, Sample, Script, Tool};
use crate::lab::{self, Lab};
use crate::shell::{self, Trouble};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Processes that run the application or the workers, in each server.
const PROCESSES: usize = 2;

/// Hooks that do the least that their stage can do.
pub(super) const POLICY: &str = r#"
import larder

@larder.request(path="/request/**")
def request(req):
    req.key.add("a")

@larder.request(path="/remembered/**", remember="1h")
def remembered(req):
    req.key.add("a")

@larder.found(path="/found/**")
def found(req, found):
    return None

@larder.respond(path="/respond/**")
def respond(req, resp):
    resp.headers["x-a"] = "b"

@larder.page("/page")
def page(req):
    return "Hello, World!"
"#;

/// An application that does the least.
pub(super) const APPLICATION: &str = r#"
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "13")])
    return [b"Hello, World!"]
"#;

const HELLO_PL: &str = r#"package hello;
use nginx;
sub handler {
    my $r = shift;
    $r->header_out('Content-Length', 13);
    $r->send_http_header('text/plain');
    $r->print('Hello, World!') unless $r->header_only;
    return OK;
}
1;
"#;

const BOARD: &str = include_str!("../../../crates/cacheoff/entries/applications/board.py");

/// A board of 50 threads with 40 posts each.
const MAKE_BOARD: &str = r#"
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as board:
    board.executescript("""
        PRAGMA journal_mode = WAL;
        CREATE TABLE users (id INTEGER PRIMARY KEY, token TEXT NOT NULL UNIQUE, name TEXT NOT NULL);
        CREATE TABLE threads (id INTEGER PRIMARY KEY, subject TEXT NOT NULL, user INTEGER NOT NULL, posts INTEGER NOT NULL);
        CREATE TABLE posts (id INTEGER PRIMARY KEY, thread INTEGER NOT NULL, user INTEGER NOT NULL, text TEXT NOT NULL);
        CREATE INDEX posts_of_thread ON posts (thread, id);
    """)
    board.executemany("INSERT INTO users VALUES (?, ?, ?)", [(n, f"t{n}", f"user {n}") for n in range(1, 21)])
    board.executemany("INSERT INTO threads VALUES (?, ?, ?, 40)", [(n, f"Subject {n}", n % 20 + 1) for n in range(1, 51)])
    posts = [(n % 50 + 1, n % 20 + 1, f"The text of post {n}. " * 8) for n in range(2000)]
    board.executemany("INSERT INTO posts (thread, user, text) VALUES (?, ?, ?)", posts)
"#;

/// How `ab` asks: requests at once, and whether connections are kept.
const MODES: [(usize, bool); 3] = [(15, true), (1, true), (1, false)];

/// Requests of the run that looks at each response time.
const BOARD_REQUESTS: usize = 100_000;

/// A server's process, and the URL that it is asked for.
type Target = (u32, String);

/// A server that takes part, or why it does not.
struct Peer {
    name: &'static str,
    started: Result<Target, Trouble>,
}

/// The programs that take part.
pub struct Programs<'a> {
    /// Larder.
    pub larder: &'a Path,
    /// An interpreter beside which granian is installed.
    pub python: Option<&'a Path>,
}

/// Plays all and gives the sections of the page.
pub fn play(lab: &mut Lab, programs: &Programs<'_>, rounds: usize, seconds: u64) -> Result<String, Trouble> {
    if shell::find_program("ab").is_none() {
        return Ok("\nPages by `ab` are left out: there is no `ab`.\n".to_owned());
    }
    let peers = start(lab, programs)?;
    let mut samples: Vec<Vec<Vec<Option<Sample>>>> = vec![vec![Vec::new(); MODES.len()]; peers.len()];
    for round in 0..=rounds {
        let mut order: Vec<(usize, usize)> =
            (0..MODES.len()).flat_map(|mode| (0..peers.len()).map(move |peer| (mode, peer))).collect();
        turn(&mut order, round);
        for (mode, which) in order {
            let Ok((id, url)) = &peers[which].started else { continue };
            let (connections, keeps) = MODES[mode];
            let tool = Tool::Ab { connections, keeps };
            let load = Load { tool, url: url.clone(), script: Script::Plain, status: 200 };
            let sample = load.sample_once(lab, *id, None, seconds, 0)?;
            if sample.errors > 0 {
                return Err(format!("{}: {} answers were wrong: no result", peers[which].name, sample.errors));
            }
            if round > 0 {
                samples[which][mode].push(Some(sample));
            }
        }
        println!("pages: round {round} of {rounds}");
    }
    Ok(pages(&peers, &samples) + &board(lab, programs.larder)?)
}

fn start(lab: &mut Lab, programs: &Programs<'_>) -> Result<Vec<Peer>, Trouble> {
    let (application, hook) = larder(lab, "pages", programs.larder, &[])?;
    Ok(vec![
        Peer { name: "Larder, WSGI", started: Ok(application) },
        Peer { name: "Larder, `page`", started: Ok(hook) },
        Peer { name: "granian, WSGI", started: granian(lab, programs.python) },
        Peer { name: "uWSGI", started: uwsgi(lab) },
        Peer { name: "nginx with perl", started: perl(lab) },
    ])
}

/// Larder with an application and a `page` hook: its process, and the URLs of both.
fn larder(
    lab: &mut Lab,
    name: &str,
    program: &Path,
    environment: &[(&str, &Path)],
) -> Result<(Target, Target), Trouble> {
    let folder = lab.folder(&format!("{name}/scripts"))?;
    for (file, text) in [("policy.py", POLICY), ("app.py", APPLICATION), ("board.py", BOARD)] {
        lab.write(&format!("{name}/scripts/{file}"), text)?;
    }
    let ports = [lab::free_port()?, lab::free_port()?, lab::free_port()?];
    let [application, hook, board] = ports;
    let variables: Vec<String> =
        environment.iter().map(|(key, value)| format!("\"{key}={}\"", value.display())).collect();
    let text = format!(
        "store = \"{store}\"\nadmin = \"none\"\nworkers = 1\ndisk = \"0\"\nmemory = \"64MB\"\n\
         [[listen]]\naddress = \"127.0.0.1:{application}\"\norigin = \"wsgi:app\"\n\
         [[listen]]\naddress = \"127.0.0.1:{board}\"\norigin = \"wsgi:board\"\n\
         [[listen]]\naddress = \"127.0.0.1:{hook}\"\n\
         [[site]]\nhosts = [\"*\"]\norigin = \"wsgi:app\"\nhooks = [\"policy.py\"]\n\
         [[python]]\nname = \"bench\"\nfolder = \"{folder}\"\nprocesses = {PROCESSES}\nenvironment = [{variables}]\n",
        store = lab.path().join(name).join("store").display(),
        folder = folder.display(),
        variables = variables.join(", "),
    );
    let file = lab.write(&format!("{name}/larder.toml"), text)?;
    let id = lab.start(name, on_core(0, &program.to_string_lossy())?.arg("--config").arg(file), application)?;
    let wanted = if environment.is_empty() { application } else { board };
    let path = if environment.is_empty() { "/" } else { "/list/0" };
    await_page(&format!("http://127.0.0.1:{wanted}{path}"))?;
    Ok(((id, format!("http://127.0.0.1:{wanted}{path}")), (id, format!("http://127.0.0.1:{hook}/page"))))
}

fn granian(lab: &mut Lab, python: Option<&Path>) -> Result<Target, Trouble> {
    let beside = python.and_then(Path::parent).map(|folder| folder.join("granian")).filter(|path| path.is_file());
    let program = beside.ok_or("no interpreter beside which it is installed was named by `--python`")?;
    let folder = lab.folder("granian")?;
    lab.write("granian/app.py", APPLICATION)?;
    let port = lab::free_port()?;
    let mut command = on_core(0, &program.to_string_lossy())?;
    command.args(["--interface=wsgi", "--host=127.0.0.1", "--blocking-threads=1", "--backlog=4096"]);
    command.args(["--http=1", "--no-ws", "--log-level=warning"]);
    command.args([format!("--port={port}"), format!("--workers={PROCESSES}")]).arg("app:application");
    serve(lab, "granian", command.current_dir(folder), (port, "/"))
}

/// Its own socket of HTTP: its processes are synchronous and keep no connection, which is the cheapest way here.
fn uwsgi(lab: &mut Lab) -> Result<Target, Trouble> {
    shell::need_program("uwsgi")?;
    let application = lab.write("uwsgi/app.py", APPLICATION)?;
    let port = lab::free_port()?;
    let text = format!(
        "[uwsgi]\nplugins = http,python3\nhttp-socket = 127.0.0.1:{port}\nmaster = true\ndie-on-term = true\n\
         processes = {PROCESSES}\nlisten = 1024\nwsgi-file = {}\ncallable = application\nneed-app = true\ndisable-logging = true\n",
        application.display()
    );
    let file = lab.write("uwsgi/uwsgi.ini", text)?;
    serve(lab, "uwsgi", on_core(0, "uwsgi")?.arg("--ini").arg(file), (port, "/"))
}

fn perl(lab: &mut Lab) -> Result<Target, Trouble> {
    const MODULE: &str = "/usr/lib/nginx/modules/ngx_http_perl_module.so";
    if !Path::new(MODULE).is_file() {
        return Err(format!("there is no {MODULE}"));
    }
    shell::need_program("nginx")?;
    let folder: PathBuf = lab.folder("perl")?;
    lab.write("perl/hello.pm", HELLO_PL)?;
    let (port, place) = (lab::free_port()?, folder.display());
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("  {kind}_temp_path {place}/{kind};\n"))
        .collect();
    let text = format!(
        "load_module {MODULE};\ndaemon off;\nworker_processes {PROCESSES};\npid {place}/pid;\nerror_log {place}/error.log warn;\n\
         events {{ worker_connections 4096; }}\nhttp {{\n  access_log off;\n  keepalive_requests 100000000;\n{temporary}  \
         perl_modules {place};\n  perl_require hello.pm;\n  server {{\n    listen 127.0.0.1:{port} backlog=4096;\n    \
         location / {{ perl hello::handler; }}\n  }}\n}}\n"
    );
    let file = lab.write("perl/nginx.conf", text)?;
    let mut command = on_core(0, "nginx")?;
    command.arg("-c").arg(file).arg("-e").arg(folder.join("error.log"));
    serve(lab, "perl", &mut command, (port, "/"))
}

fn serve(lab: &mut Lab, name: &str, command: &mut Command, (port, path): (u16, &str)) -> Result<Target, Trouble> {
    let id = lab.start(name, command, port)?;
    let url = format!("http://127.0.0.1:{port}{path}");
    await_page(&url)?;
    Ok((id, url))
}

/// Waits until the application behind a port is loaded.
fn await_page(url: &str) -> Result<(), Trouble> {
    let mut command = Command::new(shell::need_program("curl")?);
    command.args([
        "-sf",
        "-o",
        "/dev/null",
        "--retry",
        "20",
        "--retry-all-errors",
        "--retry-delay",
        "1",
        "--max-time",
        "30",
        url,
    ]);
    shell::call(&mut command)
}

fn pages(peers: &[Peer], samples: &[Vec<Vec<Option<Sample>>>]) -> String {
    let mut text = format!(
        "\n## Pages by `ab`\n\n13 bytes from an application (WSGI), from a `page` hook and from perl, {PROCESSES} processes each (of nginx: workers), \
         all of a server on core 0, `ab` on core 1.\n\n\
         | server | at once | kept | CPU µs | requests/s | noise |\n|---|---:|---|---:|---:|---:|\n"
    );
    for (mode, (connections, keeps)) in MODES.iter().enumerate() {
        for (peer, of_peer) in peers.iter().zip(samples) {
            let (own, kept) = (&of_peer[mode], if *keeps { "yes" } else { "no" });
            if peer.started.is_ok() {
                let cpu = figure(median_of(own, |sample| sample.cpu_micros));
                let (rate, noise) = (median_of(own, |sample| sample.rate), median_of(own, |sample| sample.noise_cores));
                writeln!(text, "| {} | {connections} | {kept} | {cpu} | {rate:.0} | {noise:.2} |", peer.name).ok();
            }
        }
    }
    for peer in peers {
        if let Err(why) = &peer.started {
            writeln!(text, "\n{} is left out: {why}.", peer.name).ok();
        }
    }
    text.push_str("\n| goal | measured | | |\n|---|---:|---|---|\n");
    let rate_of = |of: usize, mode: usize, than: usize| {
        let pairs = samples[of][mode].iter().flatten().zip(samples[than][mode].iter().flatten());
        median(pairs.map(|(own, its)| own.rate / its.rate).collect())
    };
    let cpu = |of: usize, than: usize| ratio(&samples[of][0], &samples[than][0]);
    for (what, found, goal, at_most) in [
        ("CPU of a WSGI page to granian's, 15 kept", cpu(0, 2), 0.65, true),
        ("CPU of a WSGI page to uWSGI's, 15", cpu(0, 3), 0.4, true),
        ("CPU of a `page` to that of nginx with perl, 15 kept", cpu(1, 4), 1.05, true),
        ("rate of a `page` to that of nginx with perl, 1 kept", rate_of(1, 1, 4), 1.0, false),
        ("rate of a `page` to that of nginx with perl, 1 not kept", rate_of(1, 2, 4), 1.0, false),
    ] {
        if !found.is_nan() {
            let is_met = if at_most { found <= goal } else { found > goal };
            let (sign, met) = (if at_most { "≤" } else { ">" }, if is_met { "met" } else { "**missed**" });
            writeln!(text, "| {what} | {found:.2} | {sign} {goal:.2} | {met} |").ok();
        }
    }
    text
}

/// A page of a board that is rendered from its database each time; each response time counts.
fn board(lab: &mut Lab, program: &Path) -> Result<String, Trouble> {
    let database = lab.folder("board")?.join("board.db");
    shell::ask(Command::new("python3").args(["-c", MAKE_BOARD]).arg(&database))?;
    let ((_, url), _) = larder(lab, "board", program, &[("BOARD_DATABASE", &database)])?;
    let file = lab.path().join("board.times");
    // Once to warm up.
    for requests in [BOARD_REQUESTS / 20, BOARD_REQUESTS] {
        let mut command = on_core(1, "ab")?;
        command.args(["-q", "-c", "15", "-n", &requests.to_string(), "-g"]).arg(&file).arg(&url);
        let printed = shell::ask(&mut command)?;
        if !printed.contains("Failed requests:        0") || printed.contains("Non-2xx") {
            return Err(format!("pages of the board were wrong: {}", shell::last_lines(&printed, 30)));
        }
    }
    lab.end_last();
    let times = std::fs::read_to_string(&file).map_err(|error| format!("no response times: {error}"))?;
    Ok(board_section(read_times(&times)))
}

/// The column `ttime` of what `ab -g` writes, in milliseconds, in ascending order.
fn read_times(text: &str) -> Vec<u64> {
    let column = |line: &str| line.split('\t').nth(4)?.trim().parse().ok();
    let mut times: Vec<u64> = text.lines().filter_map(column).collect();
    times.sort_unstable();
    times
}

fn board_section(times: Vec<u64>) -> String {
    let at =
        |share: f64| times.get(((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1))).copied();
    let [median, late, longest] = [0.5, 0.999, 1.0].map(|share| at(share).unwrap_or_default());
    let met = |is_met: bool| if is_met { "met" } else { "**missed**" };
    format!(
        "\n## Each response time of a rendered page\n\n`ab -n {} -c 15` on a list of 30 threads of a board in SQLite, not cached, {PROCESSES} processes; \
         the clock of `ab` has milliseconds.\n\n| | ms | goal | |\n|---|---:|---|---|\n\
         | median | {median} | – | |\n| 99.9 % | {late} | ≤ 2 × median + 5 | {} |\n| longest | {longest} | ≤ 50 | {} |\n",
        times.len(),
        met(late <= 2 * median + 5),
        met(longest <= 50),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_times_are_read_and_judged() {
        let line = |ttime: u64| format!("Fri Nov 27 06:00:00 2026\t1795759200\t0\t{ttime}\t{ttime}\t{ttime}\n");
        let header = "starttime\tseconds\tctime\tdtime\tttime\twait\n".to_owned();
        let mut text = header + &line(60);
        (0..999).for_each(|_| text.push_str(&line(2)));
        let times = read_times(&text);
        assert_eq!((times.len(), times[0], times[999]), (1000, 2, 60));
        let section = board_section(times);
        assert!(
            section.contains("| median | 2 |") && section.contains("| longest | 60 | ≤ 50 | **missed** |"),
            "{section}"
        );
        assert!(section.contains("| 99.9 % | 60 | ≤ 2 × median + 5 | **missed** |"), "{section}");
    }

    #[test]
    fn a_page_says_who_is_left_out_and_whether_goals_are_met() {
        let sample = |cpu_micros| Sample {
            cpu_micros,
            kernel_share: 0.5,
            rate: 1000.0 / cpu_micros,
            p99_millis: 1.0,
            errors: 0,
            noise_cores: 0.0,
            origin_micros: 0.0,
        };
        let started = || Ok((1, "http://127.0.0.1:1/".to_owned()));
        let peers = [
            Peer { name: "Larder, WSGI", started: started() },
            Peer { name: "Larder, `page`", started: started() },
            Peer { name: "granian, WSGI", started: Err("there is none".to_owned()) },
            Peer { name: "uWSGI", started: started() },
            Peer { name: "nginx with perl", started: started() },
        ];
        let of = |cpu_micros| vec![vec![Some(sample(cpu_micros)); 2]; MODES.len()];
        let page = pages(&peers, &[of(10.0), of(5.0), vec![Vec::new(); MODES.len()], of(50.0), of(4.0)]);
        assert!(page.contains("granian, WSGI is left out: there is none."), "{page}");
        assert!(page.contains("uWSGI's, 15 | 0.20 | ≤ 0.40 | met |") && !page.contains("granian's"), "{page}");
        assert!(page.contains("with perl, 15 kept | 1.25 | ≤ 1.05 | **missed** |"), "{page}");
        assert!(page.contains("1 kept | 0.80 | > 1.00 | **missed** |"), "{page}");
    }
}
