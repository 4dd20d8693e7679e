//! A client of ICAP (RFC 3507): services of others look at requests and responses, and let them pass, change them or answer
//! instead. The bytes of the protocol are `larder_wire::icap`; here are connections, questions and what is known of a service.
//! Why a service is asked and what becomes of its word is in `exchange::icap` and `fetch::icap`.
//!
//! A [`Service`] is one `[[icap]]` with its servers, each of which has its connections, its answer to OPTIONS and its times of
//! rest. They are shared by all workers: `Max-Connections` counts a whole client.

mod connections;
mod heads;
mod look;
mod sending;
mod server;
mod source;
mod tags;
mod talk;

pub use heads::{
    AuthorizationFor, ChangedTo, MARK_FIELD, mend_request, mend_response, request_for_service, response_for_service,
    restore_credentials, validation_of_judged,
};
pub use look::look;
pub use server::{Server, ServerReport};
pub use source::{Body, Origin};
pub use tags::MARK;
pub use talk::Carried;

use crate::config::{Icap, PREVIEW_BYTES_MAX, PreviewSetting};
use crate::record::{IcapDid, IcapNote};
use crate::upstream::{UpstreamFault, Upstreams};
use larder_cache::cache::Cache;
use larder_wire::icap::{Preview, Question as WireQuestion, Reply, Subject, Transfer, Vector};
use larder_wire::parse::HeadLimits;
use larder_wire::{Fields, RequestHead, ResponseHead};
use parking_lot::Mutex;
use sending::{SendLimits, Sending};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tags::Tags;
use talk::{ReplyLimits, Talk};
use tokio::time::Instant;

/// Why a service gave no usable word.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// It failed a moment ago, and is left alone for a while.
    Resting,
    /// No connection came about.
    Connect(String),
    /// As many messages wait for it as may.
    Full,
    /// None of its connections was free in time.
    NoConnection,
    /// No reply began in time.
    Late,
    /// Nothing went on in the middle of a question or a reply.
    Silent(&'static str),
    /// The connection ended where it must not.
    Broken(&'static str),
    /// The reply breaks the rules.
    Malformed(&'static str),
    /// It replied with the status of a failure.
    Status(u16),
    /// It is not for this kind of message.
    NotOffered(Vector),
    /// The body of the message is longer than `body_bytes_max`.
    TooLong,
    /// The message itself broke off: the trouble is that of its sender.
    Source(UpstreamFault),
}

impl Trouble {
    /// Whether another server of the service may do better.
    fn is_of_server(&self) -> bool {
        !matches!(self, Trouble::TooLong | Trouble::Source(_))
    }

    /// Whether the next message would meet it too, so that the server is left alone for a while. A reply that is late or stays away says
    /// nothing of other messages; whether the server is well, its answer to OPTIONS shows.
    fn lasts(&self) -> bool {
        matches!(self, Trouble::Connect(_) | Trouble::NotOffered(_))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Resting => f.write_str("it failed a moment ago and is not asked for a while"),
            Trouble::Connect(why) => write!(f, "no connection: {why}"),
            Trouble::Full => f.write_str("as many messages wait for it as `waiting` permits"),
            Trouble::NoConnection => f.write_str("none of its connections was free within `connect_timeout`"),
            Trouble::Late => f.write_str("no reply began within `answer_timeout`"),
            Trouble::Silent(what) => write!(f, "{what} for `silence_timeout`"),
            Trouble::Broken(what) => f.write_str(what),
            Trouble::Malformed(what) => write!(f, "its reply can't be understood: {what}"),
            Trouble::Status(status) => write!(f, "it replied {status}"),
            Trouble::NotOffered(vector) => write!(f, "it does not offer {}", vector.as_str()),
            Trouble::TooLong => f.write_str("the body is longer than `body_bytes_max`"),
            Trouble::Source(fault) => write!(f, "{}", fault.detail),
        }
    }
}

/// A message about which a service is asked, without its body.
pub struct Question<'a> {
    /// The request, without the fields of a connection.
    pub request: &'a RequestHead,
    /// The target as the service sees it: an absolute URL, or `host:port` of a CONNECT.
    pub target: &'a str,
    /// The response, where the service is asked about that.
    pub response: Option<&'a ResponseHead>,
    /// The address of the client, where the service is told it.
    pub client: Option<IpAddr>,
}

/// The word of a service about a message.
pub enum Judged {
    /// It stays as it is.
    Unchanged(Body),
    /// This request goes on in its place.
    Request(Box<RequestHead>, Option<Carried>),
    /// This response goes on in its place, or answers the request.
    Response(Box<ResponseHead>, Option<Carried>),
}

/// The word of a service, and the server that gave it.
pub struct Word {
    /// The word.
    pub judged: Judged,
    /// The server.
    pub by: Arc<Server>,
}

/// A service that gave no usable word.
pub struct Failed {
    /// Why.
    pub trouble: Trouble,
    /// The body as it was before the question; `None` where pieces of it are gone.
    pub body: Option<Box<Body>>,
}

impl Failed {
    /// The trouble as a fetch has it.
    pub fn into_fault(self, service: &str) -> UpstreamFault {
        self.trouble.into_fault(service)
    }
}

/// One count for each word of a service.
#[derive(Debug, Default)]
pub struct Counts {
    counts: [AtomicU64; IcapDid::ALL.len()],
    micros: AtomicU64,
}

impl Counts {
    /// How often the service did this.
    pub fn of(&self, did: IcapDid) -> u64 {
        self.counts.get(did as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// How long messages waited for it, in microseconds.
    pub fn micros(&self) -> u64 {
        self.micros.load(Ordering::Relaxed)
    }

    fn add(&self, did: IcapDid, micros: u64) {
        if let Some(count) = self.counts.get(did as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }
}

/// All services of a server, for all of its workers.
pub struct Services {
    cache: Arc<Cache>,
    tags: Arc<Tags>,
    known: Mutex<Vec<Arc<Service>>>,
}

impl Services {
    /// Services whose judgements are in this store. The ISTags are remembered in its folder.
    pub fn new(cache: Arc<Cache>, folder: Option<PathBuf>) -> Services {
        Services { cache, tags: Arc::new(Tags::new(folder)), known: Mutex::default() }
    }

    /// The service of these settings. One whose settings have changed begins anew, with the counts of the older one.
    pub fn of(&self, icap: &Arc<Icap>) -> Arc<Service> {
        let mut known = self.known.lock();
        let at = known.iter().position(|service| service.settings.name == icap.name);
        if let Some(service) = at.and_then(|at| known.get(at))
            && (Arc::ptr_eq(&service.settings, icap) || service.settings == *icap)
        {
            return Arc::clone(service);
        }
        let counts = at.map(|at| known.swap_remove(at)).map(|service| Arc::clone(&service.counts));
        let service = Arc::new(Service::new(icap, (&self.cache, &self.tags), counts.unwrap_or_default()));
        known.push(Arc::clone(&service));
        service
    }
}

/// One `[[icap]]`.
pub struct Service {
    /// Its settings.
    pub settings: Arc<Icap>,
    /// Its servers, in the order in which they are tried.
    pub servers: Vec<Arc<Server>>,
    /// Its work so far.
    pub counts: Arc<Counts>,
    name: Arc<str>,
}

impl Service {
    fn new(settings: &Arc<Icap>, of: (&Arc<Cache>, &Arc<Tags>), counts: Arc<Counts>) -> Service {
        let server = |url| Arc::new(Server::new(settings, url, of));
        let servers = settings.urls.iter().map(server).collect();
        Service { settings: Arc::clone(settings), servers, counts, name: settings.name.as_str().into() }
    }

    /// Asks about a message. `answer` is the note for the record; where the message goes on without the service the caller
    /// counts that by [`Service::note`].
    pub async fn ask(
        &self,
        upstreams: &Upstreams,
        question: &Question<'_>,
        body: Body,
    ) -> (IcapNote, Result<Word, Failed>) {
        let began = Instant::now();
        let asked = self.ask_servers(upstreams, question, body).await;
        let did = match asked.as_ref().map(|word| &word.judged) {
            Ok(Judged::Unchanged(_)) => IcapDid::Unchanged,
            Ok(Judged::Response(..)) if question.response.is_none() => IcapDid::Answered,
            Ok(Judged::Request(..) | Judged::Response(..)) => IcapDid::Changed,
            Err(_) => IcapDid::Failed,
        };
        let trouble = asked.as_ref().err().map(|failed| failed.trouble.to_string());
        let note = self.note(did, began, question.response.is_some(), trouble.as_deref());
        (note, asked)
    }

    /// Counts and notes something that the service did, or that became of a message without it.
    pub fn note(&self, did: IcapDid, began: Instant, is_response: bool, trouble: Option<&str>) -> IcapNote {
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.counts.add(did, micros);
        let vector = if is_response { Vector::Respmod } else { Vector::Reqmod };
        IcapNote::new(&self.name, vector, did, micros, trouble)
    }

    async fn ask_servers(&self, upstreams: &Upstreams, question: &Question<'_>, body: Body) -> Result<Word, Failed> {
        let mut failed = Failed { trouble: Trouble::Resting, body: Some(Box::new(body)) };
        for server in &self.servers {
            let Some(body) = failed.body.take() else { break };
            match server.ask(upstreams, question, *body).await {
                Err(next) if next.trouble.is_of_server() => {
                    tracing::debug!(service = %self.name, trouble = %next.trouble, "icap");
                    failed = next;
                }
                judged => return judged.map(|judged| Word { judged, by: Arc::clone(server) }),
            }
        }
        Err(failed)
    }
}

impl Server {
    async fn ask(
        self: &Arc<Server>,
        upstreams: &Upstreams,
        question: &Question<'_>,
        body: Body,
    ) -> Result<Judged, Failed> {
        let vector = if question.response.is_some() { Vector::Respmod } else { Vector::Reqmod };
        let capabilities = match self.capabilities(upstreams, vector).await {
            Ok(capabilities) => capabilities,
            Err(trouble) => return Err(Failed { trouble, body: Some(Box::new(body)) }),
        };
        let settings = self.settings();
        let preview = match (settings.preview, capabilities.transfer(path_of(question.target))) {
            (_, Transfer::Ignore) => return Ok(Judged::Unchanged(body)),
            (PreviewSetting::None, _) | (PreviewSetting::Auto, Transfer::Complete) => None,
            (PreviewSetting::Bytes(bytes), _) => Some(bytes),
            (PreviewSetting::Auto, Transfer::Preview) => capabilities.preview,
        };
        let preview = preview.map(|bytes| bytes.min(PREVIEW_BYTES_MAX));
        let mut is_fresh = false;
        let mut body = body;
        loop {
            match self.ask_once(upstreams, question, body, (preview, is_fresh)).await {
                Ok(judged) => {
                    self.works();
                    return Ok(judged);
                }
                // The service closed the connection between two questions, as it may.
                Err((Failed { body: Some(intact), .. }, true)) if !is_fresh => (body, is_fresh) = (*intact, true),
                Err((failed, _)) => {
                    if failed.trouble.lasts() {
                        self.fails(&failed.trouble);
                    } else if failed.trouble.is_of_server() {
                        self.asks_anew();
                    }
                    return Err(failed);
                }
            }
        }
    }

    /// Asks on one connection. The error says whether that connection was closed before the question came.
    async fn ask_once(
        self: &Arc<Server>,
        upstreams: &Upstreams,
        question: &Question<'_>,
        body: Body,
        (preview, is_fresh): (Option<u64>, bool),
    ) -> Result<Judged, (Failed, bool)> {
        let settings = self.settings();
        let head = self.head_of(question, &body, preview);
        let limits = SendLimits {
            preview,
            kept_bytes_max: settings.kept_bytes_max,
            bytes_max: settings.body_bytes_max.unwrap_or(u64::MAX),
            silence_max: settings.silence_timeout,
        };
        let sending = match Sending::begin(head, body, limits).await {
            Ok(sending) => sending,
            Err(trouble) => return Err((Failed { trouble, body: None }, false)),
        };
        let connection = match self.connections.connect(upstreams, is_fresh).await {
            Ok(connection) => connection,
            Err(trouble) => return Err((Failed { trouble, body: sending.into_body() }, false)),
        };
        let mut talk = Talk::begin(connection, sending, self.reply_limits());
        match talk.reply().await {
            Ok(reply) => {
                self.note_tag(&reply).await;
                judged(talk, reply, question.response.is_some()).map_err(|failed| (failed, false))
            }
            Err(trouble) => {
                let is_stale = talk.is_stale() && matches!(trouble, Trouble::Broken(_));
                let body = match trouble {
                    Trouble::Source(_) | Trouble::TooLong => None,
                    _ => talk.into_body(),
                };
                Err((Failed { trouble, body }, is_stale))
            }
        }
    }

    /// The bytes of the question up to the body.
    fn head_of(&self, question: &Question<'_>, body: &Body, preview: Option<u64>) -> Vec<u8> {
        let mut fields = Fields::new();
        if let Some(client) = question.client {
            fields.push("X-Client-IP", client.to_canonical().to_string());
        }
        let is_kept = body.is_empty() || body.length.is_some_and(|length| length <= self.settings().kept_bytes_max);
        let mut head = Vec::with_capacity(1024);
        WireQuestion {
            service: self.url(),
            request: (question.request, question.target),
            response: question.response,
            has_body: !body.is_empty(),
            preview: preview.map(Preview),
            allow_204: is_kept,
            fields: &fields,
        }
        .write_to(&mut head);
        head
    }

    fn reply_limits(&self) -> ReplyLimits {
        let settings = self.settings();
        let (answer_max, silence_max) = (settings.answer_timeout, settings.silence_timeout);
        ReplyLimits { heads: HeadLimits::default(), answer_max, silence_max }
    }
}

/// The word in a final reply.
fn judged(talk: Talk, reply: Reply, is_response: bool) -> Result<Judged, Failed> {
    let fails = |talk: Talk, trouble| Err(Failed { trouble, body: talk.into_body() });
    match (reply.status, reply.subject) {
        (204, _) => match talk.end() {
            Some(body) => Ok(Judged::Unchanged(*body)),
            None => {
                let trouble = Trouble::Malformed("it says 204 of a body that was too long to be kept");
                Err(Failed { trouble, body: None })
            }
        },
        (200, Subject::Request(head)) if !is_response => {
            let declared = content_length(&head.fields);
            Ok(Judged::Request(head, carried(talk, reply.has_body, declared)))
        }
        (200, Subject::Response(head)) if matches!(head.status, 200..=205 | 207..=303 | 305..=599) => {
            let declared = content_length(&head.fields);
            Ok(Judged::Response(head, carried(talk, reply.has_body, declared)))
        }
        (200, Subject::Response(_)) => {
            fails(talk, Trouble::Malformed("a response with a status that no whole answer has"))
        }
        (200, _) => fails(talk, Trouble::Malformed("it has no message of the kind that was asked about")),
        (status, _) => fails(talk, Trouble::Status(status)),
    }
}

fn carried(talk: Talk, has_body: bool, declared: Option<u64>) -> Option<Carried> {
    match has_body {
        true => Some(talk.carry(declared)),
        false => {
            talk.end();
            None
        }
    }
}

/// The length that a head states for its body.
pub fn content_length(fields: &Fields) -> Option<u64> {
    let text = fields.text("Content-Length").filter(|text| text.len() <= 18)?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The path in an absolute URL.
fn path_of(target: &str) -> &str {
    let rest = target.split_once("://").map_or(target, |(_, rest)| rest);
    rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/")
}
