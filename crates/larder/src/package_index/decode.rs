//! The content of an index behind its codings, with a limit on how far it grows.

use super::{Body, Unread};
use bytes::{Buf, Bytes};
use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};

/// An index with more content than that is not read. The longest that is known has 60 MB.
const CONTENT_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// Memory that unpacking xz may take, in KiB: its strongest level needs 64 MiB for its dictionary.
const XZ_MEMORY_KIB_MAX: u32 = 66 * 1024;

/// The body without its `Content-Encoding`.
pub(super) fn without_coding(body: Vec<Bytes>, coding: Option<&[u8]>) -> Result<Body, Unread> {
    let pieces = Pieces(body.into());
    match coding.map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"identity") => Ok(Box::new(Limited::of(pieces))),
        Some(b"gzip" | b"x-gzip") => Ok(Box::new(Limited::of(MultiGzDecoder::new(pieces)))),
        Some(_) => Err(Unread::Coding),
    }
}

/// The content of a file that may be compressed, as its first bytes show.
pub(super) fn unpacked(body: Body) -> Result<Body, Unread> {
    let mut body = BufReader::new(body);
    let start = body.fill_buf()?;
    match start {
        [0x1f, 0x8b, ..] => Ok(Box::new(Limited::of(MultiGzDecoder::new(body)))),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            Ok(Box::new(Limited::of(XzReader::new_mem_limit(body, true, XZ_MEMORY_KIB_MAX))))
        }
        _ => Ok(Box::new(body)),
    }
}

/// Pieces of a body one after another.
struct Pieces(VecDeque<Bytes>);

impl Read for Pieces {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(first) = self.0.front_mut() else { return Ok(0) };
            if first.is_empty() {
                self.0.pop_front();
                continue;
            }
            let read = first.len().min(out.len());
            first.copy_to_slice(&mut out[..read]);
            return Ok(read);
        }
    }
}

/// A reader that fails where there is too much.
struct Limited<R> {
    of: R,
    left: u64,
}

impl<R: Read> Limited<R> {
    fn of(of: R) -> Limited<R> {
        Limited { of, left: CONTENT_BYTES_MAX }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.of.read(out)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| io::Error::other("too much content"))?;
        Ok(read)
    }
}
