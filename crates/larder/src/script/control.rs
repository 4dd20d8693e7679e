//! The messages of a process on its control channel: a line of JSON each (`python/larder/_runtime.py` writes them).

use crate::mount::{Declared, Failure, NamedRoute};
use serde::Deserialize;
use std::path::PathBuf;

/// The longest line that is read. The runtime cuts longer texts.
pub(super) const LINE_BYTES_MAX: usize = 64 << 10;

/// A message of a process.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Message {
    /// The application was imported.
    Ready(Ready),
    /// It could not be.
    Failed(LoadFailure),
    /// A request raised an exception.
    Error(Failure),
    /// It imported further files of the application.
    Files(Files),
}

/// The facts of a process that is ready.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Ready {
    /// The version of Python.
    pub python: String,
    /// Source files of the application.
    #[serde(default)]
    pub files: Vec<PathBuf>,
    /// The hooks, where it is a process of hooks.
    #[serde(default)]
    pub hooks: Vec<Declared>,
    /// The bounds that hold for it, for people.
    #[serde(default)]
    pub confined: Vec<String>,
    /// Those that the system lacks.
    #[serde(default)]
    pub lacks: Vec<String>,
    /// The routes that the hooks name in so many words.
    #[serde(default)]
    pub routes: Vec<NamedRoute>,
}

/// Files that were imported after the process was ready.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Files {
    /// Source files of the application.
    pub files: Vec<PathBuf>,
}

/// Why an application could not be loaded.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct LoadFailure {
    /// The traceback.
    pub traceback: String,
    /// The probable remedy.
    #[serde(default)]
    pub hint: String,
    /// Files of the application that it had read until then: it is tried again when one of them changes.
    #[serde(default)]
    pub files: Vec<PathBuf>,
}

impl LoadFailure {
    /// One that no process has told.
    pub fn of(what: impl Into<String>) -> LoadFailure {
        LoadFailure { traceback: what.into(), hint: String::new(), files: Vec::new() }
    }
}

/// Reads a line; `None` for one that is no message.
pub(super) fn parse(line: &[u8]) -> Option<Message> {
    serde_json::from_slice(line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages() {
        let ready = br#"{"ready": {"pid": 7, "python": "3.11.7", "files": ["/srv/app.py"], "new": 1}}"#;
        assert!(
            matches!(parse(ready), Some(Message::Ready(ready)) if ready.python == "3.11.7" && ready.files.len() == 1)
        );
        let failed = br#"{"failed": {"traceback": "Traceback:\n  File\nModuleNotFoundError: No module named 'x'\n\n", "hint": "install x"}}"#;
        let Some(Message::Failed(failed)) = parse(failed) else { panic!("no failure") };
        assert_eq!((failed.hint.as_str(), failed.files.len()), ("install x", 0));
        let error = br#"{"error": {"request": "abc", "method": "GET", "target": "/", "traceback": "T"}}"#;
        assert!(matches!(parse(error), Some(Message::Error(failure)) if failure.request == "abc"));
        let files = br#"{"files": {"files": ["/srv/views.py"]}}"#;
        assert!(matches!(parse(files), Some(Message::Files(Files { files })) if files.len() == 1));
        for no_message in [&b""[..], b"{}", b"{\"ready\": 1}", b"[]", b"\xff", b"{\"error\": {}}", b"{\"other\": {}}"] {
            assert!(parse(no_message).is_none(), "{no_message:?}");
        }
    }
}
