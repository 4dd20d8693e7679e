//! The health of a member: checks, failures in a row, ejection, the trial after it, and the slow start after that.

use crate::settings::{Checks, Eject};
use crate::ticket::Errand;
use std::time::{Duration, Instant};

/// The share with which a recovered member begins, and that of a member which fails but is not ejected because too many are.
pub(crate) const SHARE_MIN: f64 = 0.1;

/// The part of a member that its requests decide.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Service {
    /// It gets requests.
    In,
    /// It gets none until then; after that one request tries it.
    Ejected { until: Instant },
    /// One request tries it.
    OnTrial,
}

/// The health of a member.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    service: Service,
    /// Failures since the last success.
    failures_in_a_row: u32,
    /// For how long it was ejected last.
    ejected_for: Duration,
    /// When it recovered last.
    recovered_at: Option<Instant>,
    /// Checks say that it is down.
    is_down: bool,
    /// Checks in a row that say otherwise than `is_down`.
    checks_in_a_row: u32,
}

impl Default for Health {
    fn default() -> Health {
        Health {
            service: Service::In,
            failures_in_a_row: 0,
            ejected_for: Duration::ZERO,
            recovered_at: None,
            is_down: false,
            checks_in_a_row: 0,
        }
    }
}

impl Health {
    pub fn is_down(&self) -> bool {
        self.is_down
    }

    pub fn is_in(&self) -> bool {
        self.service == Service::In
    }

    pub fn is_on_trial(&self) -> bool {
        self.service == Service::OnTrial
    }

    /// Until when it is ejected; a time that is past where its trial is due.
    pub fn ejected_until(&self) -> Option<Instant> {
        match self.service {
            Service::Ejected { until } => Some(until),
            Service::In | Service::OnTrial => None,
        }
    }

    pub fn failures_in_a_row(&self) -> u32 {
        self.failures_in_a_row
    }

    /// The share of its requests that it gets now.
    pub fn share(&self, slow_start: Duration, now: Instant) -> f64 {
        let Some(since) = self.recovered_at.map(|at| now.saturating_duration_since(at)) else { return 1.0 };
        if since >= slow_start { 1.0 } else { (since.as_secs_f64() / slow_start.as_secs_f64()).max(SHARE_MIN) }
    }

    /// A request tries it.
    pub fn begin_trial(&mut self) {
        self.service = Service::OnTrial;
    }

    /// The trial ended and showed nothing: from then on the next request may try. The time of further ejections is not longer for that.
    pub fn trial_showed_nothing(&mut self, again: Instant) {
        if self.is_on_trial() {
            self.service = Service::Ejected { until: again };
        }
    }

    /// There are no checks any more, so what they said does not hold on.
    pub fn forget_checks(&mut self) {
        (self.is_down, self.checks_in_a_row) = (false, 0);
    }

    /// A request succeeded. True where that ends its ejection: stragglers of the time before don't.
    pub fn succeeded(&mut self, errand: Errand, eject: &Eject, now: Instant) -> bool {
        let ends = match errand {
            Errand::Plain => self.is_suspect(eject),
            Errand::Trial => self.is_on_trial(),
            Errand::LeastBad => !self.is_in() || self.is_suspect(eject),
        };
        if ends {
            self.recover(now);
        } else if self.is_in() {
            self.failures_in_a_row = 0;
        }
        ends
    }

    /// A request failed. True where the member is to be ejected, if that is permitted.
    pub fn failed(&mut self, errand: Errand, settings: &Eject, now: Instant) -> bool {
        if errand == Errand::Trial && self.is_on_trial() {
            self.eject(settings, now);
            return false;
        }
        if !self.is_in() {
            return false;
        }
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        self.is_suspect(settings)
    }

    /// Whether it would be ejected if not too many others were: it gets little, and recovers as if it had been.
    pub fn is_suspect(&self, settings: &Eject) -> bool {
        self.is_in() && settings.failures > 0 && self.failures_in_a_row >= settings.failures
    }

    /// Ejects it: for twice as long as last time, unless it has served for longer than that since.
    pub fn eject(&mut self, settings: &Eject, now: Instant) {
        let served = self.recovered_at.map(|at| now.saturating_duration_since(at));
        let follows_soon = !self.ejected_for.is_zero()
            && (self.is_on_trial() || served.is_some_and(|served| served < self.ejected_for));
        let time = if follows_soon { self.ejected_for.saturating_mul(2) } else { settings.time };
        self.ejected_for = time.min(settings.time_max);
        self.service = Service::Ejected { until: now + self.ejected_for };
    }

    fn recover(&mut self, now: Instant) {
        self.service = Service::In;
        self.failures_in_a_row = 0;
        self.recovered_at = Some(now);
    }

    /// A check ended. True where the member changed between up and down, or ended its ejection.
    pub fn checked(&mut self, is_good: bool, checks: &Checks, now: Instant) -> bool {
        if is_good != self.is_down {
            self.checks_in_a_row = 0;
            let trial_due = self.ejected_until().is_some_and(|until| now >= until);
            if is_good && trial_due {
                self.recover(now);
                return true;
            }
            return false;
        }
        self.checks_in_a_row += 1;
        let wanted = if is_good { checks.rise } else { checks.fall };
        if self.checks_in_a_row < wanted.max(1) {
            return false;
        }
        (self.is_down, self.checks_in_a_row) = (!is_good, 0);
        if is_good {
            // Checks have shown more than one trial would.
            self.recover(now);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn fail_until_ejected(health: &mut Health, eject: &Eject, now: Instant) {
        for _ in 1..eject.failures {
            assert!(!health.failed(Errand::Plain, eject, now));
        }
        assert!(health.failed(Errand::Plain, eject, now));
        health.eject(eject, now);
    }

    #[test]
    fn failures_in_a_row_eject_and_a_success_between_them_does_not() {
        let (eject, now) = (Eject::default(), Instant::now());
        let mut health = Health::default();
        for _ in 0..100 {
            assert!(!(0..4).any(|_| health.failed(Errand::Plain, &eject, now)));
            health.succeeded(Errand::Plain, &eject, now);
        }
        fail_until_ejected(&mut health, &eject, now);
        assert_eq!(health.ejected_until(), Some(now + 10 * SECOND));
    }

    #[test]
    fn the_time_doubles_with_each_failed_trial_up_to_its_maximum() {
        let (eject, mut now) = (Eject::default(), Instant::now());
        let mut health = Health::default();
        fail_until_ejected(&mut health, &eject, now);
        for seconds in [20, 40, 80, 160, 300, 300] {
            now = health.ejected_until().unwrap();
            health.begin_trial();
            health.failed(Errand::Trial, &eject, now);
            assert_eq!(health.ejected_until(), Some(now + seconds * SECOND));
        }
    }

    #[test]
    fn a_member_that_served_well_for_long_begins_anew() {
        let (eject, mut now) = (Eject::default(), Instant::now());
        let mut health = Health::default();
        fail_until_ejected(&mut health, &eject, now);
        for (served, out) in [(9 * SECOND, 20 * SECOND), (21 * SECOND, 10 * SECOND), (SECOND, 20 * SECOND)] {
            now = health.ejected_until().unwrap();
            health.begin_trial();
            assert!(health.succeeded(Errand::Trial, &eject, now));
            now += served;
            fail_until_ejected(&mut health, &eject, now);
            assert_eq!(health.ejected_until(), Some(now + out), "{served:?}");
        }
    }

    #[test]
    fn stragglers_of_the_time_before_decide_nothing() {
        let (eject, now) = (Eject::default(), Instant::now());
        let mut health = Health::default();
        fail_until_ejected(&mut health, &eject, now);
        let until = health.ejected_until();
        assert!(
            !health.failed(Errand::Plain, &eject, now + SECOND)
                && !health.succeeded(Errand::Plain, &eject, now + SECOND)
        );
        assert_eq!(health.ejected_until(), until);
        health.begin_trial();
        assert!(!health.succeeded(Errand::Plain, &eject, now + 10 * SECOND));
        assert!(health.is_on_trial());
    }

    #[test]
    fn a_recovered_member_gets_its_share_little_by_little() {
        let (eject, now) = (Eject::default(), Instant::now());
        let mut health = Health::default();
        assert_eq!(health.share(10 * SECOND, now), 1.0, "at the start of the server nobody waits");
        health.begin_trial();
        health.succeeded(Errand::Trial, &eject, now);
        for (seconds, share) in [(0, 0.1), (1, 0.1), (5, 0.5), (10, 1.0), (60, 1.0)] {
            assert_eq!(health.share(10 * SECOND, now + seconds * SECOND), share, "{seconds}");
        }
        assert_eq!(health.share(Duration::ZERO, now), 1.0);
    }

    #[test]
    fn checks_change_a_member_after_several_in_a_row() {
        let (checks, now) = (Checks::default(), Instant::now());
        let mut health = Health::default();
        // `+` a good check, `-` a bad one; the state after each: `u` up or `d` down.
        let events = "--+---+-++-+--+---";
        let states = "uuuuudddduuuuuuuud";
        for (at, (event, state)) in events.chars().zip(states.chars()).enumerate() {
            health.checked(event == '+', &checks, now);
            assert_eq!(health.is_down(), state == 'd', "{at}");
        }
    }

    #[test]
    fn a_good_check_after_its_time_ends_an_ejection() {
        let (eject, checks, now) = (Eject::default(), Checks::default(), Instant::now());
        let mut health = Health::default();
        fail_until_ejected(&mut health, &eject, now);
        assert!(!health.checked(true, &checks, now + 9 * SECOND));
        assert!(health.checked(true, &checks, now + 10 * SECOND) && health.is_in());
    }
}
