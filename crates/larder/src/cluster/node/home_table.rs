//! The table of the nodes that answer questions, as the workers get it.

use super::{GateState, Leaves, Node, Rate};
use crate::clock;
use crate::cluster::homes::HomeFacts;
use crate::cluster::message::Heartbeat;
use crate::cluster::{Homes, HomesShown};
use larder_balance::{Homed, Load, Spill};
use larder_wire::Url;
use std::sync::atomic::Ordering;

/// The state of a node that is a home.
pub(super) struct HomeState {
    /// The keys that it hands on, by its load.
    pub(super) spill: Spill,
    /// Questions of others that it answered.
    pub(super) answers: Rate,
    /// Purges of this node that the stream has not brought back.
    pub(super) holds: Vec<crate::cluster::Hold>,
    /// A purge of this node was refused, so that no other node will ever hear of it.
    pub(super) is_alone: bool,
    /// Whether this node answers others, and may ask them, as the workers were told last.
    told: (bool, bool),
}

impl HomeState {
    pub(super) fn new() -> HomeState {
        let answers = Rate { at: clock::instant(), requests: 0, per_second: 0 };
        HomeState { spill: Spill::default(), answers, holds: Vec::new(), is_alone: false, told: (false, false) }
    }
}

impl Node {
    pub(super) fn homes(&self) -> Option<&Homes> {
        self.cluster.homes.as_ref()
    }

    /// Whether all purges are known here: then this node answers others, and may ask them.
    fn answers_others(&self) -> bool {
        self.homes().is_some() && self.gate == GateState::Open && self.replica.is_whole()
    }

    fn to_tell(&self) -> (bool, bool) {
        (self.answers_others(), self.own_purges_are_back() && !self.home_state.is_alone)
    }

    /// After each event: has workers know at once when nobody is to be asked or answered any more.
    pub(super) fn settle_homes(&mut self) {
        if self.homes().is_some() && self.to_tell() != self.home_state.told {
            self.publish_homes();
        }
    }

    /// Tells the workers which nodes answer, and whether to ask them.
    pub(super) fn publish_homes(&mut self) {
        if self.homes().is_some() {
            self.home_state.told = self.to_tell();
            self.tell_workers();
        }
    }

    fn tell_workers(&self) {
        let Some(homes) = self.homes() else { return };
        let stream = self.replica.incarnation().filter(|stream| !stream.is_empty() && self.answers_others());
        let Some(stream) = stream else { return homes.close() };
        let now = clock::instant();
        let own = self.heartbeat(Leaves::No);
        let mut facts: Vec<HomeFacts> = Vec::new();
        facts.extend(self.home_of(&own, true));
        // One that reads another stream would answer that it is behind.
        let others = self.members.alive(now).filter(|member| member.beat.stream == stream);
        facts.extend(others.filter_map(|member| self.home_of(&member.beat, false)));
        homes.publish(stream, &facts, self.replica.applied(), self.home_state.told.1);
    }

    /// The facts about a node, where it answers questions.
    fn home_of(&self, beat: &Heartbeat, is_own: bool) -> Option<HomeFacts> {
        let url = match is_own {
            true => None,
            false => Some(Url::parse(&format!("http://{}/", beat.home)).filter(|_| !beat.home.is_empty())?),
        };
        let homed = Homed {
            name: beat.name.clone(),
            weight: beat.capacity >> 20,
            is_near: beat.zone == self.around.settings.zone,
            spill: beat.spill,
        };
        Some(HomeFacts { instance: beat.instance.clone(), url, homed })
    }

    /// Where other nodes ask this one; nothing while it does not answer.
    pub(super) fn told_home(&self) -> String {
        let told = self.around.home.as_ref().filter(|_| self.answers_others());
        told.cloned().unwrap_or_default()
    }

    /// Whether the stream has brought all purges of this node back, so that other nodes can be measured by its numbers.
    pub(super) fn own_purges_are_back(&self) -> bool {
        let outbox_is_empty = self.outbox.as_ref().is_none_or(crate::cluster::files::Outbox::is_empty);
        let is_idle = self.publishing == 0 && !self.is_replaying && outbox_is_empty;
        is_idle && self.acknowledged <= self.replica.applied()
    }

    /// Twice a second: hands on keys where this node has more questions than its share.
    pub(super) fn note_answers(&mut self) {
        let Some(homes) = self.cluster.homes.as_ref() else { return };
        self.home_state.answers.count(homes.counts.served.load(Ordering::Relaxed));
        let own = Load { requests: self.home_state.answers.per_second, weight: self.around.capacity >> 20 };
        let zone = &self.around.settings.zone;
        let others = self.members.alive(clock::instant()).map(|member| &member.beat);
        let near = others.filter(|beat| !beat.home.is_empty() && beat.zone == *zone);
        let all = near.fold(own, |sum, beat| Load {
            requests: sum.requests.saturating_add(beat.answers_per_second),
            weight: sum.weight.saturating_add(beat.capacity >> 20),
        });
        self.home_state.spill.look(own, all);
    }

    pub(super) fn homes_shown(&self) -> Option<HomesShown> {
        let homes = self.homes()?;
        let counts = &homes.counts;
        let count = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        Some(HomesShown {
            asks: homes.may_ask().is_some(),
            answers: homes.table().is_some(),
            answered: count(&counts.answered),
            behind: count(&counts.behind),
            refused: count(&counts.refused),
            failed: count(&counts.failed),
            hedged: count(&counts.hedged),
            served: count(&counts.served),
            served_behind: count(&counts.served_behind),
            served_refused: count(&counts.served_refused),
            strangers: count(&counts.strangers),
        })
    }
}
