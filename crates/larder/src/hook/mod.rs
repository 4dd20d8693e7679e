//! Hooks: a little logic of the operator's in Python, called for the requests of a site that their filters let through. They
//! run in processes of their own (`script`, `mount`); a worker has one connection to each process, on which many calls are
//! under way. A hook can change what is asked for and add to the key; it can take nothing out of the key that keeps
//! clients apart (decision 053).

pub mod decision;
pub mod frame;
mod line;
mod memo;

pub use decision::{AnswerEffects, RequestEffects, ScriptAnswer, ScriptFailure, change_fields};
pub use frame::{CallFacts, Stage};

use crate::mount::{Hooks, MountState, MountTrouble};
use frame::ReplyBody;
use line::{Line, NoReply};
use memo::Memo;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How often a call may be made when processes end before they have begun with it.
const TRIES_MAX: usize = 3;

/// The connections of one worker to processes of hooks, and the decisions that it remembers.
#[derive(Default)]
pub struct HookLines {
    lines: RefCell<HashMap<u64, Rc<Line>>>,
    memo: RefCell<Memo>,
}

/// A call that came to nothing, and why; for the log, the record and, as far as it says nothing of the script, the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallTrouble {
    /// A hook raised an exception, or decided what can't be done.
    Failed(ScriptFailure),
    /// A hook took too long; its process is ended.
    Late,
    /// The process ended while a hook ran.
    Ended,
    /// The hooks can't be loaded.
    NotLoaded(String),
    /// No process had room in time.
    Busy,
    /// The request is too large for a call.
    TooLarge,
}

impl CallTrouble {
    /// Hooks that are not loaded.
    pub fn of_load(trouble: MountTrouble) -> CallTrouble {
        match trouble {
            MountTrouble::Failed(why) => CallTrouble::NotLoaded(why),
            MountTrouble::Starting | MountTrouble::Busy => CallTrouble::Busy,
        }
    }

    /// The word of logs and pages.
    pub fn as_str(&self) -> &'static str {
        match self {
            CallTrouble::Failed(_) => "hook-failed",
            CallTrouble::Late => "hook-late",
            CallTrouble::Ended => "hook-ended",
            CallTrouble::NotLoaded(_) => "hook-not-loaded",
            CallTrouble::Busy => "hook-busy",
            CallTrouble::TooLarge => "hook-too-large",
        }
    }

    /// The status for a client whose request is denied because of it.
    pub fn status(&self) -> u16 {
        match self {
            CallTrouble::Late => 504,
            CallTrouble::Busy => 503,
            CallTrouble::TooLarge => 431,
            _ => 500,
        }
    }
}

impl HookLines {
    /// A remembered decision about a request.
    pub fn remembered(&self, hooks: &Arc<Hooks>, facts: &CallFacts<'_>) -> Option<Rc<RequestEffects>> {
        self.memo.borrow().find(hooks, facts, Instant::now())
    }

    /// Asks hooks about a request. `hooks` are those whose places the facts name; `None` where another generation serves by
    /// now, so that the filters have to be asked anew.
    pub async fn ask(
        &self,
        (mount, hooks): (&Arc<MountState>, &Arc<Hooks>),
        facts: &CallFacts<'_>,
    ) -> Option<Result<Rc<RequestEffects>, CallTrouble>> {
        let (effects, read) = match self.call(mount, hooks, facts).await? {
            Ok(json) => match decision::of_request(&json) {
                Ok(decided) => decided,
                Err(failure) => return Some(Err(CallTrouble::Failed(failure))),
            },
            Err(trouble) => return Some(Err(trouble)),
        };
        let effects = Rc::new(effects);
        if let Some(time) = hooks.remember(facts.hooks) {
            self.memo.borrow_mut().keep((hooks, facts), &read, &effects, (Instant::now(), time));
        }
        Some(Ok(effects))
    }

    /// Asks hooks about an origin's answer.
    pub async fn ask_of_answer(
        &self,
        (mount, hooks): (&Arc<MountState>, &Arc<Hooks>),
        facts: &CallFacts<'_>,
    ) -> Option<Result<AnswerEffects, CallTrouble>> {
        Some(match self.call(mount, hooks, facts).await? {
            Ok(json) => decision::of_answer(&json).map_err(CallTrouble::Failed),
            Err(trouble) => Err(trouble),
        })
    }

    /// The JSON of the decision. A process that ends before it has begun with the call leaves it to another one.
    async fn call(
        &self,
        mount: &Arc<MountState>,
        hooks: &Arc<Hooks>,
        facts: &CallFacts<'_>,
    ) -> Option<Result<Vec<u8>, CallTrouble>> {
        let call_time = mount.mount().python.hook_time;
        // The calls before this one may each take their time.
        let patience = (call_time * 20).max(Duration::from_secs(1));
        let deadline = Instant::now() + patience;
        for _ in 0..TRIES_MAX {
            let lease = match mount.lease(deadline.saturating_duration_since(Instant::now())).await {
                Ok(lease) => lease,
                Err(trouble) => return Some(Err(CallTrouble::of_load(trouble))),
            };
            if !lease.process().hooks.as_ref().is_some_and(|own| Arc::ptr_eq(own, hooks)) {
                return None;
            }
            let process = lease.process().number;
            let line = self.line_to(&lease, call_time);
            let Some(receiver) = line.call(facts, lease) else { return Some(Err(CallTrouble::TooLarge)) };
            let trouble = match timeout(deadline.saturating_duration_since(Instant::now()), receiver).await {
                Err(_) => CallTrouble::Busy,
                Ok(Ok(Ok(ReplyBody::GoOn(json) | ReplyBody::Decision(json)))) => return Some(Ok(json)),
                Ok(Ok(Ok(ReplyBody::Failed(json)))) => CallTrouble::Failed(decision::of_failure(&json)),
                Ok(Ok(Err(NoReply::NotBegun | NoReply::Refused)) | Err(_)) => continue,
                Ok(Ok(Err(NoReply::Late))) => CallTrouble::Late,
                // A process whose place another generation has taken closes its connections when it has answered.
                Ok(Ok(Err(NoReply::Ended))) if !mount.processes().iter().any(|one| one.number == process) => continue,
                Ok(Ok(Err(NoReply::Ended))) => CallTrouble::Ended,
            };
            if !matches!(trouble, CallTrouble::Failed(_)) {
                // An exception is reported by the process, and counted by that.
                mount.counts.errors.fetch_add(1, Ordering::Relaxed);
            }
            return Some(Err(trouble));
        }
        Some(Err(CallTrouble::Ended))
    }

    fn line_to(&self, lease: &crate::mount::ProcessLease, call_time: Duration) -> Rc<Line> {
        let process = lease.process();
        let mut lines = self.lines.borrow_mut();
        if let Some(line) = lines.get(&process.number).filter(|line| line.is_open()) {
            return Rc::clone(line);
        }
        lines.retain(|_, line| line.is_open());
        let line = Line::open(process, call_time);
        lines.insert(process.number, Rc::clone(&line));
        line
    }
}
