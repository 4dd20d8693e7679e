//! How old a response is and how long it is fresh (RFC 9111 section 4.2).

use larder_wire::date::{Stamp, delta_seconds, parse_date_at};
use larder_wire::directives::CacheControl;
use larder_wire::fields::Members;
use larder_wire::{Fields, RequestHead, ResponseHead, structured};

use super::file_kind::{self, FileKind};
use super::{Mode, Settings, Times, credentials};

/// Where a freshness lifetime comes from, in the order in which they count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifetimeSource {
    /// A targeted field (RFC 9213).
    Targeted,
    /// `s-maxage`, in a shared cache.
    SMaxAge,
    /// `max-age`.
    MaxAge,
    /// `Expires`.
    Expires,
    /// The setting for errors that say nothing.
    Negative,
    /// The time since the last modification.
    Heuristic,
    /// The setting for answers that say nothing at all.
    Unlabelled,
    /// Nothing: stale at once.
    None,
    /// A store rule, where the origin says nothing.
    Rule,
    /// A store rule, which prolongs what the origin says.
    RuleMin,
    /// The protocol that is spoken, whatever the answer says.
    Protocol,
    /// A hook of the forward proxy, whatever the answer says.
    Hook,
}

impl LifetimeSource {
    /// The word that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            LifetimeSource::Targeted => "targeted",
            LifetimeSource::SMaxAge => "s-maxage",
            LifetimeSource::MaxAge => "max-age",
            LifetimeSource::Expires => "expires",
            LifetimeSource::Negative => "negative",
            LifetimeSource::Heuristic => "heuristic",
            LifetimeSource::Unlabelled => "unlabelled",
            LifetimeSource::None => "none",
            LifetimeSource::Rule => "store-rule",
            LifetimeSource::RuleMin => "store-rule-min",
            LifetimeSource::Protocol => "protocol",
            LifetimeSource::Hook => "hook",
        }
    }

    /// The source that has this word.
    pub fn of_word(word: &str) -> Option<LifetimeSource> {
        use LifetimeSource::*;
        let all =
            [Targeted, SMaxAge, MaxAge, Expires, Negative, Heuristic, Unlabelled, None, Rule, RuleMin, Protocol, Hook];
        all.into_iter().find(|source| source.as_str() == word)
    }

    /// True when the origin said it.
    pub fn is_explicit(self) -> bool {
        use LifetimeSource::*;
        !matches!(self, Negative | Heuristic | Unlabelled | None | Rule | Protocol | Hook)
    }

    /// True when it was given to an answer of which nobody said that it is the same for all who ask.
    pub(super) fn is_ours(self) -> bool {
        use LifetimeSource::*;
        matches!(self, Unlabelled | Rule | Protocol | Hook)
    }
}

/// The directives that count for a response, and whether a targeted field gave them (RFC 9213 section 2.2).
pub(super) struct Directives {
    pub control: CacheControl,
    pub targeted: bool,
}

impl Directives {
    pub(super) fn of(response: &ResponseHead, settings: &Settings) -> Directives {
        match structured::targeted(&response.fields, &settings.targeted) {
            Some(control) => Directives { control, targeted: true },
            None => Directives { control: CacheControl::of(&response.fields), targeted: false },
        }
    }
}

/// The freshness lifetime and its source: that of RFC 9111, and what a store rule makes of it.
pub(super) fn lifetime(
    asked: Option<&RequestHead>,
    response: &ResponseHead,
    directives: &Directives,
    times: (Stamp, Stamp),
    settings: &Settings,
) -> (u64, LifetimeSource) {
    let given = without_rule(asked, response, directives, times, settings);
    match settings.rule.zip(asked) {
        Some((rule, asked)) => rule.lifetime(asked, response, given),
        None => given,
    }
}

/// The freshness lifetime and its source (RFC 9111 section 4.2.1): the first that is there counts, in the order
/// of [`LifetimeSource`], even when its value is that the response is stale.
fn without_rule(
    asked: Option<&RequestHead>,
    response: &ResponseHead,
    directives: &Directives,
    (date, received): (Stamp, Stamp),
    settings: &Settings,
) -> (u64, LifetimeSource) {
    let source = |source| if directives.targeted { LifetimeSource::Targeted } else { source };
    if let Some(seconds) = directives.control.s_maxage.filter(|_| settings.mode == Mode::Shared) {
        return (seconds, source(LifetimeSource::SMaxAge));
    }
    if let Some(seconds) = directives.control.max_age {
        return (seconds, source(LifetimeSource::MaxAge));
    }
    if let Some(expires) = response.fields.get("Expires").filter(|_| !directives.targeted) {
        // A value that is no date, `0` above all, is in the past (RFC 9111 section 5.3); of several lines the first counts. The
        // century of a year with two digits is found by our clock (RFC 9110 section 5.6.7).
        let seconds = parse_date_at(expires, received).map_or(0, |expires| expires.since(date));
        return (seconds, LifetimeSource::Expires);
    }
    if !(is_heuristic_status(response.status) || directives.control.public) {
        return (0, LifetimeSource::None);
    }
    if is_negative(response.status) && settings.negative_seconds > 0 {
        return (settings.negative_seconds, LifetimeSource::Negative);
    }
    if let Some(asked) = asked
        && let Some(seconds) = unlabelled(asked, response, settings)
    {
        return (seconds, LifetimeSource::Unlabelled);
    }
    heuristic(response, date, settings)
}

/// The lifetime of an answer that says nothing, where the settings give one: to what does not depend on who asked.
fn unlabelled(asked: &RequestHead, response: &ResponseHead, settings: &Settings) -> Option<u64> {
    let by_kind = settings.unlabelled_file_seconds.max(settings.unlabelled_named_seconds);
    if settings.unlabelled_seconds.max(by_kind) == 0
        || !is_unlabelled(response)
        || credentials::may_say_who_asks(&asked.fields)
    {
        return None;
    }
    let by_kind = match (by_kind > 0).then(|| file_kind::of(asked, response)).flatten() {
        None => 0,
        Some(FileKind::Changing) => settings.unlabelled_file_seconds,
        Some(FileKind::Named) => settings.unlabelled_named_seconds,
    };
    Some(settings.unlabelled_seconds.max(by_kind)).filter(|&seconds| seconds > 0)
}

/// Any heuristic is permitted where the origin says nothing (RFC 9111 section 4.2.2); this one looks for nothing.
fn is_unlabelled(response: &ResponseHead) -> bool {
    const LABELS: [&str; 6] = ["Cache-Control", "Expires", "Pragma", "Last-Modified", "ETag", "Set-Cookie"];
    response.status == 200 && !LABELS.iter().any(|label| response.fields.contains(label))
}

/// A part of the time since the last modification (RFC 9111 section 4.2.2).
fn heuristic(response: &ResponseHead, date: Stamp, settings: &Settings) -> (u64, LifetimeSource) {
    let unchanged = last_modified(&response.fields, date).map_or(0, |modified| date.since(modified));
    let seconds = unchanged.saturating_mul(settings.heuristic_percent.into()) / 100;
    match seconds.min(settings.heuristic_max_seconds) {
        0 => (0, LifetimeSource::None),
        seconds => (seconds, LifetimeSource::Heuristic),
    }
}

/// The statuses that may be kept without a word of the origin (RFC 9110 section 15.1).
pub(super) fn is_heuristic_status(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Those of them that say no.
fn is_negative(status: u16) -> bool {
    is_heuristic_status(status) && status >= 400
}

/// The origin's time of the response; without a readable `Date`, when it arrived (RFC 9110 section 6.6.1).
pub(super) fn date(fields: &Fields, received: Stamp) -> Stamp {
    fields.get("Date").and_then(|value| parse_date_at(value, received)).unwrap_or(received)
}

pub(super) fn last_modified(fields: &Fields, now: Stamp) -> Option<Stamp> {
    fields.get("Last-Modified").and_then(|value| parse_date_at(value, now))
}

/// The age on arrival: what the `Age` field and the way took, or what the clocks differ, whichever is more
/// (RFC 9111 section 4.2.3).
pub(super) fn initial_age(response: &ResponseHead, date: Stamp, times: Times) -> u64 {
    let apparent_age = times.received.since(date);
    let response_delay = times.received.since(times.requested);
    apparent_age.max(age_value(&response.fields).saturating_add(response_delay))
}

/// The first member of `Age`; 0 when that is no number (RFC 9111 section 5.1).
fn age_value(fields: &Fields) -> u64 {
    fields.get("Age").and_then(|value| Members::new(value).next()).and_then(delta_seconds).unwrap_or(0)
}
