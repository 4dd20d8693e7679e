//! Hosts files: an address that leads nowhere, and names.

use super::{Verdict, without_comment};
use crate::entry::{Entry, NameReach, Side};
use crate::name::Name;
use crate::network::address;
use std::net::IpAddr;

/// Names that a hosts file has for the machine itself.
const LOCAL: [&[u8]; 11] = [
    b"localhost",
    b"localhost.localdomain",
    b"local",
    b"broadcasthost",
    b"ip6-localhost",
    b"ip6-loopback",
    b"ip6-localnet",
    b"ip6-mcastprefix",
    b"ip6-allnodes",
    b"ip6-allrouters",
    b"ip6-allhosts",
];

pub fn line(line: &[u8], names: NameReach, take: &mut dyn FnMut(Side, Entry)) -> Verdict {
    let line = without_comment(line, b"#");
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let Some(first) = words.next() else { return Verdict::Nothing };
    // An interface may stand behind an address: `fe80::1%lo0`.
    let first = first.split(|&byte| byte == b'%').next().unwrap_or(first);
    let Some(to) = std::str::from_utf8(first).ok().and_then(address) else {
        return Verdict::Malformed("it does not begin with an address");
    };
    let mut verdict = Verdict::Malformed("no name stands behind the address");
    for word in words {
        let name = match Name::parse(word) {
            Some(name) if LOCAL.contains(&name.as_bytes()) => None,
            Some(name) => Some(name),
            // Published files have `0.0.0.0 0.0.0.0`.
            None if std::str::from_utf8(word).ok().and_then(address).is_some() => None,
            None => return Verdict::Malformed("a word behind the address is no name"),
        };
        match name {
            Some(name) if leads_nowhere(to) => {
                let reach = if name.is_single_label() { NameReach::Exact } else { names };
                take(Side::Covers, Entry::Name(name, reach));
                verdict = Verdict::Taken;
            }
            _ if verdict == Verdict::Taken => {}
            _ => verdict = Verdict::LeftOut,
        }
    }
    verdict
}

/// A name with another address is one that this file resolves, not one that it blocks.
fn leads_nowhere(address: IpAddr) -> bool {
    address.is_loopback() || address.is_unspecified()
}
