//! One folder at work: a writer thread that owns its [`SegmentWriter`], reader threads, and the queues before them.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Settings;
use super::log;
use super::purges::Purge;
use super::queue::{Queue, Taken, Task};
use super::readers::Reads;
use super::recovery::Recovery;
use super::removal::{NotDurable, RemovalPart};
use super::segment_reader::{SegmentReader, count};
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
    /// `next_rule` is the number that the next invalidation rule of the store is to have.
    pub(super) fn start(
        recovery: Recovery,
        number: usize,
        settings: &Settings,
        next_rule: &Arc<Mutex<u64>>,
    ) -> io::Result<Folder> {
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
        let next_rule = Arc::clone(next_rule);
        let sync_every = Duration::from_secs(settings.sync_seconds);
        folder.spawn(format!("write-{number}"), move || {
            write(recovery, &queue, &reads, &next_rule, sync_every);
            queue.abandon();
        })?;
        Ok(folder)
    }

    /// A folder without threads, and the work that its owner does for them. The index is read before this returns.
    pub(super) fn unthreaded(recovery: Recovery, settings: &Settings) -> (Folder, Unthreaded) {
        let (queue, reads) = (Arc::new(Queue::new(settings.queue_bytes_max)), Arc::<Reads>::default());
        let reader = Arc::clone(recovery.reader());
        let writer = WriterThread::new(recovery.run(1, || reads.look_again()), &queue);
        let work = Unthreaded { writer, reader: Arc::clone(&reader), reads: Arc::clone(&reads) };
        (Folder { reader, queue, reads, threads: Mutex::default() }, work)
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

/// How often a writer that met a broken invariant is begun anew before its folder is taken out of service.
const WRITER_RESTARTS_MAX: u64 = 8;

/// The work of the writer thread until the store closes.
///
/// A writer that meets a broken invariant is not trusted any more. The tasks that it had taken from the queue are
/// refused, and the folder is read anew from its files, as at a start of the program: index and segments come from the
/// same recovery that a power cut leaves to do. After [`WRITER_RESTARTS_MAX`] times, or when the files can't be opened,
/// the folder is out of service until the next start.
fn write(recovery: Recovery, queue: &Arc<Queue>, reads: &Reads, next_rule: &Mutex<u64>, sync_every: Duration) {
    let (reader, settings) = (Arc::clone(recovery.reader()), recovery.settings);
    let mut recovery = Some(recovery);
    for _ in 0..=WRITER_RESTARTS_MAX {
        let attempt = AssertUnwindSafe(|| {
            let recovery = match recovery.take() {
                Some(recovery) => recovery,
                None => {
                    let mut next_rule = next_rule.lock();
                    let recovery = log::reopen(&reader, settings, *next_rule)?;
                    *next_rule = recovery.numbers().rule;
                    recovery
                }
            };
            let writer = recovery.run(RECOVERY_THREADS, || reads.look_again());
            WriterThread::new(writer, queue).work(sync_every);
            io::Result::Ok(())
        });
        match catch_unwind(attempt) {
            Ok(Ok(())) => return,
            Ok(Err(_)) => break,
            Err(_) => {
                count(&reader.counters.writer_restarts, 1);
                queue.forget_taken();
            }
        }
    }
    reader.lose_writer();
    // Nobody would read the rest of the index.
    if reader.recovering() {
        reads.close();
    }
}

/// The work of a folder without threads.
pub(super) struct Unthreaded {
    writer: WriterThread,
    reader: Arc<SegmentReader>,
    reads: Arc<Reads>,
}

impl Unthreaded {
    /// Does the first read that waits; false where none does.
    pub(super) fn read(&self) -> bool {
        self.reads.serve_next(&self.reader)
    }

    /// Writes all that waits; false where nothing does.
    pub(super) fn write(&mut self) -> bool {
        let mut tasks = VecDeque::new();
        if self.writer.queue.take(&mut tasks, Some(Duration::ZERO)) != Taken::Tasks {
            return false;
        }
        tasks.into_iter().for_each(|task| self.writer.perform(task));
        self.writer.settle();
        true
    }

    /// Brings to disk what was written.
    pub(super) fn sync(&mut self) {
        self.writer.sync();
    }
}

struct WriterThread {
    writer: SegmentWriter,
    queue: Arc<Queue>,
    /// Bytes of the queue that the batch holds.
    held_bytes: u64,
    synced: Instant,
    /// Removals that wait for the purge log, and what is to be written there: one sync for all.
    forgotten: Vec<(usize, RemovalPart)>,
    purges: Vec<Purge>,
}

/// A wait that is none would only look again.
const SHORT_WAIT: Duration = Duration::from_millis(1);
/// Purges that share a sync.
const PURGES_TOGETHER_MAX: usize = 4096;

impl WriterThread {
    fn new(writer: SegmentWriter, queue: &Arc<Queue>) -> WriterThread {
        WriterThread {
            writer,
            queue: Arc::clone(queue),
            held_bytes: 0,
            synced: Instant::now(),
            forgotten: Vec::new(),
            purges: Vec::new(),
        }
    }

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
            Task::Forget { key, id, part, hiding } => {
                let killed = self.writer.kill(&key, id);
                drop(hiding);
                self.await_purge_log(killed.heads, killed.records, part);
            }
            Task::DropBlocks { id, length } => self.writer.drop_blocks(id, length),
            Task::Rules(rules, part) => {
                self.await_purge_log(0, rules.iter().cloned().map(Purge::Rule).collect(), part);
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

    fn await_purge_log(&mut self, heads: usize, purges: Vec<Purge>, part: RemovalPart) {
        self.purges.extend(purges);
        self.forgotten.push((heads, part));
        if self.forgotten.len() >= PURGES_TOGETHER_MAX {
            self.commit_purges();
        }
    }

    fn commit_purges(&mut self) {
        if self.forgotten.is_empty() {
            return;
        }
        let outcome = self.writer.purge(&std::mem::take(&mut self.purges)).map_err(|_| NotDurable);
        for (heads, part) in self.forgotten.drain(..) {
            part.report(outcome.map(|()| heads));
        }
    }

    fn settle(&mut self) {
        // The flush reports `Put::Stored` to the callers whose records it wrote.
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
