//! The digests that were found in an index so far.

use super::{IndexContent, hash_of};
use crate::base64;
use crate::digest::{Algorithm, DigestSource, ExpectedDigest};
use larder_wire::{Url, target};
use std::hash::RandomState;
use std::io;

/// Digests that are kept of one index. The largest that is known, of a distribution for one architecture, names 70,000.
pub(super) const DIGESTS_MAX: usize = 100_000;

/// Why nothing is known of what an index says.
#[derive(Debug)]
pub enum Unread {
    /// It has a coding that is not read.
    Coding,
    /// It is not written as its format has it.
    Malformed(String),
    /// It names too many files.
    TooMany,
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Unread {
        Unread::Malformed(error.to_string())
    }
}

impl From<serde_json::Error> for Unread {
    fn from(error: serde_json::Error) -> Unread {
        Unread::Malformed(error.to_string())
    }
}

pub(super) struct Found<'a> {
    url: &'a Url,
    hasher: &'a RandomState,
    pub(super) content: IndexContent,
}

impl<'a> Found<'a> {
    pub(super) fn new(url: &'a Url, hasher: &'a RandomState) -> Found<'a> {
        Found { url, hasher, content: IndexContent::default() }
    }

    /// The URL of the index.
    pub(super) fn url(&self) -> &'a Url {
        self.url
    }

    /// Takes the digest of the file that a link of the index leads to. A link or digest that is none is passed over.
    pub(super) fn file(&mut self, link: &str, digest: Option<ExpectedDigest>) -> Result<(), Unread> {
        let (Some(url), Some(digest)) = (target::resolve(self.url, link), digest) else { return Ok(()) };
        self.content.digests.insert(hash_of(self.hasher, &url), digest);
        if self.content.digests.len() > DIGESTS_MAX { Err(Unread::TooMany) } else { Ok(()) }
    }

    /// Takes the place of the files.
    pub(super) fn template(&mut self, template: &str) {
        self.content.template = Some(template.into());
    }
}

/// A digest of SHA-256, SHA-384 or SHA-512 by its name in indexes.
pub(super) fn by_name(name: &str, hex: &str) -> Option<ExpectedDigest> {
    let algorithm = match name {
        "sha256" => Algorithm::Sha256,
        "sha384" => Algorithm::Sha384,
        "sha512" => Algorithm::Sha512,
        _ => return None,
    };
    ExpectedDigest::of_hex(algorithm, hex.as_bytes(), DigestSource::Index)
}

/// The strongest digest of a list as `integrity` has it (W3C Subresource Integrity).
pub(super) fn by_integrity(list: &str) -> Option<ExpectedDigest> {
    [("sha512-", Algorithm::Sha512), ("sha384-", Algorithm::Sha384), ("sha256-", Algorithm::Sha256)].iter().find_map(
        |(start, algorithm)| {
            let text = list.split_ascii_whitespace().find_map(|member| member.strip_prefix(start))?;
            let text = text.split('?').next().unwrap_or_default();
            ExpectedDigest::new(*algorithm, base64::decode(text)?, DigestSource::Index)
        },
    )
}
