//! The way from a command to the Larder that runs.

use super::{Flags, TROUBLE};
use crate::diagnostics;
use crate::run::control::{self, Client};
use std::io;
use std::path::PathBuf;

/// The Larder that a command's flags mean, whether it runs or not.
pub(super) struct Running {
    folder: PathBuf,
}

impl Running {
    /// The one whose store is where flags and file say. A trouble is told, and given as the status to end with.
    pub(super) fn of(flags: &Flags) -> Result<Running, u8> {
        let folder = flags.load()?.config.store_folder().ok_or_else(|| {
            diagnostics::say(format_args!(
                "error: there is no folder for the control socket: name the one of the server with --store DIR"
            ));
            TROUBLE
        })?;
        Ok(Running { folder })
    }

    /// Asks it.
    pub(super) fn client(&self) -> Client {
        Client::new(control::socket(&self.folder))
    }

    /// Says that it gave no answer; the status to end with.
    pub(super) fn gave_no_answer(&self, error: &io::Error) -> u8 {
        let place = self.folder.display();
        diagnostics::say(format_args!(
            "error: no larder answers in {place}: {error}; is it running, and is its --store another?"
        ));
        TROUBLE
    }
}
