//! The contents of a folder as a page.

use super::path::{FtpPath, bytes_of, encode, latin1};
use crate::page::escape;
use larder_wire::date::{Stamp, format_date};
use std::fmt::Write;
use std::time::SystemTime;
use suppaftp::list::ListParser;

/// Bytes of a listing that are read; a longer one is cut off, and says so.
pub(super) const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Fields of such a page.
pub(super) const FIELDS: &str = "Content-Type: text/html; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n\
    Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n";

/// The entries of a folder.
pub(super) struct Listing {
    entries: Vec<Entry>,
    is_cut: bool,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    /// Folders come first.
    is_file: bool,
    name: Vec<u8>,
    bytes: Option<u64>,
    /// Year, month and day, where the server says them.
    changed: Option<String>,
}

impl Listing {
    /// Reads the lines of `MLSD` (RFC 3659 section 7) or `LIST`, whose form no RFC names. Lines that can't be read are left out.
    pub fn of(text: &[u8], is_for_programs: bool) -> Listing {
        let is_cut = text.len() > BYTES_MAX;
        let text = if is_cut { &text[..BYTES_MAX] } else { text };
        let lines = text.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let mut entries: Vec<Entry> =
            lines.filter_map(if is_for_programs { Entry::of_facts } else { Entry::of_list }).collect();
        entries.sort();
        Listing { entries, is_cut }
    }

    /// The page.
    pub fn page(&self, path: &FtpPath) -> String {
        let shown = shown(&bytes_of(&path.name).unwrap_or_default());
        let mut page = String::from(
            "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n<title>",
        );
        let title = if shown.is_empty() { "/".to_owned() } else { format!("{}/", shown.trim_end_matches('/')) };
        escape(&title, &mut page);
        page.push_str("</title>\n<style>:root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}table{border-collapse:collapse;width:100%}td,th{padding:.15rem .5rem;text-align:left;overflow-wrap:anywhere}td+td,th+th{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}tr:hover td{background:color-mix(in srgb,currentColor 8%,transparent)}</style>\n<h1>");
        escape(&title, &mut page);
        page.push_str("</h1>\n<table>\n<tr><th>Name<th>Bytes<th>Changed\n");
        if !path.name.is_empty() && path.name != "/" {
            page.push_str("<tr><td><a href=\"../\">../</a><td><td>\n");
        }
        for entry in &self.entries {
            entry.write_to(&mut page);
        }
        page.push_str("</table>\n");
        let _ = write!(page, "<p>{} entries", self.entries.len());
        if self.is_cut {
            let _ = write!(page, "; the listing is longer than {} MiB and was cut off", BYTES_MAX >> 20);
        }
        page.push_str(".</p>\n</html>\n");
        page
    }
}

impl Entry {
    fn of_facts(line: &[u8]) -> Option<Entry> {
        let at = line.iter().position(|&byte| byte == b' ')?;
        let (facts, name) = (latin1(&line[..at]), &line[at + 1..]);
        let fact = |wanted: &str| {
            let mut pairs = facts.split(';').filter_map(|fact| fact.split_once('='));
            pairs.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
        };
        let kind = fact("type").unwrap_or("file").to_ascii_lowercase();
        if kind == "cdir" || kind == "pdir" {
            return None;
        }
        let day =
            fact("modify").and_then(|time| time.get(..8)).filter(|day| day.bytes().all(|byte| byte.is_ascii_digit()));
        Entry::named(Entry {
            is_file: kind != "dir",
            name: name.to_vec(),
            bytes: fact("size").and_then(|size| size.parse().ok()),
            changed: day.map(|day| format!("{}-{}-{}", &day[..4], &day[4..6], &day[6..])),
        })
    }

    fn of_list(line: &[u8]) -> Option<Entry> {
        let line = latin1(line);
        let file = ListParser::parse_posix(&line).or_else(|_| ListParser::parse_dos(&line)).ok()?;
        Entry::named(Entry {
            is_file: !file.is_directory(),
            name: bytes_of(file.name())?,
            bytes: file.is_file().then(|| file.size() as u64),
            changed: day_of(file.modified()),
        })
    }

    /// An entry whose name is one of a file in this folder: not its own, no path, and nothing that would end a command.
    fn named(entry: Entry) -> Option<Entry> {
        let is_usable = |byte: &u8| !byte.is_ascii_control() && *byte != b'/';
        let is_named = !matches!(&*entry.name, b"" | b"." | b"..") && entry.name.iter().all(is_usable);
        is_named.then_some(entry)
    }

    fn write_to(&self, page: &mut String) {
        let slash = if self.is_file { "" } else { "/" };
        // `./` before it: a name with a colon is no scheme.
        page.push_str("<tr><td><a href=\"./");
        encode(&self.name, page);
        let _ = write!(page, "{slash}\">");
        escape(&shown(&self.name), page);
        let _ = write!(page, "{slash}</a><td>");
        if let Some(bytes) = self.bytes.filter(|_| self.is_file) {
            let _ = write!(page, "{bytes}");
        }
        let _ = writeln!(page, "<td>{}", self.changed.as_deref().unwrap_or_default());
    }
}

/// A name as people read it: UTF-8, else the letters of Latin-1.
fn shown(name: &[u8]) -> String {
    std::str::from_utf8(name).map_or_else(|_| latin1(name), str::to_owned)
}

/// Year, month and day.
fn day_of(time: SystemTime) -> Option<String> {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    let date = format_date(Stamp(seconds));
    let date = std::str::from_utf8(&date).ok()?;
    let month = "JanFebMarAprMayJunJulAugSepOctNovDec".find(&date[8..11])? / 3 + 1;
    Some(format!("{}-{month:02}-{}", &date[12..16], &date[5..7]))
}
