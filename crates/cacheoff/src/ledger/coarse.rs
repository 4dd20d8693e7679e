//! The intervals of long runs. A run of hours has more seconds than any chart has points, and most of a ledger is their
//! histograms. Where a plan has more than [`INTERVALS_MAX`] seconds, its intervals are longer, their times are kept to one
//! part in 32, sizes of bodies are left out of them, and each phase gets a total with everything as exact as it was counted.

use super::{Interval, PhasePlan, Record};

/// Intervals of a run, as far as its length is planned: one for each second of 16 minutes.
const INTERVALS_MAX: u64 = 1_000;
/// Intervals of a minute, which have more replies and so more buckets: one for each minute of ten hours.
const MINUTES_MAX: u64 = 600;
/// Lengths of intervals in seconds, each a part of the last, so that they begin at whole minutes.
const STEPS: [u64; 9] = [1, 2, 5, 10, 15, 20, 30, 60, 120];

/// How many seconds an interval of a ledger has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    step_s: u64,
}

impl Grid {
    /// That of a run with these phases. Phases whose length nobody knows beforehand do not count.
    pub fn of(phases: &[PhasePlan]) -> Self {
        let planned_us = phases.iter().filter_map(|phase| phase.length_us).fold(0, u64::saturating_add);
        let most = |step: u64| if step < 60 { INTERVALS_MAX } else { MINUTES_MAX };
        let fits = |step: &u64| planned_us / 1_000_000 / step <= most(*step);
        Self { step_s: STEPS.into_iter().find(fits).unwrap_or(STEPS[STEPS.len() - 1]) }
    }

    /// The number of the interval in which this time lies, in microseconds since the run began.
    pub fn place(self, at_us: u64) -> u64 {
        at_us / 1_000_000 / self.step_s
    }

    /// Every second has an interval of its own, with all that was counted.
    pub fn is_fine(self) -> bool {
        self.step_s == 1
    }
}

/// Makes records of a ledger out of the seconds of a run.
#[derive(Debug)]
pub struct Coarse {
    grid: Grid,
    /// The interval that later seconds may belong to.
    open: Option<Interval>,
    /// The phase, up to the open interval.
    total: Option<Interval>,
}

impl Coarse {
    /// Of a run with these phases.
    pub fn new(phases: &[PhasePlan]) -> Self {
        Self { grid: Grid::of(phases), open: None, total: None }
    }

    /// A second begins that belongs to this phase: the records of what is over with it.
    pub fn leave(&mut self, phase: u16, at_us: u64) -> Vec<Record> {
        let is_over = |open: &Interval| {
            open.phase != phase || self.grid.is_fine() || self.grid.place(open.at_us) != self.grid.place(at_us)
        };
        let mut over = Vec::new();
        if let Some(mut open) = self.open.take_if(|open| is_over(open)) {
            match &mut self.total {
                Some(total) => total.follow(&open),
                None => self.total = Some(open.clone()),
            }
            open.roughen();
            over.push(Record::Interval(Box::new(open)));
        }
        over.extend(self.total.take_if(|total| total.phase != phase).map(|total| Record::Total(Box::new(total))));
        over
    }

    /// Takes in a second; gives it back where it stays as it is.
    pub fn enter(&mut self, second: Interval) -> Option<Record> {
        if self.grid.is_fine() {
            return Some(Record::Interval(Box::new(second)));
        }
        match &mut self.open {
            Some(open) => open.follow(&second),
            None => self.open = Some(second),
        }
        None
    }

    /// Nothing follows: the records of what is left.
    pub fn finish(&mut self) -> Vec<Record> {
        self.leave(u16::MAX, u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Class, Kind, Ledger, Load, Recorder, Reply, Run, Served, Writer};
    use super::*;
    use crate::random::Stream;
    use std::time::Duration;

    fn plan(seconds: u64) -> PhasePlan {
        PhasePlan { length_us: Some(seconds * 1_000_000), ..PhasePlan::default() }
    }

    #[test]
    fn a_plan_of_hours_has_longer_intervals_and_a_short_one_has_all_seconds() {
        let step = |seconds: &[u64]| Grid::of(&seconds.iter().map(|seconds| plan(*seconds)).collect::<Vec<_>>()).step_s;
        assert_eq!([step(&[]), step(&[600, 400]), step(&[600, 700])], [1, 1, 2]);
        assert_eq!([step(&[36_000]), step(&[50_400]), step(&[500_000])], [60, 120, 120]);
        assert_eq!(Grid::of(&[PhasePlan::default()]).step_s, 1, "nobody knows how long it lasts");
    }

    /// The replies of a second, half of them hits, with times and sizes over three decades.
    fn second(recorder: &mut Recorder, rng: &mut Stream, replies: u32, phase: u16, at_s: u64) -> Interval {
        for _ in 0..replies {
            let is_hit = rng.unit() < 0.5;
            let response = Duration::from_micros((-rng.unit().max(1e-9).ln() * 60_000.0) as u64 + 100);
            recorder.sent(is_hit, false, Some(response / 1_000));
            recorder.thought(response * 2);
            recorder.reply(&Reply {
                kind: Kind::Basic,
                content: (rng.unit() * 4.0) as u8,
                status: 200,
                cachable: is_hit || rng.unit() < 0.6,
                offered: is_hit,
                served: if is_hit { Served::Hit } else { Served::Miss },
                aborted: false,
                head_bytes: 300,
                body_bytes: (-rng.unit().max(1e-9).ln() * 12_000.0) as u64,
                response,
                service: response,
                across: Duration::ZERO,
                behind: false,
                first_byte: response / 2,
                wait: Duration::ZERO,
                missing: None,
                beside: None,
            });
        }
        let mut interval = recorder.take(phase, Duration::from_secs(at_s), Duration::from_secs(1));
        interval.load = Some(Load { own_cpu: (at_s % 2) as f32, cache_written: 7, ..Load::default() });
        interval
    }

    /// The ledger of a run with phases of so many seconds, of each of which a part is played, and the sum of the seconds.
    fn played(phases: &[u64], part: u64, replies: u32) -> (Vec<u8>, Vec<Interval>) {
        let run = Run { phases: phases.iter().map(|seconds| plan(*seconds)).collect(), ..Run::default() };
        let mut writer = Writer::begin(Vec::new(), &run).unwrap();
        let (mut coarse, mut recorder, mut rng) = (Coarse::new(&run.phases), Recorder::new(), Stream::new(7, 0));
        let (mut at_s, mut sums) = (0, Vec::new());
        for (phase, seconds) in phases.iter().enumerate() {
            let mut sum = Interval { phase: phase as u16, at_us: at_s * 1_000_000, ..Interval::default() };
            for _ in 0..seconds / part {
                let second = second(&mut recorder, &mut rng, replies, phase as u16, at_s);
                sum.follow(&second);
                let over = coarse.leave(second.phase, second.at_us);
                over.into_iter().chain(coarse.enter(second)).for_each(|record| writer.append(&record).unwrap());
                at_s += 1;
            }
            sums.push(sum);
        }
        coarse.finish().iter().for_each(|record| writer.append(record).unwrap());
        (writer.into_inner(), sums)
    }

    #[test]
    fn a_phase_is_as_exact_as_its_seconds_and_its_intervals_are_within_a_thirty_second_part() {
        let (bytes, sums) = played(&[1_500, 3_000], 1, 3);
        let ledger = Ledger::read(&bytes[..]).unwrap();
        assert_eq!((ledger.intervals.len(), ledger.totals.len()), (900, 2));
        for (number, sum) in sums.iter().enumerate() {
            let phase = ledger.phase(number as u16);
            assert_eq!(Interval { load: sum.load, ..phase.clone() }, *sum);
            let load = phase.load.unwrap();
            assert!(
                (load.own_cpu - 0.5).abs() < 0.01 && load.cache_written == 7 * sum.length_us / 1_000_000,
                "{load:?}"
            );
            let mut intervals = Interval { phase: number as u16, ..Interval::default() };
            let of_phase = ledger.intervals.iter().filter(|interval| usize::from(interval.phase) == number);
            of_phase.for_each(|interval| intervals.follow(interval));
            let (exact, rough) = (&sum.class(Class::Hit).response, &intervals.class(Class::Hit).response);
            assert_eq!((exact.count(), exact.sum(), exact.max()), (rough.count(), rough.sum(), rough.max()));
            for part in [0.1, 0.5, 0.99] {
                let (exact, rough) = (exact.quantile(part).unwrap(), rough.quantile(part).unwrap());
                assert!(rough >= exact && rough - exact <= exact / 32 + 1, "{rough} instead of {exact}");
            }
        }
    }

    /// A twelfth of each phase is played: intervals cost twelve times as much, and totals, whose buckets fill, less than that.
    #[test]
    fn the_ledger_of_fourteen_hours_at_400_a_second_takes_less_than_twenty_megabytes() {
        let hours = [1, 4, 1, 2, 1, 4, 1].map(|hours| hours * 3_600);
        let (bytes, _) = played(&hours, 12, 400);
        let length = |kind: &str| {
            let of_kind = bytes.split(|byte| *byte == b'\n').filter(|line| line.starts_with(kind.as_bytes()));
            of_kind.map(|line| line.len() + 1).sum::<usize>()
        };
        let (intervals, totals) = (12 * length("{\"interval\""), length("{\"total\""));
        assert!(intervals > 1_000_000 && totals > 100_000, "{intervals} and {totals}: the replies are missing");
        assert!(intervals + 2 * totals < 20_000_000, "{intervals} bytes of intervals, {totals} of totals");
    }
}
