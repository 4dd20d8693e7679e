//! Objects that are all there from the start (`working_set = "fixed(N)"`): drawn uniformly or by a rank, walked through
//! as a tree or one after the other, or followed at a live edge. Objects that were asked for are remembered, so that a
//! first request is never taken for a missing hit.

use super::demand::hot_name;
use super::{Multipliers, Popularity, RobotSettings};
use crate::object::{Name, World, pick};
use crate::random::{Stream, mix};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// Objects of one worker.
#[derive(Debug)]
pub struct Shelf {
    worker: u16,
    servers: u32,
    /// By content type.
    stocks: Vec<Stock>,
    walks: HashMap<u32, Walk>,
    live: Live,
}

/// The objects of a content type.
#[derive(Debug, Default)]
struct Stock {
    /// For each place, how many of its objects were asked for; the place's object of now is the last of them or a new one.
    asked: Vec<u32>,
    hot: u64,
}

/// How far a robot is on its way through objects of its own.
#[derive(Debug, Default)]
struct Walk {
    /// Pages whose links were read.
    found: VecDeque<u64>,
    asked: HashSet<u64>,
    next: u64,
}

/// Segments of channels that were asked for, and which kind of object each viewer wants next.
#[derive(Debug, Default)]
struct Live {
    asked: HashSet<(u64, u64)>,
    newest: u64,
    wants_segment: HashMap<u32, bool>,
}

/// An object, and whether it was asked for before.
pub type Drawn = (Name, bool);

impl Shelf {
    /// So many objects, divided among workers and, by their shares, among content types.
    pub fn new(worker: u16, workers: u16, servers: u32, objects: u64, direct: &[(u8, f64)], contents: usize) -> Self {
        let mut stocks: Vec<Stock> = (0..contents).map(|_| Stock::default()).collect();
        let total: f64 = direct.iter().map(|(_, share)| share).sum();
        for (content, share) in direct.iter().filter(|(_, share)| *share > 0.0) {
            let mine = objects as f64 * share / total / f64::from(workers.max(1));
            stocks[usize::from(*content)].asked = vec![0; mine.round().max(1.0) as usize];
        }
        Self { worker, servers, stocks, walks: HashMap::new(), live: Live::default() }
    }

    /// Objects there are.
    pub fn objects(&self) -> u64 {
        self.stocks.iter().map(|stock| stock.asked.len() as u64).sum()
    }

    /// Draws what a robot asks for at a time.
    pub fn draw(
        &mut self,
        settings: &RobotSettings,
        robot: u32,
        at: Duration,
        multipliers: Multipliers,
        stream: &mut Stream,
    ) -> Drawn {
        match settings.popularity {
            Popularity::Live { segment, window } => return self.watch(robot, at, segment, window, stream),
            Popularity::Tree(fan) => return self.walk(settings, robot, Some(fan), stream),
            Popularity::Sequence => return self.walk(settings, robot, None, stream),
            _ => {}
        }
        let content = pick(&settings.direct, stream);
        let stock = &mut self.stocks[usize::from(content)];
        let count = stock.asked.len() as u64;
        let hot = settings.hot_set.filter(|hot| stream.chance(hot.probability * multipliers.hot));
        let place = match (hot, settings.popularity) {
            (Some(hot), _) => {
                let number = hot_name(&mut stock.hot, hot, 0, count, stream);
                number - 1
            }
            (None, Popularity::Zipf { exponent, churn_per_hour }) => {
                let place = scatter(zipf_rank(count, exponent, stream), count);
                let hours = at.as_secs_f64() / 3600.0;
                return self.take(content, place, generation(place, churn_per_hour * hours));
            }
            (None, Popularity::Recent(skew)) => {
                let back = ((count + 1) as f64).powf(stream.unit().powf(skew)) as u64;
                count - back.clamp(1, count)
            }
            (None, _) => stream.below(count),
        };
        self.take(content, place, 0)
    }

    /// The object that has a place since the place changed hands so often.
    fn take(&mut self, content: u8, place: u64, generation: u32) -> Drawn {
        let (worker, servers) = (self.worker, self.servers);
        let stock = &mut self.stocks[usize::from(content)];
        let count = stock.asked.len() as u64;
        let asked = &mut stock.asked[place as usize];
        let repeat = *asked > generation;
        *asked = (*asked).max(generation + 1);
        let number = place + 1 + u64::from(generation) * count;
        (name(World::Public { worker }, content, number, servers), repeat)
    }

    /// The next page: one that a page read before links to (breadth first, as `wget -r` goes), or the next number.
    fn walk(&mut self, settings: &RobotSettings, robot: u32, fan: Option<u32>, stream: &mut Stream) -> Drawn {
        let count = self.stocks.iter().map(|stock| stock.asked.len() as u64).sum::<u64>().max(1);
        let common = settings.public > 0.0;
        let walk = self.walks.entry(robot).or_default();
        let number = match fan {
            // Nothing is left to follow: the walk begins again at the root.
            Some(_) => walk.found.pop_front().unwrap_or(1),
            None => {
                walk.next = walk.next % count + 1;
                walk.next
            }
        };
        let repeat = !walk.asked.insert(number);
        let content = if settings.direct.len() == 1 { settings.direct[0].0 } else { pick(&settings.direct, stream) };
        let world = if common { World::Public { worker: self.worker } } else { World::Private { robot } };
        if !common {
            return (name(world, content, number, self.servers), repeat);
        }
        let place = (number - 1) % self.stocks[usize::from(content)].asked.len() as u64;
        self.take(content, place, 0)
    }

    /// A page arrived, so that its links are known: page n of a tree links to `fan` pages from `fan · (n − 1) + 2` on.
    pub fn arrived(&mut self, settings: &RobotSettings, robot: u32, page: &Name) {
        let Popularity::Tree(fan) = settings.popularity else { return };
        let count = self.objects();
        let Some(walk) = self.walks.get_mut(&robot) else { return };
        let first = u64::from(fan) * (page.number - 1) + 2;
        walk.found.extend((first..first + u64::from(fan)).take_while(|number| *number <= count));
    }

    /// A viewer asks in turn for its channel's list and for a segment a little behind the newest one.
    fn watch(&mut self, robot: u32, at: Duration, segment: Duration, window: u32, stream: &mut Stream) -> Drawn {
        let channels = self.stocks[0].asked.len() as u64;
        let channel = mix(u64::from(robot)) % channels;
        let wants = self.live.wants_segment.entry(robot).or_insert(false);
        if !std::mem::replace(wants, !*wants) {
            return self.take(0, channel, 0);
        }
        let newest = (at.as_secs_f64() / segment.as_secs_f64().max(0.001)) as u64 + u64::from(window);
        if newest > self.live.newest {
            self.live.newest = newest;
            self.live.asked.retain(|(_, old)| old + u64::from(window) >= newest);
        }
        let wanted = newest - stream.below(u64::from(window.div_ceil(2)));
        let repeat = !self.live.asked.insert((channel, wanted));
        let world = World::Public { worker: self.worker };
        (name(world, 1, wanted * channels + channel + 1, self.servers), repeat)
    }
}

/// Which object a place has: each gets another one in its own time, so that the places do not change all at once.
fn generation(place: u64, turns: f64) -> u32 {
    let phase = (mix(place) >> 11) as f64 / (1u64 << 53) as f64;
    (turns + phase) as u32
}

fn name(world: World, content: u8, number: u64, servers: u32) -> Name {
    let hash = mix(number ^ u64::from(content) << 56);
    let server = ((u128::from(hash) * u128::from(servers)) >> 64) as u32;
    Name { server, content, world, number, embedded: false }
}

/// A rank from 0 on, by inversion of the continuous distribution: exact enough for sets of any size.
fn zipf_rank(count: u64, exponent: f64, stream: &mut Stream) -> u64 {
    let (limit, unit) = (count as f64 + 1.0, stream.unit());
    let rank = if (exponent - 1.0).abs() < 1e-9 {
        limit.powf(unit)
    } else {
        let power = 1.0 - exponent;
        (1.0 + unit * (limit.powf(power) - 1.0)).powf(1.0 / power)
    };
    (rank as u64).clamp(1, count) - 1
}

/// A place for each rank, so that neighbours in rank are none in number.
fn scatter(rank: u64, count: u64) -> u64 {
    let step = 0x9E37_79B1 % count.max(1);
    (u128::from(rank) * u128::from(coprime(step.max(1), count)) % u128::from(count.max(1))) as u64
}

fn coprime(step: u64, count: u64) -> u64 {
    let divisor = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (step..).find(|step| divisor(*step, count) == 1).unwrap_or(1)
}

#[cfg(test)]
#[path = "shelf_tests.rs"]
mod tests;
