//! A tunnel on a stream (RFC 9113 section 8.5 and RFC 8441): its DATA as a stream of bytes.

use super::Link;
use super::state::StreamGone;
use crate::request_body::Piece;
use crate::socket::OtherSide;
use crate::wire::TunnelStream;
use bytes::Bytes;
use larder_wire::Fields;
use larder_wire::h2::ErrorCode;
use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes for the client that may wait for its window before no more are taken from the origin.
const QUEUED_BYTES_MAX: usize = 64 * 1024;

/// The bytes of a stream after its 200. Dropped before both directions came to their ends, it resets the stream.
pub struct Tunnel {
    link: Rc<Link>,
    number: u32,
    ends_by_reset: Cell<bool>,
}

impl Tunnel {
    /// Takes the stream over from its exchange.
    pub fn on(link: &Rc<Link>, number: u32) -> Tunnel {
        link.state.borrow_mut().begin_tunnel(number);
        Tunnel { link: Rc::clone(link), number, ends_by_reset: Cell::new(false) }
    }
}

fn gone(_: StreamGone) -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl AsyncRead for Tunnel {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let part = self.link.state.borrow_mut().poll_body(self.number, buf.remaining(), cx);
        if let Piece::Data(bytes) = ready!(part).map_err(gone)? {
            buf.put_slice(&bytes);
        }
        // A window may have been opened.
        self.link.wake();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let room = self.link.state.borrow_mut().poll_room(self.number, QUEUED_BYTES_MAX, cx);
        let room = match room {
            Poll::Ready(room) => room.map_err(gone)?,
            Poll::Pending => {
                self.link.wake();
                return Poll::Pending;
            }
        };
        let bytes = room.min(buf.len());
        self.link.state.borrow_mut().queue(self.number, Bytes::copy_from_slice(&buf[..bytes]));
        self.link.wake();
        Poll::Ready(Ok(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The connection writes what waits; its length is limited.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.link.state.borrow_mut();
        state.end_body(self.number, Fields::default());
        // The last bytes wait for the client's window as all others do.
        let flushed = state.poll_flushed(self.number, 0, cx);
        drop(state);
        self.link.wake();
        flushed.map(|flushed| flushed.map(|_| ()).map_err(gone))
    }
}

impl TunnelStream for Tunnel {
    fn end_by_reset(&self) {
        self.ends_by_reset.set(true);
    }

    fn other_side(&self) -> OtherSide {
        let state = self.link.state.borrow();
        match state.has(self.number) {
            false => OtherSide::Closed,
            true if state.body_is_over(self.number) => OtherSide::HalfClosed,
            true => OtherSide::Open,
        }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        let mut state = self.link.state.borrow_mut();
        let code = if self.ends_by_reset.get() { ErrorCode::Connect } else { ErrorCode::Cancel };
        state.end_tunnel(self.number, code);
        drop(state);
        self.link.wake();
    }
}
