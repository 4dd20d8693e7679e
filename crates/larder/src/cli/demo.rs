//! `larder demo`: the command; what it plays is in [`crate::demo`].

use super::TROUBLE;
use crate::demo::{self, Options};
use crate::diagnostics;
use clap::Args;

#[derive(Args)]
pub(super) struct DemoFlags {
    /// Leave out the package from a real registry
    #[arg(long)]
    local: bool,
    /// Download URLs into files, as the demo does on a machine without curl
    #[arg(long, hide = true, num_args = 2.., value_names = ["URL", "FILE"])]
    download: Vec<String>,
}

pub(super) fn demo(flags: &DemoFlags) -> u8 {
    let outcome = match &*flags.download {
        [] => demo::play(&Options { local: flags.local }).map(u8::from),
        pairs => demo::download(pairs).map(|()| 0),
    };
    outcome.unwrap_or_else(|error| {
        diagnostics::say(format_args!("larder demo: {}", diagnostics::in_one_line(&*error)));
        TROUBLE
    })
}
