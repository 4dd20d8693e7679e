//! The origin: raw sockets, so that it can send what no server would. It knows the cases, answers each request as the
//! step says in which the case is, and keeps what it was asked.

use super::cases::{Answer, Case};
use super::expect::MARK;
use super::text::{self, Attempt, Variables};
use super::wire::{self, Asked};
use crate::shell::Trouble;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An origin that listens; it ends with this.
pub struct Origin {
    /// Where it listens on 127.0.0.1.
    pub port: u16,
    shared: Arc<Shared>,
}

/// A case under way.
pub struct Scene {
    case: Case,
    variables: Variables,
    now: Mutex<Now>,
}

struct Now {
    /// The step in which the case is, from 0.
    step: usize,
    asked: Vec<Vec<Asked>>,
}

struct Shared {
    scenes: Mutex<HashMap<String, Arc<Scene>>>,
    ends: AtomicBool,
}

const IDLE_SECONDS_MAX: u64 = 20;
const REQUEST_BYTES_MAX: usize = 1 << 20;

impl Origin {
    /// Starts to listen.
    pub fn start() -> Result<Origin, Trouble> {
        let listener =
            TcpListener::bind(("127.0.0.1", 0)).map_err(|error| format!("no port for an origin: {error}"))?;
        let port = listener.local_addr().map_err(|error| format!("no port for an origin: {error}"))?.port();
        let shared = Arc::new(Shared { scenes: Mutex::default(), ends: AtomicBool::new(false) });
        let of_thread = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if of_thread.ends.load(Ordering::Relaxed) {
                    return;
                }
                let shared = of_thread.clone();
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        Ok(Origin { port, shared })
    }

    /// A case begins: requests below its path belong to it from here on.
    pub fn enter(&self, case: &Case, attempt: Attempt) -> Arc<Scene> {
        let asked = case.steps.iter().map(|_| Vec::new()).collect();
        let variables = Variables::begin(&case.id, attempt);
        let key = variables.path().trim_start_matches('/').to_owned();
        let scene = Arc::new(Scene { case: case.clone(), variables, now: Mutex::new(Now { step: 0, asked }) });
        let mut scenes = self.shared.scenes.lock().unwrap_or_else(PoisonError::into_inner);
        scenes.insert(key, scene.clone());
        scene
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        // The listener's thread sees it with its next connection.
        TcpStream::connect(("127.0.0.1", self.port)).ok();
    }
}

impl Scene {
    /// The values of this case's variables.
    pub fn variables(&self) -> &Variables {
        &self.variables
    }

    /// The next step begins.
    pub fn turn_to(&self, step: usize) {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).step = step;
    }

    /// The requests that the origin got, by step.
    pub fn asked(&self) -> Vec<Vec<Asked>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).asked.clone()
    }

    fn note(&self, asked: &Asked) -> usize {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let step = now.step;
        now.asked[step].push(asked.clone());
        step
    }
}

impl Shared {
    fn scene(&self, target: &str) -> Option<Arc<Scene>> {
        let path =
            target.strip_prefix("http://").and_then(|rest| rest.find('/').map(|at| &rest[at..])).unwrap_or(target);
        let key = path.strip_prefix('/')?.split(['/', '?', '#', ' ']).next()?;
        self.scenes.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn serve(&self, mut stream: TcpStream) {
        stream.set_read_timeout(Some(Duration::from_millis(200))).ok();
        stream.set_nodelay(true).ok();
        let mut bytes = Vec::new();
        while let Some(asked) = self.next_request(&mut stream, &mut bytes) {
            let reply = match self.scene(&asked.target) {
                Some(scene) => {
                    let step = scene.note(&asked);
                    std::thread::sleep(scene.case.steps[step].delay);
                    respond(&scene, step, &asked)
                }
                None => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
            };
            let is_last = asked.version != "HTTP/1.1" || asked.fields.has_member("connection", "close");
            if stream.write_all(&reply).is_err() || is_last || ends_connection(&reply) {
                return;
            }
        }
    }

    fn next_request(&self, stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Asked> {
        let began = Instant::now();
        let (mut piece, mut has_continued) = ([0; 16 << 10], false);
        loop {
            if let Some((asked, used)) = wire::read_request(bytes) {
                bytes.drain(..used);
                return Some(asked);
            }
            if !has_continued && wire::awaits_continue(bytes) {
                has_continued = true;
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
            }
            match stream.read(&mut piece) {
                Ok(0) => return None,
                Ok(length) => bytes.extend_from_slice(&piece[..length]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return None,
            }
            let is_late = began.elapsed() > Duration::from_secs(IDLE_SECONDS_MAX);
            if is_late || bytes.len() > REQUEST_BYTES_MAX || self.ends.load(Ordering::Relaxed) {
                return None;
            }
        }
    }
}

/// Raw responses end with their connection, and so do those that say it or have no length.
fn ends_connection(reply: &[u8]) -> bool {
    let Some(end) = reply.windows(4).position(|four| four == b"\r\n\r\n") else { return true };
    let head = String::from_utf8_lossy(&reply[..end]).to_ascii_lowercase();
    let says = |line: &str| head.lines().any(|found| found == line);
    let is_framed = head.contains("\r\ncontent-length:") || head.contains("\r\ntransfer-encoding:");
    let has_none = head.starts_with("http/1.1 304") || head.starts_with("http/1.1 204");
    says("connection: close") || !(is_framed || has_none) || !head.contains(&MARK.to_ascii_lowercase())
}

/// The response of a step, as bytes.
fn respond(scene: &Scene, step: usize, asked: &Asked) -> Vec<u8> {
    let fill = |text: &str| scene.variables.fill(text);
    let (status, honours_ranges, fields, content) = match &scene.case.steps[step].answer {
        Answer::Raw(raw) => return fill(raw).into_bytes(),
        Answer::Message { status, honours_ranges, fields, content } => {
            (*status, *honours_ranges, fields, fill(content))
        }
    };
    let mut lines: Vec<String> = fields.iter().map(|line| fill(line)).collect();
    let mut reply = Draft { status, content: content.into_bytes() };
    let has_range = asked.fields.joined("range").is_some();
    if (status == 304 && !is_conditional(asked)) || (status == 206 && !has_range) {
        reply.status = 200;
        lines.retain(|line| !line.starts_with("Content-Range:"));
    }
    if honours_ranges && let Some(range) = wanted_range(asked, &lines, reply.content.len()) {
        lines.push(format!("Content-Range: bytes {}-{}/{}", range.0, range.1, reply.content.len()));
        reply = Draft { status: 206, content: reply.content[range.0..=range.1].to_vec() };
    }
    reply.write(lines, step, asked.method == "HEAD")
}

/// An origin sends no 304 to a request without a condition, and no 206 to one without Range: some caches leave them out.
fn is_conditional(asked: &Asked) -> bool {
    ["if-none-match", "if-modified-since"].iter().any(|name| asked.fields.joined(name).is_some())
}

struct Draft {
    status: u16,
    content: Vec<u8>,
}

impl Draft {
    fn write(self, mut lines: Vec<String>, step: usize, to_head: bool) -> Vec<u8> {
        let Draft { status, mut content } = self;
        let names = |lines: &[String], name: &str| {
            lines.iter().any(|line| {
                line.split(':').next().is_some_and(|key| key.trim_start_matches("no ").eq_ignore_ascii_case(name))
            })
        };
        let has_none = matches!(status, 204 | 304);
        let is_chunked = names(&lines, "Transfer-Encoding");
        if !names(&lines, "Date") {
            lines.push(format!("Date: {}", text::date_now()));
        }
        if !has_none && !is_chunked && !names(&lines, "Content-Length") {
            lines.push(format!("Content-Length: {}", content.len()));
        }
        lines.push(format!("{MARK}: {}", step + 1));
        lines.retain(|line| !line.starts_with("no "));
        if is_chunked && !has_none {
            content = [format!("{:x}\r\n", content.len()).into_bytes(), content, b"\r\n0\r\n\r\n".to_vec()].concat();
        }
        let mut bytes = format!("HTTP/1.1 {status} {}\r\n{}\r\n\r\n", reason(status), lines.join("\r\n")).into_bytes();
        if !has_none && !to_head {
            bytes.extend_from_slice(&content);
        }
        bytes
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        304 => "Not Modified",
        404 => "Not Found",
        500..=599 => "Trouble",
        _ => "Something",
    }
}

/// The one range that is asked for, where `If-Range` permits it.
fn wanted_range(asked: &Asked, lines: &[String], length: usize) -> Option<(usize, usize)> {
    let text = asked.fields.joined("range")?;
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    if let Some(wanted) = asked.fields.joined("if-range") {
        let is_same = |line: &String| {
            line.split_once(": ").is_some_and(|(name, value)| {
                (name.eq_ignore_ascii_case("etag") || name.eq_ignore_ascii_case("last-modified")) && value == wanted
            })
        };
        lines.iter().find(|line| is_same(line))?;
    }
    let end = length.checked_sub(1)?;
    let range = if first.is_empty() {
        (length.saturating_sub(last.parse().ok()?), end)
    } else {
        (first.parse().ok()?, last.parse().unwrap_or(end).min(end))
    };
    (range.0 <= range.1).then_some(range)
}
