//! A pair of connected byte streams. They behave as TCP does where a server can tell the difference: a closed peer looks like
//! an end until something is written to it, a close with unread bytes is a reset, and room is limited.

use super::Readiness;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How a direction of a pair behaves.
#[derive(Clone, Copy, Debug)]
pub struct StreamSettings {
    /// Bytes that may be on their way.
    pub room_bytes: usize,
    /// The most that one read gives that may wait.
    pub read_bytes_max: usize,
}

/// One end of a pair.
pub struct MemoryStream {
    pair: Rc<Pair>,
    side: usize,
    resets: Cell<bool>,
    /// It had to wait, as a socket that has joined the runtime's poll.
    waited: Cell<bool>,
}

struct Pair([RefCell<Direction>; 2]);

struct Direction {
    settings: StreamSettings,
    bytes: VecDeque<u8>,
    /// The writer sends no more.
    is_ended: bool,
    /// A reset came this way.
    is_reset: bool,
    /// The reader has closed.
    is_closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    watch: Option<(Readiness, usize)>,
}

impl Direction {
    fn new(settings: StreamSettings) -> RefCell<Direction> {
        RefCell::new(Direction {
            settings,
            bytes: VecDeque::new(),
            is_ended: false,
            is_reset: false,
            is_closed: false,
            reader: None,
            writer: None,
            watch: None,
        })
    }

    fn is_readable(&self) -> bool {
        !self.bytes.is_empty() || self.is_ended || self.is_reset
    }

    /// Something came for the reader.
    fn tell_reader(&mut self) {
        if let Some((readiness, number)) = &self.watch {
            readiness.is_ready(*number, self.is_ended || self.is_reset);
        }
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    fn tell_writer(&mut self) {
        self.writer.take().into_iter().for_each(Waker::wake);
    }
}

impl MemoryStream {
    /// Two ends: what is written to one is read from the other. The settings are for what the first and what the second sends.
    pub fn pair(first: StreamSettings, second: StreamSettings) -> (MemoryStream, MemoryStream) {
        let pair = Rc::new(Pair([Direction::new(first), Direction::new(second)]));
        let end =
            |side| MemoryStream { pair: Rc::clone(&pair), side, resets: Cell::new(false), waited: Cell::new(false) };
        (end(0), end(1))
    }

    fn outgoing(&self) -> &RefCell<Direction> {
        &self.pair.0[self.side]
    }

    fn incoming(&self) -> &RefCell<Direction> {
        &self.pair.0[1 - self.side]
    }

    /// When it is dropped, the other end sees a reset.
    pub fn end_by_reset(&self) {
        self.resets.set(true);
    }

    /// Sees whether this end still exists.
    pub fn observer(&self) -> Observer {
        Observer { pair: Rc::clone(&self.pair), side: self.side }
    }

    /// Whether a read or a write had to wait.
    pub fn has_waited(&self) -> bool {
        self.waited.get()
    }

    /// Whether the other end sends no more, and whether it has reset the connection.
    pub fn other_side(&self) -> (bool, bool) {
        let incoming = self.incoming().borrow();
        (incoming.is_ended, incoming.is_reset)
    }

    /// Reports to `readiness` when there is something to read, and now if there is something already.
    pub fn watch(&self, readiness: &Readiness, number: usize) {
        let mut incoming = self.incoming().borrow_mut();
        if incoming.is_readable() {
            readiness.is_ready(number, incoming.is_ended || incoming.is_reset);
        }
        incoming.watch = Some((readiness.clone(), number));
    }

    /// Reports no more.
    pub fn unwatch(&self) {
        self.incoming().borrow_mut().watch = None;
    }

    /// Reads what is here, all of it if there is room: `WouldBlock` where there is nothing.
    pub fn read_now(&self, room: &mut [u8]) -> io::Result<usize> {
        let mut incoming = self.incoming().borrow_mut();
        let count = incoming.bytes.len().min(room.len());
        if count > 0 {
            for (to, from) in room.iter_mut().zip(incoming.bytes.drain(..count)) {
                *to = from;
            }
            incoming.tell_writer();
            return Ok(count);
        }
        match (incoming.is_reset, incoming.is_ended) {
            (true, _) => Err(io::ErrorKind::ConnectionReset.into()),
            (false, true) => Ok(0),
            (false, false) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Writes as much as there is room for: `WouldBlock` where there is none.
    pub fn write_now(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut outgoing = self.outgoing().borrow_mut();
        if outgoing.is_ended || outgoing.is_reset {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        if outgoing.is_closed {
            // The answer to bytes for a socket that is closed is a reset.
            outgoing.is_reset = true;
            drop(outgoing);
            let mut incoming = self.incoming().borrow_mut();
            incoming.is_reset = true;
            incoming.tell_reader();
            return Ok(length);
        }
        let room = outgoing.settings.room_bytes.saturating_sub(outgoing.bytes.len());
        if room == 0 && length > 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = length.min(room);
        outgoing.bytes.extend(slices.iter().flat_map(|slice| slice.iter().copied()).take(count));
        outgoing.tell_reader();
        Ok(count)
    }

    /// Sends no more.
    pub fn end(&self) {
        let mut outgoing = self.outgoing().borrow_mut();
        outgoing.is_ended = true;
        outgoing.tell_reader();
    }
}

/// Sees whether an end of a pair still exists.
pub struct Observer {
    pair: Rc<Pair>,
    side: usize,
}

impl Observer {
    /// Whether the end was not dropped yet.
    pub fn is_open(&self) -> bool {
        !self.pair.0[1 - self.side].borrow().is_closed
    }
}

impl Drop for MemoryStream {
    fn drop(&mut self) {
        let mut incoming = self.incoming().borrow_mut();
        let resets = self.resets.get() || !incoming.bytes.is_empty();
        incoming.is_closed = true;
        incoming.bytes.clear();
        incoming.watch = None;
        incoming.is_reset |= resets;
        incoming.tell_writer();
        drop(incoming);
        let mut outgoing = self.outgoing().borrow_mut();
        outgoing.is_ended = true;
        outgoing.is_reset |= resets;
        outgoing.tell_reader();
        outgoing.tell_writer();
    }
}

impl MemoryStream {
    fn poll_get(&self, cx: &Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let room_bytes = room.len().min(self.incoming().borrow().settings.read_bytes_max);
        match self.read_now(&mut room[..room_bytes]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.waited.set(true);
                self.incoming().borrow_mut().reader = Some(cx.waker().clone());
                Poll::Pending
            }
            done => Poll::Ready(done),
        }
    }

    fn poll_put(&self, cx: &Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self.write_now(slices) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.waited.set(true);
                self.outgoing().borrow_mut().writer = Some(cx.waker().clone());
                Poll::Pending
            }
            done => Poll::Ready(done),
        }
    }

    /// Waits for bytes, while another half of the same task may write.
    pub async fn get(&self, room: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_get(cx, room)).await
    }

    /// Writes all bytes, while another half of the same task may read.
    pub async fn put(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = poll_fn(|cx| self.poll_put(cx, &[IoSlice::new(bytes)])).await?;
            bytes = &bytes[count..];
        }
        Ok(())
    }
}

impl AsyncRead for MemoryStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_get(cx, buf.initialize_unfilled()).map_ok(|count| buf.advance(count))
    }
}

impl AsyncWrite for MemoryStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_put(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end();
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMY: StreamSettings = StreamSettings { room_bytes: 4, read_bytes_max: 3 };

    fn write(stream: &MemoryStream, bytes: &[u8]) -> io::Result<usize> {
        stream.write_now(&[IoSlice::new(bytes)])
    }

    fn read(stream: &MemoryStream) -> io::Result<Vec<u8>> {
        let mut room = [0; 8];
        stream.read_now(&mut room).map(|count| room[..count].to_vec())
    }

    #[test]
    fn bytes_come_in_order_and_room_is_limited() {
        let (one, other) = MemoryStream::pair(ROOMY, ROOMY);
        assert_eq!(read(&other).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(write(&one, b"abcdef").unwrap(), 4);
        assert_eq!(write(&one, b"x").unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(read(&other).unwrap(), b"abcd");
        one.end();
        assert_eq!(read(&other).unwrap(), b"");
        assert_eq!((other.other_side(), one.other_side()), ((true, false), (false, false)));
        assert_eq!(write(&other, b"back").unwrap(), 4);
    }

    #[test]
    fn a_closed_peer_looks_like_an_end_until_something_is_written_to_it() {
        let (one, other) = MemoryStream::pair(ROOMY, ROOMY);
        drop(other);
        assert_eq!(one.other_side(), (true, false));
        assert_eq!(write(&one, b"lost").unwrap(), 4);
        assert_eq!(one.other_side(), (true, true));
        assert!(write(&one, b"more").is_err() && read(&one).is_err());
    }

    #[test]
    fn a_close_with_unread_bytes_is_a_reset() {
        let (one, other) = MemoryStream::pair(ROOMY, ROOMY);
        write(&one, b"a").unwrap();
        write(&other, b"last").unwrap();
        drop(other);
        assert_eq!(read(&one).unwrap(), b"last");
        assert_eq!(read(&one).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }
}
