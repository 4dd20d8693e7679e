//! Several range requests for one large download, where they bring it sooner (decision 044).
//!
//! The running download is the first request and stays as it is. Further ones bring chunks ahead of it, each a fill of a hole
//! that nobody has asked for yet. One is tried first, on the end of the object, so that nothing is lost where it brings
//! nothing: the download comes to that end anyway. Only when it has brought a tenth more bytes a second are chunks
//! taken in the order in which clients read, and further requests tried.

use super::pour::{STALLED, Sink, pour};
use super::{Fetch, FetchKind, Refill, checked_parts, part};
use crate::client::Client;
use crate::record::{Notes, Parallel, ParallelLimit, Peer};
use crate::rules::Route;
use crate::upstream::{ExtraRange, RangePace, RangesFound, RangesKnown};
use larder_cache::cache::Fill;
use larder_cache::entry::PinnedEntry;
use larder_wire::{ResponseHead, Url};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// One more request has to bring this many times the bytes a second.
const GAIN: f64 = 1.1;
/// From this gain on (of nearly twice as much by twice as many) requests are doubled.
const GAIN_TO_DOUBLE: f64 = 1.6;
/// A rate is steady when two windows differ by no more.
const STEADY: f64 = 0.1;
/// How often in a window is looked whether a request is missing.
const LOOKS: u32 = 5;
/// So many windows are waited for that.
const WINDOWS_MAX: usize = 8;

/// The means to ask for more of a download than its first request brings.
pub(super) struct Ahead {
    refill: Refill,
    notes: Rc<Notes>,
    max: usize,
    /// The number of requests that was the best for this origin of late.
    best: Option<usize>,
}

impl Ahead {
    /// For a response that may be worth it: large, of known length, not coded on the fly, from an origin that takes ranges.
    pub(super) fn of(fetch: &Fetch, head: &ResponseHead, declared: Option<u64>) -> Option<Box<Ahead>> {
        let pace = fetch.env.upstreams.range_pace();
        // At the pace of a limited client nothing is seen of the origin's, and nothing may come faster.
        if fetch.ask.limits().is_some() {
            return None;
        }
        if declared? < pace.object_bytes_min || fetch.kind != FetchKind::Share || head.status != 200 {
            return None;
        }
        let settings = &fetch.env.config().upstream;
        let is_permitted = matches!(fetch.ask.route, Route::Forward(_)) || settings.parallel_for_sites;
        let max = settings.parallel_ranges;
        // An answer to an authenticated request is mostly for one client, and its parts may differ from user to user.
        let is_plain = !fetch.request.fields.contains("Authorization") && !head.fields.contains("Content-Encoding");
        // The rest of what a sibling or another node has would come from the origin.
        let is_of_sibling = matches!(fetch.notes.peer.get(), Some((Peer::Sibling(_) | Peer::Home, _)));
        if is_of_sibling || max < 2 || !is_permitted || !is_plain || !fetch.may_combine_parts(head) {
            return None;
        }
        let takes_ranges = head.fields.has_member("Accept-Ranges", "bytes");
        let best = match fetch.env.upstreams.ranges_known(fetch.ask.connects_to()) {
            RangesKnown::Nothing if !takes_ranges => return None,
            RangesKnown::Nothing | RangesKnown::Proven => None,
            RangesKnown::Gain(1) => return unbegun(&fetch.notes, ParallelLimit::NoGain),
            RangesKnown::Gain(best) => Some(best.min(max)),
            RangesKnown::LeftAlone => return unbegun(&fetch.notes, ParallelLimit::LeftAlone),
        };
        let refill = Refill {
            env: Rc::clone(&fetch.env),
            ask: fetch.ask.clone(),
            request: Rc::clone(&fetch.request),
            client: fetch.client,
            connected_to: fetch.connected_to,
            for_run: fetch.for_run,
        };
        Some(Box::new(Ahead { refill, notes: Rc::clone(&fetch.notes), max, best }))
    }

    /// Begins to watch the download, in a task of its own. Nothing where the entry can't be put together from parts.
    pub(super) fn begin(self, entry: &PinnedEntry) {
        let Some(length) = entry.length().filter(|_| entry.is_mendable()) else { return };
        let download = Download {
            pace: self.refill.env.upstreams.range_pace(),
            entry: entry.clone(),
            length,
            width: Cell::new(1),
            slots: Cell::new(0),
            answered: Cell::new(0),
            requests: Cell::new(0),
            most: Cell::new(1),
            chunk_bytes: Cell::new(0),
            order: Cell::new(Order::FromEnd),
            next: Cell::new(0),
            tail: Cell::new(length),
            claimed: RefCell::new(None),
            stop: Cell::new(None),
            busy_for: Cell::new(None),
            ahead: self,
        };
        tokio::task::spawn_local(watch(Rc::new(download)));
    }
}

fn unbegun<T>(notes: &Notes, limit: ParallelLimit) -> Option<T> {
    notes.parallel.set(Some(Parallel { most: 1, requests: 0, limit }));
    None
}

/// Which chunk is the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// The last one that was not given out: whether further requests bring more is not known yet.
    FromEnd,
    /// The first one after those that were given out.
    Forward,
}

/// A download that more than one request may bring.
struct Download {
    ahead: Ahead,
    pace: RangePace,
    entry: PinnedEntry,
    length: u64,
    /// Requests at once that are wanted, the first one included.
    width: Cell<usize>,
    /// Tasks that ask for one chunk after the other.
    slots: Cell<usize>,
    /// Chunks whose first byte is about to come.
    answered: Cell<usize>,
    requests: Cell<u16>,
    /// The largest width that brought more.
    most: Cell<u8>,
    chunk_bytes: Cell<u64>,
    order: Cell<Order>,
    /// Where the next chunk begins, in [`Order::Forward`].
    next: Cell<u64>,
    /// From here on chunks were given out from the end.
    tail: Cell<u64>,
    /// The next chunk, so that a reader who comes there waits for it and asks for nothing.
    claimed: RefCell<Option<Fill>>,
    stop: Cell<Option<ParallelLimit>>,
    /// The pause that the origin asked for when it was busy.
    busy_for: Cell<Option<Duration>>,
}

/// Follows a download from its head to its end.
async fn watch(download: Rc<Download>) {
    let limit = download.widen().await;
    download.note(limit);
    if let ParallelLimit::NoGain | ParallelLimit::Setting | ParallelLimit::Short = limit
        && download.requests.get() > 0
    {
        download.found(RangesFound::Gain(usize::from(download.most.get())));
    }
    while download.width.get() > 1 && download.is_wanted() {
        download.pause().await;
        if download.under_way() == 0 {
            break;
        }
    }
    download.claimed.take();
}

impl Download {
    fn url(&self) -> &Url {
        self.ahead.refill.ask.connects_to()
    }

    fn client(&self) -> Client {
        Client::at(self.ahead.refill.client.ip())
    }

    fn found(&self, found: RangesFound) {
        self.ahead.refill.env.upstreams.ranges_found(self.url(), found);
    }

    fn note(&self, limit: ParallelLimit) {
        let (most, requests) = (self.most.get(), self.requests.get());
        self.ahead.notes.parallel.set(Some(Parallel { most, requests, limit }));
    }

    /// Requests that bring it now.
    fn under_way(&self) -> usize {
        self.slots.get() + usize::from(self.entry.stream_position().is_some())
    }

    fn left_bytes(&self) -> u64 {
        self.length.saturating_sub(self.entry.brought())
    }

    /// Whether more of it may be asked for: it is being stored, nothing speaks against it, and a client reads it or it would be
    /// finished without one.
    fn is_wanted(&self) -> bool {
        let finishes_alone = || {
            let settings = self.ahead.refill.env.common.cache.settings();
            self.left_bytes() <= settings.abandoned_bytes_max.max(self.entry.brought())
        };
        let is_read = self.entry.readers() > 0 || finishes_alone();
        // Once nothing is under way the entry has forgotten what came.
        let goes_on = self.entry.stream_position().is_some() || self.entry.brought() > 0;
        goes_on && self.stop.get().is_none() && self.entry.is_mendable() && is_read
    }

    /// Finds the number of requests at once that brings the most; says why there are no more.
    async fn widen(self: &Rc<Self>) -> ParallelLimit {
        let mut rate = match self.steady_rate().await {
            Ok(rate) => rate,
            Err(limit) => return limit,
        };
        let mut doubles = false;
        loop {
            let before = self.width.get();
            let more = match self.ahead.best {
                _ if before >= self.ahead.max => return ParallelLimit::Setting,
                Some(best) if before == 1 => best - 1,
                _ if doubles => before,
                _ => 1,
            };
            if (self.left_bytes() as f64) < rate * self.pace.left_seconds_min {
                return ParallelLimit::Short;
            }
            let per_request = rate / before as f64 * self.pace.chunk_seconds;
            self.chunk_bytes.set((per_request as u64).clamp(self.pace.chunk_bytes_min, self.pace.chunk_bytes_max));
            let answered = self.answered.get();
            let opened = self.open(more.min(self.ahead.max - before));
            if opened == 0 {
                return self.stop.get().unwrap_or(ParallelLimit::Permits);
            }
            self.width.set(before + opened);
            for _ in 0..WINDOWS_MAX {
                self.pause().await;
                if self.answered.get() > answered {
                    break;
                }
            }
            let mut now = self.rate().await;
            if now < rate * GAIN {
                // One pause of the network is no finding.
                now = now.max(self.rate().await);
            }
            if let Some(limit) = self.stop.get() {
                return limit;
            }
            if !self.is_wanted() || self.under_way() < before {
                return ParallelLimit::Short;
            }
            if now < rate * GAIN {
                self.width.set(before);
                return ParallelLimit::NoGain;
            }
            doubles = now >= rate * GAIN_TO_DOUBLE.min(1.0 + 0.6 * opened as f64 / before as f64);
            rate = now;
            self.most.set(u8::try_from(self.width.get()).unwrap_or(u8::MAX));
            self.order.set(Order::Forward);
            self.note(ParallelLimit::Open);
        }
    }

    /// The rate of the first request once it changes no more.
    async fn steady_rate(self: &Rc<Self>) -> Result<f64, ParallelLimit> {
        sleep(self.pace.window).await;
        let mut rate = 0.0;
        for _ in 0..WINDOWS_MAX {
            let now = self.rate().await;
            if !self.is_wanted() || self.entry.stream_position().is_none() {
                return Err(ParallelLimit::Short);
            }
            if (self.left_bytes() as f64) < now * self.pace.left_seconds_min {
                return Err(ParallelLimit::Short);
            }
            let is_steady = (now - rate).abs() <= rate * STEADY && now > 0.0;
            rate = now;
            if is_steady {
                break;
            }
        }
        if rate > 0.0 { Ok(rate) } else { Err(ParallelLimit::NoGain) }
    }

    /// Bytes a second in a window from now on, of all requests.
    async fn rate(self: &Rc<Self>) -> f64 {
        let (before, began) = (self.entry.brought(), Instant::now());
        self.pause().await;
        let seconds = began.elapsed().max(Duration::from_millis(1)).as_secs_f64();
        self.entry.brought().saturating_sub(before) as f64 / seconds
    }

    /// Waits for a window. When the first request has come to what others bring it ends, and another one takes its place.
    async fn pause(self: &Rc<Self>) {
        for _ in 0..LOOKS {
            let missing = self.width.get().saturating_sub(self.under_way());
            if self.width.get() > 1 && missing > 0 && self.is_wanted() && self.has_chunk() {
                self.open(missing);
            }
            sleep(self.pace.window / LOOKS).await;
        }
    }

    /// Begins tasks that ask for chunks; gives how many the limits permit.
    fn open(self: &Rc<Self>, many: usize) -> usize {
        let upstreams = &self.ahead.refill.env.upstreams;
        let mut opened = 0;
        while opened < many {
            let Some(permit) = upstreams.extra_range(self.url(), self.client(), self.ahead.max - 1) else { break };
            self.slots.set(self.slots.get() + 1);
            tokio::task::spawn_local(Slot { download: Rc::clone(self), _permit: permit }.run());
            opened += 1;
        }
        opened
    }

    /// The next chunk.
    fn take_chunk(&self) -> Option<Fill> {
        let chunk = self.claimed.take().or_else(|| self.claim())?;
        if self.order.get() == Order::Forward {
            self.claimed.replace(self.claim());
        }
        Some(chunk)
    }

    /// Whether there is a next chunk, which is claimed then.
    fn has_chunk(&self) -> bool {
        let mut claimed = self.claimed.borrow_mut();
        if claimed.is_none() {
            *claimed = self.claim();
        }
        claimed.is_some()
    }

    fn claim(&self) -> Option<Fill> {
        let block = self.pace.block_bytes;
        // Smaller ones towards the end, so that all requests end at about the same time.
        let share = self.left_bytes() / (2 * self.width.get().max(1) as u64);
        let bytes = self.chunk_bytes.get().min(share.max(self.pace.chunk_bytes_min));
        let bytes = bytes.next_multiple_of(block);
        // The first request keeps what it brings while a chunk is fetched.
        let reserved = self.entry.stream_position().map_or(0, |at| (at + bytes).next_multiple_of(block));
        let hole = match self.order.get() {
            Order::FromEnd => {
                let end = self.tail.get();
                let start = (end.saturating_sub(bytes) / block * block).max(reserved);
                self.tail.set(start.min(end));
                self.entry.next_unfilled(start, end)?
            }
            Order::Forward => {
                let hole = self.entry.next_unfilled(self.next.get().max(reserved), self.length)?;
                let end = hole.end.min((hole.start + bytes) / block * block);
                self.next.set(end);
                hole.start..end
            }
        };
        Fill::begin_ahead(&self.entry, &hole)
    }

    /// Fetches one chunk; the error says why no further ones are to be asked for.
    async fn fetch(&self, chunk: Fill) -> Result<(), ParallelLimit> {
        let env = &self.ahead.refill.env;
        let mut fetch = self.ahead.refill.fetch_into(chunk);
        let (fields, hole) = (fetch.fields_for_origin(), fetch.fill.as_ref().map(Fill::hole));
        let (Some(chunk), Some(hole)) = (fetch.fill.take(), hole) else { return Err(ParallelLimit::NotWanted) };
        self.requests.set(self.requests.get().saturating_add(1));
        env.tally.parallel_requests.add(1);
        let answer = timeout(self.pace.silent_max, fetch.ask_origin(&fields)).await;
        let answer = answer.map_err(|_| ParallelLimit::Slow)?.map_err(|_| ParallelLimit::Trouble)?;
        match answer.head.status {
            206 => {}
            200 | 403 | 416 => return Err(ParallelLimit::Forbidden),
            429 | 503 => {
                let pause = answer.head.fields.text("Retry-After").and_then(|text| text.parse().ok());
                self.busy_for.set(pause.map(Duration::from_secs));
                return Err(ParallelLimit::Busy);
            }
            404 | 410 | 412 => return Err(ParallelLimit::Changed),
            _ => return Err(ParallelLimit::Trouble),
        }
        let part::Filled::By(filled) = part::fill(&fetch, chunk, &answer) else { return Err(ParallelLimit::Changed) };
        let (chunk, own) = *filled;
        let checked = checked_parts(env, &self.ahead.notes, &fetch.asked_file(), &self.entry);
        fetch.writer.redirect_with(&self.entry, own);
        self.answered.set(self.answered.get() + 1);
        let sink = Sink::Ahead(chunk, Arc::clone(&env.common.cache), self.pace.silent_max);
        Box::pin(pour(sink, answer.body, checked)).await.map_err(|word| match word {
            STALLED => ParallelLimit::Slow,
            _ => ParallelLimit::Trouble,
        })?;
        if !self.entry.has(&hole) {
            return Err(ParallelLimit::NotWanted);
        }
        env.tally.parallel_bytes.add(hole.end - hole.start);
        Ok(())
    }

    /// Ends all further requests after those that are under way.
    fn end(&self, limit: ParallelLimit) {
        if self.stop.get().is_some() {
            return;
        }
        self.stop.set(Some(limit));
        self.claimed.take();
        self.note(limit);
        match limit {
            ParallelLimit::Forbidden => self.found(RangesFound::Forbidden),
            ParallelLimit::Slow | ParallelLimit::Trouble | ParallelLimit::Changed => self.found(RangesFound::Troubled),
            ParallelLimit::Busy => self.found(RangesFound::Busy(self.busy_for.get())),
            _ => return,
        }
        self.ahead.refill.env.tally.parallel_stops.add(1);
    }
}

/// One request at a time beside the first one.
struct Slot {
    download: Rc<Download>,
    _permit: ExtraRange,
}

impl Slot {
    async fn run(self) {
        let download = &self.download;
        let upstreams = &download.ahead.refill.env.upstreams;
        while download.under_way() <= download.width.get() && download.is_wanted() {
            // Where nobody reads it, it is one of the fetches that go on for the store alone.
            let unread = (download.entry.readers() == 0).then(|| upstreams.asked(download.url()).unread());
            if matches!(unread, Some(None)) || !upstreams.has_spare_permit(download.url(), download.client()) {
                break;
            }
            let Some(chunk) = download.take_chunk() else { break };
            if let Err(limit) = download.fetch(chunk).await {
                download.end(limit);
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.download.slots.set(self.download.slots.get() - 1);
    }
}
