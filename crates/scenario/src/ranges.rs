//! An origin that honours Range (RFC 9110 section 14): a script can't know whether a proxy asks for a part or for
//! all, so an answer with the detail `ranges` fits either.

use crate::message::Head;
use crate::script::Reply;
use crate::text::{Payload, Scope, Text, render_payloads};

/// The answer to this request: the part that it asks for, or the whole where it asks for none.
pub fn honour(reply: Reply, request: &Head, scope: &Scope) -> Reply {
    let whole = render_payloads(reply.message.body.as_deref().unwrap_or_default(), scope);
    let wanted =
        request.joined("Range").filter(|_| request.words()[0] == "GET" && if_range_holds(&reply, request, scope));
    match wanted.and_then(|range| Wanted::read(&range, whole.len())) {
        None => reply,
        Some(Wanted::Part { first, last }) => {
            let range = format!("bytes {first}-{last}/{}", whole.len());
            answer(reply, 206, &range, whole[first..=last].to_vec())
        }
        Some(Wanted::Beyond) => {
            let range = format!("bytes */{}", whole.len());
            answer(reply, 416, &range, Vec::new())
        }
    }
}

enum Wanted {
    Part { first: usize, last: usize },
    Beyond,
}

impl Wanted {
    /// One range; of several, or of what is no range, nothing: the whole is a right answer to those.
    fn read(value: &str, length: usize) -> Option<Wanted> {
        let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
        if first.is_empty() {
            let suffix: usize = last.parse().ok()?;
            let first = length.saturating_sub(suffix);
            return Some(if suffix == 0 || length == 0 {
                Wanted::Beyond
            } else {
                Wanted::Part { first, last: length - 1 }
            });
        }
        let first: usize = first.parse().ok()?;
        let last = if last.is_empty() { usize::MAX } else { last.parse().ok()? };
        if last < first {
            return None;
        }
        Some(if first >= length { Wanted::Beyond } else { Wanted::Part { first, last: last.min(length - 1) } })
    }
}

/// If-Range names the representation that the asker holds a part of; with another one the whole is due.
fn if_range_holds(reply: &Reply, request: &Head, scope: &Scope) -> bool {
    let Some(condition) = request.joined("If-Range") else { return true };
    let value = |name: &str| {
        let found = reply.message.fields.iter().find(|(n, _)| n.render_str(scope).eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.render_str(scope))
    };
    [value("ETag"), value("Last-Modified")].contains(&Some(condition))
}

fn answer(mut reply: Reply, status: u16, range: &str, body: Vec<u8>) -> Reply {
    reply.status = status;
    reply.reason = None;
    reply.message.chunks = None;
    reply.message.body = Some(vec![Payload::Text(Text::literal(&body))]);
    reply.message.fields.push((Text::literal(b"Content-Range"), Text::literal(range.as_bytes())));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_as_rfc_9110_section_14_reads_them() {
        let table = [
            ("bytes=0-3", Some((0, 3))),
            ("bytes=4-", Some((4, 9))),
            ("bytes=8-99", Some((8, 9))),
            ("bytes=-3", Some((7, 9))),
            ("bytes=-30", Some((0, 9))),
            ("bytes=10-", Some((1, 0))),
            ("bytes=-0", Some((1, 0))),
            ("bytes=5-2", None),
            ("bytes=0-1,3-4", None),
            ("lines=0-1", None),
        ];
        for (value, expected) in table {
            let read = Wanted::read(value, 10).map(|wanted| match wanted {
                Wanted::Part { first, last } => (first, last),
                Wanted::Beyond => (1, 0),
            });
            assert_eq!(read, expected, "{value}");
        }
    }
}
