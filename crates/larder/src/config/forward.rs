//! Hooks of the forward proxy: the table `[forward]`.

use super::application::Application;
use super::next_hop::NextHop;
use super::parent::DirectHosts;
use larder_balance::Carp;
use larder_wire::{Host, Scheme, Url};
use std::sync::Arc;

/// The hooks that requests of the forward proxy meet: those for other hosts than those of sites, in clear text and inside tunnels that
/// were opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardHooks {
    /// The `[[python]]` whose processes run them; empty: the only one, or the defaults.
    pub python: String,
    /// Files with hooks, in the order in which they run; below the folder of the `[[python]]`.
    pub hooks: Vec<String>,
    /// The name of the processes that run them; `None` where there are none.
    pub hooked_by: Option<Host>,
}

/// The parents through which requests of the forward proxy go.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForwardParents {
    /// Their names, in the order in which they are tried; `direct` for the origin itself.
    pub names: Vec<String>,
    /// The same; none: requests go to the origins.
    pub hops: Arc<[NextHop]>,
    /// Requests may have other hops than the origin, by this or by rules.
    pub is_any: bool,
    /// A parent is asked by ICP or HTCP what it has stored.
    pub are_asked: bool,
    /// Hosts that are asked without them.
    pub direct: DirectHosts,
    /// Hosts that the environment excepts.
    pub direct_by_environment: DirectHosts,
    /// How the first one is chosen.
    pub by: ParentsBy,
    /// The array that they are, without the origin behind them; `None` where they are tried in their order.
    pub carp: Option<Carp>,
}

impl ForwardParents {
    /// The parents of a URL by CARP. A tunnel has those of its host and port, for a parent sees no more of it.
    pub(super) fn carp_order(&self, url: &Url) -> Option<Vec<NextHop>> {
        let carp = self.carp.as_ref()?;
        let asked = match url.scheme {
            Scheme::Http => url.to_string(),
            _ => format!("{}:{}", url.host, url.port),
        };
        Some(carp.order(&asked).into_iter().filter_map(|place| self.hops.get(place).copied()).collect())
    }

    /// Whether this host is asked itself, as far as no rule chooses otherwise.
    pub fn is_direct(&self, host: &Host) -> bool {
        self.direct.contains(host) || self.direct_by_environment.contains(host)
    }
}

/// How the parent is chosen that a URL is asked through first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ParentsBy {
    /// The first of the list.
    #[default]
    Order,
    /// By the Cache Array Routing Protocol: each URL has one of them.
    Carp,
}

impl ParentsBy {
    /// All of them.
    pub const ALL: [ParentsBy; 2] = [ParentsBy::Order, ParentsBy::Carp];

    /// The word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            ParentsBy::Order => "order",
            ParentsBy::Carp => "carp",
        }
    }
}

impl ForwardHooks {
    /// The hooks as processes load them; `None` where there are none.
    pub(super) fn application(&self) -> Option<Application> {
        (!self.hooks.is_empty()).then(|| Application::hooks(&self.hooks))
    }
}

/// Whether this can be the name of a file of hooks.
pub(super) fn is_file_of_hooks(text: &str) -> bool {
    text.ends_with(".py") && !text.contains([',', '#', '\n'])
}
