//! `larder top`: what the running Larder does, live.

use super::Flags;
use super::running::Running;
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
    let running = match Running::of(&flags.flags) {
        Ok(running) => running,
        Err(status) => return status,
    };
    match top::top(running.client(), flags.seconds) {
        Ok(()) => 0,
        Err(error) => running.gave_no_answer(&error),
    }
}
