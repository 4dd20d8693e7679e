//! The containers of a source: plain text, gzip, and archives of several files.

use flate2::read::MultiGzDecoder;
use std::io::{self, BufRead, BufReader, Cursor, Read};

/// Bytes at the beginning that are looked at before a format is chosen.
pub const SAMPLE_BYTES: usize = 32 << 10;
const BUFFER_BYTES: usize = 64 << 10;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A source, unpacked, with its beginning in memory.
pub struct Input<'r> {
    /// Its first bytes.
    pub sample: Vec<u8>,
    rest: Box<dyn Read + 'r>,
}

impl<'r> Input<'r> {
    /// Unpacks gzip. More than `bytes_max` bytes, unpacked, are an error.
    pub fn of(from: impl Read + 'r, bytes_max: u64) -> io::Result<Input<'r>> {
        let mut from: Box<dyn Read + 'r> = Box::new(from);
        let head = beginning(&mut from, GZIP.len())?;
        let is_gzip = head == GZIP;
        let whole = Cursor::new(head).chain(from);
        let plain: Box<dyn Read + 'r> = match is_gzip {
            true => Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER_BYTES, whole))),
            false => Box::new(whole),
        };
        let mut plain: Box<dyn Read + 'r> = Box::new(Bounded { from: plain, left: bytes_max });
        let sample = beginning(&mut plain, SAMPLE_BYTES)?;
        Ok(Input { sample, rest: plain })
    }

    /// Whether it is an archive (POSIX.1-1988 and later).
    pub fn is_archive(&self) -> bool {
        self.sample.get(257..262) == Some(b"ustar")
    }

    /// All of it, the sample too.
    pub fn reader(self) -> impl BufRead + 'r {
        BufReader::with_capacity(BUFFER_BYTES, Cursor::new(self.sample).chain(self.rest))
    }
}

fn beginning(from: &mut impl Read, bytes: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    from.take(bytes as u64).read_to_end(&mut head)?;
    Ok(head)
}

struct Bounded<R> {
    from: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(to)?;
        match self.left.checked_sub(length as u64) {
            Some(left) => self.left = left,
            None => return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than the limit of the list")),
        }
        Ok(length)
    }
}

const BLOCK: usize = 512;

/// Calls `each` with the name and the content of each regular file of an archive. The rest that `each` leaves unread is skipped.
pub fn each_file(
    mut from: impl BufRead,
    mut each: impl FnMut(&str, &mut dyn BufRead) -> io::Result<()>,
) -> io::Result<()> {
    loop {
        let mut header = [0; BLOCK];
        from.read_exact(&mut header)?;
        if header.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the archive is damaged");
        if !has_right_sum(&header) {
            return Err(damaged());
        }
        let size = octal(&header[124..136]).ok_or_else(damaged)?;
        let padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
        let name = |from: usize, to: usize| text(&header[from..to]);
        let path = match name(345, 500) {
            prefix if prefix.is_empty() => name(0, 100),
            prefix => format!("{prefix}/{}", name(0, 100)),
        };
        let mut content = (&mut from).take(size);
        // '0' and NUL are regular files.
        if matches!(header[156], b'0' | 0) {
            each(&path, &mut content)?;
        }
        io::copy(&mut content, &mut io::sink())?;
        if content.limit() > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        io::copy(&mut (&mut from).take(padding), &mut io::sink())?;
    }
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

fn octal(field: &[u8]) -> Option<u64> {
    let digits = field.split(|byte| matches!(byte, 0 | b' ')).find(|part| !part.is_empty())?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

/// The sum of all bytes, with blanks in the place of the sum itself.
fn has_right_sum(header: &[u8; BLOCK]) -> bool {
    let is_sum = |at: &usize| (148..156).contains(at);
    let sum: u64 =
        header.iter().enumerate().map(|(at, &byte)| if is_sum(&at) { u64::from(b' ') } else { byte.into() }).sum();
    octal(&header[148..156]) == Some(sum)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    /// An archive of these files.
    pub fn archive(files: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, content) in files {
            let mut header = [0; BLOCK];
            header[..name.len()].copy_from_slice(name.as_bytes());
            header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
            header[156] = if name.ends_with('/') { b'5' } else { b'0' };
            header[257..263].copy_from_slice(b"ustar\0");
            header[148..156].copy_from_slice(b"        ");
            let sum: u64 = header.iter().map(|&byte| u64::from(byte)).sum();
            header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
            out.extend_from_slice(&header);
            out.extend_from_slice(content.as_bytes());
            out.resize(out.len().next_multiple_of(BLOCK), 0);
        }
        out.resize(out.len() + 2 * BLOCK, 0);
        out
    }

    /// Compressed with gzip.
    pub fn gzipped(bytes: &[u8]) -> Vec<u8> {
        let mut out = GzEncoder::new(Vec::new(), Compression::fast());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    #[test]
    fn files_of_an_archive() {
        let bytes =
            gzipped(&archive(&[("ads/", ""), ("ads/domains", "a.example\n"), ("ads/urls", &"x".repeat(2_000))]));
        let input = Input::of(&bytes[..], 1 << 20).unwrap();
        assert!(input.is_archive());
        let mut found = Vec::new();
        each_file(input.reader(), |name, content| {
            let mut some = [0; 1];
            let read = content.read(&mut some)?;
            found.push((name.to_owned(), read));
            Ok(())
        })
        .unwrap();
        assert_eq!(found, [("ads/domains".to_owned(), 1), ("ads/urls".to_owned(), 1)]);
    }

    #[test]
    fn damage_is_an_error() {
        let whole = archive(&[("domains", "a.example\n")]);
        for at in [0, 100, 511, 515] {
            assert!(each_file(&whole[..at], |_, _| Ok(())).is_err(), "{at}");
        }
        let mut wrong = whole.clone();
        wrong[124] = b'9';
        assert!(each_file(&wrong[..], |_, _| Ok(())).is_err());
        let packed = gzipped(&[b'a'; 100_000]);
        let read = |bytes: &[u8], most: u64| {
            Input::of(bytes, most).and_then(|input| input.reader().read_to_end(&mut Vec::new()))
        };
        assert_eq!(read(&packed, 100_000).unwrap(), 100_000);
        assert_eq!(read(&packed, 99_999).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(read(&packed[..packed.len() - 9], 1 << 20).is_err());
    }
}
