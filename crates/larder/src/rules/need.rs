//! Facts that must be found out before the rules can decide: the verdict waits for them, and the worker does not.

use super::by_hook::{HookNeed, HookReply};
use crate::env::{Env, PeerFacts};
use larder_wire::RequestHead;

/// A fact that a rule asked for and that is not known.
#[derive(Clone, Debug)]
pub enum Need {
    /// The decision of the site's hooks.
    Hooks(Box<HookNeed>),
    /// The group of the client, for tests of the wait.
    #[cfg(test)]
    Group,
}

/// The facts that were found out for one request.
#[derive(Clone, Debug, Default)]
pub struct FoundFacts {
    pub(super) hook: Option<HookReply>,
    #[cfg(test)]
    pub(super) group: Option<&'static str>,
}

/// A request is judged at most so often: each time with one more fact.
pub(super) const NEEDS_MAX: usize = 8;

impl Need {
    /// Finds the fact out. Cancel-safe: nothing is kept of a search that is given up.
    pub(super) async fn find_out(
        self,
        (env, peer): (&Env, &PeerFacts),
        (request, name): (&RequestHead, &str),
        found: &mut FoundFacts,
    ) {
        match self {
            Need::Hooks(need) => found.hook = need.find_out(env, peer.address.ip(), (request, name)).await,
            #[cfg(test)]
            Need::Group => {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                found.group = Some("friends");
            }
        }
    }
}
