//! When a certificate is ordered: functions of values and now.

use larder_wire::date::Stamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The first pause after a failure. Authorities in wide use permit five failed validations of a name in an hour, and with a factor of four
/// there are as many attempts in that.
const FIRST_PAUSE_SECONDS: u64 = 60;
const PAUSE_FACTOR: u64 = 4;
const PAUSE_SECONDS_MAX: u64 = 12 * 3_600;
/// An authority that has had enough, and does not say for how long, is left alone for this.
const LIMITED_SECONDS: u64 = 3_600;

/// Orders of a certificate that have failed since the last one that did not. They are on disk, so that a server that is started again and
/// again asks no more often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Failures {
    /// How many.
    pub count: u32,
    /// No further order before this second since 1970.
    pub until: u64,
}

impl Failures {
    /// One more, now. `draw` is any number: servers that failed together do not come again together.
    pub(super) fn and_one(self, now: Stamp, draw: u64) -> Failures {
        let count = self.count.saturating_add(1);
        let pause = PAUSE_FACTOR.saturating_pow(count - 1).saturating_mul(FIRST_PAUSE_SECONDS).min(PAUSE_SECONDS_MAX);
        Failures { count, until: now.0.saturating_add(pause + draw % (pause / 4)) }
    }

    /// These failures, where the authority wants to be left alone for this time.
    pub(super) fn limited(self, now: Stamp, pause: Option<Duration>) -> Failures {
        let pause = pause.map_or(LIMITED_SECONDS, |pause| pause.as_secs());
        Failures { until: self.until.max(now.0.saturating_add(pause)), ..self }
    }
}

/// When a certificate is to be renewed: after two thirds of its life (RFC 9773 section 4.2 has the same for want of a better word), or as
/// much as a thirtieth of it earlier. `draw` is a number of the certificate, so that the moment stays the same.
pub(super) fn renewal(not_before: Stamp, not_after: Stamp, draw: u64) -> Stamp {
    let life = not_after.0.saturating_sub(not_before.0);
    Stamp(not_before.0.saturating_add(life / 3 * 2).saturating_sub(draw % (life / 30 + 1)))
}

/// The soonest moment of the order after one that gave a certificate: by a clock that is wrong, or where certificates were issued long
/// before they are handed out, its renewal is due already, and it would be ordered again without a pause.
pub(super) fn soonest_after(now: Stamp, not_after: Stamp) -> Stamp {
    let left = not_after.0.saturating_sub(now.0);
    Stamp(now.0.saturating_add((left / 4).clamp(1, PAUSED_SECONDS_MAX)))
}

/// The pause after a certificate was issued, or a quarter of the life that it has left.
const PAUSED_SECONDS_MAX: u64 = 3_600;

/// How often the authority is asked for its word about a renewal: every six hours, more often where certificates are short.
const SUGGESTED_EVERY_SECONDS_MAX: u64 = 6 * 3_600;
/// So often in the life of a short one.
const SUGGESTED_IN_A_LIFE: u64 = 12;
/// The authority may say itself how long its word holds, but for no longer than this.
const SUGGESTED_FOR_SECONDS_MAX: u64 = 86_400;

/// When the authority is asked for its word about a renewal, `said` after its last word. `draw` spreads the certificates of one server.
pub(super) fn question(
    (not_before, not_after): (Stamp, Stamp),
    now: Stamp,
    said: Option<Duration>,
    draw: u64,
) -> Stamp {
    let life = not_after.0.saturating_sub(not_before.0);
    let every = (life / SUGGESTED_IN_A_LIFE).clamp(1, SUGGESTED_EVERY_SECONDS_MAX);
    let pause = said.map_or(every + draw % every, |said| said.as_secs().clamp(every, SUGGESTED_FOR_SECONDS_MAX));
    Stamp(now.0.saturating_add(pause))
}

/// A moment in a window that the authority suggests (RFC 9773 section 4.2).
pub(super) fn in_window((start, end): (i64, i64), draw: u64) -> Stamp {
    let (start, end) = (u64::try_from(start).unwrap_or(0), u64::try_from(end).unwrap_or(0));
    Stamp(start.saturating_add(draw % (end.saturating_sub(start) + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Stamp = Stamp(1_800_000_000);

    #[test]
    fn a_certificate_that_is_due_at_once_is_not_ordered_for_ever() {
        assert_eq!(soonest_after(NOW, Stamp(NOW.0 + 25 * 86_400)), Stamp(NOW.0 + 3_600));
        assert_eq!(soonest_after(NOW, Stamp(NOW.0 + 20)), Stamp(NOW.0 + 5));
        assert_eq!(soonest_after(NOW, NOW), Stamp(NOW.0 + 1));
    }

    #[test]
    fn pauses_grow_and_end() {
        let mut failures = Failures::default();
        let mut pauses = Vec::new();
        for _ in 0..40 {
            failures = failures.and_one(NOW, 0);
            pauses.push(failures.until - NOW.0);
        }
        assert_eq!(pauses[..6], [60, 240, 960, 3_840, 15_360, 43_200]);
        assert_eq!((pauses[39], failures.count), (43_200, 40));
        let drawn = Failures::default().and_one(NOW, u64::MAX).until - NOW.0;
        assert!((60..75).contains(&drawn), "{drawn}");
        let full = Failures { count: u32::MAX, until: u64::MAX };
        assert_eq!(full.and_one(Stamp(u64::MAX), 7).until, u64::MAX);
    }

    #[test]
    fn an_authority_that_has_had_enough_is_left_alone() {
        let failed = Failures::default().and_one(NOW, 0);
        assert_eq!(failed.limited(NOW, None).until - NOW.0, 3_600);
        assert_eq!(failed.limited(NOW, Some(Duration::from_secs(90_000))).until - NOW.0, 90_000);
        assert_eq!(failed.limited(NOW, Some(Duration::ZERO)).until - NOW.0, 60);
    }

    #[test]
    fn renewal_comes_at_two_thirds_or_a_little_before() {
        for (days, draw, from, to) in
            [(90, 0, 60.0, 60.0), (90, 12_345_678_901, 57.0, 60.0), (6, u64::MAX, 3.8, 4.0), (0, 5, 0.0, 0.0)]
        {
            let due = renewal(NOW, NOW.plus(days * 86_400), draw).since(NOW) as f64 / 86_400.0;
            assert!((from..=to).contains(&due), "{days} days: {due}");
        }
        assert_eq!(renewal(Stamp(9), Stamp(3), 4), Stamp(9));
    }

    #[test]
    fn the_authority_is_asked_every_six_hours_or_twelve_times_in_a_life() {
        let asks = |life: u64, said: Option<u64>, draw| {
            question((NOW, NOW.plus(life)), NOW, said.map(Duration::from_secs), draw).since(NOW)
        };
        assert_eq!((asks(90 * 86_400, None, 0), asks(90 * 86_400, None, 21_599)), (21_600, 43_199));
        assert_eq!((asks(36, None, 0), asks(36, None, 5), asks(0, None, 9)), (3, 5, 1));
        assert_eq!(asks(90 * 86_400, Some(30_000), 7), 30_000);
        assert_eq!((asks(90 * 86_400, Some(5), 7), asks(90 * 86_400, Some(u64::MAX), 7)), (21_600, 86_400));
    }

    #[test]
    fn a_window_may_be_nonsense() {
        assert_eq!(in_window((100, 200), 50), Stamp(150));
        assert_eq!(in_window((200, 100), 50), Stamp(200));
        assert_eq!(in_window((i64::MIN, i64::MIN), 50), Stamp(0));
        assert!(in_window((0, i64::MAX), u64::MAX).0 <= i64::MAX as u64);
    }
}
