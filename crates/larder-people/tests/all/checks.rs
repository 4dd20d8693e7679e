//! Laws that hold for any bytes, one function per format. The fuzz targets in `fuzz/` run them without end, the test `seeds.rs` runs them over
//! mutated seeds on each build.

use larder_people::ber::{self, Elements};
use larder_people::ldap::{self, Reply};
use larder_people::ldap_text::{self, Filter, Names};

/// A check and the name of its fuzz target.
pub type Check = (&'static str, fn(&[u8]));

/// Every check of this file.
pub const ALL: [Check; 2] = [("ldap", messages), ("ldap_text", texts)];

/// Any bytes as those that a server of LDAP has sent: the length of a message is known from its head or not yet, and never another one; a
/// message that is cut is none; elements that were read can be written again.
pub fn messages(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some(length)) = ber::message_bytes(rest) {
        for cut in 0..rest.len().min(16) {
            let known = ber::message_bytes(&rest[..cut]);
            assert!(known == Ok(None) || known == Ok(Some(length)), "{cut}: {known:?}");
        }
        let Some(message) = rest.get(..length) else { break };
        if let Ok((id, reply)) = ldap::reply(message) {
            assert!(id <= 0x7fff_ffff);
            assert!(ldap::reply(&message[..length - 1]).is_err());
            one_reply(reply, length);
        }
        rest = &rest[length..];
    }
    elements(bytes, 0);
}

fn one_reply(reply: Reply, length: usize) {
    match reply {
        Reply::Bind(result) | Reply::Done(result) | Reply::Extended(result) => {
            assert!(result.words.chars().count() <= 200 && !result.words.contains(char::is_control));
        }
        Reply::Entry { dn, attributes } => {
            let all: usize = attributes.iter().flat_map(|(_, values)| values).map(|value| value.len() + 2).sum();
            assert!(dn.len() + all <= length);
            let _ = ldap_text::group_name(&dn, "dc=example");
            assert!(ldap::values_of(attributes, "").is_empty());
        }
        Reply::Reference => {}
    }
}

fn elements(bytes: &[u8], depth: usize) {
    let mut parts = Elements::of(bytes);
    while let Ok(Some((tag, content))) = parts.take_next() {
        let mut again = Vec::new();
        ber::push(&mut again, tag, content);
        assert_eq!(Elements::of(&again).expect(tag), Ok(content));
        if depth < 8 {
            elements(content, depth + 1);
        }
    }
}

/// Any text as a filter, a name of a group, and, behind its first line, the name of a user: a name never changes the form of a filter or of a
/// distinguished name.
pub fn texts(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (filter, user) = text.split_once('\n').unwrap_or((text, text));
    if let Ok(filter) = Filter::parse(filter) {
        let plain = form_of(&filter, Names { user: "ada", dn: "cn=a" });
        assert_eq!(form_of(&filter, Names { user, dn: user }), plain, "{user:?}");
    }
    let _ = (ldap_text::group_name(text, ""), ldap_text::group_name(text, user));
    let Some(name) = ldap_text::user_name(user) else { return };
    assert_eq!(ldap_text::user_name(&name).as_ref(), Some(&name));
    let dn = ldap_text::dn_of("uid={user},ou=people,dc=example", &name);
    assert_eq!(ldap_text::group_name(&dn, "ou=people,dc=example"), Some(name));
}

/// The tags of an encoded filter, with the lengths of all that is no value.
fn form_of(filter: &Filter, names: Names<'_>) -> Vec<u8> {
    let (mut bytes, mut form) = (Vec::new(), Vec::new());
    filter.push(&mut bytes, names);
    let mut outer = Elements::of(&bytes);
    assert!(outer.take_next().is_ok_and(|first| first.is_some()));
    assert_eq!(outer.take_next(), Ok(None), "a filter is one element");
    note_form(&bytes, &mut form);
    form
}

fn note_form(bytes: &[u8], form: &mut Vec<u8>) {
    let mut parts = Elements::of(bytes);
    while let Some((tag, content)) = parts.take_next().expect("an element that was just written") {
        form.push(tag);
        // The sixth bit says that elements are within.
        if tag & 0x20 != 0 {
            note_form(content, form);
            form.push(0);
        }
    }
}
