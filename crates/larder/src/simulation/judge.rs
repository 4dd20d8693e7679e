//! The laws of one answer: it is of the object and variant that were asked for, its bytes are those of one version, it is no older
//! than the last purge, and it comes when it can.

use super::law::{self, Body};
use super::message::{BodyEnd, Message};
use super::origin::name_of;
use super::plan::{Action, ConnectionPlan, Step, UploadFraming};
use super::world::World;
use std::time::Duration;
use tokio::time::Instant;

/// How long an answer may take once all is there: the runtime's clock stands still meanwhile, up to the millisecond of a timer.
const AT_ONCE: Duration = Duration::from_millis(20);

/// A request as it was sent.
#[derive(Clone, Debug)]
pub struct Asked {
    method: &'static str,
    target: String,
    /// Lines of its head.
    pub fields: Vec<String>,
    version: &'static str,
    /// The tag of its condition.
    tag: Option<String>,
    /// Answers of the origin with a lower serial number were purged before.
    serial_min: usize,
    /// The serial number of the origins' next answer.
    serial_next: usize,
}

/// An answer as it came.
pub struct Got<'a> {
    /// Its head.
    pub head: &'a Message,
    /// Its body, as far as it came.
    pub body: &'a [u8],
    /// How that ended.
    pub end: BodyEnd,
    /// When the request was whole, and the answer before it; `None` where the request was not.
    pub sent: Option<Instant>,
}

/// The method of a request.
pub fn method_of(step: &Step) -> &'static str {
    match step.action {
        Action::Get | Action::Upgrade => "GET",
        Action::Head => "HEAD",
        Action::Post(..) => "POST",
        Action::Purge => "PURGE",
        Action::Connect => "CONNECT",
        Action::Garbage => "\u{1}",
    }
}

/// The path of an object.
pub fn path_of(object: usize) -> String {
    format!("/of/{object}")
}

/// The bytes of an upload.
pub fn upload_of(step: &Step, length: u64) -> Vec<u8> {
    Body { object: step.object, version: 0, variant: 'u' }.bytes(5, 5 + length)
}

/// The answer that the origin gives to an upload.
fn echo_of(step: &Step, length: u64) -> String {
    format!("{length} {}", law::sum(&upload_of(step, length)))
}

impl Asked {
    /// The request of a step, now.
    pub fn of(world: &World, step: &Step) -> Asked {
        let object = &world.plan.objects[step.object];
        let host = name_of(object.host);
        let target = match step.action {
            Action::Connect => format!("{host}:80"),
            _ => format!("http://{host}{}", path_of(step.object)),
        };
        let mut fields = vec![format!("Host: {host}"), format!("X-Want: {}", step.variant)];
        fields.extend(step.field.map(str::to_owned));
        let variant = if object.varies { step.variant } else { '-' };
        let version = world.versions.borrow()[step.object];
        let has_condition = step.has_condition && matches!(step.action, Action::Get | Action::Head);
        let tag = has_condition.then(|| Body { object: step.object, version, variant }.tag());
        fields.extend(tag.iter().map(|tag| format!("If-None-Match: {tag}")));
        if !step.ranges.is_empty() {
            let ranges: Vec<String> = step.ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect();
            fields.push(format!("Range: bytes={}", ranges.join(", ")));
        }
        match step.action {
            Action::Upgrade => fields.extend(["Connection: upgrade", "Upgrade: echo"].map(str::to_owned)),
            Action::Post(_, UploadFraming::Chunked) => fields.push("Transfer-Encoding: chunked".to_owned()),
            Action::Post(length, framing) => {
                fields.push(format!("Content-Length: {length}"));
                if framing == UploadFraming::Expects {
                    fields.push("Expect: 100-continue".to_owned());
                }
            }
            _ => {}
        }
        let is_1_0 = step.is_http_1_0 && matches!(step.action, Action::Get | Action::Head);
        Asked {
            method: method_of(step),
            target,
            fields,
            version: if is_1_0 { "HTTP/1.0" } else { "HTTP/1.1" },
            tag,
            serial_min: world.purged.borrow()[step.object],
            serial_next: world.sent.borrow().len(),
        }
    }

    /// The first line.
    pub fn line(&self) -> String {
        format!("{} {} {}", self.method.escape_default(), self.target, self.version)
    }

    /// The bytes of the head.
    pub fn head(&self) -> Vec<u8> {
        let fields: String = self.fields.iter().map(|line| format!("{line}\r\n")).collect();
        format!("{} {} {}\r\n{fields}\r\n", self.method, self.target, self.version).into_bytes()
    }
}

/// Judges an answer.
pub fn judge(world: &World, connection: &ConnectionPlan, step: &Step, asked: &Asked, got: &Got<'_>) {
    let judged = Judged { world, connection, step, asked, got };
    if let Err((law, seen)) = judged.judge() {
        let head =
            got.head.fields.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join(", ");
        world.broken(law, format!("{seen}; asked {}; got {} [{head}]", asked.line(), got.head.first));
    }
}

type Verdict = Result<(), (&'static str, String)>;

const BYTES: &str = "each byte is the right one";
const FRAMED: &str = "an answer that is not whole does not look whole";

struct Judged<'a> {
    world: &'a World,
    connection: &'a ConnectionPlan,
    step: &'a Step,
    asked: &'a Asked,
    got: &'a Got<'a>,
}

impl Judged<'_> {
    fn judge(&self) -> Verdict {
        let Got { head, end, .. } = self.got;
        let status = head.status();
        if !head.first.starts_with("HTTP/1.1 ") || !(200..600).contains(&status) && status != 101 {
            return Err(("an answer is HTTP", String::new()));
        }
        let is_calm = self.world.plan.is_calm && self.connection.leaves.is_none();
        // An object that changes between two parts of an answer can't be told to its end.
        let has_changed = self.world.versions.borrow()[self.step.object] > 1;
        if is_calm && *end == BodyEnd::Broken && !has_changed {
            return Err(("nothing fails where nothing is wrong", "the body breaks off".to_owned()));
        }
        match self.step.action {
            Action::Garbage => return Ok(()),
            Action::Purge if status == 200 => {
                let mut purged = self.world.purged.borrow_mut();
                purged[self.step.object] = purged[self.step.object].max(self.asked.serial_next);
                return Ok(());
            }
            Action::Connect if status == 200 => return self.tunnelled(),
            Action::Upgrade if status == 101 => return self.upgraded(),
            _ => {}
        }
        if status == 304 && self.asked.tag.is_some() && head.field("ETag") == self.asked.tag.as_deref() {
            // It has few fields of the response (RFC 9110 section 15.4.5).
            return self.prompt();
        }
        if head.field("X-Object").is_some() {
            self.of_object()?;
            return self.prompt();
        }
        if head.field("X-Posted").is_some() {
            return self.posted();
        }
        if head.field("X-Serial").is_some() {
            let is_right = b"oops".starts_with(self.got.body);
            return if is_right { Ok(()) } else { Err((BYTES, "not the body of an error".to_owned())) };
        }
        if is_calm {
            return Err(("nothing fails where nothing is wrong", "an error page".to_owned()));
        }
        Ok(())
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T, (&'static str, String)> {
        let value = self.got.head.field(name).and_then(|value| value.parse().ok());
        value.ok_or_else(|| ("an origin's fields are passed on", format!("no {name}")))
    }

    fn of_object(&self) -> Verdict {
        let Got { head, .. } = self.got;
        let body = Body {
            object: self.number("X-Object")?,
            version: self.number("X-Version")?,
            variant: self.number("X-Variant")?,
        };
        let object = &self.world.plan.objects[self.step.object];
        let variant = if object.varies { self.step.variant } else { '-' };
        if body.object != self.step.object || body.variant != variant {
            return Err((BYTES, format!("it is {body:?}")));
        }
        let serial: usize = self.number("X-Serial")?;
        if self.world.sent.borrow().get(serial).is_none_or(|sent| *sent != body) {
            return Err((
                "the fields of an answer are those of one response",
                format!("{body:?}, serial number {serial}"),
            ));
        }
        if serial < self.asked.serial_min {
            return Err(("a purge holds", format!("serial number {serial}, purged up to {}", self.asked.serial_min)));
        }
        match head.status() {
            200 => self.bytes_of(body, 0, self.got.body, body.length(object)),
            206 => self.parts_of(body, body.length(object)),
            status => Err(("an answer has the status of its request", format!("{status} for {:?}", self.asked.tag))),
        }
    }

    /// Whether bytes are those of a body from one place on, and as many as there must be up to `end`.
    fn bytes_of(&self, body: Body, at: u64, bytes: &[u8], end: u64) -> Verdict {
        let Got { head, end: ended, .. } = self.got;
        if let Some(place) = body.differs(at, bytes) {
            return Err((BYTES, format!("{body:?} differs at {place}")));
        }
        if self.asked.method == "HEAD" {
            let length = head.field("Content-Length").and_then(|length| length.parse().ok()).unwrap_or(end);
            return if length == end { Ok(()) } else { Err((FRAMED, format!("HEAD: {length} of {end} bytes"))) };
        }
        let length = at + bytes.len() as u64;
        let is_right = if *ended == BodyEnd::Broken { length <= end } else { length == end };
        if is_right { Ok(()) } else { Err((FRAMED, format!("{length} of {end} bytes, {ended:?}"))) }
    }

    fn parts_of(&self, body: Body, length: u64) -> Verdict {
        let Got { head, body: bytes, end, .. } = self.got;
        let wrong = |what: &str| Err(("a part is the part that was asked for", what.to_owned()));
        if self.step.ranges.is_empty() {
            return wrong("nobody asked for a part");
        }
        if let Some(range) = head.field("Content-Range") {
            let Some((first, last, whole)) = content_range(range) else { return wrong(range) };
            // Ranges that overlap may come as one.
            let begins = self.step.ranges.iter().any(|(from, _)| *from == first);
            let ends = self.step.ranges.iter().any(|(_, to)| (*to).min(length - 1) == last);
            if whole != length || !begins || !ends {
                return wrong(range);
            }
            return self.bytes_of(body, first, bytes, last + 1);
        }
        if *end == BodyEnd::Broken {
            return Ok(());
        }
        let boundary = head.field("Content-Type").and_then(|kind| kind.split("boundary=").nth(1)).unwrap_or_default();
        let mut rest = *bytes;
        while let Some(start) = find(rest, b"Content-Range: ") {
            let Some(end) = find(&rest[start..], b"\r\n\r\n") else { return wrong("a part without an end") };
            let fields = String::from_utf8_lossy(&rest[start + 15..start + end]).into_owned();
            let range = fields.split("\r\n").next().unwrap_or_default();
            let Some((first, last, whole)) = content_range(range) else { return wrong(range) };
            rest = &rest[start + end + 4..];
            let count = (last + 1 - first) as usize;
            if whole != length || rest.len() < count || body.differs(first, &rest[..count]).is_some() {
                return Err((BYTES, format!("the part {range}")));
            }
            rest = &rest[count..];
        }
        let is_closed = find(rest, format!("--{boundary}--").as_bytes()).is_some();
        if is_closed { Ok(()) } else { wrong("no last boundary") }
    }

    fn posted(&self) -> Verdict {
        let Action::Post(length, _) = self.step.action else {
            return Err((BYTES, "the answer to an upload".to_owned()));
        };
        let wanted = echo_of(self.step, length);
        let is_right = match self.got.end {
            BodyEnd::Broken => wanted.as_bytes().starts_with(self.got.body),
            _ => wanted.as_bytes() == self.got.body,
        };
        match is_right {
            true => Ok(()),
            false => Err(("an upload arrives as it was sent", String::from_utf8_lossy(self.got.body).into_owned())),
        }
    }

    fn tunnelled(&self) -> Verdict {
        let text = String::from_utf8_lossy(&self.got.body[..self.got.body.len().min(8)]).into_owned();
        let (Some(version), Some(variant)) = (text.get(4..7).and_then(|text| text.parse().ok()), text.chars().nth(7))
        else {
            return Ok(());
        };
        match (Body { object: self.step.object, version, variant }).differs(0, self.got.body) {
            None => Ok(()),
            Some(_) if self.got.body.starts_with(b"oops") => Ok(()),
            Some(place) => Err((BYTES, format!("through a tunnel, at {place}"))),
        }
    }

    fn upgraded(&self) -> Verdict {
        let wanted = b"there and back";
        let is_right = match self.got.end {
            BodyEnd::Closed => self.got.body == wanted,
            _ => wanted.starts_with(self.got.body),
        };
        if is_right { Ok(()) } else { Err((BYTES, "through an upgraded connection".to_owned())) }
    }

    /// Reads of a disk take their turns, and an answer may need many of them.
    fn disk_takes(&self) -> Duration {
        match self.world.plan.disk {
            Some(disk) => Duration::from_millis(200 * disk.step_millis_max),
            None => Duration::ZERO,
        }
    }

    /// Where no client is slow, an answer comes as soon as the origin has sent it, and a hit at once.
    fn prompt(&self) -> Verdict {
        let status = self.got.head.field("Cache-Status").unwrap_or_default();
        let may_be_late = status.contains("stale-if-error") || self.got.end == BodyEnd::Broken;
        let Some(sent) = self.got.sent.filter(|_| self.world.plan.is_prompt && !may_be_late) else { return Ok(()) };
        let since = sent.max(self.world.active.borrow()[self.step.object]);
        match since.elapsed() {
            late if late > AT_ONCE + self.disk_takes() => {
                Err(("an answer comes as soon as it can", format!("{late:?} late")))
            }
            _ => Ok(()),
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// `bytes 0-4/10`
fn content_range(text: &str) -> Option<(u64, u64, u64)> {
    let (range, whole) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?, whole.parse().ok()?))
}
