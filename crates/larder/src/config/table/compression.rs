//! The settings of a `[[site]]` about the codings that Larder gives (docs/compression.md).

use crate::config::Site;
use crate::config::setting::{Field, Setting};
use larder_cache::policy::Offer;
use std::sync::Arc;

type OfSite = Setting<Site>;

pub(super) const COMPRESSION: OfSite = OfSite::new(
    "site.compression",
    Field::Texts {
        form: "zstd, br or gzip, with :LEVEL",
        read: |s| s.compression.shown(),
        clear: |s| Arc::make_mut(&mut s.compression).offer = Offer::default(),
        push: |s, text| Arc::make_mut(&mut s.compression).push(text),
    },
)
.default_words("none")
.about("The codings that Larder gives to responses of the site which came without one and are stored, the preferred one first ([compression.md](compression.md)): `[\"zstd\", \"br\", \"gzip\"]`. A level may follow: `br:5` (gzip 1 to 9, 6 if none is said; br 1 to 7, 5; zstd 1 to 9, 6). The origin is offered these codings too, and none else.");

pub(super) const COMPRESSION_TYPES: OfSite = OfSite::new(
    "site.compression_types",
    Field::Texts {
        form: "media types",
        read: |s| s.compression.types.iter().map(|each| each.to_string()).collect(),
        clear: |s| Arc::make_mut(&mut s.compression).types.clear(),
        push: |s, text| Arc::make_mut(&mut s.compression).push_type(text),
    },
)
.default_words("`text/*`, and types of scripts, data, fonts and images that are text")
.about("Media types of the responses that `compression` is for: `text/html`, or `text/*`. Types whose bodies are compressed already (images, video, archives) are refused. `text/event-stream` is never coded.");

pub(super) const COMPRESSION_BYTES_MIN: OfSite =
    OfSite::new("site.compression_bytes_min", Field::Size(|s| &mut Arc::make_mut(&mut s.compression).bytes_min))
        .default_words("`1kB`")
        .about("A shorter body is not coded; one whose length is not known before its end is.");
