//! A scripted origin of HTTP/2, frame by frame, so that it can do what no server does.

use super::play::{call, named, patiently, url};
use crate::config::OriginHttp2;
use crate::upstream::{Call, Origin, OutgoingBody, UpstreamFault, Upstreams};
use larder_wire::h2::frame::{self, Frame, Settings};
use larder_wire::h2::hpack::{self, Decoder, FieldList};
use larder_wire::h2::{ErrorCode, PREFACE};
use larder_wire::{Fields, Method};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A connection of a scripted origin, whose SETTINGS were sent.
pub struct H2Peer<S = TcpStream> {
    pub stream: S,
    /// 0 for the first connection that was accepted.
    pub number: usize,
    inbox: Vec<u8>,
    decoder: Decoder,
}

/// An event on a stream of a scripted origin.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    /// A head: its fields as `name: value` lines, and whether it ends the request.
    Head(u32, String, bool),
    /// Bytes of a body, and whether they end it.
    Data(u32, Vec<u8>, bool),
    Reset(u32, ErrorCode),
    GoAway(ErrorCode),
    Ping([u8; 8]),
}

impl<S: AsyncRead + AsyncWrite + Unpin> H2Peer<S> {
    /// A connection of which these bytes were read, and whose SETTINGS are to be sent.
    pub fn on(stream: S, number: usize, inbox: Vec<u8>) -> H2Peer<S> {
        H2Peer { stream, number, inbox, decoder: Decoder::new() }
    }

    /// The next event; `None` once the other side has closed. SETTINGS and windows are looked after.
    pub async fn next(&mut self) -> Option<Seen> {
        loop {
            if let Some((seen, length)) = self.read() {
                self.inbox.drain(..length);
                match seen {
                    Read::Seen(seen) => return Some(seen),
                    Read::Settings => self.say(frame::write_settings_ack).await,
                    Read::Other => {}
                }
                continue;
            }
            let mut room = [0; 16 * 1024];
            let read = self.stream.read(&mut room).await.ok().filter(|read| *read > 0)?;
            self.inbox.extend_from_slice(&room[..read]);
        }
    }

    fn read(&mut self) -> Option<(Read, usize)> {
        if self.inbox.starts_with(PREFACE) {
            return Some((Read::Other, PREFACE.len()));
        }
        let (frame, length) = frame::read(&self.inbox, frame::PAYLOAD_BYTES_MAX).unwrap()?;
        let seen = match frame {
            Frame::Settings(_) => Read::Settings,
            Frame::Headers { stream, fragment, ends_stream, ends_headers } => {
                assert!(ends_headers, "heads of these tests are short");
                let mut list = FieldList::default();
                self.decoder.decode(fragment, 1 << 16, &mut list).unwrap();
                let line =
                    |(name, value)| format!("{}: {}\n", String::from_utf8_lossy(name), String::from_utf8_lossy(value));
                Read::Seen(Seen::Head(stream, list.iter().map(line).collect(), ends_stream))
            }
            Frame::Data { stream, data, ends_stream, .. } => Read::Seen(Seen::Data(stream, data.to_vec(), ends_stream)),
            Frame::Reset { stream, code } => Read::Seen(Seen::Reset(stream, code)),
            Frame::GoAway { code, .. } => Read::Seen(Seen::GoAway(code)),
            Frame::Ping(text) => Read::Seen(Seen::Ping(text)),
            _ => Read::Other,
        };
        Some((seen, length))
    }

    /// The stream of the next request, and its fields.
    pub async fn request(&mut self) -> Option<(u32, String)> {
        loop {
            if let Seen::Head(stream, fields, _) = self.next().await? {
                return Some((stream, fields));
            }
        }
    }

    /// Sends frames.
    pub async fn say(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        write(&mut out);
        let _ = self.stream.write_all(&out).await;
        let _ = self.stream.flush().await;
    }

    /// Answers a request with this body.
    pub async fn answer(&mut self, stream: u32, body: &[u8]) {
        self.say(|out| {
            head(out, stream, &[(":status", "200")], false);
            data(out, stream, body, true);
        })
        .await;
    }

    /// Answers each request with its path, until the other side closes.
    pub async fn echo_all(&mut self) {
        while let Some((stream, fields)) = self.request().await {
            let path = fields.lines().find_map(|line| line.strip_prefix(":path: ")).unwrap_or_default().to_owned();
            self.answer(stream, path.as_bytes()).await;
        }
    }
}

enum Read {
    Seen(Seen),
    Settings,
    Other,
}

pub fn head(out: &mut Vec<u8>, stream: u32, fields: &[(&str, &str)], ends_stream: bool) {
    let mut block = Vec::new();
    fields.iter().for_each(|(name, value)| hpack::write_field(&mut block, name.as_bytes(), value.as_bytes(), false));
    frame::write_block(out, stream, &block, ends_stream, 16_384);
}

pub fn data(out: &mut Vec<u8>, stream: u32, bytes: &[u8], ends_stream: bool) {
    frame::write_data_head(out, stream, bytes.len(), ends_stream);
    out.extend_from_slice(bytes);
}

/// An origin that plays `script` on every connection; gives its address, and the connections that it accepted.
pub async fn h2_origin<F, P>(settings: Settings, script: F) -> (Origin, Arc<AtomicUsize>)
where
    F: Fn(H2Peer) -> P + Send + 'static,
    P: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            let number = count.fetch_add(1, Ordering::SeqCst);
            let mut peer = H2Peer::on(stream, number, Vec::new());
            peer.say(|out| frame::write_settings(out, &settings)).await;
            tokio::spawn(script(peer));
        }
    });
    (named("127.0.0.1", address.port()), accepted)
}

/// Runs a test whose connections are tasks of this thread.
pub async fn locally<T>(work: impl Future<Output = T>) -> T {
    patiently(tokio::task::LocalSet::new().run_until(work)).await
}

/// Sends a request by HTTP/2 and reads the whole response: its status and body.
pub async fn ask_h2(
    upstreams: &Upstreams,
    origin: &Origin,
    method: &Method,
    target: &str,
    body: Option<OutgoingBody>,
) -> Result<(u16, Vec<u8>), UpstreamFault> {
    let (to, mut fields) = (url(origin), Fields::new());
    fields.push("Host", "a.example");
    let http2 = match origin.scheme {
        larder_wire::Scheme::Https => OriginHttp2::Auto,
        _ => OriginHttp2::PriorKnowledge,
    };
    let mut call = Call { method, target, body, http2, ..call(&to, &fields) };
    let mut response = upstreams.call(&mut call).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = response.body.next().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok((response.head.status, bytes))
}

/// A GET by HTTP/2.
pub async fn get_h2(upstreams: &Upstreams, origin: &Origin, target: &str) -> Result<(u16, Vec<u8>), UpstreamFault> {
    ask_h2(upstreams, origin, &Method::Get, target, None).await
}
