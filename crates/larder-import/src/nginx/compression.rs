//! `gzip`, `brotli` and `zstd` of a site.

use super::serve::Scope;
use super::{Reader, bytes};
use crate::note::Fate;
use crate::value::Table;
use larder_rules::media_type::{is_compressed, is_media_type};

/// The names of a coding in directives, and in `compression` of a `[[site]]`, with its highest level; the preferred one first.
const CODINGS: [(&str, &str, u64); 3] = [("zstd", "zstd", 9), ("brotli", "br", 7), ("gzip", "gzip", 9)];

impl Reader {
    /// The codings of a site's responses, where one is on.
    pub(super) fn compression(&mut self, scope: &Scope<'_>, site: &mut Table) {
        let (mut codings, mut types, mut length, mut is_for_any_type) = (Vec::new(), Vec::new(), None, false);
        for (name, coding, level_max) in CODINGS {
            let first = |name: String| scope.find(&name).first().map(|one| (one.words.clone(), one.note));
            let Some((words, note)) = first(name.to_owned()) else { continue };
            let is_on = words.first().is_some_and(|word| word == "on");
            let text = if is_on { "only what is stored is compressed (docs/compression.md)" } else { "" };
            self.draft.fate(note, if is_on { Fate::Different } else { Fate::Translated }, text);
            if !is_on {
                continue;
            }
            let level = first(format!("{name}_comp_level")).and_then(|(words, note)| {
                let level = words.first()?.parse::<u64>().ok()?.clamp(1, level_max);
                self.draft.translated(note);
                Some(level)
            });
            codings.push(level.map_or(coding.to_owned(), |level| format!("{coding}:{level}")));
            if let Some((words, note)) = first(format!("{name}_types")) {
                let (fate, text) = match words.iter().any(|word| word == "*") {
                    true => (Fate::Different, "the types that Larder compresses where none are named"),
                    false => (Fate::Translated, "types that are compressed already are left out"),
                };
                is_for_any_type |= fate == Fate::Different;
                self.draft.fate(note, fate, text);
                let words = words.into_iter().map(|word| word.to_ascii_lowercase());
                types.extend(words.filter(|word| is_media_type(word) && !is_compressed(word)));
            }
            if let Some((words, note)) = first(format!("{name}_min_length"))
                && let Some(bytes) = words.first().and_then(|word| bytes(word))
            {
                self.draft.translated(note);
                length = Some(length.map_or(bytes, |other: u64| other.min(bytes)));
            }
        }
        if codings.is_empty() {
            return;
        }
        site.set("compression", codings);
        if !is_for_any_type {
            // nginx has this type in any case, and no other where none is named.
            types.push("text/html".to_owned());
            types.sort_unstable();
            types.dedup();
            site.set("compression_types", types);
        }
        // Where nothing is said, it compresses from 20 bytes on; that saves nothing, so Larder's own length is left.
        if let Some(bytes) = length {
            site.set("compression_bytes_min", format!("{bytes}B"));
        }
    }
}
