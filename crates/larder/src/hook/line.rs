//! The connection of a worker to one process of hooks: calls go out in batches, and replies come back by their numbers.

use super::frame::{self, CallFacts, Reply};
use crate::mount::{Process, ProcessLease, connect_socket};
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
    /// The hooks were running, and took too long.
    Late,
    /// The process ended, or broke the rules of frames, while the hooks ran.
    Ended,
    /// They had not begun: another process may be asked.
    NotBegun,
    /// There is no process at the socket any more: another one may be asked.
    Refused,
}

/// A call gets its time anew so often, where the machine did not let it use it.
const STARVED_MAX: u32 = 9;

type Answer = Result<Reply, NoReply>;

/// The connection to one process. Its task ends with the connection.
pub(super) struct Line {
    process: Arc<Process>,
    /// Bytes of calls that were not written yet.
    out: RefCell<Vec<u8>>,
    /// Calls without a reply, by their numbers; the process runs the first one.
    pending: RefCell<BTreeMap<u32, Pending>>,
    next: Cell<u32>,
    /// Since when the first one runs.
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

impl Line {
    /// A connection that begins, whose calls may take so long each.
    pub fn open(process: &Arc<Process>, call_time: Duration) -> Rc<Line> {
        let line = Rc::new(Line {
            process: Arc::clone(process),
            out: RefCell::default(),
            pending: RefCell::default(),
            next: Cell::new(1),
            since: Cell::new(Instant::now()),
            is_open: Cell::new(true),
            wake: Notify::new(),
        });
        let running = Rc::clone(&line);
        tokio::task::spawn_local(async move {
            let end = running.run(call_time).await;
            running.close(end);
        });
        line
    }

    /// Whether calls can be made.
    pub fn is_open(&self) -> bool {
        self.is_open.get()
    }

    /// Makes a call; the reply comes by the receiver. `None` where the facts are more than a frame may hold.
    pub fn call(&self, facts: &CallFacts<'_>, lease: ProcessLease) -> Option<oneshot::Receiver<Answer>> {
        let number = self.next.get();
        if !frame::push_call(&mut self.out.borrow_mut(), number, facts) {
            return None;
        }
        self.next.set(number.wrapping_add(1).max(1));
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

    async fn run(&self, call_time: Duration) -> NoReply {
        let Ok(mut stream) = connect_socket(&self.process.socket).await else { return NoReply::Refused };
        let (mut reader, mut writer) = stream.split();
        // Side by side: a process that writes a long reply may not read meanwhile. In this order: where this worker had to wait,
        // a reply may be here that is no longer late.
        tokio::select! {
            biased;
            () = self.read(&mut reader) => NoReply::Ended,
            () = self.write(&mut writer) => NoReply::Ended,
            () = self.watch(call_time) => NoReply::Late,
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

    /// Waits until a call takes too long. Time in which the machine let this worker or the process wait does not count, up to
    /// [`STARVED_MAX`]: a timer that comes late says it of the worker, and the system says it of the process.
    async fn watch(&self, call_time: Duration) {
        let mut starved = 0;
        loop {
            let since = self.since.get();
            if self.pending.borrow().is_empty() {
                starved = 0;
                sleep_until(Instant::now() + call_time).await;
                continue;
            }
            sleep_until(since + call_time / 2).await;
            if !self.runs_since(since) {
                starved = 0;
                continue;
            }
            let (pid, due) = (self.process.pid, since + call_time);
            let waited = waited_for_cpu(pid);
            sleep_until(due).await;
            if !self.runs_since(since) {
                starved = 0;
                continue;
            }
            let waited = waited_for_cpu(pid).saturating_sub(waited);
            let longest = waited.max(Instant::now() - due);
            if starved == STARVED_MAX || longest < call_time / 4 {
                return;
            }
            starved += 1;
            self.since.set(Instant::now());
        }
    }

    /// Whether the call that ran at this moment runs still.
    fn runs_since(&self, since: Instant) -> bool {
        self.since.get() == since && !self.pending.borrow().is_empty()
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

    /// The first call ends so, and the others may go elsewhere.
    fn close(&self, end: NoReply) {
        self.is_open.set(false);
        let mut first = true;
        for (_, pending) in std::mem::take(&mut *self.pending.borrow_mut()) {
            let is_culprit = std::mem::take(&mut first);
            match end {
                NoReply::Late if is_culprit => pending.lease.hangs_in(pending.only),
                NoReply::Late => {}
                _ => pending.lease.is_gone(),
            }
            let _ = pending.answer.send(Err(if is_culprit { end } else { NoReply::NotBegun }));
        }
    }
}

/// How long the first thread of a process has waited for a processor since it began; nothing where the system does not tell.
fn waited_for_cpu(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let nanos = text.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}
