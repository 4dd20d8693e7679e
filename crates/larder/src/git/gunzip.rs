//! Git compresses the bodies of its longer requests (`Content-Encoding: gzip`).

use super::BODY_BYTES_MAX;
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};
use std::borrow::Cow;

/// The content of a body with this coding; `None` for a coding other than gzip, for what is not exactly one gzip member, and for
/// content that is longer than a body may be.
pub fn decoded<'a>(coding: Option<&[u8]>, body: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    match coding {
        None => Some(Cow::Borrowed(body)),
        Some(coding) if coding.eq_ignore_ascii_case(b"gzip") || coding.eq_ignore_ascii_case(b"x-gzip") => {
            gunzip(body).map(Cow::Owned)
        }
        Some(_) => None,
    }
}

/// Magic, method, flags, time, extra flags, system (RFC 1952 section 2.3).
const HEAD_BYTES: usize = 10;
/// CRC and length.
const END_BYTES: usize = 8;

fn gunzip(body: &[u8]) -> Option<Vec<u8>> {
    let (head, rest) = body.split_at_checked(HEAD_BYTES)?;
    // Git sets no flags; a member with more fields is not looked into.
    if head[..4] != [0x1f, 0x8b, 8, 0] {
        return None;
    }
    let (deflated, end) = rest.split_at_checked(rest.len().checked_sub(END_BYTES)?)?;
    let length = u32::from_le_bytes(end[4..].try_into().ok()?);
    if u64::from(length) > BODY_BYTES_MAX {
        return None;
    }
    let mut content = vec![0; length as usize];
    let flags = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let (status, read, written) = decompress(&mut DecompressorOxide::new(), deflated, &mut content, 0, flags);
    (status == TINFLStatus::Done && read == deflated.len() && written == content.len()).then_some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 0032want | gzip -n` and so on: one stored block.
    fn gzip(content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap();
        let mut body = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1];
        body.extend(length.to_le_bytes());
        body.extend((!length).to_le_bytes());
        body.extend(content);
        body.extend([0; 4]);
        body.extend(u32::from(length).to_le_bytes());
        body
    }

    #[test]
    fn one_member_and_nothing_else() {
        let body = gzip(b"0009want ");
        assert_eq!(decoded(Some(b"gzip"), &body).as_deref(), Some(&b"0009want "[..]));
        assert_eq!(decoded(None, &body).as_deref(), Some(&body[..]));
        assert_eq!(decoded(Some(b"br"), &body), None);
        let two = [body.clone(), body.clone()].concat();
        let longer = [&body[..], b"x"].concat();
        for broken in [&two[..], &longer, &body[..body.len() - 1], &body[1..], b"", b"\x1f\x8b\x08\0\0\0\0\0\0\x03"] {
            assert_eq!(decoded(Some(b"gzip"), broken), None, "{broken:?}");
        }
        let mut huge = body;
        let end = huge.len() - 4;
        huge[end..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(decoded(Some(b"gzip"), &huge), None);
    }
}
