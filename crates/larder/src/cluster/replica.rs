//! All that a node knows of the stream of purges: which of them it has applied, and up to when it knows that there are no others.
//! Values and `now` in, decisions out.
//!
//! The stream keeps the last purge of each subject. A node that has read all of it knows the same subjects with the same numbers as
//! every other one, and so has the same digest, whatever else came and went before.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::{Duration, Instant};

/// A node that has not known for so long that it has all purges shuts its gate.
pub const GATE_AFTER: Duration = Duration::from_secs(3);

/// Answers of the stream that wait until the purges before them are applied.
const PENDING_MAX: usize = 16;

/// The facts about a stream at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamFacts {
    /// Which incarnation of the stream it is: one that was made anew has another.
    pub incarnation: String,
    /// The number of the newest purge that it ever had.
    pub last: u64,
    /// The purges that it holds.
    pub messages: u64,
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
    applied: u64,
    /// The last number of each subject that the stream holds.
    subjects: Numbers,
    digest: u64,
    /// The same before the stream was read again.
    earlier: Option<Numbers>,
    /// When the stream was asked, and its newest number then.
    pending: VecDeque<(Instant, u64)>,
    contact: Option<Instant>,
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
    pub fn of(position: Option<(String, u64)>) -> Replica {
        let (incarnation, applied) = position.unzip();
        Replica { incarnation, applied: applied.unwrap_or(0), ..Replica::default() }
    }

    /// The incarnation that is known, if any.
    pub fn incarnation(&self) -> Option<&str> {
        self.incarnation.as_deref()
    }

    /// The number of the last purge that was applied.
    pub fn applied(&self) -> u64 {
        self.applied
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
    pub fn contact(&self) -> Option<Instant> {
        self.contact
    }

    /// Whether purges may have been made that are not known here.
    pub fn is_apart(&self, now: Instant) -> bool {
        self.contact.is_none_or(|contact| now.saturating_duration_since(contact) >= GATE_AFTER)
    }

    /// Takes what the stream said of itself when it was asked. `asked` is the time of the question, and the number that was applied then:
    /// what was applied since is no sign that the stream ran backwards.
    pub fn look(&mut self, facts: &StreamFacts, asked: (Instant, u64)) -> Seen {
        let seen = match &self.incarnation {
            None => Seen::First,
            Some(known) if *known != facts.incarnation => Seen::Anew,
            Some(_) if facts.last < asked.1 || self.lacks_all(facts) => Seen::Anew,
            Some(_) => Seen::Same,
        };
        if seen != Seen::Same {
            let applied = if facts.messages == 0 { facts.last } else { 0 };
            *self = Replica { incarnation: Some(facts.incarnation.clone()), applied, ..Replica::default() };
        }
        if facts.messages == 0 {
            self.applied = self.applied.max(facts.last);
        }
        if self.pending.len() == PENDING_MAX {
            self.pending.pop_front();
        }
        self.pending.push_back((asked.0, facts.last));
        self.settle();
        seen
    }

    /// Whether a stream that held purges holds none, so that it was emptied by hand, and not by a purge of everything.
    fn lacks_all(&self, facts: &StreamFacts) -> bool {
        let is_older = facts.last < self.applied;
        facts.messages == 0 && !is_older && (!self.subjects.is_empty() || facts.last > self.applied)
    }

    /// Begins to read all of the stream again. A purge that was not known by subject and number is applied then.
    pub fn read_again(&mut self) {
        self.earlier = Some(std::mem::take(&mut self.subjects));
        self.digest = 0;
    }

    /// Whether the stream is being read again.
    pub fn reads_again(&self) -> bool {
        self.earlier.is_some()
    }

    /// Notes that all of the stream was read.
    pub fn has_read(&mut self) {
        self.earlier = None;
    }

    /// Notes that a purge with this number came under this subject. `everything` says that it contains all that came before, which the
    /// stream need not hold any more. Gives whether the purge is to be applied: it is not when it was applied by an earlier process, or
    /// before a second reading.
    pub fn note(&mut self, subject: u128, number: u64, everything: bool) -> bool {
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
        number > self.applied || self.earlier.as_ref().is_some_and(|earlier| !is_known(earlier))
    }

    /// Notes that all purges up to this number are in force.
    pub fn apply(&mut self, number: u64) {
        self.applied = self.applied.max(number);
        self.settle();
    }

    fn settle(&mut self) {
        while let Some((asked, last)) = self.pending.front().copied() {
            if last > self.applied {
                break;
            }
            self.contact = Some(self.contact.map_or(asked, |contact| contact.max(asked)));
            self.pending.pop_front();
        }
    }
}

fn mixed(subject: u128, number: u64) -> u64 {
    let word = (subject as u64) ^ ((subject >> 64) as u64).rotate_left(17) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let product = u128::from(word) * 0xd6e8_feb8_6659_fd93;
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(incarnation: &str, last: u64, messages: u64) -> StreamFacts {
        StreamFacts { incarnation: incarnation.to_owned(), last, messages }
    }

    #[test]
    fn contact_is_the_time_of_the_question_and_needs_all_purges() {
        let (mut replica, now) = (Replica::default(), Instant::now());
        assert!(replica.is_apart(now));
        assert_eq!(replica.look(&facts("x", 2, 2), (now, 0)), Seen::First);
        assert!(replica.is_apart(now), "two purges are not applied yet");
        assert!(replica.note(1, 1, false) && replica.note(2, 2, false));
        replica.apply(1);
        assert!(replica.is_apart(now));
        replica.apply(2);
        assert_eq!(replica.contact(), Some(now));
        assert!(!replica.is_apart(now + GATE_AFTER - Duration::from_millis(1)));
        assert!(replica.is_apart(now + GATE_AFTER));
        let later = now + Duration::from_secs(1);
        assert_eq!(replica.look(&facts("x", 3, 3), (later, 2)), Seen::Same);
        assert_eq!(replica.contact(), Some(now), "the third purge is not here");
        replica.apply(3);
        assert_eq!(replica.contact(), Some(later));
    }

    #[test]
    fn a_stream_that_is_another_or_runs_backwards_is_known() {
        let now = Instant::now();
        for (what, next, seen) in [
            ("it goes on", facts("x", 5, 5), Seen::Same),
            ("made anew", facts("y", 9, 9), Seen::Anew),
            ("made anew and empty", facts("y", 0, 0), Seen::Anew),
            ("backwards", facts("x", 4, 4), Seen::Anew),
            ("emptied by hand", facts("x", 5, 0), Seen::Anew),
            ("emptied by hand after more came", facts("x", 6, 0), Seen::Anew),
        ] {
            let mut replica = Replica::default();
            replica.look(&facts("x", 5, 5), (now, 0));
            (1..=5).for_each(|number| assert!(replica.note(u128::from(number), number, false)));
            replica.apply(5);
            assert_eq!(replica.look(&next, (now, 5)), seen, "{what}");
            if seen == Seen::Anew {
                assert_eq!((replica.subjects(), replica.digest()), (0, 0), "{what}");
                let applied = replica.applied();
                assert_eq!(replica.look(&next, (now, applied)), Seen::Same, "{what}: once is enough");
            }
        }
    }

    #[test]
    fn an_answer_that_took_long_is_no_other_stream() {
        let (mut replica, now) = (Replica::default(), Instant::now());
        assert_eq!(replica.look(&facts("x", 0, 0), (now, 0)), Seen::First);
        replica.note(1, 1, false);
        replica.apply(1);
        assert_eq!(replica.look(&facts("x", 0, 0), (now, 0)), Seen::Same, "it was asked before the first purge came");
        replica.note(2, 2, false);
        replica.apply(2);
        assert_eq!(replica.look(&facts("x", 1, 1), (now, 1)), Seen::Same, "and before the second");
        assert_eq!(replica.look(&facts("x", 1, 1), (now, 2)), Seen::Anew);
    }

    #[test]
    fn a_position_of_before_is_compared_too() {
        let now = Instant::now();
        let mut replica = Replica::of(Some(("x".to_owned(), 5)));
        assert_eq!(replica.look(&facts("x", 7, 7), (now, 5)), Seen::Same);
        assert!(!replica.note(1, 5, false), "an earlier process applied it");
        assert!(replica.note(2, 6, false));
        let mut replica = Replica::of(Some(("x".to_owned(), 5)));
        assert_eq!(replica.look(&facts("x", 7, 0), (now, 5)), Seen::Anew, "two purges are lost");
        let mut replica = Replica::of(Some(("x".to_owned(), 5)));
        assert_eq!(replica.look(&facts("x", 3, 3), (now, 5)), Seen::Anew);
        assert!(replica.note(1, 1, false), "all of it is applied");
    }

    #[test]
    fn digests_agree_whatever_came_and_went() {
        let mut live = Replica::default();
        for (subject, number) in [(1, 1), (2, 2), (1, 3), (3, 4), (2, 5)] {
            live.note(subject, number, false);
        }
        let mut late = Replica::default();
        for (subject, number) in [(1, 3), (3, 4), (2, 5)] {
            late.note(subject, number, false);
        }
        assert_eq!((live.digest(), live.subjects()), (late.digest(), late.subjects()));
        late.note(4, 6, false);
        assert_ne!(live.digest(), late.digest());
        let mut third = Replica::default();
        for replica in [&mut live, &mut late, &mut third] {
            replica.note(9, 7, true);
            replica.note(3, 8, false);
        }
        assert!(live.digest() == late.digest() && late.digest() == third.digest());
        assert_eq!(live.subjects(), 2);
    }

    #[test]
    fn a_second_reading_applies_only_what_was_not_known() {
        let mut replica = Replica::default();
        for (subject, number) in [(1, 1), (3, 4)] {
            replica.note(subject, number, false);
        }
        replica.apply(4);
        let digest = replica.digest();
        replica.read_again();
        let applied: Vec<bool> =
            [(1, 1), (2, 2), (3, 4)].map(|(subject, number)| replica.note(subject, number, false)).into();
        assert_eq!(applied, [false, true, false], "the second purge had been missed");
        replica.has_read();
        assert_ne!(replica.digest(), digest);
        assert!(!replica.note(2, 2, false));
    }

    #[test]
    fn questions_that_wait_are_bounded() {
        let (mut replica, now) = (Replica::default(), Instant::now());
        (0..100).for_each(|_| _ = replica.look(&facts("x", 9, 9), (now, 0)));
        assert_eq!(replica.pending.len(), PENDING_MAX);
    }
}
