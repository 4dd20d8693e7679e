//! The last warnings and errors of this process, for `larder bugreport`: the line of the source that reported each, which tells nothing
//! of a request, apart from its text, which may.

use crate::clock;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt::{Debug, Write};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Troubles that are remembered.
const REMEMBERED_MAX: usize = 200;

/// Bytes of the text of one.
const TEXT_BYTES_MAX: usize = 400;

static REMEMBERED: Mutex<VecDeque<Trouble>> = Mutex::new(VecDeque::new());

/// A warning or an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// When it was reported: seconds since 1970.
    pub at: u64,
    /// `WARN` or `ERROR`.
    pub level: String,
    /// The line of the source.
    pub place: String,
    /// Its text, as it stands on standard error, which may have something of a request.
    pub text: String,
}

/// All that are remembered, the oldest first.
pub fn all() -> Vec<Trouble> {
    REMEMBERED.lock().iter().cloned().collect()
}

/// Remembers the warnings and errors that pass by.
pub struct Remember;

impl<S: Subscriber> Layer<S> for Remember {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let about = event.metadata();
        if *about.level() > Level::WARN {
            return;
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        let place = format!("{}:{}", about.file().unwrap_or_default(), about.line().unwrap_or_default());
        let text = text.0[..text.0.floor_char_boundary(TEXT_BYTES_MAX)].to_owned();
        remember(Trouble { at: clock::wall().as_secs(), level: about.level().to_string(), place, text });
    }
}

fn remember(trouble: Trouble) {
    let mut all = REMEMBERED.lock();
    if all.len() == REMEMBERED_MAX {
        all.pop_front();
    }
    all.push_back(trouble);
}

/// The message of an event, and its fields behind it.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // A text takes everything.
        let _ = match field.name() {
            "message" => {
                let fields = std::mem::take(&mut self.0);
                write!(self.0, "{value:?}{fields}")
            }
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    #[test]
    fn warnings_and_errors_are_remembered_with_their_places() {
        let subscriber = tracing_subscriber::registry().with(Remember);
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!("nothing of interest");
            tracing::warn!(many = 3, "the disk of {} is full", "somebody");
            for number in 0..REMEMBERED_MAX {
                tracing::error!("{number} {}", "\u{e4}".repeat(TEXT_BYTES_MAX));
                if number == 0 {
                    let first = all().into_iter().find(|trouble| trouble.text.contains("somebody")).unwrap();
                    assert_eq!(
                        (first.level.as_str(), first.text.as_str()),
                        ("WARN", "the disk of somebody is full many=3")
                    );
                    assert!(first.place.starts_with("crates/larder/src/troubles.rs:"), "{}", first.place);
                }
            }
        });
        let all = all();
        assert_eq!(all.len(), REMEMBERED_MAX);
        assert!(all.iter().all(|trouble| trouble.text.len() <= TEXT_BYTES_MAX));
        assert!(all.last().unwrap().text.starts_with(&format!("{} ", REMEMBERED_MAX - 1)));
    }
}
