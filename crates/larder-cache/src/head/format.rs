//! A stored head as bytes, for the store: all that it takes to serve it after a restart.
//!
//! One byte of version, then fixed numbers (little-endian) and texts with their lengths before them; see
//! [`StoredHead::encode`]. The store's checksum guards the bytes; the decoder checks each of them all the same, and a
//! format from the future is an error that says so.

use std::fmt;

use bytes::Bytes;
use larder_wire::date::Stamp;
use larder_wire::etag::ETag;
use larder_wire::{Fields, Reason, ResponseHead, Version};

use super::StoredHead;
use crate::policy::{Coding, Grace, HookTerms, LifetimeSource, Terms, Vary};

/// The version that this program writes, and the newest that it reads.
pub const VERSION: u8 = 1;

/// Why bytes are no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatFault {
    /// A newer program wrote them, in this version of the format.
    FutureVersion(u8),
    /// They end too early, or hold what no head can hold.
    Broken,
}

impl fmt::Display for FormatFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatFault::FutureVersion(found) => {
                write!(f, "a stored head has format {found} and this program knows {VERSION}: use the newer program")
            }
            FormatFault::Broken => f.write_str("a stored head is damaged: it is fetched again"),
        }
    }
}

impl std::error::Error for FormatFault {}

impl StoredHead {
    /// The bytes of this head. The head for the one who asked is not among them.
    pub fn encode(&self) -> Bytes {
        let head = &self.head;
        let mut out = Vec::with_capacity(64 + head.fields.wire_len());
        out.push(VERSION);
        out.extend_from_slice(&head.status.to_le_bytes());
        out.push(match head.version {
            Version::Http10 => 0,
            Version::Http11 | Version::Http2 | Version::Http3 => 1,
        });
        text(&mut out, head.reason.as_bytes());
        number(&mut out, self.received.0);
        number(&mut out, head.fields.len() as u64);
        for (name, value) in head.fields.iter() {
            text(&mut out, name.as_bytes());
            text(&mut out, value);
        }
        match &self.terms {
            None => out.push(0),
            Some(terms) => {
                out.push(1);
                encode_terms(&mut out, terms);
            }
        }
        out.into()
    }

    /// The head that [`StoredHead::encode`] made bytes of.
    pub fn decode(bytes: &[u8]) -> Result<StoredHead, FormatFault> {
        let (head, terms, received) = decode_parts(bytes)?;
        Ok(StoredHead::new(head, terms, received))
    }

    /// [`StoredHead::decode`] where the hashes of its tags are known.
    pub(crate) fn decode_tagged(bytes: &[u8], tags: Vec<u64>) -> Result<StoredHead, FormatFault> {
        let (head, terms, received) = decode_parts(bytes)?;
        Ok(StoredHead::tagged(head, terms, received, tags.into()))
    }
}

fn decode_parts(bytes: &[u8]) -> Result<(ResponseHead, Option<Terms>, Stamp), FormatFault> {
    let mut rest = Rest(bytes);
    match rest.byte()? {
        VERSION => {}
        later if later > VERSION => return Err(FormatFault::FutureVersion(later)),
        _ => return Err(FormatFault::Broken),
    }
    let status = u16::from_le_bytes([rest.byte()?, rest.byte()?]);
    let version = match rest.byte()? {
        0 => Version::Http10,
        1 => Version::Http11,
        _ => return Err(FormatFault::Broken),
    };
    let reason = Reason::of(status, std::str::from_utf8(rest.text()?).map_err(|_| FormatFault::Broken)?);
    let received = Stamp(rest.number()?);
    let lines = rest.number()?;
    // Exactly: what is shrunk later stays where it is when it was not twice as large, and is charged as if it had moved.
    let mut fields = Fields::kept(wire_bytes(rest.0, lines)?);
    for _ in 0..lines {
        if !fields.push_kept(rest.text()?, rest.text()?) {
            return Err(FormatFault::Broken);
        }
    }
    let terms = match rest.byte()? {
        0 => None,
        1 => Some(decode_terms(&mut rest)?),
        _ => return Err(FormatFault::Broken),
    };
    if !rest.0.is_empty() || !(200..1000).contains(&status) {
        return Err(FormatFault::Broken);
    }
    Ok((ResponseHead { status, reason, version, fields }, terms, received))
}

/// The bytes that so many field lines take as they are sent.
fn wire_bytes(bytes: &[u8], lines: u64) -> Result<usize, FormatFault> {
    let (mut rest, mut wire_bytes) = (Rest(bytes), 0);
    for _ in 0..lines {
        wire_bytes += rest.text()?.len() + b": ".len() + rest.text()?.len() + b"\r\n".len();
    }
    Ok(wire_bytes)
}

const SOURCES: [LifetimeSource; 12] = [
    LifetimeSource::Targeted,
    LifetimeSource::SMaxAge,
    LifetimeSource::MaxAge,
    LifetimeSource::Expires,
    LifetimeSource::Negative,
    LifetimeSource::Heuristic,
    LifetimeSource::Unlabelled,
    LifetimeSource::None,
    LifetimeSource::Rule,
    LifetimeSource::RuleMin,
    LifetimeSource::Protocol,
    LifetimeSource::Hook,
];

/// By the upper bits of the flags.
const CODED: [Option<Coding>; 4] = [None, Some(Coding::Gzip), Some(Coding::Brotli), Some(Coding::Zstd)];

fn encode_terms(out: &mut Vec<u8>, terms: &Terms) {
    for value in [terms.received.0, terms.initial_age, terms.date.0, terms.lifetime] {
        number(out, value);
    }
    out.push(SOURCES.iter().position(|source| *source == terms.source).unwrap_or(SOURCES.len() - 1) as u8);
    let hook = terms.grace.as_ref().and_then(|grace| grace.hook());
    let flags = [terms.must_revalidate, terms.no_cache, terms.immutable, hook.is_some()];
    let coded = CODED.iter().position(|coded| *coded == terms.coded).unwrap_or(0) as u8;
    out.push(flags.iter().enumerate().map(|(bit, &flag)| u8::from(flag) << bit).sum::<u8>() | coded << 4);
    for value in [terms.stale_while_revalidate(), terms.stale_if_error(), terms.last_modified.map(|stamp| stamp.0)] {
        out.push(u8::from(value.is_some()));
        number(out, value.unwrap_or(0));
    }
    for value in hook.iter().flat_map(|hook| [hook.ttl_seconds, hook.grace_seconds]) {
        out.push(u8::from(value.is_some()));
        number(out, value.unwrap_or(0));
    }
    match &terms.etag {
        None => out.push(0),
        Some(etag) => {
            out.push(1 + u8::from(etag.weak));
            text(out, &etag.opaque);
        }
    }
    text(out, terms.vary.as_bytes());
}

fn decode_terms(rest: &mut Rest<'_>) -> Result<Terms, FormatFault> {
    let received = Stamp(rest.number()?);
    let (initial_age, date, lifetime) = (rest.number()?, Stamp(rest.number()?), rest.number()?);
    let source = *SOURCES.get(usize::from(rest.byte()?)).ok_or(FormatFault::Broken)?;
    let flags = rest.byte()?;
    let coded = *CODED.get(usize::from(flags >> 4)).ok_or(FormatFault::Broken)?;
    let (stale_while_revalidate, stale_if_error) = (rest.optional()?, rest.optional()?);
    let grace = Grace::of(stale_while_revalidate, stale_if_error);
    let last_modified = rest.optional()?.map(Stamp);
    let grace = match flags & 8 {
        0 => grace,
        _ => {
            let hook = HookTerms { ttl_seconds: rest.optional()?, grace_seconds: rest.optional()? };
            Some(Grace::with_hook(grace.as_deref(), hook))
        }
    };
    let etag = match rest.byte()? {
        0 => None,
        kind @ (1 | 2) => Some(ETag { weak: kind == 2, opaque: rest.text()?.into() }),
        _ => return Err(FormatFault::Broken),
    };
    let vary = Vary::from_bytes(rest.text()?).ok_or(FormatFault::Broken)?;
    Ok(Terms {
        received,
        initial_age,
        date,
        lifetime,
        source,
        must_revalidate: flags & 1 != 0,
        no_cache: flags & 2 != 0,
        grace,
        immutable: flags & 4 != 0,
        etag,
        last_modified,
        vary,
        coded,
    })
}

fn number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(text);
}

/// The bytes that are still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], FormatFault> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(FormatFault::Broken)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, FormatFault> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> Result<u64, FormatFault> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().unwrap_or_default()))
    }

    fn optional(&mut self) -> Result<Option<u64>, FormatFault> {
        let there = self.byte()?;
        let value = self.number()?;
        match there {
            0 => Ok(None),
            1 => Ok(Some(value)),
            _ => Err(FormatFault::Broken),
        }
    }

    fn text(&mut self) -> Result<&'a [u8], FormatFault> {
        let length = u32::from_le_bytes(self.take(4)?.try_into().unwrap_or_default());
        self.take(length as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn terms() -> impl Strategy<Value = Terms> {
        let numbers = prop::array::uniform4(any::<u64>());
        let options = prop::array::uniform3(prop::option::of(any::<u64>()));
        let etag = prop::option::of((any::<bool>(), prop::collection::vec(any::<u8>(), 0..20)));
        let vary = prop::collection::vec("[a-z-]{1,9}(:[a-z, ]{0,9})?\n", 0..4);
        (numbers, 0..SOURCES.len(), any::<[bool; 4]>(), options, etag, (vary, 0..CODED.len())).prop_map(
            |(numbers, source, flags, options, etag, (vary, coded))| Terms {
                received: Stamp(numbers[0]),
                initial_age: numbers[1],
                date: Stamp(numbers[2]),
                lifetime: numbers[3],
                source: SOURCES[source],
                must_revalidate: flags[0],
                no_cache: flags[1],
                grace: match flags[3] {
                    true => {
                        let hook = HookTerms { ttl_seconds: options[0], grace_seconds: options[1] };
                        Some(Grace::with_hook(Grace::of(options[1], options[0]).as_deref(), hook))
                    }
                    false => Grace::of(options[0], options[1]),
                },
                immutable: flags[2],
                etag: etag.map(|(weak, opaque)| ETag { weak, opaque: opaque.into() }),
                last_modified: options[2].map(Stamp),
                vary: Vary::from_bytes(vary.concat().as_bytes()).unwrap(),
                coded: CODED[coded],
            },
        )
    }

    fn head() -> impl Strategy<Value = ResponseHead> {
        let field = ("[A-Za-z-]{1,12}", "[ -~]{0,40}");
        (200u16..600, any::<bool>(), "[ -~]{0,20}", prop::collection::vec(field, 0..12)).prop_map(
            |(status, old, reason, lines)| {
                let mut fields = Fields::new();
                lines.iter().for_each(|(name, value)| fields.push(name, value));
                let version = if old { Version::Http10 } else { Version::Http11 };
                ResponseHead { status, reason: Reason::of(status, &reason), version, fields }
            },
        )
    }

    proptest! {
        #[test]
        fn a_head_comes_back_as_it_went(head in head(), terms in prop::option::of(terms()), received: u64) {
            let stored = StoredHead::new(head, terms, Stamp(received));
            let back = StoredHead::decode(&stored.encode()).unwrap();
            prop_assert_eq!(&back.head, &stored.head);
            prop_assert_eq!(&back.terms, &stored.terms);
            prop_assert_eq!(back.received, stored.received);
            let sent = |stored: &StoredHead| {
                let mut out = Vec::new();
                larder_wire::encode::response_head(&mut out, &stored.head);
                out
            };
            prop_assert_eq!(sent(&back), sent(&stored));
            let (read, ..) = decode_parts(&stored.encode()).unwrap();
            prop_assert_eq!(read.fields.heap_bytes(), stored.head.fields.heap_bytes(), "no room that is given back later");
        }

        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..200), head in head(), cut: usize, flip: usize) {
            let _ = StoredHead::decode(&bytes);
            let mut whole = StoredHead::new(head, None, Stamp(1)).encode().to_vec();
            prop_assert!(StoredHead::decode(&whole[..cut % whole.len()]).is_err());
            let at = flip % whole.len();
            whole[at] ^= 0x55;
            let _ = StoredHead::decode(&whole);
        }
    }

    #[test]
    fn the_format_stays() {
        let mut head = ResponseHead::new(200);
        head.fields.push("ETag", "\"v1\"");
        let bytes = StoredHead::new(head, None, Stamp(0x1234)).encode();
        let golden =
            b"\x01\xc8\x00\x01\x02\x00\x00\x00OK\x34\x12\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x04\0\0\0ETag\x04\0\0\0\"v1\"\0";
        assert_eq!(bytes.as_ref(), golden);
        assert_eq!(StoredHead::decode(&[9]).err(), Some(FormatFault::FutureVersion(9)));
        assert_eq!(StoredHead::decode(&[]).err(), Some(FormatFault::Broken));
    }
}
