//! `larder docs`: the documentation in a terminal, out of the program.

use super::{Flags, WRONG, print};
use crate::config::spelling::closest;
use crate::diagnostics;
use crate::docs::{self, CHAPTERS, OPENAPI, OPENAPI_NAME};
use clap::Args;
use std::fmt::Write;

#[derive(Args)]
pub(super) struct DocsFlags {
    #[command(flatten)]
    flags: Flags,
    /// A page (`settings`), a section of it (`settings#store`), or the word of an error page (`dns-not-found`); without one, the
    /// address of the documentation and the names of all pages
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// The page of the words of error pages.
const ERRORS: &str = "errors";

pub(super) fn docs(flags: &DocsFlags) -> u8 {
    match flags.name.as_deref() {
        Some(name) => match text(name) {
            Some(text) => print(format!("{}\n", text.trim_end())),
            None => {
                diagnostics::say(format_args!("error: there is no page {name}: {}", remedy(name)));
                WRONG
            }
        },
        None => print(list(&address(&flags.flags))),
    }
}

/// The Markdown of a page, of a section of one, or of an error's cause.
fn text(name: &str) -> Option<&'static str> {
    if name == OPENAPI_NAME {
        return Some(OPENAPI);
    }
    match (docs::page(name), name.split_once('#')) {
        (Some(page), _) => Some(page.text),
        (None, Some((name, anchor))) => docs::page(name)?.section(anchor),
        (None, None) => docs::page(ERRORS)?.section(name),
    }
}

fn remedy(name: &str) -> String {
    let (page, section) = name.split_once('#').unwrap_or((name, ""));
    match (docs::page(page), closest(page, docs::pages().map(|page| page.name))) {
        (Some(page), _) => format!("{} has no section {section}", page.name),
        (None, Some(nearest)) => format!("did you mean {nearest}?"),
        (None, None) => "`larder docs` lists all".to_owned(),
    }
}

/// Where a browser finds the documentation of the server that these flags mean. A configuration with errors has an address all the same.
fn address(flags: &Flags) -> String {
    let (loaded, _) = flags.examine(super::Here::Looked);
    match loaded.config.admin {
        Some(admin) => format!("http://{admin}/docs/ while `larder` runs"),
        None => "nowhere, for `admin` is none".to_owned(),
    }
}

fn list(address: &str) -> String {
    let mut out = format!("In a browser: {address}\nIn a terminal: larder docs NAME, and larder docs NAME#SECTION\n");
    for chapter in CHAPTERS {
        let _ = write!(out, "\n{}\n", chapter.title);
        for page in chapter.pages {
            let _ = writeln!(out, "  {:<20} {}", page.name, page.title());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_pages_sections_and_causes() {
        assert!(text("settings").unwrap().starts_with("# Settings"));
        assert_eq!(text("settings.md"), text("settings"));
        assert!(text("neighbours#parents").unwrap().starts_with("## Parents"));
        assert!(text("dns-not-found").unwrap().starts_with("### dns-not-found\n\n502."));
        assert!(text(OPENAPI_NAME).unwrap().starts_with("openapi:"));
        for unknown in ["nothing", "settings#nothing", "nothing#x", ""] {
            assert_eq!(text(unknown), None, "{unknown}");
        }
        assert_eq!(remedy("setings"), "did you mean settings?");
        assert_eq!(remedy("settings#x"), "settings has no section x");
    }

    #[test]
    fn the_list_names_all_pages() {
        let list = list("http://127.0.0.1:1/docs/");
        for page in docs::pages() {
            assert!(list.contains(&format!("\n  {} ", page.name)), "{} in {list}", page.name);
        }
    }
}
