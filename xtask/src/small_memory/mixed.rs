//! A load of all sorts on little memory: 200,000 objects of 1 KB, 50 variants of 500 URLs, ranges, and answers that are not to
//! be stored, by many connections through two workers over a disk. Nothing of it is hostile; it fills every table, takes up
//! from disk and evicts all the time, so what is not accounted shows in the resident memory.

use super::{Args, DISK_BYTES, resident_bytes_max};
use crate::http::{Answer, Connection};
use crate::lab::{self, Lab};
use crate::law::{self, Origin};
use crate::processes::resident_kb_max_of_tree;
use crate::shell::{self, Trouble};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

const MEMORY_BYTES: u64 = 64_000_000;
const CONNECTIONS: u64 = 80;
const OBJECTS: u64 = 200_000;
const OBJECT_BYTES: u64 = 1_024;
const VARIED_URLS: u64 = 500;
const VARIANTS: u64 = 50;

/// Plays it, and says whether every answer was right and the memory within its promise.
pub(super) fn run(args: &Args, root: &Path) -> Result<(), Trouble> {
    let (origin, origin_port) = Origin::start()?;
    let (mut lab, port) = (Lab::new()?, lab::free_port()?);
    let mut command = Command::new(shell::published(root, "larder"));
    command.args(["--config", "none", "--listen", &format!("127.0.0.1:{port}"), "--admin", "none", "--workers", "2"]);
    command.args(["--origin", &format!("http://127.0.0.1:{origin_port}"), "--memory", &format!("{MEMORY_BYTES}B")]);
    command.args(["--disk", &format!("{DISK_BYTES}B")]).arg("--store").arg(lab.folder("store")?);
    let server = lab.start("larder", &mut command, port)?;
    let sorts: &[Sort] = if args.sorts.is_empty() { &Sort::ALL } else { &args.sorts };
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let clients = (0..CONNECTIONS).map(|number| {
            let done = &done;
            scope.spawn(move || client(port, number, sorts, args.requests / CONNECTIONS, done))
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().try_for_each(|client| client.join().unwrap_or_else(|_| Err("a client panicked".into())))
    })?;
    let (took, most) = (resident_kb_max_of_tree(server)? * 1024, resident_bytes_max(MEMORY_BYTES));
    println!(
        "{} requests, {} of them to the origin; {:.1} MB resident at most, {:.1} promised with a memory of {:.0}",
        done.load(Ordering::Relaxed),
        origin.requests.load(Ordering::SeqCst),
        took as f64 / 1e6,
        most as f64 / 1e6,
        MEMORY_BYTES as f64 / 1e6,
    );
    if took > most { Err(format!("{took} bytes resident, more than {most}")) } else { Ok(()) }
}

fn client(port: u16, number: u64, sorts: &[Sort], requests: u64, done: &AtomicU64) -> Result<(), Trouble> {
    let mut connection = Connection::open(port)?;
    for turn in 0..requests {
        let asked = Asked::draw(law::mix(number << 32 | turn), sorts);
        let answer = connection.ask(asked.request().as_bytes(), false)?;
        asked.judge(&answer)?;
        done.fetch_add(1, Ordering::Relaxed);
        if !answer.keeps {
            connection = Connection::open(port)?;
        }
    }
    Ok(())
}

/// The kinds of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Sort {
    /// Whole objects.
    Whole,
    /// Variants of few URLs.
    Variants,
    /// 100 bytes of an object.
    Parts,
    /// Answers that are not to be stored.
    NoStore,
}

impl Sort {
    const ALL: [Sort; 4] = [Sort::Whole, Sort::Variants, Sort::Parts, Sort::NoStore];

    /// Of a hundred requests of the whole mix.
    fn share(self) -> u64 {
        match self {
            Sort::Whole => 60,
            Sort::Variants => 20,
            Sort::Parts | Sort::NoStore => 10,
        }
    }
}

/// One request of the mix.
enum Asked {
    /// An object.
    Whole(u64),
    /// Some bytes of one.
    Part(u64, u64),
    /// One of the variants of a URL.
    Variant(u64, u64),
    /// An answer that is not to be stored.
    Fleeting(u64),
}

const PART_BYTES: u64 = 100;

impl Asked {
    /// One of these sorts, of which there is at least one.
    fn draw(random: u64, sorts: &[Sort]) -> Asked {
        let mut drawn = random % sorts.iter().map(|sort| sort.share()).sum::<u64>();
        let sort = sorts.iter().copied().find(|sort| {
            let is_it = drawn < sort.share();
            drawn = drawn.wrapping_sub(sort.share());
            is_it
        });
        let object = (random >> 8) % OBJECTS;
        match sort.unwrap_or(Sort::Whole) {
            Sort::Whole => Asked::Whole(object),
            Sort::Variants => Asked::Variant((random >> 8) % VARIED_URLS, (random >> 40) % VARIANTS),
            Sort::Parts => Asked::Part(object, (random >> 40) % (OBJECT_BYTES - PART_BYTES)),
            Sort::NoStore => Asked::Fleeting(object),
        }
    }

    fn request(&self) -> String {
        let (path, field) = match self {
            Asked::Whole(object) => (format!("/{object}/{OBJECT_BYTES}"), String::new()),
            Asked::Part(object, from) => {
                (format!("/{object}/{OBJECT_BYTES}"), format!("Range: bytes={from}-{}\r\n", from + PART_BYTES - 1))
            }
            Asked::Variant(object, variant) => {
                (format!("/{}/{object}/{OBJECT_BYTES}", law::VARIED), format!("{}: {variant}\r\n", law::VARIANT_FIELD))
            }
            Asked::Fleeting(object) => (format!("/{}/{object}/{OBJECT_BYTES}", law::FLEETING), String::new()),
        };
        format!("GET {path} HTTP/1.1\r\nHost: objects.test\r\n{field}\r\n")
    }

    fn judge(&self, answer: &Answer) -> Result<(), Trouble> {
        let (status, wanted) = match *self {
            Asked::Whole(object) | Asked::Fleeting(object) => (200, law::bytes(object, 0, 0..OBJECT_BYTES)),
            Asked::Part(object, from) => (206, law::bytes(object, 0, from..from + PART_BYTES)),
            Asked::Variant(object, variant) => (200, law::bytes(object, variant, 0..OBJECT_BYTES)),
        };
        if answer.status == status && answer.body == wanted {
            return Ok(());
        }
        Err(format!("{:?} was answered {} with {} bytes", self.request(), answer.status, answer.body.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_answers_all_sorts_and_wrong_answers_are_seen() {
        let (_, port) = Origin::start().unwrap();
        let mut connection = Connection::open(port).unwrap();
        for asked in [Asked::Whole(1), Asked::Part(2, 3), Asked::Variant(4, 5), Asked::Fleeting(6)] {
            let mut answer = connection.ask(asked.request().as_bytes(), false).unwrap();
            assert_eq!(asked.judge(&answer), Ok(()));
            answer.body[0] ^= 1;
            assert!(asked.judge(&answer).is_err());
        }
        let drawn = |sorts: &[Sort]| {
            let kinds = (0..1000).map(|turn| std::mem::discriminant(&Asked::draw(law::mix(turn), sorts)));
            kinds.collect::<std::collections::HashSet<_>>().len()
        };
        assert_eq!((drawn(&Sort::ALL), drawn(&[Sort::Parts]), drawn(&[Sort::Whole, Sort::NoStore])), (4, 1, 2));
    }
}
