//! The keys of an issuer at a URL: how they are fetched, and who waits for that.

use crate::lists::download::{self, Downloaded, Validators};
use larder_people::token::Keys;
use larder_wire::Url;
use parking_lot::{Condvar, Mutex};
use rustls::ClientConfig;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The least time between two fetches, whatever asks for the second one.
pub(super) const FETCH_EVERY: Duration = Duration::from_secs(60);

/// How long one fetch may take.
const FETCH_WITHIN: Duration = Duration::from_secs(20);

/// How long a token with an unknown key waits for a fetch.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// A longer answer is not taken.
const KEYS_BYTES_MAX: u64 = 1 << 20;

/// The fetches of one login's keys.
#[derive(Debug, Default)]
pub(super) struct Issuer {
    state: Mutex<State>,
    wakes: Condvar,
    fetched: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Somebody has asked for a fetch.
    is_asked: bool,
    /// A fetch is under way.
    is_fetching: bool,
    /// The login is gone.
    has_ended: bool,
    /// When the last fetch began.
    began: Option<Instant>,
}

/// The result of a fetch.
pub(super) struct Fetched {
    /// `None` where they are those that are there.
    pub keys: Option<Keys>,
    /// For the next fetch.
    pub validators: Validators,
    /// How long the keys are fresh, where their answer says so.
    pub fresh_for: Option<Duration>,
}

impl Issuer {
    /// Has the keys fetched, because one is missing; whether a fetch has ended since. Soon after the last one nothing is fetched. Cancel-safe.
    pub async fn fetch_again(&self) -> bool {
        let mut fetched = std::pin::pin!(self.fetched.notified());
        fetched.as_mut().enable();
        {
            let mut state = self.state.lock();
            let is_early = state.began.is_some_and(|began| crate::clock::instant() < began + FETCH_EVERY);
            match (state.is_fetching, is_early) {
                (true, _) => {}
                (false, true) => return false,
                (false, false) => {
                    state.is_asked = true;
                    self.wakes.notify_one();
                }
            }
        }
        tokio::time::timeout(WAIT_MAX, fetched).await.is_ok()
    }

    /// Ends the thread. A fetch that is under way ends first, and counts for nothing.
    pub fn end(&self) {
        self.state.lock().has_ended = true;
        self.wakes.notify_one();
    }

    /// Waits for the time of the next fetch; false where there is none.
    pub fn next(&self, pause: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.is_asked && !state.has_ended && !pause.is_zero() {
            let is_due = |state: &mut State| !state.is_asked && !state.has_ended;
            self.wakes.wait_while_for(&mut state, is_due, pause);
        }
        state.is_asked = false;
        state.is_fetching = !state.has_ended;
        state.began = Some(crate::clock::instant());
        !state.has_ended
    }

    /// A fetch has ended.
    pub fn done(&self) {
        self.state.lock().is_fetching = false;
        self.fetched.notify_waiters();
    }
}

/// Fetches the keys once.
pub(super) fn fetch(url: &Url, validators: &Validators, tls: &Arc<ClientConfig>) -> Result<Fetched, String> {
    let mut text = Vec::new();
    let fetched = download::fetch(FETCH_WITHIN, url, validators, tls, KEYS_BYTES_MAX, &mut text);
    match fetched.map_err(|error| error.to_string())? {
        Downloaded::NotModified => Ok(Fetched { keys: None, validators: validators.clone(), fresh_for: None }),
        Downloaded::Content { validators, fresh_for, .. } => {
            let text = std::str::from_utf8(&text).map_err(|_| "no text".to_owned())?;
            Ok(Fetched { keys: Some(Keys::parse(text)?), validators, fresh_for })
        }
    }
}

#[cfg(test)]
impl Issuer {
    /// The last fetch is as long ago as it has to be for another one.
    pub fn forget_last(&self) {
        self.state.lock().began = None;
    }
}
