//! Plays requests to a group of members whose behaviour is a function of the time: a queue of events, and a seed.

use larder_balance::{Group, GroupReport, MemberId, NoMember, Request, Settings, Ticket, Why, is_request_to_blame};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// The answer of a member to a request that comes now.
#[derive(Clone, Copy, Debug)]
pub enum Reply {
    /// A good one.
    Good(Duration),
    /// A 500.
    Bad(Duration),
    /// The connection is refused.
    Refused,
    /// Nothing, for so long.
    Silence(Duration),
}

/// How one request went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// When it began, since the start.
    pub began: Duration,
    pub took: Duration,
    /// The member whose good answer the client got.
    pub by: Option<usize>,
    /// All members that it was sent to, and why to each.
    pub sent_to: Vec<(usize, Why)>,
}

pub struct Play {
    pub group: Group,
    start: Instant,
    events: BinaryHeap<Reverse<(Duration, usize)>>,
    requests: Vec<Running>,
    pub outcomes: Vec<Outcome>,
    pub refused: Vec<NoMember>,
}

struct Running {
    outcome: Outcome,
    tried: Vec<MemberId>,
    bad: Vec<Ticket>,
    under_way: Option<(Ticket, Duration, Reply)>,
}

impl Play {
    pub fn new(settings: Settings, seed: u64) -> Play {
        Play {
            group: Group::new(settings, seed),
            start: Instant::now(),
            events: BinaryHeap::new(),
            requests: Vec::new(),
            outcomes: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// Requests from one time until another, so many a second; `member` says how a member answers.
    pub fn run(&mut self, seconds: std::ops::Range<u64>, per_second: u64, member: impl Fn(usize, Duration) -> Reply) {
        let (from, to) = (Duration::from_secs(seconds.start), Duration::from_secs(seconds.end));
        let gap = Duration::from_secs(1) / u32::try_from(per_second).unwrap();
        let mut next = from;
        while next < to {
            while self.events.peek().is_some_and(|Reverse((at, _))| *at <= next) {
                let Some(Reverse((at, number))) = self.events.pop() else { break };
                self.reply(number, at, &member);
            }
            let outcome = Outcome { began: next, took: Duration::ZERO, by: None, sent_to: Vec::new() };
            self.requests.push(Running { outcome, tried: Vec::new(), bad: Vec::new(), under_way: None });
            self.send(self.requests.len() - 1, next, &member);
            next += gap;
        }
    }

    /// Lets all requests end.
    pub fn settle(&mut self, member: impl Fn(usize, Duration) -> Reply) {
        while let Some(Reverse((at, number))) = self.events.pop() {
            self.reply(number, at, &member);
        }
    }

    pub fn report_at(&self, at: Duration) -> GroupReport {
        self.group.report(self.start + at)
    }

    fn send(&mut self, number: usize, at: Duration, member: &impl Fn(usize, Duration) -> Reply) {
        let request = &mut self.requests[number];
        let asked = Request { now: self.start + at, key: 0, sticky: None, is_repeatable: true, tried: &request.tried };
        let pick = match self.group.pick(&asked) {
            Ok(pick) => pick,
            Err(why) => {
                self.refused.push(why);
                return self.finish(number, at, None);
            }
        };
        request.tried.push(pick.ticket.member());
        request.outcome.sent_to.push((pick.at, pick.why));
        let reply = member(pick.at, at);
        let takes = match reply {
            Reply::Good(time) | Reply::Bad(time) | Reply::Silence(time) => time,
            Reply::Refused => Duration::from_micros(100),
        };
        request.under_way = Some((pick.ticket, at, reply));
        self.events.push(Reverse((at + takes, number)));
    }

    fn reply(&mut self, number: usize, at: Duration, member: &impl Fn(usize, Duration) -> Reply) {
        let Some((mut ticket, sent, reply)) = self.requests[number].under_way.take() else { return };
        let now = self.start + at;
        match reply {
            Reply::Good(_) => {
                self.group.succeeded(&mut ticket, Some(at - sent), now);
                self.group.end(ticket, now);
                let by = self.requests[number].outcome.sent_to.last().map(|(at, _)| *at);
                return self.finish(number, at, by);
            }
            Reply::Refused | Reply::Silence(_) => {
                self.group.failed(&mut ticket, now);
                self.group.end(ticket, now);
            }
            Reply::Bad(_) => self.requests[number].bad.push(ticket),
        }
        let tries_max = self.group.settings().retry.tries_max as usize;
        if self.requests[number].tried.len() < tries_max && self.group.may_retry(now) {
            self.send(number, at, member);
        } else {
            self.finish(number, at, None);
        }
    }

    fn finish(&mut self, number: usize, at: Duration, by: Option<usize>) {
        let (request, now) = (&mut self.requests[number], self.start + at);
        let is_to_blame = is_request_to_blame(request.bad.len(), by.is_some());
        for mut ticket in request.bad.drain(..) {
            match is_to_blame {
                true => self.group.excused(&mut ticket, now),
                false => _ = self.group.failed(&mut ticket, now),
            }
            self.group.end(ticket, now);
        }
        (request.outcome.took, request.outcome.by) = (at - request.outcome.began, by);
        self.outcomes.push(request.outcome.clone());
    }

    /// The outcomes of requests that began in this time.
    pub fn of(&self, millis: std::ops::Range<u64>) -> Vec<&Outcome> {
        let range = Duration::from_millis(millis.start)..Duration::from_millis(millis.end);
        self.outcomes.iter().filter(|outcome| range.contains(&outcome.began)).collect()
    }

    /// The part of tries of this time that went to a member.
    pub fn share(&self, at: usize, millis: std::ops::Range<u64>) -> f64 {
        let sent: Vec<usize> =
            self.of(millis).iter().flat_map(|outcome| outcome.sent_to.iter().map(|(at, _)| *at)).collect();
        sent.iter().filter(|each| **each == at).count() as f64 / sent.len().max(1) as f64
    }

    /// The part of the requests of this time that got no good answer.
    pub fn errors(&self, millis: std::ops::Range<u64>) -> f64 {
        let of = self.of(millis);
        of.iter().filter(|outcome| outcome.by.is_none()).count() as f64 / of.len().max(1) as f64
    }

    /// The time that so many percent of the requests of this time did not exceed.
    pub fn percentile(&self, percent: usize, millis: std::ops::Range<u64>) -> Duration {
        let mut times: Vec<Duration> = self.of(millis).iter().map(|outcome| outcome.took).collect();
        times.sort_unstable();
        times[(times.len() * percent / 100).min(times.len() - 1)]
    }
}
