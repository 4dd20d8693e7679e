//! Where the time of a 600 B hit goes: what `perf` sees of the server while it is busy, and the kernel's share.

use super::field::{self, Contestant, USUAL};
use super::proof;
use super::report::{figure, machine};
use super::table::Origin;
use super::tool::{Load, Sample, Script, Tool};
use crate::shell::{self, Trouble};
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// "If the time is mostly spent in the kernel, you are doing it right."
const KERNEL_SHARE_MIN: f64 = 0.85;
const SAMPLES_PER_SECOND: &str = "4999";
const LINES_MAX: usize = 60;
const CONNECTIONS: usize = 64;

/// A function's line in the output of perf.
#[derive(Debug, PartialEq)]
struct Line {
    share: f64,
    is_kernel: bool,
    name: String,
}

/// Plays it twice, first without `perf`, whose looks cost time too, and gives the page. A run has `rounds` times so many
/// seconds.
pub fn play(root: &Path, rounds: usize, seconds: u64) -> Result<String, Trouble> {
    field::build(root)?;
    let (mut lab, origin) = Origin::in_a_new_lab()?;
    let server = Contestant::start_larder("larder", &USUAL, root, &mut lab, origin.port)?;
    let tool = Tool::Wrk { connections: CONNECTIONS, closes: false };
    let url = format!("http://127.0.0.1:{}/600", server.doors.plain);
    let load = Load { tool, url, script: Script::Plain, status: 200 };
    proof::prove_hit(&load, &lab)?;
    // Warms up.
    load.sample(&lab, server.id, origin.id, seconds, 0)?;
    let seconds = seconds * rounds as u64;
    let unwatched = load.sample(&lab, server.id, origin.id, seconds, 1)?;
    server.empty_log();
    let data = lab.path().join("perf.data");
    let mut perf = Command::new(shell::need_program("perf")?);
    perf.args(["record", "--quiet", "-e", "cpu-clock", "-F", SAMPLES_PER_SECOND, "-p", &server.id.to_string(), "-o"]);
    perf.arg(&data).args(["--", "sleep", &seconds.to_string()]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut watching = perf.stderr(Stdio::null()).spawn().map_err(|error| format!("cannot start perf: {error}"))?;
    load.sample(&lab, server.id, origin.id, seconds, 2)?;
    let status = watching.wait().map_err(|error| format!("waiting for perf: {error}"))?;
    if !status.success() {
        return Err(format!("perf ended with {status}: may this user sample a process (kernel.perf_event_paranoid)?"));
    }
    let mut report = Command::new(shell::need_program("perf")?);
    report.args(["report", "--stdio", "--no-children", "--sort", "dso,symbol", "-g", "none", "-i"]).arg(&data);
    let lines = read(&shell::ask(&mut report)?);
    if lines.is_empty() {
        return Err("perf reported nothing that can be read".to_owned());
    }
    Ok(page(seconds, &server.version, &unwatched, &lines))
}

/// Lines like `  12.34%  [kernel.kallsyms]  [k] tcp_sendmsg`.
fn read(report: &str) -> Vec<Line> {
    let line = |text: &str| {
        let (share, rest) = text.trim().split_once('%')?;
        let (object, rest) = rest.trim().split_once(char::is_whitespace)?;
        let (_, name) = rest.trim().split_once("] ")?;
        // Behind it are columns for callers, which are empty here.
        let name = name.split("   ").next().unwrap_or(name);
        Some(Line {
            share: share.parse().ok()?,
            is_kernel: object.starts_with("[kernel"),
            name: name.trim().to_owned(),
        })
    };
    report.lines().filter(|text| !text.starts_with('#')).filter_map(line).collect()
}

fn page(seconds: u64, version: &str, sample: &Sample, lines: &[Line]) -> String {
    let seen: f64 = lines.iter().filter(|line| line.is_kernel).map(|line| line.share / 100.0).sum();
    let met = if sample.kernel_share >= KERNEL_SHARE_MIN { "met" } else { "**missed**" };
    let mut text = format!(
        "# Where the time of a hit goes\n\n`cargo xtask bench profile`: a memory hit of 600 B by {version}, log and records on, {CONNECTIONS} kept \
         connections, server alone on core 0, wrk on core 1, {seconds} s; {}. CPU time of the server: {} µs a hit, {:.0} % of it in the \
         kernel by its own accounting (goal ≥ {:.0} %, {met}), {:.0} % by `perf` in a second run with {SAMPLES_PER_SECOND} samples a second of the clock \
         (this machine has no counters of cycles). The kernel's share of a function that runs with interrupts off falls to the one that \
         switches them on.\n\n| share | where | function |\n|---:|---|---|\n",
        machine(),
        figure(sample.cpu_micros),
        sample.kernel_share * 100.0,
        KERNEL_SHARE_MIN * 100.0,
        seen * 100.0,
    );
    for line in lines.iter().take(LINES_MAX) {
        let place = if line.is_kernel { "kernel" } else { "larder" };
        writeln!(text, "| {:.2} % | {place} | `{}` |", line.share, line.name.replace('|', "\\|")).ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_perf_prints_is_read() {
        let report = "# Samples: 5K of event 'cpu-clock'\n#\n    12.34%  [kernel.kallsyms]  [k] tcp_sendmsg_locked      -      -\n     \
                      3.00%  larder             [.] <larder::session::Session>::flush\n     0.50%  [vdso]             [.] __vdso_clock_gettime\n\n";
        let line = |share, is_kernel, name: &str| Line { share, is_kernel, name: name.to_owned() };
        let wanted = [
            line(12.34, true, "tcp_sendmsg_locked"),
            line(3.0, false, "<larder::session::Session>::flush"),
            line(0.5, false, "__vdso_clock_gettime"),
        ];
        assert_eq!(read(report), wanted);
    }
}
