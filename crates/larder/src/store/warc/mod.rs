//! Archives of stored responses in WARC 1.1 (ISO 28500): one `response` record each, with the whole HTTP message, as
//! other tools read it. Before one that varies stands a `request` record with the fields of the request that `Vary` names
//! and nothing else of it. The field `Larder-Site` says for which site's origin a response was stored; a response
//! without the field is the forward proxy's.

mod import;
mod records;

use super::{Object, site_and_url};
use import::Import;
use larder_cache::policy;
use larder_cache::store::Store;
use larder_cache::store::rules::Verdict;
use larder_wire::credential::is_credential;
use larder_wire::date::timestamp;
use larder_wire::{Url, encode};
use records::Records;
use std::io::{self, BufRead, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The origin of the site that a response is stored for, in the head of a record.
const SITE_FIELD: &str = "Larder-Site";

/// The counts of an export or an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Responses that were taken over.
    pub done: u64,
    /// Those that were left out: not whole, stale by a purge, not cachable, not understood.
    pub left_out: u64,
    /// Those that vary by fields of a request that the archive does not hold.
    pub variant_unknown: u64,
    /// Those that were made for one client: a field that says who asks was sent, or decides.
    pub private: u64,
    /// Those of a site that is not understood.
    pub site_unknown: u64,
}

impl Counts {
    /// The responses that were left out, with the reason, where there were any: sentences for people.
    pub fn reasons(&self) -> Vec<String> {
        let reasons = [
            (self.left_out, "not whole, not valid any more or none that may be stored"),
            (self.variant_unknown, "by `Vary` for requests that the archive does not hold"),
            (self.private, "for one client: its request had, or `Vary` names, a field with credentials"),
            (self.site_unknown, "of a site whose origin is no URL"),
        ];
        let counted = reasons.into_iter().filter(|(count, _)| *count > 0);
        counted.map(|(count, why)| format!("left out {count}: {why}")).collect()
    }
}

/// Writes every whole response.
pub fn export(store: &Arc<Store>, out: &mut dyn Write) -> io::Result<Counts> {
    let mut counts = Counts::default();
    let mut result = Ok(());
    store.for_each_head(|head| {
        let object = Object::of(head).filter(|_| head.verdict == Verdict::Valid);
        if object.as_ref().is_some_and(Object::is_private) {
            counts.private += 1;
            return ControlFlow::Continue(());
        }
        let written = object.map_or(Ok(false), |object| export_one(store, &object, out));
        match written {
            Ok(true) => counts.done += 1,
            Ok(false) => counts.left_out += 1,
            Err(error) => {
                result = Err(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    });
    result.map(|()| counts)
}

impl Object {
    /// Which client asks decides which response it gets.
    fn is_private(&self) -> bool {
        let terms = self.stored.terms.as_ref();
        terms.is_some_and(|terms| terms.vary.names().any(is_credential))
    }
}

fn export_one(store: &Arc<Store>, object: &Object, out: &mut dyn Write) -> io::Result<bool> {
    let (site, text) = site_and_url(&object.head.key);
    let Some(url) = Url::parse(&text).filter(|url| is_key_of(url, &text)) else { return Ok(false) };
    // The body is read once for its length, which a record states before its bytes.
    let mut length = 0;
    let whole = object.body(store, |piece| {
        length += piece.len() as u64;
        Ok(())
    })?;
    if !whole {
        return Ok(false);
    }
    let (id, received) = (object.head.id.0, object.stored.received);
    let name = uuid(id, received.0);
    let site = if site.is_empty() { site } else { format!("{SITE_FIELD}: {site}\r\n") };
    let common = format!("WARC-Date: {}\r\nWARC-Target-URI: {text}\r\n{site}", timestamp(received));
    if let Some(request) = request_of(&url, object) {
        write!(
            out,
            "WARC/1.1\r\nWARC-Type: request\r\nWARC-Record-ID: <urn:uuid:{}>\r\nWARC-Concurrent-To: <urn:uuid:{name}>\r\n{common}Content-Type: application/http;msgtype=request\r\nContent-Length: {}\r\n\r\n",
            uuid(id, !received.0),
            request.len()
        )?;
        out.write_all(&request)?;
        out.write_all(b"\r\n\r\n")?;
    }
    let mut head = object.stored.head.clone();
    head.fields.set("Content-Length", length.to_string());
    let mut message = Vec::new();
    encode::response_head(&mut message, &head);
    write!(
        out,
        "WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{name}>\r\n{common}Content-Type: application/http;msgtype=response\r\nContent-Length: {}\r\n\r\n",
        message.len() as u64 + length
    )?;
    out.write_all(&message)?;
    object.body(store, |piece| out.write_all(piece))?;
    out.write_all(b"\r\n\r\n")?;
    Ok(true)
}

/// An import finds the same key again.
fn is_key_of(url: &Url, text: &str) -> bool {
    let mut key = Vec::new();
    url.key_text(&mut key);
    key == text.as_bytes()
}

/// The request that a response with `Vary` answers, as far as that is known: the fields that `Vary` names.
fn request_of(url: &Url, object: &Object) -> Option<Vec<u8>> {
    let vary = object.stored.terms.as_ref().map(|terms| &terms.vary).filter(|vary| !vary.is_empty())?;
    let mut request = format!("GET {} HTTP/1.1\r\n", url.path).into_bytes();
    if !vary.names().any(|name| name == "host") {
        request.extend_from_slice(format!("Host: {}\r\n", url.host.as_str()).as_bytes());
    }
    for line in vary.as_bytes().split(|&byte| byte == b'\n').filter(|line| line.contains(&b':')) {
        let end = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        // `accept-encoding/` and an offer: the value is the coding that was chosen.
        let name = line[..end].split(|&byte| byte == b'/').next().unwrap_or_default();
        request.extend_from_slice(name);
        request.extend_from_slice(&line[end..]);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    Some(request)
}

/// A name that is the same for the same stored response (version 8: of one's own making, RFC 9562).
fn uuid(id: u64, received: u64) -> String {
    let low = received.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (a, b, c) = (id >> 28 & 0xffff_ffff, id >> 12 & 0xffff, id & 0xfff);
    format!("{a:08x}-{b:04x}-8{c:03x}-{:04x}-{:012x}", 0x8000 | low >> 50, low & 0xffff_ffff_ffff)
}

/// Reads `response` records and stores those that may be stored, as if they had just been fetched by a GET with the
/// fields that `Vary` names, from the `request` record; their own `Date` says how old they are.
pub fn import(store: &Arc<Store>, settings: &policy::Settings, from: &mut dyn BufRead) -> io::Result<Counts> {
    let mut import = Import::new(store, settings);
    import.run(&mut Records::of(from))?;
    store.sync().wait();
    Ok(import.counts)
}

/// A response that varies by a credential is in no archive.
fn names_credentials(vary: &[&[u8]]) -> bool {
    vary.iter().any(|name| std::str::from_utf8(name).is_ok_and(is_credential))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_cache::head::StoredHead;
    use larder_cache::store::Settings;
    use larder_wire::{Fields, Method, RequestHead, Target, Version};

    fn store() -> (tempfile::TempDir, Arc<Store>) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&[folder.path().to_path_buf()], &Settings::small()).unwrap();
        (folder, store)
    }

    fn taken(store: &Arc<Store>, archive: &str) -> Counts {
        import(store, &policy::Settings::default(), &mut archive.as_bytes()).unwrap()
    }

    fn record(kind: &str, more: &str, content: &str) -> String {
        let length = content.len();
        format!("WARC/1.1\r\nWARC-Type: {kind}\r\n{more}Content-Length: {length}\r\n\r\n{content}\r\n\r\n")
    }

    /// A response with an id, and whose it is.
    fn response(id: u32, more: &str, fields: &str) -> String {
        let more = format!("WARC-Record-ID: <r{id}>\r\nWARC-Target-URI: http://a.example/{id}\r\n{more}");
        record("response", &more, &format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n{fields}\r\nbody"))
    }

    fn request(id: u32, fields: &str) -> String {
        record(
            "request",
            &format!("WARC-Concurrent-To: <r{id}>\r\n"),
            &format!("GET / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"),
        )
    }

    fn keys(store: &Arc<Store>) -> Vec<String> {
        let mut keys = Vec::new();
        store.for_each_head(|head| {
            keys.push(String::from_utf8(head.key.to_vec()).unwrap());
            ControlFlow::Continue(())
        });
        keys.sort();
        keys
    }

    /// Whether the response under a key answers a request with these fields.
    fn answers(store: &Arc<Store>, key: &str, fields: &[(&str, &str)]) -> bool {
        let mut asked = Fields::new();
        fields.iter().for_each(|(name, value)| asked.push(name, value));
        let url = Url::parse("http://a.example/").unwrap();
        let request = RequestHead::new(Method::Get, Target::Absolute(url), Version::Http11, asked);
        let heads = store.heads(key.as_bytes()).wait();
        let stored = StoredHead::decode(&heads.first().unwrap().meta).unwrap();
        stored.terms.unwrap().vary.matches(&request)
    }

    /// Exports a store and imports the archive into another.
    fn moved(store: &Arc<Store>) -> (tempfile::TempDir, Arc<Store>, String) {
        let mut archive = Vec::new();
        export(store, &mut archive).unwrap();
        let archive = String::from_utf8(archive).unwrap();
        let (folder, other) = self::store();
        taken(&other, &archive);
        (folder, other, archive)
    }

    #[test]
    fn a_variant_is_that_of_its_request_in_whatever_order() {
        let (_folder, first) = store();
        let vary = "Vary: Accept-Encoding, accept-language\r\n";
        let gzip = "Accept-Encoding: gzip;q=1.0, br\r\nX-Other: 1\r\n";
        let archive = [request(1, gzip), response(1, "", vary), response(2, "", vary), request(2, gzip)].concat();
        assert_eq!(taken(&first, &archive).done, 2);
        let (_folder, second, archive) = moved(&first);
        assert!(!archive.contains("X-Other"), "{archive}");
        for store in [&first, &second] {
            for key in ["http://a.example/1", "http://a.example/2"] {
                assert!(answers(store, key, &[("Accept-Encoding", "br, gzip")]), "{key}");
                assert!(!answers(store, key, &[]), "{key}");
                assert!(!answers(store, key, &[("Accept-Encoding", "br, gzip"), ("Accept-Language", "de")]), "{key}");
            }
        }
    }

    #[test]
    fn a_variant_of_an_unknown_request_is_left_out_and_so_is_what_is_for_one_client() {
        let (_folder, store) = store();
        let vary = "Vary: Accept-Encoding\r\n";
        let other = record("metadata", "", "x");
        let archive = [response(1, "", vary), other, request(1, ""), response(2, "", vary)].concat();
        // The request of the first comes too late.
        assert_eq!(taken(&store, &archive), Counts { variant_unknown: 2, ..Counts::default() });
        for (fields, asked) in [
            ("", "Authorization: Bearer x\r\n"),
            ("", "Cookie: a=b\r\n"),
            ("Vary: Cookie\r\n", "Accept: text/html\r\n"),
            ("Vary: X-Api-Key\r\n", ""),
        ] {
            for archive in [request(3, asked) + &response(3, "", fields), response(3, "", fields) + &request(3, asked)]
            {
                assert_eq!(taken(&store, &archive), Counts { private: 1, ..Counts::default() }, "{fields}{asked}");
            }
        }
        let broken = record("request", "WARC-Concurrent-To: <r4>\r\n", "GET / HTTP/1.1\r\nAuthoriz");
        assert_eq!(taken(&store, &(response(4, "", "") + &broken)), Counts { left_out: 1, ..Counts::default() });
        assert!(keys(&store).is_empty());
    }

    #[test]
    fn what_a_site_stored_stays_that_site_s() {
        let (_folder, first) = store();
        let of_site = |site: &str| response(1, &format!("Larder-Site: {site}\r\n"), "");
        let archive = [of_site("http://10.0.0.5:9000/"), response(1, "", "")].concat();
        assert_eq!(taken(&first, &archive).done, 2);
        for wrong in ["nonsense", "http://10.0.0.5:9000/ http://b.example/", "HTTP://10.0.0.5:9000/"] {
            assert_eq!(taken(&first, &of_site(wrong)), Counts { site_unknown: 1, ..Counts::default() }, "{wrong}");
        }
        let expected = ["http://10.0.0.5:9000/ http://a.example/1", "http://a.example/1"];
        let (_folder, second, _) = moved(&first);
        assert_eq!(
            (keys(&first), keys(&second)),
            (expected.map(str::to_owned).into(), expected.map(str::to_owned).into())
        );
    }

    #[test]
    fn a_long_body_goes_through_in_pieces() {
        let (_folder, first) = store();
        let body = "0123456789abcde\n".repeat(1 << 20);
        let message = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nVary: Accept\r\n\r\n{body}");
        let long = record("response", "WARC-Record-ID: <r1>\r\nWARC-Target-URI: http://a.example/1\r\n", &message);
        assert_eq!(taken(&first, &(long.clone() + &request(1, ""))).variant_unknown, 1, "its request comes too late");
        assert_eq!(taken(&first, &(request(1, "Accept: text/css\r\n") + &long)).done, 1);
        let (_folder, second, archive) = moved(&first);
        assert!(archive.contains(&body));
        assert!(answers(&second, "http://a.example/1", &[("Accept", "text/css")]));
    }

    #[test]
    fn no_two_stored_responses_have_one_name() {
        let names: std::collections::HashSet<String> = (0..0x2_0000).map(|id| uuid(id, 1_800_000_000)).collect();
        assert_eq!(names.len(), 0x2_0000);
    }

    #[test]
    fn what_was_cut_off_is_not_stored_as_whole() {
        let (_folder, store) = store();
        for (more, length, done) in [
            ("", "Content-Length: 4\r\n", 1),
            ("", "", 1),
            ("", "Content-Length: 5\r\n", 0),
            ("", "Content-Length: 3\r\n", 0),
            ("", "Content-Length: 4\r\nContent-Length: 5\r\n", 0),
            ("WARC-Truncated: length\r\n", "", 0),
        ] {
            let message = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n{length}\r\nbody");
            let archive = format!(
                "WARC/1.1\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.example/x\r\n{more}Content-Length: {}\r\n\r\n{message}\r\n\r\n",
                message.len()
            );
            let counts = import(&store, &policy::Settings::default(), &mut archive.as_bytes()).unwrap();
            assert_eq!(counts, Counts { done, left_out: 1 - done, ..Counts::default() }, "{more}{length}");
        }
    }
}
