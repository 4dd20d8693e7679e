//! Reading of foreign files in bounded memory.

use std::io::{self, BufRead, Read};
use std::path::Path;

/// The text of a file that people write by hand. A longer one is refused: it must be some other file.
pub fn text_of(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    if std::fs::File::open(path)?.take(bytes_max + 1).read_to_string(&mut text)? as u64 > bytes_max {
        let too_long = format!("it is longer than {bytes_max} bytes: is it the right file?");
        return Err(io::Error::new(io::ErrorKind::InvalidData, too_long));
    }
    Ok(text)
}

/// The result of reading the next line of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextLine {
    /// One that was read, with so many bytes of the file.
    Read(u64),
    /// A line that is longer than the limit; its beginning was read, and the rest skipped.
    TooLong(u64),
    /// The file has ended.
    End,
}

/// Reads the next line, without its end, in place of what `line` held. It never holds more than `bytes_max` bytes and the end
/// of a line.
pub fn next_line(from: &mut dyn BufRead, bytes_max: usize, line: &mut Vec<u8>) -> io::Result<NextLine> {
    line.clear();
    // One byte more, for the end of the line.
    let mut bytes = Read::take(&mut *from, bytes_max as u64 + 1).read_until(b'\n', line)? as u64;
    if bytes == 0 {
        return Ok(NextLine::End);
    }
    let is_too_long = line.len() > bytes_max && line.last() != Some(&b'\n');
    if is_too_long {
        line.truncate(bytes_max);
        bytes += from.skip_until(b'\n')? as u64;
    } else if line.last() == Some(&b'\n') {
        line.pop();
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(if is_too_long { NextLine::TooLong(bytes) } else { NextLine::Read(bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    #[test]
    fn a_file_that_is_too_long_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "12345").unwrap();
        assert_eq!(text_of(file.path(), 5).unwrap(), "12345");
        assert!(text_of(file.path(), 4).unwrap_err().to_string().contains("longer than 4 bytes"));
        assert!(text_of(Path::new("/dev/zero"), 1_000_000).is_err(), "it never ends");
    }

    #[test]
    fn a_line_of_any_length_takes_bounded_memory() {
        let text = b"one\r\n\nthree is too long\nlast";
        for capacity in [1, 2, 5, 100] {
            let mut from = BufReader::with_capacity(capacity, &text[..]);
            let mut line = Vec::new();
            let mut next = || (next_line(&mut from, 8, &mut line).unwrap(), String::from_utf8(line.clone()).unwrap());
            assert_eq!(next(), (NextLine::Read(5), "one".to_owned()));
            assert_eq!(next(), (NextLine::Read(1), String::new()));
            assert_eq!(next(), (NextLine::TooLong(18), "three is".to_owned()));
            assert_eq!(next(), (NextLine::Read(4), "last".to_owned()));
            assert_eq!(next().0, NextLine::End);
        }
        let mut endless = BufReader::new(Read::take(io::repeat(b'a'), 200_000_000));
        let mut line = Vec::new();
        assert_eq!(next_line(&mut endless, 1_000, &mut line).unwrap(), NextLine::TooLong(200_000_000));
        assert!(line.capacity() <= 2_000);
    }
}
