//! The hooks of the forward proxy: which processes run them.

use super::Parser;
use crate::config::{Mount, Site};
use std::sync::Arc;

impl Parser {
    /// Finds the processes that run the hooks of the forward proxy. Sites that name the same files share them.
    pub(super) fn forward_hooks(&mut self, mounts: &mut Vec<Arc<Mount>>) {
        let forward = self.loaded.config.forward.clone();
        match forward.application() {
            Some(hooks) => {
                let url = self.mount(hooks, &forward.python, ("forward.hooks", "[forward]"), mounts);
                self.loaded.config.forward.hooked_by = url.map(|url| url.host);
            }
            None if !forward.python.is_empty() => {
                let hint = "write `hooks = [\"policy.py\"]` beside it, or leave it out";
                self.conflict("forward.python", "it is for hooks, and there are none", Some(hint));
            }
            None => {}
        }
    }
}

/// Tells the processes of a site's hooks which routes there are.
pub(super) fn add_routes(site: &Site, mounts: &mut [Arc<Mount>]) {
    let mount = mounts.iter_mut().find(|mount| Some(&mount.host) == site.hooked_by.as_ref());
    let Some(mount) = mount.map(Arc::make_mut) else { return };
    for route in &site.routes {
        if !mount.routes.contains(&route.name) {
            mount.routes.push(route.name.clone());
        }
    }
}
