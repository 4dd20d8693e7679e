//! `larder bugreport`: an archive for those who look for the cause of some trouble, without anything that is secret or tells of people.
//!
//! Without `--with-requests` no URL, no host and no client's address is in it; secrets of the configuration never are. Texts that somebody
//! wrote are not searched for secrets, they are left out: a setting shows its value where its kind says that it is harmless, a message
//! the line of the source that it comes from, a metric numbers in place of names.

mod scrub;
mod tar;

use super::running::store_of;
use super::{Flags, TROUBLE, VERSION, print};
use crate::clock;
use crate::config::manual::{self, InForce};
use crate::config::{Loaded, LogTo};
use crate::diagnostics;
use crate::doctor;
use crate::explain::Summary;
use crate::panics::{self, PanicReport};
use crate::run::control::{self, Client};
use crate::troubles::Trouble;
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use scrub::Words;
use serde::Deserialize;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Requests in the report.
const REQUESTS_MAX: usize = 200;

/// Bytes of the end of the access log.
const LOG_BYTES_MAX: u64 = 64 << 10;

/// Methods that are named; another one may be any text that a client sent.
const METHODS: [&str; 10] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "PATCH", "PURGE", "TRACE"];

#[derive(Args)]
pub(super) struct BugreportFlags {
    #[command(flatten)]
    flags: Flags,
    /// Add the last requests with their URLs and clients, the texts of messages, and the end of the access log
    #[arg(long)]
    with_requests: bool,
    /// The file to write, which must not be there yet
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Whether URLs, clients and texts that may name them are in a report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Requests {
    LeftOut,
    Shown,
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
    let requests = if flags.with_requests { Requests::Shown } else { Requests::LeftOut };
    let store = loaded.config.store_folder();
    let in_force = manual::in_force(&loaded.config, &loaded.sources);
    let mut parts = vec![
        Part { name: "version.txt", about: "version, system", text: version() },
        Part {
            name: "doctor.txt",
            about: "findings of `larder doctor`, without paths, hosts and addresses",
            text: findings(&loaded, &in_force),
        },
        Part {
            name: "settings.txt",
            about: "settings: numbers, times and words of choices; of others that they are set",
            text: settings(&in_force, errors.map(|report| report.problems().len())),
        },
    ];
    parts.extend(of_server(store.as_deref(), requests));
    parts.extend(store.as_deref().map(|store| of_panics(&panics::all(store), requests)));
    if requests == Requests::Shown {
        parts.extend(log_end(&loaded));
    }
    let name =
        flags.out.clone().unwrap_or_else(|| format!("larder-bugreport-{}.tar.gz", clock::wall().as_secs()).into());
    let status = print(listing(&name, &parts, requests));
    match write(&name, &parts) {
        Ok(()) => status,
        Err(error) => {
            diagnostics::say(format_args!("error: cannot write {}: {error}; --out names another file", name.display()));
            TROUBLE
        }
    }
}

fn listing(name: &Path, parts: &[Part], requests: Requests) -> String {
    let mut out = format!("{} (mode 0600) has:\n", name.display());
    for part in parts {
        let _ = writeln!(out, "  {:<13} {:>7} bytes  {}", part.name, part.text.len(), part.about);
    }
    out.push_str(match requests {
        Requests::Shown => {
            "It names URLs and clients, and URLs may have secrets in them: read it before you give it away.\n"
        }
        Requests::LeftOut => {
            "No URL, no client and no secret is in it. --with-requests adds requests and the texts of messages.\n"
        }
    });
    out
}

fn version() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("larder {VERSION}\n{} {} {}\n{cores} cores\n", std::env::consts::OS, std::env::consts::ARCH, kernel.trim())
}

/// The findings name hosts, paths and addresses of the configuration, which are known, and those that stand in errors.
fn findings(loaded: &Loaded, in_force: &[InForce]) -> String {
    let text: String = doctor::examine(loaded).iter().map(ToString::to_string).collect();
    Words::of(in_force).strike(&text)
}

fn settings(in_force: &[InForce], errors: Option<usize>) -> String {
    let mut out = match errors {
        Some(many) => format!("# errors in the file: {many}; `larder check` names them\n"),
        None => String::new(),
    };
    for setting in in_force {
        let (name, value) = &setting.reported;
        let _ = match setting.said.as_str() {
            "default" if value.contains("(set)") => writeln!(out, "{name} = (default)"),
            "default" => writeln!(out, "{name} = {value} # default"),
            _ => writeln!(out, "{name} = {value}"),
        };
    }
    out
}

/// The list of requests, as much of it as is needed here.
#[derive(Deserialize)]
struct Listed {
    requests: Vec<Summary>,
}

/// The answers of the server about itself, or why there are none.
fn of_server(store: Option<&Path>, requests: Requests) -> Vec<Part> {
    let silent = |why: String| {
        vec![Part { name: "server.txt", about: "why the server was not asked", text: format!("{why}\n") }]
    };
    let Some(store) = store else { return silent("there is no store folder, so no control socket".to_owned()) };
    let client = Client::new(control::socket(store));
    let asked = || -> io::Result<Vec<Part>> {
        let metrics = client.text("/metrics")?;
        let listed: Listed = client.read(&format!("/requests?limit={REQUESTS_MAX}"))?;
        let troubles: Vec<Trouble> = client.read("/troubles")?;
        Ok(vec![
            Part {
                name: "metrics.txt",
                about: "all metrics; names in them are numbers",
                text: scrub::metrics(&metrics),
            },
            of_troubles(&troubles, requests),
            of_requests(&listed.requests, requests),
        ])
    };
    asked().unwrap_or_else(|error| silent(format!("no larder answers: {error}")))
}

fn of_troubles(troubles: &[Trouble], requests: Requests) -> Part {
    let mut text = String::new();
    for trouble in troubles {
        let _ = write!(text, "{} {:5} {}", trouble.at, trouble.level, trouble.place);
        let _ = match requests {
            Requests::LeftOut => writeln!(text),
            Requests::Shown => writeln!(text, " {}", trouble.text),
        };
    }
    let about = match requests {
        Requests::LeftOut => "the last warnings and errors: their times and lines of the source",
        Requests::Shown => "the last warnings and errors WITH their texts",
    };
    Part { name: "messages.txt", about, text }
}

fn of_panics(panics: &[PanicReport], requests: Requests) -> Part {
    let mut text = String::new();
    for panic in panics {
        let _ = writeln!(text, "{} larder {} thread {} {}", panic.at, panic.version, panic.thread, panic.place);
        if requests == Requests::Shown {
            let _ = writeln!(text, "{}", panic.message);
        }
        if let Some(trace) = &panic.backtrace {
            let _ = writeln!(text, "{trace}");
        }
    }
    let about = match requests {
        Requests::LeftOut => "the last panics: their times and lines of the source",
        Requests::Shown => "the last panics WITH their messages",
    };
    Part { name: "panics.txt", about, text }
}

fn of_requests(all: &[Summary], requests: Requests) -> Part {
    let mut text = String::new();
    for request in all {
        let method = if METHODS.contains(&request.method.as_str()) { &request.method } else { "-" };
        let cause = request.cause.as_deref().unwrap_or("-");
        let Summary { at_millis, status, outcome, bytes, micros, .. } = request;
        let _ = write!(text, "{at_millis} {method} {status} {outcome} {cause} {bytes} bytes {micros} µs");
        if !request.complete {
            text.push_str(" incomplete");
        }
        if requests == Requests::Shown {
            let _ = write!(text, " {} {}", request.client, request.url);
        }
        text.push('\n');
    }
    let about = match requests {
        Requests::LeftOut => "the last requests: method, status, outcome, cause, size, time",
        Requests::Shown => "the last requests WITH their clients and URLs",
    };
    Part { name: "requests.txt", about, text }
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
