//! Where a body ends: the rules of RFC 9112 section 6.3, written here and nowhere else.
//!
//! A message that says it in two ways is refused, also where one way would win by the RFC: the peer
//! that a proxy forwards to may choose the other one. So are doubled lengths, even equal ones, and any
//! transfer coding but one final `chunked`; we could not decode another one for our readers.

use crate::{Fault, FaultKind, Fields, Method, RequestHead, ResponseHead, Side, Version};

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body, whatever the fields say.
    None,
    /// That many bytes.
    Length(u64),
    /// Chunks, the last of which is empty.
    Chunked,
    /// All that comes until the peer closes; responses only.
    UntilClose,
}

impl Framing {
    /// The word that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            Framing::None => "none",
            Framing::Length(_) => "length",
            Framing::Chunked => "chunked",
            Framing::UntilClose => "until-close",
        }
    }
}

/// The framing of a request's body. A request that declares nothing has none; a body is permitted with
/// every method but CONNECT, whose bytes after the head belong to the tunnel (RFC 9110 section 9.3.6).
pub fn of_request(head: &RequestHead) -> Result<Framing, Fault> {
    let declared = declared(head.version, &head.fields, Side::Client)?;
    if head.method != Method::Connect {
        return Ok(declared.unwrap_or(Framing::None));
    }
    match declared {
        None | Some(Framing::Length(0)) => Ok(Framing::None),
        Some(Framing::Length(_)) => Err(Fault::client(FaultKind::ContentLength, "a CONNECT with a body")),
        Some(_) => Err(Fault::client(FaultKind::TransferEncoding, "a CONNECT with a body")),
    }
}

/// The framing of the body that answers a request of method `asked`. Responses to HEAD, and 1xx, 204 and 304,
/// have no body, whatever transfer coding they name (RFC 9112 section 6.3, the first rule); their declared length must
/// be well-formed all the same, because it is forwarded. After a [`begins_tunnel`] head there is no body either.
///
/// A body in a coding that we can't undo is refused: it ends where RFC 9112 section 6.3 says, but neither can it be
/// handed to a client that did not offer to take that coding, nor be stored as what it is not.
pub fn of_response(head: &ResponseHead, asked: &Method) -> Result<Framing, Fault> {
    if begins_tunnel(head, asked) {
        return Ok(Framing::None);
    }
    let declared = declared(head.version, &head.fields, Side::Origin);
    if *asked == Method::Head || forbids_body(head.status) || head.status == 304 {
        // Two framings in one head are refused also here: the length of them is the one that would be forwarded.
        let only_coding = !head.fields.contains("Content-Length");
        return if only_coding { Ok(Framing::None) } else { declared.map(|_| Framing::None) };
    }
    Ok(declared?.unwrap_or(Framing::UntilClose))
}

/// True when what follows this head is no HTTP any more: 101, and 2xx to CONNECT. The latter's
/// `Content-Length` and `Transfer-Encoding` are to be ignored (RFC 9110 section 9.3.6).
pub fn begins_tunnel(head: &ResponseHead, asked: &Method) -> bool {
    head.status == 101 || (*asked == Method::Connect && (200..300).contains(&head.status))
}

/// True when the connection may serve another exchange once this response has been read whole. False also
/// for a 1xx or 204 that declares a body: its sender may have sent one, and the bytes of it would be
/// taken for the next response. (An interim head is judged by that alone; what decides about keeping
/// the connection is the final one.) A proxy that forwards such a head removes the two fields (RFC 9110
/// section 8.6, RFC 9112 section 6.1).
///
/// A head cannot tell everything: bytes that come after the end of a response and before the next request
/// mean that the peer counted differently. The owner of the connection closes it then.
pub fn reusable(head: &ResponseHead, asked: &Method) -> bool {
    reusable_after(head, asked, &of_response(head, asked))
}

/// Like [`reusable`], for a caller that has the framing of the response already.
pub fn reusable_after(head: &ResponseHead, asked: &Method, framing: &Result<Framing, Fault>) -> bool {
    if begins_tunnel(head, asked) || (forbids_body(head.status) && declares_body(&head.fields)) {
        return false;
    }
    // Where there must be no body, but the fields of framing are at fault, the peer may send one after all.
    if *framing == Ok(Framing::None) && declared(head.version, &head.fields, Side::Origin).is_err() {
        return false;
    }
    match framing {
        Err(_) | Ok(Framing::UntilClose) => false,
        Ok(_) => head.is_interim() || head.keeps_alive(),
    }
}

/// A body is not only absent, its sender may not even declare one.
fn forbids_body(status: u16) -> bool {
    status < 200 || status == 204
}

fn declares_body(fields: &Fields) -> bool {
    fields.contains("Transfer-Encoding") || fields.get("Content-Length").is_some_and(|value| value != b"0")
}

/// The framing that the fields declare. Fields that contradict one another are a fault.
fn declared(version: Version, fields: &Fields, side: Side) -> Result<Option<Framing>, Fault> {
    let length = fields.get("Content-Length");
    let Some(coding) = fields.get("Transfer-Encoding") else {
        return length.map(|value| content_length(value, fields, side)).transpose();
    };
    let refuse = |detail| Err(Fault { side, kind: FaultKind::TransferEncoding, detail });
    if length.is_some() {
        return refuse("Transfer-Encoding and Content-Length together");
    }
    if version == Version::Http10 {
        return refuse("Transfer-Encoding in an HTTP/1.0 message");
    }
    if fields.count("Transfer-Encoding") > 1 || !coding.eq_ignore_ascii_case(b"chunked") {
        return refuse("a transfer coding other than one chunked");
    }
    Ok(Some(Framing::Chunked))
}

/// Digits and nothing else, once. More than `i64::MAX` is refused: other programs count in signed numbers.
fn content_length(value: &[u8], fields: &Fields, side: Side) -> Result<Framing, Fault> {
    let refuse = |detail| Err(Fault { side, kind: FaultKind::ContentLength, detail });
    if fields.count("Content-Length") > 1 {
        return refuse("two Content-Length fields");
    }
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return refuse("Content-Length is no number");
    }
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<i64>().ok());
    match number.and_then(|number| u64::try_from(number).ok()) {
        Some(number) => Ok(Framing::Length(number)),
        None => refuse("Content-Length is too large a number"),
    }
}
