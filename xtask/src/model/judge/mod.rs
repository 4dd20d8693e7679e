//! The model's verdict on one answer: which answers of the origin it may be made of, whose fields may stand in it, how
//! old it may be. An answer is right when the rules permit one explanation of it.

mod age;
mod fields;
mod sources;
mod verdict;

use super::date::{self, Read};
use super::head::{Asked, Fields, Tag, directives, ranges};
use super::origin::{Exchange, Rep};
use super::play::{Got, Seen};
use super::rules::{self, Broken, CacheControl};
use crate::http::Answer;
use verdict::Verdict;

/// A fault of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule that was broken.
    pub section: &'static str,
    /// The fault, in words; the same words for the same kind.
    pub kind: &'static str,
    /// The details.
    pub what: String,
    /// Whether it costs time only.
    pub is_weak: bool,
}

fn wrong(section: &'static str, kind: &'static str, what: impl Into<String>) -> Finding {
    Finding { section, kind, what: what.into(), is_weak: false }
}

fn weak(section: &'static str, kind: &'static str, what: impl Into<String>) -> Finding {
    Finding { is_weak: true, ..wrong(section, kind, what) }
}

/// The surroundings of an answer that is judged.
pub struct Case<'a> {
    /// All that came to the origin until the answer was whole.
    pub exchanges: &'a [Exchange],
    /// All requests of clients so far, this one the last.
    pub seen: &'a [Seen],
    /// The request that is judged.
    pub now: &'a Seen,
    /// Whether the cache acts for the origin.
    pub at_site: bool,
    /// Makes the bytes of this conversation.
    pub nonce: u64,
    /// Whether no other request was under way.
    pub alone: bool,
}

/// All that is wrong with the last answer.
pub fn judge(case: &Case<'_>) -> Vec<Finding> {
    let mut findings = case.asked_of_origin();
    match &case.now.got {
        Got::Broken(how) => findings.extend(case.broken(how)),
        Got::Whole(answer) => findings.extend(case.answered(answer)),
    }
    findings
}

impl Case<'_> {
    /// Requests to the origin that this request made.
    fn own(&self) -> impl Iterator<Item = &Exchange> {
        self.exchanges.iter().filter(|exchange| self.is_own(exchange))
    }

    fn is_own(&self, exchange: &Exchange) -> bool {
        exchange.step == self.now.step
    }

    /// Whether an answer came while this request waited: nobody can be given a newer one.
    fn is_during(&self, exchange: &Exchange) -> bool {
        // With others about, an answer that was still on its way is as new as one can be.
        let came = if self.alone { exchange.at } else { self.came_by(exchange) };
        self.is_own(exchange) || came >= self.now.began
    }

    fn has_trouble(&self) -> bool {
        self.exchanges.iter().filter(|exchange| self.is_during(exchange)).any(|exchange| {
            exchange.fault.is_some()
                || exchange.status >= 500
                || !matches!(exchange.status, 200 | 206 | 304) && self.is_part(exchange)
        })
    }

    /// Whether the cache asked for a part by itself, which may fail in ways of its own.
    fn is_part(&self, exchange: &Exchange) -> bool {
        exchange.request.get("range").is_some() && exchange.request.get("if-range").is_some()
    }

    fn asks(&self, directive: &str) -> bool {
        self.asked(directive).is_some()
    }

    /// A directive of the request and its number, -1 without one that can be read.
    fn asked(&self, directive: &str) -> Option<i64> {
        let list = directives(&self.now.ask.joined("cache-control").unwrap_or_default());
        let found = list.into_iter().find(|(name, _)| name == directive)?;
        Some(found.1.and_then(|argument| argument.text.parse().ok()).unwrap_or(-1))
    }

    fn is_read(&self) -> bool {
        matches!(self.now.method, "GET" | "HEAD")
    }

    /// Checks the requests to the origin for this request.
    fn asked_of_origin(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let own: Vec<&Exchange> = self.own().collect();
        let is_for_it = |exchange: &&Exchange| {
            exchange.request.get("cache-control").is_some_and(|text| text.contains("only-if-cached"))
        };
        if self.is_read() && own.iter().any(is_for_it) {
            findings.push(wrong("RFC 9111 section 5.2.1.7", "only-if-cached was forwarded", "the origin was asked"));
        }
        if !self.is_read() {
            let same = own.iter().filter(|exchange| exchange.method == self.now.method).count();
            let may_repeat = self.now.method != "POST" && own.iter().any(|exchange| exchange.fault.is_some());
            if same == 0 || same > 1 && !may_repeat {
                let what = format!("{} came {same} times to the origin", self.now.method);
                findings.push(wrong("RFC 9110 section 9.2.2", "a method that changes things came not once", what));
            }
        }
        let other = own.iter().find(|exchange| self.is_read() && !matches!(&*exchange.method, "GET" | "HEAD"));
        if let Some(other) = other {
            findings.push(wrong("RFC 9110 section 9", "another method came to the origin", other.method.clone()));
        }
        let gets = own.iter().filter(|exchange| exchange.fault.is_none() && exchange.status == 200).count();
        if self.alone && self.is_read() && gets > 1 {
            findings.push(weak("", "the whole was fetched twice for one request", format!("{gets} times")));
        }
        findings.extend(self.needless(&own));
        findings
    }

    /// Whether the origin was asked for what could have been served.
    fn needless(&self, own: &[&Exchange]) -> Option<Finding> {
        let fields = ["cache-control", "authorization", "if-match", "if-unmodified-since", "if-range", "range"];
        let is_plain = self.now.method == "GET" && !fields.iter().any(|name| self.now.ask.get(name).is_some());
        if !self.alone || !is_plain || own.is_empty() {
            return None;
        }
        let newest = self.exchanges.iter().rfind(|exchange| !self.is_own(exchange))?;
        let is_asked = |name: &&str| newest.request.get(name).is_some();
        let is_whole = newest.status == 200
            && newest.fault.is_none()
            && newest.method == "GET"
            && !fields.iter().chain(&["if-none-match", "if-modified-since"]).any(is_asked);
        let is_plain_answer = newest.fields.get("set-cookie").is_none()
            && CacheControl::of(&newest.fields, self.at_site).names("no-cache").is_none()
            && CacheControl::of(&newest.fields, self.at_site).names("private").is_none();
        let age = rules::age(newest, self.came_by(newest), (self.now.began, self.now.ended));
        let lifetime = rules::lifetime(&newest.fields, 200, self.at_site, newest.at as i64);
        let is_fresh = is_whole && is_plain_answer && age.high < lifetime.low;
        (is_fresh && self.usable(newest).is_ok()).then(|| {
            weak("", "the origin was asked though a fresh answer is stored", format!("answer {}", newest.serial))
        })
    }

    /// When the cache had the head of an answer at the latest.
    fn came_by(&self, exchange: &Exchange) -> f64 {
        let seen = self.seen.iter().find(|seen| seen.step == exchange.step);
        seen.map_or(exchange.at + 1.0, |seen| seen.ended.max(exchange.at))
    }

    /// Whether what an answer brought may be used for this request, leaving its freshness aside.
    fn usable(&self, exchange: &Exchange) -> Result<(), Broken> {
        if self.is_own(exchange) {
            return Ok(());
        }
        rules::kept_by_rule(exchange, self.at_site)?;
        rules::varies_alike(exchange.fields.joined("vary").as_deref(), exchange, &self.now.ask)
    }

    /// Whether the fields of an answer may stand in what others get.
    fn shareable(&self, exchange: &Exchange) -> Result<(), Broken> {
        if self.is_own(exchange) {
            return Ok(());
        }
        let said = exchange.fields.get("cache-control").is_some();
        let is_update = exchange.status == 304 || exchange.method == "HEAD";
        let had_targeted = |one: &Exchange| one.at < exchange.at && one.fields.get("cdn-cache-control").is_some();
        let is_overruled = self.at_site && self.exchanges.iter().any(had_targeted);
        match rules::kept_by_rule(exchange, self.at_site) {
            // An update that says nothing leaves what was said before.
            Err(("RFC 9111 section 3.5", _)) if is_update && !said => Ok(()),
            // A targeted field that is stored goes before what an update says in Cache-Control (RFC 9213 section 2.2).
            Err(("RFC 9111 section 5.2.2.7" | "RFC 9111 section 5.2.2.5", _)) if is_update && is_overruled => Ok(()),
            other => other,
        }
    }

    /// Whether an answer was made void by a request that changed things, and has not been validated since.
    fn is_void(&self, exchange: &Exchange, rep: &Rep) -> Option<&Exchange> {
        let changed = |other: &&Exchange| {
            matches!(&*other.method, "POST" | "PUT" | "DELETE")
                && (200..400).contains(&other.status)
                && other.fault.is_none()
                && other.at > exchange.at
                && self.seen.iter().any(|seen| seen.step == other.step && seen.ended <= self.now.began)
        };
        let last = self.exchanges.iter().rfind(changed)?;
        let validated = self.exchanges.iter().any(|other| other.at > last.at && self.confirms(other, rep));
        (!validated).then_some(last)
    }

    /// Whether an answer says that bytes are still those of the resource.
    fn confirms(&self, exchange: &Exchange, rep: &Rep) -> bool {
        let of_rep = self.exchanges.iter().filter(|other| other.rep == *rep);
        let mut tags = of_rep.filter_map(|other| other.tag.as_ref());
        match exchange.status {
            // The time of change alone is a validator too (RFC 9111 section 4.3.5).
            200 if exchange.method == "HEAD" && exchange.tag.is_none() && exchange.rep != *rep => {
                let modified = exchange.fields.get("last-modified");
                let mut of_rep = self.exchanges.iter().filter(|other| other.rep == *rep);
                modified.is_some() && of_rep.any(|other| other.fields.get("last-modified") == modified)
            }
            200 | 203 | 206 | 299 => exchange.rep == *rep,
            304 => {
                let same = |tag: &Tag| exchange.tag.as_ref().is_some_and(|held| held.is_weakly(tag));
                exchange.rep == *rep || tags.any(same) || self.is_of_same_time(exchange, rep)
            }
            _ => exchange.status != 0 && exchange.rep == *rep,
        }
    }

    /// Whether a 304 names what had no entity tag by its time of change alone.
    fn is_of_same_time(&self, exchange: &Exchange, rep: &Rep) -> bool {
        let at = exchange.at as i64;
        let asked = exchange.request.get("if-modified-since").map(|text| date::read(text, at));
        let Some(Read::Valid(asked) | Read::Either(asked)) = asked else { return false };
        let mut of_rep = self.exchanges.iter().filter(|other| other.rep == *rep && other.tag.is_none());
        of_rep.any(|other| {
            let modified = other.fields.get("last-modified").map(|text| date::read(text, at));
            matches!(modified, Some(Read::Valid(modified) | Read::Either(modified)) if modified == asked)
        })
    }

    fn broken(&self, how: &str) -> Option<Finding> {
        if self.has_trouble() {
            return None;
        }
        // An origin may send less than was asked for, or ignore the range (RFC 9110 section 14.2); some send more.
        let is_other = self.exchanges.iter().filter(|exchange| self.is_during(exchange)).any(|exchange| {
            let asked = ranges(exchange.request.get("range"), exchange.rep.length);
            let is_whole = exchange.status == 200 && matches!(asked, Asked::Parts(_));
            is_whole || exchange.status == 206 && asked != Asked::Parts(vec![exchange.range.clone()])
        });
        if is_other {
            return Some(weak(
                "",
                "an answer broke off because the origin sent other bytes than it was asked for",
                how,
            ));
        }
        Some(wrong("RFC 9110 section 3.7", "an answer broke off without a reason", how.to_owned()))
    }

    fn answered(&self, answer: &Answer) -> Vec<Finding> {
        let fields = Fields(answer.fields.clone());
        let serial = fields.get("x-serial").and_then(mark);
        let known = |serial: u64| self.exchanges.iter().find(|exchange| exchange.serial == serial);
        if let Some(head) = serial.and_then(known) {
            return Verdict { case: self, answer, fields, head }.all();
        }
        if answer.status != 304 {
            return self.own_answer(answer).into_iter().collect();
        }
        // A 304 needs no more fields than those that guide caches (RFC 9110 section 15.4.5): one explanation does.
        let tag = fields.get("etag").and_then(Tag::read);
        let heads = self.exchanges.iter().filter(|exchange| exchange.status != 0 && exchange.tag == tag);
        let mut all: Vec<Vec<Finding>> =
            heads.map(|head| Verdict { case: self, answer, fields: fields.clone(), head }.all()).collect();
        all.sort_by_key(Vec::len);
        all.into_iter().next().unwrap_or_else(|| {
            vec![wrong("RFC 9111 section 4.3.2", "a 304 for what the origin never said", format!("{tag:?}"))]
        })
    }

    /// An answer of the cache's own making.
    fn own_answer(&self, answer: &Answer) -> Option<Finding> {
        let status = answer.status;
        let is_unknown = status == 416 && {
            let lengths = self.exchanges.iter().filter(|exchange| self.usable(exchange).is_ok());
            let mut lengths = lengths.map(|exchange| exchange.rep.length);
            lengths.any(|length| ranges(self.now.ask.get("range"), length) == Asked::None)
        };
        let is_right = match status {
            504 if self.asks("only-if-cached") => true,
            500..=599 => self.has_trouble(),
            _ => is_unknown,
        };
        (!is_right).then(|| wrong("RFC 9110 section 15", "an error that nothing explains", format!("status {status}")))
    }
}

/// The number behind `~`: the answer of the origin that a value is of.
pub fn mark(value: &str) -> Option<u64> {
    let (_, rest) = value.rsplit_once('~')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}
