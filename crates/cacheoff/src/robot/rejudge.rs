//! The second judgement of a reply, by what the journals of all machines say.

use super::job::Report;
use super::judge::Judge;
use super::retrial::Bench;

impl Report {
    /// Judges the reply again by what is known now.
    pub fn judge_again(&mut self, bench: &Bench<'_>) {
        let Some(retrial) = self.job.retrial.take() else { return };
        let Some((judge, began, complete)) = retrial.judge else { return };
        let case = self.job.case(bench, &retrial.turns, retrial.unix);
        self.verdict = judge.again(Judge::head(&case, &retrial.head)).finish(began, complete);
    }
}
