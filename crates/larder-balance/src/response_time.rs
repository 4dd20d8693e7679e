//! The response time of a member: an average in which later samples count more, whatever their number.

use std::time::{Duration, Instant};

/// A member that becomes slower is noticed within about this time.
const RISES_IN: Duration = Duration::from_secs(1);
/// One that becomes quicker is believed after about this time; an average without new samples fades as quickly, so that a member which
/// is asked no more because it was slow is tried again.
const FALLS_IN: Duration = Duration::from_secs(10);

/// An exponentially weighted moving average of seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResponseTime(Option<(f64, Instant)>);

impl ResponseTime {
    /// A request took so long.
    pub fn add(&mut self, time: Duration, now: Instant) {
        let sample = time.as_secs_f64();
        let average = match self.0 {
            None => sample,
            Some((average, at)) => {
                let span = if sample > average { RISES_IN } else { FALLS_IN };
                let old = kept(now.saturating_duration_since(at), span);
                average * old + sample * (1.0 - old)
            }
        };
        self.0 = Some((average, now));
    }

    /// The average, faded since the last sample; `None` before there is one.
    pub fn faded(&self, now: Instant) -> Option<f64> {
        self.0.map(|(average, at)| average * kept(now.saturating_duration_since(at), FALLS_IN))
    }

    /// The average as the last sample left it, for people.
    pub fn average(&self) -> Option<Duration> {
        self.0.map(|(average, _)| Duration::from_secs_f64(average.clamp(0.0, 1e6)))
    }

    /// Forgets all samples.
    pub fn forget(&mut self) {
        self.0 = None;
    }
}

/// The part of an old average that is left after this time.
fn kept(since: Duration, span: Duration) -> f64 {
    (-since.as_secs_f64() / span.as_secs_f64()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn it_rises_quickly_and_falls_slowly() {
        let (mut time, mut now) = (ResponseTime::default(), Instant::now());
        time.add(MILLI, now);
        for _ in 0..100 {
            now += 10 * MILLI;
            time.add(200 * MILLI, now);
        }
        assert!(time.average().unwrap() > 120 * MILLI, "{time:?}");
        for _ in 0..100 {
            now += 10 * MILLI;
            time.add(MILLI, now);
        }
        assert!(time.average().unwrap() > 100 * MILLI, "{time:?}");
        for _ in 0..5_000 {
            now += 10 * MILLI;
            time.add(MILLI, now);
        }
        assert!(time.average().unwrap() < 3 * MILLI, "{time:?}");
    }

    #[test]
    fn it_fades_where_nobody_asks() {
        let (mut time, now) = (ResponseTime::default(), Instant::now());
        time.add(200 * MILLI, now);
        assert!(time.faded(now).unwrap() > 0.19);
        assert!(time.faded(now + Duration::from_secs(60)).unwrap() < 0.001);
    }

    #[test]
    fn a_rare_sample_counts_wholly() {
        let (mut time, now) = (ResponseTime::default(), Instant::now());
        time.add(MILLI, now);
        time.add(100 * MILLI, now + Duration::from_secs(60));
        assert!(time.average().unwrap() > 99 * MILLI);
    }
}
