//! A contest with small servers as entries: alternation, failures, and that nothing is left behind.

use super::*;
use crate::ledger::{Class, Figures, Interval, Listener, Load, PhaseStart};
use std::path::Path;
use tempfile::TempDir;

/// A free port of this machine.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// An entry that answers every connection from a shell, as a cache with a helper process would.
fn entry(folder: &Path, name: &str, start: &str) -> EntrySpec {
    let folder = folder.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let text = format!(
        "name = {name:?}\nproduct = \"One\"\nprogram = \"sh\"\nversion = [\"-c\", \"echo entry 1.2\"]\nready_s = 3\nfolders = [\"log\"]\nnotes = [\"a note\"]\n\
         start = [\"-c\", {start:?}]\n[[file]]\npath = \"conf\"\ntemplate = \"conf\"\n[mode.reverse]\n[store.memory]\nbudget = \"@memory_mb@\"\n"
    );
    std::fs::write(folder.join("entry.toml"), text).unwrap();
    std::fs::write(folder.join("conf"), "port @port@ budget @budget@ in @dir@\n").unwrap();
    EntrySpec::folder(&folder).unwrap()
}

fn plan(entries: Vec<EntrySpec>, folder: &TempDir) -> Plan {
    Plan {
        entries,
        disciplines: vec![Discipline::of("hammer"), Discipline::of("tree")],
        rounds: 2,
        post: Post {
            mode: "reverse".to_owned(),
            store: "memory".to_owned(),
            port: free_port(),
            origin: "127.0.0.1:9".parse().unwrap(),
            memory_mb: 8,
            disk_mb: 0,
            cores: vec![0],
            servers: Servers::default(),
            listener: crate::ledger::Listener::Http,
        },
        any_mode: false,
        folder: folder.path().join("ledgers"),
        time_max: None,
    }
}

fn no_kill(_: &Discipline, _: &EntrySpec, _: &Post, _: u32) -> Ledger {
    unreachable!()
}

fn facts(discipline: &Discipline) -> WorkloadFacts {
    WorkloadFacts { name: discipline.title(), ..WorkloadFacts::default() }
}

/// A server in perl, which every Debian has: answers 200 and leaves a child behind that outlives its parent's death.
const SERVER: &str = "exec perl -MIO::Socket::INET -e '$SIG{CHLD}=q(IGNORE); if (!fork) { sleep 60; exit } \
    $s=IO::Socket::INET->new(LocalAddr=>q(127.0.0.1),LocalPort=>@port@,Listen=>9,ReuseAddr=>1) or die; \
    while ($c=$s->accept) { sysread $c,$b,999; print $c qq(HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n); close $c }'";

#[test]
fn entries_alternate_failures_are_listed_and_nothing_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let entries = vec![
        entry(folder.path(), "one", SERVER),
        entry(folder.path(), "dies", "echo no such luck >&2; exit 3"),
        EntrySpec { program: "no-such-program".to_owned(), ..entry(folder.path(), "absent", "true") },
    ];
    let plan = plan(entries, &folder);
    let (mut played, mut seen, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    let mut play = |heat: &Heat<'_>| {
        let pid = heat.pid.unwrap();
        played.push((heat.discipline.title(), heat.round, crate::proc::tree(pid)));
        let run = Run {
            label: heat.label.to_owned(),
            round: heat.round,
            workload: WorkloadFacts { name: heat.discipline.title(), ..WorkloadFacts::default() },
            target: heat.target.clone(),
            ..Run::default()
        };
        Ok(Ledger { run, phases: vec![PhaseStart::default()], ..Ledger::default() })
    };
    let mut tell = |event: Event<'_>| match event {
        Event::Begins { label, round, .. } => seen.push((label.to_owned(), round)),
        Event::Failed { label, reason } => failures.push(format!("{label}: {reason}")),
        Event::Repeated { .. } | Event::TimeIsOver | Event::Stopped => {}
    };
    let ledgers =
        contest(&plan, &mut Players { play: &mut play, kill: &mut no_kill, facts: &facts }, &mut tell).unwrap();
    let order: Vec<&str> = seen.iter().map(|(label, _)| label.as_str()).collect();
    assert_eq!(order[..6], ["one", "dies", "absent", "dies", "absent", "one"]);
    assert_eq!(ledgers.len(), 12);
    let labels: Vec<(&str, u32)> = ledgers[..6].iter().map(|l| (l.run.label.as_str(), l.run.round)).collect();
    assert_eq!(labels, [("one", 1), ("one", 2), ("dies", 1), ("dies", 2), ("absent", 1), ("absent", 2)]);
    assert!(
        failures.iter().any(|text| text.contains("dies ended at once (exit status: 3): no such luck")),
        "{failures:?}"
    );
    assert!(failures.iter().any(|text| text.contains("no-such-program is not installed")), "{failures:?}");
    let shown = ledgers[0].run.target.clone();
    assert!(
        shown.product.starts_with("One 1.2 (program file of 20") && shown.mode == Mode::Reverse,
        "{}",
        shown.product
    );
    let files = &shown.entry.as_ref().unwrap().files;
    assert!(files[0].1.contains("budget 8 in DIR"), "{files:?}");
    assert_eq!(played.len(), 4);
    for (_, _, family) in &played {
        assert!(family.len() >= 2, "the child was not seen: {family:?}");
        // A zombie has no command line any more.
        let runs = |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
        assert!(!family.iter().any(runs), "{family:?} is left");
    }
    assert!(plan.folder.join("hammer-dies-2.ledger").exists());
}

#[test]
fn an_entry_that_fails_stands_in_the_table_that_it_failed_in() {
    let folder = tempfile::tempdir().unwrap();
    let mut plan = plan(vec![entry(folder.path(), "one", SERVER)], &folder);
    (plan.rounds, plan.disciplines) = (1, vec![Discipline::of("hammer")]);
    let over = |listener: Listener| {
        let facts = |discipline: &Discipline| WorkloadFacts {
            protocol: if listener == Listener::Https { "http/1.1" } else { "h2" }.to_owned(),
            listener,
            ..facts(discipline)
        };
        let mut players = Players { play: &mut |_| unreachable!(), kill: &mut no_kill, facts: &facts };
        contest(&plan, &mut players, &mut |_| {}).unwrap().remove(0)
    };
    for (listener, title) in
        [(Listener::H2, "hammer, HTTP/2 over TLS (h2)"), (Listener::Https, "hammer, HTTP/1.1 over TLS")]
    {
        let failed = over(listener);
        let Outcome::Failed(reason) = &failed.end.outcome else { panic!("{:?}", failed.end) };
        let word = listener.as_str();
        assert_eq!(*reason, format!("the entry of one has no listener for {word}, only for http"));
        let other = Run {
            label: "other".to_owned(),
            protocol: failed.run.protocol.clone(),
            tls: Some(TlsFacts::Verified),
            workload: WorkloadFacts { name: "hammer".to_owned(), ..WorkloadFacts::default() },
            ..Run::default()
        };
        let both = [Ledger { run: other, ..Ledger::default() }, failed];
        let tables = crate::report::compare(&both);
        assert_eq!(tables.iter().map(|table| table.workload.as_str()).collect::<Vec<_>>(), [title]);
    }
}

#[test]
fn a_play_that_noise_spoilt_is_repeated_and_says_so() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            use std::io::{Read, Write};
            let _ = stream.read(&mut [0; 500]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let mut plan = plan(vec![EntrySpec::address("theirs", &address)], &folder);
    (plan.rounds, plan.disciplines) = (1, vec![Discipline::of("hammer")]);
    // Two noisy plays and a quiet one; in the second contest all are noisy.
    for (noisy_plays, plays) in [(2, 3), (9, 3)] {
        let mut played = 0;
        let mut play = |heat: &Heat<'_>| {
            assert_eq!(heat.repeats.len(), played);
            played += 1;
            let load = Load { steal: if played <= noisy_plays { 0.5 } else { 0.0 }, ..Load::default() };
            let mut interval = Interval { length_us: 1_000_000, load: Some(load), ..Interval::default() };
            interval.classes.insert(Class::All, Figures { replies: 9, ..Figures::default() });
            let run = Run { repeats: heat.repeats.clone(), ..Run::default() };
            let end = End { outcome: Outcome::Complete, ..End::default() };
            let ledger = Ledger { run, intervals: vec![interval], end, ..Ledger::default() };
            std::fs::write(&heat.ledger, "of a play").unwrap();
            Ok(ledger)
        };
        let ledgers =
            contest(&plan, &mut Players { play: &mut play, kill: &mut no_kill, facts: &facts }, &mut |_| {}).unwrap();
        assert_eq!((ledgers.len(), played), (1, plays));
        assert_eq!(Summary::of(&ledgers[0]).counts(), noisy_plays == 2);
        assert!(plan.folder.join("hammer-theirs-1.spoilt-2").exists());
    }
}

#[test]
fn a_taken_port_is_said_and_no_round_begins_when_time_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut plan = plan(vec![entry(folder.path(), "one", SERVER)], &folder);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    plan.post.port = listener.local_addr().unwrap().port();
    plan.disciplines.truncate(1);
    let ledgers =
        contest(&plan, &mut Players { play: &mut |_| unreachable!(), kill: &mut no_kill, facts: &facts }, &mut |_| {})
            .unwrap();
    assert!(matches!(&ledgers[0].end.outcome, Outcome::Failed(reason) if reason.contains("is taken")));
    plan.time_max = Some(Duration::ZERO);
    assert!(
        contest(&plan, &mut Players { play: &mut |_| unreachable!(), kill: &mut no_kill, facts: &facts }, &mut |_| {})
            .unwrap()
            .is_empty()
    );
}

#[test]
fn entries_are_asked_as_the_workload_was_meant_where_they_can() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan { any_mode: true, ..plan(Vec::new(), &folder) };
    let mode = |entry: &str, workload: &str, has_names: bool| {
        post(&plan, &EntrySpec::builtin(entry).unwrap(), &Discipline::of(workload), has_names).mode
    };
    assert_eq!(mode("squid", "polymix-4", true), "forward");
    assert_eq!(mode("nginx", "polymix-2", false), "forward");
    assert_eq!(mode("nginx", "polymix-4", true), "reverse");
    assert_eq!(mode("varnish", "polymix-2", false), "reverse");
    assert_eq!(mode("squid", "tree", false), "reverse");
    assert_eq!(mode("puma", "board", false), "pages");
    let forced = Plan { any_mode: false, ..plan };
    // Also where a mode is forced, pages are asked for as pages.
    assert_eq!(post(&forced, &EntrySpec::builtin("puma").unwrap(), &Discipline::of("page"), false).mode, "pages");
    assert_eq!(
        post(&forced, &EntrySpec::builtin("squid").unwrap(), &Discipline::of("polymix-2"), false).mode,
        "reverse"
    );
}

#[test]
fn an_address_is_asked_and_never_started() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(1).flatten() {
            use std::io::{Read, Write};
            let mut stream = stream;
            let _ = stream.read(&mut [0; 500]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let mut plan = plan(vec![EntrySpec::address("theirs", &address)], &folder);
    (plan.rounds, plan.disciplines) = (1, vec![Discipline::of("hammer")]);
    let mut asked = None;
    let mut play = |heat: &Heat<'_>| {
        asked = Some((heat.pid, heat.address.to_string()));
        Ok(Ledger::default())
    };
    contest(&plan, &mut Players { play: &mut play, kill: &mut no_kill, facts: &facts }, &mut |_| {}).unwrap();
    assert_eq!(asked, Some((None, address)));
}

#[test]
fn a_long_name_becomes_a_short_name_of_a_file_of_its_own() {
    let changes: String = (0..40).map(|knob| format!(", content.page.size {knob}")).collect();
    let title = |last: &str| format!("hammer (16kb{changes}, robot.count {last})");
    let (one, other) = (file_name(&title("1"), "squid/stock", 1), file_name(&title("2"), "squid/stock", 1));
    assert!(one.len() < 200 && one != other && one.ends_with("-squid_stock-1.ledger"), "{one}");
    assert_eq!(file_name("hammer (16kb)", "larder", 2), "hammer__16kb_-larder-2.ledger");
    assert!(std::fs::File::create(tempfile::tempdir().unwrap().path().join(one)).is_ok());
}
