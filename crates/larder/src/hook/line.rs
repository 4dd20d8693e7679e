//! The connection of a worker to one process of hooks: calls go out in batches, and replies come back by their numbers.

use super::frame::{self, CallFacts, ReplyBody};
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

type Answer = Result<ReplyBody, NoReply>;

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
        pending.insert(number, Pending { answer, lease });
        self.wake.notify_one();
        Some(receiver)
    }

    async fn run(&self, call_time: Duration) -> NoReply {
        let Ok(mut stream) = connect_socket(&self.process.socket).await else { return NoReply::Refused };
        let (mut reader, mut writer) = stream.split();
        // Side by side: a process that writes a long reply may not read meanwhile.
        tokio::select! {
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

    /// Waits until a call takes too long.
    async fn watch(&self, call_time: Duration) {
        loop {
            let is_idle = self.pending.borrow().is_empty();
            let due = if is_idle { Instant::now() + call_time } else { self.since.get() + call_time };
            if !is_idle && Instant::now() >= due {
                return;
            }
            sleep_until(due).await;
        }
    }

    /// Hands out the replies that are whole; false where the process breaks the rules of frames.
    fn take_replies(&self, incoming: &mut BytesMut) -> bool {
        loop {
            match frame::take_reply(incoming) {
                Ok(None) => return true,
                Err(_) => return false,
                Ok(Some(reply)) => {
                    let Some(pending) = self.pending.borrow_mut().remove(&reply.number) else { return false };
                    self.since.set(Instant::now());
                    // A request that was given up does not take it.
                    let _ = pending.answer.send(Ok(reply.body));
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
                NoReply::Late if is_culprit => pending.lease.hangs(),
                NoReply::Late => {}
                _ => pending.lease.is_gone(),
            }
            let _ = pending.answer.send(Err(if is_culprit { end } else { NoReply::NotBegun }));
        }
    }
}
