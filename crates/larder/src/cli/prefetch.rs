//! `larder prefetch`: downloads what lock files and lists name, so that a run without a network finds it.

use super::fetch_later::{for_downloads, keeps_nothing};
use super::tools;
use super::{Flags, TROUBLE, WRONG, print, start_for_a_run};
use crate::diagnostics;
use crate::lockfile::python::Machine;
use crate::lockfile::{Download, Format, LeftOut, Listed};
use crate::run;
use crate::run::control::{Network, Way};
use crate::run::gather::{Gathered, Indexes, Missing, gather, without_user};
use clap::Args;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(after_help = "\
Examples:
  larder prefetch package-lock.json             all that `npm ci` downloads
  larder prefetch Cargo.lock go.sum             several at once
  larder prefetch requirements.txt --index URL  from this index
  grep -o 'https://[^ ]*' notes | larder prefetch -

Known by name: requirements*.txt, uv.lock, poetry.lock, package-lock.json, npm-shrinkwrap.json, pnpm-lock.yaml, yarn.lock,
Cargo.lock, go.sum. A file whose lines are URLs is a list of URLs. Afterwards: larder run --offline -- npm ci

Exit status: 0 everything is in the store now; 1 something is missing; 2 a file can't be read.")]
pub(super) struct PrefetchFlags {
    #[command(flatten)]
    flags: Flags,
    /// Lock files and lists; - for a list of URLs from standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The format of the files, where their names don't say it: urls, requirements, uv, poetry, npm, pnpm, yarn, cargo, go
    #[arg(long, value_name = "FORMAT", value_parser = format_of)]
    format: Option<Format>,
    /// The index, registry or module proxy in which names are looked up; else the one that the tool itself uses
    #[arg(long, value_name = "URL")]
    index: Option<String>,
    /// The version of Python for which wheels are chosen, like 3.12; else that of `python3`
    #[arg(long, value_name = "VERSION", value_parser = python_of)]
    python: Option<(u32, u32)>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

fn format_of(word: &str) -> Result<Format, String> {
    Format::of_word(word).ok_or_else(|| {
        let words: Vec<&str> = Format::ALL.iter().map(|format| format.as_str()).collect();
        format!("one of {}", words.join(", "))
    })
}

fn python_of(text: &str) -> Result<(u32, u32), String> {
    let parts = text.trim().split_once('.').and_then(|(major, minor)| {
        let minor = minor.split('.').next().unwrap_or(minor);
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    parts.ok_or_else(|| "a version like 3.12 is needed".to_owned())
}

pub(super) fn prefetch(flags: &PrefetchFlags) -> u8 {
    diagnostics::begin();
    let mut listed = Listed::default();
    for file in &flags.files {
        match read(file, flags.format) {
            Ok(more) => {
                listed.downloads.extend(more.downloads);
                listed.left_out.extend(more.left_out);
                listed.index = listed.index.or(more.index);
            }
            Err(trouble) => {
                diagnostics::say(format_args!("error: {}: {trouble}", file.display()));
                return WRONG;
            }
        }
    }
    let config = match for_downloads(&flags.flags) {
        Ok(config) if keeps_nothing(&config) => return TROUBLE,
        Ok(config) => config,
        Err(status) => return status,
    };
    let folder = flags.files.first().and_then(|file| file.parent()).unwrap_or(Path::new("."));
    let indexes = indexes(&listed, flags.index.as_deref(), folder);
    let machine = Machine::here(flags.python.or_else(|| {
        needs_python(&listed).then(tools::python_version).flatten().and_then(|text| python_of(&text).ok())
    }));
    let shows = io::stderr().is_terminal() && !flags.json;
    let progress = |done: u64, all: u64, bytes: u64| {
        if shows {
            let bytes = crate::config::units::rounded_size(bytes);
            diagnostics::say_text(format_args!("\r{done} of {all}, {bytes}\x1b[K"));
        }
    };
    let downloads = std::mem::take(&mut listed.downloads);
    let work = |proxy| gather(proxy, downloads, &indexes, &machine, &progress);
    let gathered = run::with_proxy(config, |config| start_for_a_run(config, Network::Used, Way::Proxy), work);
    if shows {
        diagnostics::say_text(format_args!("\r\x1b[K"));
    }
    match gathered {
        Ok(mut gathered) => {
            gathered.missing.extend(listed.left_out.into_iter().map(left_out));
            tell(&gathered, flags.json)
        }
        Err(error) => {
            diagnostics::say(format_args!("error: {}", diagnostics::in_one_line(&error)));
            TROUBLE
        }
    }
}

fn left_out(entry: LeftOut) -> Missing {
    Missing { what: without_user(&entry.what), why: entry.why.to_owned() }
}

fn read(file: &Path, format: Option<Format>) -> Result<Listed, String> {
    let text = match file.as_os_str() == "-" {
        true => {
            let mut text = String::new();
            io::stdin().take(LIST_BYTES_MAX).read_to_string(&mut text).map(|_| text)
        }
        false => std::fs::File::open(file).and_then(|file| {
            let mut text = String::new();
            file.take(LIST_BYTES_MAX).read_to_string(&mut text).map(|_| text)
        }),
    };
    let text = text.map_err(|error| error.to_string())?;
    if text.len() as u64 == LIST_BYTES_MAX {
        return Err("it is too long for a list".to_owned());
    }
    let format = format.or_else(|| Format::of_file(file, &text));
    let format = format.ok_or("its name is that of no lock file: say with --format what it is")?;
    format.read(&text).map_err(|error| error.to_string())
}

/// The longest list that is read.
const LIST_BYTES_MAX: u64 = 256 << 20;

/// The indexes that the downloads need.
fn indexes(listed: &Listed, named: Option<&str>, folder: &Path) -> Indexes {
    let needs = |is: fn(&Download) -> bool| listed.downloads.iter().any(is);
    let named = || named.map(|url| url.trim_start_matches("sparse+").trim_end_matches('/').to_owned());
    let or = |needed: bool, ask: &dyn Fn() -> Option<String>| {
        let asked = || ask().map(|url| url.trim().trim_end_matches('/').to_owned());
        if needed { named().or_else(asked) } else { None }
    };
    Indexes {
        python: or(needs_python(listed), &|| listed.index.clone().or_else(tools::python_index)),
        node: or(needs(|download| matches!(download, Download::Npm { .. })), &tools::npm_registry),
        cargo: or(needs(|download| matches!(download, Download::Crate { .. })), &|| tools::cargo_index(folder)),
        go: or(needs(|download| matches!(download, Download::Go { .. })), &tools::go_proxy),
    }
}

fn needs_python(listed: &Listed) -> bool {
    listed.downloads.iter().any(|download| matches!(download, Download::Python(_)))
}

fn tell(gathered: &Gathered, json: bool) -> u8 {
    let status = u8::from(!gathered.missing.is_empty());
    if json {
        let text = serde_json::to_string(gathered).unwrap_or_default();
        return print(format_args!("{text}\n")).max(status);
    }
    for Missing { what, why } in &gathered.missing {
        diagnostics::say(format_args!("larder: missing: {what}: {why}"));
    }
    let Gathered { fetched, already, bytes, missing } = gathered;
    diagnostics::say(format_args!(
        "larder: {fetched} fetched, {already} already there ({} together), {} missing",
        crate::config::units::rounded_size(*bytes),
        missing.len()
    ));
    status
}
