//! A run without sockets: the same robots, drawing from the same streams, ask origins that take the think time they
//! draw and the round trips of the link, or a cache that gives every hit it is offered. It takes a few hundredths of a
//! second, so many seeds can be played to see how far figures lie apart by chance alone.

use super::Settings;
use super::crowd::{Crowd, Due, Wake};
use super::timers::Timers;
use super::worker::PASSED_OVER_MAX;
use crate::distribution::Distribution;
use crate::ledger::{Interval, Kind, Levels, Recorder, Reply, Served};
use crate::link::Link;
use crate::random::Stream;
use crate::robot::{Kindred, Wish};
use crate::schedule::{Phase, Schedule};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

/// Whom the robots speak to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Partner {
    /// The origins.
    Origins,
    /// A cache that never loses anything; it answers at once what an ideal cache would have.
    Cache,
    /// Nobody: replies are there at once, so that what was drawn is counted, whatever becomes of it.
    Nobody,
}

/// Plays all phases; gives what was counted in each second, as a run does. `None` if a worker would send more requests
/// than this.
pub fn rehearse(settings: &Settings, phases: Vec<Phase>, partner: Partner, requests_max: u64) -> Option<Vec<Interval>> {
    let schedule = Schedule::new(phases, settings.workers);
    let workers =
        (0..settings.workers.max(1)).map(|number| Stage::new(settings, &schedule, number, partner, requests_max));
    // One after the other: a phase whose goal is a number of replies is the first one's.
    let played: Option<Vec<Vec<Interval>>> = workers.map(Stage::play).collect();
    played.map(|intervals| intervals.concat())
}

/// One worker.
struct Stage<'a> {
    settings: &'a Settings,
    schedule: &'a Schedule,
    partner: Partner,
    crowd: Crowd,
    timers: Timers<TimerEvent>,
    /// Requests under way, by the number in their timers.
    under_way: Vec<Option<Box<Sent>>>,
    free: Vec<usize>,
    /// Requests under way over HTTP/2, by robot and host.
    streams: HashMap<(u32, u32), u32>,
    recorder: Recorder,
    stream: Stream,
    /// Seconds of a reply of an origin beside the think time: a round trip, and that of the connection for those that are
    /// the first.
    round_s: f64,
    /// The same between robots and whom they speak to.
    near: Duration,
    intervals: Vec<Interval>,
    interval: (Duration, usize),
    /// Requests that may still be sent.
    requests_left: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerEvent {
    Robot { robot: u32, life: u32 },
    Reply(usize),
    Populate,
}

/// A request under way.
struct Sent {
    robot: u32,
    wish: Wish,
    served: Served,
    behind: bool,
    at: Duration,
}

const TICK: Duration = Duration::from_millis(50);
/// A hit takes so long, and any other reply at least.
const HIT: Duration = Duration::from_micros(300);

impl<'a> Stage<'a> {
    fn new(settings: &'a Settings, schedule: &'a Schedule, number: u16, partner: Partner, requests_max: u64) -> Self {
        let rounds = |uses: &Option<Distribution>, link: &Link| {
            let uses = uses.as_ref().map_or(f64::INFINITY, |uses| uses.mean().max(1.0));
            2.0 * link.delay.as_secs_f64() * (1.0 + 1.0 / uses)
        };
        let round_s = rounds(&settings.origins.uses, &settings.origins.link);
        let near = Duration::from_secs_f64(rounds(&settings.robots.uses, &settings.robots.link));
        Self {
            settings,
            schedule,
            partner,
            crowd: Crowd::new(settings, number),
            timers: Timers::default(),
            under_way: Vec::new(),
            free: Vec::new(),
            streams: HashMap::new(),
            recorder: Recorder::new(),
            stream: Stream::named(settings.law.seed, &format!("rehearsal {number}")),
            round_s,
            near,
            intervals: Vec::new(),
            interval: (Duration::ZERO, 0),
            requests_left: requests_max,
        }
    }

    fn play(mut self) -> Option<Vec<Interval>> {
        self.timers.set(Duration::ZERO, TimerEvent::Populate);
        let mut over_at = None;
        while let Some(now) = self.timers.next() {
            if self.requests_left == 0 {
                return None;
            }
            self.schedule.advance(now);
            self.cut(now);
            if self.schedule.phase_at(now).is_none() {
                let since = *over_at.get_or_insert(now);
                if now > since + self.settings.drain {
                    break;
                }
            }
            match self.timers.due(now) {
                Some((at, TimerEvent::Robot { robot, life })) => self.robot_due(&Wake { robot, life, at }),
                Some((at, TimerEvent::Reply(place))) => self.arrived(place, at),
                Some((at, TimerEvent::Populate)) => self.populate(at),
                None => {}
            }
        }
        let last = self.timers.next().unwrap_or(self.interval.0);
        self.hand_over(last);
        Some(self.intervals)
    }

    fn populate(&mut self, at: Duration) {
        for wake in self.crowd.populate(self.settings, self.schedule, at) {
            self.wake(wake);
        }
        if self.schedule.phase_at(at).is_some() {
            self.timers.set(at + TICK, TimerEvent::Populate);
        }
    }

    fn wake(&mut self, wake: Wake) {
        self.timers.set(wake.at, TimerEvent::Robot { robot: wake.robot, life: wake.life });
    }

    fn robot_due(&mut self, wake: &Wake) {
        if self.schedule.is_dark(wake.at) {
            return;
        }
        let (due, next) = self.crowd.due(self.settings, self.schedule, wake);
        if let Some(next) = next {
            self.wake(next);
        }
        match due {
            Due::Nothing => {}
            Due::Paid => self.recorder.due(),
            Due::Asks(mut wish) => {
                self.recorder.due();
                let parts = std::mem::take(&mut wish.parts);
                let queue = &mut self.crowd.robots[wake.robot as usize].queue;
                queue.extend(parts.into_iter().map(|part| wish.part(part)));
                queue.push_back(wish);
                self.dispatch(wake.robot, wake.at);
            }
        }
    }

    /// As many of the robot's requests go out as it has connections; over HTTP/2, as the one to their host carries.
    fn dispatch(&mut self, robot: u32, now: Duration) {
        loop {
            let found = &self.crowd.robots[robot as usize];
            let robots = &self.settings.robots;
            let has_room = |wish: &Wish| match robots.streams {
                None => found.under_way < robots.connections_max.saturating_mul(robots.pipeline),
                Some(streams) => {
                    found.under_way < robots.connections_max.saturating_mul(streams.streams_max)
                        && self.streams.get(&(robot, self.host(wish))).is_none_or(|on| *on < streams.streams_max)
                }
            };
            // Requests to other hosts do not wait for one that is full.
            let looked_at = if robots.streams.is_some() { PASSED_OVER_MAX } else { 1 };
            let Some(place) = found.queue.iter().take(looked_at).position(has_room) else { return };
            let found = &mut self.crowd.robots[robot as usize];
            let Some(wish) = found.queue.remove(place) else { return };
            found.under_way += 1;
            self.send(robot, wish, now);
        }
    }

    /// The host whose connection carries a request, as robots of HTTP/2 have them.
    fn host(&self, wish: &Wish) -> u32 {
        self.settings.route.authority(wish.name.server).1
    }

    fn send(&mut self, robot: u32, mut wish: Wish, now: Duration) {
        self.crowd.age(self.settings, &mut wish, self.settings.law.epoch + now.as_secs());
        self.requests_left = self.requests_left.saturating_sub(1);
        let company = self.crowd.pending.ask(wish.name.fingerprint());
        self.recorder.sent(wish.repeat, wish.name.is_private(), None);
        let is_hit = self.partner == Partner::Cache && wish.offered() && !company.overlaps;
        let (served, after) = if is_hit { (Served::Hit, HIT) } else { (Served::Miss, self.think()) };
        // Nothing takes no time at all, or robots that wait for replies would come to no end.
        let after = if self.partner == Partner::Nobody { Duration::ZERO } else { (after + self.near).max(HIT) };
        if self.settings.robots.streams.is_some() {
            *self.streams.entry((robot, self.host(&wish))).or_default() += 1;
        }
        let sent = Some(Box::new(Sent { robot, wish, served, behind: company.behind, at: now }));
        let place = self.free.pop().unwrap_or_else(|| {
            self.under_way.push(None);
            self.under_way.len() - 1
        });
        self.under_way[place] = sent;
        self.timers.set(now + after, TimerEvent::Reply(place));
    }

    fn think(&mut self) -> Duration {
        let drawn = self.settings.origins.think.map(|think| think.draw(&mut self.stream).max(0.0));
        let think = Duration::from_secs_f64(drawn.unwrap_or(0.0));
        if drawn.is_some() {
            self.recorder.thought(think);
        }
        think + Duration::from_secs_f64(self.round_s)
    }

    fn arrived(&mut self, place: usize, now: Duration) {
        let Some(sent) = self.under_way[place].take() else { return };
        self.free.push(place);
        let Sent { robot, wish, served, behind, at } = *sent;
        self.record(&wish, served, behind, now.saturating_sub(at), now);
        let found = &mut self.crowd.robots[robot as usize];
        found.under_way = found.under_way.saturating_sub(1);
        let host = (robot, self.host(&wish));
        if let Entry::Occupied(mut on) = self.streams.entry(host) {
            *on.get_mut() -= 1;
            if *on.get() == 0 {
                on.remove();
            }
        }
        if wish.kind != Kindred::Purge {
            self.crowd.pending.done(wish.name.fingerprint(), true, !wish.repeat);
            self.crowd.arrived(self.settings, robot, &wish);
            if wish.facts.redirects || wish.kind.brings(wish.kind.status(), self.settings.robots.embeds_of_304) {
                let children = self.crowd.children(self.settings, &wish, now);
                self.crowd.robots[robot as usize].queue.extend(children);
            } else {
                self.crowd.forgo(robot, &wish);
            }
        }
        self.dispatch(robot, now);
        if let Some(wake) = self.crowd.again(self.settings, robot, now) {
            self.wake(wake);
        }
    }

    fn record(&mut self, wish: &Wish, served: Served, behind: bool, took: Duration, now: Duration) {
        let status = wish.kind.status();
        let size = if status == 304 || wish.kind == Kindred::Head { 0 } else { wish.facts.size };
        self.recorder.reply(&Reply {
            kind: if wish.facts.redirects { Kind::Redirect } else { wish.kind.kind() },
            content: wish.name.content,
            status,
            cachable: wish.facts.cachable,
            offered: wish.offered(),
            served,
            aborted: wish.abort_at.is_some_and(|at| at < size),
            across: Duration::ZERO,
            behind,
            head_bytes: 0,
            body_bytes: size,
            response: now.saturating_sub(wish.intended),
            service: took,
            first_byte: took,
            wait: Duration::ZERO,
            missing: None,
            beside: None,
        });
        let fill = wish.facts.cachable && served == Served::Miss && wish.kind == Kindred::Basic;
        self.schedule.count(now, 1, if fill { size } else { 0 });
    }

    /// Hands over an interval at the end of each second and of each phase.
    fn cut(&mut self, now: Duration) {
        loop {
            let (from, phase) = self.interval;
            let second = Duration::from_secs(from.as_secs() + 1);
            let end = self.schedule.end(phase).map_or(second, |end| end.max(from).min(second));
            let over = self.schedule.phase_at(now).is_none() && from >= end;
            if now < end || over {
                return;
            }
            self.hand_over(end);
            if self.schedule.end(phase).is_some_and(|phase_end| phase_end <= end) {
                let Some(next) = self.schedule.phase_at(end) else { return };
                self.interval.1 = next;
            }
        }
    }

    fn hand_over(&mut self, end: Duration) {
        let (from, phase) = self.interval;
        let factors = self.schedule.factors(from);
        self.recorder.set_levels(Levels {
            robots: u64::from(self.crowd.alive()),
            working_set: self.crowd.working_set(),
            worlds: self.crowd.worlds(),
            populus: factors.populus as f32,
            load: factors.load as f32,
            recurrence: factors.recurrence as f32,
            special: factors.special as f32,
            ..Levels::default()
        });
        self.intervals.push(self.recorder.take(phase as u16, from, end.saturating_sub(from)));
        self.interval.0 = end;
    }
}
