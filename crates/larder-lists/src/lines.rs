//! Lines of a source, in bounded memory.

use std::io::{self, BufRead, Read};

/// A longer line is no entry.
pub const LINE_BYTES_MAX: usize = 8 << 10;

/// A line of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It was read.
    Line,
    /// It is longer than [`LINE_BYTES_MAX`]; its beginning was read, and the rest skipped.
    TooLong,
    /// There is none.
    End,
}

/// Reads the next line, without its end, in place of what `line` held.
pub fn next(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Next> {
    line.clear();
    // One byte more, for the end of the line.
    if from.by_ref().take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', line)? == 0 {
        return Ok(Next::End);
    }
    let mut next = Next::Line;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() > LINE_BYTES_MAX {
        line.truncate(LINE_BYTES_MAX);
        from.skip_until(b'\n')?;
        next = Next::TooLong;
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    #[test]
    fn lines_of_any_length() {
        let long = "x".repeat(LINE_BYTES_MAX + 1);
        let text = format!("one\r\n\n{long}\nlast");
        for capacity in [1, 7, 100_000] {
            let mut from = BufReader::with_capacity(capacity, text.as_bytes());
            let mut line = Vec::new();
            let mut read = || (next(&mut from, &mut line).unwrap(), line.len());
            assert_eq!(
                [read(), read(), read(), read(), read()],
                [(Next::Line, 3), (Next::Line, 0), (Next::TooLong, LINE_BYTES_MAX), (Next::Line, 4), (Next::End, 0)]
            );
        }
        let mut endless = BufReader::new(io::repeat(b'a').take(10_000_000));
        let mut line = Vec::new();
        assert_eq!(next(&mut endless, &mut line).unwrap(), Next::TooLong);
        assert!(line.capacity() <= 4 * LINE_BYTES_MAX);
    }
}
