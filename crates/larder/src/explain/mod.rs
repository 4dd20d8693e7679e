//! Explanations: what was decided about a request, and why, for one that came or one that might come.
//!
//! [`Explanation`] is the same for both, and for the log's words, `Cache-Status` and the page: values first
//! ([`Decision`]), sentences from them. `past` makes one of a record, `ahead` of the live store.

mod ahead;
mod decision;
mod past;
mod text;
mod unasked;

pub use ahead::{Asking, OfServer, ahead, rehearse};
pub use decision::{Decision, OfVariant, OriginKind, RuleKind, Settled};
pub use past::{Places, past, summary};
pub(crate) use text::Harmless;

use serde::{Deserialize, Serialize};

/// A request in a line: what lists show.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Its name; empty for one that did not come.
    pub id: String,
    /// When its head was read: milliseconds since 1970.
    pub at_millis: u64,
    /// The client.
    pub client: String,
    /// Its method; `-` for bytes that were no request.
    pub method: String,
    /// The requested URL.
    pub url: String,
    /// The host in it.
    pub host: String,
    /// The status of the answer; 0 when none went out.
    pub status: u16,
    /// Bytes of the body that were sent.
    pub bytes: u64,
    /// How the answer came about: hit, miss, validated, …
    pub outcome: String,
    /// Why the origin was asked, when it was.
    pub cause: Option<String>,
    /// Why the answer was not stored, where it could have been.
    pub not_stored: Option<String>,
    /// How long all of it took.
    pub micros: u64,
    /// The answer went out to its end.
    pub complete: bool,
}

/// A decision and its sentence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Which decision, in a word.
    pub step: String,
    /// The sentence.
    pub says: String,
    /// The values.
    pub values: Decision,
}

impl From<Decision> for Step {
    fn from(values: Decision) -> Step {
        Step { step: values.word().to_owned(), says: values.to_string(), values }
    }
}

/// All that was decided about a request, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The request and its outcome.
    pub request: Summary,
    /// One that came, or one that might.
    pub tense: Tense,
    /// The answer in a sentence.
    pub says: String,
    /// The decisions.
    pub steps: Vec<Step>,
}

/// Whether it is about a request that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tense {
    /// It came.
    Past,
    /// It might come.
    Ahead,
}
