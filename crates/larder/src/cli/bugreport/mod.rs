//! `larder bugreport`: an archive for those who look for the cause of some trouble, without anything that is secret or tells of people.
//!
//! Without `--with-requests` no URL, no host that was asked for and no client's address is in it; secrets never are. Settings are shown
//! whose values are of harmless kinds, numbers and words; of all others only that they are set.

mod scrub;
mod tar;

use super::running::store_of;
use super::{Flags, TROUBLE, VERSION, print};
use crate::clock;
use crate::config::{Loaded, LogTo, manual};
use crate::diagnostics;
use crate::doctor;
use crate::explain::Summary;
use crate::run::control::{self, Client};
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Deserialize;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Requests in the report.
const REQUESTS_MAX: usize = 200;
/// Bytes of the end of the access log.
const LOG_BYTES_MAX: u64 = 64 * 1024;

#[derive(Args)]
pub(super) struct BugreportFlags {
    #[command(flatten)]
    flags: Flags,
    /// Add the last requests with their URLs and clients, and the end of the access log
    #[arg(long)]
    with_requests: bool,
    /// The file to write, which must not be there yet
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// A file of the report.
struct Part {
    name: &'static str,
    /// Its content, for the list that is printed before anything is written.
    about: &'static str,
    text: String,
}

pub(super) fn bugreport(flags: &BugreportFlags) -> u8 {
    let (loaded, errors) = match store_of(&flags.flags) {
        Ok(found) => found,
        Err(status) => return status,
    };
    let client = loaded.config.store_folder().map(|folder| Client::new(control::socket(&folder)));
    let mut parts = vec![
        Part { name: "version.txt", about: "version, system", text: version() },
        Part { name: "doctor.txt", about: "the findings of `larder doctor`", text: doctor_text(&loaded) },
        Part {
            name: "settings.txt",
            about: "settings in force: numbers and words; of others only that they are set",
            text: settings(&loaded, errors.map(|report| report.problems().len())),
        },
    ];
    parts.extend(of_server(client.as_ref(), flags.with_requests));
    if flags.with_requests {
        parts.extend(log_end(&loaded));
    }
    let name = flags.out.clone().unwrap_or_else(|| format!("larder-bugreport-{}.tar.gz", clock::wall().as_secs()).into());
    let status = print(listing(&name, &parts, flags.with_requests));
    match write(&name, &parts) {
        Ok(()) => status,
        Err(error) => {
            diagnostics::say(format_args!("error: cannot write {}: {error}", name.display()));
            TROUBLE
        }
    }
}

fn listing(name: &Path, parts: &[Part], with_requests: bool) -> String {
    let mut out = format!("{} (mode 0600) has:\n", name.display());
    for part in parts {
        let _ = writeln!(out, "  {:<16} {:>8} bytes  {}", part.name, part.text.len(), part.about);
    }
    out.push_str(match with_requests {
        true => "It names URLs and clients: give it only to those who may know them.\n",
        false => "No URL, no client and no secret is in it; --with-requests adds requests.\n",
    });
    out
}

fn version() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("larder {VERSION}\n{} {} {}\n{cores} cores\n", std::env::consts::OS, std::env::consts::ARCH, kernel.trim())
}

fn doctor_text(loaded: &Loaded) -> String {
    let text: String = doctor::examine(loaded).iter().map(ToString::to_string).collect();
    scrub::text(&text)
}

/// Names of all settings, with values that can tell nothing of secrets, people and hosts.
fn settings(loaded: &Loaded, errors: Option<usize>) -> String {
    let mut out = match errors {
        Some(many) => format!("# {many} errors: `larder check` names them\n"),
        None => String::new(),
    };
    for setting in manual::in_force(&loaded.config, &loaded.sources) {
        let value = scrub::value(&setting.value);
        let origin = if setting.said == "default" { " # default" } else { "" };
        let _ = writeln!(out, "{} = {value}{origin}", setting.name);
    }
    out
}

/// As much of the list of requests as is asked for.
#[derive(Deserialize)]
struct Listed {
    requests: Vec<Summary>,
}

/// The answers of the server about itself, or why there are none.
fn of_server(client: Option<&Client>, with_requests: bool) -> Vec<Part> {
    let silent = |error: String| {
        vec![Part { name: "server.txt", about: "why the server was not asked", text: format!("{error}\n") }]
    };
    let Some(client) = client else { return silent("no store folder, so no control socket".to_owned()) };
    let asked = || -> io::Result<Vec<Part>> {
        let metrics = client.text("/metrics")?;
        let listed: Listed = client.read(&format!("/requests?limit={REQUESTS_MAX}"))?;
        let said: Vec<String> = client.read("/diagnostics")?;
        Ok(vec![
            Part { name: "metrics.txt", about: "all metrics; origins are numbers", text: scrub::metrics(&metrics) },
            Part {
                name: "messages.txt",
                about: "the last messages and panics, without URLs, hosts and addresses",
                text: scrub::text(&said.concat()),
            },
            match with_requests {
                false => Part {
                    name: "requests.txt",
                    about: "the last requests: method, status, outcome, times; neither URL nor client",
                    text: requests(&listed.requests, |_| String::new()),
                },
                true => Part {
                    name: "requests.txt",
                    about: "the last requests WITH their clients and URLs",
                    text: requests(&listed.requests, |request| format!(" {} {}", request.client, request.url)),
                },
            },
        ])
    };
    asked().unwrap_or_else(|error| silent(format!("no larder answers: {error}")))
}

fn requests(requests: &[Summary], more: impl Fn(&Summary) -> String) -> String {
    let mut out = String::new();
    for request in requests {
        let known = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "PATCH", "PURGE", "TRACE"];
        let method = if known.contains(&request.method.as_str()) { &request.method } else { "-" };
        let _ = writeln!(
            out,
            "{} {method} {} {} {} {} bytes {} µs{}{}",
            request.at_millis,
            request.status,
            request.outcome,
            request.cause.as_deref().unwrap_or("-"),
            request.bytes,
            request.micros,
            if request.complete { "" } else { " incomplete" },
            more(request)
        );
    }
    out
}

/// The end of the access log, where it is a file.
fn log_end(loaded: &Loaded) -> Option<Part> {
    let LogTo::File(path) = &loaded.config.log.as_ref()?.to else { return None };
    let read = || -> io::Result<String> {
        let mut file = std::fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_BYTES_MAX)))?;
        let mut bytes = Vec::new();
        file.take(LOG_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_else(|error| format!("{error}\n"));
    Some(Part { name: "access.log", about: "the end of the access log, WITH clients and URLs", text })
}

/// A file that is there already is not written over.
fn write(name: &Path, parts: &[Part]) -> io::Result<()> {
    let archive = tar::archive(parts.iter().map(|part| (part.name, part.text.as_bytes())), clock::wall().as_secs());
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(name)?;
    let mut encoder = GzEncoder::new(file, Compression::default());
    encoder.write_all(&archive)?;
    encoder.finish()?.sync_all()
}
