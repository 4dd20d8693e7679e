//! A contest over real logs and traces: each form is replayed against an entry, with the ideal of that log.

use super::official::{bounded, entry, free_port};
use cacheoff::ledger::{Class, Ledger, Outcome};
use std::fmt::Write;
use std::io::BufReader;
use std::path::Path;
use std::process::Command;

/// Objects that are asked for at the beginning, each once, and again two and four seconds later.
const OBJECTS: u32 = 30;

/// Second, object and size of each request.
fn requests() -> Vec<(u32, u32, u32)> {
    (0..3 * OBJECTS).map(|turn| (2 * (turn / OBJECTS), turn % OBJECTS, 500 + turn % OBJECTS)).collect()
}

fn write_all_forms(folder: &Path) {
    let (mut oracle, mut columns, mut squid) = (Vec::new(), String::new(), String::new());
    // Objects with an odd number live for a second: they have expired when they are asked for again.
    let mut lifetimes = "timestamp,key,size,ttl\n".to_owned();
    for (at_s, object, bytes) in requests() {
        oracle.extend((1_700_000_000 + at_s).to_le_bytes());
        oracle.extend(u64::from(object).to_le_bytes());
        oracle.extend(bytes.to_le_bytes());
        oracle.extend((-1_i64).to_le_bytes());
        writeln!(columns, "{at_s}, {object}, {bytes}").unwrap();
        writeln!(lifetimes, "{at_s},/{object},{bytes},{}", if object % 2 == 1 { "1" } else { "" }).unwrap();
        writeln!(squid, "{at_s}.000 5 192.0.2.7 TCP_MISS/200 {bytes} GET http://a.example/{object} - NONE/- text/html")
            .unwrap();
    }
    std::fs::write(folder.join("binary.oracleGeneral"), oracle).unwrap();
    std::fs::write(folder.join("columns.csv"), columns).unwrap();
    std::fs::write(folder.join("lifetimes.csv"), lifetimes).unwrap();
    std::fs::write(folder.join("squid.log"), squid).unwrap();
}

fn contest(folder: &Path, disciplines: &[String]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cacheoff"));
    command.args([
        "contest",
        "--entries",
        "",
        "--rounds",
        "1",
        "--memory-mb",
        "16",
        "--disk-mb",
        "16",
        "--store",
        "disk",
    ]);
    command.args(["--port", &free_port().to_string(), "--origin-port", &free_port().to_string()]);
    command.arg("--entry").arg(folder).arg("--folder").arg(folder.join("out"));
    command.arg("--html").arg(folder.join("report.html")).args(["--workload", &disciplines.join(",")]);
    bounded(command)
}

/// Replies, hits and offered hits of a ledger.
fn counts(ledger: &Ledger) -> (u64, u64, u64) {
    let basic = || ledger.intervals.iter().map(|interval| interval.class(Class::Basic));
    (basic().map(|f| f.replies).sum(), basic().map(|f| f.hits).sum(), basic().map(|f| f.offered).sum())
}

#[test]
fn a_contest_replays_each_form_of_a_trace_and_lifetimes_limit_what_is_offered() {
    let folder = tempfile::tempdir().unwrap();
    entry(folder.path());
    write_all_forms(folder.path());
    let of = |file: &str, more: &str| format!("replay:log={}{more}", folder.path().join(file).display());
    let disciplines = [
        of("binary.oracleGeneral", ""),
        of("columns.csv", ""),
        of("squid.log", ""),
        of("squid.log", ":content.logged.cache_control=max-age=1"),
        of("lifetimes.csv", ""),
    ];
    let (fine, said) = contest(folder.path(), &disciplines);
    assert!(fine, "{said}");
    let mut titles = Vec::new();
    for file in std::fs::read_dir(folder.path().join("out")).unwrap() {
        let path = file.unwrap().path();
        // A play that a busy machine spoilt is played again, and stays beside the one that counts.
        if path.extension().is_none_or(|end| end != "ledger") {
            continue;
        }
        let ledger = Ledger::read(BufReader::new(std::fs::File::open(&path).unwrap())).unwrap();
        let title = ledger.run.workload.name.clone();
        assert_eq!(ledger.end.outcome, Outcome::Complete, "{title}");
        let offered = match title.as_str() {
            title if title.contains("max-age") => 0,
            title if title.contains("lifetimes") => u64::from(OBJECTS),
            _ => 2 * u64::from(OBJECTS),
        };
        let (replies, hits, found) = counts(&ledger);
        assert_eq!((replies, found), (3 * u64::from(OBJECTS), offered), "{title}: {hits} hits");
        // The cache in perl stores what says `public`.
        assert_eq!(hits, offered, "{title}");
        let ideal = ledger.run.ideal.dhr.map(|dhr| (dhr * 3.0 * f64::from(OBJECTS)).round() as u64);
        assert_eq!(ideal, Some(offered), "{title}");
        titles.push(title);
    }
    titles.sort();
    let names = ["binary", "columns", "lifetimes", "squid", "squid, content.logged.cache_control max-age=1"];
    assert_eq!(titles, names.map(|name| format!("replay ({name})")));
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("replay (columns)"), "the report names the trace");
}

#[test]
fn a_trace_that_cannot_be_replayed_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    entry(folder.path());
    std::fs::write(folder.path().join("empty.log"), "hello\n").unwrap();
    let empty = folder.path().join("empty.log");
    for (discipline, reason) in [
        ("replay".to_owned(), "say with --log FILE"),
        (format!("replay:log={}", empty.display()), "no log of a known form"),
        ("replay:log=/nowhere/at/all".to_owned(), "cannot be read"),
        (format!("hammer:log={}", empty.display()), "replays no log"),
    ] {
        let (fine, said) = contest(folder.path(), std::slice::from_ref(&discipline));
        assert!(!fine && said.contains(reason), "{discipline}: {said}");
        assert!(!said.contains("round 1"), "{discipline}: {said}");
    }
}
