//! Shell completions and manual pages, made from the command line's own description.

use super::{Cli, TROUBLE, print};
use crate::diagnostics;
use clap::CommandFactory;
use std::path::Path;

pub(super) fn completions(shell: clap_complete::Shell) -> u8 {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "larder", &mut text);
    print(String::from_utf8_lossy(&text))
}

/// Writes `larder.1` and a page for each command.
pub(super) fn manual(folder: &Path) -> u8 {
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    match written {
        Ok(()) => print(format!(
            "written to {}: read with `man -l {}`\n",
            folder.display(),
            folder.join("larder.1").display()
        )),
        Err(error) => {
            diagnostics::say(format_args!("error: cannot write to {}: {error}", folder.display()));
            TROUBLE
        }
    }
}
