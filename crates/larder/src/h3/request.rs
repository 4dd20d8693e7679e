//! A request that comes: its head is judged, and its exchange begins.

use super::inbound::ReadEnd;
use super::meters::Flood;
use super::stream::Stream;
use super::{Link, stream_number};
use crate::clock;
use crate::exchange::stream::ClientStream;
use crate::exchange::{self, Exchange, broken_page, deliver};
use crate::h1::head_cache::Request;
use crate::h1::quick::{self, Begun, Quick};
use crate::multiplexed::authority::{is_misdirected, misdirected, target_form};
use crate::multiplexed::head::{self, HeadFault};
use crate::page::Page;
use crate::permit::{Full, StreamPermit};
use crate::request_body::RequestBody;
use crate::rules;
use crate::ticker::Wait;
use larder_wire::framing::{self, Framing};
use larder_wire::h2::hpack::FieldList;
use larder_wire::h3::{ErrorCode, Scope};
use larder_wire::parse::{HeadScan, Parsed};
use larder_wire::{Fault, FaultKind, Method, RequestHead, Version};
use quinn::{RecvStream, SendStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// Serves the request of a stream, in a task of its own.
pub fn begin(link: &Rc<Link>, send: SendStream, receive: RecvStream) {
    link.space.connections.visitors.requests(link.peer.address.ip(), 1);
    let open = OpenStream::begin(link, stream_number(send.id()));
    // Boxed: the runtime moves a task's future three times from place to place.
    tokio::task::spawn_local(Box::pin(serve(open, send, receive)));
}

/// Serves a request. A client that does not want the answer any more ends the exchange, as one of HTTP/1.1 that leaves.
async fn serve(open: OpenStream, send: SendStream, receive: RecvStream) {
    let link = &open.0;
    let stopped = send.stopped();
    let stream = Stream::new(link, send, receive);
    tokio::select! {
        () = serve_request(link, stream) => {}
        stopped = stopped => if matches!(stopped, Ok(Some(_))) {
            link.gives_up();
            link.note(Flood::RapidReset);
        },
    }
}

/// A stream with a request, counted for as long as this lives.
struct OpenStream(Rc<Link>, u64);

impl OpenStream {
    fn begin(link: &Rc<Link>, number: u64) -> OpenStream {
        link.begins(number);
        OpenStream(Rc::clone(link), number)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.ends(self.1);
    }
}

/// Why a request is not begun.
enum HeadEnd {
    Read(ReadEnd),
    Late,
    Head(HeadFault),
}

impl From<ReadEnd> for HeadEnd {
    fn from(end: ReadEnd) -> HeadEnd {
        HeadEnd::Read(end)
    }
}

impl From<HeadFault> for HeadEnd {
    fn from(fault: HeadFault) -> HeadEnd {
        HeadEnd::Head(fault)
    }
}

async fn serve_request(link: &Rc<Link>, mut stream: Stream) {
    let mut request = match read(link, &mut stream).await {
        Ok(request) => request,
        Err(end) => return refuse(link, stream, end).await,
    };
    stream.prioritise(request.fields.get("Priority"));
    if request.method == Method::Connect || request.fields.contains("Upgrade") {
        return answer_by(stream, &request, &no_connect()).await;
    }
    if is_misdirected(link.env(), stream.peer(), &request) {
        return answer_by(stream, &request, &misdirected()).await;
    }
    let answered = catch_unwind(AssertUnwindSafe(|| quick::try_answer(&link.space, &mut stream, &mut request)));
    match answered {
        Ok(Quick::Answered) => {
            // The next head is compared with the text that this one was read from.
            request.head.version = Version::Http11;
            link.space.heads.keep(stream.peer().address, request);
            stream.finish().await;
        }
        Ok(Quick::Waits(begun)) => run_if_permitted(link, stream, (request.head, *begun)).await,
        Err(_) => broken(link, stream).await,
    }
}

/// Reads a head by the parser of HTTP/1.1, within `timeouts.head`.
async fn read(link: &Rc<Link>, stream: &mut Stream) -> Result<Request, HeadEnd> {
    let env = Rc::clone(link.env());
    let limit = env.config().timeouts.head;
    let inbound = &mut stream.inbound;
    let reading = async {
        let Some(fields) = inbound.head().await? else {
            let fault = Fault::client(FaultKind::HeadTooLong, "the fields are longer than head_bytes_max");
            return Err(HeadFault::Refused(fault).into());
        };
        // The end of such a request tells that it has no body, and comes with it nearly always. One with too many fields is refused
        // anyway.
        let waits = has_no_body_by_habit(&fields) && fields.len() <= link.space.head_limits.fields_max;
        let ends_stream = inbound.ends_with_head(waits.then(|| fields.size())).await?;
        let request = parse(link, &fields, ends_stream)?;
        link.fields.replace(fields);
        let length = match framing::of_request(&request) {
            Ok(Framing::Length(bytes)) => Some(bytes),
            _ => None,
        };
        inbound.expect(length)?;
        Ok(request)
    };
    let read = env.ticker.timer().limit(limit, Wait::Busy, reading).await;
    read.unwrap_or(Err(HeadEnd::Late))
}

/// A GET or a HEAD that states no length.
fn has_no_body_by_habit(fields: &FieldList) -> bool {
    let mut is_get = false;
    for (name, value) in fields.iter() {
        match name {
            b":method" => is_get = matches!(value, b"GET" | b"HEAD"),
            b"content-length" => return false,
            _ => {}
        }
    }
    is_get
}

fn parse(link: &Link, fields: &FieldList, ends_stream: bool) -> Result<Request, HeadFault> {
    let peer = &link.peer;
    let mut text = link.text.borrow_mut();
    let form = |authority: &[u8]| target_form(link.env(), peer, authority);
    head::write(fields, ends_stream, form, &mut text)?;
    let space = &link.space;
    let scan = |before: &mut Option<Box<RequestHead>>| HeadScan::new().request_after(before, &text, &space.head_limits);
    match space.heads.read(peer.address, scan).map_err(HeadFault::Refused)? {
        Parsed::Complete { head: mut request, len } if len == text.len() => {
            request.head.version = Version::Http3;
            Ok(request)
        }
        _ => Err(HeadFault::Malformed("a head that ends elsewhere than its fields say")),
    }
}

/// Ends a stream whose request is not begun.
async fn refuse(link: &Rc<Link>, mut stream: Stream, end: HeadEnd) {
    let word = match end {
        HeadEnd::Head(HeadFault::Refused(fault)) => return refuse_by_page(link, stream, &fault).await,
        HeadEnd::Read(ReadEnd::Gone) => return,
        HeadEnd::Read(ReadEnd::GivenUp) => return link.note(Flood::RapidReset),
        HeadEnd::Read(ReadEnd::Fault(fault)) => {
            stream.reset(fault.code);
            if fault.scope == Scope::Stream {
                unanswered(link, &stream, "http3-malformed");
            }
            return link.fault(fault);
        }
        HeadEnd::Head(HeadFault::Malformed(detail)) => {
            tracing::debug!(client = %stream.peer().address, detail, "a malformed request of HTTP/3");
            stream.reset(ErrorCode::Message);
            "http3-malformed"
        }
        HeadEnd::Late => {
            stream.reset(ErrorCode::RequestIncomplete);
            "request-timeout"
        }
        HeadEnd::Read(ReadEnd::Crowded) => {
            stream.reset(ErrorCode::ExcessiveLoad);
            "heads-bytes-max"
        }
    };
    unanswered(link, &stream, word);
    link.note(Flood::MadeReset);
}

fn unanswered(link: &Link, stream: &Stream, word: &'static str) {
    let peer = stream.peer();
    link.env().tally.faults.add(1);
    link.env().finish_unanswered(&peer.listener, peer.address, word);
}

/// Answers a head that the parser refuses by an error page, as over HTTP/1.1.
async fn refuse_by_page(link: &Rc<Link>, mut stream: Stream, fault: &Fault) {
    let env = link.env();
    env.tally.faults.add(1);
    let page = rules::fault_page(fault.kind, fault.detail);
    deliver::send_page(&mut stream, &page, false, clock::now(), None);
    record_page(link, &stream, &page);
    stream.finish().await;
}

/// Runs the exchange of a request, unless its client has as many under way as it may have connections. The first one of a connection
/// needs no further permit.
async fn run_if_permitted(link: &Rc<Link>, mut stream: Stream, (head, begun): (Box<RequestHead>, Begun)) {
    let permit = match permit(link, &stream) {
        Ok(permit) => permit,
        Err(full) => {
            let mut record = begun.record;
            deliver::deliver_page(&mut stream, &head, &full.page(), &mut record);
            record.finish();
            return stream.finish().await;
        }
    };
    let body = RequestBody::of(&head);
    let Begun { verdict, record, key } = begun;
    let exchange = Exchange { request: Rc::new(*head), record, verdict, key, body };
    exchange.run(&mut stream).await;
    stream.finish().await;
    drop(permit);
}

fn permit(link: &Link, stream: &Stream) -> Result<Option<StreamPermit>, Full> {
    let space = &link.space;
    if link.streams() <= 1 {
        return Ok(None);
    }
    let permit = StreamPermit::take(&space.connections, &space.env, stream.peer().address.ip());
    if permit.is_err() {
        space.env.tally.connections_refused.add(1);
    }
    permit.map(Some)
}

/// Answers a request that met a broken invariant. The unwinding dropped its record, so a new one is made.
/// Records an answer by a page, or the small one that its client got in its place.
fn record_page(link: &Link, stream: &Stream, page: &Page) {
    let (env, peer) = (link.env(), stream.peer());
    match stream.refused() {
        Some((status, word)) => env.finish_refused(&peer.listener, peer.address, &Page::new(status, word, "", "")),
        None => env.finish_refused(&peer.listener, peer.address, page),
    }
}

async fn broken(link: &Rc<Link>, mut stream: Stream) {
    let env = link.env();
    env.tally.panics.add(1);
    let page = broken_page();
    if stream.answer_has_begun() {
        env.finish_unanswered(&stream.peer().listener, stream.peer().address, page.word);
        return stream.break_off();
    }
    deliver::send_page(&mut stream, &page, false, clock::now(), None);
    record_page(link, &stream, &page);
    stream.finish().await;
}

/// Answers a request by a page.
async fn answer_by(mut stream: Stream, head: &RequestHead, page: &Page) {
    let mut record = exchange::begin(stream.env(), stream.peer(), head);
    deliver::deliver_page(&mut stream, head, page, &mut record);
    record.finish();
    stream.finish().await;
}

fn no_connect() -> Page {
    let what = "Larder opens no tunnels and no WebSockets over HTTP/3.";
    Page::new(501, "http3-connect", what, "Ask by HTTP/2 or HTTP/1.1.")
}
