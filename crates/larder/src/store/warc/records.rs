//! The records of an archive one after the other, in bounded memory.

use crate::lines::{self, NextLine};
use std::io::{self, BufRead, Read};

/// The kinds of record that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Response,
    Other,
}

/// The head of a record.
#[derive(Debug)]
pub(super) struct Head {
    pub kind: Kind,
    pub id: Vec<u8>,
    /// Another record of the same exchange.
    pub concurrent_to: Vec<u8>,
    pub target: String,
    /// The site that the response is stored for, as [`super::SITE_FIELD`] says.
    pub site: Vec<u8>,
    pub is_truncated: bool,
    /// Bytes of the block behind it.
    pub length: u64,
}

/// Reads records; their blocks are read through it as well.
pub(super) struct Records<'r> {
    from: &'r mut dyn BufRead,
    /// Where the archive is read.
    at: u64,
    /// Bytes of the block of the last record that were not read yet.
    left: u64,
}

/// A line of a record's head: the longest field of ours is a URL.
const LINE_BYTES_MAX: usize = 64 * 1024;
const LINES_MAX: usize = 256;

impl<'r> Records<'r> {
    pub(super) fn of(from: &'r mut dyn BufRead) -> Records<'r> {
        Records { from, at: 0, left: 0 }
    }

    fn wrong(&self, what: &str) -> io::Error {
        let text = format!("at byte {}: {what}: is it a WARC file, unpacked?", self.at);
        io::Error::new(io::ErrorKind::InvalidData, text)
    }

    /// The head of the next record. Unread bytes of the block before are passed over.
    pub(super) fn next_head(&mut self) -> io::Result<Option<Head>> {
        self.skip_block()?;
        let mut line = Vec::new();
        while line.is_empty() {
            if !self.line(&mut line)? {
                return Ok(None);
            }
        }
        if !line.starts_with(b"WARC/1.") {
            return Err(self.wrong("a record does not begin with WARC/1.x"));
        }
        let mut head = Head {
            kind: Kind::Other,
            id: Vec::new(),
            concurrent_to: Vec::new(),
            target: String::new(),
            site: Vec::new(),
            is_truncated: false,
            length: 0,
        };
        let mut length = None;
        for _ in 0..LINES_MAX {
            if !self.line(&mut line)? {
                return Err(self.wrong("a record's head is cut off"));
            }
            if line.is_empty() {
                head.length = length.ok_or_else(|| self.wrong("a record without a usable Content-Length"))?;
                self.left = head.length;
                return Ok(Some(head));
            }
            if line.starts_with(b" ") || line.starts_with(b"\t") {
                // The rest of a field that has no meaning here.
                continue;
            }
            let colon = line.iter().position(|&byte| byte == b':');
            let colon = colon.ok_or_else(|| self.wrong("a field without a colon"))?;
            let (name, value) = (line[..colon].to_ascii_lowercase(), line[colon + 1..].trim_ascii());
            if name == b"content-length" {
                length = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
            } else {
                head.field(&name, value);
            }
        }
        Err(self.wrong("a record's head has more than 256 lines"))
    }

    /// Reads a line; `false` at the end.
    fn line(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        match lines::next_line(self.from, LINE_BYTES_MAX, line)? {
            NextLine::End => Ok(false),
            NextLine::TooLong(_) => Err(self.wrong("a line of a record's head is longer than 64 KiB")),
            NextLine::Read(bytes) => {
                self.at += bytes;
                Ok(true)
            }
        }
    }

    /// The next piece of the block, as long as it is wanted where the block has so much.
    pub(super) fn piece(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        let wanted = self.left.min(bytes as u64);
        let mut piece = Vec::with_capacity(wanted as usize);
        let read = Read::take(&mut *self.from, wanted).read_to_end(&mut piece)? as u64;
        self.at += read;
        self.left -= read;
        if read < wanted {
            return Err(self.wrong("the last record is cut off"));
        }
        Ok(piece)
    }

    fn skip_block(&mut self) -> io::Result<()> {
        let skipped = io::copy(&mut Read::take(&mut *self.from, self.left), &mut io::sink())?;
        self.at += skipped;
        self.left -= skipped;
        if self.left > 0 {
            return Err(self.wrong("the last record is cut off"));
        }
        Ok(())
    }
}

impl Head {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b"warc-type" => {
                self.kind = match value {
                    b"request" => Kind::Request,
                    b"response" => Kind::Response,
                    _ => Kind::Other,
                }
            }
            b"warc-record-id" => self.id = value.to_vec(),
            b"warc-concurrent-to" => self.concurrent_to = value.to_vec(),
            b"warc-truncated" => self.is_truncated = true,
            b"warc-target-uri" => {
                self.target = String::from_utf8_lossy(value).trim_matches(['<', '>']).to_owned();
            }
            _ if name.eq_ignore_ascii_case(super::SITE_FIELD.as_bytes()) => self.site = value.to_vec(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn read(mut text: &[u8]) -> io::Result<Vec<u64>> {
        let mut records = Records::of(&mut text);
        let mut lengths = Vec::new();
        while let Some(head) = records.next_head()? {
            lengths.push(head.length);
        }
        Ok(lengths)
    }

    #[test]
    fn what_is_no_archive_is_refused_with_its_place_and_a_remedy() {
        assert!(read(b"").unwrap().is_empty());
        assert_eq!(read(b"\r\n\r\nWARC/1.0\r\nContent-Length: 3\r\n folded\r\n\r\nabc\r\n\r\n").unwrap(), [3]);
        for (wrong, place) in [
            (&b"GIF89a\n"[..], 7),
            (b"WARC/1.0\r\nno colon\r\n\r\n", 20),
            (b"WARC/1.0\r\nContent-Length: 9\r\n\r\nshort", 36),
            (b"WARC/1.0\r\n\r\n", 12),
            (b"WARC/1.0\r\nContent-Length: 9", 27),
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.starts_with(&format!("at byte {place}: ")) && error.contains("WARC file"), "{error}");
        }
    }

    #[test]
    fn a_line_of_200_mb_is_refused_and_takes_no_memory() {
        let endless = Read::chain(&b"WARC/1.0\r\nX: "[..], Read::take(io::repeat(b'a'), 200_000_000));
        let mut from = BufReader::new(endless);
        let error = Records::of(&mut from).next_head().unwrap_err().to_string();
        assert!(error.contains("at byte 10: a line of a record's head is longer than 64 KiB"), "{error}");
        let lines = [&b"WARC/1.0\r\n"[..], &b"a: b\r\n".repeat(300)].concat();
        assert!(read(&lines).unwrap_err().to_string().contains("more than 256 lines"));
    }
}
