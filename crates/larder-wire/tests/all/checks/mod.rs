//! Laws that hold for any bytes, one function per parser. The fuzz targets in `fuzz/` run them without end, the test
//! `seeds.rs` runs them over a few thousand mutated messages on each build.
//!
//! The recurring law is a differential one: the one-shot parse, the incremental parse and a parse of every
//! prefix must agree on the value, on its length and on the kind of the fault, however the bytes are cut.

pub mod caching;
pub mod h2;
pub mod h3;

use larder_wire::body::{Decoder, Event};
use larder_wire::framing::{self, Framing};
use larder_wire::parse::{self, HeadLimits, HeadScan, Parsed};
use larder_wire::target::resolve;
use larder_wire::{Fault, FaultKind, Fields, Method, RequestHead, ResponseHead, Scheme, Side, Url, encode, hop};

/// A check and the name of its fuzz target.
pub type Check = (&'static str, fn(&[u8]));

/// Every check of this file.
pub const ALL: [Check; 15] = [
    ("request", request),
    ("response", response),
    ("body", body),
    ("trailers", trailers),
    ("url", url),
    ("date", caching::date),
    ("directives", caching::directives),
    ("etag", caching::etag),
    ("range", caching::range),
    ("structured", caching::structured),
    ("frames", h2::frames),
    ("hpack", h2::hpack),
    ("h3_message", h3::message),
    ("h3_control", h3::control),
    ("qpack", h3::qpack),
];

/// Small enough for a fuzzer to reach, beside the defaults.
const SMALL: HeadLimits = HeadLimits { head_bytes_max: 160, target_bytes_max: 40, fields_max: 4 };

/// Any bytes as the beginning of a connection of a client.
pub fn request(bytes: &[u8]) {
    for limits in [HeadLimits::default(), SMALL] {
        let whole = parse::request(bytes, &limits);
        for piece in [1, 7] {
            let mut scan = HeadScan::new();
            agree(bytes, piece, &whole, |buf| scan.request(buf, &limits));
            agree(bytes, piece, &whole, |buf| parse::request(buf, &limits));
        }
        if let Ok(Parsed::Complete { head, len }) = &whole {
            assert!(*len <= limits.head_bytes_max);
            assert!(head.fields.len() <= limits.fields_max);
            reads_one_way(&bytes[..*len]);
            request_head(head, &bytes[*len..]);
            said_again(head, &bytes[..*len], &limits);
        }
    }
}

/// A head that was read helps to read the next one, and never changes what that one says: the same again, one with
/// another target, ones with a byte of each place changed, and a prefix of each length.
fn said_again(head: &RequestHead, bytes: &[u8], limits: &HeadLimits) {
    let target_at = bytes.iter().position(|&byte| byte == b' ').map_or(0, |at| at + 1);
    let longer = [&bytes[..target_at], b"/longer", &bytes[target_at..]].concat();
    let mut others = vec![bytes.to_vec(), longer, [bytes, b"GET / HTTP/1.1\r\n"].concat()];
    others.extend((0..bytes.len()).map(|at| bytes[..at].to_vec()));
    for (at, byte) in [(0, 1), (0, 0x20), (1, 0x0d), (2, 0x0a), (3, 0x80)] {
        let changed = |at: usize| {
            let mut other = bytes.to_vec();
            other[at] ^= byte;
            other
        };
        others.extend((at..bytes.len()).step_by(4).map(changed));
    }
    for other in others {
        let mut before = Some(Box::new(head.clone()));
        let read = HeadScan::new().request_after(&mut before, &other, limits).map(|parsed| match parsed {
            Parsed::Complete { head, len } => Parsed::Complete { head: *head, len },
            Parsed::Partial => Parsed::Partial,
        });
        assert_eq!(read, parse::request(&other, limits), "{:?} after {:?}", other.escape_ascii(), bytes.escape_ascii());
    }
}

/// Any bytes as the beginning of a connection to an origin. The last byte chooses what was asked.
pub fn response(bytes: &[u8]) {
    let asked = match bytes.last().map(|byte| byte % 3) {
        Some(0) => Method::Head,
        Some(1) => Method::Connect,
        _ => Method::Get,
    };
    for limits in [HeadLimits::default(), SMALL] {
        let whole = parse::response(bytes, &limits);
        for piece in [1, 7] {
            let mut scan = HeadScan::new();
            agree(bytes, piece, &whole, |buf| scan.response(buf, &limits));
            agree(bytes, piece, &whole, |buf| parse::response(buf, &limits));
        }
        if let Ok(Parsed::Complete { head, len }) = &whole {
            reads_one_way(&bytes[..*len]);
            response_head(head, &asked, &bytes[*len..]);
        }
    }
}

/// Any bytes as a body. The first byte chooses the framing, the second the size of the pieces.
pub fn body(bytes: &[u8]) {
    let [choice, piece, bytes @ ..] = bytes else { return };
    let framing = match choice % 4 {
        0 => Framing::Length(u64::from(choice / 4)),
        1 => Framing::UntilClose,
        _ => Framing::Chunked,
    };
    let _ = decode_both_ways(framing, bytes, usize::from(piece % 16) + 1);
}

/// Any bytes as the trailer section of a chunked body.
pub fn trailers(bytes: &[u8]) {
    let input = [b"1\r\nx\r\n0\r\n", bytes].concat();
    let read = decode_both_ways(Framing::Chunked, &input, 3);
    let Ok((_, Some(trailers), _)) = read else { return };
    assert!(trailers.iter().all(|(name, _)| larder_wire::body::may_be_trailer(name)));
    let mut again = Vec::new();
    encode::last_chunk(&mut again, &trailers);
    assert_eq!(decode_whole(Framing::Chunked, &again), Ok((Vec::new(), Some(trailers), again.len())));
}

/// Any text as an absolute URL and as a reference to a base: two lines, or one for both.
pub fn url(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (base, reference) = text.split_once('\n').unwrap_or((text, text));
    let base = match Url::parse(base) {
        Some(url) => url,
        None => Url::parse("http://a.example/b/c?d").expect("a URL"),
    };
    stays_itself(&base);
    if let Some(url) = resolve(&base, reference) {
        stays_itself(&url);
        let path = url.path.split('?').next().unwrap_or_default();
        let from_path = !reference.is_empty() && !reference.starts_with(['?', '#']);
        assert!(!from_path || path.split('/').all(|segment| segment != "." && segment != ".."), "{url}");
    }
}

/// Feeds longer and longer beginnings until something comes, and compares it with what the whole gave.
fn agree<T: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    piece: usize,
    whole: &Result<Parsed<T>, Fault>,
    mut parse: impl FnMut(&[u8]) -> Result<Parsed<T>, Fault>,
) {
    // Parsing every beginning of a long input anew would take quadratic time.
    let piece = piece.max(bytes.len() / 256);
    let mut given = 0;
    let got = loop {
        match parse(&bytes[..given]) {
            Ok(Parsed::Partial) if given < bytes.len() => given = (given + piece).min(bytes.len()),
            got => break got,
        }
    };
    assert_eq!(&got, whole, "in pieces of {piece}");
    if let Ok(Parsed::Complete { len, .. }) = got {
        assert!(len <= given && given < len + piece, "complete as soon as it can be");
    }
}

/// A second reader, as simple as can be, finds the same kind of head.
fn reads_one_way(head: &[u8]) {
    let text: String = head.iter().map(|&byte| char::from(byte)).collect();
    assert!(text.ends_with("\r\n\r\n"));
    let lines: Vec<&str> = text.trim_start_matches("\r\n").trim_end_matches("\r\n").split("\r\n").collect();
    for line in &lines {
        assert!(!line.contains(|byte: char| byte.is_ascii_control() && byte != '\t'), "{line:?}");
    }
    for line in &lines[1..] {
        let (name, _) = line.split_once(':').expect("a colon");
        assert!(larder_wire::fields::is_token(name.as_bytes()), "{name:?}");
    }
}

fn request_head(head: &RequestHead, rest: &[u8]) {
    let mut again = Vec::new();
    encode::request_head(&mut again, &head.method, &head.target.to_string(), head.version, &head.fields);
    let limits = HeadLimits { head_bytes_max: again.len(), target_bytes_max: again.len(), fields_max: 128 };
    match parse::request(&again, &limits) {
        Ok(Parsed::Complete { head: reread, len }) => assert_eq!((&reread, len), (head, again.len())),
        other => panic!("{other:?} from {}", String::from_utf8_lossy(&again)),
    }
    // The host that the parser noted is the one that the fields name.
    let unread = RequestHead::new(head.method.clone(), head.target.clone(), head.version, head.fields.clone());
    assert_eq!(head.url(Scheme::Https).ok(), unread.url(Scheme::Https).ok());
    if let Ok(url) = head.url(Scheme::Https) {
        one_key(&url);
        if &*url.path != "*" {
            stays_itself(&url);
        }
    }
    if let Ok(framing) = framing::of_request(head) {
        assert_ne!(framing, Framing::UntilClose);
        one_way_to_frame(&head.fields);
        let _ = decode_both_ways(framing, rest, 5);
    }
    stripped(&head.fields);
}

/// A key is the same whether it is made of the parts of a URL or of its text.
fn one_key(url: &Url) {
    let (mut written, mut of_parts, mut of_text) = (String::new(), Vec::new(), Vec::new());
    url.write_to(&mut written);
    url.key_text(&mut of_parts);
    url.key_text_of(&written, &mut of_text);
    assert_eq!(of_parts, of_text, "{written}");
}

fn response_head(head: &ResponseHead, asked: &Method, rest: &[u8]) {
    assert!((100..=999).contains(&head.status));
    let mut again = Vec::new();
    encode::response_head(&mut again, head);
    let limits = HeadLimits { head_bytes_max: again.len(), target_bytes_max: again.len(), fields_max: 128 };
    match parse::response(&again, &limits) {
        Ok(Parsed::Complete { head: reread, len }) => {
            assert_eq!((reread.status, &reread.reason, &reread.fields), (head.status, &head.reason, &head.fields));
            assert_eq!(len, again.len());
        }
        other => panic!("{other:?} from {}", String::from_utf8_lossy(&again)),
    }
    let reusable = framing::reusable(head, asked);
    match framing::of_response(head, asked) {
        Ok(framing) => {
            assert!(!(reusable && framing == Framing::UntilClose));
            if framing != Framing::None {
                one_way_to_frame(&head.fields);
            } else if !framing::begins_tunnel(head, asked) {
                // Without a body the transfer coding says nothing, and the length that is forwarded is one.
                let mut forwarded = head.fields.clone();
                hop::strip(&mut forwarded);
                one_way_to_frame(&forwarded);
            }
            let _ = decode_both_ways(framing, rest, 5);
        }
        Err(fault) => {
            assert_eq!(fault.status(), 502);
            assert!(!reusable);
        }
    }
    stripped(&head.fields);
}

/// Fields that got a framing have at most one line about it.
fn one_way_to_frame(fields: &Fields) {
    let about = |name| fields.get_all(name).collect::<Vec<_>>();
    let (lengths, codings) = (about("Content-Length"), about("Transfer-Encoding"));
    assert!(lengths.len() + codings.len() <= 1, "{fields:?}");
    assert!(codings.iter().all(|coding| coding.eq_ignore_ascii_case(b"chunked")), "{fields:?}");
    assert!(lengths.iter().all(|length| length.iter().all(u8::is_ascii_digit)), "{fields:?}");
}

fn stripped(fields: &Fields) {
    let mut once = fields.clone();
    hop::strip(&mut once);
    assert!(!once.contains("Connection") && !once.contains("Transfer-Encoding"));
    for kept in ["Host", "Content-Length", "Authorization", "Cache-Control"] {
        assert_eq!(once.count(kept), fields.count(kept));
    }
    let mut twice = once.clone();
    hop::strip(&mut twice);
    assert_eq!(once, twice);
}

/// A URL is read as itself from its own spelling, and so is its key.
fn stays_itself(url: &Url) {
    assert_eq!(Url::parse(&url.to_string()).as_ref(), Some(url));
    let key = key_text(url);
    let again = Url::parse(&key).expect("a key is a URL");
    assert_eq!(key_text(&again), key);
}

fn key_text(url: &Url) -> String {
    let mut key = Vec::new();
    url.key_text(&mut key);
    String::from_utf8(key).expect("ASCII")
}

/// Content, trailers if the end has come, and how much was consumed.
type Read = Result<(Vec<u8>, Option<Fields>, usize), FaultKind>;

fn decode_whole(framing: Framing, input: &[u8]) -> Read {
    decode_pieces(framing, input, usize::MAX)
}

/// Decodes in one piece and in small ones; both must give the same, and nothing behind the end is taken.
fn decode_both_ways(framing: Framing, input: &[u8], piece: usize) -> Read {
    let whole = decode_whole(framing, input);
    assert_eq!(decode_pieces(framing, input, piece), whole, "in pieces of {piece}");
    if let Ok((content, Some(trailers), consumed)) = &whole {
        let exact = decode_whole(framing, &input[..*consumed]);
        assert_eq!(exact, whole, "what follows the message plays no part");
        if *consumed > 0 {
            let short = decode_whole(framing, &input[..consumed - 1]);
            assert!(matches!(short, Ok((_, None, _))), "the end is not seen before it has come");
        }
        re_encoded(framing, content, trailers);
    }
    whole
}

/// Decoded content comes back when it was encoded as our own chunks.
fn re_encoded(framing: Framing, content: &[u8], trailers: &Fields) {
    let mut wire = Vec::new();
    for chunk in content.chunks(100) {
        encode::chunk_head(&mut wire, chunk.len());
        wire.extend_from_slice(chunk);
        wire.extend_from_slice(encode::CHUNK_END);
    }
    encode::last_chunk(&mut wire, trailers);
    if framing == Framing::Chunked {
        assert_eq!(decode_whole(framing, &wire), Ok((content.to_vec(), Some(trailers.clone()), wire.len())));
    }
}

fn decode_pieces(framing: Framing, input: &[u8], piece: usize) -> Read {
    let mut decoder = Decoder::new(framing, Side::Origin);
    let (mut content, mut consumed, mut given) = (Vec::new(), 0, 0);
    loop {
        let before = decoder.remaining();
        let buf = &input[consumed..given];
        let step = match decoder.decode(buf) {
            Ok(step) => step,
            Err(fault) => {
                assert_eq!(decoder.decode(b"0\r\n\r\n"), Err(fault.clone()), "a fault stays");
                return Err(fault.kind);
            }
        };
        assert!(step.consumed <= buf.len());
        consumed += step.consumed;
        match step.event {
            Event::Data(range) => {
                assert!(!range.is_empty() && range.end <= step.consumed);
                assert_eq!(decoder.remaining(), before.map(|left| left - range.len() as u64));
                content.extend_from_slice(&buf[range]);
            }
            Event::End(trailers) => {
                assert!(decoder.is_done() && decoder.finish().is_ok());
                return Ok((content, Some(trailers), consumed));
            }
            Event::NeedMore if given == input.len() => break,
            Event::NeedMore => given = given.saturating_add(piece).min(input.len()),
        }
    }
    assert_eq!(decoder.finish().is_ok(), framing == Framing::UntilClose);
    Ok((content, None, consumed))
}
