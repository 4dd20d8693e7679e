//! The origin of all conversations: it says what the script says, honestly where nothing else is drawn, and writes down
//! what it was asked and what it answered.

use super::date::{Read, read};
use super::head::{Asked, Fields, Tag, names_tag, ranges};
use super::script::{Case, FIRST_VERSION, Fault, Framing, Ranges, TagKind, Turn, VERSION_SECONDS};
use crate::law;
use crate::shell::Trouble;
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes that belong together: those of one version in one language for one user, or of one answer alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rep {
    /// 200 for the resource itself, else the status it stands for.
    pub status: u16,
    /// The version of the resource.
    pub version: u64,
    /// The language, where bytes differ by it.
    pub language: String,
    /// The user, where bytes differ by it.
    pub user: String,
    /// The number of the answer whose bytes are its own, else 0.
    pub unique: u64,
    /// Bytes.
    pub length: u64,
}

impl Rep {
    /// The bytes of a range.
    pub fn bytes(&self, nonce: u64, range: Range<u64>) -> Vec<u8> {
        let text = self.language.bytes().chain(self.user.bytes());
        let words = [u64::from(self.status), self.version, self.unique].into_iter().chain(text.map(u64::from));
        law::bytes(nonce, words.fold(7, |hash, word| law::mix(hash ^ word)), range)
    }
}

/// A request as it came to the origin, and what became of it.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Its number in the conversation, from 1.
    pub serial: u64,
    /// The step for which it was made, as far as can be told.
    pub step: usize,
    /// The method.
    pub method: String,
    /// Fields of the request.
    pub request: Fields,
    /// The status; 0 where there was no answer.
    pub status: u16,
    /// Fields of the answer.
    pub fields: Fields,
    /// The representation of its bytes, or, of a 304, the one that is still the same.
    pub rep: Rep,
    /// The entity tag of that.
    pub tag: Option<Tag>,
    /// The bytes that went out.
    pub range: Range<u64>,
    /// The fault, if one was played.
    pub fault: Option<Fault>,
    /// When the request was here and the head of the answer left, in seconds since 1970.
    pub at: f64,
}

/// A conversation that is being played.
pub struct Stage {
    /// The case that is played.
    pub case: Case,
    /// Makes its bytes and its URL its own.
    pub nonce: u64,
    /// When it began.
    pub start: i64,
    /// The step that is being played.
    pub step: AtomicUsize,
    log: Mutex<Vec<Exchange>>,
}

impl Stage {
    /// A conversation before its first step.
    pub fn new(case: Case, nonce: u64) -> Stage {
        let start = now() as i64;
        Stage { case, nonce, start, step: AtomicUsize::new(0), log: Mutex::new(Vec::new()) }
    }

    /// The exchanges of the origin so far.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// When a version was made.
    pub fn modified(&self, version: u64) -> i64 {
        self.start + FIRST_VERSION + version as i64 * VERSION_SECONDS
    }

    fn answer(&self, asked: &Received) -> (Exchange, Turn) {
        let steps = &self.case.steps;
        let at = self.step.load(Ordering::SeqCst);
        let now = now();
        let turn = steps[at % steps.len()].turn.clone();
        let version = steps.iter().take(at % steps.len() + 1).filter(|step| step.turn.changes).count() as u64;
        let step = asked.fields.get("x-step").and_then(|text| text.parse().ok()).unwrap_or(at);
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let serial = log.len() as u64 + 1;
        let exchange = Answering { stage: self, turn: &turn, asked, version, serial, now }.exchange(step);
        log.push(exchange.clone());
        (exchange, turn)
    }
}

/// Seconds since 1970.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// All conversations under way, by the number in their URL.
#[derive(Default)]
pub struct Stages(Mutex<HashMap<u64, Arc<Stage>>>);

impl Stages {
    /// Puts one up.
    pub fn add(&self, stage: &Arc<Stage>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(stage.nonce, Arc::clone(stage));
    }

    /// Takes one down.
    pub fn remove(&self, nonce: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&nonce);
    }

    fn of(&self, target: &str) -> Option<Arc<Stage>> {
        let nonce = target.rsplit('/').next()?.parse().ok()?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&nonce).cloned()
    }
}

/// Serves on a free port until the process ends.
pub fn start(stages: &Arc<Stages>) -> Result<u16, Trouble> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|error| format!("no port for an origin: {error}"))?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    let stages = Arc::clone(stages);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let stages = Arc::clone(&stages);
            std::thread::spawn(move || serve(&stream, &stages).ok());
        }
    });
    Ok(port)
}

#[derive(Default)]
struct Received {
    method: String,
    target: String,
    fields: Fields,
}

fn serve(stream: &TcpStream, stages: &Stages) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(asked) = receive(&mut reader)? {
        let Some(stage) = stages.of(&asked.target) else {
            (&*stream).write_all(b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\nX-Over: 1\r\n\r\n")?;
            continue;
        };
        let (exchange, turn) = stage.answer(&asked);
        let (bytes, keeps) = written(&stage, &exchange, &turn);
        (&*stream).write_all(&bytes)?;
        if !keeps {
            return stream.shutdown(Shutdown::Both);
        }
    }
    Ok(())
}

fn receive(reader: &mut impl BufRead) -> io::Result<Option<Received>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ').map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut asked = Received { method, target, fields: Fields::default() };
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        asked.fields.push(name, value.trim());
    }
    let length = asked.fields.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    io::copy(&mut reader.take(length), &mut io::sink())?;
    Ok(Some(asked))
}

/// The user who asks, by `Authorization` or cookie.
pub fn user_of(fields: &Fields) -> Option<&str> {
    let authorization = fields.get("authorization").and_then(|text| text.strip_prefix("Basic "));
    authorization.or_else(|| fields.get("cookie").and_then(|text| text.strip_prefix("user=")))
}

struct Answering<'a> {
    stage: &'a Stage,
    turn: &'a Turn,
    asked: &'a Received,
    version: u64,
    serial: u64,
    now: f64,
}

impl Answering<'_> {
    fn exchange(&self, step: usize) -> Exchange {
        let is_read = matches!(&*self.asked.method, "GET" | "HEAD");
        let status = if is_read || self.turn.status >= 400 { self.turn.status } else { 200 };
        let rep = self.rep(status, is_read);
        let tag = self.tag(status, &rep).filter(|_| is_read);
        let mut fields = self.fields(&tag, status, &rep);
        let (status, range) = if is_read { self.judged(status, &rep, tag.as_ref()) } else { (status, 0..rep.length) };
        if status == 304 && self.turn.sparse {
            fields.0.retain(|(name, _)| ["date", "etag", "x-serial", "age"].contains(&name.as_str()));
        }
        let mut rep = rep;
        if status == 412 || status == 416 {
            let length = rep.length;
            rep = Rep { status, unique: self.serial, length: 0, ..rep };
            fields.0.retain(|(name, _)| !["etag", "last-modified"].contains(&name.as_str()));
            if status == 416 {
                fields.push("Content-Range", format!("bytes */{length}"));
            }
        } else if status == 206 {
            let unknown = self.turn.ranges == Ranges::UnknownLength;
            let length = if unknown { "*".to_owned() } else { rep.length.to_string() };
            fields.push("Content-Range", format!("bytes {}-{}/{length}", range.start, range.end - 1));
        }
        let has_body = self.asked.method != "HEAD" && !matches!(status, 204 | 304 | 412 | 416);
        let mut sent = if has_body { range } else { 0..0 };
        let mut fault = self.turn.fault;
        if fault == Some(Fault::CutBody) {
            if sent.end - sent.start < 2 {
                fault = Some(Fault::CutHead);
            }
            sent.end = sent.start + (sent.end - sent.start) / 2;
        }
        if matches!(fault, Some(Fault::CutHead | Fault::Silence)) {
            sent = 0..0;
        }
        Exchange {
            serial: self.serial,
            step,
            method: self.asked.method.clone(),
            request: self.asked.fields.clone(),
            status: if matches!(fault, Some(Fault::CutHead | Fault::Silence)) { 0 } else { status },
            fields,
            rep,
            tag: tag.filter(|_| !matches!(status, 412 | 416)),
            range: sent,
            fault,
            at: self.now,
        }
    }

    fn rep(&self, status: u16, is_read: bool) -> Rep {
        let request = &self.asked.fields;
        let is_resource = is_read && matches!(status, 200 | 203 | 299);
        let language = request.get("accept-language").filter(|_| self.turn.by_language).unwrap_or_default();
        let user = user_of(request).filter(|_| self.turn.by_user).unwrap_or_default();
        let language = language.replace(' ', "").replace(',', "-");
        let length = match status {
            204 => 0,
            _ if !is_resource => 40,
            _ if self.stage.case.length == 0 && self.version == 0 => 0,
            _ => self.stage.case.length + self.version * 7 + (language.len() + user.len()) as u64,
        };
        Rep {
            status: if is_resource { 200 } else { status },
            version: self.version,
            language,
            user: user.to_owned(),
            unique: if is_resource { 0 } else { self.serial },
            length,
        }
    }

    fn tag(&self, status: u16, rep: &Rep) -> Option<Tag> {
        let suffix = |text: &str| if text.is_empty() { String::new() } else { format!(".{text}") };
        let own = format!("v{}{}{}", rep.version, suffix(&rep.language), suffix(&rep.user));
        let (weak, opaque) = match self.turn.tag {
            _ if !matches!(status, 200 | 203 | 299) => return None,
            TagKind::None => return None,
            TagKind::Strong => (false, own),
            TagKind::Weak => (true, own),
            TagKind::WeakForAll => (true, "all".to_owned()),
        };
        Some(Tag { weak, opaque })
    }

    /// The fields of an answer; a mark `~N` says of which answer a value is.
    fn fields(&self, tag: &Option<Tag>, status: u16, rep: &Rep) -> Fields {
        let (turn, serial, mut fields) = (self.turn, self.serial, Fields::default());
        let now = self.now as i64;
        fields.push("X-Serial", format!("~{serial}"));
        for (at, line) in turn.control.iter().enumerate() {
            let number = if turn.numbers_control && at == 0 { format!(", n=x~{serial}") } else { String::new() };
            fields.push("Cache-Control", format!("{line}{number}"));
        }
        let targeted = turn.targeted.iter();
        targeted.for_each(|value| fields.push("CDN-Cache-Control", value.clone()));
        let mut date = |name: &str, at: i64, moment: super::script::Moment| {
            fields.push(name, moment.spelling.write(at + moment.offset));
        };
        turn.date.into_iter().for_each(|moment| date("Date", now, moment));
        turn.expires.into_iter().for_each(|moment| date("Expires", now, moment));
        turn.age.into_iter().for_each(|age| fields.push("Age", age));
        if let Some(Tag { weak, opaque }) = tag {
            fields.push("ETag", format!("{}\"{opaque}\"", if *weak { "W/" } else { "" }));
        }
        if let Some(spelling) = turn.modified.filter(|_| rep.status == 200) {
            fields.push("Last-Modified", spelling.write(self.stage.modified(rep.version)));
        }
        turn.vary.into_iter().for_each(|vary| fields.push("Vary", vary));
        for (bit, name) in ["X-A", "X-B", "Content-Type"].into_iter().enumerate() {
            if turn.marks & 1 << bit != 0 {
                fields.push(name, if bit == 2 { format!("text/plain; n=x~{serial}") } else { format!("a~{serial}") });
            }
        }
        let user = user_of(&self.asked.fields);
        user.into_iter().for_each(|user| fields.push("X-User", format!("{user}~{serial}")));
        if turn.sets_cookie {
            fields.push("Set-Cookie", format!("id={}~{serial}", user.unwrap_or("nobody")));
        }
        if turn.has_hop {
            fields.push("Connection", "X-Hop");
            fields.push("X-Hop", format!("hop~{serial}"));
        }
        if matches!(status, 301 | 302 | 307) {
            fields.push("Location", "/elsewhere");
        }
        fields
    }

    /// Conditions and ranges in the order of RFC 9110 section 13.2.2.
    fn judged(&self, status: u16, rep: &Rep, tag: Option<&Tag>) -> (u16, Range<u64>) {
        let request = &self.asked.fields;
        if !(200..300).contains(&status) {
            return (status, 0..rep.length);
        }
        let at = self.now as i64;
        let modified = self
            .turn
            .modified
            .filter(|_| rep.status == 200)
            .map(|spelling| spelling.write(self.stage.modified(rep.version)));
        let modified = modified.and_then(|text| time(&text, at));
        let since = |name| request.get(name).and_then(|text| time(text, at));
        let has_changed = |since: i64| modified.is_none_or(|modified| modified > since);
        let fails = match request.joined("if-match") {
            Some(list) => !names_tag(&list, tag, true),
            None => since("if-unmodified-since").is_some_and(has_changed),
        };
        if fails {
            return (412, 0..0);
        }
        let is_known = match request.joined("if-none-match") {
            Some(list) => names_tag(&list, tag, false),
            None => since("if-modified-since").is_some_and(|since| !has_changed(since)),
        };
        if is_known && self.turn.validates {
            return (304, 0..0);
        }
        self.ranged(status, rep, tag, modified)
    }

    fn ranged(&self, status: u16, rep: &Rep, tag: Option<&Tag>, modified: Option<i64>) -> (u16, Range<u64>) {
        let request = &self.asked.fields;
        let applies = match request.get("if-range") {
            None => true,
            Some(text) => match Tag::read(text) {
                Some(asked) => tag.is_some_and(|tag| tag.is_strongly(&asked)),
                None => modified.is_some() && time(text, self.now as i64) == modified,
            },
        };
        let is_sent = status == 200 && self.asked.method == "GET" && self.turn.ranges != Ranges::Ignored;
        let asked = ranges(request.get("range").filter(|_| applies && is_sent), rep.length);
        match asked {
            Asked::Parts(parts) if parts.len() == 1 => {
                let part = parts[0].clone();
                let part = match self.turn.ranges {
                    Ranges::Shorter => part.start..part.start + (part.end - part.start).div_ceil(2),
                    Ranges::Wider => part.start.saturating_sub(10)..rep.length.min(part.end + 10),
                    _ => part,
                };
                (206, part)
            }
            Asked::None => (416, 0..0),
            Asked::Parts(_) | Asked::Whole => (status, 0..rep.length),
        }
    }
}

fn time(text: &str, now: i64) -> Option<i64> {
    match read(text, now) {
        Read::Valid(at) | Read::Either(at) => Some(at),
        Read::Invalid => None,
    }
}

/// The bytes of an answer, and whether the connection goes on.
fn written(stage: &Stage, exchange: &Exchange, turn: &Turn) -> (Vec<u8>, bool) {
    if exchange.fault == Some(Fault::Silence) {
        return (Vec::new(), false);
    }
    let mut head = format!("HTTP/1.1 {} Said\r\n", exchange.status.max(200));
    for (name, value) in &exchange.fields.0 {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if exchange.fault == Some(Fault::CutHead) {
        return (head.into_bytes(), false);
    }
    let has_body = !matches!(exchange.status, 204 | 304);
    let is_part = exchange.status == 206;
    let whole = if is_part { part_length(exchange) } else { exchange.rep.length };
    let framing = if matches!(exchange.status, 412 | 416) { Framing::Length } else { turn.framing };
    let is_cut = exchange.fault == Some(Fault::CutBody);
    match framing {
        _ if !has_body => {}
        Framing::Length => head.push_str(&format!("Content-Length: {whole}\r\n")),
        Framing::Chunked => head.push_str("Transfer-Encoding: chunked\r\n"),
        Framing::Close => head.push_str("Connection: close\r\n"),
    }
    let mut bytes = (head + "\r\n").into_bytes();
    if exchange.method == "HEAD" || !has_body {
        return (bytes, framing != Framing::Close);
    }
    let body = exchange.rep.bytes(stage.nonce, exchange.range.clone());
    if framing == Framing::Chunked {
        for chunk in body.chunks(1_000) {
            bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        if !is_cut {
            bytes.extend_from_slice(b"0\r\n\r\n");
        }
    } else {
        bytes.extend_from_slice(&body);
    }
    (bytes, framing != Framing::Close && !is_cut)
}

/// The length that a 206 announces, whether all of it comes or not.
fn part_length(exchange: &Exchange) -> u64 {
    let place = exchange.fields.get("content-range").and_then(super::head::content_range);
    place.map_or(0, |(range, _)| range.end - range.start)
}
