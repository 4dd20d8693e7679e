//! WebSocket on a stream (RFC 8441): the handshake of HTTP/1.1 (RFC 6455) that the origin expects is made here, and its answer checked.

use crate::base64;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use larder_wire::ResponseHead;

/// The bytes of a key before they are written as text (RFC 6455 section 4.1).
const KEY_BYTES: usize = 16;
/// The value that the origin joins to the key (RFC 6455 section 1.3).
const JOINED: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A new `Sec-WebSocket-Key`; `None` where the system has no random bytes.
pub fn new_key() -> Option<String> {
    let mut bytes = [0; KEY_BYTES];
    aws_lc_rs::rand::fill(&mut bytes).ok().map(|()| base64::encode(&bytes))
}

/// Whether the origin has answered this key.
pub fn accepts(head: &ResponseHead, key: &str) -> bool {
    let expected = base64::encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{JOINED}").as_bytes()).as_ref());
    head.fields.text("Sec-WebSocket-Accept") == Some(&*expected)
}

/// Makes the 200 of HTTP/2 of a 101 (RFC 8441 section 5).
pub fn to_http2(head: &mut ResponseHead) {
    head.status = 200;
    for name in ["Sec-WebSocket-Accept", "Upgrade", "Connection"] {
        head.fields.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_wire::head::Reason;
    use larder_wire::{Fields, Version};

    /// The example of RFC 6455 section 1.3.
    #[test]
    fn an_answer_proves_that_the_key_was_read() {
        let mut fields = Fields::default();
        fields.push("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let head = ResponseHead { status: 101, reason: Reason::usual(101), version: Version::Http11, fields };
        assert!(accepts(&head, "dGhlIHNhbXBsZSBub25jZQ=="));
        assert!(!accepts(&head, "dGhlIHNhbXBsZSBub25jZR=="));
        assert_ne!(new_key(), new_key());
    }
}
