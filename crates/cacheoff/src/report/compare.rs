//! Runs side by side: by workload, then by entry, the rounds of an entry as median and spread.

use super::metric::{Better, Metric};
use super::summary::Summary;
use crate::chart::{Unit, three_digits};
use crate::ledger::{Interval, Ledger, Stage};
use crate::random::Stream;

/// All runs of one workload.
#[derive(Debug)]
pub struct Comparison<'a> {
    /// The workload's name.
    pub workload: String,
    /// Entries in the order of their first appearance.
    pub entries: Vec<Rounds<'a>>,
}

/// The runs of one entry with one workload.
#[derive(Debug)]
pub struct Rounds<'a> {
    /// The entry's label.
    pub label: String,
    /// Its runs in order.
    pub runs: Vec<Summary<'a>>,
}

/// Resamplings of the rounds from which an interval is taken.
const RESAMPLINGS: usize = 1_000;
/// Of the resamplings, this share lies within the interval.
const INTERVAL: f64 = 0.95;

/// A number over several rounds, with the interval in which its median lies when the rounds are drawn anew (bootstrap).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Median of the rounds that were used.
    pub median: f64,
    /// Low end of the interval.
    pub low: f64,
    /// High end of the interval.
    pub high: f64,
    /// How many they were.
    pub rounds: usize,
}

/// Groups ledgers by workload and label; the order is that of the ledgers.
pub fn compare(ledgers: &[Ledger]) -> Vec<Comparison<'_>> {
    let mut comparisons: Vec<Comparison<'_>> = Vec::new();
    for ledger in ledgers {
        let workload = title(ledger);
        let place = comparisons.iter().position(|comparison| comparison.workload == workload).unwrap_or_else(|| {
            comparisons.push(Comparison { workload, entries: Vec::new() });
            comparisons.len() - 1
        });
        comparisons[place].add(ledger);
    }
    comparisons
}

/// Runs at another peak or scale are another workload, and so is the load of a sequence that has no cache. Runs over HTTP/2 or TLS stand
/// apart from those over HTTP/1 in the clear: a ratio of two of them would be one of protocols.
fn title(ledger: &Ledger) -> String {
    let facts = &ledger.run.workload;
    let mut title = facts.name.clone();
    if let Some(peak) = facts.peak {
        title.push_str(&format!(", peak {}/s", crate::chart::grouped(peak)));
    }
    if facts.scale > 0.0 && facts.scale != 1.0 {
        title.push_str(&format!(", scale {}", crate::chart::three_digits(facts.scale)));
    }
    if ledger.run.is_http2() || ledger.run.tls.is_some() {
        title.push_str(&format!(", {}", ledger.run.protocol_in_words()));
    }
    if ledger.run.stage == Some(Stage::NoProxy) {
        title.push_str(", without a cache");
    }
    title
}

impl<'a> Comparison<'a> {
    fn add(&mut self, ledger: &'a Ledger) {
        let summary = Summary::of(ledger);
        match self.entries.iter_mut().find(|entry| entry.label == ledger.run.label) {
            Some(entry) => entry.runs.push(summary),
            None => self.entries.push(Rounds { label: ledger.run.label.clone(), runs: vec![summary] }),
        }
    }

    /// The ratio of an entry to the first one, of rounds of the same seed, so that slow drift of the machine cancels.
    pub fn ratio(&self, entry: &Rounds<'_>, metric: &Metric) -> Option<Spread> {
        let pairs = entry.paired(self.entries.first()?, metric);
        Spread::of(pairs.into_iter().map(|(own, other)| own / other).filter(|ratio| ratio.is_finite()))
    }

    /// How an entry stands to the first one, in words: the ratio, its interval, and whether that is a difference.
    pub fn standing(&self, entry: &Rounds<'_>, metric: &Metric) -> Option<String> {
        let (first, ratio) = (self.entries.first()?, self.ratio(entry, metric)?);
        let text = Unit::Ratio.text(ratio.median);
        if first.label == entry.label {
            return Some(text);
        }
        let bound = match (entry.is_least(metric), first.is_least(metric)) {
            (true, true) => return Some("not known: both are least rates".to_owned()),
            (true, false) => "≥ ",
            (false, true) => "≤ ",
            (false, false) => "",
        };
        let interval = format!("{} to {}", three_digits(ratio.low), three_digits(ratio.high));
        Some(match (ratio.rounds, entry.differs(first, metric)) {
            (..2, _) => format!("{bound}{text} (one round)"),
            (_, true) => format!("{bound}{text} ({interval})"),
            (_, false) => format!("{bound}{text} ({interval}), not distinguished"),
        })
    }

    /// The entries that are better than all that differ from them: the best one, and those whose difference to it lies
    /// within the interval. None where no two entries differ.
    pub fn leaders(&self, metric: &Metric) -> Vec<&str> {
        let ranked = |entry: &&Rounds<'_>| entry.counts() && !entry.is_least(metric) && entry.spread(metric).is_some();
        let entries: Vec<&Rounds<'_>> = self.entries.iter().filter(ranked).collect();
        let median = |entry: &&&Rounds<'_>| entry.spread(metric).map_or(f64::NAN, |spread| spread.median);
        let best = match metric.better {
            Better::More => entries.iter().max_by(|a, b| median(a).total_cmp(&median(b))),
            Better::Less => entries.iter().min_by(|a, b| median(a).total_cmp(&median(b))),
            Better::Neither => None,
        };
        let Some(best) = best else { return Vec::new() };
        let leaders: Vec<&str> =
            entries.iter().filter(|entry| !entry.differs(best, metric)).map(|entry| entry.label.as_str()).collect();
        if leaders.len() == entries.len() { Vec::new() } else { leaders }
    }
}

impl Comparison<'_> {
    /// A heading of numbers that add up over the rounds that are used.
    pub fn summed(&self, heading: &str) -> String {
        let rounds: Vec<usize> = self.entries.iter().map(|entry| entry.used().len()).collect();
        if rounds.iter().all(|count| *count < 2) {
            return heading.to_owned();
        }
        if rounds.windows(2).all(|pair| pair[0] == pair[1]) {
            return format!("{heading}, sum of the rounds");
        }
        let rounds: Vec<String> = rounds.iter().map(usize::to_string).collect();
        format!("{heading}, sum of {} rounds", rounds.join(" / "))
    }
}

impl<'a> Rounds<'a> {
    /// The rounds whose figures are used: those that count, else all.
    pub fn used(&self) -> Vec<&Summary<'a>> {
        let counting: Vec<_> = self.runs.iter().filter(|run| run.counts()).collect();
        if counting.is_empty() { self.runs.iter().collect() } else { counting }
    }

    /// A metric of this entry and of another one, by round, where both have it.
    fn paired(&self, other: &Rounds<'_>, metric: &Metric) -> Vec<(f64, f64)> {
        let others = other.used();
        let pair = |run: &Summary<'_>| {
            let other = others.iter().find(|other| other.ledger.run.round == run.ledger.run.round)?;
            Some((metric.shown(run)?, metric.shown(other)?))
        };
        self.used().into_iter().filter_map(pair).collect()
    }

    /// Whether two entries differ: of at least two rounds, the interval of the differences does not hold zero.
    pub fn differs(&self, other: &Rounds<'_>, metric: &Metric) -> bool {
        let pairs = self.paired(other, metric);
        let differences = Spread::of(pairs.into_iter().map(|(own, other)| own - other));
        differences.is_some_and(|found| found.rounds > 1 && (found.low > 0.0 || found.high < 0.0))
    }

    /// A metric over the rounds that are used.
    pub fn spread(&self, metric: &Metric) -> Option<Spread> {
        Spread::of(self.used().into_iter().filter_map(|run| metric.shown(run)))
    }

    /// The round that stands for the entry in figures: the one with the median rate.
    pub fn typical(&self) -> Option<&Summary<'a>> {
        let mut used = self.used();
        let rate = |run: &Summary<'_>| run.per_second(run.phase.replies() as f64).unwrap_or(0.0);
        used.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
        used.get(used.len().checked_sub(1)? / 2).copied()
    }

    /// A number of the reported phase, over all rounds that are used.
    pub fn total(&self, of: impl Fn(&Interval) -> u64) -> u64 {
        self.used().into_iter().map(|run| of(&run.phase)).sum()
    }

    /// Whether a metric is a rate that the referee bounded: the least that the entry can do.
    pub fn is_least(&self, metric: &Metric) -> bool {
        matches!(metric.key, "rps" | "bps") && self.used().iter().any(|run| run.rate_is_referees())
    }

    /// Whether a metric does not count: noise of the machine spoils what depends on time, any other finding everything.
    pub fn spoils(&self, metric: &Metric) -> bool {
        let is_only_noisy = self.runs.iter().all(|run| run.is_only_noisy());
        !self.counts() && (metric.is_spoilt_by_noise() || !is_only_noisy)
    }

    /// A number of this entry in words: its sign of a least rate, and the number of its unit.
    pub fn text(&self, metric: &Metric, value: f64) -> String {
        let sign = if self.is_least(metric) { "≥ " } else { "" };
        format!("{sign}{}", metric.unit.text(value))
    }

    /// Whether any round counts.
    pub fn counts(&self) -> bool {
        self.runs.iter().any(Summary::counts)
    }

    /// The word for the worst finding of all rounds; empty if there is none.
    pub fn worst(&self) -> &'static str {
        let weights = self.runs.iter().flat_map(|run| &run.findings).map(|finding| finding.weight);
        weights.min().map_or("", |weight| weight.as_str())
    }
}

impl Spread {
    /// Of some numbers, if there are any.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.collect();
        let median_of_all = median(&mut values.clone())?;
        // The same rounds always give the same interval.
        let mut stream = Stream::named(1, "bootstrap");
        let mut medians: Vec<f64> = match values.len() {
            1 => vec![median_of_all],
            count => (0..RESAMPLINGS)
                .filter_map(|_| {
                    let mut drawn: Vec<f64> = (0..count).map(|_| values[stream.below(count as u64) as usize]).collect();
                    median(&mut drawn)
                })
                .collect(),
        };
        medians.sort_by(f64::total_cmp);
        let at = |share: f64| medians[((medians.len() - 1) as f64 * share).round() as usize];
        let (low, high) = (at((1.0 - INTERVAL) / 2.0), at((1.0 + INTERVAL) / 2.0));
        Some(Self { median: median_of_all, low, high, rounds: values.len() })
    }
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let high = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { high } else { (values[middle - 1] + high) / 2.0 })
}
