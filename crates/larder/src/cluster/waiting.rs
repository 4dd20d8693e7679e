//! Purges that the stream has, and whose callers wait until all nodes that live have applied them. Values and `now` in, decisions
//! out.

use super::Spread;
use super::members::{BEAT_EVERY, Members};
use super::replica::{GATE_AFTER, Replica};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A node that has not applied a purge so long after it was acknowledged has shut its gate.
const WAIT_MAX: Duration = GATE_AFTER.saturating_add(BEAT_EVERY);

/// A purge that is waited for.
#[derive(Debug)]
struct Awaited {
    number: u64,
    /// Other nodes that may serve stored responses still.
    nodes: Vec<String>,
    until: Instant,
    reply: oneshot::Sender<Spread>,
}

/// All purges that are waited for.
#[derive(Debug, Default)]
pub struct Waiting {
    all: Vec<Awaited>,
}

impl Waiting {
    /// Waits for a purge that the stream has acknowledged with this number. A node that was heard of late is waited for also where it
    /// seems dead: until its gate is shut it serves what it has.
    pub fn begin(&mut self, number: u64, members: &Members, now: Instant, reply: oneshot::Sender<Spread>) {
        let may_serve = members
            .iter()
            .filter(|member| !member.beat.leaves && now.saturating_duration_since(member.heard) < WAIT_MAX);
        let nodes = may_serve.map(|member| member.beat.name.clone()).collect();
        self.all.push(Awaited { number, nodes, until: now + WAIT_MAX, reply });
    }

    /// Answers the callers whose purge is applied on all other nodes, or by whom nothing more is waited for. On this node it was in force
    /// before the stream had it.
    pub fn settle(&mut self, replica: &Replica, members: &Members, now: Instant) {
        let is_over = |awaited: &mut Awaited| awaited.until <= now || missing(awaited, members, replica).is_empty();
        for awaited in self.all.extract_if(.., is_over) {
            let missing: Vec<String> = missing(&awaited, members, replica).into_iter().map(str::to_owned).collect();
            let nodes = awaited.nodes.len() + 1;
            let spread = Spread {
                state: "applied".to_owned(),
                number: Some(awaited.number),
                nodes,
                applied_on: nodes.saturating_sub(missing.len()),
                missing,
                ..Spread::default()
            };
            // The caller may have gone.
            let _ = awaited.reply.send(spread);
        }
    }

    /// How many are waited for.
    pub fn len(&self) -> usize {
        self.all.len()
    }
}

fn missing<'a>(awaited: &'a Awaited, members: &Members, replica: &Replica) -> Vec<&'a str> {
    let has_applied = |name: &str| {
        members.find(name).is_none_or(|member| {
            let is_same_stream = Some(member.beat.stream.as_str()) == replica.incarnation();
            member.beat.leaves || is_same_stream && member.beat.applied >= awaited.number
        })
    };
    awaited.nodes.iter().map(String::as_str).filter(|name| !has_applied(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::message::Heartbeat;
    use crate::cluster::message::tests::heartbeat_of;
    use crate::cluster::replica::StreamFacts;

    fn beat(name: &str, applied: u64) -> Heartbeat {
        Heartbeat { stream: "x".to_owned(), applied, ..heartbeat_of(name) }
    }

    fn replica(now: Instant) -> Replica {
        let mut replica = Replica::default();
        replica.look(&StreamFacts { incarnation: "x".to_owned(), last: 7, messages: 7 }, (now, 0));
        replica
    }

    #[test]
    fn a_purge_is_answered_when_all_have_it() {
        let now = Instant::now();
        let (mut members, mut waiting, replica) = (Members::default(), Waiting::default(), replica(now));
        members.take(beat("b", 6), now).unwrap();
        members.take(beat("c", 7), now).unwrap();
        let (reply, mut answer) = oneshot::channel();
        waiting.begin(7, &members, now, reply);
        waiting.settle(&replica, &members, now);
        assert!(answer.try_recv().is_err(), "b lacks it");
        members.take(beat("b", 7), now).unwrap();
        waiting.settle(&replica, &members, now);
        let spread = answer.try_recv().unwrap();
        assert_eq!((spread.applied_on, spread.nodes, spread.missing.len()), (3, 3, 0));
        assert_eq!(waiting.len(), 0);
    }

    #[test]
    fn a_silent_node_is_named_when_its_gate_is_shut() {
        let now = Instant::now();
        let (mut members, mut waiting, replica) = (Members::default(), Waiting::default(), replica(now));
        members.take(beat("b", 6), now).unwrap();
        // It seems dead, and serves for a second more.
        let dead = now + Duration::from_millis(2_500);
        assert_eq!(members.alive(dead).count(), 0);
        let (reply, mut answer) = oneshot::channel();
        waiting.begin(7, &members, dead, reply);
        waiting.settle(&replica, &members, dead + WAIT_MAX - Duration::from_millis(1));
        assert!(answer.try_recv().is_err());
        waiting.settle(&replica, &members, dead + WAIT_MAX);
        let spread = answer.try_recv().unwrap();
        assert_eq!((spread.applied_on, spread.nodes, spread.missing), (1, 2, vec!["b".to_owned()]));
        // Of a node that is silent for longer nothing is waited for.
        let (reply, mut answer) = oneshot::channel();
        waiting.begin(7, &members, now + WAIT_MAX, reply);
        waiting.settle(&replica, &members, now + WAIT_MAX);
        assert_eq!(answer.try_recv().unwrap().nodes, 1);
    }

    #[test]
    fn a_node_that_reads_another_stream_has_not_applied_it() {
        let now = Instant::now();
        let (mut members, mut waiting, replica) = (Members::default(), Waiting::default(), replica(now));
        members.take(Heartbeat { stream: "y".to_owned(), ..beat("b", 99) }, now).unwrap();
        let (reply, mut answer) = oneshot::channel();
        waiting.begin(7, &members, now, reply);
        waiting.settle(&replica, &members, now);
        assert!(answer.try_recv().is_err());
    }
}
