//! Finds the running Larder that a command talks to.

use super::{Flags, Here, TROUBLE, WRONG};
use crate::config::{Loaded, Report};
use crate::diagnostics;
use crate::run::control::{self, Client};
use std::io;
use std::path::{Path, PathBuf};

/// The Larder that a command's flags select, whether it runs or not.
pub(super) struct Running {
    folder: PathBuf,
}

/// The configuration, and its store folder. Of a file that was found with errors the rest counts, for a server that runs has none of them, and
/// the report is given too; a file that a flag names has to be right, for it may be a word for another server.
pub(super) fn store_of(flags: &Flags) -> Result<(Loaded, Option<Report>), u8> {
    let (loaded, report) = flags.examine(Here::Looked);
    match report {
        Some(report) if flags.config.is_some() && flags.store.is_none() => {
            diagnostics::say_text(format_args!("{report}"));
            Err(WRONG)
        }
        report => Ok((loaded, report)),
    }
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
        let (loaded, report) = store_of(flags)?;
        let folder = loaded.config.store_folder();
        if let Some(report) = report {
            note_errors(&report, folder.as_deref());
        }
        let folder = folder.ok_or_else(|| {
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
