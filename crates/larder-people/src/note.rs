//! The answer of a helper about one request, as logs and explanations have it.

use crate::answer::Outcome;
use crate::kind::Kind;

/// The work of a helper in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelperDid {
    /// It answered.
    Answered(Outcome),
    /// It gave no usable answer, and the request was refused.
    Failed,
    /// It gave no usable answer, and the request went on by `on_failure`.
    PassedOver,
}

impl HelperDid {
    /// The word of log and explanations.
    pub fn as_str(self) -> &'static str {
        match self {
            HelperDid::Answered(Outcome::Ok) => "ok",
            HelperDid::Answered(Outcome::Err) => "err",
            HelperDid::Answered(Outcome::Broken) => "bh",
            HelperDid::Answered(Outcome::Continues) => "tt",
            HelperDid::Failed => "failed",
            HelperDid::PassedOver => "passed-over",
        }
    }
}

/// The answer of one helper about one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperNote {
    /// Its name.
    pub helper: Box<str>,
    /// The protocol that it speaks.
    pub kind: Kind,
    /// Its work.
    pub did: HelperDid,
    /// Microseconds that the request waited for it; `None` where the answer was remembered.
    pub micros: Option<u64>,
    /// The outcome, in words; empty where there was none.
    pub words: Box<str>,
}

/// Longer words are cut.
const WORDS_BYTES_MAX: usize = 256;

impl HelperNote {
    /// The helper and its work, as in the log: `filter:err`.
    pub fn word(&self) -> String {
        format!("{}:{}", self.helper, self.did.as_str())
    }

    /// Says what came of it.
    pub fn say(&mut self, words: &str) {
        self.words = words[..words.floor_char_boundary(WORDS_BYTES_MAX)].into();
    }

    /// Bytes that it refers to.
    pub fn heap_bytes(&self) -> usize {
        self.helper.len() + self.words.len()
    }
}
