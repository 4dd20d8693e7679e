//! `larder list`: the lists of the running Larder, whether one covers something, and a look at their sources now.

use super::running::Running;
use super::{Flags, TROUBLE, WRONG};
use crate::control::{Judged, ListsShown, OfList};
use crate::diagnostics;
use crate::explain::Harmless;
use crate::run::summary::{size, span};
use clap::{Args, Subcommand};
use larder_people::form::encoded;
use serde::Deserialize;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// How long `larder list refresh` waits for the sources, and how often it asks.
const REFRESH_WITHIN: Duration = Duration::from_secs(1_800);
const ASK_EVERY: Duration = Duration::from_millis(200);

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct ListFlags {
    #[command(flatten)]
    flags: Flags,
    /// The values, as JSON
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: Option<ListCommand>,
}

#[derive(Subcommand)]
enum ListCommand {
    /// Say whether a list covers a host, a URL or an address, and by which entry; exit status 1 where it does not
    Test {
        #[command(flatten)]
        flags: Flags,
        /// The list
        name: String,
        /// The host, URL or address
        #[arg(value_name = "HOST|URL|ADDRESS")]
        of: String,
    },
    /// Look at the source of a list now, or at those of all lists
    Refresh {
        #[command(flatten)]
        flags: Flags,
        /// The list
        name: Option<String>,
        /// Take it though it has become much shorter
        #[arg(long, requires = "name")]
        accept: bool,
    },
}

pub(super) fn list(flags: &ListFlags) -> u8 {
    match &flags.command {
        None => show(flags),
        Some(ListCommand::Test { flags, name, of }) => test(flags, name, of),
        Some(ListCommand::Refresh { flags, name, accept }) => refresh(flags, name.as_deref(), *accept),
    }
}

/// The answer of the running server, or the exit status of its trouble, which was reported.
fn asked<A: serde::de::DeserializeOwned>(running: &Running, path: &str) -> Result<A, u8> {
    match running.client().ask_for::<A>(path) {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(trouble)) => {
            diagnostics::say(format_args!("error: {}", Harmless(&trouble)));
            Err(WRONG)
        }
        Err(error) => Err(running.gave_no_answer(&error)),
    }
}

fn show(flags: &ListFlags) -> u8 {
    let shown = Running::of(&flags.flags).and_then(|running| asked::<ListsShown>(&running, "/lists"));
    let shown = match shown {
        Ok(shown) => shown,
        Err(status) => return status,
    };
    let status = match flags.json {
        true => super::print(serde_json::to_string_pretty(&shown).unwrap_or_default() + "\n"),
        false => super::print(text(&shown.lists)),
    };
    status.max(if shown.lists.iter().any(|list| list.error.is_some()) { TROUBLE } else { 0 })
}

/// All that a terminal shows.
fn text(lists: &[OfList]) -> String {
    if lists.is_empty() {
        return "no list is configured: a [[list]] with `name` and `source` is one (docs/lists.md)\n".to_owned();
    }
    let heads = ["list", "state", "format", "entries", "memory", "read", "looked at", "next look"];
    let ago = |seconds: Option<u64>| {
        seconds.map_or("-".to_owned(), |seconds| format!("{} ago", span(Duration::from_secs(seconds))))
    };
    let row = |list: &OfList| {
        let next =
            list.next_seconds.map_or("-".to_owned(), |seconds| format!("in {}", span(Duration::from_secs(seconds))));
        [
            list.name.clone(),
            list.state.clone(),
            list.format.clone(),
            list.entries.to_string(),
            size(list.memory_bytes),
            ago(list.age_seconds),
            ago(list.checked_seconds),
            next,
        ]
    };
    let mut out = super::columns::columns(&heads, &lists.iter().map(row).collect::<Vec<_>>(), 3);
    for list in lists {
        notes(&mut out, list);
    }
    out
}

fn notes(out: &mut String, list: &OfList) {
    let OfList { name, source, said, .. } = list;
    if let Some(error) = &list.error {
        let effect = match list.state.as_str() {
            "failed" => "it covers nothing until its source can be read",
            _ => "the one before stays in force",
        };
        let _ = writeln!(out, "\n{name} ({said}): {}\n  {}; {effect}", Harmless(source), Harmless(error));
    }
    if list.malformed > 0 {
        let _ = writeln!(out, "\n{name}: malformed lines, which cover nothing: {}; the first of them:", list.malformed);
        for sample in &list.samples {
            let _ = writeln!(out, "  {}", Harmless(sample));
        }
    }
    if list.left_out > 0 {
        let _ =
            writeln!(out, "\n{name}: lines left out, for a proxy can't decide them (docs/lists.md): {}", list.left_out);
    }
}

fn test(flags: &Flags, name: &str, of: &str) -> u8 {
    let path = format!("/lists/test?list={}&of={}", encoded(name), encoded(of));
    match Running::of(flags).and_then(|running| asked::<Judged>(&running, &path)) {
        Ok(judged) => super::print(format!("{}: {}\n", Harmless(&judged.of), Harmless(&judged.why)))
            .max(if judged.covered { 0 } else { TROUBLE }),
        Err(status) => status,
    }
}

/// The answer of a change.
#[derive(Deserialize)]
struct Done {
    #[serde(rename = "done")]
    _done: bool,
}

fn refresh(flags: &Flags, name: Option<&str>, accept: bool) -> u8 {
    let running = match Running::of(flags) {
        Ok(running) => running,
        Err(status) => return status,
    };
    let before = match asked::<ListsShown>(&running, "/lists") {
        Ok(shown) => shown.lists,
        Err(status) => return status,
    };
    let query = match (name, accept) {
        (Some(name), true) => format!("?list={}&accept", encoded(name)),
        (Some(name), false) => format!("?list={}", encoded(name)),
        (None, _) => String::new(),
    };
    match running.client().change::<Done>(&format!("/lists/refresh{query}")) {
        Ok(Ok(_)) => {}
        Ok(Err(trouble)) => {
            diagnostics::say(format_args!("error: {}", Harmless(&trouble)));
            return WRONG;
        }
        Err(error) => return running.gave_no_answer(&error),
    }
    let looks_before = |list: &OfList| before.iter().find(|old| old.name == list.name).map_or(0, |old| old.looks);
    let end = Instant::now() + REFRESH_WITHIN;
    loop {
        let mut lists = match asked::<ListsShown>(&running, "/lists") {
            Ok(shown) => shown.lists,
            Err(status) => return status,
        };
        lists.retain(|list| name.is_none_or(|name| list.name == name));
        if lists.iter().all(|list| list.looks > looks_before(list)) {
            let failed = lists.iter().any(|list| list.error.is_some());
            return super::print(text(&lists)).max(if failed { TROUBLE } else { 0 });
        }
        if Instant::now() > end {
            diagnostics::say(format_args!("error: the sources take too long; `larder list` shows what has come of it"));
            return TROUBLE;
        }
        std::thread::sleep(ASK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> OfList {
        OfList {
            name: "ads".into(),
            source: "https://lists.example/ads.txt".into(),
            said: "larder.toml:7".into(),
            format: "hosts".into(),
            state: "good".into(),
            entries: 120_000,
            left_out: 0,
            malformed: 0,
            samples: Vec::new(),
            memory_bytes: 960_000,
            age_seconds: Some(7_200),
            checked_seconds: Some(60),
            next_seconds: Some(86_340),
            error: None,
            looks: 1,
            failures: 0,
            changes: 0,
        }
    }

    #[test]
    fn lists_on_a_terminal() {
        let good = text(&[list()]);
        assert!(
            good.starts_with("list  state  format  entries") && good.contains("120000") && good.lines().count() == 2,
            "{good}"
        );
        let bad = OfList {
            state: "stale".into(),
            error: Some("lists.example answered 500\u{1b}[2J".into()),
            malformed: 2,
            samples: vec!["https://lists.example/ads.txt:3: \"<p>\": it is no name".into()],
            left_out: 4,
            ..list()
        };
        let shown = text(&[bad]);
        for part in [
            "ads (larder.toml:7): https://lists.example/ads.txt\n  lists.example answered 500\\u{1b}[2J; the one before stays in force",
            "ads: malformed lines, which cover nothing: 2; the first of them:\n  https://lists.example/ads.txt:3: \"<p>\"",
            "ads: lines left out, for a proxy can't decide them (docs/lists.md): 4",
        ] {
            assert!(shown.contains(part), "{part}\n{shown}");
        }
        assert!(text(&[]).contains("[[list]]"));
    }
}
