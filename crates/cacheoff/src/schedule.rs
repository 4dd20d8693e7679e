//! Phases at run time: which one it is, and what its factors are now. Phases whose goal is a time end at times that
//! are known beforehand; the others end when the run says so, for all workers at once.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// What ends it.
    pub goal: Goal,
    /// Whether its figures are reported.
    pub logged: bool,
    /// Share of the robots that are alive.
    pub populus: Ramp,
    /// Multiplier of the rate.
    pub load: Ramp,
    /// Multiplier of the recurrence.
    pub recurrence: Ramp,
    /// Multiplier of the share of requests that are not basic.
    pub special: Ramp,
}

/// What ends a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// Time.
    Time(Duration),
    /// Replies.
    Replies(u64),
    /// Bytes of cachable misses.
    Fill(u64),
}

/// A factor that goes from one value to another over a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ramp {
    /// At the beginning.
    pub from: f64,
    /// At the end.
    pub to: f64,
}

impl Ramp {
    /// Always this.
    pub const fn flat(value: f64) -> Self {
        Self { from: value, to: value }
    }

    fn at(&self, progress: f64) -> f64 {
        self.from + (self.to - self.from) * progress.clamp(0.0, 1.0)
    }

    fn highest(&self) -> f64 {
        self.from.max(self.to)
    }
}

/// Factors at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    /// Share of the robots that are alive.
    pub populus: f64,
    /// Multiplier of the rate.
    pub load: f64,
    /// Multiplier of the recurrence.
    pub recurrence: f64,
    /// Multiplier of the share of requests that are not basic.
    pub special: f64,
}

/// The phases of a run, shared by all its threads.
#[derive(Debug)]
pub struct Schedule {
    phases: Vec<Phase>,
    /// Nanoseconds at which each phase ends; `OPEN` while nobody knows.
    ends: Vec<AtomicU64>,
    /// Replies, and bytes of cachable misses, since the current phase began.
    counts: [AtomicU64; 2],
}

const OPEN: u64 = u64::MAX;

impl Schedule {
    /// Of these phases.
    pub fn new(phases: Vec<Phase>) -> Self {
        let ends = phases.iter().map(|_| AtomicU64::new(OPEN)).collect();
        let schedule = Self { phases, ends, counts: [AtomicU64::new(0), AtomicU64::new(0)] };
        schedule.fix_from(0);
        schedule
    }

    /// Fixes the ends of the phases from this one on, as far as their goals are times.
    fn fix_from(&self, first: usize) {
        let mut at = self.begin(first);
        for (phase, end) in self.phases.iter().zip(&self.ends).skip(first) {
            let Goal::Time(length) = phase.goal else { return };
            at += length;
            end.store(at.as_nanos() as u64, Relaxed);
        }
    }

    /// The phases.
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }

    /// When a phase begins, which the end of the one before decides.
    pub fn begin(&self, phase: usize) -> Duration {
        match phase.checked_sub(1) {
            None => Duration::ZERO,
            Some(before) => self.end(before).unwrap_or(Duration::MAX),
        }
    }

    /// When a phase ends, if that is known.
    pub fn end(&self, phase: usize) -> Option<Duration> {
        let end = self.ends[phase].load(Relaxed);
        (end != OPEN).then(|| Duration::from_nanos(end))
    }

    /// Which phase it is at a time; `None` after the last.
    pub fn phase_at(&self, now: Duration) -> Option<usize> {
        (0..self.phases.len()).find(|phase| self.end(*phase).is_none_or(|end| now < end))
    }

    /// The factors at a time.
    pub fn factors(&self, now: Duration) -> Factors {
        let number = self.phase_at(now).unwrap_or(self.phases.len() - 1);
        let phase = &self.phases[number];
        let progress = match phase.goal {
            Goal::Time(length) => now.saturating_sub(self.begin(number)).as_secs_f64() / length.as_secs_f64().max(1e-9),
            Goal::Replies(goal) => self.counts[0].load(Relaxed) as f64 / goal.max(1) as f64,
            Goal::Fill(goal) => self.counts[1].load(Relaxed) as f64 / goal.max(1) as f64,
        };
        Factors {
            populus: phase.populus.at(progress),
            load: phase.load.at(progress),
            recurrence: phase.recurrence.at(progress),
            special: phase.special.at(progress),
        }
    }

    /// The highest load of any phase.
    pub fn load_max(&self) -> f64 {
        self.phases.iter().map(|phase| phase.load.highest()).fold(0.0, f64::max)
    }

    /// Counts towards the goal of the current phase.
    pub fn count(&self, replies: u64, fill_bytes: u64) {
        self.counts[0].fetch_add(replies, Relaxed);
        self.counts[1].fetch_add(fill_bytes, Relaxed);
    }

    /// Ends the current phase if its goal, which is not a time, is reached. One thread calls it.
    pub fn advance(&self, now: Duration) {
        let Some(number) = self.phase_at(now) else { return };
        let reached = match self.phases[number].goal {
            Goal::Time(_) => return,
            Goal::Replies(goal) => self.counts[0].load(Relaxed) >= goal,
            Goal::Fill(goal) => self.counts[1].load(Relaxed) >= goal,
        };
        if reached {
            self.close(number, now);
        }
    }

    fn close(&self, phase: usize, now: Duration) {
        self.counts.iter().for_each(|count| count.store(0, Relaxed));
        self.ends[phase].store(now.as_nanos() as u64, Relaxed);
        self.fix_from(phase + 1);
    }

    /// Ends all phases now.
    pub fn stop(&self, now: Duration) {
        let now = now.as_nanos() as u64;
        for end in &self.ends {
            end.fetch_min(now, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(goal: Goal, load: Ramp) -> Phase {
        let one = Ramp::flat(1.0);
        Phase { name: "p".into(), goal, logged: true, populus: one, load, recurrence: one, special: one }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn factors_go_linearly_through_phases() {
        let ramp = phase(Goal::Time(10 * SECOND), Ramp { from: 0.1, to: 1.0 });
        let schedule = Schedule::new(vec![ramp, phase(Goal::Time(10 * SECOND), Ramp::flat(1.0))]);
        assert!((schedule.factors(5 * SECOND).load - 0.55).abs() < 1e-9);
        assert_eq!(schedule.phase_at(10 * SECOND), Some(1));
        assert_eq!(schedule.phase_at(20 * SECOND), None);
    }

    #[test]
    fn a_phase_with_another_goal_ends_when_it_is_reached_and_those_behind_it_follow() {
        let flat = Ramp::flat(1.0);
        let schedule = Schedule::new(vec![phase(Goal::Replies(3), flat), phase(Goal::Time(SECOND), flat)]);
        schedule.count(2, 0);
        schedule.advance(5 * SECOND);
        assert_eq!(schedule.phase_at(9 * SECOND), Some(0));
        schedule.count(1, 0);
        schedule.advance(6 * SECOND);
        assert_eq!(schedule.end(1), Some(7 * SECOND));
    }

    #[test]
    fn a_run_can_be_stopped_at_any_time() {
        let schedule = Schedule::new(vec![phase(Goal::Time(9 * SECOND), Ramp::flat(1.0)); 3]);
        schedule.stop(4 * SECOND);
        assert_eq!(schedule.phase_at(4 * SECOND), None);
        assert_eq!(schedule.end(0), Some(4 * SECOND));
    }
}
