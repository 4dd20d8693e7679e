//! Heads and terms of responses that this cache has coded, or might have coded ([`super::coding`]): what is said of them, and how
//! they are told from those that their origins sent.

use larder_wire::credential::is_credential;
use larder_wire::directives::CacheControl;
use larder_wire::etag::ETag;
use larder_wire::{Fields, RequestHead, ResponseHead};

use super::coding::{name_by_accepted, name_by_choice};
use super::{Coding, Offer, Terms, Vary};

/// Says in the head of a response that its body follows in this coding. Fields about the bytes of the body go: its length and
/// its digests (RFC 9530 section 2). Its entity tag becomes a weak one with the name of the coding: weak, because the same
/// body coded by another version of this program has other bytes; with the name, because a validation must tell codings
/// apart (RFC 9110 section 8.8.3.3).
pub fn code_head(head: &mut ResponseHead, coding: Coding) {
    vary_by_coding(head);
    let fields = &mut head.fields;
    fields.set("Content-Encoding", coding.as_str());
    ABOUT_BYTES.iter().for_each(|name| _ = fields.remove(name));
    let tag = ETag::of(fields);
    fields.remove("ETag");
    if let Some(tag) = tag {
        let mut opaque = tag.opaque.into_vec();
        opaque.push(b'-');
        opaque.extend_from_slice(coding.as_str().as_bytes());
        let mut value = Vec::with_capacity(opaque.len() + 4);
        ETag { weak: true, opaque: opaque.into() }.write_to(&mut value);
        fields.push("ETag", value);
    }
}

/// Fields that are about the bytes of a body. Trailers may be such fields too.
pub const ABOUT_BYTES: [&str; 5] = ["Content-Length", "Content-MD5", "Digest", "Content-Digest", "Repr-Digest"];

/// Says in the head of a response that it depends on `Accept-Encoding`, in the line that is there (RFC 9110 section 12.5.5).
pub fn vary_by_coding(head: &mut ResponseHead) {
    let fields = &mut head.fields;
    if fields.has_member("Vary", "accept-encoding") || fields.has_member("Vary", "*") {
        return;
    }
    let mut value = fields.get_all("Vary").filter(|line| !line.is_empty()).collect::<Vec<_>>().join(&b", "[..]);
    if !value.is_empty() {
        value.extend_from_slice(b", ");
    }
    value.extend_from_slice(b"Accept-Encoding");
    fields.set("Vary", value);
}

/// Whether a response with these fields is never coded: its origin forbids it, or it may tell what only one client can see, because it sets a
/// cookie or depends on a field with a credential.
pub fn is_forbidden(fields: &Fields) -> bool {
    let is_of_one = |name: &[u8]| std::str::from_utf8(name).is_ok_and(is_credential);
    fields.contains("Set-Cookie") || fields.members("Vary").any(is_of_one) || CacheControl::of(fields).no_transform
}

/// The entity tag of a stored response in the place of the one that its clients get: the head as its origin would know it.
pub(super) fn as_of_origin(stored: &ResponseHead, terms: &Terms) -> ResponseHead {
    let mut head = stored.clone();
    if terms.coded.is_some() {
        head.fields.remove("ETag");
        if let Some(tag) = &terms.etag {
            let mut value = Vec::new();
            tag.write_to(&mut value);
            head.fields.push("ETag", value);
        }
    }
    head
}

/// Says of a head that was made anew all that was said of the stored response before.
pub(super) fn as_before(head: &mut ResponseHead, terms: &Terms) {
    match terms.coded {
        Some(coding) => code_head(head, coding),
        None if terms.vary.is_by_choice() => vary_by_coding(head),
        None => {}
    }
}

/// Makes a renewed response the one of the coding that it was before, whoever's request renewed it.
pub(super) fn vary_as_before(mut vary: Vary, terms: &Terms) -> Vary {
    vary.keep_offer(&terms.vary);
    vary
}

/// By which part of a request a response was chosen, where codings are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChosenBy {
    /// By the coding that this cache chooses for the request.
    Choice,
    /// This is the response for requests that get no coding, whichever brought it.
    Identity,
    /// By the origin, which was told the codings that the request accepts of those offered.
    Accepted,
}

/// Makes a response vary by the codings that are offered, in the place of the field `Accept-Encoding`.
pub fn vary_by_offer(terms: &mut Terms, offer: &Offer, request: &RequestHead, chosen_by: ChosenBy) {
    let name = match chosen_by {
        ChosenBy::Choice | ChosenBy::Identity => name_by_choice(offer),
        ChosenBy::Accepted => name_by_accepted(offer),
    };
    let none = Fields::new();
    let fields = if chosen_by == ChosenBy::Identity { &none } else { &request.fields };
    terms.vary.replace("accept-encoding", &name, fields);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_says_what_was_done_to_its_body() {
        let mut head = ResponseHead::new(200);
        for (name, value) in [
            ("Content-Length", "10"),
            ("ETag", "\"v1\""),
            ("Vary", "Origin"),
            ("Vary", "Cookie"),
            ("Content-MD5", "x"),
            ("Repr-Digest", "sha-256=:x:"),
            ("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT"),
        ] {
            head.fields.push(name, value);
        }
        code_head(&mut head, Coding::Brotli);
        let shown: Vec<String> =
            head.fields.iter().map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value))).collect();
        let expected = [
            "Vary: Origin, Cookie, Accept-Encoding",
            "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT",
            "Content-Encoding: br",
            "ETag: W/\"v1-br\"",
        ];
        let sorted = |mut lines: Vec<String>| {
            lines.sort_unstable();
            lines
        };
        assert_eq!(sorted(shown), sorted(expected.map(str::to_owned).to_vec()));
    }

    #[test]
    fn a_vary_that_says_so_already_stays() {
        for (held, expected) in [
            ("accept-encoding, Cookie", "accept-encoding, Cookie"),
            ("*", "*"),
            ("", "Accept-Encoding"),
            ("Cookie", "Cookie, Accept-Encoding"),
        ] {
            let mut head = ResponseHead::new(200);
            head.fields.push("Vary", held);
            vary_by_coding(&mut head);
            assert_eq!(head.fields.get("Vary"), Some(expected.as_bytes()), "{held}");
        }
    }
}
