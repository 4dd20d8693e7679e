//! Heads of requests as field blocks, and field lists as heads of responses (RFC 9113 section 8). A request has the lines that HTTP/1.1
//! would send, without those that are about a connection. A response is written down as a head of HTTP/1.1 and read by the strict parser,
//! as the requests of clients are: one judge decides about both versions.

use larder_wire::field_list::{check_field, check_value, write_line};
use larder_wire::h2::hpack::{FieldList, write_field};
use larder_wire::parse::{HeadLimits, Parsed, response as parse};
use larder_wire::{Fault, FaultKind, Fields, Method, Reason, ResponseHead, Scheme};

/// The head of a request.
pub struct RequestParts<'a> {
    pub method: &'a Method,
    pub scheme: Scheme,
    /// The authority where the fields have no `Host`.
    pub authority: String,
    /// The target in origin form.
    pub target: &'a str,
    pub fields: &'a Fields,
}

/// Fields that no request of HTTP/2 has (RFC 9113 section 8.2.2), and `Host`, which is `:authority`.
const OF_CONNECTION: [&str; 7] =
    ["Host", "Connection", "Transfer-Encoding", "Keep-Alive", "Proxy-Connection", "Upgrade", "HTTP2-Settings"];

impl RequestParts<'_> {
    /// Appends the field block.
    pub fn write(&self, out: &mut Vec<u8>) {
        let authority = self.fields.get("Host").unwrap_or(self.authority.as_bytes());
        write_field(out, b":method", self.method.as_str().as_bytes(), false);
        write_field(out, b":scheme", self.scheme.as_str().as_bytes(), false);
        if !authority.is_empty() {
            write_field(out, b":authority", authority, false);
        }
        write_field(out, b":path", &path(self.target), false);
        for (name, value) in self.fields.iter() {
            let is_left_out = OF_CONNECTION.iter().any(|other| name.eq_ignore_ascii_case(other))
                || (name.eq_ignore_ascii_case("TE") && !value.eq_ignore_ascii_case(b"trailers"));
            if !is_left_out {
                write_field(out, name.as_bytes(), value, is_secret(name));
            }
        }
    }
}

/// The target as HTTP/1.1 writes it: bytes that no target has are percent-encoded.
fn path(target: &str) -> Vec<u8> {
    let target = if target.is_empty() { "/" } else { target };
    let mut path = Vec::with_capacity(target.len());
    for byte in target.bytes() {
        match byte {
            0x21..=0x7e => path.push(byte),
            byte => path.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    path
}

/// Values that nobody on the way may keep in a table (RFC 7541 section 7.1.3).
fn is_secret(name: &str) -> bool {
    ["Authorization", "Cookie", "Proxy-Authorization"].iter().any(|other| name.eq_ignore_ascii_case(other))
}

/// The head of a response that a field list makes; `text` is a buffer for it as HTTP/1.1 writes it.
pub fn response(list: &FieldList, text: &mut Vec<u8>, limits: &HeadLimits) -> Result<ResponseHead, Fault> {
    let malformed = |detail| Fault::origin(FaultKind::Http2, detail);
    if list.is_too_long() {
        return Err(Fault::origin(FaultKind::HeadTooLong, "the fields are longer than head_bytes_max"));
    }
    text.clear();
    let mut lines = list.iter();
    let status = match lines.next() {
        Some((b":status", status)) if status.len() == 3 && status.iter().all(u8::is_ascii_digit) => status,
        Some((b":status", _)) => return Err(malformed("a :status that is no number of three digits")),
        _ => return Err(malformed("a response that does not begin with :status")),
    };
    if status == b"101" {
        return Err(malformed("101, which HTTP/2 does not have"));
    }
    text.extend_from_slice(b"HTTP/1.1 ");
    text.extend_from_slice(status);
    text.extend_from_slice(b" \r\n");
    for (name, value) in lines {
        check_value(value).map_err(malformed)?;
        // A pseudo-field is no token, for its colon.
        check_field(name, value).map_err(malformed)?;
        write_line(text, name, value);
    }
    text.extend_from_slice(b"\r\n");
    match parse(text, limits)? {
        Parsed::Complete { head, len } if len == text.len() => {
            Ok(ResponseHead { reason: Reason::usual(head.status), ..head })
        }
        _ => Err(malformed("a head that ends elsewhere than it says")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_wire::h2::hpack::Decoder;

    type Line<'a> = (&'a [u8], &'a [u8]);

    fn list(lines: &[Line<'_>]) -> FieldList {
        let mut block = Vec::new();
        for (name, value) in lines {
            // Names as they are: `write_field` writes small letters alone.
            block.extend([0, name.len() as u8]);
            block.extend_from_slice(name);
            block.push(value.len() as u8);
            block.extend_from_slice(value);
        }
        let mut list = FieldList::default();
        Decoder::new().decode(&block, 1 << 16, &mut list).unwrap();
        list
    }

    fn read(lines: &[Line<'_>]) -> Result<ResponseHead, Fault> {
        response(&list(lines), &mut Vec::new(), &HeadLimits::default())
    }

    #[test]
    fn a_list_is_a_head() {
        let head = read(&[
            (b":status", b"404"),
            (b"set-cookie", b"a=1"),
            (b"set-cookie", b"b=2"),
            (b"x-odd", b"\xff"),
            (b"content-length", b"3"),
        ]);
        let head = head.unwrap();
        assert_eq!((head.status, &*head.reason, head.fields.count("Set-Cookie")), (404, "Not Found", 2));
        assert_eq!(head.fields.get("X-Odd"), Some(&b"\xff"[..]));
    }

    #[test]
    fn a_list_that_would_mean_something_else_is_refused() {
        let status: Line<'_> = (b":status", b"200");
        let table: [&[Line<'_>]; 19] = [
            &[],
            &[(b"content-type", b"text/html")],
            &[(b"content-type", b"text/html"), status],
            &[status, status],
            &[(b":status", b"20")],
            &[(b":status", b"2000")],
            &[(b":status", b"2x0")],
            &[(b":status", b"101")],
            &[(b":status", b"099")],
            &[status, (b":path", b"/")],
            &[status, (b"X-Upper", b"a")],
            &[status, (b"x y", b"a")],
            &[status, (b"", b"a")],
            &[status, (b"x", b"a\r\nset-cookie: evil=1")],
            &[status, (b"x", b"a\nb")],
            &[status, (b"x", b"a\0b")],
            &[status, (b"x", b" a")],
            &[status, (b"transfer-encoding", b"chunked")],
            &[status, (b"connection", b"close")],
        ];
        for lines in table {
            assert!(read(lines).is_err(), "{lines:?}");
        }
    }

    #[test]
    fn a_request_has_no_lines_about_a_connection() {
        let mut fields = Fields::new();
        for (name, value) in [
            ("Host", "www.example.org"),
            ("Connection", "close, x-hop"),
            ("TE", "gzip"),
            ("Te", "trailers"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "h2c"),
            ("Cookie", "a=1"),
            ("X-Upper", "Value"),
        ] {
            fields.push(name, value);
        }
        let parts = RequestParts {
            method: &Method::Get,
            scheme: Scheme::Https,
            authority: "10.0.0.1".to_owned(),
            target: "/a b\u{e9}?c",
            fields: &fields,
        };
        let mut block = Vec::new();
        parts.write(&mut block);
        let mut list = FieldList::default();
        Decoder::new().decode(&block, 1 << 16, &mut list).unwrap();
        let wanted: [Line<'_>; 7] = [
            (b":method", b"GET"),
            (b":scheme", b"https"),
            (b":authority", b"www.example.org"),
            (b":path", b"/a%20b%C3%A9?c"),
            (b"te", b"trailers"),
            (b"cookie", b"a=1"),
            (b"x-upper", b"Value"),
        ];
        assert!(list.iter().eq(wanted), "{list:?}");
    }
}
