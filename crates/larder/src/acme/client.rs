//! The client by which an authority is asked: one request on a connection of its own, over TLS alone, with limits on all that comes back.
//! Redirections are not followed, for nothing in RFC 8555 needs one.

use crate::clock;
use crate::lists::download::Answer;
use bytes::Bytes;
use http::{Request, Response};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use larder_wire::{Method, ResponseHead, Scheme, Url, date};
use parking_lot::Mutex;
use rustls::ClientConfig;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a request may take altogether.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// An answer of more bytes is refused. Chains of certificates are the longest, with some kB.
const ANSWER_BYTES_MAX: u64 = 256 << 10;
/// An authority that wants an order to be looked at later than this is taken to have meant this.
const POLL_AFTER_MAX: Duration = Duration::from_secs(60);
/// An authority that has enough for now is left alone for no longer than this.
const LIMITED_FOR_MAX: Duration = Duration::from_secs(7 * 86_400);

/// Facts about the answers, which the protocol above does not hand on.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The `Retry-After` of the last answer.
    retry_after: Mutex<Option<Duration>>,
    /// Why the authority gave no answer to the last request, where it gave none.
    unreachable: Mutex<Option<String>>,
}

impl Heard {
    /// How long the authority wants to be left alone by its last answer, at most a week.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        *self.retry_after.lock()
    }

    /// Whether the last request got no answer.
    pub(super) fn was_unreachable(&self) -> bool {
        self.unreachable.lock().is_some()
    }
}

/// The client.
pub(super) struct Client {
    tls: Arc<ClientConfig>,
    heard: Arc<Heard>,
}

impl Client {
    /// A client that verifies the authority by `tls`, and notes what it has heard.
    pub(super) fn new(tls: Arc<ClientConfig>, heard: Arc<Heard>) -> Client {
        Client { tls, heard }
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (tls, heard) = (Arc::clone(&self.tls), Arc::clone(&self.heard));
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            // The body is whole already; only that of a response gives its bytes without a further crate.
            let body = BytesResponse::from(Response::new(body)).body.into_bytes().await.map_err(Error::Other)?;
            // The thread has nothing else to do meanwhile, so it waits for the socket itself.
            let answered = Url::parse(&parts.uri.to_string())
                .filter(|url| url.scheme == Scheme::Https)
                .ok_or_else(|| io::Error::other(format!("{} is no URL with https", plain(&parts.uri.to_string()))))
                .and_then(|url| exchange(&url, &parts, &body, &tls));
            *heard.unreachable.lock() = answered.as_ref().err().map(ToString::to_string);
            let (head, body) = answered.map_err(|error| Error::Other(Box::new(error)))?;
            let asked = retry_after(&head);
            *heard.retry_after.lock() = asked.map(|pause| pause.min(LIMITED_FOR_MAX));
            response(&head, asked, body)
        })
    }
}

/// Sends a request, and reads the whole answer.
fn exchange(
    url: &Url,
    parts: &http::request::Parts,
    body: &[u8],
    tls: &Arc<ClientConfig>,
) -> io::Result<(ResponseHead, Vec<u8>)> {
    let method = match parts.method {
        http::Method::GET => Method::Get,
        http::Method::HEAD => Method::Head,
        http::Method::POST => Method::Post,
        _ => return Err(io::Error::other("no such method is used with an authority")),
    };
    let mut text = format!(
        "{} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: larder/{}\r\nAccept-Encoding: identity\r\nConnection: close\r\n",
        method.as_str(),
        url.path,
        url.authority(),
        env!("CARGO_PKG_VERSION"),
    );
    if let Some(kind) = parts.headers.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()) {
        text.push_str(&format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    let mut request = text.into_bytes();
    request.extend_from_slice(body);
    let mut answer = Answer::ask(url, &request, tls, Instant::now() + ANSWER_WITHIN)?;
    if matches!(answer.head.status, 300..400) {
        return Err(io::Error::other(format!("{} redirects, which no authority needs to", url.host)));
    }
    let mut content = Vec::new();
    answer.body(&method, ANSWER_BYTES_MAX, |piece| {
        content.extend_from_slice(piece);
        Ok(())
    })?;
    Ok((answer.head, content))
}

/// The answer in the types of the protocol above, with the fields that it reads. The pause is bounded: it is added to a clock there.
fn response(head: &ResponseHead, retry_after: Option<Duration>, body: Vec<u8>) -> Result<BytesResponse, Error> {
    let mut response = Response::builder().status(head.status);
    for name in ["Location", "Replay-Nonce"] {
        if let Some(value) = head.fields.text(name) {
            response = response.header(name, value);
        }
    }
    if let Some(pause) = retry_after {
        response = response.header("Retry-After", pause.min(POLL_AFTER_MAX).as_secs().to_string());
    }
    let (parts, ()) = response.body(())?.into_parts();
    Ok(BytesResponse { parts, body: Box::new(Bytes::from(body)) })
}

/// The pause that an answer asks for (RFC 9110 section 10.2.3).
fn retry_after(head: &ResponseHead) -> Option<Duration> {
    let text = head.fields.text("Retry-After")?.trim();
    match text.parse::<u64>() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let at = date::parse_date(text.as_bytes())?;
            Some(Duration::from_secs(at.0.saturating_sub(clock::now().0)))
        }
    }
}

/// Letters of a text from outside that are shown.
const SHOWN_LETTERS_MAX: usize = 400;

/// A text from outside as a log may have it.
pub(super) fn plain(text: &str) -> String {
    let letters = text.chars().take(SHOWN_LETTERS_MAX);
    letters.map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}
