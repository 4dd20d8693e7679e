//! The status page, the counters, and the control socket through which `larder run` joins.
//!
//! What changes something is served on the control socket alone, which only its owner can open; the TCP
//! listener answers questions, and only those that name this machine, so that no web page can ask them in
//! a browser's name.

use crate::clock;
use crate::record::Counters;
use crate::server::{Command, Shared};
use larder_wire::parse::{self, HeadLimits, Parsed};
use larder_wire::{Host, Method, RequestHead, ResponseHead, Target, date, encode};
use serde::Serialize;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::LocalSet;

/// A question is short and comes at once.
const LIMITS: HeadLimits = HeadLimits { head_bytes_max: 16 * 1024, target_bytes_max: 8 * 1024, fields_max: 64 };
const WITHIN: Duration = Duration::from_secs(10);
/// Questions at a time.
const ASKING_MAX: usize = 64;

/// How long after a failure the next connection is looked for.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Through which door a question came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Through {
    /// Only the owner of the folder can open it.
    Socket,
    /// Any program of this machine, browsers included.
    Tcp,
}

/// Serves until told to stop.
pub fn run(
    shared: &Arc<Shared>,
    admin: Option<TcpListener>,
    socket: Option<UnixListener>,
    commands: UnboundedReceiver<Command>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!(%error, "no runtime for the admin page: raise the open file limit"),
    };
    LocalSet::new().block_on(&runtime, serve(shared, admin, socket, commands));
}

async fn serve(
    shared: &Arc<Shared>,
    admin: Option<TcpListener>,
    socket: Option<UnixListener>,
    mut commands: UnboundedReceiver<Command>,
) {
    let admin = admin.and_then(|socket| tokio::net::TcpListener::from_std(socket).ok());
    let socket = socket.and_then(|socket| tokio::net::UnixListener::from_std(socket).ok());
    let asking = Arc::new(tokio::sync::Semaphore::new(ASKING_MAX));
    loop {
        tokio::select! {
            command = commands.recv() => match command {
                Some(Command::Open(..)) => {}
                Some(Command::Drain) | None => return,
            },
            stream = accept_tcp(admin.as_ref()) => answer_soon(shared, &asking, stream, Through::Tcp),
            stream = accept_unix(socket.as_ref()) => answer_soon(shared, &asking, stream, Through::Socket),
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
    shared: &Arc<Shared>,
    asking: &Arc<tokio::sync::Semaphore>,
    stream: io::Result<S>,
    through: Through,
) {
    let (Ok(stream), Ok(permit)) = (stream, Arc::clone(asking).try_acquire_owned()) else { return };
    let shared = Arc::clone(shared);
    tokio::task::spawn_local(async move {
        let _permit = permit;
        let _ = tokio::time::timeout(WITHIN, converse(&shared, stream, through)).await;
    });
}

/// One question, one answer, and the connection closes.
async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    shared: &Shared,
    mut stream: S,
    through: Through,
) -> io::Result<()> {
    let mut read = Vec::with_capacity(1024);
    let answer = loop {
        match parse::request(&read, &LIMITS) {
            Ok(Parsed::Complete { head, .. }) => break answer(shared, &head, through),
            Ok(Parsed::Partial) => {}
            Err(fault) => break Reply::text(fault.status(), fault.to_string()),
        }
        if stream.read_buf(&mut read).await? == 0 {
            return Ok(());
        }
    };
    stream.write_all(&answer.bytes()).await?;
    stream.shutdown().await
}

struct Reply {
    status: u16,
    content_type: &'static str,
    body: String,
}

impl Reply {
    fn text(status: u16, body: impl Into<String>) -> Reply {
        Reply { status, content_type: "text/plain; charset=utf-8", body: body.into() + "\n" }
    }

    fn json(status: u16, value: &impl Serialize) -> Reply {
        match serde_json::to_string(value) {
            Ok(body) => Reply { status, content_type: "application/json", body },
            Err(error) => Reply::text(500, error.to_string()),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut head = ResponseHead::new(self.status);
        head.fields.push("Content-Type", self.content_type);
        head.fields.push("Content-Length", self.body.len().to_string());
        head.fields.push("Date", date::format_date(clock::now()));
        head.fields.push("Cache-Control", "no-store");
        head.fields.push("X-Content-Type-Options", "nosniff");
        head.fields.push("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'");
        head.fields.push("Connection", "close");
        let mut out = Vec::with_capacity(512 + self.body.len());
        encode::response_head(&mut out, &head);
        out.extend_from_slice(self.body.as_bytes());
        out
    }
}

fn answer(shared: &Shared, request: &RequestHead, through: Through) -> Reply {
    let Target::Origin(target) = &request.target else {
        return Reply::text(400, "this is the admin address, not the proxy");
    };
    let path = target.split('?').next().unwrap_or_default();
    if through == Through::Tcp && !names_this_machine(request) {
        return Reply::text(403, "ask for this page by an address of this machine");
    }
    match (&request.method, path, through) {
        (Method::Get | Method::Head, "/", _) => {
            Reply { status: 200, content_type: "text/html; charset=utf-8", body: page(shared) }
        }
        (Method::Get, "/healthz", _) => Reply::text(200, "ok"),
        (Method::Get, "/stats", _) => Reply::json(200, &stats(shared)),
        (Method::Get, "/metrics", _) => {
            Reply { status: 200, content_type: "text/plain; version=0.0.4; charset=utf-8", body: metrics(shared) }
        }
        (Method::Post, "/runs", Through::Socket) => match shared.open_run() {
            Ok(started) => Reply::json(201, &started),
            Err(error) => Reply::text(500, error.to_string()),
        },
        (Method::Delete, path, Through::Socket) => {
            match path.strip_prefix("/runs/").and_then(|id| shared.close_run(id)) {
                Some(stats) => Reply::json(200, &stats),
                None => Reply::text(404, "there is no such run"),
            }
        }
        _ => Reply::text(404, "there is nothing here; / is the page"),
    }
}

/// A web page elsewhere can make a browser send requests here, under its own name (DNS rebinding); such a request
/// names a host that is no address of ours.
fn names_this_machine(request: &RequestHead) -> bool {
    let host = request.fields.text("Host").unwrap_or_default();
    let name = match host.rfind(':') {
        Some(colon) if !host.ends_with(']') => &host[..colon],
        _ => host,
    };
    Host::parse(name).is_some_and(|host| host.ip().is_some() || host.as_str() == "localhost")
}

#[derive(Serialize)]
struct Stats {
    counters: std::collections::BTreeMap<&'static str, u64>,
    connections_open: usize,
    objects: u64,
    memory_bytes: u64,
    memory_bytes_max: u64,
    evictions: u64,
    log_lines_dropped: u64,
}

fn stats(shared: &Shared) -> Stats {
    let cache = shared.cache.stats();
    Stats {
        counters: shared.counters.each().into_iter().map(|(name, _, value)| (name, value)).collect(),
        connections_open: shared.connections.load(Ordering::Relaxed),
        objects: cache.objects,
        memory_bytes: cache.memory_bytes,
        memory_bytes_max: shared.config.memory_bytes,
        evictions: cache.evictions,
        log_lines_dropped: shared.log_lines_dropped(),
    }
}

fn metrics(shared: &Shared) -> String {
    let mut out = String::new();
    for (name, about, value) in shared.counters.each() {
        out.push_str(&format!(
            "# HELP larder_{name}_total {about}\n# TYPE larder_{name}_total counter\nlarder_{name}_total {value}\n"
        ));
    }
    let cache = shared.cache.stats();
    let gauges = [
        ("connections_open", "Client connections that are open.", shared.connections.load(Ordering::Relaxed) as u64),
        ("objects", "Keys with something stored or under way.", cache.objects),
        ("memory_bytes", "Bytes that the memory store holds.", cache.memory_bytes),
    ];
    for (name, about, value) in gauges {
        out.push_str(&format!("# HELP larder_{name} {about}\n# TYPE larder_{name} gauge\nlarder_{name} {value}\n"));
    }
    out
}

fn page(shared: &Shared) -> String {
    let Counters { requests, hits, bytes_from_store, bytes_fetched, .. } = &shared.counters;
    let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let share = |part: u64, rest: u64| if part + rest == 0 { 0.0 } else { 100.0 * part as f64 / (part + rest) as f64 };
    let cache = shared.cache.stats();
    let (store, fetched) = (of(bytes_from_store), of(bytes_fetched));
    let rows = [
        ("Requests", of(requests).to_string()),
        (
            "Answered from the store",
            format!("{} ({:.1} %)", of(hits), share(of(hits), of(requests).saturating_sub(of(hits)))),
        ),
        ("Bytes from the store", format!("{} ({:.1} %)", size(store), share(store, fetched))),
        ("Bytes fetched", size(fetched)),
        ("Objects", cache.objects.to_string()),
        ("Memory", format!("{} of {}", size(cache.memory_bytes), size(shared.config.memory_bytes))),
        ("Evicted", cache.evictions.to_string()),
        ("Open connections", shared.connections.load(Ordering::Relaxed).to_string()),
    ];
    let rows: String =
        rows.iter().map(|(name, value)| format!("<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>\n")).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta http-equiv=\"refresh\" content=\"5\"><title>Larder</title>\n<style>{STYLE}</style>\n<main><h1>Larder</h1>\n\
         <table>{rows}</table>\n<p>For programs: /stats (JSON), /metrics (Prometheus), /healthz.</p></main></html>\n"
    )
}

const STYLE: &str = ":root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;margin:0;display:grid;\
place-items:start center}main{padding:1.5rem;min-width:min(30rem,90vw)}table{border-collapse:collapse;width:100%}\
th{text-align:left;font-weight:400;opacity:.8}td{text-align:right;font-variant-numeric:tabular-nums}\
th,td{padding:.45rem 0;border-bottom:1px solid color-mix(in srgb,currentColor 15%,transparent)}p{opacity:.7;font-size:.9rem}";

/// Bytes as people read them.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in UNITS {
        if value < 1000.0 {
            break;
        }
        value /= 1000.0;
        unit = larger;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}
