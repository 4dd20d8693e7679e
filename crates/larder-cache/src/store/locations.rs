//! Where records lie: the index, 16 bytes a record, in shards with a lock each.
//!
//! A name is 48 bits of a hash and a tag of 16 bits. Heads are named by their key, with the variant as the tag;
//! extents by id and block, with the offset in the block as the tag. Several slots may have one name's hash. A
//! name is a hint: what a slot leads to is verified where it is read. Locks are held for a probe, never across I/O.

use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::RwLock;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::record::Kind;
use super::{BLOCK_BYTES, ObjectId};

/// A record's name and place, in 128 bits.
///
/// ```text
/// name:  hash 48 | tag 16
/// place: segment 20 | offset 20 (8-byte units) | size 12 (64-byte units, up) | kind 2 | uses 2 | low 8
/// ```
///
/// The low byte of a head is of its id; that of an extent is 6 bits of what the size says too much and 2 of the id, so
/// that the index alone tells which bytes of a body are here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    name: u64,
    place: u64,
}

/// Segments of one folder that the index can name.
pub const SEGMENTS_MAX: u64 = 1 << 20;
/// The longest record that the index can name.
pub const RECORD_BYTES_MAX: u64 = ((1 << 12) - 1) * SIZE_UNIT;
const SIZE_UNIT: u64 = 64;
const OFFSET_UNIT: u64 = 8;
const USES_SHIFT: u32 = 8;
const USES_MASK: u64 = 3 << USES_SHIFT;

impl Location {
    /// Of a record with this name.
    pub fn new(name: Name, kind: Kind, id: u64, segment: u32, offset: u64, bytes: u64) -> Location {
        let kind = match kind {
            Kind::Head => 0,
            Kind::WholeHead => 1,
            Kind::Extent => 2,
        };
        let size = bytes.div_ceil(SIZE_UNIT);
        debug_assert!(size < 1 << 12 && offset / OFFSET_UNIT < 1 << 20 && u64::from(segment) < SEGMENTS_MAX);
        let low = match kind {
            2 => (size * SIZE_UNIT - bytes) << 2 | u64::from(id_hash(id) & 3),
            _ => u64::from(id_hash(id)),
        };
        let place = u64::from(segment) << 44 | (offset / OFFSET_UNIT) << 24 | size << 12 | kind << 10 | low;
        Location { name: name.0, place }
    }

    /// The length of an extent's record, exactly.
    pub fn extent_bytes(self) -> u64 {
        self.bytes() - (self.place >> 2 & 0x3f)
    }

    /// The name.
    pub fn name(self) -> Name {
        Name(self.name)
    }

    /// The segment.
    pub fn segment(self) -> u32 {
        (self.place >> 44) as u32
    }

    /// Where the record begins in its segment.
    pub fn offset(self) -> u64 {
        (self.place >> 24 & 0xf_ffff) * OFFSET_UNIT
    }

    /// At least the length of the record, at most 63 bytes more.
    pub fn bytes(self) -> u64 {
        (self.place >> 12 & 0xfff) * SIZE_UNIT
    }

    /// The kind of the record.
    pub fn kind(self) -> Kind {
        match self.place >> 10 & 3 {
            0 => Kind::Head,
            1 => Kind::WholeHead,
            _ => Kind::Extent,
        }
    }

    /// How often it was used since it was written; 3 stands for more.
    pub fn uses(self) -> u8 {
        ((self.place & USES_MASK) >> USES_SHIFT) as u8
    }

    /// Whether it can be of this representation: a head of another one passes once in 256, an extent of a block with the
    /// same name once in 4.
    pub fn may_be_of(self, id: ObjectId) -> bool {
        (self.place as u8 ^ id_hash(id.0)) & self.id_mask() == 0
    }

    /// Whether both can be of one representation.
    pub fn may_be_of_same_id(self, other: Location) -> bool {
        (self.place as u8 ^ other.place as u8) & self.id_mask() & other.id_mask() == 0
    }

    fn id_mask(self) -> u8 {
        if self.kind() == Kind::Extent { 3 } else { u8::MAX }
    }

    /// For a summary on disk: without segment and uses.
    pub fn to_bytes(self) -> [u8; 16] {
        let place = self.place & !(0xf_ffff << 44) & !USES_MASK;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.name.to_le_bytes());
        bytes[8..].copy_from_slice(&place.to_le_bytes());
        bytes
    }

    /// From a summary on disk.
    pub fn from_bytes(bytes: &[u8; 16], segment: u32) -> Location {
        let (name, place) = bytes.split_at(8);
        let number = |half: &[u8]| super::record::u64_at(half, 0);
        let place = number(place) & !(0xf_ffff << 44) & !USES_MASK | u64::from(segment) << 44;
        Location { name: number(name), place }
    }

    /// Whether both say the same of one record, uses aside.
    pub fn same_record(self, other: Location) -> bool {
        self.name == other.name && (self.place | USES_MASK) == (other.place | USES_MASK)
    }

    fn same_class(self, other: Location) -> bool {
        (self.kind() == Kind::Extent) == (other.kind() == Kind::Extent)
    }
}

/// Ids of one representation are dense, so the low byte would do; multiplied, so that it does with any law of ids.
fn id_hash(id: u64) -> u8 {
    (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// The name of a record in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name(pub u64);

impl Name {
    /// The name of a head.
    pub fn of_head(key_hash: u64, variant: u64) -> Name {
        let tag = variant ^ variant >> 16 ^ variant >> 32 ^ variant >> 48;
        Name(key_hash & !0xffff | tag & 0xffff)
    }

    /// The name of an extent record.
    pub fn of_extent(seed: u64, id: ObjectId, offset: u64) -> Name {
        Name(Name::of_block(seed, id, offset / BLOCK_BYTES).0 | (offset % BLOCK_BYTES))
    }

    /// The name of a block; its pieces differ in the tag.
    pub fn of_block(seed: u64, id: ObjectId, block: u64) -> Name {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&id.0.to_le_bytes());
        bytes[8..].copy_from_slice(&block.to_le_bytes());
        Name(xxh3_64_with_seed(&bytes, seed) & !0xffff)
    }

    /// The offset in its block of an extent's name.
    pub fn offset_in_block(self) -> u64 {
        self.0 & 0xffff
    }

    fn hash(self) -> u64 {
        self.0 >> 16
    }
}

struct Slot {
    name: u64,
    place: AtomicU64,
}

impl Slot {
    fn location(&self) -> Location {
        Location { name: self.name, place: self.place.load(Ordering::Relaxed) }
    }
}

/// The index.
pub struct Locations {
    shards: Box<[RwLock<HashTable<Slot>>]>,
    table_bytes: AtomicU64,
}

/// The record that [`Locations::put`] found in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Nothing of this name.
    New,
    /// An older one, which went.
    Replaced(Location),
    /// A newer one, which stays.
    Newer,
}

impl Locations {
    /// An empty one with `shards` shards (a power of two).
    pub fn new(shards: usize) -> Locations {
        let shards = shards.next_power_of_two();
        Locations { shards: (0..shards).map(|_| RwLock::default()).collect(), table_bytes: AtomicU64::new(0) }
    }

    /// Shows the records under the hash of a name, whatever the tag.
    pub fn find(&self, name: Name, mut each: impl FnMut(Location)) {
        let table = self.shard(name).read();
        for slot in table.iter_hash(spread(name.hash())) {
            if slot.name >> 16 == name.hash() {
                each(slot.location());
            }
        }
    }

    /// Whether anything under the hash of a name is such.
    pub fn any(&self, name: Name, mut is: impl FnMut(Location) -> bool) -> bool {
        let table = self.shard(name).read();
        table.iter_hash(spread(name.hash())).any(|slot| slot.name >> 16 == name.hash() && is(slot.location()))
    }

    /// Whether this very record is here, and how it was used.
    pub fn present(&self, location: Location) -> Option<Location> {
        let mut found = None;
        self.find(location.name(), |each| {
            if each.same_record(location) {
                found = Some(each);
            }
        });
        found
    }

    /// Adds a record in place of one with the same name, unless `is_older` says that this one is the older of the two.
    pub fn put(&self, location: Location, is_older: impl Fn(Location) -> bool) -> Before {
        let mut table = self.shard(location.name()).write();
        let before = table.allocation_size();
        let outcome = put_into(&mut table, location, is_older);
        self.note_size(before, table.allocation_size());
        outcome
    }

    /// Adds many records of one shard: a table that stays in the processor's cache takes them several times as fast.
    pub fn put_many(
        &self,
        shard: usize,
        locations: &[Location],
        is_older: impl Fn(Location, Location) -> bool,
        mut each: impl FnMut(Location, Before),
    ) {
        let mut table = self.shards[shard].write();
        let before = table.allocation_size();
        for location in locations {
            let outcome = put_into(&mut table, *location, |old| is_older(*location, old));
            each(*location, outcome);
        }
        self.note_size(before, table.allocation_size());
    }

    fn note_size(&self, before: usize, after: usize) {
        if after != before {
            self.table_bytes.fetch_add((after as u64).wrapping_sub(before as u64), Ordering::Relaxed);
        }
    }

    /// Makes room for so many records in all, unless that takes more than a limit.
    pub fn reserve(&self, records: u64, bytes_max: u64) {
        // Chance fills no shard much more than the others.
        let each = (records + records / 32) / self.shards.len() as u64;
        let buckets = (each * 8 / 7).next_power_of_two();
        if buckets * (size_of::<Slot>() as u64 + 1) * self.shards.len() as u64 > bytes_max {
            return;
        }
        for shard in &self.shards {
            let mut table = shard.write();
            let before = table.allocation_size();
            table.reserve(each as usize, |slot| spread(slot.name >> 16));
            self.note_size(before, table.allocation_size());
        }
    }

    /// Takes this very record out; says whether it was here, and how it was used.
    pub fn remove(&self, location: Location) -> Option<Location> {
        let mut table = self.shard(location.name()).write();
        let hash = spread(location.name().hash());
        let entry = table.find_entry(hash, |slot| slot.location().same_record(location)).ok()?;
        let (slot, _) = entry.remove();
        Some(slot.location())
    }

    /// Counts a use of a record; `true` for the first.
    pub fn count_use(&self, location: Location) -> bool {
        let table = self.shard(location.name()).read();
        let Some(slot) = table.find(spread(location.name().hash()), |slot| slot.location().same_record(location))
        else {
            return false;
        };
        let place = slot.place.load(Ordering::Relaxed);
        if place & USES_MASK == USES_MASK {
            return false;
        }
        let counted = place + (1 << USES_SHIFT);
        // A lost race is a use that was counted by another.
        slot.place.compare_exchange(place, counted, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            && place & USES_MASK == 0
    }

    /// Takes out all that is such by looking at every slot.
    pub fn remove_where(&self, is: impl Fn(Location) -> bool, mut each: impl FnMut(Location)) {
        for shard in &self.shards {
            let gone = shard.write().extract_if(|slot| is(slot.location())).collect::<Vec<_>>();
            gone.iter().for_each(|slot| each(slot.location()));
        }
    }

    /// All of one shard.
    pub fn shard_content(&self, shard: usize) -> Vec<Location> {
        self.shards[shard].read().iter().map(Slot::location).collect()
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// How many records.
    pub fn len(&self) -> u64 {
        self.shards.iter().map(|shard| shard.read().len() as u64).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the index holds on the heap.
    pub fn heap_bytes(&self) -> u64 {
        let shards = self.shards.len() * size_of::<RwLock<HashTable<Slot>>>();
        self.table_bytes.load(Ordering::Relaxed) + shards as u64
    }

    /// Whether one more of this name makes its shard grow, and the index with it beyond a limit.
    pub fn would_pass(&self, name: Name, bytes_max: u64) -> bool {
        self.many_would_pass(self.shard_of(name), 1, bytes_max)
    }

    /// Whether so many more records in one shard would pass this limit.
    pub fn many_would_pass(&self, shard: usize, records: usize, bytes_max: u64) -> bool {
        let used = self.heap_bytes();
        let table = self.shards[shard].read();
        let room = table.capacity() - table.len();
        if records <= room || records == 1 && !must_grow(&table) {
            return false;
        }
        let wanted = (table.len() + records).max(table.num_buckets() / 8 * 7 + 1);
        let buckets = (wanted * 8 / 7 + 1).next_power_of_two().max(4);
        used + (buckets * (size_of::<Slot>() + 1)).saturating_sub(table.allocation_size()) as u64 > bytes_max
    }

    /// The shard of a name.
    pub fn shard_of(&self, name: Name) -> usize {
        (name.0 >> 40) as usize & (self.shards.len() - 1)
    }

    fn shard(&self, name: Name) -> &RwLock<HashTable<Slot>> {
        &self.shards[self.shard_of(name)]
    }
}

fn put_into(table: &mut HashTable<Slot>, location: Location, is_older: impl Fn(Location) -> bool) -> Before {
    if is_full(table) && !must_grow(table) {
        clear_traces(table);
    }
    let same = |slot: &Slot| slot.name == location.name && slot.location().same_class(location);
    match table.entry(spread(location.name().hash()), same, |slot| spread(slot.name >> 16)) {
        Entry::Vacant(vacant) => {
            vacant.insert(Slot { name: location.name, place: AtomicU64::new(location.place) });
            Before::New
        }
        Entry::Occupied(present) if is_older(present.get().location()) => Before::Newer,
        Entry::Occupied(mut present) => {
            let old = present.get().location();
            *present.get_mut().place.get_mut() = location.place;
            Before::Replaced(old)
        }
    }
}

/// Whether one more makes the table order itself anew.
fn is_full(table: &HashTable<Slot>) -> bool {
    table.len() == table.capacity()
}

/// Whether a full table is full of slots; otherwise it is full of the traces that removed ones left.
fn must_grow(table: &HashTable<Slot>) -> bool {
    table.len() >= table.num_buckets() / 8 * 6
}

/// Without this a table that is never more than half full would double because of traces.
fn clear_traces(table: &mut HashTable<Slot>) {
    let mut clear = HashTable::with_capacity(table.num_buckets() / 8 * 7);
    for slot in std::mem::take(table) {
        clear.insert_unique(spread(slot.name >> 16), slot, |slot| spread(slot.name >> 16));
    }
    *table = clear;
}

/// The table takes the place from the low bits and a fingerprint from the high ones.
fn spread(hash: u64) -> u64 {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head(key: u64, variant: u64, segment: u32, offset: u64) -> Location {
        Location::new(Name::of_head(key << 16, variant), Kind::WholeHead, key, segment, offset, 1000)
    }

    #[test]
    fn a_location_says_what_went_in() {
        let name = Name::of_extent(1, ObjectId(5), 3 * BLOCK_BYTES + 77);
        let location = Location::new(name, Kind::Extent, 5, 0xf_fffe, 8_388_600, RECORD_BYTES_MAX);
        assert_eq!((location.segment(), location.offset(), location.bytes()), (0xf_fffe, 8_388_600, RECORD_BYTES_MAX));
        assert_eq!((location.kind(), location.uses(), location.name().offset_in_block()), (Kind::Extent, 0, 77));
        assert!(location.may_be_of(ObjectId(5)) && !location.may_be_of(ObjectId(6)));
        assert!(Location::from_bytes(&location.to_bytes(), 0xf_fffe).same_record(location));
        assert_eq!(Location::new(name, Kind::Head, 5, 0, 8, 65).bytes(), 128);
    }

    #[test]
    fn uses_are_counted_to_three() {
        let index = Locations::new(4);
        let one = head(1, 0, 2, 64);
        index.put(one, |_| false);
        assert_eq!([(); 5].map(|()| index.count_use(one)), [true, false, false, false, false]);
        assert_eq!(index.present(one).map(Location::uses), Some(3));
        assert!(!index.count_use(head(2, 0, 2, 64)));
    }

    #[test]
    fn at_most_48_bytes_an_object_at_every_size() {
        let index = Locations::new(256);
        let mut most = 0.0f64;
        for number in 0..1_000_000u64 {
            let key_hash = xxh3_64_with_seed(&number.to_le_bytes(), 1);
            let name = Name::of_head(key_hash, 0);
            index.put(Location::new(name, Kind::WholeHead, number, 1, 8, 1000), |_| false);
            if number >= 20_000 && number % 1000 == 0 {
                most = most.max(index.heap_bytes() as f64 / (number + 1) as f64);
            }
        }
        assert!(most <= 48.0, "{most}");
        assert_eq!(index.len(), 1_000_000);
    }

    #[test]
    fn a_limit_is_felt_before_it_is_passed() {
        let index = Locations::new(1);
        let mut number = 0;
        while !index.would_pass(head(number, 0, 0, 0).name(), 10_000) {
            index.put(head(number, 0, 1, 0), |_| false);
            number += 1;
            assert!(index.heap_bytes() <= 10_000);
        }
        assert!(number > 200, "{number}");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put { key: u64, variant: u64, segment: u32 },
        Remove { key: u64, variant: u64, segment: u32 },
        Drop { segment: u32 },
    }

    fn step() -> impl Strategy<Value = Step> {
        let of = || (0u64..12, 0u64..3, 0u32..6);
        prop_oneof![
            8 => of().prop_map(|(key, variant, segment)| Step::Put { key, variant, segment }),
            3 => of().prop_map(|(key, variant, segment)| Step::Remove { key, variant, segment }),
            1 => (0u32..6).prop_map(|segment| Step::Drop { segment }),
        ]
    }

    proptest! {
        /// Against a list that is searched from end to end; the higher segment is the newer.
        #[test]
        fn it_is_a_map_of_many(steps in prop::collection::vec(step(), 0..200)) {
            let index = Locations::new(2);
            let mut model: Vec<Location> = Vec::new();
            for step in steps {
                match step {
                    Step::Put { key, variant, segment } => {
                        let new = head(key, variant, segment, 8);
                        let outcome = index.put(new, |old| old.segment() > segment);
                        match model.iter_mut().find(|each| each.name() == new.name()) {
                            None => { model.push(new); prop_assert_eq!(outcome, Before::New) }
                            Some(old) if old.segment() > segment => prop_assert_eq!(outcome, Before::Newer),
                            Some(old) => { prop_assert_eq!(outcome, Before::Replaced(*old)); *old = new }
                        }
                    }
                    Step::Remove { key, variant, segment } => {
                        let wanted = head(key, variant, segment, 8);
                        let had = model.iter().position(|each| each.same_record(wanted));
                        prop_assert_eq!(index.remove(wanted).is_some(), had.is_some());
                        had.map(|at| model.swap_remove(at));
                    }
                    Step::Drop { segment } => {
                        index.remove_where(|each| each.segment() == segment, |_| ());
                        model.retain(|each| each.segment() != segment);
                    }
                }
                for key in 0..12 {
                    let mut found = Vec::new();
                    index.find(head(key, 0, 0, 0).name(), |each| found.push((each.name().0, each.segment())));
                    let under = |each: &&Location| each.name().hash() == key;
                    let mut expected: Vec<_> =
                        model.iter().filter(under).map(|each| (each.name().0, each.segment())).collect();
                    found.sort();
                    expected.sort();
                    prop_assert_eq!(found, expected);
                }
            }
            prop_assert_eq!(index.len(), model.len() as u64);
        }
    }
}
