//! The question to the hooks of a site, and their decision about a request. How the decision is put in force is in `hooked`.

use crate::config::SiteOrigin;
use crate::env::Env;
use crate::hook::{
    CallEnd, CallFacts, CallTrouble, Decided, FailedCall, HookNote, LOAD_WAIT, MadeCall, RequestEffects, Stage, Tries,
};
use crate::mount::{Hooks, MountState};
use crate::page::Page;
use crate::record::Rule;
use larder_wire::{Host, RequestHead, Url};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

/// The hooks that decided about a request, with their decision.
#[derive(Clone, Debug)]
pub struct ByHook {
    /// The decision.
    pub effects: Rc<RequestEffects>,
    /// The parts that it adds to the key.
    pub(super) key: Box<[u8]>,
    /// The URL that the client asked for, where the hooks ask for another one.
    pub client_url: Option<Url>,
    /// The site's own origin, where they chose another one.
    pub unrouted: Option<Arc<SiteOrigin>>,
}

/// The processes of a site's hooks, and the stages at which they are asked about the answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookedBy {
    /// The name of the processes.
    pub host: Host,
    /// A filter of a `found` hook may let the request through.
    pub at_found: bool,
    /// A filter of a `respond` hook may let its answer through.
    pub at_respond: bool,
}

impl HookedBy {
    /// Hooks that are asked about origins' answers alone.
    pub fn new(host: Host) -> HookedBy {
        HookedBy { host, at_found: false, at_respond: false }
    }
}

/// An answer without an origin: hooks gave it, or failed.
#[derive(Debug)]
pub struct HookedAnswer {
    /// The answer.
    pub page: Page,
    /// The URL that the client asked for.
    pub url: Url,
    /// The rule that allowed the request.
    pub rule: Rule,
    /// The hook that answered.
    pub note: Option<HookNote>,
}

/// Hooks that have to be asked, and the request about which.
#[derive(Clone, Debug)]
pub struct HookNeed {
    pub(super) mount: Arc<MountState>,
    /// The hooks that are called, with their places; `None` where they are not loaded yet.
    pub(super) called: Option<(Arc<Hooks>, Box<[u16]>)>,
    /// The URL of the request.
    pub(super) url: Url,
    /// Calls that were made already.
    pub(super) tries: Tries,
}

/// The reply of hooks, found out for one request, or why there is none.
pub(super) type HookReply = Result<Decided<RequestEffects>, FailedCall>;

impl HookNeed {
    /// Asks the hooks; `None` where they have to be looked up anew.
    pub(super) async fn find_out(
        &self,
        env: &Env,
        client: IpAddr,
        (request, name): (&RequestHead, &str),
    ) -> Option<HookReply> {
        let began = tokio::time::Instant::now();
        let Some((hooks, called)) = &self.called else {
            let failed = |trouble| {
                FailedCall::without_hooks(CallTrouble::of_load(trouble), Stage::Request, &self.mount)
                    .took(began.elapsed())
            };
            return self.mount.ready(LOAD_WAIT).await.err().map(|trouble| Err(failed(trouble)));
        };
        let facts = CallFacts::of(Stage::Request, (request, &self.url, client), (called, name));
        env.hooks.ask((&self.mount, hooks), &facts, self.tries).await
    }

    /// Asks the hooks without a wait; `None` where that is not possible.
    pub(super) fn ask_at_once(
        &self,
        env: &Env,
        client: IpAddr,
        (request, name): (&RequestHead, &str),
    ) -> Option<MadeCall> {
        let (hooks, called) = self.called.as_ref()?;
        let facts = CallFacts::of(Stage::Request, (request, &self.url, client), (called, name));
        env.hooks.call_at_once((&self.mount, hooks), &facts)
    }

    /// The reply of hooks that were asked without a wait; `None` where they have to be asked again.
    pub(super) fn take_reply(
        &mut self,
        env: &Env,
        client: IpAddr,
        (request, name): (&RequestHead, &str),
        end: CallEnd,
    ) -> Option<HookReply> {
        let (hooks, called) = self.called.as_ref()?;
        let facts = CallFacts::of(Stage::Request, (request, &self.url, client), (called, name));
        let decided = env.hooks.decided((&self.mount, hooks), &facts, end);
        decided.map_err(|tries| self.tries = tries).ok()
    }
}

impl ByHook {
    /// The parts that they add to the key.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }
}
