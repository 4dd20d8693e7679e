//! Requests and answers that nobody sent.

use super::LIMITS;
use larder_wire::parse::{self, Parsed};
use larder_wire::{Host, RequestHead, ResponseHead, Url};
use std::fmt::Write;

/// The form of a request target.
#[derive(Clone, Copy)]
pub enum Form {
    /// As a proxy is asked.
    Absolute,
    /// As an origin is asked.
    Origin,
}

/// A request that nobody sent.
pub fn request(method: &str, url: &Url, form: Form, fields: &[String]) -> Result<RequestHead, String> {
    let target = match form {
        Form::Absolute => url.to_string(),
        Form::Origin => url.path.to_string(),
    };
    let mut text = format!("{method} {target} HTTP/1.1\r\n");
    let has_host = |field: &String| field.to_ascii_lowercase().starts_with("host:");
    if !fields.iter().any(has_host) {
        let _ = write!(text, "Host: {}\r\n", url.authority());
    }
    fields.iter().for_each(|field| {
        let _ = write!(text, "{field}\r\n");
    });
    parse_request(&(text + "\r\n"))
}

/// Like [`request`], for a tunnel.
pub fn connect(host: &Host, port: u16) -> Result<RequestHead, String> {
    parse_request(&format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"))
}

/// An answer that nobody gave: a 200, unless one of its fields is another status.
pub fn response(fields_and_status: &[String]) -> Result<ResponseHead, String> {
    let (fields, status): (Vec<&String>, Vec<&String>) =
        fields_and_status.iter().partition(|field| field.contains(':'));
    let mut text = format!("HTTP/1.1 {} \r\n", status.last().map_or("200", |status| status.trim()));
    fields.iter().for_each(|field| {
        let _ = write!(text, "{field}\r\n");
    });
    match parse::response((text + "\r\n").as_bytes(), &LIMITS) {
        Ok(Parsed::Complete { head, .. }) => Ok(head),
        Ok(Parsed::Partial) => Err("the answer is no proper HTTP: it is not whole".to_owned()),
        Err(fault) => Err(format!("the answer is no proper HTTP: {}", fault.detail)),
    }
}

fn parse_request(text: &str) -> Result<RequestHead, String> {
    match parse::request(text.as_bytes(), &LIMITS) {
        Ok(Parsed::Complete { head, .. }) => Ok(head),
        Ok(Parsed::Partial) => Err("the request is not whole".to_owned()),
        Err(fault) => Err(format!("the request is no proper HTTP: {}", fault.detail)),
    }
}
