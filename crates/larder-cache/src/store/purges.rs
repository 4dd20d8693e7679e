//! The durable log of invalidations: rules, and the places of heads that were removed one by one.
//!
//! One file, `purges.log`, append-only: a header, then entries of a kind, a length, a checksum and a body. [`PurgeLog::append`]
//! returns when its entries are on disk; many that wait share one sync, when their caller brings them together. When most
//! of the file is void, [`PurgeLog::compact`] writes the rest anew beside it and renames.

use std::io::{self, IoSlice};
use std::sync::Arc;

use super::medium::{Medium, MediumFile};
use super::rules::{Force, Rule, Scope};

/// A head record that was removed: its segment, as the segment was numbered when it was written, and its place there.
/// It stands for all older records of its name too: a newer one that is lost in a power cut must not bring back those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tombstone {
    /// The sequence number of the segment.
    pub sequence: u64,
    /// The offset of the record in the segment.
    pub offset: u32,
    /// The name in the index.
    pub name: u64,
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purge {
    /// A rule.
    Rule(Rule),
    /// A removed head.
    Tombstone(Tombstone),
}

/// The log, open for appending.
pub struct PurgeLog {
    medium: Arc<dyn Medium>,
    file: Arc<dyn MediumFile>,
    /// Where the next entry goes.
    at: u64,
    entries: u64,
}

/// The file of the log.
pub const NAME: &str = "purges.log";
/// The file that is to take its place.
pub const NEW_NAME: &str = "purges.new";
/// How the file begins.
pub const MAGIC: &[u8; 8] = b"LdrPrg\x01\n";
/// A prefix longer than this is no URL's.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Kind, body length, checksum of both and the body.
const FRAME_BYTES: usize = 1 + 3 + 4;

impl PurgeLog {
    /// Opens the log, or begins one, and gives what it holds. What follows the last whole entry is cut off: it was never
    /// acknowledged. A file that is none of ours is an error of the kind `InvalidData`.
    pub fn open(medium: Arc<dyn Medium>) -> io::Result<(PurgeLog, Vec<Purge>)> {
        let file = medium.open(NAME)?;
        let bytes = read_all(&*file)?;
        if bytes.len() < MAGIC.len() {
            return PurgeLog::begin(medium, &file);
        }
        if !bytes.starts_with(MAGIC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "purges.log is damaged at its beginning"));
        }
        let mut purges = Vec::new();
        let mut at = MAGIC.len();
        while let Some((purge, end)) = read_entry(&bytes, at) {
            purges.push(purge);
            at = end;
        }
        if at < bytes.len() {
            file.truncate(at as u64)?;
            file.sync()?;
        }
        let log = PurgeLog { medium, file, at: at as u64, entries: purges.len() as u64 };
        Ok((log, purges))
    }

    fn begin(medium: Arc<dyn Medium>, file: &Arc<dyn MediumFile>) -> io::Result<(PurgeLog, Vec<Purge>)> {
        file.truncate(0)?;
        file.write_at(0, &[IoSlice::new(MAGIC)])?;
        file.sync()?;
        medium.sync_names()?;
        let log = PurgeLog { medium, file: Arc::clone(file), at: MAGIC.len() as u64, entries: 0 };
        Ok((log, Vec::new()))
    }

    /// Writes entries; they are on disk when this returns. After an error none of them counts as written, and the next
    /// call writes over what is there of them.
    pub fn append(&mut self, purges: &[Purge]) -> io::Result<()> {
        let mut bytes = Vec::new();
        purges.iter().try_for_each(|purge| write_entry(&mut bytes, purge))?;
        let written = self.file.write_at(self.at, &[IoSlice::new(&bytes)]).and_then(|()| self.file.sync());
        if let Err(error) = written {
            // What reached the disk of it must not count after a restart.
            let _ = self.file.truncate(self.at);
            return Err(error);
        }
        self.at += bytes.len() as u64;
        self.entries += purges.len() as u64;
        Ok(())
    }

    /// How many entries the file has.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The file's length.
    pub fn bytes(&self) -> u64 {
        self.at
    }

    /// Keeps the entries that are still of use; the old file stays in force until the new one is whole on disk.
    pub fn compact(&mut self, keep: impl Fn(&Purge) -> bool) -> io::Result<()> {
        let bytes = read_all(&*self.file)?;
        let mut kept = MAGIC.to_vec();
        let (mut at, mut entries) = (MAGIC.len(), 0);
        while let Some((purge, end)) = read_entry(&bytes, at) {
            if keep(&purge) {
                kept.extend_from_slice(&bytes[at..end]);
                entries += 1;
            }
            at = end;
        }
        let file = self.medium.open(NEW_NAME)?;
        file.truncate(0)?;
        file.write_at(0, &[IoSlice::new(&kept)])?;
        file.sync()?;
        self.medium.rename(NEW_NAME, NAME)?;
        self.medium.sync_names()?;
        (self.file, self.at, self.entries) = (file, kept.len() as u64, entries);
        Ok(())
    }
}

fn read_all(file: &dyn MediumFile) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.len()?).map_err(|_| io::Error::other("purges.log is too long"))?;
    let mut bytes = vec![0; length];
    let read = file.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

fn write_entry(out: &mut Vec<u8>, purge: &Purge) -> io::Result<()> {
    let mut body = Vec::with_capacity(32);
    let kind = match purge {
        Purge::Tombstone(tombstone) => {
            body.extend_from_slice(&tombstone.sequence.to_le_bytes());
            body.extend_from_slice(&tombstone.offset.to_le_bytes());
            body.extend_from_slice(&tombstone.name.to_le_bytes());
            1
        }
        Purge::Rule(rule) => {
            body.extend_from_slice(&rule.number.to_le_bytes());
            body.push(u8::from(rule.force == Force::Hard));
            match &rule.scope {
                Scope::All => 2,
                Scope::Tag(tag) => {
                    body.extend_from_slice(&tag.to_le_bytes());
                    3
                }
                Scope::Prefix(text) => {
                    body.extend_from_slice(text);
                    4
                }
            }
        }
    };
    if body.len() > BODY_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a prefix longer than 64 KiB matches no URL"));
    }
    let length = (body.len() as u32).to_le_bytes();
    let head = [kind, length[0], length[1], length[2]];
    out.extend_from_slice(&head);
    out.extend_from_slice(&checksum(&head, &body).to_le_bytes());
    out.extend_from_slice(&body);
    Ok(())
}

/// The entry at a place and where the next one begins; `None` at the end, or where no whole entry is.
fn read_entry(bytes: &[u8], at: usize) -> Option<(Purge, usize)> {
    let frame = bytes.get(at..at + FRAME_BYTES)?;
    let length = u32::from_le_bytes([frame[1], frame[2], frame[3], 0]) as usize;
    let end = at + FRAME_BYTES + length;
    let body = bytes.get(at + FRAME_BYTES..end)?;
    if checksum(&frame[..4], body).to_le_bytes() != frame[4..] {
        return None;
    }
    let number = |from: usize| Some(u64::from_le_bytes(body.get(from..from + 8)?.try_into().ok()?));
    let rule = |scope| {
        let force = if *body.get(8)? == 1 { Force::Hard } else { Force::Soft };
        Some(Purge::Rule(Rule { number: number(0)?, scope, force }))
    };
    let purge = match frame[0] {
        1 => {
            let offset = u32::from_le_bytes(body.get(8..12)?.try_into().ok()?);
            Purge::Tombstone(Tombstone { sequence: number(0)?, offset, name: number(12)? })
        }
        2 => rule(Scope::All)?,
        3 => rule(Scope::Tag(number(9)?))?,
        4 => rule(Scope::Prefix(body.get(9..)?.into()))?,
        _ => return None,
    };
    Some((purge, end))
}

fn checksum(head: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(head), body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::medium::Files;

    fn medium(folder: &tempfile::TempDir) -> Arc<dyn Medium> {
        Arc::new(Files::take(folder.path()).unwrap())
    }

    fn samples() -> Vec<Purge> {
        let rule = |number, scope, force| Purge::Rule(Rule { number, scope, force });
        vec![
            Purge::Tombstone(Tombstone { sequence: 3, offset: 4096, name: 7 }),
            rule(1, Scope::All, Force::Soft),
            rule(2, Scope::Tag(u64::MAX), Force::Hard),
            rule(3, Scope::Prefix(b"http://a/b".as_slice().into()), Force::Hard),
        ]
    }

    #[test]
    fn what_was_appended_is_there_again() {
        let folder = tempfile::tempdir().unwrap();
        let (mut log, empty) = PurgeLog::open(medium(&folder)).unwrap();
        assert!(empty.is_empty());
        log.append(&samples()[..2]).unwrap();
        log.append(&samples()[2..]).unwrap();
        let bytes = log.bytes();
        drop(log);
        let (log, read) = PurgeLog::open(medium(&folder)).unwrap();
        assert_eq!(read, samples());
        assert_eq!((log.entries(), log.bytes()), (4, bytes));
    }

    #[test]
    fn a_torn_end_is_cut_off_wherever_it_is_torn() {
        let folder = tempfile::tempdir().unwrap();
        let (mut log, _) = PurgeLog::open(medium(&folder)).unwrap();
        log.append(&samples()).unwrap();
        drop(log);
        let whole = std::fs::read(folder.path().join(NAME)).unwrap();
        for cut in 0..whole.len() {
            for garbage in [&b""[..], &[0; 40], &[0xff; 9]] {
                let mut bytes = whole[..cut].to_vec();
                bytes.extend_from_slice(garbage);
                std::fs::write(folder.path().join(NAME), &bytes).unwrap();
                match PurgeLog::open(medium(&folder)) {
                    Ok((mut log, read)) => {
                        assert!(samples().starts_with(&read), "cut at {cut}");
                        log.append(&samples()[3..]).unwrap();
                        drop(log);
                        let (_, again) = PurgeLog::open(medium(&folder)).unwrap();
                        assert_eq!(again.len(), read.len() + 1, "cut at {cut}");
                    }
                    Err(error) => {
                        assert!(cut < MAGIC.len(), "cut at {cut}");
                        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
                    }
                }
            }
        }
    }

    #[test]
    fn compaction_keeps_what_it_is_told_to() {
        let folder = tempfile::tempdir().unwrap();
        let (mut log, _) = PurgeLog::open(medium(&folder)).unwrap();
        log.append(&samples()).unwrap();
        log.compact(|purge| matches!(purge, Purge::Rule(rule) if rule.number > 1)).unwrap();
        log.append(&samples()[..1]).unwrap();
        drop(log);
        let (log, read) = PurgeLog::open(medium(&folder)).unwrap();
        assert_eq!(read, [&samples()[2..], &samples()[..1]].concat());
        assert_eq!(log.entries(), 3);
    }
}
