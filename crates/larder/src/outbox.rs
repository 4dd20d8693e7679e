//! Output to a client: heads we wrote and body pieces we share, in one list, written with as few
//! system calls as the socket allows.

use crate::socket::Socket;
use bytes::Bytes;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// Bytes and shared pieces that wait to be written, in order.
#[derive(Default)]
pub struct Outbox {
    /// All bytes of our own making.
    own: Vec<u8>,
    parts: Vec<Part>,
    /// How much of the first unwritten part was written.
    written: usize,
    /// Parts before this one are written.
    next: usize,
    bytes: usize,
}

enum Part {
    /// Up to this offset of `own`, from the end of the own part before it.
    Own {
        from: usize,
        to: usize,
    },
    Shared(Bytes),
}

/// A shared piece up to this size is copied behind its head: one small copy is cheaper than one more
/// vector in the system call.
const COPY_BYTES_MAX: usize = 1024;

/// Vectors handed to one system call.
const VECTORS_MAX: usize = 64;

impl Outbox {
    /// Bytes that are not written yet.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Bytes of heads and copied bodies that are held, those that were written already among them.
    pub fn own_bytes(&self) -> usize {
        self.own.len()
    }

    /// Nothing waits to be written.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Lets `write` append bytes of our own.
    pub fn own(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let from = self.own.len();
        write(&mut self.own);
        let to = self.own.len();
        self.bytes += to - from;
        let unwritten = self.next < self.parts.len();
        match self.parts.last_mut() {
            Some(Part::Own { to: end, .. }) if unwritten => *end = to,
            _ if to > from => self.parts.push(Part::Own { from, to }),
            _ => {}
        }
    }

    /// Appends a piece that others share.
    pub fn shared(&mut self, piece: Bytes) {
        if piece.len() <= COPY_BYTES_MAX {
            return self.own(|own| own.extend_from_slice(&piece));
        }
        self.bytes += piece.len();
        self.parts.push(Part::Shared(piece));
    }

    /// Appends a part of a piece that somebody else has.
    pub fn part_of(&mut self, piece: &Bytes, part: Range<usize>) {
        match part.len() <= COPY_BYTES_MAX {
            true => self.own(|own| own.extend_from_slice(&piece[part])),
            false => self.shared(piece.slice(part)),
        }
    }

    /// Writes once; says how many bytes went. Call until [`Outbox::is_empty`].
    pub async fn write_some(&mut self, wire: &mut (impl AsyncWrite + Unpin)) -> io::Result<usize> {
        poll_fn(|cx| self.poll_write_some(cx, wire)).await
    }

    /// [`Outbox::write_some`] in a poll.
    pub fn poll_write_some(
        &mut self,
        cx: &mut Context<'_>,
        wire: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<usize>> {
        let written = match self.only_part() {
            Some(bytes) => ready!(Pin::new(wire).poll_write(cx, bytes))?,
            None => {
                // The vectors live for one poll only: a connection that waits to write does not carry them.
                let mut vectors = [IoSlice::new(&[]); VECTORS_MAX];
                let count = self.vectors(&mut vectors);
                ready!(Pin::new(wire).poll_write_vectored(cx, &vectors[..count]))?
            }
        };
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.advance(written);
        Poll::Ready(Ok(written))
    }

    /// Writes what the socket takes now; says whether that was all.
    pub fn write_now(&mut self, socket: &Socket) -> io::Result<bool> {
        while !self.is_empty() {
            let len = self.bytes;
            let written = if let Some(bytes) = self.only_part() {
                socket.write_now(&[IoSlice::new(bytes)])
            } else {
                let mut vectors = [IoSlice::new(&[]); VECTORS_MAX];
                let count = self.vectors(&mut vectors);
                socket.write_now(&vectors[..count])
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.advance(written);
                    if written < len {
                        return Ok(false);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The unsent bytes, where they are one part: nearly always.
    fn only_part(&self) -> Option<&[u8]> {
        match &self.parts[self.next..] {
            [one] => Some(&one.bytes(&self.own)[self.written..]),
            _ => None,
        }
    }

    fn vectors<'a>(&'a self, vectors: &mut [IoSlice<'a>; VECTORS_MAX]) -> usize {
        let mut count = 0;
        let mut skip = self.written;
        for part in self.parts[self.next..].iter().take(VECTORS_MAX) {
            vectors[count] = IoSlice::new(&part.bytes(&self.own)[skip..]);
            skip = 0;
            count += 1;
        }
        count
    }

    fn advance(&mut self, written: usize) {
        self.bytes -= written;
        self.written += written;
        while let Some(part) = self.parts.get(self.next) {
            let len = part.bytes(&self.own).len();
            if self.written < len {
                return;
            }
            self.written -= len;
            self.next += 1;
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.own.clear();
        self.parts.clear();
        (self.written, self.next, self.bytes) = (0, 0, 0);
    }

    /// Nothing was ever put into it.
    pub fn is_unused(&self) -> bool {
        self.own.capacity() == 0 && self.parts.capacity() == 0
    }

    /// Memory that the outbox holds, without the shared pieces.
    pub fn room_bytes(&self) -> usize {
        self.own.capacity() + self.parts.capacity() * size_of::<Part>()
    }
}

impl Part {
    fn bytes<'a>(&'a self, own: &'a [u8]) -> &'a [u8] {
        match self {
            Part::Own { from, to } => &own[*from..*to],
            Part::Shared(piece) => piece,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes at most so many bytes a call.
    struct Narrow(usize, Vec<u8>);

    impl AsyncWrite for Narrow {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            let len = buf.len().min(self.0);
            self.1.extend_from_slice(&buf[..len]);
            Poll::Ready(Ok(len))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn order_and_bytes_survive_short_writes() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for width in [1, 7, 1000, 100_000] {
            let mut outbox = Outbox::default();
            let mut wanted = Vec::new();
            for round in 0..5u8 {
                let big = vec![round; 3000];
                outbox.own(|own| own.extend_from_slice(b"head"));
                outbox.shared(Bytes::from_static(b"small"));
                outbox.shared(big.clone().into());
                wanted.extend_from_slice(b"headsmall");
                wanted.extend_from_slice(&big);
            }
            assert_eq!(outbox.len(), wanted.len());
            let mut wire = Narrow(width, Vec::new());
            let mut rounds = 0;
            while !outbox.is_empty() {
                runtime.block_on(outbox.write_some(&mut wire)).unwrap();
                rounds += 1;
                if rounds == 3 {
                    outbox.own(|own| own.extend_from_slice(b"late"));
                    wanted.extend_from_slice(b"late");
                }
            }
            assert_eq!(wire.1, wanted, "width {width}");
        }
    }
}
