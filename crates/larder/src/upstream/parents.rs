//! The way through parents: proxies that are asked in the origin's place, one after the other until one leads there. A URL of http is sent in
//! absolute form (RFC 9112 section 3.2.2); for https, and for tunnels, the parent is asked for a tunnel by CONNECT (RFC 9110 section 9.3.6), and TLS
//! to the origin is spoken inside. A parent that speaks SOCKS (RFC 1928) leads to the origin for every scheme, and reads nothing. A parent that is
//! silent may wait for an origin that is: whether it is the parent that hangs, a question of Larder's own to it says.

use super::connect;
use super::fault::{Retry, TlsTrouble, UpstreamFault, UpstreamFaultKind};
use super::{Origin, ParentHealths, Shared};
use crate::config::next_hop::{HopsOrder, NextHop};
use crate::config::parent::{Parent, ParentProtocol};
use crate::live::Held;
use crate::reach::{Asker, OwnAddresses, Reach};
use crate::record::{ParentOrder, TakenWay, WayNote};
use crate::wire::Wire;
use larder_wire::parse::{self, Parsed};
use larder_wire::socks::{self, Step};
use larder_wire::{Host, ResponseHead, Scheme, Url};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// The parents for one request.
pub(super) struct Parents {
    /// Each with its place in the configuration, in the order in which they are tried.
    parents: Vec<(u8, Arc<Parent>)>,
    pub order: HopsOrder,
    /// The origin itself is asked where none of them leads there.
    is_direct_last: bool,
    pub is_offline: bool,
    own: Rc<Held<OwnAddresses>>,
}

/// The parents through which a URL is asked for; `None` where its origin is asked itself. A tunnel is asked for by a URL of https.
pub(super) fn of(url: &Url, reach: &Reach) -> Option<Parents> {
    let hops = reach.next_hops(url)?;
    let Reach::Asked { asker, config, own, .. } = reach else { return None };
    let parent = |place: u8| Some((place, Arc::clone(config.parents.get(usize::from(place))?)));
    Some(Parents {
        parents: hops.parents().filter_map(parent).collect(),
        order: hops.order,
        is_direct_last: hops.hops.last() == Some(&NextHop::Direct),
        is_offline: *asker == Asker::OfflineRun,
        own: Rc::clone(own),
    })
}

impl Parents {
    /// The parents over whose idle connections a request may go. A URL that has one of its own goes over that one's, so that each object
    /// is stored at one of them.
    pub(super) fn over_idle(&self, healths: &ParentHealths, now: Instant) -> Rc<[Arc<Parent>]> {
        let all = || self.parents.iter().map(|(_, parent)| parent);
        let first = || all().find(|parent| !healths.rests(parent, now)).or_else(|| all().next());
        match self.order {
            HopsOrder::Listed => {
                let well: Rc<[_]> = all().filter(|parent| !healths.rests(parent, now)).map(Arc::clone).collect();
                if well.is_empty() { all().map(Arc::clone).collect() } else { well }
            }
            _ => first().map(Arc::clone).into_iter().collect(),
        }
    }
}

/// A connection through a parent.
pub(super) struct Through {
    pub wire: Wire,
    /// The place of the parent in the configuration, from 1.
    pub number: u8,
    pub parent: ThroughParent,
}

/// The parent of a connection.
#[derive(Clone)]
pub(super) struct ThroughParent {
    pub parent: Arc<Parent>,
    /// It reads the requests that are sent; else they go through it in a tunnel.
    pub reads_requests: bool,
}

/// The far end that parents are to lead to.
pub(super) enum FarEnd<'a> {
    /// An origin, TLS included; called when TLS begins.
    Origin(&'a Origin, &'a dyn Fn()),
    /// A host and port, as a plain stream.
    Tunnel(&'a Host, u16),
}

impl FarEnd<'_> {
    fn host(&self) -> &Host {
        match self {
            FarEnd::Origin(origin, _) => &origin.host,
            FarEnd::Tunnel(host, _) => host,
        }
    }
}

/// No parent led to the far end.
pub(super) struct NoParent {
    pub fault: UpstreamFault,
    /// The origin may be asked itself within this time.
    pub direct_within: Option<Duration>,
}

/// One parent led nowhere.
enum Trouble {
    /// Another one may.
    Next(UpstreamFault),
    /// It would be the same with another one, or a person has to change the configuration.
    Final(UpstreamFault),
}

/// Connects to the far end through the first parent that leads there. All of them together, and the origin itself behind them, have
/// `connect_timeout`: each one an equal part of what is left.
pub(super) async fn open(
    shared: &Rc<Shared>,
    to: FarEnd<'_>,
    parents: &Parents,
    note: &mut WayNote,
) -> Result<Through, NoParent> {
    let healths = &shared.settings.memory.parents;
    let deadline = Instant::now() + shared.settings.connect_timeout;
    let left = || deadline.saturating_duration_since(Instant::now());
    if let Err(fault) = clear_name(to.host()) {
        return Err(NoParent { fault, direct_within: parents.is_direct_last.then(left) });
    }
    let (mut left_out, mut fault) = (Vec::new(), None);
    for (at, each) in parents.parents.iter().enumerate() {
        let now = Instant::now();
        if !healths.may_try(&each.1, now) {
            if healths.is_hanging(&each.1) {
                suspect(shared, &each.1, &parents.own);
            }
            note.left_out(&each.1);
            left_out.push(each);
            continue;
        }
        let behind = parents.parents.iter().skip(at + 1).filter(|(_, parent)| !healths.rests(parent, now)).count();
        let share = share(left(), behind + usize::from(parents.is_direct_last));
        match attempt(shared, &to, (parents, each), share, note).await {
            Ok(through) => return Ok(taken(through, ParentOrder::By(parents.order), note)),
            Err(Trouble::Final(fault)) => return Err(NoParent { fault, direct_within: None }),
            Err(Trouble::Next(trouble)) => fault = Some(trouble),
        }
    }
    if parents.is_direct_last {
        let fault = fault.unwrap_or_else(no_parent);
        return Err(NoParent { fault, direct_within: Some(left()) });
    }
    // That the others are dead is an opinion of ours, and no reason to refuse a request.
    for (at, each) in left_out.iter().enumerate() {
        let share = share(left(), left_out.len() - at - 1);
        if share.is_zero() {
            break;
        }
        match attempt(shared, &to, (parents, each), share, note).await {
            Ok(through) => return Ok(taken(through, ParentOrder::AllDead, note)),
            Err(Trouble::Final(fault)) => return Err(NoParent { fault, direct_within: None }),
            // The trouble of one that was thought to be well says more.
            Err(Trouble::Next(trouble)) => fault = fault.or(Some(trouble)),
        }
    }
    Err(NoParent { fault: fault.unwrap_or_else(no_parent), direct_within: None })
}

/// A name that is no address here may be one to a parent, which looks it up: `127.1` and `127.0.0.1.` to the resolver of the C library,
/// and names with empty labels to others. Rules have judged it as it is written, so nobody is asked for it.
fn clear_name(host: &Host) -> Result<(), UpstreamFault> {
    let name = host.as_str();
    let last = name.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
    if host.ip().is_some() || !(is_number || name.contains("..")) {
        return Ok(());
    }
    let detail = format!("no parent is asked for {name}, which some read as an address or as another name");
    Err(UpstreamFault::new(UpstreamFaultKind::OutOfReach, detail))
}

fn no_parent() -> UpstreamFault {
    UpstreamFault::new(UpstreamFaultKind::Parent, "rules leave no parent for this request")
}

/// The part of the time that one has which so many others stand behind.
fn share(left: Duration, behind: usize) -> Duration {
    left / u32::try_from(behind + 1).unwrap_or(u32::MAX)
}

fn taken(through: Through, order: ParentOrder, note: &mut WayNote) -> Through {
    note.taken = Some(TakenWay::Parent(Arc::clone(&through.parent.parent), order));
    through
}

/// One parent is tried for this time.
async fn attempt(
    shared: &Rc<Shared>,
    to: &FarEnd<'_>,
    (parents, (place, parent)): (&Parents, &(u8, Arc<Parent>)),
    time: Duration,
    note: &mut WayNote,
) -> Result<Through, Trouble> {
    let healths = &shared.settings.memory.parents;
    let (is_there, is_heard) = (Cell::new(false), Cell::new(false));
    let opening = async {
        let wire = dial(shared, parent, &parents.own, time).await?;
        healths.accepted(parent);
        is_there.set(true);
        let (wire, reads_requests) = lead(shared, (wire, parent), to, &is_heard).await?;
        let parent = ThroughParent { parent: Arc::clone(parent), reads_requests };
        Ok(Through { wire, number: place.saturating_add(1), parent })
    };
    let result = timeout(time, opening).await;
    match is_heard.get() {
        true => healths.answered(parent),
        false if is_there.get() && result.is_err() => suspect(shared, parent, &parents.own),
        false => {}
    }
    let result = result.unwrap_or_else(|_| Err(Trouble::Next(too_slow(parent, time))));
    match &result {
        Ok(_) => healths.opened(parent),
        Err(Trouble::Next(fault) | Trouble::Final(fault)) => {
            match is_there.get() {
                true => healths.refused(parent),
                false => healths.was_away(parent, Instant::now()),
            }
            tracing::debug!(parent = parent.name, %fault, "a parent did not lead to the origin");
            note.failed(parent, &fault.detail);
        }
    }
    match result {
        Err(Trouble::Next(fault)) if !is_there.get() => Err(Trouble::Next(away(parent, fault))),
        result => result,
    }
}

/// The fault of a parent that can't be connected to, as clients see it: its address is none of theirs.
fn away(parent: &Parent, fault: UpstreamFault) -> UpstreamFault {
    let words = match &fault.kind {
        UpstreamFaultKind::Parent => return fault,
        UpstreamFaultKind::Refused => "refuses connections",
        UpstreamFaultKind::Unreachable => "can't be reached",
        UpstreamFaultKind::Dns(_) => "has no address that its name leads to",
        UpstreamFaultKind::ConnectTimeout => "does not answer",
        UpstreamFaultKind::Tls(TlsTrouble::CertificateInvalid { .. }) => "can't prove who it is",
        UpstreamFaultKind::Tls(TlsTrouble::Handshake) => "does not agree on TLS",
        _ => "can't be connected to",
    };
    let word = match &fault.kind {
        UpstreamFaultKind::Tls(TlsTrouble::CertificateInvalid { why }) => format!(": {}", why.as_str()),
        _ => String::new(),
    };
    let detail = format!("the parent {} {words}{word}", parent.name);
    UpstreamFault { kind: UpstreamFaultKind::ParentAway(Box::new(fault.kind)), detail, ..fault }
}

/// A connection to a parent. The operator has named it, so it may be anywhere, but for this server itself.
async fn dial(shared: &Shared, parent: &Parent, own: &Rc<Held<OwnAddresses>>, time: Duration) -> Result<Wire, Trouble> {
    let reach = Reach::NotHere(Rc::clone(own));
    let to = (&parent.url.host, parent.url.port);
    let opened = connect::open_plain(&shared.dns, &shared.settings, to, &reach, time).await.map_err(|trouble| {
        Trouble::Next(match trouble.kind {
            UpstreamFaultKind::OutOfReach => {
                let detail = format!("the parent {} is this Larder itself", parent.name);
                UpstreamFault::new(UpstreamFaultKind::Parent, detail)
            }
            _ => UpstreamFault { detail: format!("parent {}: {}", parent.name, trouble.detail), ..trouble },
        })
    });
    match parent.protocol {
        ParentProtocol::Http | ParentProtocol::Socks5 => opened,
        // The parent's own trouble with TLS, which `away` tells from the origin's.
        ParentProtocol::Https => connect::handshake(&shared.tls, opened?, &parent.url.host).await.map_err(|trouble| {
            let detail = format!("parent {}: {}", parent.name, trouble.detail);
            Trouble::Next(UpstreamFault { detail, ..trouble }.after_contact())
        }),
    }
}

/// Asks a parent that is silent for something of its own, beside the requests, unless somebody does or has done so a moment ago. One that does
/// not answer that either is left out.
pub(super) fn suspect(shared: &Rc<Shared>, parent: &Arc<Parent>, own: &Rc<Held<OwnAddresses>>) {
    let began = Instant::now();
    if !shared.settings.memory.parents.begins_probe(parent, began) {
        return;
    }
    let (shared, parent, own) = (Rc::clone(shared), Arc::clone(parent), Rc::clone(own));
    tokio::task::spawn_local(async move {
        let healths = &shared.settings.memory.parents;
        match is_heard(&shared, &parent, &own).await {
            true => healths.answered(&parent),
            false => healths.hangs(&parent, (began, Instant::now())),
        }
    });
}

/// Whether a parent answers anything: to a question that no origin is asked for (RFC 9110 section 7.6.2). An end without a byte is a sign of
/// life, too.
async fn is_heard(shared: &Shared, parent: &Parent, own: &Rc<Held<OwnAddresses>>) -> bool {
    let time = shared.settings.connect_timeout.min(PROBE_WITHIN);
    let asked = async {
        let mut wire = dial(shared, parent, own, time).await.ok()?;
        wire.write_all(&probe(parent)).await.ok()?;
        wire.flush().await.ok()?;
        wire.read(&mut [0]).await.ok()
    };
    matches!(timeout(time, asked).await, Ok(Some(_)))
}

/// A parent that is well answers a question about itself within this time.
const PROBE_WITHIN: Duration = Duration::from_secs(5);

fn probe(parent: &Parent) -> Vec<u8> {
    if parent.protocol == ParentProtocol::Socks5 {
        // The methods of a client: no login (RFC 1928 section 3).
        return vec![5, 1, 0];
    }
    let Url { host, port, .. } = &parent.url;
    let login = login(parent).map(|login| format!("Proxy-Authorization: {login}\r\n")).unwrap_or_default();
    format!("OPTIONS * HTTP/1.1\r\nHost: {host}:{port}\r\nMax-Forwards: 0\r\n{login}Connection: close\r\n\r\n")
        .into_bytes()
}

/// Has a parent lead to the far end; gives whether it reads the requests.
async fn lead(
    shared: &Shared,
    (wire, parent): (Wire, &Parent),
    to: &FarEnd<'_>,
    is_heard: &Cell<bool>,
) -> Result<(Wire, bool), Trouble> {
    let origin = match to {
        FarEnd::Tunnel(host, port) => {
            let wire = connect_through(shared, (wire, parent), (host, *port), is_heard).await?;
            return Ok((wire, false));
        }
        FarEnd::Origin(origin, _) => origin,
    };
    match (origin.scheme, parent.protocol) {
        (Scheme::Http | Scheme::Ftp, ParentProtocol::Http | ParentProtocol::Https) => return Ok((wire, true)),
        (Scheme::Ftp, ParentProtocol::Socks5) => {
            // Each file has a connection of its own, which servers tell by address.
            return Err(Trouble::Next(refused(parent, "speaks SOCKS, which carries no FTP")));
        }
        _ => {}
    }
    let wire = connect_through(shared, (wire, parent), (&origin.host, origin.port), is_heard).await?;
    if origin.scheme != Scheme::Https {
        return Ok((wire, false));
    }
    if let FarEnd::Origin(_, accepted) = to {
        accepted();
    }
    let name = origin.tls_name.as_ref().unwrap_or(&origin.host);
    Ok((connect::handshake(&shared.tls, wire, name).await.map_err(Trouble::Final)?, false))
}

/// Has a parent connect to a host and port; from then on every byte goes through.
async fn connect_through(
    shared: &Shared,
    (wire, parent): (Wire, &Parent),
    to: (&Host, u16),
    is_heard: &Cell<bool>,
) -> Result<Wire, Trouble> {
    match parent.protocol {
        ParentProtocol::Http | ParentProtocol::Https => tunnel(shared, (wire, parent), to, is_heard).await,
        ParentProtocol::Socks5 => {
            let stream = wire.into_tcp().map_err(|error| broke_off(parent, &error))?;
            by_socks(stream, parent, to, is_heard).await.map(Wire::Tcp)
        }
    }
}

fn broke_off(parent: &Parent, error: &std::io::Error) -> Trouble {
    Trouble::Next(refused(parent, &format!("broke off: {error}")))
}

/// Has a parent connect to an origin by SOCKS. Nothing behind its last answer is read.
async fn by_socks(
    mut stream: TcpStream,
    parent: &Parent,
    to: (&Host, u16),
    is_heard: &Cell<bool>,
) -> Result<TcpStream, Trouble> {
    let login = parent.password.as_ref().map(|password| (parent.user.as_str(), password.reveal()));
    let Some(mut client) = socks::Client::new(to, login) else {
        return Err(Trouble::Next(refused(parent, "can't be asked for so long a name")));
    };
    let broken = |error: std::io::Error| broke_off(parent, &error);
    stream.write_all(&client.greeting()).await.map_err(broken)?;
    loop {
        let mut answer = vec![0; client.wanted()];
        stream.read_exact(&mut answer).await.map_err(broken)?;
        is_heard.set(true);
        match client.take(&answer) {
            Ok(Step::Send(bytes)) => stream.write_all(&bytes).await.map_err(broken)?,
            Ok(Step::Read) => {}
            Ok(Step::Connected) => return Ok(stream),
            Err(fault) if fault.is_about_login() => {
                let what = format!("{fault}: `user` and `password` of its [[parent]]");
                return Err(Trouble::Final(refused(parent, &what)));
            }
            Err(fault) => return Err(Trouble::Next(refused(parent, &fault.to_string()))),
        }
    }
}

/// Has the parent connect to an origin by CONNECT.
async fn tunnel(
    shared: &Shared,
    (mut wire, parent): (Wire, &Parent),
    (host, port): (&Host, u16),
    is_heard: &Cell<bool>,
) -> Result<Wire, Trouble> {
    let broken = |error: std::io::Error| broke_off(parent, &error);
    let mut head = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
    if let Some(login) = login(parent) {
        head.push_str(&format!("Proxy-Authorization: {login}\r\n"));
    }
    head.push_str("\r\n");
    wire.write_all(head.as_bytes()).await.map_err(broken)?;
    wire.flush().await.map_err(broken)?;
    let answer = loop {
        let head = next_head(shared, &mut wire, parent).await.map_err(Trouble::Next)?;
        is_heard.set(true);
        if !head.is_interim() {
            break head;
        }
    };
    match answer.status {
        200..300 => Ok(wire),
        // The next one would not make up for a login that is missing or wrong: a person has to know.
        407 => Err(Trouble::Final(not_passed_on(parent, &answer))),
        _ => Err(Trouble::Next(not_passed_on(parent, &answer))),
    }
}

/// Reads a head and nothing behind it, byte by byte: servers that speak first (SSH, SMTP) have greeted already when it comes.
async fn next_head(shared: &Shared, wire: &mut Wire, parent: &Parent) -> Result<ResponseHead, UpstreamFault> {
    let mut read = Vec::new();
    loop {
        let byte = wire.read_u8().await;
        read.push(byte.map_err(|error| refused(parent, &format!("broke off before its answer: {error}")))?);
        if !read.ends_with(b"\n") {
            continue;
        }
        match parse::response(&read, &shared.settings.head_limits) {
            Ok(Parsed::Complete { head, .. }) => return Ok(head),
            Ok(Parsed::Partial) => {}
            Err(fault) => return Err(refused(parent, &format!("answered with what is no HTTP: {}", fault.detail))),
        }
    }
}

/// The target by which a parent is asked for this URL.
pub(super) fn target(to: &Url, target: &str) -> String {
    format!("{}://{}{target}", to.scheme.as_str(), to.authority())
}

/// The value of `Proxy-Authorization`.
pub(super) fn login(parent: &Parent) -> Option<String> {
    let password = parent.password.as_ref()?;
    let pair = format!("{}:{}", parent.user, password.reveal());
    Some(format!("Basic {}", crate::base64::encode(pair.as_bytes())))
}

/// The fault of a head that is the parent's own and not the origin's: a client must not be asked for a login that is Larder's.
pub(super) fn check(parent: &Parent, head: &ResponseHead) -> Result<(), UpstreamFault> {
    if head.status == 407 { Err(not_passed_on(parent, head)) } else { Ok(()) }
}

fn not_passed_on(parent: &Parent, head: &ResponseHead) -> UpstreamFault {
    let remedy = match (head.status, &parent.password) {
        (407, None) => "; it wants a login: `user` and `password` of its [[parent]]",
        (407, Some(_)) => "; it does not take the login of its [[parent]]",
        _ => "",
    };
    refused(parent, &format!("answered {}{remedy}", head.status))
}

fn refused(parent: &Parent, what: &str) -> UpstreamFault {
    UpstreamFault::new(UpstreamFaultKind::Parent, format!("the parent {} {what}", parent.name)).after_contact()
}

/// A parent that has accepted a request hangs: the request may go another way.
pub(super) fn hung(parent: &Parent) -> UpstreamFault {
    let detail =
        format!("the parent {} accepted the request and is silent, to a question about itself too", parent.name);
    let fault = UpstreamFault::new(UpstreamFaultKind::ConnectTimeout, detail).after_contact();
    UpstreamFault { retry: Retry::IfIdempotent, ..fault }
}

fn too_slow(parent: &Parent, time: Duration) -> UpstreamFault {
    let seconds = time.as_secs_f64();
    let detail = format!("the parent {} did not connect to the origin within {seconds:.1} s", parent.name);
    UpstreamFault::new(UpstreamFaultKind::ConnectTimeout, detail).after_contact()
}
