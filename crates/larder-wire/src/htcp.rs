//! HTCP (RFC 2756): as ICP a question by datagram, but with the head of the request, so that a neighbour can look at its variants,
//! and with an order to forget (CLR).
//!
//! ```text
//! HEADER  length (2)  major (1)  minor (1)
//! DATA    length (2)  opcode, response (4 bits each)  reserved (6 bits), F1, RR  transaction (4)  op-data
//! AUTH    length (2)  …
//! ```
//!
//! Minor version 1 is written, as Squid does for messages whose opcode stands in the upper half of its octet, where RFC 2756 has
//! it. Old Squids had it in the lower half, and called that version 0.0; such messages are not read. Signatures (AUTH) are neither
//! made nor checked: neighbours are known by their addresses.

/// The port that caches listen on for HTCP.
pub const DEFAULT_PORT: u16 = 4827;
/// Longer datagrams are neither written nor read.
pub const DATAGRAM_BYTES_MAX: usize = 16 * 1024;

const MINOR: u8 = 1;
const HEADER_LEN: usize = 4;
const DATA_HEAD_LEN: usize = 8;
/// The AUTH section of a message without a signature: its own length.
const NO_AUTH: [u8; 2] = [0, 2];

const TST: u8 = 1;
const CLR: u8 = 4;

/// A request or URL as HTCP names it (section 3.2 of RFC 2756, SPECIFIER).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Specifier<'a> {
    /// The method.
    pub method: &'a str,
    /// The absolute URL.
    pub url: &'a str,
    /// The version, as `1.1`.
    pub version: &'a str,
    /// The fields of the request, each line with its CR LF.
    pub fields: &'a [u8],
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// The question whether an answer to this request is stored.
    Test(Specifier<'a>),
    /// An answer is stored: the fields of the response, of its content, and about caches.
    Found {
        /// Fields of the response, with their CR LF.
        response: &'a [u8],
        /// Fields about the content.
        entity: &'a [u8],
        /// `Cache-…` fields about the neighbour.
        cache: &'a [u8],
    },
    /// No answer is stored.
    NotFound,
    /// The order to forget what is stored for this request. Its reason is read over, and written as 0 (none is given).
    Clear(Specifier<'a>),
    /// The end of a [`Message::Clear`]: whether something was stored.
    Cleared(bool),
}

/// A message with its transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The number of the transaction, which the answer repeats.
    pub transaction: u32,
    /// Whether a request wants an answer.
    pub wants_answer: bool,
    /// The message.
    pub message: Message<'a>,
}

impl Envelope<'_> {
    /// Appends the datagram. `false`, and nothing is appended, where it would be too long.
    #[must_use]
    pub fn write_to(&self, out: &mut Vec<u8>) -> bool {
        let (mut data, mut fits) = (Vec::new(), true);
        let mut strings = |data: &mut Vec<u8>, all: &[&[u8]]| {
            for text in all {
                let Ok(len) = u16::try_from(text.len()) else {
                    fits = false;
                    return;
                };
                data.extend_from_slice(&len.to_be_bytes());
                data.extend_from_slice(text);
            }
        };
        let (opcode, response, is_answer) = match &self.message {
            Message::Test(it) => {
                strings(&mut data, &it.strings());
                (TST, 0, false)
            }
            Message::Found { response, entity, cache } => {
                strings(&mut data, &[response, entity, cache]);
                (TST, 0, true)
            }
            Message::NotFound => {
                strings(&mut data, &[b""]);
                (TST, 1, true)
            }
            Message::Clear(it) => {
                data.extend_from_slice(&[0, 0]);
                strings(&mut data, &it.strings());
                (CLR, 0, false)
            }
            Message::Cleared(was_stored) => (CLR, u8::from(!was_stored), true),
        };
        let data_len = DATA_HEAD_LEN + data.len();
        let len = HEADER_LEN + data_len + NO_AUTH.len();
        let (Ok(len), Ok(data_len)) = (u16::try_from(len), u16::try_from(data_len)) else { return false };
        if !fits || usize::from(len) > DATAGRAM_BYTES_MAX {
            return false;
        }
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(&[0, MINOR]);
        out.extend_from_slice(&data_len.to_be_bytes());
        let flag = u8::from(!is_answer && self.wants_answer) << 1;
        out.extend_from_slice(&[opcode << 4 | response, flag | u8::from(is_answer)]);
        out.extend_from_slice(&self.transaction.to_be_bytes());
        out.extend_from_slice(&data);
        out.extend_from_slice(&NO_AUTH);
        true
    }
}

impl<'a> Specifier<'a> {
    fn strings(&self) -> [&'a [u8]; 4] {
        [self.method.as_bytes(), self.url.as_bytes(), self.version.as_bytes(), self.fields]
    }

    fn read(data: &mut &'a [u8]) -> Option<Specifier<'a>> {
        let mut text =
            || std::str::from_utf8(string(data)?).ok().filter(|text| text.bytes().all(|it| it.is_ascii_graphic()));
        let (method, url, version) = (text()?, text()?, text()?);
        let fields = string(data)?;
        (!url.is_empty()).then_some(Specifier { method, url, version, fields })
    }
}

/// Reads a datagram; `None` where it is no message that is spoken here. Nothing is answered to such a one.
pub fn envelope(datagram: &[u8]) -> Option<Envelope<'_>> {
    let (header, rest) = datagram.split_at_checked(HEADER_LEN)?;
    let &[a, b, 0, MINOR] = header else { return None };
    if usize::from(u16::from_be_bytes([a, b])) != datagram.len() || datagram.len() > DATAGRAM_BYTES_MAX {
        return None;
    }
    let data_len = usize::from(u16::from_be_bytes(*rest.first_chunk()?));
    let (data, auth) = rest.split_at_checked(data_len)?;
    let auth_len = usize::from(u16::from_be_bytes(*auth.first_chunk()?));
    if auth_len != auth.len() {
        return None;
    }
    let (&[_, _, kind, flags, a, b, c, d], mut data) = data.split_first_chunk::<DATA_HEAD_LEN>()?;
    let is_answer = flags & 1 == 1;
    let message = match (kind >> 4, kind & 15, is_answer) {
        (TST, _, false) => Message::Test(Specifier::read(&mut data)?),
        (TST, 0, true) => {
            let (response, entity, cache) = (string(&mut data)?, string(&mut data)?, string(&mut data)?);
            Message::Found { response, entity, cache }
        }
        (TST, 1, true) => Message::NotFound,
        (CLR, _, false) => {
            data = data.get(2..)?;
            Message::Clear(Specifier::read(&mut data)?)
        }
        (CLR, response @ 0..=1, true) => Message::Cleared(response == 0),
        _ => return None,
    };
    let transaction = u32::from_be_bytes([a, b, c, d]);
    Some(Envelope { transaction, wants_answer: !is_answer && flags & 2 != 0, message })
}

/// Takes a text with its length before it (COUNTSTR) off the front.
fn string<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = data.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
    *data = rest;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [Message<'static>; 6] {
        let specifier = Specifier {
            method: "GET",
            url: "http://www.example/a?b",
            version: "1.1",
            fields: b"Host: www.example\r\nAccept: */*\r\n",
        };
        [
            Message::Test(specifier.clone()),
            Message::Found { response: b"Age: 3\r\n", entity: b"Content-Type: text/plain\r\n", cache: b"" },
            Message::NotFound,
            Message::Clear(specifier),
            Message::Cleared(true),
            Message::Cleared(false),
        ]
    }

    #[test]
    fn messages_there_and_back() {
        for message in all() {
            let is_request = matches!(message, Message::Test(_) | Message::Clear(_));
            let sent = Envelope { transaction: 0x0102_0304, wants_answer: is_request, message };
            let mut datagram = Vec::new();
            assert!(sent.write_to(&mut datagram));
            assert_eq!(envelope(&datagram), Some(sent.clone()));
            for len in 0..datagram.len() {
                assert_eq!(envelope(&datagram[..len]), None, "{sent:?} {len}");
            }
        }
    }

    #[test]
    fn the_bytes_of_a_test() {
        let specifier = Specifier { method: "GET", url: "http://a/", version: "1.1", fields: b"" };
        let mut datagram = Vec::new();
        let sent = Envelope { transaction: 5, wants_answer: true, message: Message::Test(specifier) };
        assert!(sent.write_to(&mut datagram));
        let strings = b"\0\x03GET\0\x09http://a/\0\x031.1\0\0";
        let wanted = [&[0, 37, 0, 1, 0, 31, 0x10, 2, 0, 0, 0, 5][..], strings, &[0, 2]].concat();
        assert_eq!(datagram, wanted);
    }

    #[test]
    fn others_are_no_messages() {
        let mut good = Vec::new();
        let [message, ..] = all();
        assert!(Envelope { transaction: 5, wants_answer: true, message }.write_to(&mut good));
        // The header's length, its versions, the length of the data, the opcode, the length of a text, that of the signature.
        for (at, byte) in [(1, 0), (2, 1), (3, 0), (5, 255), (6, 0x70), (12, 255), (good.len() - 1, 3)] {
            let mut wrong = good.clone();
            wrong[at] = byte;
            assert_eq!(envelope(&wrong), None, "{at}");
        }
        let long = vec![b'x'; DATAGRAM_BYTES_MAX];
        let message = Message::Found { response: &long, entity: b"", cache: b"" };
        assert!(!Envelope { transaction: 5, wants_answer: false, message }.write_to(&mut Vec::new()));
    }
}
