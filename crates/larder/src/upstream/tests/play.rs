//! Scripted origins and the few words the tests speak with them.

use crate::config::OriginHttp2;
use crate::reach::Reach;
use crate::upstream::h1::Connection;
use crate::upstream::idle::ConnectionChoice;
use crate::upstream::wanted::Wanted;
use crate::upstream::{Call, Origin, Settings, UpstreamFault, Upstreams};
use larder_rules::rule::Priority;
use larder_wire::{Fields, Host, Method, ResponseHead, Scheme, Url};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// Longer than anything here should take.
const PATIENCE: Duration = Duration::from_secs(10);

/// One accepted connection of a scripted origin.
pub struct Peer<S = TcpStream> {
    pub stream: S,
    /// 0 for the first connection that was accepted.
    pub number: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    /// Reads one request head; `None` when the other side has closed.
    pub async fn request(&mut self) -> Option<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await.ok()?);
        }
        String::from_utf8(head).ok()
    }

    pub async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref()).await;
        let _ = self.stream.flush().await;
    }

    /// Answers every request with the same bytes until the other side closes.
    pub async fn answer_all(&mut self, bytes: &str) {
        while self.request().await.is_some() {
            self.say(bytes).await;
        }
    }

    /// Waits until the other side closes.
    pub async fn wait_for_close(&mut self) {
        let mut rest = [0; 4096];
        while self.stream.read(&mut rest).await.is_ok_and(|len| len > 0) {}
    }
}

/// An origin that plays `script` on every connection; gives its address.
pub async fn origin<F, P>(script: F) -> SocketAddr
where
    F: Fn(Peer) -> P + Send + 'static,
    P: Future<Output = ()> + Send + 'static,
{
    origin_at("127.0.0.1:0".parse().unwrap(), script).await
}

/// An origin at this address that plays `script` on every connection.
async fn origin_at<F, P>(address: SocketAddr, script: F) -> SocketAddr
where
    F: Fn(Peer) -> P + Send + 'static,
    P: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for number in 0.. {
            let Ok((stream, _)) = listener.accept().await else { return };
            stream.set_nodelay(true).unwrap();
            tokio::spawn(script(Peer { stream, number }));
        }
    });
    address
}

/// An origin at this address that answers every request with these bytes.
pub async fn answers_at(address: SocketAddr, bytes: &'static str) -> SocketAddr {
    origin_at(address, move |mut peer| async move { peer.answer_all(bytes).await }).await
}

/// An origin that says these bytes to every request and then closes.
pub async fn says_and_closes(bytes: &'static str) -> SocketAddr {
    origin(move |mut peer| async move {
        peer.request().await;
        peer.say(bytes).await;
    })
    .await
}

/// An origin that answers every request with these bytes.
pub async fn answers(bytes: &'static str) -> SocketAddr {
    origin(move |mut peer| async move { peer.answer_all(bytes).await }).await
}

pub fn no_trust() -> Arc<rustls::ClientConfig> {
    trust(rustls::RootCertStore::empty())
}

pub fn trust(roots: rustls::RootCertStore) -> Arc<rustls::ClientConfig> {
    Arc::new(rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

/// Upstreams with some settings changed.
pub fn upstreams(change: impl FnOnce(&mut Settings)) -> Upstreams {
    let mut settings = Settings::new(no_trust());
    settings.resolver = crate::upstream::ResolverChoice::System;
    change(&mut settings);
    Upstreams::new(settings).unwrap()
}

pub fn at(address: SocketAddr) -> Origin {
    named(&address.ip().to_string(), address.port())
}

pub fn named(host: &str, port: u16) -> Origin {
    Origin { scheme: Scheme::Http, host: Host::parse(host).unwrap(), port, tls_name: None, by_parents: false }
}

/// The URL that is asked for at an origin.
pub fn url(origin: &Origin) -> Url {
    Url { scheme: origin.scheme, host: origin.host.clone(), port: origin.port, path: "/".into() }
}

pub async fn patiently<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("took too long")
}

/// A connection for a request, as `Upstreams::call` takes it.
pub async fn lease(upstreams: &Upstreams, origin: &Origin) -> Result<Connection, UpstreamFault> {
    patiently(connection(upstreams, &url(origin), ConnectionChoice::IdleAllowed)).await
}

/// A new connection.
pub async fn lease_new(upstreams: &Upstreams, origin: &Origin) -> Result<Connection, UpstreamFault> {
    patiently(connection(upstreams, &url(origin), ConnectionChoice::NewOnly)).await
}

/// A connection, however long it takes.
pub async fn connection(
    upstreams: &Upstreams,
    url: &Url,
    choice: ConnectionChoice,
) -> Result<Connection, UpstreamFault> {
    upstreams
        .connection(
            (url, None),
            choice,
            Wanted { reach: &Reach::Configured, header: None },
            tokio::time::Instant::now(),
            ((None, Priority::default()), &|_| {}),
        )
        .await
}

/// Sends a request and reads the final head.
pub async fn ask(connection: &mut Connection, request: &str) -> Result<ResponseHead, UpstreamFault> {
    connection.send(request.as_bytes()).await?;
    let method = Method::from_token(request.split(' ').next().unwrap());
    loop {
        let head = patiently(connection.response(&method)).await?;
        if !head.is_interim() {
            return Ok(head);
        }
    }
}

pub async fn whole_body(connection: &mut Connection) -> Result<Vec<u8>, UpstreamFault> {
    let mut body = Vec::new();
    while let Some(piece) = patiently(connection.receiver().body()).await? {
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// Sends a request, of which the method counts, and reads the whole response.
pub async fn exchange(upstreams: &Upstreams, origin: &Origin, request: &str) -> Result<Vec<u8>, UpstreamFault> {
    let method = Method::from_token(request.split(' ').next().unwrap());
    let (to, mut fields) = (url(origin), Fields::new());
    fields.push("Host", "a.example");
    let mut call = Call { method: &method, ..call(&to, &fields) };
    let mut response = patiently(upstreams.call(&mut call)).await?;
    let mut body = Vec::new();
    while let Some(piece) = patiently(response.body.next()).await? {
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// A GET without a body, for nobody in particular.
pub fn call<'a>(to: &'a Url, fields: &'a Fields) -> Call<'a> {
    Call {
        to,
        tls_name: None,
        method: &Method::Get,
        target: "/",
        fields,
        body: None,
        reach: &Reach::Configured,
        client: None,
        priority: Priority::default(),
        begins: tokio::time::Instant::now(),
        silent_for: None,
        http2: OriginHttp2::Off,
        proxy_protocol: None,
        proxied: None,
        on: &|_| (),
    }
}

/// Repeats a look until it shows what is waited for.
pub async fn until(mut seen: impl FnMut() -> bool) {
    patiently(async {
        while !seen() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}
