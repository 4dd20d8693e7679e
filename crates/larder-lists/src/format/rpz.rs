//! Response policy zones: a zone of the DNS (RFC 1035 section 5) whose owners are names or addresses that a policy is for.
//!
//! `NAME CNAME .`, `*.`, `rpz-drop.` and local data cover a name; `rpz-passthru.` takes it out. `BITS.d.c.b.a.rpz-ip` covers a network.
//! Policies for clients and for name servers are left out: they are none about where a request goes.

use super::Verdict;
use crate::entry::{Entry, NameReach, Side};
use crate::name::Name;
use crate::network::AddressRange;

/// The state of a zone between its lines.
#[derive(Default)]
pub struct Zone {
    /// The name of the zone, as its SOA says it, or the first `$ORIGIN` where that is not known; empty: not known.
    apex: Vec<u8>,
    /// The name that relative names end with; `None`: that of the zone, whatever it is.
    origin: Option<Vec<u8>>,
    /// The owner of the record before, absolute where the origin is known.
    owner: Vec<u8>,
    /// Inside the parentheses of a record.
    is_open: bool,
}

impl Zone {
    pub fn line(&mut self, line: &[u8], take: &mut dyn FnMut(Side, Entry)) -> Verdict {
        let line = line.split(|&byte| byte == b';').next().unwrap_or(line);
        if self.is_open {
            self.is_open = !line.contains(&b')');
            return Verdict::Nothing;
        }
        self.is_open = line.contains(&b'(') && !line.contains(&b')');
        let mut words: Vec<&[u8]> = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
        let Some(&first) = words.first() else { return Verdict::Nothing };
        if first.eq_ignore_ascii_case(b"$ORIGIN") {
            let origin = self.absolute(words.get(1).copied().unwrap_or(b"@"));
            if self.apex.is_empty() {
                self.apex.clone_from(&origin);
            }
            self.origin = Some(origin);
            return Verdict::Nothing;
        }
        if first.starts_with(b"$") {
            let is_include = first.eq_ignore_ascii_case(b"$INCLUDE") || first.eq_ignore_ascii_case(b"$GENERATE");
            return if is_include { Verdict::LeftOut } else { Verdict::Nothing };
        }
        if !line.first().is_some_and(u8::is_ascii_whitespace) {
            self.owner = self.absolute(first);
            words.remove(0);
        }
        let is_preamble = |word: &&&[u8]| {
            word.iter().all(u8::is_ascii_digit)
                || word.first().is_some_and(u8::is_ascii_digit)
                    && word.last().is_some_and(|byte| b"smhdwSMHDW".contains(byte))
                || [&b"IN"[..], b"CH", b"HS"].iter().any(|class| word.eq_ignore_ascii_case(class))
        };
        let words = &words[words.iter().take_while(is_preamble).count()..];
        let (Some(kind), data) = (words.first(), words.get(1)) else {
            return Verdict::Malformed("a record has a name, a type and data");
        };
        self.record(&kind.to_ascii_uppercase(), data.copied(), take)
    }

    fn record(&mut self, kind: &[u8], data: Option<&[u8]>, take: &mut dyn FnMut(Side, Entry)) -> Verdict {
        match kind {
            // Records of the zone itself, and signatures.
            b"SOA" => {
                if !self.owner.is_empty() {
                    self.apex.clone_from(&self.owner);
                }
                return Verdict::Nothing;
            }
            b"NS" | b"DNSKEY" | b"RRSIG" | b"NSEC" | b"NSEC3" | b"NSEC3PARAM" | b"DS" => {
                return Verdict::Nothing;
            }
            b"CNAME" | b"A" | b"AAAA" | b"TXT" | b"MX" | b"SRV" | b"HTTPS" | b"SVCB" | b"PTR" => {}
            _ => return Verdict::Malformed("its type is none of a policy"),
        }
        let Some(data) = data else { return Verdict::Malformed("a record has a name, a type and data") };
        let owner = self.policy_name();
        if owner.is_empty() {
            return Verdict::Nothing;
        }
        let target = bare(data);
        let side = match kind {
            b"CNAME" if target == b"rpz-passthru" || target == owner => Side::Excepts,
            b"CNAME" if target == b"rpz-tcp-only" => return Verdict::LeftOut,
            _ => Side::Covers,
        };
        if let Some(address) = owner.strip_suffix(b".rpz-ip") {
            return match network(address) {
                Some(range) => {
                    take(side, Entry::Addresses(range));
                    Verdict::Taken
                }
                None => Verdict::Malformed("its name is no network"),
            };
        }
        if [&b".rpz-client-ip"[..], b".rpz-nsip", b".rpz-nsdname"].iter().any(|end| owner.ends_with(end)) {
            return Verdict::LeftOut;
        }
        let below = owner.strip_prefix(b"*.");
        match Name::parse(below.unwrap_or(owner)) {
            Some(name) => {
                take(side, Entry::Name(name, if below.is_some() { NameReach::Below } else { NameReach::Exact }));
                Verdict::Taken
            }
            None => Verdict::Malformed("its owner is no name"),
        }
    }

    /// A name with all that it ends with, as far as that is known (RFC 1035 section 5.1).
    fn absolute(&self, name: &[u8]) -> Vec<u8> {
        let origin = self.origin.as_deref().unwrap_or_default();
        match (name, bare(name)) {
            (b"@", _) => origin.to_owned(),
            (_, bare) if name.ends_with(b".") || origin.is_empty() => bare,
            (_, bare) => [&bare, &b"."[..], origin].concat(),
        }
    }

    /// The owner without the name of the zone; empty: it is the zone itself.
    fn policy_name(&self) -> &[u8] {
        match self.owner.strip_suffix(self.apex.as_slice()) {
            Some(rest) if !self.apex.is_empty() => match rest {
                [] => rest,
                _ => rest.strip_suffix(b".").unwrap_or(&self.owner),
            },
            _ => &self.owner,
        }
    }
}

/// In lower case, without the dot at the end.
fn bare(name: &[u8]) -> Vec<u8> {
    name.strip_suffix(b".").unwrap_or(name).to_ascii_lowercase()
}

/// `24.0.2.0.192` is 192.0.2.0/24; `48.zz.1.db8.2001` is 2001:db8:1::/48.
fn network(text: &[u8]) -> Option<AddressRange> {
    let text = std::str::from_utf8(text).ok()?;
    let (bits, reversed) = text.split_once('.')?;
    let parts: Vec<&str> = reversed.rsplit('.').collect();
    let address = match parts.len() == 4 && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit())) {
        true => parts.join("."),
        false => {
            let gap = parts.iter().position(|&part| part == "zz");
            match gap {
                Some(at) => format!("{}::{}", parts.get(..at)?.join(":"), parts.get(at + 1..)?.join(":")),
                None => parts.join(":"),
            }
        }
    };
    AddressRange::parse(&format!("{address}/{bits}"))
}
