//! The connection of a worker to one process of hooks: calls go out in batches, and replies come back by their numbers.

use super::frame::{self, CallFacts, Reply};
use crate::clock;
use crate::mount::{Closed, Process, ProcessFault, ProcessLease, RunningCall, UntrueNote, connect_socket, is_closed};
use bytes::BytesMut;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

/// Why a call has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoReply {
    /// The hooks were running, and took too long: this one of them, where it is known.
    Late(Option<u16>),
    /// The process ended, or broke the rules of frames, while this hook ran, where it is known.
    Ended(Option<u16>),
    /// The process ended because of another call, or took none: another process may be asked.
    NotBegun,
    /// No connection to the process could be had: another one may be asked.
    Unconnected,
    /// The process has not come to it in time.
    Busy,
}

/// A call gets its time anew so often, where the machine did not let it use it.
const STARVED_MAX: u32 = 9;

/// A process that has begun no call hangs after so many times the time of one: no hook runs, and a machine that is busy delays it.
const IDLE_TIMES: u32 = 4;

/// A larger buffer for calls is not kept.
const CALLS_BYTES_KEPT_MAX: usize = 64 * 1024;

/// Room for the replies of one read.
const REPLIES_BYTES: usize = 16 * 1024;

/// After so many replies other tasks get a turn.
const TURN_REPLIES: usize = 64;

/// The reply to a call, or why there is none.
pub(super) type Answer = Result<Reply, NoReply>;

/// The one who gets the answer.
pub(super) enum Asker {
    /// A task that waits for it.
    Waits(oneshot::Sender<Answer>),
    /// A request without a task, which goes on by this function.
    GoesOn(Box<dyn FnOnce(Answer)>),
}

impl Asker {
    fn take(self, answer: Answer) {
        match self {
            // A request that was given up does not take it.
            Asker::Waits(sender) => drop(sender.send(answer)),
            Asker::GoesOn(go_on) => go_on(answer),
        }
    }
}

/// The connection to one process. Its task ends with the connection.
pub(super) struct Line {
    process: Arc<Process>,
    /// Bytes of calls that were not written yet.
    out: RefCell<Vec<u8>>,
    /// Calls without a reply, in the order in which they were made. A process replies in this order too.
    pending: RefCell<VecDeque<Pending>>,
    /// When the last reply came, or the first call was made after a time without any.
    since: Cell<Instant>,
    is_open: Cell<bool>,
    wake: Notify,
}

struct Pending {
    number: u32,
    /// `None` where it was given up: the process's place is held until the reply all the same.
    asker: Option<Asker>,
    /// Holds the process's place; it also says when the process hangs.
    lease: ProcessLease,
    /// The hook that runs, where the call is for only one.
    only: Option<u16>,
    /// When it is given up.
    until: Instant,
}

impl Pending {
    /// Hands the answer over. The process's place is free before that: the next request may want it at once.
    fn end(self, answer: Answer) {
        let Pending { asker, lease, .. } = self;
        drop(lease);
        if let Some(asker) = asker {
            asker.take(answer);
        }
    }
}

/// Forgets the calls of a connection whose task ends before they have replies, with the worker or by a broken invariant: their requests
/// hold the worker's state, which holds the connection.
struct ForgetsCalls(Rc<Line>);

impl Drop for ForgetsCalls {
    fn drop(&mut self) {
        self.0.is_open.set(false);
        let pending = std::mem::take(&mut *self.0.pending.borrow_mut());
        drop(pending);
    }
}

/// Why a connection ends.
enum LineEnd {
    /// A call runs for too long, of this worker or of another one; without a call the process takes none.
    Late(Option<RunningCall>),
    /// The process broke the rules of frames, in this way.
    Broken(&'static str),
    /// The process closed the connection.
    Closed,
    /// The process has closed its socket.
    Refused,
    /// This server could not connect.
    Unconnected,
}

/// The reason for which the calls of a connection wait, and since when it does.
#[derive(Clone, Copy)]
struct Wait {
    /// The call that runs, of this worker or of another one; `None` where the process has begun none.
    call: Option<RunningCall>,
    since: Instant,
    /// The last sign of the process, where it has no calls but those of this connection: until the next one it can run only one.
    sign: Option<(Instant, Duration)>,
}

impl Wait {
    fn is_same(&self, other: &Wait) -> bool {
        match (&self.call, &other.call) {
            (Some(_), Some(_)) if self.sign.is_some() && other.sign.is_some() => self.sign == other.sign,
            (Some(one), Some(other)) => one.is_same(other),
            (None, None) => self.since == other.since,
            _ => false,
        }
    }
}

impl Line {
    /// A connection that begins, whose calls may take so long each.
    pub fn open(process: &Arc<Process>, call_time: Duration) -> Rc<Line> {
        let line = Rc::new(Line {
            process: Arc::clone(process),
            out: RefCell::default(),
            pending: RefCell::default(),
            since: Cell::new(Instant::now()),
            is_open: Cell::new(true),
            wake: Notify::new(),
        });
        let running = ForgetsCalls(Rc::clone(&line));
        tokio::task::spawn_local(async move {
            let running = &running.0;
            let end = tokio::select! {
                biased;
                end = running.run(call_time) => end,
                never = running.give_up_late_calls(super::patience(call_time)) => match never {},
            };
            running.close(end, call_time);
        });
        line
    }

    /// Whether calls can be made.
    pub fn is_open(&self) -> bool {
        self.is_open.get()
    }

    /// Writes a call behind those that are to be sent, and gives its number. [`Line::answer_to`] has to follow, before anything else is waited
    /// for. `None` where the facts are more than a frame may hold.
    pub fn push(&self, facts: &CallFacts<'_>) -> Option<u32> {
        let number = self.process.number_call();
        frame::push_call(&mut self.out.borrow_mut(), number, facts).then_some(number)
    }

    /// Has the answer to the call of this number, of the hook where it is only one, handed to this asker.
    pub fn answer_to(&self, (number, only): (u32, Option<u16>), lease: ProcessLease, until: Instant, asker: Asker) {
        let mut pending = self.pending.borrow_mut();
        if pending.is_empty() {
            self.since.set(Instant::now());
        }
        pending.push_back(Pending { number, asker: Some(asker), lease, only, until });
        self.wake.notify_one();
    }

    /// Gives up the calls of requests without a task.
    pub fn give_up_requests(&self) {
        let is_without_task = |pending: &Pending| matches!(pending.asker, Some(Asker::GoesOn(_)));
        self.give_up(is_without_task, NoReply::NotBegun);
    }

    fn give_up(&self, is_meant: impl Fn(&Pending) -> bool, why: NoReply) {
        let mut pending = self.pending.borrow_mut();
        let meant = pending.iter_mut().filter(|pending| is_meant(pending));
        let askers: Vec<Asker> = meant.filter_map(|pending| pending.asker.take()).collect();
        drop(pending);
        askers.into_iter().for_each(|asker| asker.take(Err(why)));
    }

    /// Gives up calls to which the process does not come in time.
    async fn give_up_late_calls(&self, patience: Duration) -> Infallible {
        loop {
            let due = self.pending.borrow().iter().find(|pending| pending.asker.is_some()).map(|pending| pending.until);
            // A call may be made meanwhile that has waited for its process before.
            let look = Instant::now() + patience / 4;
            sleep_until(due.map_or(look, |due| due.min(look))).await;
            let now = Instant::now();
            self.give_up(|pending| pending.until <= now, NoReply::Busy);
        }
    }

    async fn run(&self, call_time: Duration) -> LineEnd {
        let mut stream = match connect_socket(&self.process.socket).await {
            Ok(stream) => stream,
            Err(error) if is_closed(&error) => return LineEnd::Refused,
            Err(_) => return LineEnd::Unconnected,
        };
        let (mut reader, mut writer) = stream.split();
        // Side by side: a process that writes a long reply may not read meanwhile. In this order: where this worker had to wait,
        // a reply may be here that is no longer late.
        tokio::select! {
            biased;
            end = self.read(&mut reader) => end,
            () = self.write(&mut writer) => LineEnd::Closed,
            late = self.watch(call_time) => match late {
                Ok(call) => LineEnd::Late(call),
                Err(UntrueNote) => LineEnd::Broken("its note of the call that it runs can't be true"),
            },
        }
    }

    /// Hands out replies until the connection ends, and says how it did.
    async fn read(&self, reader: &mut (impl AsyncReadExt + Unpin)) -> LineEnd {
        let mut incoming = BytesMut::new();
        loop {
            incoming.reserve(REPLIES_BYTES);
            if !reader.read_buf(&mut incoming).await.is_ok_and(|read| read > 0) {
                return LineEnd::Closed;
            }
            loop {
                match self.take_replies(&mut incoming) {
                    None => return LineEnd::Broken("it wrote what is no reply to a call"),
                    Some(false) => break,
                    Some(true) => tokio::task::yield_now().await,
                }
            }
        }
    }

    /// Writes calls until the connection ends.
    async fn write(&self, writer: &mut (impl AsyncWriteExt + Unpin)) {
        // Two buffers in turn, so that none grows anew.
        let mut bytes = Vec::new();
        loop {
            // The calls of a round go along: this task gets its turn behind those that were woken before.
            self.wake.notified().await;
            std::mem::swap(&mut bytes, &mut *self.out.borrow_mut());
            if writer.write_all(&bytes).await.is_err() {
                return;
            }
            bytes.clear();
            bytes.shrink_to(CALLS_BYTES_KEPT_MAX);
        }
    }

    /// Waits until a call takes too long, of whichever worker, and gives it; `None` where the process takes no calls. The time of a call
    /// counts from when the process has begun it. Time in which the machine let this worker or the process wait does not count, up to
    /// [`STARVED_MAX`]: a timer that comes late says it of the worker, and the system says it of the process. Fails where the process's
    /// note of its call can't be true.
    async fn watch(&self, call_time: Duration) -> Result<Option<RunningCall>, UntrueNote> {
        let mut starved = 0;
        // The wait that began anew, because the machine did not let the call use its time.
        let mut renewed: Option<(Wait, Instant)> = None;
        loop {
            let Some(wait) = self.wait(call_time)? else {
                sleep_until(Instant::now() + call_time).await;
                continue;
            };
            // The note of a process is not trusted for longer: a script may write into it.
            let is_silent = wait.call.is_some() && self.silence() > super::patience(call_time);
            if is_silent || self.since.get().elapsed() > silence_max(call_time) {
                return Ok(wait.call);
            }
            let again = renewed.filter(|(renewed, _)| renewed.is_same(&wait));
            if again.is_none() {
                starved = 0;
            }
            let is_idle = wait.call.is_none() && self.process.running.is_some();
            let call_time = if is_idle { call_time * IDLE_TIMES } else { call_time };
            let since = again.map_or(wait.since, |(_, at)| at);
            sleep_until(since + call_time / 2).await;
            if !self.still_waits(&wait, call_time)? {
                continue;
            }
            let (pid, due) = (self.process.pid, since + call_time);
            let waited = waited_for_cpu(pid);
            sleep_until(due).await;
            if !self.still_waits(&wait, call_time)? {
                continue;
            }
            let waited = waited_for_cpu(pid).saturating_sub(waited);
            let longest = waited.max(Instant::now() - due);
            if starved == STARVED_MAX || longest < call_time / 4 {
                return Ok(wait.call);
            }
            starved += 1;
            renewed = Some((wait, Instant::now()));
        }
    }

    /// The reason for which calls of this connection wait; `None` where there are none.
    fn wait(&self, call_time: Duration) -> Result<Option<Wait>, UntrueNote> {
        let many = self.pending.borrow().len();
        if many == 0 {
            return Ok(None);
        }
        let call = self.process.running_call()?;
        let (now, since) = (Instant::now(), self.since.get());
        let sign = (self.process.under_way() <= many).then(|| (since, self.process.replied_at()));
        let began = call.and_then(|call| now.checked_sub(call.time()));
        // Without calls of other workers the note can't move the time of a call by more than an idle process may take.
        let latest = sign.and_then(|_| now.checked_sub(self.silence())).map(|heard| heard + call_time * IDLE_TIMES);
        let began = began.map(|began| latest.map_or(began, |latest| began.min(latest)));
        Ok(Some(Wait { call, since: began.unwrap_or(since), sign }))
    }

    /// How long calls have waited for a sign of the process on whichever connection.
    fn silence(&self) -> Duration {
        self.since.get().elapsed().min(clock::shared().saturating_sub(self.process.replied_at()))
    }

    /// Whether they wait for the same still.
    fn still_waits(&self, wait: &Wait, call_time: Duration) -> Result<bool, UntrueNote> {
        Ok(self.wait(call_time)?.is_some_and(|now| now.is_same(wait)))
    }

    fn running(&self) -> Option<RunningCall> {
        self.process.running_call().ok().flatten()
    }

    /// Hands out replies that are whole, and says whether there may be more; `None` where the process breaks the rules of frames.
    fn take_replies(&self, incoming: &mut BytesMut) -> Option<bool> {
        for taken in 0..TURN_REPLIES {
            let Some(frame) = frame::take_reply(incoming).ok()? else { return Some(false) };
            let pending = self.take_pending(frame.number)?;
            if taken == 0 {
                self.since.set(Instant::now());
                self.process.replied();
            }
            pending.end(Ok(frame.reply));
        }
        Some(true)
    }

    fn take_pending(&self, number: u32) -> Option<Pending> {
        let mut pending = self.pending.borrow_mut();
        let at = pending.iter().position(|pending| pending.number == number)?;
        pending.remove(at)
    }

    /// The call that ran ends so, and the others may go elsewhere.
    fn close(&self, end: LineEnd, call_time: Duration) {
        self.is_open.set(false);
        let mut pending = std::mem::take(&mut *self.pending.borrow_mut());
        let (call, is_late) = match end {
            LineEnd::Late(call) => (call, true),
            // Another worker may have been first to see that this worker's call is late.
            LineEnd::Closed | LineEnd::Broken(_) => {
                let call = self.running();
                (call, call.is_some_and(|call| call.time() >= call_time))
            }
            LineEnd::Refused | LineEnd::Unconnected => (None, false),
        };
        let is_alone = self.process.under_way() <= pending.len();
        let is_first = match &end {
            LineEnd::Refused | LineEnd::Unconnected => false,
            // The call that broke the rules may have ended; asked of another process, it would break that one too.
            LineEnd::Broken(_) if call.is_none() && is_alone => true,
            // Without memory to share, the first call is taken for the one that ran.
            _ => self.process.running.is_none(),
        };
        let first = pending.front().filter(|_| is_first).map(|first| (first.number, first.only));
        let (culprit, hook) = match (first, call) {
            (Some((number, only)), _) => (Some(number), only),
            (None, call) => (call.map(|call| call.number), call.map(|call| call.hook)),
        };
        match end {
            LineEnd::Late(_) => self.process.fails(ProcessFault::Hangs(hook)),
            LineEnd::Broken(how) => self.process.fails(ProcessFault::Broken(how)),
            LineEnd::Refused => self.process.fails(ProcessFault::Closed(Closed::Socket)),
            LineEnd::Closed => self.process.fails(ProcessFault::Closed(Closed::Connection)),
            LineEnd::Unconnected => {}
        }
        let at = culprit.and_then(|number| pending.iter().position(|pending| pending.number == number));
        if let Some(culprit) = at.and_then(|at| pending.remove(at)) {
            let hook = hook.or(culprit.only);
            self.count(hook, call, is_late);
            culprit.end(Err(if is_late { NoReply::Late(hook) } else { NoReply::Ended(hook) }));
        }
        let rest = match end {
            LineEnd::Refused | LineEnd::Unconnected => NoReply::Unconnected,
            _ => NoReply::NotBegun,
        };
        pending.into_iter().for_each(|pending| pending.end(Err(rest)));
    }

    /// Counts a call that was late, or whose process ended.
    fn count(&self, hook: Option<u16>, call: Option<RunningCall>, is_late: bool) {
        let hooks = self.process.hooks.as_deref();
        if let Some(hook) = hook.and_then(|hook| hooks?.at(hook)) {
            hook.counts.was_cut(call.map_or(Duration::ZERO, |call| call.time()), is_late);
        }
    }
}

/// How long a connection may be without a reply while calls wait for one: by then all of them are given up.
fn silence_max(call_time: Duration) -> Duration {
    super::patience(call_time) * 2
}

/// How long the first thread of a process has waited for a processor since it began; nothing where the system does not tell.
fn waited_for_cpu(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let nanos = text.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}
