//! Traces: spans of sampled requests and of the fetches for them, handed to an OpenTelemetry collector (OTLP over HTTP, JSON).
//!
//! A worker makes the spans of its own requests and hands them over a few times a second; a thread of its own sends
//! them. The spans that wait are bounded (`tracing.queue_spans_max`); spans beyond that are dropped and counted, and no
//! request ever waits for the collector.

mod collector;
mod otlp;
mod span;

pub use span::{Kind, Span, Value};

use crate::caught;
use crate::config::Config;
use crate::record::{Names, Notes, Query, Record};
use crate::sampling::{Draws, Sampled};
use collector::{Collector, Trouble};
use larder_wire::{Method, RequestHead, Url};
use rustls::ClientConfig;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Bundles that wait for the thread; `tracing.queue_spans_max` is met first unless they are tiny.
const ORDERS_MAX: usize = 4_096;
/// Spans in one POST.
const BATCH_SPANS_MAX: usize = 512;
/// How long spans are gathered before they are sent.
const GATHER: Duration = Duration::from_secs(1);
/// The pauses before a batch is sent a second and a third time.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];
/// How long the end of the server waits for the last spans.
const FINISH_WITHIN: Duration = Duration::from_secs(3);

/// The workers' end of the traces.
pub struct Traces {
    orders: SyncSender<Order>,
    counts: Arc<Counts>,
    queue_spans_max: usize,
    query: Query,
}

/// Counts of spans by their end.
#[derive(Debug, Default)]
pub struct Counts {
    /// The collector took them.
    pub exported: AtomicU64,
    /// They did not fit the queue.
    pub dropped_queue: AtomicU64,
    /// The collector did not take them.
    pub dropped_collector: AtomicU64,
    /// How often the thread met a broken invariant and went on.
    pub restarts: AtomicU64,
    waiting: AtomicUsize,
}

/// The spans of one worker.
#[derive(Debug, Default)]
pub struct Spans {
    ended: RefCell<Vec<Span>>,
    draws: Draws,
}

enum Order {
    Send(Vec<Span>),
    /// Says when all that came before is sent.
    Finish(SyncSender<()>),
}

impl Traces {
    /// Starts the thread; `None` when nobody wants traces.
    pub fn open(config: &Config, instance: &str, tls: Arc<ClientConfig>) -> io::Result<Option<Traces>> {
        let settings = &config.tracing;
        let Some(url) = &settings.otlp else { return Ok(None) };
        let collector = Collector::at(url, tls)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no certificate can name that host"))?;
        let (orders, ordered) = sync_channel(ORDERS_MAX);
        let counts = Arc::new(Counts::default());
        let resource = span::resource(settings, instance);
        let sender = Exporter { collector, resource, counts: Arc::clone(&counts), told: false };
        std::thread::Builder::new().name("traces".into()).spawn(move || sender.run(&ordered))?;
        let query = Query::hidden_if(config.records.hide_query);
        Ok(Some(Traces { orders, counts, queue_spans_max: settings.queue_spans_max, query }))
    }

    /// The place of a request in a trace, where it is sampled.
    pub fn begin(&self, request: &RequestHead, share: f64, spans: &Spans) -> Option<Box<Sampled>> {
        Sampled::begin(request, share, &spans.draws)
    }

    /// A request is over.
    pub fn end(&self, sampled: Sampled, record: &Record, names: &Names, spans: &Spans) {
        self.keep(spans, || Span::of_request(sampled.place, record, names, self.query));
    }

    /// A fetch is over.
    pub fn end_fetch(&self, method: &Method, url: &Url, notes: &Rc<Notes>, spans: &Spans) {
        if let Some(sampled) = notes.sampled.get() {
            self.keep(spans, || Span::of_fetch(sampled.place.clone(), method, url, notes, self.query));
        }
    }

    fn keep(&self, spans: &Spans, span: impl FnOnce() -> Span) {
        if self.counts.waiting.load(Ordering::Relaxed) >= self.queue_spans_max {
            self.counts.dropped_queue.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.counts.waiting.fetch_add(1, Ordering::Relaxed);
        spans.ended.borrow_mut().push(span());
    }

    /// Hands a worker's spans to the thread.
    pub fn hand_over(&self, spans: &Spans) {
        let ended = spans.ended.take();
        let many = ended.len();
        if many > 0 && self.orders.try_send(Order::Send(ended)).is_err() {
            self.counts.waiting.fetch_sub(many, Ordering::Relaxed);
            self.counts.dropped_queue.fetch_add(many as u64, Ordering::Relaxed);
        }
    }

    /// Waits until all that was handed over is sent, at most for a moment.
    pub fn finish(&self) {
        let (tell, sent) = sync_channel(1);
        if self.orders.try_send(Order::Finish(tell)).is_ok() {
            let _ = sent.recv_timeout(FINISH_WITHIN);
        }
    }

    /// Counts of all spans so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}

/// The thread's end.
struct Exporter {
    collector: Collector,
    resource: Vec<(&'static str, Value)>,
    counts: Arc<Counts>,
    /// The trouble with the collector was reported.
    told: bool,
}

impl Exporter {
    fn run(mut self, orders: &Receiver<Order>) {
        let mut batch = Vec::new();
        let mut since = Instant::now();
        loop {
            let wait = if batch.is_empty() { GATHER } else { GATHER.saturating_sub(since.elapsed()) };
            match orders.recv_timeout(wait) {
                Ok(Order::Send(spans)) => {
                    if batch.is_empty() {
                        since = Instant::now();
                    }
                    batch.extend(spans);
                    if batch.len() >= BATCH_SPANS_MAX {
                        self.send(&mut batch);
                    }
                }
                Ok(Order::Finish(tell)) => {
                    self.send(&mut batch);
                    let _ = tell.try_send(());
                }
                Err(RecvTimeoutError::Timeout) => self.send(&mut batch),
                Err(RecvTimeoutError::Disconnected) => return self.send(&mut batch),
            }
        }
    }

    fn send(&mut self, batch: &mut Vec<Span>) {
        for spans in std::mem::take(batch).chunks(BATCH_SPANS_MAX) {
            let many = spans.len();
            let mut result = Err("a broken invariant of Larder".to_owned());
            let counts = Arc::clone(&self.counts);
            caught::call(&counts.restarts, || result = self.post(&otlp::body(&self.resource, spans)));
            self.counts.waiting.fetch_sub(many, Ordering::Relaxed);
            let count = if result.is_ok() { &self.counts.exported } else { &self.counts.dropped_collector };
            count.fetch_add(many as u64, Ordering::Relaxed);
            if let (Err(why), false) = (&result, self.told) {
                tracing::error!(
                    why,
                    "the collector of [tracing] otlp does not take spans; requests are served all the same"
                );
            }
            self.told = result.is_err();
        }
    }

    /// Sends a batch, again when the trouble may pass. Spans that come meanwhile wait, as far as there is room.
    fn post(&self, body: &[u8]) -> Result<(), String> {
        let mut pauses = PAUSES.into_iter();
        loop {
            match (self.collector.post(body), pauses.next()) {
                (Ok(()), _) => return Ok(()),
                // A collector that was out of reach all the time gets no pauses for further batches.
                (Err(Trouble::Passing(_)), Some(pause)) if !self.told => std::thread::sleep(pause),
                (Err(Trouble::Passing(why) | Trouble::Lasting(why)), _) => return Err(why),
            }
        }
    }
}
