//! A workload in less time: what shrinks, what does not, and what that changes.

use super::units::Unit;
use super::{Factor, WorkingSet, Workload};
use std::time::Duration;

/// No phase is scaled below this: intervals of a ledger last as long.
const PHASE_MIN: Duration = Duration::from_secs(1);

/// A workload whose phases were shortened.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaled {
    /// The workload to play.
    pub workload: Workload,
    /// The changes that the scale makes, in sentences; empty if nothing was scaled.
    pub notes: Vec<String>,
}

impl Workload {
    /// The same with phases of `scale` times their length, and a working set that is frozen after as much less time.
    pub fn scaled(&self, scale: f64) -> Scaled {
        let mut workload = self.clone();
        if scale == 1.0 {
            return Scaled { workload, notes: Vec::new() };
        }
        for phase in &mut workload.phases {
            phase.length = phase.length.map(|length| length.mul_f64(scale).max(PHASE_MIN.min(length)));
            phase.replies = phase.replies.map(|replies| ((replies as f64 * scale) as u64).max(1));
        }
        let set = &mut workload.interest.working_set;
        *set = match *set {
            WorkingSet::FreezeAt(time) => WorkingSet::FreezeAt(time.mul_f64(scale)),
            WorkingSet::CapPerRate(count) => WorkingSet::CapPerRate(count * scale),
            WorkingSet::Cap(count) => WorkingSet::Cap(((count as f64 * scale) as u64).max(1)),
            other => other,
        };
        let by_population = ramps_by_population(&mut workload);
        let notes = self.notes(scale, by_population);
        Scaled { workload, notes }
    }

    fn notes(&self, scale: f64, by_population: bool) -> Vec<String> {
        let mut notes = vec![format!("times of phases are {} of the standard", super::units::show_share(scale))];
        if by_population {
            let ramps = "load goes up and down by the number of robots, not by the rate of each: a rate lags by one gap \
                         between two requests, which is as long as a scaled ramp";
            notes.push(ramps.to_owned());
        }
        if let (WorkingSet::FreezeAt(_) | WorkingSet::CapPerRate(_) | WorkingSet::Cap(_), Some(life)) =
            (self.interest.working_set, self.object_life_s())
        {
            let (life, think) = (life * scale, self.servers.think.mean());
            let share = 100.0 * think / life.max(1e-9);
            notes.push(format!(
                "the working set is {} of the standard one; an object lives in it for about {}, of which the think time of {} is {share:.2} %: \
                 that share of the repeats may come while the first copy is still on its way",
                super::units::show_share(scale),
                Unit::Time.show(life.round()),
                Unit::Time.show(think),
            ));
        }
        if self.contents.iter().any(|content| content.life.cycle.is_some()) {
            notes.push("objects change as fast as in the standard, so fewer of them change during the run".to_owned());
        }
        notes
    }

    /// Seconds from the first request for an object to its leaving the working set, at peak.
    fn object_life_s(&self) -> Option<f64> {
        let new = 1.0 - self.interest.recurrence;
        let made = match self.interest.working_set {
            WorkingSet::FreezeAt(time) => self.peak_seconds(time.as_secs_f64()) * new,
            WorkingSet::CapPerRate(misses) => misses / self.cachable_share().max(1e-9),
            _ => return None,
        };
        (new > 0.0).then_some(made / new)
    }

    /// Share of the requests whose objects a store may keep.
    pub fn cachable_share(&self) -> f64 {
        self.real_shares().iter().zip(&self.contents).map(|(share, content)| share * content.cachable).sum()
    }

    /// Requests per request per second of peak, until so many seconds after the start.
    pub fn peak_seconds(&self, until_s: f64) -> f64 {
        let (mut at, mut sum) = (0.0, 0.0);
        for phase in &self.phases {
            let length = phase.length.map_or(0.0, |length| length.as_secs_f64());
            let part = ((until_s - at) / length.max(1e-9)).clamp(0.0, 1.0);
            let middle = |factor: Factor| factor.from + (factor.to - factor.from) * part / 2.0;
            if !phase.dark {
                sum += length * part * middle(phase.load) * middle(phase.populus);
            }
            at += length;
        }
        sum
    }
}

/// Lets the population follow what the load would do, if that is possible. Says whether it changed anything.
fn ramps_by_population(workload: &mut Workload) -> bool {
    let flat = Factor::flat(1.0);
    let changes = workload.phases.iter().any(|phase| phase.load != flat);
    let possible = workload.phases.iter().all(|phase| phase.load.from <= 1.0 && phase.load.to <= 1.0);
    if !changes || !possible || workload.robots.pace.rate_per_s().is_none() {
        return false;
    }
    for phase in &mut workload.phases {
        let (populus, load) = (phase.populus, phase.load);
        phase.populus = Factor { from: populus.from * load.from, to: populus.to * load.to };
        phase.load = flat;
    }
    true
}
