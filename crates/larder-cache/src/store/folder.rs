//! One folder at work: a writer thread that owns its [`SegmentWriter`], reader threads, and the queues before them.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Settings;
use super::purges::Purge;
use super::queue::{Queue, Taken, Task};
use super::readers::Reads;
use super::recovery::Recovery;
use super::removal::{NotDurable, Share};
use super::segment_reader::SegmentReader;
use super::segment_writer::SegmentWriter;

/// One folder at work.
pub(super) struct Folder {
    pub(super) reader: Arc<SegmentReader>,
    pub(super) queue: Arc<Queue>,
    pub(super) reads: Arc<Reads>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Threads that read the index at a start, the writer among them.
const RECOVERY_THREADS: usize = 2;

impl Folder {
    /// Starts the threads; the first thing that the writer does is to recover.
    pub(super) fn start(recovery: Recovery, number: usize, settings: &Settings) -> io::Result<Folder> {
        let folder = Folder {
            reader: Arc::clone(recovery.reader()),
            queue: Arc::new(Queue::new(settings.queue_bytes_max)),
            reads: Arc::default(),
            threads: Mutex::default(),
        };
        for thread in 0..settings.readers.max(1) {
            let (reader, reads) = (Arc::clone(&folder.reader), Arc::clone(&folder.reads));
            folder.spawn(format!("read-{number}-{thread}"), move || reads.serve(&reader))?;
        }
        let (queue, reads) = (Arc::clone(&folder.queue), Arc::clone(&folder.reads));
        let reader = Arc::clone(&folder.reader);
        let sync_every = Duration::from_secs(settings.sync_seconds);
        folder.spawn(format!("write-{number}"), move || {
            let closing = Closing { queue: &queue, reads: &reads, reader: &reader };
            let writer = recovery.run(RECOVERY_THREADS, || reads.look_again());
            WriterThread {
                writer,
                queue: &queue,
                held_bytes: 0,
                synced: Instant::now(),
                forgotten: Vec::new(),
                purges: Vec::new(),
            }
            .work(sync_every);
            drop(closing);
        })?;
        Ok(folder)
    }

    fn spawn(&self, name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.lock().push(std::thread::Builder::new().name(name).spawn(work)?);
        Ok(())
    }

    /// Ends the threads: the writer after what is queued, the readers at once.
    pub(super) fn close(&self) {
        self.queue.close();
        self.reads.close();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.close();
    }
}

/// However the writer ends, nobody waits for it after that. One that met a broken invariant is not begun anew: what it
/// would write behind it could be wrong. Its folder counts as failed until the next start reads it anew.
struct Closing<'a> {
    queue: &'a Queue,
    reads: &'a Reads,
    reader: &'a SegmentReader,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.reader.lose_writer();
            // Nobody would read the rest of the index.
            if self.reader.recovering() {
                self.reads.close();
            }
        }
        self.queue.abandon();
    }
}

struct WriterThread<'a> {
    writer: SegmentWriter,
    queue: &'a Queue,
    /// Bytes of the queue that the batch holds.
    held_bytes: u64,
    synced: Instant,
    /// Removals that wait for the purge log, and what is to be written there: one sync for all.
    forgotten: Vec<(usize, Share)>,
    purges: Vec<Purge>,
}

/// A wait that is none would only look again.
const SHORT_WAIT: Duration = Duration::from_millis(1);
/// Purges that share a sync.
const PURGES_TOGETHER_MAX: usize = 4096;

impl WriterThread<'_> {
    fn work(mut self, sync_every: Duration) {
        let mut tasks = VecDeque::new();
        while self.take(&mut tasks, sync_every) != Taken::Closed {
            while let Some(task) = tasks.pop_front() {
                self.perform(task);
                self.sync_if_due(sync_every);
            }
            self.sync_if_due(sync_every);
        }
        self.settle();
        self.writer.close();
    }

    /// When nothing waits, the batch is written before the next task is waited for.
    fn take(&mut self, tasks: &mut VecDeque<Task>, sync_every: Duration) -> Taken {
        match self.queue.take(tasks, Some(Duration::ZERO)) {
            Taken::Nothing => {}
            taken => return taken,
        }
        self.settle();
        if !self.writer.unsynced() {
            let taken = self.queue.take(tasks, None);
            self.synced = Instant::now();
            return taken;
        }
        self.queue.take(tasks, Some(sync_every.saturating_sub(self.synced.elapsed()).max(SHORT_WAIT)))
    }

    fn sync_if_due(&mut self, sync_every: Duration) {
        if self.writer.unsynced() && self.synced.elapsed() >= sync_every {
            self.sync();
        }
    }

    fn perform(&mut self, task: Task) {
        self.held_bytes += task.bytes();
        match task {
            Task::Head(head, waiting) => self.writer.append_head(head, waiting),
            Task::Extent { id, key_hash, at, bytes, waiting } => {
                self.writer.append_extent(id, key_hash, at, bytes, waiting);
            }
            Task::Forget { key, id, share, hiding } => {
                let killed = self.writer.kill(&key, id);
                drop(hiding);
                self.await_purge_log(killed.heads, killed.records, share);
            }
            Task::Rules(rules, share) => {
                self.await_purge_log(0, rules.iter().cloned().map(Purge::Rule).collect(), share);
            }
            Task::Sync(waiting) => {
                self.sync();
                drop(waiting);
            }
        }
        if self.writer.batch_is_empty() {
            self.queue.done(std::mem::take(&mut self.held_bytes));
        }
    }

    fn await_purge_log(&mut self, heads: usize, purges: Vec<Purge>, share: Share) {
        self.purges.extend(purges);
        self.forgotten.push((heads, share));
        if self.forgotten.len() >= PURGES_TOGETHER_MAX {
            self.commit_purges();
        }
    }

    fn commit_purges(&mut self) {
        if self.forgotten.is_empty() {
            return;
        }
        let outcome = self.writer.purge(&std::mem::take(&mut self.purges)).map_err(|_| NotDurable);
        for (heads, share) in self.forgotten.drain(..) {
            share.tell(outcome.map(|()| heads));
        }
    }

    fn settle(&mut self) {
        // Whose puts were in it is told.
        let _ = self.writer.flush();
        self.queue.done(std::mem::take(&mut self.held_bytes));
        self.commit_purges();
    }

    fn sync(&mut self) {
        self.settle();
        // An error is counted, and takes the folder out of service when it comes again and again.
        let _ = self.writer.sync();
        self.synced = Instant::now();
    }
}
