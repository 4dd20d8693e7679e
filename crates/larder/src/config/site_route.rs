//! Further origins of a site, which hooks choose by name (`req.route = "NAME"`).

use super::application::ORIGIN_FORM;
use super::setting::{Field, Setting};
use super::{SiteOrigin, url};
use std::sync::Arc;

/// A further origin of a site, which hooks may choose.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteRoute {
    /// The name by which hooks choose it.
    pub name: String,
    /// Where the site then comes from.
    pub origin: Arc<SiteOrigin>,
}

type OfRoute = Setting<SiteRoute>;

/// Settings of one `[[site.route]]`.
pub static SITE_ROUTE: &[Setting<SiteRoute>] = &[
    OfRoute::new(
        "site.route.name",
        Field::Name(|r| &mut r.name),
    )
    .required()
    .about("The name by which hooks choose it (`req.route = \"NAME\"`), of letters, digits, `-`, `_` and `.`."),
    OfRoute::new(
        "site.route.origin",
        Field::Text {
            form: ORIGIN_FORM,
            read: |r| url::show(&r.origin),
            write: |r, text| url::parse_origin(text).map(|origin| r.origin = Arc::new(SiteOrigin::new(origin))).is_some(),
        },
    )
    .required()
    .about("Where the site comes from for requests that a hook sends this way, as `origin` of the site. Their answers are stored apart from those of other ways."),
];
