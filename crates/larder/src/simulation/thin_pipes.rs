//! Downloads from origins that give each connection little: which requests the origin gets, and how long the client waits.

use super::plan::{Action, BodyFraming, ConnectionPlan, Event, Host, Object, PLAIN, Plan, Step, Trouble, Turn};
use super::run::{Outcome, run};
use crate::in_memory::StreamSettings;

const LENGTH: u64 = 400_000;

/// An object whose origin gives each connection 100 kB/s.
fn thin() -> Object {
    Object {
        host: 0,
        length: LENGTH,
        life: "max-age=600",
        varies: false,
        has_tag: true,
        knows_ranges: true,
        says_ranges: true,
        thin: Some((2_000, 20)),
        framing: BodyFraming::Length,
        turns: Vec::new(),
    }
}

/// One client asks for one object after the other.
fn plan(objects: Vec<Object>) -> Plan {
    let stream = StreamSettings { room_bytes: 1 << 20, read_bytes_max: 1 << 20 };
    let step = |object| Step {
        object,
        action: Action::Get,
        pause_millis: 0,
        is_pipelined: false,
        piece_bytes: usize::MAX,
        piece_millis: 0,
        variant: 'a',
        field: None,
        has_condition: false,
        ranges: Vec::new(),
        is_http_1_0: false,
    };
    let connection = ConnectionPlan {
        client: 0,
        worker: 0,
        at_millis: 0,
        sends: stream,
        gets: stream,
        read_pause_millis: 0,
        leaves: None,
        steps: (0..objects.len()).map(step).collect(),
    };
    let settings = Plan::of(0).settings;
    let hosts = (0..objects.len()).map(|_| Host { connects: Vec::new(), names: Vec::new(), stream }).collect();
    Plan {
        seed: 0,
        is_calm: true,
        is_prompt: true,
        settings,
        workers: 1,
        hosts,
        objects,
        connections: vec![connection],
        events: Vec::new(),
        disk: None,
    }
}

/// The ranges that origins were asked for, in order; `whole` where none.
fn asked(outcome: &Outcome) -> Vec<String> {
    assert!(outcome.violation.is_none(), "{:?}\n{}", outcome.violation, outcome.trace.join("\n"));
    let requests = outcome.trace.iter().filter(|line| line.contains("origin") && line.contains("GET"));
    let range = |line: &String| Some(line.split_once('(')?.1.split_once(')')?.0.to_owned());
    requests.filter_map(range).collect()
}

fn bytes_asked(asked: &[String]) -> u64 {
    let bytes = |range: &String| {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        Some(last.parse::<u64>().ok()? + 1 - first.parse::<u64>().ok()?)
    };
    asked.iter().filter_map(bytes).sum()
}

/// The time of the last line of a client, in milliseconds.
fn took(outcome: &Outcome) -> u64 {
    let lines = outcome.trace.iter().rev();
    let mut times = lines.filter(|line| line.contains("client")).filter_map(|line| line.split_whitespace().next());
    times.find_map(|time| time.trim_end_matches("ms").parse().ok()).expect("a line with its time")
}

#[test]
fn a_thin_pipe_is_asked_for_several_ranges_and_brings_no_byte_twice() {
    let outcome = run(&plan(vec![thin()]));
    let asked = asked(&outcome);
    assert_eq!(asked[0], "whole");
    let extra = bytes_asked(&asked[1..]);
    assert!(asked.len() > 6 && extra > LENGTH / 2 && extra < LENGTH, "{asked:?}");
    let one = run(&plan(vec![Object { says_ranges: false, ..thin() }]));
    assert_eq!(self::asked(&one), ["whole"], "nothing says that it takes ranges");
    let trace = outcome.trace.join("\n");
    assert!(took(&outcome) * 5 < took(&one) * 3, "{} and {}\n{trace}", took(&outcome), took(&one));
}

#[test]
fn an_origin_that_sends_the_whole_for_a_range_is_asked_once() {
    let lies = Object { knows_ranges: false, ..thin() };
    let asked = asked(&run(&plan(vec![lies.clone(), lies.clone(), lies])));
    assert_eq!(asked.iter().filter(|range| *range == "whole").count(), 3, "{asked:?}");
    assert_eq!(asked.len(), 4, "{asked:?}");
}

#[test]
fn an_unknown_origin_is_asked_once_however_many_downloads_begin_at_once() {
    let lies = Object { knows_ranges: false, ..thin() };
    let mut plan = plan(vec![lies.clone(), lies.clone(), lies]);
    let all = plan.connections.remove(0);
    for step in &all.steps {
        plan.connections.push(ConnectionPlan { steps: vec![step.clone()], ..all.clone() });
    }
    let asked = asked(&run(&plan));
    assert_eq!(asked.iter().filter(|range| *range == "whole").count(), 3, "{asked:?}");
    assert_eq!(asked.len(), 4, "{asked:?}");
}

#[test]
fn a_chunk_that_stalls_holds_its_reader_no_longer_than_it_may_be_silent() {
    for stalled in 2..6 {
        let mut turns = vec![PLAIN; stalled];
        turns.push(Turn { trouble: Trouble::Silent(500), ..PLAIN });
        let mut plan = plan(vec![Object { turns, ..thin() }]);
        plan.is_calm = false;
        let outcome = run(&plan);
        let trace = outcome.trace.join("\n");
        assert!(outcome.violation.is_none(), "{stalled}: {:?}\n{trace}", outcome.violation);
        // The silence, and the rest of the chunk; with `origin_idle` it would take as long as with one request.
        assert!(took(&outcome) < 2_500, "{stalled}: {}\n{trace}", took(&outcome));
    }
}

#[test]
fn what_may_not_be_put_together_or_is_soon_over_is_left_to_one_request() {
    for alone in [
        Object { has_tag: false, ..thin() },
        Object { framing: BodyFraming::Chunked, ..thin() },
        Object { life: "no-store", ..thin() },
        Object { thin: None, ..thin() },
        Object { length: 15_000, ..thin() },
    ] {
        assert_eq!(asked(&run(&plan(vec![alone.clone()]))), ["whole"], "{alone:?}");
    }
}

#[test]
fn a_setting_of_one_is_one() {
    let mut plan = plan(vec![thin()]);
    let at = plan.settings.iter().position(|line| line == "[upstream]").expect("a table");
    plan.settings.insert(at + 1, "parallel_ranges = 1".to_owned());
    assert_eq!(asked(&run(&plan)), ["whole"]);
}

#[test]
fn an_object_that_changes_under_way_is_never_mixed() {
    for at in [300, 700, 1_100, 1_500] {
        let mut plan = plan(vec![thin()]);
        plan.events.push((at, Event::Change(0)));
        plan.is_calm = false;
        let outcome = run(&plan);
        assert!(outcome.violation.is_none(), "{at}: {:?}\n{}", outcome.violation, outcome.trace.join("\n"));
    }
}
