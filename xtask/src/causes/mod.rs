//! Does each miss have a cause? A mixed load (hits, misses of all sorts, validations, variants, parts, purges, what can't be
//! stored) through a Larder with little room; then what the clients saw, the log and the metrics are held against each other.
//!
//! Each kind of request has its list of what may come of it, so that a cause must not only be there but fit.

mod draw;
mod judge;
mod origin;

use crate::http::{self, Answer, Connection};
use crate::lab::{self, Lab};
use crate::shell::{self, Trouble};
use crate::tally::Tally;
use draw::{Draw, KINDS};
use judge::{Causes, Id, LoggedOutcomes, Seen, Verdict};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How much is played.
#[derive(clap::Args)]
pub struct Args {
    /// Requests in all.
    #[arg(long, default_value_t = 1_000_000)]
    requests: u64,
    /// Seed of the requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Clients at a time.
    #[arg(long, default_value_t = 8)]
    clients: u64,
}

impl Args {
    /// As many as a run of all tests has time for.
    pub fn brief() -> Args {
        Args { requests: 20_000, seed: 1, clients: 8 }
    }
}

/// Causes that come in any run; the others need more objects than fit, or luck.
const EXPECTED: &[&str] = &[
    "uri-miss",
    "vary-miss",
    "purged",
    "invalidated",
    "not-stored",
    "stale",
    "no-cache",
    "request",
    "method",
    "partial",
    "condition",
    "request-body",
    "upgrade",
];

const SETTLE_WITHIN: Duration = Duration::from_secs(5);

/// Plays the load and prints what came of it.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let tally = play(args)?;
    if tally.failed == 0 { Ok(()) } else { Err("not every miss has its cause".to_owned()) }
}

/// The same with what was found.
pub fn play(args: &Args) -> Result<Tally, Trouble> {
    let root = shell::workspace()?;
    shell::build(&root)?;
    let manual = root.join("docs/explain.md");
    let manual = std::fs::read_to_string(&manual).map_err(|error| format!("reading {}: {error}", manual.display()))?;
    let causes = Causes::of_manual(&manual)?;
    let began = Instant::now();
    let mut lab = Lab::new()?;
    let (port, admin) = start(&mut lab, &root)?;
    let seen = all_clients(args, port, &causes)?;
    let metrics = settled(admin, seen.len())?;
    let log = lab.path().join("access.log");
    lab.end_last();
    let log = File::open(&log).map_err(|error| format!("opening {}: {error}", log.display()))?;
    let mut verdict = judge::judge(&seen, &LoggedOutcomes::of_log(BufReader::new(log))?, &causes);
    judge::judge_metrics(&mut verdict, &causes, &metrics);
    for cause in EXPECTED.iter().filter(|cause| !verdict.by_outcome.contains_key(**cause)) {
        verdict.wrong.insert(format!("no request had the cause {cause}"), 1);
    }
    show(&verdict, &causes, seen.len(), began.elapsed());
    Ok(Tally::of_check(verdict.wrong.len()))
}

/// Little memory and a little disk, so that much is evicted; its log has names and outcomes.
fn start(lab: &mut Lab, root: &Path) -> Result<(u16, u16), Trouble> {
    let (origin, port, admin) = (origin::start()?, lab::free_port()?, lab::free_port()?);
    let folder = lab.path().display().to_string();
    let text = format!(
        "memory = \"8MB\"\ndisk = \"64MB\"\ndisk_admission = \"seen-twice\"\nstore = \"{folder}/store\"\nadmin = \"127.0.0.1:{admin}\"\n\
         [log]\nto = \"{folder}/access.log\"\nformat = \"{{id}} {{outcome}}\"\nqueue_bytes_max = \"256MB\"\n\
         [records]\nname_answers = true\n[access]\npurge = [\"127.0.0.0/8\"]\n\
         [[listen]]\naddress = \"127.0.0.1:{port}\"\norigin = \"http://127.0.0.1:{origin}\"\n"
    );
    let file = lab.write("larder.toml", text)?;
    let mut command = Command::new(shell::built_larder(root));
    lab.start("larder", command.arg("--config").arg(file), port)?;
    Ok((port, admin))
}

fn all_clients(args: &Args, port: u16, causes: &Causes) -> Result<Vec<Seen>, Trouble> {
    let clients = args.clients.max(1);
    std::thread::scope(|scope| {
        let playing: Vec<_> =
            (0..clients).map(|client| scope.spawn(move || one_client(args, client, clients, port, causes))).collect();
        let mut seen = Vec::with_capacity(args.requests as usize);
        for client in playing {
            seen.extend(client.join().map_err(|_| "a client panicked".to_owned())??);
        }
        Ok(seen)
    })
}

fn one_client(args: &Args, client: u64, clients: u64, port: u16, causes: &Causes) -> Result<Vec<Seen>, Trouble> {
    let mut draw = Draw::new(args.seed.wrapping_mul(1_000).wrapping_add(client));
    let mut connection = Connection::open(port)?;
    let mut all = Vec::with_capacity((args.requests / clients) as usize + 1);
    for fresh in (client..args.requests).step_by(clients as usize) {
        let (number, request) = draw.next(fresh);
        let kind = &KINDS[usize::from(number)];
        let answer = connection.ask(&request, kind.method == "HEAD")?;
        all.push(seen(number, &answer, causes).map_err(|what| format!("{} /{}: {what}", kind.method, kind.path))?);
        if !answer.keeps {
            connection = Connection::open(port)?;
        }
    }
    Ok(all)
}

fn seen(kind: u8, answer: &Answer, causes: &Causes) -> Result<Seen, Trouble> {
    let name = answer.field("larder-request").ok_or_else(|| format!("an answer {} without a name", answer.status))?;
    let id = Id::try_from(name.as_bytes()).map_err(|_| format!("{name:?} is no name"))?;
    let status = answer.field("cache-status").unwrap_or_default();
    let forward = status.split(';').find_map(|part| part.trim().strip_prefix("fwd="));
    let forward = forward.map(|word| causes.forward(word).ok_or_else(|| format!("fwd={word} is not documented")));
    Ok(Seen { id, kind, forward: forward.transpose()? })
}

/// The metrics once all requests are counted: workers hand over ten times a second.
fn settled(admin: u16, requests: usize) -> Result<String, Trouble> {
    let began = Instant::now();
    loop {
        let answer = http::get(admin, "/metrics")?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let all = text.lines().filter(|line| line.starts_with("larder_requests_total{"));
        let counted: u64 = all.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum();
        if counted >= requests as u64 {
            return Ok(text);
        }
        if began.elapsed() > SETTLE_WITHIN {
            return Err(format!("{counted} of {requests} requests are in the metrics"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn show(verdict: &Verdict, causes: &Causes, requests: usize, took: Duration) {
    println!("| outcome | requests | cause |\n|---|---:|---|");
    let mut misses = 0;
    for (outcome, many) in &verdict.by_outcome {
        let is_cause = causes.forward_of.contains_key(outcome);
        misses += if is_cause { *many } else { 0 };
        println!("| {outcome} | {many} | {} |", if is_cause { "yes" } else { "" });
    }
    println!("\n{requests} requests, {misses} misses, each with one cause, in {} s", took.as_secs());
    let unseen: Vec<_> = causes.forward_of.keys().filter(|cause| !verdict.by_outcome.contains_key(*cause)).collect();
    if !unseen.is_empty() {
        println!("not met: {unseen:?}");
    }
    for (what, many) in &verdict.wrong {
        println!("WRONG, {many} times: {what}");
    }
}
