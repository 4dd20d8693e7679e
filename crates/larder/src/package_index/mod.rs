//! Indexes of packages that clients got from here, and the digests of files that they name (decision 050).
//!
//! An index says of files, at its own host and at others, which digests they have. Whom it tells that is the client that asked for it: so a digest
//! counts for that client alone, and an index can do no harm to others, whatever it says of their files. Nothing here knows of a fetch or of the
//! store: `exchange::learn` reads indexes, and `fetch::checked` holds files against what they name.

mod apt;
mod cargo;
mod decode;
mod found;
mod json;
mod npm;
mod python;
mod table;

pub use found::Unread;
pub use table::{IndexDigests, IndexId, Learning};

use crate::digest::ExpectedDigest;
use bytes::Bytes;
use found::Found;
use larder_wire::Url;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::time::Duration;

/// A longer index is not read. The longest that is known, of a distribution for one architecture, has 10 MB.
pub const INDEX_BYTES_MAX: usize = 32 * 1024 * 1024;

/// How an index is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexFormat {
    /// The simple API of Python indexes, HTML or JSON.
    Python,
    /// The description of a package for npm and its like.
    Npm,
    /// The sparse index of cargo, and its `config.json`.
    Cargo,
    /// `InRelease`, `Release` and `Packages` of archives as apt reads them.
    Apt,
}

impl IndexFormat {
    /// All of them.
    pub const ALL: [IndexFormat; 4] = [IndexFormat::Python, IndexFormat::Npm, IndexFormat::Cargo, IndexFormat::Apt];

    /// The word for it in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            IndexFormat::Python => "python",
            IndexFormat::Npm => "npm",
            IndexFormat::Cargo => "cargo",
            IndexFormat::Apt => "apt",
        }
    }

    /// The format of this name.
    pub fn parse(name: &str) -> Option<IndexFormat> {
        IndexFormat::ALL.into_iter().find(|format| format.as_str() == name)
    }

    /// Whether the URL is that of an index: for a protocol that sends the same fields with requests for other things.
    pub fn is_index(self, url: &Url) -> bool {
        self != IndexFormat::Apt || apt::kind(&url.path).is_some()
    }

    /// Whether an index at one URL may name a file at another one. `Packages` names no other indexes, and is the one that takes long to read.
    fn may_name(self, index: &Url, file: &Url) -> bool {
        let is_of_packages = self == IndexFormat::Apt && apt::kind(&index.path) == Some(apt::Kind::Packages);
        !(is_of_packages && file.path.contains("/dists/"))
    }

    /// How long its digests count after a client got it. Files are called by a version, and stay what they are; `Release` speaks of files that
    /// change under their names, in the moment in which they belong together.
    fn age_max(self, url: &Url) -> Duration {
        match self == IndexFormat::Apt && apt::kind(&url.path) == Some(apt::Kind::Release) {
            true => Duration::from_secs(60),
            false => Duration::from_secs(15 * 60),
        }
    }
}

impl fmt::Display for IndexFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An index as it was stored.
pub struct StoredIndex {
    /// Its format.
    pub format: IndexFormat,
    /// Its URL, to which its links are relative.
    pub url: Url,
    /// `Content-Type`.
    pub media_type: Option<Vec<u8>>,
    /// `Content-Encoding`.
    pub coding: Option<Vec<u8>>,
    /// The body, whole.
    pub body: Vec<Bytes>,
    /// Where the files of the registry lie, for an index of cargo's that does not say it itself.
    pub template: Option<String>,
}

/// The content of an index, as far as it counts.
#[derive(Debug, Default)]
pub struct IndexContent {
    /// The digests of files, under the hashes of their URLs.
    digests: HashMap<u64, ExpectedDigest>,
    /// Where the files of the registry lie, if it is a `config.json` of cargo's.
    template: Option<Box<str>>,
}

impl StoredIndex {
    /// Reads it. It takes time and no more memory than the digests need, and is not for a thread that serves clients.
    pub fn read(self, hasher: &RandomState) -> Result<IndexContent, Unread> {
        let StoredIndex { format, url, media_type, coding, body, template } = self;
        let body = decode::without_coding(body, coding.as_deref())?;
        let mut found = Found::new(&url, hasher);
        match format {
            IndexFormat::Python => python::read(body, media_type.as_deref(), &mut found)?,
            IndexFormat::Npm => npm::read(body, &mut found)?,
            IndexFormat::Cargo => cargo::read(body, template.as_deref(), &mut found)?,
            IndexFormat::Apt => apt::read(decode::unpacked(body)?, &mut found)?,
        }
        Ok(found.content)
    }
}

/// The URL of the `config.json` that says where the files lie of which this URL of an index speaks; none for other formats.
pub fn config_url(format: IndexFormat, url: &Url) -> Option<Url> {
    (format == IndexFormat::Cargo).then(|| cargo::config_url(url)).flatten()
}

/// The hash of a URL. Two signs that have no meaning in a path are escaped by apt, and by others not: both forms have one hash.
fn hash_of(hasher: &RandomState, url: &Url) -> u64 {
    let mut text = url.to_string();
    for (escaped, sign) in [("%2b", "+"), ("%2B", "+"), ("%7e", "~"), ("%7E", "~")] {
        if text.contains(escaped) {
            text = text.replace(escaped, sign);
        }
    }
    hasher.hash_one(text)
}

type Body = Box<dyn Read>;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    /// The digests that an index names, by the beginning of their hexadecimal form, for these URLs.
    pub(super) fn named(format: IndexFormat, url: &str, media_type: &str, body: &[u8], of: &[&str]) -> Vec<String> {
        named_by(stored(format, url, media_type, body), of).unwrap()
    }

    pub(super) fn stored(format: IndexFormat, url: &str, media_type: &str, body: &[u8]) -> StoredIndex {
        StoredIndex {
            format,
            url: Url::parse(url).unwrap(),
            media_type: Some(media_type.into()),
            coding: None,
            body: body.chunks(7).map(Bytes::copy_from_slice).collect(),
            template: None,
        }
    }

    pub(super) fn named_by(index: StoredIndex, of: &[&str]) -> Result<Vec<String>, Unread> {
        let hasher = RandomState::new();
        let content = index.read(&hasher)?;
        let digest = |url: &&str| content.digests.get(&hash_of(&hasher, &Url::parse(url).unwrap()));
        let words = |digest: Option<&ExpectedDigest>| {
            digest.map_or("none".to_owned(), |digest| digest.to_string().chars().take(11).collect())
        };
        Ok(of.iter().map(|url| words(digest(url))).collect())
    }

    #[test]
    fn formats_have_names() {
        for format in IndexFormat::ALL {
            assert_eq!(IndexFormat::parse(format.as_str()), Some(format));
        }
        assert_eq!(IndexFormat::parse("pip"), None);
    }

    #[test]
    fn a_coded_index_is_read_and_one_that_grows_too_far_is_not() {
        let page = format!("<a href=\"/a.whl#sha256={}\">a</a>", "ab".repeat(32));
        let gzip = |content: &[u8]| {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            out.write_all(content).unwrap();
            out.finish().unwrap()
        };
        let coded = |body: Vec<u8>, coding: &str| StoredIndex {
            coding: Some(coding.into()),
            ..stored(IndexFormat::Python, "https://i.test/simple/a/", "text/html", &body)
        };
        let of = ["https://i.test/a.whl"];
        assert_eq!(named_by(coded(gzip(page.as_bytes()), "gzip"), &of).unwrap(), ["sha-256 aba"]);
        assert_eq!(named_by(coded(page.clone().into(), "identity"), &of).unwrap(), ["sha-256 aba"]);
        assert!(matches!(named_by(coded(page.clone().into(), "br"), &of), Err(Unread::Coding)));
        assert!(matches!(named_by(coded(page.into(), "gzip"), &of), Err(Unread::Malformed(_))));
        let bomb = gzip(&" ".repeat(16 << 20).into_bytes()).repeat(9);
        for media_type in ["text/html", "application/json"] {
            let coding = Some(b"gzip".to_vec());
            let index = stored(IndexFormat::Python, "https://i.test/simple/a/", media_type, &bomb);
            assert!(named_by(StoredIndex { coding, ..index }, &of).is_err());
        }
        let packages = stored(IndexFormat::Apt, "https://i.test/Packages.gz", "", &bomb);
        assert!(matches!(named_by(packages, &of), Err(Unread::Malformed(why)) if why == "too much content"));
    }

    /// Bytes that look a little like an index: pieces of all formats, in any order.
    fn index_like() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop::sample::select(vec![
            "<a ",
            "<A\n",
            "href",
            "=",
            "\"",
            "'",
            "#sha256=",
            "&",
            ">",
            "<",
            "<!--",
            "-->",
            "data-core-metadata",
            "{",
            "}",
            "[",
            "]",
            ":",
            ",",
            "\"files\"",
            "\"versions\"",
            "\"dist\"",
            "\"tarball\"",
            "\"url\"",
            "\"hashes\"",
            "\"name\":\"a\"",
            "\"vers\":\"1\"",
            "\"cksum\"",
            "\"dl\"",
            "https://x.test/",
            "../../",
            "Filename:",
            "SHA256:",
            "\n",
            "\n\n",
            " ",
            "sha512-",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "\u{e9}",
            "\u{1f}\u{8b}",
        ]);
        let bytes = prop_oneof![4 => piece.prop_map(|text| text.as_bytes().to_vec()), 1 => prop::collection::vec(any::<u8>(), 1..4)];
        prop::collection::vec(bytes, 0..60).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(body in index_like(), start in prop::sample::select(vec![&b""[..], b"\x1f\x8b\x08\0", b"\xfd7zXZ\0\0\x04"])) {
            let body = [start, &body].concat();
            for (format, url) in [
                (IndexFormat::Python, "https://i.test/simple/a/"),
                (IndexFormat::Npm, "https://i.test/a"),
                (IndexFormat::Cargo, "https://i.test/ab/cd/abcd"),
                (IndexFormat::Cargo, "https://i.test/config.json"),
                (IndexFormat::Apt, "https://i.test/dists/x/InRelease"),
                (IndexFormat::Apt, "https://i.test/Packages"),
            ] {
                for (media_type, coding) in [("text/html", None), ("application/json", None), ("text/html", Some(b"gzip".to_vec()))] {
                    let template = Some("https://dl.test/{prefix}/{crate}".to_owned());
                    let _ = named_by(StoredIndex { coding, template, ..stored(format, url, media_type, &body) }, &[]);
                }
            }
        }
    }
}
