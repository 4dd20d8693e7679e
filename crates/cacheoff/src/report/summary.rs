//! One run in the figures of its reported phase.

use super::verdict::{Finding, Weight, findings, is_paced, rate_is_referees};
use crate::ledger::{Class, Interval, Ledger, Levels, Load};

/// A run with its reported phase added up.
#[derive(Debug)]
pub struct Summary<'a> {
    /// The run.
    pub ledger: &'a Ledger,
    /// Name of the reported phase.
    pub phase_name: String,
    /// The reported phase as one interval.
    pub phase: Interval,
    /// Means of the load over that phase; memory and descriptors are maxima.
    pub load: Option<Load>,
    /// Findings that a reader must know before using the figures.
    pub findings: Vec<Finding>,
}

impl<'a> Summary<'a> {
    /// Adds up the reported phase of a run.
    pub fn of(ledger: &'a Ledger) -> Self {
        let number = reported_phase(ledger);
        let phase = number.map_or_else(Interval::default, |number| ledger.phase(number));
        let plan = number.and_then(|number| ledger.run.phases.get(usize::from(number)));
        let phase_name = plan.map_or_else(|| "whole run".to_owned(), |plan| plan.name.clone());
        let load = mean_load(ledger.intervals.iter().filter(|interval| Some(interval.phase) == number));
        let findings = findings(ledger, &phase, load.as_ref());
        Self { ledger, phase_name, phase, load, findings }
    }

    /// Length of the reported phase in seconds, as far as it was measured.
    pub fn seconds(&self) -> f64 {
        self.phase.length_us as f64 / 1e6
    }

    /// Something per second of the reported phase.
    pub fn per_second(&self, count: f64) -> Option<f64> {
        (self.phase.length_us > 0).then(|| count / self.seconds())
    }

    /// Length of the whole run in seconds.
    pub fn run_seconds(&self) -> f64 {
        let last = self.ledger.intervals.last().map_or(0, |interval| interval.at_us + interval.length_us);
        self.ledger.end.at_us.max(last) as f64 / 1e6
    }

    /// Whether its rate says how fast the referee can ask.
    pub fn rate_is_referees(&self) -> bool {
        rate_is_referees(self.ledger, &self.phase, self.load.as_ref())
    }

    /// Whether robots had a rate to keep, instead of asking as fast as they were answered.
    pub fn is_paced(&self) -> bool {
        is_paced(self.ledger, &self.phase)
    }

    /// A level that was the same in every interval of the reported phase, and not zero. An interval at whose end robots had gone
    /// already is the last of a run, and says nothing of them.
    pub fn constant(&self, of: fn(&Levels) -> u64) -> Option<f64> {
        let of_phase = self.ledger.intervals.iter().filter(|interval| interval.phase == self.phase.phase);
        let mut levels = of_phase.map(|interval| &interval.levels).filter(|levels| levels.robots > 0).map(of);
        let first = levels.next().filter(|level| *level > 0)?;
        levels.all(|level| level == first).then_some(first as f64)
    }

    /// Whether noise of the machine alone is held against it: figures that do not depend on time stand.
    pub fn is_only_noisy(&self) -> bool {
        let mut spoiling = self.findings.iter().filter(|finding| finding.weight.spoils()).peekable();
        spoiling.peek().is_some() && spoiling.all(|finding| finding.noise)
    }

    /// Why another play may be valid where this one is not; nothing if this one is, or if the cache is at fault.
    pub fn repeatable(&self) -> Option<String> {
        let invalid = || self.findings.iter().filter(|finding| finding.weight == Weight::Invalid);
        let is_at_fault = self.findings.iter().any(|finding| finding.weight == Weight::Failed);
        let passes = !is_at_fault && invalid().count() > 0 && invalid().all(|finding| finding.passes);
        let texts: Vec<&str> = invalid().map(|finding| finding.text.as_str()).collect();
        passes.then(|| texts.join("; "))
    }

    /// Whether the figures count.
    pub fn counts(&self) -> bool {
        !self.findings.iter().any(|finding| finding.weight.spoils())
    }
}

/// The named phase, else the logged phase with the most replies per second.
fn reported_phase(ledger: &Ledger) -> Option<u16> {
    let named = ledger.run.phases.iter().position(|plan| plan.name == ledger.run.workload.report_phase);
    let measured = |number: u16| ledger.intervals.iter().any(|interval| interval.phase == number);
    if let Some(number) = named.map(|index| index as u16).filter(|number| measured(*number)) {
        return Some(number);
    }
    let mut numbers: Vec<u16> = ledger.intervals.iter().map(|interval| interval.phase).collect();
    numbers.dedup();
    let logged = |number: &u16| ledger.run.phases.get(usize::from(*number)).is_none_or(|plan| plan.logged);
    let candidates: Vec<u16> = match numbers.iter().any(logged) {
        true => numbers.into_iter().filter(logged).collect(),
        false => numbers,
    };
    candidates.into_iter().max_by(|a, b| rate(ledger, *a).total_cmp(&rate(ledger, *b)))
}

fn rate(ledger: &Ledger, phase: u16) -> f64 {
    let intervals = || ledger.intervals.iter().filter(|interval| interval.phase == phase);
    let replies: u64 = intervals().map(|interval| interval.class(Class::All).replies).sum();
    let length: u64 = intervals().map(|interval| interval.length_us).sum();
    replies as f64 / length.max(1) as f64
}

fn mean_load<'i>(intervals: impl Iterator<Item = &'i Interval>) -> Option<Load> {
    let mut sum = Load::default();
    let mut weight = 0.0_f32;
    for interval in intervals {
        let Some(load) = interval.load else { continue };
        // A part of the energy is no figure.
        let so_far = if weight > 0.0 { sum.energy_uj } else { Some(0) };
        sum.energy_uj = so_far.zip(load.energy_uj).map(|(sum, more)| sum + more);
        let length = interval.length_us as f32 / 1e6;
        weight += length;
        let add = |sum: &mut f32, value: f32| *sum += value * length;
        add(&mut sum.own_cpu, load.own_cpu);
        add(&mut sum.own_thread_cpu, load.own_thread_cpu);
        add(&mut sum.cache_cpu, load.cache_cpu);
        add(&mut sum.cache_helpers, load.cache_helpers);
        add(&mut sum.cache_kernel, load.cache_kernel);
        add(&mut sum.others_cpu, load.others_cpu);
        add(&mut sum.steal, load.steal);
        sum.cache_written += load.cache_written;
        sum.cache_read += load.cache_read;
        sum.cache_memory = sum.cache_memory.max(load.cache_memory);
        sum.cache_descriptors = sum.cache_descriptors.max(load.cache_descriptors);
        sum.cache_processes = sum.cache_processes.max(load.cache_processes);
        sum.cache_threads = sum.cache_threads.max(load.cache_threads);
        sum.own_descriptors = sum.own_descriptors.max(load.own_descriptors);
        sum.own_memory = sum.own_memory.max(load.own_memory);
    }
    if weight <= 0.0 {
        return None;
    }
    let means = [
        &mut sum.own_cpu,
        &mut sum.own_thread_cpu,
        &mut sum.cache_cpu,
        &mut sum.cache_helpers,
        &mut sum.cache_kernel,
        &mut sum.others_cpu,
        &mut sum.steal,
    ];
    means.into_iter().for_each(|mean| *mean /= weight);
    Some(sum)
}
