//! From an origin's name to an open stream: Happy Eyeballs version 2 (RFC 8305) over the addresses as they
//! are resolved, then TLS. Which connections are kept is known in `h1`, and how many requests there may be in `permits`.

use super::dns::{Answer, Answers, Dns};
use super::fault::{DnsTrouble, UpstreamFault, UpstreamFaultKind};
use super::unreachable::{Attempt, Target, Unreachable};
use super::wanted::Wanted;
use super::{Origin, Settings};
#[cfg(test)]
use crate::in_memory::network;
use crate::reach::Reach;
use crate::wire::Wire;
use larder_wire::proxy_protocol::SentHeader;
use larder_wire::{Host, Scheme};
use rustls::pki_types::ServerName;
use std::cell::Cell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;

/// An attempt gets this head start over the next one (RFC 8305 section 5).
const STAGGER: Duration = Duration::from_millis(250);
/// When the less liked family is resolved first, the other gets this long (RFC 8305 section 3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);
/// Addresses of a name that are tried, of each family; a name with more is served by its first ones. Families are counted
/// apart, so that many addresses of one don't keep the other from its turn.
const ADDRESSES_MAX: usize = 16;

/// An open stream, and the address that it leads to.
pub(super) struct Opened {
    pub wire: Wire,
    pub peer: SocketAddr,
    /// The header of the PROXY protocol with which it began.
    pub header: Option<Box<SentHeader>>,
}

/// Connects to an origin, TLS included, within `connect_timeout`. A header of the PROXY protocol goes out before all else. `favourite` is the
/// address that won last time; `accepted` is called when an address has accepted a connection on which TLS begins.
pub(super) async fn open(
    dns: &Dns,
    tls: &TlsConnector,
    settings: &Settings,
    (origin, favourite): (&Origin, Option<IpAddr>),
    wanted: Wanted<'_>,
    accepted: &dyn Fn(),
) -> Result<Opened, UpstreamFault> {
    let limit = settings.connect_timeout;
    let unreachable = &settings.memory.unreachable;
    within(limit, &origin.host, async |phase| {
        let race = Race::new(origin.port, favourite, unreachable, limit, wanted.reach);
        let (mut wire, peer) = dial(dns, &origin.host, race, phase).await?;
        let header = wanted.header.copied().map(Box::new);
        if let Some(header) = &header {
            // Boxed, as all that is large and rare here.
            Box::pin(begin_with(&mut wire, header)).await?;
        }
        let wire = match origin.scheme {
            Scheme::Http => wire,
            Scheme::Ftp => gateway(wire, &origin.host)?,
            Scheme::Https => {
                phase.set(Phase::Tls);
                accepted();
                let attempt = unreachable.attempt(Target::Tls(peer), limit, Instant::now()).map_err(|avoided| {
                    let detail = format!("no tls handshake with {} at {peer}: {avoided}", origin.host);
                    UpstreamFault::new(UpstreamFaultKind::ConnectTimeout, detail).after_contact()
                })?;
                let session = handshake(tls, wire, origin.tls_name.as_ref().unwrap_or(&origin.host)).await;
                attempt.answered();
                session?
            }
        };
        Ok(Opened { wire, peer, header })
    })
    .await
}

/// Sends the header of the PROXY protocol, which comes before the first byte of a request or of TLS.
pub(super) async fn begin_with(wire: &mut Wire, header: &SentHeader) -> Result<(), UpstreamFault> {
    let sent = wire.write_all(&header.bytes()).await;
    sent.map_err(|error| UpstreamFault::reset(&error, "its header of the PROXY protocol was sent").after_contact())
}

/// Connects to a host without TLS within this time: the far end of a tunnel, or a parent.
pub(super) async fn open_plain(
    dns: &Dns,
    settings: &Settings,
    (host, port): (&Host, u16),
    reach: &Reach,
    limit: Duration,
) -> Result<Wire, UpstreamFault> {
    let race = Race::new(port, None, &settings.memory.unreachable, limit, reach);
    within(limit, host, async |phase| Ok(dial(dns, host, race, phase).await?.0)).await
}

/// How far a connection has come, for naming what a timeout hit.
#[derive(Clone, Copy)]
enum Phase {
    Name,
    Address,
    Tls,
}

async fn within<T>(
    time: Duration,
    host: &Host,
    work: impl AsyncFnOnce(&Cell<Phase>) -> Result<T, UpstreamFault>,
) -> Result<T, UpstreamFault> {
    let phase = Cell::new(Phase::Name);
    timeout(time, work(&phase)).await.unwrap_or_else(|_| {
        let seconds = time.as_secs_f64();
        Err(match phase.get() {
            Phase::Name => UpstreamFault::new(
                UpstreamFaultKind::Dns(DnsTrouble::Timeout),
                format!("no name server told the address of {host} within {seconds} s"),
            ),
            Phase::Address => UpstreamFault::new(
                UpstreamFaultKind::ConnectTimeout,
                format!("no address of {host} accepted a connection within {seconds} s"),
            ),
            Phase::Tls => UpstreamFault::new(
                UpstreamFaultKind::ConnectTimeout,
                format!("the tls handshake with {host} was not over within {seconds} s"),
            )
            .after_contact(),
        })
    })
}

/// The gateway to FTP before a control connection.
#[cfg(feature = "ftp")]
fn gateway(wire: Wire, host: &Host) -> Result<Wire, UpstreamFault> {
    let opened = wire.into_tcp().and_then(super::ftp::before);
    opened
        .map(Wire::Unix)
        .map_err(|error| UpstreamFault::new(UpstreamFaultKind::Unreachable, format!("no gateway to {host}: {error}")))
}

/// No rule lets a request come here in a build without the gateway.
#[cfg(not(feature = "ftp"))]
fn gateway(_: Wire, host: &Host) -> Result<Wire, UpstreamFault> {
    Err(UpstreamFault::new(
        UpstreamFaultKind::Unreachable,
        format!("no gateway to {host}: this program was built without FTP"),
    ))
}

/// TLS with this host, on a connection that leads to it; it may lead there inside TLS.
pub(super) async fn handshake(tls: &TlsConnector, wire: Wire, host: &Host) -> Result<Wire, UpstreamFault> {
    let name = server_name(host)
        .ok_or_else(|| UpstreamFault::tls(&io::Error::other("no certificate can be for such a name"), host.as_str()))?;
    let of_tls = |error| UpstreamFault::tls(&error, host.as_str());
    match wire {
        // Boxed, as all that is large and rare here.
        Wire::TlsClient(stream) => {
            let session = Box::pin(tls.connect(name, *stream)).await.map_err(of_tls)?;
            Ok(Wire::TlsWithin(Box::new(session)))
        }
        wire => {
            let session = tls.connect(name, wire.into_tcp().map_err(of_tls)?).await.map_err(of_tls)?;
            Ok(Wire::TlsClient(Box::new(session)))
        }
    }
}

/// The name for SNI and for the certificate: never with a final dot (RFC 6066 section 3).
fn server_name(host: &Host) -> Option<ServerName<'static>> {
    match host.ip() {
        Some(ip) => Some(ServerName::IpAddress(ip.into())),
        None => ServerName::try_from(host.as_str().trim_end_matches('.').to_owned()).ok(),
    }
}

async fn dial(
    dns: &Dns,
    host: &Host,
    mut race: Race<'_>,
    phase: &Cell<Phase>,
) -> Result<(Wire, SocketAddr), UpstreamFault> {
    let mut answers = dns.ask(host);
    loop {
        if race.may_start() {
            phase.set(Phase::Address);
            race.start_next();
        }
        if race.is_over(&answers) {
            return Err(race.fault(host));
        }
        let (start_at, waiting, running) = (race.start_at, race.has_candidates(), race.is_running());
        tokio::select! {
            biased;
            ended = race.ended(), if running => if let Some(won) = ended { return Ok(won) },
            answer = answers.next(), if !answers.is_done() => race.take(answer, answers.is_done()),
            () = sleep_until(start_at), if waiting => {}
        }
    }
}

type Connecting = Pin<Box<dyn Future<Output = (SocketAddr, io::Result<Wire>)>>>;

/// Attempts to connect that run side by side; the first to succeed wins, dropping the race ends the others.
struct Race<'a> {
    port: u16,
    favourite: Option<IpAddr>,
    unreachable: Arc<Unreachable>,
    /// How long an attempt may take.
    limit: Duration,
    /// Addresses beyond it are not tried: of a name that leads into two worlds, one stays closed.
    reach: &'a Reach,
    /// Addresses not tried yet: the liked family and the other.
    candidates: [VecDeque<IpAddr>; 2],
    liked_next: bool,
    known: [usize; 2],
    attempts: Vec<Connecting>,
    started: bool,
    start_at: Instant,
    faults: Vec<UpstreamFault>,
}

impl<'a> Race<'a> {
    fn new(
        port: u16,
        favourite: Option<IpAddr>,
        unreachable: &Arc<Unreachable>,
        limit: Duration,
        reach: &'a Reach,
    ) -> Race<'a> {
        Race {
            port,
            favourite,
            unreachable: Arc::clone(unreachable),
            limit,
            reach,
            candidates: Default::default(),
            liked_next: true,
            known: [0; 2],
            attempts: Vec::new(),
            started: false,
            start_at: Instant::now(),
            faults: Vec::new(),
        }
    }

    /// The family of last time's winner, otherwise IPv6.
    fn likes(&self, ip: IpAddr) -> bool {
        self.favourite.map_or(ip.is_ipv6(), |favourite| favourite.is_ipv6() == ip.is_ipv6())
    }

    fn take(&mut self, answer: Answer, last: bool) {
        match answer {
            Ok(addresses) => addresses.into_iter().for_each(|ip| self.add(ip)),
            Err(fault) => self.faults.push(fault),
        }
        if self.started || !self.has_candidates() {
            return;
        }
        let wait = if last || !self.candidates[0].is_empty() { Duration::ZERO } else { RESOLUTION_DELAY };
        self.start_at = Instant::now() + wait;
    }

    fn add(&mut self, ip: IpAddr) {
        let place = usize::from(!self.likes(ip));
        if self.known[place] == ADDRESSES_MAX {
            return;
        }
        if !self.reach.permits(SocketAddr::new(ip, self.port)) {
            self.faults.push(match self.reach.closed_by(ip) {
                None => UpstreamFault::out_of_reach(),
                Some(rule) => UpstreamFault::closed_by(rule),
            });
            return;
        }
        self.known[place] += 1;
        let family = &mut self.candidates[place];
        if self.favourite == Some(ip) { family.push_front(ip) } else { family.push_back(ip) }
    }

    fn is_running(&self) -> bool {
        !self.attempts.is_empty()
    }

    fn has_candidates(&self) -> bool {
        self.candidates.iter().any(|family| !family.is_empty())
    }

    fn may_start(&self) -> bool {
        self.has_candidates() && Instant::now() >= self.start_at
    }

    /// Starts the next attempt, the families taking turns (RFC 8305 section 4). Addresses that did not answer of late are
    /// passed over.
    fn start_next(&mut self) {
        while let Some(ip) = self.next_candidate() {
            let to = SocketAddr::new(ip, self.port);
            let now = Instant::now();
            match self.unreachable.attempt(Target::Address(to), self.limit, now) {
                Ok(attempt) => {
                    self.attempts.push(Box::pin(async move { (to, connect(to, attempt).await) }));
                    self.started = true;
                    self.start_at = now + STAGGER;
                    return;
                }
                Err(avoided) => {
                    let detail = format!("{to}: {avoided}");
                    self.faults.push(UpstreamFault::new(UpstreamFaultKind::ConnectTimeout, detail));
                }
            }
        }
    }

    fn next_candidate(&mut self) -> Option<IpAddr> {
        let [liked, other] = &mut self.candidates;
        let next = if self.liked_next {
            liked.pop_front().or_else(|| other.pop_front())
        } else {
            other.pop_front().or_else(|| liked.pop_front())
        };
        self.liked_next = !self.liked_next;
        next
    }

    /// Waits for one attempt to end. A failure lets the next one start at once.
    async fn ended(&mut self) -> Option<(Wire, SocketAddr)> {
        let (to, result) = poll_fn(|cx| {
            for at in 0..self.attempts.len() {
                if let Poll::Ready(ended) = self.attempts[at].as_mut().poll(cx) {
                    drop(self.attempts.remove(at));
                    return Poll::Ready(ended);
                }
            }
            Poll::Pending
        })
        .await;
        match result {
            Ok(wire) => Some((wire, to)),
            Err(error) => {
                self.faults.push(UpstreamFault::dial(&error, to));
                self.start_at = Instant::now();
                None
            }
        }
    }

    fn is_over(&self, answers: &Answers) -> bool {
        !self.is_running() && !self.has_candidates() && answers.is_done()
    }

    /// The one fault that says most: what an address did, before what a name server said.
    fn fault(self, host: &Host) -> UpstreamFault {
        let rank = |fault: &UpstreamFault| match fault.kind {
            UpstreamFaultKind::Refused => 0,
            UpstreamFaultKind::Dns(DnsTrouble::NotFound) => 5,
            UpstreamFaultKind::Dns(DnsTrouble::Failed) => 4,
            UpstreamFaultKind::Dns(DnsTrouble::Timeout) => 3,
            UpstreamFaultKind::OutOfReach => 2,
            _ => 1,
        };
        let chosen = self.faults.into_iter().min_by_key(rank);
        let mut fault = chosen.unwrap_or_else(|| {
            UpstreamFault::new(UpstreamFaultKind::Dns(DnsTrouble::NotFound), "the name has no address")
        });
        if !matches!(fault.kind, UpstreamFaultKind::Dns(_) | UpstreamFaultKind::OutOfReach) {
            fault.detail = format!("no connection to {host}: {}", fault.detail);
        }
        fault
    }
}

async fn connect(to: SocketAddr, attempt: Attempt) -> io::Result<Wire> {
    let result = stream_to(to).await;
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, TimedOut};
    match result.as_ref().map_err(io::Error::kind) {
        Ok(_) | Err(ConnectionRefused | ConnectionReset | ConnectionAborted) => attempt.answered(),
        Err(TimedOut) => attempt.failed(Instant::now()),
        // No route, no port left: what the system says at once costs nobody time, so only its delay is remembered.
        Err(_) => drop(attempt),
    }
    result
}

async fn stream_to(to: SocketAddr) -> io::Result<Wire> {
    #[cfg(test)]
    if let Some(network) = network::current() {
        return network.connect(to).await.map(Wire::Memory);
    }
    let stream = TcpStream::connect(to).await?;
    // On loopback a free port can be given to ourselves as the source: the socket then talks to itself.
    if stream.local_addr()? == to {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    stream.set_nodelay(true)?;
    Ok(Wire::Tcp(stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn race(favourite: Option<IpAddr>) -> Race<'static> {
        Race::new(80, favourite, &Arc::default(), Duration::from_secs(1), &Reach::Configured)
    }

    fn order(favourite: Option<&str>, answers: &[&[&str]]) -> Vec<String> {
        let mut race = race(favourite.map(|ip| ip.parse().unwrap()));
        for (at, answer) in answers.iter().enumerate() {
            race.take(Ok(answer.iter().map(|ip| ip.parse().unwrap()).collect()), at + 1 == answers.len());
        }
        let mut order = Vec::new();
        while let Some(next) = race.next_candidate() {
            order.push(next.to_string());
        }
        order
    }

    #[test]
    fn families_take_turns_and_the_last_winner_leads() {
        let both: &[&[&str]] = &[&["::1", "::2", "::3"], &["10.0.0.1", "10.0.0.2"]];
        assert_eq!(order(None, both), ["::1", "10.0.0.1", "::2", "10.0.0.2", "::3"]);
        assert_eq!(order(Some("10.0.0.2"), both), ["10.0.0.2", "::1", "10.0.0.1", "::2", "::3"]);
        assert_eq!(order(Some("10.9.9.9"), &[&["::1"]]), ["::1"]);
    }

    #[test]
    fn a_name_with_very_many_addresses_is_cut() {
        let many: Vec<String> = (0..40).map(|n| format!("10.0.0.{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(order(None, &[&many]).len(), ADDRESSES_MAX);
        let with_other = order(None, &[&many, &["::1"]]);
        assert_eq!((with_other.len(), with_other[0].as_str()), (ADDRESSES_MAX + 1, "::1"), "each family has its turn");
    }

    #[test]
    fn the_less_liked_family_waits_a_little() {
        let mut race = race(None);
        race.take(Ok(vec!["10.0.0.1".parse().unwrap()]), false);
        assert!(!race.may_start());
        race.take(Ok(vec!["::1".parse().unwrap()]), true);
        assert!(race.may_start());
    }

    #[test]
    fn server_names_have_no_final_dot() {
        let name = |host: &str| server_name(&Host::parse(host).unwrap());
        assert_eq!(name("a.example."), ServerName::try_from("a.example").ok());
        assert!(matches!(name("[::1]"), Some(ServerName::IpAddress(_))));
        assert_eq!(name("a!b"), None);
    }
}
