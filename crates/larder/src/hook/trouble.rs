//! Calls of hooks that came to nothing: for the log, the record, `larder scripts` and, as far as it says nothing of the script,
//! the client.

use super::decision::ScriptFailure;
use super::frame::CallFacts;
use super::note::HookNote;
use crate::mount::{Failure, Hooks, MountState, MountTrouble, Stage};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A call that came to nothing, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallTrouble {
    /// A hook raised an exception, of this type where it is known. Its process has reported the traceback itself.
    Raised(ScriptFailure, String),
    /// A hook decided what can't be done.
    Failed(ScriptFailure),
    /// A hook looked at this cookie, of which the request has two with different values: readers disagree about which one counts.
    Ambiguous(String),
    /// A hook took too long; its process is ended.
    Late {
        /// The system's number of the process.
        pid: u32,
        /// The hook, where it is known.
        hook: Option<u16>,
    },
    /// The process ended while this hook ran, where it is known, or broke the rules of frames.
    Ended(Option<u16>),
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
            CallTrouble::Raised(..) | CallTrouble::Failed(_) => "hook-failed",
            CallTrouble::Ambiguous(_) => "ambiguous-cookie",
            CallTrouble::Late { .. } => "hook-late",
            CallTrouble::Ended(_) => "hook-ended",
            CallTrouble::NotLoaded(_) => "hook-not-loaded",
            CallTrouble::Busy => "hook-busy",
            CallTrouble::TooLarge => "hook-too-large",
        }
    }

    /// The word, with what is known of the cause and where to find the rest of it; for explanations. The message of an exception may
    /// have what a client sent, and is not in it.
    pub fn words(&self) -> String {
        let word = self.as_str();
        match self {
            CallTrouble::Raised(_, exception) if !exception.is_empty() => {
                format!("{word} by {exception}; `larder scripts` has the traceback")
            }
            CallTrouble::Raised(..) => format!("{word}; `larder scripts` has the traceback"),
            CallTrouble::Late { .. } => format!("{word}; `larder scripts` has the line"),
            CallTrouble::Failed(_) | CallTrouble::Ended(_) | CallTrouble::NotLoaded(_) => {
                format!("{word}; `larder scripts` has the cause")
            }
            CallTrouble::Ambiguous(_) | CallTrouble::Busy | CallTrouble::TooLarge => word.to_owned(),
        }
    }

    /// The status for a client whose request is denied because of it.
    pub fn status(&self) -> u16 {
        match self {
            CallTrouble::Ambiguous(_) => 400,
            CallTrouble::Late { .. } => 504,
            CallTrouble::Busy => 503,
            CallTrouble::TooLarge => 431,
            CallTrouble::Raised(..) | CallTrouble::Failed(_) | CallTrouble::Ended(_) | CallTrouble::NotLoaded(_) => 500,
        }
    }

    /// Whether the request is the client's fault alone: no script failed.
    pub fn is_of_client(&self) -> bool {
        matches!(self, CallTrouble::Ambiguous(_))
    }
}

/// A call that came to nothing, with a note for the record.
#[derive(Clone, Debug)]
pub struct FailedCall {
    /// Why.
    pub trouble: CallTrouble,
    /// The hook that failed, as far as it is known.
    pub note: Box<HookNote>,
}

impl FailedCall {
    /// A call of these hooks.
    pub fn of(trouble: CallTrouble, stage: Stage, (hooks, called): (&Hooks, &[u16])) -> FailedCall {
        let by = match &trouble {
            CallTrouble::Raised(failure, _) | CallTrouble::Failed(failure) => failure.by,
            CallTrouble::Late { hook, .. } | CallTrouble::Ended(hook) => hook.map(|hook| (hook, 0)),
            _ => None,
        };
        let is_unknown = by.is_none() && called.len() > 1;
        let did = match is_unknown && matches!(trouble, CallTrouble::Late { .. } | CallTrouble::Ended(_)) {
            true => format!("{} in one of {}", trouble.words(), names(hooks, called)),
            false => trouble.words(),
        };
        let note = HookNote::begin(stage, hooks, called).by(hooks, by, &[]).did(&did);
        FailedCall { trouble, note: Box::new(note) }
    }

    /// A call that was not made, because no version of the hooks could ever be loaded, or none stays for long enough.
    pub fn without_hooks(trouble: CallTrouble, stage: Stage, mount: &MountState) -> FailedCall {
        let note = HookNote::of_files(stage, &mount.mount().application).did(&trouble.words());
        FailedCall { trouble, note: Box::new(note) }
    }

    /// Adds the time that the request waited.
    pub fn took(mut self, time: Duration) -> FailedCall {
        *self.note = self.note.took(time);
        self
    }
}

/// Tells the log of a call that came to nothing, counts it, and remembers it for `larder scripts` as it remembers tracebacks.
pub fn report(mount: &MountState, (hooks, facts): (&Arc<Hooks>, &CallFacts<'_>), trouble: &CallTrouble) {
    let settings = mount.mount();
    let (name, call_time) = (&settings.application.name, settings.python.hook_time.as_millis());
    let request = [facts.method, facts.path_and_query, facts.name].join(" ");
    let mut ended = None;
    let what = match trouble {
        // The traceback comes from the process, for the log and for `larder scripts`.
        CallTrouble::Raised(failure, _) => {
            count_failed(hooks, failure);
            mount.counts.errors.fetch_add(1, Ordering::Relaxed);
            return;
        }
        CallTrouble::Ambiguous(cookie) => {
            return tracing::debug!("{name}: a request has two cookies {cookie:?} with different values");
        }
        CallTrouble::NotLoaded(why) => return tracing::debug!("{name} can't be loaded: {why}"),
        CallTrouble::Busy => {
            mount.counts.errors.fetch_add(1, Ordering::Relaxed);
            return tracing::warn!("{name}: {request}: no process had room for a call in time");
        }
        CallTrouble::Failed(failure) => {
            count_failed(hooks, failure);
            at_line(hooks, failure)
        }
        CallTrouble::Late { pid, hook } => {
            ended = Some(*pid);
            format!(
                "{}: a call took longer than hook_time ({call_time} ms); its process was ended, and the log has its stacks",
                called(hooks, facts, *hook)
            )
        }
        CallTrouble::Ended(hook) => {
            format!("{}: the process ended during a call, or sent what is no reply", called(hooks, facts, *hook))
        }
        CallTrouble::TooLarge => format!("{}: the request is too large for a call", called(hooks, facts, None)),
    };
    tracing::error!("{name}: {request}: {what}");
    mount.failed(Failure {
        request: facts.name.to_owned(),
        method: facts.method.to_owned(),
        target: facts.path_and_query.to_owned(),
        traceback: what,
        ended,
        ..Failure::default()
    });
}

fn count_failed(hooks: &Hooks, failure: &ScriptFailure) {
    if let Some(hook) = failure.by.and_then(|(hook, _)| hooks.at(hook)) {
        hook.counts.failed.fetch_add(1, Ordering::Relaxed);
    }
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

/// The hook of a call that was at fault; all of them where it is not known which one was.
fn called(hooks: &Hooks, facts: &CallFacts<'_>, known: Option<u16>) -> String {
    match (known, facts.hooks) {
        (Some(hook), _) => places(hooks, &[hook]),
        (None, [_] | []) => places(hooks, facts.hooks),
        (None, several) => format!("one of {}", places(hooks, several)),
    }
}

fn places(hooks: &Hooks, called: &[u16]) -> String {
    let places = called.iter().filter_map(|hook| Some(hooks.at(*hook)?.place.to_string()));
    places.collect::<Vec<_>>().join(", ")
}

fn names(hooks: &Hooks, called: &[u16]) -> String {
    let names = called.iter().filter_map(|hook| Some(hooks.at(*hook)?.place.name.as_str()));
    names.collect::<Vec<_>>().join(", ")
}
