//! Round trips of the ledger, and what a recorder makes of known replies.

use super::*;
use proptest::prelude::*;
use std::time::Duration;

fn reply() -> Reply {
    Reply {
        kind: Kind::Basic,
        content: 0,
        status: 200,
        cachable: true,
        offered: true,
        served: Served::Hit,
        aborted: false,
        across: Duration::ZERO,
        behind: false,
        head_bytes: 300,
        body_bytes: 1_000,
        response: Duration::from_micros(900),
        service: Duration::from_micros(700),
        first_byte: Duration::from_micros(500),
        wait: Duration::from_micros(200),
        missing: None,
        beside: None,
    }
}

fn taken(replies: &[Reply]) -> Interval {
    let mut recorder = Recorder::new();
    replies.iter().for_each(|reply| recorder.reply(reply));
    recorder.take(0, Duration::ZERO, Duration::from_secs(1))
}

#[test]
fn a_reply_is_counted_in_each_of_its_classes() {
    let miss = Reply { served: Served::Miss, missing: Some(MissCause::Evicted), ..reply() };
    let cases: [(Reply, &[&str]); 5] = [
        (reply(), &["all", "basic", "hit", "cachable", "content:0", "status:200"]),
        (miss, &["all", "basic", "miss", "cachable", "fill", "content:0", "status:200"]),
        (Reply { cachable: false, ..miss }, &["all", "basic", "miss", "uncachable", "content:0", "status:200"]),
        (Reply { kind: Kind::Range, status: 206, ..reply() }, &["all", "range", "content:0", "status:206"]),
        (Reply { aborted: true, content: 3, ..reply() }, &["all", "aborted", "content:3", "status:200"]),
    ];
    for (reply, classes) in cases {
        let names: Vec<String> = taken(&[reply]).classes.keys().map(Class::to_string).collect();
        assert_eq!(names, classes, "{reply:?}");
    }
}

#[test]
fn figures_add_up() {
    let miss = Reply { served: Served::Miss, response: Duration::from_millis(3), ..reply() };
    let interval = taken(&[reply(), reply(), miss]);
    let basic = interval.class(Class::Basic);
    assert_eq!((basic.replies, basic.hits, basic.offered), (3, 2, 3));
    assert_eq!((basic.bytes, basic.hit_bytes), (3_900, 2_600));
    assert_eq!(basic.response.mean(), Some(1_600.0));
    assert_eq!(interval.service.hit.count(), 2);
    assert_eq!(interval.class(Class::Range).replies, 0);
}

#[test]
fn a_recorder_starts_from_nothing_after_it_was_taken_but_keeps_levels() {
    let mut recorder = Recorder::new();
    recorder.reply(&reply());
    recorder.connected(Side::Client, Some(Duration::from_micros(80)));
    recorder.side(Side::Client).open = 4;
    recorder.set_levels(Levels { robots: 9, ..Levels::default() });
    recorder.take(0, Duration::ZERO, Duration::from_secs(1));
    let second = recorder.take(1, Duration::from_secs(1), Duration::from_secs(1));
    assert_eq!((second.replies(), second.levels.robots, second.phase), (0, 9, 1));
    assert_eq!((second.connections[&Side::Client].opened, second.connections[&Side::Client].open), (0, 4));
}

#[test]
fn workers_add_their_levels_and_later_intervals_replace_them() {
    let level = |robots| Interval { levels: Levels { robots, ..Levels::default() }, sent: 1, ..Interval::default() };
    let mut workers = level(3);
    workers.merge(&level(4));
    assert_eq!((workers.levels.robots, workers.sent), (7, 2));
    workers.extend(&level(5));
    assert_eq!((workers.levels.robots, workers.sent), (5, 3));
}

#[test]
fn only_the_first_errors_of_a_kind_are_exhibited() {
    let mut errors = Errors::default();
    for at_us in 0..10 {
        errors.add(Trouble::StaleHit, || Exhibit {
            trouble: Trouble::StaleHit,
            at_us,
            url: "/a".to_owned(),
            detail: String::new(),
        });
    }
    assert_eq!((errors.of(Trouble::StaleHit), errors.lies(), errors.exhibits.len()), (10, 10, EXHIBITS_MAX));
}

#[test]
fn every_word_reads_back_as_itself() {
    for trouble in Trouble::ALL {
        assert_eq!(serde_json::to_string(trouble).unwrap(), format!("{:?}", trouble.as_str()));
    }
    for (class, word) in Class::NAMED {
        assert_eq!(word.parse(), Ok(class));
    }
    for class in [Class::Content(7), Class::Status(404)] {
        assert_eq!(class.to_string().parse(), Ok(class));
    }
    assert!("nonsense:1".parse::<Class>().is_err());
}

fn ledger(seconds: u64) -> Ledger {
    let mut ledger = Ledger { run: Run { label: "squid".to_owned(), seed: 7, ..Run::default() }, ..Ledger::default() };
    ledger.phases.push(PhaseStart { phase: 0, at_us: 0 });
    for second in 0..seconds {
        let mut interval = taken(&vec![reply(); second as usize + 1]);
        interval.at_us = second * 1_000_000;
        ledger.intervals.push(interval);
    }
    ledger.notes.push(Note { at_us: 1_500_000, text: "a remark".to_owned() });
    ledger.downtimes.push(Downtime { first_hit_us: Some(4), ..Downtime::default() });
    ledger.end = End { at_us: seconds * 1_000_000, outcome: Outcome::Failed("why".to_owned()), invalid: vec![] };
    ledger
}

#[test]
fn a_file_gives_back_the_ledger() {
    let mut file = Vec::new();
    ledger(3).write(&mut file).unwrap();
    assert_eq!(Ledger::read(&file[..]).unwrap(), ledger(3));
}

#[test]
fn a_file_cut_at_any_byte_gives_back_what_was_whole() {
    let mut file = Vec::new();
    ledger(3).write(&mut file).unwrap();
    let head: usize = file.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    for cut in (head..file.len()).step_by(7) {
        let read = Ledger::read(&file[..cut]).unwrap();
        assert_eq!(read.end.outcome, Outcome::Unfinished);
        assert!(read.intervals.iter().eq(ledger(3).intervals.iter().take(read.intervals.len())));
    }
    assert!(matches!(Ledger::read(&file[..head - 1]), Err(LedgerFault::NotALedger)));
}

#[test]
fn damage_in_the_middle_names_its_line() {
    let mut file = Vec::new();
    ledger(2).write(&mut file).unwrap();
    let text = String::from_utf8(file).unwrap().replacen("\"sent\":0", "\"sent\":x", 1);
    let fault = Ledger::read(text.as_bytes()).unwrap_err().to_string();
    assert!(fault.starts_with("line 4 of the ledger is damaged"), "{fault}");
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut file = b"{\"format\":\"cacheoff-ledger-1\"}\n".to_vec();
        file.extend(bytes);
        let _ = Ledger::read(&file[..]);
    }
}
