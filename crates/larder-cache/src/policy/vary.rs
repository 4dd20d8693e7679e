//! Which requests a stored response answers (RFC 9111 section 4.1).
//!
//! Lines of one name are joined; the content negotiation fields are brought to one spelling that means the
//! same: white space goes, letters become small where case has no meaning, a weight of 1 goes, `x-gzip` is
//! `gzip`, and the codings of `Accept-Encoding`, whose order has no meaning, are sorted. The order of
//! `Accept` and `Accept-Language` stays, for some origins read it. Any other field is compared byte by byte.
//! Where this cache codes responses itself, its choice of a coding takes the place of `Accept-Encoding` ([`coding`]).

use std::fmt;

use larder_wire::fields::{is_token, trim};
use larder_wire::{Fields, RequestHead, ResponseHead};

use super::weight::weight;
use super::{Terms, coding};

/// The fields a response was chosen by, and their values in the request that brought it. One buffer of
/// lines: `name:value\n` for a field that was there, `name\n` for one that was not; neither a name nor a
/// value can hold these marks.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Vary {
    lines: Box<[u8]>,
}

/// A response that names more fields than this in `Vary` counts as `Vary: *`. A variant of so many fields is hardly ever
/// asked for again, and each name costs memory with the variant and time at each look-up.
pub const VARY_NAMES_MAX: usize = 32;

impl Vary {
    /// The names that the response varies by, with the request's values; `None` for `*`, which no request matches, for a member
    /// that is no field name, and for more than [`VARY_NAMES_MAX`] names.
    pub fn of(request: &RequestHead, response: &ResponseHead) -> Option<Vary> {
        let mut names: Vec<Box<str>> = Vec::new();
        for member in response.fields.members("Vary") {
            // A `*` anywhere counts; it is a token too, so it is looked for first.
            if member == b"*" || !is_token(member) {
                return None;
            }
            if names.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(member)) {
                continue;
            }
            if names.len() == VARY_NAMES_MAX {
                return None;
            }
            names.push(String::from_utf8_lossy(member).to_ascii_lowercase().into_boxed_str());
        }
        names.sort_unstable();
        let mut lines = Vec::new();
        for name in &names {
            write_line(name, &request.fields, &mut lines);
        }
        Some(Vary { lines: lines.into() })
    }

    /// True when this request would have brought the same response.
    pub fn matches(&self, request: &RequestHead) -> bool {
        let mut line = Vec::new();
        self.lines().all(|held| is_line_of(held, &request.fields, &mut line))
    }

    /// True when this is the response for requests that get no coding of this cache, and this request would have brought it if it were
    /// such a one.
    pub(super) fn matches_uncoded(&self, request: &RequestHead) -> bool {
        let mut line = Vec::new();
        self.offer_line().is_some_and(coding::is_for_uncoded)
            && self.lines().all(|held| coding::is_offer(name_of(held)) || is_line_of(held, &request.fields, &mut line))
    }

    /// True when the response does not vary: it answers every request.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The field names, in lower case, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.lines().map(name_of)
    }

    /// Whether it varies by the coding that this cache chooses for a request.
    pub fn is_by_choice(&self) -> bool {
        self.names().any(coding::is_by_choice)
    }

    /// Whether it is the response for requests that get a coding of this cache.
    pub(super) fn is_for_coding(&self) -> bool {
        self.is_by_choice() && !self.offer_line().is_some_and(coding::is_for_uncoded)
    }

    /// Makes it vary by `name`, with the value that a request with these fields has, and not by the field `old`.
    pub(super) fn replace(&mut self, old: &str, name: &str, fields: &Fields) {
        let mut line = Vec::new();
        write_line(name, fields, &mut line);
        self.put(old, &line);
    }

    /// Makes it vary by the codings that are offered as `held` does, where that does, and not by the field `Accept-Encoding`: the bytes
    /// have the coding that they had, whatever the present request accepts.
    pub(super) fn keep_offer(&mut self, held: &Vary) {
        if let Some(line) = held.offer_line() {
            self.put("accept-encoding", line);
        }
    }

    /// Puts a line in the place of that for `old`.
    fn put(&mut self, old: &str, line: &[u8]) {
        let name = name_of(line);
        let mut lines: Vec<&[u8]> =
            self.lines().filter(|other| name_of(other) != old && name_of(other) != name).collect();
        lines.push(line);
        lines.sort_unstable_by(|one, other| name_of(one).cmp(name_of(other)));
        self.lines = lines.concat().into();
    }

    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.split_inclusive(|&byte| byte == b'\n')
    }

    /// The line for what it varies by beside fields, where it has such a one.
    fn offer_line(&self) -> Option<&[u8]> {
        self.lines().find(|line| coding::is_offer(name_of(line)))
    }

    /// The whole as bytes, for a store; [`Vary::from_bytes`] takes them back.
    pub fn as_bytes(&self) -> &[u8] {
        &self.lines
    }

    /// The value of which [`Vary::as_bytes`] gave these bytes; `None` for bytes that it cannot have given.
    pub fn from_bytes(bytes: &[u8]) -> Option<Vary> {
        let whole = bytes.is_empty() || bytes.ends_with(b"\n");
        let named = bytes.split_inclusive(|&byte| byte == b'\n').all(|line| !name_of(line).is_empty());
        (whole && named).then(|| Vary { lines: bytes.into() })
    }

    /// Bytes on the heap, for exact budgets.
    pub fn heap_bytes(&self) -> usize {
        self.lines.len()
    }
}

/// Names alone: a value may be a credential.
impl fmt::Debug for Vary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// Of the stored variants that match a request, the most recent by `Date`, then by arrival. Where none does, a part may be taken from one
/// that [`Terms::answers_in_part`].
pub fn choose<'a, T>(variants: impl Iterator<Item = (&'a Terms, T)> + Clone, request: &RequestHead) -> Option<T> {
    let newest = |variants: &mut dyn Iterator<Item = (&'a Terms, T)>| {
        variants.max_by_key(|(terms, _)| (terms.date, terms.received)).map(|(_, variant)| variant)
    };
    newest(&mut variants.clone().filter(|(terms, _)| terms.answers(request)))
        .or_else(|| newest(&mut variants.filter(|(terms, _)| terms.answers_in_part(request))))
}

fn name_of(line: &[u8]) -> &str {
    let end = line.iter().position(|byte| matches!(byte, b':' | b'\n')).unwrap_or(line.len());
    std::str::from_utf8(&line[..end]).unwrap_or_default()
}

/// Whether a request with these fields has this line; `buffer` is for the work.
fn is_line_of(held: &[u8], fields: &Fields, buffer: &mut Vec<u8>) -> bool {
    buffer.clear();
    write_line(name_of(held), fields, buffer);
    buffer == held
}

fn write_line(name: &str, fields: &Fields, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    if coding::is_offer(name) {
        out.push(b':');
        coding::write_value(name, fields, out);
    } else if fields.contains(name) {
        out.push(b':');
        match name {
            "accept-encoding" => write_codings(fields, out),
            "accept-language" | "accept-charset" => write_list(fields, name, true, out),
            "accept" => write_list(fields, name, false, out),
            _ => write_joined(fields, name, out),
        }
    }
    out.push(b'\n');
}

fn write_joined(fields: &Fields, name: &str, out: &mut Vec<u8>) {
    for (at, value) in fields.get_all(name).enumerate() {
        if at > 0 {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(value);
    }
}

fn write_list(fields: &Fields, name: &str, small: bool, out: &mut Vec<u8>) {
    let start = out.len();
    for member in fields.members(name) {
        if out.len() > start {
            out.push(b',');
        }
        let from = out.len();
        write_member(member, out);
        if small {
            out[from..].make_ascii_lowercase();
        }
    }
}

/// Sorted, each once.
fn write_codings(fields: &Fields, out: &mut Vec<u8>) {
    let mut codings: Vec<Vec<u8>> = fields.members("accept-encoding").map(coding).collect();
    codings.sort_unstable();
    codings.dedup();
    out.extend_from_slice(&codings.join(&b','));
}

/// One coding; the old names mean the same (RFC 9110 sections 8.4.1.1 and 8.4.1.3).
fn coding(member: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(member.len());
    write_member(member, &mut out);
    out.make_ascii_lowercase();
    for old in [&b"x-gzip"[..], b"x-compress"] {
        if out.starts_with(old) && matches!(out.get(old.len()), None | Some(b';')) {
            out.drain(..2);
        }
    }
    out
}

/// A member without white space around `;`, and without a weight of 1 (RFC 9110 section 12.4.2).
fn write_member(member: &[u8], out: &mut Vec<u8>) {
    if member.contains(&b'"') {
        // A quoted string may hold a semicolon: left as it is.
        return out.extend_from_slice(member);
    }
    for (at, part) in member.split(|&byte| byte == b';').map(trim).enumerate() {
        match weight(part) {
            Some(weight) if at > 0 => {
                if weight != b"1" {
                    out.extend_from_slice(b";q=");
                    out.extend_from_slice(weight);
                }
            }
            _ => {
                if at > 0 {
                    out.push(b';');
                }
                out.extend_from_slice(part);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Vary;
    use crate::policy::coding::{self, Coding, Offer};
    use larder_wire::{Fields, Method, RequestHead, ResponseHead, Target, Version};

    /// The request with this field, and what it varies by among the codings and languages.
    fn asked(accepts: &str) -> (RequestHead, Vary) {
        let mut fields = Fields::new();
        fields.push("Accept-Encoding", accepts);
        fields.push("Accept-Language", "de");
        let request = RequestHead::new(Method::Get, Target::Origin("/".into()), Version::Http11, fields);
        let mut response = ResponseHead::new(200);
        response.fields.push("Vary", "Accept-Encoding, Accept-Language");
        let mut offer = Offer::default();
        [Coding::Brotli, Coding::Gzip].into_iter().for_each(|coding| _ = offer.push(coding));
        let mut vary = Vary::of(&request, &response).unwrap();
        vary.replace("accept-encoding", &coding::name_by_choice(&offer), &request.fields);
        (request, vary)
    }

    #[test]
    fn a_renewed_response_stays_that_of_its_coding() {
        let (by_br, held) = asked("br");
        let (by_gzip, _) = asked("gzip");
        let mut response = ResponseHead::new(200);
        response.fields.push("Vary", "Origin, Accept-Encoding");
        let mut renewed = Vary::of(&by_gzip, &response).unwrap();
        renewed.keep_offer(&held);
        assert_eq!(renewed.names().collect::<Vec<_>>(), ["accept-encoding/br,gzip", "origin"]);
        assert!(renewed.matches(&by_br) && !renewed.matches(&by_gzip));
        let plain = Vary::of(&by_gzip, &response).unwrap();
        renewed.keep_offer(&plain);
        assert!(renewed.matches(&by_br), "one without an offer says nothing of it");
    }

    #[test]
    fn the_response_without_a_coding_is_known() {
        let (by_gzip, of_gzip) = asked("gzip");
        let (mut by_none, of_none) = asked("identity");
        assert!(of_gzip.is_for_coding() && !of_none.is_for_coding() && !Vary::default().is_for_coding());
        assert!(of_none.matches_uncoded(&by_gzip) && !of_none.matches(&by_gzip));
        assert!(!of_gzip.matches_uncoded(&by_none) && !Vary::default().matches_uncoded(&by_none));
        by_none.fields.set("Accept-Language", "fr");
        assert!(!of_none.matches_uncoded(&by_none));
    }
}
