//! The way to origins of this machine: a server behind a Unix socket, and the processes of an application.

use super::call::{Call, CallEvent};
use super::connect::begin_with;
use super::fault::{UpstreamFault, UpstreamFaultKind};
use super::h1::Connection;
use super::idle::{ConnectionChoice, IdleConnection};
use super::permits::{OriginState, Permit};
use super::wanted::Wanted;
use super::{Shared, Upstreams};
use crate::config::url::socket_path;
use crate::mount::{Failure, MountState, MountStream, MountTrouble, REQUEST_NAME, Room, Spool, connect_socket};
use crate::reach::Reach;
use crate::record::Peer;
use crate::request_body::{Piece, Pieces, RequestBody};
use crate::wire::Wire;
use larder_wire::proxy_protocol::SentHeader;
use larder_wire::{Fields, ResponseHead};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

impl Upstreams {
    /// A connection to an origin of this machine, for a request that has its permit.
    pub(super) async fn local(
        &self,
        permit: Permit,
        choice: ConnectionChoice,
        (handed_on, now): (Option<IdleConnection>, Instant),
        wanted: Wanted<'_>,
        on: &dyn Fn(CallEvent),
    ) -> Result<Connection, UpstreamFault> {
        let origin = Rc::clone(permit.origin());
        let host = &origin.origin().host;
        if !matches!(wanted.reach, Reach::Configured) {
            // No URL has such a host, so nobody asks for it but a site of the configuration.
            return Err(UpstreamFault::out_of_reach());
        }
        let shared = &self.shared;
        if let Some(path) = socket_path(host) {
            if let Some(idle) = origin.idle_for(choice, wanted, handed_on, now) {
                origin.count(|counts| counts.reused += 1);
                return Ok(Connection::again(idle, permit, Rc::clone(shared), now));
            }
            origin.make_room();
            on(CallEvent::Connecting);
            let wire = shared.open_socket(path, connect_socket(path)).await.map(Wire::Unix);
            let (wire, header) = told(counted(wire, &permit)?, wanted, &origin).await?;
            return Ok(Connection::local((wire, Peer::Socket), header, permit, Rc::clone(shared)));
        }
        if let Some(idle) = handed_on {
            // It may be one to another process than the one that has room.
            origin.idle.park(idle);
        }
        let Some(mount) = shared.settings.mounts.find(host) else {
            let detail = format!("{host} is not configured any more");
            return Err(UpstreamFault::new(UpstreamFaultKind::Application, detail));
        };
        // One time for all tries: a process that takes places and no connections must not hold its requests for one time each.
        let deadline = Instant::now() + shared.settings.connect_timeout;
        for tries_left in (0..PROCESSES_TRIED_MAX).rev() {
            let room = if choice == ConnectionChoice::InTurn { Room::PlaceOrTurn } else { Room::Place };
            let lease = mount.lease(deadline.saturating_duration_since(Instant::now()), room).await;
            let lease = lease.map_err(|trouble| of_application(&mount, trouble, shared.settings.connect_timeout))?;
            let (peer, now) = (Peer::Process(lease.process().pid), Instant::now());
            let idle = match choice {
                ConnectionChoice::IdleAllowed | ConnectionChoice::InTurn => origin.idle.take_of(lease.process(), now),
                ConnectionChoice::NewOnly => None,
            };
            if let Some(mut idle) = idle {
                if let Wire::Mount(stream) = &mut idle.wire {
                    stream.begin(lease, now);
                }
                origin.count(|counts| counts.reused += 1);
                return Ok(Connection::again(idle, permit, Rc::clone(shared), now));
            }
            origin.make_room();
            on(CallEvent::Connecting);
            let path = lease.process().socket.clone();
            let wire = shared.open_socket(&path, MountStream::connect(lease)).await;
            match counted(wire.map(|stream| Wire::Mount(Box::new(stream))), &permit) {
                Ok(wire) => return Ok(Connection::local((wire, peer), None, permit, Rc::clone(shared))),
                // It has just ended, and nothing of the request was sent to it: another one has room, or will have.
                Err(fault) if fault.kind == UpstreamFaultKind::Refused && tries_left > 0 => {}
                Err(fault) => return Err(fault),
            }
        }
        Err(of_application(&mount, MountTrouble::Busy, shared.settings.connect_timeout))
    }
}

impl Upstreams {
    /// An application had all of its time for a request: people find that among its failures, where its stack is added.
    pub(super) fn note_hung(&self, call: &Call<'_>, fault: &UpstreamFault, pid: u32) {
        let Some(mount) = self.shared.settings.mounts.find(&call.to.host) else { return };
        let name = call.fields.get(REQUEST_NAME).unwrap_or_default();
        mount.failed(Failure {
            request: String::from_utf8_lossy(name).into_owned(),
            method: call.method.as_str().to_owned(),
            target: call.target.to_owned(),
            traceback: format!("{} (`request_time`)", fault.detail),
            ended: Some(pid),
            ..Failure::default()
        });
    }
}

/// Pieces of a gathered body that may wait for the process, and those that the client sends behind them.
const PIECES_MAX: usize = 4;

impl Upstreams {
    /// Gathers the body of a request to an application whose processes serve one request at a time, so that a slow client holds
    /// none of them. A body that is longer than the buffer, or for which the buffers have no room, passes as it comes from there on.
    pub(super) async fn gather(&self, call: &mut Call<'_>) -> Result<(), UpstreamFault> {
        let spool = self.shared.settings.mounts.find(&call.to.host).and_then(|mount| mount.request_spool(call.client));
        let (Some(mut spool), Some(body)) = (spool, &mut call.body) else { return Ok(()) };
        if call.fields.get("Expect").is_some_and(|expected| expected.eq_ignore_ascii_case(b"100-continue")) {
            (call.on)(CallEvent::Interim(ResponseHead::new(100)));
        }
        let end = loop {
            if !spool.has_room() {
                break None;
            }
            match body.pieces.recv().await {
                Some(Piece::Data(data)) => {
                    spool.push(data);
                    spool.settle().await;
                }
                Some(Piece::End(trailers)) => break Some(trailers),
                None => return Err(UpstreamFault::client_left()),
            }
        };
        body.is_gathered = true;
        if end.is_some() {
            body.length = RequestBody::Known(spool.bytes());
        }
        call.begins = Instant::now();
        let in_memory = end.is_some().then(|| spool.take_from_memory()).flatten();
        let (to, taken) = mpsc::channel(in_memory.as_ref().map_or(PIECES_MAX, |pieces| pieces.len() + 1));
        let rest = std::mem::replace(&mut body.pieces, taken.into());
        match (in_memory, end) {
            (Some(pieces), Some(trailers)) => {
                let pieces = pieces.into_iter().map(Piece::Data).chain([Piece::End(trailers)]);
                // There is room for all of them.
                pieces.for_each(|piece| drop(to.try_send(piece)));
            }
            (_, end) => drop(tokio::task::spawn_local(hand_on(spool, (end, rest), to))),
        }
        Ok(())
    }
}

/// Hands a gathered body on to the request, and behind it what the client still sends.
async fn hand_on(mut spool: Spool, (end, mut rest): (Option<Fields>, Pieces), to: mpsc::Sender<Piece>) {
    loop {
        match spool.take().await {
            Ok(Some(piece)) => {
                if to.send(Piece::Data(piece)).await.is_err() {
                    return;
                }
            }
            Ok(None) => break,
            Err(error) => {
                tracing::error!("a buffer of a request's body can't be read, so the request ends: {error}");
                return;
            }
        }
    }
    drop(spool);
    if let Some(trailers) = end {
        let _ = to.send(Piece::End(trailers)).await;
        return;
    }
    while let Some(piece) = rest.recv().await {
        if to.send(piece).await.is_err() {
            return;
        }
    }
}

/// Processes that one request tries to reach, where they end before it has reached them.
const PROCESSES_TRIED_MAX: u32 = 4;

/// The same connection, behind the header of the PROXY protocol that the request wants.
async fn told(
    mut wire: Wire,
    wanted: Wanted<'_>,
    origin: &OriginState,
) -> Result<(Wire, Option<Box<SentHeader>>), UpstreamFault> {
    let Some(header) = wanted.header else { return Ok((wire, None)) };
    begin_with(&mut wire, header).await?;
    origin.count(|counts| counts.proxy_headers += 1);
    Ok((wire, Some(Box::new(*header))))
}

fn counted(wire: Result<Wire, UpstreamFault>, permit: &Permit) -> Result<Wire, UpstreamFault> {
    permit.origin().count(|counts| match &wire {
        Ok(_) => counts.opened += 1,
        Err(_) => counts.failed += 1,
    });
    wire
}

impl Shared {
    /// Opens a connection to a socket within `connect_timeout`.
    async fn open_socket<T>(
        &self,
        path: &Path,
        connect: impl Future<Output = io::Result<T>>,
    ) -> Result<T, UpstreamFault> {
        let limit = self.settings.connect_timeout;
        match timeout(limit, connect).await {
            Ok(opened) => opened.map_err(|error| of_socket(path, &error)),
            Err(_) => {
                let detail = format!("{} accepted no connection within {} s", path.display(), limit.as_secs_f64());
                Err(UpstreamFault::new(UpstreamFaultKind::ConnectTimeout, detail))
            }
        }
    }
}

/// A socket could not be connected to.
fn of_socket(path: &Path, error: &io::Error) -> UpstreamFault {
    let (kind, hint) = match error.kind() {
        io::ErrorKind::NotFound => (UpstreamFaultKind::Refused, "; is the server running, and is this its socket?"),
        io::ErrorKind::ConnectionRefused => (UpstreamFaultKind::Refused, "; no server listens on it"),
        io::ErrorKind::PermissionDenied => {
            (UpstreamFaultKind::Unreachable, "; this user needs the right to write to the socket")
        }
        _ => (UpstreamFaultKind::Unreachable, ""),
    };
    UpstreamFault::new(kind, format!("{}: {error}{hint}", path.display()))
}

/// No process of an application could take a request.
fn of_application(mount: &Arc<MountState>, trouble: MountTrouble, waited: Duration) -> UpstreamFault {
    let name = &mount.mount().application.name;
    let seconds = waited.as_secs_f64();
    match trouble {
        MountTrouble::Failed(why) => {
            // The text of an exception may have secrets in it, and clients see this.
            let why = if mount.mount().python.debug { why } else { "`larder scripts` and the log say why".to_owned() };
            UpstreamFault::new(UpstreamFaultKind::Application, format!("{name} can't be loaded: {why}"))
        }
        MountTrouble::Starting => {
            let detail = format!("no process of {name} was ready within {seconds} s");
            UpstreamFault::new(UpstreamFaultKind::ConnectTimeout, detail)
        }
        MountTrouble::Busy => {
            let detail = format!("all processes of {name} were busy for {seconds} s");
            UpstreamFault::new(UpstreamFaultKind::Busy, detail)
        }
    }
}
