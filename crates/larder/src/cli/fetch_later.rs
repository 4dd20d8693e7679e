//! `larder fetch-later`: what offline runs did not find, and the way to get it.

use super::{Flags, TROUBLE, WRONG, print, start_for_a_run};
use crate::config::places::Here;
use crate::config::{Config, DiskAdmission};
use crate::diagnostics;
use crate::run;
use crate::run::control::{LaterRequest, Network, Way};
use crate::run::download::{self, BodyUse};
use crate::run::later::Later;
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
    let config = match for_downloads(&flags.flags) {
        Ok(config) => config,
        Err(status) => return status,
    };
    let Some(folder) = config.store_folder() else {
        diagnostics::say(format_args!("error: there is no store folder, and so no list: name one with --store DIR"));
        return TROUBLE;
    };
    let list = Later::of(&folder);
    if flags.clear {
        return list.clear().map_or_else(|error| broken(&error), |()| 0);
    }
    let listed = match list.read() {
        Ok(listed) => listed,
        Err(error) => return broken(&error),
    };
    if !flags.run {
        return print(listed.iter().map(line).collect::<String>());
    }
    if keeps_nothing(&config) {
        return TROUBLE;
    }
    let sent = run::with_proxy(
        config,
        |config| start_for_a_run(config, Network::Used, Way::Proxy),
        |proxy| fetch_all(proxy, &listed),
    );
    let sent = match sent {
        Ok(sent) => sent,
        Err(error) => {
            diagnostics::say(format_args!("error: {}", diagnostics::in_one_line(&error)));
            return TROUBLE;
        }
    };
    let failed = u8::from(sent.len() < listed.len());
    list.remove(&sent).map_or_else(|error| broken(&error), |()| failed)
}

fn line(request: &LaterRequest) -> String {
    match &request.part {
        None => format!("{}\n", request.url),
        Some(part) => format!("{}  (a part was asked for, {part}; the whole is fetched)\n", request.url),
    }
}

/// The settings of a Larder that downloads for later: everything goes to disk unless the user chose otherwise. `Err`: the
/// exit status, after the reason was told.
pub(super) fn for_downloads(flags: &Flags) -> Result<Config, u8> {
    let loaded = flags.read(Here::PassedOver).map_err(|report| {
        diagnostics::say_text(format_args!("{report}"));
        WRONG
    })?;
    let keeps_all = !loaded.sources.contains_key("disk_admission");
    let waits_for_disk = !loaded.sources.contains_key("overload.pass_by_disk");
    let mut config = super::prepared(loaded, super::Notes::Silent).config;
    if keeps_all {
        config.disk.admission = DiskAdmission::All;
    }
    config.overload.pass_by_disk &= !waits_for_disk;
    Ok(config)
}

/// Whether downloads would be in vain, which is told.
pub(super) fn keeps_nothing(config: &Config) -> bool {
    if config.disk_bytes == Some(0) {
        diagnostics::say(format_args!(
            "error: nothing is kept on disk here, so that it would be fetched in vain: see `disk`"
        ));
        return true;
    }
    false
}

/// Fetches one after the other; gives those that were answered. An answer that may not be stored counts too: it is missing again in
/// the next offline run.
fn fetch_all(proxy: SocketAddr, listed: &[LaterRequest]) -> Vec<LaterRequest> {
    let mut sent = Vec::new();
    for (number, request) in listed.iter().enumerate() {
        let outcome = match download::fetch(proxy, request, BodyUse::Counted) {
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
