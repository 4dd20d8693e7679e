//! Settings of a site about the codings that Larder gives to its responses (docs/compression.md).

use super::Site;
use larder_cache::policy::{Coding, Offer};
use larder_rules::media_type::{is_compressed, is_media_type};
use std::sync::Arc;

/// The codings of a site's responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compression {
    /// The codings that are offered; none: responses stay as they are.
    pub offer: Offer,
    /// The level of each coding, by its place in [`Coding::ALL`].
    levels: [u8; Coding::ALL.len()],
    /// Media types of the responses that are coded, in lower case; `text/*` is all of text but events.
    pub types: Vec<Box<str>>,
    /// A shorter body stays as it is.
    pub bytes_min: u64,
}

/// The levels that are taken if none is given: higher ones make text hardly shorter (decision 109).
const LEVELS: [u8; Coding::ALL.len()] = [6, 5, 6];
/// The highest levels. Brotli and zstd have higher ones, which take tens of megabytes for each body, and seconds for a long one.
const LEVELS_MAX: [u8; Coding::ALL.len()] = [9, 7, 9];

/// Types whose bodies become shorter. Those of images but SVG, of video, of archives and of web fonts are coded already.
const TYPES: [&str; 17] = [
    "text/*",
    "application/atom+xml",
    "application/geo+json",
    "application/javascript",
    "application/json",
    "application/ld+json",
    "application/manifest+json",
    "application/rss+xml",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/x-javascript",
    "application/xhtml+xml",
    "application/xml",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/svg+xml",
];

impl Default for Compression {
    fn default() -> Compression {
        Compression { offer: Offer::default(), levels: LEVELS, types: TYPES.map(Box::from).to_vec(), bytes_min: 1_000 }
    }
}

impl Compression {
    /// The level of a coding.
    pub fn level(&self, coding: Coding) -> u8 {
        self.levels[coding as usize]
    }

    /// Whether responses of this media type are coded. Events are not: each has to arrive when it is sent.
    pub fn is_for_type(&self, content_type: Option<&[u8]>) -> bool {
        let Some(value) = content_type else { return false };
        let end = value.iter().position(|&byte| byte == b';').unwrap_or(value.len());
        let media_type = value[..end].trim_ascii();
        if media_type.eq_ignore_ascii_case(b"text/event-stream") {
            return false;
        }
        self.types.iter().any(|wanted| match wanted.strip_suffix('*') {
            Some(start) => {
                media_type.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start.as_bytes()))
            }
            None => media_type.eq_ignore_ascii_case(wanted.as_bytes()),
        })
    }

    /// Offers a coding, as `br` or `br:5` names it; false where the text is none, or the coding is offered already.
    pub(super) fn push(&mut self, text: &str) -> bool {
        let (name, level) = match text.split_once(':') {
            None => (text, None),
            Some((name, level)) => (name, Some(level)),
        };
        let coding = Coding::ALL.into_iter().find(|coding| coding.as_str() == name);
        let Some(coding) = coding else { return false };
        let level = match level {
            None => LEVELS[coding as usize],
            Some(level) => match level.parse() {
                Ok(level) if (1..=LEVELS_MAX[coding as usize]).contains(&level) => level,
                _ => return false,
            },
        };
        self.levels[coding as usize] = level;
        self.offer.push(coding)
    }

    /// The codings as the settings say them.
    pub(super) fn shown(&self) -> Vec<String> {
        let shown = |coding: Coding| match self.level(coding) {
            level if level == LEVELS[coding as usize] => coding.as_str().to_owned(),
            level => format!("{}:{level}", coding.as_str()),
        };
        self.offer.iter().map(shown).collect()
    }

    /// Takes one more media type; false for a text that is none, and for types whose bodies are compressed already.
    pub(super) fn push_type(&mut self, text: &str) -> bool {
        let text = text.to_ascii_lowercase();
        self.types.push(text.as_str().into());
        is_media_type(&text) && !is_compressed(&text)
    }
}

impl Site {
    /// The codings of its responses, where they get any.
    pub fn compression(&self) -> Option<Arc<Compression>> {
        (!self.compression.offer.is_empty()).then(|| Arc::clone(&self.compression))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_have_names_and_levels() {
        let mut compression = Compression::default();
        for (text, is_taken) in [
            ("zstd", true),
            ("br:7", true),
            ("zstd", false),
            ("br:8", false),
            ("gzip:0", false),
            ("gzip:10", false),
            ("gzip:", false),
            ("gzip:x", false),
            ("GZIP", false),
            ("deflate", false),
            ("", false),
            ("gzip:6", true),
        ] {
            assert_eq!(compression.push(text), is_taken, "{text}");
        }
        assert_eq!(compression.shown(), ["zstd", "br:7", "gzip"]);
        assert_eq!(Coding::ALL.map(|coding| compression.level(coding)), [6, 7, 6]);
    }

    #[test]
    fn types_are_those_that_become_shorter() {
        let mut compression = Compression::default();
        for (text, is_taken) in [
            ("text/html", true),
            ("Text/*", true),
            ("application/json", true),
            ("image/svg+xml", true),
            ("*/*", false),
            ("application/*", false),
            ("image/png", false),
            ("video/mp4", false),
            ("application/zip", false),
            ("font/woff2", false),
            ("html", false),
            ("text/", false),
            ("text/a b", false),
        ] {
            assert_eq!(compression.push_type(text), is_taken, "{text}");
        }
        let compression = Compression::default();
        for (value, is_meant) in [
            ("text/html", true),
            ("TEXT/HTML ; charset=utf-8", true),
            ("text/event-stream", false),
            ("text/event-stream; charset=utf-8", false),
            ("application/json", true),
            ("application/jsonx", false),
            ("application/octet-stream", false),
            ("image/png", false),
            ("", false),
        ] {
            assert_eq!(compression.is_for_type(Some(value.as_bytes())), is_meant, "{value}");
        }
        assert!(!compression.is_for_type(None));
    }
}
