//! All that a node knows of the stream of purges: which of them it has applied, and up to when it knows that there are no others.
//! Values and `now` in, decisions out.
//!
//! The stream keeps the last purge of each subject. A node that has read all of it knows the same subjects with the same numbers as
//! every other one, and so has the same digest, whatever else came and went before.
//!
//! Numbers alone do not tell one history of a stream from another: one that lost its end gives the same numbers to other purges. The
//! stream also says when it took each purge, which is kept beside the number. That trusts in the clocks of its servers: one that becomes
//! the leader must not be behind the one before by as long as an election takes.
//!
//! Times of this node are those of `CLOCK_BOOTTIME`, which goes on while the machine sleeps.

use larder_wire::date::Stamp;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

/// A node that has not known for so long that it has all purges shuts its gate.
pub const GATE_AFTER: Duration = Duration::from_secs(3);

/// Answers of the stream that wait until the purges before them are applied.
const PENDING_MAX: usize = 16;

/// A purge in the history of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its number; 0 is before the first one.
    pub applied: u64,
    /// When the stream took it, in nanoseconds since 1970; 0 where that is not known.
    #[serde(default)]
    pub at: u64,
}

/// The facts about a stream at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamFacts {
    /// Which incarnation of the stream it is: one that was made anew has another.
    pub incarnation: String,
    /// The newest purge that it ever had.
    pub last: Place,
    /// The purges that it holds.
    pub messages: u64,
    /// The purges that it may hold; `u64::MAX`: as many as there are.
    pub messages_max: u64,
}

/// A question to the stream.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The time for which its answer holds.
    pub at: Duration,
    /// The purge that was applied then.
    pub applied: Place,
}

/// A message of the stream, as far as it concerns what is known.
#[derive(Clone, Copy, Debug)]
pub struct Noted {
    /// The hash of its subject.
    pub subject: u128,
    /// Its place.
    pub place: Place,
    /// Whether the stream need not hold anything that was before it.
    pub everything: bool,
}

/// The comparison of a message with what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// It is the purge that was applied last: the stream goes on from there.
    Known,
    /// It has that number and is another one.
    Other,
    /// It is a later one: the purge that was applied last is gone, so that nothing is said about what was before it.
    Later,
}

/// The result of a look at the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It goes on from what is known.
    Same,
    /// It is read for the first time; nothing was known of another one.
    First,
    /// It is another one than was known, or lost purges: anything may have been purged meanwhile.
    Anew,
}

type Numbers = HashMap<u128, u64, BuildHasherDefault<AsItIs>>;

/// The knowledge about the stream.
#[derive(Debug, Default)]
pub struct Replica {
    incarnation: Option<String>,
    applied: Place,
    /// All that the stream holds was read, so that only what is newer is missing and the digest means something.
    is_whole: bool,
    /// The last number of each subject that the stream holds.
    subjects: Numbers,
    /// The purges that the stream may hold.
    messages_max: u64,
    digest: u64,
    /// The same before the stream was read again.
    earlier: Option<Numbers>,
    /// When the stream was asked, and its newest number then.
    pending: VecDeque<(Duration, u64)>,
    contact: Option<Duration>,
}

/// Subjects are hashes already, and cryptographic ones.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_le_bytes(word);
        }
    }
}

impl Replica {
    /// Begins with the place that an earlier process had reached.
    pub fn of(position: Option<(String, Place)>) -> Replica {
        let (incarnation, applied) = position.unzip();
        Replica { incarnation, applied: applied.unwrap_or_default(), ..Replica::default() }
    }

    /// The incarnation that is known, if any.
    pub fn incarnation(&self) -> Option<&str> {
        self.incarnation.as_deref()
    }

    /// The number of the last purge that was applied.
    pub fn applied(&self) -> u64 {
        self.applied.applied
    }

    /// The last purge that was applied.
    pub fn place(&self) -> Place {
        self.applied
    }

    /// Whether all that the stream held was read, so that only new purges are missing.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// A question that is asked at this time.
    pub fn question(&self, at: Duration) -> Question {
        Question { at, applied: self.applied }
    }

    /// A number that all have who know the same purges.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// How many subjects are known.
    #[cfg(test)]
    pub fn subjects(&self) -> usize {
        self.subjects.len()
    }

    /// When it was last known that all purges of before were applied.
    pub fn contact(&self) -> Option<Duration> {
        self.contact
    }

    /// Whether purges may have been made that are not known here.
    pub fn is_apart(&self, now: Duration) -> bool {
        self.contact.is_none_or(|contact| now.saturating_sub(contact) >= GATE_AFTER)
    }

    /// Until when stored responses may be used, where they may be at all: the wall clock was read before `now` was.
    pub fn open_until(&self, wall: Duration, now: Duration) -> Option<Stamp> {
        let contact = self.contact.filter(|_| !self.is_apart(now))?;
        let until = wall.saturating_sub(now.saturating_sub(contact)) + GATE_AFTER;
        Some(Stamp(until.as_secs()))
    }

    /// Whether more subjects are known than the stream can hold, so that it took purges out that were not told: nothing more is to be
    /// read before the next look at it, so that the table stays bounded.
    pub fn is_overfull(&self) -> bool {
        self.subjects.len() as u64 > self.messages_max.saturating_mul(2)
    }

    /// Takes what the stream said of itself when it was asked. Purges that were applied since the question are no sign that the
    /// stream ran backwards.
    pub fn look(&mut self, facts: &StreamFacts, asked: Question) -> Seen {
        let seen = match &self.incarnation {
            None => Seen::First,
            Some(known) if *known != facts.incarnation => Seen::Anew,
            Some(_) if runs_backwards(facts, asked.applied) || self.lacks_purges(facts) => Seen::Anew,
            Some(_) => Seen::Same,
        };
        if seen != Seen::Same {
            self.begin_anew(facts);
        }
        self.messages_max = facts.messages_max;
        if facts.messages == 0 {
            self.advance(facts.last);
            self.is_whole = true;
            self.earlier = None;
        }
        if self.pending.len() == PENDING_MAX {
            self.pending.pop_front();
        }
        self.pending.push_back((asked.at, facts.last.applied));
        self.settle();
        seen
    }

    /// Forgets all that is known but the stream's incarnation.
    pub fn begin_anew(&mut self, facts: &StreamFacts) {
        *self = Replica { incarnation: Some(facts.incarnation.clone()), ..Replica::default() };
    }

    /// Whether a stream holds less than it must: it was emptied by hand, and not by a purge of everything, or single purges were taken
    /// out of it.
    fn lacks_purges(&self, facts: &StreamFacts) -> bool {
        let Some(newer) = self.applied().checked_sub(facts.last.applied) else {
            return facts.messages == 0;
        };
        // As many may have come since it was asked.
        self.subjects.len() as u64 > facts.messages.saturating_add(newer) || self.is_overfull()
    }

    /// Compares the first message that comes with what is known, where the stream is read from the purge on that was applied last.
    pub fn begins(&self, noted: &Noted) -> Beginning {
        match noted.place.applied.cmp(&self.applied()) {
            std::cmp::Ordering::Greater if self.applied() == 0 => Beginning::Known,
            std::cmp::Ordering::Equal if !self.is_other(noted) => Beginning::Known,
            std::cmp::Ordering::Greater => Beginning::Later,
            _ => Beginning::Other,
        }
    }

    /// Whether a message has the number of the purge that was applied last and is another one.
    pub fn is_other(&self, noted: &Noted) -> bool {
        let (known, place) = (self.applied, noted.place);
        place.applied == known.applied && known.at != 0 && place.at != known.at
    }

    /// Begins to read all of the stream again. A purge that was not known by subject and number is applied then.
    pub fn read_again(&mut self) {
        self.earlier = Some(std::mem::take(&mut self.subjects));
        (self.digest, self.is_whole) = (0, false);
    }

    /// Notes that all of the stream was read.
    pub fn has_read(&mut self) {
        (self.earlier, self.is_whole) = (None, true);
        self.settle();
    }

    /// Notes a message. Gives whether its purge is to be applied: it is not when it was applied by an earlier process, or before a second
    /// reading. One that is younger than the last one that was applied is to be, whatever its number: the stream has lost its end then,
    /// and numbers it anew.
    pub fn note(&mut self, Noted { subject, place, everything }: Noted) -> bool {
        let number = place.applied;
        if everything {
            self.subjects.retain(|_, held| *held >= number);
            self.digest =
                self.subjects.iter().fold(0, |sum: u64, (subject, held)| sum.wrapping_add(mixed(*subject, *held)));
        }
        let before = self.subjects.insert(subject, number);
        if let Some(before) = before {
            self.digest = self.digest.wrapping_sub(mixed(subject, before));
        }
        self.digest = self.digest.wrapping_add(mixed(subject, number));
        let is_known = |earlier: &Numbers| earlier.get(&subject) == Some(&number);
        number > self.applied() || place.at > self.applied.at || self.earlier.as_ref().is_some_and(|it| !is_known(it))
    }

    /// Notes that all purges up to this one are in force.
    pub fn apply(&mut self, place: Place) {
        self.advance(place);
        self.settle();
    }

    fn advance(&mut self, place: Place) {
        if place.applied > self.applied() {
            self.applied = place;
        }
    }

    fn settle(&mut self) {
        while let Some((asked, last)) = self.pending.front().copied().filter(|_| self.is_whole) {
            if last > self.applied() {
                break;
            }
            self.contact = Some(self.contact.map_or(asked, |contact| contact.max(asked)));
            self.pending.pop_front();
        }
    }
}

/// Whether a stream is not the one that had this purge, by the number or the time of its last one.
fn runs_backwards(facts: &StreamFacts, applied: Place) -> bool {
    let are_known = facts.last.at != 0 && applied.at != 0;
    let is_other = match facts.last.applied == applied.applied {
        true => facts.last.at != applied.at,
        false => facts.last.at < applied.at,
    };
    facts.last.applied < applied.applied || are_known && is_other
}

fn mixed(subject: u128, number: u64) -> u64 {
    let word = (subject as u64) ^ ((subject >> 64) as u64).rotate_left(17) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let product = u128::from(word) * 0xd6e8_feb8_6659_fd93;
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_000);

    /// A purge that the stream took at a time of its own.
    fn place(applied: u64) -> Place {
        Place { applied, at: 10 * applied }
    }

    /// A stream whose purges each came at the time that [`place`] gives it.
    pub fn facts(incarnation: &str, last: u64, messages: u64) -> StreamFacts {
        StreamFacts { incarnation: incarnation.to_owned(), last: place(last), messages, messages_max: 1_000 }
    }

    fn message(subject: u128, place: Place) -> Noted {
        Noted { subject, place, everything: false }
    }

    fn note(replica: &mut Replica, subject: u128, number: u64) -> bool {
        replica.note(message(subject, place(number)))
    }

    fn asked(at: Duration, applied: u64) -> Question {
        Question { at, applied: place(applied) }
    }

    /// A node that has read five purges, each of its own scope.
    fn of_five() -> Replica {
        let mut replica = Replica::default();
        replica.look(&facts("x", 5, 5), asked(NOW, 0));
        (1..=5).for_each(|number| assert!(note(&mut replica, u128::from(number), number)));
        replica.apply(place(5));
        replica.has_read();
        replica
    }

    #[test]
    fn contact_is_the_time_of_the_question_and_needs_all_purges() {
        let mut replica = Replica::default();
        assert!(replica.is_apart(NOW));
        assert_eq!(replica.look(&facts("x", 2, 2), asked(NOW, 0)), Seen::First);
        assert!(replica.is_apart(NOW), "two purges are not applied yet");
        assert!(note(&mut replica, 1, 1) && note(&mut replica, 2, 2));
        replica.apply(place(1));
        assert!(replica.is_apart(NOW));
        replica.apply(place(2));
        assert!(replica.is_apart(NOW), "the end was not read");
        replica.has_read();
        assert_eq!(replica.contact(), Some(NOW));
        assert!(!replica.is_apart(NOW + GATE_AFTER - Duration::from_millis(1)));
        assert!(replica.is_apart(NOW + GATE_AFTER));
        let later = NOW + Duration::from_secs(1);
        assert_eq!(replica.look(&facts("x", 3, 3), asked(later, 2)), Seen::Same);
        assert_eq!(replica.contact(), Some(NOW), "the third purge is not here");
        replica.apply(place(3));
        assert_eq!(replica.contact(), Some(later));
    }

    #[test]
    fn a_machine_that_slept_finds_its_gate_shut() {
        let (replica, wall) = (of_five(), Duration::from_secs(1_700_000_000));
        let second = Duration::from_secs(1);
        assert_eq!(replica.open_until(wall + second, NOW + second), Some(Stamp(1_700_000_003)));
        // Both clocks go on during sleep, so that neither can open the gate for longer.
        let hour = Duration::from_secs(3_600);
        assert_eq!(replica.open_until(wall + hour, NOW + hour), None);
        // Stopped for an hour between the two readings, or for less: it is open until the same moment at most.
        assert_eq!(replica.open_until(wall, NOW + hour), None);
        assert_eq!(replica.open_until(wall, NOW + second), Some(Stamp(1_700_000_002)));
    }

    #[test]
    fn a_stream_that_is_another_or_runs_backwards_is_known() {
        let at = |facts: StreamFacts, at| StreamFacts { last: Place { at, ..facts.last }, ..facts };
        for (what, next, seen) in [
            ("it goes on", facts("x", 5, 5), Seen::Same),
            ("the same scopes purged again", facts("x", 9, 5), Seen::Same),
            ("made anew", facts("y", 9, 9), Seen::Anew),
            ("made anew and empty", facts("y", 0, 0), Seen::Anew),
            ("backwards", facts("x", 4, 4), Seen::Anew),
            ("backwards, and grown to the same number", at(facts("x", 5, 5), 99), Seen::Anew),
            ("a later number at an earlier time", at(facts("x", 6, 6), 49), Seen::Anew),
            ("a time that is not known", at(facts("x", 5, 5), 0), Seen::Same),
            ("emptied by hand", facts("x", 5, 0), Seen::Anew),
            ("emptied by hand after more came", facts("x", 6, 0), Seen::Anew),
            ("one purge was taken out", facts("x", 5, 4), Seen::Anew),
        ] {
            let mut replica = of_five();
            assert_eq!(replica.look(&next, asked(NOW, 5)), seen, "{what}");
            if seen == Seen::Anew {
                assert_eq!((replica.subjects(), replica.digest()), (0, 0), "{what}");
                let question = replica.question(NOW);
                assert_eq!(replica.look(&next, question), Seen::Same, "{what}: once is enough");
            }
        }
    }

    #[test]
    fn an_answer_that_took_long_is_no_other_stream() {
        let mut replica = Replica::default();
        assert_eq!(replica.look(&facts("x", 0, 0), asked(NOW, 0)), Seen::First);
        note(&mut replica, 1, 1);
        replica.apply(place(1));
        assert_eq!(
            replica.look(&facts("x", 0, 0), asked(NOW, 0)),
            Seen::Same,
            "it was asked before the first purge came"
        );
        note(&mut replica, 2, 2);
        replica.apply(place(2));
        assert_eq!(replica.look(&facts("x", 1, 1), asked(NOW, 1)), Seen::Same, "and before the second");
        assert_eq!(replica.look(&facts("x", 1, 1), asked(NOW, 2)), Seen::Anew);
    }

    #[test]
    fn a_position_of_before_is_compared_too() {
        let of_before = || Replica::of(Some(("x".to_owned(), place(5))));
        let mut replica = of_before();
        assert_eq!(replica.look(&facts("x", 7, 7), asked(NOW, 5)), Seen::Same);
        assert!(!note(&mut replica, 1, 5), "an earlier process applied it");
        assert!(note(&mut replica, 2, 6));
        let mut replica = of_before();
        assert_eq!(replica.look(&facts("x", 7, 0), asked(NOW, 5)), Seen::Anew, "two purges are lost");
        let mut replica = of_before();
        assert_eq!(replica.look(&facts("x", 3, 3), asked(NOW, 5)), Seen::Anew);
        assert!(note(&mut replica, 1, 1), "all of it is applied");
    }

    #[test]
    fn a_stream_that_lost_its_end_and_grew_again_hides_nothing() {
        // This node was down at 5; the stream lost 4 and 5, and got 4, 5 and 6 anew.
        let mut replica = Replica::of(Some(("x".to_owned(), place(5))));
        let grown = StreamFacts { last: Place { applied: 6, at: 300 }, ..facts("x", 6, 6) };
        assert_eq!(replica.look(&grown, asked(NOW, 5)), Seen::Same, "the numbers say nothing");
        assert!(replica.is_apart(NOW), "before the end was read it may lack purges, whatever the numbers are");
        assert!(!note(&mut replica, 3, 3));
        let regrown = |number, at| message(7, Place { applied: number, at });
        assert!(replica.note(regrown(4, 100)), "it is younger than all that was applied");
        assert!(replica.is_other(&regrown(5, 200)) && !replica.is_other(&message(9, place(5))));
        // The same where this node lived, and reads on from the last one that it has.
        let replica = of_five();
        assert_eq!(replica.begins(&message(5, place(5))), Beginning::Known);
        assert_eq!(replica.begins(&regrown(5, 200)), Beginning::Other);
        assert_eq!(replica.begins(&regrown(6, 300)), Beginning::Later, "nobody knows what the fifth is now");
        assert_eq!(Replica::default().begins(&regrown(6, 300)), Beginning::Known, "nothing was applied before");
    }

    #[test]
    fn digests_agree_whatever_came_and_went() {
        let mut live = Replica::default();
        for (subject, number) in [(1, 1), (2, 2), (1, 3), (3, 4), (2, 5)] {
            note(&mut live, subject, number);
        }
        let mut late = Replica::default();
        for (subject, number) in [(1, 3), (3, 4), (2, 5)] {
            note(&mut late, subject, number);
        }
        assert_eq!((live.digest(), live.subjects()), (late.digest(), late.subjects()));
        note(&mut late, 4, 6);
        assert_ne!(live.digest(), late.digest());
        let mut third = Replica::default();
        for replica in [&mut live, &mut late, &mut third] {
            replica.note(Noted { everything: true, ..message(9, place(7)) });
            note(replica, 3, 8);
        }
        assert!(live.digest() == late.digest() && late.digest() == third.digest());
        assert_eq!(live.subjects(), 2);
    }

    #[test]
    fn a_second_reading_applies_only_what_was_not_known() {
        let mut replica = Replica::default();
        for (subject, number) in [(1, 1), (3, 4)] {
            note(&mut replica, subject, number);
        }
        replica.apply(place(4));
        replica.has_read();
        let digest = replica.digest();
        replica.read_again();
        assert!(!replica.is_whole());
        let applied = [(1, 1), (2, 2), (3, 4)].map(|(subject, number)| note(&mut replica, subject, number));
        assert_eq!(applied, [false, true, false], "the second purge had been missed");
        replica.has_read();
        assert_ne!(replica.digest(), digest);
        assert!(!note(&mut replica, 2, 2));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut replica = Replica::default();
        (0..100).for_each(|_| _ = replica.look(&facts("x", 9, 9), asked(NOW, 0)));
        assert_eq!(replica.pending.len(), PENDING_MAX);
        // Somebody takes purges out of the stream as fast as they come.
        (1..=2_000).for_each(|number| _ = note(&mut replica, u128::from(number), number));
        replica.apply(place(2_000));
        assert!(!replica.is_overfull());
        note(&mut replica, 2_001, 2_001);
        assert!(replica.is_overfull());
        replica.apply(place(2_001));
        assert_eq!(replica.look(&facts("x", 2_001, 1_000), asked(NOW, 2_001)), Seen::Anew);
        assert_eq!(replica.subjects(), 0);
    }
}
