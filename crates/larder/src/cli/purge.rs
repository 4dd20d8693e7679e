//! `larder purge`: has the running Larder forget something.

use super::{Flags, TROUBLE, WRONG};
use crate::purge::{Report, Wanted, What};
use crate::run::control;
use clap::Args;
use larder_cache::store::rules::Force;
use larder_wire::Url;

#[derive(Args)]
pub(super) struct PurgeFlags {
    #[command(flatten)]
    flags: Flags,
    /// Forget all variants of this URL
    #[arg(value_name = "URL", required_unless_present_any = ["prefix", "tag", "all"], conflicts_with_all = ["prefix", "tag", "all"])]
    url: Option<String>,
    /// Forget all URLs that begin so
    #[arg(long, value_name = "P", conflicts_with_all = ["tag", "all"])]
    prefix: Option<String>,
    /// Forget all responses with this tag (Surrogate-Key, Cache-Tag, xkey)
    #[arg(long, value_name = "T", conflicts_with = "all")]
    tag: Option<String>,
    /// Forget everything
    #[arg(long)]
    all: bool,
    /// Do not forget: validate at the origin before the next use
    #[arg(long)]
    soft: bool,
}

impl PurgeFlags {
    fn wanted(&self) -> Result<Wanted, String> {
        let what = match (&self.url, &self.prefix, &self.tag) {
            (Some(url), ..) => {
                let parsed = Url::parse(url);
                What::Url(parsed.ok_or_else(|| format!("{url}: an absolute URL is needed, like http://a.example/x"))?)
            }
            (_, Some(prefix), _) => What::Prefix(prefix.clone()),
            (.., Some(tag)) => What::Tag(tag.clone()),
            _ => What::All,
        };
        Ok(Wanted { what, force: if self.soft { Force::Soft } else { Force::Hard } })
    }
}

pub(super) fn purge(flags: &PurgeFlags) -> u8 {
    let wanted = match flags.wanted() {
        Ok(wanted) => wanted,
        Err(trouble) => {
            eprintln!("error: {trouble}");
            return WRONG;
        }
    };
    let loaded = match flags.flags.load() {
        Ok(loaded) => loaded,
        Err(status) => return status,
    };
    let Some(folder) = loaded.config.store_folder() else {
        eprintln!("error: there is no folder for the control socket: name the one of the server with --store DIR");
        return TROUBLE;
    };
    match control::Client::new(control::socket(&folder)).change::<Report>(&format!("/purge?{}", wanted.query())) {
        Ok(Ok(report)) => super::print(summary(&report)),
        Ok(Err(trouble)) => {
            eprintln!("error: {trouble}");
            WRONG
        }
        Err(error) => {
            let place = folder.display();
            eprintln!("error: no larder answers in {place}: {error}; is it running, and is its --store another?");
            TROUBLE
        }
    }
}

fn summary(report: &Report) -> String {
    let done = if report.force == Force::Soft.as_str() { "stale" } else { "forgotten" };
    let count = match report.count {
        Some(1) => format!("1 stored response is {done}"),
        Some(count) => format!("{count} stored responses are {done}"),
        None => format!("what it matches is {done} (too much is stored to count it)"),
    };
    let durable = if report.durable { ", on disk" } else { "" };
    format!("purged by {}: {count}{durable}\n", report.scope)
}
