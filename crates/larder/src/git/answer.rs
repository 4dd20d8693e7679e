//! An answer of `git-upload-pack` as it comes: whether it is a whole one without an error, and whether its pack is undamaged.
//!
//! Git says its errors in the body, with the status 200. Such an answer goes to its client, and is not stored: a mirror that does
//! not have the newest commit yet says so for a second, and the store would say it for a year.

use super::line_length;
use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

/// The end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerEnd {
    /// It is whole without a pack, and another client may have it.
    Text,
    /// It is whole, its pack is undamaged, and another client may have it.
    Pack,
    /// It holds an error or is in no form that is known: for its own client alone.
    OfOne,
    /// Its pack has another checksum than it names itself.
    Damaged,
}

/// Reads an answer.
pub struct GitAnswer {
    /// The digits of a length that have come, and the first bytes of the line.
    start: Vec<u8>,
    /// Bytes of a line that are still to come.
    missing: usize,
    /// Whether the line is a piece of a pack.
    in_pack: bool,
    /// The message is over: nothing may follow but another one.
    is_over: bool,
    is_good: bool,
    pack: Option<Box<Pack>>,
}

/// A pack as it comes: its last bytes are the SHA-1 of all others.
struct Pack {
    hash: Context,
    /// The last bytes, which may be the checksum.
    tail: Vec<u8>,
}

const SUM_BYTES: usize = 20;

impl Pack {
    fn update(&mut self, bytes: &[u8]) {
        // All but the last 20 bytes of what came are hashed.
        let settled = (self.tail.len() + bytes.len()).saturating_sub(SUM_BYTES);
        let of_tail = settled.min(self.tail.len());
        self.hash.update(&self.tail[..of_tail]);
        self.tail.drain(..of_tail);
        let of_bytes = settled - of_tail;
        self.hash.update(&bytes[..of_bytes]);
        self.tail.extend_from_slice(&bytes[of_bytes..]);
    }
}

impl Default for GitAnswer {
    fn default() -> GitAnswer {
        GitAnswer { start: Vec::new(), missing: 0, in_pack: false, is_over: false, is_good: true, pack: None }
    }
}

impl GitAnswer {
    /// Takes the next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.is_good {
            bytes = if self.missing > 0 { self.content(bytes) } else { self.length(bytes) };
        }
    }

    /// Takes digits of the length of a line, and the first bytes of its content, which say what it is.
    fn length<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let rest = self.take_start(bytes, 4);
        if self.start.len() < 4 {
            return rest;
        }
        let Some(length) = self.line_length() else {
            self.is_good = false;
            return rest;
        };
        let start_bytes = length.clamp(4, 8);
        let rest = self.take_start(rest, start_bytes);
        if self.start.len() == start_bytes {
            self.is_over = length == 0;
            if length > 4 {
                self.begin_content(length);
            }
            self.start.clear();
        }
        rest
    }

    /// Adds to the start of the line until it has so many bytes.
    fn take_start<'b>(&mut self, bytes: &'b [u8], start_bytes: usize) -> &'b [u8] {
        let (taken, rest) = bytes.split_at((start_bytes - self.start.len().min(start_bytes)).min(bytes.len()));
        self.start.extend_from_slice(taken);
        rest
    }

    fn line_length(&self) -> Option<usize> {
        line_length(self.start.get(..4)?.try_into().ok()?)
    }

    fn begin_content(&mut self, length: usize) {
        let content = &self.start[4..];
        self.missing = length - self.start.len();
        self.in_pack = content[0] == 1;
        // 3 is the channel of errors.
        self.is_good &= content[0] != 3 && content != b"ERR ";
        if self.in_pack {
            let new = || Box::new(Pack { hash: Context::new(&SHA1_FOR_LEGACY_USE_ONLY), tail: Vec::new() });
            self.pack.get_or_insert_with(new).update(&content[1..]);
        }
    }

    fn content<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let (content, rest) = bytes.split_at(self.missing.min(bytes.len()));
        self.missing -= content.len();
        if let Some(pack) = self.pack.as_mut().filter(|_| self.in_pack) {
            pack.update(content);
        }
        rest
    }

    /// The answer is over.
    pub fn finish(self) -> AnswerEnd {
        if !self.is_good || !self.is_over || self.missing > 0 || !self.start.is_empty() {
            return AnswerEnd::OfOne;
        }
        let Some(pack) = self.pack else { return AnswerEnd::Text };
        let Pack { hash, tail } = *pack;
        if hash.finish().as_ref() == tail { AnswerEnd::Pack } else { AnswerEnd::Damaged }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::line;
    use super::*;
    use aws_lc_rs::digest::digest;

    fn pack() -> Vec<u8> {
        let content = b"PACK and what is in it";
        [&content[..], digest(&SHA1_FOR_LEGACY_USE_ONLY, content).as_ref()].concat()
    }

    fn bands(pack: &[u8], bytes: usize) -> Vec<u8> {
        let lines = pack.chunks(bytes).flat_map(|piece| {
            let length = format!("{:04x}", piece.len() + 5).into_bytes();
            [length, vec![1], piece.to_vec(), b"0009\x02hm\r\n".to_vec()].concat()
        });
        [line("packfile\n").into_bytes(), lines.collect(), b"0000".to_vec()].concat()
    }

    fn end(answer: &[u8], step: usize) -> AnswerEnd {
        let mut reading = GitAnswer::default();
        answer.chunks(step).for_each(|piece| reading.update(piece));
        reading.finish()
    }

    #[test]
    fn ends() {
        let mut damaged = pack();
        damaged[7] ^= 1;
        let text = |text: &str| text.as_bytes().to_vec();
        let refs = format!("{}0000{}{}0000", line("# service=git-upload-pack\n"), line("version 2\n"), line("fetch\n"));
        let cases = [
            ("a pack", bands(&pack(), 100), AnswerEnd::Pack),
            ("a pack in small pieces", bands(&pack(), 3), AnswerEnd::Pack),
            ("a damaged pack", bands(&damaged, 100), AnswerEnd::Damaged),
            ("a pack that is cut off before its checksum", bands(&pack()[..15], 100), AnswerEnd::Damaged),
            ("refs", text(&refs), AnswerEnd::Text),
            (
                "common commits alone",
                text(&format!("{}{}0000", line("acknowledgments\n"), line("NAK\n"))),
                AnswerEnd::Text,
            ),
            ("an empty line", text("00040000"), AnswerEnd::Text),
            ("a short line", text("0005a0000"), AnswerEnd::Text),
            ("an error", text(&format!("{}0000", line("ERR upload-pack: not our ref\n"))), AnswerEnd::OfOne),
            ("an error on its channel", text(&format!("{}0000", line("\x03no\n"))), AnswerEnd::OfOne),
            ("no end", text(&line("packfile\n")), AnswerEnd::OfOne),
            ("half a line", text("0010half"), AnswerEnd::OfOne),
            ("half a length", text("000000"), AnswerEnd::OfOne),
            ("a page", text("<html>Sign in</html>"), AnswerEnd::OfOne),
            ("nothing", Vec::new(), AnswerEnd::OfOne),
        ];
        for (what, answer, expected) in cases {
            for step in [1, 2, 5, 7, 1000] {
                assert_eq!(end(&answer, step), expected, "{what}, {step} bytes at a time");
            }
        }
    }

    #[test]
    fn a_changed_byte_of_the_pack_is_found() {
        let good = bands(&pack(), 1000);
        let start = line("packfile\n").len();
        for at in 0..good.len() {
            for byte in [0, b'0', b'f', 3, 255] {
                let mut changed = good.clone();
                changed[at] = byte;
                let of_pack = (start + 5..start + 5 + pack().len()).contains(&at) && changed != good;
                assert!(!of_pack || end(&changed, 3) == AnswerEnd::Damaged, "{at} {byte}");
                // All other changes end somehow.
                end(&changed, 4);
            }
        }
    }
}
