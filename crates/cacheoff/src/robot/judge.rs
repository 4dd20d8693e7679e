//! The judge: what a reply must be, and what it was. The head is judged when it is complete, the body as it arrives.

use super::case::{Case, Remark, TOLERANCE_S, Wrong};
use super::labels::Labels;
use super::multipart::Multipart;
use super::{Kindred, Parts};
use crate::gzip::{Encoded, Reader};
use crate::journal::Deeds;
use crate::ledger::{Served, Trouble};
use crate::object::{Body, HEADER_BYTES, whose};
use crate::wire::{ECHO, Echo, FAULT, Fault, Tag, Xact};
use larder_wire::ResponseHead;
use larder_wire::date::parse_date;
use larder_wire::range::ContentRange;

/// Judges one reply.
#[derive(Clone, Debug)]
pub struct Judge {
    expected: Body,
    /// Undoes the coding of the body, if it has one.
    reader: Option<Box<Reader>>,
    /// Takes the body apart, if it has several parts, which are these.
    several: Option<Box<(Multipart, Parts)>>,
    at: u64,
    end: u64,
    /// Bytes of the body that came, coded as they are.
    came: u64,
    /// Whether each client has a body of its own.
    personal: bool,
    bytes_right: bool,
    /// The cache answers by itself, as it must.
    own: bool,
    /// The end of the body is not awaited.
    excused: bool,
    /// The reply says that the origin spoilt it, and the origin has not signed that.
    forged_fault: Option<String>,
    first: Vec<u8>,
    /// Seeds of the bodies that other requests of the connection get, if there are several at once.
    others: Vec<u64>,
    /// Why the reply ended before it was whole, if the other end said so.
    cut: Option<Wrong>,
    findings: Findings,
    /// Whether the head has shown what is wrong.
    by_head: bool,
}

/// The facts of a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings {
    /// Status.
    pub status: u16,
    /// Whether the cache or the origin answered.
    pub served: Served,
    /// The first thing that was wrong, with what was expected and what came.
    pub wrong: Option<(Trouble, String)>,
    /// A rule that is broken although nothing that came is wrong.
    pub remark: Option<Remark>,
    /// The signed echo of the origin.
    pub echo: Option<Echo>,
    /// The fault that the origin injected.
    pub fault: Option<Fault>,
}

/// The judgement on the whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The facts of the reply.
    pub findings: Findings,
    /// Bytes of the body that came.
    pub body_bytes: u64,
    /// Whether a store may have a whole copy now.
    pub whole: bool,
    /// Whether it ended before it was whole, and not because the robot broke it off.
    pub broken_off: bool,
}

impl Judge {
    /// Judges the head.
    pub fn head(case: &Case<'_>, head: &ResponseHead) -> Self {
        let claimed = head.fields.get(ECHO).and_then(|value| Echo::parse(value, &case.journal.seal));
        let echo = claimed.and_then(Result::ok);
        let tag = head.fields.get("ETag").and_then(Tag::parse);
        let dated = head.fields.get("Date").and_then(parse_date).map(|date| date.0);
        let version_at = |unix| case.law.version(&case.wish.name, &case.wish.facts, unix).generation;
        let generation = match (echo, tag) {
            (Some(echo), _) => version_at(echo.second(case.law.epoch)),
            (None, Some((tag, _))) => tag.generation,
            (None, None) => version_at(dated.unwrap_or(case.now)),
        };
        let expected = case.law.body(&case.wish.facts, generation, case.wish.user(case.law));
        let mut judge = Self {
            expected,
            several: several(case, head),
            reader: head.fields.contains("Content-Encoding").then(Box::default),
            at: 0,
            came: 0,
            personal: case.law.content(&case.wish.name).personal,
            end: if case.wish.facts.redirects { 0 } else { expected.size },
            bytes_right: true,
            own: false,
            excused: false,
            forged_fault: None,
            first: Vec::new(),
            others: case.others(expected.seed),
            cut: None,
            findings: Findings {
                status: head.status,
                served: served(case, head.status, echo, claimed.is_some()),
                wrong: None,
                remark: None,
                echo,
                fault: echo.and_then(|echo| echo.fault),
            },
            by_head: false,
        };
        judge.findings.wrong = judge.look(case, head, claimed, tag, dated);
        judge.by_head = judge.findings.wrong.is_some();
        judge
    }

    /// Takes over what the head says now that more is known; the body is judged by its bytes as before.
    pub fn again(mut self, head: Self) -> Self {
        if self.by_head || head.by_head {
            self.findings.wrong = head.findings.wrong;
        }
        (self.findings.served, self.findings.remark) = (head.findings.served, head.findings.remark);
        // While the head was taken for wrong, nothing was noted of the body but whether its bytes are right.
        if self.findings.wrong.is_none() && !self.bytes_right && self.is_ours() {
            self.findings.wrong =
                Some((Trouble::WrongBytes, "a wrong byte, in a reply that was judged again".to_owned()));
        }
        self
    }

    fn look(
        &mut self,
        case: &Case<'_>,
        head: &ResponseHead,
        claimed: Option<Result<Echo, Xact>>,
        tag: Option<(Tag, bool)>,
        dated: Option<u64>,
    ) -> Option<Wrong> {
        if let Some(wanted) = case.expected {
            // The content of such an answer is the cache's own affair.
            (self.at, self.end, self.own) = (0, 0, true);
            let wrong = || (Trouble::WrongStatus, format!("status {} instead of {wanted}", head.status));
            return (head.status != wanted).then(wrong);
        }
        if case.wish.kind == Kindred::Purge {
            return self.purge(head, claimed.is_some());
        }
        let echo = match claimed {
            Some(Ok(echo)) if echo.xact.tag == case.xact.tag => Some(echo),
            Some(Err(xact)) if xact.tag == case.xact.tag => {
                return Some((
                    Trouble::ForgedEcho,
                    format!("no origin signed the echo of transaction {:x}", xact.number),
                ));
            }
            Some(_) => return Some((Trouble::ForeignReply, "the echo is of another run".into())),
            None if head.status != 304 => return Some(own_answer(head.status)),
            None => None,
        };
        if let Some(wrong) = self.fault_mark(case, head, echo) {
            return Some(wrong);
        }
        if let Some(wrong) = self.reordered(case, echo, tag) {
            return Some(wrong);
        }
        if self.findings.fault == Some(Fault::Unavailable) {
            let detail = || (Trouble::WrongStatus, format!("status {} instead of 503", head.status));
            return (head.status != 503).then(detail);
        }
        let labels = Labels { case, head, served: self.findings.served, echo, tag, dated };
        let wrong = self
            .status(case, head)
            .or_else(|| labels.mixed_users())
            .or_else(|| replayed(case, echo, dated))
            .or_else(|| self.hit(case, echo, dated))
            .or_else(|| self.outlived(case, dated))
            .or_else(|| labels.wrong())
            .or_else(|| self.length(case, head, tag));
        let remark = self.hit_on_reload(case, echo, dated).or_else(|| labels.remark());
        self.findings.remark = remark.filter(|_| wrong.is_none());
        wrong
    }

    /// Whether a reload was answered from the store. Directives of requests are advisory (RFC 9111 section 5.2.1): this is
    /// held only against a cache whose entry says that it honours them.
    fn hit_on_reload(&self, case: &Case<'_>, echo: Option<Echo>, dated: Option<u64>) -> Option<Remark> {
        let is_hit = self.findings.served != Served::Miss && echo.is_some();
        // An answer that the origin dated after the reload was sent is new, although another request for the object
        // brought it.
        let is_old = dated.is_none_or(|dated| dated < case.asked);
        (case.wish.kind == Kindred::Reload && is_hit && is_old).then_some(Remark::HitOnReload)
    }

    /// Whether the reply belongs to another request of the connection: its echo or its tag says so.
    fn reordered(&self, case: &Case<'_>, echo: Option<Echo>, tag: Option<(Tag, bool)>) -> Option<Wrong> {
        let own = self.expected.seed;
        let by_echo = echo.and_then(|echo| case.turns.iter().find(|turn| turn.number == echo.xact.number));
        let by_tag = tag.is_some_and(|(tag, _)| self.others.contains(&tag.seed));
        (by_tag || by_echo.is_some_and(|turn| turn.seed != own)).then(reordered)
    }

    /// Whether the reply says by itself that the origin spoilt it. The mark of an answer that was spoilt may stay on what a
    /// cache has made whole since, and excuses nothing then.
    fn fault_mark(&mut self, case: &Case<'_>, head: &ResponseHead, echo: Option<Echo>) -> Option<Wrong> {
        let mark = head.fields.text(FAULT)?;
        if self.findings.fault.is_some_and(|fault| fault.as_str() == mark) {
            return None;
        }
        let detail = format!("the reply says that the origin spoilt it ({mark}), and the origin did not");
        if echo.is_some_and(|echo| echo.xact == case.xact) {
            return Some((Trouble::ForgedFault, detail));
        }
        self.forged_fault = Some(detail);
        None
    }

    /// The answer of a cache to a purge: done, or that it had nothing; the body is its own affair.
    fn purge(&mut self, head: &ResponseHead, has_echo: bool) -> Option<Wrong> {
        (self.at, self.end, self.own) = (0, 0, true);
        let status = head.status;
        if has_echo {
            return Some((Trouble::WrongStatus, format!("the purge was passed on to the origin: status {status}")));
        }
        let acknowledged = matches!(status, 200..=299 | 404);
        (!acknowledged).then(|| (Trouble::Refused, format!("status {status}: the cache does not obey the purge")))
    }

    /// Whether a hit is on what was purged: the origin had said it in a second before that of the purge.
    fn outlived(&self, case: &Case<'_>, dated: Option<u64>) -> Option<Wrong> {
        let (purged, dated) = case.purged.zip(dated).filter(|_| self.findings.served == Served::Hit)?;
        let detail = || format!("the answer is {} s older than its purge, which was acknowledged", purged - dated);
        (dated < purged).then(|| (Trouble::PurgedHit, detail()))
    }

    /// The status, and the part of a partial answer.
    fn status(&mut self, case: &Case<'_>, head: &ResponseHead) -> Option<Wrong> {
        let permitted: &[u16] = match case.wish.kind {
            _ if case.wish.facts.redirects => &[302],
            // The object may change while the request is on its way, and who has fetched the whole may give it.
            Kindred::ModifiedAfter | Kindred::TagMatch => &[304, 200],
            // The version before the last change may be fresh in the cache, and did not change since.
            Kindred::ModifiedBefore if self.outlives_change(case) => &[200, 304],
            Kindred::Part(_) => &[206, 200],
            // A set of several ranges may be rejected (RFC 9110 sections 14.2 and 15.5.17).
            Kindred::Parts(_) => &[206, 200, 416],
            _ => &[200],
        };
        if !permitted.contains(&head.status) {
            return Some((Trouble::WrongStatus, format!("status {} instead of {permitted:?}", head.status)));
        }
        if head.status == 302 {
            return self.location(case, head);
        }
        if head.status == 416 {
            (self.at, self.end, self.own) = (0, 0, true);
        }
        if head.status != 206 {
            return None;
        }
        if let Some(several) = &self.several {
            (self.at, self.end) = (0, several.1.ranges().map(|range| range.end - range.start).sum());
            return None;
        }
        let part = head.fields.get("Content-Range").and_then(ContentRange::parse);
        let asked = match case.wish.kind {
            Kindred::Part(part) => part.start..part.end,
            // One of the parts may come alone, for 206 describes itself (RFC 9110 section 15.3.7); or one that has them all.
            Kindred::Parts(parts) => {
                let alone = part.as_ref().and_then(|part| parts.ranges().find(|range| *range == part.range()));
                alone.unwrap_or_else(|| parts.span())
            }
            _ => return Some((Trouble::WrongStatus, "status 206, but no part was asked for".into())),
        };
        match part {
            Some(part) if part.range() == asked => {
                (self.at, self.end) = (asked.start, asked.end);
                let size = case.wish.facts.size;
                let total = part.len.filter(|total| *total != size)?;
                Some((Trouble::WrongRange, format!("a part of {total} bytes, but the object has {size}")))
            }
            part => Some((Trouble::WrongRange, format!("{part:?} instead of bytes {asked:?}"))),
        }
    }

    /// Where a redirection leads to.
    fn location(&self, case: &Case<'_>, head: &ResponseHead) -> Option<Wrong> {
        let (mut wanted, moved) = (Vec::new(), case.law.moved(&case.wish.name));
        case.law.path(&moved, &case.law.facts(&moved), &mut wanted);
        let found = head.fields.get("Location").unwrap_or_default();
        let detail = || format!("Location leads to {}", String::from_utf8_lossy(found));
        (!found.ends_with(&wanted)).then(|| (Trouble::WrongHeader, detail()))
    }

    /// Whether a hit was permitted.
    fn hit(&self, case: &Case<'_>, echo: Option<Echo>, dated: Option<u64>) -> Option<Wrong> {
        // A 304 without an echo may be the cache's word on an answer that it has just fetched for this request.
        if self.findings.served == Served::Miss || echo.is_none() {
            return None;
        }
        let (wish, law) = (case.wish, case.law);
        if !wish.facts.cachable || wish.kind.upload_bytes().is_some() {
            return Some((Trouble::HitOnUncachable, "the origin said private, no-store".into()));
        }
        if law.content(&wish.name).is_private() {
            return Some((Trouble::HitOnPrivate, "the origin said private".into()));
        }
        if !wish.repeat && case.first {
            return Some((Trouble::FalseHit, "nobody had asked for this object".into()));
        }
        let generation = self.expected.generation;
        let life = &law.content(&wish.name).life;
        let version = law.version(&wish.name, &wish.facts, case.asked);
        let replaced = life.replaced(wish.facts.seed, law.epoch, generation);
        // A lifetime that the origin gave in seconds counts before `Expires` (RFC 9111 section 4.2.1).
        let expires = match law.content(&wish.name).lifetime_s() {
            Some((fresh, grace)) => dated.unwrap_or(case.asked).saturating_add(fresh).saturating_add(grace),
            None => replaced + version.expires.saturating_sub(version.replaced),
        };
        let stale = generation < version.generation && expires.max(replaced) + TOLERANCE_S < case.asked;
        stale.then(|| {
            let age = case.asked.saturating_sub(replaced);
            (
                Trouble::StaleHit,
                format!("version {generation} was replaced {age} s before; now it is {}", version.generation),
            )
        })
    }

    /// Whether the version before the one of now may be fresh still.
    fn outlives_change(&self, case: &Case<'_>) -> bool {
        let version = case.law.version(&case.wish.name, &case.wish.facts, case.now);
        let late = version.expires.saturating_sub(version.replaced);
        let fresh =
            case.law.content(&case.wish.name).lifetime_s().map_or(late, |(fresh, grace)| fresh.saturating_add(grace));
        version.modified.saturating_add(fresh).saturating_add(TOLERANCE_S) >= case.asked
    }

    fn length(&self, case: &Case<'_>, head: &ResponseHead, tag: Option<(Tag, bool)>) -> Option<Wrong> {
        let declared: u64 = head.fields.text("Content-Length")?.parse().ok()?;
        if self.several.is_some() {
            return None;
        }
        let right = match (&self.reader, tag) {
            (None, _) => self.end - self.at,
            (Some(_), Some((Tag { variant: 1, .. }, true))) => Encoded::len_of(self.end),
            // How long a body is that the cache coded, it alone knows.
            _ => return None,
        };
        let may_differ =
            head.status == 304 || self.findings.fault.is_some() || case.wish.kind == Kindred::Head && declared == 0;
        (declared != right && !may_differ)
            .then(|| (Trouble::WrongLength, format!("{declared} bytes declared instead of {right}")))
    }

    /// Judges bytes of the body as they arrive.
    pub fn body(&mut self, bytes: &[u8]) {
        self.came += bytes.len() as u64;
        if let Some(mut several) = self.several.take() {
            let read = several.0.take(bytes, |at, content| self.part(at, content));
            self.several = Some(several);
            if let Err(why) = read {
                self.findings.wrong.get_or_insert((Trouble::WrongRange, why));
            }
            return;
        }
        let Some(mut reader) = self.reader.take() else { return self.content(bytes) };
        if !self.is_ours() {
            return;
        }
        let read = reader.take(bytes, |content| self.content(content));
        self.reader = Some(reader);
        if let Err(why) = read {
            self.findings.wrong.get_or_insert((Trouble::WrongBytes, why.to_owned()));
        }
    }

    /// Gives back what was needed to read the body, which is over; the judgement of the head is all that may come.
    pub fn rest(&mut self) {
        if let Some(reader) = &mut self.reader {
            reader.rest();
        }
        if let Some((several, _)) = self.several.as_deref_mut() {
            several.rest();
        }
    }

    /// Judges bytes of a part among several.
    fn part(&mut self, at: u64, bytes: &[u8]) {
        if self.bytes_right && !self.expected.check(at, bytes) {
            self.bytes_right = false;
            if self.is_ours() {
                let detail = format!("a wrong byte at or after {at}, in one of several parts");
                self.findings.wrong.get_or_insert((Trouble::WrongBytes, detail));
            }
        }
        self.at += bytes.len() as u64;
    }

    /// Judges bytes of the body without its coding.
    fn content(&mut self, bytes: &[u8]) {
        if self.at < HEADER_BYTES && self.first.len() < 32 {
            let wanted = (32 - self.first.len()).min(bytes.len());
            self.first.extend_from_slice(&bytes[..wanted]);
        }
        if self.bytes_right && !self.expected.check(self.at, bytes) {
            self.bytes_right = false;
            if self.findings.wrong.is_none() && self.is_ours() {
                self.findings.wrong = Some(self.wrong_bytes());
            }
        }
        self.at += bytes.len() as u64;
    }

    /// Whether the body should be the object's.
    fn is_ours(&self) -> bool {
        matches!(self.findings.status, 200 | 206) && self.findings.fault.is_none() && !self.own
    }

    fn wrong_bytes(&self) -> (Trouble, String) {
        let detail = match whose(&self.first) {
            Some(body) if body.seed != self.expected.seed && self.personal => {
                return (Trouble::MixedUsers, "the body is that of another client".to_owned());
            }
            Some(body) if body.seed != self.expected.seed => format!("bytes of object {:x}", body.seed),
            Some(body) if body.generation != self.expected.generation => {
                format!("bytes of version {}", body.generation)
            }
            _ => format!("a wrong byte at or after {}", self.at),
        };
        (Trouble::WrongBytes, detail)
    }

    /// The message is over (`complete`) or the connection is.
    pub fn finish(mut self, started: u64, complete: bool) -> Verdict {
        let came = whose(&self.first).filter(|_| !self.bytes_right && self.is_ours());
        if came.is_some_and(|body| self.others.contains(&body.seed)) {
            // Other faults of the head follow from this one.
            self.findings.wrong = Some(reordered());
        }
        let several = self.several.take().filter(|_| complete && !self.excused && self.findings.fault.is_none());
        if let Some(several) = several {
            // Those that were left out are not missing.
            self.end = several.0.bytes();
            if let Some(detail) = several.0.fault(&several.1.ranges().collect::<Vec<_>>()) {
                self.findings.wrong.get_or_insert((Trouble::WrongRange, detail));
            }
        }
        let missing = self.end.saturating_sub(self.at);
        let has_body = matches!(self.findings.status, 200 | 206);
        // A coding has an end of its own.
        let open = !self.excused && self.reader.as_ref().is_some_and(|reader| !reader.is_whole());
        let short = !complete || has_body && self.expects_body() && (missing > 0 || open);
        // A spoilt answer of the origin excuses one that is cut off, and not one that never comes to its end.
        let never_ends = matches!(self.cut, Some((Trouble::Timeout, _)));
        if short && self.findings.wrong.is_none() && (self.findings.fault.is_none() || never_ends) {
            let cut = || (Trouble::Truncated, format!("{missing} of {} bytes are missing", self.end - started));
            let forged = self.forged_fault.take().map(|detail| (Trouble::ForgedFault, detail));
            self.findings.wrong = Some(forged.or_else(|| self.cut.take()).unwrap_or_else(cut));
        }
        if complete && has_body && !self.excused && self.findings.served == Served::Hit && self.is_spoilt(missing) {
            let kept = "a spoilt answer of the origin was kept".to_owned();
            self.findings.wrong.get_or_insert((Trouble::Truncated, kept));
        }
        let whole = complete && missing == 0 && self.findings.wrong.is_none() && self.findings.fault.is_none();
        Verdict { body_bytes: self.came, whole, broken_off: short, findings: self.findings }
    }

    /// Whether an answer that seems whole is one that the origin broke off: short, or of a length that never came. With
    /// all its bytes and the right length it is a good one, whatever its first head was.
    fn is_spoilt(&self, missing: u64) -> bool {
        match self.findings.fault {
            None | Some(Fault::Unavailable) => false,
            Some(Fault::LongLength) => self.findings.status == 200,
            Some(_) => missing > 0,
        }
    }

    /// The robot breaks off here.
    pub fn break_off(&mut self) {
        (self.end, self.excused) = (self.at, true);
    }

    /// The reply ends here, before it is whole, for this reason.
    pub fn cut_by(&mut self, reason: Wrong) {
        self.cut = Some(reason);
    }

    /// Something else is wrong; the first of all counts.
    pub fn accuse(&mut self, wrong: Wrong) {
        self.findings.wrong.get_or_insert(wrong);
    }

    fn expects_body(&self) -> bool {
        self.end > 0
    }

    /// No body will come (HEAD, 304).
    pub fn no_body(&mut self) {
        (self.end, self.excused) = (self.at, true);
    }

    /// Where the body begins in the object.
    pub fn begins_at(&self) -> u64 {
        self.at
    }
}

/// The reader of an answer with several parts, where several were asked for.
fn several(case: &Case<'_>, head: &ResponseHead) -> Option<Box<(Multipart, Parts)>> {
    let Kindred::Parts(parts) = case.wish.kind else { return None };
    let media = head.fields.get("Content-Type").filter(|_| head.status == 206)?;
    Some(Box::new((Multipart::of(media, case.wish.facts.size)?, parts)))
}

/// Where an answer came from. A reply that bears the echo of an earlier transaction comes from the store unless an origin
/// has answered this one too: it confirmed what was stored, or gave something that was not passed on.
fn served(case: &Case<'_>, status: u16, echo: Option<Echo>, has_echo: bool) -> Served {
    let answered = case.deeds.is_some_and(Deeds::is_answered);
    match echo {
        Some(echo) if echo.xact == case.xact => Served::Miss,
        Some(echo) if answered && !is_refreshed_behind(case, echo) => Served::Miss,
        Some(_) => Served::Hit,
        None if answered => Served::Miss,
        // Without an echo, only what a cache may say by itself is an answer from its store.
        None if has_echo || status == 304 => Served::Hit,
        None => Served::Miss,
    }
}

/// Whether a cache may have answered from its store and asked the origin at the same time (RFC 5861).
fn is_refreshed_behind(case: &Case<'_>, echo: Echo) -> bool {
    let lifetime = case.law.content(&case.wish.name).lifetime_s();
    lifetime.is_some_and(|(fresh, grace)| grace > 0 && echo.second(case.law.epoch) + fresh <= case.now + TOLERANCE_S)
}

/// Whether an old echo was put on an answer that the origin gave to this very request. A cache that refreshes what it has
/// before it must is none that does so: then all of the answer is the old one.
fn replayed(case: &Case<'_>, echo: Option<Echo>, dated: Option<u64>) -> Option<Wrong> {
    let echo = echo.filter(|echo| echo.xact != case.xact)?;
    let fetched = case.deeds.is_some_and(Deeds::is_whole) && case.wish.kind == Kindred::Basic;
    if !fetched || is_refreshed_behind(case, echo) || dated == Some(echo.second(case.law.epoch)) {
        return None;
    }
    let number = echo.xact.number;
    Some((
        Trouble::ForgedEcho,
        format!("the origin answered this request, but the echo is that of transaction {number:x}"),
    ))
}

/// The reply is that to another request of the connection.
fn reordered() -> Wrong {
    (Trouble::ReorderedReplies, "the reply is that to another request of this connection".to_owned())
}

/// The cache answered in the place of the origin.
fn own_answer(status: u16) -> Wrong {
    let kind = if status >= 400 { Trouble::Refused } else { Trouble::WrongHeader };
    (kind, format!("status {status} without the origin's echo: the cache itself answered"))
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
