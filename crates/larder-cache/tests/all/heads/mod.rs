//! Heads for tests, from their fields as text.

use larder_wire::parse::{self, HeadLimits, Parsed};
use larder_wire::{RequestHead, ResponseHead};

/// A GET of the object that the tests are about, with further field lines.
pub fn request(fields: &str) -> RequestHead {
    let text = format!("GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n");
    match parse::request(text.as_bytes(), &HeadLimits::default()) {
        Ok(Parsed::Complete { head, .. }) => head,
        other => panic!("{text:?}: {other:?}"),
    }
}

/// A 200 with these field lines.
pub fn response(fields: &str) -> ResponseHead {
    let mut head = ResponseHead::new(200);
    for line in fields.lines() {
        let (name, value) = line.split_once(": ").unwrap();
        head.fields.push(name, value);
    }
    head
}
