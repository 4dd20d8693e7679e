//! The queue before the writer of a folder, in order, and bounded in bytes; and the tasks that wait for room in it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::fetching::Promise;
use super::removal::RemovalPart;
use super::rules::Rule;
use super::segment_reader::Hiding;
use super::{HeadToStore, ObjectId, Put, Refusal};

/// A task for the writer of a folder.
pub(super) enum Task {
    /// Write a head.
    Head(HeadToStore, Promise<Put>),
    /// Write a piece of a body.
    Extent { id: ObjectId, key_hash: u64, at: u64, bytes: Vec<Bytes>, waiting: Promise<Put> },
    /// Remove heads of a key.
    Forget { key: Bytes, id: Option<ObjectId>, part: RemovalPart, hiding: Hiding },
    /// Take the blocks of a body out of the index: its head has gone before, and now its last reader.
    DropBlocks { id: ObjectId, length: Option<u64> },
    /// Bring rules to disk.
    Rules(Arc<[Rule]>, RemovalPart),
    /// Bring everything to disk, and let go of this.
    Sync(Arc<Promise<()>>),
}

/// Memory of a task beside the bytes that it carries.
const TASK_BYTES: u64 = 256;

impl Task {
    pub(super) fn bytes(&self) -> u64 {
        let sum = |pieces: &[Bytes]| pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        match self {
            Task::Head(head, _) => {
                let body = head.body.as_deref().map_or(0, sum);
                TASK_BYTES + (head.key.len() + head.meta.len() + head.tags.len() * 8) as u64 + body
            }
            Task::Extent { bytes, .. } => TASK_BYTES + sum(bytes),
            Task::Forget { .. } | Task::DropBlocks { .. } | Task::Rules(..) | Task::Sync(_) => 0,
        }
    }

    fn refuse(self, why: Refusal) {
        match self {
            Task::Head(_, waiting) | Task::Extent { waiting, .. } => waiting.give(Put::Refused(why)),
            Task::Forget { .. } | Task::DropBlocks { .. } | Task::Rules(..) | Task::Sync(_) => {}
        }
    }
}

/// The queue of one writer.
pub(super) struct Queue {
    bytes_max: u64,
    bytes: AtomicU64,
    refused: AtomicU64,
    /// How often something was done.
    steps: AtomicU64,
    /// Nothing was done for so long that nobody is to wait for it.
    stalled: AtomicBool,
    /// Bodies had to wait for room for so long that none is to wait for it any more.
    behind: AtomicBool,
    /// Bodies that passed by the disk because it was behind.
    passed_by: AtomicU64,
    /// One did since the last look.
    passes_now: AtomicBool,
    inner: Mutex<Inner>,
    work: Condvar,
}

#[derive(Default)]
struct Inner {
    tasks: VecDeque<Task>,
    closed: bool,
    wakers: Vec<Waker>,
    /// The steps that the last look saw, and since when they are that many.
    seen: Option<(u64, Instant)>,
    /// When the last look was.
    looked: Option<Instant>,
    /// For how much longer there was no room than there was, of late.
    crowded: Duration,
    /// For how long no body has passed by.
    calm: Duration,
}

/// The result of waiting for tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Tasks.
    Tasks,
    /// Nothing within the time.
    Nothing,
    /// Nothing any more.
    Closed,
}

/// A disk that takes nothing for so long is not waited for.
pub(super) const STALLED_AFTER: Duration = Duration::from_secs(2);

/// Bodies wait for a disk that was without room for so long, beyond the time in which it had some. Until then it is a burst, which the
/// queue and a short wait carry.
const CROWDED_MAX: Duration = Duration::from_secs(1);

/// A disk that was behind has caught up once it took all that came for so long. Were it to count as caught up as soon as its queue is
/// short, which it is as soon as bodies pass by, all would wait again a second later.
const CALM_MIN: Duration = Duration::from_secs(5);

/// The time between two looks counts for no more than this: a process that stood still says nothing of its disk.
const LOOK_MAX: Duration = Duration::from_millis(500);

impl Queue {
    pub(super) fn new(bytes_max: u64) -> Queue {
        Queue {
            bytes_max,
            bytes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            stalled: AtomicBool::new(false),
            behind: AtomicBool::new(false),
            passed_by: AtomicU64::new(0),
            passes_now: AtomicBool::new(false),
            inner: Mutex::default(),
            work: Condvar::new(),
        }
    }

    /// Adds a task; a put that finds too much before it is refused. One put always has room, however large.
    pub(super) fn push(&self, task: Task) {
        let bytes = task.bytes();
        let mut inner = self.inner.lock();
        if inner.closed {
            drop(inner);
            return task.refuse(Refusal::Closed);
        }
        let waiting = self.bytes.load(Ordering::Relaxed);
        if bytes > 0 && waiting > 0 && waiting + bytes > self.bytes_max {
            drop(inner);
            self.refused.fetch_add(1, Ordering::Relaxed);
            return task.refuse(Refusal::QueueFull);
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        inner.tasks.push_back(task);
        drop(inner);
        self.work.notify_one();
    }

    /// All tasks, into an empty list; without one it waits so long, or until there is one. Taken one by one they would
    /// cost a contended lock each. They count for their bytes until [`Queue::done`].
    pub(super) fn take(&self, into: &mut VecDeque<Task>, wait: Option<Duration>) -> Taken {
        let mut inner = self.inner.lock();
        while inner.tasks.is_empty() {
            if inner.closed {
                return Taken::Closed;
            }
            match wait {
                None => self.work.wait(&mut inner),
                Some(Duration::ZERO) => return Taken::Nothing,
                Some(wait) => {
                    if self.work.wait_for(&mut inner, wait).timed_out() && inner.tasks.is_empty() {
                        return Taken::Nothing;
                    }
                }
            }
        }
        std::mem::swap(&mut inner.tasks, into);
        Taken::Tasks
    }

    /// So many bytes are not held any more.
    pub(super) fn done(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.steps.fetch_add(1, Ordering::Relaxed);
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if before >= self.bytes_max / 2 {
            let wakers = std::mem::take(&mut self.inner.lock().wakers);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Ready when there is room for one more put of a usual size.
    pub(super) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        if self.has_room() {
            return Poll::Ready(());
        }
        let mut inner = self.inner.lock();
        // Looked at again under the lock, behind which the writer wakes.
        if self.has_room() || inner.closed {
            return Poll::Ready(());
        }
        if !inner.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            inner.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    fn has_room(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) < self.bytes_max / 2 || self.stalled.load(Ordering::Relaxed)
    }

    /// Whether a further body may begin to go to disk: while the disk is behind, only where much of the queue is free, so that those
    /// which have begun need not wait.
    pub(super) fn takes_body(&self) -> bool {
        let takes = !self.is_behind() || self.bytes() < self.bytes_max / 4;
        if !takes {
            self.pass_by();
        }
        takes
    }

    /// Counts a body that passes by the disk.
    pub(super) fn pass_by(&self) {
        self.passed_by.fetch_add(1, Ordering::Relaxed);
        self.passes_now.store(true, Ordering::Relaxed);
    }

    /// Whether nothing was done for so long that nobody is to wait for it.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    /// Whether bodies pass by the disk rather than wait for it.
    pub(super) fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Relaxed)
    }

    pub(super) fn passed_by(&self) -> u64 {
        self.passed_by.load(Ordering::Relaxed)
    }

    /// Wakes the task at the next look.
    pub(super) fn wake_at_look(&self, cx: &Context<'_>) {
        let mut inner = self.inner.lock();
        if !inner.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            inner.wakers.push(cx.waker().clone());
        }
    }

    /// Measures for how long the queue has had no room.
    fn measure(&self, inner: &mut Inner, now: Instant) {
        let passed = inner.looked.map_or(Duration::ZERO, |looked| now.saturating_duration_since(looked)).min(LOOK_MAX);
        inner.looked = Some(now);
        inner.crowded = match self.bytes() >= self.bytes_max / 2 {
            true => (inner.crowded + passed).min(CROWDED_MAX),
            false => inner.crowded.saturating_sub(passed),
        };
        inner.calm = if self.passes_now.swap(false, Ordering::Relaxed) { Duration::ZERO } else { inner.calm + passed };
        if inner.crowded >= CROWDED_MAX {
            if !self.behind.swap(true, Ordering::Relaxed) {
                inner.calm = Duration::ZERO;
            }
        } else if inner.calm >= CALM_MIN {
            self.behind.store(false, Ordering::Relaxed);
        }
    }

    /// Looks whether the writer gets on, and whether it is behind. While it does not get on, nobody waits for room, and what finds none is
    /// refused. Wakes all who wait, so that they see how long they have waited. To be called some times a second.
    pub(super) fn watch(&self, now: Instant) {
        let steps = self.steps.load(Ordering::Relaxed);
        let mut inner = self.inner.lock();
        self.measure(&mut inner, now);
        let since = match inner.seen {
            Some((seen, since)) if seen == steps && self.bytes() > 0 => since,
            _ => now,
        };
        inner.seen = Some((steps, since));
        let stalled = now.saturating_duration_since(since) >= STALLED_AFTER;
        self.stalled.store(stalled, Ordering::Relaxed);
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The writer lost the tasks that it had taken: the bytes are those of the tasks that still wait.
    pub(super) fn forget_taken(&self) {
        let mut inner = self.inner.lock();
        self.bytes.store(inner.tasks.iter().map(Task::bytes).sum(), Ordering::Relaxed);
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Lets nothing in any more; what is in stays to be done.
    pub(super) fn close(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        self.work.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Refuses what is left: the writer is gone.
    pub(super) fn abandon(&self) {
        self.close();
        let left = std::mem::take(&mut self.inner.lock().tasks);
        left.into_iter().for_each(|task| task.refuse(Refusal::Closed));
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Putting;
    use super::*;

    fn put(queue: &Queue, bytes: usize) -> Putting {
        let (putting, waiting) = Putting::pair();
        let bytes = vec![Bytes::from(vec![0; bytes])];
        queue.push(Task::Extent { id: ObjectId(1), key_hash: 2, at: 0, bytes, waiting });
        putting
    }

    #[test]
    fn what_is_too_much_is_refused_and_counted() {
        let queue = Queue::new(10_000);
        let large = put(&queue, 20_000);
        assert_eq!(put(&queue, 1).wait(), Put::Refused(Refusal::QueueFull));
        assert_eq!((queue.refused(), queue.bytes()), (1, 20_000 + TASK_BYTES));
        let cx = Context::from_waker(Waker::noop());
        assert!(queue.poll_room(&cx).is_pending());
        let mut tasks = VecDeque::new();
        assert_eq!(queue.take(&mut tasks, None), Taken::Tasks);
        queue.done(tasks[0].bytes());
        tasks.clear();
        assert_eq!(large.wait(), Put::Refused(Refusal::Closed), "its writer dropped it");
        assert!(queue.poll_room(&cx).is_ready());
        assert_eq!(queue.take(&mut tasks, Some(Duration::from_millis(1))), Taken::Nothing);
    }

    /// Plays looks at a queue, ten a second; gives the seconds for which it was behind.
    fn behind_for(queue: &Queue, start: Instant, looks: std::ops::Range<u32>, each: impl Fn(u32)) -> f64 {
        let behind = looks.filter(|look| {
            each(*look);
            queue.watch(start + Duration::from_millis(100) * *look);
            queue.is_behind()
        });
        f64::from(u32::try_from(behind.count()).unwrap()) / 10.0
    }

    #[test]
    fn a_disk_is_behind_once_bodies_had_to_wait_for_a_second_and_not_for_a_burst() {
        let queue = Queue::new(10_000);
        let start = Instant::now();
        let held = put(&queue, 6_000);
        assert_eq!(behind_for(&queue, start, 0..10, |_| ()), 0.0, "nine tenths of a second");
        let mut tasks = VecDeque::new();
        queue.take(&mut tasks, None);
        queue.done(tasks[0].bytes());
        assert_eq!(behind_for(&queue, start, 10..40, |_| ()), 0.0, "that was a burst");
        tasks.clear();
        drop(held);
        let _held = put(&queue, 6_000);
        assert_eq!(behind_for(&queue, start, 40..60, |_| ()), 1.1);
        assert!(!queue.takes_body());
        assert_eq!(queue.passed_by(), 1);
    }

    /// The queue is short as soon as bodies pass by: were that enough, bodies would wait again a second later.
    #[test]
    fn a_disk_that_is_behind_stays_so_while_bodies_pass_by() {
        let queue = Queue::new(10_000);
        let start = Instant::now();
        let _held = put(&queue, 6_000);
        behind_for(&queue, start, 0..20, |_| ());
        assert!(queue.is_behind());
        let mut tasks = VecDeque::new();
        queue.take(&mut tasks, None);
        queue.done(tasks[0].bytes());
        let _a_quarter = put(&queue, 2_500);
        // Three times as much comes as the disk takes: each look finds a body that passes by.
        assert_eq!(behind_for(&queue, start, 20..620, |_| _ = queue.takes_body()), 60.0);
        // Now it takes all that comes.
        queue.take(&mut tasks, None);
        queue.done(queue.bytes());
        let behind = behind_for(&queue, start, 620..720, |_| assert!(queue.takes_body()));
        assert!((4.0..6.0).contains(&behind), "{behind}");
    }

    #[test]
    fn those_who_wait_see_how_long_they_have_waited() {
        let queue = Queue::new(1_000);
        let (_held, woken) = (put(&queue, 900), Arc::new(Woken::default()));
        let waker = Waker::from(Arc::clone(&woken));
        assert!(queue.poll_room(&Context::from_waker(&waker)).is_pending());
        queue.watch(Instant::now());
        assert!(woken.0.swap(false, Ordering::Relaxed));
        queue.watch(Instant::now());
        assert!(!woken.0.load(Ordering::Relaxed), "it waits no more");
    }

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_closed_queue_ends() {
        let queue = Queue::new(10_000);
        let one = put(&queue, 1);
        queue.close();
        assert_eq!(put(&queue, 1).wait(), Put::Refused(Refusal::Closed));
        queue.abandon();
        assert_eq!(one.wait(), Put::Refused(Refusal::Closed));
        assert_eq!(queue.take(&mut VecDeque::new(), None), Taken::Closed);
    }

    #[test]
    fn a_writer_that_does_nothing_is_not_waited_for() {
        let queue = Queue::new(1000);
        let cx = Context::from_waker(Waker::noop());
        let _held = put(&queue, 600);
        assert!(queue.poll_room(&cx).is_pending());
        let start = Instant::now();
        queue.watch(start);
        queue.watch(start + STALLED_AFTER / 2);
        assert!(queue.poll_room(&cx).is_pending());
        queue.watch(start + STALLED_AFTER);
        assert!(queue.poll_room(&cx).is_ready(), "whoever waits goes on without it");
        queue.done(1);
        queue.watch(start + STALLED_AFTER);
        assert!(queue.poll_room(&cx).is_pending(), "it got on");
    }
}
