//! The demand of robots: names are made in worlds and repeated from them (Web Polygraph's words; WORKLOADS A.8, A.9). A
//! worker's worlds are its own, so what it asks follows from the seed and the times alone.

use super::{HotSet, Multipliers, Popularity, RobotSettings, Special};
use crate::distribution::Distribution;
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
    /// Its facts under the law.
    pub facts: Facts,
    /// The kind of request.
    pub kind: Kindred,
    /// Whether it had been asked for before.
    pub repeat: bool,
    /// The variant that the robot accepts.
    pub variant: u8,
    /// Whether nobody had asked for this variant of the object before.
    pub new_variant: bool,
    /// When it should have been sent.
    pub intended: Duration,
    /// Whether it had to wait for a connection.
    pub waited: bool,
    /// How often it was tried before.
    pub tries: u8,
    /// The objects that the page embeds and the robot wants, if it is a page.
    pub children: Vec<Name>,
    /// Other parts that are asked for at the same time.
    pub parts: Vec<Part>,
    /// After how many bytes of the body the robot breaks off, if it does.
    pub abort_at: Option<u64>,
    /// The robot, as the request describes it.
    pub client: Client,
    /// Whether the object is another one for each client.
    pub personal: bool,
}

/// A robot as its requests describe it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Its number.
    pub number: u32,
    /// Whether it shows its cookie.
    pub cookie: bool,
    /// Whether it shows that it is logged in.
    pub logged_in: bool,
}

/// The kind of a request for an object.
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
    /// The object if its tag is not the current one: it is.
    TagMatch,
    /// A part.
    Part(Part),
    /// That the cache forgets it.
    Purge,
}

/// A part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its first byte.
    pub start: u64,
    /// The byte after its last one.
    pub end: u64,
    /// Whether it is asked for as so many bytes of the end.
    pub suffix: bool,
}

impl Part {
    /// A part of an object of this size; nothing can be asked of an empty one.
    fn draw(size: u64, bytes: Distribution, suffix: f64, stream: &mut Stream) -> Self {
        let length = (bytes.draw(stream).max(1.0) as u64).min(size);
        let suffix = stream.chance(suffix);
        let start = if suffix { size - length } else { stream.below(size - length + 1) };
        Self { start, end: start + length, suffix }
    }

    /// The object in so many parts of the same length; the last one may be shorter.
    fn divide(size: u64, count: u64) -> Vec<Self> {
        let length = size.div_ceil(count.clamp(1, size.max(1))).max(1);
        let starts = (0..size).step_by(usize::try_from(length).unwrap_or(usize::MAX));
        starts.map(|start| Self { start, end: (start + length).min(size), suffix: false }).collect()
    }
}

impl Kindred {
    /// The word of ledgers.
    pub fn kind(self) -> Kind {
        match self {
            Self::Basic => Kind::Basic,
            Self::ModifiedBefore | Self::ModifiedAfter | Self::TagMatch => Kind::Validation,
            Self::Reload => Kind::Reload,
            Self::Head => Kind::Head,
            Self::Post(_) => Kind::Upload,
            Self::Part(_) => Kind::Range,
            Self::Purge => Kind::Purge,
        }
    }
}

impl Wish {
    /// Draws how an object is asked for.
    pub fn draw(
        law: &Law,
        settings: &RobotSettings,
        (name, repeat): (Name, bool),
        special: f64,
        stream: &mut Stream,
    ) -> Self {
        let facts = law.facts(&name);
        let mut wish = Self::of(name, facts, repeat);
        wish.personal = law.content(&name).personal;
        wish.kind = kind_of(settings, &facts, law.content(&name).etag, special, stream);
        if wish.kind == Kindred::Purge {
            // An object that nobody has asked for is in no cache.
            wish.kind = if repeat { Kindred::Purge } else { Kindred::Basic };
            if repeat {
                return wish;
            }
        }
        let ranges = settings.ranges.parallel.draw(stream).max(1.0) as u64;
        if ranges > 1 && wish.kind == Kindred::Basic && facts.size > 1 {
            wish.parts = Part::divide(facts.size, ranges);
            wish.kind = wish.parts.pop().map_or(Kindred::Basic, Kindred::Part);
        }
        if stream.chance(settings.abort) {
            wish.abort_at = Some(stream.below(facts.size + 1));
        }
        wish.client.cookie = stream.chance(settings.cookie);
        wish.client.logged_in = stream.chance(settings.logged_in);
        if facts.redirects {
            (wish.kind, wish.parts, wish.children) = (Kindred::Basic, Vec::new(), vec![law.moved(&name)]);
            return wish;
        }
        wish.children = law.embedded(&name, &facts);
        wish.children.retain(|_| settings.embed_recurrence >= 1.0 || stream.chance(settings.embed_recurrence));
        wish
    }

    /// A plain request.
    pub fn of(name: Name, facts: Facts, repeat: bool) -> Self {
        Self {
            name,
            facts,
            kind: Kindred::Basic,
            repeat,
            variant: 0,
            new_variant: false,
            intended: Duration::ZERO,
            waited: false,
            tries: 0,
            children: Vec::new(),
            parts: Vec::new(),
            abort_at: None,
            client: Client::default(),
            personal: false,
        }
    }

    /// Like [`Self::of`], for another part of the same object.
    pub fn part(&self, part: Part) -> Self {
        let plain = Self::of(self.name, self.facts, self.repeat);
        Self { kind: Kindred::Part(part), personal: self.personal, ..plain }.like(self)
    }

    /// For the same client at the same time.
    pub fn like(mut self, other: &Self) -> Self {
        (self.variant, self.new_variant) = (other.variant, other.new_variant);
        (self.intended, self.client) = (other.intended, other.client);
        self
    }

    /// The client whose own body it gets: 0 for the body that is everybody's.
    pub fn user(&self, law: &Law) -> u64 {
        match law.content(&self.name).personal && self.client.cookie {
            true => u64::from(self.client.number) + 1,
            false => 0,
        }
    }

    /// Whether an ideal cache answers it: a basic request for an object that is the same for all clients, was asked for
    /// before, and may be stored.
    pub fn offered(&self) -> bool {
        let plain = !self.personal && self.kind == Kindred::Basic && !self.facts.redirects && !self.client.logged_in;
        plain && self.repeat && !self.new_variant && self.facts.cachable
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
    /// Multiplier of the probability of the hot set, of the request that is being drawn.
    hot: f64,
}

/// Servers that are tried at random before they are looked through.
const SERVER_TRIES: u32 = 8;
/// How far the neighbours are whose size is looked at.
const NEIGHBOURS: u64 = 4;
/// Bytes of a body that a robot sends.
const POST_BYTES_MAX: f64 = 1e6;

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
            hot: 1.0,
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

    /// Whether the working set grows no more.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Draws what a robot asks for next, and whether it was asked for before.
    pub fn draw(
        &mut self,
        law: &Law,
        settings: &RobotSettings,
        robot: u32,
        multipliers: Multipliers,
        stream: &mut Stream,
    ) -> (Name, bool) {
        self.hot = multipliers.hot;
        let content = pick(&settings.direct, stream);
        let public = settings.public >= 1.0 || stream.chance(settings.public);
        let repeat = stream.chance(settings.recurrence * multipliers.recurrence);
        let old = if repeat { self.repeat(law, settings, robot, content, public, stream) } else { None };
        let repeat = old.is_some();
        (old.unwrap_or_else(|| self.make(robot, content, public, stream)), repeat)
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
            && stream.chance(hot.probability * self.hot)
        {
            return hot_name(&mut names.hot, hot, oldest, names.made, stream);
        }
        match settings.popularity {
            Popularity::Recent(skew) => {
                let back = ((names.window + 1) as f64).powf(stream.unit().powf(skew)) as u64;
                names.made + 1 - back.clamp(1, names.window)
            }
            // The others belong to fixed sets, which have a shelf.
            _ => oldest + 1 + stream.below(names.window),
        }
    }
}

/// A name of `(oldest, newest]` near the hot position, which jumps when the window has slid past it.
pub(super) fn hot_name(position: &mut u64, hot: HotSet, oldest: u64, newest: u64, stream: &mut Stream) -> u64 {
    let window = newest - oldest;
    let width = ((hot.share * window as f64).round() as u64).clamp(1, window);
    if *position < oldest + width || *position > newest {
        *position = oldest + width + stream.below(window - width + 1);
    }
    *position - stream.below(width)
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

fn kind_of(settings: &RobotSettings, facts: &Facts, tagged: bool, special: f64, stream: &mut Stream) -> Kindred {
    if settings.kinds.is_empty() {
        return Kindred::Basic;
    }
    let mut rest = stream.unit();
    for (ask, share) in &settings.kinds {
        rest -= share * special;
        if rest < 0.0 {
            return match *ask {
                Special::Post => Kindred::Post(settings.post_bytes.draw(stream).clamp(0.0, POST_BYTES_MAX) as u32),
                Special::Part if facts.size == 0 => Kindred::Basic,
                Special::Part => {
                    Kindred::Part(Part::draw(facts.size, settings.ranges.bytes, settings.ranges.suffix, stream))
                }
                // An object that has no tag, or may not be kept, cannot be asked about again.
                Special::TagMatch if !tagged || !facts.cachable => Kindred::Basic,
                Special::TagMatch => Kindred::TagMatch,
                Special::ModifiedBefore => Kindred::ModifiedBefore,
                Special::ModifiedAfter => Kindred::ModifiedAfter,
                Special::Reload => Kindred::Reload,
                Special::Head => Kindred::Head,
                Special::Purge => Kindred::Purge,
            };
        }
    }
    Kindred::Basic
}
