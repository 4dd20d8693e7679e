//! Failed logins of each client: a few at once, then one now and then (the generic cell rate algorithm: one time per client). As many
//! of its credentials are checked at once as it may still fail, so that simultaneous attempts are within the limit too.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// A client as it is counted: an IPv4 address, or a network of 64 bits in IPv6.
pub type ClientKey = [u8; 8];

/// Checks of one client at once, however often it may fail.
pub const TURNS_MAX: u32 = 32;

/// The table of clients with failed logins.
#[derive(Debug)]
pub struct Attempts {
    /// When each client's failures are paid off.
    paid_at: HashMap<ClientKey, Instant>,
    /// The same clients by that time, so that a full table is not searched.
    by_time: BTreeSet<(Instant, ClientKey)>,
    /// Checks that have begun and not ended, of clients that have any.
    turns: HashMap<ClientKey, u32>,
    /// Failures at once.
    burst: u32,
    /// One more is permitted after each such time.
    period: Duration,
    clients_max: usize,
}

/// Whether a check may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// It has begun.
    Turn,
    /// If all checks that have begun fail, the client has no further attempt: it waits for the end of one.
    Full,
    /// The client has failed too often, and has to wait so long.
    Wait(Duration),
}

impl Attempts {
    /// Nobody has failed yet.
    pub fn new(burst: usize, period: Duration, clients_max: usize) -> Attempts {
        Attempts {
            paid_at: HashMap::new(),
            by_time: BTreeSet::new(),
            turns: HashMap::new(),
            burst: u32::try_from(burst.max(1)).unwrap_or(u32::MAX),
            period,
            clients_max,
        }
    }

    /// How long a client has to wait before its next attempt; `None` where it need not.
    pub fn wait(&self, client: &ClientKey, now: Instant) -> Option<Duration> {
        let debt = self.debt(client, now);
        let allowed = self.period.saturating_mul(self.burst - 1);
        (debt > allowed).then(|| debt - allowed)
    }

    fn debt(&self, client: &ClientKey, now: Instant) -> Duration {
        self.paid_at.get(client).map_or(Duration::ZERO, |paid_at| paid_at.saturating_duration_since(now))
    }

    /// Begins a check, if the client may still fail that often and has fewer than `turns_max` under way (one is always permitted);
    /// [`Attempts::end`] has to follow.
    pub fn begin(&mut self, client: &ClientKey, turns_max: u32, now: Instant) -> Begin {
        if let Some(wait) = self.wait(client, now) {
            return Begin::Wait(wait);
        }
        let failed = self.debt(client, now).as_nanos().div_ceil(self.period.as_nanos().max(1));
        let permitted = self.burst.saturating_sub(u32::try_from(failed).unwrap_or(u32::MAX)).min(turns_max).max(1);
        match self.turns.get_mut(client) {
            Some(turns) if *turns >= permitted => return Begin::Full,
            Some(turns) => *turns += 1,
            None => _ = self.turns.insert(*client, 1),
        }
        Begin::Turn
    }

    /// A check has ended. A failed one is noted before that.
    pub fn end(&mut self, client: &ClientKey) {
        if let Some(turns) = self.turns.get_mut(client) {
            *turns -= 1;
            if *turns == 0 {
                self.turns.remove(client);
            }
        }
    }

    /// Notes that a client has failed. Where the table is full, the client whose failures are paid off first is forgotten.
    pub fn failed(&mut self, client: &ClientKey, now: Instant) {
        let known = self.paid_at.get(client).copied();
        match known {
            Some(paid_at) => _ = self.by_time.remove(&(paid_at, *client)),
            None if self.paid_at.len() >= self.clients_max => {
                if let Some((_, first)) = self.by_time.pop_first() {
                    self.paid_at.remove(&first);
                }
            }
            None => {}
        }
        // No debt is larger than all failures at once, so that nobody waits longer than one period for the next attempt.
        let most = now + self.period.saturating_mul(self.burst);
        let paid_at = (known.unwrap_or(now).max(now) + self.period).min(most);
        self.paid_at.insert(*client, paid_at);
        self.by_time.insert((paid_at, *client));
    }

    /// Clients in the table.
    pub fn len(&self) -> usize {
        self.paid_at.len()
    }

    /// Whether nobody is in it.
    pub fn is_empty(&self) -> bool {
        self.paid_at.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ClientKey = [1; 8];
    const OTHER: ClientKey = [2; 8];

    #[test]
    fn a_few_at_once_then_one_a_period() {
        let (mut attempts, begin) = (Attempts::new(3, Duration::from_secs(10), 100), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        for _ in 0..3 {
            assert_eq!(attempts.wait(&ONE, at(0)), None);
            attempts.failed(&ONE, at(0));
        }
        assert_eq!(attempts.wait(&ONE, at(0)), Some(Duration::from_secs(10)));
        assert_eq!(attempts.wait(&OTHER, at(0)), None);
        assert_eq!(attempts.wait(&ONE, at(9)), Some(Duration::from_secs(1)));
        assert_eq!(attempts.wait(&ONE, at(10)), None);
        attempts.failed(&ONE, at(10));
        assert_eq!(attempts.wait(&ONE, at(10)), Some(Duration::from_secs(10)));
        assert_eq!(attempts.wait(&ONE, at(60)), None);
    }

    #[test]
    fn no_more_begin_at_once_than_may_fail() {
        let (mut attempts, now) = (Attempts::new(3, Duration::from_secs(10), 100), Instant::now());
        let begun: Vec<Begin> = (0..4).map(|_| attempts.begin(&ONE, TURNS_MAX, now)).collect();
        assert_eq!(begun, [Begin::Turn, Begin::Turn, Begin::Turn, Begin::Full]);
        assert_eq!(attempts.begin(&OTHER, TURNS_MAX, now), Begin::Turn);
        // One was right: another one begins. One has failed: none does.
        attempts.end(&ONE);
        assert_eq!(attempts.begin(&ONE, TURNS_MAX, now), Begin::Turn);
        attempts.failed(&ONE, now);
        attempts.end(&ONE);
        assert_eq!(attempts.begin(&ONE, TURNS_MAX, now), Begin::Full);
        for _ in 0..2 {
            attempts.failed(&ONE, now);
            attempts.end(&ONE);
        }
        assert_eq!(attempts.begin(&ONE, TURNS_MAX, now), Begin::Wait(Duration::from_secs(10)));
        attempts.end(&OTHER);
        let two: Vec<Begin> = (0..2).map(|_| attempts.begin(&OTHER, 1, now)).collect();
        assert_eq!(two, [Begin::Turn, Begin::Full], "fewer than may fail");
        attempts.end(&OTHER);
        assert!(attempts.turns.is_empty(), "nothing is kept of checks that have ended");
    }

    #[test]
    fn the_table_has_a_limit() {
        let (mut attempts, now) = (Attempts::new(1, Duration::from_secs(10), 50), Instant::now());
        for number in 0..200_u64 {
            attempts.failed(&number.to_be_bytes(), now + Duration::from_millis(number));
            attempts.failed(&number.to_be_bytes(), now + Duration::from_millis(number));
        }
        assert_eq!((attempts.len(), attempts.by_time.len()), (50, 50));
        assert!(attempts.wait(&199_u64.to_be_bytes(), now + Duration::from_secs(1)).is_some());
        assert!(attempts.wait(&149_u64.to_be_bytes(), now + Duration::from_secs(1)).is_none());
    }
}
