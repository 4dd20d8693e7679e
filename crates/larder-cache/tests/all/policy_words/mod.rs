//! Words of the policy tables: messages as one line of text, ` | ` between the start and each field line.
//! `{-60}` stands for the date sixty seconds before [`T0`], the time at which every response arrives.

#![allow(dead_code, reason = "each table uses some of the words")]

use larder_cache::policy::{self, Mode, Settings, Storable, Terms, Times};
use larder_wire::date::{Stamp, format_date};
use larder_wire::{Fields, Method, RequestHead, ResponseHead, Target, Version};

/// 2023-11-14T22:13:20Z.
pub const T0: u64 = 1_700_000_000;

pub const NOW: Times = Times { requested: Stamp(T0), received: Stamp(T0) };

/// `GET | Accept: a`; the method may be left out.
pub fn request(line: &str) -> RequestHead {
    let (start, fields) = message(line);
    let method = Method::from_token(if start.is_empty() { "GET" } else { &start });
    RequestHead::new(method, Target::Origin("/".into()), Version::Http11, fields)
}

/// `200 | ETag: "a"`; the status may be left out.
pub fn response(line: &str) -> ResponseHead {
    let (start, fields) = message(line);
    let status = if start.is_empty() { 200 } else { start.parse().expect("a status") };
    ResponseHead { fields, ..ResponseHead::new(status) }
}

fn message(line: &str) -> (String, Fields) {
    let mut fields = Fields::new();
    let mut start = String::new();
    for (at, part) in line.split(" | ").map(str::trim).enumerate() {
        match part.split_once(':') {
            Some((name, value)) => fields.push(name, dated(value)),
            None if at == 0 => part.clone_into(&mut start),
            None => panic!("{part:?} of {line:?} is no field"),
        }
    }
    (start, fields)
}

/// Puts a date in place of each `{seconds}`.
fn dated(value: &str) -> String {
    let Some((before, rest)) = value.split_once('{') else { return value.to_owned() };
    let (offset, after) = rest.split_once('}').expect("a closing brace");
    let seconds = T0.checked_add_signed(offset.parse().expect("seconds")).expect("a time after 1970");
    format!("{before}{}{}", String::from_utf8_lossy(&format_date(Stamp(seconds))), dated(after))
}

/// Field lines as one line of text, in order.
pub fn text(fields: &Fields) -> String {
    let lines: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value))).collect();
    lines.join(" | ")
}

pub fn shared() -> Settings {
    Settings::default()
}

pub fn private() -> Settings {
    Settings { mode: Mode::Private, ..Settings::default() }
}

/// The terms of an answer to a plain GET; the row is wrong when it cannot be kept.
pub fn terms(line: &str) -> Terms {
    terms_for("", line, NOW, &shared())
}

pub fn terms_for(asked: &str, line: &str, times: Times, settings: &Settings) -> Terms {
    match policy::storable(&request(asked), &response(line), times, settings) {
        Storable::Yes(terms) => terms,
        Storable::No(why) => panic!("{line:?} is not kept: {}", why.as_str()),
    }
}

/// Collects the rows that differ, so that one run shows them all.
#[derive(Default)]
pub struct Rows {
    wrong: Vec<String>,
}

impl Rows {
    pub fn check(&mut self, row: &str, found: impl AsRef<str>, expected: &str) {
        if found.as_ref() != expected {
            self.wrong.push(format!("{row}\n    expected {expected}\n    found    {}", found.as_ref()));
        }
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.wrong.is_empty(), "{} rows differ:\n{}", self.wrong.len(), self.wrong.join("\n"));
        }
    }
}
