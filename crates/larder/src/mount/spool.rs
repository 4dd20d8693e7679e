//! The buffers that keep slow clients away from the processes of an application: the body of a request until all of it is here,
//! and the rest of an answer for which its client has no room yet. The oldest bytes lie in memory, further ones in a file that has
//! no name any more. All buffers of an application share a budget.

use super::MountState;
use crate::client::Client;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions, remove_file};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::spawn_blocking;

/// Bytes of one buffer that stay in memory: as many as the window of an answer and a socket hold besides.
const MEMORY_BYTES_MAX: usize = 128 << 10;

/// Bytes that are written to the file, or read from it, at once.
const BATCH_BYTES: usize = 128 << 10;

/// Bytes that the budget is asked for at once.
const RESERVED_BYTES: u64 = 256 << 10;

/// The end of the name that the file of a buffer has for a moment.
pub const FILE_EXTENSION: &str = "buffer";

/// The bytes in the buffers of one application.
#[derive(Default)]
pub struct BufferBudget(Mutex<BytesUsed>);

#[derive(Default)]
struct BytesUsed {
    all: u64,
    by_client: HashMap<Option<Client>, u64>,
}

impl BufferBudget {
    /// Takes so many bytes for a client, if no more than `max` are in use then, and no more than half of that by this client.
    fn take(&self, client: Option<Client>, bytes: u64, max: u64) -> bool {
        let mut used = self.0.lock();
        let own = used.by_client.get(&client).copied().unwrap_or_default();
        if used.all.saturating_add(bytes) > max || own.saturating_add(bytes) > max / 2 {
            return false;
        }
        used.all += bytes;
        used.by_client.insert(client, own + bytes);
        true
    }

    fn give_back(&self, client: Option<Client>, bytes: u64) {
        let mut used = self.0.lock();
        used.all = used.all.saturating_sub(bytes);
        if let Some(own) = used.by_client.get_mut(&client) {
            *own = own.saturating_sub(bytes);
            if *own == 0 {
                used.by_client.remove(&client);
            }
        }
    }

    /// The bytes in use.
    pub fn bytes(&self) -> u64 {
        self.0.lock().all
    }
}

/// One buffer: bytes go in at one end and come out at the other.
pub struct Spool {
    mount: Arc<MountState>,
    client: Option<Client>,
    bytes_max: u64,
    /// The oldest bytes.
    front: Pieces,
    /// Those that follow.
    file: Option<Arc<File>>,
    /// The part of the file that is to be read.
    read_to: u64,
    written_to: u64,
    /// The newest ones, which are not in the file yet.
    back: Pieces,
    /// Bytes that the budget has given.
    reserved: u64,
    /// The file can't be written: what is here stays here, and nothing more is taken.
    is_broken: bool,
}

#[derive(Default)]
struct Pieces {
    pieces: VecDeque<Bytes>,
    bytes: usize,
}

impl Pieces {
    fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        self.pieces.push_back(piece);
    }

    fn pop(&mut self) -> Option<Bytes> {
        let piece = self.pieces.pop_front()?;
        self.bytes -= piece.len();
        Some(piece)
    }
}

impl Spool {
    /// A buffer of an application for a request of this client.
    pub fn new(mount: Arc<MountState>, client: Option<Client>, bytes_max: u64) -> Spool {
        Spool {
            mount,
            client,
            bytes_max,
            front: Pieces::default(),
            file: None,
            read_to: 0,
            written_to: 0,
            back: Pieces::default(),
            reserved: 0,
            is_broken: false,
        }
    }

    /// The bytes in it.
    pub fn bytes(&self) -> u64 {
        self.written_to - self.read_to + (self.front.bytes + self.back.bytes) as u64
    }

    /// Whether another piece may be pushed.
    pub fn has_room(&mut self) -> bool {
        if self.bytes() >= self.bytes_max || (self.is_broken && self.back.bytes >= BATCH_BYTES) {
            return false;
        }
        // Bytes that were read of the file are still on the disk.
        let held = self.written_to + (self.front.bytes + self.back.bytes) as u64;
        if held + BATCH_BYTES as u64 <= self.reserved {
            return true;
        }
        let max = self.mount.mount().python.buffers_bytes_max;
        let has = self.mount.buffers.take(self.client, RESERVED_BYTES, max);
        if has {
            self.reserved += RESERVED_BYTES;
        }
        has
    }

    /// Appends a piece; [`Spool::settle`] comes next.
    pub fn push(&mut self, piece: Bytes) {
        let is_in_memory = self.written_to == 0 && self.back.pieces.is_empty();
        match is_in_memory && self.front.bytes < MEMORY_BYTES_MAX {
            true => self.front.push(piece),
            false => self.back.push(piece),
        }
    }

    /// Writes the newest bytes to the file, where there are enough of them. To be awaited to its end, or the buffer is dropped.
    pub async fn settle(&mut self) {
        if self.back.bytes < BATCH_BYTES || self.is_broken {
            return;
        }
        if let Err(error) = self.write_back().await {
            let name = &self.mount.mount().application.name;
            tracing::warn!("{name}: a buffer can't be written, so its client holds up a process: {error}");
            self.is_broken = true;
        }
    }

    async fn write_back(&mut self) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => {
                let folder = self.mount.folder.clone();
                let opened = spawn_blocking(move || nameless_file(&folder)).await.map_err(io::Error::other)??;
                Arc::clone(self.file.insert(Arc::new(opened)))
            }
        };
        let pieces: Vec<Bytes> = self.back.pieces.iter().cloned().collect();
        let at = self.written_to;
        let write = move || {
            pieces.iter().try_fold(at, |at, piece| file.write_all_at(piece, at).map(|()| at + piece.len() as u64))
        };
        self.written_to = spawn_blocking(write).await.map_err(io::Error::other)??;
        self.back = Pieces::default();
        Ok(())
    }

    /// The oldest piece; `None` where there is nothing. The error is the file's. Cancel-safe.
    pub async fn take(&mut self) -> io::Result<Option<Bytes>> {
        if let Some(piece) = self.front.pop() {
            return Ok(Some(piece));
        }
        if self.read_to == self.written_to {
            return Ok(self.back.pop());
        }
        let Some(file) = self.file.clone() else { return Ok(None) };
        let (at, left) = (self.read_to, self.written_to - self.read_to);
        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(BATCH_BYTES);
        let read = move || {
            let mut piece = vec![0; bytes];
            file.read_exact_at(&mut piece, at).map(|()| Bytes::from(piece))
        };
        let piece = spawn_blocking(read).await.map_err(io::Error::other)??;
        self.read_to += bytes as u64;
        if self.read_to == self.written_to {
            (self.read_to, self.written_to) = (0, 0);
            self.close_file();
            self.give_back(self.back.bytes as u64);
        }
        Ok(Some(piece))
    }

    /// The pieces in it, where all of them are in memory.
    pub fn take_from_memory(&mut self) -> Option<VecDeque<Bytes>> {
        (self.written_to == 0 && self.back.pieces.is_empty()).then(|| {
            self.front.bytes = 0;
            std::mem::take(&mut self.front.pieces)
        })
    }

    /// Frees the disk, on another thread: that may take a moment where much was written.
    fn close_file(&mut self) {
        if let Some(file) = self.file.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn_blocking(move || drop(file));
        }
    }

    /// Gives back what is reserved beyond this.
    fn give_back(&mut self, kept: u64) {
        let surplus = self.reserved.saturating_sub(kept);
        self.mount.buffers.give_back(self.client, surplus);
        self.reserved -= surplus;
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.close_file();
        self.give_back(0);
    }
}

/// A file that is gone when it is closed, however the server ends.
fn nameless_file(folder: &Path) -> io::Result<File> {
    static FILES: AtomicU64 = AtomicU64::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path: PathBuf = folder.join(format!("{}-{number}.{FILE_EXTENSION}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::super::Mounts;
    use super::*;
    use crate::config::application::Application;
    use crate::config::{Mount, Python};
    use larder_wire::Host;

    fn state(buffers_bytes_max: u64) -> Arc<MountState> {
        let name = "wsgi:app:application";
        let application = Application::parse(name).unwrap();
        let python = Arc::new(Python { buffers_bytes_max, ..Python::default() });
        let mount = Mount { host: Host::local(name), application, python, routes: Vec::new() };
        Mounts::default().add(Arc::new(mount))
    }

    fn client(last: u8) -> Option<Client> {
        Some(Client::at([10, 0, 0, last].into()))
    }

    /// The bytes from one place in an endless text to another.
    fn text(from: usize, to: usize) -> Vec<u8> {
        (from..to).map(|at| (at % 251) as u8 ^ (at >> 13) as u8).collect()
    }

    #[tokio::test]
    async fn bytes_come_out_as_they_went_in_whatever_the_order_of_both() {
        let state = state(1 << 30);
        let mut noise = 7_u64;
        for round in 0..20 {
            let mut spool = Spool::new(Arc::clone(&state), client(1), 1 << 30);
            let (mut put, mut taken) = (0, 0);
            for _ in 0..300 {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let bytes = (noise >> 33) as usize % 70_000;
                // Rounds differ in how much more is put than taken.
                if (noise >> 20) % 20 < 8 + round % 5 {
                    assert!(spool.has_room());
                    spool.push(text(put, put + bytes).into());
                    spool.settle().await;
                    put += bytes;
                } else if let Some(piece) = spool.take().await.unwrap() {
                    assert!(piece == text(taken, taken + piece.len()), "seed 7, round {round}, at {taken}");
                    taken += piece.len();
                }
                assert_eq!(spool.bytes(), (put - taken) as u64);
                assert!(spool.front.bytes + spool.back.bytes <= MEMORY_BYTES_MAX + BATCH_BYTES + 140_000);
            }
            while let Some(piece) = spool.take().await.unwrap() {
                assert!(piece == text(taken, taken + piece.len()), "seed 7, round {round}, at {taken}");
                taken += piece.len();
            }
            assert_eq!((taken, spool.bytes()), (put, 0));
        }
        assert_eq!(state.buffers.bytes(), 0, "what was reserved is given back");
    }

    #[tokio::test]
    async fn a_client_gets_half_of_the_budget_and_a_buffer_no_more_than_its_own_limit() {
        let state = state(4 << 20);
        let mut own = Spool::new(Arc::clone(&state), client(1), 1 << 30);
        let mut filled = 0;
        while own.has_room() {
            own.push(text(0, 65_536).into());
            own.settle().await;
            filled += 65_536;
        }
        assert!((1_900_000..2_200_000).contains(&filled), "{filled}");
        assert!(!Spool::new(Arc::clone(&state), client(1), 1 << 30).has_room(), "the same client");
        let mut other = Spool::new(Arc::clone(&state), client(2), 100_000);
        assert!(other.has_room(), "another client");
        other.push(text(0, 100_000).into());
        assert!(!other.has_room(), "more than its own limit");
        drop(own);
        assert!(Spool::new(Arc::clone(&state), client(1), 1 << 30).has_room(), "its bytes are free again");
    }

    #[tokio::test]
    async fn a_folder_that_is_gone_stops_the_buffer_and_loses_nothing() {
        let mounts = Mounts::default();
        mounts.buffer_in(PathBuf::from("/nowhere"));
        let mount = state(1 << 30).mount();
        let state = mounts.add(mount);
        let mut spool = Spool::new(state, client(1), 1 << 30);
        let (mut put, mut taken) = (0, 0);
        while spool.has_room() {
            assert!(put < 1 << 20, "it stops");
            spool.push(text(put, put + 50_000).into());
            spool.settle().await;
            put += 50_000;
        }
        while let Some(piece) = spool.take().await.unwrap() {
            assert!(piece == text(taken, taken + piece.len()));
            taken += piece.len();
        }
        assert_eq!(taken, put);
    }

    #[test]
    fn a_file_has_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let _file = nameless_file(folder.path()).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
