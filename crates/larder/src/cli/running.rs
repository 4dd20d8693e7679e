//! Finds the running Larder that a command talks to.

use super::{Flags, Here, TROUBLE};
use crate::config::Report;
use crate::diagnostics;
use crate::run::control::{self, Client};
use std::io;
use std::path::{Path, PathBuf};

/// The Larder that a command's flags select, whether it runs or not.
pub(super) struct Running {
    folder: PathBuf,
}

/// The store folder that flags and file name. Of a file with errors the rest counts, for a server that runs has none of them; a note says so.
fn store_of(flags: &Flags) -> Option<PathBuf> {
    let (loaded, report) = flags.examine(Here::Looked);
    let folder = loaded.config.store_folder();
    if let Some(report) = report {
        note_errors(&report, folder.as_deref());
    }
    folder
}

/// Notes that a configuration has errors, and which server is asked all the same.
pub(super) fn note_errors(report: &Report, folder: Option<&Path>) {
    let (errors, folder) = (report.problems().len(), folder.unwrap_or(Path::new("")).display());
    let errors = if errors == 1 { "an error".to_owned() } else { format!("{errors} errors") };
    diagnostics::say(format_args!(
        "note: the configuration here has {errors}, which `larder check` names; the larder of the store {folder} is asked (--store names another)"
    ));
}

impl Running {
    /// The Larder whose store folder flags and file name. That there is none is reported, and given as the exit status.
    pub(super) fn of(flags: &Flags) -> Result<Running, u8> {
        let folder = store_of(flags).ok_or_else(|| {
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
