//! The spread of a workload's figures by chance alone: it is rehearsed without a network with many seeds, and with the
//! seed of each run. Formulas for that are hard to get right: a page brings what it embeds, the same page comes again
//! and again, small worlds repeat their first names most, and what waits for a connection at the end is not counted
//! (decision 019).

use crate::engine::{Partner, rehearse};
use crate::ledger::{Ledger, Mode, PhasePlan, Run};
use crate::robot::Route;
use crate::run::{Row, Wanted, derive, rows};
use crate::workload::Workload;
use std::collections::BTreeMap;
use std::thread;

/// Seeds that are rehearsed.
pub const SEEDS: u64 = 200;
/// All cells of a table lie in their intervals in all but this share of proofs.
pub const ALARMS: f64 = 0.01;
/// Longer workloads are not rehearsed.
const REQUESTS_MAX: u64 = 500_000;
/// The first of the seeds: none that a clock gives.
const FIRST_SEED: u64 = 1 << 40;
/// Standard errors in the intervals of [`Row`].
const ROW_WIDTH: f64 = 2.576;

/// A workload as it was asked to be played.
#[derive(Clone, Debug)]
pub struct Rehearsed<'w> {
    /// The workload, scaled.
    pub workload: &'w Workload,
    /// With which peak, and so on; the seed is of no matter.
    pub wanted: Wanted,
}

/// From where to where a figure goes by chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

impl Bounds {
    /// Whether a figure lies within.
    pub fn hold(&self, figure: f64) -> bool {
        (self.low..=self.high).contains(&figure)
    }
}

/// How a figure is spread over seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    mean: f64,
    deviation: f64,
    seeds: f64,
    /// Sizes, times and rates are looked at by their logarithms, each side by itself: few large objects, asked for often,
    /// make the mean size lopsided. Shares are near enough to a normal distribution.
    tails: Option<(Tail, Tail)>,
}

/// The outermost figures on one side: the tenth part of all.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tail {
    /// Where it begins.
    from: f64,
    /// How far from there its figures are in the mean.
    excess: f64,
    /// How many they are.
    figures: f64,
}

/// The share of the figures that is a tail.
const TAIL: f64 = 0.1;

impl Spread {
    /// Of a figure in this unit that came out like this.
    pub fn of(figures: &[f64], unit: &str) -> Self {
        let by_logarithm = unit != "%";
        let seeds = figures.len() as f64;
        let taken: Vec<f64> = figures.iter().map(|figure| if by_logarithm { figure.ln() } else { *figure }).collect();
        let mean = taken.iter().sum::<f64>() / seeds;
        let squares: f64 = taken.iter().map(|figure| (figure - mean).powi(2)).sum();
        let tails =
            by_logarithm.then(|| (Tail::of(taken.iter().map(|figure| -figure)), Tail::of(taken.iter().copied())));
        Self { mean, deviation: (squares / (seeds - 1.0)).sqrt(), seeds, tails }
    }

    /// Its mean.
    pub fn mean(&self) -> f64 {
        self.plain(self.mean)
    }

    /// Where one more figure lies but for at most this share of them, as much on each side.
    pub fn bounds(&self, outside: f64) -> Bounds {
        let (low, high) = match self.tails {
            Some((low, high)) => (-low.at(outside / 2.0), high.at(outside / 2.0)),
            None => {
                let half = student(outside / 2.0, self.seeds - 1.0) * self.deviation * (1.0 + 1.0 / self.seeds).sqrt();
                (self.mean - half, self.mean + half)
            }
        };
        // No share lies below nothing.
        Bounds { low: self.plain(low).max(0.0), high: self.plain(high) }
    }

    /// Where the mean of all seeds there are lies but for this share.
    pub fn bounds_of_mean(&self, outside: f64) -> Bounds {
        let half = student(outside / 2.0, self.seeds - 1.0) * self.deviation / self.seeds.sqrt();
        Bounds { low: self.plain(self.mean - half), high: self.plain(self.mean + half) }
    }

    fn plain(&self, figure: f64) -> f64 {
        if self.tails.is_some() { figure.exp() } else { figure }
    }
}

impl Tail {
    /// The upper one.
    fn of(figures: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.collect();
        sorted.sort_unstable_by(|a, b| b.total_cmp(a));
        let figures = ((sorted.len() as f64 * TAIL) as usize).clamp(1, sorted.len() - 1);
        let from = sorted[figures];
        let excess = sorted[..figures].iter().map(|figure| figure - from).sum::<f64>() / figures as f64;
        Self { from, excess, figures: figures as f64 }
    }

    /// The value that at most this share of figures to come exceeds, if the tail of the logarithms goes down no slower
    /// than an exponential one; that the mean excess is known from so many figures alone is worked in.
    fn at(&self, share: f64) -> f64 {
        self.from + self.excess * self.figures * ((TAIL / share).powf(1.0 / self.figures) - 1.0)
    }
}

/// The value that Student's distribution exceeds with this probability, by the first terms of its expansion around the
/// normal one (Cornish and Fisher); for twenty degrees of freedom and more.
fn student(above: f64, degrees: f64) -> f64 {
    let z = normal(above);
    z + (z.powi(3) + z) / (4.0 * degrees) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * degrees.powi(2))
}

/// The value that the normal distribution exceeds with this probability, a half at most; by halving.
fn normal(above: f64) -> f64 {
    let (mut low, mut high) = (0.0, 8.0);
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        if 0.5 - from_middle(middle) > above { low = middle } else { high = middle }
    }
    low
}

/// How likely the normal distribution is between its middle and `z`, by Simpson's rule.
fn from_middle(z: f64) -> f64 {
    const STEPS: u32 = 200;
    let step = z / f64::from(STEPS);
    let weight = |place: u32| match place {
        0 | STEPS => 1.0,
        odd if odd % 2 == 1 => 4.0,
        _ => 2.0,
    };
    let density = |x: f64| (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt();
    (0..=STEPS).map(|place| weight(place) * density(f64::from(place) * step)).sum::<f64>() * step / 3.0
}

/// The share that each of so many cells may be outside, so that all of them hold but for [`ALARMS`] (Bonferroni).
pub fn each(cells: usize) -> f64 {
    ALARMS / cells.max(1) as f64
}

/// The bounds by the formulas of the rows, for a workload that is not rehearsed.
pub fn by_formula(row: &Row, outside: f64) -> Bounds {
    let half = row.around / ROW_WIDTH * normal(outside / 2.0);
    Bounds { low: row.ideal - half, high: row.ideal + half }
}

impl Rehearsed<'_> {
    /// Whether that is possible: no log decides, and it is not too long.
    pub fn is_possible(&self) -> Result<bool, String> {
        Ok(self.workload.replay.is_none() && self.played(FIRST_SEED, Partner::Origins)?.is_some())
    }

    /// Whether seed and times alone say what is asked: replies decide neither when robots ask nor when phases end.
    pub fn is_its_seed(&self) -> bool {
        let timed = |phase: &crate::workload::Phase| {
            let counts = phase.replies.is_some() || phase.fill_bytes.is_some() || phase.fill_caches.is_some();
            phase.length.is_some() && !counts && !phase.until_frozen
        };
        self.is_paced() && self.workload.phases.iter().all(timed)
    }

    /// The partner whose replies delay nothing. Robots that wait for their replies would never come to an end with nobody.
    pub fn nobody(&self) -> Partner {
        if self.is_paced() { Partner::Nobody } else { Partner::Origins }
    }

    fn is_paced(&self) -> bool {
        self.workload.robots.pace.rate_per_s().is_some()
    }

    /// The figures of one seed.
    pub fn once(&self, seed: u64, partner: Partner) -> Result<Vec<Row>, String> {
        self.played(seed, partner)?.ok_or_else(|| format!("seed {seed} asks more than {REQUESTS_MAX} times"))
    }

    fn played(&self, seed: u64, partner: Partner) -> Result<Option<Vec<Row>>, String> {
        // Purges are for caches alone.
        let (mode, purge) = match partner {
            Partner::Cache => (Mode::Reverse, "PURGE".to_owned()),
            Partner::Origins | Partner::Nobody => (Mode::NoProxy, String::new()),
        };
        let route = Route { mode, purge, ..self.wanted.route.clone() };
        let (settings, phases) = derive(self.workload, &Wanted { seed, route, ..self.wanted.clone() })?;
        let plan = |phase: &crate::schedule::Phase| PhasePlan { logged: phase.logged, ..PhasePlan::default() };
        let run = Run { phases: phases.iter().map(plan).collect(), ..Run::default() };
        let Some(intervals) = rehearse(&settings, phases, partner, REQUESTS_MAX) else { return Ok(None) };
        let ledger = Ledger { run, intervals, ..Ledger::default() };
        Ok(Some(rows(&ledger, self.workload, &settings)))
    }

    /// How each figure is spread over many seeds, by its name.
    pub fn spreads(&self, partner: Partner) -> Result<BTreeMap<String, Spread>, String> {
        let all = self.many(FIRST_SEED..FIRST_SEED + SEEDS, partner)?;
        let mut figures: BTreeMap<&str, (&str, Vec<f64>)> = BTreeMap::new();
        for row in all.iter().flatten() {
            figures.entry(&row.what).or_insert((row.unit, Vec::new())).1.push(row.measured);
        }
        // A figure that hardly a seed gives has no spread.
        let known = figures.into_iter().filter(|(_, (_, figures))| figures.len() as u64 > SEEDS / 2);
        Ok(known.map(|(what, (unit, figures))| (what.to_owned(), Spread::of(&figures, unit))).collect())
    }

    /// The figures of many seeds, played on all cores.
    pub fn many(&self, seeds: std::ops::Range<u64>, partner: Partner) -> Result<Vec<Vec<Row>>, String> {
        let threads = thread::available_parallelism().map_or(1, usize::from) as u64;
        let of = |first: u64| seeds.clone().filter(move |seed| seed % threads == first);
        thread::scope(|scope| {
            let played: Vec<_> = (0..threads)
                .map(|first| {
                    scope.spawn(move || of(first).map(|seed| self.once(seed, partner)).collect::<Result<Vec<_>, _>>())
                })
                .collect();
            let mut all = Vec::new();
            for thread in played {
                all.extend(thread.join().map_err(|_| "a rehearsal panicked".to_owned())??);
            }
            Ok(all)
        })
    }
}

#[cfg(test)]
mod tests;
