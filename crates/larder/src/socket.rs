//! A client's TCP socket that joins the runtime's poll only when it has to wait. A client whose one request is here by
//! the time its connection is accepted is read from, answered and closed without ever being registered.

use rustix::net::{SocketFlags, acceptfrom_with};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// A listening socket. The runtime's own listener would register each socket that it accepts; one of its streams tells
/// of readiness alone, which is all that is asked of it here.
pub struct Listener(TcpStream);

/// After so many connections in a row others get a turn.
const ROW_CONNECTIONS: usize = 64;

impl Listener {
    /// Takes a listening socket that does not block.
    pub fn new(listener: TcpListener) -> io::Result<Listener> {
        TcpStream::from_std(OwnedFd::from(listener).into()).map(Listener)
    }

    /// Waits until clients come and lets in those that are there. A client that has left again before it was let in is
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
    let peer = peer.ok_or(io::ErrorKind::AddrNotAvailable)?.try_into()?;
    Ok((Socket::accepted(socket.into()), peer))
}

/// An open socket to a client.
pub struct Socket(State);

enum State {
    /// Was never waited for; does not block.
    Free(std::net::TcpStream),
    Polled(TcpStream),
    /// Could not join the poll, which closed it.
    Lost,
}

impl Socket {
    /// A socket that was just accepted and does not block.
    pub fn accepted(stream: std::net::TcpStream) -> Socket {
        Socket(State::Free(stream))
    }

    /// Small writes leave at once (`TCP_NODELAY`).
    pub fn send_at_once(&self) {
        // Where that fails answers come a little later, which is better than none.
        let _ = match &self.0 {
            State::Free(stream) => stream.set_nodelay(true),
            State::Polled(stream) => stream.set_nodelay(true),
            State::Lost => Ok(()),
        };
    }

    /// The socket for whoever needs it registered.
    pub fn into_polled(mut self) -> io::Result<TcpStream> {
        self.polled()?;
        match self.0 {
            State::Polled(stream) => Ok(stream),
            State::Free(_) | State::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Registers it if that was not done. What has come by now is told as if it came afterwards.
    fn polled(&mut self) -> io::Result<&mut TcpStream> {
        if let State::Free(_) = self.0
            && let State::Free(stream) = std::mem::replace(&mut self.0, State::Lost)
        {
            self.0 = State::Polled(TcpStream::from_std(stream)?);
        }
        match &mut self.0 {
            State::Polled(stream) => Ok(stream),
            State::Free(_) | State::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// What a call on a free socket came to, unless it is the poll's turn.
fn done<T>(result: io::Result<T>) -> Option<io::Result<T>> {
    match result {
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => None,
        done => Some(done),
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let State::Free(stream) = &mut self.0
            && let Some(read) = done(stream.read(buf.initialize_unfilled()))
        {
            return Poll::Ready(read.map(|bytes| buf.advance(bytes)));
        }
        Pin::new(self.polled()?).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let State::Free(stream) = &mut self.0
            && let Some(written) = done(stream.write(bytes))
        {
            return Poll::Ready(written);
        }
        Pin::new(self.polled()?).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let State::Free(stream) = &mut self.0
            && let Some(written) = done(stream.write_vectored(slices))
        {
            return Poll::Ready(written);
        }
        Pin::new(self.polled()?).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            State::Free(stream) => Poll::Ready(stream.shutdown(Shutdown::Write)),
            State::Polled(stream) => Pin::new(stream).poll_shutdown(cx),
            State::Lost => Poll::Ready(Ok(())),
        }
    }
}
