//! A connection to a process of an application, with the place in the process that its request has.

use super::{Closed, Process, ProcessFault, ProcessLease, Spool, Turn};
use crate::client::Client;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout_at};

/// A process gets so long to end a request whose client has left while its answer came.
const END_WITHIN: Duration = Duration::from_secs(1);

/// The least time for that where the answer had not begun.
const END_WITHIN_MIN: Duration = Duration::from_millis(20);

/// The pause before a socket is tried again whose queue is full.
const QUEUE_PAUSE: Duration = Duration::from_millis(5);

/// Connects to a Unix socket. Where its queue of connections is full, which the system tells at once instead of waiting, it is
/// tried again until the caller's time is over.
pub async fn connect_socket(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(QUEUE_PAUSE).await,
            connected => return connected,
        }
    }
}

/// Whether a connection failed because the process has closed its socket.
pub fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

/// A connection to a process.
///
/// Dropped before its request is over, it tells the process that the client has left (the end of what it reads), and holds the
/// place in the process until the process closes its side: a thread that still works takes no other request. A process that
/// goes on for longer than a request may take is ended.
pub struct MountStream {
    /// `None` once it was dropped.
    stream: Option<UnixStream>,
    process: Arc<Process>,
    lease: Option<ProcessLease>,
    /// When the last byte of the request was taken.
    sent_at: Instant,
}

impl MountStream {
    /// Connects to the process of a lease.
    pub async fn connect(lease: ProcessLease) -> io::Result<MountStream> {
        let process = Arc::clone(lease.process());
        let stream = connect_socket(&process.socket).await.inspect_err(|error| {
            // A process that has closed its socket serves nobody any more.
            if is_closed(error) {
                process.fails(ProcessFault::Closed(Closed::Socket));
            }
        })?;
        let sent_at = Instant::now();
        Ok(MountStream { stream: Some(stream), process, lease: Some(lease), sent_at })
    }

    /// The process.
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// Begins another request on a connection that was idle.
    pub fn begin(&mut self, lease: ProcessLease, now: Instant) {
        debug_assert!(Arc::ptr_eq(lease.process(), &self.process), "a lease of the process that is connected to");
        (self.lease, self.sent_at) = (Some(lease), now);
    }

    /// The request is over, and the place in the process free.
    pub fn rest(&mut self) {
        self.lease = None;
    }

    /// The turn of a request that waits behind others of the process; `None` where it is served at once.
    pub fn turn(&self) -> Option<Turn> {
        self.lease.as_ref()?.turn()
    }

    /// The time from the end of a request to the head of its answer.
    pub fn request_time(&self) -> Option<Duration> {
        self.lease.as_ref().map(ProcessLease::request_time)
    }

    /// The buffer for what the client has not taken yet of the answer; `None` where it may hold the place in the process.
    pub fn answer_spool(&self, client: Option<Client>) -> Option<Spool> {
        self.lease.as_ref()?.answer_spool(client)
    }

    /// The socket, until it is dropped.
    pub fn socket(&self) -> Option<&UnixStream> {
        self.stream.as_ref()
    }

    fn stream(&mut self) -> io::Result<Pin<&mut UnixStream>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for MountStream {
    fn drop(&mut self) {
        let (Some(stream), Some(lease)) = (self.stream.take(), self.lease.take()) else { return };
        let now = Instant::now();
        let over_at = self.sent_at + lease.request_time();
        let until = match lease.is_answered() {
            true => now + END_WITHIN,
            // It had all of its time: another process takes its place at once.
            false if over_at <= now && has_turn(&lease) => return lease.hangs(),
            false => over_at.max(now + END_WITHIN_MIN),
        };
        // At the end of the worker there is nobody left to watch; the nursery ends the processes too.
        if tokio::runtime::Handle::try_current().is_ok() {
            tokio::task::spawn_local(watch_end(stream, lease, until));
        }
    }
}

/// Whether no other request of the process comes before this one.
fn has_turn(lease: &ProcessLease) -> bool {
    lease.turn().is_none_or(|turn| turn.has_come())
}

/// Waits until the process has ended a request that nobody waits for any more, or has passed over it. Its time begins with its turn:
/// the one before may be an answer that is rightly long.
async fn watch_end(mut stream: UnixStream, lease: ProcessLease, mut until: Instant) {
    let mut ended = std::pin::pin!(async {
        let _ = stream.shutdown().await;
        let mut unread = [0; 4096];
        while stream.read(&mut unread).await.is_ok_and(|read| read > 0) {}
    });
    let mut had_turn = has_turn(&lease);
    while timeout_at(until, &mut ended).await.is_err() {
        if had_turn {
            return if lease.is_answered() { drop(lease) } else { lease.hangs() };
        }
        had_turn = has_turn(&lease);
        until = Instant::now() + lease.request_time();
    }
}

impl AsyncRead for MountStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = self.stream()?.poll_read(cx, buf);
        if buf.filled().len() > before
            && let Some(lease) = &mut self.lease
        {
            lease.answered();
        }
        read
    }
}

impl AsyncWrite for MountStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = self.stream()?.poll_write(cx, buf);
        if wrote.is_ready() {
            self.sent_at = Instant::now();
        }
        wrote
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = self.stream()?.poll_write_vectored(cx, bufs);
        if wrote.is_ready() {
            self.sent_at = Instant::now();
        }
        wrote
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
