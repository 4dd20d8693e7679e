//! Dark phases: the power of the cache is cut when one begins and comes back when it ends, by commands of the user's.
//! The times of the first answers afterwards are read off the intervals, so that their resolution is that of the
//! intervals; `cacheoff kill` is finer.

use crate::ledger::{Class, Downtime, Interval};
use crate::schedule::Schedule;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Commands that cut the power and bring it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Power {
    /// Cuts it; the run waits for its end.
    pub cut: String,
    /// Brings it back; it may stay in the foreground.
    pub again: String,
}

/// The power of a run while it lasts.
#[derive(Debug)]
pub(super) struct Switch {
    power: Power,
    /// The dark phase it is in.
    dark: Option<usize>,
    /// When the power was cut, and came back.
    times: Option<(Duration, Duration)>,
    found: Downtime,
}

impl Switch {
    pub(super) fn new(power: Power) -> Self {
        let found = Downtime { cut: power.cut.clone(), ..Downtime::default() };
        Self { power, dark: None, times: None, found }
    }

    /// Switches if a dark phase began or ended. `Err` says that a command failed.
    pub(super) fn look(&mut self, schedule: &Schedule, now: Duration) -> Result<(), String> {
        let dark = schedule.phase_at(now).filter(|phase| schedule.phases()[*phase].dark);
        match (self.dark, dark) {
            (None, Some(_)) => {
                self.times = Some((now, Duration::ZERO));
                run("--cut", &self.power.cut, true)?;
            }
            (Some(_), None) => {
                if let Some((cut, back)) = &mut self.times {
                    *back = now;
                    self.found.dark_us = (now - *cut).as_micros() as u64;
                }
                run("--again", &self.power.again, false)?;
            }
            _ => {}
        }
        self.dark = dark;
        Ok(())
    }

    /// Looks for the first miss and the first hit since the power came back.
    pub(super) fn see(&mut self, interval: &Interval) {
        let Some((_, back)) = self.times.filter(|(_, back)| !back.is_zero()) else { return };
        let back = back.as_micros() as u64;
        if interval.at_us < back {
            return;
        }
        self.found.resolution_us = self.found.resolution_us.max(interval.length_us);
        let until = Some(interval.at_us + interval.length_us - back);
        let seen = |class: Class| (interval.class(class).replies > 0).then_some(until).flatten();
        self.found.first_accept_us = self.found.first_accept_us.or(seen(Class::All));
        self.found.first_miss_us = self.found.first_miss_us.or(seen(Class::Miss));
        self.found.first_hit_us = self.found.first_hit_us.or(seen(Class::Hit));
    }

    /// The result, if the power came back.
    pub(super) fn end(self) -> Option<Downtime> {
        (self.found.dark_us > 0).then_some(self.found)
    }
}

fn run(flag: &str, command: &str, waits: bool) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{flag} {command:?} cannot be run: {error}");
    let mut started = Command::new("sh").args(["-c", command]).stdin(Stdio::null()).spawn().map_err(failed)?;
    if waits {
        let status = started.wait().map_err(failed)?;
        return if status.success() { Ok(()) } else { Err(format!("{flag} {command:?} failed: {status}")) };
    }
    // A thread waits for the process, so that it is no zombie while the run lasts.
    std::thread::spawn(move || started.wait());
    Ok(())
}
