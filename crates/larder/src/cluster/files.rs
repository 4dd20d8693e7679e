//! The two files of a node in the store's folder: the place in the stream up to which purges are applied on disk, and the outbox of
//! purges that the stream has not taken yet.
//!
//! ```text
//! cluster.position   one line     checksum, a blank, JSON: {"incarnation":"…","applied":7,"at":1700000000000000000}
//! cluster.outbox     a line each  checksum, a blank, JSON: {"kind":"all",…} as in the stream
//! ```
//!
//! A line without its checksum does not count. Where that is the position, the stream is read from its beginning; where it is a purge in
//! the outbox, a validation of everything takes its place, unless it is the last line: that one was not acknowledged.

use super::message::{PurgeMessage, SCOPE_BYTES_MAX};
use super::replica::Place;
use crate::whole_file::{self, Durability};
use larder_cache::store::rules::{Force, Scope};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const POSITION: &str = "cluster.position";
const POSITION_BYTES_MAX: u64 = 4 << 10;
const OUTBOX: &str = "cluster.outbox";

/// Purges that wait for the stream; a further one is refused.
pub const OUTBOX_PURGES_MAX: usize = 100_000;

/// The same in bytes.
pub const OUTBOX_BYTES_MAX: u64 = 64 << 20;

/// The place up to which the stream is applied on disk.
#[derive(Debug)]
pub struct PositionFile {
    path: PathBuf,
    written: Option<(String, Place)>,
}

#[derive(Serialize, Deserialize)]
struct Position {
    incarnation: String,
    #[serde(flatten)]
    place: Place,
}

impl PositionFile {
    /// Reads the file of this folder.
    pub fn open(folder: &Path) -> PositionFile {
        let path = folder.join(POSITION);
        let text = text_of(&path, POSITION_BYTES_MAX).unwrap_or_default();
        let position = checked(text.trim_end()).and_then(|json| serde_json::from_str::<Position>(json).ok());
        PositionFile { path, written: position.map(|it| (it.incarnation, it.place)) }
    }

    /// The place that was read or written last.
    pub fn position(&self) -> Option<(String, Place)> {
        self.written.clone()
    }

    /// Writes another place; nothing where it is the same. It need not be on disk when this returns: an older place has purges applied
    /// twice.
    pub fn write(&mut self, incarnation: &str, place: Place) -> io::Result<()> {
        let position = (incarnation.to_owned(), place);
        if self.written.as_ref() == Some(&position) {
            return Ok(());
        }
        let text = line(&serde_json::to_string(&Position { incarnation: position.0.clone(), place })?);
        whole_file::replace(&self.path, text.as_bytes(), 0o600, Durability::Either)?;
        self.written = Some(position);
        Ok(())
    }

    /// Forgets the place: the stream is read from its beginning at the next start.
    pub fn forget(&mut self) -> io::Result<()> {
        self.written = None;
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Purges that were acknowledged as queued, in their order.
#[derive(Debug)]
pub struct Outbox {
    path: PathBuf,
    waiting: VecDeque<PurgeMessage>,
    bytes: u64,
    /// Purges in the file, those of its beginning that wait no more included.
    in_file: usize,
}

#[derive(Serialize, Deserialize)]
struct QueuedLine {
    subject: String,
    message: String,
}

impl Outbox {
    /// Reads the outbox of this folder. `node` is the sender of a purge that takes the place of a damaged one.
    pub fn open(folder: &Path, node: &str) -> io::Result<Outbox> {
        let path = folder.join(OUTBOX);
        let text = match text_of(&path, 2 * OUTBOX_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let mut waiting = VecDeque::new();
        let mut damaged = false;
        for text in text.split_inclusive('\n') {
            match purge_of(text) {
                Some(purge) => waiting.push_back(purge),
                None => damaged |= text.ends_with('\n'),
            }
        }
        if damaged {
            tracing::warn!("{} is damaged: all nodes are told to validate what they have", path.display());
            let id = format!("damaged-{:08x}", checksum(text.as_bytes()));
            let from = node.to_owned();
            waiting.push_back(PurgeMessage { scope: Scope::All, force: Force::Validate, from, id });
        }
        let everything = waiting.iter().rposition(PurgeMessage::is_everything).unwrap_or(0);
        waiting.drain(..everything);
        let mut outbox = Outbox { path, waiting, bytes: 0, in_file: 0 };
        if !text.is_empty() {
            // A torn line at the end must not have another one written behind it.
            outbox.write_anew()?;
        }
        Ok(outbox)
    }

    /// Adds purges; they are on disk when this returns. An error says that none counts. A purge of everything takes the place of all
    /// before it: behind them a stream that is full would never get it.
    pub fn append(&mut self, purges: &[PurgeMessage]) -> io::Result<()> {
        let lines: Option<String> = purges.iter().map(line_of).collect();
        let unsent =
            || io::Error::other(format!("a URL or prefix that is no UTF-8, or longer than {SCOPE_BYTES_MAX} bytes"));
        let text = lines.ok_or_else(unsent)?;
        if let Some(everything) = purges.iter().rposition(PurgeMessage::is_everything) {
            let before = std::mem::replace(&mut self.waiting, purges[everything..].iter().cloned().collect());
            return self.write_anew().inspect_err(|_| self.waiting = before);
        }
        let is_full = self.waiting.len() + purges.len() > OUTBOX_PURGES_MAX;
        if is_full || self.bytes + text.len() as u64 > OUTBOX_BYTES_MAX {
            return Err(io::Error::other(format!("{} is full", self.path.display())));
        }
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        if let Err(error) = written {
            // The part that came there must not count.
            let _ = file.set_len(self.bytes);
            return Err(error);
        }
        if self.bytes == 0 {
            whole_file::sync_name(&self.path)?;
        }
        self.bytes += text.len() as u64;
        self.in_file += purges.len();
        self.waiting.extend(purges.iter().cloned());
        Ok(())
    }

    /// The purges that wait, the first at most.
    pub fn first(&self, max: usize) -> Vec<PurgeMessage> {
        self.waiting.iter().take(max).cloned().collect()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes out those at the beginning that the stream has. The file is written anew when half of it is of no use; until then a restart
    /// sends some a second time.
    pub fn remove_sent(&mut self, sent: &[PurgeMessage]) -> io::Result<()> {
        let count = self.waiting.iter().zip(sent).take_while(|(waiting, sent)| waiting.id == sent.id).count();
        self.waiting.drain(..count);
        if self.waiting.is_empty() || 2 * self.waiting.len() <= self.in_file { self.write_anew() } else { Ok(()) }
    }

    fn write_anew(&mut self) -> io::Result<()> {
        let text: String = self.waiting.iter().filter_map(line_of).collect();
        whole_file::replace(&self.path, text.as_bytes(), 0o600, Durability::Name)?;
        (self.bytes, self.in_file) = (text.len() as u64, self.waiting.len());
        Ok(())
    }
}

/// The text of a file; bytes that are no text become such as no checksum fits.
fn text_of(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn line_of(purge: &PurgeMessage) -> Option<String> {
    let message = String::from_utf8(purge.to_bytes()?).ok()?;
    Some(line(&serde_json::to_string(&QueuedLine { subject: purge.subject("outbox"), message }).ok()?))
}

fn purge_of(text: &str) -> Option<PurgeMessage> {
    let waiting: QueuedLine = serde_json::from_str(checked(text.strip_suffix('\n')?)?).ok()?;
    PurgeMessage::parse(waiting.message.as_bytes(), &waiting.subject).ok()
}

fn line(json: &str) -> String {
    format!("{:08x} {json}\n", checksum(json.as_bytes()))
}

fn checked(line: &str) -> Option<&str> {
    let (sum, json) = line.split_once(' ')?;
    (u32::from_str_radix(sum, 16).ok()? == checksum(json.as_bytes())).then_some(json)
}

/// The first four bytes of a SHA-256: a checksum that is at hand already.
fn checksum(bytes: &[u8]) -> u32 {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    let mut word = [0; 4];
    word.copy_from_slice(&digest.as_ref()[..4]);
    u32::from_be_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn purge(tag: u64) -> PurgeMessage {
        PurgeMessage { scope: Scope::Tag(tag), force: Force::Hard, from: "a".to_owned(), id: tag.to_string() }
    }

    #[test]
    fn a_position_comes_back_and_a_damaged_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = PositionFile::open(folder.path());
        assert_eq!(file.position(), None);
        file.write("x", Place { applied: 7, at: 1 }).unwrap();
        assert_eq!(PositionFile::open(folder.path()).position(), Some(("x".to_owned(), Place { applied: 7, at: 1 })));
        let path = folder.path().join(POSITION);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace('7', "8")).unwrap();
        assert_eq!(PositionFile::open(folder.path()).position(), None);
        file.forget().unwrap();
        file.forget().unwrap();
    }

    #[test]
    fn the_outbox_keeps_its_order_over_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let mut outbox = Outbox::open(folder.path(), "a").unwrap();
        outbox.append(&[purge(1), purge(2)]).unwrap();
        outbox.append(&[purge(3)]).unwrap();
        let mut outbox = Outbox::open(folder.path(), "a").unwrap();
        assert_eq!(outbox.first(2), [purge(1), purge(2)]);
        outbox.remove_sent(&[purge(1), purge(2)]).unwrap();
        assert_eq!(outbox.first(9), [purge(3)]);
        assert_eq!(Outbox::open(folder.path(), "a").unwrap().first(9), [purge(3)]);
        outbox.remove_sent(&[purge(3)]).unwrap();
        assert!(Outbox::open(folder.path(), "a").unwrap().is_empty());
    }

    #[test]
    fn a_torn_end_is_dropped_and_damage_before_it_is_not() {
        let folder = tempfile::tempdir().unwrap();
        Outbox::open(folder.path(), "a").unwrap().append(&[purge(1), purge(2)]).unwrap();
        let path = folder.path().join(OUTBOX);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 9]).unwrap();
        let mut outbox = Outbox::open(folder.path(), "a").unwrap();
        assert_eq!(outbox.first(9), [purge(1)], "the torn purge was not acknowledged");
        outbox.append(&[purge(3)]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen("0001", "0009", 1)).unwrap();
        let all = Outbox::open(folder.path(), "a").unwrap().first(9);
        assert_eq!(all[0], purge(3));
        assert_eq!((&all[1].scope, all[1].force), (&Scope::All, Force::Validate));
    }

    #[test]
    fn a_purge_that_cannot_be_sent_is_not_queued() {
        let folder = tempfile::tempdir().unwrap();
        let mut outbox = Outbox::open(folder.path(), "a").unwrap();
        let of = |text: &[u8]| PurgeMessage { scope: Scope::Prefix(text.into()), ..purge(2) };
        for unsent in [of(b"http://a.example/\xff"), of(&vec![b'x'; SCOPE_BYTES_MAX + 1])] {
            assert!(outbox.append(&[purge(1), unsent]).is_err());
            assert!(outbox.is_empty() && Outbox::open(folder.path(), "a").unwrap().is_empty(), "none of them counts");
        }
    }

    #[test]
    fn a_purge_of_everything_takes_the_place_of_those_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut outbox = Outbox::open(folder.path(), "a").unwrap();
        let everything = PurgeMessage { scope: Scope::All, ..purge(9) };
        outbox.append(&(1..=300).map(purge).collect::<Vec<_>>()).unwrap();
        let sent = outbox.first(256);
        outbox.append(&[purge(301), everything.clone(), purge(302)]).unwrap();
        for outbox in [&outbox, &Outbox::open(folder.path(), "a").unwrap()] {
            assert_eq!(outbox.first(9), [everything.clone(), purge(302)]);
        }
        outbox.remove_sent(&sent).unwrap();
        assert_eq!(outbox.len(), 2, "those that were on their way are not there any more");
        // It is the first of an outbox of before, too.
        let lines = [purge(1), everything.clone(), purge(2)].iter().filter_map(line_of).collect::<String>();
        fs::write(folder.path().join(OUTBOX), lines).unwrap();
        assert_eq!(Outbox::open(folder.path(), "a").unwrap().first(9), [everything, purge(2)]);
    }

    #[test]
    fn the_outbox_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut outbox = Outbox::open(folder.path(), "a").unwrap();
        let many: Vec<PurgeMessage> = (0..=OUTBOX_PURGES_MAX as u64).map(purge).collect();
        assert!(outbox.append(&many).is_err());
        assert!(outbox.is_empty() && Outbox::open(folder.path(), "a").unwrap().is_empty());
    }
}
