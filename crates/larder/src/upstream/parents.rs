//! The way through a parent: a proxy that is asked in the origin's place. A URL of http is sent in absolute form (RFC 9112 section 3.2.2);
//! for https, and for tunnels, the parent is asked for a tunnel by CONNECT (RFC 9110 section 9.3.6), and TLS to the origin is spoken inside.

use super::connect::{self, Opened};
use super::fault::{UpstreamFault, UpstreamFaultKind};
use super::{Origin, Shared};
use crate::config::parent::Parent;
use crate::reach::{Asker, Reach, Way};
use crate::wire::Wire;
use larder_wire::parse::{self, Parsed};
use larder_wire::{Host, ResponseHead, Scheme, Url};
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The parents through which a host is asked; `None` where it is asked itself: for sites, and where no parent is meant.
pub(super) fn of(host: &Host, reach: &Reach) -> Option<Parents> {
    let Reach::Asked { config, way, .. } = reach else { return None };
    let forward = &config.forward_parents;
    if forward.parents.is_empty() {
        return None;
    }
    let all = Arc::clone(&forward.parents);
    match way {
        Way::Parents(order) => Some(Parents { all, order: Some(Rc::clone(order)) }),
        _ if host.is_local() || forward.direct.contains(host) => None,
        _ => Some(Parents { all, order: None }),
    }
}

/// The way to a URL where parents are chosen by CARP; `None` where the way that is meant stays. A request that goes through a tunnel has the parent of
/// its host and port, for the parent sees no more of it.
pub(super) fn by_carp(url: &Url, reach: &Reach) -> Option<Reach> {
    let Reach::Asked { config, way: Way::Configured, .. } = reach else { return None };
    let forward = &config.forward_parents;
    let carp = forward.carp.as_ref()?;
    if url.host.is_local() || forward.direct.contains(&url.host) {
        return None;
    }
    let asked = match url.scheme {
        Scheme::Http => url.to_string(),
        _ => format!("{}:{}", url.host, url.port),
    };
    let order = carp.order(&asked).into_iter().filter_map(|place| u8::try_from(place).ok());
    Some(reach.clone().by(Way::Parents(order.collect())))
}

/// The parents for one request, in the order in which they are tried.
pub(super) struct Parents {
    /// Those of `forward.parents`.
    all: Arc<[Arc<Parent>]>,
    /// The places of those that are meant, where these are not all in their order.
    order: Option<Rc<[u8]>>,
}

impl Parents {
    /// Each one with its place in `forward.parents`, from 1.
    fn in_order(&self) -> Vec<(u8, &Arc<Parent>)> {
        let at = |place: u8| Some((place.checked_add(1)?, self.all.get(usize::from(place))?));
        match &self.order {
            Some(order) => order.iter().filter_map(|place| at(*place)).collect(),
            None => (0..=u8::MAX).map_while(at).collect(),
        }
    }
}

/// A connection through a parent.
pub(super) struct Through {
    pub wire: Wire,
    /// The place of the parent among those that were tried, from 1.
    pub number: u8,
    /// The parent, where it reads the requests that are sent.
    pub reader: Option<Arc<Parent>>,
}

/// Connects to an origin through the first parent that can be connected to.
pub(super) async fn open(
    shared: &Shared,
    origin: &Origin,
    parents: &Parents,
    reach: &Reach,
    accepted: &dyn Fn(),
) -> Result<Through, UpstreamFault> {
    let (wire, number, parent) = dial(shared, parents, reach).await?;
    let limit = shared.settings.connect_timeout;
    let opening = async {
        if origin.scheme != Scheme::Https {
            return Ok(Through { wire, number, reader: Some(Arc::clone(parent)) });
        }
        let stream = tunnel(shared, wire, parent, (&origin.host, origin.port)).await?;
        accepted();
        let name = origin.tls_name.as_ref().unwrap_or(&origin.host);
        let session = connect::handshake(&shared.tls, Wire::Tcp(stream), name).await?;
        Ok(Through { wire: Wire::TlsClient(Box::new(session)), number, reader: None })
    };
    timeout(limit, opening).await.unwrap_or_else(|_| Err(too_slow(parent, limit.as_secs_f64())))
}

/// A tunnel to a host through the first parent that can be connected to.
pub(super) async fn open_plain(
    shared: &Shared,
    to: (&Host, u16),
    parents: &Parents,
    reach: &Reach,
) -> Result<Wire, UpstreamFault> {
    let (wire, _, parent) = dial(shared, parents, reach).await?;
    let limit = shared.settings.connect_timeout;
    match timeout(limit, tunnel(shared, wire, parent, to)).await {
        Ok(stream) => stream.map(Wire::Tcp),
        Err(_) => Err(too_slow(parent, limit.as_secs_f64())),
    }
}

/// A connection to the first parent that accepts one. The fault of the last one counts where none does.
async fn dial<'a>(
    shared: &Shared,
    parents: &'a Parents,
    reach: &Reach,
) -> Result<(Wire, u8, &'a Arc<Parent>), UpstreamFault> {
    let mut fault = UpstreamFault::out_of_reach();
    if matches!(reach, Reach::Asked { asker: Asker::OfflineRun, .. }) {
        return Err(fault);
    }
    for (number, parent) in parents.in_order() {
        let origin = Origin::of(&parent.url);
        // The operator has named it, so it may be anywhere.
        let opened =
            connect::open(&shared.dns, &shared.tls, &shared.settings, (&origin, None), &Reach::Configured, &|| {})
                .await;
        match opened {
            Ok(Opened { wire, .. }) => return Ok((wire, number, parent)),
            Err(trouble) => {
                fault = UpstreamFault { detail: format!("parent {}: {}", parent.name, trouble.detail), ..trouble }
            }
        }
    }
    Err(fault)
}

/// Has the parent connect to an origin.
async fn tunnel(
    shared: &Shared,
    wire: Wire,
    parent: &Parent,
    (host, port): (&Host, u16),
) -> Result<TcpStream, UpstreamFault> {
    let broken = |error: std::io::Error| refused(parent, &format!("broke off: {error}"));
    let mut stream = wire.into_tcp().map_err(broken)?;
    let mut head = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
    if let Some(login) = login(parent) {
        head.push_str(&format!("Proxy-Authorization: {login}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await.map_err(broken)?;
    let answer = loop {
        let head = next_head(shared, &mut stream, parent).await?;
        if !head.is_interim() {
            break head;
        }
    };
    if !(200..300).contains(&answer.status) {
        return Err(not_passed_on(parent, &answer));
    }
    Ok(stream)
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

fn too_slow(parent: &Parent, seconds: f64) -> UpstreamFault {
    let detail = format!("the parent {} did not connect to the origin within {seconds} s", parent.name);
    UpstreamFault::new(UpstreamFaultKind::ConnectTimeout, detail).after_contact()
}
