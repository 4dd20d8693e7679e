//! `larder explain`: what was decided about a request, or would be.

use super::running::{note_errors, store_of};
use super::{Flags, TROUBLE, WRONG};
use crate::config::listen_address;
use crate::config::proxy_variables::ProxyVariables;
use crate::diagnostics;
use crate::explain::{self, Asking, Explanation, Places, Summary};
use crate::lists;
use crate::record::Id;
use crate::run::{self, control};
use crate::{cache_settings, disk};
use clap::Args;
use larder_cache::cache::Cache;
use larder_people::form::encoded;
use serde::Deserialize;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

#[derive(Args)]
pub(super) struct ExplainFlags {
    #[command(flatten)]
    flags: Flags,
    /// A URL: what would happen now. The name of a request (field Larder-Request, `id` in the log): what happened
    #[arg(value_name = "URL|REQUEST-ID", required_unless_present = "last")]
    what: Option<String>,
    /// The newest request that the running Larder had
    #[arg(long, conflicts_with_all = ["what", "header", "client", "at"])]
    last: bool,
    /// A field of the request
    #[arg(long = "header", short = 'H', value_name = "'NAME: VALUE'")]
    header: Vec<String>,
    /// The method
    #[arg(long, short = 'X', value_name = "METHOD", default_value = "GET")]
    method: String,
    /// The client that would ask
    #[arg(long, value_name = "ADDR")]
    client: Option<IpAddr>,
    /// The listener that would be asked; the first one is the default
    #[arg(long, value_name = "ADDR:PORT|unix:/PATH")]
    at: Option<String>,
    /// The values, as JSON
    #[arg(long)]
    json: bool,
}

impl ExplainFlags {
    /// The URL or the name of a request; empty where the newest one is meant.
    fn what(&self) -> &str {
        self.what.as_deref().unwrap_or_default()
    }

    fn asking(&self) -> Asking {
        let asking = Asking::default();
        Asking {
            url: self.what().to_owned(),
            method: self.method.clone(),
            fields: self.header.clone(),
            client: self.client.unwrap_or(asking.client),
            listener: self.at.as_deref().and_then(listen_address),
            ..asking
        }
    }

    /// The API's path for the same question.
    fn path(&self) -> String {
        if Id::parse(self.what()).is_some() {
            return format!("/requests/{}", self.what());
        }
        let mut path = format!("/explain?url={}&method={}", encoded(self.what()), encoded(&self.method));
        let fields = self.header.iter().map(|field| ("header", field.clone()));
        let client = self.client.map(|client| ("client", client.to_string()));
        let at = self.at.clone().map(|at| ("listener", at));
        for (name, value) in fields.chain(client).chain(at) {
            path += &format!("&{name}={}", encoded(&value));
        }
        path
    }
}

pub(super) fn explain(flags: &ExplainFlags) -> u8 {
    let (loaded, report) = match store_of(&flags.flags) {
        Ok(found) => found,
        Err(status) => return status,
    };
    let folder = loaded.config.store_folder();
    let answer = match &folder {
        Some(folder) => asked(flags, &control::Client::new(control::socket(folder))),
        None => Err(io::ErrorKind::NotFound.into()),
    };
    // A server that runs needs nothing of the file.
    match (&answer, report) {
        (Err(error), Some(report)) if is_nobody(error) => {
            diagnostics::say_text(format_args!("{report}"));
            return WRONG;
        }
        (_, Some(report)) => note_errors(&report, folder.as_deref()),
        (_, None) => {}
    }
    match answer {
        Ok(Ok(explanation)) => show(flags, &explanation),
        Ok(Err(trouble)) => {
            diagnostics::say(format_args!("error: {trouble}"));
            WRONG
        }
        Err(error) if is_nobody(&error) => without_server(flags, loaded, folder.as_deref()),
        Err(error) => {
            let place = folder.as_deref().unwrap_or(Path::new("")).display();
            diagnostics::say(format_args!("error: the larder in {place} gave no answer: {error}"));
            TROUBLE
        }
    }
}

/// The requests that a server had, the newest first.
#[derive(Deserialize)]
struct Requests {
    requests: Vec<Summary>,
}

/// The explanation that a running server gives.
fn asked(flags: &ExplainFlags, client: &control::Client) -> io::Result<Result<Explanation, String>> {
    if !flags.last {
        return client.ask_for(&flags.path());
    }
    Ok(match client.ask_for::<Requests>("/requests?limit=1")? {
        Ok(Requests { requests }) => match requests.first() {
            Some(newest) => return client.ask_for(&format!("/requests/{}", newest.id)),
            None => Err("it had no request yet".to_owned()),
        },
        Err(trouble) => Err(trouble),
    })
}

fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn show(flags: &ExplainFlags, explanation: &Explanation) -> u8 {
    if flags.json {
        let text = serde_json::to_string_pretty(explanation).unwrap_or_default();
        return super::print(text + "\n");
    }
    super::print(explanation)
}

/// Without a server the disk and the configuration are all there is to look at.
fn without_server(flags: &ExplainFlags, loaded: crate::config::Loaded, folder: Option<&Path>) -> u8 {
    let place = folder.map_or("no folder".to_owned(), |folder| folder.display().to_string());
    if flags.last || Id::parse(flags.what()).is_some() {
        diagnostics::say(format_args!(
            "error: no larder runs in {place}, and only the one that had a request can explain it; name its --store, or \
             explain the URL"
        ));
        return TROUBLE;
    }
    let crate::config::Loaded { config, sources, .. } = super::prepared(loaded, super::Notes::Silent);
    let disk = match disk::open(&config) {
        Ok(disk) => disk,
        Err(error) => {
            diagnostics::say(format_args!("error: {}", diagnostics::in_one_line(&error)));
            return TROUBLE;
        }
    };
    disk.iter().for_each(|disk| super::tell_notices(disk));
    // Without a server the next one to use this store is `larder run`, unless listeners or sites are configured.
    let of_run = flags.at.is_none() && !["listen", "site"].iter().any(|name| sources.contains_key(name));
    let (config, way) = match of_run {
        true => {
            let own = run::config_of_own(config, run::control::Way::Proxy);
            let with_parents = own.with_parents_of_environment(&ProxyVariables::of_this_process());
            let Ok(own) = with_parents.inspect_err(|trouble| diagnostics::say(format_args!("error: {trouble}"))) else {
                return WRONG;
            };
            (own, "as `larder run` would be answered")
        }
        false => (config, "as the configured listeners would answer"),
    };
    diagnostics::say(format_args!(
        "no larder runs in {place}: this is from its disk and the configuration, {way}; what memory held is gone"
    ));
    let cache = Cache::over(cache_settings::cache_settings(&config, 0), disk.clone());
    let lists = Arc::new(lists::for_rehearsal(&config).0);
    let places = Places { config: Arc::new(config), edition: 0, sources, lists: Some(Arc::clone(&lists)) };
    let answered = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let answered = answered.map(|runtime| {
        runtime.block_on(explain::ahead(
            &Asking { of_run, ..flags.asking() },
            &cache,
            explain::OfServer { lists: Some(&lists), ..explain::OfServer::default() },
            &places,
        ))
    });
    if let Some(disk) = disk {
        disk.close();
    }
    match answered {
        Ok(Ok(explanation)) => show(flags, &explanation),
        Ok(Err(trouble)) => {
            diagnostics::say(format_args!("error: {trouble}"));
            WRONG
        }
        Err(error) => {
            diagnostics::say(format_args!("error: no runtime: {error}; raise the open file limit"));
            TROUBLE
        }
    }
}
