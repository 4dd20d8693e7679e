//! The client: plays the steps of a case through a proxy and gives what was seen on both sides.

use super::cases::{Case, Request, Step};
use super::expect::{Ended, Expectation, Seen};
use super::origin::{Origin, Scene};
use super::text::{Attempt, HOST};
use super::wire;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a response may take.
const PATIENCE: Duration = Duration::from_secs(8);
/// Raw bytes may be followed by any number of responses: none comes after this silence.
const SILENCE: Duration = Duration::from_millis(500);
/// Between two steps: some caches can use a response a moment after its client has it.
const SETTLE: Duration = Duration::from_millis(100);
/// How long a connection is watched for its end.
const WATCH: Duration = Duration::from_millis(1500);

/// Plays a case through the proxy at a port.
pub fn play(case: &Case, port: u16, origin: &Origin, attempt: Attempt) -> (Arc<Scene>, Vec<Seen>) {
    let scene = origin.enter(case, attempt);
    let mut all = Vec::new();
    for (at, step) in case.steps.iter().enumerate() {
        std::thread::sleep(step.after.max(SETTLE));
        scene.turn_to(at);
        let (bytes, manner) = prepare(step, &scene);
        let mut seen = ask(port, &bytes, &manner);
        seen.step = at + 1;
        all.push(seen);
    }
    for (seen, asked) in all.iter_mut().zip(scene.asked()) {
        seen.asked = asked;
    }
    (scene, all)
}

struct Manner {
    to_head: bool,
    is_raw: bool,
    watches_the_end: bool,
}

fn prepare(step: &Step, scene: &Scene) -> (Vec<u8>, Manner) {
    let watches_the_end = step.expect.iter().chain(&step.given).any(Expectation::watches_the_end);
    let fill = |text: &str| scene.variables().fill(text);
    let (method, behind, fields, content) = match &step.request {
        Request::Raw(raw) => {
            let manner = Manner { to_head: false, is_raw: true, watches_the_end };
            return (fill(raw).into_bytes(), manner);
        }
        Request::Message { method, behind, fields, content } => (method, behind, fields, content),
    };
    let mut lines: Vec<String> = fields.iter().map(|line| fill(line)).collect();
    let has = |name: &str| lines.iter().any(|line| line.to_ascii_lowercase().starts_with(name));
    let (has_host, has_length) = (has("host:"), has("content-length:"));
    if !has_host {
        lines.insert(0, format!("Host: {HOST}"));
    }
    if let Some(content) = content
        && !has_length
    {
        lines.push(format!("Content-Length: {}", content.len()));
    }
    let target = format!("{}{}", scene.variables().path(), fill(behind));
    let body = content.as_deref().unwrap_or_default();
    let bytes = format!("{method} {target} HTTP/1.1\r\n{}\r\n\r\n{body}", lines.join("\r\n")).into_bytes();
    (bytes, Manner { to_head: method == "HEAD", is_raw: false, watches_the_end })
}

fn ask(port: u16, bytes: &[u8], manner: &Manner) -> Seen {
    let connected = TcpStream::connect(("127.0.0.1", port)).and_then(|mut stream| {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_millis(50)))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        // A proxy that refuses early may close before it has read everything; its answer counts all the same.
        stream.write_all(bytes).ok();
        Ok(stream)
    });
    match connected {
        Ok(stream) => Listener { stream, bytes: Vec::new(), seen: Seen::default() }.listen(manner),
        Err(error) => Seen { trouble: Some(format!("no connection: {error}")), ..Seen::default() },
    }
}

struct Listener {
    stream: TcpStream,
    bytes: Vec<u8>,
    seen: Seen,
}

impl Listener {
    fn listen(mut self, manner: &Manner) -> Seen {
        let (began, mut heard) = (Instant::now(), Instant::now());
        loop {
            let is_over = self.seen.ended == Ended::Closed;
            while let Some((reply, used)) = wire::read_reply(&self.bytes, manner.to_head, is_over) {
                self.bytes.drain(..used);
                self.seen.replies.push(reply);
            }
            let has_reply = !self.seen.replies.is_empty();
            if is_over || began.elapsed() > PATIENCE || (has_reply && !manner.is_raw) {
                break;
            }
            if manner.is_raw && has_reply && heard.elapsed() > SILENCE {
                break;
            }
            if self.read_some() {
                heard = Instant::now();
            }
        }
        self.seen.took = began.elapsed();
        if manner.watches_the_end {
            self.watch();
        }
        if self.seen.replies.is_empty() {
            let closed = self.seen.ended == Ended::Closed;
            self.seen.trouble =
                Some(if closed { "a connection that ended without a response" } else { "no response" }.to_owned());
        }
        self.seen
    }

    fn watch(&mut self) {
        let began = Instant::now();
        while self.seen.ended != Ended::Closed && began.elapsed() < WATCH {
            self.read_some();
        }
        if self.seen.ended == Ended::Unknown {
            self.seen.ended = Ended::Open;
        }
    }

    fn read_some(&mut self) -> bool {
        let mut piece = [0; 16 << 10];
        match self.stream.read(&mut piece) {
            Ok(0) => self.seen.ended = Ended::Closed,
            Ok(length) => self.bytes.extend_from_slice(&piece[..length]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return false,
            Err(_) => self.seen.ended = Ended::Closed,
        }
        true
    }
}
