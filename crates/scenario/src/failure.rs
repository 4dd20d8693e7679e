//! Errors of a play: in a script's text ([`ScriptError`]), or in a proxy's behaviour ([`Failure`], which
//! carries the whole conversation).

use std::fmt;

/// A script that can't be read: where and why.
#[derive(Debug)]
pub struct ScriptError {
    /// The file, as it was named by the caller.
    pub path: String,
    /// The line, from 1; 0 when the file as a whole is meant.
    pub line: usize,
    /// The fault, and how the line should be.
    pub what: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

impl std::error::Error for ScriptError {}

/// A script that did not go as written: the step, what was expected, what came, and everything that was said.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The script's file.
    pub path: String,
    /// The line of the step that failed.
    pub line: usize,
    /// The party that failed: `client c1`, `origin s1`.
    pub party: String,
    /// The step as written.
    pub step: String,
    /// The expected and the actual value.
    pub what: String,
    /// The conversation so far, for people.
    pub transcript: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}: {}: {}", self.path, self.line, self.party, self.step)?;
        for line in self.what.lines() {
            writeln!(f, "    {line}")?;
        }
        writeln!(f, "  conversation:")?;
        for line in self.transcript.lines() {
            writeln!(f, "    {line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Bytes as a person can read them: printable text stays, the rest is escaped, long ones are cut in the middle.
pub fn readable(bytes: &[u8], limit_bytes: usize) -> String {
    if bytes.len() > limit_bytes {
        let half = limit_bytes / 2;
        let (start, end) = (&bytes[..half], &bytes[bytes.len() - half..]);
        let left_out = bytes.len() - 2 * half;
        return format!("{}… {left_out} bytes more …{}", readable(start, half), readable(end, half));
    }
    let mut out = String::with_capacity(bytes.len());
    for &b in bytes {
        match b {
            b'\r' => out.push_str("\\r"),
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            0x20..=0x7e => out.push(char::from(b)),
            _ => out.push_str(&format!("\\x{b:02x}")),
        }
    }
    out
}
