//! The frames of the purge log, as bytes; and what of them a start could not read.

use std::io;

use super::medium::MediumFile;
use super::record::u32_at;

/// How the file begins.
pub(super) const MAGIC: &[u8; 8] = b"LdrPrg\x01\n";
const FRAME_MAGIC: u32 = 0x4650_644c;
pub(super) const HEADER_BYTES: usize = 16;
/// A frame is begun until its body is as long as this; one entry more, with the longest prefix, makes it no longer than
/// [`BODY_BYTES_MAX`].
pub(super) const BODY_BYTES_WANTED: usize = 64 * 1024;
/// A prefix longer than this matches no URL.
pub(super) const PREFIX_BYTES_MAX: usize = 64 * 1024;
const BODY_BYTES_MAX: usize = BODY_BYTES_WANTED + PREFIX_BYTES_MAX + 64;
const ALIGN_BYTES: usize = 8;

/// The part of the log that a start could not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Where the first of it stands.
    pub at: u64,
    /// How much it is.
    pub bytes: u64,
    /// The device failed, and what stands behind was not read.
    pub unreadable: bool,
}

impl Lost {
    /// Notes that the bytes between two places are not sound.
    pub(super) fn note(&mut self, from: u64, to: u64) {
        if to > from {
            self.at = if self.bytes == 0 { from } else { self.at.min(from) };
            self.bytes += to - from;
        }
    }
}

/// Whether the file begins as a log of this format. That of a later format is in a store of a later format, which its
/// superblock says.
pub(super) fn is_begun(file: &dyn MediumFile) -> bool {
    let mut magic = [0; MAGIC.len()];
    matches!(file.read_at(0, &mut magic), Ok(count) if count == MAGIC.len()) && magic == *MAGIC
}

/// A frame, with the zeros behind it.
pub(super) fn frame(body: &[u8], entries: u32) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER_BYTES + body.len() + ALIGN_BYTES);
    frame.extend_from_slice(&FRAME_MAGIC.to_le_bytes());
    frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
    frame.extend_from_slice(&checksum(body, entries).to_le_bytes());
    frame.extend_from_slice(&entries.to_le_bytes());
    frame.extend_from_slice(body);
    frame.resize(frame.len().next_multiple_of(ALIGN_BYTES), 0);
    frame
}

/// Reads the frames of a file through a window.
pub(super) struct Frames<'a> {
    file: &'a dyn MediumFile,
    pub(super) length: u64,
    /// Behind the last sound frame.
    pub(super) at: u64,
    window: Vec<u8>,
    window_at: u64,
    /// The device could not read on from here.
    pub(super) unreadable: bool,
}

/// A sound frame.
pub(super) struct Frame {
    pub(super) body: Vec<u8>,
    /// Where it begins. The bytes between the frame before and here are not sound.
    pub(super) at: u64,
}

const FRAME_BYTES_MAX: usize = HEADER_BYTES + BODY_BYTES_MAX + ALIGN_BYTES;
const WINDOW_BYTES: usize = 4 * FRAME_BYTES_MAX;

impl<'a> Frames<'a> {
    pub(super) fn of(file: &'a dyn MediumFile) -> io::Result<Frames<'a>> {
        let (length, at) = (file.len()?, MAGIC.len() as u64);
        Ok(Frames { file, length, at, window: Vec::new(), window_at: 0, unreadable: false })
    }

    pub(super) fn next_sound(&mut self) -> Option<Frame> {
        let mut at = self.at;
        while at < self.length {
            if let Some((body, bytes)) = sound_frame(self.rest(at)) {
                let frame = Frame { body: body.to_vec(), at };
                self.at = at + bytes as u64;
                return Some(frame);
            }
            at += ALIGN_BYTES as u64;
        }
        None
    }

    /// The bytes of the file from a place on, as far as one frame may reach; nothing where the device fails.
    fn rest(&mut self, at: u64) -> &[u8] {
        let window_end = self.window_at + self.window.len() as u64;
        let inside = at >= self.window_at && (at + FRAME_BYTES_MAX as u64).min(self.length) <= window_end;
        if !inside {
            let left = usize::try_from(self.length - at).unwrap_or(WINDOW_BYTES);
            self.window.resize(WINDOW_BYTES.min(left), 0);
            let count = self.file.read_at(at, &mut self.window).unwrap_or_else(|_| {
                self.unreadable = true;
                0
            });
            self.window.truncate(count);
            self.window_at = at;
            if count == 0 {
                // The file is shorter than it said.
                self.length = at;
            }
        }
        self.window.get((at - self.window_at) as usize..).unwrap_or_default()
    }
}

/// The body of the frame that bytes begin with, and the frame's length.
fn sound_frame(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let header = bytes.get(..HEADER_BYTES)?;
    let length = u32_at(header, 4) as usize;
    if u32_at(header, 0) != FRAME_MAGIC || length > BODY_BYTES_MAX {
        return None;
    }
    let body = bytes.get(HEADER_BYTES..HEADER_BYTES + length)?;
    let sound = checksum(body, u32_at(header, 12)) == u32_at(header, 8);
    sound.then_some((body, (HEADER_BYTES + length).next_multiple_of(ALIGN_BYTES)))
}

fn checksum(body: &[u8], entries: u32) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&entries.to_le_bytes()), body)
}
