//! Requests drawn as robots would draw them, without a network and with one world for each content type, to see what
//! an ideal cache and an LRU cache would make of them. Large working sets are drawn smaller and scaled up.

use super::{Basis, WorkingSetSize};
use crate::distribution::Distribution;
use crate::object::Lifetime;
use crate::random::{Stream, mix};
use crate::simulate::Stack;
use crate::workload::{Content, Popularity, WorkingSet, Workload};
use std::collections::HashMap;

const REQUESTS_MAX: u64 = 1_000_000;
/// Objects in a sliding window that is drawn.
const WINDOW_MAX: f64 = 10_000.0;
const NEIGHBOURS: u64 = 4;

pub(super) struct Sample {
    pub(super) dhr: f64,
    pub(super) bhr: f64,
    pub(super) repeats: f64,
    pub(super) lru_bytes: Option<f64>,
    pub(super) requests: u64,
}

/// Draws requests, `rate` of them a second if that is known. Of a sliding window, those after it has slid once are looked
/// at; of a fixed set, all.
pub(super) fn sample(
    workload: &Workload,
    basis: &Basis,
    set: Option<&WorkingSetSize>,
    (requests, rate): (Option<f64>, Option<f64>),
    share: f64,
) -> Sample {
    let fixed = matches!(workload.interest.working_set, WorkingSet::Fixed(_));
    let wanted = match workload.interest.working_set {
        WorkingSet::Fixed(names) => names as f64,
        _ => set.map_or(WINDOW_MAX, |set| set.objects) / super::per_direct(workload),
    };
    let window = if fixed { wanted } else { wanted.min(WINDOW_MAX) }.max(1.0);
    let count = match fixed {
        true => requests.map_or(REQUESTS_MAX, |requests| (requests as u64).min(REQUESTS_MAX)),
        false => REQUESTS_MAX,
    };
    let slid =
        if fixed { 0.0 } else { 2.0 * window * super::per_direct(workload) / (1.0 - basis.recurrence).max(0.01) };
    let skip = (slid as u64).min(count / 2);
    let mut drawer = Drawer::new(workload, window, basis.recurrence);
    let mut seen = Seen::default();
    let mut stack = Stack::with_capacity(count as usize + 512);
    let mut ages = Ages::of(workload);
    // In a smaller window an object is asked for again sooner.
    let gap_s = rate.map_or(0.0, |rate| wanted / window / rate);
    let mut number = 0;
    while number < count {
        let at_s = number as f64 * gap_s;
        for draw in drawer.next() {
            let distance = if draw.stores() { stack.touch(draw.id, draw.bytes) } else { None };
            let again = drawer.asked.insert(draw.id, ()).is_some();
            let fresh = !draw.brings || ages.is_fresh(&draw, at_s);
            if number >= skip {
                seen.add(&draw, again, again && fresh && draw.offerable, distance);
            }
            number += 1;
        }
    }
    seen.result(wanted / window, share, number)
}

#[derive(Default)]
struct Seen {
    requests: u64,
    basics: u64,
    bytes: u64,
    hit_bytes: u64,
    repeats: u64,
    hits: u64,
    distances: Vec<u64>,
}

impl Seen {
    /// `hit`: whether an ideal cache would have it. A first request that brings no copy, such as a HEAD, counts as one that
    /// does, as everywhere.
    fn add(&mut self, draw: &Draw, again: bool, hit: bool, distance: Option<u64>) {
        self.requests += 1;
        self.repeats += u64::from(again);
        if !draw.basic {
            return;
        }
        self.basics += 1;
        self.bytes += draw.bytes;
        if hit {
            self.hits += 1;
            self.hit_bytes += draw.bytes;
            self.distances.extend(distance);
        }
    }

    fn result(mut self, scale: f64, share: f64, requests: u64) -> Sample {
        self.distances.sort_unstable();
        let place = (self.distances.len() as f64 * share) as usize;
        let of = |part: f64, whole: u64| part / whole.max(1) as f64;
        Sample {
            dhr: of(self.hits as f64, self.basics),
            bhr: of(self.hit_bytes as f64, self.bytes),
            repeats: of(self.repeats as f64, self.requests),
            lru_bytes: self.distances.get(place).map(|distance| *distance as f64 * scale),
            requests,
        }
    }
}

/// A request for one object, or for a variant of it.
struct Draw {
    id: u64,
    content: usize,
    bytes: u64,
    cachable: bool,
    /// Whether a hit on it counts: a plain request for what is the same for all clients.
    offerable: bool,
    /// Whether it is a plain GET.
    basic: bool,
    /// Whether its answer is the whole object.
    brings: bool,
}

impl Draw {
    /// Whether a cache has the object after it.
    fn stores(&self) -> bool {
        self.cachable && self.brings
    }
}

/// A request that is not for an embedded object.
#[derive(Clone, Copy, PartialEq)]
enum Ask {
    /// Plain, or as plain as its page; the answer is the whole object.
    Basic,
    /// A validation of what changed, or a reload.
    Anew,
    /// A validation of what did not change.
    Unchanged,
    /// A POST or a PUT.
    Upload,
    /// A HEAD or a part.
    Partly,
}

/// When an ideal cache got what lives for a short time.
struct Ages {
    /// By content type.
    lives: Vec<Lasts>,
    got: HashMap<u64, f64>,
}

/// How long an answer lasts.
#[derive(Clone, Copy)]
enum Lasts {
    /// Longer than any run.
    Long,
    /// For so many seconds, and for so many more while it is refreshed.
    For(f64, f64),
    /// To the end of the object's cycle.
    Cycle(Distribution),
}

impl Ages {
    fn of(workload: &Workload) -> Self {
        let lasts = |content: &Content| match (Lifetime::of(&content.cache_control), content.life.cycle) {
            (Some(lifetime), _) => Lasts::For(lifetime.fresh_s as f64, lifetime.behind_s as f64),
            (None, Some(cycle)) => Lasts::Cycle(cycle),
            (None, None) => Lasts::Long,
        };
        Self { lives: workload.contents.iter().map(lasts).collect(), got: HashMap::new() }
    }

    /// Whether what the cache has is still good; if not, it gets it anew.
    fn is_fresh(&mut self, draw: &Draw, at_s: f64) -> bool {
        match self.lives[draw.content] {
            Lasts::Long => true,
            Lasts::For(fresh, behind) => {
                let got = self.got.entry(draw.id).or_insert(at_s);
                let age = at_s - *got;
                if age >= fresh {
                    *got = at_s;
                }
                age < fresh + behind
            }
            Lasts::Cycle(length) => {
                let mut stream = Stream::new(draw.id, 5);
                let length = length.draw(&mut stream).max(1.0);
                let version = (at_s / length + stream.unit()).floor();
                self.got.insert(draw.id, version).is_none_or(|before| before == version)
            }
        }
    }
}

/// The names of one content type.
#[derive(Clone, Copy, Default)]
struct World {
    made: u64,
    /// Names that can be repeated once it is full.
    window: u64,
    hot: u64,
}

struct Drawer<'w> {
    workload: &'w Workload,
    direct: Vec<f64>,
    worlds: Vec<World>,
    recurrence: f64,
    stream: Stream,
    asked: HashMap<u64, ()>,
    /// Shares of what is not basic, in the phase whose figures are the result.
    asks: [(Ask, f64); 4],
}

impl<'w> Drawer<'w> {
    fn new(workload: &'w Workload, window: f64, recurrence: f64) -> Self {
        let direct = workload.direct_shares();
        let fixed = matches!(workload.interest.working_set, WorkingSet::Fixed(_));
        let world = |share: &f64| {
            let window = ((share * window).round() as u64).max(1);
            World { made: if fixed { window } else { 0 }, window, hot: 0 }
        };
        let worlds = direct.iter().map(world).collect();
        let stream = Stream::named(workload.text.len() as u64, "plan");
        let (requests, special) =
            (&workload.requests, super::reported(workload).map_or(1.0, |phase| phase.special.mean()));
        let asks = [
            (Ask::Anew, requests.ims_200 + requests.reload),
            (Ask::Unchanged, requests.ims_304 + requests.if_none_match),
            (Ask::Upload, requests.post + requests.put),
            (Ask::Partly, requests.head + requests.range),
        ];
        let asks = asks.map(|(ask, share)| (ask, share * special));
        Self { workload, direct, worlds, recurrence, stream, asked: HashMap::new(), asks }
    }

    /// The next object and what it embeds.
    fn next(&mut self) -> Vec<Draw> {
        let content = self.content();
        let fixed = matches!(self.workload.interest.working_set, WorkingSet::Fixed(_));
        let full = self.worlds[content].made >= self.worlds[content].window;
        let repeat = fixed || (full && self.stream.chance(self.recurrence));
        let number = if repeat { self.again(content) } else { self.make(content) };
        let (page, ask) = (id(content, number), self.ask());
        let robot = Robot {
            variant: u8::from(self.stream.chance(self.workload.requests.accept_gzip)),
            logged_in: self.stream.chance(self.workload.requests.logged_in),
        };
        let mut draws = vec![self.draw(content, page).asked(self.workload, ask, robot)];
        let brings = match ask {
            Ask::Basic | Ask::Anew | Ask::Upload => true,
            Ask::Unchanged => self.workload.robots.embeds_of_304,
            Ask::Partly => false,
        };
        let Some(embeds) = self.workload.contents[content].embeds.as_ref().filter(|_| brings) else { return draws };
        let inherited = if ask == Ask::Upload { Ask::Basic } else { ask };
        let mut stream = Stream::new(page, 3);
        let total: f64 = embeds.contents.iter().map(|(_, share)| share).sum();
        for child in 0..embeds.count.draw(&mut stream) as u64 {
            let mut rest = stream.unit() * total;
            let of = embeds.contents.iter().find(|(_, share)| {
                rest -= share;
                rest < 0.0
            });
            let Some((of, _)) = of.or(embeds.contents.last()) else { break };
            if self.stream.chance(self.workload.robots.embed_recurrence) {
                let draw = self.draw(usize::from(*of), mix(page ^ (child + 1)));
                draws.push(draw.asked(self.workload, inherited, robot));
            }
        }
        draws
    }

    fn ask(&mut self) -> Ask {
        let mut rest = self.stream.unit();
        let found = self.asks.iter().find(|(_, share)| {
            rest -= share;
            rest < 0.0
        });
        found.map_or(Ask::Basic, |(ask, _)| *ask)
    }

    fn content(&mut self) -> usize {
        let mut rest = self.stream.unit();
        let found = self.direct.iter().position(|share| {
            rest -= share;
            rest < 0.0
        });
        found.unwrap_or(self.direct.len() - 1)
    }

    fn make(&mut self, content: usize) -> u64 {
        self.worlds[content].made += 1;
        self.worlds[content].made
    }

    fn again(&mut self, content: usize) -> u64 {
        let interest = &self.workload.interest;
        let world = &mut self.worlds[content];
        let oldest = world.made - world.window;
        let hot_factor = super::reported(self.workload).map_or(1.0, |phase| phase.hot.mean());
        if interest.hot_probability > 0.0 && self.stream.chance(interest.hot_probability * hot_factor) {
            let width = ((interest.hot_set * world.window as f64).round() as u64).clamp(1, world.window);
            if world.hot < oldest + width {
                world.hot = oldest + width + self.stream.below(world.window - width + 1);
            }
            return world.hot - self.stream.below(width);
        }
        let (made, window) = (world.made, world.window);
        let number = match interest.popularity {
            Popularity::Zipf { alpha, .. } => {
                Distribution::ZipfAlpha(window as f64, alpha).draw(&mut self.stream) as u64
            }
            Popularity::Recent { skew } => {
                let back = ((window + 1) as f64).powf(self.stream.unit().powf(skew)) as u64;
                made + 1 - back.clamp(1, window)
            }
            // Breadth first, a tree is walked by number.
            Popularity::Sequence | Popularity::Tree { .. } => {
                world.hot = world.hot % window + 1;
                world.hot
            }
            Popularity::Uniform | Popularity::Live { .. } => oldest + 1 + self.stream.below(window),
        };
        self.discriminate(content, number, oldest + 1..=made)
    }

    fn discriminate(&mut self, content: usize, number: u64, live: std::ops::RangeInclusive<u64>) -> u64 {
        let probability = self.workload.interest.bhr_discrimination;
        if probability == 0.0 || !self.stream.chance(probability) || !self.draw(content, id(content, number)).cachable {
            return number;
        }
        let near = number.saturating_sub(NEIGHBOURS).max(*live.start())..=(number + NEIGHBOURS).min(*live.end());
        let sizes = near.map(|number| (self.draw(content, id(content, number)), number));
        let small = sizes.filter(|(draw, _)| draw.cachable).min_by_key(|(draw, _)| draw.bytes);
        small.map_or(number, |(_, number)| number)
    }

    fn draw(&self, content: usize, id: u64) -> Draw {
        let of = &self.workload.contents[content];
        let bytes = of.size.draw(&mut Stream::new(id, 1)).ceil().clamp(1.0, of.size_bytes_max as f64) as u64;
        let cachable = Stream::new(id, 2).chance(of.cachable);
        Draw { id, content, bytes, cachable, offerable: cachable && !of.personal, basic: true, brings: true }
    }
}

/// The robot that asks.
#[derive(Clone, Copy)]
struct Robot {
    variant: u8,
    logged_in: bool,
}

impl Draw {
    /// Asked for in this way, by this robot.
    fn asked(self, workload: &Workload, ask: Ask, robot: Robot) -> Self {
        let varies = workload.contents[self.content].variants > 1;
        let basic = ask == Ask::Basic;
        Self {
            id: if varies { mix(self.id ^ u64::from(robot.variant)) } else { self.id },
            offerable: self.offerable && basic && !robot.logged_in,
            basic,
            brings: matches!(ask, Ask::Basic | Ask::Anew) && !robot.logged_in,
            ..self
        }
    }
}

fn id(content: usize, number: u64) -> u64 {
    mix(mix(content as u64) ^ number)
}
