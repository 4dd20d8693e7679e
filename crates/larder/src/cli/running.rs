//! Finds the running Larder that a command talks to.

use super::{Flags, TROUBLE};
use crate::diagnostics;
use crate::run::control::{self, Client};
use std::io;
use std::path::PathBuf;

/// The Larder that a command's flags select, whether it runs or not.
pub(super) struct Running {
    folder: PathBuf,
}

impl Running {
    /// The Larder whose store folder flags and file name. An error is reported, and given as the exit status.
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

    /// Reports that it gave no answer; gives the exit status.
    pub(super) fn gave_no_answer(&self, error: &io::Error) -> u8 {
        let place = self.folder.display();
        diagnostics::say(format_args!(
            "error: no larder answers in {place}: {error}; is it running, and is its --store another?"
        ));
        TROUBLE
    }
}
