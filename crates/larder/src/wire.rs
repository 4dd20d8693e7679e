//! A byte stream to a peer, whatever carries it: TCP, a Unix socket, a stream of HTTP/2, or TLS over one of these.

#[cfg(test)]
use crate::in_memory::MemoryStream;
use crate::mount::MountStream;
use crate::socket::{OtherSide, Socket};
use crate::tls::ALPN_HTTP_2;
use crate::tls::site_certificates::ALPN_ACME_TLS_1;
use larder_wire::Host;
use rustls::pki_types::CertificateDer;
use socket2::SockRef;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// An open stream to a client or an origin.
pub enum Wire {
    /// Clear text to an origin.
    Tcp(TcpStream),
    /// Clear text to a client.
    Client(Socket),
    /// A tunnel on a stream of a client's connection of HTTP/2.
    Stream(Box<dyn TunnelStream>),
    /// The control socket of the same machine, or an origin behind a socket.
    Unix(UnixStream),
    /// An application that this server runs.
    Mount(Box<MountStream>),
    /// TLS, we are the server; boxed because its buffers are large and most streams are clear.
    TlsServer(Box<tokio_rustls::server::TlsStream<Rewound>>),
    /// TLS, we are the client.
    TlsClient(Box<tokio_rustls::client::TlsStream<TcpStream>>),
    /// TLS to an origin, within TLS to a parent that leads there and sees nothing of it.
    TlsWithin(Box<tokio_rustls::client::TlsStream<tokio_rustls::client::TlsStream<TcpStream>>>),
    /// Clear text to a simulated origin.
    #[cfg(test)]
    Memory(MemoryStream),
}

/// A stream that is one of several of a connection, and carries bytes as a socket does.
pub trait TunnelStream: AsyncRead + AsyncWrite + Unpin {
    /// Has the stream end by a reset, so that its end is not taken for an orderly one.
    fn end_by_reset(&self);

    /// The state of the client's side.
    fn other_side(&self) -> OtherSide;
}

/// A stream of which some bytes were read already (a ClientHello that was looked at, or what came
/// behind a CONNECT): they are read again first.
pub struct Rewound {
    again: Vec<u8>,
    read: usize,
    stream: Wire,
}

impl Rewound {
    /// Puts `again` before what `stream` still has.
    pub fn new(again: Vec<u8>, stream: Wire) -> Rewound {
        Rewound { again, read: 0, stream }
    }

    /// The stream below.
    pub fn wire(&self) -> &Wire {
        &self.stream
    }
}

impl AsyncRead for Rewound {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.read < self.again.len() {
            let len = buf.remaining().min(self.again.len() - self.read);
            buf.put_slice(&self.again[self.read..self.read + len]);
            self.read += len;
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Rewound {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

macro_rules! each {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Wire::Tcp($stream) => $call,
            Wire::Client($stream) => $call,
            Wire::Stream($stream) => $call,
            Wire::Unix($stream) => $call,
            Wire::Mount($stream) => $call,
            Wire::TlsServer($stream) => $call,
            Wire::TlsClient($stream) => $call,
            Wire::TlsWithin($stream) => $call,
            #[cfg(test)]
            Wire::Memory($stream) => $call,
        }
    };
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

impl Wire {
    /// The socket of a client in clear text that has not joined the runtime's poll.
    pub fn free(&mut self) -> Option<&mut Socket> {
        match self {
            Wire::Client(socket) if socket.is_free() => Some(socket),
            _ => None,
        }
    }

    /// The certificate that a client has shown in its handshake, which TLS has verified.
    pub fn client_certificate(&self) -> Option<&CertificateDer<'static>> {
        match self {
            Wire::TlsServer(stream) => stream.get_ref().1.peer_certificates()?.first(),
            _ => None,
        }
    }

    /// The name for which the client's TLS asked (RFC 6066 section 3).
    pub fn server_name(&self) -> Option<Box<Host>> {
        match self {
            Wire::TlsServer(stream) => stream.get_ref().1.server_name().and_then(Host::parse).map(Box::new),
            _ => None,
        }
    }

    /// Whether both ends have agreed on HTTP/2 in the handshake (RFC 7301).
    pub fn speaks_http2(&self) -> bool {
        let protocol = match self {
            Wire::TlsServer(stream) => stream.get_ref().1.alpn_protocol(),
            Wire::TlsClient(stream) => stream.get_ref().1.alpn_protocol(),
            _ => None,
        };
        protocol == Some(ALPN_HTTP_2)
    }

    /// Whether the handshake of a client was there to validate a name alone (RFC 8737): nothing is spoken behind it.
    pub fn validates_a_name(&self) -> bool {
        matches!(self, Wire::TlsServer(stream) if stream.get_ref().1.alpn_protocol() == Some(ALPN_ACME_TLS_1))
    }

    /// The stream below all TLS of a client.
    fn carrier(&self) -> &Wire {
        match self {
            Wire::TlsServer(stream) => stream.get_ref().0.wire().carrier(),
            wire => wire,
        }
    }

    /// Has the kernel send small writes at once.
    pub fn send_at_once(&self) {
        if let Wire::Client(socket) = self.carrier() {
            socket.send_at_once();
        }
    }

    /// Has the connection of a client end by a reset: an orderly end would tell the client that all of it has come.
    pub fn end_by_reset(&self) {
        match self.carrier() {
            Wire::Client(socket) => socket.end_by_reset(),
            Wire::Stream(stream) => stream.end_by_reset(),
            _ => {}
        }
    }

    /// Has a connection to an origin end by a reset, where it is one of TCP.
    pub fn reset_origin(&self) {
        if let Wire::Tcp(stream) = self {
            // Without the option the origin sees an orderly end.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }

    /// The state of a client's side of its connection.
    pub fn other_side(&self) -> OtherSide {
        match self.carrier() {
            Wire::Client(socket) => socket.other_side(),
            Wire::Stream(stream) => stream.other_side(),
            _ => OtherSide::Open,
        }
    }

    /// From now on the kernel takes only so many bytes beyond those on their way to the client.
    pub fn limit_unsent(&self, bytes_max: u32) {
        if let Wire::Client(socket) = self.carrier() {
            socket.limit_unsent(bytes_max);
        }
    }

    /// Whether closing needs no message of TLS.
    pub fn tls_is_off(&self) -> bool {
        !matches!(self, Wire::TlsServer(_) | Wire::TlsClient(_) | Wire::TlsWithin(_))
    }

    /// The connection that TLS to an origin begins on.
    pub fn into_tcp(self) -> io::Result<TcpStream> {
        match self {
            Wire::Tcp(stream) => Ok(stream),
            _ => Err(io::Error::new(io::ErrorKind::Unsupported, "TLS to an origin runs on TCP")),
        }
    }
}
