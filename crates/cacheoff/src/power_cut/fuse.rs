//! A file system in this process with one file in it, the disk: enough of the kernel's FUSE protocol
//! (`linux/fuse.h`, version 7.31) for a loop device on top. The file bypasses the page cache, so that each write and each
//! flush of the loop device comes here as one message.

use super::disk::Disk;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The name of the file.
pub const NAME: &str = "disk";
const ROOT: u64 = 1;
const FILE: u64 = 2;
const IN_HEAD: usize = 40;
const OUT_HEAD: usize = 16;
const WRITE_BYTES_MAX: usize = 256 << 10;
const MESSAGE_BYTES_MAX: usize = WRITE_BYTES_MAX + 8_192;
/// Attributes never change, so that the kernel may remember them for a day.
const VALID_S: u64 = 86_400;

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const ENOSYS: i32 = 38;

/// The answer to a message.
enum Answer {
    Bytes(Vec<u8>),
    Error(i32),
    /// The kernel waits for none.
    Nothing,
}

/// The file system; it ends when it is unmounted.
pub struct Server {
    disk: Arc<Mutex<Disk>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves a disk. `mount` gets the connection to the kernel, which it hands to mount(8).
    pub fn start(disk: Disk, mount: impl FnOnce(File) -> Result<(), String>) -> Result<Self, String> {
        let failed = |error: io::Error| format!("/dev/fuse cannot be opened: {error}");
        let connection = OpenOptions::new().read(true).write(true).open("/dev/fuse").map_err(failed)?;
        let for_mount = connection.try_clone().map_err(failed)?;
        let disk = Arc::new(Mutex::new(disk));
        // The kernel answers the mount at once; its first message waits until it is read.
        mount(for_mount)?;
        let served = Arc::clone(&disk);
        let thread = std::thread::spawn(move || serve(connection, &served));
        Ok(Self { disk, thread: Some(thread) })
    }

    /// The disk, between two messages.
    pub fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end of the thread; to be called after the unmount.
    pub fn join(mut self) {
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn serve(mut connection: File, disk: &Mutex<Disk>) {
    let mut message = vec![0; MESSAGE_BYTES_MAX];
    loop {
        let length = match connection.read(&mut message) {
            Ok(length) => length,
            // ENOENT: the message was taken back.
            Err(error) if error.kind() == io::ErrorKind::Interrupted || error.raw_os_error() == Some(ENOENT) => {
                continue;
            }
            // ENODEV: it was unmounted.
            Err(_) => return,
        };
        let Some(head) = Head::of(&message[..length]) else { return };
        let mut disk = disk.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = answer(&head, &message[IN_HEAD..length], &mut disk);
        drop(disk);
        let (error, bytes) = match &answer {
            Answer::Bytes(bytes) => (0, bytes.as_slice()),
            Answer::Error(error) => (-error, &[][..]),
            Answer::Nothing => continue,
        };
        let mut out = Words::default();
        out.u32((OUT_HEAD + bytes.len()) as u32).u32(error as u32).u64(head.unique);
        // One message is one write; a message that was taken back is refused.
        let _ = connection.write_vectored(&[IoSlice::new(&out.0), IoSlice::new(bytes)]);
    }
}

/// `struct fuse_in_header`, as far as it matters.
struct Head {
    operation: u32,
    unique: u64,
    node: u64,
}

impl Head {
    fn of(message: &[u8]) -> Option<Self> {
        (message.len() >= IN_HEAD).then(|| Self {
            operation: u32_at(message, 4),
            unique: u64_at(message, 8),
            node: u64_at(message, 16),
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

/// Numbers in the machine's order, as the kernel wants them.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn zeros(&mut self, count: usize) -> &mut Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }

    fn answer(&mut self) -> Answer {
        Answer::Bytes(std::mem::take(&mut self.0))
    }
}

/// Numbers of operations, from `enum fuse_opcode`.
mod operation {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const ACCESS: u32 = 34;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const BATCH_FORGET: u32 = 42;
}

fn answer(head: &Head, body: &[u8], disk: &mut Disk) -> Answer {
    let mut out = Words::default();
    let done = || Answer::Bytes(Vec::new());
    match head.operation {
        operation::INIT => init(body, &mut out),
        operation::LOOKUP if head.node == ROOT && body == format!("{NAME}\0").as_bytes() => {
            // struct fuse_entry_out
            out.u64(FILE).u64(0).u64(VALID_S).u64(VALID_S).u32(0).u32(0);
            attributes(&mut out, FILE, disk.bytes()).answer()
        }
        operation::LOOKUP => Answer::Error(ENOENT),
        // struct fuse_attr_out; the size is fixed.
        operation::GETATTR | operation::SETATTR => {
            attributes(out.u64(VALID_S).u32(0).u32(0), head.node, disk.bytes()).answer()
        }
        // struct fuse_open_out; FOPEN_DIRECT_IO for the file.
        operation::OPEN | operation::OPENDIR => out.u64(0).u32(u32::from(head.node == FILE)).u32(0).answer(),
        operation::READ => {
            let (offset, length) = (u64_at(body, 8), u32_at(body, 16) as usize);
            let left = disk.bytes().saturating_sub(offset).min(WRITE_BYTES_MAX as u64) as usize;
            let mut bytes = vec![0; length.min(left)];
            disk.read(offset, &mut bytes).map_or(Answer::Error(EIO), |()| Answer::Bytes(bytes))
        }
        operation::WRITE => {
            // struct fuse_write_in is 40 bytes long.
            let (offset, length) = (u64_at(body, 8), u32_at(body, 16));
            let data = body.get(40..40 + length as usize).unwrap_or_default();
            match disk.write(offset, data) {
                Ok(()) => out.u32(data.len() as u32).u32(0).answer(),
                Err(_) => Answer::Error(EIO),
            }
        }
        operation::FSYNC => disk.flush().map_or(Answer::Error(EIO), |()| done()),
        // struct fuse_kstatfs
        operation::STATFS => out.zeros(40).u32(4_096).u32(255).u32(4_096).zeros(28).answer(),
        operation::READDIR
        | operation::RELEASE
        | operation::RELEASEDIR
        | operation::FLUSH
        | operation::ACCESS
        | operation::DESTROY => done(),
        operation::FORGET | operation::BATCH_FORGET | operation::INTERRUPT => Answer::Nothing,
        _ => Answer::Error(ENOSYS),
    }
}

/// `struct fuse_init_out`, 64 bytes.
fn init(body: &[u8], out: &mut Words) -> Answer {
    const BIG_WRITES: u32 = 1 << 5;
    const MAX_PAGES: u32 = 1 << 22;
    let readahead = u32_at(body, 8);
    out.u32(7).u32(31).u32(readahead).u32(BIG_WRITES | MAX_PAGES);
    out.u16(64).u16(48).u32(WRITE_BYTES_MAX as u32).u32(1).u16((WRITE_BYTES_MAX / 4_096) as u16).u16(0);
    out.zeros(32).answer()
}

/// `struct fuse_attr`, 88 bytes.
fn attributes(out: &mut Words, node: u64, bytes: u64) -> &mut Words {
    const FOLDER: u32 = 0o040_700;
    const REGULAR: u32 = 0o100_600;
    let (mode, size) = if node == FILE { (REGULAR, bytes) } else { (FOLDER, 0) };
    out.u64(node).u64(size).u64(size / 512).zeros(36).u32(mode).u32(1).zeros(12).u32(4_096).u32(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(operation: u32, node: u64, body: &[u8], disk: &mut Disk) -> Result<Vec<u8>, i32> {
        match answer(&Head { operation, unique: 1, node }, body, disk) {
            Answer::Bytes(bytes) => Ok(bytes),
            Answer::Error(error) => Err(error),
            Answer::Nothing => Ok(Vec::new()),
        }
    }

    /// `struct fuse_read_in` or `fuse_write_in`.
    fn place(offset: u64, length: u32) -> Vec<u8> {
        let mut words = Words::default();
        words.u64(0).u64(offset).u32(length).zeros(20);
        words.0
    }

    #[test]
    fn answers_have_the_lengths_that_the_kernel_checks() {
        let mut disk = Disk::new(1 << 20);
        for (operation, node, body, length) in [
            (operation::INIT, 0, vec![0; 64], 64),
            (operation::LOOKUP, ROOT, b"disk\0".to_vec(), 128),
            (operation::GETATTR, FILE, vec![0; 16], 104),
            (operation::OPEN, FILE, vec![0; 8], 16),
            (operation::STATFS, ROOT, vec![], 80),
            (operation::FSYNC, FILE, vec![0; 16], 0),
        ] {
            assert_eq!(asked(operation, node, &body, &mut disk).map(|bytes| bytes.len()), Ok(length), "{operation}");
        }
        assert_eq!(asked(operation::LOOKUP, ROOT, b"other\0", &mut disk), Err(ENOENT));
        assert_eq!(asked(999, ROOT, &[], &mut disk), Err(ENOSYS));
        let size = asked(operation::GETATTR, FILE, &[0; 16], &mut disk).unwrap();
        assert_eq!(u64_at(&size, 24), 1 << 20);
    }

    #[test]
    fn bytes_go_in_and_out_until_the_power_goes() {
        let mut disk = Disk::new(1 << 20);
        let write = [place(4_096, 3), b"abc".to_vec()].concat();
        assert_eq!(asked(operation::WRITE, FILE, &write, &mut disk).map(|out| u32_at(&out, 0)), Ok(3));
        assert_eq!(asked(operation::READ, FILE, &place(4_095, 5), &mut disk), Ok(b"\0abc\0".to_vec()));
        // Beyond the end there is less, and no message asks for more than one answer can hold.
        assert_eq!(asked(operation::READ, FILE, &place((1 << 20) - 2, 9), &mut disk), Ok(vec![0; 2]));
        assert!(
            asked(operation::READ, FILE, &place(0, u32::MAX), &mut disk).is_ok_and(|out| out.len() <= WRITE_BYTES_MAX)
        );
        disk.cut(1);
        assert_eq!(asked(operation::WRITE, FILE, &write, &mut disk), Err(EIO));
        assert_eq!(asked(operation::FSYNC, FILE, &[0; 16], &mut disk), Err(EIO));
    }

    #[test]
    fn a_message_that_is_cut_short_does_no_harm() {
        let mut disk = Disk::new(1 << 20);
        for operation in 0..60 {
            for length in 0..48 {
                let _ = asked(operation, FILE, &vec![255; length], &mut disk);
            }
        }
        assert!(Head::of(&[0; 39]).is_none());
    }
}
