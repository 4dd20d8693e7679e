//! `larder reload`: has the running Larder read its configuration again.

use super::running::Running;
use super::{Flags, WRONG};
use crate::diagnostics;
use crate::run::control::Reloaded;

pub(super) fn reload(flags: &Flags) -> u8 {
    let running = match Running::of(flags) {
        Ok(running) => running,
        Err(status) => return status,
    };
    match running.client().reload() {
        Ok(Ok(reloaded)) => super::print(summary(&reloaded) + "\n"),
        Ok(Err(trouble)) => {
            diagnostics::say(format_args!(
                "error: the server did not take the configuration, the last one holds\n{trouble}"
            ));
            WRONG
        }
        Err(error) => running.gave_no_answer(&error),
    }
}

/// The changed settings, and those that wait for a restart.
pub(super) fn summary(reloaded: &Reloaded) -> String {
    let Reloaded { changed, needs_restart, read_again } = reloaded;
    let mut text = match changed.is_empty() {
        true => "reloaded: no setting has another value".to_owned(),
        false => format!("reloaded: changed {}", changed.join(", ")),
    };
    if !read_again.is_empty() {
        text += &format!("; read again: {}", read_again.join(", "));
    }
    if !needs_restart.is_empty() {
        text += &format!("; waits for a restart: {}", needs_restart.join(", "));
    }
    text
}
