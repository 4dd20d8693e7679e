//! The judge: what a reply must be, and what it was. The head is judged when it is complete, the body as it arrives.

use super::{Kindred, Wish};
use crate::ledger::{Served, Trouble};
use crate::object::{Body, HEADER_BYTES, Law, whose};
use crate::wire::{ECHO, FAULT, Tag, Xact};
use larder_wire::ResponseHead;
use larder_wire::date::parse_date;
use larder_wire::range::ContentRange;

/// Seconds by which clocks and roundings may differ.
const TOLERANCE_S: u64 = 2;

/// Judges one reply.
#[derive(Debug)]
pub struct Judge {
    expected: Body,
    /// Seed of the first variant, and how many follow it.
    variants: (u64, u8),
    at: u64,
    end: u64,
    bytes_right: bool,
    /// The cache answers by itself, as it must.
    own: bool,
    /// The end of the body is not awaited.
    excused: bool,
    first: Vec<u8>,
    findings: Findings,
}

/// What is known of a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings {
    /// Status.
    pub status: u16,
    /// Whether the cache or the origin answered.
    pub served: Served,
    /// The first thing that was wrong, with what was expected and what came.
    pub wrong: Option<(Trouble, String)>,
    /// What the origin spoilt on purpose.
    pub fault: Option<String>,
}

/// The judgement on the whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What was found.
    pub findings: Findings,
    /// Bytes of the body that came.
    pub body_bytes: u64,
    /// Whether a store may have a whole copy now.
    pub whole: bool,
}

/// What the judge knows besides the reply.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The object law.
    pub law: &'a Law,
    /// What was asked.
    pub wish: &'a Wish,
    /// The name of the transaction.
    pub xact: Xact,
    /// Whether nobody else can have brought the object into the cache.
    pub first: bool,
    /// When the request was sent, in seconds since 1970.
    pub asked: u64,
    /// The second in which the last purge was sent that the cache acknowledged before this request was sent.
    pub purged: Option<u64>,
    /// Now, in seconds since 1970.
    pub now: u64,
    /// The status that the cache must give by itself, if it must.
    pub expected: Option<u16>,
    /// Seconds that an origin may take: think time and link.
    pub delay_s_max: u64,
}

impl Judge {
    /// Judges the head.
    pub fn head(case: &Case<'_>, head: &ResponseHead) -> Self {
        let echo = head.fields.get(ECHO).and_then(Xact::parse);
        let served = match echo {
            Some(echo) if echo == case.xact => Served::Miss,
            Some(_) => Served::Hit,
            // Without an echo, only what a cache may say by itself is an answer from its store.
            None if head.status == 304 => Served::Hit,
            None => Served::Miss,
        };
        let tag = head.fields.get("ETag").and_then(Tag::parse);
        let dated = head.fields.get("Date").and_then(parse_date).map(|date| date.0);
        let generation = tag.map_or_else(
            || case.law.version(&case.wish.name, &case.wish.facts, dated.unwrap_or(case.now)).generation,
            |tag| tag.generation,
        );
        let expected = case.law.body(&case.wish.facts, generation, variant(case));
        let mut judge = Self {
            expected,
            variants: (case.wish.facts.seed, case.law.content(&case.wish.name).variants),
            at: 0,
            end: if case.wish.facts.redirects { 0 } else { expected.size },
            bytes_right: true,
            own: false,
            excused: false,
            first: Vec::new(),
            findings: Findings { status: head.status, served, wrong: None, fault: None },
        };
        judge.findings.fault = head.fields.text(FAULT).map(str::to_owned);
        judge.findings.wrong = judge.look(case, head, echo, tag, dated);
        judge
    }

    fn look(
        &mut self,
        case: &Case<'_>,
        head: &ResponseHead,
        echo: Option<Xact>,
        tag: Option<Tag>,
        dated: Option<u64>,
    ) -> Option<(Trouble, String)> {
        if let Some(wanted) = case.expected {
            // What such an answer says is the cache's own affair.
            (self.at, self.end, self.own) = (0, 0, true);
            let wrong = || (Trouble::WrongStatus, format!("status {} instead of {wanted}", head.status));
            return (head.status != wanted).then(wrong);
        }
        if echo.is_some_and(|echo| echo.tag != case.xact.tag) {
            return Some((Trouble::ForeignReply, "the echo is of another run".into()));
        }
        if case.wish.kind == Kindred::Purge {
            return self.purge(head, echo);
        }
        if echo.is_none() && head.status != 304 {
            let kind = if head.status >= 400 { Trouble::Refused } else { Trouble::WrongHeader };
            return Some((
                kind,
                format!("status {} without the origin's echo: the cache itself answered", head.status),
            ));
        }
        if self.findings.fault.as_deref() == Some("unavailable") {
            return None;
        }
        self.status(case, head)
            .or_else(|| self.hit(case, echo, dated))
            .or_else(|| self.outlived(case, dated))
            .or_else(|| labels(case, head, tag, dated))
            .or_else(|| self.length(case, head))
    }

    /// What a cache says of a purge: done, or that it had nothing; the body is its own affair.
    fn purge(&mut self, head: &ResponseHead, echo: Option<Xact>) -> Option<(Trouble, String)> {
        (self.at, self.end, self.own) = (0, 0, true);
        let status = head.status;
        if echo.is_some() {
            return Some((Trouble::WrongStatus, format!("the purge was passed on to the origin: status {status}")));
        }
        let acknowledged = matches!(status, 200..=299 | 404);
        (!acknowledged).then(|| (Trouble::Refused, format!("status {status}: the cache does not obey the purge")))
    }

    /// Whether a hit is on what was purged: the origin had said it in a second before that of the purge.
    fn outlived(&self, case: &Case<'_>, dated: Option<u64>) -> Option<(Trouble, String)> {
        let (purged, dated) = case.purged.zip(dated).filter(|_| self.findings.served == Served::Hit)?;
        let detail = || format!("the answer is {} s older than its purge, which was acknowledged", purged - dated);
        (dated < purged).then(|| (Trouble::PurgedHit, detail()))
    }

    /// The status, and the part of a partial answer.
    fn status(&mut self, case: &Case<'_>, head: &ResponseHead) -> Option<(Trouble, String)> {
        let permitted: &[u16] = match case.wish.kind {
            _ if case.wish.facts.redirects => &[302],
            // The object may change while the request is on its way, and who has fetched the whole may give it.
            Kindred::ModifiedAfter | Kindred::TagMatch => &[304, 200],
            // The version before the last change may be fresh in the cache, and did not change since.
            Kindred::ModifiedBefore if self.outlives_change(case) => &[200, 304],
            Kindred::Part(_) => &[206, 200],
            _ => &[200],
        };
        if !permitted.contains(&head.status) {
            return Some((Trouble::WrongStatus, format!("status {} instead of {permitted:?}", head.status)));
        }
        if head.status == 302 {
            return self.location(case, head);
        }
        if head.status != 206 {
            return None;
        }
        let part = head.fields.get("Content-Range").and_then(ContentRange::parse);
        let asked = match case.wish.kind {
            Kindred::Part(part) => part.start..part.end,
            _ => return Some((Trouble::WrongStatus, "status 206, but no part was asked for".into())),
        };
        match part {
            Some(part) if part.range() == asked => {
                (self.at, self.end) = (asked.start, asked.end);
                None
            }
            part => Some((Trouble::WrongRange, format!("{part:?} instead of bytes {asked:?}"))),
        }
    }

    /// Where a redirection leads to.
    fn location(&self, case: &Case<'_>, head: &ResponseHead) -> Option<(Trouble, String)> {
        let (mut wanted, moved) = (Vec::new(), case.law.moved(&case.wish.name));
        case.law.path(&moved, &case.law.facts(&moved), &mut wanted);
        let found = head.fields.get("Location").unwrap_or_default();
        let detail = || format!("Location leads to {}", String::from_utf8_lossy(found));
        (!found.ends_with(&wanted)).then(|| (Trouble::WrongHeader, detail()))
    }

    /// Whether a hit was permitted.
    fn hit(&self, case: &Case<'_>, echo: Option<Xact>, dated: Option<u64>) -> Option<(Trouble, String)> {
        // A 304 without an echo may be the cache's word on an answer that it has just fetched for this request.
        if self.findings.served == Served::Miss || echo.is_none() {
            return None;
        }
        let (wish, law) = (case.wish, case.law);
        // What the origin said after the reload was sent is new, although another request for the object brought it.
        if wish.kind == Kindred::Reload && dated.is_none_or(|dated| dated < case.asked) {
            return Some((Trouble::HitOnReload, "a reload was answered from the store".into()));
        }
        if !wish.facts.cachable || matches!(wish.kind, Kindred::Post(_)) {
            return Some((Trouble::HitOnUncachable, "the origin said private, no-store".into()));
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

    fn length(&self, case: &Case<'_>, head: &ResponseHead) -> Option<(Trouble, String)> {
        let declared: u64 = head.fields.text("Content-Length")?.parse().ok()?;
        let right = self.end - self.at;
        let may_differ =
            head.status == 304 || self.findings.fault.is_some() || case.wish.kind == Kindred::Head && declared == 0;
        (declared != right && !may_differ)
            .then(|| (Trouble::WrongLength, format!("{declared} bytes declared instead of {right}")))
    }

    /// Judges bytes of the body as they arrive.
    pub fn body(&mut self, bytes: &[u8]) {
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
        let (first, count) = self.variants;
        let detail = match whose(&self.first) {
            Some(body) if body.seed != self.expected.seed && body.seed.wrapping_sub(first) < u64::from(count) => {
                let found = body.seed.wrapping_sub(first);
                return (Trouble::WrongVariant, format!("bytes of variant {found}"));
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
        let missing = self.end.saturating_sub(self.at);
        let has_body = matches!(self.findings.status, 200 | 206);
        let short = !complete || has_body && self.expects_body() && missing > 0;
        if short && self.findings.wrong.is_none() && self.findings.fault.is_none() {
            let cut = format!("{missing} of {} bytes are missing", self.end - started);
            self.findings.wrong = Some((Trouble::Truncated, cut));
        }
        if complete && has_body && !self.excused && self.findings.served == Served::Hit && self.is_spoilt(missing) {
            let kept = "a spoilt answer of the origin was kept".to_owned();
            self.findings.wrong.get_or_insert((Trouble::Truncated, kept));
        }
        let whole = complete && missing == 0 && self.findings.wrong.is_none() && self.findings.fault.is_none();
        Verdict { body_bytes: self.at - started.min(self.at), whole, findings: self.findings }
    }

    /// Whether an answer that seems whole is one that the origin broke off: short, or of a length that never came. With
    /// all its bytes and the right length it is a good one, whatever its first head was.
    fn is_spoilt(&self, missing: u64) -> bool {
        match self.findings.fault.as_deref() {
            None | Some("unavailable") => false,
            Some("long-length") => self.findings.status == 200,
            Some(_) => missing > 0,
        }
    }

    /// The robot breaks off here.
    pub fn break_off(&mut self) {
        (self.end, self.excused) = (self.at, true);
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

fn variant(case: &Case<'_>) -> u8 {
    if case.law.content(&case.wish.name).variants > 1 { case.wish.variant } else { 0 }
}

/// Validators, variant, and the arithmetic of `Date` and `Age`.
fn labels(case: &Case<'_>, head: &ResponseHead, tag: Option<Tag>, dated: Option<u64>) -> Option<(Trouble, String)> {
    let header = |detail: String| Some((Trouble::WrongHeader, detail));
    if let Some(tag) = tag {
        if tag.seed != case.wish.facts.seed {
            return Some((Trouble::WrongBytes, format!("the tag is of object {:x}", tag.seed)));
        }
        if tag.variant != variant(case) {
            return Some((Trouble::WrongVariant, format!("variant {} instead of {}", tag.variant, variant(case))));
        }
    }
    let Some(dated) = dated else { return header("no Date".into()) };
    if dated > case.now + TOLERANCE_S {
        return header(format!("Date lies {} s in the future", dated - case.now));
    }
    let age: u64 = head.fields.text("Age")?.trim().parse().ok()?;
    let real = case.now.saturating_sub(dated);
    let slack = TOLERANCE_S + case.now.saturating_sub(case.asked);
    // A cache adds the time that the origin took to the age (RFC 9111 section 4.2.3), so that an answer looks older than it is.
    if age > real + slack + case.delay_s_max || age + slack < real {
        return header(format!("Age is {age} s, but Date lies {real} s back"));
    }
    None
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
