//! Delivers an answer to a client: head, body at the client's pace, ranges, conditions.
//!
//! Stored responses, those of a fetch that is followed and those that are passed on come through the same code; only the
//! source of the [`Reader`] and the outcome in the record differ.

mod ranges;

use super::docs;
use super::pace::Pace;
use super::presence::Presence;
use super::stream::{AnswerBody, AnswerFields, AnswerHead, BodyEnd, CacheStatus, ClientStream, Dynamic};
use super::upload::Upload;
use crate::env::Env;
use crate::fetch::Refill;
use crate::page::Page;
use crate::reach;
use crate::record::{Cause, Id, Number, Outcome, Record};
use crate::rules::{self, Limited};
use crate::tally::Refusals;
use crate::upstream::UpstreamFaultKind;
use bytes::Bytes;
use larder_cache::cache::{Tier, Whole};
use larder_cache::entry::{Failure, Reader, Stop};
use larder_cache::head::StoredHead;
use larder_cache::policy::{self, Precondition};
use larder_wire::date::Stamp;
use larder_wire::range::{self, ContentRange};
use larder_wire::{Fields, Method, RequestHead, ResponseHead};
use ranges::deliver_ranges;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// The answer to a request.
pub enum AnswerSource {
    /// An error page or another page of Larder's own.
    Page(Page),
    /// A response, from wherever its reader reads it.
    Entry {
        /// Reads the body.
        reader: Reader,
        /// The head.
        stored: Arc<StoredHead>,
        /// How the answer came about, for the record and `Cache-Status`.
        outcome: Outcome,
        /// The origin has answered this very request, conditions and ranges included.
        verbatim: bool,
        /// Fetches missing parts of the body; `None` where that is not allowed.
        refill: Option<Box<Refill>>,
    },
}

/// Beside the answer itself, all that its delivery depends on.
#[derive(Default)]
pub struct Manner<'a> {
    /// The names of fields that hooks gave the answer.
    pub given: &'a [String],
    /// The limits of bandwidth under which it is sent.
    pub limits: Option<Rc<[Limited]>>,
}

impl Manner<'_> {
    /// The pace of an answer that came about so.
    fn pace(&self, env: &Rc<Env>, outcome: Outcome, reader: &Reader) -> Option<Pace> {
        let limits = self.limits.as_ref()?;
        // A body that was still on its way comes over the line to the origins, whoever asked first.
        let is_hit = outcome.is_from_store() && !reader.began_incomplete();
        if is_hit { Pace::of_hit(env, limits) } else { Pace::under(env, limits) }
    }
}

/// How the delivery of an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All of the answer was handed over.
    Whole,
    /// The answer broke off.
    Broken,
}

/// The longest body that is handed over at once. A longer one is handed over in steps, so that the part which a slow client has
/// not taken yet stays in the entry, where the budget of the store counts it.
pub const WHOLE_BYTES_MAX: u64 = 256 * 1024;

/// The first read of an entry's body has this many bytes at most.
const READ_BYTES: u64 = 256 * 1024;

/// How many are asked of it later, when the client takes them as fast as they are written.
const READ_BYTES_MAX: u64 = 1024 * 1024;

/// Answers one request.
pub async fn deliver<S: ClientStream>(
    stream: &mut S,
    request: &RequestHead,
    (answer, manner): (AnswerSource, Manner<'_>),
    upload: &mut Option<Upload>,
    record: &mut Record,
) -> Ended {
    match answer {
        AnswerSource::Page(page) => deliver_page(stream, request, &page, record),
        AnswerSource::Entry { reader, stored, outcome, verbatim, refill } => {
            let name = name(stream.env(), record);
            let now = record.stamp();
            let pace = manner.pace(stream.env(), outcome, &reader);
            let delivery = Delivery { request, stored: &stored, outcome, verbatim, given: manner.given, now, name };
            record.status = stored.head.status;
            record.outcome = outcome;
            record.not_stored = stored.not_stored().map(|why| why.as_str());
            record.note_coding(stored.terms.as_ref().and_then(|terms| terms.coded));
            record.typed(&stored.head);
            if pace.is_some() {
                reader.hold_back();
            }
            let mut source = Source { reader, refill, pace };
            let ended = deliver_entry(stream, delivery, &mut source, upload, record).await;
            if let Some(pace) = &source.pace {
                record.note_waited(pace.waited());
            }
            if record.complete && source.pace.is_none() && stream.refused().is_none() {
                source.fetch_rest();
            }
            ended
        }
    }
}

/// Hands over a whole stored response, without a wait.
pub fn deliver_whole<S: ClientStream>(stream: &mut S, request: &RequestHead, whole: &Whole<'_>, record: &mut Record) {
    let &Whole { stored, length, .. } = whole;
    record.status = stored.head.status;
    record.outcome = Outcome::Hit;
    record.bytes = length;
    record.complete = true;
    record.note_coding(stored.terms.as_ref().and_then(|terms| terms.coded));
    record.typed(&stored.head);
    let (outcome, now, name) = (Outcome::Hit, record.stamp(), name(stream.env(), record));
    let delivery = Delivery { request, stored, outcome, verbatim: false, given: &[], now, name };
    begin(stream, &delivery, body(&delivery, Some(length)));
    if note_refusal(stream, record) {
        return;
    }
    whole.each(|bytes, part| stream.send_part(bytes, part));
    if whole.tier() == Tier::Disk {
        stream.flush_soon();
    }
}

/// Whether a request with these fields asks for the whole response: no range and no condition.
pub fn is_plain(fields: &Fields) -> bool {
    !fields.contains("Range") && !has_conditions(fields)
}

/// All that is known of an answer before its first byte goes out.
struct Delivery<'a> {
    request: &'a RequestHead,
    stored: &'a StoredHead,
    outcome: Outcome,
    verbatim: bool,
    /// The names of fields that hooks gave the answer, in lower case.
    given: &'a [String],
    now: Stamp,
    /// The name of the request, where the answer is to say it.
    name: Option<Id>,
}

fn name(env: &Env, record: &Record) -> Option<Id> {
    let wanted = env.config().records.name_answers;
    wanted.then(|| env.common.names.name(record.number))
}

/// Where a body comes from.
struct Source {
    reader: Reader,
    refill: Option<Box<Refill>>,
    /// Where the client gets it at a limited pace.
    pace: Option<Pace>,
}

impl Source {
    /// Begins to fill a hole that the reader met; false where that is not possible.
    fn begin_fill(&self, hole: Range<u64>, part: &Range<u64>, end: u64) -> bool {
        let hole = if hole.end < part.end { hole } else { self.reader.hole(hole.start..end) };
        self.refill.as_ref().is_some_and(|refill| refill.begin(self.reader.entry(), &hole))
    }

    fn fetch_rest(self) {
        if let Some(refill) = self.refill {
            refill.begin_rest(self.reader.entry().clone());
        }
    }
}

/// The part of a stored response that answers a request.
enum Selected {
    Whole,
    Ranges(Vec<Range<u64>>),
    NotModified,
    PreconditionFailed,
    Unsatisfiable(u64),
}

fn select(request: &RequestHead, stored: &StoredHead, length: Option<u64>) -> Selected {
    if stored.head.status != 200 {
        return Selected::Whole;
    }
    if has_conditions(&request.fields) {
        match policy::precondition(request, &stored.head) {
            Precondition::Proceed => {}
            Precondition::NotModified => return Selected::NotModified,
            Precondition::Failed => return Selected::PreconditionFailed,
        }
    }
    let (Some(length), Method::Get) = (length, &request.method) else { return Selected::Whole };
    match wanted_ranges(request, stored).map(|specs| range::resolve(&specs, length)) {
        None => Selected::Whole,
        Some(Some(ranges)) => Selected::Ranges(ranges),
        Some(None) => Selected::Unsatisfiable(length),
    }
}

/// The bytes of a stored response that the answer to this request needs.
pub fn needed(request: &RequestHead, stored: &StoredHead, length: Option<u64>) -> Vec<Range<u64>> {
    let all = 0..length.unwrap_or(u64::MAX);
    match select(request, stored, length) {
        Selected::Whole if request.method != Method::Head => Vec::from([all]),
        Selected::Ranges(ranges) => ranges,
        Selected::Whole | Selected::NotModified | Selected::PreconditionFailed | Selected::Unsatisfiable(_) => {
            Vec::new()
        }
    }
}

async fn deliver_entry<S: ClientStream>(
    stream: &mut S,
    delivery: Delivery<'_>,
    source: &mut Source,
    upload: &mut Option<Upload>,
    record: &mut Record,
) -> Ended {
    let Delivery { request, stored, .. } = delivery;
    let length = source.reader.length();
    match if delivery.verbatim { Selected::Whole } else { select(request, stored, length) } {
        Selected::Whole => {}
        Selected::NotModified => return not_modified(stream, &delivery, record),
        Selected::PreconditionFailed => {
            let page =
                Page::new(412, "precondition", "The stored response does not meet the condition.", "Ask without it.");
            return deliver_page(stream, request, &page, record);
        }
        Selected::Unsatisfiable(length) => return unsatisfiable(stream, &delivery, length, record),
        Selected::Ranges(mut ranges) => {
            // A body that is not kept whole passes through a window and can't be read backwards, even if all of it is there.
            if !source.reader.entry().is_whole() || source.reader.entry().passes() {
                ranges.sort_by_key(|range| range.start);
            }
            return Box::pin(deliver_ranges(stream, delivery, source, &ranges, length.unwrap_or(0), record)).await;
        }
    }
    let body = body(&delivery, length);
    if let AnswerBody::None(_) = body {
        record.complete = true;
        begin(stream, &delivery, body);
        note_refusal(stream, record);
        stream.end_answer(None);
        return Ended::Whole;
    }
    let all = 0..length.unwrap_or(u64::MAX);
    let others = (!source.reader.entry().is_whole()).then(|| source.reader.entry().readers() > 1);
    if others == Some(false) {
        // The origin's next packet gets the next turn: most often it is here already, and head and body go out in one write.
        tokio::task::yield_now().await;
    }
    if let Some(failure) = others.and_then(|_| source.reader.lost(&all)) {
        return instead(stream, &delivery, &failure, record);
    }
    begin(stream, &delivery, body);
    if note_refusal(stream, record) {
        return Ended::Whole;
    }
    if others == Some(true) && first_bytes(stream).await.is_err() {
        return break_off(stream, Broke::Client, record).await;
    }
    match send_range(stream, source, all, upload, record).await {
        Ok(()) => {
            stream.end_answer(if body == AnswerBody::Unknown { source.reader.trailers() } else { None });
            record.complete = true;
            Ended::Whole
        }
        Err(broke) => break_off(stream, broke, record).await,
    }
}

/// Sends the head of an answer whose body is still arriving, then lets other tasks run: when a thousand clients wait for one
/// object, each gets its first byte before any gets the second piece.
async fn first_bytes<S: ClientStream>(stream: &mut S) -> std::io::Result<()> {
    stream.flush().await?;
    tokio::task::yield_now().await;
    Ok(())
}

/// Answers by an error page, because the body is known to be broken before the head went out.
fn instead<S: ClientStream>(stream: &mut S, delivery: &Delivery<'_>, failure: &Failure, record: &mut Record) -> Ended {
    record.not_stored = None;
    let page = failed(failure, record);
    deliver_page(stream, delivery.request, &page, record)
}

/// Ends an answer that has begun and can't be completed. The client gets the bytes that are here, and an end that shows that
/// the answer is not whole.
async fn break_off<S: ClientStream>(stream: &mut S, broke: Broke, record: &mut Record) -> Ended {
    if let (Broke::Request(word), Some(detail)) = (&broke, record.detail()) {
        detail.trouble = Some(Arc::from(*word));
    }
    if let Broke::Source(why) = broke {
        if let (Some(failure), Some(detail)) = (why, record.detail()) {
            detail.trouble = Some(failure.detail);
        }
        let _ = stream.flush().await;
    }
    stream.break_off();
    Ended::Broken
}

/// Why an answer that was begun is not completed.
enum Broke {
    /// The client does not take the answer, or does not send the rest of its request.
    Client,
    /// The rest of the client's request is malformed; the record gets this word.
    Request(&'static str),
    /// The rest of the body does not come; the failure says why, where it is known.
    Source(Option<Failure>),
}

impl From<BodyEnd> for Broke {
    fn from(end: BodyEnd) -> Broke {
        match end {
            BodyEnd::Malformed(word) => Broke::Request(word),
            BodyEnd::Broken | BodyEnd::Late | BodyEnd::Fault(_) => Broke::Client,
        }
    }
}

/// The error page for the trouble of an origin, which the record notes.
pub fn failed(failure: &Failure, record: &mut Record) -> Page {
    record.outcome = Outcome::Failed(failure.word);
    if let Some(detail) = record.detail() {
        detail.trouble = Some(Arc::clone(&failure.detail));
    }
    if failure.word == reach::REFUSED {
        return rules::out_of_reach();
    }
    if failure.word == UpstreamFaultKind::Icap.as_str() {
        let what = format!("The answer can't be had: {}.", failure.detail);
        let remedy = "Try again in a moment, or tell the administrator of this cache.";
        return Page::new(failure.status, failure.word, what, remedy);
    }
    if is_overload(failure.word) {
        let what = format!("There are more requests than can be answered: {}.", failure.detail);
        let page = Page::new(failure.status, failure.word, what, "Try again in a moment.");
        return page.with("Retry-After", retry_after(record.number).to_string());
    }
    if failure.word == UpstreamFaultKind::Parent.as_str() {
        return no_way_on(&failure.detail, failure.status);
    }
    let remedy = "The cache itself is well. Try again, or ask the administrator of the origin.";
    let what = format!("The origin gave no usable answer: {}.", failure.detail);
    Page::new(failure.status, failure.word, what, remedy)
}

/// The error page where no parent leads to the origin.
pub(super) fn no_way_on(detail: &str, status: u16) -> Page {
    let what = format!("This proxy has no way on to the origin: {detail}.");
    let remedy = "Try again in a moment, or tell the administrator of this proxy.";
    Page::new(status, UpstreamFaultKind::Parent.as_str(), what, remedy)
}

/// Whether a failure means that too many requests want the same.
fn is_overload(word: &str) -> bool {
    [UpstreamFaultKind::Busy, UpstreamFaultKind::ClientBusy, UpstreamFaultKind::Shed]
        .iter()
        .any(|kind| kind.as_str() == word)
}

/// The seconds after which a request that was refused under overload may come again. Requests that are refused together get different
/// ones: if all came back at the same moment, they would be too many again.
fn retry_after(number: Number) -> u64 {
    const SPREAD_SECONDS: u64 = 8;
    1 + (number.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % SPREAD_SECONDS
}

fn has_conditions(fields: &Fields) -> bool {
    ["If-None-Match", "If-Modified-Since", "If-Match", "If-Unmodified-Since"].iter().any(|name| fields.contains(name))
}

fn wanted_ranges(request: &RequestHead, stored: &StoredHead) -> Option<Vec<range::RangeSpec>> {
    let specs = range::parse_range(request.fields.get("Range")?)?;
    let by_choice = stored.terms.as_ref().is_some_and(|terms| terms.vary.is_by_choice());
    policy::range_applies(request, &stored.head, by_choice).then_some(specs)
}

/// The body that follows the head of a whole response.
fn body(delivery: &Delivery<'_>, length: Option<u64>) -> AnswerBody {
    let status = delivery.stored.head.status;
    if status == 204 || status == 304 || status < 200 {
        return AnswerBody::None(None);
    }
    if delivery.request.method == Method::Head {
        // A stored response states the length of its body. A HEAD that was passed on keeps the `Content-Length` of the origin. That of a
        // redirection may be stored without the body that a GET would get.
        if matches!(status, 301..=303 | 307 | 308) && delivery.stored.terms.is_some() {
            return AnswerBody::None(None);
        }
        // One that is stored for HEAD alone states it in its head.
        if length == Some(0) && delivery.stored.head.fields.contains("Content-Length") {
            return AnswerBody::None(None);
        }
        return AnswerBody::None(length.filter(|_| delivery.stored.terms.is_some()));
    }
    length.map_or(AnswerBody::Unknown, AnswerBody::Known)
}

/// Begins an answer with the fields of the response's head.
fn begin<S: ClientStream>(stream: &mut S, delivery: &Delivery<'_>, body: AnswerBody) {
    let stored = delivery.stored;
    let fields = AnswerFields::Response(delivery.first().unwrap_or(&stored.head));
    let status = stored.head.status;
    stream.begin_answer(&AnswerHead { status, fields, body, dynamic: delivery.dynamic(), is_last: false });
}

/// Notes whether the client got a small answer, because it takes no head as long as the one that was begun, and says so.
fn note_refusal<S: ClientStream>(stream: &S, record: &mut Record) -> bool {
    let Some((status, word)) = stream.refused() else { return false };
    (record.status, record.bytes, record.complete) = (status, 0, true);
    record.outcome = Outcome::Own(word);
    if let Some(detail) = record.detail() {
        detail.trouble = Some(Arc::from("the head is longer than the client takes"));
    }
    true
}

fn first(stored: &StoredHead, outcome: Outcome) -> Option<&ResponseHead> {
    stored.head_for_asker().filter(|_| matches!(outcome, Outcome::Miss(_)))
}

/// The head as the client of this request gets it.
pub fn head_for_client(stored: &StoredHead, outcome: Outcome) -> &ResponseHead {
    first(stored, outcome).unwrap_or(&stored.head)
}

impl<'a> Delivery<'a> {
    /// The head for the request that caused the fetch, where that one gets other fields than those that are stored.
    fn first(&self) -> Option<&'a ResponseHead> {
        first(self.stored, self.outcome)
    }

    fn dynamic(&self) -> Dynamic<'a> {
        let age = self.stored.terms.as_ref().and_then(|terms| {
            let age = terms.age(self.now);
            // A part of an answer whose hole is filled comes from the store.
            let is_stated = age > 0 || self.outcome.is_from_store() || self.outcome == Outcome::Miss(Cause::Partial);
            is_stated.then_some(age)
        });
        let terms = self.stored.terms.as_ref().filter(|_| self.outcome.is_from_store());
        let status = CacheStatus {
            outcome: self.outcome,
            stored: self.stored,
            ttl: terms.map(|terms| terms.remaining(self.now)),
        };
        Dynamic::Response { age, received: self.stored.head.version, status, name: self.name }
    }
}

/// Carries a range of the body from the entry to the client.
async fn send_range<S: ClientStream>(
    stream: &mut S,
    source: &mut Source,
    range: Range<u64>,
    upload: &mut Option<Upload>,
    record: &mut Record,
) -> Result<(), Broke> {
    let (mut at, mut step) = (range.start, source.pace.as_ref().map_or(READ_BYTES, Pace::piece_bytes));
    let mut is_announced = range.end - range.start <= WHOLE_BYTES_MAX;
    let mut pieces = stream.env().pieces.take();
    while at < range.end {
        let wanted = at..range.end.min(at.saturating_add(step));
        let read = match next_pieces(stream, source, wanted, range.end, upload, &mut pieces).await {
            Ok(0) if range.end == u64::MAX => return Ok(()),
            Ok(0) => return Err(Broke::Source(None)),
            Ok(read) => read,
            Err(broke) => return Err(broke),
        };
        if !is_announced {
            stream.expect_long_body(if source.reader.reads_disk() { Tier::Disk } else { Tier::Memory });
            is_announced = true;
        }
        if let Some(pace) = &mut source.pace {
            wait_for_turn(stream, pace, read, upload).await?;
        }
        stream.send(pieces.drain(..));
        stream.env().common.cache.make_room();
        at += read;
        record.bytes += read;
        // The end of an answer may go out together with the answer to the next request, and a block with the next one.
        if at == range.end {
            stream.env().pieces.replace(pieces);
            return stream.flush_if_full().await.map_err(|_| Broke::Client);
        }
        if source.pace.is_none() && source.reader.gathers() && (stream.unwritten_bytes() as u64) < step {
            continue;
        }
        step = match (stream.flush().await, &source.pace) {
            (Err(_), _) => return Err(Broke::Client),
            (Ok(_), Some(pace)) => pace.piece_bytes(),
            (Ok(1), None) => READ_BYTES_MAX,
            (Ok(_), None) => READ_BYTES,
        };
    }
    Ok(())
}

/// Waits until the limits of bandwidth have room for so many bytes. Carries on a request body that is still on its way meanwhile.
async fn wait_for_turn<S: ClientStream>(
    stream: &mut S,
    pace: &mut Pace,
    bytes: u64,
    upload: &mut Option<Upload>,
) -> Result<(), Broke> {
    let wait = pace.take(bytes);
    if wait.is_zero() {
        return Ok(());
    }
    // The bytes that were permitted go out first.
    stream.flush().await.map_err(|_| Broke::Client)?;
    let mut turn = std::pin::pin!(tokio::time::sleep(wait));
    let mut presence = Presence::new(stream.env());
    loop {
        let step = presence.until_look(async {
            let Some(uploading) = upload.as_mut() else {
                turn.as_mut().await;
                return None;
            };
            tokio::select! {
                biased;
                () = turn.as_mut() => None,
                step = uploading.step(stream) => Some(step),
            }
        });
        match step.await {
            Some(None) => return Ok(()),
            Some(Some(Ok(true))) => {}
            Some(Some(Ok(false))) => *upload = None,
            Some(Some(Err(end))) => return Err(end.into()),
            None if presence.is_gone(stream) => return Err(Broke::Client),
            None => {}
        }
    }
}

/// Waits for body bytes. Begins to fill a hole that is in the way, as far as `end`. Carries on a request body that is still on
/// its way meanwhile.
async fn next_pieces<S: ClientStream>(
    stream: &mut S,
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
                stream.flush().await.map_err(|_| Broke::Client)?;
                let presence = waiting.get_or_insert_with(|| Presence::new(stream.env()));
                let step = presence.until_look(next_step(stream, &mut source.reader, &range, upload, pieces)).await;
                match step {
                    Some(Event::Read(read)) => read,
                    Some(Event::Uploaded(Ok(true))) => continue,
                    Some(Event::Uploaded(Ok(false))) => {
                        *upload = None;
                        continue;
                    }
                    Some(Event::Uploaded(Err(end))) => return Err(end.into()),
                    None if presence.is_gone(stream) => return Err(Broke::Client),
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

/// An event while a body is waited for.
enum Event {
    Read(Result<u64, Stop>),
    Uploaded(Result<bool, BodyEnd>),
}

/// Waits for body bytes, or for a step of a request body that is still on its way. Cancel-safe.
async fn next_step<S: ClientStream>(
    stream: &mut S,
    reader: &mut Reader,
    range: &Range<u64>,
    upload: &mut Option<Upload>,
    pieces: &mut Vec<Bytes>,
) -> Event {
    let Some(uploading) = upload else { return Event::Read(reader.read(range.clone(), pieces).await) };
    tokio::select! {
        biased;
        read = reader.read(range.clone(), pieces) => Event::Read(read),
        step = uploading.step(stream) => Event::Uploaded(step),
    }
}

fn unsatisfiable<S: ClientStream>(stream: &mut S, delivery: &Delivery<'_>, length: u64, record: &mut Record) -> Ended {
    let page = Page::new(
        416,
        "range",
        format!("The object has {length} bytes, none of which was asked for."),
        "Ask for a range within it.",
    )
    .with("Content-Range", ContentRange::unsatisfied(length));
    deliver_page(stream, delivery.request, &page, record)
}

/// Answers with a 304, which has only those fields of the 200 that guide caches (RFC 9110 section 15.4.5).
fn not_modified<S: ClientStream>(stream: &mut S, delivery: &Delivery<'_>, record: &mut Record) -> Ended {
    // Only a response that is passed on has an `Age` here; that of a stored one comes from `Delivery::dynamic`.
    const FIELDS_OF_304: [&str; 10] = [
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
    let mut fields = delivery.stored.head.fields.clone();
    let is_given = |name: &str| delivery.given.iter().any(|given| given.eq_ignore_ascii_case(name));
    fields.retain(|name, _| FIELDS_OF_304.iter().any(|kept| kept.eq_ignore_ascii_case(name)) || is_given(name));
    stream.begin_answer(&AnswerHead {
        status: 304,
        fields: AnswerFields::Own(&fields),
        body: AnswerBody::None(None),
        dynamic: delivery.dynamic(),
        is_last: false,
    });
    note_refusal(stream, record);
    stream.end_answer(None);
    Ended::Whole
}

/// Answers with a page of Larder's own.
pub fn deliver_page<S: ClientStream>(stream: &mut S, request: &RequestHead, page: &Page, record: &mut Record) -> Ended {
    let named = note_rules(stream, page, record);
    let page = named.as_ref().unwrap_or(page);
    record.status = page.status;
    record.complete = true;
    record.asked(request, stream.peer().scheme);
    if let Some(people) = &page.people {
        people.user.iter().for_each(|user| record.note_user(user));
        record.note_helpers(&people.helpers);
    }
    if !matches!(record.outcome, Outcome::Failed(_)) {
        record.outcome = Outcome::Own(page.word);
    }
    let name = record.is_kept().then(|| stream.env().common.names.name(record.number));
    record.bytes += send_page(stream, page, request.method == Method::Head, record.stamp(), name);
    note_refusal(stream, record);
    Ended::Whole
}

/// Notes the rules that gave a page, and puts the name of the request in its place; gives the page where that changed it.
fn note_rules<S: ClientStream>(stream: &S, page: &Page, record: &mut Record) -> Option<Page> {
    let note = page.by_rule.as_ref()?;
    record.note_rules(note);
    record.trail.edition = stream.env().edition();
    if page.status >= 400 {
        let tally = &stream.env().tally;
        tally.rule_denials.add(1);
        tally.refused.borrow_mut().add(note.rule_alone(), Refusals { count: 1, last: record.stamp() });
    }
    page.named(|| stream.env().common.names.name(record.number).to_string())
}

/// Hands over a page; gives the number of body bytes that are sent.
pub fn send_page<S: ClientStream>(stream: &mut S, page: &Page, is_head: bool, now: Stamp, name: Option<Id>) -> u64 {
    let text = page.body_with_docs(|| docs::address(stream.env(), stream.peer()));
    let length = text.len() as u64;
    let body = match page.status {
        // These have no body, whatever a script gives them (RFC 9110 section 6.4.1).
        204 | 304 => AnswerBody::None(None),
        _ if is_head => AnswerBody::None(Some(length)),
        _ => AnswerBody::Known(length),
    };
    let is_head = is_head || matches!(page.status, 204 | 304);
    stream.begin_answer(&AnswerHead {
        status: page.status,
        fields: AnswerFields::Page(page),
        body,
        dynamic: Dynamic::Page { now, word: page.word, name },
        is_last: page.closes,
    });
    if !is_head {
        stream.send_copied(&text);
    }
    stream.end_answer(None);
    if is_head { 0 } else { length }
}

/// The error page for a request body that does not come to its end.
pub fn page_for_body(end: &BodyEnd) -> Page {
    match end {
        BodyEnd::Fault(fault) => rules::fault_page(fault.kind, fault.detail),
        BodyEnd::Late => request_timeout(),
        // Nobody sees it, for the stream is reset. The record has its word.
        BodyEnd::Malformed(word) => Page::new(400, word, "The request is malformed.", "Mend the client.").closing(),
        BodyEnd::Broken => client_gone(),
    }
}

/// The error page for a request that took too long to come.
pub fn request_timeout() -> Page {
    Page::new(408, "request-timeout", "The request did not come to its end in time.", "Send it again.").closing()
}

/// The error page for a client that ended its direction of the connection before its request was over.
pub fn client_gone() -> Page {
    Page::new(400, "client-gone", "The request did not come to its end.", "Send it again.").closing()
}
