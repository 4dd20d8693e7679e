//! `larder scripts`: applications in Python as the running Larder has them, and what went wrong in them.

use super::running::Running;
use super::{Flags, TROUBLE, WRONG, columns::columns};
use crate::control::{OfApplication, OfFailure, OfHook, OfLateLoad, OfLoad, OfProcess, Scripts};
use crate::diagnostics;
use crate::explain::Harmless;
use crate::latency::BOUNDS_MICROS;
use crate::mount::Condition;
use crate::run::summary::{size, span};
use crate::script;
use clap::Args;
use larder_wire::date::{Stamp, format_date};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Tracebacks of each application, where none is named.
const FAILURES: usize = 3;

/// Lines that are shown of the beginning and of the end of a traceback.
const LINES_HEAD: usize = 12;
const LINES_TAIL: usize = 40;

/// The longest line that is shown, in characters.
const LINE_CHARS_MAX: usize = 400;

#[derive(Args)]
pub(super) struct ScriptsFlags {
    #[command(flatten)]
    flags: Flags,
    /// Show this application alone, or those of this [[python]], with all processes and tracebacks that are remembered
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// The values, as JSON
    #[arg(long)]
    json: bool,
    /// Write the package `larder` into this folder, for editors and for tests of hooks; asks no server
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["name", "json"])]
    library: Option<PathBuf>,
}

pub(super) fn scripts(flags: &ScriptsFlags) -> u8 {
    if let Some(folder) = &flags.library {
        return match script::write_library(folder) {
            Ok(()) => super::print(format!(
                "PYTHONPATH={} has the package larder now\n",
                Harmless(&folder.display().to_string())
            )),
            Err(error) => {
                diagnostics::say(format_args!("error: cannot write to {}: {error}", folder.display()));
                TROUBLE
            }
        };
    }
    let running = match Running::of(&flags.flags) {
        Ok(running) => running,
        Err(status) => return status,
    };
    let path = match flags.name {
        None if !flags.json => format!("/scripts?failures={FAILURES}"),
        _ => "/scripts".to_owned(),
    };
    match running.client().ask_for::<Scripts>(&path) {
        Ok(Ok(scripts)) => show(flags, scripts),
        Ok(Err(trouble)) => {
            diagnostics::say(format_args!("error: {trouble}"));
            TROUBLE
        }
        Err(error) => running.gave_no_answer(&error),
    }
}

fn show(flags: &ScriptsFlags, mut scripts: Scripts) -> u8 {
    if let Some(name) = &flags.name {
        let names: Vec<String> = scripts.applications.iter().map(|application| application.name.clone()).collect();
        // A file of hooks may be called by its own name too.
        let is_meant = |application: &OfApplication| {
            application.name == *name
                || application.python == *name
                || application.name.strip_prefix("hooks:").is_some_and(|file| file == name)
        };
        scripts.applications.retain(is_meant);
        if scripts.applications.is_empty() {
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            diagnostics::say(format_args!("error: there is no application {}; there is {there}", Harmless(name)));
            return WRONG;
        }
    }
    let is_in_trouble = scripts.applications.iter().any(OfApplication::is_in_trouble);
    let status = match flags.json {
        true => super::print(serde_json::to_string_pretty(&scripts).unwrap_or_default() + "\n"),
        false => super::print(text(&scripts.applications, flags.name.is_some())),
    };
    if is_in_trouble { TROUBLE } else { status }
}

/// All that a terminal shows; `in_full` where an application was named.
fn text(applications: &[OfApplication], in_full: bool) -> String {
    if applications.is_empty() {
        return "no application is configured: a [[site]] with origin = \"wsgi:module:name\" or \"asgi:module:name\" \
                has one\n"
            .to_owned();
    }
    let mut out = table(applications);
    if in_full {
        applications.iter().for_each(|application| out += &surroundings(application));
    }
    let hooks = applications.iter().filter(|application| !application.hooks.is_empty());
    hooks.for_each(|application| out += &format!("\n{}", hook_table(&application.hooks)));
    for application in applications {
        if let Some(failure) = &application.load_failure {
            out += &load_failure(application, failure);
        }
    }
    for application in applications {
        if let Some(late) = &application.late_load {
            out += &late_load(application, late);
        }
    }
    let of_each = applications.iter().flat_map(|each| each.failures.iter().map(move |failure| (each, failure)));
    let mut failures: Vec<(&OfApplication, &OfFailure)> = of_each.collect();
    failures.sort_by_key(|(_, failure)| failure.at_millis);
    failures.into_iter().for_each(|(application, failure)| out += &request_failure(application, failure));
    out
}

fn table(applications: &[OfApplication]) -> String {
    let heads = ["application", "state", "processes", "under way", "waiting", "requests", "errors", "memory", "Python"];
    let row = |application: &OfApplication| {
        let under_way: usize = application.processes.iter().map(|process| process.under_way).sum();
        let memory: Vec<u64> = application.processes.iter().filter_map(|process| process.memory_bytes).collect();
        [
            application.name.clone(),
            application.state.clone(),
            format!("{}/{}", application.processes.len(), application.processes_max),
            under_way.to_string(),
            application.waiting.to_string(),
            application.counts.requests.to_string(),
            application.counts.errors.to_string(),
            if memory.is_empty() { "-".to_owned() } else { size(memory.iter().sum()) },
            if application.version.is_empty() { "-".to_owned() } else { application.version.clone() },
        ]
    };
    columns(&heads, &applications.iter().map(row).collect::<Vec<_>>(), 2)
}

/// The hooks of one list of files, with how long they take.
fn hook_table(hooks: &[OfHook]) -> String {
    let heads = ["hook", "stage", "calls", "failed", "late", "ended", "mean", "median", "p99"];
    let row = |hook: &OfHook| {
        let within = |micros| time_within(micros, hook.calls);
        [
            format!("{} ({}:{})", hook.name, hook.script, hook.line),
            hook.stage.clone(),
            hook.calls.to_string(),
            hook.failed.to_string(),
            hook.late.to_string(),
            hook.ended.to_string(),
            hook.mean_micros.map_or("-".to_owned(), mean),
            within(hook.median_micros),
            within(hook.p99_micros),
        ]
    };
    columns(&heads, &hooks.iter().map(row).collect::<Vec<_>>(), 2)
}

/// Counted times are known by the upper bound of their bucket; the last bucket has none.
fn time_within(micros: Option<u64>, calls: u64) -> String {
    match (micros, BOUNDS_MICROS.last()) {
        (Some(micros), _) => format!("≤ {}", time(micros)),
        (None, Some(last)) if calls > 0 => format!("> {}", time(*last)),
        (None, _) => "-".to_owned(),
    }
}

fn mean(micros: f64) -> String {
    if micros < 100.0 { format!("{micros:.1} µs") } else { time(micros.round() as u64) }
}

fn time(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.1} s", micros as f64 / 1e6),
    }
}

/// Where an application runs, and each of its processes.
fn surroundings(application: &OfApplication) -> String {
    let OfApplication { name, python, folder, interpreter, generation, counts, processes, .. } = application;
    let OfApplication { confined, lacks, buffered_bytes, .. } = application;
    let python = if python.is_empty() { "no [[python]]".to_owned() } else { format!("[[python]] {python}") };
    let mut out = format!("\n{}: {python}, folder {folder}, interpreter {interpreter}\n", Harmless(name));
    let _ = writeln!(
        out,
        "begun {generation} times; processes started {}, ended {}, ended because they hung {}, because their connections broke {}; versions that could not be loaded {}",
        counts.started, counts.ended, counts.hung, counts.broken, counts.load_failures
    );
    for (what, bounds) in [("bounds", confined), ("without", lacks)] {
        if !bounds.is_empty() {
            let _ = writeln!(out, "{what}: {}", Harmless(&bounds.join("; ")));
        }
    }
    if application.log_bytes_left_out > 0 {
        let _ = writeln!(out, "left out of its log: {}", size(application.log_bytes_left_out));
    }
    if *buffered_bytes > 0 {
        let _ = writeln!(out, "in buffers for slow clients: {}", size(*buffered_bytes));
    }
    if !processes.is_empty() {
        let heads = ["process", "serves for", "under way", "memory", "CPU"];
        let row = |process: &OfProcess| {
            let OfProcess { pid, under_way, requests_max, age_seconds, memory_bytes, cpu_millis } = process;
            [
                pid.to_string(),
                span(Duration::from_secs(*age_seconds)),
                format!("{under_way}/{requests_max}"),
                memory_bytes.map_or("-".to_owned(), size),
                cpu_millis.map_or("-".to_owned(), |millis| span(Duration::from_millis(millis))),
            ]
        };
        out += &columns(&heads, &processes.iter().map(row).collect::<Vec<_>>(), 1);
    }
    out
}

fn load_failure(application: &OfApplication, failure: &OfLoad) -> String {
    let what = match application.processes.is_empty() {
        true => "can't be loaded",
        false => "can't be loaded as it is now; the version before goes on",
    };
    let hint = match failure.hint.trim() {
        "" => String::new(),
        hint => format!("  hint: {}\n", Harmless(hint)),
    };
    let (name, at) = (Harmless(&application.name), moment(failure.at_millis));
    format!("\n{name} {what} ({at})\n{}{hint}", traceback(&failure.traceback))
}

fn late_load(application: &OfApplication, late: &OfLateLoad) -> String {
    let condition = Condition::ALL.into_iter().find(|condition| application.state == condition.as_str());
    let goes_on = condition.unwrap_or(Condition::Serving).of_requests();
    let place = if late.place.is_empty() { "where it is, is not known" } else { &late.place };
    let (name, at) = (Harmless(&application.name), moment(late.since_millis));
    format!("\n{name}: process {} is imported still since {at}; {goes_on}\n  {}\n", late.pid, Harmless(place))
}

fn request_failure(application: &OfApplication, failure: &OfFailure) -> String {
    let OfFailure { at_millis, request, method, target, traceback: text } = failure;
    let request = match request.as_str() {
        "" => String::new(),
        request => format!(", request {}", Harmless(request)),
    };
    let (name, method, target) = (Harmless(&application.name), Harmless(method), Harmless(target));
    if failure.method.is_empty() {
        // Of a process, and of no one request.
        return format!("\n{name} ({})\n{}", moment(*at_millis), traceback(text));
    }
    // A call that was late, or whose decision can't be done, raised none.
    let what = if text.starts_with("Traceback") { "raised an exception" } else { "failed" };
    format!("\n{name}: {method} {target} {what} ({}{request})\n{}", moment(*at_millis), traceback(text))
}

fn moment(millis: u64) -> String {
    String::from_utf8_lossy(&format_date(Stamp(millis / 1_000))).into_owned()
}

/// The lines of a traceback as a terminal may have them: bounded, and without control characters.
fn traceback(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let mut out = String::new();
    let left_out = lines.len().saturating_sub(LINES_HEAD + LINES_TAIL);
    for (at, line) in lines.iter().enumerate() {
        if left_out > 0 && at == LINES_HEAD {
            let _ = writeln!(out, "  … ({left_out} lines left out)");
        }
        if left_out > 0 && (LINES_HEAD..LINES_HEAD + left_out).contains(&at) {
            continue;
        }
        let line = line.replace('\t', "    ");
        let shown: String = line.chars().take(LINE_CHARS_MAX).collect();
        let more = if shown.len() < line.len() { "…" } else { "" };
        let _ = writeln!(out, "  {}{more}", Harmless(&shown));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceback_is_bounded_and_steers_no_terminal() {
        let hostile = "Traceback:\n\tFile \"a\u{1b}[2J\"\r\nValueError: \u{9b}31m\u{202e}x\n\n";
        assert_eq!(
            traceback(hostile),
            "  Traceback:\n      File \"a\\u{1b}[2J\"\n  ValueError: \\u{9b}31m\\u{202e}x\n"
        );
        let long = (0..100).map(|number| format!("{number} {}\n", "x".repeat(1_000))).collect::<String>();
        let shown = traceback(&long);
        assert_eq!(shown.lines().count(), LINES_HEAD + 1 + LINES_TAIL);
        assert!(shown.contains("\n  … (48 lines left out)\n  60 x") && shown.contains("\n  99 x"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= LINE_CHARS_MAX + 3));
    }
}
