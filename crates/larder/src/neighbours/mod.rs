//! Answers to neighbouring caches that ask by datagram what is stored here: ICP (RFC 2186) and HTCP (RFC 2756), as Squid's
//! siblings and parents speak them. A datagram is answered by the judgement of the request that it is about, as `larder explain`
//! makes it, so that no rule is passed over; nothing is fetched for it.
//!
//! A thread of its own answers one datagram after the other. A neighbour that asks faster loses datagrams in the kernel, which
//! both protocols permit; clients of this cache do not wait for neighbours.

mod answer;

use crate::caught;
use crate::shared::{Command, Shared};
use answer::{Answered, Asked};
use larder_wire::htcp::{self, Envelope};
use larder_wire::icp::{self, Message, Opcode};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::runtime::LocalOptions;
use tokio::sync::mpsc::Receiver;

/// A neighbour asks the origin after two seconds at most (Squid's `icp_query_timeout`), and an answer after that is of no use.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The sockets on which neighbours are answered.
pub struct Sockets {
    /// Of ICP.
    pub icp: Option<std::net::UdpSocket>,
    /// Of HTCP.
    pub htcp: Option<std::net::UdpSocket>,
}

impl Sockets {
    /// Whether nobody can ask.
    pub fn are_closed(&self) -> bool {
        self.icp.is_none() && self.htcp.is_none()
    }
}

/// Opens a socket for datagrams.
pub fn open(address: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let socket = std::net::UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Answers until told to stop.
pub fn run(shared: &Arc<Shared>, sockets: Sockets, commands: Receiver<Command>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default())
    {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!(%error, "no runtime for neighbours: raise the open file limit"),
    };
    runtime.block_on(serve(shared, sockets, commands));
}

async fn serve(shared: &Arc<Shared>, sockets: Sockets, mut commands: Receiver<Command>) {
    let of_tokio = |socket: Option<std::net::UdpSocket>| {
        let opened = UdpSocket::from_std(socket?);
        opened
            .inspect_err(|error| tracing::error!(%error, "neighbours are not answered: raise the open file limit"))
            .ok()
    };
    let (icp, htcp) = (of_tokio(sockets.icp), of_tokio(sockets.htcp));
    let mut buffers = [vec![0; icp::DATAGRAM_BYTES_MAX + 1], vec![0; htcp::DATAGRAM_BYTES_MAX + 1]];
    loop {
        let [icp_buffer, htcp_buffer] = &mut buffers;
        tokio::select! {
            command = commands.recv() => match command {
                Some(Command::Open(..) | Command::OpenQuic(..) | Command::Look(_)) => {}
                Some(Command::Drain) | None => return,
            },
            datagram = next(icp.as_ref(), icp_buffer) => {
                in_time(shared, answer_icp(shared, icp.as_ref(), (icp_buffer, datagram))).await;
            }
            datagram = next(htcp.as_ref(), htcp_buffer) => {
                in_time(shared, answer_htcp(shared, htcp.as_ref(), (htcp_buffer, datagram))).await;
            }
        }
    }
}

/// Gives an answer as long as a neighbour waits for one; others wait until then. A broken invariant ends one answer.
async fn in_time(shared: &Shared, answering: impl Future<Output = ()>) {
    match tokio::time::timeout(ANSWER_WITHIN, caught::caught(answering)).await {
        Ok(Some(())) => {}
        Ok(None) => add(&shared.neighbours.restarts),
        Err(_) => add(&shared.neighbours.late),
    }
}

/// The next datagram, by its length, and its sender. Errors of a socket of datagrams are those of earlier answers, which their
/// neighbour does not wait for any more.
async fn next(socket: Option<&UdpSocket>, buffer: &mut [u8]) -> (usize, SocketAddr) {
    let Some(socket) = socket else { return std::future::pending().await };
    loop {
        if let Ok(datagram) = socket.recv_from(buffer).await {
            return datagram;
        }
        tokio::task::yield_now().await;
    }
}

async fn answer_icp(shared: &Shared, socket: Option<&UdpSocket>, (buffer, (len, from)): (&[u8], (usize, SocketAddr))) {
    let counts = &shared.neighbours;
    let Some(message) = buffer.get(..len).and_then(icp::message).filter(|it| it.opcode == Opcode::Query) else {
        return add(&counts.unread);
    };
    if !answer::is_neighbour(shared, from.ip()) {
        return add(&counts.strangers);
    }
    let asked = Asked { url: message.url, method: "GET", fields: b"", client: from.ip() };
    let (opcode, count) = match answer::of(shared, &asked).await {
        Answered::Stored { .. } => (Opcode::Hit, &counts.hits),
        Answered::Missing => (Opcode::Miss, &counts.misses),
        Answered::Denied => (Opcode::Denied, &counts.denied),
        Answered::Misunderstood => (Opcode::Err, &counts.unread),
    };
    add(count);
    let mut out = Vec::with_capacity(len);
    if (Message { opcode, ..message }).write_to(&mut out) {
        send(socket, &out, from).await;
    }
}

async fn answer_htcp(shared: &Shared, socket: Option<&UdpSocket>, (buffer, (len, from)): (&[u8], (usize, SocketAddr))) {
    let counts = &shared.neighbours;
    let Some(asked) = buffer.get(..len).and_then(htcp::envelope) else { return add(&counts.unread) };
    if !answer::is_neighbour(shared, from.ip()) {
        return add(&counts.strangers);
    }
    let mut age = String::new();
    let message = match &asked.message {
        htcp::Message::Test(it) => {
            let about = Asked { url: it.url, method: it.method, fields: it.fields, client: from.ip() };
            match answer::of(shared, &about).await {
                Answered::Stored { age_seconds } => {
                    add(&counts.hits);
                    if let Some(seconds) = age_seconds {
                        age = format!("Age: {seconds}\r\n");
                    }
                    htcp::Message::Found { response: age.as_bytes(), entity: b"", cache: b"" }
                }
                answered => {
                    add(if answered == Answered::Denied { &counts.denied } else { &counts.misses });
                    htcp::Message::NotFound
                }
            }
        }
        htcp::Message::Clear(it) => match answer::clear(shared, it.url, from.ip()).await {
            Some(was_stored) => {
                add(&counts.cleared);
                htcp::Message::Cleared(was_stored)
            }
            // Nobody learns from silence whether something is stored here.
            None => return add(&counts.denied),
        },
        _ => return add(&counts.unread),
    };
    let mut out = Vec::with_capacity(len);
    let answer = Envelope { transaction: asked.transaction, wants_answer: false, message };
    if asked.wants_answer && answer.write_to(&mut out) {
        send(socket, &out, from).await;
    }
}

/// Datagrams may be lost, so an error is passed over.
async fn send(socket: Option<&UdpSocket>, datagram: &[u8], to: SocketAddr) {
    if let Some(socket) = socket {
        let _ = socket.send_to(datagram, to).await;
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}
