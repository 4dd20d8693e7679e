//! A tolerant reader of HTTP/1 messages: it takes what strict parsers refuse, so that a script can say what came,
//! and notes every fault of form. A proxy must send messages without one: `got` and `expect` fail on a fault.

/// How a body ends on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// By a declared length.
    Length(u64),
    /// By the last chunk.
    Chunked,
    /// By the end of the connection.
    Close,
}

impl Framing {
    /// The word that scripts use.
    pub fn as_str(self) -> &'static str {
        match self {
            Framing::None => "none",
            Framing::Length(_) => "length",
            Framing::Chunked => "chunked",
            Framing::Close => "close",
        }
    }
}

/// Name and value of a field line, as they came.
pub type Line = (Vec<u8>, Vec<u8>);

/// The head of a request or an answer.
#[derive(Debug, Clone, Default)]
pub struct Head {
    /// The first line.
    pub start: String,
    /// The field lines in order.
    pub fields: Vec<Line>,
    /// The bytes as they came.
    pub raw: Vec<u8>,
    /// Faults in their form.
    pub faults: Vec<String>,
}

impl Head {
    /// Takes a head from the front of `buffer` when it is there as a whole.
    pub fn take(buffer: &mut Vec<u8>) -> Option<Head> {
        let skip = buffer.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
        let end = skip + head_length(&buffer[skip..])?;
        let raw: Vec<u8> = buffer.drain(..end).skip(skip).collect();
        Some(Head::read(raw))
    }

    fn read(raw: Vec<u8>) -> Head {
        let mut head = Head::default();
        let (lines, mut faults) = lines(&raw);
        if let Some((start, rest)) = lines.split_first() {
            head.start = String::from_utf8_lossy(start).into_owned();
            for line in rest.iter().filter(|l| !l.is_empty()) {
                field_line(line, &mut head.fields, &mut faults);
            }
        }
        head.faults = faults;
        head.raw = raw;
        head
    }

    /// The words of the first line.
    pub fn words(&self) -> Vec<&str> {
        self.start.split(' ').collect()
    }

    /// Status of an answer; 0 when the line is no status line.
    pub fn status(&self) -> u16 {
        let words = self.words();
        if words.first().is_some_and(|w| w.starts_with("HTTP/")) {
            return words.get(1).and_then(|w| w.parse().ok()).unwrap_or(0);
        }
        0
    }

    /// The version's digits: `1.1`.
    pub fn version(&self) -> &str {
        self.words().iter().find_map(|w| w.strip_prefix("HTTP/")).unwrap_or("")
    }

    /// All values of a field, in order.
    pub fn values(&self, name: &str) -> Vec<String> {
        values(&self.fields, name)
    }

    /// All values joined by a comma, when there is a line of that name.
    pub fn joined(&self, name: &str) -> Option<String> {
        let values = self.values(name);
        (!values.is_empty()).then(|| values.join(", "))
    }

    /// Whether a list field holds this word.
    pub fn lists(&self, name: &str, word: &str) -> bool {
        self.values(name).iter().flat_map(|v| v.split(',')).any(|w| w.trim().eq_ignore_ascii_case(word))
    }

    /// How the body of this request ends.
    pub fn request_framing(&self) -> Framing {
        if self.lists("Transfer-Encoding", "chunked") {
            return Framing::Chunked;
        }
        self.length().map_or(Framing::None, Framing::Length)
    }

    /// How the body of this answer to a `method` request ends (RFC 9112 section 6.3).
    pub fn response_framing(&self, method: &str) -> Framing {
        let status = self.status();
        let none = method == "HEAD" || matches!(status, 100..=199 | 204 | 304);
        if none || (method == "CONNECT" && (200..300).contains(&status)) {
            return Framing::None;
        }
        if self.lists("Transfer-Encoding", "chunked") {
            return Framing::Chunked;
        }
        self.length().map_or(Framing::Close, Framing::Length)
    }

    fn length(&self) -> Option<u64> {
        self.values("Content-Length").first().and_then(|v| v.parse().ok())
    }

    /// Notes what is ambiguous or forbidden in any message (RFC 9112 sections 5 and 6).
    pub fn judge(&mut self) {
        let lengths = self.values("Content-Length");
        let codings = self.values("Transfer-Encoding");
        let mut faults = Vec::new();
        if !lengths.is_empty() && !codings.is_empty() {
            faults.push("both Content-Length and Transfer-Encoding".to_string());
        }
        if lengths.len() > 1 {
            faults.push(format!("{} Content-Length lines", lengths.len()));
        }
        if let Some(length) = lengths.iter().find(|l| l.is_empty() || !l.bytes().all(|b| b.is_ascii_digit())) {
            faults.push(format!("Content-Length is `{length}`"));
        }
        if !codings.is_empty() && (codings.len() > 1 || !codings[0].eq_ignore_ascii_case("chunked")) {
            faults.push(format!("Transfer-Encoding is `{}`", codings.join("`, `")));
        }
        self.faults.extend(faults);
    }

    /// Notes the faults of a request that a proxy sends to an origin.
    pub fn judge_request(&mut self) {
        self.judge();
        let words = self.words();
        let is_whole = words.len() == 3 && words.iter().all(|w| !w.is_empty()) && words[2].starts_with("HTTP/1.");
        if !is_whole {
            self.faults.push(format!("request line is `{}`", self.start));
        }
        let hosts = self.values("Host").len();
        if hosts > 1 || (hosts == 0 && self.version() == "1.1") {
            self.faults.push(format!("{hosts} Host lines"));
        }
    }

    /// Notes the faults of an answer that a proxy sends to a client of this version.
    pub fn judge_response(&mut self, client_version: &str) {
        self.judge();
        let words = self.words();
        let is_whole = words.len() >= 2 && words[0].starts_with("HTTP/1.") && words[1].len() == 3;
        if !is_whole || self.status() < 100 {
            self.faults.push(format!("status line is `{}`", self.start));
        }
        let has_coding = !self.values("Transfer-Encoding").is_empty();
        if has_coding && (client_version == "1.0" || matches!(self.status(), 100..=199 | 204)) {
            self.faults.push(format!("Transfer-Encoding in a {} answer to HTTP/{client_version}", self.status()));
        }
    }
}

/// All values of a field among these lines.
pub fn values(lines: &[Line], name: &str) -> Vec<String> {
    let named = lines.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes()));
    named.map(|(_, v)| String::from_utf8_lossy(v).into_owned()).collect()
}

fn head_length(bytes: &[u8]) -> Option<usize> {
    let mut start = 0;
    while let Some(length) = bytes[start..].iter().position(|&b| b == b'\n') {
        let line = &bytes[start..start + length];
        start += length + 1;
        if line.is_empty() || line == b"\r" {
            return Some(start);
        }
    }
    None
}

fn lines(raw: &[u8]) -> (Vec<Vec<u8>>, Vec<String>) {
    let mut faults = Vec::new();
    let mut lines = Vec::new();
    for line in raw.split_inclusive(|&b| b == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let text = line.strip_suffix(b"\r").unwrap_or_else(|| {
            faults.push(format!("a line ends in a bare LF: `{}`", line.escape_ascii()));
            line
        });
        if let Some(bad) = text.iter().find(|b| matches!(b, b'\r' | 0)) {
            faults.push(format!("byte 0x{bad:02x} in a line: `{}`", text.escape_ascii()));
        }
        lines.push(text.to_vec());
    }
    (lines, faults)
}

fn field_line(line: &[u8], fields: &mut Vec<Line>, faults: &mut Vec<String>) {
    let Some(colon) = line.iter().position(|&b| b == b':') else {
        faults.push(format!("a field line without colon: `{}`", line.escape_ascii()));
        return;
    };
    let is_token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    if colon == 0 || !line[..colon].iter().all(is_token) {
        faults.push(format!("a field name is no token: `{}`", line.escape_ascii()));
    }
    fields.push((line[..colon].trim_ascii().to_vec(), line[colon + 1..].trim_ascii().to_vec()));
}

/// A body as it comes in.
#[derive(Debug, Clone)]
pub struct Body {
    framing: Framing,
    state: State,
    /// The content so far.
    pub bytes: Vec<u8>,
    /// Fields after the last chunk.
    pub trailers: Vec<Line>,
    /// Faults in its form.
    pub faults: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Content(u64),
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailers,
    UntilClose,
    Done,
}

impl Body {
    /// A body of which nothing came yet.
    pub fn new(framing: Framing) -> Body {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Content(length),
            Framing::Chunked => State::ChunkSize,
            Framing::Close => State::UntilClose,
        };
        Body { framing, state, bytes: Vec::new(), trailers: Vec::new(), faults: Vec::new() }
    }

    /// How its end is told.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Whether all of it came.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The connection ended: says whether that is the body's proper end.
    pub fn end(&mut self) -> bool {
        if self.state == State::UntilClose {
            self.state = State::Done;
        }
        self.is_done()
    }

    /// How far it came, for people.
    pub fn progress(&self) -> String {
        let came = self.bytes.len();
        match self.framing {
            Framing::Length(length) => format!("{came} of {length} body bytes"),
            Framing::Chunked if !self.is_done() => format!("{came} body bytes without the last chunk"),
            Framing::Chunked | Framing::Close | Framing::None => format!("{came} body bytes"),
        }
    }

    /// Takes what belongs to this body from the front of `buffer`.
    pub fn feed(&mut self, buffer: &mut Vec<u8>) {
        while !self.is_done() && self.advance(buffer) {}
    }

    fn advance(&mut self, buffer: &mut Vec<u8>) -> bool {
        match self.state {
            State::Done => false,
            State::UntilClose => {
                self.bytes.append(buffer);
                false
            }
            State::Content(left) => {
                let left = self.content(left, buffer);
                self.state = if left == 0 { State::Done } else { State::Content(left) };
                left == 0
            }
            State::ChunkData(left) => {
                let left = self.content(left, buffer);
                self.state = if left == 0 { State::ChunkEnd } else { State::ChunkData(left) };
                left == 0
            }
            State::ChunkSize => self.line(buffer, Body::chunk_size),
            State::ChunkEnd => self.line(buffer, Body::chunk_end),
            State::Trailers => self.line(buffer, Body::trailer),
        }
    }

    fn content(&mut self, left: u64, buffer: &mut Vec<u8>) -> u64 {
        let count = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.bytes.extend(buffer.drain(..count));
        left - count as u64
    }

    fn line(&mut self, buffer: &mut Vec<u8>, then: fn(&mut Body, &[u8])) -> bool {
        let Some(end) = buffer.iter().position(|&b| b == b'\n') else { return false };
        let line: Vec<u8> = buffer.drain(..=end).collect();
        let line = &line[..end];
        let text = line.strip_suffix(b"\r").unwrap_or_else(|| {
            self.faults.push(format!("a chunk line ends in a bare LF: `{}`", line.escape_ascii()));
            line
        });
        then(self, text);
        true
    }

    fn chunk_size(&mut self, line: &[u8]) {
        let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
        let extension = &line[digits..];
        if !(extension.is_empty() || extension.trim_ascii_start().starts_with(b";")) {
            self.faults.push(format!("chunk size is `{}`", line.escape_ascii()));
        }
        let text = String::from_utf8_lossy(&line[..digits]).into_owned();
        self.state = match u64::from_str_radix(&text, 16) {
            Ok(0) => State::Trailers,
            Ok(size) => State::ChunkData(size),
            Err(_) => {
                self.faults.push(format!("chunk size is `{}`", line.escape_ascii()));
                State::UntilClose
            }
        };
    }

    fn chunk_end(&mut self, line: &[u8]) {
        if !line.is_empty() {
            self.faults.push(format!("a chunk is followed by `{}`", line.escape_ascii()));
        }
        self.state = State::ChunkSize;
    }

    fn trailer(&mut self, line: &[u8]) {
        if line.is_empty() {
            self.state = State::Done;
            return;
        }
        field_line(line, &mut self.trailers, &mut self.faults);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head {
        Head::take(&mut text.as_bytes().to_vec()).expect("a whole head")
    }

    #[test]
    fn reads_what_is_well_formed_without_a_fault() {
        let mut request = head("GET /a HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nx-a: 2\r\n\r\n");
        request.judge_request();
        assert_eq!(request.faults, Vec::<String>::new());
        assert_eq!(request.joined("X-A").as_deref(), Some("1, 2"));
        let mut answer = head("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        answer.judge_response("1.1");
        assert_eq!(answer.faults, Vec::<String>::new());
        assert_eq!(answer.response_framing("GET"), Framing::Chunked);
        assert_eq!(answer.response_framing("HEAD"), Framing::None);
    }

    #[test]
    fn notes_each_fault_of_a_request() {
        let table = [
            ("GET /a HTTP/1.1\nHost: x\r\n\r\n", "bare LF"),
            ("GET /a HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n", "0x0d"),
            ("GET /a HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n", "0x00"),
            ("GET /a HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n", "no token"),
            ("GET /a HTTP/1.1\r\nHost: x\r\nA\r\n\r\n", "without colon"),
            ("GET /a HTTP/1.1\r\nHost: x\r\nA: b\r\n c:d\r\n\r\n", "no token"),
            ("GET /a HTTP/1.1\r\n\r\n", "0 Host"),
            ("GET /a HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "2 Host"),
            ("GET  /a HTTP/1.1\r\nHost: x\r\n\r\n", "request line"),
            ("P /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "both"),
            ("P /a HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\n", "`+1`"),
            ("P /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", "2 Content-Length"),
            ("P /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "gzip"),
        ];
        for (text, fault) in table {
            let mut request = head(text);
            request.judge_request();
            assert!(request.faults.iter().any(|f| f.contains(fault)), "{text:?} {:?}", request.faults);
        }
    }

    #[test]
    fn bodies_come_in_any_slices() {
        let wire = b"5\r\nhello\r\n1;x=y\r\n!\r\n0\r\nT: v\r\n\r\nrest";
        for slice in 1..wire.len() {
            let mut body = Body::new(Framing::Chunked);
            let mut buffer = Vec::new();
            for part in wire.chunks(slice) {
                buffer.extend_from_slice(part);
                body.feed(&mut buffer);
            }
            assert!(body.is_done());
            assert_eq!(body.bytes, b"hello!");
            assert_eq!(values(&body.trailers, "t"), ["v"]);
            assert_eq!(buffer, b"rest");
            assert!(body.faults.is_empty());
        }
    }

    #[test]
    fn an_early_end_is_seen() {
        let mut body = Body::new(Framing::Length(5));
        body.feed(&mut b"abc".to_vec());
        assert!(!body.end());
        let mut body = Body::new(Framing::Close);
        body.feed(&mut b"abc".to_vec());
        assert!(body.end());
    }
}
