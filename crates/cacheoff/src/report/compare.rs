//! Runs side by side: by workload, then by entry, the rounds of an entry as median and spread.

use super::metric::Metric;
use super::summary::Summary;
use super::verdict::is_noisy;
use crate::ledger::Ledger;

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

/// A number over several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Median of the rounds that were used.
    pub median: f64,
    /// Lowest of them.
    pub low: f64,
    /// Highest of them.
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

/// Runs at another peak or scale are another workload.
fn title(ledger: &Ledger) -> String {
    let facts = &ledger.run.workload;
    let mut title = facts.name.clone();
    if let Some(peak) = facts.peak {
        title.push_str(&format!(", peak {}/s", crate::chart::grouped(peak)));
    }
    if facts.scale > 0.0 && facts.scale != 1.0 {
        title.push_str(&format!(", scale {}", crate::chart::three_digits(facts.scale)));
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

    /// Median of the ratios of an entry to the first one, round by round, so that slow drift of the machine cancels.
    pub fn ratio(&self, entry: &Rounds<'_>, metric: &Metric) -> Option<f64> {
        let first = self.entries.first()?;
        let of_round = |run: &Summary<'_>| {
            let other = first.runs.iter().find(|other| other.ledger.run.round == run.ledger.run.round)?;
            Some(metric.of(run)? / metric.of(other)?).filter(|ratio| ratio.is_finite())
        };
        Spread::of(entry.used().into_iter().filter_map(of_round)).map(|spread| spread.median)
    }
}

impl<'a> Rounds<'a> {
    /// The rounds whose figures are used: those that count and were quiet where there are two of them, else those
    /// that count, else all.
    pub fn used(&self) -> Vec<&Summary<'a>> {
        let counting: Vec<_> = self.runs.iter().filter(|run| run.counts()).collect();
        let quiet: Vec<_> = counting.iter().copied().filter(|run| !is_noisy(run.load.as_ref())).collect();
        match (quiet.len(), counting.len()) {
            (2.., _) => quiet,
            (_, 1..) => counting,
            _ => self.runs.iter().collect(),
        }
    }

    /// A metric over the rounds that are used.
    pub fn spread(&self, metric: &Metric) -> Option<Spread> {
        Spread::of(self.used().into_iter().filter_map(|run| metric.of(run)))
    }

    /// The round that stands for the entry in figures: the one with the median rate.
    pub fn typical(&self) -> Option<&Summary<'a>> {
        let mut used = self.used();
        let rate = |run: &Summary<'_>| run.per_second(run.phase.replies() as f64).unwrap_or(0.0);
        used.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
        used.get(used.len().checked_sub(1)? / 2).copied()
    }

    /// Whether any round counts.
    pub fn counts(&self) -> bool {
        self.runs.iter().any(Summary::counts)
    }
}

impl Spread {
    /// Of some numbers, if there are any.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Self { median, low, high, rounds: sorted.len() })
    }
}
