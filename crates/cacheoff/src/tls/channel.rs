//! A connection that speaks clear text or TLS, without blocking. The effects of TLS are hidden here: records, a
//! handshake, bytes that are accepted and not yet sent. Clear text is never tried where TLS was asked for.

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, HandshakeKind, ProtocolVersion, ServerConfig};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// A connection.
#[derive(Debug)]
pub struct Channel {
    stream: TcpStream,
    session: Option<Box<Connection>>,
}

/// A handshake that is through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shaken {
    /// Whether it took up an earlier session.
    pub resumed: bool,
    /// Round trips that it needs before the client may send.
    pub rounds: u32,
}

impl Channel {
    /// Clear text.
    pub fn clear(stream: TcpStream) -> Self {
        Self { stream, session: None }
    }

    /// TLS, in the role of the client.
    pub fn client(stream: TcpStream, config: Arc<ClientConfig>, name: ServerName<'static>) -> io::Result<Self> {
        let session = ClientConnection::new(config, name).map_err(invalid)?;
        Ok(Self { stream, session: Some(Box::new(session.into())) })
    }

    /// TLS, in the role of the server.
    pub fn server(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let session = rustls::ServerConnection::new(config).map_err(invalid)?;
        Ok(Self { stream, session: Some(Box::new(session.into())) })
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether it speaks TLS.
    pub fn is_secured(&self) -> bool {
        self.session.is_some()
    }

    /// The protocol that was chosen by ALPN (RFC 7301), once the handshake is through.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.session.as_ref().and_then(|session| session.alpn_protocol())
    }

    /// Goes on with the handshake; `None` when the kernel must be waited for.
    pub fn shake(&mut self) -> io::Result<Option<Shaken>> {
        let Some(session) = &mut self.session else { return Ok(Some(Shaken { resumed: false, rounds: 0 })) };
        loop {
            if !push(session, &mut self.stream)? {
                return Ok(None);
            }
            if !session.is_handshaking() {
                return Ok(Some(shaken(session)));
            }
            match pull(session, &mut self.stream) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether more may be had after a read of so many bytes into so much room.
    pub fn may_have_more(&self, len: usize, room: usize) -> bool {
        self.is_secured() || len == room
    }

    /// Whether the socket took less than it was offered, so that its next event must be waited for.
    pub fn is_full(&self, len: usize, offered: usize) -> bool {
        match &self.session {
            None => len < offered,
            Some(session) => session.wants_write(),
        }
    }

    /// Sends what was accepted and is not sent yet. Says whether all of it has left.
    pub fn flush_some(&mut self) -> io::Result<bool> {
        match &mut self.session {
            None => Ok(true),
            Some(session) => push(session, &mut self.stream),
        }
    }

    /// Reads and writes past TLS: a tunnel that is still being asked for.
    pub fn below(&mut self) -> &mut TcpStream {
        &mut self.stream
    }
}

impl Read for Channel {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else { return self.stream.read(buffer) };
        loop {
            match session.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            pull(session, &mut self.stream)?;
        }
    }
}

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else { return self.stream.write(bytes) };
        if !push(session, &mut self.stream)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let len = session.writer().write(bytes)?;
        push(session, &mut self.stream)?;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flush_some().map(drop)
    }
}

impl Drop for Channel {
    /// The other end learns that this is the end and not a cut (RFC 8446 section 6.1), if the socket takes it at once.
    fn drop(&mut self) {
        if let Some(session) = self.session.as_mut().filter(|session| !session.is_handshaking()) {
            session.send_close_notify();
            let _ = push(session, &mut self.stream);
        }
    }
}

/// Sends what waits. Says whether all of it has left.
fn push(session: &mut Connection, stream: &mut TcpStream) -> io::Result<bool> {
    while session.wants_write() {
        match session.write_tls(stream) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Takes in what came. An alert that says what is wrong with it leaves if it can.
fn pull(session: &mut Connection, stream: &mut TcpStream) -> io::Result<usize> {
    let len = loop {
        match session.read_tls(stream) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => break read?,
        }
    };
    let taken = session.process_new_packets().map_err(invalid);
    if taken.is_err() || !session.is_handshaking() {
        push(session, stream).or_else(|error| if taken.is_err() { Ok(false) } else { Err(error) })?;
    }
    taken.map(|_| len)
}

fn shaken(session: &Connection) -> Shaken {
    let resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
    let again = session.handshake_kind() == Some(HandshakeKind::FullWithHelloRetryRequest);
    let older = session.protocol_version() == Some(ProtocolVersion::TLSv1_2);
    let rounds = if again || older && !resumed { 2 } else { 1 };
    Shaken { resumed, rounds }
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}
