//! What `larder run` says at its end, read back.

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
    /// Reads `larder: 12 requests, 9 hits (75 %), 1.23 MB from the store, 999 B fetched, 2.5 s`.
    pub fn read(said: &str) -> Option<Saved> {
        let lines: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("larder: ")).collect();
        let line = lines.iter().find(|line| line.contains(" from the store, "))?;
        let mut saved = Saved::default();
        for part in line.split(", ") {
            let value = part.split(' ').next()?;
            match () {
                () if part.ends_with(" requests") => saved.requests = value.parse().ok()?,
                () if part.contains(" hits (") => saved.hits = value.parse().ok()?,
                () if part.ends_with(" from the store") => saved.bytes_from_store = bytes(part)?,
                () if part.ends_with(" fetched") => saved.bytes_fetched = bytes(part)?,
                () => {}
            }
        }
        saved.misses = lines.iter().find_map(|line| line.strip_prefix("misses: ")).map(str::to_owned);
        Some(saved)
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
        let said = "noise\nlarder: 12 requests, 9 hits (75 %), 1.23 MB from the store, 999 B fetched, 2.5 s\n\
                    larder: misses: 2 first, 1 no-store\n";
        let saved = Saved::read(said).unwrap();
        assert_eq!((saved.requests, saved.hits), (12, 9));
        assert_eq!((saved.bytes_from_store, saved.bytes_fetched), (1_230_000.0, 999.0));
        assert_eq!(saved.misses.as_deref(), Some("2 first, 1 no-store"));
        assert!(saved.share_from_store() > 0.999);
        assert_eq!(Saved::read("larder: no request came\n"), None);
        assert_eq!(Saved::default().share_from_store(), 0.0);
    }
}
