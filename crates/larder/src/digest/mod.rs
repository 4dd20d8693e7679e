//! Digests that a body must have: where they are named, and the check of a body against them (decision 042).
//!
//! Nothing here knows of a fetch or of the store: `fetch::checked` holds bodies against an [`ExpectedDigest`] on their way in.

mod named;

pub use named::{in_url, is_plain, of_response};

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA384, SHA512};
use std::fmt;

/// A hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// SHA-1. It finds damage, not malice.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// The word that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            Algorithm::Sha1 => "sha-1",
            Algorithm::Sha256 => "sha-256",
            Algorithm::Sha384 => "sha-384",
            Algorithm::Sha512 => "sha-512",
        }
    }

    fn function(self) -> &'static aws_lc_rs::digest::Algorithm {
        match self {
            Algorithm::Sha1 => &SHA1_FOR_LEGACY_USE_ONLY,
            Algorithm::Sha256 => &SHA256,
            Algorithm::Sha384 => &SHA384,
            Algorithm::Sha512 => &SHA512,
        }
    }

    /// Bytes of a digest.
    pub fn bytes(self) -> usize {
        self.function().output_len()
    }
}

/// Where a digest is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestSource {
    /// The URL.
    Url,
    /// `Content-Digest` (RFC 9530).
    ContentDigest,
    /// `Repr-Digest` (RFC 9530).
    ReprDigest,
    /// `Docker-Content-Digest` of the OCI distribution specification.
    DockerContentDigest,
    /// An index of packages that the client got from here.
    Index,
    /// The URL whose redirection sent the client on to this one.
    Redirection,
    /// The pack of git that the body holds.
    Pack,
}

impl DigestSource {
    /// The phrase that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            DigestSource::Url => "the URL",
            DigestSource::ContentDigest => "Content-Digest",
            DigestSource::ReprDigest => "Repr-Digest",
            DigestSource::DockerContentDigest => "Docker-Content-Digest",
            DigestSource::Index => "the index",
            DigestSource::Redirection => "the URL that led here",
            DigestSource::Pack => "its pack",
        }
    }

    /// Whether one client heard of the digest, and others may not have.
    pub fn is_of_one_client(self) -> bool {
        matches!(self, DigestSource::Index | DigestSource::Redirection)
    }
}

/// A digest that a body must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedDigest {
    algorithm: Algorithm,
    bytes: Box<[u8]>,
    source: DigestSource,
}

/// The algorithm and the digest in hexadecimal.
impl fmt::Display for ExpectedDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.algorithm.as_str(), Hex(&self.bytes))
    }
}

impl ExpectedDigest {
    /// A digest of the length that the algorithm's have; `None` for another length.
    pub fn new(algorithm: Algorithm, bytes: impl Into<Box<[u8]>>, source: DigestSource) -> Option<ExpectedDigest> {
        let bytes = bytes.into();
        (bytes.len() == algorithm.bytes()).then_some(ExpectedDigest { algorithm, bytes, source })
    }

    /// A digest in hexadecimal.
    pub fn of_hex(algorithm: Algorithm, hex: &[u8], source: DigestSource) -> Option<ExpectedDigest> {
        (hex.len() == 2 * algorithm.bytes()).then_some(())?;
        let nibble = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        let bytes = hex.chunks_exact(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?));
        ExpectedDigest::new(algorithm, bytes.collect::<Option<Vec<u8>>>()?, source)
    }

    /// The same digest, as it is named for a URL to which a redirection led.
    pub fn behind_redirection(self) -> ExpectedDigest {
        let source = if self.source == DigestSource::Url { DigestSource::Redirection } else { self.source };
        ExpectedDigest { source, ..self }
    }

    /// Where it is named.
    pub fn source(&self) -> DigestSource {
        self.source
    }
}

/// The hashes of a body that must have certain digests, as far as the body is here.
pub struct BodyHash {
    running: Vec<(Context, ExpectedDigest)>,
}

impl BodyHash {
    /// Begins; `None` where nothing is expected. A digest that several sources name is computed once.
    pub fn of(expected: impl IntoIterator<Item = ExpectedDigest>) -> Option<BodyHash> {
        let mut running: Vec<(Context, ExpectedDigest)> = Vec::new();
        for digest in expected {
            let same = |known: &ExpectedDigest| known.algorithm == digest.algorithm && known.bytes == digest.bytes;
            if !running.iter().any(|(_, known)| same(known)) {
                running.push((Context::new(digest.algorithm.function()), digest));
            }
        }
        (!running.is_empty()).then_some(BodyHash { running })
    }

    /// The same expectations, of a body that is read from its start again.
    pub fn anew(&self) -> BodyHash {
        let running = self.running.iter();
        BodyHash {
            running: running.map(|(_, digest)| (Context::new(digest.algorithm.function()), digest.clone())).collect(),
        }
    }

    /// Takes the next bytes of the body.
    pub fn update(&mut self, bytes: &[u8]) {
        self.running.iter_mut().for_each(|(context, _)| context.update(bytes));
    }

    /// The body is over: the source that named its digest, or the first digest that is another one.
    pub fn finish(self) -> Result<DigestSource, Mismatch> {
        let mut named = DigestSource::Url;
        for (at, (context, expected)) in self.running.into_iter().enumerate() {
            let found = context.finish();
            if found.as_ref() != &*expected.bytes {
                return Err(Mismatch { found: found.as_ref().into(), expected });
            }
            if at == 0 {
                named = expected.source;
            }
        }
        Ok(named)
    }
}

/// A body whose digest is not the one that was named.
#[derive(Debug)]
pub struct Mismatch {
    found: Box<[u8]>,
    expected: ExpectedDigest,
}

impl Mismatch {
    /// Where the digest is named that the body has not.
    pub fn named_by(&self) -> DigestSource {
        self.expected.source
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, named_by) = (self.expected.algorithm.as_str(), self.named_by().as_str());
        write!(f, "the {word} of the body is {}, {named_by} names {}", Hex(&self.found), Hex(&self.expected.bytes))
    }
}

/// Bytes as hexadecimal digits.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn expected(hex: &str) -> ExpectedDigest {
        ExpectedDigest::of_hex(Algorithm::Sha256, hex.as_bytes(), DigestSource::Url).unwrap()
    }

    #[test]
    fn a_body_in_pieces_has_the_digest_of_the_whole() {
        let mut hash = BodyHash::of([expected(ABC)]).unwrap();
        hash.update(b"a");
        let mut again = hash.anew();
        hash.update(b"bc");
        assert_eq!(hash.finish().unwrap(), DigestSource::Url);
        again.update(b"abd");
        let mismatch = again.finish().unwrap_err().to_string();
        assert!(mismatch.contains(ABC) && mismatch.contains("the URL names"), "{mismatch}");
    }

    #[test]
    fn all_that_is_named_must_hold() {
        let sha1 =
            |hex: &str| ExpectedDigest::of_hex(Algorithm::Sha1, hex.as_bytes(), DigestSource::ReprDigest).unwrap();
        let right = "a9993e364706816aba3e25717850c26c9cd0d89d";
        for (second, holds) in [(right, true), ("a9993e364706816aba3e25717850c26c9cd0d89e", false)] {
            let mut hash = BodyHash::of([expected(ABC), expected(ABC), sha1(second)]).unwrap();
            assert_eq!(hash.running.len(), 2);
            hash.update(b"abc");
            assert_eq!(hash.finish().is_ok(), holds, "{second}");
        }
    }

    #[test]
    fn what_is_no_digest_is_none() {
        let of = |hex: &str| ExpectedDigest::of_hex(Algorithm::Sha256, hex.as_bytes(), DigestSource::Url);
        assert!(of(&ABC.to_uppercase()).is_some());
        assert!(of(&ABC[1..]).is_none());
        assert!(of(&ABC.replace('f', "g")).is_none());
        assert!(of(&ABC.replace("ba", "é")).is_none());
        assert!(BodyHash::of([]).is_none());
    }
}
