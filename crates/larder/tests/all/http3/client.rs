//! A client of HTTP/3 on `quinn`, whose frames the tests write.

use super::Site;
use larder_wire::h2::hpack::FieldList;
use larder_wire::h3::control::UniKind;
use larder_wire::h3::frame::{self, FrameType, HeadReader, Settings};
use larder_wire::h3::qpack;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, ReadToEndError, RecvStream, SendStream, VarInt};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// A test that waits longer for something has failed.
pub const WITHIN: Duration = Duration::from_secs(120);

/// A connection.
pub struct Client {
    pub runtime: Runtime,
    pub endpoint: Endpoint,
    pub quic: Connection,
    /// Streams that last as long as the connection.
    pub unis: Vec<SendStream>,
}

/// An answer, or what came of it.
#[derive(Debug, Default)]
pub struct Answer {
    /// The interim heads, and the final one.
    pub heads: Vec<Vec<(String, String)>>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    /// The code by which the stream was reset.
    pub reset: Option<u64>,
    /// The connection ended before it.
    pub is_lost: bool,
}

impl Answer {
    fn of(bytes: &[u8]) -> Answer {
        let mut answer = Answer::default();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (head, taken) = HeadReader::default().read(rest);
            let head = head.expect("the head of a frame");
            let (payload, behind) = rest[taken..].split_at(usize::try_from(head.length).unwrap());
            rest = behind;
            match head.kind {
                FrameType::Headers => {
                    let mut list = FieldList::default();
                    qpack::decode(payload, 1 << 20, &mut list).unwrap();
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let fields: Vec<_> = list.iter().map(|(name, value)| (text(name), text(value))).collect();
                    match fields.first() {
                        Some((name, _)) if name == ":status" => answer.heads.push(fields),
                        _ => answer.trailers = fields,
                    }
                }
                FrameType::Data => answer.body.extend_from_slice(payload),
                kind => panic!("{kind:?} in an answer"),
            }
        }
        answer
    }

    /// The final status; nothing where there is no answer.
    pub fn status(&self) -> &str {
        self.field(":status")
    }

    /// A field of the final head.
    pub fn field(&self, name: &str) -> &str {
        let head = self.heads.last().map(|head| &head[..]).unwrap_or_default();
        head.iter().find(|(its_name, _)| its_name == name).map_or("", |(_, value)| value)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The fields of a GET.
pub fn get(path: &str) -> Vec<(&str, &str)> {
    vec![(":method", "GET"), (":scheme", "https"), (":authority", "site.test"), (":path", path)]
}

/// HEADERS with these fields.
pub fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let (mut section, mut out) = (Vec::new(), Vec::new());
    qpack::write_prefix(&mut section);
    for (name, value) in fields {
        write_as_it_is(&mut section, name, value);
    }
    frame::write_headers(&mut out, &section);
    out
}

/// A literal line, whose name may be one that no encoder writes.
fn write_as_it_is(section: &mut Vec<u8>, name: &str, value: &str) {
    for (kind, most, text) in [(0x20_u8, 7_usize, name), (0, 127, value)] {
        match text.len().checked_sub(most) {
            None => section.push(kind | text.len() as u8),
            Some(mut rest) => {
                section.push(kind | most as u8);
                while rest >= 128 {
                    section.push(rest as u8 | 128);
                    rest >>= 7;
                }
                section.push(rest as u8);
            }
        }
        section.extend_from_slice(text.as_bytes());
    }
}

/// DATA with these bytes.
pub fn data(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write_data_head(&mut out, bytes.len() as u64);
    out.extend_from_slice(bytes);
    out
}

/// The beginning of a control stream, with SETTINGS.
pub fn control() -> Vec<u8> {
    control_with(&Settings::default())
}

/// The same with these parameters.
pub fn control_with(settings: &Settings) -> Vec<u8> {
    let mut out = Vec::new();
    UniKind::write_control(&mut out);
    frame::write_settings(&mut out, settings);
    out
}

/// The settings of TLS of a client that trusts this certificate, and shows one where it has one.
pub fn tls(
    certificate: &CertificateDer<'static>,
    own: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
) -> ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let builder = rustls::ClientConfig::builder().with_root_certificates(roots);
    let mut config = match own {
        Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h3".to_vec()];
    ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).unwrap()))
}

impl Client {
    /// A connection that has said what clients say at first.
    pub fn to(site: &Site) -> Client {
        let mut client = Client::bare(site);
        client.uni(&control());
        client
    }

    /// A connection on which nothing was sent.
    pub fn bare(site: &Site) -> Client {
        Client::with(site.address, tls(&site.certificate, None)).unwrap()
    }

    pub fn with(address: SocketAddr, config: ClientConfig) -> Result<Client, ConnectionError> {
        Client::with_from(1, address, config)
    }

    /// From the address of this machine that ends so.
    pub fn with_from(last: u8, address: SocketAddr, config: ClientConfig) -> Result<Client, ConnectionError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let entered = runtime.enter();
        let endpoint = Endpoint::client(SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0))).unwrap();
        drop(entered);
        let connecting = async {
            let connecting = endpoint.connect_with(config, address, "site.test").unwrap();
            tokio::time::timeout(WITHIN, connecting).await.expect("a handshake in time")
        };
        let quic = runtime.block_on(connecting)?;
        Ok(Client { runtime, endpoint, quic, unis: Vec::new() })
    }

    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { tokio::time::timeout(WITHIN, future).await.expect("in time") })
    }

    /// Takes and sends packets for so long.
    pub fn pause(&self, millis: u64) {
        self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(millis)).await });
    }

    /// Opens a stream in one direction with these bytes.
    pub fn uni(&mut self, bytes: &[u8]) {
        let stream = self.wait(async {
            let mut stream = self.quic.open_uni().await.unwrap();
            let _ = stream.write_all(bytes).await;
            stream
        });
        self.unis.push(stream);
    }

    /// Opens a stream of a request with these bytes, and ends it where these are all.
    pub fn begin(&self, bytes: &[u8], ends: bool) -> (SendStream, RecvStream) {
        self.try_begin(bytes, ends).expect("an open connection")
    }

    /// The same; nothing where the connection has ended.
    pub fn try_begin(&self, bytes: &[u8], ends: bool) -> Option<(SendStream, RecvStream)> {
        self.wait(async {
            let (mut send, receive) = self.quic.open_bi().await.ok()?;
            let _ = send.write_all(bytes).await;
            if ends {
                let _ = send.finish();
            }
            Some((send, receive))
        })
    }

    /// Reads an answer to its end.
    pub fn answer(&self, receive: &mut RecvStream) -> Answer {
        match self.wait(receive.read_to_end(usize::MAX)) {
            Ok(bytes) => Answer::of(&bytes),
            Err(ReadToEndError::Read(quinn::ReadError::Reset(code))) => {
                Answer { reset: Some(code.into_inner()), ..Answer::default() }
            }
            Err(_) => Answer { is_lost: true, ..Answer::default() },
        }
    }

    /// The answer to a request of these bytes.
    pub fn play(&self, bytes: &[u8]) -> Answer {
        let (_send, mut receive) = self.begin(bytes, true);
        self.answer(&mut receive)
    }

    /// The answer to a request without a body.
    pub fn ask(&self, fields: &[(&str, &str)]) -> Answer {
        self.play(&headers(fields))
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask(&get(path))
    }

    /// Waits until the server closes the connection, and gives the code and the words.
    pub fn closed(&self) -> (u64, String) {
        match self.wait(self.quic.closed()) {
            ConnectionError::ApplicationClosed(closed) => {
                (closed.error_code.into_inner(), String::from_utf8_lossy(&closed.reason).into_owned())
            }
            other => panic!("closed otherwise: {other}"),
        }
    }
}

/// A code as QUIC carries it.
pub fn code(code: larder_wire::h3::ErrorCode) -> VarInt {
    VarInt::from_u64(code.number()).unwrap()
}
