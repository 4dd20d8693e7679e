//! A request under way, over whatever connection: what was asked, when, and the judge of its reply.

use super::retrial::Bench;
use super::{Case, Company, Judge, Kindred, Retrial, RobotSettings, Route, Turn, Verdict, Wish, Wrong};
use crate::journal::Journal;
use crate::ledger::{Beside, Mode};
use crate::object::Law;
use crate::wire::{Clock, Xact};
use larder_wire::body::Decoder;
use larder_wire::framing::{self, Framing};
use larder_wire::{Method, ResponseHead};
use std::time::Duration;

/// A body is held back for so long at most (RFC 9110 section 10.1.1).
pub(super) const CONTINUE_MAX: Duration = Duration::from_secs(1);

/// The surroundings of a connection: everything that belongs to its worker.
pub struct Desk<'a> {
    /// The object law.
    pub law: &'a Law,
    /// The robots.
    pub settings: &'a RobotSettings,
    /// Whom they speak to.
    pub route: &'a Route,
    /// The journal of the origins.
    pub journal: &'a Journal,
    /// The wall clock.
    pub clock: &'a Clock,
    /// Time since the run began.
    pub now: Duration,
    /// Room to read.
    pub buffer: &'a mut [u8],
}

impl<'a> Desk<'a> {
    /// The rules and the journal, by which replies are judged.
    pub(super) fn bench(&self) -> Bench<'a> {
        Bench { law: self.law, settings: self.settings, route: self.route, journal: self.journal }
    }
}

/// A request under way.
#[derive(Debug)]
pub struct Job {
    /// The request.
    pub wish: Wish,
    /// Its name.
    pub xact: Xact,
    /// Other requests for the object when it was sent.
    pub company: Company,
    /// Whether nobody else can have brought the object into the cache.
    pub first: bool,
    /// The second of the last purge that was acknowledged before.
    pub purged: Option<u64>,
    /// When its first byte left the robot, or the first one of a handshake for it.
    pub started: Duration,
    /// When all of it had crossed the link of the robot.
    pub sent: Duration,
    pub(super) link: (Duration, Duration),
    /// When it was taken out of the queue.
    pub taken: Duration,
    pub(super) first_byte: Option<Duration>,
    /// When it was sent, in seconds since 1970.
    pub asked: u64,
    pub(super) out: Vec<u8>,
    pub(super) out_at: usize,
    /// Where the body begins that is held back, and until when it is.
    pub(super) held: Option<(usize, Duration)>,
    pub(super) head_bytes: u64,
    /// The judge of the reply that has begun, and where its body begins in the object.
    pub(super) reply: Option<(Judge, u64)>,
    /// Takes the body out of its framing, over HTTP/1.1.
    pub(super) decoder: Option<Decoder>,
    pub(super) keeps_alive: bool,
    /// Bytes of the body that came.
    pub(super) body_bytes: u64,
    /// Whether the robot broke off.
    pub aborted: bool,
    /// The requests beside it on a connection of HTTP/2, where it is for a small object.
    pub beside: Option<Beside>,
    /// The reply as it is judged again, where the journals of other machines come later.
    pub(super) retrial: Option<Box<Retrial>>,
}

/// The outcome of a request.
#[derive(Debug)]
pub struct Report {
    /// The request.
    pub job: Box<Job>,
    /// The judgement.
    pub verdict: Verdict,
    /// Bytes of the head.
    pub head_bytes: u64,
    /// From the first byte sent to the first byte received.
    pub first_byte: Duration,
}

impl Job {
    /// A request that is taken up now.
    pub fn new(wish: Wish, xact: Xact, company: Company, first: bool, now: Duration) -> Box<Self> {
        Box::new(Self {
            wish,
            xact,
            company,
            first,
            purged: None,
            started: now,
            sent: now,
            link: Default::default(),
            taken: now,
            first_byte: None,
            asked: 0,
            out: Vec::with_capacity(384),
            out_at: 0,
            held: None,
            head_bytes: 0,
            reply: None,
            decoder: None,
            keeps_alive: false,
            body_bytes: 0,
            aborted: false,
            beside: None,
            retrial: None,
        })
    }

    /// How long the link of the robot took, for the request and for the last bytes, with its handshake, its window and its losses.
    pub fn across(&self) -> Duration {
        self.link.0 + self.link.1
    }

    /// The case of a reply whose head was here at this moment, in seconds since 1970.
    pub(super) fn case<'a>(&'a self, bench: &Bench<'a>, turns: &'a [Turn], unix: u64) -> Case<'a> {
        Case {
            law: bench.law,
            wish: &self.wish,
            journal: bench.journal,
            gateway: bench.route.mode == Mode::Reverse,
            xact: self.xact,
            turns,
            deeds: bench.journal.deeds(self.xact.number),
            first: self.first,
            asked: self.asked,
            purged: self.purged,
            now: unix,
            expected: bench.settings.expected.or_else(|| self.wish.refused(bench.law)),
            delay_s_max: bench.settings.delay_s_max.max(bench.journal.longest_wait_s()),
        }
    }

    /// The head of the reply is here: it is judged, and the framing of what follows it is said.
    pub(super) fn begin_reply(
        &mut self,
        head: &ResponseHead,
        desk: &Desk<'_>,
        turns: &[Turn],
    ) -> Result<Framing, String> {
        let method = if self.wish.kind == Kindred::Head { Method::Head } else { Method::Get };
        let framing = framing::of_response(head, &method).map_err(|fault| fault.to_string())?;
        desk.journal.waited(desk.clock.unix.saturating_sub(self.asked));
        let case = self.case(&desk.bench(), turns, desk.clock.unix);
        let mut judge = Judge::head(&case, head);
        self.retrial = desk.journal.is_linked().then(|| Retrial::of(head, turns, desk.clock.unix));
        if framing == Framing::None {
            judge.no_body();
        }
        let began = judge.begins_at();
        self.reply = Some((judge, began));
        Ok(framing)
    }

    /// Takes bytes of the body; says whether the robot breaks off here.
    pub(super) fn take_body(&mut self, data: &[u8]) -> bool {
        let Some((judge, _)) = &mut self.reply else { return false };
        let wanted = self.wish.abort_at.map_or(data.len() as u64, |abort| abort.saturating_sub(self.body_bytes));
        let data = &data[..data.len().min(usize::try_from(wanted).unwrap_or(usize::MAX))];
        judge.body(data);
        self.body_bytes += data.len() as u64;
        let breaks_off = self.wish.abort_at.is_some_and(|abort| self.body_bytes >= abort);
        if breaks_off {
            judge.break_off();
            (self.aborted, self.keeps_alive) = (true, false);
        }
        breaks_off
    }

    /// The reply ends before it is whole, for this reason; what has come of it is judged. Gives both back if none has begun.
    pub fn cut(mut self: Box<Self>, wrong: Wrong, at: Duration) -> Result<Box<Report>, (Box<Self>, Wrong)> {
        match self.reply.take() {
            Some((mut judge, began)) => {
                judge.cut_by(wrong);
                Ok(self.judged(judge, began, at, false))
            }
            None => Err((self, wrong)),
        }
    }

    /// The reply is over at this time, whole or not; nothing if none has begun.
    pub(super) fn finish(mut self: Box<Self>, at: Duration, complete: bool) -> Option<Box<Report>> {
        let (judge, began) = self.reply.take()?;
        Some(self.judged(judge, began, at, complete))
    }

    fn judged(mut self: Box<Self>, judge: Judge, began: u64, at: Duration, complete: bool) -> Box<Report> {
        if let Some(retrial) = &mut self.retrial {
            retrial.keep(&judge, began, complete);
        }
        let verdict = judge.finish(began, complete);
        let first_byte = self.first_byte.unwrap_or(at).saturating_sub(self.started);
        let head_bytes = self.head_bytes;
        Box::new(Report { job: self, verdict, head_bytes, first_byte })
    }
}
