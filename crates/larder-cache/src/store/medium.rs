//! The device below a store: named files that are read and written at places, allocated, synced.
//!
//! Two media exist: [`Files`], a real folder, and the simulated device of the crash tests, which loses
//! and tears what was not synced. The store touches files through these two traits alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::{Errno, ReadWriteFlags};

/// Folders of damaged stores are called so, with a number.
pub const ASIDE_PREFIX: &str = "damaged-";

/// A folder of files.
pub trait Medium: Send + Sync {
    /// Opens a file for reading and writing; makes an empty one where there is none.
    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>>;
    /// The names of what is there, in no order; of folders with damaged stores those of their files (`damaged-1/data-000`).
    fn list(&self) -> io::Result<Vec<String>>;
    /// Removes a file, and the folder before its name with the last one in it.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Gives a file another name, in place of a file that has it. A name may begin with a folder (`aside/data-000`), which is made.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Names made, changed and removed before are on disk when this returns.
    fn sync_names(&self) -> io::Result<()>;
    /// Bytes that are free for this program on the file system.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// One file of a [`Medium`].
pub trait MediumFile: Send + Sync {
    /// Reads what is at a place: as much as there is, so fewer bytes than wanted mean the file's end.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Reads without waiting for a device, into one piece after the other; `None` where that is not possible.
    fn read_cached(&self, at: u64, into: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>>;
    /// Writes all pieces one behind the other.
    fn write_at(&self, at: u64, pieces: &[IoSlice<'_>]) -> io::Result<()>;
    /// Takes room for the first `len` bytes, so that writing there finds some. Never shortens.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Sets the length.
    fn truncate(&self, len: u64) -> io::Result<()>;
    /// All that was written before is on disk when this returns.
    fn sync(&self) -> io::Result<()>;
    /// The length.
    fn len(&self) -> io::Result<u64>;
    /// Whether it has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// A real folder, locked for as long as this value lives.
pub struct Files {
    folder: PathBuf,
    _lock: File,
}

/// Holds the lock of a folder; nothing is written to it.
const LOCK_NAME: &str = "lock";

impl Files {
    /// Makes the folder where there is none, and locks it: an error of the kind `WouldBlock` says that another process has it.
    pub fn take(folder: &Path) -> io::Result<Files> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let lock = own_file(&folder.join(LOCK_NAME))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Files { folder: folder.to_path_buf(), _lock: lock })
    }
}

/// Bodies of private answers may lie here, so files are the owner's alone.
fn own_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

impl Medium for Files {
    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        let file = own_file(&self.folder.join(name))?;
        Ok(Arc::new(RealFile { file, refuses_nowait: AtomicBool::new(false) }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for each in fs::read_dir(&self.folder)? {
            let each = each?;
            let name = each.file_name().to_string_lossy().into_owned();
            if name == LOCK_NAME {
                continue;
            }
            if name.starts_with(ASIDE_PREFIX) && each.file_type()?.is_dir() {
                for inner in fs::read_dir(each.path())? {
                    let inner = inner?;
                    if inner.file_type()?.is_file() {
                        names.push(format!("{name}/{}", inner.file_name().to_string_lossy()));
                    }
                }
            } else {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.folder.join(name))?;
        if let Some((folder, _)) = name.rsplit_once('/') {
            // A folder that holds something else stays.
            let _ = fs::remove_dir(self.folder.join(folder));
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let target = self.folder.join(to);
        if let Some(parent) = target.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        fs::rename(self.folder.join(from), target)
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let space = rustix::fs::statvfs(&self.folder)?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }
}

struct RealFile {
    file: File,
    /// Some file systems know no read without waiting: they are asked once.
    refuses_nowait: AtomicBool,
}

/// The kernel takes no more pieces in one call (`IOV_MAX`).
const PIECES_MAX: usize = 1024;

impl MediumFile for RealFile {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            match self.file.read_at(&mut into[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn read_cached(&self, at: u64, into: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        if self.refuses_nowait.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let wanted = into.iter().map(|piece| piece.len()).sum();
        match rustix::io::preadv2(&self.file, into, at, ReadWriteFlags::NOWAIT) {
            Ok(count) if count == wanted => Ok(Some(count)),
            // Fewer bytes mean that the rest is not cached, or that the file ends: a waiting read tells which.
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.refuses_nowait.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn write_at(&self, mut at: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let mut pieces = pieces.to_vec();
        let mut rest = &mut pieces[..];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let count = rest.len().min(PIECES_MAX);
            match rustix::io::pwritev(&self.file, &rest[..count], at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    IoSlice::advance_slices(&mut rest, written);
                    at += written as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let present = self.len()?;
        if len <= present {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), present, len - present) {
            // No such call on this file system: the length alone, and room is found or not when it is written.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.truncate(len),
            outcome => Ok(outcome?),
        }
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_what_is_written_at_its_places() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::take(folder.path()).unwrap();
        let file = files.open("data").unwrap();
        let many: Vec<IoSlice<'_>> = (0..3000).map(|_| IoSlice::new(b"abc")).collect();
        file.write_at(5, &many).unwrap();
        let mut back = vec![0; 9010];
        assert_eq!(file.read_at(0, &mut back).unwrap(), 9005, "the file's end");
        assert_eq!(&back[..8], b"\0\0\0\0\0abc");
        assert_eq!(&back[9002..9005], b"abc");
        let (mut head, mut rest) = ([0; 2], [0; 4]);
        if let Some(count) = file.read_cached(8, &mut [IoSliceMut::new(&mut head), IoSliceMut::new(&mut rest)]).unwrap()
        {
            assert_eq!((count, &head, &rest), (6, b"ab", b"cabc"));
        }
        file.sync().unwrap();
    }

    #[test]
    fn room_is_taken_once_and_never_given_back_by_allocating() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::take(folder.path()).unwrap();
        let file = files.open("data").unwrap();
        file.allocate(10_000).unwrap();
        file.allocate(4_000).unwrap();
        assert_eq!(file.len().unwrap(), 10_000);
        file.truncate(100).unwrap();
        assert_eq!(file.len().unwrap(), 100);
        assert!(files.free_bytes().unwrap() > 0);
    }

    #[test]
    fn names_are_listed_renamed_and_removed_without_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::take(folder.path()).unwrap();
        files.open("one").unwrap();
        files.rename("one", "aside/one").unwrap();
        files.open("two").unwrap();
        files.sync_names().unwrap();
        let mut names = files.list().unwrap();
        names.sort();
        assert_eq!(names, ["aside", "two"]);
        files.remove("two").unwrap();
        assert_eq!(files.list().unwrap(), ["aside"]);
    }

    #[test]
    fn a_folder_has_one_owner() {
        let folder = tempfile::tempdir().unwrap();
        let first = Files::take(folder.path()).unwrap();
        let second = Files::take(folder.path()).err().expect("it is taken");
        assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
        drop(first);
        Files::take(folder.path()).unwrap();
    }
}
