//! Reading the stream: purges that come from it become rules, once it is known to be the stream of before.

use super::{Event, Leaves, Node, add};
use crate::clock;
use crate::cluster::message::{self, PurgeMessage};
use crate::cluster::nats::{self, Arrived};
use crate::cluster::replica::{Beginning, GATE_AFTER, Noted};
use larder_cache::store::rules::{Force, Scope};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinHandle;

/// Purges that are applied together, with one sync of the disk.
const BATCH_PURGES: usize = 1_024;

/// A task that reads the stream.
pub(super) struct Reader {
    pub(super) number: u64,
    pub(super) task: JoinHandle<()>,
    pub(super) purges: Receiver<Arrived>,
    /// When it was begun.
    pub(super) began: Duration,
    /// Whether it begins with the purge that was applied last, and nothing came yet.
    pub(super) is_to_begin: bool,
    /// The end of the stream when it was begun.
    pub(super) until: u64,
    /// The last number that came, and when one came.
    pub(super) last: (u64, Instant),
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The next message that a reader brings; it waits for one where there is no reader.
pub(super) async fn next_purge(reader: &mut Option<Reader>) -> Option<Arrived> {
    match reader {
        Some(reader) => match reader.purges.recv().await {
            Some(arrived) => Some(arrived),
            // Its end is told by an event.
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

impl Node {
    /// Begins to read: all of the stream where its digest is not known, else from the purge on that was applied last, which says whether
    /// the stream is the one of before.
    pub(super) fn read(&mut self) {
        if self.replica.is_overfull() {
            return;
        }
        let is_to_begin = self.replica.is_whole();
        let from = if is_to_begin { self.replica.applied() } else { 0 };
        let (to, purges) = channel(BATCH_PURGES);
        self.readers += 1;
        let number = self.readers;
        let read = nats::read(self.context.clone(), nats::stream_name(&self.around.settings), from, to);
        let events = self.events.clone();
        let task = tokio::spawn(async move {
            let why = read.await;
            let _ = events.send(Event::ReaderEnded(number, why)).await;
        });
        let (began, last) = (clock::since_boot(), (from, clock::instant()));
        self.reader = Some(Reader { number, task, purges, began, is_to_begin, until: self.last(), last });
    }

    /// A reader of before the gate was shut goes on with the next number in a stream that may have lost the ones before meanwhile.
    fn is_outdated(&self, reader: &Reader) -> bool {
        let shut = self.replica.contact().map(|contact| contact + GATE_AFTER);
        shut.is_some_and(|shut| reader.began < shut && shut <= clock::since_boot())
    }

    /// Compares the first message of a reader with what is known; gives whether to go on.
    async fn begins_rightly(&mut self, first: &Arrived) -> bool {
        let noted = noted(first, false);
        let Some(reader) = self.reader.as_mut() else { return false };
        let beginning = match std::mem::take(&mut reader.is_to_begin) {
            true => self.replica.begins(&noted),
            false if self.replica.is_other(&noted) => Beginning::Other,
            false => Beginning::Known,
        };
        match beginning {
            Beginning::Known => true,
            Beginning::Later if first.rolls_up => true,
            Beginning::Later => {
                self.read_again();
                false
            }
            Beginning::Other => {
                if let Some(facts) = &self.facts {
                    self.replica.begin_anew(facts);
                }
                self.begin_anew().await;
                false
            }
        }
    }

    /// Applies what has come.
    pub(super) async fn take(&mut self, first: Arrived) {
        if self.reader.as_ref().is_some_and(|reader| self.is_outdated(reader)) {
            self.reader = None;
            return self.read();
        }
        let mut arrived = vec![first];
        if let Some(reader) = &mut self.reader {
            while arrived.len() < BATCH_PURGES
                && let Ok(more) = reader.purges.try_recv()
            {
                arrived.push(more);
            }
        }
        let suspect = |each: &Arrived| each.place.applied == self.replica.applied();
        let suspect = arrived.iter().position(suspect).unwrap_or(0);
        if !self.begins_rightly(&arrived[suspect]).await {
            return;
        }
        let mut rules = Vec::new();
        let mut is_foreign = false;
        for each in &arrived {
            let rule = self.rule_of(each);
            is_foreign |= rule.is_foreign;
            rules.extend(rule.to_apply);
        }
        let last = arrived.iter().map(|each| each.place).max_by_key(|place| place.applied).unwrap_or_default();
        add(&self.cluster.counts.purges_applied, rules.len() as u64);
        if let Some(homes) = self.homes() {
            homes.about_to_apply(last.applied);
        }
        self.apply(rules).await;
        self.replica.apply(last);
        let now = clock::instant();
        if let Some(reader) = &mut self.reader {
            reader.last = (last.applied, now);
            if last.applied >= reader.until && !self.replica.is_whole() {
                self.replica.has_read();
            }
        }
        if self.replica.is_overfull() {
            self.reader = None;
        }
        if is_foreign {
            // The caller of the purge waits for it.
            self.tell(Leaves::No).await;
        }
    }

    /// The rule that a message asks for, where it is not in force.
    fn rule_of(&mut self, arrived: &Arrived) -> RuleOf {
        let purge = PurgeMessage::parse(&arrived.body, &arrived.subject);
        let is_everything = purge.as_ref().is_ok_and(PurgeMessage::is_everything);
        let is_new = self.replica.note(noted(arrived, is_everything));
        let everything = |force| is_new.then_some((Scope::All, force));
        match purge {
            // No node sends such a message: purges were taken out of the stream, and nobody can tell whether they came here before.
            Ok(_) if arrived.rolls_up && !is_everything => {
                RuleOf { is_foreign: true, to_apply: everything(Force::Hard) }
            }
            Ok(purge) => {
                let is_own = self.own.remove(&purge.id);
                RuleOf { is_foreign: !is_own, to_apply: (is_new && !is_own).then_some((purge.scope, purge.force)) }
            }
            Err(why) => {
                self.refuse(why, &arrived.subject);
                // It may be a purge of a later version, and it may have taken the place of one in the stream.
                let force = if arrived.rolls_up { Force::Hard } else { Force::Validate };
                RuleOf { is_foreign: true, to_apply: everything(force) }
            }
        }
    }

    /// Reads all of the stream again, since purges may be missing. A restart before its end must not take them for applied.
    pub(super) fn read_again(&mut self) {
        add(&self.cluster.counts.readings_again, 1);
        self.forget_position();
        self.replica.read_again();
        self.reader = None;
        self.read();
    }
}

/// The rule that a message asks for.
struct RuleOf {
    is_foreign: bool,
    to_apply: Option<(Scope, Force)>,
}

/// A message as the replica notes it. `is_everything`: it is a purge of everything.
fn noted(arrived: &Arrived, is_everything: bool) -> Noted {
    let subject = message::key_of(&arrived.subject);
    Noted { subject, place: arrived.place, everything: is_everything || arrived.rolls_up }
}
