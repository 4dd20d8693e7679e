//! The pace of an answer, or of a tunnel, that rules limit ([`Bandwidth`](larder_rules::bandwidth::Bandwidth)).

use crate::clock;
use crate::env::Env;
use crate::rules::Limited;
use std::rc::Rc;
use std::time::Duration;

/// Bytes that are taken at once last no longer than this at the full rate of a limit, so that all who share it get their turn soon.
const PIECES_A_SECOND: u64 = 20;
/// Smaller pieces cost more than they are worth.
const PIECE_BYTES_MIN: u64 = 1024;
/// Greater ones are not read at once.
const PIECE_BYTES_MAX: u64 = 256 * 1024;

/// The limits under which bytes are sent to a client.
pub struct Pace {
    env: Rc<Env>,
    limits: Rc<[Limited]>,
    /// Bytes that are taken at once.
    piece_bytes: u64,
    /// How long the bytes have waited altogether.
    waited: Duration,
}

impl Pace {
    /// The pace under limits, if there are any.
    pub fn under(env: &Rc<Env>, limits: &Rc<[Limited]>) -> Option<Pace> {
        let tightest = limits.iter().map(|limited| limited.limit.rate).min()?;
        let piece_bytes = (tightest / PIECES_A_SECOND).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX);
        Some(Pace { env: Rc::clone(env), limits: Rc::clone(limits), piece_bytes, waited: Duration::ZERO })
    }

    /// Without the limits that leave answers from the store alone.
    pub fn of_hit(env: &Rc<Env>, limits: &Rc<[Limited]>) -> Option<Pace> {
        let left: Rc<[Limited]> = limits.iter().filter(|limited| limited.limit.hits).cloned().collect();
        Pace::under(env, &left)
    }

    /// The greatest number of bytes that are to be taken at once.
    pub fn piece_bytes(&self) -> u64 {
        self.piece_bytes
    }

    /// Takes bytes from all limits; gives how long they have to wait before they are sent.
    pub fn take(&mut self, bytes: u64) -> Duration {
        let (now, rates) = (clock::instant(), &self.env.common.rates);
        let waits = self.limits.iter().map(|limited| rates.take(&limited.limit, &limited.key, bytes, now));
        let wait = waits.max().unwrap_or_default();
        if !wait.is_zero() {
            self.env.tally.bandwidth_waits.add(1);
        }
        self.waited = self.waited.saturating_add(wait);
        wait
    }

    /// Takes bytes from all limits, and waits until they may be sent. Cancel-safe, but for the bytes that were taken.
    pub async fn wait(&mut self, bytes: u64) {
        let wait = self.take(bytes);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    /// How long the bytes have waited altogether.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}
