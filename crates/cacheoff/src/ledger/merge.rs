//! Ledgers of the agents of one run become one: counts and histograms add up bucket by bucket, so that nothing is lost.

use super::{End, Grid, Interval, Ledger, Note, Outcome, PhaseStart, Run};
use std::collections::{BTreeMap, BTreeSet};

/// Said of a whole whose coordinator is not heard.
const UNKNOWN: &str = "how the coordinator judged the run is not known: no part has its verdict";

impl Ledger {
    /// The parts of one run as a whole. `Err` says why they are not that. If a part is missing, the whole is marked invalid.
    pub fn merge(mut parts: Vec<Self>) -> Result<Self, String> {
        parts.sort_by_key(|part| part.run.agents.first().map(|agent| agent.first));
        let Some(first) = parts.first().map(|part| part.run.clone()) else {
            return Err("give the ledgers of the agents of one run".to_owned());
        };
        for part in &parts {
            refuse(&first, &part.run)?;
        }
        let mut whole = Self { run: first, ..Self::default() };
        whole.run.agents = parts.iter().flat_map(|part| part.run.agents.clone()).collect();
        if let Some(pair) = whole.run.agents.windows(2).find(|pair| pair[0].first == pair[1].first) {
            return Err(format!(
                "agents {} and {} have the same part: give each ledger once",
                pair[0].name, pair[1].name
            ));
        }
        whole.intervals = intervals(&parts);
        whole.totals = beside(parts.iter().flat_map(|part| &part.totals), |_| 0);
        // A part that was killed in a phase has no total of it: the intervals say more than the totals of the others.
        let is_whole = |total: &Interval| {
            let counted = whole.intervals.iter().filter(|interval| interval.phase == total.phase);
            counted.map(Interval::replies).sum::<u64>() == total.replies()
        };
        whole.totals.retain(is_whole);
        for interval in &whole.intervals {
            if whole.phases.iter().all(|phase| phase.phase != interval.phase) {
                whole.phases.push(PhaseStart { phase: interval.phase, at_us: interval.at_us });
            }
        }
        for part in &mut parts {
            let name = part.run.agents.first().map_or("", |agent| &agent.name);
            let notes = part.notes.drain(..).map(|note| Note { text: format!("{name}: {}", note.text), ..note });
            whole.notes.extend(notes);
            whole.downtimes.append(&mut part.downtimes);
        }
        whole.notes.sort_by_key(|note| note.at_us);
        whole.end = end(&parts, &whole.run);
        Ok(whole)
    }
}

/// Why a ledger is no part of the run of another.
fn refuse(run: &Run, part: &Run) -> Result<(), String> {
    let label = part.agents.first().map_or("", |agent| &agent.name);
    let ([mine, ..], [theirs]) = (&run.agents[..], &part.agents[..]) else {
        return Err("a ledger is not that of one agent: agents write theirs where --ledger-dir says".to_owned());
    };
    let differs = [
        (run.cacheoff != part.cacheoff, "is of another version of cacheoff"),
        (run.workload.text != part.workload.text || run.workload.name != part.workload.name, "is of another workload"),
        (
            run.workload.peak != part.workload.peak || run.workload.scale != part.workload.scale,
            "has another peak or scale",
        ),
        (run.seed != part.seed, "has another seed"),
        (mine.run != theirs.run || mine.all != theirs.all, "is of another run"),
        (run.target.mode != part.target.mode || run.target.address != part.target.address, "is of another cache"),
    ];
    match differs.iter().find(|(differs, _)| *differs) {
        Some((_, why)) => Err(format!("the ledger of agent {label} {why} than that of agent {}", mine.name)),
        None => Ok(()),
    }
}

fn intervals(parts: &[Ledger]) -> Vec<Interval> {
    // Parts of one run have one plan, and so one grid.
    let grid = Grid::of(parts.first().map_or(&[][..], |part| &part.run.phases));
    beside(parts.iter().flat_map(|part| &part.intervals), |interval| grid.place(interval.at_us))
}

/// The counts of all parts in one phase and at one place become one.
fn beside<'a>(counted: impl Iterator<Item = &'a Interval>, place: impl Fn(&Interval) -> u64) -> Vec<Interval> {
    let mut all: BTreeMap<(u16, u64), Interval> = BTreeMap::new();
    for interval in counted {
        let key = (interval.phase, place(interval));
        match all.get_mut(&key) {
            None => drop(all.insert(key, interval.clone())),
            Some(known) => {
                let length = known.length_us.max(interval.length_us);
                known.merge(interval);
                known.length_us = length;
            }
        }
    }
    all.into_values().collect()
}

/// How the whole ended: as the part that ended worst.
fn end(parts: &[Ledger], run: &Run) -> End {
    let badness = |outcome: &Outcome| match outcome {
        Outcome::Complete => 0,
        Outcome::Interrupted => 1,
        Outcome::Unfinished => 2,
        Outcome::Failed(_) => 3,
    };
    // Clocks and the dead are seen by the coordinator alone, whose verdict is in the parts that it reached.
    let verdicts = parts.iter().filter_map(|part| part.verdict.as_ref());
    let outcomes = verdicts.clone().chain(parts.iter().map(|part| &part.end)).map(|end| &end.outcome);
    // Of two that are as bad the first one stays.
    let outcome = outcomes.rev().max_by_key(|outcome| badness(outcome));
    let mut invalid: Vec<String> = verdicts.clone().flat_map(|verdict| verdict.invalid.clone()).collect();
    if verdicts.count() == 0 {
        invalid.push(UNKNOWN.to_owned());
    }
    for part in parts {
        let name = part.run.agents.first().map_or("", |agent| &agent.name);
        invalid.extend(part.end.invalid.iter().cloned());
        if part.end.outcome == Outcome::Unfinished {
            invalid.push(format!("the ledger of agent {name} has no end: its figures are missing from then on"));
        }
    }
    let all = run.agents.first().map_or(0, |agent| agent.all);
    for worker in 0..all {
        let is_there =
            |agent: &super::AgentPart| (agent.first..agent.first.saturating_add(agent.own)).contains(&worker);
        if !run.agents.iter().any(is_there) {
            invalid.push(format!("the ledger with worker {worker} of {all} is missing"));
        }
    }
    let mut told = BTreeSet::new();
    invalid.retain(|reason| told.insert(reason.clone()));
    let at_us = parts.iter().map(|part| part.end.at_us).max().unwrap_or_default();
    End { at_us, outcome: outcome.cloned().unwrap_or_default(), invalid }
}

#[cfg(test)]
mod tests {
    use super::super::{AgentPart, Class, Figures, Histogram};
    use super::*;

    /// The part of a worker: replies that take so many microseconds, one in each second.
    fn part(worker: u16, times: &[u64]) -> Ledger {
        let agent = AgentPart {
            name: format!("a{worker}"),
            run: 7,
            first: worker,
            own: 1,
            of: 2,
            all: 2,
            ..AgentPart::default()
        };
        let run = Run { cacheoff: "1".into(), seed: 3, agents: vec![agent], ..Run::default() };
        let interval = |(second, time): (usize, &u64)| Interval {
            at_us: second as u64 * 1_000_000,
            length_us: 1_000_000,
            classes: [(
                Class::All,
                Figures { replies: 1, response: [*time].into_iter().collect(), ..Figures::default() },
            )]
            .into(),
            ..Interval::default()
        };
        let end = End { at_us: 2, outcome: Outcome::Complete, invalid: Vec::new() };
        let intervals = times.iter().enumerate().map(interval).collect();
        Ledger { run, intervals, verdict: Some(end.clone()), end, ..Ledger::default() }
    }

    #[test]
    fn histograms_add_up_to_what_one_ledger_would_have() {
        let whole = Ledger::merge(vec![part(1, &[40, 7_000, 9]), part(0, &[50, 70])]).unwrap();
        let all = whole.phase(0);
        let expected: Histogram = [40, 7_000, 9, 50, 70].into_iter().collect();
        assert_eq!((all.replies(), &all.class(Class::All).response, all.length_us), (5, &expected, 3_000_000));
        assert_eq!((whole.end.outcome, whole.end.invalid, whole.run.agents.len()), (Outcome::Complete, vec![], 2));
    }

    #[test]
    fn a_ledger_of_another_run_is_refused_with_its_reason() {
        let refused = |change: &dyn Fn(&mut Run)| {
            let mut other = part(1, &[1]);
            change(&mut other.run);
            Ledger::merge(vec![part(0, &[1]), other]).unwrap_err()
        };
        assert!(refused(&|run| run.seed = 4).contains("another seed"));
        assert!(refused(&|run| run.workload.text = "x".into()).contains("another workload"));
        assert!(refused(&|run| run.cacheoff = "2".into()).contains("another version"));
        assert!(refused(&|run| run.agents[0].run = 8).contains("another run"));
        assert!(refused(&|run| run.agents[0].first = 0).contains("the same part"));
        assert!(refused(&|run| run.agents.clear()).contains("not that of one agent"));
        assert!(Ledger::merge(Vec::new()).is_err());
    }

    #[test]
    fn the_verdict_of_the_coordinator_is_that_of_the_whole() {
        let mut judged = part(1, &[1]);
        let reason = "the clock of agent a0 is 2000 µs ahead".to_owned();
        judged.verdict =
            Some(End { outcome: Outcome::Failed("x".to_owned()), invalid: vec![reason.clone()], ..End::default() });
        let whole = Ledger::merge(vec![part(0, &[1]), judged]).unwrap();
        assert_eq!((whole.end.outcome, whole.end.invalid), (Outcome::Failed("x".to_owned()), vec![reason]));
        let unheard = [0, 1].map(|worker| Ledger { verdict: None, ..part(worker, &[1]) });
        assert_eq!(Ledger::merge(unheard.into()).unwrap().end.invalid, [UNKNOWN]);
    }

    #[test]
    fn a_missing_or_torn_part_makes_the_whole_invalid() {
        let alone = Ledger::merge(vec![part(0, &[1])]).unwrap();
        assert_eq!(alone.end.invalid, ["the ledger with worker 1 of 2 is missing"]);
        let mut torn = part(1, &[1]);
        torn.end = End::default();
        let whole = Ledger::merge(vec![part(0, &[1]), torn]).unwrap();
        assert!(whole.end.invalid[0].contains("agent a1 has no end"));
        assert_eq!(whole.phase(0).replies(), 2);
    }
}
