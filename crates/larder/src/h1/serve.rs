//! Serves the requests of a connection, one after the other.

use super::TunnelReply;
use super::connection::{Connection, End};
use super::head_cache::Request;
use super::quick::{self, Begun, Quick};
use super::render::Next;
use crate::env::{Env, PeerFacts, RecordGuard};
use crate::exchange::deliver::{self, Ended};
use crate::exchange::leave::{Intercepted, LeaveOutcome};
use crate::exchange::pace::Pace;
use crate::exchange::stream::ClientStream;
use crate::exchange::{Exchange, broken_page};
use crate::hook::{CallEnd, MadeCall};
use crate::outbox::Outbox;
use crate::page::Page;
use crate::request_body::RequestBody;
use crate::rules::{self, Limited};
use crate::tunnel::{self, Opening};
use bytes::BytesMut;
use larder_wire::framing::{self, Framing};
use larder_wire::{Method, RequestHead, Version, hop};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use tokio::sync::oneshot;

/// The first step of a connection that is served by a task.
pub enum Start {
    /// To write the outbox and read the next request.
    NextRequest,
    /// To run the exchange of a request that `h1::quick` did not answer.
    Request(Box<RequestHead>, Box<Begun>),
    /// To serve a CONNECT or an upgrade.
    LeaveHttp(Box<RequestHead>, RecordGuard),
    /// To write the outbox and close.
    Close,
}

/// How a connection goes on after all requests were answered that need no wait.
pub enum NextState {
    /// It waits for the next request, once the outbox is written.
    Waits,
    /// It is closed, once the outbox is written.
    Closes,
    /// It goes on in a task.
    NeedsTask(Box<Start>),
    /// It waits for hooks, which are to be asked.
    Asks(Box<Asking>),
}

/// A request whose exchange is to be run.
pub type BegunRequest = (Box<RequestHead>, Box<Begun>);

/// A plain GET that waits for its hooks without a task: most often all that is left to do then is to hand over a stored response.
pub struct Asking {
    request: Request,
    begun: Box<Begun>,
}

impl Asking {
    /// Asks the hooks; `None` where that needs a wait.
    pub fn call(&mut self, env: &Env, peer: &PeerFacts) -> Option<MadeCall> {
        let Begun { verdict, record, .. } = &mut *self.begun;
        rules::ask_at_once(env, peer, (&self.request, record.number), verdict.as_mut()?)
    }

    /// The same request, to be run in a task.
    pub fn into_begun(self) -> BegunRequest {
        (self.request.head, self.begun)
    }
}

impl NextState {
    /// Whether the connection closes.
    pub fn closes(&self) -> bool {
        matches!(self, NextState::Closes)
    }
}

/// Answers the requests in bytes that were read on a connection on which nothing else is under way.
pub fn serve_without_wait(connection: &mut Connection, mut read: &[u8]) -> NextState {
    let space = Rc::clone(&connection.space);
    let state = loop {
        let Some(mut request) = connection.request_of(&mut read) else {
            break NextState::NeedsTask(Box::new(Start::NextRequest));
        };
        // A memo that is valid holds for a GET with the same fields, which was seen to be no upgrade.
        if !request.memo_is_valid && leaves_http(&request) {
            let record = connection.space.env.begin_guarded(&request, &connection.peer);
            break NextState::NeedsTask(Box::new(Start::LeaveHttp(request.head, record)));
        }
        let next = match quick::try_answer(&space, connection, &mut request) {
            Quick::Answered => connection.next(),
            Quick::Waits(begun) if read.is_empty() && begun.needs_hooks_alone(&space.env) => {
                return NextState::Asks(Box::new(Asking { request, begun }));
            }
            Quick::Waits(begun) => break NextState::NeedsTask(Box::new(Start::Request(request.head, begun))),
        };
        space.heads.keep(connection.peer.address, request);
        match next {
            Next::Continue if read.is_empty() => return NextState::Waits,
            // A client that sends requests and reads no answers must not fill the outbox with them.
            Next::Continue if connection.is_full() => break NextState::NeedsTask(Box::new(Start::NextRequest)),
            Next::Continue => {}
            Next::Close | Next::Cut => break state_after(connection, next),
        }
    };
    connection.keep_unused(read);
    state
}

/// Answers a request whose call of hooks has ended; `Err` where it needs a further wait.
pub fn answer_asked(connection: &mut Connection, asking: Asking, end: CallEnd) -> Result<Next, BegunRequest> {
    let space = Rc::clone(&connection.space);
    let Asking { mut request, begun } = asking;
    match quick::answer_replied(&space, connection, &mut request, (*begun, end)) {
        Quick::Waits(begun) => Err((request.head, begun)),
        Quick::Answered => {
            space.heads.keep(connection.peer.address, request);
            Ok(connection.next())
        }
    }
}

/// How a connection without a task goes on after an answer, behind which no further request was read.
pub fn state_after(connection: &Connection, next: Next) -> NextState {
    if next == Next::Cut {
        connection.end_by_reset();
    }
    if next == Next::Continue { NextState::Waits } else { NextState::Closes }
}

/// Serves a connection to its end, or until it can be parked among the idle ones.
pub async fn serve(mut connection: Box<Connection>, start: Start) -> Option<Box<Connection>> {
    let mut given = match start {
        Start::NextRequest => None,
        Start::Request(request, begun) => Some((request, begun)),
        Start::LeaveHttp(request, record) => {
            connection = Box::pin(leave_http(connection, *request, record)).await?;
            None
        }
        Start::Close => {
            connection.close().await;
            return None;
        }
    };
    loop {
        let next = match given.take() {
            Some((request, begun)) => run(&mut connection, request, begun).await,
            None => match connection.next_request().await {
                Ok(request) if leaves_http(&request) => {
                    let record = connection.space.env.begin_guarded(&request, &connection.peer);
                    // Rare and large: boxed, so that every connection's task stays small.
                    connection = Box::pin(leave_http(connection, *request.head, record)).await?;
                    continue;
                }
                Ok(mut request) => {
                    let space = Rc::clone(&connection.space);
                    let answer = || quick::try_answer(&space, &mut *connection, &mut request);
                    match catch_unwind(AssertUnwindSafe(answer)) {
                        Ok(Quick::Answered) => {
                            space.heads.keep(connection.peer.address, request);
                            connection.next()
                        }
                        Ok(Quick::Waits(begun)) if begun.needs_hooks_alone(&space.env) => {
                            // Boxed, so that every connection's task stays small.
                            Box::pin(ask_and_run(&mut connection, Asking { request, begun })).await
                        }
                        Ok(Quick::Waits(begun)) => run(&mut connection, request.head, begun).await,
                        Err(_) => broken(&mut connection),
                    }
                }
                Err(End::Idle) => return Some(connection),
                Err(End::Http2) => {
                    // Boxed, so that every connection's task stays small.
                    connection.speak_http2().await;
                    return None;
                }
                Err(end) => {
                    Box::pin(refuse(connection, &end)).await;
                    return None;
                }
            },
        };
        match next {
            // A client that sends requests and reads no answers must not fill the outbox with them.
            Next::Continue if connection.flush_if_full().await.is_ok() => {}
            Next::Close => {
                connection.close().await;
                return None;
            }
            Next::Continue | Next::Cut => return None,
        }
    }
}

/// Asks the hooks of a request on a connection that has a task, and answers it or runs its exchange.
async fn ask_and_run(connection: &mut Connection, mut asking: Asking) -> Next {
    let env = Rc::clone(&connection.space.env);
    let begun = match asking.call(&env, &connection.peer) {
        None => asking.into_begun(),
        Some(call) => {
            let (ended, end) = oneshot::channel();
            call.then(move |end| drop(ended.send(end)));
            // The answers to earlier requests of the connection do not wait for a process.
            let _ = connection.flush().await;
            let Ok(end) = end.await else { return Next::Close };
            match catch_unwind(AssertUnwindSafe(|| answer_asked(connection, asking, end))) {
                Ok(Ok(next)) => return next,
                Ok(Err(begun)) => begun,
                Err(_) => return broken(connection),
            }
        }
    };
    run(connection, begun.0, begun.1).await
}

/// Runs the exchange of a request that is not answered at once.
async fn run(connection: &mut Connection, request: Box<RequestHead>, begun: Box<Begun>) -> Next {
    let exchange = exchange(connection, *request, *begun);
    let ended = exchange.run(connection).await;
    after(connection, ended).await
}

fn exchange(connection: &mut Connection, request: RequestHead, begun: Begun) -> Exchange {
    let Begun { verdict, record, key } = begun;
    let body = RequestBody::of(&request);
    begin_body(connection, &request);
    Exchange { request: Rc::new(request), record, verdict, key, body }
}

/// Begins with the body of a request.
fn begin_body(connection: &mut Connection, request: &RequestHead) {
    connection.begin_upload(framing::of_request(request).unwrap_or(Framing::None));
}

/// Decides how a connection goes on after an exchange. The next request can only be read after the rest of this one's body, so
/// that rest is read and dropped if it is short; the answer is written before that.
async fn after(connection: &mut Connection, ended: Ended) -> Next {
    let next = if ended == Ended::Broken { Next::Cut } else { connection.next() };
    let is_drained = next != Next::Continue
        || connection.upload.is_none()
        || (connection.flush().await.is_ok() && connection.drain_upload().await);
    if is_drained { next } else { Next::Close }
}

fn leaves_http(request: &RequestHead) -> bool {
    request.method == Method::Connect || upgrades(request)
}

/// Whether a request is an upgrade. The offer is ignored in HTTP/1.0, with a body (whose end two protocols would have to agree
/// on) and with PURGE: such a request is served as any other (RFC 9110 section 7.8).
fn upgrades(request: &RequestHead) -> bool {
    request.version == Version::Http11
        && request.method.as_str() != "PURGE"
        && hop::upgrade(&request.fields).is_some()
        && framing::of_request(request) == Ok(Framing::None)
}

/// Serves a CONNECT or an upgrade; gives the connection back if HTTP goes on, with the client or inside an opened tunnel.
async fn leave_http(
    mut connection: Box<Connection>,
    request: RequestHead,
    record: RecordGuard,
) -> Option<Box<Connection>> {
    let begun = Begun { verdict: None, record, key: None };
    let leaving = exchange(&mut connection, request, begun).leave(&mut *connection).await;
    match (leaving.outcome, leaving.record) {
        (LeaveOutcome::Answered(ended), _) => {
            if let Some((reply, status)) = connection.takes_tunnel_reply() {
                refuse_tunnel(connection, reply, status).await;
                return None;
            }
            let next = after(&mut connection, ended).await;
            return go_on(connection, next).await;
        }
        (LeaveOutcome::Tunnel { origin, read, held, limits }, Some(record)) => {
            pass(connection, (origin, read), limits, record).await;
            drop(held);
        }
        (LeaveOutcome::Intercept(host, port, intercepted), Some(record)) => {
            return open(connection, (host, port), intercepted, record).await;
        }
        (LeaveOutcome::Tunnel { .. } | LeaveOutcome::Intercept(..), None) => {}
    }
    None
}

/// Serves a connection that wants a tunnel without having asked for it by HTTP: as if this CONNECT had come, but for its answer.
pub async fn serve_tunnel(mut connection: Box<Connection>, connect: RequestHead) {
    connection.asks_for_tunnel();
    let record = connection.space.env.begin_guarded(&connect, &connection.peer);
    if let Some(connection) = Box::pin(leave_http(connection, connect, record)).await {
        serve(connection, Start::NextRequest).await;
    }
}

/// Ends a connection whose client waits for a tunnel, and gets none.
async fn refuse_tunnel(mut connection: Box<Connection>, reply: TunnelReply, status: u16) {
    let Some(refused) = reply.refused else { return connection.end_by_reset() };
    let bytes = refused(status);
    connection.outbox = Outbox::default();
    connection.outbox.own(|out| out.extend_from_slice(&bytes));
    connection.close().await;
}

/// Writes the outbox and hands the connection to a tunnel.
async fn pass(
    mut connection: Box<Connection>,
    origin: (crate::wire::Wire, BytesMut),
    limits: Option<Rc<[Limited]>>,
    mut record: RecordGuard,
) {
    if connection.flush().await.is_err() {
        return record.breaks_off("client-gone", "the client left before the tunnel stood");
    }
    let env = Rc::clone(&connection.space.env);
    let client = connection.into_parts();
    let pace = limits.and_then(|limits| Pace::under(&env, &limits));
    tunnel::splice(&env, client, origin, pace, record).await;
}

/// Answers a CONNECT whose TLS may be intercepted; gives the connection inside the tunnel, if HTTP in TLS is spoken there.
async fn open(
    mut connection: Box<Connection>,
    (host, port): (larder_wire::Host, u16),
    tunnel: Intercepted,
    mut record: RecordGuard,
) -> Option<Box<Connection>> {
    record.status = 200;
    connection.open_tunnel();
    if connection.flush().await.is_err() {
        record.breaks_off("client-gone", "the client left before the tunnel stood");
        return None;
    }
    let (space, peer) = (Rc::clone(&connection.space), connection.peer.clone());
    let opening = Opening { env: &space.env, heads: &space.heads_under_way, interception: &space.interception };
    let (wire, peer) = opening.open(&peer, connection.into_parts(), (host, port), (&tunnel, record)).await?;
    if wire.speaks_http2() {
        (space.http2)(space, peer, wire, BytesMut::new()).await;
        return None;
    }
    Some(Connection::new(space, peer, wire, BytesMut::new()))
}

/// Gives the connection back for the next request, or closes it, or cuts it.
async fn go_on(connection: Box<Connection>, next: Next) -> Option<Box<Connection>> {
    match next {
        Next::Continue => return Some(connection),
        Next::Close => connection.close().await,
        Next::Cut => {}
    }
    None
}

/// Ends a connection on which no further request came, with an error page where the client may still read one.
async fn refuse(mut connection: Box<Connection>, end: &End) {
    let env = Rc::clone(&connection.space.env);
    if matches!(end, End::Fault(_)) {
        env.tally.faults.add(1);
    }
    match page_for_end(end) {
        Some(page) => {
            answer_no_request(&mut connection, &page);
            connection.close().await;
        }
        None => {
            if connection.is_in_head() {
                env.finish_unanswered(&connection.peer.listener, connection.peer.address, "client-gone");
            }
            let _ = connection.flush().await;
        }
    }
}

/// Answers bytes that were no request by an error page, and records that.
pub fn answer_no_request(connection: &mut Connection, page: &Page) {
    let env = Rc::clone(&connection.space.env);
    deliver::send_page(connection, page, false, crate::clock::now(), None);
    env.finish_refused(&connection.peer.listener, connection.peer.address, page);
}

/// The error page for the end of a connection; `None` where nobody waits for an answer.
fn page_for_end(end: &End) -> Option<Page> {
    match end {
        End::Fault(fault) => Some(rules::fault_page(fault.kind, fault.detail)),
        End::Late => Some(deliver::request_timeout()),
        End::Unfinished => Some(deliver::client_gone()),
        End::Crowded => Some(
            Page::new(
                503,
                "heads-bytes-max",
                "The heads of requests that are under way take as much memory as they may.",
                "Send it again in a moment, in one piece.",
            )
            .closing()
            .with("Retry-After", "5"),
        ),
        End::Quiet | End::Broken | End::Idle | End::Http2 => None,
    }
}

/// Answers a request that met a broken invariant in `h1::quick`, and ends the connection. The unwinding dropped the request's
/// record, so a new one is made.
pub fn broken(connection: &mut Connection) -> Next {
    let env = Rc::clone(&connection.space.env);
    env.tally.panics.add(1);
    let page = broken_page();
    if connection.answer_began {
        env.finish_unanswered(&connection.peer.listener, connection.peer.address, page.word);
        connection.end_by_reset();
        return Next::Cut;
    }
    answer_no_request(connection, &page);
    Next::Close
}

mod nodes;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_hooks;

pub use nodes::serve_node;
