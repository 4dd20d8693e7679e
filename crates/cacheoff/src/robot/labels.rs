//! The fields of a reply, and what they must say: the law knows what the origin wrote, and the echo says when. A field may differ
//! only where an RFC lets a cache, or a gateway as the origin of what it sends (RFC 9110 section 3.7), change it.

use super::Kindred;
use super::case::{Case, Remark, TOLERANCE_S, Wrong};
use crate::ledger::{Served, Trouble};
use crate::object::{Content, Version};
use crate::wire::{Echo, Tag, UNCACHABLE};
use larder_wire::date::parse_date;
use larder_wire::directives::CacheControl;
use larder_wire::{Fields, ResponseHead};

/// A reply whose fields are looked at.
pub(super) struct Labels<'a> {
    pub case: &'a Case<'a>,
    pub head: &'a ResponseHead,
    pub served: Served,
    /// `None` only for a 304 that the cache made itself.
    pub echo: Option<Echo>,
    /// The tag, and whether it is the origin's to the letter.
    pub tag: Option<(Tag, bool)>,
    pub dated: Option<u64>,
}

impl Labels<'_> {
    /// The first field that is not as it must be.
    pub fn wrong(&self) -> Option<Wrong> {
        self.object().or_else(|| self.coding()).or_else(|| self.described()).or_else(|| self.time())
    }

    /// A rule that is broken and makes nothing wrong.
    pub fn remark(&self) -> Option<Remark> {
        if self.served == Served::Miss || self.head.fields.contains("Age") {
            return None;
        }
        self.age_s().filter(|age| *age > self.slack()).map(Remark::MissingAge)
    }

    /// Whether the tag is that of another client's answer.
    pub fn mixed_users(&self) -> Option<Wrong> {
        let (case, (tag, _)) = (self.case, self.tag?);
        let personal = case.law.content(&case.wish.name).personal;
        let other = personal && tag.seed != case.law.body(&case.wish.facts, 0, case.wish.user(case.law)).seed;
        other.then(|| (Trouble::MixedUsers, "the tag is that of another client's answer".to_owned()))
    }

    /// Checks that the tag belongs to the object.
    fn object(&self) -> Option<Wrong> {
        let (case, (tag, own)) = (self.case, self.tag?);
        if tag.seed != case.wish.facts.seed && !case.law.content(&case.wish.name).personal {
            return Some((Trouble::WrongBytes, format!("the tag is of object {:x}", tag.seed)));
        }
        let wanted = case.variant();
        (own && tag.variant != wanted)
            .then(|| (Trouble::WrongVariant, format!("variant {} instead of {wanted}", tag.variant)))
    }

    /// How the body is coded. A cache may code it anew for a client that takes that (RFC 9110 section 7.7), and says so by
    /// the tag, for a strong one names a sequence of bytes.
    fn coding(&self) -> Option<Wrong> {
        let coding = self.head.fields.get("Content-Encoding");
        if let Some(coding) = coding {
            let takes = self.case.wish.variant > 0 && !self.case.wish.kind.is_partial();
            if !takes || !coding.eq_ignore_ascii_case(b"gzip") {
                let coding = String::from_utf8_lossy(coding);
                return Some((
                    Trouble::WrongVariant,
                    format!("the body is coded as {coding}, which the client does not take"),
                ));
            }
        }
        let (tag, own) = self.tag.filter(|_| matches!(self.head.status, 200 | 206))?;
        let contradicts = own && (tag.variant == 1) != coding.is_some();
        let detail = || format!("a strong tag of variant {}, but the body is coded otherwise", tag.variant);
        contradicts.then(|| (Trouble::WrongVariant, detail()))
    }

    /// Whether the cache coded the body.
    fn is_recoded(&self) -> bool {
        self.head.fields.contains("Content-Encoding") && !self.tag.is_some_and(|(_, own)| own)
    }

    /// The fields that describe what the origin sent.
    fn described(&self) -> Option<Wrong> {
        let (case, fields) = (self.case, &self.head.fields);
        let version = self.version()?;
        let content = case.law.content(&case.wish.name);
        self.tag_is_right(content, &version)
            .or_else(|| self.media_is_right(content))
            .or_else(|| self.modified_is_right(&version))
            .or_else(|| self.lifetime_is_right(content, &version))
            .or_else(|| {
                let lost = content.variants > 1 && !fields.has_member("Vary", "Accept-Encoding") && !self.is_short();
                (lost && !fields.has_member("Vary", "*")).then(|| lost_field("Vary"))
            })
            .or_else(|| {
                let lost = content.personal && !content.is_private() && !fields.has_member("Vary", "Cookie");
                (lost && !self.is_short() && !fields.has_member("Vary", "*")).then(|| lost_field("Vary"))
            })
            .or_else(|| self.cookie(content))
    }

    /// `Set-Cookie` comes with what is private, for the client that asked.
    fn cookie(&self, content: &Content) -> Option<Wrong> {
        let found = self.head.fields.get("Set-Cookie")?;
        let wish = self.case.wish;
        let own = format!("for={:x}", wish.user(self.case.law));
        let right = wish.facts.cachable && content.is_private() && found == own.as_bytes();
        let detail = || format!("{} came, and the origin did not send that", String::from_utf8_lossy(found));
        (!right).then(|| (Trouble::InjectedCookie, detail()))
    }

    /// The version that the origin gave out when the answer left it.
    fn version(&self) -> Option<Version> {
        let law = self.case.law;
        let unix = self.echo?.second(law.epoch);
        Some(law.version(&self.case.wish.name, &self.case.wish.facts, unix))
    }

    /// A 304 may leave out what the client has (RFC 9110 section 15.4.5).
    fn is_short(&self) -> bool {
        self.head.status == 304
    }

    fn tag_is_right(&self, content: &Content, version: &Version) -> Option<Wrong> {
        match (self.tag, self.head.fields.get("ETag")) {
            (None, None) if content.etag && !self.is_short() && !self.is_recoded() => Some(lost_field("ETag")),
            (None, Some(found)) => Some(changed_field("ETag", found, "one that the origin gives")),
            (Some((tag, _)), Some(found)) if tag.generation != version.generation => {
                Some(changed_field("ETag", found, &format!("that of version {}", version.generation)))
            }
            _ => None,
        }
    }

    fn media_is_right(&self, content: &Content) -> Option<Wrong> {
        if !matches!(self.head.status, 200 | 206) {
            return None;
        }
        let Some(found) = self.head.fields.get("Content-Type") else { return Some(lost_field("Content-Type")) };
        let essence = |value: &[u8]| value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii().to_vec();
        let same = found == content.media.as_bytes()
            || essence(found).eq_ignore_ascii_case(&essence(content.media.as_bytes()));
        let parts = matches!(self.case.wish.kind, Kindred::Parts(_)) && self.head.status == 206;
        let several = parts && essence(found).eq_ignore_ascii_case(b"multipart/byteranges");
        (!same && !several).then(|| changed_field("Content-Type", found, &content.media))
    }

    fn modified_is_right(&self, version: &Version) -> Option<Wrong> {
        if !version.says_modified || !self.case.wish.facts.cachable {
            return None;
        }
        match self.head.fields.get("Last-Modified") {
            None if self.is_short() => None,
            None => Some(lost_field("Last-Modified")),
            Some(found) if parse_date(found).map(|date| date.0) == Some(version.modified) => None,
            Some(found) => Some(changed_field("Last-Modified", found, &format!("{} s since 1970", version.modified))),
        }
    }

    /// `Expires` and `Cache-Control`. A gateway may shorten lifetimes for those that it serves.
    fn lifetime_is_right(&self, content: &Content, version: &Version) -> Option<Wrong> {
        let (fields, cachable) = (&self.head.fields, self.case.wish.facts.cachable);
        let expires = match fields.get("Expires") {
            None if cachable && !self.is_short() => return Some(lost_field("Expires")),
            found if !cachable => found.and(None),
            found => found,
        };
        if let Some(found) = expires {
            let said = parse_date(found).map_or(0, |date| date.0);
            if said > version.expires {
                let late = said - version.expires;
                return Some((Trouble::ExtendedLifetime, format!("Expires is {late} s later than the origin said")));
            }
            if said < version.expires && !self.case.gateway {
                return Some(changed_field("Expires", found, &format!("{} s since 1970", version.expires)));
            }
        }
        let wanted = if cachable { &content.cache_control } else { UNCACHABLE };
        let mut lines = fields.get_all("Cache-Control");
        match (lines.next(), lines.next()) {
            (None, _) if self.is_short() => None,
            (None, _) => Some(lost_field("Cache-Control")),
            (Some(found), None) if found == wanted.as_bytes() => None,
            (Some(found), _) => {
                let mut alone = Fields::new();
                alone.push("Cache-Control", wanted.as_bytes());
                let (said, wanted_too) = (CacheControl::of(fields), CacheControl::of(&alone));
                let made = self.echo.map_or(0, |echo| echo.second(self.case.law.epoch));
                let until_s = version.expires.saturating_sub(made);
                if is_looser(&said, &wanted_too, until_s) {
                    let detail =
                        format!("Cache-Control is {}, but the origin said {wanted}", String::from_utf8_lossy(found));
                    return Some((Trouble::ExtendedLifetime, detail));
                }
                let same = CacheControl { unknown: 0, ..said } == CacheControl { unknown: 0, ..wanted_too };
                (!same && !self.case.gateway).then(|| changed_field("Cache-Control", found, wanted))
            }
        }
    }

    /// `Date` and `Age`.
    fn time(&self) -> Option<Wrong> {
        let (case, slack) = (self.case, self.slack());
        let Some(dated) = self.dated else { return Some(lost_field("Date")) };
        if dated > case.now + TOLERANCE_S {
            return Some((Trouble::WrongDate, format!("Date lies {} s in the future", dated - case.now)));
        }
        let made = self.echo.map_or(dated, |echo| echo.second(case.law.epoch));
        let is_new = dated > made + TOLERANCE_S && !self.is_validated(made + TOLERANCE_S);
        let age: Option<u64> = self.head.fields.text("Age").and_then(|age| age.trim().parse().ok());
        let (oldest, real) = (case.now.saturating_sub(made.min(dated)), case.now.saturating_sub(made));
        if let Some(age) = age {
            // A cache adds the time that the origin took (RFC 9111 section 4.2.3), so that an answer looks older than it is.
            if age > oldest + slack + case.delay_s_max {
                return Some((Trouble::WrongAge, format!("Age is {age} s, but the origin spoke {oldest} s ago")));
            }
            let least = if is_new { real } else { case.now.saturating_sub(made.max(dated)) };
            if age + slack < least {
                return Some((Trouble::WrongAge, format!("Age is {age} s, but the origin spoke {least} s ago")));
            }
            return None;
        }
        if !is_new || real <= slack {
            return None;
        }
        let at_now = dated + slack >= case.now;
        let relative = case.law.content(&case.wish.name).lifetime_s().is_some() && case.wish.facts.cachable;
        match (at_now, relative) {
            (true, true) => Some((
                Trouble::ExtendedLifetime,
                format!("Date is new and no Age is there, so that max-age begins anew; the origin spoke {real} s ago"),
            )),
            // The lifetime ends at `Expires`, whatever the Date says.
            (true, false) => None,
            (false, _) => {
                Some((Trouble::WrongDate, format!("Date lies {} s after the answer of the origin", dated - made)))
            }
        }
    }

    /// Seconds since the origin last spoke of this answer, as far as the echo and the journal tell.
    fn age_s(&self) -> Option<u64> {
        let made = self.echo?.second(self.case.law.epoch);
        let since = self.dated.filter(|dated| *dated > made && self.is_validated(*dated)).unwrap_or(made);
        Some(self.case.now.saturating_sub(since))
    }

    /// Whether the origin may have confirmed the answer in this second or later.
    fn is_validated(&self, unix: u64) -> bool {
        self.case.journal.may_be_validated(self.case.wish.name.fingerprint(), unix.saturating_sub(TOLERANCE_S))
    }

    /// Seconds by which what is said may be off: clocks, and how long the reply was awaited.
    fn slack(&self) -> u64 {
        TOLERANCE_S + self.case.now.saturating_sub(self.case.asked)
    }
}

/// Whether a cache that believes `said` may keep an answer longer, or give it to more people, than one that believes
/// `wanted`; `until_s` is the lifetime by `Expires`.
fn is_looser(said: &CacheControl, wanted: &CacheControl, until_s: u64) -> bool {
    let lost = |had: bool, has: bool| had && !has;
    let lifetime = |each: &CacheControl| each.max_age.unwrap_or(until_s);
    let shared = |each: &CacheControl| each.s_maxage.or(each.max_age).unwrap_or(until_s);
    let grace = |each: Option<u64>| each.unwrap_or(0);
    lost(wanted.no_store, said.no_store)
        || lost(wanted.no_cache.is_some(), said.no_cache.is_some())
        || lost(wanted.private.is_some(), said.private.is_some())
        || lost(wanted.must_revalidate, said.must_revalidate)
        || lost(wanted.proxy_revalidate, said.proxy_revalidate)
        || lifetime(said) > lifetime(wanted)
        || shared(said) > shared(wanted)
        || grace(said.stale_while_revalidate) > grace(wanted.stale_while_revalidate)
        || grace(said.stale_if_error) > grace(wanted.stale_if_error)
}

fn lost_field(name: &str) -> Wrong {
    (Trouble::LostField, format!("the origin sent {name}, and none came"))
}

fn changed_field(name: &str, found: &[u8], wanted: &str) -> Wrong {
    (Trouble::ChangedField, format!("{name} is {}, not {wanted}", String::from_utf8_lossy(found)))
}
