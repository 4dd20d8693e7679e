//! A client's socket, of TCP or of this machine, that joins the runtime's poll only when it has to wait. A connection with a single request
//! that is here when it is accepted is read, answered and closed without ever being registered.

use crate::client::NO_ADDRESS;
#[cfg(test)]
use crate::in_memory::{MemoryStream, Readiness};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, acceptfrom_with, recv, send, sendmsg,
};
use socket2::SockRef;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// A listening socket. The runtime's own listener would register each socket that it accepts; a stream of the runtime
/// reports readiness alone, which is enough here.
pub struct Acceptor(TcpStream);

/// After so many accepted connections other tasks get a turn.
const ROW_CONNECTIONS: usize = 64;

impl Acceptor {
    /// Takes a listening socket that does not block.
    pub fn new(listener: TcpListener) -> io::Result<Acceptor> {
        TcpStream::from_std(OwnedFd::from(listener).into()).map(Acceptor)
    }

    /// Waits for connections and accepts all that are there. A client that left before its connection was accepted is
    /// no error. Cancel-safe.
    pub async fn accept(&self, mut welcome: impl FnMut(Socket, SocketAddr)) -> io::Result<()> {
        self.0.readable().await?;
        for _ in 0..ROW_CONNECTIONS {
            match self.0.try_io(Interest::READABLE, || accept_now(&self.0)) {
                Ok((socket, peer)) => welcome(socket, peer),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
        tokio::task::yield_now().await;
        Ok(())
    }
}

fn accept_now(listener: impl AsFd) -> io::Result<(Socket, SocketAddr)> {
    let (socket, peer) = acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    let peer = peer.ok_or(io::ErrorKind::AddrNotAvailable)?;
    let peer = if peer.address_family() == AddressFamily::UNIX { NO_ADDRESS } else { peer.try_into()? };
    Ok((Socket::accepted(socket.into()), peer))
}

/// An open socket to a client.
pub struct Socket(State);

/// The state of the other side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherSide {
    /// It may send more.
    Open,
    /// It sends no more, and may still read.
    HalfClosed,
    /// It does neither: there was a reset.
    Closed,
}

/// Calls without the poll in one turn of a task: one read and the writes of a usual answer. The poll also sees to it
/// that other tasks get a turn, so a client that always has something to read or room to write must join it.
const FREE_CALLS_MAX: u8 = 4;

// The types say TCP. Nothing is asked of a socket that one of this machine could not answer, but for options of TCP, whose refusal is passed
// over, and addresses, which such a socket has not.
enum State {
    /// The socket never had to wait; it does not block. So many calls were made.
    Free(std::net::TcpStream, u8),
    Polled(TcpStream),
    /// The socket could not join the poll, and is closed.
    Lost,
    /// A stream of the simulation.
    #[cfg(test)]
    Memory(MemoryStream),
}

impl Socket {
    /// A socket that was just accepted and does not block.
    pub fn accepted(stream: std::net::TcpStream) -> Socket {
        Socket(State::Free(stream, 0))
    }

    /// A simulated client.
    #[cfg(test)]
    pub fn simulated(stream: MemoryStream) -> Socket {
        Socket(State::Memory(stream))
    }

    /// Reports a simulated client to `readiness` when it becomes readable; false for a real one.
    #[cfg(test)]
    pub fn watch(&self, readiness: &Readiness, number: usize) -> bool {
        match &self.0 {
            State::Memory(stream) => stream.watch(readiness, number),
            _ => return false,
        }
        true
    }

    /// Ends [`Socket::watch`].
    #[cfg(test)]
    pub fn unwatch(&self) {
        if let State::Memory(stream) = &self.0 {
            stream.unwatch();
        }
    }

    /// Has small writes leave without delay (`TCP_NODELAY`).
    pub fn send_at_once(&self) {
        // Without the option answers come a little later, which is no reason to close.
        let _ = match &self.0 {
            State::Free(stream, _) => stream.set_nodelay(true),
            State::Polled(stream) => stream.set_nodelay(true),
            State::Lost => Ok(()),
            #[cfg(test)]
            State::Memory(_) => Ok(()),
        };
    }

    /// Of what is written to it, at most so many bytes wait in the kernel for their turn on the way to the client
    /// (`TCP_NOTSENT_LOWAT`): without it a client that reads nothing pins as much as the send buffer may grow to, megabytes.
    pub fn limit_unsent(&self, bytes_max: u32) {
        // Without the option the send buffer is the limit.
        let _ = match &self.0 {
            State::Free(stream, _) => SockRef::from(stream).set_tcp_notsent_lowat(bytes_max),
            State::Polled(stream) => SockRef::from(stream).set_tcp_notsent_lowat(bytes_max),
            State::Lost => Ok(()),
            #[cfg(test)]
            State::Memory(_) => Ok(()),
        };
    }

    /// It has not joined the poll, and can be read from and written to without it.
    pub fn is_free(&self) -> bool {
        #[cfg(test)]
        if let State::Memory(stream) = &self.0 {
            return !stream.has_waited();
        }
        matches!(self.0, State::Free(..))
    }

    /// It may make some calls without the poll again.
    pub fn refresh(&mut self) {
        if let State::Free(_, calls) = &mut self.0 {
            *calls = 0;
        }
    }

    /// The descriptor, while it is free.
    fn free(&self) -> io::Result<BorrowedFd<'_>> {
        match &self.0 {
            State::Free(stream, _) => Ok(stream.as_fd()),
            State::Polled(_) | State::Lost => Err(io::ErrorKind::NotConnected.into()),
            #[cfg(test)]
            State::Memory(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// The descriptor.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        match &self.0 {
            State::Free(stream, _) => Ok(stream.as_fd()),
            State::Polled(stream) => Ok(stream.as_fd()),
            State::Lost => Err(io::ErrorKind::NotConnected.into()),
            #[cfg(test)]
            State::Memory(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// The address that the client has connected to, before a rule REDIRECT or DNAT changed it (`SO_ORIGINAL_DST`).
    ///
    /// # Errors
    ///
    /// The kernel's error, as for a connection that no such rule can have changed.
    pub fn original_destination(&self, is_ipv4: bool) -> io::Result<SocketAddr> {
        let socket = self.descriptor()?;
        let socket = SockRef::from(&socket);
        let to = if is_ipv4 { socket.original_dst_v4() } else { socket.original_dst_v6() }?;
        to.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// The address of this end; behind a rule TPROXY the one that the client has connected to.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        let socket = self.descriptor()?;
        let address = SockRef::from(&socket).local_addr()?;
        address.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// The state of the other side, whether the bytes it sent before were read or not.
    pub fn other_side(&self) -> OtherSide {
        #[cfg(test)]
        if let State::Memory(stream) = &self.0 {
            return match stream.other_side() {
                (_, true) => OtherSide::Closed,
                (true, false) => OtherSide::HalfClosed,
                (false, false) => OtherSide::Open,
            };
        }
        let Ok(socket) = self.descriptor() else { return OtherSide::Closed };
        let mut asked = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
        match poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(1..) => match asked[0].revents() {
                told if told.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) => OtherSide::Closed,
                told if told.contains(PollFlags::RDHUP) => OtherSide::HalfClosed,
                _ => OtherSide::Open,
            },
            // It is looked at again soon.
            _ => OtherSide::Open,
        }
    }

    /// Reads what is here without a wait: `WouldBlock` where there is nothing.
    pub fn read_now(&self, room: &mut [u8]) -> io::Result<usize> {
        #[cfg(test)]
        if let State::Memory(stream) = &self.0 {
            return stream.read_now(room);
        }
        Ok(recv(self.free()?, room, RecvFlags::empty())?.1)
    }

    /// Writes as much as there is room for.
    pub fn write_now(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        #[cfg(test)]
        if let State::Memory(stream) = &self.0 {
            return stream.write_now(slices);
        }
        match slices {
            [one] => send_one(self.free()?, one),
            _ => send_all(self.free()?, slices),
        }
    }

    /// Has the peer see a reset (`SO_LINGER` of zero) instead of an orderly end when the socket is dropped.
    pub fn end_by_reset(&self) {
        // Without the option the peer sees an orderly end: the connection is gone all the same.
        let _ = match &self.0 {
            State::Free(stream, _) => SockRef::from(stream).set_linger(Some(Duration::ZERO)),
            State::Polled(stream) => SockRef::from(stream).set_linger(Some(Duration::ZERO)),
            State::Lost => Ok(()),
            #[cfg(test)]
            State::Memory(stream) => {
                stream.end_by_reset();
                Ok(())
            }
        };
    }

    /// Registers it if that was not done. Bytes that have come by now wake the task as if they came afterwards.
    fn polled(&mut self) -> io::Result<&mut TcpStream> {
        if let State::Free(..) = self.0
            && let State::Free(stream, _) = std::mem::replace(&mut self.0, State::Lost)
        {
            self.0 = State::Polled(TcpStream::from_std(stream)?);
        }
        match &mut self.0 {
            State::Polled(stream) => Ok(stream),
            State::Free(..) | State::Lost => Err(io::ErrorKind::NotConnected.into()),
            #[cfg(test)]
            State::Memory(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// Makes a call on a socket that has not joined the poll; `None` when it has to join first.
fn freely<T>(
    state: &mut State,
    calls_max: u8,
    call: impl FnOnce(&mut std::net::TcpStream) -> io::Result<T>,
) -> Option<io::Result<T>> {
    let State::Free(stream, calls) = state else { return None };
    if *calls >= calls_max {
        return None;
    }
    *calls += 1;
    match call(stream) {
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => None,
        done => Some(done),
    }
}

/// Makes a call once the poll reports that it can be made. A call that moves fewer bytes than it could was the last for
/// now, so the next one waits without trying first. An end of the stream that came with it is reported all the same.
fn when_ready(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    interest: Interest,
    room: usize,
    mut call: impl FnMut(&TcpStream) -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(if interest.is_readable() { stream.poll_read_ready(cx) } else { stream.poll_write_ready(cx) })?;
        let mut short = None;
        let done = stream.try_io(interest, || match call(stream)? {
            moved if (1..room).contains(&moved) => {
                short = Some(moved);
                Err(io::ErrorKind::WouldBlock.into())
            }
            moved => Ok(moved),
        });
        match (short, done) {
            (Some(moved), _) => return Poll::Ready(Ok(moved)),
            (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
            (None, done) => return Poll::Ready(done),
        }
    }
}

// The calls of the C library are cancellation points of threads, which costs four locked instructions a request; these
// are made without it.

fn receive(socket: impl AsFd, buf: &mut ReadBuf<'_>) -> io::Result<usize> {
    let (_, bytes) = recv(socket, buf.initialize_unfilled(), RecvFlags::empty())?;
    buf.advance(bytes);
    Ok(bytes)
}

fn send_one(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(send(socket, bytes, SendFlags::NOSIGNAL)?)
}

/// Several slices in one call. `writev` passes the layer of files, and costs a thirtieth of an answer of 16 KB more.
fn send_all(socket: impl AsFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    Ok(sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        #[cfg(test)]
        if let State::Memory(stream) = &mut self.0 {
            return Pin::new(stream).poll_read(cx, buf);
        }
        // A second read is for another request, which most often is not here yet.
        if let Some(read) = freely(&mut self.0, 1, |stream| receive(stream, buf)) {
            return Poll::Ready(read.map(drop));
        }
        let stream = self.polled()?;
        // Room that was never written to would have to be filled with zeros first; the runtime's own read avoids that.
        if buf.initialized().len() < buf.capacity() {
            return Pin::new(stream).poll_read(cx, buf);
        }
        let room = buf.remaining();
        when_ready(stream, cx, Interest::READABLE, room, |stream| receive(stream, buf)).map_ok(drop)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        #[cfg(test)]
        if let State::Memory(stream) = &mut self.0 {
            return Pin::new(stream).poll_write(cx, bytes);
        }
        if let Some(written) = freely(&mut self.0, FREE_CALLS_MAX, |stream| send_one(stream, bytes)) {
            return Poll::Ready(written);
        }
        when_ready(self.polled()?, cx, Interest::WRITABLE, bytes.len(), |stream| send_one(stream, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        #[cfg(test)]
        if let State::Memory(stream) = &mut self.0 {
            return Pin::new(stream).poll_write_vectored(cx, slices);
        }
        if let Some(written) = freely(&mut self.0, FREE_CALLS_MAX, |stream| send_all(stream, slices)) {
            return Poll::Ready(written);
        }
        let room = slices.iter().map(|slice| slice.len()).sum();
        when_ready(self.polled()?, cx, Interest::WRITABLE, room, |stream| send_all(stream, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            State::Free(stream, _) => Poll::Ready(stream.shutdown(Shutdown::Write)),
            State::Polled(stream) => Pin::new(stream).poll_shutdown(cx),
            State::Lost => Poll::Ready(Ok(())),
            #[cfg(test)]
            State::Memory(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::io::{Read, Write};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A client's stream, and the socket that was accepted for it.
    async fn pair() -> (std::net::TcpStream, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let let_in = RefCell::new(None);
        let listener = Acceptor::new(listener).unwrap();
        listener.accept(|socket, peer| *let_in.borrow_mut() = Some((socket, peer))).await.unwrap();
        let (socket, peer) = let_in.into_inner().unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        (client, socket)
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn one_request_and_its_answer_need_no_poll() {
        run(async {
            let (mut client, mut socket) = pair().await;
            client.write_all(b"ask").unwrap();
            let mut asked = [0; 3];
            socket.read_exact(&mut asked).await.unwrap();
            socket.write_all(b"answer").await.unwrap();
            assert!(matches!(socket.0, State::Free(..)));
            socket.shutdown().await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "answer");
        });
    }

    #[test]
    fn who_waits_joins_the_poll_and_misses_nothing() {
        run(async {
            let (mut client, mut socket) = pair().await;
            let mut asked = [0; 3];
            let read = tokio::time::timeout(std::time::Duration::from_millis(20), socket.read_exact(&mut asked)).await;
            assert!(read.is_err() && matches!(socket.0, State::Polled(_)));
            client.write_all(b"ask").unwrap();
            socket.read_exact(&mut asked).await.unwrap();
            client.write_all(b"and again").unwrap();
            let mut again = [0; 9];
            socket.read_exact(&mut again).await.unwrap();
            assert_eq!((&asked, &again), (b"ask", b"and again"));
        });
    }

    #[test]
    fn who_never_waits_joins_it_after_a_while() {
        run(async {
            let (_client, mut socket) = pair().await;
            for _ in 0..=FREE_CALLS_MAX {
                socket.write_all(b"x").await.unwrap();
            }
            assert!(matches!(socket.0, State::Polled(_)));
        });
    }

    #[test]
    fn several_slices_go_in_one_call_and_in_order() {
        run(async {
            let (mut client, mut socket) = pair().await;
            for _ in 0..=FREE_CALLS_MAX {
                let slices = [IoSlice::new(b"head "), IoSlice::new(b""), IoSlice::new(b"body ")];
                assert_eq!(socket.write_vectored(&slices).await.unwrap(), 10);
            }
            assert!(matches!(socket.0, State::Polled(_)));
            drop(socket);
            let mut all = String::new();
            client.read_to_string(&mut all).unwrap();
            assert_eq!(all, "head body ".repeat(usize::from(FREE_CALLS_MAX) + 1));
        });
    }

    #[test]
    fn a_client_that_reads_nothing_is_waited_for() {
        run(async {
            let (mut client, mut socket) = pair().await;
            let piece = vec![7; 1 << 20];
            let writing = async {
                let mut sent = 0;
                while sent < 64 << 20 {
                    sent += socket.write_vectored(&[IoSlice::new(&piece), IoSlice::new(&piece)]).await.unwrap();
                }
                sent
            };
            let writing = tokio::time::timeout(std::time::Duration::from_millis(50), writing).await;
            assert!(writing.is_err(), "more than any socket holds");
            drop(socket);
            let mut all = Vec::new();
            client.read_to_end(&mut all).unwrap();
            assert!(all.len() > 1000 && all.iter().all(|&byte| byte == 7));
        });
    }

    #[test]
    fn what_a_client_did_is_seen_behind_what_it_sent() {
        run(async {
            let (mut client, mut socket) = pair().await;
            assert_eq!(socket.other_side(), OtherSide::Open);
            client.write_all(b"more").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            while socket.other_side() == OtherSide::Open {
                tokio::task::yield_now().await;
            }
            assert_eq!(socket.other_side(), OtherSide::HalfClosed);
            socket.write_all(b"still read").await.unwrap();
            // Closed with something unread: a reset.
            drop(client);
            while socket.other_side() == OtherSide::HalfClosed {
                tokio::task::yield_now().await;
            }
            assert_eq!(socket.other_side(), OtherSide::Closed);
        });
    }

    #[test]
    fn a_client_that_has_gone_is_told_as_an_end() {
        run(async {
            let (client, mut socket) = pair().await;
            drop(client);
            let mut rest = Vec::new();
            assert_eq!(socket.read_to_end(&mut rest).await.unwrap(), 0);
        });
    }
}
