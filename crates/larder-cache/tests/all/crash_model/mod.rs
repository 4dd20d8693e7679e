//! The answers that a store may give after what was asked of it: the law of its bytes, and a model of what was put,
//! replaced, synced and purged.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use bytes::Bytes;
use larder_cache::store::rules::{Force, Rule, Scope, Verdict};
use larder_cache::store::{BLOCK_BYTES, DiskHead, HeadToStore, INLINE_BYTES_MAX, ObjectId};

/// Draws by a seed (SplitMix64).
pub struct Draw(pub u64);

impl Draw {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Keys of a run.
pub const KEYS: u64 = 24;
/// Variants of a key.
pub const VARIANTS: u64 = 2;

/// The text of a key.
pub fn key_text(key: u64) -> Bytes {
    format!("http://h{}.example/{}/{key}", key % 3, key % 4).into()
}

/// Beginnings of some keys.
pub fn prefix(number: u64) -> Box<[u8]> {
    match number % 2 {
        0 => format!("http://h{}.example/", number % 3),
        _ => format!("http://h{}.example/{}/", number % 3, number % 4),
    }
    .into_bytes()
    .into()
}

/// The tags of a key.
pub fn tags(key: u64) -> Vec<u64> {
    vec![key % 5, 1000 + key % 2]
}

/// The length of the body of a representation.
pub fn body_bytes(id: ObjectId) -> u64 {
    let drawn = mix(id.0 ^ 0x5eed);
    match drawn >> 56 {
        0..=150 => (drawn & 0xffff) % 3000,
        151..=215 => (drawn & 0xff_ffff) % (INLINE_BYTES_MAX as u64 + 1),
        _ => INLINE_BYTES_MAX as u64 + 1 + (drawn & 0xff_ffff) % 200_000,
    }
}

/// Whether the body lies with the head.
pub fn is_inline(id: ObjectId) -> bool {
    body_bytes(id) <= INLINE_BYTES_MAX as u64
}

/// The bytes of a representation, which no other has.
pub fn body(id: ObjectId, range: Range<u64>) -> Bytes {
    let mut bytes = Vec::with_capacity((range.end - range.start) as usize + 16);
    for word in range.start / 8..range.end.div_ceil(8) {
        bytes.extend_from_slice(&mix(id.0.rotate_left(32) ^ word).to_le_bytes());
    }
    let skipped = (range.start % 8) as usize;
    Bytes::from(bytes).slice(skipped..skipped + (range.end - range.start) as usize)
}

/// A head that was given to the store.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// Which of all; later ones have higher numbers.
    pub order: u64,
    pub key: u64,
    pub variant: u64,
    pub id: ObjectId,
    pub epoch: u64,
}

impl Attempt {
    /// As the law wants it.
    pub fn head(&self) -> HeadToStore {
        let length = body_bytes(self.id);
        let whole = is_inline(self.id).then(|| vec![body(self.id, 0..length / 3), body(self.id, length / 3..length)]);
        HeadToStore {
            key: key_text(self.key),
            variant: self.variant,
            id: self.id,
            epoch: self.epoch,
            length: Some(length),
            tags: tags(self.key),
            meta: format!("{} {}", self.order, "m".repeat((self.order % 50) as usize)).into(),
            body: whole,
        }
    }

    fn slot(&self) -> (u64, u64) {
        (self.key, self.variant)
    }

    fn is_in(&self, scope: &Scope) -> bool {
        match scope {
            Scope::All => true,
            Scope::Prefix(text) => key_text(self.key).starts_with(text),
            Scope::Tag(tag) => tags(self.key).contains(tag),
        }
    }

    /// The verdict of rules on it.
    fn verdict(&self, rules: &[Rule]) -> Verdict {
        let matching = rules.iter().filter(|rule| rule.number > self.epoch && self.is_in(&rule.scope));
        let verdict = |rule: &Rule| if rule.force == Force::Hard { Verdict::Gone } else { Verdict::Stale };
        matching.map(verdict).max().unwrap_or(Verdict::Valid)
    }
}

type Slot = (u64, u64);
/// The ranges that are there of the blocks of bodies.
type Pieces = HashMap<(ObjectId, u64), Vec<Range<u64>>>;

/// The requests to the store, and its replies.
#[derive(Clone, Default)]
pub struct Model {
    /// By order.
    attempts: BTreeMap<u64, Attempt>,
    /// The records that a look-up may find without a start in between.
    latest: BTreeMap<Slot, Attempt>,
    /// Nothing older may ever be found.
    floor: HashMap<Slot, u64>,
    /// Records that are on disk and go only by eviction, replacement or purge.
    synced: BTreeMap<Slot, u64>,
    pieces: Pieces,
    synced_pieces: Pieces,
    /// Blocks that were written to since the last sync: which of their pieces count is open until the next one.
    unsettled: HashSet<(ObjectId, u64)>,
    /// Orders whose removal was acknowledged, and whose removal was asked for.
    dead: HashSet<u64>,
    perhaps_dead: HashSet<u64>,
    acknowledged: Vec<Rule>,
    asked: Vec<Rule>,
    /// The device made errors: what it said of syncs and reads is worth less.
    pub faults: bool,
    /// There was no need to evict anything.
    pub roomy: bool,
    /// The power went while a record was being written: it goes with what it was to replace.
    pub torn: bool,
    /// A file was changed by nobody: what comes back wrongly may do so, as long as it is validated before it is used.
    pub damaged: bool,
    next_order: u64,
}

impl Model {
    pub fn attempt(&mut self, key: u64, variant: u64, id: ObjectId, epoch: u64) -> Attempt {
        self.next_order += 1;
        let attempt = Attempt { order: self.next_order, key, variant, id, epoch };
        self.attempts.insert(attempt.order, attempt);
        attempt
    }

    /// A head is in the store.
    pub fn stored(&mut self, attempt: Attempt) {
        let before = self.latest.insert(attempt.slot(), attempt);
        if before.is_some_and(|before| before.id != attempt.id) {
            self.pieces.retain(|(id, _), _| *id != attempt.id);
        }
    }

    /// A piece of a body is given to the store.
    pub fn asked_piece(&mut self, id: ObjectId, range: &Range<u64>) {
        self.unsettled.extend(by_block(range).map(|(block, _)| (id, block)));
    }

    /// A piece of a body is in the store; it stays as long as its head, or until it is written over.
    pub fn stored_piece(&mut self, id: ObjectId, range: &Range<u64>) {
        if !self.latest.values().any(|latest| latest.id == id) {
            return;
        }
        for (block, part) in by_block(range) {
            let present = self.pieces.entry((id, block)).or_default();
            // A piece that begins where an other one does takes its place, longer or shorter.
            present.retain(|each| each.end <= part.start || each.start >= part.end);
            present.push(part);
        }
    }

    /// A long body whose head is in the store, and one that a later head may be put for.
    pub fn some_latest(&self, draw: &mut Draw, long: bool) -> Option<Attempt> {
        let fitting: Vec<&Attempt> = self.latest.values().filter(|each| !long || !is_inline(each.id)).collect();
        fitting.get(draw.below(fitting.len() as u64) as usize).map(|each| **each)
    }

    pub fn synced(&mut self) {
        if self.faults {
            return;
        }
        for (slot, latest) in &self.latest {
            self.floor.insert(*slot, latest.order);
            self.synced.insert(*slot, latest.order);
        }
        self.synced_pieces = self.pieces.clone();
        self.unsettled.clear();
    }

    /// A removal by key, of one representation or all. Where one was not found, a start may do without the others too.
    pub fn killed(&mut self, key: u64, id: Option<ObjectId>, acknowledged: bool, found: bool) {
        if !found {
            let others = self.attempts.values().filter(|each| each.key == key);
            self.perhaps_dead.extend(others.map(|each| each.order));
        }
        let hit = |each: &Attempt| each.key == key && id.is_none_or(|id| each.id == id);
        let orders: Vec<u64> = self.attempts.values().filter(|each| hit(each)).map(|each| each.order).collect();
        self.perhaps_dead.extend(&orders);
        if acknowledged {
            self.dead.extend(&orders);
        }
        self.latest.retain(|_, each| !hit(each));
    }

    pub fn ruled(&mut self, rule: Rule, acknowledged: bool) {
        if acknowledged {
            self.acknowledged.push(rule.clone());
        }
        self.asked.push(rule);
    }

    /// A start: what was only in memory is not known any more.
    pub fn restarted(&mut self) {
        self.latest.clear();
        self.synced_pieces.retain(|block, _| !self.unsettled.contains(block));
        self.unsettled.clear();
        self.pieces = self.synced_pieces.clone();
    }

    /// Judges what a look-up found for a key, and gives what it was.
    pub fn judge(&mut self, key: u64, found: &[DiskHead], started: bool) -> Vec<Attempt> {
        let seen: Vec<Attempt> = found.iter().map(|head| self.judge_head(key, head, started)).collect();
        for (at, each) in seen.iter().enumerate() {
            assert!(seen[..at].iter().all(|other| other.variant != each.variant), "two heads of {:?}", each.slot());
        }
        if started && self.torn {
            let replaced =
                |slot: &Slot, least: u64| self.attempts.range(least + 1..).any(|(_, each)| each.slot() == *slot);
            let found = |slot: &Slot| seen.iter().any(|each| each.slot() == *slot);
            self.synced.retain(|slot, least| slot.0 != key || found(slot) || !replaced(slot, *least));
        }
        for variant in 0..VARIANTS {
            self.judge_presence((key, variant), seen.iter().find(|each| each.variant == variant), started);
        }
        if started {
            for each in &seen {
                self.latest.insert(each.slot(), *each);
                self.floor.insert(each.slot(), each.order);
            }
        }
        seen
    }

    fn judge_head(&self, key: u64, found: &DiskHead, started: bool) -> Attempt {
        let order = std::str::from_utf8(&found.meta).ok().and_then(|meta| meta.split(' ').next()?.parse().ok());
        let order = order.unwrap_or_else(|| panic!("mixed bytes in the meta of key {key}: {:?}", found.meta));
        let attempt = self.attempts.get(&order).unwrap_or_else(|| panic!("a head that nobody put: {found:?}"));
        let law = attempt.head();
        assert_eq!(
            (&found.key, found.variant, found.id, found.epoch, found.length, &found.tags, &found.meta),
            (&law.key, law.variant, law.id, law.epoch, law.length, &law.tags, &law.meta),
            "mixed or wrong bytes in a head"
        );
        assert_eq!(attempt.key, key, "a head under another key");
        assert_eq!(found.body, law.body.map(|parts| parts.concat().into()), "wrong bytes in the body of {attempt:?}");
        if self.damaged && found.verdict == Verdict::Validate {
            return *attempt;
        }
        assert!(!self.dead.contains(&order), "{attempt:?} was purged and acknowledged");
        let verdict = attempt.verdict(&self.acknowledged);
        assert!(verdict != Verdict::Gone, "{attempt:?} was invalidated and acknowledged");
        assert!(found.verdict >= verdict, "{attempt:?} is said to be {:?} and is {verdict:?}", found.verdict);
        let floor = self.floor.get(&attempt.slot()).copied().unwrap_or(0);
        assert!(order >= floor, "{attempt:?} was replaced by {floor}");
        if !started {
            let latest = self.latest.get(&attempt.slot()).map(|latest| latest.order);
            assert_eq!(latest, Some(order), "{attempt:?} is not the latest");
        }
        *attempt
    }

    /// A record on disk is there after a start; one that is stored is there until then.
    fn judge_presence(&self, slot: Slot, seen: Option<&Attempt>, started: bool) {
        if self.faults || self.damaged || !self.roomy {
            return;
        }
        let least =
            if started { self.synced.get(&slot).copied() } else { self.latest.get(&slot).map(|each| each.order) };
        let Some(least) = least else { return };
        let perhaps_void =
            |each: &Attempt| self.perhaps_dead.contains(&each.order) || each.verdict(&self.asked) == Verdict::Gone;
        let candidates = self.attempts.range(least..).map(|(_, each)| each).filter(|each| each.slot() == slot);
        if candidates.into_iter().any(perhaps_void) {
            return;
        }
        assert!(seen.is_some_and(|seen| seen.order >= least), "{slot:?}: {least} was on disk, and {seen:?} is there");
    }

    /// Judges what was read of a body.
    pub fn judge_pieces(&self, attempt: &Attempt, found: &[(u64, Bytes)], started: bool) {
        let mut present: Vec<Range<u64>> = Vec::new();
        for (at, bytes) in found {
            let range = *at..at + bytes.len() as u64;
            assert!(range.end <= body_bytes(attempt.id), "{attempt:?}: a body that is too long");
            assert_eq!(bytes, &body(attempt.id, range.clone()), "wrong bytes in the body of {attempt:?}");
            present.push(range);
        }
        if self.faults || self.damaged || !self.roomy {
            return;
        }
        let same_head = self.synced.get(&attempt.slot()).is_some_and(|order| self.attempts[order].id == attempt.id);
        if started && !same_head {
            return;
        }
        for (_, ranges) in self.pieces.iter().filter(|((id, _), _)| *id == attempt.id) {
            for range in ranges {
                let missing = uncovered(range.clone(), &present);
                assert_eq!(missing, 0, "{attempt:?}: bytes of {range:?} are lost; there are {present:?}");
            }
        }
    }
}

fn by_block(range: &Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> {
    let (start, end) = (range.start, range.end);
    (start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES))
        .map(move |block| (block, start.max(block * BLOCK_BYTES)..end.min((block + 1) * BLOCK_BYTES)))
}

/// How many bytes of a range are in none of others.
fn uncovered(range: Range<u64>, others: &[Range<u64>]) -> u64 {
    let mut sorted = others.to_vec();
    sorted.sort_by_key(|each| each.start);
    let (mut at, mut missing) = (range.start, 0);
    for each in sorted {
        if each.start > at {
            missing += each.start.min(range.end).saturating_sub(at);
        }
        at = at.max(each.end);
        if at >= range.end {
            return missing;
        }
    }
    missing + range.end.saturating_sub(at)
}
