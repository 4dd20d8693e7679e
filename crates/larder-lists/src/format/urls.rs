//! A URL a line, with or without a scheme, as squidGuard's `urls` and lists of harmful downloads have them.

use super::Verdict;
use crate::entry::{Entry, NameReach, Side};
use crate::name::Name;
use crate::network::{AddressRange, address};
use crate::url::NormalUrl;

pub fn line(line: &[u8], take: &mut dyn FnMut(Side, Entry)) -> Verdict {
    if line.starts_with(b"#") || line.starts_with(b"!") || line.starts_with(b";") {
        return Verdict::Nothing;
    }
    if line.iter().any(u8::is_ascii_whitespace) {
        return Verdict::Malformed("a URL has no blanks");
    }
    let Some(url) = NormalUrl::parse(line) else { return Verdict::Malformed("it has no host") };
    let Some(host) = url.text.get(..url.host_bytes) else { return Verdict::Malformed("it has no host") };
    let ip = std::str::from_utf8(host).ok().and_then(address);
    match (ip, Name::parse(host)) {
        (Some(ip), _) if url.is_host() => {
            if let Some(range) = AddressRange::parse(&ip.to_string()) {
                take(Side::Covers, Entry::Addresses(range));
            }
        }
        (Some(_), _) => {}
        (None, Some(name)) => {
            // A CONNECT names a host alone, and a URL in normal form is that of the host with `www.` too.
            if url.is_host() {
                take(Side::Covers, Entry::Name(name, NameReach::Exact));
                if let Some(name) = Name::parse(&[b"www.", name.as_bytes()].concat()) {
                    take(Side::Covers, Entry::Name(name, NameReach::Exact));
                }
            }
            if name.as_bytes() != host {
                let path = url.text.get(url.host_bytes..).unwrap_or_default();
                let Some(url) = NormalUrl::of(name.as_bytes(), path) else {
                    return Verdict::Malformed("it has no host");
                };
                take(Side::Covers, Entry::Url(url.text));
                return Verdict::Taken;
            }
        }
        (None, None) => return Verdict::Malformed("it does not begin with a host"),
    }
    take(Side::Covers, Entry::Url(url.text));
    Verdict::Taken
}
