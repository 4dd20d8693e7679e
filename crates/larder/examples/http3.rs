//! The two ends of `cargo xtask bench http3`, on `quinn`: the least that a server of HTTP/3 on it needs, and a client that asks as fast
//! as it is answered.
//!
//! - `http3 limit PORT CHAIN KEY BYTES` answers each request on 127.0.0.1 with the same head and a body of so many bytes, which it
//!   copies no more than Larder copies those of its store, by a socket with the buffers that Larder's has. It reads no frame, keeps no log
//!   and has no control stream: what a real server needs beyond it is its own work and HTTP/3's.
//! - `http3 load PORT CHAIN PATH BYTES CONNECTIONS STREAMS SECONDS` prints `requests N, errors N, rate N`. An answer counts where its
//!   status is 200 and its body has so many bytes; each connection has a socket of its own and so many requests under way.

use bytes::Bytes;
use larder_wire::h2::hpack::FieldList;
use larder_wire::h3::control::UniKind;
use larder_wire::h3::frame::{self, FrameType, HeadReader, Settings};
use larder_wire::h3::qpack;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Requests under way on a connection, and bytes that a client has not acknowledged: as Larder has them.
const STREAMS_MAX: u32 = 100;
const UNACKNOWLEDGED_BYTES_MAX: u64 = 1 << 20;

/// A longer request, or a longer answer, is an error.
const REQUEST_BYTES_MAX: usize = 64 << 10;
const HEAD_BYTES_MAX: usize = 64 << 10;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match words[..] {
        ["limit", port, chain, key, bytes] => runtime.block_on(limit(number(port)?, (chain, key), number(bytes)?)),
        ["load", port, chain, path, bytes, connections, streams, seconds] => {
            let asked = Arc::new(Asked { request: request(path), bytes: number(bytes)?, ..Asked::default() });
            let seconds = Duration::from_secs(number(seconds)?);
            let many = (number(connections)?, number(streams)?);
            runtime.block_on(load((number(port)?, chain), many, seconds, asked))
        }
        _ => Err(
            "usage: http3 limit PORT CHAIN KEY BYTES, or http3 load PORT CHAIN PATH BYTES CONNECTIONS STREAMS SECONDS"
                .into(),
        ),
    }
}

fn number<T: FromStr<Err: Error + 'static>>(text: &str) -> Outcome<T> {
    Ok(text.parse()?)
}

async fn limit(port: u16, (chain, key): (&str, &str), bytes: usize) -> Outcome<()> {
    let chain = CertificateDer::pem_file_iter(chain)?.collect::<Result<Vec<_>, _>>()?;
    let mut tls = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(STREAMS_MAX.into()).send_window(UNACKNOWLEDGED_BYTES_MAX);
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config.transport_config(Arc::new(transport));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let socket = larder::bind::bind_quic(address)?;
    let endpoint = Endpoint::new(EndpointConfig::default(), Some(config), socket, Arc::new(TokioRuntime))?;
    // The lab waits until the port of TCP is open.
    let _door = TcpListener::bind(address)?;
    let reply = Bytes::from(reply(bytes));
    while let Some(incoming) = endpoint.accept().await {
        let reply = reply.clone();
        tokio::spawn(async move {
            let Ok(quic) = incoming.await else { return };
            while let Ok((mut send, mut receive)) = quic.accept_bi().await {
                let reply = reply.clone();
                tokio::spawn(async move {
                    if receive.read_to_end(REQUEST_BYTES_MAX).await.is_ok() && send.write_chunk(reply).await.is_ok() {
                        let _ = send.finish();
                    }
                });
            }
        });
    }
    Ok(())
}

/// A head with the fields that a hit of Larder has, and a body.
fn reply(bytes: usize) -> Vec<u8> {
    let (mut section, mut out) = (Vec::new(), Vec::new());
    qpack::write_prefix(&mut section);
    let length = bytes.to_string();
    for (name, value) in [
        (":status", "200"),
        ("server", "limit"),
        ("date", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ("content-type", "text/plain"),
        ("content-length", &*length),
        ("cache-control", "max-age=86400"),
        ("age", "1"),
        ("via", "3.0 limit"),
        ("cache-status", "limit; hit; ttl=86399"),
    ] {
        qpack::write_field(&mut section, name.as_bytes(), value.as_bytes(), false);
    }
    frame::write_headers(&mut out, &section);
    frame::write_data_head(&mut out, bytes as u64);
    out.resize(out.len() + bytes, b'x');
    out
}

/// The request, and the account of its answers.
#[derive(Default)]
struct Asked {
    request: Vec<u8>,
    bytes: u64,
    right: AtomicU64,
    wrong: AtomicU64,
}

fn request(path: &str) -> Vec<u8> {
    let (mut section, mut out) = (Vec::new(), Vec::new());
    qpack::write_prefix(&mut section);
    for (name, value) in [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", path),
        ("user-agent", "http3-load"),
    ] {
        qpack::write_field(&mut section, name.as_bytes(), value.as_bytes(), false);
    }
    frame::write_headers(&mut out, &section);
    out
}

async fn load(
    (port, chain): (u16, &str),
    (connections, streams): (usize, usize),
    lasts: Duration,
    asked: Arc<Asked>,
) -> Outcome<()> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(chain)? {
        roots.add(certificate?)?;
    }
    let mut tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    let mut open = Vec::new();
    for _ in 0..connections {
        let endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into())?;
        let quic = endpoint.connect_with(config.clone(), (Ipv4Addr::LOCALHOST, port).into(), "localhost")?.await?;
        let mut control = quic.open_uni().await?;
        control.write_all(&first_words()).await?;
        open.push((endpoint, quic, control));
    }
    let (began, mut tasks) = (Instant::now(), Vec::new());
    for (_, quic, _) in &open {
        tasks.extend((0..streams).map(|_| tokio::spawn(ask(quic.clone(), Arc::clone(&asked), began + lasts))));
    }
    for task in tasks {
        task.await?;
    }
    let (right, wrong) = (asked.right.load(Ordering::Relaxed), asked.wrong.load(Ordering::Relaxed));
    println!("requests {right}, errors {wrong}, rate {:.1}", right as f64 / began.elapsed().as_secs_f64());
    Ok(())
}

/// The beginning of a control stream.
fn first_words() -> Vec<u8> {
    let mut out = Vec::new();
    UniKind::write_control(&mut out);
    frame::write_settings(&mut out, &Settings::default());
    out
}

/// One request after the other.
async fn ask(quic: Connection, asked: Arc<Asked>, end: Instant) {
    while Instant::now() < end {
        let answer = async {
            let (mut send, mut receive) = quic.open_bi().await.ok()?;
            send.write_all(&asked.request).await.ok()?;
            send.finish().ok()?;
            receive.read_to_end(HEAD_BYTES_MAX + usize::try_from(asked.bytes).ok()?).await.ok()
        };
        let is_right = answer.await.and_then(|answer| body_of(&answer)) == Some(asked.bytes);
        let count = if is_right { &asked.right } else { &asked.wrong };
        count.fetch_add(1, Ordering::Relaxed);
        if !is_right && quic.close_reason().is_some() {
            return;
        }
    }
}

/// The bytes of the body of an answer whose status is 200.
fn body_of(mut answer: &[u8]) -> Option<u64> {
    let (mut is_right, mut body) = (false, 0);
    while !answer.is_empty() {
        let (head, taken) = HeadReader::default().read(answer);
        let head = head?;
        let (payload, behind) = answer.get(taken..)?.split_at_checked(usize::try_from(head.length).ok()?)?;
        match head.kind {
            FrameType::Headers => {
                let mut list = FieldList::default();
                qpack::decode(payload, HEAD_BYTES_MAX, &mut list).ok()?;
                is_right |= list.iter().any(|(name, value)| name == b":status" && value == b"200");
            }
            FrameType::Data => body += head.length,
            _ => {}
        }
        answer = behind;
    }
    is_right.then_some(body)
}
