//! The budget of further tries: a share of requests, so that a group in trouble does not get a multiple of its load.

use std::time::Instant;

/// Further tries that may be made at once after a quiet time.
const TRIES_SAVED_MAX: f64 = 100.0;
/// Further tries a second that are permitted however few requests there are.
const TRIES_PER_SECOND_MIN: f64 = 1.0;
/// Those that such a quiet group may save.
const TRIES_SAVED_QUIET_MAX: f64 = 10.0;

/// Tries that may be made.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    /// The part of a try that each request adds.
    per_request: f64,
    earned: f64,
    /// Tries that time adds, apart: they are for groups with few requests.
    quiet: f64,
    quiet_at: Option<Instant>,
}

impl Budget {
    pub fn new(percent: u32) -> Budget {
        Budget { per_request: f64::from(percent) / 100.0, earned: 0.0, quiet: TRIES_SAVED_QUIET_MAX, quiet_at: None }
    }

    pub fn set_percent(&mut self, percent: u32) {
        self.per_request = f64::from(percent) / 100.0;
    }

    /// A request came.
    pub fn earn(&mut self) {
        self.earned = (self.earned + self.per_request).min(TRIES_SAVED_MAX);
    }

    /// Takes one try, if there is one.
    pub fn spend(&mut self, now: Instant) -> bool {
        if self.per_request == 0.0 {
            return false;
        }
        if self.earned >= 1.0 {
            self.earned -= 1.0;
            return true;
        }
        let since = self.quiet_at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        self.quiet_at = Some(now);
        self.quiet = (self.quiet + since * TRIES_PER_SECOND_MIN).min(TRIES_SAVED_QUIET_MAX);
        if self.quiet < 1.0 {
            return false;
        }
        self.quiet -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn tries_are_a_share_of_requests() {
        let (mut budget, now) = (Budget::new(20), Instant::now());
        let mut tries = 0;
        for at in 0..10_000 {
            budget.earn();
            tries += u64::from(budget.spend(now + Duration::from_micros(at)));
        }
        assert!((2_000..=2_011).contains(&tries), "{tries}");
    }

    #[test]
    fn a_group_with_few_requests_may_try_again_too() {
        let (mut budget, mut now) = (Budget::new(20), Instant::now());
        for _ in 0..100 {
            now += Duration::from_secs(2);
            budget.earn();
            assert!(budget.spend(now));
        }
    }

    #[test]
    fn a_quiet_time_saves_no_flood() {
        let (mut budget, now) = (Budget::new(20), Instant::now());
        (0..1_000_000).for_each(|_| budget.earn());
        let tries = (0..1_000).filter(|_| budget.spend(now + Duration::from_secs(3600))).count();
        assert!(tries <= 110, "{tries}");
    }

    #[test]
    fn none_means_none() {
        let (mut budget, now) = (Budget::new(0), Instant::now());
        (0..100).for_each(|_| budget.earn());
        assert!(!budget.spend(now) && !budget.spend(now + Duration::from_secs(60)));
    }
}
