//! The part of BER (X.690) that LDAP permits (RFC 4511 section 5.1): definite lengths, tags of one byte, primitive strings.

/// Bytes that are no BER, or of a form that LDAP does not permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BerFault;

/// An octet string.
pub const OCTETS: u8 = 0x04;
/// A sequence.
pub const SEQUENCE: u8 = 0x30;
/// A set.
pub const SET: u8 = 0x31;
const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
/// An enumeration.
pub const ENUMERATED: u8 = 0x0a;

/// Appends an element with this tag.
pub fn push(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    out.push(tag);
    match u8::try_from(content.len()) {
        Ok(length) if length < 0x80 => out.push(length),
        _ => {
            let length = content.len().to_be_bytes();
            let length = length.get(length.iter().take_while(|byte| **byte == 0).count()..).unwrap_or_default();
            out.push(0x80 | u8::try_from(length.len()).unwrap_or(0));
            out.extend_from_slice(length);
        }
    }
    out.extend_from_slice(content);
}

/// Appends an element whose content `write` makes.
pub fn push_with(out: &mut Vec<u8>, tag: u8, write: impl FnOnce(&mut Vec<u8>)) {
    let mut content = Vec::new();
    write(&mut content);
    push(out, tag, &content);
}

/// Appends a number.
pub fn push_number(out: &mut Vec<u8>, tag: u8, number: u32) {
    let bytes = u64::from(number).to_be_bytes();
    // One byte more than the number needs where its first bit is set: that would be the sign.
    let zeros = bytes.windows(2).take_while(|pair| pair.first() == Some(&0) && pair.get(1).is_some_and(|b| *b < 0x80));
    push(out, tag, bytes.get(zeros.count()..).unwrap_or_default());
}

/// Appends an integer.
pub fn push_integer(out: &mut Vec<u8>, number: u32) {
    push_number(out, INTEGER, number);
}

/// Appends a truth value.
pub fn push_flag(out: &mut Vec<u8>, is_true: bool) {
    push(out, BOOLEAN, &[if is_true { 0xff } else { 0 }]);
}

/// The elements of a content, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    /// The elements in these bytes.
    pub fn of(bytes: &'a [u8]) -> Elements<'a> {
        Elements(bytes)
    }

    /// The next element, with its tag; `None` at the end.
    pub fn take_next(&mut self) -> Result<Option<(u8, &'a [u8])>, BerFault> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (head, length) = head(self.0)?.ok_or(BerFault)?;
        let tag = *self.0.first().ok_or(BerFault)?;
        let (content, rest) = self.0.get(head..).and_then(|rest| rest.split_at_checked(length)).ok_or(BerFault)?;
        self.0 = rest;
        Ok(Some((tag, content)))
    }

    /// The next element, which has this tag.
    pub fn expect(&mut self, tag: u8) -> Result<&'a [u8], BerFault> {
        match self.take_next()? {
            Some((found, content)) if found == tag => Ok(content),
            _ => Err(BerFault),
        }
    }

    /// The next element as a number from 0 to 2³¹ − 1.
    pub fn number(&mut self, tag: u8) -> Result<u32, BerFault> {
        let content = self.expect(tag)?;
        let is_small = (1..=4).contains(&content.len()) && content.first().is_some_and(|first| *first < 0x80);
        is_small.then(|| content.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))).ok_or(BerFault)
    }

    /// The next element as an integer.
    pub fn integer(&mut self) -> Result<u32, BerFault> {
        self.number(INTEGER)
    }
}

/// The bytes of tag and length, and the length of the content; `None` where that has not come yet.
fn head(bytes: &[u8]) -> Result<Option<(usize, usize)>, BerFault> {
    let (Some(tag), Some(first)) = (bytes.first(), bytes.get(1)) else { return Ok(None) };
    if tag & 0x1f == 0x1f {
        return Err(BerFault);
    }
    if *first < 0x80 {
        return Ok(Some((2, usize::from(*first))));
    }
    let further = usize::from(first & 0x7f);
    if !(1..=4).contains(&further) {
        return Err(BerFault);
    }
    let Some(length) = bytes.get(2..2 + further) else { return Ok(None) };
    Ok(Some((2 + further, length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))))
}

/// The bytes of the message at the beginning of a stream, with its head; `None` where that is not known yet.
pub fn message_bytes(stream: &[u8]) -> Result<Option<usize>, BerFault> {
    if stream.first().is_some_and(|tag| *tag != SEQUENCE) {
        return Err(BerFault);
    }
    Ok(head(stream)?.map(|(head, length)| length.saturating_add(head)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_have_their_shortest_form() {
        for (number, wanted) in [
            (0, &[2, 1, 0][..]),
            (127, &[2, 1, 127]),
            (128, &[2, 2, 0, 128]),
            (256, &[2, 2, 1, 0]),
            (0x7fff_ffff, &[2, 4, 0x7f, 0xff, 0xff, 0xff]),
        ] {
            let mut out = Vec::new();
            push_integer(&mut out, number);
            assert_eq!(out, wanted, "{number}");
            assert_eq!(Elements::of(&out).integer(), Ok(number));
        }
    }

    #[test]
    fn forms_that_ldap_does_not_permit_are_faults() {
        for bytes in
            [&[0x30, 0x80, 0, 0][..], &[0x1f, 1, 0], &[4, 0x85, 0, 0, 0, 0, 1, 9], &[4, 2, 1], &[4], &[4, 0x81]]
        {
            assert!(Elements::of(bytes).take_next().is_err(), "{bytes:?}");
        }
        assert_eq!(message_bytes(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), Ok(Some(6 + 0xffff_ffff)));
        assert_eq!(message_bytes(b"HTTP/1.1 400"), Err(BerFault));
        assert_eq!(message_bytes(&[0x30, 0x82, 1]), Ok(None));
    }

    proptest! {
        #[test]
        fn every_content_comes_back(content in prop::collection::vec(any::<u8>(), 0..70_000)) {
            let mut out = Vec::new();
            push(&mut out, OCTETS, &content);
            let mut elements = Elements::of(&out);
            prop_assert_eq!(elements.expect(OCTETS), Ok(&content[..]));
            prop_assert_eq!(elements.take_next(), Ok(None));
        }

        #[test]
        fn random_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let mut elements = Elements::of(&bytes);
            while let Ok(Some(_)) = elements.take_next() {}
            let _ = (message_bytes(&bytes), Elements::of(&bytes).integer());
        }
    }
}
