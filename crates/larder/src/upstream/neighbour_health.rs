//! The knowledge of all workers about neighbouring caches: of those that are asked by datagram, how fast each answers and whether it answers at
//! all; of parents, whether they can be connected to. Counts of both. Values and `now` in, decisions out.

use crate::config::parent::Parent;
use larder_wire::Url;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::time::Instant;

/// After so many questions in a row without an answer a neighbour counts as dead.
const SILENT_MAX: u32 = 10;
/// After so many connections in a row that did not come about a parent counts as dead.
const AWAY_MAX: u32 = 3;
/// A dead neighbour is asked again after the first of these times, which doubles up to the second.
const PAUSE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(60));
/// The time for an answer of a neighbour of which none was seen yet.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Answers are waited for no longer than so many times the time that they took before: one that has died must hold nobody up, and one that
/// became slower yet is found again by the probes.
const SLOWER_MAX: u32 = 4;
/// Answers are waited for at least so long: a neighbour's disk may be asked.
const WAIT_MIN: Duration = Duration::from_millis(5);
/// Neighbours that are remembered: those of a configuration, and of some before it.
const REMEMBERED_MAX: usize = 512;

/// The neighbours that were asked, of all workers.
#[derive(Debug, Default)]
pub struct NeighbourHealths {
    states: Mutex<HashMap<SocketAddr, Health>>,
    /// Counts of their answers.
    pub counts: NeighbourAnswerCounts,
}

/// Counts of the answers of neighbours that were asked, since the start.
#[derive(Debug, Default)]
pub struct NeighbourAnswerCounts {
    /// It has the response.
    pub hits: AtomicU64,
    /// It does not have it.
    pub misses: AtomicU64,
    /// It does not want to be asked, by this cache or for this URL.
    pub refusals: AtomicU64,
    /// None came in time.
    pub silent: AtomicU64,
    /// A dead neighbour was not asked.
    pub dead: AtomicU64,
    /// Datagrams that answer no question that is open: forged, doubled, or from elsewhere.
    pub unexpected: AtomicU64,
    /// It said that it has the response, and did not give it.
    pub false_hits: AtomicU64,
}

/// One neighbour.
#[derive(Clone, Copy, Debug, Default)]
struct Health {
    round_trip: Option<Duration>,
    /// The same by its answers alone, where `round_trip` grows with each answer that did not come in time.
    measured: Option<Duration>,
    /// Questions in a row that were not answered.
    silent: u32,
    /// Nobody asks before this moment.
    asked_after: Option<Instant>,
    pause: Duration,
}

impl NeighbourHealths {
    /// Whether a neighbour may be asked, and how long its answer may be waited for: twice as long as it takes mostly. The first question after
    /// the pause of a dead neighbour is a probe, and the next ones wait for another pause.
    pub(super) fn may_ask(&self, neighbour: SocketAddr, now: Instant) -> Option<Duration> {
        let mut states = self.states.lock();
        if states.len() >= REMEMBERED_MAX && !states.contains_key(&neighbour) {
            states.clear();
        }
        states.entry(neighbour).or_default().may_ask(now)
    }

    pub(super) fn answered(&self, (name, neighbour): (&str, SocketAddr), took: Duration) {
        if self.change(neighbour, |health| health.answered(took)) == Some(Turn::Back) {
            tracing::warn!("the neighbour {name} ({neighbour}) answers again, and is asked");
        }
    }

    /// A neighbour that says it has a response does not send it: it is left alone for a while, as one that is silent.
    pub fn failed(&self, (name, neighbour): (&str, SocketAddr), now: Instant) {
        if self.change(neighbour, |health| health.failed(now)) == Some(Turn::LeftOut) {
            tracing::warn!(
                "the neighbour {name} ({neighbour}) has a response and does not send it: it is left out until it does"
            );
        }
    }

    pub(super) fn was_silent(&self, (name, neighbour): (&str, SocketAddr), waited: Duration, now: Instant) {
        if self.change(neighbour, |health| health.was_silent(waited, now)) == Some(Turn::LeftOut) {
            tracing::warn!(
                "the neighbour {name} ({neighbour}) did not answer {SILENT_MAX} times in a row: it is left out until it does"
            );
        }
    }

    fn change(&self, neighbour: SocketAddr, change: impl FnOnce(&mut Health)) -> Option<Turn> {
        self.states.lock().get_mut(&neighbour)?.turn(change)
    }
}

/// The parents to which connections were made, of all workers. Only what a parent does before it hears of a request's host counts, and whether
/// it answers a question about itself: an origin that does not answer, or a host that a parent refuses, must not make it look dead to others.
#[derive(Debug, Default)]
pub struct ParentHealths {
    states: Mutex<HashMap<String, ParentState>>,
}

#[derive(Clone, Debug)]
struct ParentState {
    url: Url,
    health: Health,
    counts: ParentCounts,
    /// It was asked about itself at this moment, because it was silent.
    probed_at: Option<Instant>,
    /// It did not answer such a question, which was asked then, nor anything since.
    hangs_since: Option<Instant>,
}

/// Counts of the connections to one parent, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParentCounts {
    /// Ways to origins that were opened.
    pub opened: u64,
    /// No connection to it came about.
    pub failed: u64,
    /// It did not connect to the origin.
    pub refused: u64,
    /// It was left out, because it failed of late.
    pub left_out: u64,
}

/// The state of one parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParentReport {
    /// Counts.
    pub counts: ParentCounts,
    /// Failures since the last connection.
    pub failures_in_a_row: u32,
    /// How long it is left alone from now on, where it is.
    pub rests_for: Option<Duration>,
}

impl ParentHealths {
    fn with<T>(&self, parent: &Parent, work: impl FnOnce(&mut ParentState) -> T) -> T {
        let mut states = self.states.lock();
        if states.len() >= REMEMBERED_MAX && !states.contains_key(&parent.name) {
            states.clear();
        }
        let new = || ParentState {
            url: parent.url.clone(),
            health: Health::default(),
            counts: ParentCounts::default(),
            probed_at: None,
            hangs_since: None,
        };
        let state = states.entry(parent.name.clone()).or_insert_with(new);
        if state.url != parent.url {
            // Another proxy has its name since a reload.
            *state = new();
        }
        work(state)
    }

    /// Whether a parent is left alone now.
    pub(super) fn rests(&self, parent: &Parent, now: Instant) -> bool {
        self.with(parent, |state| {
            state.hangs_since.is_some() || state.health.asked_after.is_some_and(|after| now < after)
        })
    }

    /// Whether a connection to it may be tried; the first one after its pause is a probe, and the next ones wait for another pause. One that
    /// hangs is asked about itself, and no request waits for it.
    pub(super) fn may_try(&self, parent: &Parent, now: Instant) -> bool {
        self.with(parent, |state| {
            let may = state.hangs_since.is_none() && state.health.may_ask(now).is_some();
            state.counts.left_out += u64::from(!may);
            may
        })
    }

    /// It accepted a connection, which says nothing of one that hangs.
    pub(super) fn accepted(&self, parent: &Parent) {
        self.well(parent, |_| {});
    }

    /// Nothing stands against it but that it hangs, where it does; said where it was left out.
    fn well(&self, parent: &Parent, change: impl FnOnce(&mut ParentState)) {
        let turn = self.with(parent, |state| {
            change(state);
            state.hangs_since.is_none().then(|| state.health.turn(|health| *health = Health::default()))?
        });
        if turn == Some(Turn::Back) {
            tracing::warn!("the parent {} is there again, and is asked", parent.name);
        }
    }

    /// It answered: a request, or a question about itself.
    pub(super) fn answered(&self, parent: &Parent) {
        self.well(parent, |state| state.hangs_since = None);
    }

    /// Whether somebody may ask it about itself now, because it is silent.
    pub(super) fn begins_probe(&self, parent: &Parent, now: Instant) -> bool {
        self.with(parent, |state| {
            let may = state.probed_at.is_none_or(|at| now >= at + PAUSE.0);
            state.probed_at = if may { Some(now) } else { state.probed_at };
            may
        })
    }

    /// It did not answer a question about itself that was asked at the first of these moments.
    pub(super) fn hangs(&self, parent: &Parent, (asked, now): (Instant, Instant)) {
        let turn = self.with(parent, |state| {
            state.counts.failed += 1;
            state.hangs_since = Some(asked);
            state.health.turn(|health| {
                health.silent = health.silent.saturating_add(1).max(AWAY_MAX);
                health.asked_after = Some(now + PAUSE.0);
            })
        });
        if turn == Some(Turn::LeftOut) {
            tracing::warn!(
                "the parent {} accepts connections and answers nothing: it is left out until it does",
                parent.name
            );
        }
    }

    /// Whether it hangs, as far as is known.
    pub(super) fn is_hanging(&self, parent: &Parent) -> bool {
        self.with(parent, |state| state.hangs_since.is_some())
    }

    /// Whether it did not answer such a question that was asked after this moment.
    pub(super) fn has_hung_since(&self, parent: &Parent, moment: Instant) -> bool {
        self.with(parent, |state| state.hangs_since.is_some_and(|asked| asked >= moment))
    }

    /// It led to the origin.
    pub(super) fn opened(&self, parent: &Parent) {
        self.with(parent, |state| state.counts.opened += 1);
    }

    /// No connection to it came about.
    pub(super) fn was_away(&self, parent: &Parent, now: Instant) {
        let turn = self.with(parent, |state| {
            state.counts.failed += 1;
            state.health.turn(|health| health.was_away(now))
        });
        if turn == Some(Turn::LeftOut) {
            let (name, to) = (&parent.name, parent.url.authority());
            tracing::warn!(
                "the parent {name} ({to}) could not be connected to {AWAY_MAX} times in a row: it is left out until it can"
            );
        }
    }

    /// It did not lead to the origin.
    pub(super) fn refused(&self, parent: &Parent) {
        self.with(parent, |state| state.counts.refused += 1);
    }

    /// The state of a parent.
    pub fn report(&self, parent: &Parent, now: Instant) -> ParentReport {
        self.with(parent, |state| ParentReport {
            counts: state.counts,
            failures_in_a_row: state.health.silent,
            rests_for: state.health.asked_after.and_then(|after| after.checked_duration_since(now)).or(hanging(state)),
        })
    }
}

/// A change that the program's log tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    LeftOut,
    Back,
}

/// One that hangs is left out until it answers.
fn hanging(state: &ParentState) -> Option<Duration> {
    state.hangs_since.map(|_| Duration::ZERO)
}

impl Health {
    /// Changes it, and says whether it is left out from now on, or is back.
    fn turn(&mut self, change: impl FnOnce(&mut Health)) -> Option<Turn> {
        let before = self.asked_after.is_some();
        change(self);
        match (before, self.asked_after.is_some()) {
            (false, true) => Some(Turn::LeftOut),
            (true, false) => Some(Turn::Back),
            _ => None,
        }
    }

    fn was_away(&mut self, now: Instant) {
        self.silent = self.silent.saturating_add(1);
        if self.silent >= AWAY_MAX {
            self.is_left_alone(now);
        }
    }

    fn may_ask(&mut self, now: Instant) -> Option<Duration> {
        if let Some(after) = self.asked_after {
            if now < after {
                return None;
            }
            self.asked_after = Some(now + self.pause);
            // It may have become slower than it was.
            return Some(FIRST_WAIT);
        }
        let usual = self.round_trip.map_or(FIRST_WAIT, |time| time * 2);
        Some(usual.max(WAIT_MIN))
    }

    fn answered(&mut self, took: Duration) {
        // Times from before it died say nothing.
        let usual = self.round_trip.filter(|_| self.asked_after.is_none()).unwrap_or(took);
        let measured = Some((usual * 7 + took) / 8);
        *self = Health { round_trip: measured, measured, ..Health::default() };
    }

    /// No answer came within the time that was waited, so the time that it takes is longer: a neighbour that became slower is waited for again
    /// before it counts as dead.
    fn was_silent(&mut self, waited: Duration, now: Instant) {
        let most = self.measured.map_or(PAUSE.0, |measured| measured * SLOWER_MAX);
        self.round_trip = self.round_trip.map(|usual| ((usual + waited * 2) / 2).min(most));
        self.silent = self.silent.saturating_add(1);
        if self.silent >= SILENT_MAX {
            self.is_left_alone(now);
        }
    }

    fn failed(&mut self, now: Instant) {
        self.silent = SILENT_MAX;
        self.is_left_alone(now);
    }

    fn is_left_alone(&mut self, now: Instant) {
        self.pause = if self.pause.is_zero() { PAUSE.0 } else { (self.pause * 2).min(PAUSE.1) };
        self.asked_after = Some(now + self.pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_wait_follows_the_round_trips() {
        let (mut health, now) = (Health::default(), Instant::now());
        assert_eq!(health.may_ask(now), Some(FIRST_WAIT));
        health.answered(MS);
        assert_eq!(health.may_ask(now), Some(WAIT_MIN));
        health.answered(81 * MS);
        assert_eq!(health.may_ask(now), Some(22 * MS));
        // It takes 50 ms from now on: a few answers come too late, and then it is waited for.
        let mut late = 0;
        while let Some(waited) = health.may_ask(now).filter(|waited| *waited < 50 * MS) {
            health.was_silent(waited, now);
            late += 1;
        }
        assert!(late < SILENT_MAX, "{late}");
        assert!(health.may_ask(now).is_some());
    }

    /// However many questions stay without an answer, nobody waits for seconds.
    #[test]
    fn a_neighbour_that_died_holds_nobody_up() {
        let (mut health, now) = (Health::default(), Instant::now());
        health.answered(3 * MS);
        let mut waits = Vec::new();
        while let Some(wait) = health.may_ask(now) {
            waits.push(wait);
            // Others that are asked beside it are waited for longer.
            let turn = health.turn(|health| health.was_silent(500 * MS, now));
            assert_eq!(turn, (waits.len() == SILENT_MAX as usize).then_some(Turn::LeftOut));
        }
        assert!(waits.iter().all(|wait| *wait <= 24 * MS), "{waits:?}");
        // It is back and slower: the probe waits, and its time counts from then on.
        let probe = health.may_ask(now + PAUSE.0);
        assert_eq!(probe, Some(FIRST_WAIT));
        assert_eq!(health.turn(|health| health.answered(80 * MS)), Some(Turn::Back));
        assert_eq!(health.may_ask(now + PAUSE.0), Some(160 * MS));
    }

    #[test]
    fn a_neighbour_that_answers_and_sends_nothing_is_asked_seldom_too() {
        let (mut health, now) = (Health::default(), Instant::now());
        for later in 0..3 {
            let now = now + PAUSE.0 * later;
            assert!(health.may_ask(now).is_some(), "{later}");
            health.answered(MS);
            health.failed(now);
            assert_eq!(health.may_ask(now + PAUSE.0 - MS), None, "{later}");
        }
    }

    #[test]
    fn a_parent_that_failed_three_times_rests_and_is_probed_by_one_request() {
        let (healths, parent, mut now) = (ParentHealths::default(), Parent::default(), Instant::now());
        let other = Parent { name: "other".to_owned(), ..Parent::default() };
        for failures in 1..=AWAY_MAX {
            assert!(healths.may_try(&parent, now), "{failures}");
            healths.was_away(&parent, now);
        }
        for pause in [10, 20, 40, 60, 60] {
            let pause = Duration::from_secs(pause);
            assert!(
                healths.rests(&parent, now + pause - MS) && !healths.may_try(&parent, now + pause - MS),
                "{pause:?}"
            );
            assert!(!healths.rests(&other, now));
            now += pause;
            assert!(!healths.rests(&parent, now) && healths.may_try(&parent, now), "{pause:?}");
            assert!(!healths.may_try(&parent, now), "one probe");
            healths.was_away(&parent, now);
        }
        assert_eq!(healths.report(&parent, now).rests_for, Some(PAUSE.1));
        let moved = Parent { url: Url { port: 3129, ..parent.url.clone() }, ..parent.clone() };
        assert_eq!(healths.report(&moved, now), ParentReport::default(), "another proxy by that name");
        for _ in 0..AWAY_MAX {
            healths.was_away(&moved, now);
        }
        healths.accepted(&moved);
        let report = healths.report(&moved, now);
        assert_eq!((report.rests_for, report.failures_in_a_row, report.counts.failed), (None, 0, 3));
    }

    #[test]
    fn a_parent_that_accepts_and_hangs_rests_until_it_answers() {
        let (healths, parent, now) = (ParentHealths::default(), Parent::default(), Instant::now());
        assert!(healths.begins_probe(&parent, now) && !healths.begins_probe(&parent, now + PAUSE.0 - MS));
        healths.accepted(&parent);
        assert!(healths.may_try(&parent, now));
        healths.hangs(&parent, (now, now + MS));
        assert!(healths.has_hung_since(&parent, now) && !healths.has_hung_since(&parent, now + MS));
        // That it accepts says nothing; it is asked about itself now and then, and left out until it answers.
        healths.accepted(&parent);
        let later = now + PAUSE.0 * 3;
        assert!(healths.rests(&parent, later) && healths.is_hanging(&parent) && healths.begins_probe(&parent, later));
        assert!(!healths.may_try(&parent, later) && healths.report(&parent, later).rests_for.is_some());
        healths.answered(&parent);
        assert!(healths.may_try(&parent, later) && !healths.has_hung_since(&parent, now));
        assert_eq!(healths.report(&parent, later).rests_for, None);
    }

    #[test]
    fn a_silent_neighbour_is_asked_seldom_until_it_answers() {
        let (mut health, mut now) = (Health::default(), Instant::now());
        for _ in 0..SILENT_MAX {
            assert!(health.may_ask(now).is_some());
            health.was_silent(FIRST_WAIT, now);
        }
        for pause in [10, 20, 40, 60, 60] {
            let pause = Duration::from_secs(pause);
            assert_eq!(health.may_ask(now + pause - MS), None, "{pause:?}");
            now += pause;
            assert!(health.may_ask(now).is_some(), "{pause:?}");
            assert_eq!(health.may_ask(now), None, "one probe");
            health.was_silent(FIRST_WAIT, now);
        }
        now += PAUSE.1;
        assert!(health.may_ask(now).is_some());
        health.answered(MS);
        assert!(health.may_ask(now).is_some() && health.may_ask(now).is_some());
    }
}
