//! Sessions of clients that have logged in on a page: a key, which is the client's address or what a cookie says, is a user for a time. The
//! table has a limit of sessions, and one for each user, so that nobody's sessions take the room of others.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// The sessions of one login. `S` is all that a session goes on with only as long as it stays the same.
#[derive(Debug)]
pub struct Sessions<K, U, S> {
    sessions: HashMap<K, Session<U, S>>,
    /// The keys of each user, in the order in which they logged in.
    keys: HashMap<String, Vec<K>>,
    limits: SessionLimits,
}

/// The limits of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// How long a session lasts.
    pub lifetime: Duration,
    /// How long it lasts without a request.
    pub idle: Duration,
    /// All sessions.
    pub sessions_max: usize,
    /// Sessions of one user. A further one ends the session that began first.
    pub of_user_max: usize,
}

/// The times of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionTimes {
    /// When it began.
    pub began: Instant,
    /// When it was seen last.
    pub used: Instant,
}

/// A session that goes on.
#[derive(Debug, PartialEq, Eq)]
pub struct FoundSession<U> {
    /// Its user.
    pub user: U,
    /// Until when that may be taken for granted.
    pub until: Instant,
    /// A part of `idle` has passed since this was last so: whoever keeps sessions elsewhere too notes that this one was seen.
    pub is_to_note: bool,
}

#[derive(Debug)]
struct Session<U, S> {
    name: String,
    user: U,
    stamp: S,
    ends: Instant,
    used: Instant,
    noted: Instant,
}

/// There is no room for another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionsFull;

/// A verdict that is remembered for a session holds for this part of the time without a request, so that its requests are seen.
const SEEN_PARTS: u32 = 4;

impl<K: Hash + Eq + Copy, U: Clone, S> Sessions<K, U, S> {
    /// No sessions yet.
    pub fn new(limits: SessionLimits) -> Sessions<K, U, S> {
        Sessions { sessions: HashMap::new(), keys: HashMap::new(), limits }
    }

    /// The session of a key. One whose stamp does not hold any more is over.
    pub fn find(&mut self, key: K, holds: impl FnOnce(&U, &S) -> bool, now: Instant) -> Option<FoundSession<U>> {
        let idle = self.limits.idle;
        let session = self.sessions.get_mut(&key)?;
        if now >= session.ends || now >= session.used + idle || !holds(&session.user, &session.stamp) {
            self.end(key);
            return None;
        }
        session.used = now;
        let is_to_note = now >= session.noted + idle / SEEN_PARTS;
        if is_to_note {
            session.noted = now;
        }
        Some(FoundSession { user: session.user.clone(), until: session.ends.min(now + idle / SEEN_PARTS), is_to_note })
    }

    /// Begins the session of a key, in the place of one that it has. Gives the key of the session that this one ends, because its user has
    /// too many.
    pub fn begin(
        &mut self,
        key: K,
        (name, user): (&str, U),
        stamp: S,
        now: Instant,
    ) -> Result<Option<K>, SessionsFull> {
        self.go_on(key, (name, user), stamp, (SessionTimes { began: now, used: now }, now))
    }

    /// As [`Sessions::begin`], for a session that began before.
    pub fn go_on(
        &mut self,
        key: K,
        (name, user): (&str, U),
        stamp: S,
        (times, now): (SessionTimes, Instant),
    ) -> Result<Option<K>, SessionsFull> {
        self.end(key);
        if self.sessions.len() >= self.limits.sessions_max {
            self.end_those_over(now);
        }
        let of_user = self.keys.get(name).filter(|keys| keys.len() >= self.limits.of_user_max);
        let first = of_user.and_then(|keys| keys.first().copied());
        if let Some(first) = first {
            self.end(first);
        }
        if self.sessions.len() >= self.limits.sessions_max {
            return Err(SessionsFull);
        }
        let (ends, used) = (times.began + self.limits.lifetime, times.used);
        self.sessions.insert(key, Session { name: name.to_owned(), user, stamp, ends, used, noted: used });
        self.keys.entry(name.to_owned()).or_default().push(key);
        Ok(first)
    }

    /// Ends the session of a key; whether it had one.
    pub fn end(&mut self, key: K) -> bool {
        let Some(session) = self.sessions.remove(&key) else { return false };
        if let Some(keys) = self.keys.get_mut(&session.name) {
            keys.retain(|known| *known != key);
            if keys.is_empty() {
                self.keys.remove(&session.name);
            }
        }
        true
    }

    /// How many sessions there are, those that are over and that nobody has looked at since among them.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    fn end_those_over(&mut self, now: Instant) {
        let idle = self.limits.idle;
        let is_over = |session: &Session<U, S>| now >= session.ends || now >= session.used + idle;
        let over: Vec<K> = self.sessions.iter().filter(|(_, session)| is_over(session)).map(|(key, _)| *key).collect();
        over.into_iter().for_each(|key| _ = self.end(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    const MINUTE: Duration = Duration::from_secs(60);
    const LIMITS: SessionLimits = SessionLimits {
        lifetime: Duration::from_secs(3_600),
        idle: Duration::from_secs(600),
        sessions_max: 4,
        of_user_max: 2,
    };

    fn address(number: u8) -> IpAddr {
        [192, 0, 2, number].into()
    }

    #[test]
    fn a_session_ends_by_its_time_without_requests_by_its_stamp_and_by_hand() {
        let (mut sessions, begin) = (Sessions::new(LIMITS), Instant::now());
        let start =
            |sessions: &mut Sessions<IpAddr, &str, u8>| sessions.begin(address(1), ("ada", "ada"), 7, begin).unwrap();
        start(&mut sessions);
        // Seen now and then, it lasts for its time and no longer.
        for minutes in (0..60).step_by(9) {
            let now = begin + minutes * MINUTE;
            let found = sessions.find(address(1), |_, stamp| *stamp == 7, now).unwrap();
            let until = (now + LIMITS.idle / 4).min(begin + LIMITS.lifetime);
            assert_eq!(found, FoundSession { user: "ada", until, is_to_note: minutes > 0 }, "{minutes}");
            let again = sessions.find(address(1), |_, stamp| *stamp == 7, now + MINUTE).unwrap();
            assert!(!again.is_to_note, "{minutes}");
        }
        assert_eq!(sessions.find(address(2), |_, stamp| *stamp == 7, begin), None, "another address is nobody's");
        assert_eq!(sessions.find(address(1), |_, stamp| *stamp == 7, begin + LIMITS.lifetime), None);
        start(&mut sessions);
        assert_eq!(sessions.find(address(1), |_, stamp| *stamp == 7, begin + LIMITS.idle), None);
        start(&mut sessions);
        assert_eq!(sessions.find(address(1), |_, stamp| *stamp == 8, begin), None);
        assert_eq!(sessions.find(address(1), |_, stamp| *stamp == 7, begin), None, "what is over stays so");
        start(&mut sessions);
        assert!(sessions.end(address(1)) && !sessions.end(address(1)) && sessions.is_empty());
        assert!(sessions.keys.is_empty());
    }

    #[test]
    fn a_session_that_began_before_has_the_rest_of_its_time() {
        let (mut sessions, now) = (Sessions::new(LIMITS), Instant::now() + 100 * MINUTE);
        let mut go_on = |began: u32, used: u32| {
            let times = SessionTimes { began: now - began * MINUTE, used: now - used * MINUTE };
            sessions.go_on(address(1), ("ada", "ada"), 0, (times, now)).unwrap();
            sessions.find(address(1), |_, _| true, now).map(|found| (found.until, found.is_to_note))
        };
        assert_eq!(go_on(59, 5), Some((now + MINUTE, true)));
        assert_eq!(go_on(60, 5), None, "its time is over");
        assert_eq!(go_on(30, 10), None, "nobody has asked for too long");
    }

    #[test]
    fn no_user_takes_the_room_of_others_and_the_table_has_a_limit() {
        let (mut sessions, now) = (Sessions::new(LIMITS), Instant::now());
        let mut begin =
            |number: u8, name: &'static str, now: Instant| sessions.begin(address(number), (name, name), 0, now);
        for number in 0..100 {
            begin(number, "eve", now).unwrap();
        }
        begin(200, "ada", now).unwrap();
        // Another user at the same address takes its place.
        begin(200, "bob", now).unwrap();
        begin(201, "ada", now).unwrap();
        assert_eq!(begin(202, "cyd", now), Err(SessionsFull));
        assert_eq!(begin(202, "cyd", now + LIMITS.idle), Ok(None), "those that are over make room");
        assert_eq!(sessions.len(), 1);
        let (mut sessions, now) = (Sessions::new(LIMITS), Instant::now());
        let ended = [1, 2, 3].map(|number| sessions.begin(address(number), ("eve", "eve"), 0, now).unwrap());
        assert_eq!(ended, [None, None, Some(address(1))]);
        let has = [1, 2, 3].map(|number| sessions.find(address(number), |_, stamp| *stamp == 0, now).is_some());
        assert_eq!(has, [false, true, true], "the first address of a user makes room for the third");
    }
}
