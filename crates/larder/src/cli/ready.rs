//! `larder ready`: the exit status that the health check of a container looks at, where no other program is at hand.

use super::running::Running;
use super::{Flags, TROUBLE, print};
use crate::diagnostics;

pub(super) fn ready(flags: &Flags) -> u8 {
    let running = match Running::of(flags) {
        Ok(running) => running,
        Err(status) => return status,
    };
    match running.client().readiness() {
        Ok(Ok(())) => print("ready\n"),
        Ok(Err(why)) => {
            diagnostics::say(format_args!("error: {why}"));
            TROUBLE
        }
        Err(error) => running.gave_no_answer(&error),
    }
}
