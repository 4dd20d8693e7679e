//! Links in user space: delay, jitter, bandwidth, loss and a congestion window, a lane for each direction of each
//! connection. A lane is a function of bytes and time; it touches no socket and no clock.
//!
//! The model has a constant delay and a uniform jitter on top, in order; a serial line of so many bits a second; a
//! congestion window that begins with ten segments, doubles each round trip and, after a first loss, grows by a segment
//! each round trip; independent loss of segments, repaired one round trip later if three segments follow, else by a
//! time-out; a window that begins anew after an idle second; the round trip of the handshake. It has no queues that
//! overflow, no acknowledgements that get lost and no other traffic. Segments carry 1,460 bytes, as on Ethernet.

use crate::random::Stream;
use std::collections::VecDeque;
use std::time::Duration;

/// The properties of a link, the same both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Link {
    /// From one end to the other.
    pub delay: Duration,
    /// Largest addition to the delay.
    pub jitter: Duration,
    /// Bits per second; 0 is unlimited.
    pub bits_per_s: u64,
    /// Probability that a segment is lost.
    pub loss: f64,
}

const SEGMENT_BYTES: u64 = 1460;
const WINDOW_SEGMENTS: f64 = 10.0;
/// The time that a sender waits on top of a round trip before it sends a lost segment again.
const TIMEOUT_EXTRA: Duration = Duration::from_millis(200);
/// The time-out of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes on a line of limited bandwidth arrive in portions of about so much of its time.
const PORTION: Duration = Duration::from_millis(10);
/// After so long without traffic the window begins anew.
const IDLE_MAX: Duration = Duration::from_secs(1);

impl Link {
    /// Whether it changes nothing.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// How long a handshake keeps the one who connects waiting.
    pub fn handshake(&self, stream: &mut Stream) -> Duration {
        let round = self.delay * 2;
        match self.loss > 0.0 && stream.chance(1.0 - (1.0 - self.loss).powi(2)) {
            true => round + HANDSHAKE_TIMEOUT,
            false => round,
        }
    }
}

/// One direction of one connection.
#[derive(Clone, Debug)]
pub struct Lane {
    link: Link,
    stream: Stream,
    /// In segments.
    window: f64,
    /// Above this the window grows slowly.
    threshold: f64,
    /// When each batch under way will have been acknowledged, and its bytes.
    flying: VecDeque<(Duration, u64)>,
    flying_bytes: u64,
    line_free: Duration,
    arrived_last: Duration,
}

/// So many bytes reach the other end at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Duration,
    /// How many.
    pub bytes: u64,
}

impl Lane {
    /// A lane of a new connection.
    pub fn new(link: Link, stream: Stream) -> Self {
        Self {
            link,
            stream,
            window: WINDOW_SEGMENTS,
            threshold: f64::INFINITY,
            flying: VecDeque::new(),
            flying_bytes: 0,
            line_free: Duration::ZERO,
            arrived_last: Duration::ZERO,
        }
    }

    /// Sends bytes; says when which of them arrive, in order.
    pub fn send(&mut self, now: Duration, bytes: u64) -> Vec<Arrival> {
        if now > self.arrived_last + IDLE_MAX {
            (self.window, self.threshold) = (WINDOW_SEGMENTS, f64::INFINITY);
        }
        let (mut at, mut rest, mut arrivals) = (now, bytes, Vec::new());
        while rest > 0 {
            self.acknowledge(at);
            let window = (self.window * SEGMENT_BYTES as f64) as u64;
            let room = window.saturating_sub(self.flying_bytes);
            if room < SEGMENT_BYTES.min(rest) {
                match self.flying.front() {
                    Some((acknowledged, _)) => at = at.max(*acknowledged),
                    None => self.window = WINDOW_SEGMENTS,
                }
                continue;
            }
            let batch = room.min(rest);
            self.batch(at, batch, &mut arrivals);
            rest -= batch;
        }
        arrivals
    }

    fn acknowledge(&mut self, now: Duration) {
        while let Some((at, bytes)) = self.flying.front().copied() {
            if at > now {
                return;
            }
            self.flying.pop_front();
            self.flying_bytes -= bytes;
            let segments = bytes as f64 / SEGMENT_BYTES as f64;
            self.window += if self.window < self.threshold { segments } else { segments / self.window };
        }
    }

    /// Segments that leave together.
    fn batch(&mut self, at: Duration, bytes: u64, arrivals: &mut Vec<Arrival>) {
        let segments = bytes.div_ceil(SEGMENT_BYTES);
        let lost = (self.link.loss > 0.0).then(|| self.first_lost(segments)).flatten();
        let whole = lost.map_or(bytes, |lost| lost * SEGMENT_BYTES);
        for (part, late) in [(whole, Duration::ZERO), (bytes - whole, self.repair(lost, segments))] {
            let mut rest = part;
            while rest > 0 {
                let portion = self.portion_bytes().min(rest);
                let arrives = self.cross(at, portion) + late;
                self.arrived_last = self.arrived_last.max(arrives);
                arrivals.push(Arrival { at: self.arrived_last, bytes: portion });
                self.flying.push_back((self.arrived_last + self.link.delay, portion));
                rest -= portion;
            }
        }
        self.flying_bytes += bytes;
    }

    /// The most that arrives at once: what the line carries in [`PORTION`], in whole segments. A large window handed over
    /// as one piece would make a slow line a fast one that pauses.
    fn portion_bytes(&self) -> u64 {
        match self.link.bits_per_s {
            0 => u64::MAX,
            bits => {
                let bytes = (bits as f64 / 8.0 * PORTION.as_secs_f64()) as u64;
                (bytes / SEGMENT_BYTES).max(1) * SEGMENT_BYTES
            }
        }
    }

    /// When bytes that leave now arrive.
    fn cross(&mut self, at: Duration, bytes: u64) -> Duration {
        let line = match self.link.bits_per_s {
            0 => Duration::ZERO,
            bits => Duration::from_secs_f64(bytes as f64 * 8.0 / bits as f64),
        };
        self.line_free = self.line_free.max(at) + line;
        self.line_free + self.link.delay + self.link.jitter.mul_f64(self.stream.unit())
    }

    /// The first segment of these that is lost: one draw from the geometric distribution.
    fn first_lost(&mut self, segments: u64) -> Option<u64> {
        let place = ((1.0 - self.stream.unit()).ln() / (1.0 - self.link.loss).ln()) as u64;
        (place < segments).then_some(place)
    }

    /// How much later than without loss the lost segment and those behind it can be read.
    fn repair(&mut self, lost: Option<u64>, segments: u64) -> Duration {
        let Some(lost) = lost else { return Duration::ZERO };
        let round = self.link.delay * 2;
        self.threshold = (self.window / 2.0).max(2.0);
        if segments - lost > 3 {
            self.window = self.threshold;
            return round;
        }
        self.window = 1.0;
        round + TIMEOUT_EXTRA
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lane(link: Link) -> Lane {
        Lane::new(link, Stream::new(1, 1))
    }

    const FORTY: Duration = Duration::from_millis(40);

    #[test]
    fn a_small_message_takes_the_delay() {
        let mut lane = lane(Link { delay: FORTY, ..Link::default() });
        assert_eq!(lane.send(FORTY, 500), [Arrival { at: FORTY * 2, bytes: 500 }]);
    }

    #[test]
    fn a_long_one_takes_a_round_trip_for_each_doubling_of_the_window() {
        let mut lane = lane(Link { delay: FORTY, ..Link::default() });
        let arrivals = lane.send(Duration::ZERO, 70 * SEGMENT_BYTES);
        let sizes: Vec<u64> = arrivals.iter().map(|arrival| arrival.bytes / SEGMENT_BYTES).collect();
        assert_eq!(sizes, [10, 20, 40]);
        assert_eq!(arrivals[2].at, FORTY * 5);
    }

    #[test]
    fn a_line_carries_its_bits_per_second() {
        let mut lane = lane(Link { bits_per_s: 8_000_000, ..Link::default() });
        let last = lane.send(Duration::ZERO, 1_000_000).last().map(|arrival| arrival.at);
        assert!(last.is_some_and(|at| at.abs_diff(Duration::from_secs(1)) < Duration::from_millis(5)), "{last:?}");
    }

    #[test]
    fn a_large_window_arrives_at_the_pace_of_the_line() {
        let mut lane = lane(Link { delay: FORTY, bits_per_s: 16_000_000, ..Link::default() });
        let arrivals = lane.send(Duration::ZERO, 20_000_000);
        // Once the window covers the line, no 100 ms bring much more or less than a tenth of a second's share of 2 MB/s.
        let (mut windows, begin) = ([0; 80], Duration::from_secs(1));
        for arrival in arrivals.iter().filter(|arrival| arrival.at >= begin) {
            let window = (arrival.at - begin).as_millis() / 100;
            if let Some(bytes) = windows.get_mut(window as usize) {
                *bytes += arrival.bytes;
            }
        }
        assert!(windows.iter().all(|bytes| (180_000..220_000).contains(bytes)), "{windows:?}");
    }

    #[test]
    fn loss_is_as_frequent_as_declared() {
        let mut lane = lane(Link { delay: FORTY, loss: 0.05, ..Link::default() });
        let late = (0..20_000).filter(|number| {
            let now = Duration::from_secs(10 * number);
            lane.send(now, 1000)[0].at > now + FORTY
        });
        let share = late.count() as f64 / 20_000.0;
        assert!((share - 0.05).abs() < 0.006, "{share}");
    }

    proptest! {
        #[test]
        fn all_bytes_arrive_in_order(
            sends in prop::collection::vec((0u64..3_000_000, 1u64..500_000), 1..20),
            loss in 0.0f64..0.5,
            delay in 0u64..200_000,
            jitter in 0u64..10_000,
        ) {
            let (delay, jitter) = (Duration::from_micros(delay), Duration::from_micros(jitter));
            let mut lane = lane(Link { delay, jitter, bits_per_s: 100_000_000, loss });
            let (mut now, mut last) = (Duration::ZERO, Duration::ZERO);
            for (gap, bytes) in sends {
                now += Duration::from_micros(gap);
                let arrivals = lane.send(now, bytes);
                prop_assert_eq!(arrivals.iter().map(|arrival| arrival.bytes).sum::<u64>(), bytes);
                for arrival in arrivals {
                    prop_assert!(arrival.at >= last && arrival.at >= now + delay);
                    last = arrival.at;
                }
            }
        }
    }
}
