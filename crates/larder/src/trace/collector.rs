//! The client of the collector: one POST at a time, on a thread that no other one waits for.

use crate::tls;
use larder_wire::{Scheme, Url};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where spans go.
pub(super) struct Collector {
    url: Url,
    target: String,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// Why a batch was not taken.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It may be taken later.
    Passing(String),
    /// It will never be.
    Lasting(String),
}

const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const STEP_WITHIN: Duration = Duration::from_secs(2);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Of an answer only its status matters.
const STATUS_LINE_BYTES_MAX: usize = 256;

impl Collector {
    /// The collector at the base URL of OTLP over HTTP: `/v1/traces` is added. `None` where TLS can't name the host.
    pub(super) fn at(url: &Url, tls: Arc<ClientConfig>) -> Option<Collector> {
        let tls = match url.scheme {
            Scheme::Http | Scheme::Ftp => None,
            Scheme::Https => Some((tls, tls::server_name(&url.host)?)),
        };
        let target = format!("{}/v1/traces", url.path.trim_end_matches('/'));
        Some(Collector { url: url.clone(), target, tls })
    }

    /// Hands a body over.
    pub(super) fn post(&self, body: &[u8]) -> Result<(), Trouble> {
        let status = self.exchange(body).map_err(|error| Trouble::Passing(error.to_string()))?;
        match status {
            200..=299 => Ok(()),
            // OTLP 1.x, "Retryable Response Codes".
            429 | 502 | 503 | 504 => Err(Trouble::Passing(format!("it answered {status}"))),
            _ => Err(Trouble::Lasting(format!("it answered {status}"))),
        }
    }

    fn exchange(&self, body: &[u8]) -> io::Result<u16> {
        let tcp = self.connect()?;
        tcp.set_read_timeout(Some(STEP_WITHIN))?;
        tcp.set_write_timeout(Some(STEP_WITHIN))?;
        match &self.tls {
            None => self.talk(tcp, body),
            Some((config, name)) => {
                let client = ClientConnection::new(Arc::clone(config), name.clone()).map_err(io::Error::other)?;
                self.talk(StreamOwned::new(client, tcp), body)
            }
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let addresses: Vec<SocketAddr> = match self.url.host.ip() {
            Some(address) => vec![SocketAddr::new(address, self.url.port)],
            None => (self.url.host.as_str(), self.url.port).to_socket_addrs()?.collect(),
        };
        let mut trouble = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, CONNECT_WITHIN) {
                Ok(stream) => return Ok(stream),
                Err(error) => trouble = error,
            }
        }
        Err(trouble)
    }

    fn talk(&self, mut stream: impl Read + Write, body: &[u8]) -> io::Result<u16> {
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: larder/{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            self.target,
            self.url.authority(),
            env!("CARGO_PKG_VERSION"),
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        stream.flush()?;
        let status = status(&mut stream);
        // The rest of the answer does not matter here, but closing a connection with unread bytes resets it, which
        // looks like trouble to the collector.
        let _ = stream.read(&mut [0; 4_096]);
        status
    }
}

/// The status of an answer, byte by byte for it is short.
fn status(stream: &mut impl Read) -> io::Result<u16> {
    let end = Instant::now() + ANSWER_WITHIN;
    let mut line = Vec::with_capacity(64);
    let mut byte = [0];
    while line.len() < STATUS_LINE_BYTES_MAX && Instant::now() < end {
        stream.read_exact(&mut byte)?;
        if byte == *b"\n" {
            return status_of(&line)
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it does not speak HTTP"));
        }
        line.push(byte[0]);
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time"))
}

fn status_of(line: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(line).ok()?.strip_prefix("HTTP/1.")?;
    let digits = text.split(' ').nth(1)?.trim_end();
    (digits.len() == 3).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::url;

    #[test]
    fn status_lines() {
        for (line, status) in [
            ("HTTP/1.1 200 OK\r\n", Some(200)),
            ("HTTP/1.0 503\n", Some(503)),
            ("HTTP/1.1 2000 OK\r\n", None),
            ("HTTP/1.1  200 OK\r\n", None),
            ("SSH-2.0-OpenSSH\r\n", None),
            ("\n", None),
            ("HTTP/1.1 200", None),
            ("", None),
        ] {
            assert_eq!(super::status(&mut line.as_bytes()).ok(), status, "{line:?}");
        }
        assert!(super::status(&mut std::io::repeat(b'x')).is_err());
    }

    #[test]
    fn the_path_is_added_to_the_base() {
        let tls = tls::client_config(&tls::Roots::none().into()).unwrap();
        for (base, target) in
            [("http://127.0.0.1:4318", "/v1/traces"), ("https://collector.example/otlp/", "/otlp/v1/traces")]
        {
            let collector = Collector::at(&url::parse(base).unwrap(), Arc::clone(&tls)).unwrap();
            assert_eq!(collector.target, target);
        }
    }
}
