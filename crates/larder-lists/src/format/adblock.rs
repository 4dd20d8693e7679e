//! Filters for web browsers (Adblock Plus, uBlock Origin, AdGuard): those that name a host and nothing that only a browser knows.
//!
//! `||example.com^` covers the host and all below it, `@@||example.com^` takes it out. Filters of elements of pages, of parts of paths, of
//! types of resources or of the page that asks are left out and counted: a proxy sees no page. With the feature `adblock` all filters of
//! requests go to its engine too, which judges whole URLs.

use super::Verdict;
use super::hosts;
use crate::entry::{Entry, NameReach, Side};
use crate::filters::HAS_ENGINE;
use crate::name::Name;

/// Options that change nothing for a proxy. `third-party` is one of them: a host of advertisements is hardly visited by itself.
const INDIFFERENT: [&[u8]; 9] =
    [b"third-party", b"3p", b"important", b"all", b"document", b"doc", b"popup", b"match-case", b"_"];

pub fn line(line: &[u8], take: &mut dyn FnMut(Side, Entry)) -> Verdict {
    let is_comment = line.starts_with(b"!") || line.starts_with(b"[") && line.ends_with(b"]");
    if is_comment || line.starts_with(b"# ") || line == b"#" {
        return Verdict::Nothing;
    }
    if is_cosmetic(line) {
        return Verdict::LeftOut;
    }
    let verdict = name(line, take);
    match std::str::from_utf8(line) {
        Ok(text) if HAS_ENGINE && !begins_with_address(line) => {
            take(Side::Covers, Entry::Filter(text.to_owned(), verdict == Verdict::Taken));
            Verdict::Taken
        }
        _ => verdict,
    }
}

/// Lists for DNS filters mix in lines of hosts files.
fn begins_with_address(line: &[u8]) -> bool {
    line.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b':')
}

/// Takes a filter that names a host and nothing that only a browser knows.
fn name(line: &[u8], take: &mut dyn FnMut(Side, Entry)) -> Verdict {
    let (side, filter) = match line.strip_prefix(b"@@") {
        Some(filter) => (Side::Excepts, filter),
        None => (Side::Covers, line),
    };
    let Some(filter) = filter.strip_prefix(b"||") else {
        return match begins_with_address(line).then(|| hosts::line(line, NameReach::Exact, take)) {
            Some(verdict @ (Verdict::Taken | Verdict::LeftOut)) => verdict,
            _ => Verdict::LeftOut,
        };
    };
    let (host, options) = match filter.iter().position(|&byte| byte == b'$') {
        Some(at) => (&filter[..at], &filter[at + 1..]),
        None => (filter, &b"_"[..]),
    };
    if !options.split(|&byte| byte == b',').all(|option| INDIFFERENT.contains(&option)) {
        return Verdict::LeftOut;
    }
    let host = host.strip_suffix(b"|").unwrap_or(host);
    let host = host.strip_suffix(b"^").or_else(|| host.strip_suffix(b"/")).unwrap_or(host);
    let host = host.strip_prefix(b"*.").unwrap_or(host);
    match Name::parse(host) {
        Some(name) if name.is_single_label() && !filter.contains(&b'^') => Verdict::LeftOut,
        Some(name) => {
            take(side, Entry::Name(name, NameReach::Tree));
            Verdict::Taken
        }
        None => Verdict::LeftOut,
    }
}

/// Filters of elements: `example.com##.banner`, `#@#`, `#?#`, `#$#`, `#%#`, `$$`.
fn is_cosmetic(line: &[u8]) -> bool {
    let hash = line.windows(2).any(|two| two == b"##" || two == b"$$");
    hash || line.windows(3).any(|three| three[0] == b'#' && three[2] == b'#' && b"@?$%".contains(&three[1]))
        || line.windows(4).any(|four| four[0] == b'#' && four[1] == b'@' && four[3] == b'#')
}
