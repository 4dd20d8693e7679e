//! What robots want next: names are made in worlds and repeated from them (Web Polygraph's words; WORKLOADS A.8, A.9).
//! A worker's worlds are its own, so what it asks follows from the seed and the times alone.

use super::{HotSet, Popularity, RobotSettings};
use crate::ledger::Kind;
use crate::object::{Facts, Law, Name, World, pick};
use crate::random::{Stream, mix};
use std::collections::HashMap;
use std::time::Duration;

/// A request that a robot wants to make.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// The object.
    pub name: Name,
    /// What the law says of it.
    pub facts: Facts,
    /// What is asked of it.
    pub kind: Kindred,
    /// Whether it had been asked for before.
    pub repeat: bool,
    /// The variant that the robot accepts.
    pub variant: u8,
    /// When it should have been sent.
    pub intended: Duration,
    /// Whether it had to wait for a connection.
    pub waited: bool,
    /// How often it was tried before.
    pub tries: u8,
    /// What the page embeds and the robot wants, if it is one.
    pub children: Vec<Name>,
}

/// What is asked of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kindred {
    /// The object.
    Basic,
    /// The object if it changed since a second before its last change: it did.
    ModifiedBefore,
    /// The object if it changed since a second after its last change: it did not.
    ModifiedAfter,
    /// The object from the origin, whatever the cache has.
    Reload,
    /// The head alone.
    Head,
    /// A POST with a body of so many bytes.
    Post(u32),
    /// A part in the middle.
    Range,
}

impl Kindred {
    /// The word of ledgers.
    pub fn kind(self) -> Kind {
        match self {
            Self::Basic => Kind::Basic,
            Self::ModifiedBefore | Self::ModifiedAfter => Kind::Validation,
            Self::Reload => Kind::Reload,
            Self::Head => Kind::Head,
            Self::Post(_) => Kind::Upload,
            Self::Range => Kind::Range,
        }
    }
}

impl Wish {
    /// Whether an ideal cache answers it: basic, asked before, and a store may keep it.
    pub fn offered(&self) -> bool {
        self.kind == Kindred::Basic && self.repeat && self.facts.cachable
    }
}

/// The names of a world that exist.
#[derive(Clone, Copy, Debug, Default)]
struct Names {
    made: u64,
    /// Of those, how many newest ones are asked for again; all while the working set grows.
    window: u64,
    hot: u64,
}

/// All worlds of a worker.
#[derive(Debug)]
pub struct Demand {
    worker: u16,
    servers: u32,
    public: Vec<Names>,
    private: HashMap<(u32, u8), Names>,
    /// Names of each content type that can be repeated, over all servers.
    usable: Vec<u64>,
    frozen: bool,
}

/// Servers that are tried at random before they are looked through.
const SERVER_TRIES: u32 = 8;
/// How far the neighbours are whose size is looked at.
const NEIGHBOURS: u64 = 4;

impl Demand {
    /// Nothing asked for yet.
    pub fn new(worker: u16, servers: u32, contents: usize) -> Self {
        Self {
            worker,
            servers,
            public: vec![Names::default(); servers as usize * contents],
            private: HashMap::new(),
            usable: vec![0; contents],
            frozen: false,
        }
    }

    /// The working set grows no more: from now on each new name pushes out the oldest of its world.
    pub fn freeze(&mut self) {
        if std::mem::replace(&mut self.frozen, true) {
            return;
        }
        for names in self.public.iter_mut().chain(self.private.values_mut()) {
            names.window = names.made;
        }
    }

    /// Names in the working set.
    pub fn working_set(&self) -> u64 {
        let window = |names: &Names| if self.frozen { names.window } else { names.made };
        self.public.iter().chain(self.private.values()).map(window).sum()
    }

    /// Draws the next request of a robot.
    pub fn draw(
        &mut self,
        law: &Law,
        settings: &RobotSettings,
        robot: u32,
        factors: (f64, f64),
        stream: &mut Stream,
    ) -> Wish {
        let (recurrence, special) = factors;
        let content = pick(&settings.direct, stream);
        let public = settings.public >= 1.0 || stream.chance(settings.public);
        let repeat = stream.chance(settings.recurrence * recurrence);
        let old = if repeat { self.repeat(law, settings, robot, content, public, stream) } else { None };
        let repeat = old.is_some();
        let name = old.unwrap_or_else(|| self.make(robot, content, public, stream));
        let facts = law.facts(&name);
        let kind = kind_of(settings, special, stream);
        let mut children = law.embedded(&name, &facts);
        children.retain(|_| settings.embed_recurrence >= 1.0 || stream.chance(settings.embed_recurrence));
        let (intended, variant) = (Duration::ZERO, 0);
        Wish { name, facts, kind, repeat, variant, intended, waited: false, tries: 0, children }
    }

    /// Of the wished world, or else of the other kind: a small run keeps its recurrence.
    fn repeat(
        &mut self,
        law: &Law,
        settings: &RobotSettings,
        robot: u32,
        content: u8,
        public: bool,
        stream: &mut Stream,
    ) -> Option<Name> {
        if !public && let Some(name) = self.repeat_private(law, settings, robot, content, stream) {
            return Some(name);
        }
        self.repeat_public(law, settings, content, stream)
            .or_else(|| self.repeat_private(law, settings, robot, content, stream))
    }

    fn make(&mut self, robot: u32, content: u8, public: bool, stream: &mut Stream) -> Name {
        let server = stream.below(u64::from(self.servers)) as u32;
        let place = self.place(server, content);
        let names = if public { &mut self.public[place] } else { self.private.entry((robot, content)).or_default() };
        names.made += 1;
        let number = names.made;
        // A world that was empty when the working set froze stays out of it.
        if public && (!self.frozen || names.window > 0) {
            self.usable[usize::from(content)] += 1;
        }
        let world = if public { World::Public { worker: self.worker } } else { World::Private { robot } };
        let server = if public { server } else { private_server(robot, content, number, self.servers) };
        Name { server, content, world, number, embedded: false }
    }

    fn place(&self, server: u32, content: u8) -> usize {
        server as usize * self.usable.len() + usize::from(content)
    }

    fn names(&self, server: u32, content: u8) -> Names {
        let names = self.public[self.place(server, content)];
        Names { window: if self.frozen { names.window } else { names.made }, ..names }
    }

    /// A server is drawn; where nothing can be repeated, another one is, so that small runs keep their recurrence.
    fn repeat_public(&mut self, law: &Law, settings: &RobotSettings, content: u8, stream: &mut Stream) -> Option<Name> {
        if self.usable[usize::from(content)] == 0 {
            return None;
        }
        let mut server = stream.below(u64::from(self.servers)) as u32;
        for _ in 0..SERVER_TRIES {
            if self.names(server, content).window > 0 {
                break;
            }
            server = stream.below(u64::from(self.servers)) as u32;
        }
        let around = (0..self.servers).map(|step| (server + step) % self.servers);
        let server = around.into_iter().find(|server| self.names(*server, content).window > 0)?;
        let mut names = self.names(server, content);
        let name = Name { server, content, world: World::Public { worker: self.worker }, number: 0, embedded: false };
        let number = self.choose(&mut names, settings, stream);
        let place = self.place(server, content);
        self.public[place].hot = names.hot;
        Some(discriminate(law, settings, name, number, &names, stream))
    }

    fn repeat_private(
        &mut self,
        law: &Law,
        settings: &RobotSettings,
        robot: u32,
        content: u8,
        stream: &mut Stream,
    ) -> Option<Name> {
        let names = *self.private.get(&(robot, content))?;
        let mut names = Names { window: if self.frozen { names.window } else { names.made }, ..names };
        if names.window == 0 {
            return None;
        }
        let number = self.choose(&mut names, settings, stream);
        let name = Name { server: 0, content, world: World::Private { robot }, number: 0, embedded: false };
        let name = discriminate(law, settings, name, number, &names, stream);
        Some(Name { server: private_server(robot, content, name.number, self.servers), ..name })
    }

    /// A name of the window `(made − window, made]`.
    fn choose(&self, names: &mut Names, settings: &RobotSettings, stream: &mut Stream) -> u64 {
        let oldest = names.made - names.window;
        if let (Some(hot), true) = (settings.hot_set, self.frozen)
            && stream.chance(hot.probability)
        {
            return hot_name(names, hot, oldest, stream);
        }
        match settings.popularity {
            Popularity::Uniform => oldest + 1 + stream.below(names.window),
            Popularity::Recent(skew) => {
                let back = ((names.window + 1) as f64).powf(stream.unit().powf(skew)) as u64;
                names.made + 1 - back.clamp(1, names.window)
            }
            Popularity::Zipf(exponent) => {
                let rank = zipf_rank(names.window, exponent, stream);
                // Ranks are scattered over the numbers, so that age says nothing of popularity.
                oldest + 1 + scatter(rank, names.window)
            }
        }
    }
}

/// A name near the hot position, which jumps when the window has slid past it.
fn hot_name(names: &mut Names, hot: HotSet, oldest: u64, stream: &mut Stream) -> u64 {
    let width = ((hot.share * names.window as f64).round() as u64).clamp(1, names.window);
    if names.hot < oldest + width || names.hot > names.made {
        names.hot = oldest + width + stream.below(names.window - width + 1);
    }
    names.hot - stream.below(width)
}

/// Popular objects become small: with some probability the smallest cachable neighbour is taken.
fn discriminate(
    law: &Law,
    settings: &RobotSettings,
    name: Name,
    number: u64,
    names: &Names,
    stream: &mut Stream,
) -> Name {
    let chosen = Name { number, ..name };
    if settings.discrimination <= 0.0 || !stream.chance(settings.discrimination) || !law.facts(&chosen).cachable {
        return chosen;
    }
    let oldest = names.made - names.window + 1;
    let near = number.saturating_sub(NEIGHBOURS).max(oldest)..=(number + NEIGHBOURS).min(names.made);
    let sizes = near.map(|number| Name { number, ..name }).map(|name| (law.facts(&name), name));
    sizes.filter(|(facts, _)| facts.cachable).min_by_key(|(facts, _)| facts.size).map_or(chosen, |(_, name)| name)
}

fn private_server(robot: u32, content: u8, number: u64, servers: u32) -> u32 {
    let hash = mix(mix(u64::from(robot) << 8 | u64::from(content)) ^ number);
    ((u128::from(hash) * u128::from(servers)) >> 64) as u32
}

fn kind_of(settings: &RobotSettings, special: f64, stream: &mut Stream) -> Kindred {
    if settings.kinds.is_empty() {
        return Kindred::Basic;
    }
    let mut rest = stream.unit();
    for (kind, share) in &settings.kinds {
        rest -= share * special;
        if rest < 0.0 {
            return match *kind {
                Kindred::Post(bytes) => Kindred::Post(stream.below(u64::from(bytes) + 1) as u32),
                kind => kind,
            };
        }
    }
    Kindred::Basic
}

/// A rank from 0 on, by inversion of the continuous distribution: exact enough for windows of any size.
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

/// A place for each rank, the same as long as the window keeps its size.
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
