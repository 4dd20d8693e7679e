//! ICP version 2 (RFC 2186, used as RFC 2187 says): one datagram asks a neighbouring cache whether it has a URL, one answers.
//!
//! ```text
//!  0       1       2       4        8        12            16       20
//!  opcode  version length  number   options  option data   sender   payload
//! ```
//!
//! The payload of a query is the address of the client (always 0 here: nobody needs it) and the URL with a NUL; that of an
//! answer is the URL. ICP knows the URL alone: neither fields nor variants nor lifetimes; a hit is a promise that the answer to
//! a plain GET is likely there.

/// The port that caches listen on for ICP.
pub const DEFAULT_PORT: u16 = 3130;
/// No datagram is longer (RFC 2186: "length").
pub const DATAGRAM_BYTES_MAX: usize = 16 * 1024;

const VERSION: u8 = 2;
const HEAD_LEN: usize = 20;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// The question whether a URL is stored.
    Query,
    /// The URL is stored and fresh.
    Hit,
    /// The URL is not stored, or stale.
    Miss,
    /// The query was not understood.
    Err,
    /// The URL is not stored, and the neighbour does not want to be asked for it.
    MissNoFetch,
    /// The cache that asked may not have the URL.
    Denied,
}

impl Opcode {
    const ALL: [(Opcode, u8); 6] = [
        (Opcode::Query, 1),
        (Opcode::Hit, 2),
        (Opcode::Miss, 3),
        (Opcode::Err, 4),
        (Opcode::MissNoFetch, 21),
        (Opcode::Denied, 22),
    ];

    fn of(number: u8) -> Option<Opcode> {
        Opcode::ALL.iter().find(|(_, of)| *of == number).map(|(opcode, _)| *opcode)
    }

    fn number(self) -> u8 {
        Opcode::ALL.iter().find(|(opcode, _)| *opcode == self).map_or(0, |(_, number)| *number)
    }
}

/// A message. `HIT_OBJ`, which carries the object itself, is not spoken: nobody could say how fresh it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The kind.
    pub opcode: Opcode,
    /// The number of the query, which its answer repeats.
    pub number: u32,
    /// The URL.
    pub url: &'a str,
}

impl Message<'_> {
    /// Appends the datagram. `false`, and nothing is appended, where the URL is too long for one.
    #[must_use]
    pub fn write_to(&self, out: &mut Vec<u8>) -> bool {
        let client = if self.opcode == Opcode::Query { 4 } else { 0 };
        let len = HEAD_LEN + client + self.url.len() + 1;
        let Some(length) = u16::try_from(len).ok().filter(|_| len <= DATAGRAM_BYTES_MAX) else { return false };
        out.extend_from_slice(&[self.opcode.number(), VERSION]);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&self.number.to_be_bytes());
        // Options, option data, sender: the sender is known by the datagram's own address.
        out.extend_from_slice(&[0; 12]);
        out.extend_from_slice(&[0; 4][..client]);
        out.extend_from_slice(self.url.as_bytes());
        out.push(0);
        true
    }
}

/// Reads a datagram; `None` where it is no message that is spoken here. Nothing is answered to such a one.
pub fn message(datagram: &[u8]) -> Option<Message<'_>> {
    let (head, payload) = datagram.split_at_checked(HEAD_LEN)?;
    let &[opcode, version, length @ ..] = head.first_chunk::<4>()?;
    let number = head.get(4..8)?.try_into().ok().map(u32::from_be_bytes)?;
    if version != VERSION || usize::from(u16::from_be_bytes(length)) != datagram.len() {
        return None;
    }
    let opcode = Opcode::of(opcode)?;
    let text = if opcode == Opcode::Query { payload.get(4..)? } else { payload };
    let url = std::str::from_utf8(text.strip_suffix(&[0])?).ok()?;
    let is_url = !url.is_empty() && url.bytes().all(|byte| byte.is_ascii_graphic());
    is_url.then_some(Message { opcode, number, url })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_there_and_back() {
        for (opcode, _) in Opcode::ALL {
            let sent = Message { opcode, number: 0xdead_beef, url: "http://www.example/a?b" };
            let mut datagram = Vec::new();
            assert!(sent.write_to(&mut datagram));
            assert_eq!(message(&datagram), Some(sent));
            for len in 0..datagram.len() {
                assert_eq!(message(&datagram[..len]), None, "{opcode:?} {len}");
            }
        }
        let long = "http://a/".to_owned() + &"x".repeat(DATAGRAM_BYTES_MAX);
        assert!(!Message { opcode: Opcode::Query, number: 1, url: &long }.write_to(&mut Vec::new()));
    }

    #[test]
    fn the_bytes_of_a_query() {
        let mut datagram = Vec::new();
        assert!(Message { opcode: Opcode::Query, number: 7, url: "http://a/" }.write_to(&mut datagram));
        let wanted = [&[1, 2, 0, 34, 0, 0, 0, 7][..], &[0; 16], b"http://a/\0"].concat();
        assert_eq!(datagram, wanted);
    }

    #[test]
    fn others_are_no_messages() {
        let mut good = Vec::new();
        assert!(Message { opcode: Opcode::Miss, number: 7, url: "http://a/" }.write_to(&mut good));
        let changed = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        for wrong in [
            changed(0, 0),
            changed(0, 23),
            changed(1, 3),
            changed(3, 1),
            changed(20, b' '),
            changed(20, 0xff),
            changed(good.len() - 1, b'x'),
        ] {
            assert_eq!(message(&wrong), None, "{wrong:?}");
        }
    }
}
