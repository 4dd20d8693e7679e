//! The table of the nodes that were heard of. Values and `now` in, decisions out.

use super::message::{Heartbeat, Refusal};
use crate::config::is_subject_word;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often a node says that it lives.
pub const BEAT_EVERY: Duration = Duration::from_millis(500);

/// A node that was silent for so long is taken to be dead.
pub const DEAD_AFTER: Duration = Duration::from_secs(2);

/// How long a refused node is remembered: longer than purges wait for it.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// How long a dead node is shown.
const SHOWN_FOR: Duration = Duration::from_secs(600);

/// Nodes that are known at a time, the dead ones included: a heartbeat of one more is refused.
pub const MEMBERS_MAX: usize = 1_024;

/// A node that was heard of.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its last heartbeat.
    pub beat: Heartbeat,
    /// When it was heard of for the first time.
    pub since: Instant,
    /// When it was heard last.
    pub heard: Instant,
}

impl Member {
    /// Whether it lives, as far as is known.
    pub fn is_alive(&self, now: Instant) -> bool {
        !self.beat.leaves && now.saturating_duration_since(self.heard) < DEAD_AFTER
    }
}

/// The other nodes, by name.
#[derive(Debug, Default)]
pub struct Members {
    all: BTreeMap<String, Member>,
    /// Senders of heartbeats that were refused, and when the last one came.
    refused: BTreeMap<String, Instant>,
}

impl Members {
    /// Takes the heartbeat of another node. Of two living processes with one name the first stays.
    pub fn take(&mut self, beat: Heartbeat, now: Instant) -> Result<(), Refusal> {
        if let Some(member) = self.all.get_mut(&beat.name) {
            if member.beat.instance != beat.instance {
                if member.is_alive(now) {
                    return Err(Refusal::NameTaken);
                }
                member.since = now;
                // It was the same node, come back. Another process is refused again at its next heartbeat.
                self.refused.remove(&beat.name);
            } else if !member.is_alive(now) {
                member.since = now;
            }
            (member.beat, member.heard) = (beat, now);
            return Ok(());
        }
        if self.all.len() >= MEMBERS_MAX && !self.forget_dead(now) {
            return Err(Refusal::Full);
        }
        self.all.insert(beat.name.clone(), Member { beat, since: now, heard: now });
        Ok(())
    }

    /// Notes a node whose heartbeat was refused: it may live, and nothing is known of the purges that it has.
    pub fn note_refused(&mut self, name: &str, now: Instant) {
        let name = if is_subject_word(name) { name } else { "another node" };
        if self.refused.len() >= MEMBERS_MAX && !self.refused.contains_key(name) {
            // Which one is told of them does not matter: all are waited for.
            self.refused.insert("other nodes".to_owned(), now);
            return;
        }
        self.refused.insert(name.to_owned(), now);
    }

    /// The nodes whose heartbeats were refused within this time.
    pub fn refused_within(&self, time: Duration, now: Instant) -> impl Iterator<Item = &str> {
        let is_late = move |at: &Instant| now.saturating_duration_since(*at) < time;
        self.refused.iter().filter(move |(_, at)| is_late(at)).map(|(name, _)| name.as_str())
    }

    /// Forgets the node that is dead for the longest time.
    fn forget_dead(&mut self, now: Instant) -> bool {
        let dead = self.all.values().filter(|member| !member.is_alive(now)).min_by_key(|member| member.heard);
        let Some(name) = dead.map(|member| member.beat.name.clone()) else { return false };
        self.all.remove(&name).is_some()
    }

    /// Forgets nodes that are dead for long.
    pub fn tick(&mut self, now: Instant) {
        self.all.retain(|_, member| now.saturating_duration_since(member.heard) < SHOWN_FOR);
        self.refused.retain(|_, at| now.saturating_duration_since(*at) < REFUSED_FOR);
    }

    /// All that are shown.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.all.values()
    }

    /// Those that live.
    pub fn alive(&self, now: Instant) -> impl Iterator<Item = &Member> {
        self.all.values().filter(move |member| member.is_alive(now))
    }

    /// The member of this name.
    pub fn find(&self, name: &str) -> Option<&Member> {
        self.all.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::message::tests::heartbeat_of;

    fn beat(name: &str, instance: &str) -> Heartbeat {
        Heartbeat { instance: instance.to_owned(), ..heartbeat_of(name) }
    }

    #[test]
    fn a_name_is_taken_until_its_node_is_dead() {
        let (mut members, now) = (Members::default(), Instant::now());
        members.take(beat("a", "1"), now).unwrap();
        let almost = now + DEAD_AFTER - Duration::from_millis(1);
        assert_eq!(members.take(beat("a", "2"), almost), Err(Refusal::NameTaken));
        assert_eq!(members.take(beat("a", "1"), almost), Ok(()), "the refused one has not ended the first");
        let later = almost + DEAD_AFTER;
        assert_eq!(members.alive(later).count(), 0);
        assert_eq!(members.take(beat("a", "2"), later), Ok(()));
        assert_eq!(members.find("a").map(|member| member.since), Some(later));
    }

    #[test]
    fn a_node_that_leaves_is_dead_at_once() {
        let (mut members, now) = (Members::default(), Instant::now());
        members.take(beat("a", "1"), now).unwrap();
        members.take(Heartbeat { leaves: true, ..beat("a", "1") }, now).unwrap();
        assert_eq!(members.alive(now).count(), 0);
        assert_eq!(members.take(beat("a", "2"), now), Ok(()), "its name is free");
    }

    #[test]
    fn refused_nodes_are_remembered_for_a_while() {
        let (mut members, now) = (Members::default(), Instant::now());
        members.note_refused("b", now);
        members.note_refused("\u{1b}[2J", now);
        let within =
            |members: &Members, now| members.refused_within(DEAD_AFTER, now).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(within(&members, now), ["another node", "b"]);
        assert!(within(&members, now + DEAD_AFTER).is_empty());
        (0..2 * MEMBERS_MAX).for_each(|number| members.note_refused(&number.to_string(), now));
        assert_eq!(members.refused.len(), MEMBERS_MAX + 1);
        assert!(members.refused.contains_key("other nodes"));
        members.tick(now + REFUSED_FOR);
        assert!(members.refused.is_empty());
    }

    #[test]
    fn the_table_is_bounded_and_the_dead_make_room() {
        let (mut members, now) = (Members::default(), Instant::now());
        for number in 0..MEMBERS_MAX {
            members.take(beat(&number.to_string(), "1"), now).unwrap();
        }
        assert_eq!(members.take(beat("more", "1"), now), Err(Refusal::Full));
        let later = now + DEAD_AFTER;
        assert_eq!(members.take(beat("more", "1"), later), Ok(()));
        assert_eq!(members.iter().count(), MEMBERS_MAX);
        members.tick(now + SHOWN_FOR);
        assert_eq!(members.iter().count(), 1, "the last one was heard later");
    }
}
