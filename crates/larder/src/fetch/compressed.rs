//! Codes responses of sites on their way into the store (docs/compression.md, decision 109): whether one is coded, what its head
//! says then, and its body.

use super::checked::{BadBody, Checked};
use super::{Fetch, FetchKind, failure};
use crate::compression::{Coder, Step};
use crate::config::compression::Compression;
use crate::env::Env;
use crate::upstream::{BodySource, UpstreamFault, UpstreamFaultKind};
use bytes::Bytes;
use larder_cache::cache::Writer;
use larder_cache::entry::Room;
use larder_cache::policy::coded::{self, ChosenBy};
use larder_cache::policy::{self, Coding, Storable, Terms, Times};
use larder_wire::{Fields, Method, ResponseHead};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

impl Fetch {
    /// The codings that responses to this request may get. None where a service looks at answers: it would see coded ones.
    fn compression(&self) -> Option<Arc<Compression>> {
        let compression = self.ask.compression()?;
        let is_read = matches!(self.request.method, Method::Get | Method::Head);
        (is_read && self.posted.is_none() && !self.ask.passes() && !self.is_judged()).then(|| Arc::clone(compression))
    }

    /// Tells the origin which of the offered codings the client accepts. The answer to a request that is passed on depends on the client's
    /// own words, but that to a HEAD is the one of the GET.
    pub(super) fn offer_codings(&self, fields: &mut Fields) {
        if self.kind == FetchKind::Relay && self.request.method != Method::Head {
            return;
        }
        if let Some(compression) = self.compression() {
            fields.set("Accept-Encoding", compression.offer.accepted(&self.request.fields));
        }
    }

    /// Whether the body after this head is coded, if it is stored and there is room for a coder.
    pub(super) fn may_code(&self, head: &ResponseHead, declared: Option<u64>) -> bool {
        self.compression().is_some_and(|compression| {
            compression.offer.chosen(&self.request.fields).is_some() && is_codable(&compression, head, declared)
        })
    }

    /// Whether a stored response has no coding because there was no room for a coder, and might be coded if it were fetched again.
    pub(super) fn is_to_be_coded(&self, terms: &Terms) -> bool {
        terms.lacks_coding() && self.compression().is_some() && self.env.config().limits.codings_max > 0
    }

    /// Says in the head and the terms of a response that is about to be stored which requests it is for, and begins to code its
    /// body where that is done.
    pub(super) fn begin_coding(
        &self,
        head: &mut ResponseHead,
        terms: &mut Terms,
        declared: Option<u64>,
    ) -> Option<Box<Begun>> {
        let compression = self.compression()?;
        if !is_codable(&compression, head, declared) {
            self.vary_by_origin(&compression, head, terms);
            return None;
        }
        coded::vary_by_offer(terms, &compression.offer, &self.request, ChosenBy::Choice);
        let begun = compression.offer.chosen(&self.request.fields).and_then(|coding| {
            let level = compression.level(coding);
            Begun::new(&self.env, (coding, level), declared)
        });
        match &begun {
            Some(begun) => {
                terms.coded = Some(begun.coder.coding());
                coded::code_head(head, begun.coder.coding());
            }
            None => coded::vary_by_coding(head),
        }
        begun.map(Box::new)
    }

    /// The origin has chosen by the codings that it was told, where it says that it chose by codings.
    fn vary_by_origin(&self, compression: &Compression, head: &ResponseHead, terms: &mut Terms) {
        if head.fields.has_member("Vary", "accept-encoding") {
            coded::vary_by_offer(terms, &compression.offer, &self.request, ChosenBy::Accepted);
        }
    }

    /// Says which requests a response is for of which a part came: parts of the origin's body are put together, and no coded ones.
    pub(super) fn vary_part(&self, head: &mut ResponseHead, terms: &mut Terms, length: u64) {
        let Some(compression) = self.compression() else { return };
        if !is_codable(&compression, head, Some(length)) {
            return self.vary_by_origin(&compression, head, terms);
        }
        coded::vary_by_offer(terms, &compression.offer, &self.request, ChosenBy::Identity);
        coded::vary_by_coding(head);
    }

    /// Says in the head of a response that is not stored what it depends on, where a stored one would be coded. The answer to a HEAD is that
    /// of the GET (RFC 9110 section 9.3.2); true where that would be coded, and its length is not known.
    pub(super) fn code_head_of_passing(&self, head: &mut ResponseHead, declared: Option<u64>, times: Times) -> bool {
        let Some(compression) = self.compression() else { return false };
        if !is_codable(&compression, head, declared) {
            return false;
        }
        coded::vary_by_coding(head);
        if self.request.method != Method::Head {
            return false;
        }
        let mut as_get = (*self.request).clone();
        as_get.method = Method::Get;
        let by_rule = self.policy_by_rule(head);
        let settings = by_rule.as_ref().unwrap_or_else(|| self.policy());
        let is_stored = matches!(policy::storable(&as_get, head, times, settings), Storable::Yes(_));
        let chosen = compression.offer.chosen(&self.request.fields).filter(|_| is_stored);
        if let Some(coding) = chosen {
            coded::code_head(head, coding);
        }
        chosen.is_some()
    }
}

/// Whether the response with this head is one that is coded.
fn is_codable(compression: &Compression, head: &ResponseHead, declared: Option<u64>) -> bool {
    let fields = &head.fields;
    head.status == 200
        && fields.members("Content-Encoding").all(|coding| coding.eq_ignore_ascii_case(b"identity"))
        && compression.is_for_type(fields.get("Content-Type"))
        && declared.is_none_or(|length| length >= compression.bytes_min.max(1))
        && !coded::is_forbidden(fields)
}

/// A body whose coding has begun.
pub(super) struct Begun {
    env: Rc<Env>,
    coder: Coder,
}

/// Bytes of a body that are coded at once.
const STEP_BYTES: usize = 32 * 1024;
/// A longer step is done on another thread: the worker has other clients, whose answers would wait (decision 109).
const STEP_ON_WORKER_BYTES: usize = 8 * 1024;
/// The client gets what there is when it has waited for so long: the origin pauses, or sends little.
const PAUSE: Duration = Duration::from_millis(50);

impl Begun {
    fn new(env: &Rc<Env>, (coding, level): (Coding, u8), declared: Option<u64>) -> Option<Begun> {
        let place = env.common.codings.begin(env.config().limits.codings_max);
        let Some(place) = place else {
            env.tally.codings_refused.add(1);
            return None;
        };
        match Coder::new(coding, level, declared, place) {
            Ok(coder) => Some(Begun { env: Rc::clone(env), coder }),
            Err(error) => {
                tracing::warn!(%error, "a body is not coded");
                None
            }
        }
    }

    /// Carries the body to its end. The error is the word for the fault that broke the response off.
    pub(super) async fn pour(
        self,
        writer: Writer,
        body: BodySource,
        checked: Option<Box<Checked>>,
    ) -> Result<(), &'static str> {
        let Begun { env, coder } = self;
        let (held, held_bytes) = (Vec::new(), 0);
        let mut pouring = Pouring { env, writer, coder: Some(coder), held, held_bytes, is_begun: false, due: None };
        let word = match pouring.run(body, checked).await {
            Ok(End::Whole(trailers, is_for_readers)) => {
                pouring.count();
                match is_for_readers {
                    true => pouring.writer.finish_for_readers(trailers),
                    false => pouring.writer.finish(trailers),
                }
                return Ok(());
            }
            Ok(End::Left) => return Ok(()),
            Err(Broke::Body(fault)) => {
                pouring.writer.fail(failure(&fault));
                fault.kind.as_str()
            }
            Err(Broke::Bad(bad)) => {
                let failure = bad.failure();
                let word = failure.word;
                pouring.writer.refuse(failure);
                word
            }
        };
        Err(word)
    }
}

/// How a body ended that was coded.
enum End {
    /// All of it is coded; with its trailers, and whether nobody else may have it.
    Whole(Option<Fields>, bool),
    /// Nobody wants it any more.
    Left,
}

/// Why a body has no end.
enum Broke {
    Body(UpstreamFault),
    Bad(BadBody),
}

impl From<BadBody> for Broke {
    fn from(bad: BadBody) -> Broke {
        Broke::Bad(bad)
    }
}

/// A body on its way from the origin by a coder into the entry.
struct Pouring {
    env: Rc<Env>,
    writer: Writer,
    /// `None` after a fault.
    coder: Option<Coder>,
    /// Pieces that wait for the next step.
    held: Vec<Bytes>,
    held_bytes: usize,
    /// The coder holds bytes that the client might have.
    is_begun: bool,
    /// When the client gets them and those that are held, however little the origin sends until then.
    due: Option<Instant>,
}

impl Pouring {
    async fn run(&mut self, mut body: BodySource, mut checked: Option<Box<Checked>>) -> Result<End, Broke> {
        let mut at = 0;
        loop {
            let room = match body.works_beside() {
                false => self.writer.room().await,
                true => Box::pin(body.work_beside(self.writer.room())).await,
            };
            if room == Room::Gone {
                return Ok(End::Left);
            }
            let next = match self.due {
                None => Ok(body.next().await),
                Some(due) => timeout_at(due, body.next()).await,
            };
            let Ok(next) = next else {
                self.step(Step::Pauses).await?;
                (self.is_begun, self.due) = (false, None);
                continue;
            };
            let Some(piece) = next.map_err(Broke::Body)? else { break };
            let from = at;
            at += piece.len() as u64;
            let ready = match &mut checked {
                None => Some(piece),
                Some(checked) => checked.piece(self.writer.entry(), from, piece).await?,
            };
            self.hold(ready);
            if self.held_bytes >= STEP_BYTES {
                let gave = self.step(Step::Goes).await?;
                self.is_begun = true;
                self.due = self.due.filter(|_| !gave);
            }
            if self.is_begun || self.held_bytes > 0 {
                self.due.get_or_insert_with(|| Instant::now() + PAUSE);
            }
        }
        let mut is_for_readers = false;
        if let Some(checked) = &mut checked {
            let last = checked.last_piece(self.writer.entry())?;
            self.hold(last);
            is_for_readers = checked.is_for_readers();
        }
        self.step(Step::Ends).await?;
        let mut trailers = body.trailers();
        if let Some(trailers) = &mut trailers {
            coded::ABOUT_BYTES.iter().for_each(|name| _ = trailers.remove(name));
        }
        Ok(End::Whole(trailers.filter(|trailers| !trailers.is_empty()), is_for_readers))
    }

    fn hold(&mut self, piece: Option<Bytes>) {
        self.held_bytes += piece.as_ref().map_or(0, Bytes::len);
        self.held.extend(piece);
    }

    /// Codes the pieces that are held, and puts what comes of it into the entry; false where nothing does.
    async fn step(&mut self, kind: fn(Vec<Bytes>) -> Step) -> Result<bool, Broke> {
        let step = kind(std::mem::take(&mut self.held));
        let bytes = std::mem::take(&mut self.held_bytes);
        let Some(mut coder) = self.coder.take() else { return Err(not_coded(io::ErrorKind::UnexpectedEof.into())) };
        // A coder that has begun may hold more bytes than come with this step, and code them now.
        let (coder, result) = match !self.is_begun && bytes <= STEP_ON_WORKER_BYTES {
            true => {
                let result = coder.step(step);
                (coder, result)
            }
            false => {
                let _turn = self.env.common.codings.turn().await;
                let work = tokio::task::spawn_blocking(move || {
                    let result = coder.step(step);
                    (coder, result)
                });
                work.await.map_err(|error| not_coded(io::Error::other(error)))?
            }
        };
        self.coder = Some(coder);
        let coded = result.map_err(not_coded)?;
        let gave = !coded.is_empty();
        if gave {
            self.writer.push(coded);
        }
        Ok(gave)
    }

    fn count(&self) {
        let Some(coder) = &self.coder else { return };
        let tally = &self.env.tally;
        let (bodies, read, written, took) = match coder.coding() {
            Coding::Gzip => (&tally.gzip_bodies, &tally.gzip_bytes_read, &tally.gzip_bytes_written, &tally.gzip_micros),
            Coding::Brotli => (&tally.br_bodies, &tally.br_bytes_read, &tally.br_bytes_written, &tally.br_micros),
            Coding::Zstd => (&tally.zstd_bodies, &tally.zstd_bytes_read, &tally.zstd_bytes_written, &tally.zstd_micros),
        };
        bodies.add(1);
        read.add(coder.bytes_read);
        written.add(coder.bytes_written);
        took.add(u64::try_from(coder.took.as_micros()).unwrap_or(u64::MAX));
    }
}

/// The fault where a coder fails, which happens for want of memory alone.
fn not_coded(error: io::Error) -> Broke {
    Broke::Body(UpstreamFault::new(UpstreamFaultKind::Truncated, format!("the body could not be coded: {error}")))
}
