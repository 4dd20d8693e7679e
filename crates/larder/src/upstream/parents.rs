//! The way through parents: proxies that are asked in the origin's place, one after the other until one leads there. A URL of http is sent in
//! absolute form (RFC 9112 section 3.2.2); for https, and for tunnels, the parent is asked for a tunnel by CONNECT (RFC 9110 section 9.3.6), and TLS
//! to the origin is spoken inside. A parent that speaks SOCKS (RFC 1928) leads to the origin for every scheme, and reads nothing.

use super::connect;
use super::fault::{UpstreamFault, UpstreamFaultKind};
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
            HopsOrder::Listed => all().map(Arc::clone).collect(),
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
    shared: &Shared,
    to: FarEnd<'_>,
    parents: &Parents,
    note: &mut WayNote,
) -> Result<Through, NoParent> {
    let healths = &shared.settings.memory.parents;
    let deadline = Instant::now() + shared.settings.connect_timeout;
    let left = || deadline.saturating_duration_since(Instant::now());
    let (mut left_out, mut fault) = (Vec::new(), None);
    for (at, each) in parents.parents.iter().enumerate() {
        let now = Instant::now();
        if !healths.may_try(&each.1, now) {
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
    shared: &Shared,
    to: &FarEnd<'_>,
    (parents, (place, parent)): (&Parents, &(u8, Arc<Parent>)),
    time: Duration,
    note: &mut WayNote,
) -> Result<Through, Trouble> {
    let healths = &shared.settings.memory.parents;
    let is_there = Cell::new(false);
    let opening = async {
        let wire = dial(shared, parent, &parents.own, time).await?;
        healths.accepted(parent);
        is_there.set(true);
        let (wire, reads_requests) = lead(shared, (wire, parent), to).await?;
        let parent = ThroughParent { parent: Arc::clone(parent), reads_requests };
        Ok(Through { wire, number: place.saturating_add(1), parent })
    };
    let result = timeout(time, opening).await.unwrap_or_else(|_| Err(Trouble::Next(too_slow(parent, time))));
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
        _ => "can't be connected to",
    };
    let detail = format!("the parent {} {words}", parent.name);
    UpstreamFault { kind: UpstreamFaultKind::ParentAway(Box::new(fault.kind)), detail, ..fault }
}

/// A connection to a parent. The operator has named it, so it may be anywhere, but for this server itself.
async fn dial(shared: &Shared, parent: &Parent, own: &Rc<Held<OwnAddresses>>, time: Duration) -> Result<Wire, Trouble> {
    let reach = Reach::NotHere(Rc::clone(own));
    let to = (&parent.url.host, parent.url.port);
    connect::open_plain(&shared.dns, &shared.settings, to, &reach, time).await.map_err(|trouble| {
        Trouble::Next(match trouble.kind {
            UpstreamFaultKind::OutOfReach => {
                let detail = format!("the parent {} is this Larder itself", parent.name);
                UpstreamFault::new(UpstreamFaultKind::Parent, detail)
            }
            _ => UpstreamFault { detail: format!("parent {}: {}", parent.name, trouble.detail), ..trouble },
        })
    })
}

/// Has a parent lead to the far end; gives whether it reads the requests.
async fn lead(shared: &Shared, (wire, parent): (Wire, &Parent), to: &FarEnd<'_>) -> Result<(Wire, bool), Trouble> {
    let origin = match to {
        FarEnd::Tunnel(host, port) => {
            let stream = connect_through(shared, (wire, parent), (host, *port)).await?;
            return Ok((Wire::Tcp(stream), false));
        }
        FarEnd::Origin(origin, _) => origin,
    };
    match (origin.scheme, parent.protocol) {
        (Scheme::Http | Scheme::Ftp, ParentProtocol::Http) => return Ok((wire, true)),
        (Scheme::Ftp, ParentProtocol::Socks5) => {
            // Each file has a connection of its own, which servers tell by address.
            return Err(Trouble::Next(refused(parent, "speaks SOCKS, which carries no FTP")));
        }
        _ => {}
    }
    let stream = connect_through(shared, (wire, parent), (&origin.host, origin.port)).await?;
    if origin.scheme != Scheme::Https {
        return Ok((Wire::Tcp(stream), false));
    }
    if let FarEnd::Origin(_, accepted) = to {
        accepted();
    }
    let name = origin.tls_name.as_ref().unwrap_or(&origin.host);
    let session = connect::handshake(&shared.tls, Wire::Tcp(stream), name).await.map_err(Trouble::Final)?;
    Ok((Wire::TlsClient(Box::new(session)), false))
}

/// Has a parent connect to a host and port; from then on every byte goes through.
async fn connect_through(
    shared: &Shared,
    (wire, parent): (Wire, &Parent),
    to: (&Host, u16),
) -> Result<TcpStream, Trouble> {
    let stream = wire.into_tcp().map_err(|error| broke_off(parent, &error))?;
    match parent.protocol {
        ParentProtocol::Http => tunnel(shared, stream, parent, to).await,
        ParentProtocol::Socks5 => by_socks(stream, parent, to).await,
    }
}

fn broke_off(parent: &Parent, error: &std::io::Error) -> Trouble {
    Trouble::Next(refused(parent, &format!("broke off: {error}")))
}

/// Has a parent connect to an origin by SOCKS. Nothing behind its last answer is read.
async fn by_socks(mut stream: TcpStream, parent: &Parent, to: (&Host, u16)) -> Result<TcpStream, Trouble> {
    let login = parent.password.as_ref().map(|password| (parent.user.as_str(), password.reveal()));
    let Some(mut client) = socks::Client::new(to, login) else {
        return Err(Trouble::Next(refused(parent, "can't be asked for so long a name")));
    };
    let broken = |error: std::io::Error| broke_off(parent, &error);
    stream.write_all(&client.greeting()).await.map_err(broken)?;
    loop {
        let mut answer = vec![0; client.wanted()];
        stream.read_exact(&mut answer).await.map_err(broken)?;
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
    mut stream: TcpStream,
    parent: &Parent,
    (host, port): (&Host, u16),
) -> Result<TcpStream, Trouble> {
    let broken = |error: std::io::Error| broke_off(parent, &error);
    let mut head = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
    if let Some(login) = login(parent) {
        head.push_str(&format!("Proxy-Authorization: {login}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await.map_err(broken)?;
    let answer = loop {
        let head = next_head(shared, &mut stream, parent).await.map_err(Trouble::Next)?;
        if !head.is_interim() {
            break head;
        }
    };
    match answer.status {
        200..300 => Ok(stream),
        // The next one would not make up for a login that is missing or wrong: a person has to know.
        407 => Err(Trouble::Final(not_passed_on(parent, &answer))),
        _ => Err(Trouble::Next(not_passed_on(parent, &answer))),
    }
}

/// Reads a head and nothing behind it, byte by byte: servers that speak first (SSH, SMTP) have greeted already when it comes.
async fn next_head(shared: &Shared, stream: &mut TcpStream, parent: &Parent) -> Result<ResponseHead, UpstreamFault> {
    let mut read = Vec::new();
    loop {
        let byte = stream.read_u8().await;
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

fn too_slow(parent: &Parent, time: Duration) -> UpstreamFault {
    let seconds = time.as_secs_f64();
    let detail = format!("the parent {} did not connect to the origin within {seconds:.1} s", parent.name);
    UpstreamFault::new(UpstreamFaultKind::ConnectTimeout, detail).after_contact()
}
