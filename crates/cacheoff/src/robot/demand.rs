//! The demand of robots: names are made in worlds and repeated from them (Web Polygraph's words; WORKLOADS A.8, A.9). A
//! worker's worlds are its own, so what it asks follows from the seed and the times alone.

use super::{HotSet, Multipliers, Popularity, RobotSettings, Special};
use crate::distribution::Distribution;
use crate::ledger::Kind;
use crate::object::{Facts, Law, Name, World, pick};
use crate::random::{Stream, mix};
use larder_wire::Version;
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
    /// Whether what an ideal cache has of it has expired; known when it is sent.
    pub expired: bool,
    /// When it should have been sent.
    pub intended: Duration,
    /// Whether it had to wait for a connection.
    pub waited: bool,
    /// How often it was tried before.
    pub tries: u8,
    /// The objects that the page embeds and the robot wants, if it is a page.
    pub children: Vec<Name>,
    /// Whether it holds its body back until it is told to go on.
    pub expects: bool,
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
    /// Whether it logs in at the proxy.
    pub at_proxy: bool,
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
    /// A PUT with a body of so many bytes.
    Put(u32),
    /// The object if its tag is not the current one: it is.
    TagMatch,
    /// A part.
    Part(Part),
    /// Several parts in one answer.
    Parts(Parts),
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

/// Several parts of an object, in their order and apart from each other: one in each of as many equal pieces of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    count: u8,
    /// Where in its piece each lies follows from this.
    seed: u32,
    /// Bytes of each.
    length: u64,
    /// Bytes of a piece.
    piece: u64,
}

/// Parts that are asked for in one request.
const PARTS_MAX: u64 = 8;
/// Parts that lie nearer to each other may become one (RFC 9110 section 15.3.7.2).
const PARTS_GAP: u64 = 200;

impl Parts {
    /// So many parts of an object of this size; `None` if it is too small.
    fn draw(size: u64, count: u64, bytes: Distribution, stream: &mut Stream) -> Option<Self> {
        let count = count.min(PARTS_MAX);
        let piece = size / count.max(1);
        if count < 2 || piece <= 2 * PARTS_GAP {
            return None;
        }
        let length = (bytes.draw(stream).max(1.0) as u64).min(piece - PARTS_GAP);
        Some(Self { count: count as u8, seed: stream.next_u64() as u32, length, piece })
    }

    /// From the first byte of all to the last one.
    pub fn span(&self) -> std::ops::Range<u64> {
        self.range(0).start..self.range(u64::from(self.count) - 1).end
    }

    /// The parts.
    pub fn ranges(&self) -> impl Iterator<Item = std::ops::Range<u64>> + '_ {
        (0..u64::from(self.count)).map(|number| self.range(number))
    }

    fn range(&self, number: u64) -> std::ops::Range<u64> {
        let room = self.piece - PARTS_GAP - self.length;
        let start = number * self.piece + Stream::new(u64::from(self.seed), number).below(room + 1);
        start..start + self.length
    }
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
            Self::Post(_) | Self::Put(_) => Kind::Upload,
            Self::Part(_) | Self::Parts(_) => Kind::Range,
            Self::Purge => Kind::Purge,
        }
    }

    /// The kind of request for what a page embeds that was asked for in this way: validations and reloads are marks that
    /// pages hand on.
    fn handed_on(self, tagged: bool, cachable: bool) -> Self {
        match self {
            Self::ModifiedBefore | Self::ModifiedAfter | Self::Reload => self,
            Self::TagMatch if tagged && cachable => self,
            _ => Self::Basic,
        }
    }

    /// Whether it asks for a part, or for several.
    pub fn is_partial(self) -> bool {
        matches!(self, Self::Part(_) | Self::Parts(_))
    }

    /// Whether it may be sent again when its connection ended before a reply (RFC 9110 section 9.2.2).
    pub fn is_repeatable(self) -> bool {
        !matches!(self, Self::Post(_) | Self::Put(_) | Self::Purge)
    }

    /// Bytes of the body of such a request.
    pub fn upload_bytes(self) -> Option<u32> {
        match self {
            Self::Post(bytes) | Self::Put(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The status that an origin answers with.
    pub fn status(self) -> u16 {
        match self {
            Self::ModifiedAfter | Self::TagMatch => 304,
            Self::Part(_) => 206,
            _ => 200,
        }
    }

    /// Whether a page that is asked for in this way and answered with this status leads to what it embeds.
    pub fn brings(self, status: u16, embeds_of_304: bool) -> bool {
        match status {
            200 => !matches!(self, Self::Head | Self::Purge),
            304 => embeds_of_304,
            _ => false,
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
        let uploads = settings.expect_continue > 0.0 && wish.kind.upload_bytes().is_some_and(|bytes| bytes > 0);
        wish.expects = uploads && settings.version == Version::Http11 && stream.chance(settings.expect_continue);
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
            expired: false,
            intended: Duration::ZERO,
            waited: false,
            tries: 0,
            children: Vec::new(),
            expects: false,
            parts: Vec::new(),
            abort_at: None,
            client: Client::default(),
            personal: false,
        }
    }

    /// The request for an object that this page embeds, the one with this number.
    pub fn child(&self, law: &Law, settings: &RobotSettings, (number, name): (usize, &Name)) -> Self {
        let (facts, content) = (law.facts(name), law.content(name));
        let mut child = Self::of(*name, facts, self.repeat).like(self);
        (child.personal, child.kind) = (content.personal, self.kind.handed_on(content.etag, facts.cachable));
        if settings.abort > 0.0 {
            // Not from the robot's stream: when a page comes depends on the cache.
            let seed = self.name.fingerprint() ^ self.intended.as_nanos() as u64;
            let mut stream = Stream::new(seed, number as u64);
            child.abort_at = stream.chance(settings.abort).then(|| stream.below(facts.size + 1));
        }
        child
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

    /// The status with which the cache must refuse it to this robot, where it must.
    pub fn refused(&self, law: &Law) -> Option<u16> {
        law.content(&self.name).refused.to(self.client.number)
    }

    /// Whether an ideal cache answers it: a basic request for an object that is the same for all clients, was asked for
    /// before, may be stored, and has not expired since.
    pub fn offered(&self) -> bool {
        let plain = !self.personal && self.kind == Kindred::Basic && !self.facts.redirects && !self.client.logged_in;
        plain && self.repeat && !self.new_variant && !self.expired && self.facts.cachable
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
const UPLOAD_BYTES_MAX: f64 = 1e6;

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
        self.windows().sum()
    }

    /// Worlds with names that can be asked for again.
    pub fn worlds(&self) -> u64 {
        self.windows().filter(|window| *window > 0).count() as u64
    }

    fn windows(&self) -> impl Iterator<Item = u64> {
        let all = self.public.iter().chain(self.private.values());
        all.map(|names| if self.frozen { names.window } else { names.made })
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

fn partial(settings: &RobotSettings, size: u64, stream: &mut Stream) -> Kindred {
    let ranges = &settings.ranges;
    let count = ranges.parts.draw(stream).max(1.0) as u64;
    let several = Parts::draw(size, count, ranges.bytes, stream).map(Kindred::Parts);
    several.unwrap_or_else(|| Kindred::Part(Part::draw(size, ranges.bytes, ranges.suffix, stream)))
}

fn upload_bytes(settings: &RobotSettings, stream: &mut Stream) -> u32 {
    settings.post_bytes.draw(stream).clamp(0.0, UPLOAD_BYTES_MAX) as u32
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
                Special::Post => Kindred::Post(upload_bytes(settings, stream)),
                Special::Put => Kindred::Put(upload_bytes(settings, stream)),
                Special::Part if facts.size == 0 => Kindred::Basic,
                Special::Part => partial(settings, facts.size, stream),
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
