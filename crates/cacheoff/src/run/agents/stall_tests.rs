//! An agent that reads nothing any more is named, and no other: the coordinator waits for nobody's socket.

use super::message::{Status, ToAgent, ToCoordinator, Way};
use super::tests::{Machines, TOKEN, campaign, member};
use super::time::RunClock;
use super::{Fleet, coordinate};
use crate::control::{Channel, Received, Token, accept};
use crate::journal::{Answered, Journal, Note};
use crate::random::Seal;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// The behaviour of a puppet after its start.
#[derive(Clone, Copy, PartialEq)]
enum Habit {
    /// It has more notes for the other one than sockets hold, and does all else that an agent does.
    Floods,
    /// It neither reads nor writes.
    Stalls,
}

const LOOK: Duration = Duration::from_millis(50);

/// An agent without workers. It ends with its connection, or, while it stalls, when it is told.
fn puppet(habit: Habit, ends: Arc<AtomicBool>) -> (std::net::SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let control = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let config = Channel::listening().unwrap();
        let channel = accept(listener.accept().unwrap().0, config, &Token::new(TOKEN).unwrap()).unwrap();
        let clock = RunClock::new(0);
        while let Ok(received) = channel.receive::<ToAgent>(LOOK) {
            let Received::Message(message) = received else {
                let _ = channel.send(&ToCoordinator::Status(Status::default()));
                continue;
            };
            let sent = match message {
                ToAgent::Clock(asked) => channel.send(&ToCoordinator::Clock(asked, clock.now_us())),
                ToAgent::Prepare(_) => channel.send(&ToCoordinator::Ready(Box::default())),
                ToAgent::Probe(_) => {
                    channel.send(&ToCoordinator::Probed(vec![Ok(Way { connect_us: 1, bytes_per_s: 1.0 })]))
                }
                ToAgent::Start(_) if habit == Habit::Stalls => break,
                ToAgent::Start(_) => flood(&channel),
                ToAgent::Stop => channel.send(&ToCoordinator::Done(None)),
                _ => Ok(()),
            };
            if sent.is_err() {
                return;
            }
        }
        while habit == Habit::Stalls && !ends.load(Relaxed) {
            std::thread::sleep(LOOK);
        }
    });
    (control, thread)
}

/// Thirty times 20,000 notes for the second worker: 15 MB, more than both sockets of a connection hold.
fn flood(channel: &Channel) -> std::io::Result<()> {
    let journal = Journal::linked(Seal::random(), 0..1, false);
    for count in 0..20_000 {
        journal.tells(Journal::number(1, count), (false, Answered::Whole, false), 9, 100);
    }
    let (notes, _): (Vec<Note>, u64) = journal.take_notes();
    (0..30).try_for_each(|until_us| channel.send(&ToCoordinator::Notes { until_us, notes: notes.clone(), lost: 0 }))
}

#[test]
fn of_two_agents_the_stalled_one_alone_is_named() {
    let ends = Arc::new(AtomicBool::new(false));
    let mut members = Vec::new();
    let mut threads = Vec::new();
    for (number, habit) in [(1, Habit::Floods), (2, Habit::Stalls)] {
        let (control, thread) = puppet(habit, ends.clone());
        threads.push(thread);
        members.push(member(6, number, control));
    }
    let fleet = Fleet { token: Token::new(TOKEN).unwrap(), origin_port: 7480, agents: members };
    let ledger = coordinate(campaign(&Machines { fleet, agents: Vec::new() }, None, 30)).unwrap();
    ends.store(true, Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let named = |name: &str| ledger.end.invalid.iter().filter(|reason| reason.contains(name)).count();
    assert_eq!((named("agent m2 died"), named("agent m1")), (1, 0), "{:?}", ledger.end);
}
