//! The scores of an ideal cache on a workload, and the resources that the run will need: computed before the first
//! request.
//!
//! Where the working set is a sliding window with uniform popularity, all is by formula; else by a sample of requests
//! drawn without a network, and the plan says so.

pub mod command;
mod explain;
mod lru;
mod sample;

pub use explain::{explain, show};
pub use lru::How;

use crate::ledger::Ideal;
use crate::object::Lifetime;
use crate::workload::{Content, Phase, Popularity, WorkingSet, Workload};
use std::time::Duration;

/// The user's choices besides the workload.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Asked {
    /// Requests per second at peak.
    pub peak_per_s: Option<f64>,
    /// Bytes of the cache under test, for phases that fill it.
    pub cache_bytes: Option<u64>,
}

/// A plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Requests per second at peak; `None` if replies decide.
    pub peak_per_s: Option<f64>,
    /// Robots.
    pub robots: u64,
    /// Visible servers.
    pub servers: u64,
    /// Phases with their times.
    pub phases: Vec<PlannedPhase>,
    /// Requests of the phases whose length or number of replies is known.
    pub requests: Option<f64>,
    /// Objects asked for at least once in that time.
    pub objects: Option<f64>,
    /// Their bytes.
    pub object_bytes: Option<f64>,
    /// The working set once it is frozen, or at the end.
    pub working_set: Option<WorkingSetSize>,
    /// The document hit ratio of an ideal cache of unlimited size in the reported phase.
    pub dhr: Option<f64>,
    /// The same by bytes.
    pub bhr: Option<f64>,
    /// How the two were found.
    pub how: How,
    /// Share of the requests that bring something new which a store may keep.
    pub fill: Option<f64>,
    /// Bytes of that per second at peak.
    pub fill_bytes_per_s: Option<f64>,
    /// Mean bytes of a reply's body.
    pub size_mean: f64,
    /// Share of the requests whose objects a store may keep.
    pub cachable: f64,
    /// Mean seconds of a reply from the origin: on a kept connection, and on a new one.
    pub miss_s: (f64, f64),
    /// Mean seconds of a reply through an ideal cache, with kept and with new connections to the origins.
    pub response_s: Option<(f64, f64)>,
    /// Cache size in bytes that gives 99 % of the hits under LRU.
    pub lru_99_bytes: Option<f64>,
}

/// The objects that may be asked for again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkingSetSize {
    /// All of them.
    pub objects: f64,
    /// Those that a store may keep.
    pub cachable_objects: f64,
    /// Bytes of these.
    pub cachable_bytes: f64,
    /// Seconds at peak from an object's first request to its leaving the set, if it slides.
    pub life_s: Option<f64>,
}

/// A phase with its times.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedPhase {
    /// Its name.
    pub name: String,
    /// When it begins, if all before have known lengths.
    pub begins: Option<Duration>,
    /// How long it lasts, if that is known.
    pub length: Option<Duration>,
    /// Requests per second at its beginning and end, if paced.
    pub rates: Option<(f64, f64)>,
    /// The goals that end it besides its length, in words; empty if there are none.
    pub goal: String,
    /// Whether its figures are reported.
    pub logged: bool,
}

impl Plan {
    /// The plan of a workload, which was scaled before if it is to be.
    pub fn of(workload: &Workload, asked: &Asked) -> Self {
        let rate = workload.robots.pace.rate_per_s();
        let asked_peak = asked.peak_per_s.or(workload.peak_per_s);
        let robots = match (asked_peak, rate) {
            (Some(peak), Some(rate)) => (peak / rate).ceil().max(1.0) as u64,
            _ => workload.robots.count,
        };
        let peak = rate.map(|rate| asked_peak.unwrap_or(rate * robots as f64));
        let servers = (workload.servers.count as f64 + workload.servers.per_robot * robots as f64).ceil() as u64;
        let phases = phases(workload, peak, asked);
        let basis = Basis::of(workload);
        let requests = requests(workload, peak);
        let working_set = basis.working_set(workload, peak, robots, requests);
        let found = lru::found(workload, &basis, working_set.as_ref(), peak, (requests, robots));
        let fill = found.dhr.map(|_| basis.cachable * (1.0 - found.repeats));
        let miss_s = miss(workload);
        let far = 2.0 * workload.client_link.delay.as_secs_f64();
        let dhr = found.dhr;
        let objects = requests.map(|requests| requests * (1.0 - found.repeats));
        Self {
            peak_per_s: peak,
            robots,
            servers,
            phases,
            requests,
            objects,
            object_bytes: objects.map(|objects| objects * basis.size),
            working_set,
            dhr,
            bhr: found.bhr,
            how: found.how,
            fill,
            fill_bytes_per_s: fill.zip(peak).map(|(fill, peak)| fill * peak * basis.cachable_size),
            size_mean: basis.size,
            cachable: basis.cachable,
            miss_s: (miss_s.0 + far, miss_s.1 + far),
            response_s: dhr.map(|dhr| (far + (1.0 - dhr) * miss_s.0, far + (1.0 - dhr) * miss_s.1)),
            lru_99_bytes: found.lru_99_bytes,
        }
    }

    /// The part of the plan that a ledger keeps.
    pub fn ideal(&self) -> Ideal {
        Ideal {
            dhr: self.dhr,
            bhr: self.bhr,
            response_us: self.response_s.map(|(kept, fresh)| (kept + fresh) / 2.0 * 1e6),
            fill_bytes_per_s: self.fill_bytes_per_s,
            working_set_bytes: self.working_set.map(|set| set.cachable_bytes),
            lru_99_bytes: self.lru_99_bytes,
        }
    }
}

/// Means over the mix that is really asked for.
pub(crate) struct Basis {
    /// Share that a store may keep.
    pub cachable: f64,
    /// Share on which hits are offered where they were asked for before: of what a store may keep, that which is the same for
    /// all clients.
    pub offerable: f64,
    /// Mean size.
    pub size: f64,
    /// Mean size of what a store may keep.
    pub cachable_size: f64,
    /// Share of the requests in the reported phase that ask again.
    pub recurrence: f64,
}

impl Basis {
    fn of(workload: &Workload) -> Self {
        let mix = workload.mix(1.0);
        let sum_over = |shares: &[f64], value: fn(&Content) -> f64| -> f64 {
            shares.iter().zip(&workload.contents).map(|(share, content)| share * value(content)).sum()
        };
        let sum = |value: fn(&Content) -> f64| sum_over(&mix.contents, value);
        let cachable = sum(|content| content.cachable);
        let kept = sum(|content| content.cachable * content.size_mean());
        let factor = reported(workload).map_or(1.0, |phase| phase.recurrence.mean());
        Self {
            cachable,
            offerable: sum_over(&mix.basic, Content::offerable) * (1.0 - workload.requests.logged_in),
            size: sum(|content| content.size_mean()),
            cachable_size: if cachable > 0.0 { kept / cachable } else { 0.0 },
            recurrence: (workload.interest.recurrence * factor).min(1.0),
        }
    }

    fn working_set(
        &self,
        workload: &Workload,
        peak: Option<f64>,
        robots: u64,
        requests: Option<f64>,
    ) -> Option<WorkingSetSize> {
        let new = 1.0 - self.recurrence;
        let cachable = self.cachable.max(1e-9);
        let objects = match workload.interest.working_set {
            WorkingSet::Unlimited => requests? * new,
            WorkingSet::FreezeAt(time) => workload.peak_seconds(time.as_secs_f64()) * peak? * new,
            WorkingSet::CapPerRate(misses) => misses * peak? / cachable,
            WorkingSet::Cap(misses) => misses as f64 / cachable,
            WorkingSet::Fixed(pages) => {
                let private = 1.0 - workload.interest.public;
                pages as f64 * per_direct(workload) * (workload.interest.public + private * robots as f64)
            }
        };
        let slides =
            new > 0.0 && !matches!(workload.interest.working_set, WorkingSet::Fixed(_) | WorkingSet::Unlimited);
        Some(WorkingSetSize {
            objects,
            cachable_objects: objects * self.cachable,
            cachable_bytes: objects * self.cachable * self.cachable_size,
            life_s: peak.filter(|_| slides).map(|peak| objects / (new * peak)),
        })
    }
}

/// Objects for each that is asked for by itself: a page and what it embeds.
fn per_direct(workload: &Workload) -> f64 {
    let embedded = workload.direct_shares().into_iter().zip(&workload.contents).map(|(share, content)| {
        share * content.embeds.as_ref().map_or(0.0, |embeds| embeds.count.mean() * workload.robots.embed_recurrence)
    });
    1.0 + embedded.sum::<f64>()
}

/// The phase whose figures are the result.
pub(crate) fn reported(workload: &Workload) -> Option<&Phase> {
    let named = workload.phases.iter().find(|phase| phase.name == workload.rules.report_phase);
    let weight = |phase: &&Phase| {
        let length = phase.length.map_or(0.0, |length| length.as_secs_f64());
        phase.load.mean() * phase.populus.mean() * length
    };
    let logged = workload.phases.iter().filter(|phase| phase.logged);
    named.or_else(|| logged.max_by(|a, b| weight(a).total_cmp(&weight(b))))
}

/// Requests of the phases whose length or number of replies is known; `None` if no phase says either.
fn requests(workload: &Workload, peak: Option<f64>) -> Option<f64> {
    let replies: Option<u64> = workload.phases.iter().filter_map(|phase| phase.replies).reduce(|a, b| a + b);
    let timed = workload.phases.iter().any(|phase| phase.length.is_some());
    match (peak.filter(|_| timed), replies) {
        (None, replies) => replies.map(|replies| replies as f64),
        (Some(peak), replies) => Some(workload.peak_seconds(1e12) * peak + replies.unwrap_or(0) as f64),
    }
}

fn phases(workload: &Workload, peak: Option<f64>, asked: &Asked) -> Vec<PlannedPhase> {
    let mut begins = Some(Duration::ZERO);
    let each = workload.phases.iter().map(|phase| {
        let rate =
            |load: f64, populus: f64| peak.map_or(0.0, |peak| if phase.dark { 0.0 } else { peak * load * populus });
        let planned = PlannedPhase {
            name: phase.name.clone(),
            begins,
            length: phase.length,
            rates: peak.map(|_| (rate(phase.load.from, phase.populus.from), rate(phase.load.to, phase.populus.to))),
            goal: goal(phase, asked),
            logged: phase.logged,
        };
        begins = begins.zip(phase.length).map(|(begins, length)| begins + length);
        planned
    });
    each.collect()
}

fn goal(phase: &Phase, asked: &Asked) -> String {
    let mut goals = Vec::new();
    goals.extend(phase.replies.map(|replies| format!("{} replies", crate::chart::grouped(replies as f64))));
    goals.extend(phase.fill_bytes.map(|bytes| format!("{} of cachable misses", explain::bytes(bytes as f64))));
    goals.extend(phase.fill_caches.map(|times| match asked.cache_bytes {
        Some(size) => format!("{} of cachable misses ({times} times the cache)", explain::bytes(times * size as f64)),
        None => format!("cachable misses of {times} times the cache's size"),
    }));
    if phase.length.is_some() && !goals.is_empty() {
        goals.push("this time".to_owned());
    }
    let mut words = goals.join(" or ");
    if phase.until_frozen {
        words += if words.is_empty() { "the working set is frozen" } else { ", and the working set is frozen" };
    }
    words
}

/// Mean seconds of a reply from the origin, seen from the cache: on a kept connection, and on a new one.
fn miss(workload: &Workload) -> (f64, f64) {
    let round = 2.0 * workload.server_link.delay.as_secs_f64() + workload.server_link.jitter.as_secs_f64();
    let kept = workload.servers.think.mean() + round;
    (kept, kept + round)
}

/// Whether objects are chosen so that formulas hold.
pub(crate) fn is_uniform_window(workload: &Workload) -> bool {
    let interest = &workload.interest;
    let slides = !matches!(interest.working_set, WorkingSet::Fixed(_));
    let plain = interest.hot_probability == 0.0 && interest.bhr_discrimination == 0.0;
    let alike = workload.requests.accept_gzip == 0.0 || workload.contents.iter().all(|content| content.variants == 1);
    let lasts = |content: &Content| content.life.cycle.is_none() && Lifetime::of(&content.cache_control).is_none();
    let long = workload.contents.iter().all(lasts);
    slides && plain && alike && long && interest.popularity == Popularity::Uniform
}

#[cfg(test)]
mod tests;
