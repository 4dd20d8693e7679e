//! The display of a run that goes on: a few lines that change in place on a terminal, a line now and then elsewhere.

use crate::chart::Unit;
use crate::ledger::{Class, Interval, Run};
use std::collections::VecDeque;
use std::io::{IsTerminal, Write};

/// Without a terminal, a line is printed after this many seconds of the run.
const LINE_EVERY_US: u64 = 10_000_000;
/// Rates that the small picture shows.
const PICTURE_MAX: usize = 48;

/// Where progress is shown, and how.
pub struct Progress<W: Write> {
    out: W,
    live: bool,
    label: String,
    phases: Vec<(String, Option<u64>)>,
    phase_from_us: u64,
    phase: Option<u16>,
    errors: u64,
    rates: VecDeque<f64>,
    last_line_us: Option<u64>,
    drawn: bool,
}

impl Progress<std::io::Stderr> {
    /// On standard error: live if that is a terminal that can do it.
    pub fn on_stderr(run: &Run) -> Self {
        let able = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        Self::new(std::io::stderr(), std::io::stderr().is_terminal() && able, run)
    }
}

impl<W: Write> Progress<W> {
    /// On any output.
    pub fn new(out: W, live: bool, run: &Run) -> Self {
        Self {
            out,
            live,
            label: format!("{} {}", run.workload.name, run.label).trim().to_owned(),
            phases: run.phases.iter().map(|plan| (plan.name.clone(), plan.length_us)).collect(),
            phase_from_us: 0,
            phase: None,
            errors: 0,
            rates: VecDeque::new(),
            last_line_us: None,
            drawn: false,
        }
    }

    /// Shows the newest interval. An output that is gone is not an error of the run.
    pub fn show(&mut self, interval: &Interval) {
        let begins = self.phase != Some(interval.phase);
        if begins {
            (self.phase, self.phase_from_us) = (Some(interval.phase), interval.at_us);
        }
        self.errors += interval.errors.total();
        self.rates.push_back(per_second(interval, interval.replies()));
        if self.rates.len() > PICTURE_MAX {
            self.rates.pop_front();
        }
        let _ = match self.live {
            true => self.redraw(interval),
            false => self.line(interval, begins),
        };
    }

    /// Ends the live view, so that what follows begins on a line of its own.
    pub fn finish(&mut self) {
        if self.drawn {
            let _ = writeln!(self.out);
            self.drawn = false;
        }
    }

    fn line(&mut self, interval: &Interval, begins: bool) -> std::io::Result<()> {
        let now = interval.at_us;
        let due = self.last_line_us.is_none_or(|last| now >= last + LINE_EVERY_US);
        if !due && !begins {
            return Ok(());
        }
        self.last_line_us = Some(now);
        let text = self.facts(interval).join(", ");
        writeln!(self.out, "{} {text}", self.label)
    }

    fn redraw(&mut self, interval: &Interval) -> std::io::Result<()> {
        let facts = self.facts(interval);
        // Two lines up and clear to the end of the screen, then the same three lines anew.
        let again = if self.drawn { "\r\x1b[2A\x1b[J" } else { "" };
        self.drawn = true;
        write!(
            self.out,
            "{again}\x1b[1m{}\x1b[0m  {}\n  {}\n  {}",
            self.label,
            facts[..2].join(", "),
            facts[2..].join(", "),
            picture(&self.rates)
        )?;
        self.out.flush()
    }

    /// Phase, time left, rates, response, hit ratio, errors, robots.
    fn facts(&self, interval: &Interval) -> Vec<String> {
        let end = interval.at_us + interval.length_us;
        let unnamed = ("phase".to_owned(), None);
        let (name, length) = self.phases.get(usize::from(interval.phase)).unwrap_or(&unnamed);
        let elapsed = |us: u64| Unit::Elapsed.text((us as f64 / 1e6).round());
        let left = match length {
            Some(length) => format!("{} left", elapsed(length.saturating_sub(end - self.phase_from_us))),
            None => format!("for {}", elapsed(end - self.phase_from_us)),
        };
        let replies = Unit::PerSecond.text(per_second(interval, interval.replies()));
        let rate = match interval.due {
            0 => format!("{replies} replies"),
            due => format!("{replies} of {} due", Unit::PerSecond.text(per_second(interval, due))),
        };
        let all = interval.class(Class::All);
        let basic = interval.class(Class::Basic);
        let time = |value: Option<f64>| value.map_or("–".to_owned(), |us| Unit::Micros.text(us));
        let p99 = time(all.response.quantile(0.99).map(|us| us as f64));
        let mut facts = vec![
            format!("{name} ({} of {})", interval.phase + 1, self.phases.len().max(1)),
            left,
            rate,
            format!("response {}, 99 % {p99}", time(all.response.mean())),
            format!("DHR {}", Unit::Share.text(basic.hits as f64 / basic.replies as f64)),
            format!("{} errors", Unit::Count.text(self.errors as f64)),
        ];
        if interval.levels.robots > 0 {
            facts.push(format!("{} robots", Unit::Count.text(interval.levels.robots as f64)));
        }
        facts
    }
}

fn per_second(interval: &Interval, count: u64) -> f64 {
    count as f64 * 1e6 / interval.length_us.max(1) as f64
}

/// The last rates as blocks of eight heights.
fn picture(rates: &VecDeque<f64>) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let high = rates.iter().copied().fold(1e-9, f64::max);
    rates.iter().map(|rate| BLOCKS[((rate / high * 7.0).round() as usize).min(7)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Figures, PhasePlan, WorkloadFacts};

    fn run() -> Run {
        let plan =
            |name: &str| PhasePlan { name: name.to_owned(), length_us: Some(30_000_000), ..PhasePlan::default() };
        Run {
            label: "squid".to_owned(),
            workload: WorkloadFacts { name: "polymix-2".to_owned(), ..WorkloadFacts::default() },
            phases: vec![plan("warm"), plan("top1")],
            ..Run::default()
        }
    }

    fn interval(second: u64, replies: u64) -> Interval {
        let figures =
            Figures { replies, hits: replies / 2, response: [900, 1_100].into_iter().collect(), ..Figures::default() };
        Interval {
            phase: (second >= 30) as u16,
            at_us: second * 1_000_000,
            length_us: 1_000_000,
            due: 100,
            classes: [(Class::All, figures.clone()), (Class::Basic, figures)].into(),
            ..Interval::default()
        }
    }

    fn shown(live: bool) -> String {
        let mut out = Vec::new();
        let mut progress = Progress::new(&mut out, live, &run());
        (0..40).for_each(|second| progress.show(&interval(second, 80 + second)));
        progress.finish();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn without_a_terminal_there_is_a_line_per_phase_and_per_ten_seconds() {
        let text = shown(false);
        assert!(!text.contains('\x1b'));
        let first = "polymix-2 squid warm (1 of 2), 29 s left, 80/s of 100/s due, response 1 ms, 99 % 1.1 ms, DHR 50 %, 0 errors";
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], first);
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[3].contains("top1 (2 of 2)"), "{text}");
    }

    #[test]
    fn on_a_terminal_the_view_is_drawn_in_place() {
        let text = shown(true);
        assert_eq!(text.matches("\x1b[2A").count(), 39);
        assert!(text.ends_with("█\n"), "{text:?}");
    }
}
