//! Purges that were made on this node: published, awaited, or kept in the outbox until the stream takes them.

use super::{Event, Node, add};
use crate::clock;
use crate::cluster::files::OUTBOX_PURGES_MAX;
use crate::cluster::members::BEAT_EVERY;
use crate::cluster::message::PurgeMessage;
use crate::cluster::nats::{self, NotTaken, Numbers};
use crate::cluster::{self, Order, PurgeDurability, Spread, messages};
use larder_cache::store::rules::{Force, Scope};
use tokio::sync::oneshot;

/// Names of own purges that are remembered.
const OWN_MAX: usize = 2 * OUTBOX_PURGES_MAX;

/// Purges of the outbox that are sent at a time.
const REPLAY_PURGES: usize = 256;

impl Node {
    pub(super) fn obey(&mut self, order: Order) {
        match order {
            Order::Spread { scopes, force, durability, hold, reply } => {
                self.home_state.holds.extend(hold);
                let purges = messages(scopes, force, &self.around.name);
                if durability == PurgeDurability::OnDisk {
                    self.own.extend(purges.iter().map(|purge| purge.id.clone()));
                }
                self.spread(purges, reply);
            }
            // The asker may have gone.
            Order::Status(reply) => _ = reply.send(self.status()),
        }
    }

    fn spread(&mut self, purges: Vec<PurgeMessage>, reply: oneshot::Sender<Spread>) {
        if !self.is_connected() || self.facts.is_none() {
            let why = match &self.trouble {
                Some(trouble) => trouble.clone(),
                None if self.is_connected() => "the stream has not answered yet".to_owned(),
                None => "NATS is not connected".to_owned(),
            };
            return self.queue(&purges, reply, &why);
        }
        self.note_connection(clock::instant());
        let newest = self.newest();
        self.publishing += purges.len();
        let (context, subjects) = (self.context.clone(), self.around.settings.subjects.clone());
        self.spawn(async move {
            let result = nats::publish(&context, &subjects, &purges).await;
            Event::Published { purges, newest, reply, result }
        });
    }

    /// The newest number of the stream that this node or another one knows of. A purge that is published now gets a later one, or the
    /// stream is another one than they know.
    fn newest(&self) -> u64 {
        let of_others = self.members.alive(clock::instant()).map(|member| &member.beat);
        let of_others = of_others.filter(|beat| Some(beat.stream.as_str()) == self.replica.incarnation());
        of_others.map(|beat| beat.applied).fold(self.replica.applied().max(self.last()), u64::max)
    }

    pub(super) fn has_published(
        &mut self,
        purges: Vec<PurgeMessage>,
        newest: u64,
        reply: oneshot::Sender<Spread>,
        result: Result<Numbers, NotTaken>,
    ) {
        match result {
            // Nodes that know the other stream still would seem to have applied it.
            Ok(numbers) if numbers.first <= newest => {
                self.look();
                let why = format!(
                    "the stream gave it number {} a second time, so that it is not the one of before",
                    numbers.first
                );
                self.queue(&purges, reply, &why);
            }
            Ok(numbers) => {
                add(&self.cluster.counts.purges_published, purges.len() as u64);
                self.acknowledged = self.acknowledged.max(numbers.last);
                // Others may be alive that had no time yet to say so on this connection.
                let heard_by = self.connected.1 + 2 * BEAT_EVERY;
                self.waiting.begin(numbers.last, (&self.members, heard_by), clock::instant(), reply);
            }
            Err(NotTaken::Away(why)) => self.queue(&purges, reply, &why),
            Err(NotTaken::Refused(why)) => self.give_up(&purges, reply, &why),
        }
    }

    /// The purge is in force here, so that it comes to the others when the stream takes it.
    fn queue(&mut self, purges: &[PurgeMessage], reply: oneshot::Sender<Spread>, why: &str) {
        let spread =
            cluster::queue(self.outbox.as_mut().ok_or("there is no outbox"), &self.cluster.counts, purges, why);
        if spread.is_refused() {
            self.is_alone_with(purges);
        }
        // The caller may have gone.
        let _ = reply.send(spread);
    }

    /// These purges never come back, and other nodes will not hear of them.
    fn is_alone_with(&mut self, purges: &[PurgeMessage]) {
        purges.iter().for_each(|purge| _ = self.own.remove(&purge.id));
        if let Some(homes) = self.cluster.homes.as_ref().filter(|_| !self.home_state.is_alone) {
            self.home_state.is_alone = true;
            homes.close();
            tracing::warn!(
                "a purge was refused, of which other nodes will not hear: they are asked for no response until a restart"
            );
        }
    }

    /// Has the stream say that everything is purged, for nodes that are down now: their place in it tells them nothing of purges that it
    /// has lost.
    pub(super) fn publish_everything(&mut self) {
        let purges = messages(vec![Scope::All], Force::Hard, &self.around.name);
        self.own.extend(purges.iter().map(|purge| purge.id.clone()));
        if let Some(Err(error)) = self.outbox.as_mut().map(|outbox| outbox.append(&purges)) {
            tracing::warn!(%error, "nodes that are down are not told that the stream lost purges: purge everything when they are back");
        }
    }

    /// A purge of this node that another one took the place of before it came back never does.
    pub(super) fn forget_own(&mut self) {
        let is_back = self.own_purges_are_back();
        // Purges that are forgotten too early are applied a second time.
        if is_back || self.own.len() > OWN_MAX {
            self.own.clear();
        }
        if is_back {
            self.home_state.holds.clear();
        }
    }

    fn give_up(&mut self, purges: &[PurgeMessage], reply: oneshot::Sender<Spread>, why: &str) {
        add(&self.cluster.counts.purges_refused, purges.len() as u64);
        self.is_alone_with(purges);
        let _ = reply.send(Spread::refused(why));
    }

    /// Sends what waits in the outbox, some at a time.
    pub(super) fn replay(&mut self) {
        let Some(outbox) = self.outbox.as_ref().filter(|outbox| !outbox.is_empty() && !self.is_replaying) else {
            return;
        };
        let purges = outbox.first(REPLAY_PURGES);
        self.is_replaying = true;
        let (context, subjects) = (self.context.clone(), self.around.settings.subjects.clone());
        self.spawn(async move {
            let result = nats::publish(&context, &subjects, &purges).await;
            Event::Replayed { purges, result }
        });
    }

    pub(super) fn has_replayed(&mut self, purges: &[PurgeMessage], result: Result<Numbers, NotTaken>) {
        self.is_replaying = false;
        match result {
            Ok(numbers) => {
                add(&self.cluster.counts.purges_published, purges.len() as u64);
                self.acknowledged = self.acknowledged.max(numbers.last);
                let removed = self.outbox.as_mut().map_or(Ok(()), |outbox| outbox.remove_sent(purges));
                if let Err(error) = removed {
                    tracing::warn!(%error, "the outbox cannot be written anew: its purges are sent again at the next start");
                }
                self.replay();
            }
            Err(NotTaken::Away(why) | NotTaken::Refused(why)) => self.is_troubled(format!("the outbox waits: {why}")),
        }
    }
}
