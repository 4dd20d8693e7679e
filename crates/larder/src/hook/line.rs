//! The connection of a worker to one process of hooks: calls go out in batches, and replies come back by their numbers.

use super::frame::{self, CallFacts, Reply};
use crate::mount::{Process, ProcessLease, RunningCall, connect_socket};
use bytes::BytesMut;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
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
    /// There is no process at the socket any more: another one may be asked.
    Refused,
}

/// A call gets its time anew so often, where the machine did not let it use it.
const STARVED_MAX: u32 = 9;

/// A process that has begun no call hangs after so many times the time of one: no hook runs, and a machine that is busy delays it.
const IDLE_TIMES: u32 = 4;

type Answer = Result<Reply, NoReply>;

/// The connection to one process. Its task ends with the connection.
pub(super) struct Line {
    process: Arc<Process>,
    /// Bytes of calls that were not written yet.
    out: RefCell<Vec<u8>>,
    /// Calls without a reply, by their numbers.
    pending: RefCell<BTreeMap<u32, Pending>>,
    /// When the last reply came, or the first call was made after a time without any.
    since: Cell<Instant>,
    is_open: Cell<bool>,
    wake: Notify,
}

struct Pending {
    answer: oneshot::Sender<Answer>,
    /// Holds the process's place; it also says when the process hangs.
    lease: ProcessLease,
    /// The hook that runs, where the call is for only one.
    only: Option<u16>,
}

/// Why a connection ends.
enum LineEnd {
    /// A call runs for too long, of this worker or of another one; without a call the process takes none.
    Late(Option<RunningCall>),
    /// The process closed the connection, or broke the rules of frames.
    Closed,
    /// There is no process at the socket.
    Refused,
}

/// The reason for which the calls of a connection wait, and since when it does.
#[derive(Clone, Copy)]
struct Wait {
    /// The call that runs, of this worker or of another one; `None` where the process has begun none.
    call: Option<RunningCall>,
    since: Instant,
}

impl Wait {
    fn is_same(&self, other: &Wait) -> bool {
        match (&self.call, &other.call) {
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
        let running = Rc::clone(&line);
        tokio::task::spawn_local(async move {
            let end = running.run(call_time).await;
            running.close(end, call_time);
        });
        line
    }

    /// Whether calls can be made.
    pub fn is_open(&self) -> bool {
        self.is_open.get()
    }

    /// Makes a call; the reply comes by the receiver. `None` where the facts are more than a frame may hold.
    pub fn call(&self, facts: &CallFacts<'_>, lease: ProcessLease) -> Option<oneshot::Receiver<Answer>> {
        let number = self.process.number_call();
        if !frame::push_call(&mut self.out.borrow_mut(), number, facts) {
            return None;
        }
        let mut pending = self.pending.borrow_mut();
        if pending.is_empty() {
            self.since.set(Instant::now());
        }
        let (answer, receiver) = oneshot::channel();
        let only = if let [only] = facts.hooks { Some(*only) } else { None };
        pending.insert(number, Pending { answer, lease, only });
        self.wake.notify_one();
        Some(receiver)
    }

    async fn run(&self, call_time: Duration) -> LineEnd {
        let Ok(mut stream) = connect_socket(&self.process.socket).await else { return LineEnd::Refused };
        let (mut reader, mut writer) = stream.split();
        // Side by side: a process that writes a long reply may not read meanwhile. In this order: where this worker had to wait,
        // a reply may be here that is no longer late.
        tokio::select! {
            biased;
            () = self.read(&mut reader) => LineEnd::Closed,
            () = self.write(&mut writer) => LineEnd::Closed,
            call = self.watch(call_time) => LineEnd::Late(call),
        }
    }

    /// Hands out replies until the connection ends.
    async fn read(&self, reader: &mut (impl AsyncReadExt + Unpin)) {
        let mut incoming = BytesMut::new();
        while reader.read_buf(&mut incoming).await.is_ok_and(|read| read > 0) {
            if !self.take_replies(&mut incoming) {
                return;
            }
        }
    }

    /// Writes calls until the connection ends.
    async fn write(&self, writer: &mut (impl AsyncWriteExt + Unpin)) {
        loop {
            self.wake.notified().await;
            // Calls of the same round go along.
            tokio::task::yield_now().await;
            let bytes = std::mem::take(&mut *self.out.borrow_mut());
            if writer.write_all(&bytes).await.is_err() {
                return;
            }
        }
    }

    /// Waits until a call takes too long, of whichever worker, and gives it; `None` where the process takes no calls. The time of a call
    /// counts from when the process has begun it. Time in which the machine let this worker or the process wait does not count, up to
    /// [`STARVED_MAX`]: a timer that comes late says it of the worker, and the system says it of the process.
    async fn watch(&self, call_time: Duration) -> Option<RunningCall> {
        let mut starved = 0;
        // The wait that began anew, because the machine did not let the call use its time.
        let mut renewed: Option<(Wait, Instant)> = None;
        loop {
            let Some(wait) = self.wait() else {
                sleep_until(Instant::now() + call_time).await;
                continue;
            };
            // The note of a process is not trusted for longer: a script may write into it.
            if self.since.get().elapsed() > silence_max(call_time) {
                return wait.call;
            }
            let again = renewed.filter(|(renewed, _)| renewed.is_same(&wait));
            if again.is_none() {
                starved = 0;
            }
            let is_idle = wait.call.is_none() && self.process.running.is_some();
            let call_time = if is_idle { call_time * IDLE_TIMES } else { call_time };
            let since = again.map_or(wait.since, |(_, at)| at);
            sleep_until(since + call_time / 2).await;
            if !self.still_waits(&wait) {
                continue;
            }
            let (pid, due) = (self.process.pid, since + call_time);
            let waited = waited_for_cpu(pid);
            sleep_until(due).await;
            if !self.still_waits(&wait) {
                continue;
            }
            let waited = waited_for_cpu(pid).saturating_sub(waited);
            let longest = waited.max(Instant::now() - due);
            if starved == STARVED_MAX || longest < call_time / 4 {
                return wait.call;
            }
            starved += 1;
            renewed = Some((wait, Instant::now()));
        }
    }

    /// The reason for which calls of this connection wait; `None` where there are none.
    fn wait(&self) -> Option<Wait> {
        if self.pending.borrow().is_empty() {
            return None;
        }
        let call = self.running();
        let now = Instant::now();
        let began = call.and_then(|call| now.checked_sub(call.time()));
        Some(Wait { call, since: began.unwrap_or(self.since.get()) })
    }

    /// Whether they wait for the same still.
    fn still_waits(&self, wait: &Wait) -> bool {
        self.wait().is_some_and(|now| now.is_same(wait))
    }

    fn running(&self) -> Option<RunningCall> {
        self.process.running.as_ref()?.read()
    }

    /// Hands out the replies that are whole; false where the process breaks the rules of frames.
    fn take_replies(&self, incoming: &mut BytesMut) -> bool {
        loop {
            match frame::take_reply(incoming) {
                Ok(None) => return true,
                Err(_) => return false,
                Ok(Some(frame)) => {
                    let Some(pending) = self.pending.borrow_mut().remove(&frame.number) else { return false };
                    self.since.set(Instant::now());
                    // A request that was given up does not take it.
                    let _ = pending.answer.send(Ok(frame.reply));
                }
            }
        }
    }

    /// The call that ran ends so, and the others may go elsewhere.
    fn close(&self, end: LineEnd, call_time: Duration) {
        self.is_open.set(false);
        let mut pending = std::mem::take(&mut *self.pending.borrow_mut());
        let (call, is_late) = match end {
            LineEnd::Late(call) => (call, true),
            // Another worker may have been first to see that this worker's call is late.
            LineEnd::Closed => {
                let call = self.running();
                (call, call.is_some_and(|call| call.time() >= call_time))
            }
            LineEnd::Refused => (None, false),
        };
        // Without memory to share, the first call is taken for the one that ran.
        let first = pending.first_key_value().map(|(number, first)| (*number, first.only));
        let (culprit, hook) = match (&self.process.running, &end) {
            (_, LineEnd::Refused) => (None, None),
            (Some(_), _) => (call.map(|call| call.number), call.map(|call| call.hook)),
            (None, _) => (first.map(|(number, _)| number), first.and_then(|(_, only)| only)),
        };
        if let Some((_, any)) = pending.first_key_value() {
            match &end {
                LineEnd::Late(_) => any.lease.hangs_in(hook),
                _ => any.lease.is_gone(),
            }
        }
        if let Some(culprit) = culprit.and_then(|number| pending.remove(&number)) {
            let hook = hook.or(culprit.only);
            self.count(hook, call, is_late);
            let end = if is_late { NoReply::Late(hook) } else { NoReply::Ended(hook) };
            let _ = culprit.answer.send(Err(end));
        }
        let rest = if matches!(end, LineEnd::Refused) { NoReply::Refused } else { NoReply::NotBegun };
        for pending in pending.into_values() {
            let _ = pending.answer.send(Err(rest));
        }
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
