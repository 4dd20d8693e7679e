//! Questions to neighbouring caches about one URL, by datagram: ICP (RFC 2186) and HTCP (RFC 2756). All neighbours are asked at once; the first
//! one that has the response ends the wait, and so do the answers of all.
//!
//! Each question has a socket of its own, so that its answer comes to a port that was not known before, with a number that was not known
//! before, from the address that was asked. Other datagrams are ignored, and late ones find nobody. There is no table of open
//! questions that others could fill.

use super::Upstreams;
use super::dns::Dns;
use super::neighbour_health::NeighbourHealths;
use crate::config::parent::QuestionPorts;
use crate::reach::{self, Reach};
use larder_wire::htcp::{self, Envelope, Specifier};
use larder_wire::icp::{self, Opcode};
use larder_wire::{Fields, Host};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout, timeout_at};

/// A question to neighbours.
pub struct NeighbourQuestion<'a> {
    /// The URL.
    pub url: &'a str,
    /// The fields of the GET for it.
    pub fields: &'a Fields,
    /// The neighbours.
    pub neighbours: &'a [AskedNeighbour<'a>],
    /// Nobody waits longer, whatever round trips were measured.
    pub wait_max: Duration,
}

/// A neighbour that is asked.
#[derive(Clone, Copy)]
pub struct AskedNeighbour<'a> {
    /// Its name, for the log.
    pub name: &'a str,
    /// Its host.
    pub host: &'a Host,
    /// Its ports for questions.
    pub ports: QuestionPorts,
    /// It fetches what it does not have.
    pub is_parent: bool,
}

/// The result of a question: places among [`NeighbourQuestion::neighbours`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourFound {
    /// This one has the response, by the answer that came from this address.
    Hit(usize, SocketAddr),
    /// None has it. This parent, which fetches it, was the first one to say so.
    Miss(usize),
    /// None has it, and no parent has answered.
    Nobody,
}

/// An open question to one neighbour.
struct Open {
    place: usize,
    address: SocketAddr,
    is_htcp: bool,
    number: u32,
    wait: Duration,
    is_answered: bool,
}

/// The answer of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Hit,
    Miss,
    /// It does not want to be asked.
    Refused,
}

impl Upstreams {
    /// Whether all addresses of an origin are such that a response from there could be stored for all clients: a neighbour's copy says
    /// nothing of the address that it came from.
    pub async fn leads_to_open(&self, host: &Host, port: u16, reach: &Reach) -> bool {
        let look = async {
            let (mut answers, mut is_known) = (self.shared.dns.ask(host), false);
            while !answers.is_done() {
                for ip in answers.next().await.unwrap_or_default() {
                    if !reach.permits(SocketAddr::new(ip, port))
                        || !reach::may_keep(host, ip)
                        || reach.is_closed_to_some(ip)
                    {
                        return false;
                    }
                    is_known = true;
                }
            }
            is_known
        };
        timeout(self.shared.settings.connect_timeout, look).await.unwrap_or(false)
    }

    /// Asks neighbours which of them has a response.
    pub async fn ask_neighbours(&self, healths: &NeighbourHealths, question: &NeighbourQuestion<'_>) -> NeighbourFound {
        let end = Instant::now() + question.wait_max;
        let opened = timeout_at(end, open_questions(&self.shared.dns, healths, question)).await;
        let Ok(mut open) = opened else { return NeighbourFound::Nobody };
        let began = Instant::now();
        let Ok(sockets) = send(&mut open, question).await else {
            // Too many files are open, or there is no network: the origin is asked.
            return NeighbourFound::Nobody;
        };
        let wait = open.iter().map(|each| each.wait).max().unwrap_or_default();
        let (mut first_miss, end) = (None, end.min(began + wait));
        let mut buffer = vec![0; icp::DATAGRAM_BYTES_MAX];
        while open.iter().any(|each| !each.is_answered) {
            let Ok((len, from)) = timeout_at(end, sockets.next(&mut buffer)).await else { break };
            let datagram = buffer.get(..len).unwrap_or_default();
            let Some((at, said)) = answer_in(datagram, from, &open, question.url) else {
                add(&healths.counts.unexpected);
                continue;
            };
            let Some(answered) = open.get_mut(at) else { continue };
            answered.is_answered = true;
            let named = question.neighbours.get(answered.place).map_or("neighbour", |neighbour| neighbour.name);
            healths.answered((named, answered.address), began.elapsed());
            let is_parent = question.neighbours.get(answered.place).is_some_and(|neighbour| neighbour.is_parent);
            match said {
                Said::Hit => {
                    add(&healths.counts.hits);
                    return NeighbourFound::Hit(answered.place, answered.address);
                }
                Said::Miss => {
                    add(&healths.counts.misses);
                    first_miss = first_miss.or(is_parent.then_some(answered.place));
                }
                Said::Refused => add(&healths.counts.refusals),
            }
        }
        let now = Instant::now();
        for silent in open.iter().filter(|each| !each.is_answered) {
            add(&healths.counts.silent);
            let named = question.neighbours.get(silent.place).map_or("neighbour", |neighbour| neighbour.name);
            healths.was_silent((named, silent.address), now - began, now);
        }
        first_miss.map_or(NeighbourFound::Nobody, NeighbourFound::Miss)
    }
}

/// The neighbours that may be asked, with their addresses and new numbers.
async fn open_questions(dns: &Dns, healths: &NeighbourHealths, question: &NeighbourQuestion<'_>) -> Vec<Open> {
    let mut open = Vec::with_capacity(question.neighbours.len());
    for (place, neighbour) in question.neighbours.iter().enumerate() {
        let (port, is_htcp) = match (neighbour.ports.htcp, neighbour.ports.icp) {
            (Some(port), _) => (port, true),
            (None, Some(port)) => (port, false),
            (None, None) => continue,
        };
        let Ok(port) = u16::try_from(port) else { continue };
        let Some(ip) = address_of(dns, neighbour.host).await else { continue };
        let (address, mut number) = (SocketAddr::new(ip, port), [0; 4]);
        // A number that could be guessed is no proof.
        if aws_lc_rs::rand::fill(&mut number).is_err() {
            continue;
        }
        match healths.may_ask(address, Instant::now()) {
            Some(wait) => {
                let number = u32::from_ne_bytes(number);
                open.push(Open { place, address, is_htcp, number, wait, is_answered: false });
            }
            None => add(&healths.counts.dead),
        }
    }
    open
}

/// The address of a neighbour; one of IPv4 first, for most caches answer questions there alone.
async fn address_of(dns: &Dns, host: &Host) -> Option<IpAddr> {
    let (mut answers, mut found) = (dns.ask(host), None);
    while !answers.is_done() {
        for ip in answers.next().await.unwrap_or_default() {
            if ip.is_ipv4() {
                return Some(ip);
            }
            found = found.or(Some(ip));
        }
    }
    found
}

/// The sockets of one question, one for each family of addresses that it needs.
struct Sockets {
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
}

impl Sockets {
    fn to(&self, address: SocketAddr) -> Option<&UdpSocket> {
        if address.is_ipv4() { self.v4.as_ref() } else { self.v6.as_ref() }
    }

    /// The next datagram. Errors of such a socket are those of questions before: a port without a cache.
    async fn next(&self, buffer: &mut [u8]) -> (usize, SocketAddr) {
        loop {
            let came = match (&self.v4, &self.v6) {
                (Some(v4), Some(v6)) => tokio::select! {
                    ready = v4.readable() => ready.and_then(|()| v4.try_recv_from(buffer)),
                    ready = v6.readable() => ready.and_then(|()| v6.try_recv_from(buffer)),
                },
                (Some(one), None) | (None, Some(one)) => one.recv_from(buffer).await,
                (None, None) => std::future::pending().await,
            };
            match came {
                Ok(datagram) => return datagram,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }
}

/// Sends the questions. Those that fit into no datagram, and those that the system refuses, are taken out.
async fn send(open: &mut Vec<Open>, question: &NeighbourQuestion<'_>) -> io::Result<Sockets> {
    let bind = |is_needed: bool, any: IpAddr| {
        let socket = || -> io::Result<UdpSocket> {
            let socket = std::net::UdpSocket::bind((any, 0))?;
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(socket)
        };
        is_needed.then(socket).transpose()
    };
    let sockets = Sockets {
        v4: bind(open.iter().any(|each| each.address.is_ipv4()), Ipv4Addr::UNSPECIFIED.into())?,
        v6: bind(open.iter().any(|each| each.address.is_ipv6()), Ipv6Addr::UNSPECIFIED.into())?,
    };
    let fields = lines_of(question.fields);
    let mut sent = Vec::with_capacity(open.len());
    for each in open.drain(..) {
        let mut datagram = Vec::with_capacity(512);
        let fits = match each.is_htcp {
            false => {
                let message = icp::Message { opcode: Opcode::Query, number: each.number, url: question.url };
                message.write_to(&mut datagram)
            }
            true => {
                let about = Specifier { method: "GET", url: question.url, version: "1.1", fields: &fields };
                let message = htcp::Message::Test(about);
                Envelope { transaction: each.number, wants_answer: true, message }.write_to(&mut datagram)
            }
        };
        let Some(socket) = sockets.to(each.address).filter(|_| fits) else { continue };
        if socket.send_to(&datagram, each.address).await.is_ok() {
            sent.push(each);
        }
    }
    *open = sent;
    Ok(sockets)
}

fn lines_of(fields: &Fields) -> Vec<u8> {
    let mut lines = Vec::with_capacity(256);
    for (name, value) in fields.iter() {
        lines.extend_from_slice(name.as_bytes());
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(value);
        lines.extend_from_slice(b"\r\n");
    }
    lines
}

/// The place among `open` of the question that a datagram answers, and the answer; `None` where it answers none of them.
fn answer_in(datagram: &[u8], from: SocketAddr, open: &[Open], url: &str) -> Option<(usize, Said)> {
    let is_from = |each: &Open| each.address.ip() == from.ip() && each.address.port() == from.port();
    let found = |is_htcp: bool, number: u32| {
        open.iter()
            .position(|each| is_from(each) && each.is_htcp == is_htcp && each.number == number && !each.is_answered)
    };
    if let Some(message) = icp::message(datagram).filter(|message| message.url == url) {
        let said = match message.opcode {
            Opcode::Hit => Said::Hit,
            Opcode::Miss => Said::Miss,
            Opcode::MissNoFetch | Opcode::Denied | Opcode::Err => Said::Refused,
            Opcode::Query => return None,
        };
        return found(false, message.number).map(|at| (at, said));
    }
    let envelope = htcp::envelope(datagram)?;
    let said = match envelope.message {
        htcp::Message::Found { .. } => Said::Hit,
        htcp::Message::NotFound => Said::Miss,
        _ => return None,
    };
    found(true, envelope.transaction).map(|at| (at, said))
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://a.example/x";

    fn open() -> Vec<Open> {
        let one = |place, port: u16, is_htcp, number| Open {
            place,
            address: ([192, 0, 2, 1], port).into(),
            is_htcp,
            number,
            wait: Duration::ZERO,
            is_answered: false,
        };
        vec![one(0, 3130, false, 7), one(1, 4827, true, 8)]
    }

    fn icp(opcode: Opcode, number: u32, url: &str) -> Vec<u8> {
        let mut out = Vec::new();
        assert!(icp::Message { opcode, number, url }.write_to(&mut out));
        out
    }

    fn htcp(message: htcp::Message<'_>, transaction: u32) -> Vec<u8> {
        let mut out = Vec::new();
        assert!(Envelope { transaction, wants_answer: false, message }.write_to(&mut out));
        out
    }

    #[test]
    fn an_answer_is_one_by_its_address_number_and_url() {
        let found = htcp::Message::Found { response: b"", entity: b"", cache: b"" };
        let about = Specifier { method: "GET", url: URL, version: "1.1", fields: b"" };
        for (datagram, host, port, wanted) in [
            (icp(Opcode::Hit, 7, URL), 1, 3130, Some((0, Said::Hit))),
            (icp(Opcode::Miss, 7, URL), 1, 3130, Some((0, Said::Miss))),
            (icp(Opcode::MissNoFetch, 7, URL), 1, 3130, Some((0, Said::Refused))),
            (icp(Opcode::Denied, 7, URL), 1, 3130, Some((0, Said::Refused))),
            (icp(Opcode::Err, 7, URL), 1, 3130, Some((0, Said::Refused))),
            (icp(Opcode::Query, 7, URL), 1, 3130, None),
            (icp(Opcode::Hit, 8, URL), 1, 3130, None),
            (icp(Opcode::Hit, 7, "http://a.example/y"), 1, 3130, None),
            (icp(Opcode::Hit, 7, URL), 2, 3130, None),
            (icp(Opcode::Hit, 7, URL), 1, 3131, None),
            (icp(Opcode::Hit, 8, URL), 1, 4827, None),
            (htcp(found.clone(), 8), 1, 4827, Some((1, Said::Hit))),
            (htcp(htcp::Message::NotFound, 8), 1, 4827, Some((1, Said::Miss))),
            (htcp(htcp::Message::NotFound, 7), 1, 3130, None),
            (htcp(found.clone(), 9), 1, 4827, None),
            (htcp(found, 8), 2, 4827, None),
            (htcp(htcp::Message::Cleared(true), 8), 1, 4827, None),
            (htcp(htcp::Message::Test(about), 8), 1, 4827, None),
            (b"nonsense".to_vec(), 1, 3130, None),
            (Vec::new(), 1, 3130, None),
        ] {
            let from = SocketAddr::from(([192, 0, 2, host], port));
            assert_eq!(answer_in(&datagram, from, &open(), URL), wanted, "{datagram:?} from {from}");
        }
        let mut answered = open();
        answered[0].is_answered = true;
        let doubled = icp(Opcode::Hit, 7, URL);
        assert_eq!(answer_in(&doubled, answered[0].address, &answered, URL), None);
    }
}
