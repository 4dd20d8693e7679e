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
    /// Time, object and size, with blanks or commas between them; a first line with names may put them in another order, with
    /// others beside them.
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
        if text.lines().take(20).any(|line| Columns::named(line).is_some()) {
            return Some(Self::Columns);
        }
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.take(20).find_map(|line| {
            let line = Line::new(line);
            let text_forms = [Self::Json, Self::Squid, Self::Combined, Self::Columns];
            text_forms.into_iter().find(|form| line.read(*form, &Columns::default()).is_some())
        })
    }
}

/// The fields of one line or record.
pub(super) struct LoggedRequest<'l> {
    pub(super) at_s: f64,
    pub(super) object: std::borrow::Cow<'l, [u8]>,
    pub(super) bytes: u64,
    /// For how many seconds the log says that an answer stays fresh.
    pub(super) lifetime_s: Option<f64>,
}

/// Where the fields stand in a line of columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    time: usize,
    object: usize,
    bytes: usize,
    lifetime: Option<usize>,
    /// How many there are.
    count: usize,
}

impl Default for Columns {
    fn default() -> Self {
        Self { time: 0, object: 1, bytes: 2, lifetime: None, count: 3 }
    }
}

impl Columns {
    /// The names that a column may have: time, object, size, lifetime.
    const NAMES: [&'static [&'static str]; 4] = [
        &["time", "timestamp", "ts", "at"],
        &["object", "id", "obj", "obj_id", "object_id", "key", "url"],
        &["size", "bytes", "obj_size", "object_size"],
        &["ttl", "lifetime", "max_age", "max-age"],
    ];

    /// The columns that a line names, as `time,object,size,ttl`; a `#` may stand before them. `None` if it names none.
    pub(super) fn named(line: &str) -> Option<Self> {
        let line = line.trim().trim_start_matches('#').trim().to_ascii_lowercase();
        let words: Vec<&str> = words(&line).map(|word| word.trim_matches('"')).collect();
        let place = |field: usize| words.iter().position(|word| Self::NAMES[field].contains(word));
        Some(Self { time: place(0)?, object: place(1)?, bytes: place(2)?, lifetime: place(3), count: words.len() })
    }
}

/// The cells of a line of columns. Commas and semicolons part cells that may be empty, blanks part words.
fn words(line: &str) -> Box<dyn Iterator<Item = &str> + '_> {
    match line.contains([',', ';']) {
        true => Box::new(line.split([',', ';']).map(str::trim)),
        false => Box::new(line.split_ascii_whitespace()),
    }
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
    pub(super) fn read(&self, form: Form, columns: &Columns) -> Option<LoggedRequest<'l>> {
        match form {
            Form::Squid => self.squid(),
            Form::Combined => self.combined(),
            Form::Json => self.json(),
            Form::Columns => self.columns(columns),
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
        counts(method, status).then(|| LoggedRequest { at_s, object: url.as_bytes().into(), bytes, lifetime_s: None })
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
            lifetime_s: None,
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
        let lifetime_s = match one(&["ttl", "lifetime", "max_age"]) {
            Some(text) if text != "null" => Some(lifetime(&text)?),
            _ => None,
        };
        counts(&method, &status).then(|| LoggedRequest {
            at_s,
            object: format!("{host}{url}").into_bytes().into(),
            bytes,
            lifetime_s,
        })
    }

    fn columns(&self, columns: &Columns) -> Option<LoggedRequest<'l>> {
        let cells: Vec<&str> = words(self.text).collect();
        if cells.len() != columns.count {
            return None;
        }
        let lifetime_s = match columns.lifetime.map(|place| cells[place]) {
            Some(text) if !text.is_empty() => Some(lifetime(text)?),
            _ => None,
        };
        let object = Some(cells[columns.object]).filter(|object| !object.is_empty())?;
        let (at_s, bytes) = (number(cells[columns.time])?, cells[columns.bytes].parse().ok()?);
        Some(LoggedRequest { at_s, object: object.as_bytes().into(), bytes, lifetime_s })
    }
}

fn counts(method: &str, status: &str) -> bool {
    method == "GET" && ["200", "203", "206", "304"].contains(&status)
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Seconds for which something stays fresh: a number that is not below 0.
fn lifetime(text: &str) -> Option<f64> {
    number(text).filter(|seconds| *seconds >= 0.0)
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
    fn a_line_with_names_says_where_the_columns_are() {
        assert_eq!(Columns::named("0,a,5"), None);
        assert_eq!(Columns::named("time,size"), None, "which object is asked for is not said");
        let columns = Columns::named("# Timestamp, key, op, ttl, size").unwrap();
        assert_eq!(columns, Columns { time: 0, object: 1, bytes: 4, lifetime: Some(3), count: 5 });
        let read = |text| {
            let request = Line::new(text).read(Form::Columns, &columns)?;
            Some((
                request.at_s,
                String::from_utf8_lossy(&request.object).into_owned(),
                request.bytes,
                request.lifetime_s,
            ))
        };
        assert_eq!(read("1.5,/a b,get,60,7"), Some((1.5, "/a b".to_owned(), 7, Some(60.0))));
        assert_eq!(read("1.5;/a;get;;7"), Some((1.5, "/a".to_owned(), 7, None)));
        for nonsense in ["1.5,/a,get,soon,7", "1.5,/a,get,-1,7", "1.5,/a,get,60", "1.5,,get,60,7"] {
            assert_eq!(read(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn times_differ_by_the_calendar() {
        let at = |text| clf_time(text).unwrap();
        assert_eq!(at("01/Mar/2000:00:00:00 +0000") - at("28/Feb/2000:00:00:00 +0000"), 2.0 * 86_400.0);
        assert_eq!(at("01/Jan/2024:00:00:00 +0000") - at("31/Dec/2023:23:59:59 +0000"), 1.0);
        assert_eq!(clf_time("10/Ock/2000:13:55:36"), None);
    }
}
