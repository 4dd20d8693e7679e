//! The formats of lists, line by line.

mod adblock;
mod domains;
mod guess;
mod hosts;
mod rpz;
mod urls;

use crate::entry::{Entry, NameReach, Side};
use crate::name::Name;
use crate::network::AddressRange;

/// A format of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Found out from the first lines.
    Auto,
    /// A hosts file: `0.0.0.0 ads.example.com`.
    Hosts,
    /// A name a line; `.example.com` and `*.example.com` have all names below them too. Addresses and networks are taken as well.
    Domains,
    /// A URL a line: it covers all that lies below its path.
    Urls,
    /// An address, a network or a range a line.
    Networks,
    /// Filters for web browsers: those that name hosts.
    Adblock,
    /// A folder of squidGuard or of the Université Toulouse Capitole, with files `domains`, `urls` and `expressions`.
    Squidguard,
    /// A response policy zone of the DNS.
    Rpz,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 8] = [
        Format::Auto,
        Format::Hosts,
        Format::Domains,
        Format::Urls,
        Format::Networks,
        Format::Adblock,
        Format::Squidguard,
        Format::Rpz,
    ];

    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Auto => "auto",
            Format::Hosts => "hosts",
            Format::Domains => "domains",
            Format::Urls => "urls",
            Format::Networks => "networks",
            Format::Adblock => "adblock",
            Format::Squidguard => "squidguard",
            Format::Rpz => "rpz",
        }
    }
}

pub use guess::{guess, is_web_page};

/// The part of a list that a file of a squidGuard folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The whole of a list in another format.
    Whole(Format),
    /// `domains`: names with all below them.
    Domains,
    /// `urls`.
    Urls,
    /// `expressions`.
    Expressions,
}

impl Part {
    /// The part that a file of a squidGuard folder is by its name, compressed or not.
    pub fn of_file(name: &str) -> Option<Part> {
        match name.strip_suffix(".gz").unwrap_or(name) {
            "domains" => Some(Part::Domains),
            "urls" => Some(Part::Urls),
            "expressions" => Some(Part::Expressions),
            _ => None,
        }
    }
}

/// The outcome of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A comment, or nothing at all.
    Nothing,
    /// Its entries were taken.
    Taken,
    /// It is right, but no proxy can decide it, or it is not meant for one.
    LeftOut,
    /// It is not right.
    Malformed(&'static str),
}

/// Reads one part of a list, line by line.
pub struct LineParser {
    part: Part,
    names: NameReach,
    zone: rpz::Zone,
}

impl LineParser {
    /// A parser at the beginning of a part. `names` is the reach of names that do not say one.
    pub fn new(part: Part, names: NameReach) -> LineParser {
        LineParser { part, names, zone: rpz::Zone::default() }
    }

    /// Reads a line and hands its entries to `take`.
    pub fn line(&mut self, line: &[u8], take: &mut dyn FnMut(Side, Entry)) -> Verdict {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        if let Part::Whole(Format::Rpz) = self.part {
            // A line that begins with a blank has the owner of the one before it.
            return self.zone.line(line, take);
        }
        let line = line.trim_ascii();
        if line.is_empty() {
            return Verdict::Nothing;
        }
        match self.part {
            Part::Whole(Format::Hosts) => hosts::line(line, self.names, take),
            Part::Whole(Format::Urls) | Part::Urls => urls::line(line, take),
            Part::Whole(Format::Networks) => networks(line, take),
            Part::Whole(Format::Adblock) => adblock::line(line, take),
            Part::Domains => domains::line(line, NameReach::Tree, take),
            Part::Expressions => expression(line, take),
            Part::Whole(_) => domains::line(line, self.names, take),
        }
    }
}

/// The line without a comment that begins at its start, or behind a blank, with one of these.
fn without_comment<'l>(line: &'l [u8], marks: &[u8]) -> &'l [u8] {
    let mut after_blank = true;
    for (at, byte) in line.iter().enumerate() {
        if after_blank && marks.contains(byte) {
            return line[..at].trim_ascii_end();
        }
        after_blank = byte.is_ascii_whitespace();
    }
    line
}

fn networks(line: &[u8], take: &mut dyn FnMut(Side, Entry)) -> Verdict {
    let line = without_comment(line, b"#;");
    if line.is_empty() {
        return Verdict::Nothing;
    }
    match std::str::from_utf8(line).ok().and_then(AddressRange::parse) {
        Some(range) => {
            take(Side::Covers, Entry::Addresses(range));
            Verdict::Taken
        }
        None => Verdict::Malformed("it is no address, network or range"),
    }
}

fn expression(line: &[u8], take: &mut dyn FnMut(Side, Entry)) -> Verdict {
    match std::str::from_utf8(line) {
        Ok(text) if text.starts_with('#') => Verdict::Nothing,
        Ok(text) => {
            take(Side::Covers, Entry::Expression(text.to_owned()));
            Verdict::Taken
        }
        Err(_) => Verdict::Malformed("it is no text in UTF-8"),
    }
}

/// An address or a network, or a name with its reach.
fn name_or_address(word: &[u8], names: NameReach) -> Result<Entry, &'static str> {
    // Few names end with what an address may end with, so most words are not parsed as one.
    let may_be_address = word.last().is_some_and(|byte| byte.is_ascii_hexdigit() || matches!(byte, b']' | b':'))
        && (word[0].is_ascii_digit() || word.contains(&b':'));
    if may_be_address && let Some(range) = std::str::from_utf8(word).ok().and_then(AddressRange::parse) {
        return Ok(Entry::Addresses(range));
    }
    let below = word.strip_prefix(b"*.").or_else(|| word.strip_prefix(b"."));
    let name = Name::parse(below.unwrap_or(word)).ok_or("it is no name and no address")?;
    let reach = if below.is_some() { NameReach::Tree } else { names };
    if reach == NameReach::Tree && below.is_none() && name.is_single_label() {
        return Err("it would cover a whole top-level domain; a dot in front of it says that this is meant");
    }
    Ok(Entry::Name(name, reach))
}

#[cfg(test)]
mod tests;
