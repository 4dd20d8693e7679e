//! `larder reload`: has the running Larder read its configuration again.

use super::running::{Running, store_of};
use super::{Flags, TROUBLE, WRONG};
use crate::diagnostics;
use crate::explain::Harmless;
use crate::run::control::{LoadOutcome, Reloaded, ReloadedScript};

pub(super) fn reload(flags: &Flags) -> u8 {
    // Without the file nobody knows whose configuration is meant, and its errors are what somebody who reloads has to see.
    if let (Ok((_, Some(report))), None) = (store_of(flags), &flags.store) {
        diagnostics::say_text(format_args!("{report}"));
        return WRONG;
    }
    let running = match Running::of(flags) {
        Ok(running) => running,
        Err(status) => return status,
    };
    match running.client().reload() {
        Ok(Ok(reloaded)) => {
            let status = super::print(summary(&reloaded) + "\n");
            let troubles = reloaded.scripts.iter().filter(|script| script.outcome.is_trouble());
            troubles.map(complain).max().unwrap_or_default().max(status)
        }
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
    let Reloaded { changed, needs_restart, read_again, scripts } = reloaded;
    let what = match scripts.iter().any(|script| script.outcome.is_trouble()) {
        true => "reloaded the settings, but not every script",
        false => "reloaded",
    };
    let mut text = match changed.is_empty() {
        true => format!("{what}: no setting has another value"),
        false => format!("{what}: changed {}", changed.join(", ")),
    };
    if !read_again.is_empty() {
        text += &format!("; read again: {}", read_again.join(", "));
    }
    if !needs_restart.is_empty() {
        text += &format!("; waits for a restart: {}", needs_restart.join(", "));
    }
    for (outcome, words) in [(LoadOutcome::Loaded, "loaded anew"), (LoadOutcome::Unchanged, "no file has changed")] {
        let of_outcome = scripts.iter().filter(|script| script.outcome == outcome);
        let names: Vec<String> = of_outcome.map(|script| Harmless(&script.name).to_string()).collect();
        if !names.is_empty() {
            text += &format!("; {words}: {}", names.join(", "));
        }
    }
    text
}

/// Tells of an application whose files as they are do not serve.
fn complain(ReloadedScript { name, outcome, trouble, meanwhile }: &ReloadedScript) -> u8 {
    let what = match outcome {
        LoadOutcome::Loading => {
            let meanwhile = meanwhile.as_ref().map_or(String::new(), |it| format!(", and {}", Harmless(it)));
            format!("has not begun yet{meanwhile}: `larder scripts` will say what came of it")
        }
        LoadOutcome::OldGoesOn => "can't be loaded as it is now, and the version before goes on".to_owned(),
        _ => "can't be loaded, and its requests fail".to_owned(),
    };
    let why = trouble.as_ref().map_or(String::new(), |trouble| format!(": {}", Harmless(trouble)));
    diagnostics::say(format_args!("error: {} {what}{why}", Harmless(name)));
    TROUBLE
}
