//! URLs with a signature that redirections through this server have just handed out, each with the URL of its redirection.
//!
//! A signature in a URL is a permission. To leave it out of the key of a stored response, Larder must know that whoever presents the
//! URL holds that permission, and that all who hold it get the same. Both follow from the redirection: its origin gave this very URL to
//! somebody who asked without credentials (or for content that the URL names), so the URL leads everybody to the same object; and the URL
//! of the redirection stands in the key, so that no other origin can hand out URLs to what this one has.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// URLs that are remembered; the oldest go first.
const URLS_MAX: usize = 4_096;

/// A longer URL is not remembered: with the limit of their number they take 16 MB at most, of which each text counts once.
const URL_BYTES_MAX: usize = 2_048;

/// How long after its redirection a URL counts as handed out. Permissions of this kind are mostly given for some minutes; a download
/// that begins later is stored under its whole URL.
const AGE_MAX: Duration = Duration::from_secs(15 * 60);

/// The URLs that were handed out.
#[derive(Debug, Default)]
pub struct HandedOut(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    by_url: HashMap<Arc<str>, Redirection>,
    /// In the order of their time; one that was handed out again stands here twice.
    in_order: VecDeque<(Arc<str>, Instant)>,
}

#[derive(Debug)]
struct Redirection {
    /// The URL that was asked for.
    from: Arc<str>,
    at: Instant,
}

impl HandedOut {
    /// Notes that a request for `from` was answered with a redirection to `to`.
    pub fn note(&self, from: &str, to: &str, now: Instant) {
        if from.len().max(to.len()) > URL_BYTES_MAX {
            return;
        }
        let mut table = self.0.lock();
        table.forget_old(now);
        while table.in_order.len() >= URLS_MAX {
            table.forget_first();
        }
        let to: Arc<str> = to.into();
        table.in_order.push_back((Arc::clone(&to), now));
        table.by_url.insert(to, Redirection { from: from.into(), at: now });
    }

    /// The URL whose redirection handed this one out of late.
    pub fn by(&self, url: &str, now: Instant) -> Option<Arc<str>> {
        let table = self.0.lock();
        let redirection = table.by_url.get(url)?;
        (now.saturating_duration_since(redirection.at) <= AGE_MAX).then(|| Arc::clone(&redirection.from))
    }
}

impl Table {
    fn forget_old(&mut self, now: Instant) {
        while self.in_order.front().is_some_and(|(_, at)| now.saturating_duration_since(*at) > AGE_MAX) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        let Some((url, at)) = self.in_order.pop_front() else { return };
        // One that was handed out again meanwhile stays.
        if self.by_url.get(&url).is_some_and(|redirection| redirection.at == at) {
            self.by_url.remove(&url);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_counts_for_a_while_after_it_was_handed_out() {
        let (table, begin) = (HandedOut::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        table.note("http://hub/a", "http://cdn/a?sig=1", at(0));
        assert_eq!(table.by("http://cdn/a?sig=1", at(900)).as_deref(), Some("http://hub/a"));
        assert_eq!(table.by("http://cdn/a?sig=1", at(901)), None);
        assert_eq!(table.by("http://cdn/a?sig=2", at(0)), None);
        // The last redirection counts, and each time anew.
        table.note("http://hub/b", "http://cdn/a?sig=1", at(10));
        assert_eq!(table.by("http://cdn/a?sig=1", at(905)).as_deref(), Some("http://hub/b"));
        table.note("http://hub/c", "http://cdn/c?sig=1", at(905));
        assert_eq!(table.by("http://cdn/a?sig=1", at(905)).as_deref(), Some("http://hub/b"));
        table.note("http://hub/c", &format!("http://cdn/{}", "c".repeat(URL_BYTES_MAX)), at(905));
        assert_eq!(table.0.lock().by_url.len(), 2);
    }

    #[test]
    fn the_table_has_a_limit() {
        let (table, now) = (HandedOut::default(), Instant::now());
        for number in 0..URLS_MAX + 10 {
            table.note("http://hub/a", &format!("http://cdn/{number}"), now);
        }
        let inside = table.0.lock();
        assert_eq!((inside.by_url.len(), inside.in_order.len()), (URLS_MAX, URLS_MAX));
        drop(inside);
        assert_eq!(table.by("http://cdn/9", now), None);
        assert!(table.by("http://cdn/10", now).is_some());
    }
}
