//! A record as a line of text.

use crate::client::{ShownAddress, has_address};
use crate::config::{LogField, LogFormat, Part};
use crate::hook::HookNote;
use crate::record::{Cause, HookTrail, Id, Names, Outcome, Query, Record, WayNote, without_values};
use larder_rules::UNIX_CLIENTS;
use larder_wire::date::Stamp;
use larder_wire::{Version, encode};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::net::IpAddr;

/// Appends the line of a record.
pub(super) fn append(
    record: &Record,
    (names, before): (&Names, &Before),
    (format, query): (&LogFormat, Query),
    out: &mut Vec<u8>,
) {
    match format {
        LogFormat::Combined => combined(record, before, query, out),
        LogFormat::Squid => squid(record, query, out),
        LogFormat::Json => json(record, names, query, out),
        LogFormat::Custom(template) => template.parts.iter().for_each(|part| match part {
            Part::Text(text) => out.extend_from_slice(text.as_bytes()),
            Part::Field(LogField::Id) => Value::Name(names.name(record.number)).write(out),
            Part::Field(LogField::Date) => out.extend_from_slice(&before.date(record.stamp())),
            Part::Field(field) => value(record, *field, query).write(out),
        }),
    }
    out.push(b'\n');
}

/// A second as `21/Nov/2026:04:05:06 +0000`.
type Date = [u8; 26];

/// The time and the client of the last line: most often the next one has the same.
#[derive(Debug, Default)]
pub struct Before {
    date: Cell<Option<(Stamp, Date)>>,
    /// How a combined line of this client and second begins.
    start: RefCell<Vec<u8>>,
    start_of: Cell<Option<(IpAddr, Stamp)>>,
}

impl Before {
    fn date(&self, stamp: Stamp) -> Date {
        match self.date.get() {
            Some((of, date)) if of == stamp => date,
            _ => {
                let date = clf_date(stamp);
                self.date.set(Some((stamp, date)));
                date
            }
        }
    }

    /// Up to the quotation mark before the method.
    fn start(&self, address: IpAddr, stamp: Stamp, out: &mut Vec<u8>) {
        let mut text = self.start.borrow_mut();
        if self.start_of.replace(Some((address, stamp))) != Some((address, stamp)) {
            text.clear();
            write_client(&mut text, address.to_canonical());
            text.extend_from_slice(b" - - [");
            text.extend_from_slice(&self.date(stamp));
            text.extend_from_slice(b"] \"");
        }
        out.extend_from_slice(&text);
    }
}

/// The value of a field for one record.
enum Value<'a> {
    Nothing,
    Number(u64),
    Flag(bool),
    /// Seconds and microseconds.
    Time(u64, u32),
    Address(IpAddr),
    Text(&'a str),
    /// Words that were put together for this line.
    Words(String),
    Pair(&'static str, Cow<'a, str>),
    Name(Id),
}

fn value(record: &Record, field: LogField, query: Query) -> Value<'_> {
    match field {
        LogField::Time => Value::Time(record.at.as_secs(), record.at.subsec_micros()),
        LogField::Client => Value::Address(record.peer.to_canonical()),
        LogField::User => record.user().map_or(Value::Nothing, text),
        LogField::Certificate => record.certificate().map_or(Value::Nothing, text),
        LogField::Method => record.method.as_ref().map_or(Value::Nothing, |method| text(method.as_str())),
        LogField::Url => url(&record.url, query),
        LogField::Host => text(host(&record.url)),
        LogField::Version => Value::Text(record.version.as_str()),
        LogField::Status => Value::Number(record.status.into()),
        LogField::Bytes => Value::Number(record.bytes),
        // The page before may be one of the same site, with the same secret in its URL.
        LogField::Referer => {
            record.text(|texts| texts.referer.as_deref()).map_or(Value::Nothing, |referer| url(referer, query))
        }
        LogField::Agent => record.text(|texts| texts.agent.as_deref()).map_or(Value::Nothing, text),
        LogField::Type => record.text(|texts| texts.content_type.as_deref()).map_or(Value::Nothing, text),
        LogField::Outcome => Value::Text(record.outcome.as_str()),
        LogField::NotStored => record.not_stored.map_or(Value::Nothing, Value::Text),
        LogField::Compression => record.coded().map_or(Value::Nothing, |coding| Value::Text(coding.as_str())),
        LogField::Complete => Value::Flag(record.complete),
        LogField::Micros => Value::Number(record.micros()),
        LogField::Millis => Value::Number(record.micros() / 1000),
        LogField::Hook
        | LogField::HookScript
        | LogField::HookLine
        | LogField::HookMicros
        | LogField::HookRemembered => value_of_hooks(record, field),
        LogField::Icap => match record.icap_words() {
            words if words.is_empty() => Value::Nothing,
            words => Value::Words(words),
        },
        LogField::IcapMicros => record.icap_micros().map_or(Value::Nothing, Value::Number),
        LogField::Helpers => match record.helper_words() {
            words if words.is_empty() => Value::Nothing,
            words => Value::Words(words),
        },
        LogField::HelperMicros => record.helper_micros().map_or(Value::Nothing, Value::Number),
        LogField::Rule => record.rules().map_or(Value::Nothing, |note| text(&note.rule)),
        LogField::Mark => record.rules().and_then(|note| note.mark.as_deref()).map_or(Value::Nothing, text),
        LogField::Way => record
            .with_way(|way| way.taken.as_ref().map(ToString::to_string))
            .flatten()
            .map_or(Value::Nothing, Value::Words),
        LogField::OriginVersion => match record.is_by_http2() {
            true => Value::Text("HTTP/2"),
            false => Value::Nothing,
        },
        LogField::BandwidthMicros => match record.waited() {
            Some(waited) => Value::Number(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX)),
            None => Value::Nothing,
        },
        // The caller writes these two: it has the names, and the date of the line before.
        LogField::Id | LogField::Date => Value::Nothing,
        LogField::SquidCode => Value::Text(squid_code(record)),
        LogField::SquidFrom => {
            let (word, host) = squid_from(record);
            Value::Pair(word, host)
        }
    }
}

fn value_of_hooks(record: &Record, field: LogField) -> Value<'_> {
    let (trail, fetched) = (record.hooks(), record.with_fetched_hook(HookNote::clone));
    if trail.is_none() && fetched.is_none() {
        return Value::Nothing;
    }
    match field {
        LogField::HookMicros => {
            let of_fetched = fetched.map_or(0, |note| note.micros);
            return Value::Number(trail.map_or(0, HookTrail::micros).saturating_add(of_fetched));
        }
        LogField::HookRemembered => {
            let was_asked =
                trail.is_some_and(|hooks| !hooks.is_remembered()) || fetched.is_some_and(|it| !it.remembered);
            return Value::Flag(!was_asked);
        }
        _ => {}
    }
    let of_trail = trail.and_then(HookTrail::last_work);
    let is_later = |fetched: &HookNote| {
        let is_before = |note: &HookNote| note.did.is_empty() || note.stage < fetched.stage;
        of_trail.is_none() || !fetched.did.is_empty() && of_trail.is_some_and(is_before)
    };
    match (fetched.filter(is_later), of_trail) {
        (Some(note), _) => match field {
            LogField::Hook => words(&note.place.name),
            LogField::HookScript => words(&note.place.script),
            _ => line_of(&note),
        },
        (None, Some(note)) => match field {
            LogField::Hook => text(&note.place.name),
            LogField::HookScript => text(&note.place.script),
            _ => line_of(note),
        },
        (None, None) => Value::Nothing,
    }
}

/// The line of a hook. Where only its files are known, because they can't be loaded, there is none.
fn line_of(note: &HookNote) -> Value<'static> {
    if note.line == 0 { Value::Nothing } else { Value::Number(note.line.into()) }
}

fn words(text: &str) -> Value<'static> {
    if text.is_empty() { Value::Nothing } else { Value::Words(text.to_owned()) }
}

/// A URL, without the values of its query where these are not logged.
fn url(url: &str, query: Query) -> Value<'_> {
    match query {
        Query::Hidden if url.contains('?') => Value::Words(without_values(url)),
        Query::Hidden | Query::Kept => text(url),
    }
}

fn text(text: &str) -> Value<'_> {
    if text.is_empty() { Value::Nothing } else { Value::Text(text) }
}

/// The address of a client; `unix` where it has none.
fn write_client(out: &mut Vec<u8>, address: IpAddr) {
    match has_address(address) {
        true => encode::address(out, address),
        false => out.extend_from_slice(UNIX_CLIENTS.as_bytes()),
    }
}

impl Value<'_> {
    /// Writes the value for lines that people read; no value is `-`.
    fn write(&self, out: &mut Vec<u8>) {
        let _ = match self {
            Value::Nothing => out.write_all(b"-"),
            Value::Number(number) => return encode::decimal(out, *number),
            Value::Name(id) => write!(out, "{id}"),
            Value::Flag(flag) => write!(out, "{flag}"),
            Value::Time(seconds, micros) => write!(out, "{seconds}.{micros:06}"),
            Value::Address(address) => return write_client(out, *address),
            Value::Text(text) => return escape(text, out),
            Value::Words(words) => return escape(words, out),
            Value::Pair(left, right) => {
                out.extend_from_slice(left.as_bytes());
                out.push(b'/');
                return escape(right, out);
            }
        };
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        let _ = match self {
            Value::Nothing => out.write_all(b"null"),
            Value::Name(id) => write!(out, "\"{id}\""),
            Value::Number(number) => write!(out, "{number}"),
            Value::Flag(flag) => write!(out, "{flag}"),
            Value::Time(seconds, micros) => write!(out, "\"{seconds}.{micros:06}\""),
            Value::Address(address) => write!(out, "\"{}\"", ShownAddress(*address)),
            // A value in memory can be written without fail.
            Value::Text(text) => serde_json::to_writer(out, text).map_err(std::io::Error::from),
            Value::Words(words) => serde_json::to_writer(out, words).map_err(std::io::Error::from),
            Value::Pair(..) => out.write_all(b"null"),
        };
    }
}

/// The combined format of web servers, with outcome and microseconds behind it. Most logs are in it, so it is written
/// directly, without a `Value` for each field.
fn combined(record: &Record, before: &Before, query: Query, out: &mut Vec<u8>) {
    out.reserve(FIXED_BYTES + record.url.len());
    match record.user() {
        None => before.start(record.peer, record.stamp(), out),
        Some(user) => {
            write_client(out, record.peer.to_canonical());
            out.extend_from_slice(b" - ");
            column(user, out);
            out.extend_from_slice(b" [");
            out.extend_from_slice(&before.date(record.stamp()));
            out.extend_from_slice(b"] \"");
        }
    }
    // A token has nothing that could end a field.
    out.extend_from_slice(record.method.as_ref().map_or("-", |method| method.as_str()).as_bytes());
    out.push(b' ');
    url(&record.url, query).write(out);
    out.extend_from_slice(match record.version {
        Version::Http10 => b" HTTP/1.0\" ",
        Version::Http11 => b" HTTP/1.1\" ",
        Version::Http2 => b" HTTP/2.0\" ",
        Version::Http3 => b" HTTP/3.0\" ",
    });
    encode::decimal(out, record.status.into());
    out.push(b' ');
    encode::decimal(out, record.bytes);
    match record.extras {
        None => out.extend_from_slice(b" \"-\" \"-\" "),
        Some(_) => {
            out.extend_from_slice(b" \"");
            value(record, LogField::Referer, query).write(out);
            out.extend_from_slice(b"\" \"");
            value(record, LogField::Agent, query).write(out);
            out.extend_from_slice(b"\" ");
        }
    }
    out.extend_from_slice(record.outcome.as_str().as_bytes());
    out.push(b' ');
    encode::decimal(out, record.micros());
}

/// Writes a text in which no space ends the column, as Squid does.
fn column(text: &str, out: &mut Vec<u8>) {
    escape(&text.replace('%', "%25").replace(' ', "%20"), out);
}

/// Bytes of a line beside its texts, about.
const FIXED_BYTES: usize = 160;

/// Squid's native format: `time elapsed client code/status bytes method URL user from type`.
fn squid(record: &Record, query: Query, out: &mut Vec<u8>) {
    let (seconds, millis) = (record.at.as_secs(), record.at.subsec_millis());
    let (elapsed, client) = (record.micros() / 1000, record.peer.to_canonical());
    let (code, status) = (squid_code(record), record.status);
    let aborted = if record.complete || code == "NONE" { "" } else { "_ABORTED" };
    let bytes = record.bytes;
    let _ = write!(out, "{seconds:9}.{millis:03} {elapsed:6} {client} {code}{aborted}/{status:03} {bytes} ");
    for (field, after) in [(LogField::Method, " "), (LogField::Url, " ")] {
        value(record, field, query).write(out);
        out.extend_from_slice(after.as_bytes());
    }
    match record.user() {
        None => out.push(b'-'),
        Some(user) => column(user, out),
    }
    out.push(b' ');
    value(record, LogField::SquidFrom, query).write(out);
    out.push(b' ');
    // As Squid does; what an origin writes behind it must not look like further columns.
    let kind = record.text(|texts| texts.content_type.as_deref()).and_then(|all| all.split([';', ' ', '\t']).next());
    kind.map_or(Value::Nothing, text).write(out);
}

/// Squid's words, as its log analysers know them.
fn squid_code(record: &Record) -> &'static str {
    match record.outcome {
        Outcome::Hit | Outcome::HitStale | Outcome::HitRevalidating if record.status == 304 => "TCP_IMS_HIT",
        Outcome::Hit | Outcome::HitStale | Outcome::HitRevalidating => "TCP_MEM_HIT",
        Outcome::HitError => "TCP_REFRESH_FAIL_OLD",
        Outcome::Validated => "TCP_REFRESH_UNMODIFIED",
        Outcome::Collapsed => "TCP_HIT",
        Outcome::Miss(Cause::Stale) => "TCP_REFRESH_MODIFIED",
        Outcome::Miss(Cause::Request) => "TCP_CLIENT_REFRESH_MISS",
        Outcome::Miss(_) | Outcome::Failed(_) => "TCP_MISS",
        Outcome::Tunnel => "TCP_TUNNEL",
        // By a rule, or because the client may not or has to log in.
        Outcome::Own("rule") => "TCP_DENIED",
        Outcome::Own(_) if [401, 403, 407].contains(&record.status) => "TCP_DENIED",
        Outcome::Own(_) | Outcome::Opened => "NONE",
    }
}

/// Squid's words for whom was asked.
fn squid_from(record: &Record) -> (&'static str, Cow<'_, str>) {
    match record.outcome {
        Outcome::Miss(_) | Outcome::Failed(_) | Outcome::Tunnel | Outcome::Validated => {
            let origin = || match host(&record.url) {
                "" => "-",
                host => host,
            };
            let taken = |way: &WayNote| {
                let (word, host) = way.taken.as_ref()?.in_squid();
                Some((word, host.map(str::to_owned)))
            };
            match record.with_way(taken) {
                // Without a parent or a sibling.
                None | Some(Some((_, None))) => ("HIER_DIRECT", origin().into()),
                Some(Some((word, Some(host)))) => (word, host.into()),
                // No parent led anywhere.
                Some(None) => ("HIER_NONE", "-".into()),
            }
        }
        _ => ("HIER_NONE", "-".into()),
    }
}

fn json(record: &Record, names: &Names, query: Query, out: &mut Vec<u8>) {
    let derived = [LogField::Date, LogField::Host, LogField::Millis, LogField::SquidCode, LogField::SquidFrom];
    // Few requests meet hooks, and lines of all others would be longer by a fifth.
    let of_hooks =
        [LogField::Hook, LogField::HookScript, LogField::HookLine, LogField::HookMicros, LogField::HookRemembered];
    let of_icap = [LogField::Icap, LogField::IcapMicros];
    let of_helpers = [LogField::Helpers, LogField::HelperMicros];
    let of_rules = [LogField::Rule, LogField::Mark];
    let is_left_out = |field: &LogField| {
        derived.contains(field)
            || record.hooks().is_none() && of_hooks.contains(field) && record.with_fetched_hook(|_| ()).is_none()
            || of_icap.contains(field) && record.icap_micros().is_none()
            || of_helpers.contains(field) && record.helpers().is_empty()
            || record.rules().is_none() && of_rules.contains(field)
            || *field == LogField::BandwidthMicros && record.waited().is_none()
            || *field == LogField::Way && record.with_way(|_| ()).is_none()
            || *field == LogField::OriginVersion && !record.is_by_http2()
            || *field == LogField::User && record.user().is_none()
            || *field == LogField::Compression && record.coded().is_none()
            || *field == LogField::Certificate && record.certificate().is_none()
    };
    let mut before = b'{';
    for &field in LogField::ALL.iter().filter(|field| !is_left_out(field)) {
        out.push(before);
        let _ = write!(out, "\"{}\":", field.as_str());
        let says = match field {
            LogField::Id => Value::Name(names.name(record.number)),
            field => value(record, field, query),
        };
        says.write_json(out);
        before = b',';
    }
    out.push(b'}');
}

/// The host of a URL, or of the `host:port` of a tunnel.
pub fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    match authority.rfind(':') {
        Some(colon) if !authority.ends_with(']') => &authority[..colon],
        _ => authority,
    }
}

/// Every byte stands for itself. Without an early end, so that many are looked at in one step.
fn is_plain(text: &str) -> bool {
    !text.bytes().fold(false, |other, byte| other | !(b' '..0x7f).contains(&byte) | matches!(byte, b'"' | b'\\'))
}

/// No byte of a request ends a field or a line of the log.
fn escape(text: &str, out: &mut Vec<u8>) {
    if is_plain(text) {
        return out.extend_from_slice(text.as_bytes());
    }
    for character in text.chars() {
        let _ = match character {
            '"' => out.write_all(b"\\\""),
            '\\' => out.write_all(b"\\\\"),
            control if control.is_control() => write!(out, "\\x{:02x}", u32::from(control)),
            other => write!(out, "{other}"),
        };
    }
}

fn clf_date(stamp: Stamp) -> Date {
    let mut out = *b"00/Jan/0000:00:00:00 +0000";
    // Sat, 21 Nov 2026 04:05:06 GMT
    let date = larder_wire::date::format_date(stamp);
    for (to, from) in [(0..2, 5..7), (3..6, 8..11), (7..11, 12..16), (12..20, 17..25)] {
        out[to].copy_from_slice(&date[from]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::application::{Application, Interface};
    use crate::mount::{HookPlace, Hooks, Stage};
    use crate::page::Page;
    use crate::record::{IcapDid, IcapNote, LogTexts, Number};
    use larder_people::answer::Outcome as Answered;
    use larder_people::kind::Kind;
    use larder_people::note::{HelperDid, HelperNote};
    use larder_wire::icap::Vector;
    use std::time::Duration;

    fn record() -> Record {
        let page = Page::new(200, "word", "what", "remedy");
        let mut record = Record::refused("[::ffff:10.0.0.1]:1".parse().unwrap(), &page, Number::default());
        record.at = Duration::new(784_111_777, 123_456_000);
        record.method = Some(larder_wire::Method::Get);
        record.url = "http://www.example.org:8080/a?b".to_owned();
        record.extras.get_or_insert_default().texts =
            LogTexts { agent: Some("a \"b\"\n".into()), content_type: Some("text/html".into()), ..LogTexts::default() };
        record.bytes = 1234;
        record.outcome = Outcome::Miss(Cause::Uri);
        record
    }

    fn line(record: &Record, format: &str) -> String {
        line_with(record, format, Query::Kept)
    }

    fn line_with(record: &Record, format: &str, query: Query) -> String {
        let mut out = Vec::new();
        append(record, (&Names::default(), &Before::default()), (&LogFormat::parse(format).unwrap(), query), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_format_is_as_its_readers_expect() {
        let record = record();
        let combined = line(&record, "combined");
        let wanted = "10.0.0.1 - - [06/Nov/1994:08:49:37 +0000] \"GET http://www.example.org:8080/a?b HTTP/1.1\" 200 1234 \
                      \"-\" \"a \\\"b\\\"\\x0a\" uri-miss ";
        assert!(combined.starts_with(wanted), "{combined}");
        let squid = line(&record, "squid");
        assert_eq!(
            squid,
            "784111777.123      0 10.0.0.1 TCP_MISS/200 1234 GET http://www.example.org:8080/a?b - \
             HIER_DIRECT/www.example.org text/html\n"
        );
        let json: serde_json::Value = serde_json::from_str(&line(&record, "json")).unwrap();
        assert_eq!(json["time"], "784111777.123456");
        assert_eq!((&json["client"], &json["bytes"]), (&"10.0.0.1".into(), &1234.into()));
        assert_eq!((&json["agent"], &json["referer"]), (&"a \"b\"\n".into(), &serde_json::Value::Null));
        assert_eq!((&json["outcome"], &json["complete"]), (&"uri-miss".into(), &true.into()));
        assert_eq!(json.get("squid_code"), None);
        assert_eq!(line(&record, "{host}|{referer}|{squid_code}|{{{status}"), "www.example.org|-|TCP_MISS|{200\n");
    }

    #[test]
    fn hooks_are_named_where_they_were_asked() {
        let mut record = record();
        let format = "{hook} {hook_script}:{hook_line} {hook_micros} {hook_remembered}";
        assert_eq!(line(&record, format), "- -:- - -\n");
        let of = |record: &Record| serde_json::from_str::<serde_json::Value>(&line(record, "json")).unwrap();
        assert_eq!(of(&record).get("hook"), None);
        let place = HookPlace { name: "cart".to_owned(), script: "policy.py".to_owned(), line: 3 };
        let note = HookNote::begin(Stage::Request, &Hooks::default(), &[]).did("key \"a\"");
        record.note_hook(HookNote { place: place.into(), line: 5, micros: 70, ..note });
        assert_eq!(line(&record, format), "cart policy.py:5 70 false\n");
        let json = of(&record);
        assert_eq!(
            (&json["hook"], &json["hook_script"], &json["hook_line"]),
            (&"cart".into(), &"policy.py".into(), &5.into())
        );
        assert_eq!((&json["hook_micros"], &json["hook_remembered"]), (&70.into(), &false.into()));
    }

    #[test]
    fn hooks_on_the_answer_of_an_origin_are_named_too() {
        let note = |stage, name: &str, did: &str| {
            let place = HookPlace { name: name.to_owned(), script: "policy.py".to_owned(), line: 3 };
            let note = HookNote::begin(stage, &Hooks::default(), &[]).did(did);
            HookNote { place: place.into(), line: 7, micros: 5, ..note }
        };
        let format = "{hook} {hook_script}:{hook_line} {hook_micros}";
        for (of_request, of_respond, expected) in [
            (None, None, "api policy.py:7 5\n"),
            (Some(""), None, "api policy.py:7 10\n"),
            (Some("key \"a\""), None, "api policy.py:7 10\n"),
            (Some("key \"a\""), Some("sets x"), "stamp policy.py:7 15\n"),
        ] {
            let mut record = record();
            of_request.into_iter().for_each(|did| record.note_hook(note(Stage::Request, "plans", did)));
            let notes = record.notes();
            notes.by_hook.replace(Some(Box::new(note(Stage::Fetched, "api", "hook-failed: not stored"))));
            record.detail().unwrap().fetches.push(Cause::Uri, notes);
            of_respond.into_iter().for_each(|did| record.note_hook(note(Stage::Respond, "stamp", did)));
            assert_eq!(line(&record, format), expected);
            let json: serde_json::Value = serde_json::from_str(&line(&record, "json")).unwrap();
            assert_eq!(json["hook"], expected.split(' ').next().unwrap());
        }
        let mut record = record();
        let files = Application { interface: Interface::Hooks, name: "hooks:policy.py".to_owned() };
        record.note_hook(HookNote::of_files(Stage::Respond, &files).did("hook-not-loaded"));
        assert_eq!(line(&record, format), "- policy.py:- 0\n");
    }

    #[test]
    fn values_of_queries_are_left_out_of_each_format() {
        let mut record = record();
        record.url = "http://www.example.org/a?token=s3cret&s3cret".to_owned();
        record.extras.get_or_insert_default().texts.referer = Some("http://www.example.org/b?token=s3cret".into());
        for format in ["combined", "squid", "json", "{url} {referer} {host}"] {
            let (kept, hidden) = (line_with(&record, format, Query::Kept), line_with(&record, format, Query::Hidden));
            assert!(kept.contains("/a?token=s3cret&s3cret"), "{kept}");
            assert!(!hidden.contains("s3cret") && hidden.contains("/a?token=…&…"), "{hidden}");
        }
    }

    #[test]
    fn services_are_named_where_they_were_asked() {
        let mut record = record();
        assert_eq!(line(&record, "{icap} {icap_micros}"), "- -\n");
        for (service, micros) in [("av", 7), ("ads", 5)] {
            let note = IcapNote::new(&service.into(), Vector::Respmod, IcapDid::Unchanged, micros, None);
            record.note_icap(note);
        }
        assert_eq!(line(&record, "{icap} {icap_micros}"), "av:unchanged,ads:unchanged 12\n");
        let json: serde_json::Value = serde_json::from_str(&line(&record, "json")).unwrap();
        assert_eq!((&json["icap"], &json["icap_micros"]), (&"av:unchanged,ads:unchanged".into(), &12.into()));
        // Helpers likewise.
        assert_eq!((line(&record, "{helpers} {helper_micros}").as_str(), json.get("helpers")), ("- -\n", None));
        let note = |helper: &str, did, micros| HelperNote {
            helper: helper.into(),
            kind: Kind::StoreId,
            did,
            micros,
            words: "".into(),
        };
        record.note_helpers(&[
            note("ids", HelperDid::Answered(Answered::Err), None),
            note("filter", HelperDid::PassedOver, Some(7)),
        ]);
        assert_eq!(line(&record, "{helpers} {helper_micros}"), "ids:err,filter:passed-over 7\n");
    }

    #[test]
    fn an_origin_cannot_add_columns_or_lines() {
        let mut record = record();
        for (kind, wanted) in [
            ("text/html; charset=utf-8", " text/html\n"),
            ("a TCP_HIT/200 b", " a\n"),
            (" a", " -\n"),
            ("a\u{9b}\nb", " a\\x9b\\x0ab\n"),
        ] {
            record.extras.as_mut().unwrap().texts.content_type = Some(kind.into());
            let line = line(&record, "squid");
            assert!(line.ends_with(wanted) && line.lines().count() == 1, "{line}");
        }
    }

    #[test]
    fn squid_s_words_follow_the_outcome() {
        let with = |outcome, status, complete| {
            let mut record = record();
            (record.outcome, record.status, record.complete) = (outcome, status, complete);
            let line = line(&record, "squid");
            line.split_whitespace().nth(3).unwrap().to_owned()
        };
        for (outcome, status, complete, wanted) in [
            (Outcome::Hit, 200, true, "TCP_MEM_HIT/200"),
            (Outcome::Hit, 304, true, "TCP_IMS_HIT/304"),
            (Outcome::Validated, 200, true, "TCP_REFRESH_UNMODIFIED/200"),
            (Outcome::Miss(Cause::Uri), 200, false, "TCP_MISS_ABORTED/200"),
            (Outcome::Miss(Cause::Request), 200, true, "TCP_CLIENT_REFRESH_MISS/200"),
            (Outcome::Own("client"), 403, true, "TCP_DENIED/403"),
            (Outcome::Own("login"), 407, true, "TCP_DENIED/407"),
            (Outcome::Own("rule"), 451, true, "TCP_DENIED/451"),
            (Outcome::Own("bad"), 400, true, "NONE/400"),
            (Outcome::Tunnel, 200, true, "TCP_TUNNEL/200"),
        ] {
            assert_eq!(with(outcome, status, complete), wanted);
        }
    }

    #[test]
    fn the_host_of_what_was_asked_for() {
        for (url, wanted) in [
            ("http://a.example/x:y", "a.example"),
            ("https://a.example:81?q", "a.example"),
            ("a.example:443", "a.example"),
            ("http://[::1]:80/", "[::1]"),
            ("http://[::1]/", "[::1]"),
            ("", ""),
        ] {
            assert_eq!(host(url), wanted, "{url}");
        }
    }
}
