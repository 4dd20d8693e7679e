//! A request that was read: its head is judged, and its exchange begins.

use super::Link;
use super::meters::Flood;
use super::state::Trouble;
use super::stream::Stream;
use super::websocket;
use crate::clock;
use crate::exchange::leave::LeaveOutcome;
use crate::exchange::pace::Pace;
use crate::exchange::stream::ClientStream;
use crate::exchange::{self, Exchange, broken_page, deliver};
use crate::h1::head_cache::Request;
use crate::h1::quick::{self, Begun, Quick};
use crate::h1::{self, Connection, Start};
use crate::multiplexed::authority::{is_misdirected, misdirected, target_form};
use crate::multiplexed::head::{self, HeadFault};
use crate::page::Page;
use crate::permit::{Full, StreamPermit};
use crate::request_body::RequestBody;
use crate::rules;
use crate::tunnel::{self, Opening};
use bytes::BytesMut;
use larder_wire::framing::{self, Framing};
use larder_wire::h2::ErrorCode;
use larder_wire::parse::{HeadScan, Parsed};
use larder_wire::{Fault, Method, RequestHead, Version};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// Begins the request whose fields the state has. Gives its stream where the answer is handed over already and may be sent at once.
pub fn begin(link: &Rc<Link>, stream: u32, ends_stream: bool) -> Result<Option<Stream>, Trouble> {
    let mut request = match read(link, ends_stream) {
        Ok(request) => request,
        Err(HeadFault::Malformed(detail)) => return reset_malformed(link, stream, detail).map(|()| None),
        Err(HeadFault::Refused(fault)) => {
            refuse(link, stream, &fault);
            return Ok(None);
        }
    };
    let length = match framing::of_request(&request) {
        Ok(Framing::Length(bytes)) => Some(bytes),
        _ => None,
    };
    if ends_stream && length.is_some_and(|bytes| bytes > 0) {
        return reset_malformed(link, stream, "no DATA where Content-Length says more").map(|()| None);
    }
    link.state.borrow_mut().begin(stream, length, request.fields.get("Priority"));
    if is_misdirected(&link.space.env, &link.peer, &request) {
        answer_by(link, stream, &request, &misdirected());
        return Ok(None);
    }
    let is_extended = head::protocol(&link.state.borrow().fields).is_some();
    let mut transport = Stream::new(link, stream);
    if is_extended || request.method == Method::Connect {
        leave_http(link, stream, transport, request.head, is_extended);
        return Ok(None);
    }
    let answered = catch_unwind(AssertUnwindSafe(|| quick::try_answer(&link.space, &mut transport, &mut request)));
    match answered {
        Ok(Quick::Answered) => {
            // The next head is compared with the text that this one was read from.
            request.head.version = Version::Http11;
            link.space.heads.keep(link.peer.address, request);
            return Ok(Some(transport));
        }
        Ok(Quick::Waits(begun)) => run_if_permitted(link, stream, transport, (request.head, *begun)),
        Err(_) => broken(link, stream, transport),
    }
    Ok(None)
}

/// Reads the fields that the state has by the parser of HTTP/1.1.
fn read(link: &Link, ends_stream: bool) -> Result<Request, HeadFault> {
    let mut state = link.state.borrow_mut();
    let mut text = std::mem::take(&mut state.text);
    let form = |authority: &[u8]| target_form(&link.space.env, &link.peer, authority);
    let space = &link.space;
    let parsed = head::write(&state.fields, ends_stream, form, &mut text).and_then(|()| {
        let scan =
            |before: &mut Option<Box<RequestHead>>| HeadScan::new().request_after(before, &text, &space.head_limits);
        space.heads.read(link.peer.address, scan).map_err(HeadFault::Refused)
    });
    let length = text.len();
    state.text = text;
    match parsed? {
        Parsed::Complete { head: mut request, len } if len == length => {
            request.head.version = Version::Http2;
            Ok(request)
        }
        _ => Err(HeadFault::Malformed("a head that ends elsewhere than its fields say")),
    }
}

/// Runs the exchange of a request, unless its client has as many under way as it may have connections. The first one of a connection
/// needs no further permit.
fn run_if_permitted(link: &Rc<Link>, number: u32, mut stream: Stream, (head, begun): (Box<RequestHead>, Begun)) {
    match permit(link) {
        Ok(permit) => run(link, number, stream, (head, begun, permit)),
        Err(full) => {
            let mut record = begun.record;
            deliver::deliver_page(&mut stream, &head, &full.page(), &mut record);
            record.finish();
            finish(link, number, stream);
        }
    }
}

fn permit(link: &Link) -> Result<Option<StreamPermit>, Full> {
    let space = &link.space;
    if link.state.borrow().streams() <= 1 {
        return Ok(None);
    }
    let permit = StreamPermit::take(&space.connections, &space.env, link.peer.address.ip());
    if permit.is_err() {
        space.env.tally.connections_refused.add(1);
    }
    permit.map(Some)
}

/// Serves a CONNECT, or a request to open a WebSocket, in a task of its own.
fn leave_http(link: &Rc<Link>, number: u32, stream: Stream, mut head: Box<RequestHead>, is_extended: bool) {
    let mut key = None;
    if is_extended {
        if !head.fields.text("Upgrade").is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket")) {
            return answer_by(link, number, &head, &no_protocol());
        }
        if framing::of_request(&head) != Ok(Framing::None) {
            return answer_by(link, number, &head, &no_body());
        }
        let Some(new_key) = websocket::new_key() else { return broken(link, number, stream) };
        head.fields.remove("Sec-WebSocket-Key");
        head.fields.push("Sec-WebSocket-Key", &*new_key);
        key = Some(new_key);
    }
    let permit = match permit(link) {
        Ok(permit) => permit,
        Err(full) => return answer_by(link, number, &head, &full.page()),
    };
    let record = exchange::begin(&link.space.env, &link.peer, &head);
    let body = RequestBody::of(&head);
    let exchange = Exchange { request: Rc::new(*head), record, verdict: None, key: None, body };
    let stream = stream.of_tunnel(key);
    let begun_at = Rc::clone(link);
    let task = tokio::task::spawn_local(Box::pin(async move {
        serve_tunnel(&begun_at, exchange, stream).await;
        drop(permit);
    }));
    link.state.borrow_mut().served_by(number, task.abort_handle());
}

/// Serves a request that leaves HTTP, and the tunnel that it opens.
async fn serve_tunnel(link: &Rc<Link>, exchange: Exchange, mut stream: Stream) {
    let space = Rc::clone(&link.space);
    let leaving = exchange.leave(&mut stream).await;
    let nothing = BytesMut::new();
    match (leaving.outcome, leaving.record) {
        (LeaveOutcome::Tunnel { origin, read, held, limits }, Some(record)) => {
            let pace = limits.and_then(|limits| Pace::under(&space.env, &limits));
            tunnel::splice(&space.env, (stream.into_wire(), nothing), (origin, read), pace, record).await;
            drop(held);
        }
        (LeaveOutcome::Intercept(host, port, intercepted), Some(mut record)) => {
            record.status = 200;
            stream.open_tunnel();
            let opening = Opening { env: &space.env, heads: &space.heads_under_way, interception: &space.interception };
            let client = (stream.into_wire(), nothing);
            let opened = opening.open(&link.peer, client, (host, port), (&intercepted, record)).await;
            let Some((wire, peer)) = opened else { return };
            match wire.speaks_http2() {
                true => (space.http2)(Rc::clone(&space), peer, wire, BytesMut::new()).await,
                false => {
                    h1::serve(Connection::new(space, peer, wire, BytesMut::new()), Start::NextRequest).await;
                }
            }
        }
        _ => stream.finish().await,
    }
}

/// Runs the exchange of a request in a task of its own.
fn run(
    link: &Rc<Link>,
    number: u32,
    mut stream: Stream,
    (head, begun, permit): (Box<RequestHead>, Begun, Option<StreamPermit>),
) {
    let body = RequestBody::of(&head);
    let Begun { verdict, record, key } = begun;
    let exchange = Exchange { request: Rc::new(*head), record, verdict, key, body };
    // Boxed: the runtime moves a task's future three times from place to place.
    let task = tokio::task::spawn_local(Box::pin(async move {
        exchange.run(&mut stream).await;
        stream.finish().await;
        drop(permit);
    }));
    link.state.borrow_mut().served_by(number, task.abort_handle());
}

/// Answers a request that met a broken invariant. The unwinding dropped its record, so a new one is made.
fn broken(link: &Rc<Link>, number: u32, mut stream: Stream) {
    let env = &link.space.env;
    env.tally.panics.add(1);
    let page = broken_page();
    if stream.answer_has_begun() {
        env.finish_unanswered(&link.peer.listener, link.peer.address, page.word);
        return stream.break_off();
    }
    deliver::send_page(&mut stream, &page, false, clock::now(), None);
    env.finish_refused(&link.peer.listener, link.peer.address, &page);
    finish(link, number, stream);
}

/// Answers a request by a page.
fn answer_by(link: &Rc<Link>, number: u32, head: &RequestHead, page: &Page) {
    let mut stream = Stream::new(link, number);
    let mut record = exchange::begin(&link.space.env, &link.peer, head);
    deliver::deliver_page(&mut stream, head, page, &mut record);
    record.finish();
    finish(link, number, stream);
}

/// Answers a head that the parser refuses by an error page, as over HTTP/1.1.
fn refuse(link: &Rc<Link>, number: u32, fault: &Fault) {
    let env = &link.space.env;
    env.tally.faults.add(1);
    let mut stream = Stream::new(link, number);
    let page = rules::fault_page(fault.kind, fault.detail);
    deliver::send_page(&mut stream, &page, false, clock::now(), None);
    env.finish_refused(&link.peer.listener, link.peer.address, &page);
    finish(link, number, stream);
}

/// Waits in a task until the client has taken an answer.
pub fn finish(link: &Rc<Link>, number: u32, stream: Stream) {
    let task = tokio::task::spawn_local(stream.finish());
    link.state.borrow_mut().served_by(number, task.abort_handle());
}

fn reset_malformed(link: &Rc<Link>, stream: u32, detail: &'static str) -> Result<(), Trouble> {
    let (env, peer) = (&link.space.env, &link.peer);
    tracing::debug!(client = %peer.address, detail, "a malformed request of HTTP/2");
    env.tally.faults.add(1);
    env.finish_unanswered(&peer.listener, peer.address, "http2-malformed");
    let mut state = link.state.borrow_mut();
    state.reset(stream, ErrorCode::Protocol);
    state.note(Flood::MadeReset)
}

fn no_protocol() -> Page {
    let what = "A stream of HTTP/2 can carry a WebSocket here, and no other protocol.";
    Page::new(501, "http2-protocol", what, "Ask for the protocol by HTTP/1.1.")
}

fn no_body() -> Page {
    let what = "A request to open a WebSocket has no body.";
    Page::new(400, "connect-body", what, "Send the bytes once the WebSocket is open.")
}
