//! Random clients, and an origin whose responses change, of responses that Larder codes: each client gets a body that decodes to one that
//! the origin has sent and that may still be used, in a coding that the client accepts.

use super::compression::{decoded, get, words};
use super::stand::{self, WITHIN, exchange, wait_for};
use larder::server::Server;
use larder_cache::policy::Coding;
use larder_wire::Fields;
use larder_wire::range::ContentRange;
use parking_lot::{Condvar, Mutex};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The validators of the origin's responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Validator {
    Strong,
    Weak,
    Time,
}

/// How the origin answers from now on.
#[derive(Clone, Copy, Debug)]
struct Manner {
    /// Its responses are stale as soon as they are here.
    is_stale: bool,
    vary: Option<&'static str>,
    knows_conditions: bool,
    knows_ranges: bool,
    /// It sends gzip itself where it is accepted.
    codes: bool,
}

const MANNER: Manner = Manner { is_stale: false, vary: None, knows_conditions: true, knows_ranges: true, codes: false };

/// Something that happens.
#[derive(Clone, Debug)]
enum Event {
    Changes,
    Behaves(Manner),
    Purged,
    /// All places for coders are taken, or are free again.
    Full(bool),
    Asked(Question),
}

#[derive(Clone, Debug)]
struct Question {
    accepts: Option<String>,
    origin: Option<&'static str>,
    range: Option<&'static str>,
    /// By the entity tag of the last response that had one.
    by_tag: Option<&'static str>,
    no_cache: bool,
    is_head: bool,
}

struct Origin {
    version: u64,
    length: usize,
    validator: Validator,
    manner: Manner,
    /// Versions that the origin has called fresh since the last purge.
    fresh: BTreeSet<u64>,
    /// Streams under `/slow` go on.
    goes_on: bool,
}

impl Origin {
    fn body(&self, version: u64) -> Vec<u8> {
        words(version.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1, self.length)
    }

    fn tag(&self, is_coded: bool) -> Option<String> {
        let end = if is_coded { "-z" } else { "" };
        match self.validator {
            Validator::Strong => Some(format!("\"v{}{end}\"", self.version)),
            Validator::Weak => Some(format!("W/\"v{}{end}\"", self.version)),
            Validator::Time => None,
        }
    }

    /// A time of long ago, another one for each version.
    fn modified(&self) -> String {
        format!("Mon, 02 Jan 2006 {:02}:{:02}:00 GMT", self.version / 60 % 24, self.version % 60)
    }

    /// The answer to a request with this head.
    fn answer(&mut self, head: &str) -> Vec<u8> {
        let accepts = field(head, "accept-encoding").unwrap_or_default();
        let is_coded = self.manner.codes && accepts.contains("gzip");
        let mut body = self.body(self.version);
        let mut fields = format!("Last-Modified: {}\r\nContent-Type: text/plain\r\n", self.modified());
        let tag = self.tag(is_coded);
        if let Some(tag) = &tag {
            fields += &format!("ETag: {tag}\r\n");
        }
        let by_codes = if self.manner.codes { Some("Accept-Encoding") } else { None };
        let vary: Vec<&str> = self.manner.vary.into_iter().chain(by_codes).collect();
        if !vary.is_empty() {
            fields += &format!("Vary: {}\r\n", vary.join(", "));
        }
        fields += "Cache-Control: max-age=60\r\n";
        if self.manner.is_stale {
            fields += "Age: 100\r\n";
        } else {
            self.fresh.insert(self.version);
        }
        let same = match (&tag, field(head, "if-none-match")) {
            (Some(tag), Some(asked)) => {
                asked.split(", ").any(|one| one.trim_start_matches("W/") == tag.trim_start_matches("W/"))
            }
            (None, None) => field(head, "if-modified-since").is_some_and(|time| time == self.modified()),
            _ => false,
        };
        if self.manner.knows_conditions && same {
            return format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").into_bytes();
        }
        if let (Some(tag), Some(asked)) = (&tag, field(head, "if-match"))
            && self.manner.knows_conditions
            && (tag.starts_with('W') || !asked.split(", ").any(|one| one == tag))
        {
            return format!("HTTP/1.1 412 Precondition Failed\r\n{fields}Content-Length: 0\r\n\r\n").into_bytes();
        }
        if is_coded {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(1));
            encoder.write_all(&body).unwrap();
            body = encoder.finish().unwrap();
            fields += "Content-Encoding: gzip\r\n";
        }
        let holds = field(head, "if-range").is_none_or(|asked| {
            tag.as_ref().is_some_and(|tag| *tag == asked && !tag.starts_with('W')) || asked == self.modified()
        });
        let range = field(head, "range").filter(|_| self.manner.knows_ranges && holds);
        let (status, part) = match range.and_then(|range| span(&range, body.len())) {
            Some(span) => {
                fields += &format!("Content-Range: bytes {}-{}/{}\r\n", span.start, span.end - 1, body.len());
                ("206 Partial Content", &body[span])
            }
            None => ("200 OK", &body[..]),
        };
        let head_of_answer = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n", part.len());
        let sent: &[u8] = if head.starts_with("HEAD") { &[] } else { part };
        [head_of_answer.as_bytes(), sent].concat()
    }
}

fn field(head: &str, name: &str) -> Option<String> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    })
}

/// The bytes of one range.
fn span(range: &str, length: usize) -> Option<std::ops::Range<usize>> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let (first, last) = match (first.parse::<usize>(), last.parse::<usize>()) {
        (Ok(first), Ok(last)) => (first, last.min(length - 1)),
        (Ok(first), Err(_)) => (first, length - 1),
        (Err(_), Ok(count)) => (length - count.min(length), length - 1),
        (Err(_), Err(_)) => return None,
    };
    (first <= last).then(|| first..last + 1)
}

type Shared = Arc<(Mutex<Origin>, Condvar)>;

fn serve(stream: &TcpStream, shared: &Shared) -> Option<()> {
    let mut lines = BufReader::new(stream);
    let mut to = stream;
    loop {
        let head = stand::read_head(&mut lines)?;
        let (origin, released) = &**shared;
        if head.starts_with("GET /slow") {
            let text = words(1, 40_000);
            let fields = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n";
            write!(to, "{fields}{:x}\r\n", text.len()).ok()?;
            to.write_all(&text).ok()?;
            to.write_all(b"\r\n").ok()?;
            let mut origin = origin.lock();
            while !origin.goes_on {
                released.wait(&mut origin);
            }
            drop(origin);
            to.write_all(b"0\r\n\r\n").ok()?;
            continue;
        }
        let answer = origin.lock().answer(&head);
        to.write_all(&answer).ok()?;
    }
}

/// A server, its origin and its clients. Each sequence has a URL of its own.
struct Play {
    shared: Shared,
    server: Server,
    address: SocketAddr,
    path: String,
    sequences: usize,
    slow: Option<TcpStream>,
    slow_count: usize,
    last_tag: Option<String>,
}

impl Play {
    fn begin(folder: &Path, settings: &str) -> Play {
        let (length, validator, fresh) = (0, Validator::Strong, BTreeSet::new());
        let origin = Origin { version: 0, length, validator, manner: MANNER, fresh, goes_on: true };
        let shared: Shared = Arc::new((Mutex::new(origin), Condvar::new()));
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let of_origin = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&of_origin);
                std::thread::spawn(move || serve(&stream, &shared));
            }
        });
        let text = format!(
            "{settings}[limits]\ncodings_max = 1\n[access]\npurge = [\"127.0.0.0/8\"]\n[[site]]\nhosts = [\"site.test\"]\norigin = \"http://{at}\"\n\
             compression = [\"zstd\", \"br\", \"gzip\"]\ncompression_bytes_min = \"100B\"\n"
        );
        let server = stand::server(folder, &text);
        let address = server.addresses()[0];
        Play { shared, server, address, path: String::new(), sequences: 0, slow: None, slow_count: 0, last_tag: None }
    }

    /// The next sequence.
    fn begin_anew(&mut self, length: usize, validator: Validator) {
        self.fill(false);
        self.sequences += 1;
        (self.path, self.last_tag) = (format!("/{}", self.sequences), None);
        let mut origin = self.shared.0.lock();
        origin.version += 1;
        (origin.length, origin.validator, origin.manner) = (length, validator, MANNER);
        origin.fresh.clear();
    }

    fn happens(&mut self, event: &Event) -> Result<(), TestCaseError> {
        match event {
            Event::Changes => self.shared.0.lock().version += 1,
            Event::Behaves(manner) => self.shared.0.lock().manner = *manner,
            Event::Purged => {
                // Before the purge: a fetch in the background may ask again right after it.
                self.shared.0.lock().fresh.clear();
                let answer =
                    exchange(self.address, &format!("PURGE {} HTTP/1.0\r\nHost: site.test\r\n\r\n", self.path));
                prop_assert!(answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.1 404"), "{}", answer);
            }
            Event::Full(is_full) => self.fill(*is_full),
            Event::Asked(question) => self.ask(question)?,
        }
        Ok(())
    }

    fn fill(&mut self, is_full: bool) {
        match (is_full, self.slow.take()) {
            (true, None) => {
                self.shared.0.lock().goes_on = false;
                self.slow_count += 1;
                let mut stream = TcpStream::connect(self.address).unwrap();
                stream.set_read_timeout(Some(WITHIN)).unwrap();
                write!(
                    stream,
                    "GET /slow/{} HTTP/1.1\r\nHost: site.test\r\nAccept-Encoding: gzip\r\n\r\n",
                    self.slow_count
                )
                .unwrap();
                stand::read_head(&mut BufReader::new(&stream)).unwrap();
                self.slow = Some(stream);
            }
            (true, slow) => self.slow = slow,
            (false, slow) => {
                self.shared.0.lock().goes_on = true;
                self.shared.1.notify_all();
                if let Some(mut stream) = slow {
                    let mut rest = Vec::new();
                    while !rest.ends_with(b"0\r\n\r\n") {
                        let mut bytes = [0; 4096];
                        let count = stream.read(&mut bytes).unwrap();
                        assert!(count > 0, "the stream has an end");
                        rest.extend_from_slice(&bytes[..count]);
                    }
                }
            }
        }
    }

    /// Sends a request; gives its fields, head and body.
    fn send(&self, method: &str, question: &Question, more: &str) -> (String, String, Vec<u8>) {
        let mut fields = more.to_owned();
        if let Some(accepts) = &question.accepts {
            fields += &format!("Accept-Encoding: {accepts}\r\n");
        }
        if let Some(origin) = question.origin {
            fields += &format!("Origin: {origin}\r\n");
        }
        if question.no_cache {
            fields += "Cache-Control: no-cache\r\n";
        }
        let (head, body) = get(self.address, method, &self.path, &fields);
        (fields, head, body)
    }

    fn ask(&mut self, question: &Question) -> Result<(), TestCaseError> {
        if question.is_head {
            return self.compare_head(question);
        }
        let tag = self.last_tag.clone().filter(|_| question.by_tag.is_some());
        let mut more = question.range.map(|range| format!("Range: {range}\r\n")).unwrap_or_default();
        if let (Some(name), Some(tag)) = (question.by_tag, &tag)
            && (name != "If-Range" || question.range.is_some())
        {
            more += &format!("{name}: {tag}\r\n");
        }
        let (fields, head, body) = self.send("GET", question, &more);
        let place = format!("asked:\n{fields}\ngot:\n{head}");
        self.last_tag = field(&head, "ETag").or(self.last_tag.take());
        let coding =
            field(&head, "Content-Encoding").map(|name| Coding::parse(name.as_bytes()).expect("one that is offered"));
        prop_assert!(coding.is_none_or(|coding| accepts(question, coding)), "{}", place);
        let bodies = self.bodies(question.no_cache);
        match &head[9..12] {
            "200" => {
                let body = decoded(coding, &body);
                prop_assert!(bodies.contains(&body), "another body: {} bytes, {}", body.len(), place);
            }
            "206" if coding.is_none() => {
                let range = field(&head, "Content-Range").and_then(|range| ContentRange::parse(range.as_bytes()));
                let span = range.expect("a range").range();
                let span = usize::try_from(span.start).unwrap()..usize::try_from(span.end).unwrap();
                prop_assert!(
                    bodies.iter().any(|whole| whole.get(span.clone()) == Some(&body[..])),
                    "other bytes: {}",
                    place
                );
            }
            "206" => self.compare_part(question, (&head, &body), &place)?,
            "304" => {
                prop_assert!(question.by_tag == Some("If-None-Match"), "{}", place);
                let (tag, asked) = (field(&head, "ETag").unwrap_or_default(), tag.unwrap_or_default());
                prop_assert_eq!(tag.trim_start_matches("W/"), asked.trim_start_matches("W/"), "{}", place);
                let is_meant = Coding::ALL
                    .into_iter()
                    .all(|coding| !tag.ends_with(&format!("-{}\"", coding.as_str())) || accepts(question, coding));
                prop_assert!(is_meant, "{}", place);
            }
            "416" => prop_assert!(question.range.is_some(), "{}", place),
            _ => prop_assert!(false, "{}", place),
        }
        Ok(())
    }

    /// The bodies that a client may get now.
    fn bodies(&self, no_cache: bool) -> Vec<Vec<u8>> {
        let origin = self.shared.0.lock();
        let kept = origin.fresh.iter().copied().filter(|_| !no_cache);
        kept.chain([origin.version]).map(|version| origin.body(version)).collect()
    }

    /// A part of a coded response is one of the bytes that are stored.
    fn compare_part(&self, question: &Question, (head, part): (&str, &[u8]), place: &str) -> Result<(), TestCaseError> {
        let stored = Question { no_cache: false, ..question.clone() };
        let (_, whole_head, whole) = self.send("GET", &stored, "Cache-Control: only-if-cached, max-stale\r\n");
        if whole_head[9..].starts_with("200") && field(head, "ETag") == field(&whole_head, "ETag") {
            let range =
                field(head, "Content-Range").and_then(|range| ContentRange::parse(range.as_bytes())).expect("a range");
            prop_assert_eq!(range.len, Some(whole.len() as u64), "{}", place);
            let span = usize::try_from(range.range().start).unwrap()..usize::try_from(range.range().end).unwrap();
            prop_assert_eq!(part, &whole[span], "{}", place);
        }
        Ok(())
    }

    /// The answer to a HEAD is that of the GET.
    fn compare_head(&self, question: &Question) -> Result<(), TestCaseError> {
        let codings = &self.server.shared().common.codings;
        if self.slow.is_none() {
            wait_for("no body is being coded", || codings.count() == 0);
        }
        let (fields, of_head, _) = self.send("HEAD", question, "");
        let coding = field(&of_head, "Content-Encoding");
        let parsed = coding.as_ref().map(|name| Coding::parse(name.as_bytes()).expect("one that is offered"));
        prop_assert!(parsed.is_none_or(|coding| accepts(question, coding)), "{}{}", fields, of_head);
        if self.slow.is_none() {
            let (_, of_get, _) = self.send("GET", question, "");
            let place = format!("asked:\n{fields}\nHEAD:\n{of_head}\nGET:\n{of_get}");
            // A stored part answers a HEAD; the GET needs the rest, which may be of a later version.
            if field(&of_get, "Cache-Status").is_none_or(|status| !status.contains("fwd=partial")) {
                prop_assert_eq!(coding, field(&of_get, "Content-Encoding"), "{}", place);
                prop_assert_eq!(field(&of_head, "ETag"), field(&of_get, "ETag"), "{}", place);
            }
        }
        Ok(())
    }
}

/// Whether the client accepts the coding (RFC 9110 section 12.5.3), found out in another way than Larder does.
fn accepts(question: &Question, coding: Coding) -> bool {
    let mut fields = Fields::new();
    fields.push("Accept-Encoding", question.accepts.clone().unwrap_or_default());
    let mut others = 0.0;
    for member in fields.members("Accept-Encoding") {
        let member = String::from_utf8_lossy(member).replace(' ', "");
        let (name, weight) = member.split_once(";q=").unwrap_or((&member, "1"));
        let weight: f64 = weight.parse().unwrap();
        match name.strip_prefix("x-").unwrap_or(name) {
            "*" => others = weight,
            name if name == coding.as_str() => return weight > 0.0,
            _ => {}
        }
    }
    others > 0.0
}

fn question() -> impl Strategy<Value = Question> {
    let weights = ["", "", ";q=0", ";q=0.5", ";q=1.0"];
    let names = ["gzip", "br", "zstd", "x-gzip", "identity", "deflate", "*"];
    let member = (prop::sample::select(names.to_vec()), prop::sample::select(weights.to_vec()));
    // Each name once: what a second one means is said nowhere.
    let accepts = prop::collection::vec(member, 0..4).prop_map(|members| {
        let mut seen = BTreeSet::new();
        let is_new = |(name, _): &(&str, &str)| seen.insert(name.trim_start_matches("x-").to_owned());
        let members: Vec<(&str, &str)> = members.into_iter().filter(is_new).collect();
        members.iter().map(|(name, weight)| format!("{name}{weight}")).collect::<Vec<_>>().join(", ")
    });
    let ranges = ["bytes=0-0", "bytes=10-99", "bytes=0-", "bytes=150-", "bytes=-7"];
    (
        prop::option::weighted(0.8, accepts),
        prop::option::of(prop::sample::select(vec!["a", "b"])),
        prop::option::weighted(0.4, prop::sample::select(ranges.to_vec())),
        prop::option::weighted(0.3, prop::sample::select(vec!["If-None-Match", "If-Range"])),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.15),
    )
        .prop_map(|(accepts, origin, range, by_tag, no_cache, is_head)| Question {
            accepts,
            origin,
            range,
            by_tag,
            no_cache,
            is_head,
        })
}

fn event() -> impl Strategy<Value = Event> {
    let vary = prop::sample::select(vec![None, None, Some("Origin"), Some("X-A, Origin")]);
    let manner = (
        prop::bool::weighted(0.5),
        vary,
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(is_stale, vary, knows_conditions, knows_ranges, codes)| Manner {
            is_stale,
            vary,
            knows_conditions,
            knows_ranges,
            codes,
        });
    prop_oneof![
        10 => question().prop_map(Event::Asked),
        1 => Just(Event::Changes),
        3 => manner.prop_map(Event::Behaves),
        1 => Just(Event::Purged),
        1 => any::<bool>().prop_map(Event::Full),
    ]
}

fn play(settings: &str) {
    let case = (
        prop::sample::select(vec![200, 9_000, 70_000]),
        prop::sample::select(vec![Validator::Strong, Validator::Strong, Validator::Weak, Validator::Time]),
        prop::collection::vec(event(), 1..40),
    );
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    let mut runner =
        TestRunner::new(Config { cases, failure_persistence: None, max_shrink_iters: 300, ..Config::default() });
    let folder = tempfile::tempdir().unwrap();
    let play = RefCell::new(Play::begin(folder.path(), settings));
    let run = runner.run(&case, |(length, validator, events)| {
        let mut play = play.borrow_mut();
        play.begin_anew(length, validator);
        events.iter().try_for_each(|event| play.happens(event))
    });
    run.unwrap_or_else(|error| panic!("{error}"));
    play.borrow_mut().fill(false);
    assert_eq!(play.borrow().server.shared().common.counters.panics.load(Ordering::Relaxed), 0);
}

#[test]
fn whatever_happens_each_client_gets_what_it_may_have() {
    play("");
}

#[test]
fn so_it_is_on_disk() {
    play(
        "memory = \"200kB\"\nmemory_object_bytes_max = \"1kB\"\ndisk = \"64MB\"\ndisk_free_min = \"0B\"\ndisk_admission = \"all\"\n",
    );
}
