//! Messages of LDAP (RFC 4511), as far as a login needs them: bind, search, StartTLS, and their answers. Each is a function of bytes.

use crate::ber::{self, BerFault, ENUMERATED, Elements, OCTETS, SEQUENCE, SET};
use crate::ldap_text::{Filter, Names};

/// A message of a server may have so many bytes.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

const VERSION: u32 = 3;
const START_TLS: &[u8] = b"1.3.6.1.4.1.1466.20037";

/// A password that is not empty: with an empty one a server may call a bind right that proves nothing (RFC 4513 section 5.1.2).
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Vec<u8>);

impl Password {
    /// `None` for an empty one, and for one with a NUL, behind which some servers read nothing.
    pub fn new(bytes: &[u8]) -> Option<Password> {
        (!bytes.is_empty() && !bytes.contains(&0)).then(|| Password(bytes.to_vec()))
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(hidden)")
    }
}

/// Where a search looks (RFC 4511 section 4.5.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// At the entry itself.
    Base,
    /// At it and all below.
    Subtree,
}

/// A search.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// The entry from which it goes down.
    pub base: &'a str,
    /// How far.
    pub scope: Scope,
    /// The filter, and the names in it.
    pub filter: (&'a Filter, Names<'a>),
    /// Entries at most.
    pub entries_max: u32,
    /// How long the server may look, in seconds.
    pub seconds_max: u32,
    /// The attribute that is wanted; empty: none.
    pub attribute: &'a str,
}

/// The result of an operation (RFC 4511 section 4.1.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LdapResult {
    /// The code.
    pub code: u32,
    /// The server's own words, at most 200 letters without control characters.
    pub words: String,
}

/// A message of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The answer to a bind.
    Bind(LdapResult),
    /// An entry that was found.
    Entry {
        /// Its distinguished name.
        dn: String,
        /// The attributes that the server sent, each with its values that are text.
        attributes: Vec<(String, Vec<String>)>,
    },
    /// Another server knows more.
    Reference,
    /// The end of a search.
    Done(LdapResult),
    /// The answer to StartTLS, or a notice that the connection ends.
    Extended(LdapResult),
}

fn message(id: u32, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    ber::push_with(&mut out, SEQUENCE, |out| {
        ber::push_integer(out, id);
        write(out);
    });
    out
}

/// A simple bind (RFC 4513 section 5.1.3). The name is not empty: that would be an anonymous one.
pub fn bind(id: u32, dn: &str, password: &Password) -> Vec<u8> {
    bind_with(id, dn, &password.0)
}

/// An anonymous bind (RFC 4513 section 5.1.1), by which a connection is nobody's again. It proves nothing.
pub fn bind_as_nobody(id: u32) -> Vec<u8> {
    bind_with(id, "", b"")
}

fn bind_with(id: u32, dn: &str, password: &[u8]) -> Vec<u8> {
    message(id, |out| {
        ber::push_with(out, 0x60, |out| {
            ber::push_integer(out, VERSION);
            ber::push(out, OCTETS, dn.as_bytes());
            ber::push(out, 0x80, password);
        });
    })
}

/// A search (RFC 4511 section 4.5.1). Aliases are not followed.
pub fn search(id: u32, search: &Search<'_>) -> Vec<u8> {
    message(id, |out| {
        ber::push_with(out, 0x63, |out| {
            ber::push(out, OCTETS, search.base.as_bytes());
            ber::push_number(out, ENUMERATED, if search.scope == Scope::Base { 0 } else { 2 });
            ber::push_number(out, ENUMERATED, 0);
            ber::push_integer(out, search.entries_max);
            ber::push_integer(out, search.seconds_max);
            ber::push_flag(out, false);
            let (filter, names) = search.filter;
            filter.push(out, names);
            // "1.1" is no attribute at all (section 4.5.1.8).
            let wanted = if search.attribute.is_empty() { "1.1" } else { search.attribute };
            ber::push_with(out, SEQUENCE, |out| ber::push(out, OCTETS, wanted.as_bytes()));
        });
    })
}

/// StartTLS (RFC 4511 section 4.14).
pub fn start_tls(id: u32) -> Vec<u8> {
    message(id, |out| ber::push_with(out, 0x77, |out| ber::push(out, 0x80, START_TLS)))
}

/// Reads one whole message: its number, and the reply. A number of 0 is nobody's answer: the connection ends.
pub fn reply(message: &[u8]) -> Result<(u32, Reply), BerFault> {
    let mut outer = Elements::of(message);
    let mut parts = Elements::of(outer.expect(SEQUENCE)?);
    let id = parts.integer()?;
    let (tag, content) = parts.take_next()?.ok_or(BerFault)?;
    let reply = match tag {
        0x61 => Reply::Bind(result(content)?),
        0x64 => entry(content)?,
        0x65 => Reply::Done(result(content)?),
        0x73 => Reply::Reference,
        0x78 => Reply::Extended(result(content)?),
        _ => return Err(BerFault),
    };
    Ok((id, reply))
}

fn result(content: &[u8]) -> Result<LdapResult, BerFault> {
    let mut parts = Elements::of(content);
    let code = parts.number(ENUMERATED)?;
    parts.expect(OCTETS)?;
    let words = String::from_utf8_lossy(parts.expect(OCTETS)?).into_owned();
    Ok(LdapResult { code, words: words.chars().filter(|letter| !letter.is_control()).take(200).collect() })
}

fn entry(content: &[u8]) -> Result<Reply, BerFault> {
    let mut parts = Elements::of(content);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec());
    let dn = text(parts.expect(OCTETS)?).map_err(|_| BerFault)?;
    let mut list = Elements::of(parts.expect(SEQUENCE)?);
    let mut attributes = Vec::new();
    while let Some((tag, attribute)) = list.take_next()? {
        if tag != SEQUENCE {
            return Err(BerFault);
        }
        let mut attribute = Elements::of(attribute);
        let name = text(attribute.expect(OCTETS)?).map_err(|_| BerFault)?;
        let (mut all, mut values) = (Elements::of(attribute.expect(SET)?), Vec::new());
        while let Some((tag, value)) = all.take_next()? {
            if tag != OCTETS {
                return Err(BerFault);
            }
            values.extend(text(value));
        }
        attributes.push((name, values));
    }
    Ok(Reply::Entry { dn, attributes })
}

/// The values of the attribute that was wanted. Others, which a server sends unasked, may be ones that users write themselves. An attribute
/// that was wanted by the number of its type may come with its name.
pub fn values_of(attributes: Vec<(String, Vec<String>)>, wanted: &str) -> Vec<String> {
    let is_number = wanted.starts_with(|first: char| first.is_ascii_digit());
    let is_wanted = |name: &str| {
        let name = name.split(';').next().unwrap_or_default();
        !wanted.is_empty() && (is_number || name.eq_ignore_ascii_case(wanted.split(';').next().unwrap_or_default()))
    };
    attributes.into_iter().filter(|(name, _)| is_wanted(name)).flat_map(|(_, values)| values).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_password_is_none() {
        assert_eq!(Password::new(b""), None);
        assert_eq!(Password::new(b"a\0b"), None);
        assert_eq!(format!("{:?}", Password::new(b"geheim").unwrap()), "Password(hidden)");
    }

    #[test]
    fn requests_as_their_bytes() {
        let password = Password::new(b"pw").unwrap();
        assert_eq!(bind(1, "cn=a", &password), b"\x30\x12\x02\x01\x01\x60\x0d\x02\x01\x03\x04\x04cn=a\x80\x02pw");
        assert_eq!(bind_as_nobody(2), b"\x30\x0c\x02\x01\x02\x60\x07\x02\x01\x03\x04\x00\x80\x00");
        assert_eq!(start_tls(1), b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037");
    }

    #[test]
    fn replies_are_read() {
        let right = b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x00\x04\x00\x04\x00";
        let Ok((1, Reply::Bind(result))) = reply(right) else { panic!() };
        assert_eq!(result.code, 0);
        let found = b"\x30\x17\x02\x01\x02\x64\x12\x04\x04cn=a\x30\x0a\x30\x08\x04\x01m\x31\x03\x04\x01b";
        let attributes = vec![("m".to_owned(), vec!["b".to_owned()])];
        assert_eq!(reply(found), Ok((2, Reply::Entry { dn: "cn=a".into(), attributes })));
        for length in 0..found.len() {
            assert!(reply(&found[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn values_are_those_of_the_attribute_that_was_wanted() {
        let all = ["memberOf", "memberof;x-a", "description", "memberOfAll"];
        for (wanted, found) in [
            ("memberOf", &["memberOf", "memberof;x-a"][..]),
            ("MEMBEROF;range=0-9", &["memberOf", "memberof;x-a"]),
            ("cn", &[]),
            ("", &[]),
            ("1.2.840.113556.1.2.102", &all),
        ] {
            let sent = all.iter().map(|name| (String::from(*name), vec![String::from(*name)])).collect();
            assert_eq!(values_of(sent, wanted), found, "{wanted}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let _ = reply(&bytes);
            let mut inside = Vec::new();
            ber::push_with(&mut inside, SEQUENCE, |out| {
                ber::push_integer(out, 1);
                ber::push(out, 0x64, &bytes);
            });
            let _ = reply(&inside);
        }
    }
}
