//! Bytes to heads. Strict as RFC 9112: what two readers could understand differently is refused.
//!
//! The search for line ends and the start line are ours; the field lines go through `httparse` as the
//! tokeniser. `httparse` takes a bare LF for a line end, and an intermediary must not: the next reader
//! may see one field where we saw two. So every LF is checked for its CR before the tokeniser runs.
//!
//! While a head is [`Parsed::Partial`], read more and call again with the longer buffer. The free
//! functions [`request`] and [`response`] look at the whole buffer each time, which suits heads that come
//! in one or two reads; a [`HeadScan`] remembers how far it has looked, so a head that trickles in
//! byte by byte costs each byte once. Both give the same answers: a fault is found at the same byte
//! whatever the pieces are, and a limit is enforced before the head is complete.
//!
//! Refused here: line ends other than CR LF, control bytes, folded lines (400 in a request, 502 in a
//! response: RFC 9112 section 5.2 permits either to refuse), white space before a colon, targets and
//! `Host` fields of the wrong form. Where a body ends is the business of [`crate::framing`].

use crate::fields::{Only, is_token};
use crate::head::ParsedHost;
use crate::target::{self, authority_parts};
use crate::{Fault, FaultKind, Fields, Host, Method, Reason, RequestHead, ResponseHead, Side, Target, Version};

/// How large a head may be. The same limits hold for requests and responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes of a whole head: empty lines before it, start line, fields, and the empty line that ends it.
    pub head_bytes_max: usize,
    /// Bytes of the start line without its CR LF; in a request nearly all of it is the target.
    pub target_bytes_max: usize,
    /// Number of field lines.
    pub fields_max: usize,
}

impl Default for HeadLimits {
    fn default() -> HeadLimits {
        HeadLimits { head_bytes_max: 64 * 1024, target_bytes_max: 16 * 1024, fields_max: 128 }
    }
}

/// The state of a parse after the bytes so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<T> {
    /// A whole head.
    Complete {
        /// The head.
        head: T,
        /// How many bytes it took; the body, or the next message, begins there.
        len: usize,
    },
    /// All right as far as it goes, but not a whole head yet.
    Partial,
}

/// Reads the request head at the start of `buf`. Up to two empty lines before it are skipped
/// (RFC 9112 section 2.2 asks for at least one).
pub fn request(buf: &[u8], limits: &HeadLimits) -> Result<Parsed<RequestHead>, Fault> {
    HeadScan::new().request(buf, limits)
}

/// Reads the response head at the start of `buf`.
pub fn response(buf: &[u8], limits: &HeadLimits) -> Result<Parsed<ResponseHead>, Fault> {
    HeadScan::new().response(buf, limits)
}

/// How far the search for the end of a head has come. Keep one for each connection: it begins anew by
/// itself after each complete head.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadScan {
    /// Bytes that have been looked at.
    scanned: usize,
    /// Where the current line begins.
    line_at: usize,
    /// Where the start line begins.
    start_at: usize,
    /// Where the first field line begins; 0 while the start line is not complete.
    fields_at: usize,
    /// Field lines that are complete.
    lines: usize,
    /// Empty lines before the start line.
    empty_lines: u8,
}

const EMPTY_LINES_MAX: u8 = 2;

impl HeadScan {
    /// Nothing looked at yet.
    pub fn new() -> HeadScan {
        HeadScan::default()
    }

    /// As the function [`request`]; `buf` begins with the bytes of the last call.
    pub fn request(&mut self, buf: &[u8], limits: &HeadLimits) -> Result<Parsed<RequestHead>, Fault> {
        Ok(match self.request_after(&mut None, buf, limits)? {
            Parsed::Complete { head, len } => Parsed::Complete { head: *head, len },
            Parsed::Partial => Parsed::Partial,
        })
    }

    /// Like [`HeadScan::request`], for a caller that still has an earlier head of the same connection as it was read: a
    /// client's next request most often differs in its target only, and fields that are the same byte for byte need not
    /// be read again. A head that serves is taken, and comes back with the new target.
    pub fn request_after(
        &mut self,
        before: &mut Option<Box<RequestHead>>,
        buf: &[u8],
        limits: &HeadLimits,
    ) -> Result<Parsed<Box<RequestHead>>, Fault> {
        let mut start = None;
        if self.fields_at == 0 {
            self.skip_empty_lines(buf)?;
            if buf.get(self.start_at).is_some_and(|&byte| !crate::fields::is_token_byte(byte) && byte != b'\r') {
                return Err(Fault::client(FaultKind::RequestLine, "the request does not begin with a method"));
            }
            if !self.find_start_line(buf, limits, Side::Client)? {
                return Ok(Parsed::Partial);
            }
            if let Some(head) = self.as_before(before, buf, limits) {
                return Ok(Parsed::Complete { head, len: self.restart() });
            }
            let (method, target, version) = request_line(self.start_line(buf))?;
            if let Some(fields) = self.fields_at_once(buf, limits) {
                let parsed_host = check_host(version, &fields)?;
                let head = Box::new(RequestHead { method, target, version, fields, parsed_host });
                return Ok(Parsed::Complete { head, len: self.restart() });
            }
            start = Some((method, target, version));
        }
        if !self.find_end(buf, limits, Side::Client)? {
            return Ok(Parsed::Partial);
        }
        let (method, target, version) = match start {
            Some(start) => start,
            None => request_line(self.start_line(buf))?,
        };
        let fields = self.fields(buf, Side::Client)?;
        let parsed_host = check_host(version, &fields)?;
        let head = Box::new(RequestHead { method, target, version, fields, parsed_host });
        Ok(Parsed::Complete { head, len: self.restart() })
    }

    /// As the function [`response`]; `buf` begins with the bytes of the last call.
    pub fn response(&mut self, buf: &[u8], limits: &HeadLimits) -> Result<Parsed<ResponseHead>, Fault> {
        let mut start = None;
        if self.fields_at == 0 {
            if buf.iter().zip(b"HTTP/").any(|(found, wanted)| found != wanted) {
                return Err(Fault::origin(FaultKind::StatusLine, "the response does not begin with HTTP/"));
            }
            if !self.find_start_line(buf, limits, Side::Origin)? {
                return Ok(Parsed::Partial);
            }
            let (version, status, reason) = status_line(self.start_line(buf))?;
            if let Some(fields) = self.fields_at_once(buf, limits) {
                let head = ResponseHead { status, reason, version, fields };
                return Ok(Parsed::Complete { head, len: self.restart() });
            }
            start = Some((version, status, reason));
        }
        if !self.find_end(buf, limits, Side::Origin)? {
            return Ok(Parsed::Partial);
        }
        let (version, status, reason) = match start {
            Some(start) => start,
            None => status_line(self.start_line(buf))?,
        };
        let fields = self.fields(buf, Side::Origin)?;
        Ok(Parsed::Complete { head: ResponseHead { status, reason, version, fields }, len: self.restart() })
    }

    /// Passes over CR LF before a request, which some clients send after a body.
    fn skip_empty_lines(&mut self, buf: &[u8]) -> Result<(), Fault> {
        while let [b'\r', second, ..] = &buf[self.start_at..] {
            if *second != b'\n' {
                return Err(Fault::client(FaultKind::LineEnd, "CR without LF before the request"));
            }
            if self.empty_lines == EMPTY_LINES_MAX {
                return Err(Fault::client(FaultKind::RequestLine, "more than two empty lines before the request"));
            }
            self.empty_lines += 1;
            self.start_at += 2;
            self.line_at = self.start_at;
            self.scanned = self.start_at;
        }
        match buf.get(self.start_at) {
            Some(b'\n') => Err(Fault::client(FaultKind::LineEnd, "LF without CR before the request")),
            _ => Ok(()),
        }
    }

    /// True when the start line is complete.
    fn find_start_line(&mut self, buf: &[u8], limits: &HeadLimits, side: Side) -> Result<bool, Fault> {
        let line_limit = self.start_at.saturating_add(limits.target_bytes_max).saturating_add(2);
        let window = &buf[..buf.len().min(line_limit).min(limits.head_bytes_max)];
        if let Some(end) = self.next_line_end(window, side)? {
            self.fields_at = end;
            return Ok(true);
        }
        if window.len() >= line_limit {
            let kind = if side == Side::Client { FaultKind::TargetTooLong } else { FaultKind::HeadTooLong };
            return Err(Fault { side, kind, detail: "the start line is longer than target_bytes_max" });
        }
        self.check_head_len(window, limits, side)
    }

    /// True when the empty line that ends the head has come.
    fn find_end(&mut self, buf: &[u8], limits: &HeadLimits, side: Side) -> Result<bool, Fault> {
        let window = &buf[..buf.len().min(limits.head_bytes_max)];
        let unseen_at = self.scanned;
        for lf in memchr::memchr_iter(b'\n', window.get(unseen_at..).unwrap_or_default()) {
            let line_at = self.line_at;
            self.end_line(window, unseen_at + lf, side)?;
            if self.line_at == line_at + 2 {
                return Ok(true);
            }
            self.lines += 1;
            if self.lines > limits.fields_max {
                return Err(Fault { side, kind: FaultKind::TooManyFields, detail: "more fields than fields_max" });
            }
        }
        self.scanned = self.scanned.max(window.len());
        self.check_head_len(window, limits, side)
    }

    /// The place after the next CR LF.
    fn next_line_end(&mut self, window: &[u8], side: Side) -> Result<Option<usize>, Fault> {
        let unseen = window.get(self.scanned..).unwrap_or_default();
        let Some(lf) = memchr::memchr(b'\n', unseen).map(|at| self.scanned + at) else {
            self.scanned = self.scanned.max(window.len());
            return Ok(None);
        };
        self.end_line(window, lf, side)?;
        Ok(Some(lf + 1))
    }

    /// Every LF passes here, and one without its CR is refused.
    fn end_line(&mut self, window: &[u8], lf: usize, side: Side) -> Result<(), Fault> {
        if lf == self.line_at || window[lf - 1] != b'\r' {
            return Err(Fault { side, kind: FaultKind::LineEnd, detail: "a line ends in LF without CR" });
        }
        self.scanned = lf + 1;
        self.line_at = lf + 1;
        Ok(())
    }

    /// Partial (`false`) while there is room for more.
    fn check_head_len(&self, window: &[u8], limits: &HeadLimits, side: Side) -> Result<bool, Fault> {
        if window.len() < limits.head_bytes_max {
            return Ok(false);
        }
        Err(Fault { side, kind: FaultKind::HeadTooLong, detail: "the head is longer than head_bytes_max" })
    }

    /// The start line without its CR LF.
    fn start_line<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        &buf[self.start_at..self.fields_at - 2]
    }

    /// The fields where all of them are here, as in nearly every head: the tokeniser finds their ends itself. Tried
    /// once for each head. Where they are not all here, or not as they must be, the caller looks at them line by line.
    fn fields_at_once(&mut self, buf: &[u8], limits: &HeadLimits) -> Option<Fields> {
        let rest = buf.get(self.fields_at..buf.len().min(limits.head_bytes_max))?;
        let mut slots = [httparse::EMPTY_HEADER; FEW_FIELDS];
        let slots = &mut slots[..FEW_FIELDS.min(limits.fields_max)];
        let Ok(httparse::Status::Complete((len, headers))) = httparse::parse_headers(rest, slots) else { return None };
        let block = &rest[..len];
        if has_bare_lf(block) {
            return None;
        }
        self.scanned = self.fields_at + len;
        Some(Fields::from_block(block, headers))
    }

    /// The head before, if all but the target is said again: the fields passed every check when they were read, and end with
    /// the same empty line.
    fn as_before(
        &mut self,
        before: &mut Option<Box<RequestHead>>,
        buf: &[u8],
        limits: &HeadLimits,
    ) -> Option<Box<RequestHead>> {
        let (head, rest) = (before.as_ref()?, buf.get(self.fields_at..)?);
        let block = head.fields.block()?;
        let len = self.fields_at + block.len();
        let fits = len <= limits.head_bytes_max && head.fields.len() <= limits.fields_max;
        let usual = head.method == Method::Get && head.version == Version::Http11;
        if !usual || !fits || !rest.starts_with(block) {
            return None;
        }
        let target = self.start_line(buf).strip_prefix(BEFORE_TARGET)?.strip_suffix(BEHIND_TARGET)?;
        let next = match &head.target {
            Target::Origin(path) if path.as_bytes() == target => NextTarget::Same,
            before => match before.path_in(target) {
                Some(path) => NextTarget::Path(path),
                None => NextTarget::Other(target::of_method(&Method::Get, target).ok()?),
            },
        };
        let mut head = before.take()?;
        match next {
            NextTarget::Same => {}
            NextTarget::Path(path) => head.target.set_path(path),
            NextTarget::Other(target) => head.target = target,
        }
        self.scanned = len;
        Some(head)
    }

    fn fields(&self, buf: &[u8], side: Side) -> Result<Fields, Fault> {
        tokenise(&buf[self.fields_at..self.scanned], self.lines).map_err(|(kind, detail)| Fault { side, kind, detail })
    }

    /// Gives the length of the head and forgets it.
    fn restart(&mut self) -> usize {
        std::mem::take(self).scanned
    }
}

/// The target of a request, compared with that of the request before.
enum NextTarget<'a> {
    Same,
    /// The same but for this path.
    Path(&'a str),
    Other(Target),
}

/// Of nearly every request line.
const BEFORE_TARGET: &[u8] = b"GET ";
const BEHIND_TARGET: &[u8] = b" HTTP/1.1";

/// So many need no memory of their own while they are found.
const FEW_FIELDS: usize = 24;

/// Whether a line of a block ends without CR. No early end, so that many bytes are looked at in one step.
fn has_bare_lf(block: &[u8]) -> bool {
    let pairs = block.iter().zip(block.get(1..).unwrap_or_default());
    block.first() == Some(&b'\n')
        || pairs.fold(false, |bare, (&before, &byte)| bare | (byte == b'\n' && before != b'\r'))
}

/// Reads a block of `lines` field lines and the empty line after them. Trailers are read by it too.
pub(crate) fn tokenise(block: &[u8], lines: usize) -> Result<Fields, (FaultKind, &'static str)> {
    let mut few = [httparse::EMPTY_HEADER; FEW_FIELDS];
    let mut many = Vec::new();
    let slots = match few.get_mut(..lines) {
        Some(slots) => slots,
        None => {
            many.resize(lines, httparse::EMPTY_HEADER);
            &mut many[..]
        }
    };
    match httparse::parse_headers(block, slots) {
        Ok(httparse::Status::Complete((len, headers))) if len == block.len() => Ok(Fields::from_block(block, headers)),
        _ => Err(field_fault(block)),
    }
}

/// Says what is wrong with a block that the tokeniser refused.
#[cold]
fn field_fault(block: &[u8]) -> (FaultKind, &'static str) {
    if memchr::memchr_iter(b'\r', block).any(|at| block.get(at + 1) != Some(&b'\n')) {
        return (FaultKind::LineEnd, "CR without LF in the fields");
    }
    for line in block.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let name = &line[..memchr::memchr(b':', line).unwrap_or(line.len())];
        let detail = match name {
            _ if line.is_empty() => continue,
            [b' ' | b'\t', ..] => "a folded field line, or white space before a field name",
            _ if name.len() == line.len() => "a field line without a colon",
            [] => "a field line without a name",
            [.., b' ' | b'\t'] => "white space between field name and colon",
            _ if !is_token(name) => "a field name that is no token",
            _ => continue,
        };
        return (FaultKind::FieldLine, detail);
    }
    (FaultKind::FieldLine, "a control byte in a field value")
}

/// `method SP target SP version`, each separated by exactly one space (RFC 9112 section 3).
fn request_line(line: &[u8]) -> Result<(Method, Target, Version), Fault> {
    // Nearly all of them: a target that is one has no space and no control byte, so nothing is left to be looked for.
    let usual = line.strip_prefix(BEFORE_TARGET).and_then(|rest| rest.strip_suffix(BEHIND_TARGET));
    if let Some(Ok(target)) = usual.map(|target| target::of_method(&Method::Get, target)) {
        return Ok((Method::Get, target, Version::Http11));
    }
    let refuse = |detail| Err(Fault::client(FaultKind::RequestLine, detail));
    if memchr::memchr(b'\r', line).is_some() {
        return Err(Fault::client(FaultKind::LineEnd, "CR without LF in the request line"));
    }
    let Some((first, last)) = memchr::memchr(b' ', line).zip(memchr::memrchr(b' ', line)) else {
        return refuse("no space in the request line");
    };
    if first == last {
        return refuse("a request line without a version; HTTP/0.9 is not spoken here");
    }
    let (method, target, version) = (&line[..first], &line[first + 1..last], &line[last + 1..]);
    if !is_token(method) {
        return refuse("the method is no token");
    }
    let version = read_version(version, Side::Client, FaultKind::RequestLine)?;
    if target.is_empty() || memchr::memchr(b' ', target).is_some() {
        return refuse("more than two spaces in the request line");
    }
    let method = Method::from_token(std::str::from_utf8(method).unwrap_or_default());
    let target = target::of_method(&method, target)?;
    Ok((method, target, version))
}

/// `version SP status SP [reason]` (RFC 9112 section 4). The space before an empty reason may be missing:
/// many servers leave it out, and nothing else can be meant.
fn status_line(line: &[u8]) -> Result<(Version, u16, Reason), Fault> {
    let refuse = |detail| Err(Fault::origin(FaultKind::StatusLine, detail));
    if memchr::memchr(b'\r', line).is_some() {
        return Err(Fault::origin(FaultKind::LineEnd, "CR without LF in the status line"));
    }
    let Some((version, rest)) = line.split_at_checked(8) else {
        return refuse("the status line is shorter than a version");
    };
    let version = read_version(version, Side::Origin, FaultKind::StatusLine)?;
    let (digits, reason) = match rest {
        [b' ', a, b, c] => ([a, b, c], &[][..]),
        [b' ', a, b, c, b' ', reason @ ..] => ([a, b, c], reason),
        _ => return refuse("the status line is not version, status, reason with one space between"),
    };
    if *digits[0] == b'0' || !digits.iter().all(|digit| digit.is_ascii_digit()) {
        return refuse("the status is not a number from 100 to 999");
    }
    if reason.iter().any(|&byte| byte != b'\t' && (byte < b' ' || byte == 0x7f)) {
        return refuse("a control byte in the reason phrase");
    }
    let status = digits.iter().fold(0, |status, digit| status * 10 + u16::from(**digit - b'0'));
    Ok((version, status, Reason::of_bytes(status, reason)))
}

/// `HTTP/1.x`, exactly and in upper case. A minor version above 1 is read as 1.1 (RFC 9110 section 2.5).
fn read_version(text: &[u8], side: Side, malformed: FaultKind) -> Result<Version, Fault> {
    match text {
        b"HTTP/1.1" => Ok(Version::Http11),
        b"HTTP/1.0" => Ok(Version::Http10),
        [b'H', b'T', b'T', b'P', b'/', major @ b'0'..=b'9', b'.', b'0'..=b'9'] => match major {
            b'1' => Ok(Version::Http11),
            _ => Err(Fault { side, kind: FaultKind::Version, detail: "only HTTP/1.0 and HTTP/1.1 are spoken here" }),
        },
        _ => Err(Fault { side, kind: malformed, detail: "the version is not of the form HTTP/1.1" }),
    }
}

/// Exactly one `Host` in HTTP/1.1, at most one in HTTP/1.0, and a host with an optional port in it
/// (RFC 9112 section 3.2). An empty one is refused too: no http URL has an empty host.
fn check_host(version: Version, fields: &Fields) -> Result<ParsedHost, Fault> {
    let refuse = |detail| Err(Fault::client(FaultKind::Host, detail));
    let value = match fields.only("Host") {
        Only::One(value) => value,
        Only::None if version == Version::Http10 => return Ok(ParsedHost::default()),
        Only::None => return refuse("no Host field"),
        Only::Several => return refuse("two Host fields"),
    };
    match authority_parts(value) {
        Some((host, port)) => Ok(ParsedHost(Host::of_ascii(host).map(|host| (host, port)))),
        None => refuse("the Host field is no host with an optional port"),
    }
}
