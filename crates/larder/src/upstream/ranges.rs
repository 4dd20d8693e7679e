//! The knowledge of origins about several range requests at once. One table for all workers, so that an origin which does not
//! want them is asked once and not once by each.

use super::Origin;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Origins remembered; the one whose knowledge ends first makes room.
const ORIGINS_MAX: usize = 1024;
/// How long an origin is left alone that sent the whole object for a range, or refused it.
const FORBIDDEN_FOR: Duration = Duration::from_secs(24 * 3600);
/// How long after an error, a changed object, or a 429 or 503 that does not say how long.
const TROUBLED_FOR: Duration = Duration::from_secs(300);
/// How long the number of requests is remembered beyond which there was no gain.
const GAIN_FOR: Duration = Duration::from_secs(600);

/// When and how further range requests are sent for a running download.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RangePace {
    /// A shorter object is left to its first request.
    pub object_bytes_min: u64,
    /// How long a rate is measured.
    pub window: Duration,
    /// A download that ends within so many seconds at its present rate is left as it is.
    pub left_seconds_min: f64,
    /// How long a request for one chunk should take.
    pub chunk_seconds: f64,
    /// The bounds of a chunk.
    pub chunk_bytes_min: u64,
    /// See `chunk_bytes_min`.
    pub chunk_bytes_max: u64,
    /// How long a request for a chunk may bring nothing.
    pub silent_max: Duration,
    /// Chunks begin at a multiple of this, and are a whole number of it: the blocks of the disk.
    pub block_bytes: u64,
}

impl Default for RangePace {
    fn default() -> RangePace {
        RangePace {
            object_bytes_min: 4 * 1024 * 1024,
            window: Duration::from_millis(250),
            left_seconds_min: 2.0,
            chunk_seconds: 1.0,
            chunk_bytes_min: 256 * 1024,
            chunk_bytes_max: 8 * 1024 * 1024,
            silent_max: Duration::from_millis(2500),
            block_bytes: 64 * 1024,
        }
    }
}

/// The knowledge about all origins.
#[derive(Default)]
pub(super) struct Ranges {
    origins: Mutex<HashMap<Origin, Known>>,
}

/// The knowledge about one origin.
struct Known {
    found: Option<RangesFound>,
    until: Instant,
    /// Range requests beside running downloads that are under way.
    extra: usize,
}

/// The finding of a download about its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangesFound {
    /// It sent a part as it was asked.
    Proven,
    /// So many requests at once brought more than fewer, and one more did not.
    Gain(usize),
    /// It takes no ranges.
    Forbidden,
    /// A request failed or brought nothing for too long, or the object had changed.
    Troubled,
    /// It said 429 or 503, and perhaps for how long (`Retry-After`).
    Busy(Option<Duration>),
}

/// The knowledge about an origin, as downloads ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangesKnown {
    /// Nothing.
    Nothing,
    /// It takes ranges.
    Proven,
    /// It takes ranges, and so many at once are the best; 1 where further ones brought nothing.
    Gain(usize),
    /// It is not to be asked for several: it takes no ranges, or was busy or in trouble of late.
    LeftAlone,
}

impl Ranges {
    pub fn known(&self, origin: &Origin, now: Instant) -> RangesKnown {
        let origins = self.origins.lock();
        match origins.get(origin).filter(|known| now < known.until).and_then(|known| known.found) {
            None => RangesKnown::Nothing,
            Some(RangesFound::Proven) => RangesKnown::Proven,
            Some(RangesFound::Gain(best)) => RangesKnown::Gain(best),
            Some(RangesFound::Forbidden | RangesFound::Troubled | RangesFound::Busy(_)) => RangesKnown::LeftAlone,
        }
    }

    pub fn found(&self, origin: Origin, found: RangesFound, now: Instant) {
        let mut origins = self.origins.lock();
        let Some(known) = entry_of(&mut origins, origin, now) else { return };
        // That it takes ranges is less than what is known by then.
        if found == RangesFound::Proven && known.found.is_some() && now < known.until {
            return;
        }
        let time = match found {
            RangesFound::Proven | RangesFound::Gain(_) => GAIN_FOR,
            RangesFound::Forbidden => FORBIDDEN_FOR,
            RangesFound::Troubled => TROUBLED_FOR,
            RangesFound::Busy(pause) => pause.unwrap_or_default().clamp(TROUBLED_FOR, FORBIDDEN_FOR),
        };
        (known.found, known.until) = (Some(found), now + time);
    }

    /// A permit for one more request, if fewer than `max` are under way. An origin of which nothing is known is tried by one, however
    /// many downloads begin at once, and one that is to be left alone gets none.
    pub fn begin(self: &Arc<Self>, origin: Origin, max: usize, now: Instant) -> Option<ExtraRange> {
        let max = match self.known(&origin, now) {
            RangesKnown::Nothing => max.min(1),
            RangesKnown::Proven | RangesKnown::Gain(_) => max,
            RangesKnown::LeftAlone => return None,
        };
        let mut origins = self.origins.lock();
        let known = entry_of(&mut origins, origin.clone(), now).filter(|known| known.extra < max)?;
        known.extra += 1;
        Some(ExtraRange { ranges: Arc::clone(self), origin })
    }
}

/// The place of an origin, made now if there is room for it.
fn entry_of(origins: &mut HashMap<Origin, Known>, origin: Origin, now: Instant) -> Option<&mut Known> {
    if origins.len() >= ORIGINS_MAX && !origins.contains_key(&origin) {
        let unused = origins.iter().filter(|(_, known)| known.extra == 0);
        let first = unused.min_by_key(|(_, known)| known.until).map(|(origin, _)| origin.clone())?;
        origins.remove(&first);
    }
    Some(origins.entry(origin).or_insert(Known { found: None, until: now, extra: 0 }))
}

/// One range request beside a running download, for as long as this lives.
pub struct ExtraRange {
    ranges: Arc<Ranges>,
    origin: Origin,
}

impl Drop for ExtraRange {
    fn drop(&mut self) {
        if let Some(known) = self.ranges.origins.lock().get_mut(&self.origin) {
            known.extra -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_wire::{Host, Scheme};

    fn origin(port: u16) -> Origin {
        Origin {
            scheme: Scheme::Http,
            host: Host::parse("a.example").unwrap(),
            port,
            tls_name: None,
            by_parents: false,
        }
    }

    #[test]
    fn an_origin_that_forbids_is_left_alone_for_a_day() {
        let (ranges, now) = (Ranges::default(), Instant::now());
        assert_eq!(ranges.known(&origin(1), now), RangesKnown::Nothing);
        ranges.found(origin(1), RangesFound::Forbidden, now);
        ranges.found(origin(1), RangesFound::Proven, now);
        assert_eq!(ranges.known(&origin(1), now + FORBIDDEN_FOR / 2), RangesKnown::LeftAlone);
        assert_eq!(ranges.known(&origin(1), now + FORBIDDEN_FOR), RangesKnown::Nothing);
        assert_eq!(ranges.known(&origin(2), now), RangesKnown::Nothing);
    }

    #[test]
    fn requests_of_all_downloads_of_an_origin_are_counted_together() {
        let (ranges, now) = (Arc::new(Ranges::default()), Instant::now());
        ranges.found(origin(1), RangesFound::Proven, now);
        let one = ranges.begin(origin(1), 2, now).unwrap();
        let two = ranges.begin(origin(1), 2, now).unwrap();
        assert!(ranges.begin(origin(1), 2, now).is_none());
        assert!(ranges.begin(origin(2), 2, now).is_some());
        drop(one);
        assert!(ranges.begin(origin(1), 2, now).is_some());
        drop(two);
    }

    #[test]
    fn an_unknown_origin_is_tried_by_one_and_one_in_trouble_by_none() {
        let (ranges, now) = (Arc::new(Ranges::default()), Instant::now());
        let trial = ranges.begin(origin(1), 5, now).unwrap();
        assert!(ranges.begin(origin(1), 5, now).is_none());
        ranges.found(origin(1), RangesFound::Proven, now);
        let second = ranges.begin(origin(1), 5, now).unwrap();
        ranges.found(origin(1), RangesFound::Troubled, now);
        drop((trial, second));
        assert!(ranges.begin(origin(1), 5, now).is_none());
        assert!(ranges.begin(origin(1), 5, now + TROUBLED_FOR).is_some());
    }

    #[test]
    fn a_busy_origin_says_for_how_long_within_bounds() {
        let (ranges, now) = (Ranges::default(), Instant::now());
        for (port, said, pause) in [
            (1, None, TROUBLED_FOR),
            (2, Some(Duration::from_secs(1)), TROUBLED_FOR),
            (3, Some(Duration::from_secs(3600)), Duration::from_secs(3600)),
            (4, Some(Duration::from_secs(1 << 40)), FORBIDDEN_FOR),
        ] {
            ranges.found(origin(port), RangesFound::Busy(said), now);
            let just_before = now + pause - Duration::from_millis(1);
            assert_eq!(ranges.known(&origin(port), just_before), RangesKnown::LeftAlone, "{said:?}");
            assert_eq!(ranges.known(&origin(port), now + pause), RangesKnown::Nothing, "{said:?}");
        }
    }

    #[test]
    fn the_table_is_bounded_and_keeps_what_is_counted() {
        let (ranges, now) = (Arc::new(Ranges::default()), Instant::now());
        let held = ranges.begin(origin(0), 9, now).unwrap();
        for port in 1..2_000 {
            ranges.found(origin(port), RangesFound::Gain(2), now + Duration::from_millis(u64::from(port)));
        }
        assert_eq!(ranges.origins.lock().len(), ORIGINS_MAX);
        assert_eq!(ranges.known(&origin(1_999), now), RangesKnown::Gain(2));
        drop(held);
        assert_eq!(ranges.origins.lock()[&origin(0)].extra, 0);
    }
}
