//! Lifetimes by store rules: knowledge of a protocol that its answers do not carry, such as that a file named by a
//! digest never changes.
//!
//! A rule takes nothing back that the origin says of who may have an answer: `no-store`, `private`, `no-cache`, `Vary` and the rule about
//! `Authorization` count as without it. It counts only for the answer to a request that says nothing of who asks
//! ([`may_say_who_asks`]), because an answer to one user, however it is named, may be his alone.

use super::freshness::LifetimeSource;
use super::{Grace, Settings, may_say_who_asks};
use larder_wire::directives::CacheControl;
use larder_wire::{RequestHead, ResponseHead};

/// The terms that a store rule gives to the answers that it matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleTerms {
    /// How long an answer is fresh whose origin does not say how long.
    pub lifetime_seconds: Option<u64>,
    /// How long an answer is fresh at least, whatever its origin says.
    pub lifetime_min_seconds: Option<u64>,
    /// How long it is served stale while it is validated, where the origin does not say how long.
    pub stale_while_revalidate_seconds: Option<u64>,
    /// How long it stands in for an error, where the origin does not say how long.
    pub stale_if_error_seconds: Option<u64>,
    /// A redirection is stored for the time when its origin is out of reach. While the origin answers, it is asked.
    pub keeps_redirects: bool,
}

/// A redirection that is stored for want of its origin is taken however old it is.
const REDIRECT_GRACE_SECONDS: u64 = 10 * 365 * 86_400;

impl RuleTerms {
    /// The lifetime of an answer, where `given` is the one that it has without the rule.
    pub(super) fn lifetime(
        &self,
        asked: &RequestHead,
        response: &ResponseHead,
        given: (u64, LifetimeSource),
    ) -> (u64, LifetimeSource) {
        let (seconds, source) = given;
        if response.fields.contains("Set-Cookie") || may_say_who_asks(&asked.fields) {
            return given;
        }
        if is_redirect(response.status) && self.keeps_redirects && source == LifetimeSource::None {
            return (0, LifetimeSource::Rule);
        }
        if !matches!(response.status, 200 | 203 | 206) {
            return given;
        }
        let least = self.lifetime_min_seconds.unwrap_or(0);
        match self.lifetime_seconds.max(self.lifetime_min_seconds) {
            Some(lifetime) if !source.is_explicit() => (lifetime, LifetimeSource::Rule),
            _ if source.is_explicit() && seconds < least => (least, LifetimeSource::RuleMin),
            _ => given,
        }
    }
}

/// For how long past its lifetime a response serves still: as its origin says, and where it does not, as the rule does that gave the
/// lifetime or would have given one.
pub(super) fn grace(
    asked: Option<&RequestHead>,
    source: LifetimeSource,
    response: &ResponseHead,
    control: &CacheControl,
    settings: &Settings,
) -> Option<Box<Grace>> {
    let (mut behind, mut on_error) = (control.stale_while_revalidate, control.stale_if_error);
    // With a grace alone, an answer to one user would be kept, and given to those who wait for it.
    let is_for_all = asked.is_some_and(|asked| !may_say_who_asks(&asked.fields));
    if let Some(rule) = settings.rule.filter(|_| is_for_all && matches!(response.status, 200 | 203 | 206)) {
        behind = behind.or(rule.stale_while_revalidate_seconds);
        on_error = on_error.or(rule.stale_if_error_seconds);
    } else if source == LifetimeSource::Rule {
        on_error = on_error.or(Some(REDIRECT_GRACE_SECONDS));
    }
    Grace::of(behind, on_error)
}

fn is_redirect(status: u16) -> bool {
    matches!(status, 301..=303 | 307 | 308)
}

#[cfg(test)]
mod tests {
    use super::super::{Storable, Times, storable};
    use super::*;
    use larder_wire::date::Stamp;
    use larder_wire::{Fields, Method, Target, Version};

    const DAY: u64 = 86_400;

    fn kept(rule: RuleTerms, asks: &[(&str, &str)], status: u16, says: &[(&str, &str)]) -> Option<(u64, &'static str)> {
        let mut fields = Fields::new();
        asks.iter().for_each(|(name, value)| fields.push(name, *value));
        let request = RequestHead::new(Method::Get, Target::Origin("/x".into()), Version::Http11, fields);
        let mut response = ResponseHead::new(status);
        says.iter().for_each(|(name, value)| response.fields.push(name, *value));
        let now = Stamp(1_000_000_000);
        let settings = Settings { rule: Some(rule), ..Settings::default() };
        match storable(&request, &response, Times { requested: now, received: now }, &settings) {
            Storable::Yes(terms) => Some((terms.lifetime, terms.source.as_str())),
            Storable::No(_) => None,
        }
    }

    #[test]
    fn a_rule_gives_lifetimes_and_takes_back_nothing_that_the_origin_says() {
        let index = RuleTerms { lifetime_seconds: Some(600), ..RuleTerms::default() };
        let graced = RuleTerms { stale_if_error_seconds: Some(30 * DAY), ..index };
        let named = RuleTerms { lifetime_min_seconds: Some(365 * DAY), ..RuleTerms::default() };
        let hub = RuleTerms { keeps_redirects: true, ..RuleTerms::default() };
        let (year, to) = (Some((365 * DAY, "store-rule")), ("Location", "/y"));
        for (rule, asks, status, says, wanted) in [
            (index, &[][..], 200, &[][..], Some((600, "store-rule"))),
            (index, &[], 200, &[("Last-Modified", "Sat, 01 Jan 2000 00:00:00 GMT")], Some((600, "store-rule"))),
            (index, &[], 200, &[("Cache-Control", "max-age=60")], Some((60, "max-age"))),
            (index, &[], 200, &[("Cache-Control", "max-age=0"), ("ETag", "\"x\"")], Some((0, "max-age"))),
            (index, &[], 404, &[], None),
            (index, &[], 500, &[], None),
            (named, &[], 200, &[], year),
            (named, &[], 206, &[], None),
            (named, &[], 200, &[("Cache-Control", "max-age=60")], Some((365 * DAY, "store-rule-min"))),
            (named, &[], 200, &[("Cache-Control", "max-age=99999999")], Some((99_999_999, "max-age"))),
            (named, &[], 200, &[("Cache-Control", "no-store, max-age=60")], None),
            (named, &[], 200, &[("Cache-Control", "private")], None),
            (named, &[], 200, &[("Set-Cookie", "a=b")], None),
            // One who may say who he is.
            (named, &[("Cookie", "a=b")], 200, &[], None),
            (named, &[("Authorization", "Bearer x")], 200, &[], None),
            (named, &[("X-Api-Key", "x")], 200, &[("Cache-Control", "max-age=60")], Some((60, "max-age"))),
            (
                named,
                &[("Authorization", "Bearer x")],
                200,
                &[("Cache-Control", "max-age=60, must-revalidate")],
                Some((60, "max-age")),
            ),
            // A grace alone keeps nothing for one who may say who he is.
            (graced, &[("X-Api-Key", "x")], 200, &[], None),
            (graced, &[("Cookie", "a=b")], 200, &[], None),
            (graced, &[], 200, &[], Some((600, "store-rule"))),
            // Redirections.
            (hub, &[], 302, &[to], Some((0, "store-rule"))),
            (named, &[], 302, &[to], None),
            (hub, &[("Authorization", "Bearer x")], 302, &[to], None),
            (hub, &[], 302, &[to, ("Cache-Control", "no-store")], None),
            (hub, &[], 302, &[to, ("Cache-Control", "no-cache")], None),
            (hub, &[], 302, &[to, ("Set-Cookie", "a=b")], None),
            (hub, &[], 200, &[], None),
        ] {
            assert_eq!(kept(rule, asks, status, says), wanted, "{rule:?} {asks:?} {status} {says:?}");
        }
    }
}
