//! The rules of RFC 9111 on what a shared cache may keep and serve, and for how long. Where a text may be read in two
//! ways the answer is an interval, so that only what no reading permits is found.

use super::date::{self, Read};
use super::head::{Argument, Directive, Fields, dictionary, directives};
use super::origin::Exchange;

/// Whole numbers from `low` to `high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The least.
    pub low: i64,
    /// The most.
    pub high: i64,
}

impl Span {
    fn of(value: i64) -> Span {
        Span { low: value, high: value }
    }

    fn or(self, other: Span) -> Span {
        Span { low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

/// Numbers beyond this are as good as endless (RFC 9111 section 1.2.2).
const ENDLESS: i64 = 1 << 31;
/// The heuristic lifetimes of the program's settings (RFC 9111 section 4.2.2).
const HEURISTIC_MOST: i64 = 86_400;

/// Which fields a directive names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// The whole answer.
    All,
    /// These fields.
    Some(Vec<String>),
}

/// A number that a directive gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    /// By every reading.
    Plain(i64),
    /// This or less, or as if it were not there: a wrong or a doubled value.
    Doubtful(i64),
}

/// The directives of an answer that count for a shared cache.
#[derive(Clone, Debug, Default)]
pub struct CacheControl(Vec<Directive>, bool);

impl CacheControl {
    /// Those of an answer; at a site a targeted field goes first (RFC 9213 section 2.2).
    pub fn of(fields: &Fields, at_site: bool) -> CacheControl {
        let targeted = fields.joined("cdn-cache-control").filter(|_| at_site).and_then(|text| dictionary(&text));
        let is_targeted = targeted.is_some();
        CacheControl(
            targeted.unwrap_or_else(|| directives(&fields.joined("cache-control").unwrap_or_default())),
            is_targeted,
        )
    }

    /// Whether a directive is there, with or without an argument.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// The fields that `private` or `no-cache` names.
    pub fn names(&self, name: &str) -> Option<Named> {
        let mut all = Vec::new();
        for (_, argument) in self.0.iter().filter(|(known, _)| known == name) {
            let Some(argument) = argument else { return Some(Named::All) };
            all.extend(argument.text.split(',').map(|field| field.trim().to_ascii_lowercase()));
        }
        (!all.is_empty()).then_some(Named::Some(all))
    }

    /// Whether `private` or `no-cache` names a field alone.
    pub fn names_field(&self, name: &str, field: &str) -> bool {
        matches!(self.names(name), Some(Named::Some(fields)) if fields.iter().any(|known| known == field))
    }

    fn number(&self, name: &str) -> Option<Number> {
        let of_name = self.0.iter().filter(|(known, _)| known == name);
        let found: Vec<Number> = of_name.map(|(_, argument)| read_number(argument.as_ref())).collect();
        match found[..] {
            [] => None,
            [only] => Some(only),
            [first, ..] if found.iter().all(|number| *number == first) => Some(first),
            // The first one counts, or the answer is stale (RFC 9111 section 4.2.1).
            [Number::Plain(first) | Number::Doubtful(first), ..] => {
                let readable = found.iter().map(|number| match number {
                    Number::Plain(value) | Number::Doubtful(value) => *value,
                });
                let is_plain = matches!(found[0], Number::Plain(_));
                Some(Number::Doubtful(if is_plain { first } else { readable.max().unwrap_or(first) }))
            }
        }
    }

    /// The number of `stale-while-revalidate` or `stale-if-error`, at most.
    pub fn window(&self, name: &str) -> i64 {
        match self.number(name) {
            None => 0,
            Some(Number::Plain(value) | Number::Doubtful(value)) => value,
        }
    }

    /// Whether a stale answer may not be used without validation, whoever would take it (RFC 9111 section 4.2.4).
    pub fn forbids_stale(&self) -> Option<&'static str> {
        let strict = ["must-revalidate", "proxy-revalidate", "s-maxage"];
        strict
            .into_iter()
            .find(|name| self.has(name))
            .or_else(|| (self.names("no-cache") == Some(Named::All)).then_some("no-cache"))
    }
}

fn read_number(argument: Option<&Argument>) -> Number {
    let Some(argument) = argument else { return Number::Doubtful(0) };
    let is_number = !argument.text.is_empty() && argument.text.bytes().all(|byte| byte.is_ascii_digit());
    let value = argument.text.parse::<i64>().map_or(ENDLESS, |value| value.min(ENDLESS));
    match is_number {
        // A number in quotes is a string in a targeted field, and a mistake elsewhere (RFC 9111 section 5.2).
        true if argument.exact && !argument.quoted => Number::Plain(value),
        true => Number::Doubtful(value),
        false => Number::Doubtful(0),
    }
}

/// How long an answer with these fields is fresh, from age 0 (RFC 9111 section 4.2.1). `at` is when it came.
pub fn lifetime(fields: &Fields, status: u16, at_site: bool, at: i64) -> Span {
    let said = CacheControl::of(fields, at_site);
    let mut doubtful: Option<Span> = None;
    let or = |doubtful: Option<Span>, span: Span| doubtful.map_or(span, |before| before.or(span));
    for name in ["s-maxage", "max-age"] {
        match said.number(name) {
            Some(Number::Plain(value)) => return or(doubtful, Span::of(value)),
            Some(Number::Doubtful(value)) => doubtful = Some(or(doubtful, Span { low: 0, high: value })),
            None => {}
        }
    }
    let (dates, expires) = (date_of(fields, at), fields.get("expires"));
    if let Some(expires) = expires.filter(|_| !said.1) {
        let none = Span::of(0);
        let span = match date::read(expires, at) {
            Read::Valid(when) => Span { low: (when - dates.high).max(0), high: (when - dates.low).max(0) },
            Read::Either(when) => none.or(Span::of((when - dates.low).max(0))),
            Read::Invalid => none,
        };
        return or(doubtful, span);
    }
    let guessed = if may_guess(status, &said) { heuristic(fields, dates, at) } else { 0 };
    or(doubtful, Span { low: 0, high: guessed })
}

/// A tenth of the time since the last change.
fn heuristic(fields: &Fields, dates: Span, at: i64) -> i64 {
    match fields.get("last-modified").map(|text| date::read(text, at)) {
        Some(Read::Valid(modified) | Read::Either(modified)) => {
            ((dates.high - modified) / 10 + 1).clamp(0, HEURISTIC_MOST)
        }
        Some(Read::Invalid) | None => 0,
    }
}

/// When the origin says that it made an answer; without a date that can be read it is when it came (RFC 9110 section
/// 6.6.1).
fn date_of(fields: &Fields, at: i64) -> Span {
    let came = Span { low: at - 1, high: at + 2 };
    match fields.get("date").map(|text| date::read(text, at)) {
        Some(Read::Valid(when)) => Span::of(when),
        Some(Read::Either(when)) => came.or(Span::of(when)),
        Some(Read::Invalid) | None => came,
    }
}

/// Statuses that may be kept for a guessed time (RFC 9110 section 15.1).
fn may_guess(status: u16, said: &CacheControl) -> bool {
    said.has("public") || matches!(status, 200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// How old an answer is at a time (RFC 9111 section 4.2.3), when it came between `exchange.at` and `came_by`.
pub fn age(exchange: &Exchange, came_by: f64, (from, until): (f64, f64)) -> Span {
    let came = Span { low: exchange.at as i64, high: came_by.max(exchange.at).ceil() as i64 };
    let said = age_value(exchange.fields.get("age"));
    let dates = date_of(&exchange.fields, came.low);
    let invalid =
        matches!(exchange.fields.get("date").map(|text| date::read(text, came.low)), None | Some(Read::Invalid));
    let apparent = if invalid {
        Span { low: 0, high: 1 }
    } else {
        Span { low: (came.low - dates.high).max(0), high: (came.high - dates.low).max(0) }
    };
    let delay = (came_by - exchange.at).max(0.0).ceil() as i64 + 1;
    let first = Span { low: apparent.low.max(said.low), high: apparent.high.max(said.high + delay) };
    // Clocks that count whole seconds may be off by one.
    let resident = Span {
        low: ((from - came_by.max(exchange.at)).floor() as i64).max(0),
        high: (until - exchange.at).ceil() as i64 + 1,
    };
    Span { low: first.low + resident.low, high: first.high + resident.high }
}

/// The value of `Age`: the first of several; what is no number does not count (RFC 9111 section 5.1).
fn age_value(text: Option<&str>) -> Span {
    let read = |text: &str| {
        let text = text.trim();
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<i64>().map_or(ENDLESS, |value| value.min(ENDLESS)))
    };
    let Some(text) = text else { return Span::of(0) };
    match (read(text), text.split(',').next().and_then(read)) {
        (Some(value), _) => Span::of(value),
        (None, Some(first)) => Span { low: 0, high: first },
        (None, None) => Span::of(0),
    }
}

/// Why a rule forbids something: its section, and what it says.
pub type Broken = (&'static str, String);

/// Whether an answer may be used for later requests at all (RFC 9111 section 3).
pub fn kept_by_rule(exchange: &Exchange, at_site: bool) -> Result<(), Broken> {
    let ask = &exchange.request;
    let said = CacheControl::of(&exchange.fields, at_site);
    let serial = exchange.serial;
    if !matches!(&*exchange.method, "GET" | "HEAD") {
        return Err(("RFC 9111 section 3", format!("answer {serial} is one to {}", exchange.method)));
    }
    if exchange.status < 200 || matches!(exchange.status, 412 | 416) {
        return Err(("RFC 9111 section 3", format!("answer {serial} has the status {}", exchange.status)));
    }
    let is_understood = exchange.status != 299;
    if said.has("must-understand") && !is_understood {
        return Err(("RFC 9111 section 5.2.2.3", format!("nobody understands the status of answer {serial}")));
    }
    if said.has("no-store") && !said.has("must-understand") {
        return Err(("RFC 9111 section 5.2.2.5", format!("answer {serial} says no-store")));
    }
    if directives(&ask.joined("cache-control").unwrap_or_default()).iter().any(|(name, _)| name == "no-store") {
        return Err(("RFC 9111 section 5.2.1.5", format!("the request that brought answer {serial} says no-store")));
    }
    if said.names("private") == Some(Named::All) {
        return Err(("RFC 9111 section 5.2.2.7", format!("answer {serial} is private")));
    }
    let is_secret = ask.get("authorization").is_some();
    let permits = ["public", "must-revalidate", "s-maxage"].iter().any(|name| said.has(name));
    if is_secret && !permits {
        let what = format!("answer {serial} was brought by Authorization, and does not permit to share it");
        return Err(("RFC 9111 section 3.5", what));
    }
    let explicit = ["public", "max-age", "s-maxage"].iter().any(|name| said.has(name))
        || exchange.fields.get("expires").is_some()
        || may_guess(exchange.status, &said);
    if !explicit && exchange.status != 304 {
        return Err(("RFC 9111 section 3", format!("nothing says that answer {serial} may be kept")));
    }
    Ok(())
}

/// Whether an answer was selected by fields that a request has too (RFC 9111 section 4.1).
pub fn varies_alike(vary: Option<&str>, exchange: &Exchange, ask: &Fields) -> Result<(), Broken> {
    let vary = vary.unwrap_or_default().to_ascii_lowercase();
    for name in vary.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let text = |fields: &Fields| fields.joined(name).map(|text| text.replace([' ', '\t'], "").to_ascii_lowercase());
        if name == "*" || text(&exchange.request) != text(ask) {
            let what = format!("answer {} varies by {name}, and this request has another", exchange.serial);
            return Err(("RFC 9111 section 4.1", what));
        }
    }
    Ok(())
}

/// Whether the bytes of an answer may be put together with others (RFC 9110 section 8.8.1, RFC 9111 section 3.4).
pub fn has_strong_validator(exchange: &Exchange) -> bool {
    if let Some(tag) = &exchange.tag {
        return !tag.weak;
    }
    let at = exchange.at as i64;
    let read = |name: &str| match exchange.fields.get(name).map(|text| date::read(text, at)) {
        Some(Read::Valid(when) | Read::Either(when)) => Some(when),
        _ => None,
    };
    read("last-modified").is_some_and(|modified| read("date").unwrap_or(at) > modified)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::date::Spelling;

    const NOW: i64 = 1_795_000_000;

    fn lived(fields: &[(&str, &str)]) -> (i64, i64) {
        let fields = Fields(fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect());
        let span = lifetime(&fields, 200, true, NOW);
        (span.low, span.high)
    }

    #[test]
    fn lifetimes() {
        let control = |text| lived(&[("cache-control", text)]);
        assert_eq!(control("max-age=60"), (60, 60));
        assert_eq!(control("max-age=60, s-maxage=5"), (5, 5));
        assert_eq!(control("max-age=60, max-age=5"), (0, 60));
        assert_eq!(control("max-age=abc"), (0, 0));
        assert_eq!(control("max-age=\"60\""), (0, 60));
        assert_eq!(lived(&[("cache-control", "max-age=60"), ("cdn-cache-control", "max-age=5")]), (5, 5));
        let date = Spelling::Imf.write(NOW);
        for (spelling, wanted) in [(Spelling::Imf, 60), (Spelling::TwoDigits, 0), (Spelling::Dashes, 0)] {
            let expires = spelling.write(NOW + 60);
            assert_eq!(lived(&[("date", &date), ("expires", &expires)]), (wanted, wanted), "{expires}");
        }
    }
}
