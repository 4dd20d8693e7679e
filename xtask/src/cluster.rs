//! Three nodes and a server of NATS on loopback: how long until a purge is applied on all nodes, one by one and many at a time.

mod homes;

use crate::http::Connection;
use crate::lab::{self, Lab};
use crate::shell::{self, Trouble};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many purges, and with which programs.
#[derive(clap::Args)]
pub struct Args {
    /// Purges one by one.
    #[arg(long, default_value_t = 1_000)]
    purges: u64,
    /// Callers at a time in the second part.
    #[arg(long, default_value_t = 64)]
    callers: u64,
    /// The program of NATS; without it the one in the path.
    #[arg(long)]
    nats: Option<PathBuf>,
    /// The binary to test; without it the published build (`--profile dist`) of this workspace is made and taken.
    #[arg(long)]
    larder: Option<PathBuf>,
    /// Have NATS sync each purge before it acknowledges it.
    #[arg(long)]
    sync_always: bool,
    /// Measure what a hit costs at the home of its key instead.
    #[arg(long)]
    homes: bool,
}

const NODES: [&str; 3] = ["a", "b", "c"];
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Starts all, purges, and prints the times.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let root = shell::workspace()?;
    let program = shell::given_or_published_larder(&root, args.larder.as_ref())?;
    let nats = match &args.nats {
        Some(program) => program.clone(),
        None => shell::need_program("nats-server")?,
    };
    if args.homes {
        return homes::run(&program, &nats);
    }
    let mut lab = Lab::new()?;
    let port = start_nats_at(&mut lab, &nats, if args.sync_always { "always" } else { "2m" })?;
    let mut admins = Vec::new();
    for name in NODES {
        admins.push(start_node(&mut lab, &program, name, port)?);
    }
    wait_for_all(&admins)?;
    let alone = purge(admins[0], args.purges, 1)?;
    let together = purge(admins[0], args.purges * 4, args.callers)?;
    println!("| callers | purges | p50 ms | p99 ms | max ms | purges/s |\n|---|---|---|---|---|---|");
    println!("{}", row(1, &alone));
    println!("{}", row(args.callers, &together));
    Ok(())
}

fn start_nats_at(lab: &mut Lab, program: &std::path::Path, sync: &str) -> Result<u16, Trouble> {
    let port = lab::free_port()?;
    let store = lab.folder("nats")?;
    let text = format!(
        "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}\", sync_interval: {sync} }}\n",
        store.display()
    );
    let config = lab.write("nats.conf", text)?;
    lab.start("nats-server", Command::new(program).arg("--config").arg(config), port)?;
    Ok(port)
}

fn start_node(lab: &mut Lab, program: &std::path::Path, name: &str, nats: u16) -> Result<u16, Trouble> {
    let (listen, admin) = (lab::free_port()?, lab::free_port()?);
    let store = lab.folder(name)?;
    let text = format!(
        "store = \"{}\"\nadmin = \"127.0.0.1:{admin}\"\nmemory = \"16MB\"\ndisk = \"64MB\"\nworkers = 1\n\
         [cluster]\nnats = [\"nats://127.0.0.1:{nats}\"]\nname = \"{name}\"\n[[listen]]\naddress = \"127.0.0.1:{listen}\"\n",
        store.display()
    );
    let config = lab.write(&format!("{name}.toml"), text)?;
    lab.start(name, Command::new(program).arg("--config").arg(config), admin)?;
    Ok(admin)
}

fn wait_for_all(admins: &[u16]) -> Result<(), Trouble> {
    let end = Instant::now() + READY_WITHIN;
    for admin in admins {
        loop {
            let answer = Connection::open(*admin)?.ask(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", false)?;
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            let members = format!("larder_cluster_members {}\n", admins.len());
            let is_ready = [&*members, "larder_cluster_gate_shut 0\n"].iter().all(|line| text.contains(line));
            if is_ready {
                break;
            }
            if Instant::now() > end {
                return Err("the nodes did not find one another".into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

/// The time of each purge until its answer, which comes when all nodes have applied it, and the time of all.
fn purge(admin: u16, purges: u64, callers: u64) -> Result<(Vec<Duration>, Duration), Trouble> {
    let (next, times, began) = (AtomicU64::new(0), Mutex::new(Vec::new()), Instant::now());
    let call = || -> Result<(), Trouble> {
        let mut connection = Connection::open(admin)?;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= purges {
                return Ok(());
            }
            let request = format!(
                "POST /purge?tag=t{number} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Larder: 1\r\nContent-Length: 0\r\n\r\n"
            );
            let at = Instant::now();
            let answer = connection.ask(request.as_bytes(), false)?;
            let took = at.elapsed();
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            if !text.contains("\"applied_on\":3") {
                return Err(format!("a purge was not applied on all nodes: {text}"));
            }
            times.lock().unwrap_or_else(PoisonError::into_inner).push(took);
        }
    };
    let outcomes: Vec<Result<(), Trouble>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..callers).map(|_| scope.spawn(call)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    outcomes.into_iter().collect::<Result<Vec<()>, Trouble>>()?;
    let mut times = times.into_inner().unwrap_or_else(PoisonError::into_inner);
    times.sort_unstable();
    Ok((times, began.elapsed()))
}

fn row(callers: u64, (times, all): &(Vec<Duration>, Duration)) -> String {
    let at = |share: f64| {
        let place = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
        times.get(place).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    };
    let rate = times.len() as f64 / all.as_secs_f64();
    format!("| {callers} | {} | {:.1} | {:.1} | {:.1} | {rate:.0} |", times.len(), at(0.5), at(0.99), at(1.0))
}
