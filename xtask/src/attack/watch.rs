//! The good client: what it gets while an attack goes on, and whether it is served afterwards.

use super::horde::connect_from;
use super::origin::{BODY, HIT};
use crate::shell::Trouble;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Where it comes from: an address that no attack uses.
const GOOD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
/// How long it waits for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Hits between two misses.
const HITS_PER_MISS: usize = 20;

/// The good client's observations.
#[derive(Debug, Default)]
pub struct Seen {
    /// Times of hits, those that failed among them with the time that was waited.
    times: Vec<Duration>,
    /// Misses that were answered.
    pub misses: usize,
    /// Misses that were not, or not in time.
    pub failed: usize,
    /// Answers with another body than the origin's.
    pub wrong: usize,
}

impl Seen {
    /// Hits that were answered or waited for in vain.
    pub fn hits(&self) -> usize {
        self.times.iter().filter(|time| **time < PATIENCE).count()
    }

    /// The median of all hits.
    pub fn median(&self) -> Duration {
        self.at(50)
    }

    /// The time that one hit in a hundred exceeds.
    pub fn late(&self) -> Duration {
        self.at(99)
    }

    fn at(&self, percent: usize) -> Duration {
        let mut times = self.times.clone();
        times.sort();
        times.get((times.len() * percent / 100).min(times.len().saturating_sub(1))).copied().unwrap_or(PATIENCE)
    }
}

/// Stores what is to be a hit.
pub fn warm(site: u16) -> Result<(), Trouble> {
    for _ in 0..2 {
        ask(site, HIT, Duration::from_secs(10)).map_err(|error| format!("the first request failed: {error}"))?;
    }
    Ok(())
}

/// Asks until it is told to stop: mostly for what is stored, now and then for what is not; a connection each, as a new
/// visitor has.
pub fn good_client(site: u16, goes_on: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    while goes_on.load(Ordering::Relaxed) {
        for _ in 0..HITS_PER_MISS {
            let began = Instant::now();
            match ask(site, HIT, PATIENCE) {
                Ok(true) => seen.times.push(began.elapsed()),
                Ok(false) => seen.wrong += 1,
                Err(_) => seen.times.push(PATIENCE),
            }
            std::thread::sleep(Duration::from_millis(1));
            if !goes_on.load(Ordering::Relaxed) {
                break;
            }
        }
        match ask(site, &fresh(), PATIENCE) {
            Ok(true) => seen.misses += 1,
            Ok(false) => seen.wrong += 1,
            Err(_) => seen.failed += 1,
        }
    }
    seen
}

/// Whether a hit and a miss are answered.
pub fn serves(site: u16) -> bool {
    let is_right = |path: &str| matches!(ask(site, path, PATIENCE), Ok(true));
    is_right(HIT) && is_right(&fresh())
}

/// A path that nobody asked for before.
fn fresh() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("/fresh/{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// One request; says whether the answer is right. An answer that is no 200 is none: a refusal is not service.
fn ask(site: u16, path: &str, patience: Duration) -> std::io::Result<bool> {
    let mut stream: TcpStream = connect_from(GOOD, site)?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: www.test\r\nConnection: close\r\n\r\n").as_bytes())?;
    let (mut answer, began) = (Vec::new(), Instant::now());
    let mut room = [0; 4_096];
    loop {
        match stream.read(&mut room)? {
            0 => break,
            read => answer.extend_from_slice(&room[..read]),
        }
        if began.elapsed() > patience {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
    }
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    if !answer.starts_with(b"HTTP/1.1 200") {
        return Err(std::io::Error::other("refused"));
    }
    Ok(&answer[end + 4..] == BODY.as_bytes())
}
