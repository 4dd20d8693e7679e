//! The robots of a worker: when each asks, what waits for a connection, and which connections are idle.

use super::Settings;
use super::ideal::IdealAges;
use super::past::Past;
use super::slots::Slot;
use crate::distribution::Distribution;
use crate::object::Name;
use crate::random::Stream;
use crate::robot::{Demand, Kindred, Multipliers, Pace, Pending, Script, Shelf, Wish};
use crate::schedule::{Factors, Schedule};
use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

/// One robot.
#[derive(Debug)]
pub struct Robot {
    /// Its number in the run.
    pub number: u32,
    /// Requests that wait for a connection.
    pub queue: VecDeque<Wish>,
    /// Its connections without a request, oldest first.
    pub idle: Vec<(SocketAddr, Slot)>,
    /// Those that carry requests to which others may be added, if robots send several at once; and some that did so before.
    pub busy: Vec<Slot>,
    /// Those that carry many requests at once, if robots speak HTTP/2.
    pub links: Vec<Slot>,
    /// Its connections.
    pub open: u32,
    /// Its requests that have a connection.
    pub under_way: u32,
    /// It opens no connection before: the last one had no descriptor or port.
    pub rests_until: Duration,
    alive: bool,
    /// Counts lives, so that a timer of a former one is known.
    life: u32,
    /// Embedded objects asked for that its pace has not yet paid for.
    debt: u64,
    accepts_gzip: bool,
    stream: Stream,
}

/// The robots of a worker.
#[derive(Debug)]
pub struct Crowd {
    /// The robots, by their number in the worker.
    pub robots: Vec<Robot>,
    /// Their next wishes.
    pub demand: Demand,
    /// Their requests under way.
    pub pending: Pending,
    /// The copies that an ideal cache would have of objects with short lives.
    ages: IdealAges,
    /// Variants that were asked for, of objects that have several.
    variants: HashSet<(u64, u8)>,
    /// Objects that are there from the start, instead of what demand makes.
    shelf: Option<Shelf>,
    /// The log that they replay, instead of drawing.
    script: Option<Script>,
    /// The debts that robots wake with.
    past: Past,
    /// The phase that robots were last sent into together.
    phase: Option<usize>,
    fresh_cachable: u64,
    alive: u32,
}

/// So far ahead of the look at the robots the log is read: further than to the next one.
const LOOK_AHEAD: Duration = Duration::from_millis(100);
/// Variants that are remembered; others are taken for known.
const VARIANTS_MAX: usize = 4_000_000;

/// Robots' timers are set anew by what this says.
#[derive(Debug, PartialEq, Eq)]
pub struct Wake {
    /// The robot, by its number in the worker.
    pub robot: u32,
    /// Which life of it.
    pub life: u32,
    /// When.
    pub at: Duration,
}

impl Crowd {
    /// The robots of one worker of several.
    pub fn new(settings: &Settings, worker: u16) -> Self {
        // Workers behind those that share the robots have origins alone.
        let count = if worker < settings.workers { settings.robots.count } else { 0 };
        let numbers = (u32::from(worker)..count).step_by(usize::from(settings.workers));
        let robots = numbers.map(|number| {
            let mut stream = Stream::named(settings.law.seed, &format!("robot {number}"));
            Robot {
                number,
                queue: VecDeque::new(),
                idle: Vec::new(),
                busy: Vec::new(),
                links: Vec::new(),
                open: 0,
                under_way: 0,
                rests_until: Duration::ZERO,
                alive: false,
                life: 0,
                debt: 0,
                accepts_gzip: stream.chance(settings.robots.accepts_gzip),
                stream,
            }
        });
        Self {
            robots: robots.collect(),
            demand: Demand::new(worker, settings.origins.servers, settings.law.contents.len()),
            pending: Pending::default(),
            ages: IdealAges::of(&settings.law),
            variants: HashSet::new(),
            shelf: settings.preset.map(|objects| {
                let (servers, contents) = (settings.origins.servers, settings.law.contents.len());
                Shelf::new(worker, settings.workers, servers, objects, &settings.robots.direct, contents)
            }),
            script: (!settings.log.is_empty())
                .then(|| Script::new(&settings.log, worker, settings.workers, settings.origins.servers)),
            past: Past::of(settings),
            phase: None,
            fresh_cachable: 0,
            alive: 0,
        }
    }

    /// Robots alive.
    pub fn alive(&self) -> u32 {
        self.alive
    }

    /// Wakes and stops robots so that as many live as the schedule wants; says when the new ones ask first.
    pub fn populate(&mut self, settings: &Settings, schedule: &Schedule, at: Duration) -> Vec<Wake> {
        let wanted = match schedule.phase_at(at) {
            None => 0,
            Some(_) => match schedule.factors(at).populus {
                populus if populus > 0.0 => ((populus * f64::from(settings.robots.count)).round() as u32).max(1),
                _ => 0,
            },
        };
        let phase = schedule.phase_at(at);
        let together = settings.robots.together && self.script.is_none() && phase.is_some() && phase != self.phase;
        self.phase = phase;
        let mut wakes = Vec::new();
        for (index, robot) in self.robots.iter_mut().enumerate() {
            let alive = robot.number < wanted;
            // A robot that waits for a reply asks again when it has come.
            if alive && together && robot.under_way == 0 && robot.queue.is_empty() {
                self.alive += u32::from(!robot.alive);
                (robot.alive, robot.debt, robot.life) = (true, 0, robot.life + 1);
                wakes.push(Wake { robot: index as u32, life: robot.life, at });
                continue;
            }
            if alive == robot.alive {
                continue;
            }
            (robot.alive, robot.debt) = (alive, 0);
            if alive {
                self.alive += 1;
                robot.life += 1;
                if self.script.is_some() {
                    continue;
                }
                robot.debt = self.past.debt(&mut robot.stream);
                let first = at + gap(settings.robots.pace, schedule, &mut robot.stream);
                wakes.push(Wake { robot: index as u32, life: robot.life, at: first });
            } else {
                self.alive -= 1;
            }
        }
        wakes.extend(self.replay(at));
        wakes
    }

    /// Wakes robots in turn for what the log asks before they are looked at again.
    fn replay(&mut self, at: Duration) -> Vec<Wake> {
        let (Some(script), 1..) = (&mut self.script, self.alive) else { return Vec::new() };
        let alive: Vec<u32> =
            (0..self.robots.len() as u32).filter(|robot| self.robots[*robot as usize].alive).collect();
        let next = |(place, at): (usize, Duration)| {
            let robot = alive[place % alive.len()];
            Wake { robot, life: self.robots[robot as usize].life, at }
        };
        script.wake(at + LOOK_AHEAD).map(next).collect()
    }

    /// A robot's time has come: what it asks, if anything, and when its next time comes.
    pub fn due(&mut self, settings: &Settings, schedule: &Schedule, wake: &Wake) -> (Due, Option<Wake>) {
        let robot = &mut self.robots[wake.robot as usize];
        if !robot.alive || robot.life != wake.life || schedule.phase_at(wake.at).is_none() {
            return (Due::Nothing, None);
        }
        let paced = !matches!(settings.robots.pace, Pace::Closed(_) | Pace::Log);
        let next = paced.then(|| wake.at + gap(settings.robots.pace, schedule, &mut robot.stream));
        let next = next.map(|at| Wake { at, ..*wake });
        let factors = schedule.factors(wake.at);
        if let Pace::Poisson(_) = settings.robots.pace
            && !robot.stream.chance(factors.load / schedule.load_max())
        {
            return (Due::Nothing, next);
        }
        if robot.debt > 0 && paced {
            robot.debt -= 1;
            return (Due::Paid, next);
        }
        if let Some(script) = &mut self.script {
            let Some(drawn) = script.take() else { return (Due::Nothing, None) };
            return (Due::Asks(self.replayed(settings, wake, drawn)), None);
        }
        self.freeze_if_due(settings, schedule, wake.at);
        let Factors { recurrence, special, hot, .. } = factors;
        (Due::Asks(self.wish(settings, wake, Multipliers { recurrence, special, hot })), next)
    }

    /// A request as the log has it, without features of a workload.
    fn replayed(&mut self, settings: &Settings, wake: &Wake, (name, repeat): (Name, bool)) -> Wish {
        let mut wish = Wish { intended: wake.at, ..Wish::of(name, settings.law.facts(&name), repeat) };
        wish.client.number = self.robots[wake.robot as usize].number;
        wish.client.at_proxy = settings.robots.proxy_login;
        self.pending.expect(name.fingerprint());
        wish
    }

    fn wish(&mut self, settings: &Settings, wake: &Wake, multipliers: Multipliers) -> Wish {
        let robot = &mut self.robots[wake.robot as usize];
        let (law, robots, number) = (&settings.law, &settings.robots, robot.number);
        let drawn = match &mut self.shelf {
            Some(shelf) => shelf.draw(robots, number, wake.at, multipliers, &mut robot.stream),
            None => self.demand.draw(law, robots, number, multipliers, &mut robot.stream),
        };
        let mut wish = Wish::draw(law, robots, drawn, multipliers.special, &mut robot.stream);
        wish.intended = wake.at;
        wish.variant = u8::from(robot.accepts_gzip);
        (wish.client.number, wish.client.at_proxy) = (number, robots.proxy_login);
        robot.debt += (wish.children.len() + wish.parts.len()) as u64;
        if settings.freeze_after.is_some() && !wish.repeat && wish.kind == Kindred::Basic {
            let kept = wish.children.iter().filter(|child| law.facts(child).cachable).count() as u64;
            self.fresh_cachable += kept + u64::from(wish.facts.cachable);
        }
        wish.new_variant = self.is_new_variant(settings, &wish.name, wish.variant);
        let object = wish.name.fingerprint();
        (0..=wish.parts.len()).for_each(|_| self.pending.expect(object));
        for child in &wish.children {
            self.pending.expect(child.fingerprint());
        }
        wish
    }

    fn freeze_if_due(&mut self, settings: &Settings, schedule: &Schedule, at: Duration) {
        if self.demand.is_frozen() {
            return;
        }
        let by_time = settings.freeze_at.is_some_and(|freeze| at >= freeze);
        let by_count =
            settings.freeze_after.is_some_and(|most| self.fresh_cachable >= most / u64::from(settings.workers));
        if by_time || by_count {
            self.demand.freeze();
            schedule.froze();
        }
    }

    /// Objects that may be asked for again.
    pub fn working_set(&self) -> u64 {
        self.shelf.as_ref().map_or_else(|| self.demand.working_set(), Shelf::objects)
    }

    /// Worlds that these objects belong to; a shelf is one.
    pub fn worlds(&self) -> u64 {
        self.shelf.as_ref().map_or_else(|| self.demand.worlds(), |_| 1)
    }

    /// A request is being sent in this second since 1970: no hit is offered on what must have expired.
    pub fn age(&mut self, settings: &Settings, wish: &mut Wish, unix: u64) {
        if wish.tries == 0 {
            wish.expired = self.ages.ask(&settings.law, wish, unix);
        }
    }

    /// A page arrived whole.
    pub fn arrived(&mut self, settings: &Settings, robot: u32, page: &Wish) {
        if let Some(shelf) = &mut self.shelf {
            shelf.arrived(&settings.robots, self.robots[robot as usize].number, &page.name);
        }
    }

    /// The objects that a robot asks for, of those that a page of its embeds.
    pub fn children(&mut self, settings: &Settings, page: &Wish, now: Duration) -> Vec<Wish> {
        let mut children = Vec::with_capacity(page.children.len());
        for (number, name) in page.children.iter().enumerate() {
            let new_variant = self.is_new_variant(settings, name, page.variant);
            let child = page.child(&settings.law, &settings.robots, (number, name));
            children.push(Wish { intended: now, new_variant, ..child });
        }
        children
    }

    /// The objects that a page embeds are not asked for: nobody pays for them, and the next robot that asks for one is
    /// the first to do so.
    pub fn forgo(&mut self, robot: u32, page: &Wish) {
        let found = &mut self.robots[robot as usize];
        found.debt = found.debt.saturating_sub(page.children.len() as u64);
        page.children.iter().for_each(|child| self.pending.forgo(child.fingerprint(), !page.repeat));
    }

    /// Whether an object has variants, and this one is asked for first now.
    fn is_new_variant(&mut self, settings: &Settings, name: &Name, variant: u8) -> bool {
        let known = self.variants.len() >= VARIANTS_MAX;
        settings.law.content(name).variants > 1 && !known && self.variants.insert((name.fingerprint(), variant))
    }

    /// The robot's next time, if replies decide it.
    pub fn again(&mut self, settings: &Settings, robot: u32, at: Duration) -> Option<Wake> {
        let Pace::Closed(pause) = settings.robots.pace else { return None };
        let found = &mut self.robots[robot as usize];
        let free = found.under_way == 0 && found.queue.is_empty();
        (found.alive && free).then(|| Wake { robot, life: found.life, at: at + rest(pause, &mut found.stream) })
    }
}

/// The effect of a robot's timer.
#[derive(Debug)]
pub enum Due {
    /// Nothing: a draw that the load of now leaves out.
    Nothing,
    /// An embedded object that was asked for before is paid for.
    Paid,
    /// A request.
    Asks(Wish),
}

/// Time to the next chance to ask: the rate is that of the highest load, and what is too much is left out.
fn gap(pace: Pace, schedule: &Schedule, stream: &mut Stream) -> Duration {
    match pace {
        Pace::Poisson(rate) => {
            let rate = (rate * schedule.load_max()).max(1e-9);
            Duration::from_secs_f64((-(1.0 - stream.unit()).ln() / rate).min(1e6))
        }
        Pace::Constant(gap) => gap,
        Pace::Closed(pause) => rest(pause, stream),
        // The log wakes them.
        Pace::Log => Duration::from_secs(1_000_000),
    }
}

fn rest(pause: Distribution, stream: &mut Stream) -> Duration {
    Duration::from_secs_f64(pause.draw(stream).clamp(0.0, 1e6))
}

#[cfg(test)]
#[path = "crowd_tests.rs"]
mod tests;
