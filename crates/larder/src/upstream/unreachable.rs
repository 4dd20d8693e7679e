//! Which addresses did not answer of late, and which names were not resolved, so that not every request pays the whole
//! connect time-out for the same dead network. One table for all workers (decision 028).
//!
//! A target that stayed silent is left alone for a pause that doubles with each further failure. After the pause one
//! attempt is made by the next request; all others fail at once until that attempt has ended. An answer of any kind, a
//! refusal included, clears the entry.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Targets remembered, all workers together: less than 0.5 MB, since a name has at most 255 bytes.
const TARGETS_MAX: usize = 1024;
/// The first pause, which doubles with each further failure up to the second.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// After this long without a new failure an entry says nothing any more.
const FORGET_AFTER: Duration = Duration::from_secs(300);
/// An attempt that is given up before its end counts as a failure when it was silent for so long: a client's own
/// time-out is often shorter than ours. By then a SYN was sent three times.
const SILENCE: Duration = Duration::from_secs(3);

/// A target that may be out of reach.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    /// A TCP port.
    Address(SocketAddr),
    /// A TCP port that accepts connections and may say nothing in the TLS handshake.
    Tls(SocketAddr),
    /// A name, and which of its addresses are asked for.
    Name(Arc<str>, Addresses),
}

/// Which addresses of a name are asked for. The two families are asked for apart: there are name servers that answer for
/// one of them only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Addresses {
    V6,
    V4,
    /// Of both families, as the system's resolver tells them.
    All,
}

/// The targets that were silent, of all workers.
#[derive(Default)]
pub(super) struct Unreachable {
    targets: Mutex<HashMap<Target, Silent>>,
    /// How many there are, to be read without the lock: mostly none.
    count: AtomicUsize,
}

struct Silent {
    failures: u32,
    failed_at: Instant,
    retry_at: Instant,
    /// An attempt is under way that was permitted after the pause.
    probing: bool,
}

/// A target that is not tried now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Avoided {
    failures: u32,
    retry_in: Duration,
}

impl fmt::Display for Avoided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.failures {
            1 => f.write_str("no answer to the last attempt")?,
            several => write!(f, "no answer to the last {several} attempts")?,
        }
        match self.retry_in {
            Duration::ZERO => f.write_str("; the next one is under way"),
            pause => write!(f, "; the next one in {:.1} s", pause.as_secs_f64()),
        }
    }
}

impl Unreachable {
    /// Leave to try a target now. The caller says within which time the attempt has to end.
    pub fn attempt(self: &Arc<Self>, target: Target, limit: Duration, now: Instant) -> Result<Attempt, Avoided> {
        let probes = match self.count.load(Ordering::Relaxed) {
            0 => false,
            _ => self.permit(&target, now)?,
        };
        let silence = SILENCE.min(limit / 2);
        Ok(Attempt { memory: Arc::clone(self), target, began: now, silence, probes, ended: false })
    }

    /// Whether the attempt is the one after a pause; `Err` when it must not be made.
    fn permit(&self, target: &Target, now: Instant) -> Result<bool, Avoided> {
        let mut targets = self.targets.lock();
        let Some(silent) = targets.get_mut(target) else { return Ok(false) };
        if now.saturating_duration_since(silent.retry_at) >= FORGET_AFTER {
            targets.remove(target);
            self.count.store(targets.len(), Ordering::Relaxed);
            return Ok(false);
        }
        if silent.probing || now < silent.retry_at {
            let retry_in = silent.retry_at.saturating_duration_since(now);
            return Err(Avoided { failures: silent.failures, retry_in });
        }
        silent.probing = true;
        Ok(true)
    }

    fn failed(&self, attempt: &Attempt, now: Instant) {
        let mut targets = self.targets.lock();
        if !targets.contains_key(&attempt.target) {
            make_room(&mut targets, now);
        }
        let silent = targets.entry(attempt.target.clone()).or_insert(Silent {
            failures: 0,
            failed_at: attempt.began,
            retry_at: now,
            probing: false,
        });
        silent.probing &= !attempt.probes;
        // Attempts that went on side by side are one failure.
        if attempt.began >= silent.failed_at {
            let pause = PAUSE.0.saturating_mul(1 << silent.failures.min(16)).min(PAUSE.1);
            silent.failures = silent.failures.saturating_add(1);
            (silent.failed_at, silent.retry_at) = (now, now + pause);
        }
        self.count.store(targets.len(), Ordering::Relaxed);
    }

    fn answered(&self, target: &Target) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut targets = self.targets.lock();
        if targets.remove(target).is_some() {
            self.count.store(targets.len(), Ordering::Relaxed);
        }
    }

    /// Forgets all pauses: the network is back. An attempt that is under way is noted anew when it fails.
    pub fn forget_all(&self) {
        let mut targets = self.targets.lock();
        targets.clear();
        self.count.store(0, Ordering::Relaxed);
    }

    fn given_up(&self, target: &Target) {
        if let Some(silent) = self.targets.lock().get_mut(target) {
            silent.probing = false;
        }
    }
}

/// Room for one more: what says nothing any more goes, else what failed longest ago.
fn make_room(targets: &mut HashMap<Target, Silent>, now: Instant) {
    if targets.len() < TARGETS_MAX {
        return;
    }
    targets.retain(|_, silent| silent.probing || now.saturating_duration_since(silent.retry_at) < FORGET_AFTER);
    if targets.len() >= TARGETS_MAX
        && let Some(oldest) =
            targets.iter().min_by_key(|(_, silent)| silent.failed_at).map(|(target, _)| target.clone())
    {
        targets.remove(&oldest);
    }
}

/// One attempt to reach a target. Dropped without a result it counts as a failure when it lasted long enough.
#[must_use]
pub(super) struct Attempt {
    memory: Arc<Unreachable>,
    target: Target,
    began: Instant,
    silence: Duration,
    probes: bool,
    ended: bool,
}

impl Attempt {
    /// Somebody answered, be it with a refusal.
    pub fn answered(mut self) {
        self.ended = true;
        self.memory.answered(&self.target);
    }

    /// The network or the time said that nobody answers.
    pub fn failed(mut self, now: Instant) {
        self.ended = true;
        self.memory.failed(&self, now);
    }

    fn given_up(&self, now: Instant) {
        if now.saturating_duration_since(self.began) >= self.silence {
            self.memory.failed(self, now);
        } else if self.probes {
            self.memory.given_up(&self.target);
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.ended {
            self.given_up(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    /// A table, and a time that passes when it is told to.
    struct Play {
        memory: Arc<Unreachable>,
        now: Instant,
    }

    impl Play {
        fn new() -> Play {
            Play { memory: Arc::default(), now: Instant::now() }
        }

        fn port(&self, number: u16) -> Result<Attempt, Avoided> {
            let target = Target::Address(SocketAddr::from(([192, 0, 2, 1], number)));
            self.memory.attempt(target, LIMIT, self.now)
        }

        fn pass(&mut self, millis: u64) {
            self.now += Duration::from_millis(millis);
        }

        fn give_up(&self, mut attempt: Attempt) {
            attempt.given_up(self.now);
            attempt.ended = true;
        }
    }

    #[test]
    fn the_pause_grows_and_one_attempt_is_made_after_it() {
        let mut play = Play::new();
        for pause in [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
            let attempt = play.port(80).unwrap();
            play.pass(10_000);
            attempt.failed(play.now);
            play.pass(pause - 1);
            assert!(play.port(80).is_err(), "within {pause} ms");
            play.pass(1);
            let probe = play.port(80).unwrap();
            assert!(play.port(80).is_err(), "one at a time");
            assert!(play.port(81).is_ok(), "another port is another target");
            play.give_up(probe);
        }
        play.port(80).unwrap().answered();
        assert!(play.port(80).is_ok());
        assert_eq!(play.memory.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn attempts_side_by_side_are_one_failure() {
        let mut play = Play::new();
        let attempts: Vec<Attempt> = (0..50).map(|_| play.port(80).unwrap()).collect();
        play.pass(10_000);
        attempts.into_iter().for_each(|attempt| attempt.failed(play.now));
        let avoided = play.port(80).err().unwrap();
        assert_eq!(avoided, Avoided { failures: 1, retry_in: Duration::from_secs(1) });
        assert_eq!(avoided.to_string(), "no answer to the last attempt; the next one in 1.0 s");
    }

    #[test]
    fn who_leaves_early_says_nothing_and_who_leaves_late_does() {
        let mut play = Play::new();
        let early = play.port(80).unwrap();
        play.pass(2_000);
        play.give_up(early);
        let late = play.port(80).unwrap();
        play.pass(3_000);
        play.give_up(late);
        assert!(play.port(80).is_err());
        play.pass(1_000);
        play.give_up(play.port(80).unwrap());
        let probe = play.port(80);
        assert!(probe.is_ok(), "a probe that was given up leaves its turn to the next");
        probe.unwrap().failed(play.now);
        play.pass(2_000 + 300_000);
        let first = play.port(80).unwrap();
        assert!(play.port(80).is_ok(), "an old failure says nothing");
        first.answered();
    }

    #[test]
    fn the_table_has_a_limit() {
        let mut play = Play::new();
        for number in 0..3 * TARGETS_MAX as u16 {
            play.pass(1);
            play.port(number).unwrap().failed(play.now);
            assert!(play.memory.targets.lock().len() <= TARGETS_MAX);
            assert!(play.port(number).is_err(), "the newest is remembered");
        }
    }
}
