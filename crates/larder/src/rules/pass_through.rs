//! TLS that goes to a site's origin unopened (`site.pass_through`, docs/pass-through.md): rules see its name and the listener's port as those of
//! a CONNECT, and the site, not the client, says where it leads.

use super::by_table::{ByTable, Limited};
use super::facts::Facts;
use super::gate::Refused;
use super::table;
use crate::config::SiteOrigin;
use crate::page::Page;
use crate::people::User;
use larder_rules::rule::RuleNote;
use larder_wire::{Host, Scheme, Url};
use std::rc::Rc;
use std::sync::Arc;

/// A connection that a site passes through.
pub(super) struct PassedThrough {
    /// The user whom rules have found.
    pub user: Option<Arc<User>>,
    /// The rules of the table that hold.
    pub rules: Option<Arc<RuleNote>>,
    /// The limits of bandwidth towards the client.
    pub limits: Option<Rc<[Limited]>>,
    /// The origin of the site.
    pub origin: Arc<SiteOrigin>,
}

/// Judges such a connection. Sites are open to everybody to whom rules do not deny them. Nobody can be asked for a login here, so where a rule
/// wants one the connection is refused.
pub(super) fn judge(facts: &Facts<'_>, host: &Host, port: u16) -> Result<PassedThrough, Refused> {
    let Some(site) = facts.config().sites.passed_through(host) else {
        let what = format!("No site with `pass_through` has the host {host}.");
        let page = Page::new(403, "pass-through", what, "The administrator can configure one.").closing();
        return Err(Refused::Page(Box::new(page)));
    };
    let url = Url { scheme: Scheme::Https, host: host.clone(), port, path: "/".into() };
    let origin = Arc::clone(&site.origin);
    match table::judge(facts, &url, true) {
        Ok(None) => Ok(PassedThrough { user: None, rules: None, limits: None, origin }),
        Ok(Some(ByTable { people, note, limits, .. })) => {
            Ok(PassedThrough { user: people.and_then(|people| people.user), rules: Some(note), limits, origin })
        }
        Err(Refused::Page(page)) => Err(Refused::Page(Box::new(page.closing()))),
        Err(needs) => Err(needs),
    }
}
