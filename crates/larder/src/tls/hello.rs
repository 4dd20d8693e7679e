//! Parses a ClientHello before TLS begins: the tunnel reads it, decides, and then has it read again.

use larder_wire::Host;
use rustls::server::Acceptor;

/// Bytes that a ClientHello may have; a tunnel with a longer one is not intercepted.
pub const HELLO_BYTES_MAX: usize = 64 << 10;

/// The content type of a TLS handshake record (RFC 8446 section 5.1).
pub const RECORD_HANDSHAKE: u8 = 22;

/// The kinds of first bytes on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peek {
    /// The beginning of a ClientHello, or nothing yet.
    NeedMore,
    /// Something else, or a ClientHello that makes no sense.
    NotTls,
    /// A whole ClientHello.
    Hello(Hello),
}

/// The parts of a ClientHello that decide about a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The server that is meant; `None` when it is an address or the client is old.
    pub sni: Option<String>,
    /// The application protocols offered, the preferred one first; empty when it says none.
    pub alpn: Vec<Vec<u8>>,
}

impl Hello {
    /// The host that is meant: the one named here, else the one that CONNECT asked for.
    pub fn host(&self, connect: &Host) -> Host {
        self.sni.as_deref().and_then(Host::parse).unwrap_or_else(|| connect.clone())
    }

    /// Whether HTTP/1.1 can be spoken: it is offered, or nothing is.
    pub fn speaks_http_1_1(&self) -> bool {
        self.alpn.is_empty() || self.alpn.iter().any(|protocol| protocol == super::ALPN_HTTP_1_1)
    }
}

/// Looks at all bytes received so far.
pub fn peek(bytes: &[u8]) -> Peek {
    let Some(&first) = bytes.first() else {
        return Peek::NeedMore;
    };
    // The version of the record begins with 3 since SSL 3.
    if first != RECORD_HANDSHAKE || bytes.get(1).is_some_and(|&major| major != 3) {
        return Peek::NotTls;
    }
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    loop {
        match acceptor.accept() {
            Ok(Some(accepted)) => return Peek::Hello(read(&accepted)),
            Ok(None) if rest.is_empty() && bytes.len() >= HELLO_BYTES_MAX => return Peek::NotTls,
            Ok(None) if rest.is_empty() => return Peek::NeedMore,
            Ok(None) => {}
            Err(_) => return Peek::NotTls,
        }
        if acceptor.read_tls(&mut rest).is_err() {
            return Peek::NotTls;
        }
    }
}

fn read(accepted: &rustls::server::Accepted) -> Hello {
    let hello = accepted.client_hello();
    Hello {
        sni: hello.server_name().map(str::to_owned),
        alpn: hello.alpn().map(|names| names.map(<[u8]>::to_vec).collect()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::{Roots, client_config, server_name};
    use rustls::ClientConnection;

    fn hello_of(host: &str) -> Vec<u8> {
        let config = client_config(&Roots::none().into()).unwrap();
        let name = server_name(&Host::parse(host).unwrap()).unwrap();
        let mut bytes = Vec::new();
        ClientConnection::new(config, name).unwrap().write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_hello_is_read_at_whatever_length_it_is_whole() {
        let bytes = hello_of("www.example.org");
        for cut in 0..bytes.len() {
            assert_eq!(peek(&bytes[..cut]), Peek::NeedMore, "{cut} of {}", bytes.len());
        }
        let Peek::Hello(hello) = peek(&bytes) else { panic!("no hello") };
        assert_eq!(hello.sni.as_deref(), Some("www.example.org"));
        assert!(hello.speaks_http_1_1());
        assert_eq!(hello.host(&Host::parse("10.0.0.1").unwrap()).as_str(), "www.example.org");
    }

    #[test]
    fn a_hello_to_an_address_names_nobody() {
        let Peek::Hello(hello) = peek(&hello_of("127.0.0.1")) else { panic!("no hello") };
        assert_eq!(hello.sni, None);
        assert_eq!(hello.host(&Host::parse("127.0.0.1").unwrap()).as_str(), "127.0.0.1");
    }

    #[test]
    fn other_protocols_are_not_tls() {
        for other in
            [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0-x\r\n", b"\x16\x02", b"\x16\x03\x01\x00\x04\x02\x00\x00\x00"]
        {
            assert_eq!(peek(other), Peek::NotTls, "{other:?}");
        }
    }

    #[test]
    fn a_hello_without_end_is_given_up() {
        // A handshake message of 65,000 bytes in records of 16,000, never finished.
        let mut bytes = Vec::new();
        while bytes.len() < HELLO_BYTES_MAX {
            bytes.extend_from_slice(&[22, 3, 1, 0x3e, 0x80]);
            let at = bytes.len();
            bytes.resize(at + 16_000, 0);
            if at == 5 {
                bytes[at..at + 4].copy_from_slice(&[1, 0, 0xff, 0xf0]);
            }
        }
        assert_eq!(peek(&bytes), Peek::NotTls);
    }
}
