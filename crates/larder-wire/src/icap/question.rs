//! Questions to a service, as bytes.

use super::{Service, Vector};
use crate::{Fields, RequestHead, ResponseHead, encode};

/// A REQMOD or RESPMOD without its body.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The service.
    pub service: &'a Service,
    /// The request, and the target to write in it: an absolute URL, so that the service sees for which host it is.
    pub request: (&'a RequestHead, &'a str),
    /// The response, where that is to be looked at.
    pub response: Option<&'a ResponseHead>,
    /// Whether a body follows, in chunks.
    pub has_body: bool,
    /// How many bytes of the body come before the service has said that it wants more.
    pub preview: Option<Preview>,
    /// Whether the service may answer 204 though there was no preview: the client then has to keep the whole body.
    pub allow_204: bool,
    /// Further fields of the ICAP head, as `X-Client-IP`.
    pub fields: &'a Fields,
}

/// The length of a preview in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preview(pub u64);

/// The end of a preview that is not the whole body (RFC 3507 section 4.5); the service answers with 100 or its reply.
pub const END_OF_PREVIEW: &[u8] = b"0\r\n\r\n";
/// The end of a preview that is the whole body.
pub const PREVIEW_IS_WHOLE: &[u8] = b"0; ieof\r\n\r\n";

impl Question<'_> {
    /// The method.
    pub fn vector(&self) -> Vector {
        match self.response {
            None => Vector::Reqmod,
            Some(_) => Vector::Respmod,
        }
    }

    /// Appends the ICAP head and the heads of HTTP. Fields that are about one connection are for the caller to leave out
    /// (section 4.4.2).
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let mut heads = Vec::new();
        let (request, target) = self.request;
        encode::request_head(&mut heads, &request.method, target, request.version, &request.fields);
        let response_at = heads.len();
        if let Some(response) = self.response {
            encode::response_head(&mut heads, response);
        }
        begin(out, self.vector().as_str(), self.service);
        if self.allow_204 {
            out.extend_from_slice(b"Allow: 204\r\n");
        }
        if let (Some(Preview(bytes)), true) = (self.preview, self.has_body) {
            number(out, "Preview: ", bytes);
            out.extend_from_slice(b"\r\n");
        }
        self.fields.write_to(out);
        out.extend_from_slice(b"Encapsulated: req-hdr=0");
        if self.response.is_some() {
            number(out, ", res-hdr=", response_at as u64);
        }
        let body = match (self.has_body, self.vector()) {
            (false, _) => ", null-body=",
            (true, Vector::Reqmod) => ", req-body=",
            (true, Vector::Respmod) => ", res-body=",
        };
        number(out, body, heads.len() as u64);
        out.extend_from_slice(b"\r\n\r\n");
        out.extend_from_slice(&heads);
    }
}

/// Appends an OPTIONS (section 4.10).
pub fn options(out: &mut Vec<u8>, service: &Service, fields: &Fields) {
    begin(out, "OPTIONS", service);
    fields.write_to(out);
    out.extend_from_slice(b"Encapsulated: null-body=0\r\n\r\n");
}

fn begin(out: &mut Vec<u8>, method: &str, service: &Service) {
    out.extend_from_slice(format!("{method} {service} ICAP/1.0\r\nHost: {}\r\n", service.authority()).as_bytes());
}

fn number(out: &mut Vec<u8>, before: &str, value: u64) {
    out.extend_from_slice(before.as_bytes());
    encode::decimal(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{HeadLimits, Parsed, request, response};

    fn head<T>(parsed: Parsed<T>) -> T {
        match parsed {
            Parsed::Complete { head, .. } => head,
            Parsed::Partial => panic!("the head is not whole"),
        }
    }

    /// The examples of RFC 3507 section 4.8.3 and 4.9.3 have this form; the offsets follow from the heads.
    #[test]
    fn the_parts_begin_where_encapsulated_says() {
        let service = Service::parse("icap://av.example/look").unwrap();
        let limits = HeadLimits::default();
        let asked = b"GET / HTTP/1.1\r\nHost: www.example\r\nAccept: */*\r\n\r\n";
        let asked = head(request(asked, &limits).unwrap());
        let got = head(response(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", &limits).unwrap());
        let mut fields = Fields::new();
        fields.push("X-Client-IP", "192.0.2.7");
        let question = |response, has_body, preview| {
            let request = (&asked, "http://www.example/");
            let question =
                Question { service: &service, request, response, has_body, preview, allow_204: true, fields: &fields };
            let mut out = Vec::new();
            question.write_to(&mut out);
            String::from_utf8(out).unwrap()
        };
        let request_text = "GET http://www.example/ HTTP/1.1\r\nHost: www.example\r\nAccept: */*\r\n\r\n";
        let at = request_text.len();
        assert_eq!(
            question(None, false, Some(Preview(10))),
            format!(
                "REQMOD icap://av.example/look ICAP/1.0\r\nHost: av.example\r\nAllow: 204\r\nX-Client-IP: 192.0.2.7\r\n\
                 Encapsulated: req-hdr=0, null-body={at}\r\n\r\n{request_text}"
            )
        );
        assert!(question(None, true, None).contains(&format!("Encapsulated: req-hdr=0, req-body={at}\r\n")));
        let response_text = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n";
        let body_at = at + response_text.len();
        assert_eq!(
            question(Some(&got), true, Some(Preview(4096))),
            format!(
                "RESPMOD icap://av.example/look ICAP/1.0\r\nHost: av.example\r\nAllow: 204\r\nPreview: 4096\r\n\
                 X-Client-IP: 192.0.2.7\r\nEncapsulated: req-hdr=0, res-hdr={at}, res-body={body_at}\r\n\r\n\
                 {request_text}{response_text}"
            )
        );
        let mut out = Vec::new();
        options(&mut out, &service, &Fields::new());
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "OPTIONS icap://av.example/look ICAP/1.0\r\nHost: av.example\r\nEncapsulated: null-body=0\r\n\r\n"
        );
    }
}
