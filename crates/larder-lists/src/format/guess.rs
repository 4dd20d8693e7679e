//! Finds out the format of a list from its first lines.

use super::{Format, LineParser, Part, Verdict};
use crate::entry::NameReach;

/// Lines that are looked at.
const LINES_MAX: usize = 500;

/// Whether this is the beginning of a web page, as a captive portal or an error gives it in place of a list.
pub fn is_web_page(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii_start();
    let begins = |with: &[u8]| text.get(..with.len()).is_some_and(|head| head.eq_ignore_ascii_case(with));
    [&b"<!doctype"[..], b"<html", b"<head", b"<body", b"<?xml", b"<!--"].iter().any(|with| begins(with))
}

/// The format of a list that begins so: the one that most of its lines have. A format that says more of a line comes first.
pub fn guess(text: &[u8]) -> Format {
    let lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').take(LINES_MAX).collect();
    let begins = |with: &[u8]| lines.iter().any(|line| line.starts_with(with));
    if begins(b"[Adblock") || begins(b"||") || begins(b"@@||") {
        return Format::Adblock;
    }
    if begins(b"$TTL") || begins(b"$ORIGIN") || lines.iter().any(|line| has_record(line)) {
        return Format::Rpz;
    }
    let score = |format: Format| {
        let mut parser = LineParser::new(Part::Whole(format), NameReach::Exact);
        let good = |line: &&&[u8]| matches!(parser.line(line, &mut |_, _| {}), Verdict::Taken | Verdict::LeftOut);
        lines.iter().filter(good).count()
    };
    let candidates = [Format::Hosts, Format::Networks, Format::Domains, Format::Urls];
    let mut best = (0, Format::Domains);
    for format in candidates {
        let score = score(format);
        if score > best.0 {
            best = (score, format);
        }
    }
    best.1
}

fn has_record(line: &[u8]) -> bool {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).skip(1).take(3);
    words.any(|word| word == b"CNAME" || word == b"SOA")
}
