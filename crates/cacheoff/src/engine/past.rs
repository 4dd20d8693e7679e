//! The past of a robot that wakes: how many embedded objects it has asked for that its pace has not yet paid for.
//!
//! A robot asks for what a page embeds at once, and pays for each object with one of its later turns, so that its rate is
//! that of the workload. A robot without a past has nothing to pay for: its first turns are all requests, and until its
//! debts are as large as those of robots at work it asks for more than its rate. That takes a few pages, a minute or less.
//! In a phase of hours it is nothing; in one of seconds it was up to 40 % of all requests. So each robot wakes with a debt
//! drawn as an onlooker finds it who comes at any time.

use super::Settings;
use crate::object::{Law, Name, World, pick};
use crate::random::Stream;
use crate::robot::{Pace, RobotSettings, Wish};

/// Requests that stand for all others.
const SAMPLE: u64 = 4_096;

/// Turns of robots, one request with its debt behind the other.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// The turn with which each request of the sample is paid for, counted from the first; empty if nothing is ever owed.
    paid: Vec<u64>,
}

impl Past {
    /// The past of robots that are paid by turns; others wait for replies, or do as a log says.
    pub(super) fn of(settings: &Settings) -> Self {
        let robots = &settings.robots;
        if matches!(robots.pace, Pace::Closed(_) | Pace::Log) || robots.direct.is_empty() {
            return Self::default();
        }
        let mut stream = Stream::named(settings.law.seed, "past of the robots");
        let mut turns = 0;
        let paid = (1..=SAMPLE).map(|number| {
            turns += 1 + owed(&settings.law, robots, number, &mut stream);
            turns
        });
        let paid: Vec<u64> = paid.collect();
        if turns == SAMPLE { Self::default() } else { Self { paid } }
    }

    /// The debt of a robot that is met at any of its turns.
    pub(super) fn debt(&self, stream: &mut Stream) -> u64 {
        let Some(turns) = self.paid.last() else { return 0 };
        let turn = stream.below(*turns);
        let request = self.paid.partition_point(|paid| *paid <= turn);
        let first = request.checked_sub(1).map_or(0, |before| self.paid[before]);
        // With the first of its turns a request is asked: nothing is owed then.
        if turn == first { 0 } else { self.paid[request] - turn }
    }
}

/// The debt that a request of the workload makes.
fn owed(law: &Law, robots: &RobotSettings, number: u64, stream: &mut Stream) -> u64 {
    let content = pick(&robots.direct, stream);
    let name = Name { server: 0, content, world: World::Public { worker: 0 }, number, embedded: false };
    let wish = Wish::draw(law, robots, (name, true), 1.0, stream);
    let brings = wish.facts.redirects || wish.kind.brings(wish.kind.status(), robots.embeds_of_304);
    (if brings { wish.children.len() } else { 0 } + wish.parts.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debts_are_those_of_a_robot_that_is_met_at_any_of_its_turns() {
        // Requests that owe 0, 3 and 1: turns 0 | 1 2 3 4 | 5 6, of which 0, 1 and 5 ask.
        let past = Past { paid: vec![1, 5, 7] };
        let mut stream = Stream::new(7, 7);
        let mut seen = [0u32; 4];
        (0..70_000).for_each(|_| seen[past.debt(&mut stream) as usize] += 1);
        for (debt, turns) in [(0, 3.0), (1, 2.0), (2, 1.0), (3, 1.0)] {
            let found = f64::from(seen[debt]);
            assert!((found - 10_000.0 * turns).abs() < 500.0, "{debt}: {seen:?}");
        }
        assert_eq!(Past::default().debt(&mut stream), 0);
    }
}
