//! The URLs that a change through an unsafe method makes void (RFC 9111 section 4.4).

use larder_wire::{Method, ResponseHead, Url, target};

/// The URLs whose stored responses are void after this response came: none when the method is safe or the response
/// is an error; else the one that was asked, and those that `Location` and `Content-Location` name, as far as they are
/// of the same origin, so that no site can empty another's place. An unknown method counts as unsafe.
pub fn invalidated(method: &Method, url: &Url, response: &ResponseHead) -> Vec<Url> {
    if method.is_safe() || !(200..400).contains(&response.status) {
        return Vec::new();
    }
    let mut urls = vec![url.clone()];
    for name in ["Location", "Content-Location"] {
        let named = response.fields.text(name).and_then(|reference| target::resolve(url, reference));
        if let Some(named) = named.filter(|named| is_same_origin(url, named) && !urls.contains(named)) {
            urls.push(named);
        }
    }
    urls
}

/// Scheme, host and port (RFC 9110 section 4.3.1).
fn is_same_origin(a: &Url, b: &Url) -> bool {
    (a.scheme, &a.host, a.port) == (b.scheme, &b.host, b.port)
}
