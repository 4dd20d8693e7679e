//! `larder fetch-later`: what offline runs did not find, and the way to get it.

use super::{Flags, Here, TROUBLE, WRONG, print, start_for_a_run};
use crate::config::DiskAdmission;
use crate::diagnostics;
use crate::run;
use crate::run::control::{LaterRequest, Network};
use crate::run::later::{self, Later};
use clap::Args;
use std::net::SocketAddr;

#[derive(Args)]
pub(super) struct FetchLaterFlags {
    #[command(flatten)]
    flags: Flags,
    /// Fetch all of it now
    #[arg(long, conflicts_with = "clear")]
    run: bool,
    /// Forget the list
    #[arg(long)]
    clear: bool,
}

pub(super) fn fetch_later(flags: FetchLaterFlags) -> u8 {
    diagnostics::begin();
    let (mut config, keeps_all) = match flags.flags.read(Here::PassedOver) {
        Ok(loaded) => {
            let keeps_all = !loaded.sources.contains_key("disk_admission");
            (super::prepared(loaded, super::Notes::Silent).config, keeps_all)
        }
        Err(report) => {
            diagnostics::say_text(format_args!("{report}"));
            return WRONG;
        }
    };
    let Some(folder) = config.store_folder() else {
        diagnostics::say(format_args!("error: there is no store folder, and so no list: name one with --store DIR"));
        return TROUBLE;
    };
    let list = Later::of(&folder);
    if flags.clear {
        return list.write(&[]).map_or_else(|error| broken(&error), |()| 0);
    }
    let listed = match list.read() {
        Ok(listed) => listed,
        Err(error) => return broken(&error),
    };
    if !flags.run {
        return print(listed.iter().map(|request| format!("{}\n", request.url)).collect::<String>());
    }
    if config.disk_bytes == Some(0) {
        diagnostics::say(format_args!(
            "error: nothing is kept on disk here, so that it would be fetched in vain: see `disk`"
        ));
        return TROUBLE;
    }
    // As a run does in a Larder of its own.
    if keeps_all {
        config.disk.admission = DiskAdmission::All;
    }
    let sent =
        run::with_proxy(config, |config| start_for_a_run(config, Network::Used), |proxy| fetch_all(proxy, &listed));
    let sent = match sent {
        Ok(sent) => sent,
        Err(error) => {
            diagnostics::say(format_args!("error: {}", super::explain(&error)));
            return TROUBLE;
        }
    };
    let failed = u8::from(sent.len() < listed.len());
    list.remove(&sent).map_or_else(|error| broken(&error), |()| failed)
}

/// Fetches one after the other; gives those that were answered. An answer that may not be stored counts too: it is missing again in
/// the next offline run.
fn fetch_all(proxy: SocketAddr, listed: &[LaterRequest]) -> Vec<LaterRequest> {
    let mut sent = Vec::new();
    for (number, request) in listed.iter().enumerate() {
        let outcome = match later::fetch(proxy, request) {
            Ok(fetched) if fetched.status < 400 => {
                sent.push(request.clone());
                format!("{} {} bytes", fetched.status, fetched.bytes)
            }
            Ok(fetched) => format!("{}, stays in the list", fetched.status),
            Err(error) => format!("{error}, stays in the list"),
        };
        diagnostics::say(format_args!("larder: {} of {}: {}: {outcome}", number + 1, listed.len(), request.url));
    }
    sent
}

fn broken(error: &std::io::Error) -> u8 {
    diagnostics::say(format_args!("error: the list fetch-later.jsonl in the store folder can't be used: {error}"));
    TROUBLE
}
