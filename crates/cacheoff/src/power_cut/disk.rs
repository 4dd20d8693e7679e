//! A disk with a write cache, in memory: what was written is durable after a flush. When the power goes, each write since
//! the last flush is kept, lost or torn between two sectors, as a seed draws; a disk promises no order among them.

use crate::random::Stream;
use std::collections::BTreeMap;

/// The unit that a disk writes whole or not at all.
pub const SECTOR: usize = 512;
const PAGE: usize = 4_096;
/// A write cache is as large as that of a drive; what does not fit is written to the medium, the oldest first.
const UNSYNCED_BYTES_MAX: usize = 64 << 20;

type Page = Box<[u8; PAGE]>;

/// The disk.
pub struct Disk {
    bytes: u64,
    /// As a reader sees it.
    pages: BTreeMap<u64, Page>,
    /// The durable bytes of pages that were written since the last flush; `None` for zeros.
    durable: BTreeMap<u64, Option<Page>>,
    unsynced: Vec<Write>,
    unsynced_bytes: usize,
    flushes: u64,
    has_power: bool,
}

struct Write {
    offset: u64,
    data: Vec<u8>,
}

/// The fate of the writes since the last flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    /// On the medium.
    pub kept: u64,
    /// Gone.
    pub lost: u64,
    /// Some sectors of them are on the medium.
    pub torn: u64,
    /// Bytes that did not reach the medium.
    pub lost_bytes: u64,
    /// Flushes before that.
    pub flushes: u64,
}

/// The disk has no power, or the place does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dead;

impl Disk {
    /// An empty one.
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            pages: BTreeMap::new(),
            durable: BTreeMap::new(),
            unsynced: Vec::new(),
            unsynced_bytes: 0,
            flushes: 0,
            has_power: true,
        }
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads what was written last.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Dead> {
        self.check(offset, out.len())?;
        for (page, at, place) in spans(offset, out.len()) {
            let out = &mut out[place.clone()];
            match self.pages.get(&page) {
                Some(bytes) => out.copy_from_slice(&bytes[at..at + place.len()]),
                None => out.fill(0),
            }
        }
        Ok(())
    }

    /// Takes a write into the write cache.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Dead> {
        self.check(offset, data.len())?;
        for (page, at, place) in spans(offset, data.len()) {
            let before = self.pages.get(&page).cloned();
            self.durable.entry(page).or_insert(before);
            let bytes = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE]));
            bytes[at..at + place.len()].copy_from_slice(&data[place]);
        }
        self.unsynced.push(Write { offset, data: data.to_vec() });
        self.unsynced_bytes += data.len();
        if self.unsynced_bytes > UNSYNCED_BYTES_MAX {
            self.destage();
        }
        Ok(())
    }

    /// Everything that was written is durable.
    pub fn flush(&mut self) -> Result<(), Dead> {
        self.check(0, 0)?;
        self.durable.clear();
        self.unsynced.clear();
        self.unsynced_bytes = 0;
        self.flushes += 1;
        Ok(())
    }

    /// The power goes: nothing is read or written from here on.
    pub fn cut(&mut self, seed: u64) -> Fates {
        let mut draw = Stream::named(seed, "power cut");
        let mut fates = Fates { flushes: self.flushes, ..Fates::default() };
        for write in std::mem::take(&mut self.unsynced) {
            let sectors = write.data.len().div_ceil(SECTOR);
            match draw.below(3) {
                0 => {
                    self.store(write.offset, &write.data);
                    fates.kept += 1;
                }
                // A torn write: a part from its beginning, or from some sector to its end.
                1 if sectors > 1 => {
                    let cut = (1 + draw.below(sectors as u64 - 1) as usize) * SECTOR;
                    let part = if draw.chance(0.5) { 0..cut } else { cut..write.data.len() };
                    self.store(write.offset + part.start as u64, &write.data[part.clone()]);
                    fates.torn += 1;
                    fates.lost_bytes += (write.data.len() - part.len()) as u64;
                }
                _ => {
                    fates.lost += 1;
                    fates.lost_bytes += write.data.len() as u64;
                }
            }
        }
        for (page, bytes) in std::mem::take(&mut self.durable) {
            match bytes {
                Some(bytes) => drop(self.pages.insert(page, bytes)),
                None => drop(self.pages.remove(&page)),
            }
        }
        (self.unsynced_bytes, self.has_power) = (0, false);
        fates
    }

    /// The power is back.
    pub fn power_on(&mut self) {
        self.has_power = true;
    }

    /// The oldest half of the write cache reaches the medium.
    fn destage(&mut self) {
        let half = self.unsynced.len() / 2;
        let oldest: Vec<Write> = self.unsynced.drain(..half.max(1)).collect();
        for write in oldest {
            self.unsynced_bytes -= write.data.len();
            self.store(write.offset, &write.data);
        }
    }

    /// Makes bytes durable in pages that were written since the last flush.
    fn store(&mut self, offset: u64, data: &[u8]) {
        for (page, at, place) in spans(offset, data.len()) {
            if let Some(durable) = self.durable.get_mut(&page) {
                let bytes = durable.get_or_insert_with(|| Box::new([0; PAGE]));
                bytes[at..at + place.len()].copy_from_slice(&data[place]);
            }
        }
    }

    fn check(&self, offset: u64, length: usize) -> Result<(), Dead> {
        let end = offset.checked_add(length as u64);
        if self.has_power && end.is_some_and(|end| end <= self.bytes) { Ok(()) } else { Err(Dead) }
    }
}

/// The pages under some bytes: the page, where in it, which of the bytes.
fn spans(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done >= length {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % PAGE as u64) as usize;
        let place = done..length.min(done + PAGE - within);
        done = place.end;
        Some((at / PAGE as u64, within, place))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(disk: &Disk, offset: u64, length: usize) -> Vec<u8> {
        let mut out = vec![9; length];
        disk.read(offset, &mut out).unwrap();
        out
    }

    #[test]
    fn flushed_bytes_survive_every_cut_and_others_are_old_or_new_by_sectors() {
        let (mut kept, mut lost, mut torn) = (0, 0, 0);
        for seed in 0..200 {
            let mut disk = Disk::new(1 << 20);
            disk.write(1_000, &[1; 10_000]).unwrap();
            disk.write(40_960, &[1; 4_096]).unwrap();
            disk.flush().unwrap();
            disk.write(40_960, &[2; 4_096]).unwrap();
            disk.write(81_920, &[3; 512]).unwrap();
            assert_eq!(read(&disk, 40_960, 4_096), [2; 4_096]);
            let fates = disk.cut(seed);
            assert_eq!((fates.kept + fates.lost + fates.torn, fates.flushes), (2, 1));
            assert_eq!(disk.read(0, &mut [0; 1]), Err(Dead));
            assert_eq!((disk.write(0, &[1]), disk.flush()), (Err(Dead), Err(Dead)));
            disk.power_on();
            assert_eq!(read(&disk, 1_000, 10_000), [1; 10_000]);
            assert_eq!(read(&disk, 0, 1_000), [0; 1_000]);
            let found = read(&disk, 40_960, 4_096);
            let sectors: Vec<u8> = found.chunks(SECTOR).map(|sector| sector[0]).collect();
            assert!(found.chunks(SECTOR).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
            match (sectors.contains(&1), sectors.contains(&2)) {
                (false, true) => kept += 1,
                (true, false) => lost += 1,
                _ => torn += 1,
            }
            let one = read(&disk, 81_920, 512);
            assert!(one == [0; 512] || one == [3; 512], "a sector is never torn");
        }
        assert!(kept > 30 && lost > 30 && torn > 30, "{kept} {lost} {torn}");
    }

    #[test]
    fn a_full_write_cache_makes_room_and_the_oldest_writes_are_durable() {
        let mut disk = Disk::new(256 << 20);
        let piece = vec![7; 1 << 20];
        for number in 0..80 {
            disk.write(number << 20, &piece).unwrap();
        }
        assert!(disk.unsynced_bytes <= UNSYNCED_BYTES_MAX);
        let fates = disk.cut(1);
        disk.power_on();
        assert!(fates.kept + fates.lost + fates.torn < 80);
        assert_eq!(read(&disk, 0, 1 << 20), piece);
        assert!(fates.lost_bytes > 0);
    }

    #[test]
    fn places_beyond_the_end_do_not_exist() {
        let mut disk = Disk::new(4_096);
        assert_eq!(disk.write(4_000, &[0; 97]), Err(Dead));
        assert_eq!(disk.read(u64::MAX, &mut [0; 2]), Err(Dead));
        disk.write(4_000, &[5; 96]).unwrap();
        assert_eq!(read(&disk, 3_999, 97)[1..], [5; 96]);
    }
}
