//! Larder against a model: random conversations with an origin that the chore plays, each answer judged by a second
//! opinion of the RFCs. It knows who may get which bytes and fields, how old they may be, and what had to be
//! validated.
//!
//! The model has no code of the program: it is written from the texts of RFC 9110, 9111, 5861, 8246 and 9213 alone.
//! Every value that an origin sends carries the number of its answer and every byte its version, so that what a client
//! gets says by itself where it comes from.

mod date;
mod head;
mod judge;
mod origin;
mod play;
mod rules;
mod script;
mod trace;

use crate::lab::{self, Lab};
use crate::law;
use crate::shell::{self, Trouble};
use crate::tally::Tally;
pub use date::Spelling;
use judge::Finding;
use play::Ground;
use script::{Case, Way};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// How much is played, and with what.
#[derive(clap::Args)]
pub struct Args {
    /// Requests in all, about.
    #[arg(long, default_value_t = 100_000)]
    requests: u64,
    /// Draws the conversations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Conversations at a time.
    #[arg(long, default_value_t = 24)]
    clients: u64,
    /// The program that is tried, instead of the one of the workspace.
    #[arg(long)]
    larder: Option<PathBuf>,
    /// Plays this one conversation alone and prints it.
    #[arg(long)]
    case: Option<u64>,
}

impl Args {
    /// As many as a run of all tests has time for.
    pub fn brief() -> Args {
        Args { requests: 4_000, seed: 1, clients: 24, larder: None, case: None }
    }
}

/// A kind of finding: whether it costs time only, whether several clients were there, the rule, and what was found.
type Kind = (bool, bool, &'static str, &'static str);

/// Each so manieth conversation is played by several clients at once.
const TOGETHER_EVERY: u64 = 40;
/// Requests of each of them.
const STEPS_TOGETHER: u64 = 6;

/// How often a kind came, and the first conversation in which it did.
struct Found {
    count: u64,
    finding: Finding,
    /// The case to play again; a conversation of several clients at once cannot be repeated.
    case: Option<Case>,
    trace: String,
}

#[derive(Default)]
struct Book {
    requests: u64,
    conversations: u64,
    kinds: BTreeMap<Kind, Found>,
}

impl Book {
    fn add(&mut self, other: Book) {
        self.requests += other.requests;
        self.conversations += other.conversations;
        for (kind, found) in other.kinds {
            match self.kinds.get_mut(&kind) {
                Some(known) => known.count += found.count,
                None => drop(self.kinds.insert(kind, found)),
            }
        }
    }
}

/// Plays them and prints what was found.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let tally = play(args)?;
    if tally.failed == 0 { Ok(()) } else { Err(format!("{} rules were broken", tally.failed)) }
}

/// Plays them; each kind of finding counts as one failure.
pub fn play(args: &Args) -> Result<Tally, Trouble> {
    let root = shell::workspace()?;
    if args.larder.is_none() {
        shell::build(&root)?;
    }
    let program = args.larder.clone().unwrap_or_else(|| shell::built_larder(&root));
    let mut lab = Lab::new()?;
    let ground = lay(&mut lab, &program)?;
    if let Some(seed) = args.case {
        let case = Case::draw(seed);
        println!("{}", trace::told(&ground, &case)?);
        return Ok(Tally { passed: 1, ..Tally::default() });
    }
    let began = Instant::now();
    let book = all(args, &ground)?;
    println!(
        "{} conversations, {} requests, seed {}, {} s",
        book.conversations,
        book.requests,
        args.seed,
        began.elapsed().as_secs()
    );
    report(&ground, &book)
}

fn lay(lab: &mut Lab, program: &std::path::Path) -> Result<Ground, Trouble> {
    let stages = Arc::new(origin::Stages::default());
    let origin = origin::start(&stages)?;
    let mut entries = BTreeMap::new();
    let url = format!("http://127.0.0.1:{origin}");
    for (way, name, flags) in [
        (Way::Forward, "forward", vec!["--memory", "128MB", "--disk", "0"]),
        (Way::Site, "site", vec!["--memory", "128MB", "--disk", "0", "--origin", &url]),
        (Way::SiteOnDisk, "disk", vec!["--memory", "1MB", "--disk", "256MB", "--origin", &url]),
    ] {
        let (port, admin) = (lab::free_port()?, lab::free_port()?);
        let mut command = Command::new(program);
        command.args(["--config", "none", "--listen", &format!("127.0.0.1:{port}")]);
        command.args(["--admin", &format!("127.0.0.1:{admin}")]).arg("--store").arg(lab.folder(name)?);
        lab.start(name, command.args(flags), port)?;
        entries.insert(way, port);
    }
    Ok(Ground::new(entries, origin, stages))
}

fn all(args: &Args, ground: &Ground) -> Result<Book, Trouble> {
    let (book, next) = (Mutex::new(Book::default()), AtomicU64::new(0));
    let played = AtomicU64::new(0);
    let one_client = || -> Result<(), Trouble> {
        while played.load(Ordering::Relaxed) < args.requests {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let seed = (law::mix(args.seed) >> 24).wrapping_add(number);
            let together = number.is_multiple_of(TOGETHER_EVERY).then(|| 2 + seed % 7);
            let played_now = one(ground, seed, together)?;
            played.fetch_add(played_now.requests, Ordering::Relaxed);
            book.lock().unwrap_or_else(PoisonError::into_inner).add(played_now);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.clients.max(1)).map(|_| scope.spawn(one_client)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a client panicked".to_owned())?)
    })?;
    Ok(book.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Plays one conversation, with several clients at once where `together` says how many.
fn one(ground: &Ground, seed: u64, together: Option<u64>) -> Result<Book, Trouble> {
    let (case, (stage, seen)) = match together {
        None => {
            let case = Case::draw(seed);
            let played = ground.play(&case)?;
            (case, played)
        }
        Some(clients) => {
            let case = Case::of_many(seed, clients * STEPS_TOGETHER);
            let played = ground.play_together(&case, clients)?;
            (case, played)
        }
    };
    let findings = trace::findings(&stage, &seen, together.is_none());
    let mut book = Book { requests: seen.len() as u64, conversations: 1, kinds: BTreeMap::new() };
    for (at, finding) in &findings {
        let kind = (finding.is_weak, together.is_some(), finding.section, finding.kind);
        let found = book.kinds.entry(kind).or_insert_with(|| Found {
            count: 0,
            finding: finding.clone(),
            trace: match together {
                None => trace::written(&stage, &seen, &findings),
                Some(_) => trace::around(&stage, &seen, &findings, seen[*at].step),
            },
            case: together.is_none().then(|| case.clone()),
        });
        found.count += 1;
    }
    Ok(book)
}

fn report(ground: &Ground, book: &Book) -> Result<Tally, Trouble> {
    let mut broken = 0;
    for ((is_weak, is_together, section, kind), found) in &book.kinds {
        let word = if *is_weak { "dear" } else { "WRONG" };
        let section = if section.is_empty() { String::new() } else { format!("{section}: ") };
        let clients = if *is_together { ", among several clients" } else { "" };
        println!("\n{word}, {} times{clients}: {section}{kind}", found.count);
        broken += usize::from(!is_weak);
        let short = found.case.as_ref().map(|case| trace::shrink(ground, case, &found.finding)).transpose()?.flatten();
        match (short, &found.case) {
            (Some(short), _) => print!("{}", trace::told(ground, &short)?),
            (None, None) => print!("{}", found.trace),
            (None, Some(_)) => print!("    it did not come again; the first time it was\n{}", found.trace),
        }
    }
    Ok(Tally::of_check(broken))
}
