//! A service of ICAP that does what a test wants, well or badly. Written after RFC 3507 alone: it shares no code with the client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The work of the service on a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// Says 204 once it has seen the preview.
    UnchangedAfterPreview,
    /// Says 204 once it has seen all.
    UnchangedAfterAll,
    /// Gives the message back, with all lower-case letters of the body in upper case, once it has all.
    Upper,
    /// The same piece by piece, as they come: the reply begins before the question ends.
    UpperAsItComes,
    /// The same half a second after it has all.
    UpperLate,
    /// Answers with a page after the first bytes, and reads no more.
    Forbids,
    /// The page in a reply whose heads lie elsewhere than `Encapsulated` says.
    WrongOffsets,
    /// Closes the connection in the middle of the question.
    ClosesAtOnce,
    /// Closes the connection in the middle of the reply.
    ClosesInReply,
    /// Says something that is no ICAP.
    Garbage,
    /// Says nothing.
    Silent,
    /// Replies with this status.
    Status(u16),
    /// Says 100 where nothing was held back.
    ContinuesWrongly,
    /// Says that the body has one byte fewer than it has.
    WrongLength,
    /// Gives a request or an answer back with other words in its head, as `replaces` says.
    Redirects,
    /// Answers with a page of status 200.
    Answers,
}

/// A message as the service saw it.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The ICAP head.
    pub icap: String,
    /// The heads of HTTP.
    pub http: String,
    /// The body, as far as it came.
    pub body: Vec<u8>,
}

/// A running service.
#[derive(Clone)]
pub struct Service {
    pub address: SocketAddr,
    pub does: Arc<Mutex<Does>>,
    /// Fields of its answer to OPTIONS, but for the ISTag.
    pub options: Arc<Mutex<String>>,
    pub istag: Arc<Mutex<String>>,
    /// The status of its answer to OPTIONS.
    pub options_status: Arc<AtomicUsize>,
    /// The words that [`Does::Redirects`] replaces in heads, and those it puts in their place.
    pub replaces: Arc<Mutex<Vec<(String, String)>>>,
    pub seen: Arc<Mutex<Vec<Seen>>>,
    pub connections: Arc<AtomicUsize>,
    pub most_at_once: Arc<AtomicUsize>,
    now: Arc<AtomicUsize>,
}

pub const OPTIONS: &str = "Methods: RESPMOD, REQMOD\r\nAllow: 204\r\nPreview: 16\r\nTransfer-Preview: *\r\n";

impl Service {
    pub fn start(does: Does) -> Service {
        Service::start_at(([127, 0, 0, 1], 0).into(), does)
    }

    pub fn start_at(address: SocketAddr, does: Does) -> Service {
        let listener = TcpListener::bind(address).unwrap();
        let service = Service {
            address: listener.local_addr().unwrap(),
            does: Arc::new(Mutex::new(does)),
            options: Arc::new(Mutex::new(OPTIONS.to_owned())),
            istag: Arc::new(Mutex::new("one".to_owned())),
            options_status: Arc::new(AtomicUsize::new(200)),
            replaces: Arc::default(),
            seen: Arc::default(),
            connections: Arc::default(),
            most_at_once: Arc::default(),
            now: Arc::default(),
        };
        let serving = service.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                std::thread::spawn(move || {
                    serving.connections.fetch_add(1, Ordering::SeqCst);
                    let now = serving.now.fetch_add(1, Ordering::SeqCst) + 1;
                    serving.most_at_once.fetch_max(now, Ordering::SeqCst);
                    while serving.serve(&mut BufReader::new(&stream)).is_some() {}
                    serving.now.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        service
    }

    pub fn url(&self) -> String {
        format!("icap://{}/test", self.address)
    }

    pub fn does(&self, does: Does) {
        *self.does.lock().unwrap() = does;
    }

    /// Replaces these words in heads.
    pub fn replaces(&self, words: &[(&str, &str)]) {
        *self.replaces.lock().unwrap() = words.iter().map(|(from, to)| ((*from).into(), (*to).into())).collect();
        self.does(Does::Redirects);
    }

    /// The messages that it was asked about, of this method.
    pub fn asked(&self, method: &str) -> Vec<Seen> {
        self.seen.lock().unwrap().iter().filter(|seen| seen.icap.starts_with(method)).cloned().collect()
    }

    fn serve(&self, from: &mut BufReader<&TcpStream>) -> Option<()> {
        let icap = head(from)?;
        let istag = self.istag.lock().unwrap().clone();
        if icap.starts_with("OPTIONS") {
            self.seen.lock().unwrap().push(Seen { icap, ..Seen::default() });
            let options = self.options.lock().unwrap().clone();
            let status = self.options_status.load(Ordering::SeqCst);
            let reply =
                format!("ICAP/1.0 {status} X\r\nISTag: \"{istag}\"\r\n{options}Encapsulated: null-body=0\r\n\r\n");
            return from.get_mut().write_all(reply.as_bytes()).ok();
        }
        let (parts, len, has_body) = encapsulated(&icap);
        let mut heads = vec![0; len];
        from.read_exact(&mut heads).ok()?;
        let http = String::from_utf8(heads).unwrap();
        let mut asked = Asked {
            has_preview: icap.contains("Preview: "),
            has_body,
            parts,
            istag,
            seen: Seen { icap, http, body: vec![] },
            replaces: self.replaces.lock().unwrap().clone(),
        };
        let does = *self.does.lock().unwrap();
        // Its client may count questions as soon as it has the reply.
        let number = {
            let mut seen = self.seen.lock().unwrap();
            seen.push(asked.seen.clone());
            seen.len() - 1
        };
        let done = asked.reply(does, from);
        self.seen.lock().unwrap()[number] = asked.seen;
        done
    }
}

/// The parts of `Encapsulated`, the length of the heads and whether a body follows.
fn encapsulated(icap: &str) -> (Vec<(String, usize)>, usize, bool) {
    let line = icap.lines().find_map(|line| line.strip_prefix("Encapsulated: ")).unwrap();
    let parts = line.split(", ").map(|part| part.split_once('=').unwrap());
    let mut parts: Vec<(String, usize)> = parts.map(|(name, at)| (name.to_owned(), at.parse().unwrap())).collect();
    let (body, len) = parts.pop().unwrap();
    (parts, len, body != "null-body")
}

fn head(from: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        from.read_line(&mut head).ok().filter(|read| *read > 0)?;
    }
    Some(head)
}

/// A question that is under way.
struct Asked {
    has_preview: bool,
    has_body: bool,
    parts: Vec<(String, usize)>,
    istag: String,
    seen: Seen,
    replaces: Vec<(String, String)>,
}

/// The end of a part of a body.
#[derive(PartialEq)]
enum End {
    Zero,
    WholeInPreview,
}

impl Asked {
    /// One chunk; at the end, its kind.
    fn chunk(&mut self, from: &mut impl BufRead) -> Option<Result<Vec<u8>, End>> {
        let mut line = String::new();
        from.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let size = usize::from_str_radix(line.trim().split(';').next().unwrap(), 16).ok()?;
        if size == 0 {
            let end = if line.contains("ieof") { End::WholeInPreview } else { End::Zero };
            while line != "\r\n" {
                line.clear();
                from.read_line(&mut line).ok().filter(|read| *read > 0)?;
            }
            return Some(Err(end));
        }
        let mut chunk = vec![0; size + 2];
        from.read_exact(&mut chunk).ok()?;
        chunk.truncate(size);
        self.seen.body.extend_from_slice(&chunk);
        Some(Ok(chunk))
    }

    fn until_end(&mut self, from: &mut impl BufRead) -> Option<End> {
        loop {
            if let Err(end) = self.chunk(from)? {
                return Some(end);
            }
        }
    }

    /// Reads the preview; then the rest, if there is more of it and `all` of it is wanted.
    fn read(&mut self, from: &mut BufReader<&TcpStream>, all: bool) -> Option<()> {
        if !self.has_body {
            return Some(());
        }
        let end = self.until_end(from)?;
        if self.has_preview && all && end == End::Zero {
            from.get_mut().write_all(b"ICAP/1.0 100 Continue\r\n\r\n").ok()?;
            self.until_end(from)?;
        }
        Some(())
    }

    fn reply(&mut self, does: Does, from: &mut BufReader<&TcpStream>) -> Option<()> {
        let to = *from.get_ref();
        let mut to: &TcpStream = to;
        let istag = format!("ISTag: \"{}\"\r\n", self.istag);
        match does {
            Does::UnchangedAfterPreview | Does::UnchangedAfterAll => {
                self.read(from, does == Does::UnchangedAfterAll)?;
                to.write_all(format!("ICAP/1.0 204 No\r\n{istag}\r\n").as_bytes()).ok()
            }
            Does::Upper | Does::UpperLate | Does::WrongLength => {
                self.read(from, true)?;
                if does == Does::UpperLate {
                    std::thread::sleep(Duration::from_millis(500));
                }
                let mut head = self.last_head();
                if does == Does::WrongLength {
                    let length = format!("Content-Length: {}\r\n", self.seen.body.len());
                    head = head.replace(&length, &format!("Content-Length: {}\r\n", self.seen.body.len() - 1));
                }
                to.write_all(self.begin(&head, &istag).as_bytes()).ok()?;
                let body = self.seen.body.to_ascii_uppercase();
                if self.has_body {
                    for piece in body.chunks(70_000) {
                        write_chunk(to, piece)?;
                    }
                    to.write_all(b"0\r\n\r\n").ok()?;
                }
                Some(())
            }
            Does::UpperAsItComes => {
                to.write_all(self.begin(&self.last_head(), &istag).as_bytes()).ok()?;
                while let Ok(chunk) = self.chunk(from)? {
                    write_chunk(to, &chunk.to_ascii_uppercase())?;
                }
                to.write_all(b"0\r\n\r\n").ok()
            }
            Does::Forbids | Does::WrongOffsets | Does::ClosesInReply | Does::Answers => {
                if self.has_body {
                    let _ = self.chunk(from)?;
                }
                let status = if does == Does::Answers { "200 Fine" } else { "403 Forbidden" };
                let page = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\n");
                let at = if does == Does::WrongOffsets { page.len() - 9 } else { page.len() };
                let reply =
                    format!("ICAP/1.0 200 OK\r\n{istag}Encapsulated: res-hdr=0, res-body={at}\r\n\r\n{page}8\r\n");
                to.write_all(reply.as_bytes()).ok()?;
                if does == Does::ClosesInReply {
                    to.write_all(b"a vi").ok()?;
                    let _ = to.shutdown(std::net::Shutdown::Both);
                    return None;
                }
                to.write_all(b"a virus!\r\n0\r\n\r\n").ok()?;
                if !self.has_body {
                    return Some(());
                }
                // Unread bytes would reset the connection before the reply is read.
                let _ = to.shutdown(std::net::Shutdown::Write);
                let _ = std::io::copy(from, &mut std::io::sink());
                None
            }
            Does::ClosesAtOnce => {
                if self.has_body {
                    let _ = self.chunk(from)?;
                }
                let _ = to.shutdown(std::net::Shutdown::Both);
                None
            }
            Does::Garbage => {
                self.read(from, false)?;
                to.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello").ok()
            }
            Does::Silent => {
                std::thread::sleep(Duration::from_secs(20));
                None
            }
            Does::Status(status) => {
                self.read(from, false)?;
                to.write_all(format!("ICAP/1.0 {status} X\r\n{istag}Encapsulated: null-body=0\r\n\r\n").as_bytes()).ok()
            }
            Does::ContinuesWrongly => {
                self.read(from, true)?;
                to.write_all(b"ICAP/1.0 100 Continue\r\n\r\nICAP/1.0 100 Continue\r\n\r\n").ok()
            }
            Does::Redirects => {
                self.read(from, true)?;
                let replaced = |head: String, (from, to): &(String, String)| head.replace(from, to);
                let head = self.replaces.iter().fold(self.last_head(), replaced);
                to.write_all(self.begin(&head, &istag).as_bytes()).ok()?;
                if self.has_body {
                    write_chunk(to, &self.seen.body)?;
                    to.write_all(b"0\r\n\r\n").ok()?;
                }
                Some(())
            }
        }
    }

    /// The head of the message itself: that of the response, where there is one.
    fn last_head(&self) -> String {
        self.seen.http[self.parts.last().unwrap().1..].to_owned()
    }

    fn begin(&self, head: &str, istag: &str) -> String {
        let kind = if self.parts.len() > 1 { "res" } else { "req" };
        let body = if self.has_body { format!("{kind}-body") } else { "null-body".to_owned() };
        format!("ICAP/1.0 200 OK\r\n{istag}Encapsulated: {kind}-hdr=0, {body}={}\r\n\r\n{head}", head.len())
    }
}

fn write_chunk(mut to: &TcpStream, piece: &[u8]) -> Option<()> {
    to.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).ok()?;
    to.write_all(piece).ok()?;
    to.write_all(b"\r\n").ok()
}
