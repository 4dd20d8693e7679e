//! Purges that the stream has, and whose callers wait until all nodes that live have applied them. Values and `now` in, decisions
//! out.

use super::Spread;
use super::members::{BEAT_EVERY, Member, Members};
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
    /// Nodes of whose purges nothing is known, for their heartbeats are refused.
    unknown: Vec<String>,
    /// Until then nodes may be heard of that live and were not heard of yet.
    heard_by: Option<Instant>,
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
    /// seems dead: until its gate is shut it serves what it has. All that live are members at the time beside them.
    pub fn begin(
        &mut self,
        number: u64,
        (members, heard_by): (&Members, Instant),
        now: Instant,
        reply: oneshot::Sender<Spread>,
    ) {
        let (nodes, unknown, until) = (Vec::new(), Vec::new(), now + WAIT_MAX);
        let mut awaited = Awaited { number, nodes, unknown, heard_by: Some(heard_by), until, reply };
        awaited.hear(members, now);
        self.all.push(awaited);
    }

    /// Answers the callers whose purge is applied on all other nodes, or by whom nothing more is waited for. On this node it was in force
    /// before the stream had it.
    pub fn settle(&mut self, replica: &Replica, members: &Members, now: Instant) {
        self.all.iter_mut().for_each(|awaited| awaited.hear(members, now));
        let is_over = |awaited: &mut Awaited| {
            awaited.heard_by.is_none()
                && (awaited.until <= now || awaited.unknown.is_empty() && missing(awaited, members, replica).is_empty())
        };
        for awaited in self.all.extract_if(.., is_over) {
            let missing: Vec<String> = missing(&awaited, members, replica).into_iter().map(str::to_owned).collect();
            let nodes = awaited.nodes.len() + awaited.unknown.len() + 1;
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

impl Awaited {
    /// Notes the nodes that may serve, once all that live have had time to be heard of.
    fn hear(&mut self, members: &Members, now: Instant) {
        if self.heard_by.take_if(|heard_by| now >= *heard_by).is_none() {
            return;
        }
        let may_serve =
            |member: &&Member| !member.beat.leaves && now.saturating_duration_since(member.heard) < WAIT_MAX;
        self.nodes = members.iter().filter(may_serve).map(|member| member.beat.name.clone()).collect();
        self.unknown = members.refused_within(WAIT_MAX, now).map(str::to_owned).collect();
    }
}

fn missing<'a>(awaited: &'a Awaited, members: &Members, replica: &Replica) -> Vec<&'a str> {
    let has_applied = |name: &str| {
        members.find(name).is_none_or(|member| {
            let is_same_stream = Some(member.beat.stream.as_str()) == replica.incarnation();
            member.beat.leaves || is_same_stream && member.beat.applied >= awaited.number
        })
    };
    let known = awaited.nodes.iter().map(String::as_str).filter(|name| !has_applied(name));
    known.chain(awaited.unknown.iter().map(String::as_str)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::message::Heartbeat;
    use crate::cluster::message::tests::heartbeat_of;
    use crate::cluster::replica::tests::facts;

    fn beat(name: &str, applied: u64) -> Heartbeat {
        Heartbeat { stream: "x".to_owned(), applied, ..heartbeat_of(name) }
    }

    fn replica() -> Replica {
        let mut replica = Replica::default();
        replica.look(&facts("x", 7, 7), replica.question(Duration::ZERO));
        replica
    }

    #[test]
    fn a_purge_is_answered_when_all_have_it() {
        let now = Instant::now();
        let (mut members, mut waiting, replica) = (Members::default(), Waiting::default(), replica());
        members.take(beat("b", 6), now).unwrap();
        members.take(beat("c", 7), now).unwrap();
        let (reply, mut answer) = oneshot::channel();
        waiting.begin(7, (&members, now), now, reply);
        waiting.settle(&replica, &members, now);
        assert!(answer.try_recv().is_err(), "b lacks it");
        members.take(beat("b", 7), now).unwrap();
        waiting.settle(&replica, &members, now);
        let spread = answer.try_recv().unwrap();
        assert_eq!((spread.applied_on, spread.nodes, spread.missing.len()), (3, 3, 0));
        assert_eq!(waiting.len(), 0);
    }

    #[test]
    fn nothing_is_answered_before_all_had_time_to_be_heard_of() {
        let now = Instant::now();
        let (mut members, mut waiting, replica) = (Members::default(), Waiting::default(), replica());
        let (reply, mut answer) = oneshot::channel();
        let heard_by = now + 2 * BEAT_EVERY;
        waiting.begin(7, (&members, heard_by), now, reply);
        waiting.settle(&replica, &members, now + BEAT_EVERY);
        assert!(answer.try_recv().is_err(), "nobody was heard of, for there was no time");
        members.take(beat("b", 6), now + BEAT_EVERY).unwrap();
        waiting.settle(&replica, &members, heard_by);
        assert!(answer.try_recv().is_err(), "b lives and lacks it");
        members.take(beat("b", 7), heard_by).unwrap();
        members.take(beat("late", 7), heard_by).unwrap();
        waiting.settle(&replica, &members, heard_by);
        let spread = answer.try_recv().unwrap();
        assert_eq!(
            (spread.applied_on, spread.nodes),
            (2, 2),
            "a node that comes later has read the purge before its gate opens"
        );
    }

    #[test]
    fn a_node_whose_heartbeats_are_refused_is_waited_for() {
        let now = Instant::now();
        let (mut members, mut waiting, replica) = (Members::default(), Waiting::default(), replica());
        members.note_refused("b", now);
        let (reply, mut answer) = oneshot::channel();
        waiting.begin(7, (&members, now), now, reply);
        waiting.settle(&replica, &members, now + WAIT_MAX - Duration::from_millis(1));
        assert!(answer.try_recv().is_err());
        waiting.settle(&replica, &members, now + WAIT_MAX);
        let spread = answer.try_recv().unwrap();
        assert_eq!((spread.applied_on, spread.nodes, spread.missing), (1, 2, vec!["b".to_owned()]));
    }

    #[test]
    fn a_silent_node_is_named_when_its_gate_is_shut() {
        let now = Instant::now();
        let (mut members, mut waiting, replica) = (Members::default(), Waiting::default(), replica());
        members.take(beat("b", 6), now).unwrap();
        // It seems dead, and serves for a second more.
        let dead = now + Duration::from_millis(2_500);
        assert_eq!(members.alive(dead).count(), 0);
        let (reply, mut answer) = oneshot::channel();
        waiting.begin(7, (&members, now), dead, reply);
        waiting.settle(&replica, &members, dead + WAIT_MAX - Duration::from_millis(1));
        assert!(answer.try_recv().is_err());
        waiting.settle(&replica, &members, dead + WAIT_MAX);
        let spread = answer.try_recv().unwrap();
        assert_eq!((spread.applied_on, spread.nodes, spread.missing), (1, 2, vec!["b".to_owned()]));
        // Of a node that is silent for longer nothing is waited for.
        let (reply, mut answer) = oneshot::channel();
        waiting.begin(7, (&members, now), now + WAIT_MAX, reply);
        waiting.settle(&replica, &members, now + WAIT_MAX);
        assert_eq!(answer.try_recv().unwrap().nodes, 1);
    }

    #[test]
    fn a_node_that_reads_another_stream_has_not_applied_it() {
        let now = Instant::now();
        let (mut members, mut waiting, replica) = (Members::default(), Waiting::default(), replica());
        members.take(Heartbeat { stream: "y".to_owned(), ..beat("b", 99) }, now).unwrap();
        let (reply, mut answer) = oneshot::channel();
        waiting.begin(7, (&members, now), now, reply);
        waiting.settle(&replica, &members, now);
        assert!(answer.try_recv().is_err());
    }
}
