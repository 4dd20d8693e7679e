//! Agents in one process, over loopback: their union is what one machine plays, the dead are named, clocks are compared.

use super::super::tests::{Double, Lie};
use super::super::{Order, Wanted, derive, route, run};
use super::fleet::Member;
use super::serve::Agent;
use super::*;
use crate::control::Token;
use crate::ledger::{Class, Ledger, Outcome, Run};
use crate::origin::AddressRange;
use crate::origin::Hosts;
use crate::proc::Watched;
use std::fs::File;
use std::io::BufReader;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Agents that listen, and the addresses of their origins.
pub(super) struct Machines {
    pub(super) fleet: Fleet,
    pub(super) agents: Vec<Arc<Agent>>,
}

impl Drop for Machines {
    fn drop(&mut self) {
        self.agents.iter().for_each(|agent| agent.stop.store(true, Relaxed));
    }
}

pub(super) const TOKEN: &str = "a token of thirty-two characters";

/// An agent with robots and origins, on an address of its own.
pub(super) fn member(network: u8, number: u8, control: SocketAddr) -> Member {
    let own: Vec<AddressRange> = vec![format!("127.99.{network}.{number}").parse().unwrap()];
    Member { name: format!("m{number}"), control, workers: 1, robots: own.clone(), origins: own }
}

/// So many agents with robots and origins, of which the last has a clock that is ahead. Each test has a network of its own.
fn machines(network: u8, count: u8, shift_us: i64) -> Machines {
    recorded(network, count, shift_us, None)
}

/// [`machines`] that write the ledgers of their parts to a folder.
fn recorded(network: u8, count: u8, shift_us: i64, folder: Option<&Path>) -> Machines {
    let token = Token::new(TOKEN).unwrap();
    let origin_port = TcpListener::bind((Ipv4Addr::new(127, 99, network, 1), 0)).unwrap().local_addr().unwrap().port();
    let (mut members, mut agents) = (Vec::new(), Vec::new());
    for number in 1..=count {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let control = listener.local_addr().unwrap();
        let mut agent = Agent::new(token.clone(), if number == count { shift_us } else { 0 }).unwrap();
        agent.folder = folder.map(Path::to_owned);
        let agent = Arc::new(agent);
        agents.push(agent.clone());
        std::thread::spawn(move || agent.serve(&listener));
        members.push(member(network, number, control));
    }
    Machines { fleet: Fleet { token, origin_port, agents: members }, agents }
}

const PEAK: f64 = 120.0;
const WORKLOAD: &str = r#"
name = "parts"
about = "Robots of several agents."
peak = 120

[robot]
pace = "poisson(10)"
protocol = "http/1.0"

[interest]
recurrence = "70%"
popularity = "uniform"

[server]
count = 5

[[content]]
name = "object"
share = "100%"
media = "image/gif"
size = "unif(600, 9000)"
cachable = "80%"

[[phase]]
name = "all"
"#;

fn discipline(seconds: u32) -> Discipline {
    let text = format!("{WORKLOAD}length = \"{seconds}s\"\n");
    Discipline { name: "parts.toml".to_owned(), text, variant: None, changes: Vec::new(), scale: 1.0 }
}

pub(super) fn campaign(machines: &Machines, proxy: Option<SocketAddr>, seconds: u32) -> Campaign {
    let mut route = route(proxy, None, machines.fleet.origin_port);
    route.hosts = Hosts::new(&machines.fleet.hosts());
    let (settings, phases, head) = planned(route, machines.fleet.robot_workers(), seconds);
    Campaign {
        fleet: machines.fleet.clone(),
        discipline: discipline(seconds),
        peak: Some(PEAK),
        cache_bytes: None,
        settings,
        phases,
        head,
        ledger: None,
        shows: false,
        stop: Arc::default(),
    }
}

fn planned(
    route: crate::robot::Route,
    workers: u16,
    seconds: u32,
) -> (crate::engine::Settings, Vec<crate::schedule::Phase>, Run) {
    let workload = discipline(seconds).load().unwrap().workload;
    let (mode, peak) = (route.mode, Some(PEAK));
    let wanted = Wanted { peak, seed: 11, epoch: 0, route, workers, cache_bytes: None, log: None, tls: None };
    let (settings, phases) = derive(&workload, &wanted).unwrap();
    let contents = workload.contents.iter().map(|content| content.name.clone()).collect();
    let mut head = Run { seed: 11, contents, ..Run::default() };
    head.target.mode = mode;
    (settings, phases, head)
}

/// Errors and hit ratio of a whole run.
fn figures(ledger: &Ledger) -> (u64, u64, f64) {
    let sum = |count: &dyn Fn(&crate::ledger::Interval) -> u64| ledger.intervals.iter().map(count).sum::<u64>();
    let replies = sum(&|interval| interval.class(Class::Basic).replies);
    let hits = sum(&|interval| interval.class(Class::Basic).hits);
    (sum(&|interval| interval.errors.total()), replies, hits as f64 / replies.max(1) as f64)
}

#[test]
fn three_agents_measure_what_one_machine_does() {
    let machines = machines(1, 3, 0);
    let proxy = Double::start(Lie::None);
    let together = coordinate(campaign(&machines, Some(proxy), 4)).unwrap();
    let (settings, phases, head) = planned(route(Some(Double::start(Lie::None)), None, 0), 3, 4);
    let order = Order {
        settings,
        phases,
        head,
        ledger: None,
        watched: Watched::Nobody,
        cores: Vec::new(),
        power: None,
        shows: false,
        stop: Arc::new(AtomicBool::new(false)),
    };
    let alone = run(order).unwrap();
    let exhibits =
        |ledger: &Ledger| ledger.intervals.iter().flat_map(|each| each.errors.exhibits.clone()).collect::<Vec<_>>();
    let ((errors, replies, ratio), (_, expected, wanted)) = (figures(&together), figures(&alone));
    assert_eq!(errors, 0, "{:?}", exhibits(&together));
    assert!(replies > 100 && replies.abs_diff(expected) * 20 <= expected, "{replies} replies instead of {expected}");
    assert!((ratio - wanted).abs() < 0.03 && ratio > 0.2, "hit ratio {ratio} instead of {wanted}");
    assert_eq!(together.end.outcome, Outcome::Complete);
    let clocks = together.notes.iter().filter(|note| note.text.contains("the clock of agent")).count();
    let ways = together.notes.iter().filter(|note| note.text.contains("MB/s")).count();
    assert!(clocks >= 6 && ways == 9, "{:?}", together.notes);
}

#[test]
fn a_stored_answer_that_the_origin_was_asked_about_is_no_hit_on_any_machine() {
    // The double asks the origin for each request, and gives out what it stored before, echo and all.
    let machines = machines(2, 2, 0);
    let proxy = Double::start(Lie::AsksAlways);
    let ledger = coordinate(campaign(&machines, Some(proxy), 3)).unwrap();
    let (_, replies, ratio) = figures(&ledger);
    assert!(replies > 100 && ratio == 0.0, "{replies} replies, hit ratio {ratio}");
}

#[test]
fn an_agent_that_dies_is_named_and_what_was_measured_stays() {
    let folder = tempfile::tempdir().unwrap();
    let machines = recorded(3, 2, 0, Some(folder.path()));
    let victim = machines.agents[1].dies.clone();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(4));
        victim.store(true, Relaxed);
    });
    let ledger = coordinate(campaign(&machines, None, 30)).unwrap();
    killer.join().unwrap();
    assert!(ledger.end.invalid.iter().any(|reason| reason.contains("agent m2 died")), "{:?}", ledger.end);
    assert!(matches!(&ledger.end.outcome, Outcome::Failed(reason) if reason.contains("m2")), "{:?}", ledger.end);
    assert!(figures(&ledger).1 > 10 && ledger.end.at_us < 25_000_000);
    // The part of the other one has nothing that is wrong with it; its coordinator has told it of the run.
    let survivor = parts(folder.path()).remove(0);
    assert_eq!((survivor.end.invalid.len(), &survivor.verdict), (0, &Some(ledger.end)));
}

/// The ledgers of the parts in a folder, in the order of their workers.
fn parts(folder: &Path) -> Vec<Ledger> {
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        Ledger::read(BufReader::new(File::open(entry.unwrap().path()).unwrap())).unwrap()
    };
    let mut parts: Vec<Ledger> = std::fs::read_dir(folder).unwrap().map(read).collect();
    parts.sort_by_key(|part| part.run.agents[0].first);
    parts
}

#[test]
fn a_part_that_a_signal_stopped_says_so_and_so_does_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let machines = recorded(7, 2, 0, Some(folder.path()));
    let stopped = machines.agents[1].stop.clone();
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(4));
        stopped.store(true, Relaxed);
    });
    let together = coordinate(campaign(&machines, None, 30)).unwrap();
    stopper.join().unwrap();
    assert_eq!(together.end.outcome, Outcome::Failed("agent m2: it was stopped by a signal".to_owned()));
    let parts = parts(folder.path());
    assert_eq!(parts.iter().map(|part| &part.end.outcome).collect::<Vec<_>>(), [&Outcome::Interrupted; 2]);
    let says = |ledger: &Ledger| ledger.end.invalid.iter().any(|why| why.contains("m2 was stopped by a signal"));
    assert_eq!(parts.iter().map(says).collect::<Vec<_>>(), [false, true]);
    let whole = Ledger::merge(parts).unwrap();
    assert_eq!(whole.end.outcome, together.end.outcome, "by the coordinator's word");
    assert!(says(&whole) && whole.end.outcome != Outcome::Complete, "{:?}", whole.end);
}

#[test]
fn a_clock_that_is_off_by_five_milliseconds_is_refused() {
    let machines = machines(4, 2, 5_000);
    let reason = coordinate(campaign(&machines, None, 1)).unwrap_err();
    assert!(reason.contains("agent m2") && reason.contains("1000 µs are permitted"), "{reason}");
}

#[test]
fn another_token_and_an_agent_that_is_taken_are_refused() {
    let mut machines = machines(5, 1, 0);
    let taken = crate::control::connect(machines.fleet.agents[0].control, &machines.fleet.token).unwrap();
    // It has this one as soon as it answers.
    taken.send(&message::ToAgent::Clock(1)).unwrap();
    let answer = taken.receive::<message::ToCoordinator>(SILENCE_MAX).unwrap();
    assert!(matches!(answer, crate::control::Received::Message(message::ToCoordinator::Clock(1, _))));
    let reason = coordinate(campaign(&machines, None, 1)).unwrap_err();
    assert!(reason.contains("another coordinator"), "{reason}");
    machines.fleet.token = Token::new(&"y".repeat(32)).unwrap();
    let reason = coordinate(campaign(&machines, None, 1)).unwrap_err();
    assert!(reason.contains("m1") && reason.contains("token"), "{reason}");
}
