//! Hooks of the forward proxy: the table `[forward]`.

use super::application::Application;
use super::parent::{DirectHosts, Parent};
use larder_wire::Host;
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
    /// Their names, in the order in which they are tried.
    pub names: Vec<String>,
    /// Those parents; none: requests go to the origins.
    pub parents: Arc<[Arc<Parent>]>,
    /// One of them is asked by ICP or HTCP what it has stored.
    pub are_asked: bool,
    /// Hosts that are asked without them.
    pub direct: DirectHosts,
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
