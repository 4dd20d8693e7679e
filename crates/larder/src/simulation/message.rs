//! Messages as clients and origins of a run read them. It shares no code with the server: a fault in its parsers is not to hide in
//! both.

use crate::in_memory::MemoryStream;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// The head of a message.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// The first line.
    pub first: String,
    /// Names in lower case, and values.
    pub fields: Vec<(String, String)>,
}

impl Message {
    fn parse(text: &str) -> Message {
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap_or_default().to_owned();
        let field = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        Message { first, fields: lines.filter_map(field).collect() }
    }

    /// The first field with this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The status of a response.
    pub fn status(&self) -> u16 {
        self.first.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    fn length(&self) -> Option<u64> {
        self.field("Content-Length")?.parse().ok()
    }

    fn is_chunked(&self) -> bool {
        self.field("Transfer-Encoding").is_some_and(|codings| codings.eq_ignore_ascii_case("chunked"))
    }
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// By its framing.
    Whole,
    /// By the end of the connection, where its framing has no other end.
    Closed,
    /// Before its end.
    Broken,
}

/// The reading end of a connection.
pub struct Inbox {
    stream: Rc<MemoryStream>,
    bytes: RefCell<Vec<u8>>,
    /// Reads no more than so many bytes; the rest is not wanted any more.
    left: RefCell<Option<usize>>,
    pause: Duration,
    /// How long the next byte may take, and whether it took longer.
    patience: Duration,
    is_stuck: Cell<bool>,
}

impl Inbox {
    /// The reading end of a stream.
    pub fn new(stream: Rc<MemoryStream>) -> Inbox {
        Inbox {
            stream,
            bytes: RefCell::default(),
            left: RefCell::default(),
            pause: Duration::ZERO,
            patience: Duration::from_secs(1_000_000),
            is_stuck: Cell::new(false),
        }
    }

    /// Rests so long after each read.
    pub fn slow(self, pause: Duration) -> Inbox {
        Inbox { pause, ..self }
    }

    /// Stops with an error behind so many bytes.
    pub fn until(self, bytes: Option<usize>) -> Inbox {
        Inbox { left: RefCell::new(bytes), ..self }
    }

    /// Gives up when the next byte takes longer.
    pub fn within(self, patience: Duration) -> Inbox {
        Inbox { patience, ..self }
    }

    /// Whether a byte took too long.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck.get()
    }

    /// The stream.
    pub fn stream(&self) -> &MemoryStream {
        &self.stream
    }

    /// The bytes that were read and not used.
    pub fn take(&self) -> Vec<u8> {
        self.bytes.take()
    }

    /// Reads some more; false at the end.
    async fn more(&self) -> io::Result<bool> {
        let mut room = [0; 16 * 1024];
        let Ok(count) = tokio::time::timeout(self.patience, self.stream.get(&mut room)).await else {
            self.is_stuck.set(true);
            return Err(io::ErrorKind::TimedOut.into());
        };
        let count = count?;
        if let Some(left) = self.left.borrow_mut().as_mut() {
            if count >= *left {
                return Err(io::ErrorKind::Interrupted.into());
            }
            *left -= count;
        }
        self.bytes.borrow_mut().extend_from_slice(&room[..count]);
        if !self.pause.is_zero() && count > 0 {
            tokio::time::sleep(self.pause).await;
        }
        Ok(count > 0)
    }

    /// The next head; `None` where the connection ended before it began. One that is cut is an error.
    pub async fn head(&self) -> io::Result<Option<Message>> {
        loop {
            let end = self.bytes.borrow().windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end {
                let rest = self.bytes.borrow_mut().split_off(end + 4);
                let head = self.bytes.replace(rest);
                return Ok(Some(Message::parse(&String::from_utf8_lossy(&head[..end]))));
            }
            if !self.more().await? {
                let is_clean = self.bytes.borrow().is_empty();
                return if is_clean { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }

    /// The body of a request; one that is cut is an error.
    pub async fn body_of_request(&self, head: &Message) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        let end = match (head.is_chunked(), head.length()) {
            (true, _) => self.chunks(&mut body).await,
            (false, Some(length)) => self.exactly(length, &mut body).await,
            (false, None) => return Ok(body),
        };
        if end == BodyEnd::Broken { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(body) }
    }

    /// The body of a response, as far as it comes.
    pub async fn body_of_response(&self, head: &Message, method: &str, body: &mut Vec<u8>) -> BodyEnd {
        if method == "HEAD" || matches!(head.status(), 204 | 304) {
            return BodyEnd::Whole;
        }
        match (head.is_chunked(), head.length()) {
            (true, _) => self.chunks(body).await,
            (false, Some(length)) => self.exactly(length, body).await,
            (false, None) => loop {
                body.append(&mut self.bytes.borrow_mut());
                match self.more().await {
                    Ok(true) => {}
                    Ok(false) => return BodyEnd::Closed,
                    Err(_) => return BodyEnd::Broken,
                }
            },
        }
    }

    async fn exactly(&self, length: u64, body: &mut Vec<u8>) -> BodyEnd {
        let end = body.len() + length as usize;
        loop {
            {
                let mut bytes = self.bytes.borrow_mut();
                let count = bytes.len().min(end - body.len());
                body.extend(bytes.drain(..count));
            }
            if body.len() == end {
                return BodyEnd::Whole;
            }
            if !matches!(self.more().await, Ok(true)) {
                return BodyEnd::Broken;
            }
        }
    }

    async fn line(&self) -> Option<String> {
        loop {
            let end = self.bytes.borrow().windows(2).position(|two| two == b"\r\n");
            if let Some(end) = end {
                let rest = self.bytes.borrow_mut().split_off(end + 2);
                let line = self.bytes.replace(rest);
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if !matches!(self.more().await, Ok(true)) {
                return None;
            }
        }
    }

    async fn chunks(&self, body: &mut Vec<u8>) -> BodyEnd {
        loop {
            let Some(line) = self.line().await else { return BodyEnd::Broken };
            let Ok(length) = u64::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16) else {
                return BodyEnd::Broken;
            };
            if length > 0 && self.exactly(length, body).await == BodyEnd::Broken {
                return BodyEnd::Broken;
            }
            let Some(mut after) = self.line().await else { return BodyEnd::Broken };
            if length == 0 {
                while !after.is_empty() {
                    let Some(next) = self.line().await else { return BodyEnd::Broken };
                    after = next;
                }
                return BodyEnd::Whole;
            }
        }
    }
}
