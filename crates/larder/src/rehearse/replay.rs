//! An access log through one configuration or two: verdicts, keys, hits and upstreams, and what differs.
//!
//! A log does not say how long an answer stays fresh. The replay assumes that a stored answer is never stale, so its
//! hit ratio is what the store's budget and the keys permit, not more; two configurations are compared on the same
//! terms.

use super::LIMITS;
use super::line::{self, Line};
use crate::config::{Config, Mirroring};
use crate::lines::{self, NextLine};
use crate::lists::{self, ListSet};
use crate::people::{self, User};
use crate::reach::OwnAddresses;
use crate::rules::{FoundFacts, Scene, Verdict};
use larder_cache::evict::{Evict, Evictable, EvictionMark, S3Fifo};
use larder_cache::key::KeySeed;
use larder_wire::parse::{self, Parsed};
use larder_wire::{Method, RequestHead, Scheme, Target, Url};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write as _};
use std::io::{self, BufRead};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Bytes that an object counts besides its body.
const OVERHEAD_BYTES: u64 = 512;

/// Examples that are kept of each difference.
const EXAMPLES_MAX: usize = 5;

/// Lines that can't be read and are named; the others are counted.
const TROUBLES_MAX: usize = 10;

/// How much is shown of a line that can't be read.
const EXCERPT_CHARS: usize = 60;

/// The first bytes of what gzip and zstd have compressed, and the program that undoes it.
const COMPRESSED: [(&[u8], &str); 2] = [(b"\x1f\x8b", "zcat"), (b"\x28\xb5\x2f\xfd", "zstdcat")];

/// Users that are remembered; others are looked up for each of their lines.
const PEOPLE_MAX: usize = 100_000;

/// Lines longer than this are not read.
const LINE_BYTES_MAX: usize = 1 << 20;

/// One configuration at work.
pub struct Side<'a> {
    config: &'a Config,
    own: OwnAddresses,
    lists: ListSet,
    people: HashMap<String, Vec<Arc<User>>>,
    evict: S3Fifo<Item>,
    items: HashMap<u64, Arc<Item>>,
    memory_bytes: u64,
    seed: KeySeed,
    key: Vec<u8>,
    verdicts: BTreeMap<&'static str, u64>,
    origins: HashMap<String, u64>,
    hits: u64,
    lookups: u64,
    hit_bytes: u64,
    bytes: u64,
}

struct Item {
    id: u64,
    bytes: u64,
    mark: EvictionMark,
}

impl Evictable for Item {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn mark(&self) -> &EvictionMark {
        &self.mark
    }

    fn id_hash(&self) -> u64 {
        self.id
    }
}

/// The outcome of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fate {
    verdict: &'static str,
    key: u128,
    origin: Option<String>,
    hit: bool,
}

impl<'a> Side<'a> {
    /// A side with an empty store.
    pub fn new(config: &'a Config) -> Side<'a> {
        Side {
            config,
            own: OwnAddresses::of(config),
            lists: lists::for_rehearsal(config).0,
            people: HashMap::new(),
            evict: S3Fifo::new(),
            items: HashMap::new(),
            memory_bytes: config.memory_bytes + config.disk_bytes.unwrap_or(0),
            seed: KeySeed::new(0),
            key: Vec::new(),
            verdicts: BTreeMap::new(),
            origins: HashMap::new(),
            hits: 0,
            lookups: 0,
            hit_bytes: 0,
            bytes: 0,
        }
    }

    fn play(&mut self, line: &Line<'_>, request: &RequestHead, client: IpAddr) -> Fate {
        let found = FoundFacts::default();
        let supposed = match &line.user {
            Some(user) => self.people_named(user),
            None => Vec::new(),
        };
        // A configuration has a listener always, by its defaults.
        let Some(listen) = self.config.listens.first() else {
            return Fate { verdict: "no listener", key: 0, origin: None, hit: false };
        };
        let scene = Scene {
            // A log has no URLs in the path: it says what was asked for.
            mirroring: Mirroring::None,
            client,
            // A log says nothing of connections but what its URLs say.
            scheme: match &request.target {
                Target::Absolute(url) => url.scheme,
                _ => Scheme::Http,
            },
            via_name: "",
            lists: Some(&self.lists),
            supposed: &supposed,
            ..Scene::at(listen, (self.config, &self.own, &found))
        };
        let verdict = scene.judge(request);
        let mut fate = Fate { verdict: "", key: 0, origin: None, hit: false };
        fate.verdict = match verdict {
            Verdict::Allow(ask) => {
                self.key.clear();
                ask.key_at_first(&mut self.key);
                fate.key = self.seed.fingerprint(&self.key);
                let origin = ask.origin().to_string();
                fate.hit = self.look_up(line, request, fate.key as u64);
                if !fate.hit {
                    *self.origins.entry(origin.clone()).or_default() += 1;
                }
                fate.origin = Some(origin);
                if matches!(ask.route, crate::rules::Route::Forward(_)) { "forward" } else { "site" }
            }
            Verdict::Mirror(_) => "mirror",
            Verdict::Purge(_) => "purge",
            Verdict::Tunnel(..) => "tunnel",
            Verdict::Answer(page) => page.word,
            Verdict::Hooked(answer) => answer.page.word,
            Verdict::Manager(_) => "manager",
            Verdict::LogIn(_) => "login page",
            Verdict::Echo => "trace",
            Verdict::Needs(..) => "needs a fact",
        };
        *self.verdicts.entry(fate.verdict).or_default() += 1;
        fate
    }

    /// The user of a line as each login knows them; nobody where there is no login, or where its file of groups can't be read, which the
    /// check of the configuration says.
    fn people_named(&mut self, name: &str) -> Vec<Arc<User>> {
        if let Some(known) = self.people.get(name) {
            return known.clone();
        }
        let supposed = people::suppose(self.config, name, &[]).unwrap_or_default();
        if self.people.len() < PEOPLE_MAX {
            self.people.insert(name.to_owned(), supposed.clone());
        }
        supposed
    }

    fn look_up(&mut self, line: &Line<'_>, request: &RequestHead, id: u64) -> bool {
        self.bytes += line.bytes;
        if !matches!(request.method, Method::Get | Method::Head) {
            return false;
        }
        self.lookups += 1;
        if let Some(item) = self.items.get(&id) {
            item.mark.hit();
            self.hits += 1;
            self.hit_bytes += line.bytes;
            return true;
        }
        let kept = matches!(line.status, 200 | 203 | 204 | 300 | 301 | 404 | 410) && !line.not_stored;
        if kept && request.method == Method::Get && line.bytes <= self.config.object_bytes_max {
            self.keep(id, line.bytes + OVERHEAD_BYTES);
        }
        false
    }

    fn keep(&mut self, id: u64, bytes: u64) {
        let item = Arc::new(Item { id, bytes, mark: EvictionMark::new() });
        self.items.insert(id, Arc::clone(&item));
        self.evict.insert(item);
        while self.evict.bytes() > self.memory_bytes {
            match self.evict.evict() {
                Some(gone) => self.items.remove(&gone.id),
                None => return,
            };
        }
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |part: u64, of: u64| if of == 0 { 0.0 } else { 100.0 * part as f64 / of as f64 };
        let verdicts: Vec<String> = self.verdicts.iter().map(|(word, many)| format!("{word} {many}")).collect();
        writeln!(f, "  verdicts   {}", verdicts.join(", "))?;
        writeln!(
            f,
            "  hits       {} of {} look-ups ({:.2} %)",
            self.hits,
            self.lookups,
            share(self.hits, self.lookups)
        )?;
        writeln!(f, "  bytes      {:.2} % from the store", share(self.hit_bytes, self.bytes))?;
        let mut origins: Vec<_> = self.origins.iter().collect();
        origins.sort_by(|left, right| right.1.cmp(left.1).then(left.0.cmp(right.0)));
        let more = origins.len().saturating_sub(EXAMPLES_MAX);
        let listed: Vec<String> =
            origins.iter().take(EXAMPLES_MAX).map(|(origin, many)| format!("{origin} {many}")).collect();
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        writeln!(f, "  upstream   {}{more}", listed.join(", "))
    }
}

/// The findings of a replay.
#[derive(Default)]
pub struct Comparison<'a> {
    sides: Vec<Side<'a>>,
    /// Lines that were played.
    pub lines: u64,
    /// Lines that are in none of the formats, or hold no proper request.
    pub unreadable: u64,
    /// The first of them: the number of the line, and what is wrong with it.
    pub troubles: Vec<(u64, LineTrouble)>,
    differences: BTreeMap<&'static str, Difference>,
}

/// Why a line is not played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineTrouble {
    /// It is in none of the formats; its beginning.
    Format(String),
    /// It holds no proper request; the request.
    Request(String),
    /// It is longer than any log's.
    TooLong,
}

impl fmt::Display for LineTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineTrouble::Format(text) => {
                write!(f, "in none of the formats that are read (combined, Squid's, JSON): \"{text}\"")
            }
            LineTrouble::Request(text) => write!(f, "no proper request: \"{text}\""),
            LineTrouble::TooLong => write!(f, "longer than {LINE_BYTES_MAX} bytes"),
        }
    }
}

/// The beginning of a text, with nothing in it that a terminal obeys.
fn excerpt(text: &str) -> String {
    let mut out: String = text.chars().take(EXCERPT_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(EXCERPT_CHARS).is_some() {
        out.push('…');
    }
    out
}

#[derive(Default)]
struct Difference {
    many: u64,
    examples: Vec<String>,
}

/// Plays a log through one configuration or two. A line without a host is one for `host`.
pub fn replay<'a>(mut log: impl BufRead, sides: Vec<Side<'a>>, host: &str) -> io::Result<Comparison<'a>> {
    let mut comparison = Comparison { sides, ..Comparison::default() };
    let mut bytes = Vec::new();
    let first = log.fill_buf()?;
    if let Some((_, tool)) = COMPRESSED.iter().find(|(begin, _)| first.starts_with(begin)) {
        let text = format!("it is compressed: {tool} FILE | larder check --replay -");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let mut number = 0;
    loop {
        number += 1;
        let fits = match lines::next_line(&mut log, LINE_BYTES_MAX, &mut bytes)? {
            NextLine::End => return Ok(comparison),
            NextLine::Read(_) => true,
            NextLine::TooLong(_) => false,
        };
        if bytes.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let text = String::from_utf8_lossy(&bytes);
        let played = match line::parse(text.trim_end()) {
            _ if !fits => Err(LineTrouble::TooLong),
            Some(line) => comparison.play(&line, host),
            None => Err(LineTrouble::Format(excerpt(&text))),
        };
        if let Err(trouble) = played {
            comparison.unreadable += 1;
            if comparison.troubles.len() < TROUBLES_MAX {
                comparison.troubles.push((number, trouble));
            }
        }
    }
}

impl Comparison<'_> {
    fn play(&mut self, line: &Line<'_>, host: &str) -> Result<(), LineTrouble> {
        let Some(request) = head(line, host) else {
            return Err(LineTrouble::Request(excerpt(&format!("{} {}", line.method, line.target))));
        };
        self.lines += 1;
        let client = line.client.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let mut fates = self.sides.iter_mut().map(|side| side.play(line, &request, client));
        let (first, second) = (fates.next(), fates.next());
        drop(fates);
        if let (Some(first), Some(second)) = (first, second)
            && first != second
        {
            self.compare(line, &first, &second);
        }
        Ok(())
    }

    fn compare(&mut self, line: &Line<'_>, first: &Fate, second: &Fate) {
        let hit = |fate: &Fate| if fate.hit { "hit" } else { "miss" };
        let none = || "none".to_owned();
        let mut note = |what: &'static str, left: &str, right: &str| {
            let difference = self.differences.entry(what).or_default();
            difference.many += 1;
            if difference.examples.len() < EXAMPLES_MAX {
                let example = format!("{} {}: {left} → {right}", line.method, line.target);
                if !difference.examples.contains(&example) {
                    difference.examples.push(example);
                }
            }
        };
        if first.verdict != second.verdict {
            note("verdict", first.verdict, second.verdict);
        }
        if first.origin != second.origin {
            let (left, right) = (first.origin.clone().unwrap_or_else(none), second.origin.clone().unwrap_or_else(none));
            note("upstream", &left, &right);
        }
        if first.key != second.key && first.origin.is_some() && second.origin.is_some() {
            note("key", "one key", "another");
        }
        if first.hit != second.hit {
            note("hit or miss", hit(first), hit(second));
        }
    }

    /// How many lines differ in `what`: `verdict`, `upstream`, `key` or `hit or miss`.
    pub fn differing(&self, what: &str) -> u64 {
        self.differences.get(what).map_or(0, |difference| difference.many)
    }
}

impl fmt::Display for Comparison<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} requests played, {} lines not readable", self.lines, self.unreadable)?;
        writeln!(f, "(what may be stored is taken to stay fresh: a log does not say how long)")?;
        for (number, side) in self.sides.iter().enumerate() {
            let name = ["this configuration", "the other one (--against)"].get(number).copied().unwrap_or_default();
            writeln!(f, "\n{name}")?;
            side.describe(f)?;
        }
        if self.sides.len() < 2 {
            return Ok(());
        }
        if self.differences.is_empty() {
            return writeln!(f, "\nno request is treated differently");
        }
        for (what, difference) in &self.differences {
            writeln!(f, "\n{} requests differ in {what}, such as", difference.many)?;
            difference.examples.iter().try_for_each(|example| writeln!(f, "  {example}"))?;
        }
        Ok(())
    }
}

/// The request of a line, as its client sent it.
fn head(line: &Line<'_>, host: &str) -> Option<RequestHead> {
    let host: Cow<'_, str> = line.host.clone().unwrap_or(host.into());
    if line.target.starts_with("https://") {
        // A request inside a tunnel that a proxy opened is judged by its URL.
        let url = Url::parse(&line.target)?;
        let mut request = parsed(&format!("{} / HTTP/1.1\r\nHost: {}\r\n\r\n", line.method, url.authority()))?;
        request.target = Target::Absolute(url);
        return Some(request);
    }
    let mut text = String::with_capacity(64 + line.target.len());
    let _ = write!(text, "{} {} HTTP/1.1\r\nHost: ", line.method, line.target);
    match line.target.strip_prefix("http://") {
        Some(rest) => text.push_str(rest.split(['/', '?']).next().unwrap_or_default()),
        None if line.method == "CONNECT" => text.push_str(&line.target),
        None => text.push_str(&host),
    }
    text.push_str("\r\n\r\n");
    parsed(&text)
}

fn parsed(text: &str) -> Option<RequestHead> {
    match parse::request(text.as_bytes(), &LIMITS) {
        Ok(Parsed::Complete { head, .. }) => Some(head),
        _ => None,
    }
}
