//! Requests of a run that does not use the network (`larder run --offline`): what the store does not have is an error page at once, and
//! is remembered for later.

use crate::env::PeerFacts;
use crate::page::Page;
use crate::record::{LaterRequest, Record};
use crate::rules::Ask;
use larder_cache::policy;
use larder_wire::{Fields, Method, RequestHead, hop};

/// The word of the log for an answer that the store does not have.
const OFFLINE: &str = "offline";

/// The store does not have it. A request that may say who asks is not remembered: its fields would lie in a file. Its URL lies there
/// as it is.
pub fn not_stored(peer: &PeerFacts, request: &RequestHead, ask: &Ask, record: &mut Record) -> Page {
    let url = ask.url.to_string();
    remember(peer, request, ask);
    let what = format!("This run is offline, and the store does not have {url}.");
    if record.url.is_empty() {
        record.url = url;
    }
    Page::new(504, OFFLINE, what, "`larder fetch-later --run` fetches all that was missing, once there is a network.")
}

/// Notes a GET of a run that found nothing, to be sent later.
pub fn remember(peer: &PeerFacts, request: &RequestHead, ask: &Ask) {
    let says_who = ask.credential().is_some() || policy::may_say_who_asks(&request.fields);
    let is_remembered = request.method == Method::Get && !says_who;
    if let Some(run) = peer.listener.run.as_ref().filter(|_| is_remembered) {
        let part = request.fields.text("Range").map(str::to_owned);
        run.send_later(LaterRequest { url: ask.url.to_string(), fields: later_fields(&request.fields), part });
    }
}

/// A request that only its origin can answer.
pub fn not_a_download() -> Page {
    let what = "This run is offline, and only an origin can answer this request.";
    Page::new(504, OFFLINE, what, "Run the command without `--offline`.")
}

/// A tunnel that is not opened leads to its origin.
pub fn not_opened() -> Page {
    let what = "This run is offline, and this tunnel is not to be opened: nothing of it can be in the store.";
    Page::new(504, OFFLINE, what, "Run the command without `--offline`.").closing()
}

/// The fields by which the same response is chosen later.
fn later_fields(fields: &Fields) -> Vec<(String, String)> {
    let mut later = fields.clone();
    hop::strip(&mut later);
    let dropped = [
        "Host",
        "Cache-Control",
        "Pragma",
        "Range",
        "If-Range",
        "If-None-Match",
        "If-Modified-Since",
        "If-Match",
        "If-Unmodified-Since",
        "Content-Length",
    ];
    for name in dropped {
        later.remove(name);
    }
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    later.iter().filter_map(|(name, value)| Some((name.to_owned(), text(value)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_chooses_a_response_is_kept_for_later() {
        let mut fields = Fields::new();
        for (name, value) in [
            ("Host", "a.example"),
            ("Connection", "close, X-Hop"),
            ("X-Hop", "1"),
            ("Accept", "text/html"),
            ("Range", "bytes=1-2"),
            ("If-None-Match", "\"x\""),
            ("Cache-Control", "max-age=0"),
            ("User-Agent", "tool/1"),
        ] {
            fields.push(name, value);
        }
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(later_fields(&fields), [pair("Accept", "text/html"), pair("User-Agent", "tool/1")]);
    }
}
