//! Power cuts and killed processes. First the crash harness of the store on its simulated device, with many points; then
//! a child (the published build) that works on a store in a real folder and is killed at random moments: what is there afterwards is read back
//! and compared with the law of its bytes, and with what the child had acknowledged.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_cache::store::rules::{Force, Scope, Verdict};
use larder_cache::store::{
    Admission, BLOCK_BYTES, DiskHead, HeadToStore, INLINE_BYTES_MAX, Notice, ObjectId, Put, Settings, Store,
};

use crate::shell::{self, Trouble};

/// How much.
#[derive(clap::Args)]
pub struct Args {
    /// Kills of the process.
    #[arg(default_value_t = 300)]
    kills: u64,
    /// Crash points on the simulated device; 0 leaves that part out.
    #[arg(long, default_value_t = 10_000)]
    points: u64,
    /// Where the draws begin.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The arguments of the child.
#[derive(clap::Args)]
pub struct ChildArgs {
    folder: PathBuf,
    seed: u64,
    /// The first generation that it gives.
    first: u64,
}

/// Both parts, one after the other.
pub fn run(args: &Args) -> Result<(), Trouble> {
    if args.points > 0 {
        println!("== {} crash points on the simulated device", args.points);
        let mut test = Command::new("cargo");
        test.current_dir(shell::workspace()?).env("CRASH_POINTS", args.points.to_string());
        shell::call(test.args(["test", "--quiet", "-p", "larder-cache", "--test", "all", "crash::"]))?;
    }
    println!("== {} kills of a process", args.kills);
    let root = shell::workspace()?;
    shell::build_published(&root, "xtask", &["xtask"])?;
    let program = shell::published(&root, "xtask");
    let folder = tempfile::tempdir().map_err(|error| format!("making a folder: {error}"))?;
    let mut book = Book { generation: 1, ..Book::default() };
    let began = Instant::now();
    for kill in 0..args.kills {
        let seed = args.seed.wrapping_add(kill);
        play(&program, folder.path(), seed, &mut book)
            .map_err(|trouble| format!("kill {kill}, seed {seed}: {trouble}"))?;
        if kill % 50 == 49 {
            println!(
                "{} kills, {} heads and {} bytes read back, {} purges",
                kill + 1,
                book.heads,
                book.bytes,
                book.purges
            );
        }
    }
    println!(
        "{} kills in {} s: {} heads and {} bytes of bodies read back, {} acknowledged purges, nothing wrong, and what was \
         stored last is there ({} times)",
        args.kills,
        began.elapsed().as_secs(),
        book.heads,
        book.bytes,
        book.purges,
        book.demanded
    );
    Ok(())
}

/// One life of the child, and what it leaves.
fn play(program: &Path, folder: &Path, seed: u64, book: &mut Book) -> Result<(), Trouble> {
    let mut draw = Draw(seed);
    let mut child = start(program, folder, draw.next(), book.generation)?;
    // Now and then before it has opened the store.
    let lives = if draw.below(8) == 0 { draw.below(15) } else { 20 + draw.below(150) };
    std::thread::sleep(Duration::from_millis(lives));
    let killed = child.kill();
    let said = child.stdout.take().map(BufReader::new);
    let _ = child.wait();
    killed.map_err(|error| format!("killing the child: {error}"))?;
    book.last = None;
    for line in said.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
        book.note(&line)?;
    }
    book.generation += GENERATIONS_PER_LIFE;
    // Sometimes the next child finds it as it is.
    if draw.below(3) > 0 { read_back(folder, book) } else { Ok(()) }
}

const GENERATIONS_PER_LIFE: u64 = 1_000_000;

fn start(program: &Path, folder: &Path, seed: u64, first: u64) -> Result<Child, Trouble> {
    let mut command = Command::new(program);
    command.arg("crash-child").arg(folder).args([seed.to_string(), first.to_string()]);
    command.stdout(Stdio::piped()).spawn().map_err(|error| format!("starting the child: {error}"))
}

const DISK_BYTES: u64 = 8 << 20;

fn open(folder: &Path) -> Result<Arc<Store>, Trouble> {
    let settings = Settings {
        disk_bytes: DISK_BYTES,
        free_bytes_min: 0,
        index_bytes_max: 16 << 20,
        write_block_bytes: 64 << 10,
        queue_bytes_max: 4 << 20,
        sync_seconds: 1,
        readers: 1,
        admission: Admission::All,
    };
    Store::open(&[folder.to_path_buf()], &settings).map_err(|fault| format!("{fault}: {fault:?}"))
}

/// The child: works until it is killed, and says what is certain.
pub fn child(args: &ChildArgs) -> Result<(), Trouble> {
    let store = open(&args.folder)?;
    let mut draw = Draw(args.seed);
    let mut generation = args.first;
    loop {
        let last = generation - 1;
        match draw.below(100) {
            0..90 => put_some(&store, &mut draw, &mut generation)?,
            90..96 => {
                let key = draw.below(KEYS);
                say("purging")?;
                store.forget(key_text(key).as_bytes(), None).wait().map_err(|error| error.to_string())?;
                say(&format!("gone {key} {last}"))?;
            }
            _ => {
                let (scope, word) = match draw.below(8) {
                    0 => (Scope::All, "all 0".to_owned()),
                    1..4 => {
                        let host = draw.below(HOSTS);
                        (Scope::Prefix(host_text(host).into_bytes().into()), format!("host {host}"))
                    }
                    _ => {
                        let tag = draw.below(TAGS);
                        (Scope::Tag(tag), format!("tag {tag}"))
                    }
                };
                let force = if draw.below(2) == 0 { Force::Hard } else { Force::Soft };
                say("purging")?;
                store.invalidate([scope], force).wait().map_err(|error| error.to_string())?;
                say(&format!("{} {word} {last}", force.as_str()))?;
            }
        }
    }
}

/// Puts some objects, waits for the last of them.
fn put_some(store: &Arc<Store>, draw: &mut Draw, generation: &mut u64) -> Result<(), Trouble> {
    let mut waiting = Vec::new();
    for _ in 0..=draw.below(8) {
        let (key, this) = (draw.below(KEYS), *generation);
        *generation += 1;
        let head = law(key, this, store.current_epoch(), store.new_id());
        let (id, length) = (head.id, body_bytes(this));
        waiting.push((key, this, store.put_head(head)));
        if length > INLINE_BYTES_MAX as u64 {
            drop(store.put_extent(id, key_text(key).as_bytes(), 0, vec![body(this, 0..length).into()]));
        }
    }
    for (key, this, putting) in waiting {
        if putting.wait() == Put::Stored {
            say(&format!("stored {key} {this}"))?;
        }
    }
    Ok(())
}

/// One write, so that a kill leaves a whole line or none.
fn say(line: &str) -> Result<(), Trouble> {
    let mut out = std::io::stdout().lock();
    let whole = format!("{line}\n");
    out.write_all(whole.as_bytes()).and_then(|()| out.flush()).map_err(|error| format!("telling the parent: {error}"))
}

/// The puts that children acknowledged, and the results of reading them back.
#[derive(Default)]
struct Book {
    /// The next child's first.
    generation: u64,
    /// By key: nothing older may be found, since it was replaced.
    stored: HashMap<u64, u64>,
    /// The last object that must be there, key and generation: the last that was stored, unless a purge had begun
    /// since.
    last: Option<(u64, u64)>,
    /// How often that was looked for.
    demanded: u64,
    /// By key: nothing up to this may be found, since it was purged.
    gone: HashMap<u64, u64>,
    /// Rules: force, kind, number, and the last generation before it.
    rules: HashMap<(String, String, u64), u64>,
    purges: u64,
    heads: u64,
    bytes: u64,
}

impl Book {
    fn note(&mut self, line: &str) -> Result<(), Trouble> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().map_err(|_| format!("the child said {line:?}"));
        let highest = |entry: &mut u64, generation: u64| *entry = generation.max(*entry);
        match words[..] {
            ["stored", ..] if words.len() == 3 => {
                self.last = Some((number(1)?, number(2)?));
                highest(self.stored.entry(number(1)?).or_default(), number(2)?);
            }
            ["purging"] => self.last = None,
            ["gone", ..] if words.len() == 3 => {
                self.purges += 1;
                highest(self.gone.entry(number(1)?).or_default(), number(2)?);
            }
            [force @ ("hard" | "soft"), kind, ..] if words.len() == 4 => {
                self.purges += 1;
                let rule = (force.to_owned(), kind.to_owned(), number(2)?);
                highest(self.rules.entry(rule).or_default(), number(3)?);
            }
            _ => return Err(format!("the child said {line:?}")),
        }
        Ok(())
    }

    /// The last generation that a force has hit for a key.
    fn ruled(&self, force: Force, key: u64) -> u64 {
        let rule = |kind: &str, number| self.rules.get(&(force.as_str().into(), kind.into(), number)).copied();
        [rule("all", 0), rule("host", key % HOSTS), rule("tag", key % TAGS)].into_iter().flatten().max().unwrap_or(0)
    }

    fn judge(&mut self, key: u64, head: &DiskHead) -> Result<u64, Trouble> {
        let generation = std::str::from_utf8(&head.meta).ok().and_then(|meta| meta.parse().ok());
        let generation: u64 = generation.ok_or_else(|| format!("mixed bytes in the meta of key {key}"))?;
        let expected = law(key, generation, head.epoch, head.id);
        let same = (&head.key, head.length, &head.tags, &head.meta)
            == (&expected.key, expected.length, &expected.tags, &expected.meta);
        if !same || head.body != expected.body.map(|parts| parts.concat().into()) {
            return Err(format!("wrong bytes of key {key}, generation {generation}"));
        }
        let hit = |what: &str| Err(format!("key {key}, generation {generation}: {what}"));
        if generation <= self.gone.get(&key).copied().unwrap_or(0) {
            return hit("it was purged and acknowledged");
        }
        if generation <= self.ruled(Force::Hard, key) {
            return hit("it was invalidated and acknowledged");
        }
        if generation <= self.ruled(Force::Soft, key) && head.verdict < Verdict::Stale {
            return hit("it was made stale and is said to be valid");
        }
        if generation < self.stored.get(&key).copied().unwrap_or(0) {
            return hit("it was replaced");
        }
        self.heads += 1;
        Ok(generation)
    }
}

fn read_back(folder: &Path, book: &mut Book) -> Result<(), Trouble> {
    let store = open(folder)?;
    let size = folder_bytes(folder)?;
    if size > DISK_BYTES {
        return Err(format!("{size} bytes on disk, {DISK_BYTES} are permitted"));
    }
    // A purge that was being written when the process was killed cannot be told from a damaged one.
    if !store.notices().iter().all(|(_, notice)| matches!(notice, Notice::PurgesLost(_))) {
        return Err(format!("the store is damaged: {:?}", store.notices()));
    }
    // A torn record takes the one that it was to replace along, so the last put may be missing then.
    store.for_each_head(|_| ControlFlow::Break(()));
    let torn = store.stats().bad_records;
    let mut missing = book.last.take().filter(|_| torn == 0);
    book.demanded += u64::from(missing.is_some());
    for key in 0..KEYS {
        for head in store.heads(key_text(key).as_bytes()).wait() {
            let generation = book.judge(key, &head)?;
            // Or what came after it and was not told of any more.
            missing = missing.filter(|(last, least)| *last != key || generation < *least);
            book.bytes += head.body.as_ref().map_or(0, |body| body.len() as u64);
            if head.body.is_none() {
                book.bytes += read_body(&store, key, &head, generation)?;
            }
        }
    }
    if let Some((key, generation)) = missing {
        return Err(format!("key {key}, generation {generation}: it was stored last and is not there"));
    }
    let stats = store.stats();
    if stats.bad_records - torn + stats.read_errors > 0 {
        return Err(format!("records that are not sound: {stats:?}"));
    }
    store.close();
    Ok(())
}

/// Compares what is there of a long body.
fn read_body(store: &Arc<Store>, key: u64, head: &DiskHead, generation: u64) -> Result<u64, Trouble> {
    let mut read = 0;
    let length = body_bytes(generation);
    for block in 0..length.div_ceil(BLOCK_BYTES) {
        let range = block * BLOCK_BYTES..((block + 1) * BLOCK_BYTES).min(length);
        for (at, bytes) in store.read(head.id, key_text(key).as_bytes(), range).wait() {
            if bytes != body(generation, at..at + bytes.len() as u64) {
                return Err(format!("wrong bytes in the body of key {key}, generation {generation}, at {at}"));
            }
            read += bytes.len() as u64;
        }
    }
    Ok(read)
}

fn folder_bytes(folder: &Path) -> Result<u64, Trouble> {
    let wrong = |error: std::io::Error| format!("listing the store: {error}");
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).map_err(wrong)? {
        bytes += entry.and_then(|entry| entry.metadata()).map_err(wrong)?.len();
    }
    Ok(bytes)
}

const KEYS: u64 = 200;
const HOSTS: u64 = 5;
const TAGS: u64 = 7;

fn host_text(host: u64) -> String {
    format!("http://host{host}.example/")
}

fn key_text(key: u64) -> String {
    format!("{}{key}", host_text(key % HOSTS))
}

/// The head of a key in a generation.
fn law(key: u64, generation: u64, epoch: u64, id: ObjectId) -> HeadToStore {
    let length = body_bytes(generation);
    HeadToStore {
        key: key_text(key).into(),
        variant: 0,
        id,
        epoch,
        length: Some(length),
        tags: vec![key % TAGS, 1000],
        meta: generation.to_string().into(),
        body: (length <= INLINE_BYTES_MAX as u64).then(|| vec![body(generation, 0..length).into()]),
    }
}

fn body_bytes(generation: u64) -> u64 {
    let drawn = mix(generation ^ 0x5eed);
    match drawn >> 60 {
        0..12 => drawn % 4_000,
        12..15 => drawn % INLINE_BYTES_MAX as u64,
        _ => INLINE_BYTES_MAX as u64 + drawn % 200_000,
    }
}

fn body(generation: u64, range: Range<u64>) -> Vec<u8> {
    let words = range.start / 8..range.end.div_ceil(8);
    let bytes: Vec<u8> = words.flat_map(|word| mix(generation.rotate_left(32) ^ word).to_le_bytes()).collect();
    let start = (range.start % 8) as usize;
    bytes[start..start + (range.end - range.start) as usize].to_vec()
}

/// Draws by a seed (SplitMix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_says_is_understood() {
        let mut book = Book::default();
        for line in ["stored 3 10", "gone 3 9", "hard tag 1 4", "soft all 0 7"] {
            book.note(line).unwrap();
        }
        assert!(book.note("hard tag").is_err());
        assert_eq!(book.last, Some((3, 10)));
        book.note("purging").unwrap();
        assert_eq!(book.last, None);
        assert_eq!((book.ruled(Force::Hard, 8), book.ruled(Force::Hard, 9), book.ruled(Force::Soft, 9)), (4, 0, 7));
    }

    #[test]
    fn bodies_are_parts_of_one_law() {
        assert_eq!(body(5, 3..20), body(5, 0..40)[3..20]);
        assert_ne!(body(5, 0..40), body(6, 0..40));
    }
}
