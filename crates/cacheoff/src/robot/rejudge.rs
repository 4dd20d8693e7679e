//! The second judgement of a reply, by what the journals of all machines say.

use super::ask::Report;
use super::case::Case;
use super::judge::Judge;
use super::retrial::Bench;
use crate::ledger::Mode;

impl Report {
    /// Judges the reply again by what is known now.
    pub fn judge_again(&mut self, bench: &Bench<'_>) {
        let Some(retrial) = self.job.retrial.take() else { return };
        let Some((judge, began, complete)) = retrial.judge else { return };
        let job = &*self.job;
        let case = Case {
            law: bench.law,
            wish: &job.wish,
            journal: bench.journal,
            gateway: bench.route.mode == Mode::Reverse,
            xact: job.xact,
            turns: &retrial.turns,
            deeds: bench.journal.deeds(job.xact.number),
            first: job.first,
            asked: job.asked,
            purged: job.purged,
            now: retrial.unix,
            expected: bench.settings.expected,
            delay_s_max: bench.settings.delay_s_max,
        };
        self.verdict = judge.again(Judge::head(&case, &retrial.head)).finish(began, complete);
    }
}
