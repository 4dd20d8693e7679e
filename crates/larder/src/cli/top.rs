//! `larder top`: what the running Larder does, live.

use super::{Flags, TROUBLE};
use crate::run::control;
use crate::top;
use clap::Args;

#[derive(Args)]
pub(super) struct TopFlags {
    #[command(flatten)]
    flags: Flags,
    /// End after so many seconds; without a terminal it prints a line a second
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
}

pub(super) fn top(flags: &TopFlags) -> u8 {
    let loaded = match flags.flags.load() {
        Ok(loaded) => loaded,
        Err(status) => return status,
    };
    let Some(folder) = loaded.config.store_folder() else {
        eprintln!("error: there is no folder for the control socket: name the one of the server with --store DIR");
        return TROUBLE;
    };
    match top::top(control::Client::new(control::socket(&folder)), flags.seconds) {
        Ok(()) => 0,
        Err(error) => {
            let place = folder.display();
            eprintln!("error: no larder answers in {place}: {error}; is it running, and is its --store another?");
            TROUBLE
        }
    }
}
