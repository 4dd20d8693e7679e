//! Clients and origins that mean harm, against a Larder with a small budget, while one good client goes on.
//!
//! Each attack runs by itself for some seconds. Meanwhile a good client at another address asks for what is stored and
//! for what is not. Afterwards the attackers let go, and the server must be as before. The conditions are in
//! [`Outcome::broken`].

pub mod horde;
mod http2;
mod loads;
mod origin;
mod watch;

use crate::lab::{self, Lab};
use crate::processes::resident_kb_of_tree;
use crate::results;
use crate::shell::{self, Trouble};
use crate::tally::Tally;
use loads::{ATTACKS, Attack};
use origin::Origin;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use watch::Seen;

/// How much.
#[derive(clap::Args)]
pub struct Args {
    /// Seconds of each attack.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Connections that each attack opens at most.
    #[arg(long, default_value_t = 1_600)]
    connections: usize,
    /// Only the attacks whose name contains this; may be repeated.
    #[arg(long = "only", value_name = "NAME")]
    only: Vec<String>,
    /// The binary to attack; without it the published build (`--profile dist`) of this workspace is made and taken.
    #[arg(long)]
    larder: Option<PathBuf>,
    /// Judge nothing that depends on the speed of the machine.
    #[arg(long)]
    untimed: bool,
    /// Show the table only; otherwise it is written to docs/results/.
    #[arg(long)]
    dry: bool,
}

impl Args {
    /// The part that every change has to pass: few connections, a second each, and nothing that depends on speed.
    pub fn brief(larder: PathBuf) -> Args {
        Args { seconds: 1, connections: 200, only: Vec::new(), larder: Some(larder), untimed: true, dry: true }
    }
}

/// The budget of the store under attack, and what a process may take beside it (docs/decisions/012).
const MEMORY_BYTES: u64 = 64_000_000;
const BESIDE_BYTES: u64 = 24_000_000;
/// Memory that a client connection may take outside the budget while its answer is under way: its task and its buffers,
/// as stated (docs/decisions/026).
const CONNECTION_BYTES: u64 = 24_000;
/// Descriptors that are no connection: listeners, epoll, files.
const DESCRIPTORS_BESIDE: usize = 200;
/// How late a good client's hit may be at the median while an attack goes on.
const HIT_MEDIAN_MAX: Duration = Duration::from_millis(50);
/// How soon all is as before when it ends.
const BACK_WITHIN: Duration = Duration::from_secs(5);

/// Plays all attacks and prints a row for each.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let root = shell::workspace()?;
    let outcomes = outcomes(args, &root)?;
    let table = table(&outcomes, args);
    if !args.dry {
        results::publish(&root, "attack", &format!("# Attacks\n\n{ABOUT}\n{table}"))?;
    }
    let broken: Vec<String> = outcomes.iter().flat_map(|outcome| outcome.broken(args)).collect();
    if broken.is_empty() { Ok(()) } else { Err(broken.join("; ")) }
}

/// A check for each attack.
pub fn play(larder: PathBuf) -> Result<Tally, Trouble> {
    let args = Args::brief(larder);
    let mut tally = Tally::default();
    for outcome in outcomes(&args, &shell::workspace()?)? {
        let broken = outcome.broken(&args);
        broken.iter().for_each(|trouble| eprintln!("xtask: {trouble}"));
        tally.add(Tally::of(&if broken.is_empty() { Ok(()) } else { Err(String::new()) }));
    }
    Ok(tally)
}

fn outcomes(args: &Args, root: &Path) -> Result<Vec<Outcome>, Trouble> {
    let program = shell::given_or_published_larder(root, args.larder.as_ref())?;
    horde::raise_descriptors()?;
    let wanted = |attack: &&Attack| args.only.is_empty() || args.only.iter().any(|word| attack.name.contains(&**word));
    let mut outcomes = Vec::new();
    for attack in ATTACKS.iter().filter(wanted) {
        let outcome = attacked(&program, attack, args).map_err(|trouble| format!("{}: {trouble}", attack.name))?;
        println!("{}", outcome.line());
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// Where everything is.
pub struct Stage {
    /// A reverse proxy of the origin.
    pub site: u16,
    /// A forward proxy.
    pub forward: u16,
    /// The admin address.
    pub admin: u16,
    /// The origin behind both.
    pub origin: Arc<Origin>,
    /// Connections that an attack opens at most.
    pub connections: usize,
    /// Set when the attack is to let go.
    pub over: AtomicBool,
}

impl Stage {
    /// The attack goes on.
    pub fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }
}

/// The result of one attack.
struct Outcome {
    name: &'static str,
    seen: Seen,
    resident_kb_max: u64,
    /// Bytes that TCP held in the kernel's buffers, on both sides and for all processes of this machine.
    kernel_bytes_max: u64,
    descriptors_before: usize,
    descriptors_max: usize,
    back_after: Option<Duration>,
    connections: usize,
}

fn attacked(program: &Path, attack: &'static Attack, args: &Args) -> Result<Outcome, Trouble> {
    let mut lab = Lab::new()?;
    let origin = Origin::start()?;
    let (site, forward, admin) = (lab::free_port()?, lab::free_port()?, lab::free_port()?);
    let text = format!(
        "memory = {MEMORY_BYTES}\ndisk = 0\nworkers = 2\nadmin = \"127.0.0.1:{admin}\"\nstore = {:?}\n\
         [[listen]]\naddress = \"127.0.0.1:{site}\"\norigin = \"http://127.0.0.1:{}\"\n\
         [[listen]]\naddress = \"127.0.0.1:{forward}\"\n",
        lab.folder("store")?,
        origin.port
    );
    let file = lab.write("larder.toml", text)?;
    let id = lab.start("larder", Command::new(program).arg("--config").arg(file), site)?;
    let stage = Stage { site, forward, admin, origin, connections: args.connections, over: AtomicBool::new(false) };
    watch::warm(site)?;
    let descriptors_before = descriptors(id)?;
    let watching = AtomicBool::new(true);
    let mut outcome = std::thread::scope(|scope| -> Result<Outcome, Trouble> {
        let good = scope.spawn(|| watch::good_client(site, &watching));
        let bad = scope.spawn(|| (attack.play)(&stage));
        let (mut resident_kb_max, mut kernel_bytes_max, mut descriptors_max) = (0, 0, 0);
        let end = Instant::now() + Duration::from_secs(args.seconds);
        let mut sampled = Ok(());
        while Instant::now() < end && sampled.is_ok() {
            std::thread::sleep(Duration::from_millis(50));
            sampled = sample(id, &mut resident_kb_max, &mut descriptors_max);
            kernel_bytes_max = kernel_bytes_max.max(tcp_buffer_bytes());
        }
        stage.over.store(true, Ordering::Relaxed);
        stage.origin.let_go();
        watching.store(false, Ordering::Relaxed);
        let connections = bad.join().map_err(|_| "the attack panicked")?;
        let seen = good.join().map_err(|_| "the good client panicked")?;
        sampled?;
        let back_after = back(id, site, descriptors_before)?;
        Ok(Outcome {
            name: attack.name,
            seen,
            resident_kb_max,
            kernel_bytes_max,
            descriptors_before,
            descriptors_max,
            back_after,
            connections,
        })
    })?;
    outcome.resident_kb_max = outcome.resident_kb_max.max(resident_kb_of_tree(id)?);
    Ok(outcome)
}

fn sample(id: u32, resident_kb_max: &mut u64, descriptors_max: &mut usize) -> Result<(), Trouble> {
    *resident_kb_max = (*resident_kb_max).max(resident_kb_of_tree(id)?);
    *descriptors_max = (*descriptors_max).max(descriptors(id)?);
    Ok(())
}

/// `mem` of the line `TCP:` in `/proc/net/sockstat`, in pages; 0 where it can't be read.
fn tcp_buffer_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("TCP:")).unwrap_or_default();
    let mut words = line.split_whitespace().skip_while(|word| *word != "mem").skip(1);
    words.next().and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * rustix::param::page_size() as u64
}

fn descriptors(id: u32) -> Result<usize, Trouble> {
    let folder = format!("/proc/{id}/fd");
    Ok(std::fs::read_dir(&folder).map_err(|error| format!("{folder}: {error}; has larder ended?"))?.count())
}

/// How long until descriptors are as before and both a hit and a miss are answered; `None`: not within the time.
fn back(id: u32, site: u16, descriptors_before: usize) -> Result<Option<Duration>, Trouble> {
    let began = Instant::now();
    // Unused connections to the origin may stay.
    const KEPT_MAX: usize = 80;
    while began.elapsed() < BACK_WITHIN * 2 {
        if descriptors(id)? <= descriptors_before + KEPT_MAX && watch::serves(site) {
            return Ok(Some(began.elapsed()));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(None)
}

impl Outcome {
    /// The conditions that did not hold, in words.
    fn broken(&self, args: &Args) -> Vec<String> {
        let mut broken = Vec::new();
        let mut must = |holds: bool, what: String| {
            if !holds {
                broken.push(format!("{}: {what}", self.name));
            }
        };
        let resident = self.resident_kb_max * 1_024;
        let promised = self.resident_bytes_max();
        must(resident <= promised, format!("{resident} bytes resident, {promised} promised"));
        let most = self.connections * 2 + DESCRIPTORS_BESIDE + self.descriptors_before;
        must(self.descriptors_max <= most, format!("{} descriptors, {most} at most", self.descriptors_max));
        must(self.seen.hits() > 0, "not one hit was answered".to_owned());
        must(self.seen.misses > 0, "not one miss was answered".to_owned());
        must(self.seen.wrong == 0, format!("{} wrong answers to the good client", self.seen.wrong));
        must(self.back_after.is_some(), "it did not come back".to_owned());
        if !args.untimed {
            let median = self.seen.median();
            must(median <= HIT_MEDIAN_MAX, format!("a hit took {median:?} at the median"));
            let back = self.back_after.unwrap_or(BACK_WITHIN * 2);
            must(back <= BACK_WITHIN, format!("all was as before after {back:?}"));
            let (failed, all) = (self.seen.failed, self.seen.misses + self.seen.failed);
            must(failed * 5 <= all, format!("{failed} of {all} misses failed"));
        }
        broken
    }

    fn resident_bytes_max(&self) -> u64 {
        MEMORY_BYTES / 10 * 11 + BESIDE_BYTES + CONNECTION_BYTES * self.connections as u64
    }

    fn line(&self) -> String {
        let back = self.back_after.map_or("never".to_owned(), |back| format!("{:.1} s", back.as_secs_f64()));
        format!(
            "| {} | {} | {:.1} of {:.1} | {:.0} | {} | {:.2} | {:.1} | {} of {} | {back} |",
            self.name,
            self.connections,
            self.resident_kb_max as f64 * 1.024 / 1e3,
            self.resident_bytes_max() as f64 / 1e6,
            self.kernel_bytes_max as f64 / 1e6,
            self.descriptors_max,
            self.seen.median().as_secs_f64() * 1e3,
            self.seen.late().as_secs_f64() * 1e3,
            self.seen.misses,
            self.seen.misses + self.seen.failed,
        )
    }
}

const ABOUT: &str = "`cargo xtask attack`; two shared virtual cores, loopback, Larder with two workers and `memory = 64MB`; the attackers, the origin and the good client run on
the same two cores. Each row is a server of its own. Memory: the most that was resident, and what is promised: the budget and a tenth, 24 MB, and 24 kB for
each connection of the attack, of which ten streams of HTTP/2 that wait count as one. A hit's times are those of a good client at another address during the attack; `misses` are those of its misses that were
answered rightly within two seconds. `back`: how long after the attack until descriptors were as before and hits and misses were answered.
";

fn table(outcomes: &[Outcome], args: &Args) -> String {
    let mut text = format!("{} s each, at most {} connections.\n\n", args.seconds, args.connections);
    text += "| attack | connections | MB resident | MB in TCP buffers | descriptors | ms a hit, median | 99 % | misses answered | back |\n";
    text += "|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
    for outcome in outcomes {
        writeln!(text, "{}", outcome.line()).ok();
    }
    text
}
