//! A device in memory that loses what was not synced, for tests of what a power cut leaves behind.
//!
//! Each file has what is on the platter and a list of writes that were not synced. [`SimDevice::crash`] keeps any part
//! of that list: each write whole, not at all, or torn at sectors of 512 bytes; names that were made, changed or removed
//! since the last [`Medium::sync_names`] may be lost, the later ones first. Operations that change something are counted,
//! so that the moment of a crash or of an error is a parameter. One seed gives one device.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::medium::{Medium, MediumFile};

/// A simulated folder. Clones are the same folder.
#[derive(Clone)]
pub struct SimDevice {
    state: Arc<Mutex<State>>,
}

struct State {
    files: Vec<Disk>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Changes of names since they were synced.
    name_changes: Vec<NameChange>,
    room: u64,
    operations: u64,
    syncs: u64,
    bytes_max: u64,
    power_off_at: Option<u64>,
    fault: Option<Fault>,
    /// From this operation on so many panic.
    panics: (u64, u64),
    read_fault: Option<Fault>,
    reads: u64,
    sync_takes: Duration,
}

#[derive(Clone, Default)]
struct Disk {
    /// The bytes that a reader sees.
    content: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write { at: u64, bytes: Vec<u8> },
    Truncate(u64),
    Allocate(u64),
}

#[derive(Clone)]
enum NameChange {
    Made(String, usize),
    Removed(String),
    Renamed(String, String),
}

/// Errors to come.
struct Fault {
    from: u64,
    times: u64,
    kind: io::ErrorKind,
}

/// The unit that a device writes whole or not at all.
const SECTOR_BYTES: u64 = 512;

impl SimDevice {
    /// An empty device with room for so many bytes.
    pub fn new(room: u64) -> SimDevice {
        SimDevice::of(State {
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            name_changes: Vec::new(),
            room,
            operations: 0,
            syncs: 0,
            bytes_max: 0,
            power_off_at: None,
            fault: None,
            panics: (0, 0),
            read_fault: None,
            reads: 0,
            sync_takes: Duration::ZERO,
        })
    }

    fn of(state: State) -> SimDevice {
        SimDevice { state: Arc::new(Mutex::new(state)) }
    }

    /// The device as a power cut leaves it now: what was synced, and an arbitrary part of the rest. This one is unchanged.
    pub fn crash(&self, seed: u64) -> SimDevice {
        let state = self.state.lock();
        let mut draw = Draw(seed);
        let mut names = state.durable_names.clone();
        let kept = draw.below(state.name_changes.len() as u64 + 1) as usize;
        state.name_changes[..kept].iter().for_each(|change| change.apply(&mut names));
        let mut files = Vec::new();
        for index in names.values_mut() {
            let content = state.files[*index].after_crash(&mut draw);
            *index = files.len();
            files.push(Disk { durable: content.clone(), content, pending: Vec::new() });
        }
        let bytes_max = files.iter().map(|file| file.content.len() as u64).sum();
        let fresh = SimDevice::new(state.room);
        *fresh.state.lock() = State {
            files,
            durable_names: names.clone(),
            names,
            name_changes: Vec::new(),
            room: state.room,
            operations: 0,
            syncs: 0,
            bytes_max,
            power_off_at: None,
            fault: None,
            panics: (0, 0),
            read_fault: None,
            reads: 0,
            sync_takes: Duration::ZERO,
        };
        fresh
    }

    /// So many more operations are done; the next one is perhaps begun, and from then on each is an error.
    pub fn power_off_after(&self, operations: u64) {
        let mut state = self.state.lock();
        state.power_off_at = Some(state.operations + operations);
    }

    /// Whether the power is off.
    pub fn is_off(&self) -> bool {
        self.state.lock().is_off()
    }

    /// So many more operations are done, then some are errors of this kind, then all is well again. A write that fails is
    /// done in part; what a failed sync was to bring to the disk may be lost for good.
    pub fn fail_after(&self, operations: u64, kind: io::ErrorKind, times: u64) {
        let mut state = self.state.lock();
        state.fault = Some(Fault { from: state.operations + operations, times, kind });
    }

    /// So many more operations are done, then some panic with nothing done, as a broken invariant of the caller would.
    pub fn panic_after(&self, operations: u64, times: u64) {
        let mut state = self.state.lock();
        state.panics = (state.operations + operations, times);
    }

    /// [`SimDevice::fail_after`] for reads.
    pub fn fail_reads_after(&self, reads: u64, kind: io::ErrorKind, times: u64) {
        let mut state = self.state.lock();
        state.read_fault = Some(Fault { from: state.reads + reads, times, kind });
    }

    /// Each sync of a file lasts so long.
    pub fn sync_takes(&self, time: Duration) {
        self.state.lock().sync_takes = time;
    }

    /// How many operations were done that change something, syncs included.
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// How many syncs of files were done.
    pub fn syncs(&self) -> u64 {
        self.state.lock().syncs
    }

    /// The bytes of all files now.
    pub fn bytes_used(&self) -> u64 {
        self.state.lock().used()
    }

    /// The most that all files ever had.
    pub fn bytes_max(&self) -> u64 {
        self.state.lock().bytes_max
    }

    /// The bytes of a file; none if there is no such file.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let state = self.state.lock();
        state.names.get(name).map(|index| state.files[*index].content.clone()).unwrap_or_default()
    }

    /// The names of all files.
    pub fn names(&self) -> Vec<String> {
        self.state.lock().names.keys().cloned().collect()
    }

    /// Makes a file with this content, on disk.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut state = self.state.lock();
        let index = state.files.len();
        state.files.push(Disk { content: bytes.to_vec(), durable: bytes.to_vec(), pending: Vec::new() });
        state.names.insert(name.into(), index);
        state.durable_names.insert(name.into(), index);
    }
}

impl State {
    fn is_off(&self) -> bool {
        self.power_off_at.is_some_and(|at| self.operations > at)
    }

    /// Counts an operation; says whether it is done, and with what it ends.
    fn operation(&mut self) -> (Done, io::Result<()>) {
        if self.is_off() {
            return (Done::Nothing, Err(io::Error::other("the power is off")));
        }
        self.operations += 1;
        if self.is_off() {
            return (Done::Begun, Err(io::Error::other("the power is off")));
        }
        let (from, times) = self.panics;
        if self.operations > from && times > 0 {
            self.panics = (from, times - 1);
            panic!("a broken invariant, on purpose");
        }
        match fault_now(&mut self.fault, self.operations) {
            Some(kind) => (Done::Part, Err(kind.into())),
            None => (Done::All, Ok(())),
        }
    }

    fn reading(&mut self) -> io::Result<()> {
        self.reads += 1;
        if self.is_off() {
            return Err(io::Error::other("the power is off"));
        }
        fault_now(&mut self.read_fault, self.reads).map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn used(&self) -> u64 {
        self.names.values().map(|index| self.files[*index].content.len() as u64).sum()
    }

    /// Grows a file to a length, if there is room.
    fn grow(&mut self, index: usize, length: u64) -> io::Result<()> {
        let present = self.files[index].content.len() as u64;
        if length <= present {
            return Ok(());
        }
        if self.used() + (length - present) > self.room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.files[index].content.resize(length as usize, 0);
        self.bytes_max = self.bytes_max.max(self.used());
        Ok(())
    }
}

fn fault_now(fault: &mut Option<Fault>, number: u64) -> Option<io::ErrorKind> {
    let due = fault.as_mut().filter(|fault| fault.times > 0 && number > fault.from)?;
    due.times -= 1;
    Some(due.kind)
}

/// How much of an operation is done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    All,
    /// In part: the file shows it.
    Part,
    /// The power went meanwhile: nobody sees it before the next start.
    Begun,
    Nothing,
}

impl Disk {
    /// Everything that waits is on disk.
    fn settle(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            change.apply(&mut self.durable, |_| true);
        }
    }

    fn after_crash(&self, draw: &mut Draw) -> Vec<u8> {
        let mut content = self.durable.clone();
        self.pending.iter().for_each(|change| change.apply_perhaps(&mut content, draw));
        content
    }
}

impl Change {
    fn apply_perhaps(&self, content: &mut Vec<u8>, draw: &mut Draw) {
        let Change::Write { at, bytes } = self else {
            if draw.below(2) == 0 {
                self.apply(content, |_| true);
            }
            return;
        };
        let end = at + bytes.len() as u64;
        // The length of a file may be on disk before its bytes.
        if draw.below(4) == 0 {
            content.resize(content.len().max(end as usize), 0);
        }
        let sectors = end.div_ceil(SECTOR_BYTES) - at / SECTOR_BYTES;
        let limit = draw.below(sectors + 1);
        match draw.below(4) {
            0 => self.apply(content, |_| true),
            1 => {}
            2 => self.apply(content, |sector| sector < limit),
            _ => self.apply(content, |_| draw.below(2) == 0),
        }
    }

    /// Does the change; of a write those sectors that are chosen.
    fn apply(&self, content: &mut Vec<u8>, mut chosen: impl FnMut(u64) -> bool) {
        match self {
            Change::Truncate(length) => content.resize(*length as usize, 0),
            Change::Allocate(length) => content.resize(content.len().max(*length as usize), 0),
            Change::Write { at, bytes } => {
                let mut from = 0;
                for sector in 0.. {
                    if from == bytes.len() {
                        return;
                    }
                    let place = at + from as u64;
                    let part = ((SECTOR_BYTES - place % SECTOR_BYTES) as usize).min(bytes.len() - from);
                    if chosen(sector) {
                        let end = place as usize + part;
                        content.resize(content.len().max(end), 0);
                        content[place as usize..end].copy_from_slice(&bytes[from..from + part]);
                    }
                    from += part;
                }
            }
        }
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            NameChange::Made(name, index) => _ = names.insert(name.clone(), *index),
            NameChange::Removed(name) => _ = names.remove(name),
            NameChange::Renamed(from, to) => {
                if let Some(index) = names.remove(from) {
                    names.insert(to.clone(), index);
                }
            }
        }
    }
}

impl SimDevice {
    fn change_names(&self, change: impl FnOnce(&mut State) -> io::Result<NameChange>) -> io::Result<()> {
        let mut state = self.state.lock();
        let (done, outcome) = state.operation();
        if done == Done::Nothing || done == Done::Part {
            return outcome;
        }
        let change = change(&mut state)?;
        change.apply(&mut state.names);
        state.name_changes.push(change);
        outcome
    }
}

impl Medium for SimDevice {
    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        let present = self.state.lock().names.get(name).copied();
        if present.is_none() {
            self.change_names(|state| {
                state.files.push(Disk::default());
                Ok(NameChange::Made(name.into(), state.files.len() - 1))
            })?;
        }
        let state = self.state.lock();
        if state.is_off() {
            return Err(io::Error::other("the power is off"));
        }
        let index = state.names.get(name).copied().ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(SimFile { state: Arc::clone(&self.state), index }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.state.lock();
        state.reading()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change_names(|state| {
            let present = state.names.contains_key(name);
            present.then(|| NameChange::Removed(name.into())).ok_or_else(|| io::ErrorKind::NotFound.into())
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change_names(|state| {
            let present = state.names.contains_key(from);
            present.then(|| NameChange::Renamed(from.into(), to.into())).ok_or_else(|| io::ErrorKind::NotFound.into())
        })
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let (done, outcome) = state.operation();
        if done == Done::All {
            state.name_changes.clear();
            state.durable_names = state.names.clone();
        }
        outcome
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.state.lock();
        Ok(state.room.saturating_sub(state.used()))
    }
}

struct SimFile {
    state: Arc<Mutex<State>>,
    index: usize,
}

impl SimFile {
    /// Shows a change and puts it on the list of those that are not synced.
    fn change(&self, change: Change, length: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let (done, outcome) = state.operation();
        if done == Done::Nothing {
            return outcome;
        }
        let change = match change {
            Change::Write { at, mut bytes } if done == Done::Part => {
                bytes.truncate(bytes.len() / 2);
                Change::Write { at, bytes }
            }
            _ if done == Done::Part => return outcome,
            whole => whole,
        };
        state.grow(self.index, length)?;
        let file = &mut state.files[self.index];
        change.apply(&mut file.content, |_| true);
        file.pending.push(change);
        outcome
    }
}

impl MediumFile for SimFile {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut state = self.state.lock();
        state.reading()?;
        let content = state.files[self.index].content.get(at as usize..).unwrap_or_default();
        let count = content.len().min(into.len());
        into[..count].copy_from_slice(&content[..count]);
        Ok(count)
    }

    fn read_cached(&self, mut at: u64, into: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        let mut count = 0;
        for piece in into {
            let read = self.read_at(at, piece)?;
            (at, count) = (at + read as u64, count + read);
        }
        Ok(Some(count))
    }

    fn write_at(&self, at: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        let end = at + bytes.len() as u64;
        self.change(Change::Write { at, bytes }, end)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.change(Change::Allocate(len), len)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.change(Change::Truncate(len), len)
    }

    fn sync(&self) -> io::Result<()> {
        let takes = self.state.lock().sync_takes;
        if !takes.is_zero() {
            std::thread::sleep(takes);
        }
        let mut state = self.state.lock();
        let (done, outcome) = state.operation();
        let mut draw = Draw(state.operations);
        state.syncs += 1;
        let file = &mut state.files[self.index];
        match done {
            Done::All => file.settle(),
            // Systems report a failed write-back once and take the pages for clean afterwards.
            Done::Part => {
                file.durable = file.after_crash(&mut draw);
                file.pending.clear();
            }
            Done::Begun | Done::Nothing => {}
        }
        outcome
    }

    fn len(&self) -> io::Result<u64> {
        let state = self.state.lock();
        if state.is_off() {
            return Err(io::Error::other("the power is off"));
        }
        Ok(state.files[self.index].content.len() as u64)
    }
}

/// Draws by a seed (SplitMix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % limit.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(file: &dyn MediumFile, at: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_at(at, &[IoSlice::new(bytes)])
    }

    #[test]
    fn what_is_synced_stays_and_the_rest_is_kept_lost_or_torn() {
        let device = SimDevice::new(1 << 20);
        let file = device.open("a").unwrap();
        device.sync_names().unwrap();
        write(&*file, 0, &[1; 2048]).unwrap();
        file.sync().unwrap();
        write(&*file, 100, &[2; 1500]).unwrap();
        assert_eq!(device.bytes("a")[100], 2, "a reader sees what is not synced");
        let outcomes: Vec<Vec<u8>> = (0..64).map(|seed| device.crash(seed).bytes("a")).collect();
        assert!(outcomes.iter().any(|bytes| *bytes == [1; 2048]), "lost");
        assert!(outcomes.iter().any(|bytes| *bytes == device.bytes("a")), "kept");
        let torn = |bytes: &Vec<u8>| bytes[511] != bytes[512];
        assert!(outcomes.iter().any(torn), "torn");
        for bytes in &outcomes {
            assert!(bytes[..100].iter().chain(&bytes[1600..]).all(|byte| *byte == 1));
            for sector in [100..512, 512..1024, 1024..1536, 1536..1600] {
                assert!(bytes[sector.clone()].iter().all(|byte| *byte == bytes[sector.start]));
            }
        }
        assert_eq!(outcomes[5], device.crash(5).bytes("a"), "the same seed, the same device");
    }

    #[test]
    fn names_are_lost_from_the_last() {
        let device = SimDevice::new(1 << 20);
        device.put("old", b"old");
        device.open("new").unwrap();
        device.rename("new", "old").unwrap();
        device.open("third").unwrap();
        for seed in 0..32 {
            let mut names = device.crash(seed).list().unwrap();
            names.sort();
            let expected: [&[&str]; 3] = [&["old"], &["new", "old"], &["old", "third"]];
            assert!(expected.iter().any(|each| names == *each), "{names:?}");
        }
        device.sync_names().unwrap();
        let crashed = device.crash(1);
        assert_eq!((crashed.list().unwrap().len(), crashed.bytes("old").len()), (2, 0));
    }

    #[test]
    fn the_power_goes_at_a_chosen_operation() {
        let device = SimDevice::new(1 << 20);
        device.put("a", b"");
        let file = device.open("a").unwrap();
        device.power_off_after(2);
        write(&*file, 0, b"1").unwrap();
        file.sync().unwrap();
        assert!(!device.is_off());
        assert!(write(&*file, 1, b"2").is_err() && device.is_off());
        assert!(write(&*file, 2, b"3").is_err() && file.sync().is_err() && file.read_at(0, &mut [0]).is_err());
        for seed in 0..16 {
            let after = device.crash(seed).bytes("a");
            assert!([&b"1"[..], b"12", b"1\0"].contains(&&after[..]), "{after:?}");
        }
    }

    #[test]
    fn errors_come_when_they_are_ordered_and_room_ends() {
        let device = SimDevice::new(4096);
        device.put("a", b"");
        let file = device.open("a").unwrap();
        device.fail_after(1, io::ErrorKind::StorageFull, 2);
        write(&*file, 0, b"12").unwrap();
        assert_eq!(write(&*file, 2, b"34").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(file.sync().is_err());
        file.sync().unwrap();
        assert_eq!(file.allocate(5000).unwrap_err().kind(), io::ErrorKind::StorageFull);
        file.allocate(4096).unwrap();
        assert_eq!((device.free_bytes().unwrap(), device.bytes_used(), device.bytes_max()), (0, 4096, 4096));
        device.fail_reads_after(0, io::ErrorKind::Other, 1);
        assert!(file.read_at(0, &mut [0]).is_err());
        assert_eq!(file.read_at(0, &mut [0; 9]).unwrap(), 9);
    }
}
