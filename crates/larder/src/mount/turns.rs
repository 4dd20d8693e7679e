//! The requests that a process has which serves one at a time, in the order in which they were sent to it. A process that
//! answers quickly gets further requests while it serves one, so that it finds the next one in its socket and need not sleep
//! between two (decision 058).

use super::Process;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Requests that wait in the sockets of a process behind the one that it serves.
const AHEAD_MAX: usize = 7;

/// A process is quick while its requests take less than this in the mean.
const QUICK: Duration = Duration::from_micros(500);

/// Before anything is known of a process: it has to answer some twenty requests quickly first.
const UNKNOWN: Duration = Duration::from_millis(10);

/// A request whose turn has not come after this time is taken back. A process that serves one request for longer gets no
/// further one meanwhile.
pub const TURN_WITHIN: Duration = Duration::from_millis(2);

/// The requests of one process.
pub(super) struct Turns {
    /// The first one is served.
    line: VecDeque<u64>,
    next: u64,
    /// Since when the first one is served.
    since: Instant,
    /// The mean time of a request; the last eight count most.
    mean: Duration,
}

impl Turns {
    pub fn new(now: Instant) -> Turns {
        Turns { line: VecDeque::new(), next: 0, since: now, mean: UNKNOWN }
    }

    /// Whether one more request may be sent to the process while it serves another one, and will have its turn in time.
    pub fn take_one_more(&self, now: Instant) -> bool {
        let before = self.line.len();
        self.mean < QUICK
            && before <= AHEAD_MAX
            && self.mean * u32::try_from(before).unwrap_or(u32::MAX) < TURN_WITHIN
            && now.saturating_duration_since(self.since) < TURN_WITHIN
    }

    pub fn join(&mut self, now: Instant) -> u64 {
        if self.line.is_empty() {
            self.since = now;
        }
        self.next += 1;
        self.line.push_back(self.next);
        self.next
    }

    /// The request is over. One that was not answered (taken back, most likely) says nothing of how quick the process is.
    pub fn leave(&mut self, turn: u64, now: Instant, is_answered: bool) {
        match self.line.iter().position(|other| *other == turn) {
            Some(0) => {
                self.line.pop_front();
                if is_answered {
                    self.mean = (self.mean * 7 + now.saturating_duration_since(self.since)) / 8;
                }
                self.since = now;
            }
            Some(at) => drop(self.line.remove(at)),
            None => {}
        }
    }

    fn has_come(&self, turn: u64) -> bool {
        self.line.front().is_none_or(|first| *first >= turn)
    }
}

/// The turn of one request in the process that it was sent to.
pub struct Turn {
    process: Arc<Process>,
    number: u64,
}

impl Turn {
    pub(super) fn of(process: &Arc<Process>, number: u64) -> Turn {
        Turn { process: Arc::clone(process), number }
    }

    /// Whether all requests that were sent to the process before are over.
    pub fn has_come(&self) -> bool {
        self.process.turns.as_ref().is_none_or(|turns| turns.lock().has_come(self.number))
    }
}

/// The turns of a process that may have so many requests at once; `None` where it may have several.
pub(super) fn of_process(requests_max: usize) -> Option<Mutex<Turns>> {
    (requests_max == 1).then(|| Mutex::new(Turns::new(Instant::now())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(turns: &mut Turns, now: &mut Instant, took: Duration) {
        let turn = turns.join(*now);
        *now += took;
        turns.leave(turn, *now, true);
    }

    fn fill(turns: &mut Turns, now: Instant) -> Vec<u64> {
        std::iter::from_fn(|| turns.take_one_more(now).then(|| turns.join(now))).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_requests_are_sent_than_have_their_turn_in_time() {
        for (micros, wanted) in [(400, 5), (300, 7), (200, AHEAD_MAX + 1)] {
            let mut now = Instant::now();
            let mut turns = Turns::new(now);
            (0..200).for_each(|_| serve(&mut turns, &mut now, Duration::from_micros(micros)));
            assert_eq!(fill(&mut turns, now).len(), wanted, "{micros} µs");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_were_taken_back_are_no_quick_answers() {
        let mut now = Instant::now();
        let mut turns = Turns::new(now);
        (0..40).for_each(|_| serve(&mut turns, &mut now, Duration::from_micros(30)));
        let line = fill(&mut turns, now);
        now += Duration::from_millis(8);
        turns.leave(line[0], now, true);
        assert!(turns.mean > QUICK, "one slow answer");
        let mean = turns.mean;
        line[1..].iter().for_each(|turn| turns.leave(*turn, now, false));
        assert!(turns.mean == mean && !turns.take_one_more(now));
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_has_to_be_quick_to_get_a_request_ahead() {
        let mut turns = Turns::new(Instant::now());
        let mut now = Instant::now();
        serve(&mut turns, &mut now, Duration::from_micros(30));
        assert!(!turns.take_one_more(now), "one quick answer is not enough");
        (0..40).for_each(|_| serve(&mut turns, &mut now, Duration::from_micros(30)));
        let waiting = fill(&mut turns, now);
        assert_eq!(waiting.len(), AHEAD_MAX + 1);
        assert!(turns.has_come(waiting[0]) && !turns.has_come(waiting[1]));
        // One that was taken back leaves the others in their order, and is no answer.
        turns.leave(waiting[3], now, false);
        let mean = turns.mean;
        assert_eq!(turns.line.len(), AHEAD_MAX);
        turns.leave(waiting[0], now, true);
        assert!(turns.mean < mean && turns.has_come(waiting[1]) && !turns.has_come(waiting[2]));
        assert!(turns.take_one_more(now));
        assert!(!turns.take_one_more(now + TURN_WITHIN), "the first one takes long");
        serve(&mut turns, &mut now, Duration::ZERO);
        turns.line.clear();
        serve(&mut turns, &mut now, Duration::from_millis(8));
        assert!(!turns.take_one_more(now), "one slow answer");
    }
}
