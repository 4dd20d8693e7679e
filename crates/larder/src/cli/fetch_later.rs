//! `larder fetch-later`: what offline runs did not find, and the way to get it.

use super::{Flags, Here, TROUBLE, WRONG, print, start_for_a_run};
use crate::diagnostics;
use crate::run::control::{LaterRequest, Network};
use crate::run::later::{self, Later};
use crate::run::{self, Own};
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
    let config = match flags.flags.read(Here::PassedOver) {
        Ok(loaded) => super::prepared(loaded, super::Notes::Silent).config,
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
    let listed = match list.read() {
        Ok(listed) => listed,
        Err(error) => return broken(&error),
    };
    if flags.clear {
        return list.write(&[]).map_or_else(|error| broken(&error), |()| 0);
    }
    if !flags.run {
        return print(listed.iter().map(|request| format!("{}\n", request.url)).collect::<String>());
    }
    let start = |config| start_for_a_run(config, Network::Used) as Result<Own, _>;
    let left = run::with_proxy(config, start, |proxy| fetch_all(proxy, &listed));
    let left = match left {
        Ok(left) => left,
        Err(error) => {
            diagnostics::say(format_args!("error: {}", super::explain(&error)));
            return TROUBLE;
        }
    };
    let failed = u8::from(!left.is_empty());
    list.write(&left).map_or_else(|error| broken(&error), |()| failed)
}

/// Fetches one after the other; gives those that failed.
fn fetch_all(proxy: SocketAddr, listed: &[LaterRequest]) -> Vec<LaterRequest> {
    let mut left = Vec::new();
    for (number, request) in listed.iter().enumerate() {
        let outcome = match later::fetch(proxy, request) {
            Ok(fetched) if fetched.status < 400 => format!("{} {} bytes", fetched.status, fetched.bytes),
            Ok(fetched) => {
                left.push(request.clone());
                format!("{}, stays in the list", fetched.status)
            }
            Err(error) => {
                left.push(request.clone());
                format!("{error}, stays in the list")
            }
        };
        diagnostics::say(format_args!("larder: {} of {}: {}: {outcome}", number + 1, listed.len(), request.url));
    }
    left
}

fn broken(error: &std::io::Error) -> u8 {
    diagnostics::say(format_args!("error: the list fetch-later.jsonl in the store folder can't be used: {error}"));
    TROUBLE
}
