//! The lines of the demo. Colours only on a terminal, and not where `NO_COLOR` is set.

use super::origin::{BYTES_PER_SECOND, DELAY, FILE_BYTES};
use super::{Told, find_program};
use crate::run::summary::{size, span, why};
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";

pub(super) struct Screen {
    coloured: bool,
}

impl Screen {
    pub(super) fn new() -> Screen {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Screen { coloured: io::stdout().is_terminal() && !unwanted }
    }

    pub(super) fn begin(&self, origin: SocketAddr) {
        let (delay, megabits) = (DELAY.as_millis(), BYTES_PER_SECOND * 8 / 1_000_000);
        self.line(&self.paint(BOLD, "Larder: whatever is downloaded twice comes from your own disk the second time"));
        self.line(&format!(
            "\nAn origin made for this demo: https://localhost:{}, {delay} ms away at {megabits} Mbit/s,\n\
             with an index, two redirections, a signed URL and a file of {}.",
            origin.port(),
            size(FILE_BYTES as u64)
        ));
    }

    pub(super) fn command(&self, number: u8, run: &str, lines: &[String]) {
        self.line(&format!("\n{number}  {}{}", self.paint(BOLD, run), lines.join(" \\\n     ")));
    }

    pub(super) fn fetched(&self, told: &Told) {
        self.line(&format!("   {} from the origin in {}", size(told.stats.bytes_fetched), seconds(told)));
    }

    pub(super) fn stopped(&self, refused: bool) {
        let now = if refused { "connections to its port are refused" } else { "its port is still open" };
        self.line(&format!("\n   The origin is stopped: {now}."));
    }

    pub(super) fn offline(&self, told: &Told) {
        self.line(&format!("   {} from the store in {}\n", size(told.stats.bytes_from_store), seconds(told)));
        for exchange in &told.stats.exchanges {
            let path = exchange.url.splitn(4, '/').nth(3).unwrap_or(&exchange.url);
            let took = span_of_micros(exchange.micros);
            self.line(&format!(
                "   {}  {:>7}  {took:>7}  /{path:25} {}",
                exchange.status,
                size(exchange.bytes),
                self.paint(DIM, why(exchange).trim_start_matches("from the store, "))
            ));
        }
        self.line("");
    }

    /// A line for each check; whether all of them hold.
    pub(super) fn checks(&self, checks: &[(bool, String)]) -> bool {
        for (holds, what) in checks {
            let mark = if *holds { self.paint(GREEN, "✓") } else { self.paint(RED, "✗ not so:") };
            self.line(&format!("   {mark} {what}"));
        }
        checks.iter().all(|(holds, _)| *holds)
    }

    pub(super) fn saved(&self, first: &Told, second: &Told) {
        let faster = match first.seconds / second.seconds.max(0.001) {
            times if times >= 1.5 => format!(", {times:.0} times as fast"),
            _ => String::new(),
        };
        let saved = Duration::from_secs_f64((first.seconds - second.seconds).max(0.0));
        self.line(
            &self.paint(
                BOLD,
                &format!("\n   Saved {} and {}{faster}", size(second.stats.bytes_from_store), span(saved)),
            ),
        );
    }

    pub(super) fn package(&self, command: &str, first: &Told, second: &Told) {
        self.command(3, "larder run --", &[format!(" {command}   and again with --offline")]);
        self.line(&format!(
            "   a real package: {} from its registry in {}, then {} from the store in {}",
            size(first.stats.bytes_fetched),
            seconds(first),
            size(second.stats.bytes_from_store),
            seconds(second)
        ));
    }

    pub(super) fn no_package(&self) {
        self.line("\n3  A real package is left out: no registry was reached with pip3 or npm.");
    }

    pub(super) fn next(&self, program: &Path) {
        let larder = typed(program);
        self.line(&format!("\n{}", self.paint(BOLD, "Your turn")));
        let width = larder.chars().count() + 22;
        for (words, what) in [
            ("run -- npm install", "any command: pip, cargo, apt-get, git, curl …; it says what it saved"),
            ("stats", "what all runs saved, and what keeps missing"),
            ("", "a proxy for everything on 127.0.0.1:3128; its page: http://127.0.0.1:3129/"),
        ] {
            let command = format!("{larder} {words}");
            self.line(&format!("   {:width$} {}", command.trim_end(), self.paint(DIM, what)));
        }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.coloured { format!("{code}{text}\x1b[0m") } else { text.to_owned() }
    }

    /// A reader that has seen enough is no trouble.
    fn line(&self, line: &str) {
        let _ = writeln!(io::stdout().lock(), "{line}");
    }
}

fn seconds(told: &Told) -> String {
    span(Duration::try_from_secs_f64(told.seconds).unwrap_or_default())
}

fn span_of_micros(micros: u64) -> String {
    if micros < 10_000 { format!("{:.1} ms", micros as f64 / 1e3) } else { span(Duration::from_micros(micros)) }
}

/// How this program is called from the current folder.
fn typed(program: &Path) -> String {
    let here = std::env::current_dir().ok();
    match here.and_then(|here| program.strip_prefix(here).ok().map(Path::to_owned)) {
        Some(below) => below.display().to_string(),
        None if find_program("larder").as_deref() == Some(program) => "larder".to_owned(),
        None => program.display().to_string(),
    }
}
