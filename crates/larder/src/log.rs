//! The access log: a line per request, written by a thread of its own so that no worker ever waits for a disk.

use crate::config::{Log, LogFormat, LogPath};
use crate::record::Record;
use larder_wire::Version;
use larder_wire::date::Stamp;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Bundles of lines that wait for the disk; more are dropped and counted.
const BUNDLES_MAX: usize = 256;

/// The workers' end of the log.
pub struct AccessLog {
    format: LogFormat,
    bundles: SyncSender<Vec<u8>>,
    dropped: AtomicU64,
}

impl AccessLog {
    /// Opens the log and starts its thread.
    pub fn open(log: &Log) -> io::Result<(AccessLog, JoinHandle<()>)> {
        let sink: Box<dyn Write + Send> = match &log.path {
            LogPath::Stderr => Box::new(io::stderr()),
            LogPath::Stdout => Box::new(io::stdout()),
            LogPath::File(path) => Box::new(OpenOptions::new().create(true).append(true).open(path)?),
        };
        let (bundles, waiting) = sync_channel(BUNDLES_MAX);
        let writer = std::thread::Builder::new().name("log".into()).spawn(move || write(sink, &waiting))?;
        Ok((AccessLog { format: log.format, bundles, dropped: AtomicU64::new(0) }, writer))
    }

    /// Appends a record's line to a worker's own lines.
    pub fn line(&self, record: &Record, lines: &mut Vec<u8>) {
        match self.format {
            LogFormat::Combined => combined(record, lines),
            LogFormat::Json => json(record, lines),
        }
    }

    /// Hands a worker's lines to the thread.
    pub fn hand_over(&self, lines: Vec<u8>) {
        if self.bundles.try_send(lines).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Bundles that were lost because the disk was too slow.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

fn write(mut sink: Box<dyn Write + Send>, bundles: &Receiver<Vec<u8>>) {
    let mut told = false;
    while let Ok(lines) = bundles.recv() {
        if let Err(error) = sink.write_all(&lines).and_then(|()| sink.flush()) {
            if !told {
                tracing::error!(%error, "cannot write the access log; requests are served all the same");
            }
            told = true;
        }
    }
}

/// The combined format of web servers, with outcome and microseconds behind it.
fn combined(record: &Record, out: &mut Vec<u8>) {
    let quoted = |text: &Option<Box<str>>| text.as_deref().map_or("-".to_owned(), escape);
    let _ = writeln!(
        out,
        "{} - - [{}] \"{} {} {}\" {} {} \"{}\" \"{}\" {} {}",
        address(record.peer),
        clf_time(Stamp(record.at.as_secs())),
        escape(&record.method),
        escape(&record.url),
        version(record),
        record.status,
        record.bytes,
        quoted(&record.referer),
        quoted(&record.agent),
        record.outcome.as_str(),
        record.micros(),
    );
}

fn json(record: &Record, out: &mut Vec<u8>) {
    let line = serde_json::json!({
        "time": format!("{}.{:06}", record.at.as_secs(), record.at.subsec_micros()),
        "client": record.peer.to_canonical().to_string(),
        "method": record.method,
        "url": record.url,
        "version": version(record),
        "status": record.status,
        "bytes": record.bytes,
        "referer": record.referer,
        "agent": record.agent,
        "outcome": record.outcome.as_str(),
        "not_stored": record.not_stored,
        "complete": record.complete,
        "micros": record.micros(),
    });
    let _ = writeln!(out, "{line}");
}

fn version(record: &Record) -> &'static str {
    match record.version {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
    }
}

fn address(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// No byte of a request ends a field or a line of the log.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if control.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(control))),
            other => out.push(other),
        }
    }
    out
}

/// `21/Nov/2026:04:05:06 +0000`.
fn clf_time(stamp: Stamp) -> String {
    let date = larder_wire::date::format_date(stamp);
    let text = String::from_utf8_lossy(&date);
    // Sat, 21 Nov 2026 04:05:06 GMT
    format!("{}/{}/{}:{} +0000", &text[5..7], &text[8..11], &text[12..16], &text[17..25])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_web_servers_do() {
        assert_eq!(clf_time(Stamp(784_111_777)), "06/Nov/1994:08:49:37 +0000");
    }

    #[test]
    fn no_text_breaks_a_line() {
        assert_eq!(escape("a\"b\\c\n\u{7f}"), "a\\\"b\\\\c\\x0a\\x7f");
    }
}
