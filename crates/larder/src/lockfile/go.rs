//! `go.sum`: a line for each module and version with the digest of its files, or of its `go.mod` alone.

use super::{Download, GoPart, Listed, Wrong, wrong};

pub(super) fn read(text: &str) -> Result<Listed, Wrong> {
    let mut listed = Listed::default();
    for (number, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace();
        let (Some(path), Some(version), Some(_)) = (words.next(), words.next(), words.next()) else {
            if line.trim().is_empty() {
                continue;
            }
            return Err(wrong(format_args!("line {}: a module, a version and a digest are needed", number + 1)));
        };
        let (version, part) = match version.strip_suffix("/go.mod") {
            Some(version) => (version, GoPart::Mod),
            None => (version, GoPart::Zip),
        };
        listed.add(Download::Go { path: path.to_owned(), version: version.to_owned(), part });
    }
    Ok(listed)
}

/// A path or version as the protocol of module proxies writes it: `!` before a letter that was a capital one.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii_uppercase() {
            out.push('!');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::{Download, Format, GoPart};
    use super::escaped;

    #[test]
    fn modules_and_their_descriptions() {
        let listed = Format::Go.read("a.example/x v1.0.0 h1:abc=\na.example/x v1.0.0/go.mod h1:def=\n").unwrap();
        let go = |part| Download::Go { path: "a.example/x".to_owned(), version: "v1.0.0".to_owned(), part };
        assert_eq!(listed.downloads, [go(GoPart::Zip), go(GoPart::Mod)]);
        assert!(Format::Go.read("a.example/x v1.0.0\n").is_err());
        assert_eq!(escaped("a.example/BurntSushi"), "a.example/!burnt!sushi");
    }
}
