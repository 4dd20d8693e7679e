//! The admin listener and the control socket: the page, the metrics, the API, and what `larder run` joins by.
//!
//! The control socket can be opened by its owner alone. Requests over TCP pass `guard` first.

mod api;
mod browse;
mod docs;
mod doorway;
mod events;
mod guard;
mod history;
mod hot;
mod icap;
mod limits;
mod lists;
mod metrics;
mod neighbours;
mod origins;
mod overload;
mod page;
mod proc_files;
mod pulse;
mod requests;
mod scripts;
mod squid;

pub use history::History;
pub use hot::{Hot, Row};
pub use icap::{IcapServices, OfServer, OfService};
pub use lists::{Judged, ListsShown, OfList};
pub use metrics::{Family, families, markdown as metrics_reference};
pub use neighbours::{NeighboursShown, OfParent, OfSibling};
pub use origins::{OfGroup, OfMember, Origins};
pub use pulse::{Now, Pulse, Second, Window};
pub use scripts::{OfApplication, OfCounts, OfFailure, OfHook, OfLateLoad, OfLoad, OfProcess, Scripts};
pub use squid::page as squid_page;

use crate::caught;
use crate::clock;
use crate::manager;
use crate::purge::{self, PurgeRequest};
use crate::record::{Network, Way};
use crate::run::control::{RELOAD_WAIT, Reloaded};
use crate::sandbox;
use crate::script::may_be_of_script;
use crate::shared::{Command, Shared};
use crate::troubles;
use browse::Housekeeping;
use doorway::{Doorway, Wait};
use larder_wire::parse::{self, HeadLimits, Parsed};
use larder_wire::{Fault, Method, RequestHead, ResponseHead, Target, date, encode};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::ops::Deref;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::runtime::LocalOptions;
use tokio::sync::mpsc::Receiver;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Requests are short, and arrive within `WITHIN`.
const LIMITS: HeadLimits = HeadLimits { head_bytes_max: 16 * 1024, target_bytes_max: 8 * 1024, fields_max: 64 };
const WITHIN: Duration = Duration::from_secs(10);
/// The path of reloads, which wait for applications.
const RELOAD: &str = "/reload";
/// Clients that may listen to events at a time.
const LISTENING_MAX: usize = 16;
/// How long after a failure the next connection is looked for.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// The admin side of a server: the server, and figures that are gathered for its pages.
pub struct Admin {
    shared: Arc<Shared>,
    /// The totals of the last hour.
    history: History,
    /// The last minutes, second by second.
    pulse: Pulse,
    /// CPU times of applications.
    script_cpu: scripts::CpuSums,
    /// Permits of clients that listen to events.
    listening: Arc<Semaphore>,
}

impl Admin {
    /// Of this server.
    pub fn new(shared: Arc<Shared>) -> Admin {
        let listening = Arc::new(Semaphore::new(LISTENING_MAX));
        let (history, pulse, script_cpu) = Default::default();
        Admin { shared, history, pulse, script_cpu, listening }
    }
}

impl Deref for Admin {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

const SCRIPT_REFUSED: &str = "scripts, and the processes that they start, may not ask or command the server; a hook purges by its own decision (docs/hook-objects.md)";

/// The listener that a request came by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Through {
    /// Only the owner of the folder can open it.
    Socket,
    /// A process of a script, or below one, by that socket: it has the rights of the owner, and may not use them here.
    Script,
    /// Any program of this machine, browsers included.
    Tcp,
}

impl Through {
    /// By the socket, from whoever asks.
    fn socket(stream: &io::Result<tokio::net::UnixStream>) -> Through {
        let Some(peer) = stream.as_ref().ok().and_then(|stream| stream.peer_cred().ok()) else {
            return Through::Script;
        };
        // Scripts have the user of the server; a number of 0 is a process of another name space.
        let is_own = peer.uid() == rustix::process::geteuid().as_raw();
        let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
        match pid.is_some_and(|pid| is_own && may_be_of_script(pid)) {
            true => Through::Script,
            false => Through::Socket,
        }
    }
}

/// Serves until told to stop.
pub fn run(
    admin: &Arc<Admin>,
    listener: Option<TcpListener>,
    socket: Option<UnixListener>,
    commands: Receiver<Command>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default())
    {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!(%error, "no runtime for the admin page: raise the open file limit"),
    };
    runtime.block_on(serve(admin, listener, socket, commands));
}

async fn serve(
    admin: &Arc<Admin>,
    listener: Option<TcpListener>,
    socket: Option<UnixListener>,
    mut commands: Receiver<Command>,
) {
    let listener = listener.and_then(|socket| tokio::net::TcpListener::from_std(socket).ok());
    let socket = socket.and_then(|socket| tokio::net::UnixListener::from_std(socket).ok());
    let (by_tcp, by_socket) = (Doorway::new(), Doorway::new());
    let mut noting = tokio::time::interval(history::EVERY);
    let mut beating = tokio::time::interval(pulse::EVERY);
    let mut timing = tokio::time::interval(scripts::EVERY);
    loop {
        tokio::select! {
            _ = noting.tick() => caught::call(&admin.control_restarts, || admin.history.note(admin)),
            _ = beating.tick() => caught::call(&admin.control_restarts, || admin.pulse.beat(admin)),
            _ = timing.tick() => caught::call(&admin.control_restarts, || admin.script_cpu.note(admin.nursery.mounts())),
            command = commands.recv() => match command {
                Some(Command::Open(..) | Command::OpenQuic(..) | Command::Look(_)) => {}
                Some(Command::Drain) | None => return,
            },
            stream = accept_tcp(listener.as_ref()) => answer_soon(admin, &by_tcp, stream, Through::Tcp),
            stream = accept_unix(socket.as_ref()) => {
                let through = Through::socket(&stream);
                answer_soon(admin, &by_socket, stream, through);
            }
        }
    }
}

async fn accept_tcp(listener: Option<&tokio::net::TcpListener>) -> io::Result<tokio::net::TcpStream> {
    match listener {
        Some(listener) => {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            if accepted.is_err() {
                // No descriptor is free; the question waits, and asking again at once would only keep a core busy.
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
            accepted
        }
        None => std::future::pending().await,
    }
}

async fn accept_unix(listener: Option<&tokio::net::UnixListener>) -> io::Result<tokio::net::UnixStream> {
    match listener {
        Some(listener) => {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            if accepted.is_err() {
                // No descriptor is free; the question waits, and asking again at once would only keep a core busy.
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
            accepted
        }
        None => std::future::pending().await,
    }
}

fn answer_soon<S: AsyncRead + AsyncWrite + Unpin + 'static>(
    admin: &Arc<Admin>,
    doorway: &Doorway,
    stream: io::Result<S>,
    through: Through,
) {
    let Ok(stream) = stream else { return };
    let (admin, doorway) = (Arc::clone(admin), doorway.clone());
    // The connection counts from now on: before its task runs, many others may come.
    let wait = doorway.wait();
    tokio::task::spawn_local(async move {
        // A question that meets a broken invariant is not answered, and its connection closes.
        let conversation = caught::caught(converse(&admin, stream, through, &doorway, wait));
        let conversed = conversation.await;
        if conversed.is_none() {
            admin.control_restarts.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(Ok(Some((stream, _permit)))) = conversed {
            // An error means that the client left.
            let _ = events::stream(&admin, stream).await;
        }
    });
}

/// Reads one request, answers it and closes the connection, unless the request is for the stream of events: then the
/// connection is given back.
async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    admin: &Arc<Admin>,
    mut stream: S,
    through: Through,
    doorway: &Doorway,
    wait: Wait,
) -> io::Result<Option<(S, EventsPermit)>> {
    let Ok(Some(asked)) = timeout(WITHIN, wait.until(read_request(&mut stream))).await else { return Ok(None) };
    let (reply, parts) = match asked? {
        ReadRequest::Closed => return Ok(None),
        ReadRequest::Fault(fault) => (Reply::text(fault.status(), fault.to_string()), SentParts::HeadAndBody),
        ReadRequest::Request(_) if through == Through::Script => {
            tracing::warn!("a script asked the server something by its control socket, and was refused");
            (Reply::text(403, SCRIPT_REFUSED.to_owned()), SentParts::HeadAndBody)
        }
        ReadRequest::Request(head) => {
            let parts = if head.method == Method::Head { SentParts::HeadOnly } else { SentParts::HeadAndBody };
            let Ok(answered) = timeout(answer_within(&head), answer(admin, &head, through, doorway)).await else {
                return Ok(None);
            };
            match answered {
                Response::Reply(reply) => (reply, parts),
                Response::Events(permit) if parts == SentParts::HeadAndBody => return Ok(Some((stream, permit))),
                Response::Events(_) => (Reply::of(200, EVENTS, String::new()), parts),
            }
        }
    };
    let bytes = reply.bytes(parts);
    let told = async {
        stream.write_all(&bytes).await?;
        stream.shutdown().await
    };
    match timeout(WITHIN, doorway.wait().until(told)).await {
        Ok(told) => told.transpose().map(|_| None),
        Err(_) => Ok(None),
    }
}

/// How long a request may be answered.
fn answer_within(request: &RequestHead) -> Duration {
    let is_reload = matches!(&request.target, Target::Origin(target) if **target == *RELOAD);
    if is_reload { RELOAD_WAIT + WITHIN } else { WITHIN }
}

/// The first bytes of a client's connection, parsed.
enum ReadRequest {
    Request(Box<RequestHead>),
    Fault(Fault),
    /// The client closed the connection.
    Closed,
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<ReadRequest> {
    let mut read = Vec::with_capacity(1024);
    loop {
        match parse::request(&read, &LIMITS) {
            Ok(Parsed::Complete { head, .. }) => return Ok(ReadRequest::Request(head.into())),
            Ok(Parsed::Partial) => {}
            Err(fault) => match manager::translated(&read) {
                Some(asked) => {
                    read = asked;
                    continue;
                }
                None => return Ok(ReadRequest::Fault(fault)),
            },
        }
        if stream.read_buf(&mut read).await? == 0 {
            return Ok(ReadRequest::Closed);
        }
    }
}

/// The answer to a request: a reply, or the stream of events.
enum Response {
    Reply(Reply),
    /// The stream of events from now on.
    Events(EventsPermit),
}

/// The permit of a client that listens to events.
type EventsPermit = OwnedSemaphorePermit;

/// Whether the body is sent too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SentParts {
    HeadAndBody,
    HeadOnly,
}

/// A reply with its status, type and body.
struct Reply {
    status: u16,
    content_type: &'static str,
    body: Vec<u8>,
    cache_control: &'static str,
    /// Fields that few replies have.
    further: Vec<(&'static str, String)>,
    /// The permit of a large reply, until it is sent.
    _held: Option<OwnedSemaphorePermit>,
}

impl Reply {
    fn of(status: u16, content_type: &'static str, body: String) -> Reply {
        Reply {
            status,
            content_type,
            body: body.into_bytes(),
            cache_control: "no-store",
            further: Vec::new(),
            _held: None,
        }
    }

    fn text(status: u16, body: impl Into<String>) -> Reply {
        Reply::of(status, "text/plain; charset=utf-8", body.into() + "\n")
    }

    /// RFC 9110 section 15.5.6: the methods that there are have to be named.
    fn other_method(routes: impl Iterator<Item = &'static Route>) -> Reply {
        let methods =
            routes.flat_map(|route| if route.method == "GET" { vec!["GET", "HEAD"] } else { vec![route.method] });
        let further = vec![("Allow", methods.collect::<Vec<_>>().join(", "))];
        Reply { further, ..Reply::text(405, "this path has another method: docs/openapi.yaml lists all") }
    }

    fn json(status: u16, value: &impl Serialize) -> Reply {
        match serde_json::to_string(value) {
            Ok(body) => Reply::of(status, "application/json", body),
            Err(error) => Reply::text(500, error.to_string()),
        }
    }

    fn file(file: page::File) -> Reply {
        Reply::of(200, file.content_type, file.text.to_owned())
    }

    fn bytes(&self, parts: SentParts) -> Vec<u8> {
        let mut head = ResponseHead::new(self.status);
        head.fields.push("Content-Type", self.content_type);
        // A 304 has no length but that of the 200 which it stands for (RFC 9110 section 8.6).
        if self.status != 304 {
            head.fields.push("Content-Length", self.body.len().to_string());
        }
        head.fields.push("Date", date::format_date(clock::now()));
        head.fields.push("Cache-Control", self.cache_control);
        policy_fields(&mut head);
        for (name, value) in &self.further {
            head.fields.push(name, value);
        }
        if self.status == 401 {
            head.fields.push("WWW-Authenticate", "Basic realm=\"larder\", charset=\"UTF-8\"");
        }
        head.fields.push("Connection", "close");
        let mut out = Vec::with_capacity(512 + self.body.len());
        encode::response_head(&mut out, &head);
        if parts == SentParts::HeadAndBody {
            out.extend_from_slice(&self.body);
        }
        out
    }
}

/// Fields that tell a browser what it may do with an answer.
fn policy_fields(head: &mut ResponseHead) {
    head.fields.push("X-Content-Type-Options", "nosniff");
    head.fields.push("Content-Security-Policy", POLICY);
    head.fields.push("Referrer-Policy", "no-referrer");
}

async fn answer(admin: &Arc<Admin>, request: &RequestHead, through: Through, doorway: &Doorway) -> Response {
    let (route, path, query) = match admitted(admin, request, through) {
        Ok(found) => found,
        Err(refused) => return Response::Reply(refused),
    };
    // Probes of health do not wait for a permit, however many costly requests there are.
    let permit = if matches!(route.answer, Answering::Docs) { doorway.read() } else { doorway.ask() };
    let asking = match (route.answer.takes_a_while(), permit) {
        (true, None) => return Response::Reply(Reply::text(503, "too many ask already: come again in a moment")),
        (_, asking) => asking,
    };
    Response::Reply(match route.answer {
        Answering::Requests => requests::list(admin, query).await,
        Answering::Request => requests::one(admin, path).await,
        Answering::Explain => requests::ahead(admin, query).await,
        Answering::Hot => Reply::json(200, &requests::hot(admin).await),
        Answering::Events => match Arc::clone(&admin.listening).try_acquire_owned() {
            Ok(permit) => return Response::Events(permit),
            Err(_) => Reply::text(503, "too many listen already"),
        },
        Answering::Now(answer) => answer(admin, path),
        Answering::FromDisk(answer) => {
            let (admin, query) = (Arc::clone(admin), query.to_owned());
            match tokio::task::spawn_blocking(move || answer(&admin, &query)).await {
                Ok(reply) => reply,
                Err(error) => Reply::text(500, error.to_string()),
            }
        }
        Answering::Docs => {
            let wanted = docs::Wanted::of(request, path);
            match tokio::task::spawn_blocking(move || docs::reply(&wanted)).await {
                // Anybody may ask, and take all the time that a client has.
                Ok(reply) => Reply { _held: asking, ..reply },
                Err(error) => Reply::text(500, error.to_string()),
            }
        }
        Answering::Purge => match PurgeRequest::of_query(query) {
            Ok(wanted) => Reply::json(200, &purge::purge(&admin.common, &wanted).await),
            Err(trouble) => Reply::json(422, &api::Refused { error: trouble }),
        },
    })
}

/// The route of a question that may be asked, its path and its query.
fn admitted<'r>(
    admin: &Admin,
    request: &'r RequestHead,
    through: Through,
) -> Result<(&'static Route, &'r str, &'r str), Reply> {
    let Target::Origin(target) = &request.target else {
        return Err(Reply::text(400, "this is the admin address, not the proxy"));
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    guard::admit(admin, request, path, through)?;
    let method = if request.method == Method::Head { &Method::Get } else { &request.method };
    let routes = || ROUTES.iter().filter(|route| route.is_public() || through == Through::Socket);
    let Some(route) = routes().find(|route| route.fits(method, path)) else {
        let mut here = routes().filter(|route| route.path_fits(path)).peekable();
        return Err(match here.peek() {
            Some(_) => Reply::other_method(here),
            None => Reply::text(404, "there is nothing here; / is the page"),
        });
    };
    // Parameters that are not understood are refused: `/reload?dry-run` must not reload.
    if !query.is_empty() && !route.takes_query() {
        let error = format!("{}: this path takes no parameters", query.split('&').next().unwrap_or_default());
        return Err(Reply::json(422, &api::Refused { error }));
    }
    if route.changes && through == Through::Tcp && !guard::is_meant(request) {
        return Err(Reply::text(
            403,
            "what changes something needs the field `X-Larder: 1`, which no form of a web page can send",
        ));
    }
    Ok((route, path, query))
}

/// A question that is answered.
pub struct Route {
    /// Its method.
    pub method: &'static str,
    /// Its path; `*` at the end stands for any one segment.
    pub path: &'static str,
    /// Whether it changes something.
    changes: bool,
    /// Whether it is only for the owner of the store folder.
    socket_only: bool,
    answer: Answering,
}

/// How a question is answered.
enum Answering {
    /// On the spot.
    Now(fn(&Admin, &str) -> Reply),
    /// By a function that may wait for the disk, such as one that reads stored responses; it is given the query.
    FromDisk(fn(&Admin, &str) -> Reply),
    /// By a part of the documentation, which is rendered and compressed the first time.
    Docs,
    /// When the purge is in force, and on disk.
    Purge,
    /// When the workers have said which requests they had.
    Requests,
    /// When the workers have said which request has this name.
    Request,
    /// When the workers have said which requests they had: sums of them.
    Hot,
    /// When the disk was asked.
    Explain,
    /// As long as somebody listens.
    Events,
}

impl Answering {
    fn takes_a_while(&self) -> bool {
        !matches!(self, Answering::Now(_) | Answering::Events)
    }
}

impl Route {
    const fn reads(path: &'static str, answer: fn(&Admin, &str) -> Reply) -> Route {
        Route { method: "GET", path, changes: false, socket_only: false, answer: Answering::Now(answer) }
    }

    const fn from_disk(path: &'static str, answer: fn(&Admin, &str) -> Reply) -> Route {
        Route { method: "GET", path, changes: false, socket_only: false, answer: Answering::FromDisk(answer) }
    }

    const fn waits(path: &'static str, answer: Answering) -> Route {
        Route { method: "GET", path, changes: false, socket_only: false, answer }
    }

    const fn of_socket(method: &'static str, path: &'static str, answer: fn(&Admin, &str) -> Reply) -> Route {
        Route { method, path, changes: true, socket_only: true, answer: Answering::Now(answer) }
    }

    const fn of_socket_from_disk(method: &'static str, path: &'static str, answer: fn(&Admin, &str) -> Reply) -> Route {
        Route { method, path, changes: true, socket_only: true, answer: Answering::FromDisk(answer) }
    }

    const fn changes(path: &'static str, answer: fn(&Admin, &str) -> Reply) -> Route {
        Route { method: "POST", path, changes: true, socket_only: false, answer: Answering::Now(answer) }
    }

    /// Whether it is asked over TCP too.
    pub fn is_public(&self) -> bool {
        !self.socket_only
    }

    /// Whether its query means something, or nothing at all: links to the page and probes come with all sorts.
    fn takes_query(&self) -> bool {
        match self.answer {
            Answering::FromDisk(_) | Answering::Purge | Answering::Requests | Answering::Explain => true,
            Answering::Request | Answering::Hot | Answering::Events => false,
            Answering::Docs => true,
            Answering::Now(_) => page::is_at(self.path) || guard::OPEN.contains(&self.path),
        }
    }

    fn path_fits(&self, path: &str) -> bool {
        match self.path.strip_suffix('*') {
            Some(prefix) => path.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && !rest.contains('/')),
            None => self.path == path,
        }
    }

    fn fits(&self, method: &Method, path: &str) -> bool {
        self.method == method.as_str() && self.path_fits(path)
    }
}

/// All routes; `docs/openapi.yaml` describes those that are served over TCP.
pub static ROUTES: &[Route] = &[
    Route::reads("/", |_, _| Reply::file(page::INDEX)),
    Route::reads("/page/*", |_, path| match page::file(path) {
        Some(file) => Reply::file(file),
        None => Reply::text(404, "the page has no such file"),
    }),
    Route::waits("/docs", Answering::Docs),
    Route::waits("/docs/", Answering::Docs),
    Route::waits("/docs/*", Answering::Docs),
    Route::reads("/healthz", |_, _| Reply::text(200, "ok")),
    Route::reads("/readyz", |admin, _| match admin.is_ready() {
        true => Reply::text(200, "ready"),
        false => {
            Reply::text(503, "not ready: workers start, purges of the cluster are missing, or the server goes down")
        }
    }),
    Route::reads("/metrics", |admin, _| Reply::of(200, METRICS, metrics::text(admin))),
    Route::reads("/now", |admin, _| Reply::json(200, &api::now(admin))),
    Route::from_disk("/store/objects", browse::objects),
    Route::from_disk("/store/object", browse::object),
    Route::reads("/stats", |admin, _| Reply::json(200, &api::stats(admin))),
    Route::reads("/store", |admin, _| match admin.common.cache.disk() {
        Some(disk) => Reply::json(200, &crate::store::summary(&disk.stats()).into_iter().collect::<BTreeMap<_, _>>()),
        None => Reply::text(404, "there is no disk store: `disk` is 0"),
    }),
    Route::reads("/config", |admin, _| Reply::json(200, &api::settings(admin))),
    Route::reads("/icap", |admin, _| icap::list(admin)),
    Route::from_disk("/scripts", scripts::list),
    Route::reads("/lists", |admin, _| lists::all(admin)),
    Route::from_disk("/lists/test", lists::test),
    Route {
        method: "POST",
        path: "/lists/refresh",
        changes: true,
        socket_only: false,
        answer: Answering::FromDisk(lists::refresh),
    },
    Route::from_disk("/cluster", |admin, query| match (query, &admin.common.cluster) {
        ("", Some(cluster)) => match cluster.status() {
            Ok(status) => Reply::json(200, &status),
            Err(error) => Reply::json(503, &api::Refused { error }),
        },
        ("", None) => {
            Reply::json(404, &api::Refused { error: "this server is in no cluster: `[cluster]` names none".to_owned() })
        }
        _ => Reply::json(422, &api::Refused { error: "this path takes no parameters".to_owned() }),
    }),
    Route::reads("/neighbours", |admin, _| neighbours::list(admin)),
    Route::from_disk("/origins", origins::list),
    Route {
        method: "POST",
        path: "/origins/member",
        changes: true,
        socket_only: false,
        answer: Answering::FromDisk(origins::change),
    },
    Route::waits("/requests", Answering::Requests),
    Route::waits("/requests/*", Answering::Request),
    Route::waits("/explain", Answering::Explain),
    Route::waits("/events", Answering::Events),
    Route::waits("/hot", Answering::Hot),
    Route::reads("/squid-internal-mgr/*", |admin, path| match squid::page(admin, path) {
        Some(text) => Reply::text(200, text),
        None => Reply::text(404, "there is no such page: mgr:menu lists all"),
    }),
    // Files are read for it, and the log is opened.
    Route {
        method: "POST",
        path: RELOAD,
        changes: true,
        socket_only: false,
        answer: Answering::FromDisk(|admin, _| {
            let before = scripts::generations(admin);
            match admin.reload() {
                Ok(reloaded) => Reply::json(200, &Reloaded { scripts: scripts::outcomes(admin, &before), ..reloaded }),
                Err(trouble) => Reply::json(422, &api::Refused { error: trouble }),
            }
        }),
    },
    Route::changes("/log/reopen", |admin, _| {
        admin.common.log.reopen();
        Reply::json(200, &api::Done { done: true })
    }),
    Route { method: "POST", path: "/purge", changes: true, socket_only: false, answer: Answering::Purge },
    Route::of_socket("GET", "/troubles", |_, _| Reply::json(200, &troubles::all())),
    Route::of_socket("GET", "/sandbox", |_, _| Reply::json(200, &sandbox::report())),
    Route::of_socket_from_disk("GET", "/store/list", browse::sorted),
    Route::of_socket_from_disk("POST", "/store/gc/choose", |admin, query| {
        browse::collect(admin, query, Housekeeping::Choose)
    }),
    Route::of_socket_from_disk("POST", "/store/gc/collect", |admin, query| {
        browse::collect(admin, query, Housekeeping::Collect)
    }),
    Route::of_socket("POST", "/runs", |admin, _| open_run(admin, Network::Used, Way::Proxy)),
    Route::of_socket("POST", "/runs/offline", |admin, _| open_run(admin, Network::Untouched, Way::Proxy)),
    Route::of_socket("POST", "/runs/mirror", |admin, _| open_run(admin, Network::Used, Way::Mirror)),
    Route::of_socket("POST", "/runs/mirror/offline", |admin, _| open_run(admin, Network::Untouched, Way::Mirror)),
    Route::of_socket("DELETE", "/runs/*", |admin, path| {
        match path.strip_prefix("/runs/").and_then(|id| admin.close_run(id)) {
            Some(stats) => Reply::json(200, &stats),
            None => Reply::text(404, "there is no such run"),
        }
    }),
];

fn open_run(admin: &Admin, network: Network, way: Way) -> Reply {
    if let Some(why) = sandbox::refuses_runs() {
        return Reply::text(500, why);
    }
    match admin.open_run(network, way) {
        Ok(started) => Reply::json(201, &started),
        Err(error) => Reply::text(500, error.to_string()),
    }
}

const EVENTS: &str = "text/event-stream";
/// The page is made of its own files and nothing else; nobody may show it inside theirs.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
