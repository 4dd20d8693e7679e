//! Heads of requests as field blocks, and field lists as heads of replies (RFC 9113 section 8.3). Both go by way of HTTP/1.1, so that
//! robots ask the same over each version, and one judge reads all replies.

use crate::wire::HEAD_LIMITS;
use larder_wire::ResponseHead;
use larder_wire::field_list::{check_field, check_value, write_line};
use larder_wire::fields::is_token;
use larder_wire::h2::hpack::{FieldList, write_field};
use larder_wire::parse::{Parsed, response};

/// Fields that only a connection of HTTP/1.1 has (RFC 9113 section 8.2.2).
const OF_CONNECTION: [&[u8]; 5] = [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];
/// Values that nobody on the way may keep in a table (RFC 7541 section 7.1.3).
const SECRET: [&str; 3] = ["Authorization", "Cookie", "Proxy-Authorization"];

/// Appends the field block of a request that is written down as one of HTTP/1.1; says where its body begins.
pub fn request(text: &[u8], is_secure: bool, block: &mut Vec<u8>) -> usize {
    let end = text.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(text.len());
    let head = String::from_utf8_lossy(&text[..end]);
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let fields: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(": ")).collect();
    let host = fields.iter().find(|(name, _)| *name == "Host").map_or("", |(_, value)| value);
    // The absolute form, which only proxies are sent: the authority is that of the field.
    let path = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    };
    write_field(block, b":method", method.as_bytes(), false);
    write_field(block, b":scheme", if is_secure { b"https" } else { b"http" }, false);
    write_field(block, b":authority", host.as_bytes(), false);
    write_field(block, b":path", path.as_bytes(), false);
    for (name, value) in fields.into_iter().filter(|(name, _)| !matches!(*name, "Host" | "Connection")) {
        write_field(block, name.as_bytes(), value.as_bytes(), SECRET.contains(&name));
    }
    text.len().min(end + 4)
}

/// The head of a reply, and the field in it that no message of HTTP/2 has, if there is one.
pub fn reply(list: &FieldList) -> Result<(ResponseHead, Option<String>), String> {
    if list.is_too_long() {
        return Err(format!("a field list of more than {} bytes", HEAD_LIMITS.head_bytes_max));
    }
    let mut lines = list.iter();
    let status = match lines.next() {
        Some((b":status", status)) if status.len() == 3 && status.iter().all(u8::is_ascii_digit) => status,
        _ => return Err("a reply that does not begin with a :status of three digits".to_owned()),
    };
    if status == b"101" {
        return Err("status 101, which HTTP/2 does not have".to_owned());
    }
    let mut text = [b"HTTP/1.1 ", status, b" \r\n"].concat();
    let of_connection = fields(lines, &mut text)?;
    text.extend_from_slice(b"\r\n");
    match response(&text, &HEAD_LIMITS).map_err(|fault| fault.to_string())? {
        Parsed::Complete { head, len } if len == text.len() => Ok((head, of_connection)),
        _ => Err("a head that ends elsewhere than it says".to_owned()),
    }
}

/// Whether a list may stand behind a body (RFC 9113 section 8.1).
pub fn trailers(list: &FieldList) -> Result<Option<String>, String> {
    fields(list.iter(), &mut Vec::new())
}

/// Writes fields down as HTTP/1.1 does, all but those of a connection, the first of which is named.
fn fields<'a>(lines: impl Iterator<Item = (&'a [u8], &'a [u8])>, text: &mut Vec<u8>) -> Result<Option<String>, String> {
    let mut of_connection = None;
    for (name, value) in lines {
        let shown = || format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        check_value(value).map_err(|reason| format!("{reason}: {:?}", shown()))?;
        if OF_CONNECTION.contains(&name) {
            of_connection.get_or_insert_with(shown);
            continue;
        }
        if !is_token(name) {
            return Err(format!("a name that is no token, or a pseudo-field in the wrong place: {:?}", shown()));
        }
        check_field(name, value).map_err(|reason| format!("{reason}: {:?}", shown()))?;
        write_line(text, name, value);
    }
    Ok(of_connection)
}
