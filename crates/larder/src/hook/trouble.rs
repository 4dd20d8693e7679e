//! Calls of hooks that came to nothing: for the log, the record, `larder scripts` and, as far as it says nothing of the script,
//! the client.

use super::decision::ScriptFailure;
use super::frame::CallFacts;
use crate::mount::{Failure, Hooks, MountState, MountTrouble};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A call that came to nothing, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallTrouble {
    /// A hook raised an exception, or decided what can't be done.
    Failed(ScriptFailure),
    /// A hook looked at this cookie, of which the request has two with different values: readers disagree about which one counts.
    Ambiguous(String),
    /// A hook took too long; its process is ended.
    Late,
    /// The process ended while a hook ran, or broke the rules of frames.
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
            CallTrouble::Ambiguous(_) => "ambiguous-cookie",
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
            CallTrouble::Ambiguous(_) => 400,
            CallTrouble::Late => 504,
            CallTrouble::Busy => 503,
            CallTrouble::TooLarge => 431,
            CallTrouble::Failed(_) | CallTrouble::Ended | CallTrouble::NotLoaded(_) => 500,
        }
    }

    /// Whether the request is the client's fault alone: no script failed.
    pub fn is_of_client(&self) -> bool {
        matches!(self, CallTrouble::Ambiguous(_))
    }
}

/// Tells the log of a call that came to nothing, and remembers it for `larder scripts` as it remembers tracebacks.
pub fn report(mount: &MountState, (hooks, facts): (&Arc<Hooks>, &CallFacts<'_>), trouble: &CallTrouble) {
    let settings = mount.mount();
    let (name, call_time) = (&settings.application.name, settings.python.hook_time.as_millis());
    let what = match trouble {
        // The process has reported its traceback itself, and it is counted by that.
        CallTrouble::Failed(failure) if failure.what.starts_with("Traceback") => return,
        CallTrouble::Ambiguous(cookie) => {
            return tracing::debug!("{name}: a request has two cookies {cookie:?} with different values");
        }
        CallTrouble::NotLoaded(why) => return tracing::debug!("{name} can't be loaded: {why}"),
        CallTrouble::Busy => {
            mount.counts.errors.fetch_add(1, Ordering::Relaxed);
            return tracing::warn!("{name}: no process had room for a call in time");
        }
        CallTrouble::Failed(failure) => at_line(hooks, failure),
        CallTrouble::Late => format!(
            "{}: a call took longer than hook_time ({call_time} ms); its process was ended, and the log has its stacks",
            called(hooks, facts)
        ),
        CallTrouble::Ended => {
            format!("{}: the process ended during a call, or sent what is no reply", called(hooks, facts))
        }
        CallTrouble::TooLarge => format!("{}: the request is too large for a call", called(hooks, facts)),
    };
    tracing::error!("{name}: {what}");
    mount.failed(Failure {
        request: facts.name.to_owned(),
        method: facts.method.to_owned(),
        target: facts.path_and_query.to_owned(),
        traceback: what,
        at: std::time::Duration::ZERO,
    });
}

/// A decision that can't be followed, with its place: `policy.py:14: cart: …`.
fn at_line(hooks: &Hooks, failure: &ScriptFailure) -> String {
    let place = failure.by.and_then(|(hook, line)| Some((&hooks.at(hook)?.place, line)));
    match place {
        Some((place, 0)) => format!("{}:{}: {}: {}", place.script, place.line, place.name, failure.what),
        Some((place, line)) => format!("{}:{line}: {}: {}", place.script, place.name, failure.what),
        None => failure.what.clone(),
    }
}

/// The hooks of a call: which of them was at fault is not known.
fn called(hooks: &Hooks, facts: &CallFacts<'_>) -> String {
    let places = facts.hooks.iter().filter_map(|hook| Some(hooks.at(*hook)?.place.to_string()));
    places.collect::<Vec<_>>().join(", ")
}
