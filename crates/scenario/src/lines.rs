//! The lines of a script with their numbers and indentation, and what may be wrong with one.

use std::time::Duration;

/// A line with its number, without its indentation.
#[derive(Debug, Clone, Copy)]
pub struct Numbered<'a> {
    pub number: usize,
    pub indent: usize,
    pub text: &'a str,
}

/// An error and the line it is about.
pub type Wrong = (usize, String);

/// The lines that are neither empty nor a comment.
pub fn numbered(source: &str) -> Result<Vec<Numbered<'_>>, Wrong> {
    let mut lines = Vec::new();
    for (i, line) in source.lines().enumerate() {
        let text = line.trim_start_matches(' ');
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        if text.starts_with('\t') {
            return Err((i + 1, "a tab at the start of a line: indent with spaces".into()));
        }
        let indent = line.len() - text.len();
        if !matches!(indent, 0 | 2 | 4) {
            return Err((i + 1, format!("{indent} spaces of indentation: steps have 2, details of a step 4")));
        }
        lines.push(Numbered { number: i + 1, indent, text });
    }
    Ok(lines)
}

/// A time as scripts write it: `50ms`, `2s`.
pub fn duration(word: &str) -> Result<Duration, String> {
    let parsed = match (word.strip_suffix("ms"), word.strip_suffix('s')) {
        (Some(n), _) => n.parse().ok().map(Duration::from_millis),
        (_, Some(n)) => n.parse().ok().map(Duration::from_secs),
        _ => None,
    };
    parsed
        .filter(|d| *d <= Duration::from_secs(60))
        .ok_or(format!("`{word}` is no time: write `50ms` or `2s`, at most `60s`"))
}
