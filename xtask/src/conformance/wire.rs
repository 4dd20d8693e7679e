//! Reading HTTP/1.1 messages from bytes, as leniently as a judge may be: it must be able to look at what a product
//! sends even where that is wrong. Nothing of the program under test is used.

/// Fields in order, as received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(pub Vec<(String, String)>);

impl Fields {
    /// All values of a field, joined by a comma; `None` when there is no such field.
    pub fn joined(&self, name: &str) -> Option<String> {
        let values: Vec<&str> = self.values(name).collect();
        if values.is_empty() { None } else { Some(values.join(", ")) }
    }

    /// Whether a list field has this member, whatever its case.
    pub fn has_member(&self, name: &str, member: &str) -> bool {
        self.values(name).flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(member))
    }

    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// A response as the client saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The version of the status line.
    pub version: String,
    /// The status code; 0 when the first line is no status line.
    pub status: u16,
    /// Fields of the head.
    pub fields: Fields,
    /// Fields behind a chunked body.
    pub trailers: Fields,
    /// The content, transfer coding taken off.
    pub content: Vec<u8>,
    /// Whether the message ended as its framing says.
    pub whole: bool,
    /// Statuses of the interim responses before it.
    pub interim: Vec<u16>,
}

/// A request as the origin saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The method.
    pub method: String,
    /// The request target.
    pub target: String,
    /// The version of the request line.
    pub version: String,
    /// Fields of the head.
    pub fields: Fields,
    /// The content, transfer coding taken off.
    pub content: Vec<u8>,
}

/// A body that was taken from the bytes behind a head.
struct Body {
    content: Vec<u8>,
    trailers: Fields,
    used: usize,
    whole: bool,
}

impl Body {
    fn empty() -> Body {
        Body { content: Vec::new(), trailers: Fields::default(), used: 0, whole: true }
    }
}

/// Reads one final response; `None` while more bytes may come. Interim responses before it are taken with it.
pub fn read_reply(bytes: &[u8], to_head: bool, at_end: bool) -> Option<(Reply, usize)> {
    let (mut from, mut interim) = (0, Vec::new());
    loop {
        let rest = &bytes[from..];
        let Some((first, fields, head)) = read_head(rest) else {
            let broken = Reply { content: rest.to_vec(), interim, ..Reply::default() };
            return (at_end && !rest.is_empty()).then_some((broken, bytes.len()));
        };
        let mut words = first.splitn(3, ' ');
        let version = words.next().unwrap_or_default().to_owned();
        let status = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        from += head;
        if (100..200).contains(&status) && status != 101 {
            interim.push(status);
            continue;
        }
        let has_none = to_head || matches!(status, 204 | 304);
        let body = if has_none { Body::empty() } else { reply_body(&fields, &bytes[from..], at_end)? };
        let Body { content, trailers, used, whole } = body;
        return Some((Reply { version, status, fields, trailers, content, whole, interim }, from + used));
    }
}

/// Reads one request; `None` while more bytes may come.
pub fn read_request(bytes: &[u8]) -> Option<(Asked, usize)> {
    let (first, fields, head) = read_head(bytes)?;
    let mut words = first.splitn(3, ' ').map(str::to_owned);
    let mut word = || words.next().unwrap_or_default();
    let (method, target, version) = (word(), word(), word());
    let rest = &bytes[head..];
    let body = if fields.joined("transfer-encoding").is_some() {
        read_chunks(rest).or_else(|| is_no_chunk(rest).then(Body::empty))?
    } else {
        let length = content_length(&fields).unwrap_or(0);
        let content = rest.get(..length)?.to_vec();
        Body { content, used: length, ..Body::empty() }
    };
    Some((Asked { method, target, version, fields, content: body.content }, head + body.used))
}

/// Only the head of a request that waits for `100 Continue`.
pub fn awaits_continue(bytes: &[u8]) -> bool {
    read_head(bytes).is_some_and(|(_, fields, _)| fields.has_member("expect", "100-continue"))
}

fn reply_body(fields: &Fields, rest: &[u8], at_end: bool) -> Option<Body> {
    if fields.has_member("transfer-encoding", "chunked") {
        let cut = || Body { content: rest.to_vec(), used: rest.len(), whole: false, ..Body::empty() };
        return read_chunks(rest).or_else(|| at_end.then(cut));
    }
    let Some(length) = content_length(fields) else {
        let all = Body { content: rest.to_vec(), used: rest.len(), ..Body::empty() };
        return at_end.then_some(all);
    };
    if rest.len() < length && !at_end {
        return None;
    }
    let used = length.min(rest.len());
    Some(Body { content: rest[..used].to_vec(), used, whole: used == length, ..Body::empty() })
}

fn content_length(fields: &Fields) -> Option<usize> {
    fields.joined("content-length")?.split(',').next()?.trim().parse().ok()
}

/// The first line and the fields up to the empty line; line ends may be bare.
fn read_head(bytes: &[u8]) -> Option<(String, Fields, usize)> {
    let (mut at, mut lines) = (0, Vec::new());
    loop {
        let (line, next) = read_line(bytes, at)?;
        at = next;
        match (line.is_empty(), lines.is_empty()) {
            (true, true) => {}
            (true, false) => break,
            (false, _) => lines.push(line),
        }
    }
    let mut lines = lines.into_iter();
    Some((lines.next()?, read_fields(lines), at))
}

fn read_fields(lines: impl Iterator<Item = String>) -> Fields {
    let field = |line: String| {
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        (name.to_owned(), value.trim().to_owned())
    };
    Fields(lines.map(field).collect())
}

fn read_line(bytes: &[u8], at: usize) -> Option<(String, usize)> {
    let length = bytes[at..].iter().position(|byte| *byte == b'\n')?;
    let line = &bytes[at..at + length];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    Some((String::from_utf8_lossy(line).into_owned(), at + length + 1))
}

fn is_no_chunk(rest: &[u8]) -> bool {
    rest.first().is_some_and(|byte| !byte.is_ascii_hexdigit())
}

fn read_chunks(rest: &[u8]) -> Option<Body> {
    let (mut at, mut content) = (0, Vec::new());
    loop {
        let (line, next) = read_line(rest, at)?;
        let size = usize::from_str_radix(line.split(';').next()?.trim(), 16).ok()?;
        at = next;
        if size == 0 {
            break;
        }
        content.extend_from_slice(rest.get(at..at.checked_add(size)?)?);
        at = read_line(rest, at + size)?.1;
    }
    let mut lines = Vec::new();
    loop {
        let (line, next) = read_line(rest, at)?;
        at = next;
        if line.is_empty() {
            let trailers = read_fields(lines.into_iter());
            return Some(Body { content, trailers, used: at, whole: true });
        }
        lines.push(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_read_when_they_are_whole_and_no_earlier() {
        let bytes = b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nT: 1\r\n\r\nHTTP";
        for end in 0..bytes.len() - 4 {
            assert_eq!(read_reply(&bytes[..end], false, false), None, "{end}");
        }
        let (reply, used) = read_reply(bytes, false, false).unwrap();
        assert_eq!((reply.status, &reply.content[..], used), (200, &b"abc"[..], bytes.len() - 4));
        assert_eq!((reply.interim, reply.trailers.joined("t")), (vec![103], Some("1".to_owned())));
        assert_eq!(reply.version, "HTTP/1.1");
    }

    #[test]
    fn ends_that_come_too_early_are_seen() {
        for (bytes, whole) in [
            (&b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"[..], false),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", true),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", false),
            (b"HTTP/1.1 200 OK\r\n\r\nabc", true),
            (b"HTTP/1.1 20", false),
        ] {
            let (reply, _) = read_reply(bytes, false, true).unwrap();
            assert_eq!(reply.whole, whole, "{}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(read_reply(b"", false, true), None);
    }

    #[test]
    fn requests_are_read_with_their_content() {
        let bytes = b"\r\nPOST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET";
        let (asked, used) = read_request(bytes).unwrap();
        assert_eq!((asked.method.as_str(), asked.target.as_str(), &asked.content[..]), ("POST", "/a", &b"abc"[..]));
        assert_eq!(used, bytes.len() - 3);
        assert_eq!(read_request(&bytes[..used - 1]), None);
        let chunked = b"PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
        assert_eq!(read_request(chunked).unwrap().0.content, b"ab");
    }
}
