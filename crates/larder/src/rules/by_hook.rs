//! The question to the hooks of a site, and their decision about a request. How the decision is put in force is in `hooked`.

use crate::env::Env;
use crate::hook::{CallFacts, CallTrouble, RequestEffects, Stage};
use crate::mount::{Hooks, MountState};
use larder_wire::{RequestHead, Url};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The hooks that decided about a request, with their decision.
#[derive(Clone, Debug)]
pub struct ByHook {
    /// The decision.
    pub effects: Rc<RequestEffects>,
    /// The parts that it adds to the key.
    pub(super) key: Box<[u8]>,
    /// The hook that decided or changed last, for people.
    pub place: String,
}

/// Hooks that have to be asked, and the request about which.
#[derive(Clone, Debug)]
pub struct HookNeed {
    pub(super) mount: Arc<MountState>,
    /// The hooks that are called, with their places; `None` where they are not loaded yet.
    pub(super) called: Option<(Arc<Hooks>, Box<[u16]>)>,
    /// The URL of the request.
    pub(super) url: Url,
}

/// The answer of hooks, found out for one request.
pub(super) type HookAnswer = Result<Rc<RequestEffects>, CallTrouble>;

/// How long a request waits for hooks that are being loaded.
const LOAD_WAIT: Duration = Duration::from_secs(10);

impl HookNeed {
    /// Asks the hooks; `None` where they have to be looked up anew.
    pub(super) async fn find_out(
        &self,
        env: &Env,
        client: IpAddr,
        (request, name): (&RequestHead, &str),
    ) -> Option<HookAnswer> {
        let Some((hooks, called)) = &self.called else {
            return self.mount.ready(LOAD_WAIT).await.err().map(|trouble| Err(CallTrouble::of_load(trouble)));
        };
        let facts = facts(request, &self.url, client, (called, name));
        env.hooks.ask((&self.mount, hooks), &facts).await
    }
}

/// The facts of a call about a request.
pub(super) fn facts<'a>(
    request: &'a RequestHead,
    url: &'a Url,
    client: IpAddr,
    (called, name): (&'a [u16], &'a str),
) -> CallFacts<'a> {
    CallFacts {
        stage: Stage::Request,
        hooks: called,
        method: request.method.as_str(),
        scheme: url.scheme,
        host: url.host.as_str(),
        port: url.port,
        path_and_query: &url.path,
        client,
        name,
        fields: &request.fields,
        answer: None,
    }
}

impl ByHook {
    /// The parts that they add to the key.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The work of the hooks, in a sentence.
    pub fn words(&self) -> String {
        format!("hook {}: {}", self.place, self.effects.words().join(", "))
    }
}
