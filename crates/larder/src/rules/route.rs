//! The way to an origin.

use crate::config::compression::Compression;
use crate::config::url::group_name;
use crate::config::{HostHeader, SiteOrigin};
use crate::reach::Asker;
use larder_wire::Url;
use std::sync::Arc;

/// How an origin is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// By the URL itself (forward proxy). The asker decides which addresses it may lead to.
    Forward(Asker),
    /// To the address that the client has connected to: the host of its request leads elsewhere (docs/transparent.md). The answer is for
    /// this client alone.
    Destination(Asker, Arc<Url>),
    /// By a site of the configuration, or by the listener's own origin.
    Site {
        /// The origin of the site.
        origin: Arc<SiteOrigin>,
        /// Which `Host` the origin gets.
        host_header: HostHeader,
        /// The codings that responses of the site get, where they get any.
        compression: Option<Arc<Compression>>,
    },
}

impl Route {
    /// Whether the site's origin is a group of origins.
    pub fn is_to_group(&self) -> bool {
        matches!(self, Route::Site { origin, .. } if group_name(&origin.host).is_some())
    }

    /// Whether it leads to the address that the client has connected to, whatever the host of its request.
    pub fn is_to_destination(&self) -> bool {
        matches!(self, Route::Destination(..))
    }

    /// Whether the site's origin lies below a path, so that a `..` may lead beside it.
    pub fn is_below_path(&self) -> bool {
        matches!(self, Route::Site { origin, .. } if &*origin.path != "/")
    }
}
