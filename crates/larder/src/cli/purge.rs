//! `larder purge`: has the running Larder forget something.

use super::running::Running;
use super::{Flags, WRONG};
use crate::diagnostics;
use crate::purge::{PurgeRequest, Report, Selection};
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
    fn wanted(&self) -> Result<PurgeRequest, String> {
        let selection = match (&self.url, &self.prefix, &self.tag) {
            (Some(url), ..) => {
                let parsed = Url::parse(url);
                Selection::Url(
                    parsed.ok_or_else(|| format!("{url}: an absolute URL is needed, like http://a.example/x"))?,
                )
            }
            (_, Some(prefix), _) => Selection::Prefix(prefix.clone()),
            (.., Some(tag)) => Selection::Tag(tag.clone()),
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
        Ok(Ok(report)) => super::print(summary(&report)),
        Ok(Err(trouble)) => {
            diagnostics::say(format_args!("error: {trouble}"));
            WRONG
        }
        Err(error) => running.gave_no_answer(&error),
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
    let hint = match report.count {
        // A user who got the scheme wrong would think that the purge had worked.
        Some(0) if report.scope == "url" => {
            "; scheme and port count: the page and `larder explain URL` say what lies there"
        }
        Some(0) if report.scope == "prefix" => "; it begins with the scheme: the page lists what begins so",
        _ => "",
    };
    format!("purged by {}: {count}{durable}{hint}\n", report.scope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purge_of_nothing_says_what_may_be_wrong() {
        let said = |scope: &str, force: Force, count| {
            let force = force.as_str().to_owned();
            summary(&Report { scope: scope.to_owned(), force, count, durable: true })
        };
        assert_eq!(said("url", Force::Hard, Some(1)), "purged by url: 1 stored response is forgotten, on disk\n");
        assert_eq!(said("tag", Force::Soft, Some(2)), "purged by tag: 2 stored responses are stale, on disk\n");
        assert_eq!(said("all", Force::Hard, Some(0)), "purged by all: 0 stored responses are forgotten, on disk\n");
        assert!(said("url", Force::Hard, Some(0)).contains("scheme and port count"));
        assert!(said("prefix", Force::Hard, Some(0)).contains("begins with the scheme"));
        assert!(said("all", Force::Hard, None).contains("too much is stored"));
    }
}
