//! Judges a message against the checks of a step: the first that does not hold is told with what came instead.

use crate::failure::readable;
use crate::message::{Body, Head, values};
use crate::script::Check;
use crate::text::{Scope, Text, glob, render_payloads};

/// Bytes of a body or value that an error shows.
const SHOWN_BYTES: usize = 160;

/// Applies all checks; `body` is absent while only the head is there.
pub fn all(checks: &[Check], head: &Head, body: Option<&Body>, scope: &Scope) -> Result<(), String> {
    if !checks.iter().any(|c| matches!(c, Check::Lenient)) {
        form(head, body)?;
    }
    checks.iter().try_for_each(|check| one(check, head, body, scope))
}

/// Any message from a proxy must be of good form, whatever was said on the other side.
pub fn form(head: &Head, body: Option<&Body>) -> Result<(), String> {
    let faults = head.faults.iter().chain(body.iter().flat_map(|b| &b.faults));
    let faults: Vec<&str> = faults.map(String::as_str).collect();
    if faults.is_empty() { Ok(()) } else { Err(format!("the proxy sent a malformed message: {}", faults.join("; "))) }
}

fn one(check: &Check, head: &Head, body: Option<&Body>, scope: &Scope) -> Result<(), String> {
    match check {
        Check::Lenient => Ok(()),
        Check::Is(name, values) => {
            let allowed: Vec<String> = values.iter().map(|v| v.render_str(scope)).collect();
            value(head, name, &allowed.join("` or `"), |v| allowed.iter().any(|a| a == v))
        }
        Check::Matches(name, pattern) => {
            let pattern = pattern.render_str(scope);
            value(head, name, &pattern, |v| glob(&pattern, v))
        }
        Check::Contains(name, part) => {
            let part = part.render_str(scope);
            value(head, name, &format!("*{part}*"), |v| v.contains(&part))
        }
        Check::Excludes(name, part) => excludes(head, name, &part.render_str(scope)),
        Check::Within(name, low, high) => value(head, name, &format!("{low}..{high}"), |v| {
            v.parse::<i64>().is_ok_and(|number| (*low..=*high).contains(&number))
        }),
        Check::Lines(name, count) => same(&format!("lines of {name}"), count, &head.values(name).len()),
        Check::Has(name) => value(head, name, "any value", |_| true),
        Check::Lacks(name) => match head.joined(name) {
            Some(value) => Err(format!("expected no {name}, got `{name}: {value}`")),
            None => Ok(()),
        },
        Check::Order(names) => order(head, names),
        Check::RawContains(text) => raw(head, text, scope, true),
        Check::RawLacks(text) => raw(head, text, scope, false),
        Check::Version(version) => same("version", &version.as_str(), &head.version()),
        Check::Reason(reason) => {
            same("reason", &reason.as_str(), &head.words().get(2..).unwrap_or_default().join(" ").as_str())
        }
        _ => match body {
            Some(body) => of_body(check, head, body, scope),
            None => Err("this check needs the body: use it with `got`, `expect` or `rest`".into()),
        },
    }
}

fn of_body(check: &Check, head: &Head, body: &Body, scope: &Scope) -> Result<(), String> {
    match check {
        Check::Body(alternatives) => {
            let mut results = alternatives.iter().map(|p| bytes(&render_payloads(p, scope), &body.bytes));
            let first = results.next().unwrap_or(Ok(()));
            if first.is_err() && results.any(|other| other.is_ok()) { Ok(()) } else { first }
        }
        Check::BodyLength(length) => same("body length", length, &(body.bytes.len() as u64)),
        Check::BodyContains(text) => {
            let part = text.render(scope);
            match contains(&body.bytes, &part) {
                true => Ok(()),
                false => Err(format!("expected a body with `{}` in it, got `{}`", show(&part), show(&body.bytes))),
            }
        }
        Check::BodyLacks(text) => {
            let part = text.render(scope);
            match contains(&body.bytes, &part) {
                true => Err(format!("expected a body without `{}`, got `{}`", show(&part), show(&body.bytes))),
                false => Ok(()),
            }
        }
        Check::Framed(word) => same("framing", &word.as_str(), &body.framing().as_str()),
        Check::Trailer(name, text) => {
            let (expected, got) = (text.render_str(scope), values(&body.trailers, name).join(", "));
            same(&format!("trailer {name}"), &expected, &got)
        }
        Check::Parts(count) => same("parts", count, &parts(head, &body.bytes)?.len()),
        Check::Part(number, range, payloads) => {
            let parts = parts(head, &body.bytes)?;
            let Some((part, content)) = parts.get(number.wrapping_sub(1)) else {
                return Err(format!("expected part {number}, got {} parts", parts.len()));
            };
            value(part, "Content-Range", &format!("bytes {range}"), |v| v == format!("bytes {range}"))?;
            bytes(&render_payloads(payloads, scope), content)
        }
        _ => Ok(()),
    }
}

fn show(bytes: &[u8]) -> String {
    readable(bytes, SHOWN_BYTES)
}

fn same<T: PartialEq + std::fmt::Display>(what: &str, expected: &T, got: &T) -> Result<(), String> {
    if expected == got { Ok(()) } else { Err(format!("{what}: expected {expected}, got {got}")) }
}

fn value(head: &Head, name: &str, expected: &str, holds: impl Fn(&str) -> bool) -> Result<(), String> {
    match head.joined(name) {
        Some(value) if holds(&value) => Ok(()),
        Some(value) => Err(format!("expected `{name}: {expected}`, got `{name}: {}`", show(value.as_bytes()))),
        None => Err(format!("expected `{name}: {expected}`, got no {name}")),
    }
}

fn excludes(head: &Head, name: &str, part: &str) -> Result<(), String> {
    match head.joined(name) {
        Some(value) if value.contains(part) => Err(format!("expected no `{part}` in {name}, got `{name}: {value}`")),
        _ => Ok(()),
    }
}

fn order(head: &Head, names: &[String]) -> Result<(), String> {
    let all: Vec<String> = head.fields.iter().map(|(n, _)| String::from_utf8_lossy(n).into_owned()).collect();
    let mut rest = all.iter();
    match names.iter().find(|name| !rest.any(|n| n == *name)) {
        None => Ok(()),
        Some(name) => {
            Err(format!("expected fields in the order {}; {name} is missing there: {}", names.join(" "), all.join(" ")))
        }
    }
}

fn raw(head: &Head, text: &Text, scope: &Scope, wanted: bool) -> Result<(), String> {
    let part = text.render(scope);
    if contains(&head.raw, &part) == wanted {
        return Ok(());
    }
    let verb = if wanted { "expected" } else { "did not expect" };
    Err(format!("{verb} `{}` in the head `{}`", show(&part), readable(&head.raw, 1000)))
}

/// Compares bodies; a difference is shown where it begins.
pub fn bytes(expected: &[u8], got: &[u8]) -> Result<(), String> {
    if expected == got {
        return Ok(());
    }
    let at = expected.iter().zip(got).position(|(e, g)| e != g).unwrap_or(expected.len().min(got.len()));
    let near = |bytes: &[u8]| show(&bytes[at.min(bytes.len())..bytes.len().min(at + 60)]);
    Err(format!(
        "bodies differ at byte {at}: expected {} bytes, there `{}`; got {} bytes, there `{}`",
        expected.len(),
        near(expected),
        got.len(),
        near(got)
    ))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    part.is_empty() || bytes.windows(part.len()).any(|w| w == part)
}

/// The parts of a multipart/byteranges body: head and content of each.
fn parts(head: &Head, body: &[u8]) -> Result<Vec<(Head, Vec<u8>)>, String> {
    let kind = head.joined("Content-Type").unwrap_or_default();
    let boundary = kind.split_once("boundary=").map(|(_, b)| b.split(';').next().unwrap_or(b).trim().trim_matches('"'));
    let Some(boundary) = boundary.filter(|_| kind.starts_with("multipart/byteranges")) else {
        return Err(format!("expected multipart/byteranges with a boundary, got `Content-Type: {kind}`"));
    };
    let mut framed = b"\r\n".to_vec();
    framed.extend_from_slice(body);
    let mut pieces = split(&framed, format!("\r\n--{boundary}").as_bytes()).into_iter().skip(1);
    let mut parts = Vec::new();
    for piece in &mut pieces {
        if piece.starts_with(b"--") {
            return Ok(parts);
        }
        // A part's head begins after the boundary line; a line put before makes it a head like any other.
        let mut buffer = [b"part", piece].concat();
        let part = Head::take(&mut buffer).ok_or("a part has no end of its head")?;
        parts.push((part, buffer));
    }
    Err(format!("the multipart body lacks its closing boundary `--{boundary}--`"))
}

fn split<'a>(bytes: &'a [u8], by: &[u8]) -> Vec<&'a [u8]> {
    let (mut pieces, mut start, mut at) = (Vec::new(), 0, 0);
    while at + by.len() <= bytes.len() {
        if bytes[at..].starts_with(by) {
            pieces.push(&bytes[start..at]);
            at += by.len();
            start = at;
        } else {
            at += 1;
        }
    }
    pieces.push(&bytes[start..]);
    pieces
}
