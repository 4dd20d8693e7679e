//! The files that make a folder a store: the superblock (`larder.store`), and the numbers that are never given twice
//! (`larder.numbers`). How a folder is judged when it is opened stands in [`super::log`].

use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSlice};

use crc32c::crc32c;

use super::medium::Medium;
use super::record::{u32_at, u64_at};

/// The file of the superblock.
pub const SUPERBLOCK_NAME: &str = "larder.store";
/// The file of the numbers.
pub const NUMBERS_NAME: &str = "larder.numbers";
/// The format that is written, and the newest that is read.
pub const FORMAT_VERSION: u32 = 1;
/// The smallest segment.
pub const SEGMENT_BYTES_MIN: u64 = 256 << 10;
/// The largest segment.
pub const SEGMENT_BYTES_MAX: u64 = 8 << 20;

const SUPERBLOCK_BYTES: usize = 64;
const SUPERBLOCK_MAGIC: [u8; 8] = *b"larder\x01\n";

/// The facts that are fixed for the life of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Tells one store from another.
    pub uuid: u128,
    /// The seed of all its hashes.
    pub hash_seed: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
}

impl Identity {
    /// A new store.
    pub fn draw(segment_bytes: u64) -> Identity {
        let draw = |what: &str| RandomState::new().hash_one(what);
        let uuid = u128::from(draw("high")) << 64 | u128::from(draw("low"));
        Identity { uuid, hash_seed: draw("seed"), segment_bytes }
    }

    /// Into 32 bytes.
    pub(super) fn write(&self, into: &mut [u8]) {
        into[0..16].copy_from_slice(&self.uuid.to_le_bytes());
        into[16..24].copy_from_slice(&self.hash_seed.to_le_bytes());
        into[24..32].copy_from_slice(&self.segment_bytes.to_le_bytes());
    }

    /// From 32 bytes; `None` if no store has such.
    pub(super) fn read(bytes: &[u8]) -> Option<Identity> {
        let uuid = u128::from(u64_at(bytes, 0)) | u128::from(u64_at(bytes, 8)) << 64;
        let segment_bytes = u64_at(bytes, 24);
        let known = SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX;
        let sound = segment_bytes.is_power_of_two() && known.contains(&segment_bytes);
        sound.then_some(Identity { uuid, hash_seed: u64_at(bytes, 16), segment_bytes })
    }
}

/// The outcome of reading a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Superblock {
    /// There is none.
    Absent,
    /// One that is understood.
    Known(Identity),
    /// One of a later format.
    Future(u32),
    /// Not what was written.
    Damaged,
}

impl Superblock {
    /// Reads the one of a folder.
    pub fn read(medium: &dyn Medium, names: &[String]) -> io::Result<Superblock> {
        if !names.iter().any(|name| name == SUPERBLOCK_NAME) {
            return Ok(Superblock::Absent);
        }
        let mut bytes = [0; SUPERBLOCK_BYTES];
        let count = medium.open(SUPERBLOCK_NAME)?.read_at(0, &mut bytes)?;
        // Every version keeps magic, version and checksum where they are.
        if count < SUPERBLOCK_BYTES || bytes[..8] != SUPERBLOCK_MAGIC || u32_at(&bytes, 60) != crc32c(&bytes[..60]) {
            return Ok(Superblock::Damaged);
        }
        let version = u32_at(&bytes, 8);
        if version > FORMAT_VERSION {
            return Ok(Superblock::Future(version));
        }
        Ok(Identity::read(&bytes[12..44]).map_or(Superblock::Damaged, Superblock::Known))
    }

    /// Writes one, on disk when it returns.
    pub fn write(medium: &dyn Medium, identity: &Identity) -> io::Result<()> {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes[..8].copy_from_slice(&SUPERBLOCK_MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        identity.write(&mut bytes[12..44]);
        let crc = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        let file = medium.open(SUPERBLOCK_NAME)?;
        file.write_at(0, &[IoSlice::new(&bytes)])?;
        file.sync()?;
        medium.sync_names()
    }
}

/// Ids and segment sequences that this opening may give; those of the next begin above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// The next id.
    pub id: u64,
    /// The next sequence.
    pub sequence: u64,
    /// The next invalidation rule.
    pub rule: u64,
}

/// Ids set aside for one opening: more than any run gives.
pub const IDS_PER_OPENING: u64 = 1 << 40;
const SEQUENCES_PER_OPENING: u64 = 1 << 32;
/// A rule that was lost before it was acknowledged leaves heads behind that say they are younger than it.
const RULES_PER_OPENING: u64 = 1 << 32;
/// Two copies, written in turn, in pages of their own: one is always whole.
const COPY_BYTES: u64 = 4096;
const NUMBERS_BYTES: usize = 40;
const NUMBERS_MAGIC: u32 = 0x4e52_644c;

impl Numbers {
    /// Sets the numbers of this opening aside. `None`: what is there is damaged, and what was given is to be found out.
    pub fn take(medium: &dyn Medium, names: &[String]) -> io::Result<Option<Numbers>> {
        if !names.iter().any(|name| name == NUMBERS_NAME) {
            return Ok(None);
        }
        let copies = [read_copy(medium, 0)?, read_copy(medium, 1)?];
        let Some(newest) = copies.iter().flatten().max_by_key(|numbers| numbers.id) else { return Ok(None) };
        let other = if copies[0] == Some(*newest) { 1 } else { 0 };
        if copies[other as usize].is_some() {
            newest.set_aside(medium, other)?;
            return Ok(Some(*newest));
        }
        // The other copy may have been the newer one; one opening's numbers are left out.
        newest.take_above(medium).map(Some)
    }

    /// Sets numbers aside above all that are known to have been given.
    pub fn take_above(self, medium: &dyn Medium) -> io::Result<Numbers> {
        let numbers = self.of_next_opening();
        numbers.write(medium)?;
        Ok(numbers)
    }

    /// The higher of each.
    pub(super) fn max(self, other: Numbers) -> Numbers {
        Numbers {
            id: self.id.max(other.id),
            sequence: self.sequence.max(other.sequence),
            rule: self.rule.max(other.rule),
        }
    }

    pub(super) fn write(&self, medium: &dyn Medium) -> io::Result<()> {
        self.set_aside(medium, 0)?;
        self.set_aside(medium, 1)
    }

    pub(super) fn of_next_opening(self) -> Numbers {
        Numbers {
            id: self.id.saturating_add(IDS_PER_OPENING),
            sequence: self.sequence.saturating_add(SEQUENCES_PER_OPENING),
            rule: self.rule.saturating_add(RULES_PER_OPENING),
        }
    }

    /// The next opening begins above what this one may give.
    fn set_aside(&self, medium: &dyn Medium, copy: u64) -> io::Result<()> {
        let next = self.of_next_opening();
        let mut bytes = [0; NUMBERS_BYTES];
        bytes[0..4].copy_from_slice(&NUMBERS_MAGIC.to_le_bytes());
        bytes[8..16].copy_from_slice(&next.id.to_le_bytes());
        bytes[16..24].copy_from_slice(&next.sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&next.rule.to_le_bytes());
        let crc = crc32c(&bytes[..36]);
        bytes[36..].copy_from_slice(&crc.to_le_bytes());
        let file = medium.open(NUMBERS_NAME)?;
        file.write_at(copy * COPY_BYTES, &[IoSlice::new(&bytes)])?;
        file.sync()?;
        medium.sync_names()
    }
}

fn read_copy(medium: &dyn Medium, copy: u64) -> io::Result<Option<Numbers>> {
    let mut bytes = [0; NUMBERS_BYTES];
    let count = medium.open(NUMBERS_NAME)?.read_at(copy * COPY_BYTES, &mut bytes)?;
    let sound =
        count == NUMBERS_BYTES && u32_at(&bytes, 0) == NUMBERS_MAGIC && u32_at(&bytes, 36) == crc32c(&bytes[..36]);
    Ok(sound.then(|| Numbers { id: u64_at(&bytes, 8), sequence: u64_at(&bytes, 16), rule: u64_at(&bytes, 24) }))
}

#[cfg(test)]
mod tests {
    use super::super::medium::Files;
    use super::*;

    fn damage(medium: &dyn Medium, name: &str, at: u64) {
        medium.open(name).unwrap().write_at(at, &[IoSlice::new(b"?!")]).unwrap();
    }

    #[test]
    fn a_superblock_is_known_damaged_or_of_the_future() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::take(folder.path()).unwrap();
        let read = || Superblock::read(&files, &files.list().unwrap()).unwrap();
        assert_eq!(read(), Superblock::Absent);
        let identity = Identity::draw(1 << 20);
        Superblock::write(&files, &identity).unwrap();
        assert_eq!(read(), Superblock::Known(identity));
        let mut bytes = [0; SUPERBLOCK_BYTES];
        let file = files.open(SUPERBLOCK_NAME).unwrap();
        file.read_at(0, &mut bytes).unwrap();
        bytes[8] = 2;
        let crc = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        file.write_at(0, &[IoSlice::new(&bytes)]).unwrap();
        assert_eq!(read(), Superblock::Future(2));
        damage(&files, SUPERBLOCK_NAME, 20);
        assert_eq!(read(), Superblock::Damaged);
    }

    #[test]
    fn numbers_are_never_given_twice() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::take(folder.path()).unwrap();
        let take = || Numbers::take(&files, &files.list().unwrap()).unwrap();
        assert_eq!(take(), None);
        let mut before = Numbers::default().take_above(&files).unwrap();
        for _ in 0..5 {
            let now = take().unwrap();
            assert!(now.id >= before.id + IDS_PER_OPENING && now.sequence >= before.sequence + SEQUENCES_PER_OPENING);
            before = now;
        }
        for copy in [0, COPY_BYTES, 0] {
            damage(&files, NUMBERS_NAME, copy + 8);
            let now = take().unwrap();
            assert!(now.id >= before.id + IDS_PER_OPENING);
            before = now;
        }
        damage(&files, NUMBERS_NAME, 8);
        damage(&files, NUMBERS_NAME, COPY_BYTES + 8);
        assert_eq!(take(), None);
    }
}
