//! The connection: handshake, proofs, and messages as a length of four bytes and JSON.

use super::Token;
use super::token::{PROOF_BYTES, Role, is_same};
use crate::tls::{provider, unverified};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The handshake takes so long at most, and the proofs after it as long.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// A message of which the other end takes nothing for so long ends the connection. It is shorter than the silence after which
/// an end is taken for dead, so that who waits for a socket does not seem dead to others.
const WRITE_MAX: Duration = Duration::from_secs(2);
/// Bytes of a message; one interval with all its histograms has less than a tenth of it.
const MESSAGE_BYTES_MAX: usize = 8 << 20;
/// Bytes that are read from the socket at once.
const PIECE_BYTES: usize = 32 << 10;
/// The label under which both ends derive the same bytes from their connection.
const EXPORTER: &[u8] = b"EXPERIMENTAL-cacheoff-control-1";

/// One end of a control connection. Any thread may send; one thread receives.
#[derive(Debug)]
pub struct Channel {
    socket: TcpStream,
    tls: Mutex<Connection>,
    /// Held from the making of records until they are written, so that they leave in order.
    order: Mutex<()>,
    inbox: Mutex<Vec<u8>>,
}

/// The outcome of a wait for a message.
#[derive(Debug)]
pub enum Received<T> {
    /// A message.
    Message(T),
    /// None in this time.
    Nothing,
}

/// Connects to an agent, and has both ends prove that they have the token.
pub fn connect(address: SocketAddr, token: &Token) -> Result<Channel, String> {
    let socket = TcpStream::connect_timeout(&address, HANDSHAKE_MAX).map_err(|error| error.to_string())?;
    let name = ServerName::IpAddress(address.ip().into());
    // The token is what is believed, and not a certificate.
    let config = unverified()?;
    let tls = ClientConnection::new(config, name).map_err(|error| error.to_string())?;
    let channel = Channel::begin(socket, tls.into()).map_err(|error| error.to_string())?;
    channel.agree(token, Role::Coordinator, Role::Agent)?;
    Ok(channel)
}

/// Takes a connection of a coordinator, and has both ends prove that they have the token.
pub fn accept(socket: TcpStream, config: Arc<ServerConfig>, token: &Token) -> Result<Channel, String> {
    let tls = ServerConnection::new(config).map_err(|error| error.to_string())?;
    let channel = Channel::begin(socket, tls.into()).map_err(|error| error.to_string())?;
    channel.agree(token, Role::Agent, Role::Coordinator)?;
    Ok(channel)
}

impl Channel {
    /// How an agent speaks TLS: with a certificate of its own that says nothing.
    pub fn listening() -> Result<Arc<ServerConfig>, String> {
        let failed = |error: &dyn std::fmt::Display| format!("the certificate of the agent cannot be made: {error}");
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(|error| failed(&error))?;
        let params = CertificateParams::new(vec!["agent.cacheoff.test".to_owned()]).map_err(|error| failed(&error))?;
        let certificate = params.self_signed(&key).map_err(|error| failed(&error))?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| failed(&error))?;
        let mut config = builder
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .map_err(|error| failed(&error))?;
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    fn begin(mut socket: TcpStream, mut tls: Connection) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(false)?;
        socket.set_write_timeout(Some(WRITE_MAX))?;
        let until = Instant::now() + HANDSHAKE_MAX;
        while tls.is_handshaking() {
            while tls.wants_write() {
                tls.write_tls(&mut socket)?;
            }
            if tls.is_handshaking() {
                wait_until(&socket, until)?;
                if tls.read_tls(&mut socket)? == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                tls.process_new_packets().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            }
        }
        while tls.wants_write() {
            tls.write_tls(&mut socket)?;
        }
        // The proof of the other end may have come with the end of its handshake.
        let pending = tls.process_new_packets().map_err(io::Error::other)?.plaintext_bytes_to_read();
        let mut inbox = vec![0; pending];
        tls.reader().read_exact(&mut inbox)?;
        Ok(Self { socket, tls: Mutex::new(tls), order: Mutex::default(), inbox: Mutex::new(inbox) })
    }

    /// Exchanges proofs. The coordinator shows its own first: an agent tells strangers nothing.
    fn agree(&self, token: &Token, own: Role, other: Role) -> Result<(), String> {
        let exporter = match &*lock(&self.tls) {
            Connection::Client(tls) => tls.export_keying_material([0; PROOF_BYTES], EXPORTER, None),
            Connection::Server(tls) => tls.export_keying_material([0; PROOF_BYTES], EXPORTER, None),
        };
        let exporter = exporter.map_err(|error| error.to_string())?;
        let until = Instant::now() + HANDSHAKE_MAX;
        if matches!(own, Role::Coordinator) {
            self.send_bytes(&token.proof(own, &exporter)?).map_err(|error| error.to_string())?;
        }
        let mut proof = [0; PROOF_BYTES];
        while !self.take_exact(&mut proof) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("no proof of the token came in time".to_owned());
            }
            self.read_some(left).map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => "the other end has another token, or none".to_owned(),
                _ => error.to_string(),
            })?;
        }
        if !is_same(&proof, &token.proof(other, &exporter)?) {
            return Err("the other end has another token".to_owned());
        }
        if matches!(own, Role::Agent) {
            self.send_bytes(&token.proof(own, &exporter)?).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Sends a message.
    pub fn send(&self, message: &impl Serialize) -> io::Result<()> {
        self.send_framed(&Self::framed(message)?)
    }

    /// A message as it is sent: its length and JSON.
    pub fn framed(message: &impl Serialize) -> io::Result<Vec<u8>> {
        let body = serde_json::to_vec(message).map_err(io::Error::other)?;
        let length = u32::try_from(body.len()).ok().filter(|length| *length as usize <= MESSAGE_BYTES_MAX);
        let length = length.ok_or_else(|| io::Error::other("a message is too long"))?;
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend_from_slice(&body);
        Ok(bytes)
    }

    /// Sends what [`Self::framed`] has made.
    pub fn send_framed(&self, message: &[u8]) -> io::Result<()> {
        self.send_bytes(message)
    }

    fn send_bytes(&self, mut bytes: &[u8]) -> io::Result<()> {
        let _order = lock(&self.order);
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let mut tls = lock(&self.tls);
            let taken = tls.writer().write(bytes)?;
            bytes = &bytes[taken..];
            while tls.wants_write() {
                tls.write_tls(&mut records)?;
            }
        }
        (&self.socket).write_all(&records)
    }

    /// Waits for a message. A message that is too long, or none of ours, is an error and ends the connection.
    pub fn receive<T: DeserializeOwned>(&self, wait: Duration) -> io::Result<Received<T>> {
        let until = Instant::now() + wait;
        loop {
            if let Some(body) = self.take_message()? {
                let message = serde_json::from_slice(&body);
                return message.map(Received::Message).map_err(|error| io::Error::new(ErrorKind::InvalidData, error));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Received::Nothing);
            }
            match self.read_some(left) {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(Received::Nothing);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends it, for a thread that waits too.
    pub fn close(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn take_message(&self) -> io::Result<Option<Vec<u8>>> {
        let mut inbox = lock(&self.inbox);
        let Some(head) = inbox.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, format!("a message of {length} bytes")));
        }
        if inbox.len() < 4 + length {
            return Ok(None);
        }
        let rest = inbox.split_off(4 + length);
        let whole = std::mem::replace(&mut *inbox, rest);
        Ok(Some(whole[4..].to_vec()))
    }

    fn take_exact(&self, out: &mut [u8]) -> bool {
        let mut inbox = lock(&self.inbox);
        let is_here = inbox.len() >= out.len();
        if is_here {
            out.copy_from_slice(&inbox[..out.len()]);
            inbox.drain(..out.len());
        }
        is_here
    }

    /// Reads what comes within a time. The lock of TLS is not held while nothing comes.
    fn read_some(&self, wait: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
        let mut piece = vec![0; PIECE_BYTES];
        let len = loop {
            match (&self.socket).read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => break len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        let (mut came, mut plain) = (&piece[..len], Vec::new());
        let mut tls = lock(&self.tls);
        while !came.is_empty() {
            // After the end of the session nothing is read any more, and bytes that come all the same are an attack.
            if tls.read_tls(&mut came)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let state = tls.process_new_packets().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            let begins = plain.len();
            plain.resize(begins + state.plaintext_bytes_to_read(), 0);
            if state.plaintext_bytes_to_read() > 0 {
                tls.reader().read_exact(&mut plain[begins..])?;
            }
        }
        drop(tls);
        lock(&self.inbox).extend_from_slice(&plain);
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_until(socket: &TcpStream, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    socket.set_read_timeout(Some(left))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn token(letter: &str) -> Token {
        Token::new(&letter.repeat(32)).unwrap()
    }

    /// An agent that takes one connection, and what came of it.
    fn agent(letter: &str) -> (SocketAddr, std::thread::JoinHandle<Result<Channel, String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, token) = (listener.local_addr().unwrap(), token(letter));
        let config = Channel::listening().unwrap();
        (address, std::thread::spawn(move || accept(listener.accept().unwrap().0, config, &token)))
    }

    #[test]
    fn both_ends_with_one_token_exchange_messages() {
        let (address, other) = agent("x");
        let here = connect(address, &token("x")).unwrap();
        let there = other.join().unwrap().unwrap();
        let long = vec![7_u32; 200_000];
        let receiver = std::thread::spawn(move || there.receive::<Vec<u32>>(HANDSHAKE_MAX).unwrap());
        here.send(&long).unwrap();
        assert!(matches!(receiver.join().unwrap(), Received::Message(came) if came == long));
        assert!(here.receive::<u32>(Duration::from_millis(200)).is_err(), "the other end is gone");
    }

    #[test]
    fn an_end_with_another_token_gets_nothing() {
        let (address, other) = agent("x");
        assert!(connect(address, &token("y")).unwrap_err().contains("token"));
        assert!(other.join().unwrap().unwrap_err().contains("another token"));
    }

    #[test]
    fn a_relay_between_two_handshakes_cannot_pass_the_proofs_on() {
        // The one in the middle ends TLS on both sides and copies what is inside.
        let (address, other) = agent("x");
        let middle = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = middle.local_addr().unwrap();
        let config = Channel::listening().unwrap();
        let relay = std::thread::spawn(move || {
            let taken = middle.accept().unwrap().0;
            let inward = Channel::begin(taken, ServerConnection::new(config).unwrap().into()).unwrap();
            let tls = unverified().unwrap();
            let name = ServerName::IpAddress(address.ip().into());
            let socket = TcpStream::connect(address).unwrap();
            let outward = Channel::begin(socket, ClientConnection::new(tls, name).unwrap().into()).unwrap();
            let mut proof = [0; PROOF_BYTES];
            while !inward.take_exact(&mut proof) {
                inward.read_some(HANDSHAKE_MAX).unwrap();
            }
            outward.send_bytes(&proof).unwrap();
            let _ = outward.read_some(HANDSHAKE_MAX);
        });
        assert!(connect(near, &token("x")).is_err());
        assert!(other.join().unwrap().unwrap_err().contains("another token"));
        relay.join().unwrap();
    }

    #[test]
    fn bytes_that_are_no_tls_and_lengths_that_are_too_long_end_the_connection() {
        let (address, other) = agent("x");
        TcpStream::connect(address).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(other.join().unwrap().is_err());
        let (address, other) = agent("x");
        let here = connect(address, &token("x")).unwrap();
        let there = other.join().unwrap().unwrap();
        here.send_bytes(&u32::MAX.to_be_bytes()).unwrap();
        assert!(there.receive::<u32>(HANDSHAKE_MAX).unwrap_err().to_string().contains("4294967295 bytes"));
        here.send_bytes(&[0, 0, 0, 2, b'{', b'{']).unwrap();
    }
}
