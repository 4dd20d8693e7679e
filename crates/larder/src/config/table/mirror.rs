//! The settings of a `[[mirror]]`.

use crate::config::setting::{Field, Setting};
use crate::config::{Mirror, SiteOrigin, url};
use std::sync::Arc;

type OfMirror = Setting<Mirror>;

/// Settings of one `[[mirror]]`.
pub static MIRROR: &[Setting<Mirror>] = &[
    OfMirror::new(
        "mirror.name",
        Field::Name(|m| &mut m.name),
    )
    .required()
    .about("The first segment of the paths that lead to it, of letters, digits, `-`, `_` and `.`: `/NAME/path`."),
    OfMirror::new(
        "mirror.origin",
        Field::Text {
            form: "URL",
            read: |m| url::show(&m.origin),
            write: |m, text| {
                let origin = url::parse(text).map(SiteOrigin::new).map(Arc::new);
                origin.map(|origin| m.origin = origin).is_some()
            },
        },
    )
    .required()
    .about("Where these paths lead; a path in it is put before the rest of the request's path."),
    OfMirror::new("mirror.registry", Field::Flag(|m| &mut m.registry)).about(
        "Whether it is a container registry: `/v2/NAME/…`, `/v2/…?ns=NAME` and, for the first one, each other `/v2/…` lead to it; \
         Larder itself gets tokens and follows redirects to blobs.",
    ),
    OfMirror::new("mirror.credentials", Field::Secret(|m| &mut m.credentials)).about(
        "`user:password` for a registry, for all clients of this mirror. Write `${ENV:NAME}` or `${FILE:PATH}`.",
    ),
];
