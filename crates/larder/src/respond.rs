//! Delivers an answer to a client: head, body at the client's pace, ranges, conditions.
//!
//! Stored, followed and passed answers come through the same code; what differs is the reader's origin,
//! and the outcome that says so.

use crate::fetch::Refill;
use crate::page::Page;
use crate::presence::Presence;
use crate::reach;
use crate::record::{Cause, Id, Outcome, Record};
use crate::session::{End, Session};
use crate::upload::Upload;
use bytes::Bytes;
use larder_cache::cache::{Tier, Whole};
use larder_cache::entry::{Failure, Kept, Reader, Stop};
use larder_cache::policy::{self, Precondition};
use larder_wire::date::Stamp;
use larder_wire::range::{self, ContentRange};
use larder_wire::{Fields, Method, RequestHead, Version, encode, head};
use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;

/// What a request is answered with.
pub enum Answer {
    /// Something of our own making.
    Page(Page),
    /// A response, from wherever its reader reads it.
    Entry {
        /// Reads the body.
        reader: Reader,
        /// The head.
        kept: Arc<Kept>,
        /// How it came about.
        outcome: Outcome,
        /// The origin has answered this very request, conditions and ranges included.
        verbatim: bool,
        /// How to get what is missing of it.
        refill: Option<Box<Refill>>,
    },
}

/// Whether the connection serves another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It does.
    Continue,
    /// It is closed after what was said.
    Close,
    /// It is cut: what was said is not whole, and the client must not take it for whole.
    Cut,
}

/// How a body goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carriage {
    /// No body.
    None,
    /// With its length said before.
    Length,
    /// In chunks, for want of a length.
    Chunked,
    /// Until the connection closes: for HTTP/1.0.
    UntilClose,
}

/// The longest body that goes into the outbox at once. A longer one is handed out by and by, so that what a slow client has
/// not taken yet stays in the entry, where the budget of the store counts it.
pub const WHOLE_BYTES_MAX: u64 = 256 * 1024;

/// How many body bytes are asked of an entry at first.
const READ_BYTES: u64 = 256 * 1024;

/// How many are asked of it by and by when a client takes them as fast as they are written.
const READ_BYTES_MAX: u64 = 1024 * 1024;

/// Answers one request.
pub async fn respond(
    session: &mut Session,
    request: &RequestHead,
    answer: Answer,
    upload: &mut Option<Upload>,
    record: &mut Record,
) -> Next {
    // An answer that comes before the request is over ends the connection: whether the rest will come, nobody knows.
    let keep = request.keeps_alive() && !session.is_draining() && session.upload_is_over();
    match answer {
        Answer::Page(page) => respond_page(session, request, &page, keep, record),
        Answer::Entry { reader, kept, outcome, verbatim, refill } => {
            let name = name(session, record);
            let delivery = Delivery { request, kept: &kept, outcome, verbatim, keep, now: record.stamp(), name };
            record.status = kept.head.status;
            record.outcome = outcome;
            record.not_stored = kept.not_stored().map(|why| why.as_str());
            record.typed(&kept.head);
            let mut source = Source { reader, refill };
            let next = deliver(session, delivery, &mut source, upload, record).await;
            if record.complete {
                source.fetch_rest();
            }
            next
        }
    }
}

/// Puts a whole stored response into the outbox, without a wait.
pub fn whole(session: &mut Session, request: &RequestHead, whole: &Whole<'_>, record: &mut Record) -> Next {
    let &Whole { kept, length, .. } = whole;
    record.status = kept.head.status;
    record.outcome = Outcome::Hit;
    record.bytes = length;
    record.complete = true;
    record.typed(&kept.head);
    let keep = request.keeps_alive() && !session.is_draining();
    let (outcome, now, name) = (Outcome::Hit, record.stamp(), name(session, record));
    let delivery = Delivery { request, kept, outcome, verbatim: false, keep, now, name };
    let next = begin(session, &delivery, Some(length), Carriage::Length);
    whole.each(|bytes, part| session.outbox.part_of(bytes, part));
    session.hurries |= whole.tier() == Tier::Disk;
    next
}

/// Nothing in these fields asks for anything but the whole response.
pub fn is_plain(fields: &Fields) -> bool {
    !fields.contains("Range") && !has_conditions(fields)
}

/// What is known before the first byte goes out.
struct Delivery<'a> {
    request: &'a RequestHead,
    kept: &'a Kept,
    outcome: Outcome,
    verbatim: bool,
    keep: bool,
    now: Stamp,
    /// The name of the request, where the answer is to say it.
    name: Option<Id>,
}

fn name(session: &Session, record: &Record) -> Option<Id> {
    let wanted = session.worker.config().records.name_answers;
    wanted.then(|| session.worker.shared.names.name(record.number))
}

/// Where a body comes from.
struct Source {
    reader: Reader,
    refill: Option<Box<Refill>>,
}

impl Source {
    /// Has the hole filled that the reader met in a part of what it is to deliver; false when that is not possible.
    fn begin_fill(&self, hole: Range<u64>, part: &Range<u64>, end: u64) -> bool {
        let hole = if hole.end < part.end { hole } else { self.reader.hole(hole.start..end) };
        self.refill.as_ref().is_some_and(|refill| refill.begin(self.reader.entry(), &hole))
    }

    fn fetch_rest(self) {
        if let Some(refill) = self.refill {
            refill.begin_rest(Arc::clone(self.reader.entry()));
        }
    }
}

/// What a request gets of a response that is stored.
enum Share {
    Whole,
    Ranges(Vec<Range<u64>>),
    NotModified,
    PreconditionFailed,
    Unsatisfiable(u64),
}

fn share(request: &RequestHead, kept: &Kept, length: Option<u64>) -> Share {
    if kept.head.status != 200 {
        return Share::Whole;
    }
    if has_conditions(&request.fields) {
        match policy::precondition(request, &kept.head) {
            Precondition::Proceed => {}
            Precondition::NotModified => return Share::NotModified,
            Precondition::Failed => return Share::PreconditionFailed,
        }
    }
    let (Some(length), Method::Get) = (length, &request.method) else { return Share::Whole };
    match wanted_ranges(request, kept).map(|specs| range::resolve(&specs, length)) {
        None => Share::Whole,
        Some(Some(ranges)) => Share::Ranges(ranges),
        Some(None) => Share::Unsatisfiable(length),
    }
}

/// The bytes of a stored response that the answer to this request needs.
pub fn needed(request: &RequestHead, kept: &Kept, length: Option<u64>) -> Vec<Range<u64>> {
    let all = 0..length.unwrap_or(u64::MAX);
    match share(request, kept, length) {
        Share::Whole if request.method == Method::Get => Vec::from([all]),
        Share::Ranges(ranges) => ranges,
        Share::Whole | Share::NotModified | Share::PreconditionFailed | Share::Unsatisfiable(_) => Vec::new(),
    }
}

async fn deliver(
    session: &mut Session,
    delivery: Delivery<'_>,
    source: &mut Source,
    upload: &mut Option<Upload>,
    record: &mut Record,
) -> Next {
    let Delivery { request, kept, .. } = delivery;
    let length = source.reader.length();
    match if delivery.verbatim { Share::Whole } else { share(request, kept, length) } {
        Share::Whole => {}
        Share::NotModified => return not_modified(session, &delivery, record),
        Share::PreconditionFailed => {
            let page = Page::new(412, "precondition", "What is stored does not meet the condition.", "Ask without it.");
            return respond_page(session, request, &page, delivery.keep, record);
        }
        Share::Unsatisfiable(length) => return unsatisfiable(session, &delivery, length, record),
        Share::Ranges(mut ranges) => {
            // What passes through a window can't be read backwards.
            if !source.reader.entry().is_whole() {
                ranges.sort_by_key(|range| range.start);
            }
            return Box::pin(deliver_ranges(session, delivery, source, &ranges, length.unwrap_or(0), record)).await;
        }
    }
    let carriage = carriage(&delivery, length);
    if carriage == Carriage::None {
        record.complete = true;
        return begin(session, &delivery, length, carriage);
    }
    let all = 0..length.unwrap_or(u64::MAX);
    let others = (!source.reader.entry().is_whole()).then(|| source.reader.entry().readers() > 1);
    if others == Some(false) {
        // The origin's next packet gets the next turn: most often it is here already, and head and body go out in one write.
        tokio::task::yield_now().await;
    }
    if let Some(failure) = others.and_then(|_| source.reader.lost(&all)) {
        return instead(session, &delivery, &failure, record);
    }
    let next = begin(session, &delivery, length, carriage);
    if others == Some(true) && first_bytes(session).await.is_err() {
        return cut(session, carriage, Broke::Client, record).await;
    }
    match stream(session, source, all, carriage, upload, record).await {
        Ok(()) => {
            if carriage == Carriage::Chunked {
                let trailers = source.reader.trailers().unwrap_or_default();
                session.outbox.own(|own| encode::last_chunk(own, &trailers));
            }
            record.complete = true;
            next
        }
        Err(broke) => cut(session, carriage, broke, record).await,
    }
}

/// The head of an answer whose body is still coming goes out by itself, and then it is another client's turn: when a
/// thousand wait for one object, each has its first byte before anyone has the second piece.
async fn first_bytes(session: &mut Session) -> std::io::Result<()> {
    session.flush().await?;
    tokio::task::yield_now().await;
    Ok(())
}

/// The answer is known to be broken before anything of it was said: the client is told that.
fn instead(session: &mut Session, delivery: &Delivery<'_>, failure: &Failure, record: &mut Record) -> Next {
    record.not_stored = None;
    let page = failed(failure, record);
    respond_page(session, delivery.request, &page, delivery.keep, record)
}

/// What was begun can't be completed. The client gets what is here of it, and an end that it can't take for a proper one
/// (RFC 9112 section 8): where the end of the connection would end the body too, that is a reset.
async fn cut(session: &mut Session, carriage: Carriage, broke: Broke, record: &mut Record) -> Next {
    if let Broke::Source(why) = broke {
        if let (Some(failure), Some(detail)) = (why, record.detail()) {
            detail.trouble = Some(failure.detail);
        }
        let _ = session.flush().await;
    }
    if carriage == Carriage::UntilClose {
        session.end_by_reset();
    }
    Next::Cut
}

/// Why an answer that was begun is not completed.
enum Broke {
    /// The client does not take it, or the rest of its request does not come.
    Client,
    /// The rest does not come, and why, where somebody knows.
    Source(Option<Failure>),
}

/// What an origin's trouble is answered with, and noted as.
pub fn failed(failure: &Failure, record: &mut Record) -> Page {
    record.outcome = Outcome::Failed(failure.word);
    if let Some(detail) = record.detail() {
        detail.trouble = Some(Arc::clone(&failure.detail));
    }
    if failure.word == reach::REFUSED {
        return crate::access::out_of_reach();
    }
    let remedy = "The cache itself is well. Try again, or ask the administrator of the origin.";
    let what = format!("The origin gave no usable answer: {}.", failure.detail);
    Page::new(failure.status, failure.word, what, remedy)
}

fn has_conditions(fields: &Fields) -> bool {
    ["If-None-Match", "If-Modified-Since", "If-Match", "If-Unmodified-Since"].iter().any(|name| fields.contains(name))
}

fn wanted_ranges(request: &RequestHead, kept: &Kept) -> Option<Vec<range::RangeSpec>> {
    let specs = range::parse_range(request.fields.get("Range")?)?;
    policy::range_applies(request, &kept.head).then_some(specs)
}

fn carriage(delivery: &Delivery<'_>, length: Option<u64>) -> Carriage {
    let status = delivery.kept.head.status;
    match length {
        _ if delivery.request.method == Method::Head || status == 204 || status == 304 || status < 200 => {
            Carriage::None
        }
        Some(_) => Carriage::Length,
        None if delivery.request.version == Version::Http11 => Carriage::Chunked,
        None => Carriage::UntilClose,
    }
}

/// Whether the length of the body is the one to state: not where there never is a body, and not in the origin's answer
/// to a HEAD, which is empty whatever a GET would get and keeps the length that the origin stated.
fn has_length(delivery: &Delivery<'_>, status: u16) -> bool {
    let is_bodiless = status == 204 || status == 304 || status < 200;
    !is_bodiless && (delivery.request.method != Method::Head || delivery.kept.terms.is_some())
}

/// Writes the head of an answer whose fields are those that are kept.
fn begin(session: &mut Session, delivery: &Delivery<'_>, length: Option<u64>, carriage: Carriage) -> Next {
    let next = if carriage == Carriage::UntilClose || !delivery.keep { Next::Close } else { Next::Continue };
    let by = session.worker.shared.answered_by(delivery.kept.head.version);
    let status = delivery.kept.head.status;
    session.answer_began = true;
    session.outbox.own(|out| {
        let first = delivery.kept.first().filter(|_| matches!(delivery.outcome, Outcome::Miss(_)));
        match first {
            Some(first) => out.extend_from_slice(first),
            None => delivery.kept.write_to(out),
        }
        match (carriage, length) {
            (Carriage::Chunked, _) => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            (Carriage::UntilClose, _) => {}
            (_, Some(length)) if has_length(delivery, status) => content_length(out, length),
            _ => {}
        }
        moment(out, delivery, by, next);
    });
    next
}

/// The fields that are of this moment, and the end of the head.
fn moment(out: &mut Vec<u8>, delivery: &Delivery<'_>, answered_by: &str, next: Next) {
    if let Some(terms) = &delivery.kept.terms {
        let age = terms.age(delivery.now);
        // Some of an answer whose hole is filled was here before.
        if age > 0 || delivery.outcome.is_from_store() || delivery.outcome == Outcome::Miss(Cause::Partial) {
            number(out, b"Age: ", age);
        }
    }
    out.extend_from_slice(answered_by.as_bytes());
    what_was_done(out, delivery);
    if let Some(name) = delivery.name {
        request_name(out, name);
    }
    connection(out, next, delivery.request.version);
    out.extend_from_slice(b"\r\n");
}

/// The rest of `Cache-Status` (RFC 9211): what this cache did, in the words of the record.
fn what_was_done(out: &mut Vec<u8>, delivery: &Delivery<'_>) {
    let Delivery { kept, outcome, .. } = delivery;
    match outcome {
        Outcome::Hit | Outcome::HitStale | Outcome::HitRevalidating => out.extend_from_slice(b"; hit"),
        Outcome::HitError => out.extend_from_slice(b"; hit; detail=stale-if-error"),
        Outcome::Validated => out.extend_from_slice(b"; fwd=stale; fwd-status=304"),
        Outcome::Collapsed => out.extend_from_slice(b"; fwd=uri-miss; collapsed"),
        Outcome::Miss(cause) => {
            out.extend_from_slice(b"; fwd=");
            out.extend_from_slice(cause.forward_reason().as_bytes());
            out.extend_from_slice(b"; fwd-status=");
            encode::decimal(out, kept.head.status.into());
            if kept.terms.is_some() {
                out.extend_from_slice(b"; stored");
            }
            // What `fwd` does not say: why it was not stored, or else the cause.
            let detail = kept.not_stored().map(|why| why.as_str()).unwrap_or(cause.as_str());
            if detail != cause.forward_reason() {
                out.extend_from_slice(b"; detail=");
                out.extend_from_slice(detail.as_bytes());
            }
        }
        other => {
            let _ = write!(out, "; detail={}", other.as_str());
        }
    }
    if let Some(terms) = kept.terms.as_ref().filter(|_| outcome.is_from_store()) {
        out.extend_from_slice(b"; ttl=");
        let ttl = terms.remaining(delivery.now);
        if ttl < 0 {
            out.push(b'-');
        }
        encode::decimal(out, ttl.unsigned_abs());
    }
    out.extend_from_slice(b"\r\n");
}

/// Carries body bytes from the entry to the client.
async fn stream(
    session: &mut Session,
    source: &mut Source,
    range: Range<u64>,
    carriage: Carriage,
    upload: &mut Option<Upload>,
    record: &mut Record,
) -> Result<(), Broke> {
    let (mut at, mut step) = (range.start, READ_BYTES);
    if range.end - range.start > WHOLE_BYTES_MAX {
        session.limit_unsent();
    }
    let mut pieces = session.worker.pieces.take();
    while at < range.end {
        let wanted = at..range.end.min(at.saturating_add(step));
        let read = match next_pieces(session, source, wanted, range.end, upload, &mut pieces).await {
            Ok(0) if range.end == u64::MAX => return Ok(()),
            Ok(0) => return Err(Broke::Source(None)),
            Ok(read) => read,
            Err(broke) => return Err(broke),
        };
        if carriage == Carriage::Chunked {
            session.outbox.own(|own| encode::chunk_head(own, usize::try_from(read).unwrap_or(usize::MAX)));
        }
        pieces.drain(..).for_each(|piece| session.outbox.shared(piece));
        session.worker.shared.cache.make_room();
        if carriage == Carriage::Chunked {
            session.outbox.own(|own| own.extend_from_slice(encode::CHUNK_END));
        }
        at += read;
        record.bytes += read;
        // What ends here may go out together with the answer to the next request, and a block with the next one.
        if at == range.end {
            session.worker.pieces.replace(pieces);
            return session.flush_if_full().await.map_err(|_| Broke::Client);
        }
        if source.reader.gathers() && (session.outbox.len() as u64) < step {
            continue;
        }
        step = match session.flush_counting().await {
            Ok(1) => READ_BYTES_MAX,
            Ok(_) => READ_BYTES,
            Err(_) => return Err(Broke::Client),
        };
    }
    Ok(())
}

/// Waits for body bytes; where there is a hole, it is filled, up to `end` if it is so long. A request body that is
/// still on its way is carried on meanwhile.
async fn next_pieces(
    session: &mut Session,
    source: &mut Source,
    range: Range<u64>,
    end: u64,
    upload: &mut Option<Upload>,
    pieces: &mut Vec<Bytes>,
) -> Result<u64, Broke> {
    let mut waiting = None;
    loop {
        let now = std::future::poll_fn(|cx| Poll::Ready(source.reader.poll_read(cx, range.clone(), pieces))).await;
        let read = match now {
            Poll::Ready(read) => read,
            Poll::Pending => {
                session.flush().await.map_err(|_| Broke::Client)?;
                let presence = waiting.get_or_insert_with(|| Presence::new(&session.worker));
                let step = presence.until_look(next_step(session, &mut source.reader, &range, upload, pieces)).await;
                match step {
                    Some(Step::Read(read)) => read,
                    Some(Step::Uploaded(Ok(true))) => continue,
                    Some(Step::Uploaded(Ok(false))) => {
                        *upload = None;
                        continue;
                    }
                    Some(Step::Uploaded(Err(_))) => return Err(Broke::Client),
                    None if presence.is_gone(session) => return Err(Broke::Client),
                    None => continue,
                }
            }
        };
        match read {
            Ok(read) => return Ok(read),
            Err(Stop::Hole(hole)) if source.begin_fill(hole.clone(), &range, end) => {}
            Err(Stop::Hole(_)) => return Err(Broke::Source(None)),
            Err(Stop::Failed(failure)) => return Err(Broke::Source(Some(failure))),
        }
    }
}

/// What happened while a body was waited for.
enum Step {
    Read(Result<u64, Stop>),
    Uploaded(Result<bool, End>),
}

/// Waits for body bytes, or for a step of the request's body where that is on its way still. Cancel-safe.
async fn next_step(
    session: &mut Session,
    reader: &mut Reader,
    range: &Range<u64>,
    upload: &mut Option<Upload>,
    pieces: &mut Vec<Bytes>,
) -> Step {
    let Some(uploading) = upload else { return Step::Read(reader.read(range.clone(), pieces).await) };
    tokio::select! {
        biased;
        read = reader.read(range.clone(), pieces) => Step::Read(read),
        step = uploading.step(session) => Step::Uploaded(step),
    }
}

async fn deliver_ranges(
    session: &mut Session,
    delivery: Delivery<'_>,
    source: &mut Source,
    ranges: &[Range<u64>],
    length: u64,
    record: &mut Record,
) -> Next {
    if let Some(failure) = ranges.iter().find_map(|range| source.reader.lost(range)) {
        return instead(session, &delivery, &failure, record);
    }
    record.status = 206;
    let next = if delivery.keep { Next::Continue } else { Next::Close };
    let result = match ranges {
        [one] => {
            let content_range = ContentRange::of(one, Some(length)).to_string();
            begin_partial(session, &delivery, None, &content_range, one.end - one.start, next);
            stream(session, source, one.clone(), Carriage::Length, &mut None, record).await
        }
        several => deliver_parts(session, &delivery, source, several, length, next, record).await,
    };
    match result {
        Ok(()) => {
            record.complete = true;
            next
        }
        Err(broke) => cut(session, Carriage::Length, broke, record).await,
    }
}

/// `multipart/byteranges` (RFC 9110 section 15.3.7.2).
async fn deliver_parts(
    session: &mut Session,
    delivery: &Delivery<'_>,
    source: &mut Source,
    ranges: &[Range<u64>],
    length: u64,
    next: Next,
    record: &mut Record,
) -> Result<(), Broke> {
    let boundary = session.worker.shared.boundary();
    let content_type = delivery.kept.head.fields.get("Content-Type");
    let part_head = |range: &Range<u64>| {
        let mut head = format!("\r\n--{boundary}\r\n").into_bytes();
        if let Some(content_type) = content_type {
            head.extend_from_slice(b"Content-Type: ");
            head.extend_from_slice(content_type);
            head.extend_from_slice(b"\r\n");
        }
        let _ = write!(head, "Content-Range: {}\r\n\r\n", ContentRange::of(range, Some(length)));
        head
    };
    let closing = format!("\r\n--{boundary}--\r\n");
    let heads: Vec<Vec<u8>> = ranges.iter().map(part_head).collect();
    let bodies: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let total = heads.iter().map(|head| head.len() as u64).sum::<u64>() + bodies + closing.len() as u64;
    let multipart = format!("multipart/byteranges; boundary={boundary}");
    begin_partial(session, delivery, Some(&multipart), "", total, next);
    for (head, range) in heads.iter().zip(ranges) {
        session.outbox.own(|own| own.extend_from_slice(head));
        stream(session, source, range.clone(), Carriage::Length, &mut None, record).await?;
    }
    session.outbox.own(|own| own.extend_from_slice(closing.as_bytes()));
    Ok(())
}

fn begin_partial(
    session: &mut Session,
    delivery: &Delivery<'_>,
    multipart: Option<&str>,
    content_range: &str,
    length: u64,
    next: Next,
) {
    let first = delivery.kept.first().filter(|_| matches!(delivery.outcome, Outcome::Miss(_)));
    let mut fields = first.map_or_else(|| delivery.kept.head.fields.clone(), fields_of);
    match multipart {
        Some(multipart) => fields.set("Content-Type", multipart),
        None => fields.set("Content-Range", content_range),
    }
    let by = session.worker.shared.answered_by(delivery.kept.head.version);
    session.answer_began = true;
    session.outbox.own(|out| {
        encode::status_line(out, 206, head::reason(206));
        fields.write_to(out);
        content_length(out, length);
        moment(out, delivery, by, next);
    });
}

/// The fields of a head that was written for the one who caused a fetch.
fn fields_of(head: &[u8]) -> Fields {
    let mut fields = Fields::default();
    for line in head.split(|byte| *byte == b'\n').skip(1) {
        if let Some(colon) = line.iter().position(|byte| *byte == b':') {
            let name = String::from_utf8_lossy(&line[..colon]);
            fields.push(&name, line[colon + 1..].trim_ascii());
        }
    }
    fields
}

fn unsatisfiable(session: &mut Session, delivery: &Delivery<'_>, length: u64, record: &mut Record) -> Next {
    let page = Page::new(
        416,
        "range",
        format!("The object has {length} bytes, none of which was asked for."),
        "Ask for a range within it.",
    )
    .with("Content-Range", ContentRange::unsatisfied(length));
    respond_page(session, delivery.request, &page, delivery.keep, record)
}

/// RFC 9110 section 15.4.5: only the fields that guide caches and that a 200 would have had.
fn not_modified(session: &mut Session, delivery: &Delivery<'_>, record: &mut Record) -> Next {
    // `Age` stands in an answer that is passed on only: that of a stored one is written anew.
    const KEPT: [&str; 10] = [
        "Age",
        "Cache-Control",
        "CDN-Cache-Control",
        "Content-Location",
        "Date",
        "ETag",
        "Expires",
        "Last-Modified",
        "Vary",
        "Cache-Status",
    ];
    record.status = 304;
    record.complete = true;
    let next = if delivery.keep { Next::Continue } else { Next::Close };
    let mut fields = delivery.kept.head.fields.clone();
    fields.retain(|name, _| KEPT.iter().any(|kept| kept.eq_ignore_ascii_case(name)));
    let by = session.worker.shared.answered_by(delivery.kept.head.version);
    session.answer_began = true;
    session.outbox.own(|out| {
        encode::status_line(out, 304, head::reason(304));
        fields.write_to(out);
        moment(out, delivery, by, next);
    });
    next
}

/// An answer of our own.
pub fn respond_page(
    session: &mut Session,
    request: &RequestHead,
    page: &Page,
    keep: bool,
    record: &mut Record,
) -> Next {
    let next = if keep && !page.closes { Next::Continue } else { Next::Close };
    record.status = page.status;
    record.complete = true;
    record.asked(request);
    if !matches!(record.outcome, Outcome::Failed(_)) {
        record.outcome = Outcome::Own(page.word);
    }
    let body = page.body();
    let name = record.is_kept().then(|| session.worker.shared.names.name(record.number));
    let sent = if request.method == Method::Head { "" } else { &body[..] };
    record.bytes += sent.len() as u64;
    let of = Telling { page, length: body.len(), next, version: request.version, name, now: record.stamp() };
    write_page(session, &of, sent);
    next
}

/// An answer to what was no request.
pub fn page_without_request(session: &mut Session, page: &Page) {
    let (body, now) = (page.body(), crate::clock::now());
    let of = Telling { page, length: body.len(), next: Next::Close, version: Version::Http11, name: None, now };
    write_page(session, &of, &body);
}

/// How a page is told.
struct Telling<'a> {
    page: &'a Page,
    /// Of the body, sent or not.
    length: usize,
    next: Next,
    version: Version,
    name: Option<Id>,
    now: Stamp,
}

fn write_page(session: &mut Session, of: &Telling<'_>, body: &str) {
    session.answer_began = true;
    session.outbox.own(|out| {
        out.reserve(PAGE_HEAD_BYTES + body.len());
        encode::status_line(out, of.page.status, head::reason(of.page.status));
        of.page.write_fields(out);
        out.extend_from_slice(b"Date: ");
        out.extend_from_slice(&larder_wire::date::format_date(of.now));
        number(out, b"\r\nContent-Length: ", of.length as u64);
        out.extend_from_slice(b"Cache-Status: larder; detail=");
        out.extend_from_slice(of.page.word.as_bytes());
        out.extend_from_slice(b"\r\n");
        if let Some(name) = of.name {
            request_name(out, name);
        }
        connection(out, of.next, of.version);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(body.as_bytes());
    });
}

/// What the head of most pages takes.
const PAGE_HEAD_BYTES: usize = 512;

fn request_name(out: &mut Vec<u8>, name: Id) {
    out.extend_from_slice(b"Larder-Request: ");
    name.write_to(out);
    out.extend_from_slice(b"\r\n");
}

/// Says what becomes of the connection, where the version does not.
fn connection(out: &mut Vec<u8>, next: Next, version: Version) {
    match (next, version) {
        (Next::Continue, Version::Http11) => {}
        (Next::Continue, Version::Http10) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        _ => out.extend_from_slice(b"Connection: close\r\n"),
    }
}

/// Passes an interim head on to a client that knows such heads (RFC 9110 section 15.2).
pub fn interim(session: &mut Session, head: &larder_wire::ResponseHead) {
    session.outbox.own(|out| encode::response_head(out, head));
}

fn content_length(out: &mut Vec<u8>, length: u64) {
    number(out, b"Content-Length: ", length);
}

fn number(out: &mut Vec<u8>, name: &[u8], value: u64) {
    out.extend_from_slice(name);
    encode::decimal(out, value);
    out.extend_from_slice(b"\r\n");
}

/// What a client's broken message is answered with, if anything.
pub fn page_for_end(end: &End) -> Option<Page> {
    match end {
        End::Fault(fault) => Some(crate::access::fault_page(fault.kind, fault.detail)),
        End::Late => Some(
            Page::new(408, "request-timeout", "The request did not come to its end in time.", "Send it again.")
                .closing(),
        ),
        End::Unfinished => Some(client_gone()),
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
        End::Quiet | End::Broken | End::Sits => None,
    }
}

/// For a client that ended the connection before its request was over; who closed one direction alone reads it.
pub fn client_gone() -> Page {
    Page::new(400, "client-gone", "The request did not come to its end.", "Send it again.").closing()
}
