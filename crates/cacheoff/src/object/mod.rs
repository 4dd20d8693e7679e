//! The object law: an object's name decides its server, type, size, cachability, life cycle, validators and every byte
//! of its body. Robots and origins share it and nothing else, so origins keep no state and each lie of a cache shows.

mod body;
mod life;
mod name;

pub use body::{HEADER_BYTES, whose};
pub use life::{Life, Version};
pub use name::{Name, World};
pub(crate) use name::{hex, unhex};

use crate::distribution::Distribution;
use crate::random::{Stream, mix};
use larder_wire::Fields;
use larder_wire::directives::CacheControl;
use std::sync::Arc;

/// Everything that decides what objects are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Law {
    /// Seed of the run.
    pub seed: u64,
    /// Tells the objects of this run from those of any other in a cache that has seen several.
    pub tag: u32,
    /// When the run began, in seconds since 1970.
    pub epoch: u64,
    /// Content types, in the order of the workload.
    pub contents: Vec<Content>,
    /// Share of the objects whose URL redirects to another one.
    pub redirect: f64,
    /// Share of the objects whose URL has a query string.
    pub query: f64,
    /// Sizes of the objects of a log in bytes, by their numbers from 1 on; empty if sizes are drawn.
    pub sizes: Arc<[u64]>,
    /// Content types of the objects of a log whose lifetimes the log says, by their numbers from 1 on: places in
    /// [`Law::lives`], counted from 1; 0 is the workload's own. Empty if no log says any.
    pub life_of: Arc<[u32]>,
    /// One content type for each lifetime that a log says; all else is that of the workload.
    pub lives: Arc<[Content]>,
}

/// A content type.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// Its name in reports.
    pub name: String,
    /// The `Content-Type` of its replies.
    pub media: String,
    /// Body sizes in bytes.
    pub size: Distribution,
    /// No body is larger.
    pub size_bytes_max: u64,
    /// Share of the objects that a store may keep.
    pub cachable: f64,
    /// How the cache refuses its objects, if it must.
    pub refused: Refused,
    /// Endings of its URLs with their shares.
    pub endings: Vec<(String, f64)>,
    /// The objects that pages of this type embed.
    pub embeds: Option<Embeds>,
    /// How its objects change.
    pub life: Life,
    /// Whether replies say `Vary: Accept-Encoding`, and how many variants there are then.
    pub variants: u8,
    /// Whether replies carry a strong ETag.
    pub etag: bool,
    /// Whether each client that shows a cookie gets a body of its own.
    pub personal: bool,
    /// `Cache-Control` of what a store may keep.
    pub cache_control: String,
}

impl Content {
    /// Objects of one type that never change: a store may keep all of them, they have an ETag and no variants.
    pub fn plain(name: &str, media: &str, size: Distribution, size_bytes_max: u64) -> Self {
        Self {
            name: name.to_owned(),
            media: media.to_owned(),
            size,
            size_bytes_max,
            cachable: 1.0,
            refused: Refused::default(),
            endings: Vec::new(),
            embeds: None,
            life: Life::Static,
            variants: 1,
            etag: true,
            personal: false,
            cache_control: "public".to_owned(),
        }
    }

    /// For how many seconds after its `Date` an answer is fresh in a shared cache by its `Cache-Control`, and how many it
    /// may be given out for on top (RFC 5861); `None` if that says nothing, so that `Expires` decides.
    pub fn lifetime_s(&self) -> Option<(u64, u64)> {
        let lifetime = Lifetime::of(&self.cache_control)?;
        Some((lifetime.fresh_s, lifetime.behind_s.max(lifetime.on_error_s)))
    }
}

/// Objects that the rules of a cache refuse to some robots, or to all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refused {
    /// The status; 0 where they are refused to nobody.
    pub status: u16,
    /// The share of the robots to whom they are refused: of each hundred numbers the first so many.
    pub robots: f64,
}

impl Default for Refused {
    fn default() -> Self {
        Self { status: 0, robots: 1.0 }
    }
}

impl Refused {
    /// The status for the robot with this number, where they are refused to it.
    pub fn to(self, robot: u32) -> Option<u16> {
        (self.status != 0 && f64::from(robot % 100) < self.robots * 100.0 - 1e-9).then_some(self.status)
    }
}

/// The lifetime that a `Cache-Control` gives to an answer in a shared cache, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// For so long it is fresh.
    pub fresh_s: u64,
    /// For so long after that it may be given out while the cache asks the origin behind it (RFC 5861 section 3).
    pub behind_s: u64,
    /// For so long it may be given out where the origin fails (RFC 5861 section 4).
    pub on_error_s: u64,
}

impl Lifetime {
    /// The lifetime in a `Cache-Control`; `None` if it gives none, so that `Expires` decides.
    pub fn of(cache_control: &str) -> Option<Self> {
        let mut fields = Fields::new();
        fields.push("Cache-Control", cache_control.as_bytes());
        let said = CacheControl::of(&fields);
        let strict = said.must_revalidate || said.proxy_revalidate;
        let grace = |seconds: Option<u64>| seconds.filter(|_| !strict).unwrap_or(0);
        Some(Self {
            fresh_s: said.s_maxage.or(said.max_age)?,
            behind_s: grace(said.stale_while_revalidate),
            on_error_s: grace(said.stale_if_error),
        })
    }
}

impl Content {
    /// Whether its answers are for one client alone, and no shared cache may store them (RFC 9111 section 5.2.2.7).
    pub fn is_private(&self) -> bool {
        self.personal && self.cache_control.contains("private")
    }

    /// Whether an answer of a run that is so old is surely fresh in a shared cache, without a word of its origin.
    pub fn is_surely_fresh(&self, run_s: u64, version: &Version, unix: u64) -> bool {
        let mut fields = Fields::new();
        fields.push("Cache-Control", self.cache_control.as_bytes());
        let asks = CacheControl::of(&fields).no_cache.is_some();
        let fresh = match self.lifetime_s() {
            Some((fresh, _)) => fresh > run_s,
            None => version.expires > unix,
        };
        fresh && !asks
    }
}

/// Objects embedded in a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Embeds {
    /// How many.
    pub count: Distribution,
    /// Of which types, with their shares.
    pub contents: Vec<(u8, f64)>,
}

/// The facts of one object under the law, whenever it is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// Seed of its body and its life.
    pub seed: u64,
    /// Bytes of its body.
    pub size: u64,
    /// Whether a store may keep it.
    pub cachable: bool,
    /// Whether its URL leads to another one.
    pub redirects: bool,
}

/// The values that determine the bytes of one version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body {
    /// Seed of the object, and of the client whose own it is.
    pub seed: u64,
    /// Which version.
    pub generation: u64,
    /// Bytes of it.
    pub size: u64,
}

impl Body {
    /// The body that a robot sends with a POST.
    pub fn of_upload(number: u64, size: u64) -> Self {
        Self { seed: number, generation: UPLOAD, size }
    }
}

/// The generation of what robots send: no version of an object has it.
const UPLOAD: u64 = u64::MAX;
/// Most objects that one page embeds: their number has a byte in their names.
const EMBEDS_MAX: f64 = 255.0;
/// Set in the numbers of objects that others lead to.
const MOVED: u64 = 1 << 62;

impl Law {
    /// The content type of an object, with the lifetime that a log says of it.
    pub fn content(&self, name: &Name) -> &Content {
        match self.life_place(name) {
            Some(place) => &self.lives[place],
            None => &self.contents[usize::from(name.content)],
        }
    }

    /// The place in [`Law::lives`] of an object whose lifetime a log says.
    pub fn life_place(&self, name: &Name) -> Option<usize> {
        // The objects of all other workloads.
        if self.life_of.is_empty() {
            return None;
        }
        let number = usize::try_from(name.number).ok()?.checked_sub(1)?;
        (*self.life_of.get(number)? as usize).checked_sub(1)
    }

    /// The content type of an object of a log, by its number from 0 on.
    pub fn logged(&self, object: u32) -> Option<&Content> {
        let place = self.life_of.get(object as usize).and_then(|place| (*place as usize).checked_sub(1));
        place.map_or_else(|| self.contents.first(), |place| self.lives.get(place))
    }

    /// The facts that do not change over an object's life.
    pub fn facts(&self, name: &Name) -> Facts {
        let seed = mix(self.seed ^ name.fingerprint());
        let content = self.content(name);
        let mut stream = Stream::new(seed, 1);
        let known = usize::try_from(name.number).ok().and_then(|number| self.sizes.get(number.checked_sub(1)?));
        let size = known.copied().unwrap_or_else(|| content.size.draw(&mut stream).max(1.0) as u64);
        Facts {
            seed,
            size: size.min(content.size_bytes_max.max(1)),
            cachable: Stream::new(seed, 2).chance(content.cachable),
            redirects: name.number & MOVED == 0 && Stream::new(seed, 5).chance(self.redirect),
        }
    }

    /// The version that origins give out at a time, in seconds since 1970.
    pub fn version(&self, name: &Name, facts: &Facts, now: u64) -> Version {
        self.content(name).life.version(facts.seed, self.epoch, now)
    }

    /// The body of a version, for a client: 0 is anybody. Variants have the same, coded otherwise.
    pub fn body(&self, facts: &Facts, generation: u64, user: u64) -> Body {
        let own = if user == 0 { 0 } else { mix(user) };
        Body { seed: facts.seed ^ own, generation, size: facts.size }
    }

    /// Names of what a page embeds, in order.
    pub fn embedded(&self, page: &Name, facts: &Facts) -> Vec<Name> {
        let Some(embeds) = &self.content(page).embeds else { return Vec::new() };
        let mut stream = Stream::new(facts.seed, 3);
        let count = embeds.count.draw(&mut stream).clamp(0.0, EMBEDS_MAX) as u64;
        let child = |number: u64, stream: &mut Stream| Name {
            content: pick(&embeds.contents, stream),
            embedded: true,
            number: page.number << 8 | number,
            ..*page
        };
        (1..=count).map(|number| child(number, &mut stream)).collect()
    }

    /// Where an object that redirects leads to.
    pub fn moved(&self, name: &Name) -> Name {
        Name { number: name.number | MOVED, ..*name }
    }

    /// The path of an object's URL, with its leading slash.
    pub fn path(&self, name: &Name, facts: &Facts, out: &mut Vec<u8>) {
        let ending = match &self.content(name).endings[..] {
            [] => "",
            endings => {
                let shares: Vec<(usize, f64)> = endings.iter().map(|(_, share)| *share).enumerate().collect();
                &endings[pick(&shares, &mut Stream::new(facts.seed, 4))].0
            }
        };
        name.write_path(self.tag, ending, out);
        if self.query > 0.0 && Stream::new(facts.seed, 6).chance(self.query) {
            out.extend_from_slice(b"?q=");
            hex(facts.seed >> 40, out);
        }
    }

    /// The object of a path; `None` if it is none of this run's.
    pub fn parse(&self, path: &[u8]) -> Option<Name> {
        let name = Name::parse_path(path, self.tag)?;
        (usize::from(name.content) < self.contents.len()).then_some(name)
    }
}

/// One of several by their shares.
pub fn pick<T: Copy>(shares: &[(T, f64)], stream: &mut Stream) -> T {
    let total: f64 = shares.iter().map(|(_, share)| share).sum();
    let mut rest = stream.unit() * total;
    for (each, share) in shares {
        rest -= share;
        if rest < 0.0 {
            return *each;
        }
    }
    shares[shares.len() - 1].0
}

#[cfg(test)]
mod tests;
