//! A note of the work of hooks on one request at one stage, for the log and for explanations.

use crate::config::application::Application;
use crate::mount::{HookPlace, Hooks, Stage};
use std::sync::Arc;
use std::time::Duration;

/// The work of hooks on one request at one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookNote {
    /// When they were called.
    pub stage: Stage,
    /// The hook that decided or changed last; the first one that was called, where none did.
    pub place: Arc<HookPlace>,
    /// The line that decided or changed last.
    pub line: u32,
    /// How long the request waited for them, in microseconds.
    pub micros: u64,
    /// The decision was remembered, and no process was asked.
    pub remembered: bool,
    /// Their work in words; empty where they changed nothing.
    pub did: Arc<str>,
    /// The path and the query that they asked for in place of the client's.
    pub target: Option<Box<str>>,
}

/// Longer words are cut: keys are made of what clients send.
const DID_BYTES_MAX: usize = 144;

/// A longer path is cut.
const TARGET_BYTES_MAX: usize = 144;

impl HookNote {
    /// A note that begins: nothing is done yet.
    pub fn begin(stage: Stage, hooks: &Hooks, called: &[u16]) -> HookNote {
        let place = called.first().and_then(|hook| hooks.at(*hook)).map(|hook| Arc::clone(&hook.place));
        let place = place.unwrap_or_default();
        HookNote { stage, line: place.line, place, micros: 0, remembered: false, did: Arc::default(), target: None }
    }

    /// A note of hooks that could not be asked: only their files are known.
    pub fn of_files(stage: Stage, application: &Application) -> HookNote {
        let (_, files) = application.name.split_once(':').unwrap_or_default();
        let place = HookPlace { name: String::new(), script: files.to_owned(), line: 0 };
        let (place, did) = (Arc::new(place), Arc::default());
        HookNote { stage, line: 0, place, micros: 0, remembered: false, did, target: None }
    }

    /// Adds the hook that decided or changed last, its line and its work.
    pub fn by(mut self, hooks: &Hooks, by: Option<(u16, u32)>, words: &[String]) -> HookNote {
        if let Some((hook, line)) = by.and_then(|(hook, line)| Some((hooks.at(hook)?, line))) {
            self.place = Arc::clone(&hook.place);
            self.line = if line == 0 { hook.place.line } else { line };
        }
        self.did(&words.join(", "))
    }

    /// Says the work.
    pub fn did(mut self, words: &str) -> HookNote {
        self.did = beginning(words, DID_BYTES_MAX).into();
        self
    }

    /// Adds the time that the request waited.
    pub fn took(mut self, time: Duration) -> HookNote {
        self.micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self
    }

    /// Adds the path and query that they asked for.
    pub fn asks_for(mut self, target: &str) -> HookNote {
        self.target = Some(beginning(target, TARGET_BYTES_MAX).into());
        self
    }

    /// The hook with the line that decided: `cart (policy.py:12)`; the files alone where it is not known.
    pub fn at(&self) -> String {
        place_words(&self.place.name, &self.place.script, self.line)
    }

    /// Bytes that it refers to, without the place, which all requests share.
    pub fn heap_bytes(&self) -> usize {
        self.did.len() + self.target.as_ref().map_or(0, |target| target.len())
    }
}

/// A hook with a line, `cart (policy.py:12)`; its file alone where the hook is not known.
pub fn place_words(hook: &str, script: &str, line: u32) -> String {
    match hook {
        "" => script.to_owned(),
        hook => format!("{hook} ({script}:{line})"),
    }
}

fn beginning(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}
