//! The state of a connection: requests in, frames out. No socket.

use super::StreamSettings;
use super::head;
use crate::ledger::{Beside, Trouble};
use crate::robot::job::CONTINUE_MAX;
use crate::robot::{Desk, Job, Kindred, Report, Turn, Wish, Wrong, write_request};
use crate::wire::HEAD_LIMITS;
use larder_wire::h2::flow::{WINDOW_AT_FIRST, WINDOW_MAX, Window};
use larder_wire::h2::frame::{self, PAYLOAD_BYTES_MAX_AT_FIRST, Settings};
use larder_wire::h2::hpack::{self, Decoder, FieldList};
use larder_wire::h2::{ErrorCode, PREFACE, Scope};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Streams that ended, which are remembered for frames that come late.
const ENDED_STREAMS_MAX: usize = 1_024;
/// Bytes of frames that wait for a peer that does not read, before no more of a request's body is made into frames.
const OUT_BYTES_MAX: usize = 256 * 1024;
/// Of as many requests that are over it is remembered what they asked for, so that a reply on a wrong stream is known.
const TURNS_MAX: usize = 256;

/// Replies up to this size are small for the fairness between streams: they fit into a frame.
const SMALL_BYTES_MAX: u64 = 16 * 1024;
/// Replies from this size on are large: they fill the buffers of a connection.
const LARGE_BYTES_MIN: u64 = 1 << 20;

/// The result of a request.
pub(super) enum Event {
    /// Its reply is over.
    Done(Box<Report>),
    /// It failed.
    Failed(Box<Job>, Trouble, String),
    /// The other end has not begun with it; the trouble that it is if it can't be sent again.
    Again(Box<Job>, Trouble, String),
    /// Something came that belongs to no request.
    Accused(Wrong),
}

/// The end of a connection.
pub(super) struct End {
    pub trouble: Trouble,
    pub detail: String,
    /// The code for the other end, where it broke a rule.
    pub code: Option<ErrorCode>,
}

/// The end of a stream, for frames that come after it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EndedBy {
    /// The other end may send no more.
    Server,
    /// The robot reset it; frames may be on their way.
    Robot,
}

/// A field block that is not whole yet.
pub(super) struct Block {
    pub stream: u32,
    pub ends_stream: bool,
    pub bytes: Vec<u8>,
    pub frames: usize,
}

/// A request under way.
pub(super) struct Stream {
    pub job: Box<Job>,
    /// Bytes of the request's body that may still be sent.
    pub window: Window,
    /// Bytes of the reply's body that may still come.
    pub receive: Window,
    /// Bytes that came and were not granted anew.
    pub owed: u32,
    /// When something was last sent or received on it.
    pub active: Duration,
    /// Bytes of the body that are still to come, by Content-Length.
    pub expected: Option<u64>,
    /// The reply has no body, whatever its fields say.
    pub has_no_body: bool,
    /// All of the request is in frames.
    pub is_sent: bool,
}

/// The state of one connection.
pub(super) struct State {
    /// Frames that wait to be written.
    pub out: Vec<u8>,
    /// Bytes that were read, and are no whole frame yet.
    pub inbox: Vec<u8>,
    pub events: VecDeque<Event>,
    pub streams: BTreeMap<u32, Stream>,
    /// The last stream that the other end works on, if it leaves, and why.
    pub leaving: Option<(u32, ErrorCode)>,
    /// Replies that were whole.
    pub served: u64,
    pub(super) has_settings: bool,
    pub(super) decoder: Decoder,
    pub(super) fields: FieldList,
    pub(super) block: Option<Block>,
    pub(super) ended: VecDeque<(u32, EndedBy)>,
    /// The number of the next stream.
    pub(super) next: u32,
    /// Bytes of all bodies that the other end takes.
    pub(super) window: Window,
    pub(super) initial_window: u32,
    pub(super) streams_max: u32,
    pub(super) receive: Window,
    pub(super) owed: u32,
    pub(super) settings: StreamSettings,
    pub(super) turns: VecDeque<Turn>,
    is_secure: bool,
}

impl State {
    /// The state of a new connection. Preface and SETTINGS wait to be written.
    pub fn new(settings: StreamSettings, is_secure: bool) -> Self {
        let connection_window = settings.connection_window_bytes.clamp(WINDOW_AT_FIRST, WINDOW_MAX);
        let own = Settings {
            takes_pushes: Some(false),
            window: Some(settings.stream_window_bytes.min(WINDOW_MAX)),
            list_bytes_max: Some(HEAD_LIMITS.head_bytes_max as u32),
            ..Settings::default()
        };
        let mut out = PREFACE.to_vec();
        frame::write_settings(&mut out, &own);
        if connection_window > WINDOW_AT_FIRST {
            frame::write_window_update(&mut out, 0, connection_window - WINDOW_AT_FIRST);
        }
        Self {
            out,
            inbox: Vec::new(),
            events: VecDeque::new(),
            streams: BTreeMap::new(),
            leaving: None,
            served: 0,
            has_settings: false,
            decoder: Decoder::new(),
            fields: FieldList::default(),
            block: None,
            ended: VecDeque::new(),
            next: 1,
            window: Window::of(WINDOW_AT_FIRST),
            initial_window: WINDOW_AT_FIRST,
            streams_max: u32::MAX,
            receive: Window::of(connection_window),
            owed: 0,
            settings: StreamSettings { connection_window_bytes: connection_window, ..settings },
            turns: VecDeque::new(),
            is_secure,
        }
    }

    /// Whether one more request may be sent now.
    pub fn has_room(&self) -> bool {
        (self.streams.len() as u64) < u64::from(self.settings.streams_max.min(self.streams_max))
    }

    /// Whether the connection takes requests at all.
    pub fn is_open(&self) -> bool {
        self.leaving.is_none() && self.next <= WINDOW_MAX
    }

    /// Sends a request.
    pub fn begin(&mut self, mut job: Box<Job>, desk: &Desk<'_>) {
        let number = self.next;
        self.next += 2;
        let (wish, sender) = (&job.wish, (desk.route, &desk.journal.seal));
        write_request(desk.law, sender, desk.settings.version, wish, job.xact, desk.clock.unix, &mut job.out);
        let mut block = Vec::with_capacity(256);
        if number == 1 {
            hpack::write_no_table(&mut block);
        }
        let body_at = head::request(&job.out, self.is_secure, &mut block);
        let has_body = body_at < job.out.len();
        frame::write_block(&mut self.out, number, &block, !has_body, PAYLOAD_BYTES_MAX_AT_FIRST);
        job.out_at = body_at;
        job.held = (has_body && job.wish.expects).then_some((body_at, desk.now + CONTINUE_MAX));
        job.asked = desk.clock.unix;
        job.sent = desk.now;
        let body = desk.law.body(&job.wish.facts, 0, job.wish.user(desk.law));
        self.turns.push_back(Turn { number: job.xact.number, seed: body.seed });
        if self.turns.len() > TURNS_MAX {
            self.turns.pop_front();
        }
        job.beside = self.beside(&job.wish);
        let stream = Stream {
            job,
            window: Window::of(self.initial_window),
            receive: Window::of(self.settings.stream_window_bytes),
            owed: 0,
            active: desk.now,
            expected: None,
            has_no_body: false,
            is_sent: !has_body,
        };
        self.streams.insert(number, stream);
    }

    /// The requests beside a new one; others are no longer alone.
    fn beside(&mut self, wish: &Wish) -> Option<Beside> {
        for stream in self.streams.values_mut() {
            stream.job.beside = stream.job.beside.filter(|beside| *beside != Beside::Nothing);
        }
        // Replies to others are heads, parts, or empty.
        let is_whole = |wish: &Wish| matches!(wish.kind, Kindred::Basic | Kindred::Reload);
        let is_large = |stream: &Stream| is_whole(&stream.job.wish) && stream.job.wish.facts.size >= LARGE_BYTES_MIN;
        match (is_whole(wish) && wish.facts.size <= SMALL_BYTES_MAX, self.streams.is_empty()) {
            (false, _) => None,
            (true, true) => Some(Beside::Nothing),
            (true, false) => self.streams.values().any(is_large).then_some(Beside::Large),
        }
    }

    /// Makes frames of bodies, each stream in its turn, as far as windows permit, and none larger than all peers take: one as large as a
    /// peer permits may be 16 MB. Says when a body that is held back must be sent
    /// at the latest (RFC 9110 section 10.1.1).
    pub fn pump(&mut self, now: Duration) -> Option<Duration> {
        let mut wakes: Option<Duration> = None;
        let mut moves = true;
        while std::mem::take(&mut moves) {
            wakes = None;
            for (number, stream) in self.streams.iter_mut().filter(|(_, stream)| !stream.is_sent) {
                if let Some((_, until)) = stream.job.held.filter(|(_, until)| *until > now) {
                    wakes = Some(wakes.map_or(until, |other| other.min(until)));
                    continue;
                }
                let room = stream.window.room().min(self.window.room()).min(PAYLOAD_BYTES_MAX_AT_FIRST) as usize;
                if room == 0 || self.out.len() > OUT_BYTES_MAX {
                    continue;
                }
                let job = &mut stream.job;
                job.held = None;
                let end = job.out.len().min(job.out_at + room);
                let bytes = end - job.out_at;
                stream.is_sent = end == job.out.len();
                frame::write_data_head(&mut self.out, *number, bytes, stream.is_sent);
                self.out.extend_from_slice(&job.out[job.out_at..end]);
                (job.out_at, job.sent, stream.active) = (end, now, now);
                // `room` is no more than either window has.
                let _ = stream.window.take(bytes as u32, Scope::Connection);
                let _ = self.window.take(bytes as u32, Scope::Connection);
                moves = true;
            }
        }
        wakes
    }

    /// Requests on which nothing has moved since `before` fail.
    pub fn expire(&mut self, before: Duration, timeout: Duration) {
        let late: Vec<u32> =
            self.streams.iter().filter(|(_, stream)| stream.active < before).map(|(number, _)| *number).collect();
        for number in late {
            let Some(stream) = self.streams.remove(&number) else { continue };
            frame::write_reset(&mut self.out, number, ErrorCode::Cancel);
            self.note_end(number, EndedBy::Robot);
            let shut = !stream.is_sent && (stream.window.room() == 0 || self.window.room() == 0);
            let (trouble, what) = match shut {
                true => (Trouble::WindowClosed, "the window for the rest of the body was not opened"),
                false => (Trouble::Timeout, "no whole reply"),
            };
            let detail = format!("{what} within {} s", timeout.as_secs_f64());
            // A reply that has begun may be wrong beside it.
            self.events.push_back(cut(stream.job, (trouble, detail), before + timeout));
        }
    }

    /// Takes a stream that is over from the others.
    pub(super) fn end_stream(&mut self, number: u32, by: EndedBy, now: Duration, complete: bool) {
        let Some(stream) = self.streams.remove(&number) else { return };
        self.note_end(number, by);
        self.served += u64::from(complete);
        self.events.extend(stream.job.finish(now, complete).map(Event::Done));
    }

    pub(super) fn note_end(&mut self, number: u32, by: EndedBy) {
        if self.ended.len() == ENDED_STREAMS_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((number, by));
    }

    /// A request fails; what has come of its reply is judged by what came. `code` is for the other end, where that has not ended
    /// the stream itself.
    pub(super) fn fail(&mut self, number: u32, wrong: Wrong, code: Option<ErrorCode>, now: Duration) {
        if let Some(code) = code.filter(|_| self.streams.contains_key(&number)) {
            frame::write_reset(&mut self.out, number, code);
        }
        let Some(stream) = self.streams.remove(&number) else { return };
        self.note_end(number, if code.is_some() { EndedBy::Robot } else { EndedBy::Server });
        self.events.push_back(cut(stream.job, wrong, now));
    }

    /// The connection is over.
    pub fn end(&mut self, end: &End, now: Duration) {
        if let Some(code) = end.code {
            frame::write_go_away(&mut self.out, 0, code, "");
        }
        let streams = std::mem::take(&mut self.streams);
        // A request tells what happened, unless what came was wrong beside it.
        if end.trouble.is_lie() || streams.is_empty() && end.code.is_some() {
            self.events.push_back(Event::Accused((end.trouble, end.detail.clone())));
        }
        for (number, stream) in streams {
            let event = self.ending(number, stream, end, now);
            self.events.push_back(event);
        }
    }

    /// The meaning of the connection's end for a request on it.
    fn ending(&self, number: u32, stream: Stream, end: &End, now: Duration) -> Event {
        let job = stream.job;
        let begun = job.reply.is_some();
        match self.leaving {
            Some((_, code)) if end.code.is_none() => {
                let detail = format!("GOAWAY ({}) named stream {number} as taken, and {}", code.as_str(), end.detail);
                cut(job, (Trouble::GoAway, detail), now)
            }
            // It had served others, so that it may have ended before it saw this one.
            _ if end.code.is_none() && !begun && self.served > 0 => Event::Again(job, end.trouble, end.detail.clone()),
            _ if end.trouble.is_lie() => {
                cut(job, (Trouble::ConnectionError, format!("the connection ended: {}", end.detail)), now)
            }
            // As over HTTP/1.1: what was promised and did not come is missing.
            _ if end.code.is_none() && begun => match job.finish(now, false) {
                Some(report) => Event::Done(report),
                None => Event::Accused((end.trouble, end.detail.clone())),
            },
            _ => cut(job, (end.trouble, end.detail.clone()), now),
        }
    }

    /// Requests behind the last stream that the other end works on are sent again.
    pub(super) fn take_back(&mut self, last: u32) {
        for (number, stream) in self.streams.split_off(&last.saturating_add(1)) {
            let detail = format!("GOAWAY says that stream {number} was not taken, again and again");
            self.events.push_back(Event::Again(stream.job, Trouble::StreamRefused, detail));
        }
    }
}

/// The end of a request whose reply was cut off, or never began.
fn cut(job: Box<Job>, wrong: Wrong, now: Duration) -> Event {
    match job.cut(wrong, now) {
        Ok(report) => Event::Done(report),
        Err((job, (trouble, detail))) => Event::Failed(job, trouble, detail),
    }
}

/// Whether a request was HEAD.
pub(super) fn is_head(job: &Job) -> bool {
    job.wish.kind == Kindred::Head
}
