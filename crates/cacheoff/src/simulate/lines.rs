//! Forms of logs, and one line of a log by its form. Only answers that a cache might store count: GET, with 200, 203, 206 or 304.

use serde_json::Value;

/// Forms of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Squid's native access log.
    Squid,
    /// The combined or common log of web servers.
    Combined,
    /// One JSON object a line.
    Json,
    /// The binary traces of libCacheSim: time, object, size, next use.
    Oracle,
    /// Time, object and size, with blanks or commas between them.
    Columns,
}

impl Form {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Squid, Self::Combined, Self::Json, Self::Oracle, Self::Columns];

    /// The word of flags and workloads.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Squid => "squid",
            Self::Combined => "combined",
            Self::Json => "json",
            Self::Oracle => "oracle",
            Self::Columns => "columns",
        }
    }

    /// The form that a log seems to have, by its first bytes.
    pub fn of(start: &[u8]) -> Option<Self> {
        if start.iter().take(64).any(|byte| *byte == 0) {
            return Some(Self::Oracle);
        }
        let text = String::from_utf8_lossy(start);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.take(20).find_map(|line| {
            let line = Line::new(line);
            let text_forms = [Self::Json, Self::Squid, Self::Combined, Self::Columns];
            text_forms.into_iter().find(|form| line.read(*form).is_some())
        })
    }
}

/// The fields of one line or record.
pub(super) struct LoggedRequest<'l> {
    pub(super) at_s: f64,
    pub(super) object: std::borrow::Cow<'l, [u8]>,
    pub(super) bytes: u64,
}

/// A line.
pub(super) struct Line<'l> {
    text: &'l str,
}

impl<'l> Line<'l> {
    pub(super) fn new(text: &'l str) -> Self {
        Self { text }
    }

    /// The request of this line; `None` if it has none of this form that counts.
    pub(super) fn read(&self, form: Form) -> Option<LoggedRequest<'l>> {
        match form {
            Form::Squid => self.squid(),
            Form::Combined => self.combined(),
            Form::Json => self.json(),
            Form::Columns => self.columns(),
            Form::Oracle => None,
        }
    }

    /// `time elapsed client result/status bytes method URL …`
    fn squid(&self) -> Option<LoggedRequest<'l>> {
        let mut words = self.text.split_ascii_whitespace();
        let at_s = number(words.next()?)?;
        let (_elapsed, _client) = (number(words.next()?)?, words.next()?);
        let (_, status) = words.next()?.split_once('/')?;
        let (bytes, method, url) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
        counts(method, status).then(|| LoggedRequest { at_s, object: url.as_bytes().into(), bytes })
    }

    /// `client - user [time] "METHOD target version" status bytes …`
    fn combined(&self) -> Option<LoggedRequest<'l>> {
        let (_, rest) = self.text.split_once('[')?;
        let (time, rest) = rest.split_once("] \"")?;
        let (request, rest) = rest.split_once("\" ")?;
        let mut request = request.split_ascii_whitespace();
        let (method, target) = (request.next()?, request.next()?);
        let mut rest = rest.split_ascii_whitespace();
        let (status, bytes) = (rest.next()?, rest.next()?);
        let bytes = if bytes == "-" { 0 } else { bytes.parse().ok()? };
        counts(method, status).then_some(LoggedRequest {
            at_s: clf_time(time)?,
            object: target.as_bytes().into(),
            bytes,
        })
    }

    fn json(&self) -> Option<LoggedRequest<'l>> {
        let Value::Object(fields) = serde_json::from_str(self.text).ok()? else { return None };
        let one = |names: &[&str]| names.iter().find_map(|name| fields.get(*name)).map(word);
        let url = one(&["url", "uri", "request_uri", "key", "object"])?;
        let host = one(&["host"]).filter(|_| url.starts_with('/')).unwrap_or_default();
        let method = one(&["method", "request_method"]).unwrap_or_else(|| "GET".to_owned());
        let status = one(&["status", "code"]).unwrap_or_else(|| "200".to_owned());
        let bytes = one(&["bytes", "size", "body_bytes_sent", "bytes_sent", "body_bytes"])?.parse().ok()?;
        let time = one(&["ts", "time", "timestamp", "at", "msec"]).unwrap_or_default();
        let at_s = number(&time).or_else(|| clf_time(&time)).unwrap_or(0.0);
        counts(&method, &status).then(|| LoggedRequest {
            at_s,
            object: format!("{host}{url}").into_bytes().into(),
            bytes,
        })
    }

    fn columns(&self) -> Option<LoggedRequest<'l>> {
        let mut words = self.text.split([' ', '\t', ',', ';']).filter(|word| !word.is_empty());
        let (at_s, object, bytes) = (number(words.next()?)?, words.next()?, words.next()?.parse().ok()?);
        words.next().is_none().then(|| LoggedRequest { at_s, object: object.as_bytes().into(), bytes })
    }
}

fn counts(method: &str, status: &str) -> bool {
    method == "GET" && ["200", "203", "206", "304"].contains(&status)
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite())
}

/// Seconds of `10/Oct/2000:13:55:36 -0700`, its zone left out, for differences within one log.
fn clf_time(text: &str) -> Option<f64> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let mut parts = text.split(['/', ':', ' ']);
    let day: i64 = parts.next()?.parse().ok()?;
    let month = parts.next().filter(|month| month.len() == 3).and_then(|month| MONTHS.find(month))? as i64 / 3;
    let year: i64 = parts.next()?.parse().ok().filter(|year| (1990..3000).contains(year))?;
    let mut clock = || parts.next()?.parse::<u32>().ok().filter(|part| *part < 62);
    let (hour, minute, second) = (clock()?, clock()?, clock()?);
    // Days since 1 March 0000 by the calendar of Gregory; the year begins in March.
    let (year, month) = if month < 2 { (year - 1, month + 10) } else { (year, month - 2) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    Some(days as f64 * 86_400.0 + f64::from(hour * 3_600 + minute * 60 + second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_differ_by_the_calendar() {
        let at = |text| clf_time(text).unwrap();
        assert_eq!(at("01/Mar/2000:00:00:00 +0000") - at("28/Feb/2000:00:00:00 +0000"), 2.0 * 86_400.0);
        assert_eq!(at("01/Jan/2024:00:00:00 +0000") - at("31/Dec/2023:23:59:59 +0000"), 1.0);
        assert_eq!(clf_time("10/Ock/2000:13:55:36"), None);
    }
}
