//! Variables in the texts of a case: its own URL, and dates relative to its start.

use crate::model::Spelling;
use std::time::{SystemTime, UNIX_EPOCH};

/// The host that all requests name.
pub const HOST: &str = "conformance.test";

/// Whether a case is played for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// With all others.
    First,
    /// By itself, because the cache had lost its connections.
    Second,
}

/// The values of one case's variables.
#[derive(Clone, Debug)]
pub struct Variables {
    path: String,
    started_at: i64,
}

impl Variables {
    /// Those of a case that begins now.
    pub fn begin(id: &str, attempt: Attempt) -> Variables {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        let mut path = format!("/{id}");
        // Another path of the same length, for raw requests may tell lengths.
        if attempt == Attempt::Second {
            path.make_ascii_uppercase();
        }
        Variables { path, started_at: now }
    }

    /// The path of the case, which no other case uses.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Puts values in place of variables: `$path`, `$host`, `$url`, `$date(SECONDS)`, `$rfc850(…)`, `$asctime(…)`, and
    /// `$fill(COUNT)` for so many letters.
    pub fn fill(&self, text: &str) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            filled.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            rest = self.fill_one(rest, &mut filled);
        }
        filled + rest
    }

    fn fill_one<'a>(&self, rest: &'a str, filled: &mut String) -> &'a str {
        let plain =
            [("path", self.path.clone()), ("host", HOST.to_owned()), ("url", format!("http://{HOST}{}", self.path))];
        for (name, value) in plain {
            if let Some(rest) = rest.strip_prefix(name) {
                filled.push_str(&value);
                return rest;
            }
        }
        for (name, spelling) in DATES {
            if let Some((seconds, rest)) = argument(rest, name) {
                filled.push_str(&spelling.write(self.started_at + seconds));
                return rest;
            }
        }
        if let Some((count, rest)) = argument(rest, "fill") {
            filled.push_str(&"a".repeat(usize::try_from(count).unwrap_or(0).min(FILL_MAX)));
            return rest;
        }
        filled.push('$');
        rest
    }
}

/// `name(5)…` gives 5 and what stands behind it.
fn argument<'a>(text: &'a str, name: &str) -> Option<(i64, &'a str)> {
    let (number, rest) = text.strip_prefix(name)?.strip_prefix('(')?.split_once(')')?;
    Some((number.parse().ok()?, rest))
}

const FILL_MAX: usize = 1 << 20;
const DATES: [(&str, Spelling); 3] =
    [("date", Spelling::Imf), ("rfc850", Spelling::Rfc850), ("asctime", Spelling::Asctime)];

/// The date of this moment, as an origin writes it.
pub fn date_now() -> String {
    Variables::begin("", Attempt::First).fill("$date(0)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_and_other_dollars_stay() {
        let variables = Variables { path: "/a".to_owned(), started_at: 784_111_777 };
        assert_eq!(variables.fill("GET $path?x HTTP/1.1"), "GET /a?x HTTP/1.1");
        assert_eq!(
            variables.fill("$date(-1)|$url/b|$host"),
            "Sun, 06 Nov 1994 08:49:36 GMT|http://conformance.test/a/b|conformance.test"
        );
        assert_eq!(variables.fill("$rfc850(0) $asctime(1)"), "Sunday, 06-Nov-94 08:49:37 GMT Sun Nov  6 08:49:38 1994");
        assert_eq!(variables.fill("$fill(3)!"), "aaa!");
        assert_eq!(variables.fill("5$ $date(x) $"), "5$ $date(x) $");
    }
}
