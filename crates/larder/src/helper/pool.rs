//! One helper as workers see it: a queue of questions, answers that are remembered, counts.

use crate::clock;
use crate::config::Helper;
use crate::mount::LogBudget;
use larder_people::answer::{Answer, AnswerFault, Outcome};
use larder_people::kind::Kind;
use larder_people::line::LINE_BYTES_MAX;
use larder_people::memo::Memo;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::{Notify, mpsc, oneshot};

/// Answers that are remembered of one helper.
const MEMO_ENTRIES_MAX: usize = 100_000;

/// Why a helper has not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HelperTrouble {
    /// Too many questions wait.
    Busy,
    /// There was no answer in time.
    Late,
    /// Its process ended.
    Ended,
    /// Its processes end as soon as they have begun, and the next one is waited for.
    Down,
    /// A line was no answer, or the answer to nothing.
    Answer(AnswerFault),
    /// A line was too long.
    Flood,
    /// It said `BH`.
    Broken(Box<str>),
    /// The question is longer than a line may be.
    TooLong,
    /// There is no such helper any more.
    Gone,
}

impl HelperTrouble {
    /// The word of pages and logs.
    pub fn as_str(&self) -> &'static str {
        match self {
            HelperTrouble::Busy => "helper-busy",
            HelperTrouble::Late => "helper-late",
            HelperTrouble::Ended | HelperTrouble::Down => "helper-ended",
            HelperTrouble::Answer(_) | HelperTrouble::Flood => "helper-answer",
            HelperTrouble::Broken(_) => "helper-broken",
            HelperTrouble::TooLong => "helper-line",
            HelperTrouble::Gone => "helper-gone",
        }
    }
}

impl fmt::Display for HelperTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HelperTrouble::Busy => f.write_str("too many questions wait for it: raise `children` or `queue`"),
            HelperTrouble::Late => f.write_str("it did not answer within `timeout`"),
            HelperTrouble::Ended => f.write_str("its process ended before it answered"),
            HelperTrouble::Down => f.write_str("its processes end as soon as they begin: look at `command`"),
            HelperTrouble::Answer(fault) => fault.fmt(f),
            HelperTrouble::Flood => f.write_str("it wrote a line without an end, or one that nobody asked for"),
            HelperTrouble::Broken(message) => write!(f, "it could not find it out (BH {message})"),
            HelperTrouble::TooLong => write!(f, "the question is longer than {LINE_BYTES_MAX} bytes"),
            HelperTrouble::Gone => f.write_str("it is not configured any more"),
        }
    }
}

/// The answer to a question, with the conversation that it begins or continues.
pub(super) type Reply = Result<(Answer, Option<Conversation>), HelperTrouble>;

/// A question.
pub(super) struct Job {
    pub line: Vec<u8>,
    pub reply: oneshot::Sender<Reply>,
    /// Until when it waits: for a process, and from then on for its answer.
    pub give_up_at: Instant,
    /// A process ended with it, and another one is asked.
    pub is_second: bool,
}

/// A process that keeps the state of one client's handshake. Dropping it gives the process back.
#[derive(Debug)]
pub struct Conversation(pub(super) mpsc::Sender<Job>);

/// One helper.
pub struct Pool {
    config: Arc<Helper>,
    queue: Mutex<Queue>,
    /// Wakes a process that waits for work.
    pub(super) wake: Notify,
    /// Wakes the supervisor.
    pub(super) grow: Notify,
    memo: Mutex<Memo<Box<[u8]>, Arc<Answer>>>,
    is_down: AtomicBool,
    /// The bytes that its processes may write into the log.
    pub(super) log: LogBudget,
    /// Counts for people.
    pub counts: PoolCounts,
}

/// Counts of one helper since its start.
#[derive(Debug, Default)]
pub struct PoolCounts {
    /// Questions that a process was asked.
    pub asked: AtomicU64,
    /// Questions whose answer was remembered.
    pub remembered: AtomicU64,
    /// Questions without an answer.
    pub failed: AtomicU64,
    /// Processes that were started.
    pub started: AtomicU64,
    /// Processes at this moment.
    pub running: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Processes that wait for work.
    waiting: usize,
    was_asked: bool,
    is_stopped: bool,
}

/// How much work and how many processes there are.
pub(super) struct Load {
    pub queued: usize,
    pub waiting: usize,
    pub was_asked: bool,
    pub is_stopped: bool,
}

impl Pool {
    pub(super) fn new(config: Arc<Helper>) -> Arc<Pool> {
        Arc::new(Pool {
            memo: Mutex::new(Memo::new(MEMO_ENTRIES_MAX, config.memo_bytes_max)),
            config,
            queue: Mutex::default(),
            wake: Notify::new(),
            grow: Notify::new(),
            is_down: AtomicBool::new(false),
            log: LogBudget::default(),
            counts: PoolCounts::default(),
        })
    }

    /// Its settings.
    pub fn config(&self) -> &Arc<Helper> {
        &self.config
    }

    /// The answer to this line, where it is remembered.
    pub fn remembered(&self, line: &[u8]) -> Option<Arc<Answer>> {
        let found = self.memo.lock().find(line, clock::instant()).map(|(answer, _)| Arc::clone(answer))?;
        self.counts.remembered.fetch_add(1, Ordering::Relaxed);
        Some(found)
    }

    /// Asks a process. Cancel-safe: a question whose asker has left is passed over.
    pub async fn ask(&self, line: Vec<u8>) -> Result<Arc<Answer>, HelperTrouble> {
        let key = line.clone().into_boxed_slice();
        let (answer, _) = self.converse(line, None).await?;
        let answer = Arc::new(answer);
        let holds = match (answer.result, self.config.kind) {
            (Outcome::Err, Kind::UrlRewrite | Kind::StoreId) | (Outcome::Ok, _) => self.config.ttl,
            (Outcome::Err, _) => self.config.negative_ttl,
            (Outcome::Broken | Outcome::Continues, _) => return Ok(answer),
        };
        // A line of `basic` has a password in clear; a login remembers its hash.
        if !holds.is_zero() && self.config.kind != Kind::Basic {
            let bytes = answer.bytes() + 2 * key.len() + ENTRY_BYTES;
            self.memo.lock().keep(key, Arc::clone(&answer), bytes, clock::instant() + holds);
        }
        Ok(answer)
    }

    /// Asks the process of a conversation, or any where none has begun.
    pub async fn converse(
        &self,
        line: Vec<u8>,
        conversation: Option<Conversation>,
    ) -> Result<(Answer, Option<Conversation>), HelperTrouble> {
        self.counts.asked.fetch_add(1, Ordering::Relaxed);
        let asked = self.put_question(line, conversation);
        let reply = match asked {
            Err(trouble) => Err(trouble),
            Ok(receiver) => match tokio::time::timeout(2 * self.config.timeout, receiver).await {
                Err(_) => Err(HelperTrouble::Late),
                Ok(Err(_)) => Err(HelperTrouble::Ended),
                Ok(Ok(reply)) => reply,
            },
        };
        let reply = reply.and_then(|(answer, conversation)| match answer.result {
            Outcome::Broken => Err(HelperTrouble::Broken(answer.get("message").unwrap_or("without a reason").into())),
            _ => Ok((answer, conversation)),
        });
        if let Err(trouble) = &reply {
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("helper {}: {trouble}", self.config.name);
        }
        reply
    }

    fn put_question(
        &self,
        line: Vec<u8>,
        conversation: Option<Conversation>,
    ) -> Result<oneshot::Receiver<Reply>, HelperTrouble> {
        if line.len() > LINE_BYTES_MAX {
            return Err(HelperTrouble::TooLong);
        }
        let (reply, receiver) = oneshot::channel();
        let give_up_at = clock::instant() + self.config.timeout;
        let job = Job { line, reply, give_up_at, is_second: false };
        if let Some(Conversation(to)) = conversation {
            return to.try_send(job).map(|()| receiver).map_err(|_| HelperTrouble::Ended);
        }
        if self.is_down.load(Ordering::Relaxed) {
            return Err(HelperTrouble::Down);
        }
        let mut queue = self.queue.lock();
        if queue.is_stopped {
            return Err(HelperTrouble::Gone);
        }
        if queue.jobs.len() >= self.config.queue_max {
            // Askers that have left make room.
            queue.jobs.retain(|job| !job.reply.is_closed());
            if queue.jobs.len() >= self.config.queue_max {
                return Err(HelperTrouble::Busy);
            }
        }
        queue.jobs.push_back(job);
        queue.was_asked = true;
        drop(queue);
        self.wake.notify_one();
        self.grow.notify_one();
        Ok(receiver)
    }

    /// Puts a question back that a process has not answered.
    pub(super) fn put_back(&self, job: Job) {
        self.queue.lock().jobs.push_front(job);
        self.wake.notify_one();
        self.grow.notify_one();
    }

    /// The next question; `None` where no further one comes.
    pub(super) async fn next_job(&self) -> Option<Job> {
        let _waiting = Waiting::begin(self);
        loop {
            let mut notified = std::pin::pin!(self.wake.notified());
            notified.as_mut().enable();
            {
                let mut queue = self.queue.lock();
                while let Some(job) = queue.jobs.pop_front() {
                    if job.give_up_at <= clock::instant() {
                        let _ = job.reply.send(Err(HelperTrouble::Late));
                    } else if !job.reply.is_closed() {
                        return Some(job);
                    }
                }
                if queue.is_stopped {
                    return None;
                }
            }
            notified.await;
        }
    }

    pub(super) fn load(&self) -> Load {
        let queue = self.queue.lock();
        let (queued, waiting) = (queue.jobs.len(), queue.waiting);
        Load { queued, waiting, was_asked: queue.was_asked, is_stopped: queue.is_stopped }
    }

    /// Says whether there is a process, or may soon be one. While there is none, questions fail at once.
    pub(super) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
        if is_down {
            let jobs = std::mem::take(&mut self.queue.lock().jobs);
            jobs.into_iter().for_each(|job| drop(job.reply.send(Err(HelperTrouble::Down))));
        }
    }

    /// Takes no more questions. Those that wait are answered still.
    pub(super) fn stop(&self) {
        self.queue.lock().is_stopped = true;
        self.wake.notify_waiters();
        self.grow.notify_one();
    }
}

/// Memory of an entry of the memo beside its answer and its line.
const ENTRY_BYTES: usize = 128;

/// A process that waits for work.
struct Waiting<'a>(&'a Pool);

impl Waiting<'_> {
    fn begin(pool: &Pool) -> Waiting<'_> {
        pool.queue.lock().waiting += 1;
        Waiting(pool)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().waiting -= 1;
    }
}
