//! The only place that reads the clock.

use larder_wire::date::Stamp;
use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime};

/// The wall clock in whole seconds. A clock before 1970 reads as 0.
pub fn now() -> Stamp {
    Stamp(wall().as_secs())
}

/// The monotonic clock.
#[cfg(not(test))]
#[inline]
pub fn instant() -> Instant {
    Instant::now()
}

/// The monotonic clock. In a simulation it is that of the runtime, which stands still while there is something to do.
#[cfg(test)]
pub fn instant() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
thread_local! {
    static SIMULATED: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
}

/// From now on this thread's wall clock follows the monotonic one, beginning with this time; with `None` it is the real one again.
#[cfg(test)]
pub fn simulate(wall: Option<Duration>) {
    SIMULATED.set(wall.map(|wall| (instant(), wall)));
}

/// Has the wall clock of a simulation jump forward.
#[cfg(test)]
pub fn jump(by: Duration) {
    SIMULATED.set(SIMULATED.get().map(|(since, wall)| (since, wall + by)));
}

/// The wall clock as time since 1970, for log lines.
pub fn wall() -> Duration {
    #[cfg(test)]
    if let Some((since, wall)) = SIMULATED.get() {
        return wall + instant().saturating_duration_since(since);
    }
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// The wall clock as the kernel's last tick left it, some milliseconds ago: much cheaper to read.
fn coarse_wall() -> Duration {
    #[cfg(test)]
    if SIMULATED.get().is_some() {
        return wall();
    }
    duration(rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse))
}

/// The monotonic clock as other processes of this machine read it, since a moment that they all know.
pub fn shared() -> Duration {
    duration(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic))
}

/// The time since the machine started, that in which it slept included, for which the monotonic clock stands still.
pub fn since_boot() -> Duration {
    duration(rustix::time::clock_gettime(rustix::time::ClockId::Boottime))
}

fn duration(time: rustix::time::Timespec) -> Duration {
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), nanos)
}

/// Minutes since 1970, by the wall clock.
pub fn minute() -> i64 {
    i64::try_from(wall().as_secs() / 60).unwrap_or(i64::MAX)
}

/// How long a reading of the wall clock is continued by the monotonic one.
const CARRIED: Duration = Duration::from_millis(100);

/// The wall clock for those who have read the monotonic one already: a request needs both, and each reading costs it about a
/// hundredth of its time. A step of the wall clock is seen a tenth of a second later.
#[derive(Debug, Default)]
pub struct Carried {
    last: Cell<Option<(Instant, Duration)>>,
    row: Cell<Row>,
    steps: Steps,
}

/// When a step of the wall clock is seen. The monotonic clock stands still while the machine sleeps, so that the wall clock seems to step
/// when it wakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Steps {
    /// A tenth of a second later at most.
    #[default]
    Soon,
    /// By the next request, by the kernel's coarse clock: a fifth of a reading.
    AtOnce,
}

/// Whether requests come one directly behind the other.
#[derive(Clone, Copy, Debug, Default)]
enum Row {
    #[default]
    None,
    /// They do: the end of one is the beginning of the next.
    Since(Option<Instant>),
}

impl Carried {
    /// A clock that sees steps so.
    pub fn new(steps: Steps) -> Carried {
        Carried { steps, ..Carried::default() }
    }

    /// From here on requests come one directly behind the other, until [`Carried::end_batch`]: one reading serves for the end of
    /// one and the beginning of the next, which has its reading in its time then.
    pub fn begin_batch(&self) {
        self.row.set(Row::Since(None));
    }

    /// The next request does not follow directly: it reads the clock for itself.
    pub fn end_batch(&self) {
        self.row.set(Row::None);
    }

    /// The moment when a request begins.
    pub fn begins(&self) -> Instant {
        match self.row.get() {
            Row::Since(Some(end)) => end,
            Row::Since(None) | Row::None => instant(),
        }
    }

    /// The moment when one ends.
    pub fn ends(&self) -> Instant {
        let now = instant();
        if let Row::Since(_) = self.row.get() {
            self.row.set(Row::Since(Some(now)));
        }
        now
    }

    /// Whether the wall clock is another one than the one that was carried here.
    fn has_stepped(&self, carried: Duration) -> bool {
        self.steps == Steps::AtOnce && coarse_wall().abs_diff(carried) >= CARRIED
    }

    /// The wall clock at this moment, which is now.
    pub fn wall_at(&self, now: Instant) -> Duration {
        match self.last.get().map(|(then, wall)| (now.saturating_duration_since(then), wall)) {
            Some((since, wall)) if since < CARRIED && !self.has_stepped(wall + since) => wall + since,
            _ => {
                let wall = wall();
                self.last.set(Some((now, wall)));
                wall
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_carried_reading_is_the_wall_clock() {
        let carried = Carried::default();
        let start = Instant::now();
        let first = carried.wall_at(start);
        assert_eq!(carried.wall_at(start + Duration::from_millis(99)), first + Duration::from_millis(99));
        // Read anew: the wall clock itself has hardly moved.
        assert!(carried.wall_at(start + Duration::from_millis(100)) < first + Duration::from_millis(99));
    }

    #[test]
    fn a_step_is_seen_by_the_next_request_where_it_must_be() {
        for (steps, seen) in [(Steps::Soon, false), (Steps::AtOnce, true)] {
            let (carried, start) = (Carried::new(steps), Instant::now());
            // As after an hour of sleep: the wall clock has gone on, the monotonic one has not.
            carried.last.set(Some((start, wall() - Duration::from_secs(3_600))));
            let seen_at = carried.wall_at(start);
            let slept = wall().saturating_sub(seen_at);
            assert_eq!(slept < Duration::from_secs(60), seen, "{steps:?}: {slept:?}");
            assert_eq!(
                carried.wall_at(start + Duration::from_millis(1)),
                carried.wall_at(start) + Duration::from_millis(1)
            );
        }
    }

    #[test]
    fn in_a_row_the_end_of_one_is_the_beginning_of_the_next() {
        let carried = Carried::default();
        let alone = carried.ends();
        assert!(carried.begins() >= alone);
        carried.begin_batch();
        let end = carried.ends();
        assert_eq!(carried.begins(), end);
        carried.end_batch();
        std::thread::sleep(Duration::from_millis(1));
        assert!(carried.begins() > end);
    }
}
