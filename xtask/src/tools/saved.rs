//! The summary that `larder run` prints at its end, read back.

use std::fmt;

/// The summary of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saved {
    /// Requests answered, and those of them from the store.
    pub requests: u64,
    hits: u64,
    bytes_from_store: f64,
    bytes_fetched: f64,
    /// The reasons of misses, as printed.
    pub misses: Option<String>,
}

impl Saved {
    /// Reads `larder: 1.23 MB came from the store (99 % of all bytes), 999 B from origins, in 2.5 s`, the line
    /// `larder: 9 of 12 requests answered from the store` behind it, and the reasons after that.
    pub fn read(said: &str) -> Option<Saved> {
        let lines = said.lines().filter_map(|line| line.strip_prefix("larder: "));
        let mut lines = lines.skip_while(|line| !line.contains(" came from the store"));
        let (bytes_line, requests_line) = (lines.next()?, lines.next()?);
        let from_origins = bytes_line.split(", ").find(|part| part.ends_with(" from origins"))?;
        let (hits, rest) = requests_line.split_once(" of ")?;
        let misses: Vec<&str> = lines.collect();
        Some(Saved {
            requests: rest.split(' ').next()?.parse().ok()?,
            hits: hits.parse().ok()?,
            bytes_from_store: bytes(bytes_line)?,
            bytes_fetched: bytes(from_origins)?,
            misses: (!misses.is_empty()).then(|| misses.join("; ")),
        })
    }

    /// Of all bytes that came from the store or were fetched; nothing at all is nothing from the store.
    pub fn share_from_store(&self) -> f64 {
        let all = self.bytes_from_store + self.bytes_fetched;
        if all > 0.0 { self.bytes_from_store / all } else { 0.0 }
    }
}

impl fmt::Display for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.share_from_store() * 100.0;
        write!(f, "{} requests, {} hits, {percent:.1} % of bytes from the store", self.requests, self.hits)
    }
}

/// `1.23 MB …`
fn bytes(text: &str) -> Option<f64> {
    let mut words = text.split(' ');
    let value: f64 = words.next()?.parse().ok()?;
    let factor = match words.next()? {
        "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        _ => return None,
    };
    Some(value * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read() {
        let said = "noise\nlarder: 1.23 MB came from the store (over 99 % of all bytes), 999 B from origins, in 2.5 s\n\
                    larder: 9 of 12 requests answered from the store\n\
                    larder: 2 requests: asked for the first time\nlarder: 1 request: could not be kept\n";
        let saved = Saved::read(said).unwrap();
        assert_eq!((saved.requests, saved.hits), (12, 9));
        assert_eq!((saved.bytes_from_store, saved.bytes_fetched), (1_230_000.0, 999.0));
        assert_eq!(saved.misses.as_deref(), Some("2 requests: asked for the first time; 1 request: could not be kept"));
        assert!(saved.share_from_store() > 0.999);
        assert_eq!(Saved::read("larder: no request came\n"), None);
        assert_eq!(Saved::default().share_from_store(), 0.0);
    }
}
