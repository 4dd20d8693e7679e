//! Phases at run time: which one it is, and what its factors are now. Phases whose goal is a time end at times that
//! are known beforehand; the others end when the run says so, for all workers at once.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// A phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// The goals that end it: the first of these that is reached.
    pub goals: Vec<Goal>,
    /// Whether the working set must be frozen besides.
    pub until_frozen: bool,
    /// Errors that end the run; below 1, their share of the replies.
    pub errors: Option<f64>,
    /// Bounds of the mean response time between which the load is kept.
    pub thermostat: Option<Thermostat>,
    /// Whether its figures are reported.
    pub logged: bool,
    /// Whether the cache has no power while it lasts; nobody asks then.
    pub dark: bool,
    /// Share of the robots that are alive.
    pub populus: Ramp,
    /// Multiplier of the rate.
    pub load: Ramp,
    /// Multiplier of the recurrence.
    pub recurrence: Ramp,
    /// Multiplier of the share of requests that are not basic.
    pub special: Ramp,
    /// Multiplier of the probability of the hot set.
    pub hot: Ramp,
}

impl Phase {
    /// A phase that lasts so long, with all robots at their full rate.
    pub fn flat(name: &str, goal: Goal) -> Self {
        let one = Ramp::flat(1.0);
        Self {
            name: name.to_owned(),
            goals: vec![goal],
            until_frozen: false,
            errors: None,
            thermostat: None,
            logged: true,
            dark: false,
            populus: one,
            load: one,
            recurrence: one,
            special: one,
            hot: one,
        }
    }

    /// Its length, if it is known beforehand.
    pub fn length(&self) -> Option<Duration> {
        match self.goals[..] {
            [Goal::Time(length)] if !self.until_frozen => Some(length),
            _ => None,
        }
    }
}

/// The load follows the response time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thermostat {
    /// Below this mean the load rises.
    pub low: Duration,
    /// Above this one it falls.
    pub high: Duration,
    /// By which share of itself.
    pub step: f64,
}

/// A goal that ends a phase.
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
    /// Multiplier of the probability of the hot set.
    pub hot: f64,
}

/// The phases of a run, shared by all its threads.
#[derive(Debug)]
pub struct Schedule {
    phases: Vec<Phase>,
    /// Nanoseconds at which each phase ends; `OPEN` while nobody knows.
    ends: Vec<AtomicU64>,
    /// Replies, and bytes of cachable misses, of each phase.
    counts: Vec<[AtomicU64; 2]>,
    /// The counts of all processes together, as the coordinator of a run on several machines told them.
    told: Vec<[AtomicU64; 2]>,
    /// Workers, and those of them whose working set is frozen.
    workers: usize,
    frozen: AtomicUsize,
    /// The factor that thermostats have brought the load to, as bits.
    heat: AtomicU64,
}

const OPEN: u64 = u64::MAX;
/// A thermostat changes the load by these factors at most.
const HEAT: (f64, f64) = (0.01, 4.0);
/// A share of errors says something of so many replies and more.
const REPLIES_MIN: u64 = 1_000;

impl Schedule {
    /// Of these phases, played by so many workers.
    pub fn new(phases: Vec<Phase>, workers: u16) -> Self {
        let ends = phases.iter().map(|_| AtomicU64::new(OPEN)).collect();
        let zeros = || phases.iter().map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect();
        let (counts, told) = (zeros(), zeros());
        let frozen = AtomicUsize::new(0);
        let heat = AtomicU64::new(1f64.to_bits());
        let schedule = Self { phases, ends, counts, told, workers: usize::from(workers), frozen, heat };
        schedule.fix_from(0);
        schedule
    }

    /// Fixes the ends of the phases from this one on, as far as their goals are times.
    fn fix_from(&self, first: usize) {
        let mut at = self.begin(first);
        for (phase, end) in self.phases.iter().zip(&self.ends).skip(first) {
            let Some(length) = phase.length() else { return };
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

    /// The cache is without power at this time.
    pub fn is_dark(&self, now: Duration) -> bool {
        self.phase_at(now).is_some_and(|phase| self.phases[phase].dark)
    }

    /// The factors at a time.
    pub fn factors(&self, now: Duration) -> Factors {
        let number = self.phase_at(now).unwrap_or(self.phases.len() - 1);
        let phase = &self.phases[number];
        let progress = phase.goals.iter().map(|goal| self.progress(number, *goal, now)).fold(0.0, f64::max);
        Factors {
            populus: if phase.dark { 0.0 } else { phase.populus.at(progress) },
            load: phase.load.at(progress) * if phase.thermostat.is_some() { self.heat() } else { 1.0 },
            recurrence: phase.recurrence.at(progress),
            special: phase.special.at(progress),
            hot: phase.hot.at(progress),
        }
    }

    /// How far a goal is reached; 1 and more is all of it.
    fn progress(&self, phase: usize, goal: Goal, now: Duration) -> f64 {
        let count = |at: usize| self.counts[phase][at].load(Relaxed).max(self.told[phase][at].load(Relaxed));
        let counted = |at: usize, goal: u64| count(at) as f64 / goal.max(1) as f64;
        match goal {
            Goal::Time(length) => now.saturating_sub(self.begin(phase)).as_secs_f64() / length.as_secs_f64().max(1e-9),
            Goal::Replies(goal) => counted(0, goal),
            Goal::Fill(goal) => counted(1, goal),
        }
    }

    /// A worker's working set is frozen.
    pub fn froze(&self) {
        self.frozen.fetch_add(1, Relaxed);
    }

    /// The highest load of any phase.
    pub fn load_max(&self) -> f64 {
        let highest = |phase: &Phase| phase.load.highest() * if phase.thermostat.is_some() { HEAT.1 } else { 1.0 };
        self.phases.iter().map(highest).fold(0.0, f64::max)
    }

    fn heat(&self) -> f64 {
        f64::from_bits(self.heat.load(Relaxed))
    }

    /// The mean response time of a second of a phase is this: its thermostat changes the load. One thread calls it.
    pub fn feel(&self, phase: usize, response: Duration) {
        let Some(thermostat) = self.phases.get(phase).and_then(|phase| phase.thermostat) else { return };
        let change = match response {
            slow if slow > thermostat.high => 1.0 - thermostat.step,
            fast if fast < thermostat.low => 1.0 + thermostat.step,
            _ => return,
        };
        self.heat.store((self.heat() * change).clamp(HEAT.0, HEAT.1).to_bits(), Relaxed);
    }

    /// Why the run has to end, if a phase with so many errors among so many replies ends it.
    pub fn broken(&self, phase: usize, errors: u64, replies: u64) -> Option<String> {
        let phase = self.phases.get(phase)?;
        let most = phase.errors?;
        let share = errors as f64 / (errors + replies).max(1) as f64;
        let reached =
            if most >= 1.0 { errors as f64 >= most } else { errors + replies >= REPLIES_MIN && share >= most };
        let limit = if most >= 1.0 { format!("{most}") } else { format!("{} %", 100.0 * most) };
        let (name, percent) = (&phase.name, 100.0 * share);
        reached.then(|| format!("{errors} errors ({percent:.1} %) in phase {name}, which ends the run at {limit}"))
    }

    /// Counts towards the goal of the phase that it is at this time. Each phase has counts of its own, so that none begins with
    /// what the one before had.
    pub fn count(&self, now: Duration, replies: u64, fill_bytes: u64) {
        if let Some(counts) = self.phase_at(now).map(|phase| &self.counts[phase]) {
            counts[0].fetch_add(replies, Relaxed);
            counts[1].fetch_add(fill_bytes, Relaxed);
        }
    }

    /// Ends the current phase if its goals, which are not a time alone, are reached. One thread calls it.
    pub fn advance(&self, now: Duration) {
        self.advance_by(now, now);
    }

    /// Like [`Self::advance`], but it ends at a later time, before which others hear of it.
    pub fn advance_by(&self, now: Duration, end: Duration) {
        let Some(number) = self.phase_at(now) else { return };
        let phase = &self.phases[number];
        if phase.length().is_some() || self.end(number).is_some() {
            return;
        }
        let reached = phase.goals.is_empty() || phase.goals.iter().any(|goal| self.progress(number, *goal, now) >= 1.0);
        let reached = reached && (!phase.until_frozen || self.frozen.load(Relaxed) >= self.workers);
        if reached {
            self.close(number, end);
        }
    }

    /// The counts of this process in a phase, and its workers whose working set is frozen.
    pub fn counted(&self, phase: usize) -> ([u64; 2], usize) {
        let counts = self.counts.get(phase).map(|counts| counts.each_ref().map(|count| count.load(Relaxed)));
        (counts.unwrap_or_default(), self.frozen.load(Relaxed))
    }

    /// The counts of all processes together in a phase, and their frozen workers.
    pub fn tell(&self, phase: usize, counts: [u64; 2], frozen: Option<usize>) {
        let told = self.told.get(phase).into_iter().flatten();
        told.zip(counts).for_each(|(told, count)| told.store(count, Relaxed));
        if let Some(frozen) = frozen {
            self.frozen.store(frozen, Relaxed);
        }
    }

    /// The factor that thermostats have brought the load to.
    pub fn warmth(&self) -> f64 {
        self.heat()
    }

    /// Another process says how warm it is.
    pub fn warm(&self, heat: f64) {
        if heat.is_finite() {
            self.heat.store(heat.clamp(HEAT.0, HEAT.1).to_bits(), Relaxed);
        }
    }

    /// Ends of the phases so far, in nanoseconds; those that nobody knows are left out from the first one on.
    pub fn ends(&self) -> Vec<u64> {
        self.ends.iter().map(|end| end.load(Relaxed)).take_while(|end| *end != OPEN).collect()
    }

    /// Another process says when phases end. Ends that are known already stay.
    pub fn learn_ends(&self, ends: &[u64]) {
        for (phase, end) in ends.iter().enumerate().take(self.ends.len()) {
            if self.ends[phase].load(Relaxed) == OPEN {
                self.close(phase, Duration::from_nanos(*end));
            }
        }
    }

    fn close(&self, phase: usize, now: Duration) {
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
        Phase { load, ..Phase::flat("p", goal) }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn factors_go_linearly_through_phases() {
        let ramp = phase(Goal::Time(10 * SECOND), Ramp { from: 0.1, to: 1.0 });
        let schedule = Schedule::new(vec![ramp, phase(Goal::Time(10 * SECOND), Ramp::flat(1.0))], 1);
        assert!((schedule.factors(5 * SECOND).load - 0.55).abs() < 1e-9);
        assert_eq!(schedule.phase_at(10 * SECOND), Some(1));
        assert_eq!(schedule.phase_at(20 * SECOND), None);
    }

    #[test]
    fn a_phase_with_another_goal_ends_when_it_is_reached_and_those_behind_it_follow() {
        let flat = Ramp::flat(1.0);
        let schedule = Schedule::new(vec![phase(Goal::Replies(3), flat), phase(Goal::Time(SECOND), flat)], 1);
        schedule.count(SECOND, 2, 0);
        schedule.advance(5 * SECOND);
        assert_eq!(schedule.phase_at(9 * SECOND), Some(0));
        schedule.count(5 * SECOND, 1, 0);
        schedule.advance(6 * SECOND);
        assert_eq!(schedule.end(1), Some(7 * SECOND));
    }

    #[test]
    fn a_phase_ends_by_the_first_of_its_goals_but_not_before_the_working_set_is_frozen() {
        let goals = vec![Goal::Time(10 * SECOND), Goal::Fill(100)];
        let phase = Phase { goals, until_frozen: true, ..Phase::flat("fill", Goal::Replies(1)) };
        let schedule = Schedule::new(vec![phase], 2);
        schedule.count(SECOND / 2, 1, 200);
        schedule.froze();
        schedule.advance(SECOND);
        assert_eq!(schedule.phase_at(SECOND), Some(0));
        schedule.froze();
        schedule.advance(2 * SECOND);
        assert_eq!(schedule.end(0), Some(2 * SECOND));
    }

    #[test]
    fn a_thermostat_raises_and_lowers_the_load_of_its_phase_within_limits() {
        let thermostat = Thermostat { low: SECOND / 2, high: SECOND, step: 0.1 };
        let warm = Phase { thermostat: Some(thermostat), ..phase(Goal::Time(9 * SECOND), Ramp::flat(0.5)) };
        let schedule = Schedule::new(vec![warm, phase(Goal::Time(9 * SECOND), Ramp::flat(0.5))], 1);
        assert_eq!(schedule.load_max(), 2.0);
        let load = || schedule.factors(SECOND).load;
        for (response, expected) in [(SECOND / 4, 0.55), (SECOND * 3 / 4, 0.55), (2 * SECOND, 0.495)] {
            schedule.feel(0, response);
            assert!((load() - expected).abs() < 1e-9, "{response:?}: {}", load());
        }
        (0..100).for_each(|_| schedule.feel(0, Duration::ZERO));
        assert_eq!((load(), schedule.factors(10 * SECOND).load), (2.0, 0.5));
        schedule.feel(1, 2 * SECOND);
        assert_eq!(load(), 2.0, "a phase without a thermostat feels nothing");
    }

    #[test]
    fn errors_end_the_run_by_their_number_or_by_their_share_of_enough_replies() {
        let with = |errors| {
            let phase = Phase { errors, ..phase(Goal::Time(SECOND), Ramp::flat(1.0)) };
            Schedule::new(vec![phase], 1)
        };
        assert_eq!(with(None).broken(0, 1_000, 0), None);
        assert_eq!(with(Some(3.0)).broken(0, 2, 0), None);
        assert!(with(Some(3.0)).broken(0, 3, 0).unwrap().contains("3 errors"));
        assert_eq!((with(Some(0.1)).broken(0, 500, 499), with(Some(0.1)).broken(0, 99, 901)), (None, None));
        assert!(with(Some(0.1)).broken(0, 100, 900).unwrap().contains("ends the run at 10 %"));
    }

    #[test]
    fn processes_that_count_for_one_goal_end_a_phase_at_the_same_time() {
        let phases = || vec![phase(Goal::Replies(10), Ramp::flat(1.0)), phase(Goal::Time(SECOND), Ramp::flat(1.0))];
        let (one, other, all) = (Schedule::new(phases(), 2), Schedule::new(phases(), 2), Schedule::new(phases(), 2));
        one.count(SECOND, 6, 0);
        other.count(SECOND, 4, 0);
        let sum = one.counted(0).0[0] + other.counted(0).0[0];
        all.tell(0, [sum, 0], Some(0));
        all.advance_by(5 * SECOND, 6 * SECOND);
        all.advance_by(5 * SECOND + SECOND / 2, 9 * SECOND);
        assert_eq!((all.phase_at(5 * SECOND), all.end(0), all.end(1)), (Some(0), Some(6 * SECOND), Some(7 * SECOND)));
        for process in [&one, &other] {
            process.advance(5 * SECOND);
            assert_eq!(process.end(0), None, "its own count is not enough");
            process.learn_ends(&all.ends());
            process.learn_ends(&[1, 2, 3, 4]);
            assert_eq!(process.ends(), all.ends());
        }
    }

    /// The end is told a quarter of a second ahead; replies until then are still those of the phase that ends.
    #[test]
    fn a_phase_with_a_goal_by_count_begins_with_no_count_of_another() {
        let flat = Ramp::flat(1.0);
        let phases = vec![phase(Goal::Time(SECOND), flat), phase(Goal::Replies(10), flat), phase(Goal::Fill(9), flat)];
        let schedule = Schedule::new(phases, 1);
        schedule.count(SECOND / 2, 100, 100);
        schedule.advance(2 * SECOND);
        assert_eq!(schedule.end(1), None, "the replies are those of the phase before");
        schedule.count(2 * SECOND, 10, 0);
        schedule.advance_by(2 * SECOND, 3 * SECOND);
        assert_eq!(schedule.end(1), Some(3 * SECOND));
        schedule.count(5 * SECOND / 2, 1, 100);
        schedule.advance(4 * SECOND);
        assert_eq!((schedule.counted(1).0, schedule.counted(2).0, schedule.end(2)), ([11, 100], [0, 0], None));
        schedule.count(9 * SECOND, 1, 9);
        schedule.advance(9 * SECOND);
        schedule.count(10 * SECOND, 1, 1);
        assert_eq!((schedule.counted(2).0, schedule.counted(3).0), ([1, 9], [0, 0]), "nothing counts after the end");
    }

    #[test]
    fn a_run_can_be_stopped_at_any_time() {
        let schedule = Schedule::new(vec![phase(Goal::Time(9 * SECOND), Ramp::flat(1.0)); 3], 1);
        schedule.stop(4 * SECOND);
        assert_eq!(schedule.phase_at(4 * SECOND), None);
        assert_eq!(schedule.end(0), Some(4 * SECOND));
    }
}
