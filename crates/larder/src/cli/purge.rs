//! `larder purge`: has the running Larder forget something, or the store itself where no Larder runs.

use super::running::Running;
use super::{Flags, TROUBLE, WRONG};
use crate::cluster;
use crate::diagnostics;
use crate::disk;
use crate::purge::{PurgeRequest, Report, Selection};
use crate::shared::StoreFolder;
use clap::Args;
use larder_cache::store::rules::Force;
use larder_wire::{Host, Url};
use std::io;
use std::ops::ControlFlow;

#[derive(Args)]
pub(super) struct PurgeFlags {
    #[command(flatten)]
    flags: Flags,
    /// Forget all variants of this URL
    #[arg(value_name = "URL", required_unless_present_any = ["prefix", "tag", "host", "all"], conflicts_with_all = ["prefix", "tag", "host", "all"])]
    url: Option<String>,
    /// Forget all URLs that begin so
    #[arg(long, value_name = "P", conflicts_with_all = ["tag", "host", "all"])]
    prefix: Option<String>,
    /// Forget all responses with this tag (Surrogate-Key, Cache-Tag, xkey)
    #[arg(long, value_name = "T", conflicts_with_all = ["host", "all"])]
    tag: Option<String>,
    /// Forget all URLs of this host, by any scheme and port
    #[arg(long, value_name = "H", conflicts_with = "all")]
    host: Option<String>,
    /// Forget everything
    #[arg(long)]
    all: bool,
    /// Do not forget: validate at the origin before the next use
    #[arg(long)]
    soft: bool,
}

impl PurgeFlags {
    fn wanted(&self) -> Result<PurgeRequest, String> {
        let selection = match (&self.url, &self.prefix, &self.tag, &self.host) {
            (Some(url), ..) => {
                let parsed = Url::parse_asked(url);
                Selection::Url(
                    parsed.ok_or_else(|| format!("{url}: an absolute URL is needed, like http://a.example/x"))?,
                )
            }
            (_, Some(prefix), ..) => Selection::Prefix(prefix.clone()),
            (_, _, Some(tag), _) => Selection::Tag(tag.clone()),
            (.., Some(host)) => Selection::Host(
                Host::parse(host).ok_or_else(|| format!("{host}: a name or an address is needed, without a port"))?,
            ),
            _ => Selection::All,
        };
        Ok(PurgeRequest { selection, force: if self.soft { Force::Soft } else { Force::Hard } })
    }
}

pub(super) fn purge(flags: &PurgeFlags) -> u8 {
    let wanted = match flags.wanted() {
        Ok(wanted) => wanted,
        Err(trouble) => {
            diagnostics::say(format_args!("error: {trouble}"));
            return WRONG;
        }
    };
    let running = match Running::of(&flags.flags) {
        Ok(running) => running,
        Err(status) => return status,
    };
    match running.client().change::<Report>(&format!("/purge?{}", wanted.query())) {
        Ok(Ok(report)) => {
            let printed = super::print(summary(&report, meets_hooks(flags, &wanted)));
            let is_refused = report.cluster.is_some_and(|spread| spread.state == "refused");
            if is_refused { TROUBLE } else { printed }
        }
        Ok(Err(trouble)) => {
            diagnostics::say(format_args!("error: {trouble}"));
            WRONG
        }
        Err(error) if is_absent(&error) => {
            without_server(flags, &wanted).unwrap_or_else(|| running.gave_no_answer(&error))
        }
        Err(error) => running.gave_no_answer(&error),
    }
}

/// Whether hooks may store what is asked for by this URL under another one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MeetsHooks {
    Yes,
    No,
}

fn meets_hooks(flags: &PurgeFlags, wanted: &PurgeRequest) -> MeetsHooks {
    let Selection::Url(url) = &wanted.selection else { return MeetsHooks::No };
    let loaded = flags.flags.load().ok();
    let hooked = loaded.as_ref().and_then(|loaded| match loaded.config.sites.find(url) {
        Some((_, site)) => site.hooked_by.as_ref(),
        None => loaded.config.forward.hooked_by.as_ref(),
    });
    if hooked.is_some() { MeetsHooks::Yes } else { MeetsHooks::No }
}

/// Whether no server listens at the control socket.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Changes the store itself, which no server uses; `None` where there is none or a server has it after all.
fn without_server(flags: &PurgeFlags, wanted: &PurgeRequest) -> Option<u8> {
    let loaded = flags.flags.load().ok()?;
    let config = super::prepared(loaded, super::Notes::Silent).config;
    // A folder that a wrong flag names is not made.
    if !config.disk_folders().iter().any(|folder| folder.exists()) {
        return None;
    }
    // A server that starts meanwhile must not use the outbox.
    let held = match config.cluster.is_on() {
        true => Some(StoreFolder::take(config.store_folder()?).ok()?),
        false => None,
    };
    let store = disk::open(&config).ok().flatten()?;
    super::tell_notices(&store);
    let count = || {
        let mut heads = 0;
        store.for_each_head(|_| {
            heads += 1;
            ControlFlow::Continue(())
        });
        heads
    };
    // Soft rules take nothing away, so that they are not counted.
    let before = (wanted.force == Force::Hard).then(count);
    let purged = store.invalidate(wanted.selection.scopes(), wanted.force).wait();
    let count = before.map(|before: usize| before.saturating_sub(count()));
    store.close();
    let cluster = match &held {
        None => None,
        Some(folder) => {
            let scopes = wanted.selection.scopes();
            match cluster::queue_without_server(folder.path(), &config.cluster, scopes, wanted.force) {
                Ok(spread) => Some(spread),
                Err(error) => {
                    diagnostics::say(format_args!("error: the purge is not queued for the other nodes: {error}"));
                    return Some(TROUBLE);
                }
            }
        }
    };
    let report = Report {
        scope: wanted.selection.as_str().to_owned(),
        force: wanted.force.as_str().to_owned(),
        count,
        durable: true,
        cluster,
    };
    Some(match purged {
        Ok(_) => super::print(summary(&report, meets_hooks(flags, wanted))),
        Err(_) => {
            diagnostics::say(format_args!("error: the purge can't be written: is there room on the disk?"));
            TROUBLE
        }
    })
}

fn summary(report: &Report, hooks: MeetsHooks) -> String {
    let done = if report.force == Force::Soft.as_str() { "stale" } else { "forgotten" };
    let count = match report.count {
        Some(1) => format!("1 stored response is {done}"),
        Some(count) => format!("{count} stored responses are {done}"),
        None => format!("what it matches is {done} (too much is stored to count it)"),
    };
    let durable = if report.durable { ", on disk" } else { "" };
    let hint = match report.count {
        Some(0) if report.scope == "url" && hooks == MeetsHooks::Yes => {
            "; hooks change URLs here: name the URL that the origin is asked for (`larder explain NAME` of a request says it), or \
             purge by a tag"
        }
        // A user who got the scheme wrong would think that the purge had worked.
        Some(0) if report.scope == "url" => {
            "; scheme and port count: the page and `larder explain URL` say what lies there"
        }
        Some(0) if report.scope == "prefix" => "; it begins with the scheme: the page lists what begins so",
        _ => "",
    };
    let cluster = report.cluster.as_ref().map_or(String::new(), |spread| format!("; {}", spread.words()));
    format!("purged by {}: {count}{durable}{cluster}{hint}\n", report.scope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purge_of_nothing_says_what_may_be_wrong() {
        let by = |hooks, scope: &str, force: Force, count| {
            let force = force.as_str().to_owned();
            summary(&Report { scope: scope.to_owned(), force, count, durable: true, cluster: None }, hooks)
        };
        let said = |scope: &str, force, count| by(MeetsHooks::No, scope, force, count);
        assert_eq!(said("url", Force::Hard, Some(1)), "purged by url: 1 stored response is forgotten, on disk\n");
        assert_eq!(said("tag", Force::Soft, Some(2)), "purged by tag: 2 stored responses are stale, on disk\n");
        assert_eq!(said("all", Force::Hard, Some(0)), "purged by all: 0 stored responses are forgotten, on disk\n");
        assert!(said("url", Force::Hard, Some(0)).contains("scheme and port count"));
        let hooked = by(MeetsHooks::Yes, "url", Force::Hard, Some(0));
        assert!(hooked.contains("the URL that the origin is asked for") && !hooked.contains("scheme"), "{hooked}");
        assert!(!by(MeetsHooks::Yes, "url", Force::Hard, Some(1)).contains("hooks"));
        assert!(said("prefix", Force::Hard, Some(0)).contains("begins with the scheme"));
        assert!(said("all", Force::Hard, None).contains("too much is stored"));
    }
}
