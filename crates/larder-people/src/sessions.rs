//! Sessions of clients that have logged in on a page: an address is a user for a time. The table has a limit of sessions, and one for each
//! user, so that nobody's addresses take the room of others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The sessions of one login. `S` is all that a session goes on with only as long as it stays the same.
#[derive(Debug)]
pub struct Sessions<U, S> {
    sessions: HashMap<IpAddr, Session<U, S>>,
    /// The addresses of each user, in the order in which they logged in.
    addresses: HashMap<String, Vec<IpAddr>>,
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
    /// Addresses of one user. A further one ends the session that began first.
    pub of_user_max: usize,
}

#[derive(Debug)]
struct Session<U, S> {
    name: String,
    user: U,
    stamp: S,
    ends: Instant,
    used: Instant,
}

/// There is no room for another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionsFull;

/// A verdict that is remembered for a session holds for this part of the time without a request, so that its requests are seen.
const SEEN_PARTS: u32 = 4;

impl<U: Clone, S: PartialEq> Sessions<U, S> {
    /// No sessions yet.
    pub fn new(limits: SessionLimits) -> Sessions<U, S> {
        Sessions { sessions: HashMap::new(), addresses: HashMap::new(), limits }
    }

    /// The user of an address, and until when that may be taken for granted. A session with another stamp is over.
    pub fn find(&mut self, address: IpAddr, stamp: &S, now: Instant) -> Option<(U, Instant)> {
        let idle = self.limits.idle;
        let session = self.sessions.get_mut(&address)?;
        if now >= session.ends || now >= session.used + idle || session.stamp != *stamp {
            self.end(address);
            return None;
        }
        session.used = now;
        Some((session.user.clone(), session.ends.min(now + idle / SEEN_PARTS)))
    }

    /// Begins the session of an address, in the place of one that it has.
    pub fn begin(
        &mut self,
        address: IpAddr,
        (name, user): (&str, U),
        stamp: S,
        now: Instant,
    ) -> Result<(), SessionsFull> {
        self.end(address);
        if self.sessions.len() >= self.limits.sessions_max {
            self.end_those_over(now);
        }
        let of_user = self.addresses.get(name).filter(|addresses| addresses.len() >= self.limits.of_user_max);
        if let Some(first) = of_user.and_then(|addresses| addresses.first().copied()) {
            self.end(first);
        }
        if self.sessions.len() >= self.limits.sessions_max {
            return Err(SessionsFull);
        }
        let ends = now + self.limits.lifetime;
        self.sessions.insert(address, Session { name: name.to_owned(), user, stamp, ends, used: now });
        self.addresses.entry(name.to_owned()).or_default().push(address);
        Ok(())
    }

    /// Ends the session of an address; whether it had one.
    pub fn end(&mut self, address: IpAddr) -> bool {
        let Some(session) = self.sessions.remove(&address) else { return false };
        if let Some(addresses) = self.addresses.get_mut(&session.name) {
            addresses.retain(|known| *known != address);
            if addresses.is_empty() {
                self.addresses.remove(&session.name);
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
        let over: Vec<IpAddr> =
            self.sessions.iter().filter(|(_, session)| is_over(session)).map(|(address, _)| *address).collect();
        over.into_iter().for_each(|address| _ = self.end(address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let start = |sessions: &mut Sessions<&str, u8>| sessions.begin(address(1), ("ada", "ada"), 7, begin).unwrap();
        start(&mut sessions);
        // Seen now and then, it lasts for its time and no longer.
        for minutes in (0..60).step_by(9) {
            let now = begin + minutes * MINUTE;
            let (user, until) = sessions.find(address(1), &7, now).unwrap();
            assert_eq!((user, until), ("ada", (now + LIMITS.idle / 4).min(begin + LIMITS.lifetime)), "{minutes}");
        }
        assert_eq!(sessions.find(address(2), &7, begin), None, "another address is nobody's");
        assert_eq!(sessions.find(address(1), &7, begin + LIMITS.lifetime), None);
        start(&mut sessions);
        assert_eq!(sessions.find(address(1), &7, begin + LIMITS.idle), None);
        start(&mut sessions);
        assert_eq!(sessions.find(address(1), &8, begin), None);
        assert_eq!(sessions.find(address(1), &7, begin), None, "what is over stays so");
        start(&mut sessions);
        assert!(sessions.end(address(1)) && !sessions.end(address(1)) && sessions.is_empty());
        assert!(sessions.addresses.is_empty());
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
        assert_eq!(begin(202, "cyd", now + LIMITS.idle), Ok(()), "those that are over make room");
        assert_eq!(sessions.len(), 1);
        let (mut sessions, now) = (Sessions::new(LIMITS), Instant::now());
        for number in 1..=3 {
            sessions.begin(address(number), ("eve", "eve"), 0, now).unwrap();
        }
        let has = [1, 2, 3].map(|number| sessions.find(address(number), &0, now).is_some());
        assert_eq!(has, [false, true, true], "the first address of a user makes room for the third");
    }
}
