//! A site through caches with hardly any memory: `wget -r` of all of it by one, two and three clients at once, twice.
//! The figures that count are the bytes that the origin had to send (never more than the site), whether every file is
//! right, and how much memory the cache took. The old measure is Polipo's, which did this with 400 kB.

use crate::lab::Lab;
use crate::law::{self, Origin};
use crate::peers::{self, Kind, Peer, Play};
use crate::processes::resident_kb_max_of_tree;
use crate::results;
use crate::shell::{self, Trouble};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Instant;

mod mixed;

/// How much.
#[derive(clap::Args)]
pub struct Args {
    /// The length of the whole site.
    #[arg(long, default_value_t = 200)]
    megabytes: u64,
    /// Larder only.
    #[arg(long)]
    alone: bool,
    /// Show the table only; otherwise it is written to docs/results/.
    #[arg(long)]
    dry: bool,
    /// Instead of the site: small objects, variants, ranges and no-store by 80 connections, with 64 MB.
    #[arg(long)]
    mixed: bool,
    /// Only these sorts of them.
    #[arg(long, value_delimiter = ',')]
    sorts: Vec<mixed::Sort>,
    /// How many of these requests.
    #[arg(long, default_value_t = 1_000_000)]
    requests: u64,
}

/// The caches, each with its budget.
const PLAYS: [(Kind, u64); 6] = [
    (Kind::Larder, 400_000),
    (Kind::Larder, 4_000_000),
    (Kind::Larder, 16_000_000),
    (Kind::Larder, 64_000_000),
    (Kind::Nginx, 400_000),
    (Kind::Squid, 400_000),
];
const DISK_BYTES: u64 = 1_000_000_000;
const CLIENTS_MAX: usize = 3;
const PASSES: usize = 2;

/// Plays all, prints the table, and says whether Larder kept its word.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let root = shell::workspace()?;
    if args.mixed {
        peers::build(&root)?;
        return mixed::run(args, &root);
    }
    shell::need_program("wget")?;
    peers::build(&root)?;
    let site = Site::new(args.megabytes * 1_000_000);
    let (mut outcomes, mut broken) = (Vec::new(), Vec::new());
    for (kind, memory_bytes) in PLAYS {
        if !kind.is_installed() || (args.alone && kind != Kind::Larder) {
            continue;
        }
        for clients in 1..=CLIENTS_MAX {
            let outcome = play(&root, &site, kind, memory_bytes, clients)?;
            print!("{}", outcome.row(&site));
            if kind == Kind::Larder {
                broken.extend(outcome.broken_words(&site));
            }
            outcomes.push(outcome);
        }
    }
    let page = page(&site, &outcomes, &root)?;
    println!("\n{page}");
    if !args.dry {
        results::publish(&root, "small-memory", &page)?;
    }
    if broken.is_empty() { Ok(()) } else { Err(broken.join("; ")) }
}

/// Pages that link all objects, from one that links all pages.
struct Site {
    pages: HashMap<String, Vec<u8>>,
    /// Number and length.
    objects: Vec<(u64, u64)>,
    bytes: u64,
}

const OBJECT_BYTES_MIN: u64 = 1_000;
const OBJECT_BYTES_MAX: u64 = 2_000_000;
const LINKS_PER_PAGE: usize = 20;

impl Site {
    /// Lengths spread evenly over their orders of magnitude, until it is long enough.
    fn new(bytes: u64) -> Site {
        let (mut objects, mut sum) = (Vec::new(), 0);
        let orders = (OBJECT_BYTES_MAX as f64 / OBJECT_BYTES_MIN as f64).ln();
        while sum < bytes {
            let number = objects.len() as u64 + 1;
            let drawn = (law::mix(number) >> 11) as f64 / (1_u64 << 53) as f64;
            let length = ((OBJECT_BYTES_MIN as f64 * (drawn * orders).exp()) as u64).min(bytes - sum);
            objects.push((number, length));
            sum += length;
        }
        let mut pages = HashMap::new();
        let mut first = String::from("<html><body>\n");
        for (number, part) in objects.chunks(LINKS_PER_PAGE).enumerate() {
            let links = part.iter().map(|(object, length)| format!("<a href=\"/{object}/{length}\">{object}</a>\n"));
            let page = format!("<html><body>\n{}</body></html>\n", links.collect::<String>());
            pages.insert(format!("/page{number}.html"), page.into_bytes());
            writeln!(first, "<a href=\"/page{number}.html\">{number}</a>").ok();
        }
        first.push_str("</body></html>\n");
        pages.insert("/index.html".to_owned(), first.into_bytes());
        let bytes = sum + pages.values().map(|page| page.len() as u64).sum::<u64>();
        Site { pages, objects, bytes }
    }

    /// Compares what a client has with the law; the sentence says what is wrong.
    fn compare(&self, folder: &Path) -> Result<(), String> {
        let same = |name: String, wanted: &[u8]| match std::fs::read(folder.join(&name)) {
            Ok(found) if found == wanted => Ok(()),
            Ok(found) => Err(format!("{name} has {} bytes that are not those of the origin", found.len())),
            Err(error) => Err(format!("{name}: {error}")),
        };
        for (path, page) in &self.pages {
            same(path.trim_start_matches('/').to_owned(), page)?;
        }
        self.objects
            .iter()
            .try_for_each(|(object, length)| same(format!("{object}/{length}"), &law::bytes(*object, 0, 0..*length)))
    }
}

/// The results of a server with so many clients.
struct Outcome {
    kind: Kind,
    memory_bytes: u64,
    clients: usize,
    /// Body bytes that the origin sent in each pass.
    fetched: [u64; PASSES],
    /// Requests that it got in each pass.
    requests: [u64; PASSES],
    seconds: [f64; PASSES],
    /// Clients whose files were not all right.
    wrong: usize,
    resident_kb_idle: u64,
    resident_kb_max: u64,
}

impl Outcome {
    fn row(&self, site: &Site) -> String {
        let share = |bytes: u64| bytes as f64 / site.bytes as f64;
        format!(
            "| {} | {} | {} | {:.4} | {:.4} | {} | {} | {} | {:.1} | {:.1} | {:.1} | {:.1} |\n",
            self.kind.as_str(),
            if self.kind == Kind::Nginx { "-".to_owned() } else { format!("{} kB", self.memory_bytes / 1_000) },
            self.clients,
            share(self.fetched[0]),
            share(self.fetched[1]),
            self.requests[0],
            self.requests[1],
            self.wrong,
            self.resident_kb_idle as f64 * 1024.0 / 1e6,
            self.resident_kb_max as f64 * 1024.0 / 1e6,
            self.seconds[0],
            self.seconds[1],
        )
    }

    fn broken_words(&self, site: &Site) -> Vec<String> {
        let who = format!("larder with {} kB and {} clients", self.memory_bytes / 1_000, self.clients);
        let (fetched, most) = (self.fetched.iter().sum::<u64>(), resident_bytes_max(self.memory_bytes));
        let mut broken = Vec::new();
        if fetched > site.bytes {
            broken.push(format!("{who} fetched {fetched} bytes of a site of {}", site.bytes));
        }
        if self.wrong > 0 {
            broken.push(format!("{who} gave {} clients wrong files", self.wrong));
        }
        if self.resident_kb_max * 1024 > most {
            broken.push(format!("{who} took {} kB of memory, more than {most} bytes", self.resident_kb_max));
        }
        broken
    }
}

fn resident_bytes_max(budget_bytes: u64) -> u64 {
    budget_bytes + budget_bytes / 10 + 24_000_000
}

fn play(root: &Path, site: &Site, kind: Kind, memory_bytes: u64, clients: usize) -> Result<Outcome, Trouble> {
    let (origin, port) = Origin::with_pages(site.pages.clone())?;
    let mut lab = Lab::new()?;
    let about = Play { memory_bytes, disk_bytes: DISK_BYTES, core: None, is_small: true };
    let peer = Peer::start(kind, root, &mut lab, port, &about)?;
    let mut outcome = Outcome {
        kind,
        memory_bytes,
        clients,
        fetched: [0; PASSES],
        requests: [0; PASSES],
        seconds: [0.0; PASSES],
        wrong: 0,
        resident_kb_idle: resident_kb_max_of_tree(peer.id)?,
        resident_kb_max: 0,
    };
    let drawer = drawer(&lab)?;
    for pass in 0..PASSES {
        let sent = || (origin.body_bytes.load(Ordering::SeqCst), origin.requests.load(Ordering::SeqCst));
        let (before, began) = (sent(), Instant::now());
        let folders: Vec<PathBuf> = (0..clients).map(|client| drawer.join(format!("{pass}-{client}"))).collect();
        download(&folders, peer.port).map_err(|trouble| format!("through {}: {trouble}", kind.as_str()))?;
        outcome.seconds[pass] = began.elapsed().as_secs_f64();
        let after = sent();
        (outcome.fetched[pass], outcome.requests[pass]) = (after.0 - before.0, after.1 - before.1);
        for folder in folders {
            if let Err(what) = site.compare(&folder) {
                eprintln!("xtask: through {}: {what}", kind.as_str());
                outcome.wrong += 1;
            }
            std::fs::remove_dir_all(&folder).ok();
        }
    }
    outcome.resident_kb_max = resident_kb_max_of_tree(peer.id)?;
    Ok(outcome)
}

/// The clients' files are written to memory: they are not what is measured.
fn drawer(lab: &Lab) -> Result<PathBuf, Trouble> {
    let name = lab.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let folder = Path::new("/dev/shm").join(name);
    if std::fs::create_dir_all(&folder).is_err() {
        return lab.folder("downloads");
    }
    lab.remove_at_end(&folder);
    Ok(folder)
}

/// All clients at once. Each has a log of its own beside its folder.
fn download(folders: &[PathBuf], port: u16) -> Result<(), Trouble> {
    let mut clients: Vec<Child> = Vec::new();
    for folder in folders {
        let mut wget = Command::new("wget");
        wget.args(["--recursive", "--level=inf", "--no-host-directories", "--no-verbose", "--tries=1", "--timeout=60"]);
        wget.args(["--execute", "robots=off", "--no-proxy"]).arg("--directory-prefix").arg(folder);
        wget.arg("--output-file").arg(folder.with_extension("log"));
        wget.arg(format!("http://127.0.0.1:{port}/index.html")).stdin(Stdio::null());
        clients.push(wget.spawn().map_err(|error| format!("cannot start wget: {error}"))?);
    }
    let mut troubles = Vec::new();
    for (client, folder) in clients.iter_mut().zip(folders) {
        let status = client.wait().map_err(|error| format!("waiting for wget: {error}"))?;
        if !status.success() {
            let log = std::fs::read_to_string(folder.with_extension("log")).unwrap_or_default();
            troubles.push(format!("wget ended with {status}: {}", shell::last_lines(&log, 5)));
        }
    }
    if troubles.is_empty() { Ok(()) } else { Err(troubles.join("; ")) }
}

fn page(site: &Site, outcomes: &[Outcome], root: &Path) -> Result<String, Trouble> {
    let mut versions = Vec::new();
    for kind in [Kind::Larder, Kind::Nginx, Kind::Squid] {
        if outcomes.iter().any(|outcome| outcome.kind == kind) {
            versions.push(peers::version(kind, root)?);
        }
    }
    let wget = shell::ask(Command::new("wget").arg("--version"))?;
    let mut text = format!(
        "# A site with hardly any memory\n\n`cargo xtask small-memory`: {} of a site of {:.1} MB ({} objects of 1 KB to 2 MB, {} pages) \
         with `wget --recursive` by 1, 2 and 3 clients at once, twice, through a cache with an empty store of 1 GB on disk in front of an \
         origin of ours that counts body bytes. Every file of every client is compared. Fetched: body bytes of the origin to those of \
         the site. Resident: `VmHWM`, summed over the server's processes (what they share counts for each). nginx: `keys_zone=1m`, \
         buffers of 8 x 4k, 100 open files kept; it has no memory tier. Squid: `cache_mem` of the budget, rock store. Larder: one worker, \
         the limit is budget x 1.1 + 24 MB.\n\nServers: {}.\n\n",
        wget.lines().next().unwrap_or("wget").split(" built").next().unwrap_or("wget"),
        site.bytes as f64 / 1e6,
        site.objects.len(),
        site.pages.len(),
        versions.join(", "),
    );
    text.push_str(
        "| server | memory | clients | fetched, first pass | second pass | requests, first pass | second pass | clients with wrong files | \
         resident at start MB | peak MB | first pass s | second pass s |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    outcomes.iter().for_each(|outcome| text.push_str(&outcome.row(site)));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_its_length_and_links_everything() {
        let site = Site::new(5_000_000);
        assert_eq!(site.objects.iter().map(|(_, length)| length).sum::<u64>(), 5_000_000);
        assert!(site.objects.iter().all(|(_, length)| *length <= OBJECT_BYTES_MAX));
        let all: String = site.pages.values().map(|page| String::from_utf8_lossy(page)).collect();
        assert!(site.objects.iter().all(|(object, length)| all.contains(&format!("\"/{object}/{length}\""))));
        assert!(site.pages.keys().all(|path| path == "/index.html" || all.contains(path)));
    }

    #[test]
    fn what_was_promised_is_judged() {
        let site = Site::new(1_000_000);
        let mut outcome = Outcome {
            kind: Kind::Larder,
            memory_bytes: 400_000,
            clients: 1,
            fetched: [site.bytes, 0],
            requests: [1; PASSES],
            seconds: [1.0; PASSES],
            wrong: 0,
            resident_kb_idle: 1,
            resident_kb_max: 23_000,
        };
        assert_eq!(outcome.broken_words(&site), Vec::<String>::new());
        (outcome.fetched[1], outcome.resident_kb_max, outcome.wrong) = (1, 30_000, 1);
        assert_eq!(outcome.broken_words(&site).len(), 3);
    }
}
