//! Decoded field lists to heads of requests (RFC 9113 section 8, RFC 9114 section 4). A list is written down as a head of HTTP/1.1 and read
//! by the strict parser, so that one judge decides what a request may look like, whatever carried it. The checks here come before that:
//! they are about all that HTTP/1.1 has not, and about bytes that would mean something else to one of its readers.

use larder_wire::field_list::{self, write_line};
use larder_wire::fields::is_token;
use larder_wire::h2::hpack::FieldList;
use larder_wire::{Fault, FaultKind};

/// How the target of a request is written for the parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetForm {
    /// The path alone, as to a server.
    Origin,
    /// The whole URL, as to a forward proxy.
    Absolute,
}

/// Why a field list is no request.
#[derive(Debug)]
pub enum HeadFault {
    /// The message is malformed: its stream is reset (RFC 9113 section 8.1.1).
    Malformed(&'static str),
    /// The request is refused by an error page, as one of HTTP/1.1 is.
    Refused(Fault),
}

use HeadFault::Malformed;

/// The pseudo-fields of a request, and what else is not written as it stands.
#[derive(Default)]
struct Parts<'a> {
    method: Option<&'a [u8]>,
    scheme: Option<&'a [u8]>,
    authority: Option<&'a [u8]>,
    path: Option<&'a [u8]>,
    host: Option<&'a [u8]>,
    protocol: Option<&'a [u8]>,
    cookie: Vec<u8>,
}

/// The protocol that an extended CONNECT asks for (RFC 8441 section 4); its head is written as that of an upgrade.
pub fn protocol(list: &FieldList) -> Option<&[u8]> {
    let mut pseudo = list.iter().take_while(|(name, _)| name.starts_with(b":"));
    pseudo.find(|(name, _)| *name == b":protocol").map(|(_, value)| value)
}

/// Writes the head that a field list makes, as HTTP/1.1 does, in place of this text; `form` decides by the authority how the target is
/// written. The parser has to find the end of the head at the end of the text.
pub fn write(
    list: &FieldList,
    ends_stream: bool,
    form: impl FnOnce(&[u8]) -> TargetForm,
    text: &mut Vec<u8>,
) -> Result<(), HeadFault> {
    if list.is_too_long() {
        return Err(HeadFault::Refused(Fault::client(
            FaultKind::HeadTooLong,
            "the fields are longer than head_bytes_max",
        )));
    }
    let parts = Parts::of(list)?;
    text.clear();
    parts.write_start(form, text)?;
    let mut has_length = false;
    for (name, value) in
        list.iter().filter(|(name, _)| !name.starts_with(b":") && !matches!(*name, b"cookie" | b"host"))
    {
        has_length |= name == b"content-length";
        write_line(text, name, value);
    }
    if !parts.cookie.is_empty() {
        write_line(text, b"cookie", &parts.cookie);
    }
    // A body whose length is not stated has the framing that HTTP/1.1 would give it.
    if !ends_stream && !has_length && parts.method != Some(b"CONNECT") {
        write_line(text, b"transfer-encoding", b"chunked");
    }
    text.extend_from_slice(b"\r\n");
    Ok(())
}

impl<'a> Parts<'a> {
    fn of(list: &'a FieldList) -> Result<Parts<'a>, HeadFault> {
        let mut parts = Parts::default();
        let mut is_behind_pseudo = false;
        for (name, value) in list.iter() {
            check_value(value)?;
            match name.strip_prefix(b":") {
                Some(_) if is_behind_pseudo => return Err(Malformed("a pseudo-field behind a field")),
                Some(pseudo) => parts.take_pseudo(pseudo, value)?,
                None => {
                    is_behind_pseudo = true;
                    check_field(name, value)?;
                    parts.take_field(name, value)?;
                }
            }
        }
        Ok(parts)
    }

    fn take_pseudo(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), HeadFault> {
        let slot = match name {
            b"method" => &mut self.method,
            b"scheme" => &mut self.scheme,
            b"authority" => &mut self.authority,
            b"path" => &mut self.path,
            b"protocol" => &mut self.protocol,
            _ => return Err(Malformed("a pseudo-field that no request has")),
        };
        match slot.replace(value) {
            Some(_) => Err(Malformed("a pseudo-field twice")),
            None => Ok(()),
        }
    }

    fn take_field(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), HeadFault> {
        match name {
            b"host" if self.host.is_some() => return Err(Malformed("two Host fields")),
            b"host" => self.host = Some(value),
            // Crumbs of cookies become one line (RFC 9113 section 8.2.3).
            b"cookie" => {
                if !self.cookie.is_empty() {
                    self.cookie.extend_from_slice(b"; ");
                }
                self.cookie.extend_from_slice(value);
            }
            _ => {}
        }
        Ok(())
    }

    /// Writes the request line and `Host`.
    fn write_start(&self, form: impl FnOnce(&[u8]) -> TargetForm, out: &mut Vec<u8>) -> Result<(), HeadFault> {
        let method =
            self.method.filter(|method| is_token(method)).ok_or(Malformed("no :method, or one that is no token"))?;
        if let (Some(authority), Some(host)) = (self.authority, self.host)
            && !authority.eq_ignore_ascii_case(host)
        {
            return Err(Malformed(":authority and host differ"));
        }
        let authority = self.authority.or(self.host).unwrap_or_default();
        // A byte that ends the authority of a URL would make another host or path of it.
        let ends_authority = |byte: &u8| matches!(byte, b'@' | b'/' | b'?' | b'#' | b'\\');
        if !authority.iter().all(u8::is_ascii_graphic) || authority.iter().any(ends_authority) {
            return Err(Malformed("an authority of another form than host:port"));
        }
        if let Some(protocol) = self.protocol
            && (method != b"CONNECT" || !is_token(protocol) || authority.is_empty())
        {
            return Err(Malformed("a :protocol without CONNECT or :authority, or one that is no token"));
        }
        out.extend_from_slice(if self.protocol.is_some() { b"GET" } else { method });
        out.push(b' ');
        if method == b"CONNECT" && self.protocol.is_none() {
            if self.scheme.is_some() || self.path.is_some() || self.authority.is_none_or(<[u8]>::is_empty) {
                return Err(Malformed("a CONNECT has :method and :authority alone"));
            }
            out.extend_from_slice(authority);
        } else {
            let scheme = self.scheme.filter(|scheme| matches!(*scheme, b"http" | b"https"));
            let scheme = scheme.ok_or(Malformed("no :scheme, or one that is neither http nor https"))?;
            let path = self.path.ok_or(Malformed("no :path"))?;
            let is_asterisk = path == b"*" && method == b"OPTIONS";
            let is_path = path.first() == Some(&b'/') && path.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
            if !is_asterisk && !is_path {
                return Err(Malformed("a :path that does not begin with /, or has blanks"));
            }
            if !is_asterisk && !authority.is_empty() && form(authority) == TargetForm::Absolute {
                out.extend_from_slice(scheme);
                out.extend_from_slice(b"://");
                out.extend_from_slice(authority);
            }
            out.extend_from_slice(path);
        }
        out.extend_from_slice(b" HTTP/1.1\r\n");
        if !authority.is_empty() {
            write_line(out, b"host", authority);
        }
        if let Some(protocol) = self.protocol {
            write_line(out, b"connection", b"upgrade");
            write_line(out, b"upgrade", protocol);
        }
        Ok(())
    }
}

/// A value that ends a line, or that a reader of HTTP/1.1 would shorten.
fn check_value(value: &[u8]) -> Result<(), HeadFault> {
    field_list::check_value(value).map_err(Malformed)
}

/// The name of a field, and fields that are about a connection.
fn check_field(name: &[u8], value: &[u8]) -> Result<(), HeadFault> {
    field_list::check_field(name, value).map_err(Malformed)
}

#[cfg(test)]
mod tests;
