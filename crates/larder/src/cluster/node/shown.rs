//! The state of the cluster as this node sees it.

use super::{GateState, Leaves, Node, agrees, wall_millis};
use crate::clock;
use crate::cluster::Homes;
use crate::cluster::files::Outbox;
use crate::cluster::message::{Heartbeat, Refusal};
use crate::cluster::nats;
use crate::cluster::status::{MemberShown, Status, StreamShown};
use std::sync::Arc;
use std::time::Instant;

impl Node {
    pub(super) fn status(&self) -> Status {
        let now = clock::instant();
        let millis =
            |since: Instant| u64::try_from(now.saturating_duration_since(since).as_millis()).unwrap_or(u64::MAX);
        let counts = &self.cluster.counts;
        let refused = Refusal::ALL.into_iter().map(|why| (why.as_str().to_owned(), counts.refused(why)));
        let stream = self.facts.as_ref().map(|facts| StreamShown {
            name: nats::stream_name(&self.around.settings),
            incarnation: facts.incarnation.clone(),
            last: facts.last.applied,
            purges: facts.messages,
        });
        let table = self.homes().and_then(Homes::table);
        let shares = table.map_or_else(Vec::new, |table| table.shares());
        let own = MemberShown {
            state: "self".to_owned(),
            since_seconds: millis(self.began) / 1_000,
            agrees: None,
            ..self.shown(&self.heartbeat(Leaves::No), 0, &shares)
        };
        let others = self.members.iter().map(|member| MemberShown {
            state: match member.is_alive(now) {
                true => "alive",
                false if member.beat.leaves => "left",
                false => "dead",
            }
            .to_owned(),
            since_seconds: millis(member.since) / 1_000,
            heard_millis: millis(member.heard),
            ..self.shown(&member.beat, millis(member.heard), &shares)
        });
        Status {
            name: self.around.name.clone(),
            gate: match self.gate {
                GateState::Open => "open",
                GateState::Shut => "shut",
                GateState::Off => "off",
            }
            .to_owned(),
            apart: (self.around.apart)().as_str().to_owned(),
            contact_millis: self.replica.contact().map(|contact| {
                u64::try_from(clock::since_boot().saturating_sub(contact).as_millis()).unwrap_or(u64::MAX)
            }),
            ready: self.cluster.is_ready(self.around.cache.gate(), (self.around.apart)()),
            nats: self.client.connection_state().to_string(),
            nats_server: self.is_connected().then(|| self.client.server_info().host),
            trouble: self.trouble.clone(),
            stream,
            applied: self.replica.applied(),
            outbox: self.outbox.as_ref().map_or(0, Outbox::len),
            awaited: self.waiting.len(),
            members: std::iter::once(own).chain(others).collect(),
            refused: refused.filter(|(_, count)| *count > 0).collect(),
            homes: self.homes_shown(),
        }
    }

    /// A node whose heartbeat came so many milliseconds ago.
    fn shown(&self, beat: &Heartbeat, ago_millis: u64, shares: &[(Arc<str>, u32)]) -> MemberShown {
        let clock = i64::try_from(beat.sent_millis).unwrap_or(i64::MAX);
        let here = i64::try_from(wall_millis().saturating_sub(ago_millis)).unwrap_or(i64::MAX);
        MemberShown {
            name: beat.name.clone(),
            address: beat.address.clone(),
            zone: beat.zone.clone(),
            version: beat.version.clone(),
            applied: beat.applied,
            behind: self.last().max(self.replica.applied()).saturating_sub(beat.applied),
            agrees: agrees(beat, &self.replica).filter(|_| self.replica.is_whole()),
            apart: beat.apart.clone(),
            settings: beat.settings,
            requests_per_second: beat.requests_per_second,
            home: beat.home.clone(),
            spill: beat.spill,
            keys_permille: shares.iter().find(|(name, _)| **name == *beat.name).map(|(_, share)| *share),
            clock_millis: clock.saturating_sub(here),
            ..MemberShown::default()
        }
    }
}
