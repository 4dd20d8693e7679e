//! `larder store`: what lies on disk.

use super::{Flags, TROUBLE, WRONG};
use crate::clock;
use crate::config::units;
use crate::diagnostics;
use crate::run::control;
use crate::store::browse::{Listing, Opened, Shown};
use crate::store::gc::{self, By, Collected, GcRules, HostSum};
use crate::store::{self, Item, warc};
use crate::{cache_settings, disk};
use clap::Subcommand;
use larder_cache::store::{OpenFault, Store};
use larder_people::form::encoded;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Subcommand)]
pub(super) enum StoreCommand {
    /// Totals: objects, bytes, segments, index
    Stat(Flags),
    /// List what is stored, all or what begins so
    Ls {
        #[command(flatten)]
        flags: Flags,
        /// The beginning of the URLs
        #[arg(default_value = "", hide_default_value = true)]
        prefix: String,
        /// In the order of their size or age (size, age), or sums of each host (host); else by URL
        #[arg(long, value_name = "ORDER", value_parser = order_of)]
        by: Option<By>,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Give up what is stale for long, and what else is said; the store makes room by itself as it needs some
    #[command(after_help = "\
Examples:
  larder store gc                      what is stale for 30 days
  larder store gc --keep 5GB           and what came first, until 5 GB are left
  larder store gc --older-than 90d     and what came 90 days ago or earlier
  larder purge --host HOST             one host")]
    Gc {
        #[command(flatten)]
        flags: Flags,
        /// Give up what is stale for so long (default: 30d)
        #[arg(long, value_name = "TIME", value_parser = seconds_of)]
        stale_for: Option<u64>,
        /// Give up what came so long ago, fresh or not
        #[arg(long, value_name = "TIME", value_parser = seconds_of)]
        older_than: Option<u64>,
        /// Give up what came first, until this size is left
        #[arg(long, value_name = "SIZE", value_parser = size_of)]
        keep: Option<u64>,
        /// Say what would be given up, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Write the body of a stored object to standard output
    Get {
        #[command(flatten)]
        flags: Flags,
        /// Its URL
        url: String,
        /// Write the head before it
        #[arg(long, short)]
        include: bool,
    },
    /// Read everything and compare the checksums
    Verify(Flags),
    /// Write everything that is whole to a WARC file
    Export {
        #[command(flatten)]
        flags: Flags,
        /// The file; - for standard output
        file: PathBuf,
    },
    /// Store the responses of a WARC file
    Import {
        #[command(flatten)]
        flags: Flags,
        /// The file
        file: PathBuf,
    },
}

fn order_of(word: &str) -> Result<By, String> {
    By::of_word(word).ok_or_else(|| "one of size, age and host".to_owned())
}

fn seconds_of(text: &str) -> Result<u64, String> {
    units::parse_duration(text).map(|time| time.as_secs()).ok_or_else(|| "a time like 30d or 12h is needed".to_owned())
}

fn size_of(text: &str) -> Result<u64, String> {
    units::parse_size(text).ok_or_else(|| "a size like 5GB is needed".to_owned())
}

/// More objects than this are not listed at once.
const LISTED_MAX: usize = 10_000_000;

pub(super) fn store(command: &StoreCommand) -> u8 {
    use StoreCommand::{Export, Gc, Get, Import, Ls, Stat, Verify};
    let (Stat(flags)
    | Verify(flags)
    | Ls { flags, .. }
    | Gc { flags, .. }
    | Get { flags, .. }
    | Export { flags, .. }
    | Import { flags, .. }) = command;
    let loaded = match flags.load() {
        Ok(loaded) => loaded,
        Err(status) => return status,
    };
    let config = super::prepared(loaded, super::Notes::Told).config;
    let opened = match disk::open(&config) {
        Ok(Some(opened)) => opened,
        Ok(None) => {
            diagnostics::say(format_args!(
                "error: there is no disk store: `disk` is 0, or no folder is known; name one with --store DIR"
            ));
            return WRONG;
        }
        Err(OpenFault::Busy(_)) if matches!(command, Stat(_) | Ls { .. } | Gc { .. } | Get { .. }) => {
            let socket = config.store_folder().map(|folder| control::socket(&folder)).unwrap_or_default();
            return ask_server(command, &control::Client::new(socket)).unwrap_or_else(|error| {
                diagnostics::say(format_args!(
                    "error: a larder uses the store and does not tell: {}",
                    diagnostics::in_one_line(&*error)
                ));
                TROUBLE
            });
        }
        Err(fault @ OpenFault::Busy(_)) => {
            diagnostics::say(format_args!("error: {fault}"));
            return TROUBLE;
        }
        Err(fault) => {
            diagnostics::say(format_args!("error: {}", diagnostics::in_one_line(&fault)));
            return TROUBLE;
        }
    };
    super::tell_notices(&opened);
    let done = match command {
        Stat(_) => stat(&opened),
        Ls { prefix, json, by, .. } => list(&opened, prefix, *by, *json),
        Gc { stale_for, older_than, keep, dry_run, .. } => {
            collect(&opened, &gc_rules((*stale_for, *older_than, *keep)), *dry_run)
        }
        Get { url, include, .. } => get(&opened, url, *include),
        Verify(_) => verify(&opened),
        Export { file, .. } => export(&opened, file),
        Import { file, .. } => import(&opened, &cache_settings::policy_settings(&config.policy), file),
    };
    opened.close();
    done.unwrap_or_else(|error| {
        diagnostics::say(format_args!("error: {}", diagnostics::in_one_line(&*error)));
        TROUBLE
    })
}

type Done = Result<u8, Box<dyn Error>>;

/// Objects that the API lists at a time.
const ASKED_MAX: usize = 500;

/// Asks the server that has the store, which knows memory and disk together.
fn ask_server(command: &StoreCommand, server: &control::Client) -> Done {
    let objects =
        |prefix: &str| server.read::<Listing>(&format!("/store/objects?prefix={}&limit={ASKED_MAX}", encoded(prefix)));
    match command {
        StoreCommand::Ls { prefix, json, by: Some(by), .. } => {
            let path = format!("/store/list?prefix={}&by={}", encoded(prefix), by.as_str());
            match by {
                By::Host => print_hosts(&server.ask_for::<Vec<HostSum>>(&path)??, *json),
                By::Size | By::Age => print_items(server.ask_for::<Vec<Item>>(&path)??.into_iter(), *json),
            }
        }
        StoreCommand::Gc { stale_for, older_than, keep, dry_run, .. } => {
            let rules = gc_rules((*stale_for, *older_than, *keep));
            let what = if *dry_run { "choose" } else { "collect" };
            let collected = server.change::<Collected>(&format!("/store/gc/{what}?{}", rules.query()))??;
            Ok(tell_collected(&collected, *dry_run))
        }
        StoreCommand::Ls { prefix, json, .. } => {
            let listing = objects(prefix)?;
            print_items(listing.items.iter().map(Shown::item), *json)?;
            if listing.found > listing.items.len() as u64 || !listing.complete {
                diagnostics::say(format_args!(
                    "a larder uses the store and shows the first {} of {}{}: give a longer beginning",
                    listing.items.len(),
                    listing.found,
                    if listing.complete { "" } else { " or more" }
                ));
            }
            Ok(0)
        }
        StoreCommand::Get { url, include, .. } => {
            let found = objects(url)?.items.into_iter().find(|item| item.url == *url);
            let Some(found) = found else {
                diagnostics::say(format_args!("error: {url} is not stored; `larder store ls` lists what is"));
                return Ok(TROUBLE);
            };
            if *include {
                let variants = server.read::<Vec<Opened>>(&format!("/store/object?key={}", encoded(&found.key)))?;
                let fields = variants.first().map(|first| &first.fields[..]).unwrap_or_default();
                let lines = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
                super::print(format!("HTTP/1.1 {}\r\n{}\r\n", found.status, lines.collect::<String>()));
            }
            diagnostics::say(format_args!(
                "error: {url} is stored; a larder uses the store, so its body comes from there: \
                 `curl -x ADDRESS -H 'Cache-Control: only-if-cached' '{url}'`"
            ));
            Ok(TROUBLE)
        }
        _ => {
            let lines = server.read::<BTreeMap<String, String>>("/store")?;
            Ok(print_lines(lines.iter().map(|(name, value)| (name.as_str(), value.as_str()))))
        }
    }
}

fn stat(store: &Arc<Store>) -> Done {
    // The totals count what was read from disk so far: wait for all of it.
    store.for_each_head(|_| std::ops::ControlFlow::Break(()));
    let lines = store::summary(&store.stats());
    Ok(print_lines(lines.iter().map(|(name, value)| (*name, value.as_str()))))
}

fn print_lines<'a>(lines: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> u8 {
    let width = lines.clone().map(|(name, _)| name.len()).max().unwrap_or(0);
    super::print(lines.map(|(name, value)| format!("{name:width$}  {value}\n")).collect::<String>())
}

fn list(opened: &Arc<Store>, prefix: &str, by: Option<By>, json: bool) -> Done {
    let mut items = store::list(opened, prefix, LISTED_MAX);
    match by {
        Some(By::Host) => print_hosts(&gc::hosts(&items), json),
        Some(by) => {
            gc::sort(&mut items, by);
            print_items(items.into_iter(), json)
        }
        None => print_items(items.into_iter(), json),
    }
}

fn print_hosts(hosts: &[HostSum], json: bool) -> Done {
    let mut out = BufWriter::new(io::stdout().lock());
    for sum in hosts {
        match json {
            true => writeln!(out, "{}", serde_json::to_string(sum)?)?,
            false => writeln!(out, "{:>12} {:>8}  {}", units::rounded_size(sum.bytes), sum.objects, sum.host)?,
        }
    }
    out.flush()?;
    Ok(0)
}

/// The rules of the flags. Where none is given, what is stale for long is given up.
fn gc_rules((stale_for, older_than, keep_bytes): (Option<u64>, Option<u64>, Option<u64>)) -> GcRules {
    GcRules { stale_for: Some(stale_for.unwrap_or(gc::STALE_FOR)), older_than, keep_bytes }
}

/// Removals that are under way at a time: their syncs are shared.
const REMOVALS_AT_ONCE: usize = 1_000;

fn collect(opened: &Arc<Store>, rules: &GcRules, dry_run: bool) -> Done {
    let (keys, collected) = gc::choose(opened, rules, clock::now());
    if !dry_run {
        for some in keys.chunks(REMOVALS_AT_ONCE) {
            let removals: Vec<_> = some.iter().map(|key| opened.forget(key, None)).collect();
            for removal in removals {
                removal.wait().map_err(|_| "the removal can't be written: is there room on the disk?")?;
            }
        }
        opened.sync().wait();
    }
    Ok(tell_collected(&collected, dry_run))
}

fn tell_collected(collected: &Collected, dry_run: bool) -> u8 {
    let Collected { objects, bytes, kept_objects, kept_bytes } = collected;
    let (bytes, kept_bytes) = (units::rounded_size(*bytes), units::rounded_size(*kept_bytes));
    let verb = if dry_run { "would be given up" } else { "given up" };
    super::print(format_args!("{objects} objects with {bytes} {verb}; {kept_objects} with {kept_bytes} stay\n"))
}

fn print_items(items: impl Iterator<Item = Item>, json: bool) -> Done {
    let mut out = BufWriter::new(io::stdout().lock());
    for item in items {
        match json {
            true => writeln!(out, "{}", serde_json::to_string(&item)?)?,
            false => writeln!(out, "{}", line(&item))?,
        }
    }
    out.flush()?;
    Ok(0)
}

fn line(item: &Item) -> String {
    let size = crate::config::units::rounded_size;
    let bytes = match item.bytes {
        Some(bytes) if bytes == item.bytes_here => size(bytes),
        Some(bytes) => format!("{} of {}", size(item.bytes_here), size(bytes)),
        None => size(item.bytes_here),
    };
    let fresh = match item.fresh {
        0.. => format!("fresh {}s", item.fresh),
        stale => format!("stale {}s", -stale),
    };
    let vary = if item.vary.is_empty() { String::new() } else { format!("  ({})", item.vary.join(", ")) };
    format!("{} {bytes:>12} {fresh:>16}  {}{vary}", item.status, item.key)
}

fn get(opened: &Arc<Store>, url: &str, include: bool) -> Done {
    let found = store::find(opened, url);
    let Some(object) = found.first() else {
        diagnostics::say(format_args!("error: {url} is not stored; `larder store ls` lists what is"));
        return Ok(TROUBLE);
    };
    if found.len() > 1 {
        diagnostics::say(format_args!("larder: {url} has {} variants, this is the first", found.len()));
    }
    let mut out = BufWriter::new(io::stdout().lock());
    if include {
        let mut head = Vec::new();
        larder_wire::encode::response_head(&mut head, &object.stored.head);
        out.write_all(&head)?;
    }
    let whole = object.body(opened, |piece| out.write_all(piece))?;
    out.flush()?;
    if !whole {
        diagnostics::say(format_args!(
            "error: only a part of {url} is stored; a request for it through the proxy fetches the rest"
        ));
        return Ok(TROUBLE);
    }
    Ok(0)
}

fn verify(opened: &Arc<Store>) -> Done {
    let shows = io::stderr().is_terminal();
    let verified = store::verify(opened, |verified, all| {
        if shows && verified.objects.is_multiple_of(100) {
            let share = verified.objects * 40 / all.max(1);
            let bar: String = (0..40).map(|at| if at < share { '#' } else { '.' }).collect();
            diagnostics::say_text(format_args!("\r[{bar}] {} of {all}", verified.objects));
        }
    });
    if shows {
        diagnostics::say_text(format_args!("\r{:60}\r", ""));
    }
    let status = super::print(format_args!(
        "{} objects, {} of them whole, {} of bodies read and compared; {} damaged records, {} heads not understood\n",
        verified.objects,
        verified.whole,
        crate::config::units::rounded_size(verified.bytes),
        verified.bad_records,
        verified.unreadable
    ));
    let found_at_start = opened.notices().iter().any(|(_, notice)| notice.is_damage());
    if found_at_start {
        super::print(
            "something was damaged when the store was opened: see above; it has been mended
",
        );
    }
    let damaged = found_at_start || verified.bad_records + verified.unreadable > 0;
    Ok(if damaged { TROUBLE } else { status })
}

fn export(opened: &Arc<Store>, file: &PathBuf) -> Done {
    let counts = match file.as_os_str() == "-" {
        true => warc::export(opened, &mut io::stdout().lock())?,
        false => {
            // The store is closed to other users of the machine, and so is its export.
            let made = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file);
            let mut out = BufWriter::new(made.map_err(|error| format!("{}: {error}", file.display()))?);
            let counts = warc::export(opened, &mut out)?;
            out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
            counts
        }
    };
    diagnostics::say(format_args!("exported {} responses", counts.done));
    counts.reasons().iter().for_each(diagnostics::say);
    Ok(0)
}

fn import(opened: &Arc<Store>, policy: &larder_cache::policy::Settings, file: &PathBuf) -> Done {
    let file = File::open(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let counts = warc::import(opened, policy, &mut BufReader::new(file))?;
    let reasons: String = counts.reasons().iter().map(|reason| format!("{reason}\n")).collect();
    Ok(super::print(format!("imported {} responses\n{reasons}", counts.done)))
}
