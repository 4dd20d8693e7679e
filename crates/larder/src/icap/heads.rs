//! The heads of messages on their way to a service and back: what a service does not see, and what of its word does not count.

use super::MARK;
use larder_cache::tags;
use larder_wire::etag::ETag;
use larder_wire::{Fields, RequestHead, ResponseHead, hop};
use std::borrow::Cow;

/// Fields that describe the bytes of a body: those of an original do not describe a changed one.
const OF_BYTES: [&str; 6] =
    ["Content-MD5", "Content-Digest", "Repr-Digest", "Digest", "Last-Modified", "Accept-Ranges"];

/// The field of tags that has the marks of services.
pub const MARK_FIELD: &str = "Surrogate-Key";

/// The addressee of the `Authorization` of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationFor {
    /// The origin: a service sees the field, as it sees all others.
    Origin,
    /// This server, whose logins are no matter of a service.
    Larder,
}

/// A request as a service sees it: without the fields of the connection (RFC 3507 section 4.4.2) and without the client's
/// passwords for this server.
pub fn request_for_service(request: &RequestHead, authorization: AuthorizationFor) -> RequestHead {
    let mut fields = request.fields.clone();
    hop::strip(&mut fields);
    fields.remove("Proxy-Authorization");
    if authorization == AuthorizationFor::Larder {
        fields.remove("Authorization");
    }
    RequestHead::new(request.method.clone(), request.target.clone(), request.version, fields)
}

/// A response as a service sees it.
pub fn response_for_service(response: &ResponseHead) -> ResponseHead {
    let mut response = response.clone();
    hop::strip(&mut response.fields);
    response
}

/// A request that a service gave, as it goes on: the framing is this server's, and so is the connection. `length` is that of the
/// body, where there is one: the outer `None` means no body, the inner one that its length is not known.
pub fn mend_request(changed: &mut RequestHead, length: Option<Option<u64>>) {
    hop::strip(&mut changed.fields);
    changed.fields.remove("Proxy-Authorization");
    changed.fields.remove("Trailer");
    changed.fields.remove("Content-Length");
    match length {
        Some(Some(length)) => changed.fields.push("Content-Length", length.to_string()),
        Some(None) => {}
        None if changed.method.is_safe() => {}
        None => changed.fields.push("Content-Length", "0"),
    }
}

/// Whether a changed request asks the origin that its client asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangedTo {
    /// The same scheme, host and port.
    SameOrigin,
    /// Another one.
    AnotherOrigin,
}

/// Gives a changed request the credentials of its client, so that the rules judge it as one of that client. Logins at this server are
/// those that the client sent, whatever the service says, and `Authorization` of the client goes to no origin but the one it was for.
pub fn restore_credentials(
    client: &RequestHead,
    changed: &mut Fields,
    (authorization, to): (AuthorizationFor, ChangedTo),
) {
    put_back(client, changed, "Proxy-Authorization");
    match (authorization, to) {
        (AuthorizationFor::Larder, ChangedTo::SameOrigin) => put_back(client, changed, "Authorization"),
        (AuthorizationFor::Larder, ChangedTo::AnotherOrigin) => _ = changed.remove("Authorization"),
        (AuthorizationFor::Origin, ChangedTo::AnotherOrigin) if is_left(&client.fields, changed, "Authorization") => {
            changed.remove("Authorization");
        }
        (AuthorizationFor::Origin, _) => {}
    }
}

fn put_back(client: &RequestHead, changed: &mut Fields, name: &str) {
    changed.remove(name);
    client.fields.get_all(name).for_each(|value| changed.push(name, value));
}

/// A response that a service gave in the place of an original, as it goes on. Nobody may put pieces of the two together: a strong
/// validator that the service left as it was becomes a weak one, and fields that describe the original's bytes are dropped. The
/// variants of the original stay apart.
pub fn mend_response(original: &ResponseHead, changed: &mut ResponseHead) {
    hop::strip(&mut changed.fields);
    changed.fields.remove("Trailer");
    changed.version = original.version;
    for name in OF_BYTES {
        if is_left(&original.fields, &changed.fields, name) {
            changed.fields.remove(name);
        }
    }
    if is_left(&original.fields, &changed.fields, "ETag") {
        match ETag::of(&original.fields) {
            Some(tag) => {
                let mut text = Vec::new();
                ETag { weak: true, ..tag }.write_to(&mut text);
                changed.fields.set("ETag", text);
            }
            None => _ = changed.fields.remove("ETag"),
        }
    }
    let missing: Vec<&[u8]> = original
        .fields
        .get_all("Vary")
        .filter(|value| !changed.fields.get_all("Vary").any(|own| own == *value))
        .collect();
    missing.into_iter().for_each(|value| changed.fields.push("Vary", value));
}

/// The answer to a validation, or to a HEAD, as it may change a stored response that services looked at: it keeps their marks, and gives
/// no body that they changed the validators and digests of the original back.
pub fn validation_of_judged<'a>(stored: &ResponseHead, said: &'a ResponseHead) -> Cow<'a, ResponseHead> {
    let is_mark = |tag: &&[u8]| tag.starts_with(MARK.as_bytes());
    let marks: Vec<&[u8]> = tags::names(&stored.fields).filter(is_mark).collect();
    if marks.is_empty() {
        return Cow::Borrowed(said);
    }
    let mut said = said.clone();
    if said.fields.contains(MARK_FIELD) {
        marks.into_iter().for_each(|mark| said.fields.push(MARK_FIELD, mark));
    }
    for name in OF_BYTES.into_iter().filter(|name| !stored.fields.contains(name)) {
        said.fields.remove(name);
    }
    let keeps_own = match (ETag::of(&stored.fields), ETag::of(&said.fields)) {
        (None, _) => true,
        (Some(own), Some(said)) => own.weak && own.weak_eq(&said),
        (Some(_), None) => false,
    };
    if keeps_own {
        said.fields.remove("ETag");
    }
    Cow::Owned(said)
}

/// Whether a field of the original stands in the changed head as it was.
fn is_left(original: &Fields, changed: &Fields, name: &str) -> bool {
    let lines = |fields: &Fields| fields.get_all(name).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let own = lines(changed);
    !own.is_empty() && own == lines(original)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_wire::{Method, Target, Version};

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        lines.iter().for_each(|(name, value)| fields.push(name, value));
        fields
    }

    fn shown(fields: &Fields) -> String {
        let lines = fields.iter().map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)));
        lines.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn validators_of_a_changed_body_are_weak_or_gone() {
        for (original, changed, wanted) in [
            (&[("ETag", "\"a\"")][..], &[("ETag", "\"a\"")][..], "ETag: W/\"a\""),
            (&[("ETag", "\"a\"")], &[("ETag", "\"b\"")], "ETag: \"b\""),
            (&[("ETag", "\"a\"")], &[], ""),
            (&[("ETag", "W/\"a\"")], &[("ETag", "W/\"a\"")], "ETag: W/\"a\""),
            (&[("Last-Modified", "x")], &[("Last-Modified", "x"), ("A", "b")], "A: b"),
            (&[("Content-MD5", "x"), ("Accept-Ranges", "bytes")], &[("Content-MD5", "y")], "Content-MD5: y"),
            (&[("Vary", "Accept"), ("Vary", "Cookie")], &[("Vary", "Accept")], "Vary: Accept; Vary: Cookie"),
            (&[("Vary", "Accept")], &[], "Vary: Accept"),
            (&[], &[("Connection", "x-a"), ("X-A", "b"), ("Transfer-Encoding", "chunked")], ""),
        ] {
            let head = |lines| ResponseHead { fields: fields(lines), ..ResponseHead::new(200) };
            let (original, mut changed) = (head(original), head(changed));
            mend_response(&original, &mut changed);
            assert_eq!(shown(&changed.fields), wanted);
        }
    }

    #[test]
    fn framing_and_passwords_are_not_for_services() {
        let head = |method| {
            let lines =
                [("Proxy-Authorization", "Basic x"), ("Connection", "close"), ("Content-Length", "9"), ("A", "b")];
            RequestHead::new(method, Target::Origin("/".into()), Version::Http11, fields(&lines))
        };
        let seen = request_for_service(&head(Method::Post), AuthorizationFor::Origin);
        assert_eq!(shown(&seen.fields), "Content-Length: 9; A: b");
        for (method, length, wanted) in [
            (Method::Post, Some(Some(3)), "A: b; Content-Length: 3"),
            (Method::Post, Some(None), "A: b"),
            (Method::Post, None, "A: b; Content-Length: 0"),
            (Method::Get, None, "A: b"),
        ] {
            let mut changed = head(method);
            mend_request(&mut changed, length);
            assert_eq!(shown(&changed.fields), wanted);
        }
    }

    #[test]
    fn logins_are_the_clients_and_lead_to_no_other_origin() {
        use AuthorizationFor::{Larder, Origin};
        use ChangedTo::{AnotherOrigin, SameOrigin};
        let head = |lines: &[(&str, &str)]| {
            RequestHead::new(Method::Get, Target::Origin("/".into()), Version::Http11, fields(lines))
        };
        let client = head(&[("Authorization", "Basic own"), ("Proxy-Authorization", "Basic proxy")]);
        assert_eq!(shown(&request_for_service(&client, Origin).fields), "Authorization: Basic own");
        assert_eq!(shown(&request_for_service(&client, Larder).fields), "");
        let proxy = "Proxy-Authorization: Basic proxy";
        for (said, whose, to, wanted) in [
            ("Basic other", Larder, SameOrigin, format!("{proxy}; Authorization: Basic own")),
            ("Basic other", Larder, AnotherOrigin, proxy.to_owned()),
            ("Basic own", Origin, SameOrigin, format!("Authorization: Basic own; {proxy}")),
            ("Basic own", Origin, AnotherOrigin, proxy.to_owned()),
            ("Basic other", Origin, AnotherOrigin, format!("Authorization: Basic other; {proxy}")),
        ] {
            let mut changed = fields(&[("Authorization", said), ("Proxy-Authorization", "Basic forged")]);
            restore_credentials(&client, &mut changed, (whose, to));
            assert_eq!(shown(&changed), wanted, "{said} {whose:?} {to:?}");
        }
    }

    #[test]
    fn a_validation_gives_a_judged_body_no_validators_of_the_original() {
        let mark = ("Surrogate-Key", "icap:av:1");
        for (stored, said, wanted) in [
            (&[("A", "b")][..], &[("Last-Modified", "x"), ("ETag", "\"a\"")][..], "Last-Modified: x; ETag: \"a\""),
            (&[mark], &[("Last-Modified", "x"), ("Repr-Digest", "y"), ("Accept-Ranges", "z"), ("A", "b")], "A: b"),
            (&[mark], &[("ETag", "\"a\"")], ""),
            (&[mark, ("ETag", "W/\"a\"")], &[("ETag", "\"a\"")], ""),
            (&[mark, ("ETag", "W/\"a\"")], &[("ETag", "\"b\"")], "ETag: \"b\""),
            (
                &[mark, ("ETag", "\"a\""), ("Last-Modified", "w")],
                &[("ETag", "\"a\""), ("Last-Modified", "x")],
                "ETag: \"a\"; Last-Modified: x",
            ),
            (
                &[mark, ("Surrogate-Key", "own")],
                &[("Surrogate-Key", "new")],
                "Surrogate-Key: new; Surrogate-Key: icap:av:1",
            ),
        ] {
            let head = |status, lines| ResponseHead { fields: fields(lines), ..ResponseHead::new(status) };
            assert_eq!(shown(&validation_of_judged(&head(200, stored), &head(304, said)).fields), wanted);
        }
    }
}
