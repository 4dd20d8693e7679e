//! `larder reload`: has the running Larder read its configuration again.

use super::{Flags, TROUBLE, WRONG};
use crate::run::control::{self, Reloaded};

pub(super) fn reload(flags: &Flags) -> u8 {
    let loaded = match flags.load() {
        Ok(loaded) => loaded,
        Err(status) => return status,
    };
    let Some(folder) = loaded.config.store_folder() else {
        eprintln!("error: there is no folder for the control socket: name the one of the server with --store DIR");
        return TROUBLE;
    };
    match control::Client::new(control::socket(&folder)).reload() {
        Ok(Ok(reloaded)) => super::print(summary(&reloaded) + "\n"),
        Ok(Err(trouble)) => {
            eprintln!("error: the server did not take the configuration, the last one holds\n{trouble}");
            WRONG
        }
        Err(error) => {
            let place = folder.display();
            eprintln!("error: no larder answers in {place}: {error}; is it running, and is its --store another?");
            TROUBLE
        }
    }
}

/// What changed, and what waits.
pub(super) fn summary(reloaded: &Reloaded) -> String {
    let Reloaded { changed, needs_restart } = reloaded;
    let mut text = match changed.is_empty() {
        true => "reloaded: no setting has another value; certificates were read again".to_owned(),
        false => format!("reloaded: changed {}", changed.join(", ")),
    };
    if !needs_restart.is_empty() {
        text += &format!("; waits for a restart: {}", needs_restart.join(", "));
    }
    text
}
