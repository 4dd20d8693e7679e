//! The journal of a run: what origins did for each transaction, written by them and read by robots, on whatever worker
//! either is. With it a hit is what no origin transaction answered, whatever the reply says of itself.
//!
//! A worker's transactions have numbers in a row, and each has a slot for as long as fewer than [`SLOTS`] later ones were
//! sent. Of an older one nothing is known then, and its reply is judged by its echo alone.
//!
//! A run on several machines has a journal on each, with slots for the transactions of its own workers. An origin notes the
//! transactions of others in an outbox; the notes are carried to where the robot is, with the time up to which they are
//! complete ([`Journal::knows`]).

use crate::ledger::Trouble;
use crate::random::Seal;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Transactions of a worker that are remembered.
const SLOTS: usize = 1 << 15;
/// Objects whose validations are remembered.
const VALIDATED_MAX: usize = 1_000_000;
/// Notes that wait to be carried to other machines: those of a second at 100,000 answers.
const OUTBOX_MAX: usize = 200_000;
/// Troubles that wait for a worker.
const SHOWN_MAX: usize = 10_000;
/// Microseconds by which the clocks of two machines may differ, and a note may come after the byte that it is about.
const CLOCKS_US: u64 = 5_000;
/// Bits of a transaction's number that a slot holds.
const NUMBER_BITS: u32 = 48;
/// Bits of a transaction's number that are its worker's.
const WORKER_SHIFT: u32 = 48;

/// The answers of the origins, by the transactions of a run.
#[derive(Debug)]
pub struct Journal {
    /// The secret of the run.
    pub seal: Seal,
    /// Whether robots send what may invalidate stored answers.
    pub lets_invalidate: bool,
    /// The first worker of this process.
    first: u16,
    workers: Vec<Box<[Slot]>>,
    /// Other processes have parts of the run.
    is_linked: bool,
    /// The answers of origins here to robots elsewhere.
    outbox: Mutex<Vec<Note>>,
    /// Notes that found no room.
    lost: AtomicU64,
    /// Replies that were judged before the notes of their transactions came.
    by_echo: AtomicU64,
    /// Up to when the answers of origins elsewhere to robots here are known, in microseconds since the run began.
    known_until_us: AtomicU64,
    /// Troubles that their notes showed, by transaction, until a worker takes it.
    shown: Mutex<Vec<(Trouble, u64)>>,
    /// By object, the last second since 1970 in which an origin said that somebody's copy is still right.
    validated: Mutex<HashMap<u64, u64>>,
    /// Seconds that a request of this process has waited for the head of its reply, at most.
    longest_wait_s: AtomicU64,
}

/// An answer of an origin as it is told to another machine: the transaction, the answer, a time, the object. In JSON it is an
/// array, for there are many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note(u64, u16, u64, u64);

impl Note {
    const ENDED: u16 = 8;
    const WHOLE_ENDED: u16 = 16;
    const POSTS: u16 = 32;
    const FRESH: u16 = 64;

    /// The worker of the transaction.
    pub fn worker(&self) -> u16 {
        (self.0 >> WORKER_SHIFT) as u16
    }
}

#[derive(Debug, Default)]
struct Slot {
    /// The number of the transaction in the upper bits, [`Deeds`] in the lower ones.
    state: AtomicU64,
    /// When the last byte of the last answer left its origin, in microseconds since the run began.
    ended_us: AtomicU64,
}

/// The answers of the origins to one transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deeds(u16);

impl Deeds {
    const ANSWERED: u16 = 1;
    const WHOLE: u16 = 2;
    const PART: u16 = 4;
    const NOT_MODIFIED: u16 = 8;
    const ENDED: u16 = 16;
    const WHOLE_TWICE: u16 = 32;
    const POSTED: u16 = 64;
    const PLAIN: u16 = 128;

    fn has(self, bit: u16) -> bool {
        self.0 & bit != 0
    }

    /// The answer of an origin to it has begun to leave.
    pub fn is_answered(self) -> bool {
        self.has(Self::ANSWERED)
    }

    /// An origin answered it with a whole object.
    pub fn is_whole(self) -> bool {
        self.has(Self::WHOLE)
    }

    /// An origin said that what the cache has is still right.
    pub fn is_not_modified(self) -> bool {
        self.has(Self::NOT_MODIFIED)
    }

    /// An origin got a POST for it.
    pub fn is_posted(self) -> bool {
        self.has(Self::POSTED)
    }

    /// The robot asked for the object without any condition.
    pub fn is_plain(self) -> bool {
        self.has(Self::PLAIN)
    }
}

/// How an origin answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The whole object.
    Whole,
    /// A part of it.
    Part,
    /// Not modified.
    NotModified,
    /// Anything else.
    Otherwise,
}

impl Journal {
    /// An empty one.
    pub fn new(seal: Seal, workers: u16, lets_invalidate: bool) -> Self {
        let slots = || std::iter::repeat_with(Slot::default).take(SLOTS).collect();
        Self {
            seal,
            lets_invalidate,
            first: 0,
            workers: (0..workers).map(|_| slots()).collect(),
            is_linked: false,
            outbox: Mutex::default(),
            lost: AtomicU64::new(0),
            by_echo: AtomicU64::new(0),
            known_until_us: AtomicU64::new(u64::MAX),
            shown: Mutex::default(),
            validated: Mutex::default(),
            longest_wait_s: AtomicU64::new(0),
        }
    }

    /// A request waited so many seconds for the head of its reply.
    pub fn waited(&self, seconds: u64) {
        if seconds > self.longest_wait_s() {
            self.longest_wait_s.fetch_max(seconds, Ordering::Relaxed);
        }
    }

    /// Seconds that a request of this process has waited for the head of its reply, at most: no answer that came has taken
    /// its origin longer, whatever that one's think time is. Of an answer that nobody awaited to its end, it says nothing.
    pub fn longest_wait_s(&self) -> u64 {
        self.longest_wait_s.load(Ordering::Relaxed)
    }

    /// That of one process of several: its workers have these numbers.
    pub fn linked(seal: Seal, workers: std::ops::Range<u16>, lets_invalidate: bool) -> Self {
        let own = Self::new(seal, workers.end.saturating_sub(workers.start), lets_invalidate);
        Self { first: workers.start, is_linked: true, ..own }
    }

    /// Whether other processes have parts of the run, so that their notes are waited for.
    pub fn is_linked(&self) -> bool {
        self.is_linked
    }

    /// Up to this time all answers of origins elsewhere are known here.
    pub fn known_until(&self, us: u64) {
        self.known_until_us.store(us, Ordering::Release);
    }

    /// Whether all is known of what origins did before this time.
    pub fn knows(&self, at: Duration) -> bool {
        self.known_until_us.load(Ordering::Acquire) >= micros(at).saturating_add(CLOCKS_US)
    }

    /// Takes the notes for other machines, and how many found no room since.
    pub fn take_notes(&self) -> (Vec<Note>, u64) {
        (std::mem::take(&mut *lock(&self.outbox)), self.lost.swap(0, Ordering::Relaxed))
    }

    /// Counts a reply that is judged by its echo alone, for the note of its origin did not come in time.
    pub fn count_judged_by_echo(&self) {
        self.by_echo.fetch_add(1, Ordering::Relaxed);
    }

    /// How many replies were judged by their echoes alone so far.
    pub fn replies_judged_by_echo(&self) -> u64 {
        self.by_echo.load(Ordering::Relaxed)
    }

    /// Takes what notes of other machines have shown of transactions of a worker.
    pub fn take_shown(&self) -> Vec<(Trouble, u64)> {
        match self.is_linked {
            true => std::mem::take(&mut *lock(&self.shown)),
            false => Vec::new(),
        }
    }

    /// Notes what an origin on another machine did.
    pub fn hear(&self, note: &Note) {
        let Note(number, code, time, object) = *note;
        let shows = |trouble| {
            let mut shown = lock(&self.shown);
            if shown.len() < SHOWN_MAX {
                shown.push((trouble, number));
            }
        };
        if code & Note::ENDED != 0 {
            if self.ended(number, Duration::from_micros(time), code & Note::WHOLE_ENDED != 0) && code & Note::POSTS == 0
            {
                shows(Trouble::DoubledFetch);
            }
            return;
        }
        let answer = match code & 7 {
            1 => Answered::Whole,
            2 => Answered::Part,
            3 => Answered::NotModified,
            _ => Answered::Otherwise,
        };
        let posts = code & Note::POSTS != 0;
        let before = self.answers(number, posts, answer);
        if posts && before.is_posted() {
            shows(Trouble::RepeatedPost);
        }
        if answer == Answered::NotModified {
            self.validates(object, time);
            if code & Note::FRESH != 0 && before.is_plain() && !self.lets_invalidate {
                shows(Trouble::NeedlessValidation);
            }
        }
    }

    /// An answer of an origin here to a robot elsewhere is about to leave, in this second since 1970; `fresh` if nobody needed
    /// to ask. Says whether it is one.
    pub fn tells(&self, number: u64, (posts, answer, fresh): (bool, Answered, bool), object: u64, unix: u64) -> bool {
        let kind = match answer {
            Answered::Whole => 1,
            Answered::Part => 2,
            Answered::NotModified => 3,
            Answered::Otherwise => 0,
        };
        let marks = if posts { Note::POSTS } else { 0 } | if fresh { Note::FRESH } else { 0 };
        self.post(Note(number, kind | marks, unix, object))
    }

    /// It has left.
    pub fn tells_end(&self, number: u64, at: Duration, whole: bool, posts: bool) -> bool {
        let marks = if whole { Note::WHOLE_ENDED } else { 0 } | if posts { Note::POSTS } else { 0 };
        self.post(Note(number, Note::ENDED | marks, micros(at), 0))
    }

    fn post(&self, note: Note) -> bool {
        if !self.is_linked || self.slot(note.0).is_some() {
            return false;
        }
        let mut outbox = lock(&self.outbox);
        match outbox.len() < OUTBOX_MAX {
            true => outbox.push(note),
            false => drop(self.lost.fetch_add(1, Ordering::Relaxed)),
        }
        true
    }

    /// The number of a worker's transaction.
    pub fn number(worker: u16, count: u64) -> u64 {
        u64::from(worker) << WORKER_SHIFT | count & ((1 << WORKER_SHIFT) - 1)
    }

    /// A robot sends a request; `plain` if it asks for the object without any condition.
    pub fn open(&self, number: u64, plain: bool) {
        let Some(slot) = self.slot(number) else { return };
        slot.ended_us.store(u64::MAX, Ordering::Relaxed);
        slot.state.store(key(number) | u64::from(if plain { Deeds::PLAIN } else { 0 }), Ordering::Release);
    }

    /// An answer of an origin is about to leave; says what was known before. It is noted before its first byte can be in
    /// any reply.
    pub fn answers(&self, number: u64, posts: bool, answer: Answered) -> Deeds {
        let bits = match answer {
            Answered::Whole => Deeds::WHOLE,
            Answered::Part => Deeds::PART,
            Answered::NotModified => Deeds::NOT_MODIFIED,
            Answered::Otherwise => 0,
        };
        self.note(number, Deeds::ANSWERED | bits | if posts { Deeds::POSTED } else { 0 })
    }

    /// The answer of an origin has left; says whether a whole one had left before.
    pub fn ended(&self, number: u64, at: Duration, whole: bool) -> bool {
        let Some(slot) = self.slot(number).filter(|slot| is_of(slot.state.load(Ordering::Acquire), number)) else {
            return false;
        };
        slot.ended_us.store(micros(at), Ordering::Relaxed);
        let before = self.note(number, Deeds::ENDED | if whole { Deeds::WHOLE_TWICE } else { 0 });
        whole && before.has(Deeds::WHOLE_TWICE)
    }

    /// The origins' answers to it; `None` if that is not known any more.
    pub fn deeds(&self, number: u64) -> Option<Deeds> {
        let state = self.slot(number)?.state.load(Ordering::Acquire);
        is_of(state, number).then_some(Deeds(state as u16))
    }

    /// Whether an origin was still sending the answer to it at this time, or had not begun.
    pub fn was_under_way(&self, number: u64, at: Duration) -> bool {
        let Some(slot) = self.slot(number) else { return false };
        is_of(slot.state.load(Ordering::Acquire), number) && slot.ended_us.load(Ordering::Relaxed) > micros(at)
    }

    /// An origin says in this second, since 1970, that what somebody has of an object is still right.
    pub fn validates(&self, object: u64, unix: u64) {
        let mut validated = self.validated.lock().unwrap_or_else(PoisonError::into_inner);
        if validated.len() < VALIDATED_MAX || validated.contains_key(&object) {
            let last = validated.entry(object).or_default();
            *last = unix.max(*last);
        }
    }

    /// Whether an origin may have said so in this second or later; yes where that is not known any more.
    pub fn may_be_validated(&self, object: u64, unix: u64) -> bool {
        let validated = self.validated.lock().unwrap_or_else(PoisonError::into_inner);
        match validated.get(&object) {
            Some(last) => *last >= unix,
            None => validated.len() >= VALIDATED_MAX,
        }
    }

    fn note(&self, number: u64, bits: u16) -> Deeds {
        let Some(slot) = self.slot(number) else { return Deeds::default() };
        let add = |state| is_of(state, number).then_some(state | u64::from(bits));
        let before = slot.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        before.map_or(Deeds::default(), |state| Deeds(state as u16))
    }

    fn slot(&self, number: u64) -> Option<&Slot> {
        let worker = ((number >> WORKER_SHIFT) as usize).checked_sub(usize::from(self.first))?;
        self.workers.get(worker).map(|slots| &slots[number as usize % SLOTS])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number in the place that it has in a slot; the worker's bits are those of the table.
fn key(number: u64) -> u64 {
    number << (u64::BITS - NUMBER_BITS)
}

fn is_of(state: u64, number: u64) -> bool {
    state >> (u64::BITS - NUMBER_BITS) == key(number) >> (u64::BITS - NUMBER_BITS)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_origins_did_is_read_until_the_slot_is_taken_by_a_later_transaction() {
        let journal = Journal::new(Seal::random(), 2, false);
        let (first, later) = (Journal::number(1, 7), Journal::number(1, 7 + SLOTS as u64));
        journal.open(first, true);
        assert_eq!(journal.deeds(first).map(|deeds| (deeds.is_plain(), deeds.is_answered())), Some((true, false)));
        assert!(journal.was_under_way(first, SECOND));
        journal.answers(first, false, Answered::NotModified);
        assert!(!journal.ended(first, 2 * SECOND, false));
        let deeds = journal.deeds(first).unwrap();
        assert!(deeds.is_answered() && deeds.is_not_modified() && !deeds.is_whole());
        assert!(journal.was_under_way(first, SECOND) && !journal.was_under_way(first, 3 * SECOND));
        journal.open(later, false);
        assert_eq!((journal.deeds(first), journal.was_under_way(first, SECOND)), (None, false));
        assert_eq!(journal.answers(first, false, Answered::Whole), Deeds::default());
        assert_eq!(journal.deeds(later).map(Deeds::is_answered), Some(false));
    }

    #[test]
    fn a_second_whole_answer_and_a_second_post_are_told() {
        let (journal, number) = (Journal::new(Seal::random(), 1, false), Journal::number(0, 1));
        journal.open(number, true);
        assert!(!journal.answers(number, true, Answered::Whole).is_posted());
        assert!(journal.answers(number, true, Answered::Whole).is_posted());
        assert!(!journal.ended(number, SECOND, false));
        assert!(!journal.ended(number, SECOND, true));
        assert!(journal.ended(number, SECOND, true));
    }

    #[test]
    fn what_origins_elsewhere_did_is_carried_to_the_robot() {
        let seal = Seal::random();
        let (origins, robots) = (Journal::linked(seal, 0..1, false), Journal::linked(seal, 1..2, false));
        let number = Journal::number(1, 4);
        robots.open(number, true);
        assert!(origins.tells(number, (false, Answered::Whole, false), 9, 100));
        assert!(origins.tells_end(number, SECOND, true, false));
        assert!(!robots.tells(number, (false, Answered::Whole, false), 9, 100), "its own transaction");
        assert_eq!(robots.deeds(number).map(Deeds::is_answered), Some(false));
        let (notes, lost) = origins.take_notes();
        assert_eq!((notes.len(), lost, notes[0].worker()), (2, 0, 1));
        let text = serde_json::to_string(&notes).unwrap();
        let carried: Vec<Note> = serde_json::from_str(&text).unwrap();
        carried.iter().for_each(|note| robots.hear(note));
        assert!(robots.deeds(number).is_some_and(Deeds::is_whole));
        assert!(robots.was_under_way(number, SECOND / 2) && !robots.was_under_way(number, SECOND));
        assert_eq!(robots.take_shown(), []);
        carried.iter().for_each(|note| robots.hear(note));
        assert_eq!(robots.take_shown(), [(Trouble::DoubledFetch, number)]);
        origins.tells(number, (false, Answered::NotModified, true), 9, 100);
        origins.tells(number, (true, Answered::Otherwise, false), 9, 100);
        let (notes, _) = origins.take_notes();
        notes.iter().chain(&notes[1..]).for_each(|note| robots.hear(note));
        let shown = [Trouble::NeedlessValidation, Trouble::RepeatedPost].map(|trouble| (trouble, number));
        assert_eq!((robots.take_shown(), robots.may_be_validated(9, 100)), (shown.to_vec(), true));
    }

    #[test]
    fn a_time_is_known_when_the_notes_up_to_it_and_a_little_more_are_here() {
        let journal = Journal::linked(Seal::random(), 0..1, false);
        assert!(journal.knows(SECOND));
        journal.known_until(1_000_000);
        assert!(!journal.knows(SECOND) && journal.knows(SECOND / 2));
        journal.hear(&Note(u64::MAX, u16::MAX, u64::MAX, 0));
        assert_eq!(journal.take_shown(), [], "nonsense of another end does nothing");
    }

    #[test]
    fn a_transaction_of_nobody_has_no_slot() {
        let journal = Journal::new(Seal::random(), 1, false);
        journal.open(u64::MAX, true);
        assert_eq!((journal.deeds(u64::MAX), journal.was_under_way(u64::MAX, SECOND)), (None, false));
    }
}
