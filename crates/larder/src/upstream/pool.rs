//! All origins that a worker knows: the permits for requests, the idle connections, and what is remembered of each.

use super::idle::{IdleConnection, IdleConnections};
use super::permits::{OriginState, Permit, PermitLimits};
use super::{Counts, Origin, Settings, Stats};
use crate::config::url::group_name;
use crate::hashing::HashState;
use larder_wire::{Host, Url};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// Origins remembered (counts, last winner) after their last connection has gone.
const ORIGINS_REMEMBERED_MAX: usize = 1024;
/// Where all idle connections are too many, one of so many is closed, and at least one.
const CLOSED_AT_ONCE: usize = 64;
/// How often a request may trigger a sweep.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// All origins of a worker.
pub(super) struct Pool {
    limits: Limits,
    origins: RefCell<HashMap<Origin, Rc<OriginState>, HashState>>,
    /// The origin that was asked last: most workers talk to few.
    recent: RefCell<Option<Rc<OriginState>>>,
    idle_total: Rc<Cell<usize>>,
    unread_total: Rc<Cell<usize>>,
    forgotten: Cell<Counts>,
    sweep_at: Cell<Instant>,
}

#[derive(Clone, Copy)]
struct Limits {
    permits: PermitLimits,
    idle_per_origin_max: usize,
    idle_max: usize,
    unread_per_origin_max: usize,
    unread_max: usize,
    keep_alive: Duration,
}

impl Pool {
    pub fn new(settings: &Settings) -> Pool {
        Pool {
            limits: Limits {
                permits: PermitLimits::of(settings),
                idle_per_origin_max: settings.idle_per_origin_max,
                idle_max: settings.idle_max,
                unread_per_origin_max: settings.unread_per_origin_max,
                unread_max: settings.unread_max,
                keep_alive: settings.keep_alive,
            },
            origins: RefCell::default(),
            recent: RefCell::default(),
            idle_total: Rc::default(),
            unread_total: Rc::default(),
            forgotten: Cell::default(),
            sweep_at: Cell::new(Instant::now() + SWEEP_EVERY),
        }
    }

    /// The origin of a URL for a request that begins now.
    pub fn origin(&self, (url, tls_name): (&Url, Option<&Host>), now: Instant) -> Rc<OriginState> {
        if now >= self.sweep_at.get() {
            self.sweep();
        }
        if let Some(state) = self.recent.borrow().as_ref().filter(|state| state.origin().serves(url, tls_name)) {
            state.used_at.set(now);
            return Rc::clone(state);
        }
        let state = self.look_up(&Origin::named(url, tls_name));
        state.used_at.set(now);
        self.recent.replace(Some(Rc::clone(&state)));
        state
    }

    /// The origin of a URL for a request that goes through a parent.
    pub fn origin_by_parents(&self, (url, tls_name): (&Url, Option<&Host>), now: Instant) -> Rc<OriginState> {
        let state = self.look_up(&Origin { by_parents: true, ..Origin::named(url, tls_name) });
        state.used_at.set(now);
        state
    }

    fn look_up(&self, origin: &Origin) -> Rc<OriginState> {
        if let Some(state) = self.origins.borrow().get(origin) {
            return Rc::clone(state);
        }
        if self.origins.borrow().len() >= ORIGINS_REMEMBERED_MAX {
            self.forget_oldest();
        }
        let idle = IdleConnections::new(&self.idle_total, self.limits.keep_alive);
        let state = Rc::new(OriginState::new(origin.clone(), self.limits.permits, idle));
        self.origins.borrow_mut().insert(origin.clone(), Rc::clone(&state));
        state
    }

    /// The origin of a URL, for a fetch that may go on when its clients have left.
    pub fn asked(&self, url: &Url) -> AskedOrigin {
        let recent = self.recent.borrow().as_ref().filter(|state| state.origin().serves(url, None)).cloned();
        let state = recent.unwrap_or_else(|| self.look_up(&Origin::of(url)));
        AskedOrigin {
            state,
            unread_total: Rc::clone(&self.unread_total),
            per_origin_max: self.limits.unread_per_origin_max,
            max: self.limits.unread_max,
        }
    }

    /// Takes a connection back that can serve again: for the first request that waits, or as an idle one.
    pub fn put(&self, connection: IdleConnection, permit: Permit) {
        let state = Rc::clone(permit.origin());
        let Some(connection) = permit.give_back_with(connection) else { return };
        if self.limits.idle_per_origin_max == 0 || self.limits.idle_max == 0 {
            return;
        }
        state.idle.close_surplus(self.limits.idle_per_origin_max - 1);
        if self.idle_total.get() >= self.limits.idle_max {
            self.close_longest_idle();
        }
        state.idle.park(connection);
    }

    /// Closes idle connections whose time is over or which their origin has closed.
    pub fn sweep(&self) {
        self.sweep_at.set(Instant::now() + SWEEP_EVERY);
        self.origins.borrow().values().for_each(|state| state.idle.sweep(self.limits.idle_per_origin_max));
    }

    /// Closes the oldest of all idle connections: several at once, because looking for them takes longer the more there are.
    fn close_longest_idle(&self) {
        let origins = self.origins.borrow();
        let mut ages: Vec<Instant> = origins.values().flat_map(|state| state.idle.ages()).collect();
        let Some(last) = (ages.len() / CLOSED_AT_ONCE).max(1).checked_sub(1).filter(|last| *last < ages.len()) else {
            return;
        };
        let (_, newest, _) = ages.select_nth_unstable(last);
        origins.values().for_each(|state| state.idle.close_older(*newest));
    }

    /// Forgets the origin that was not asked for the longest time, if one is wholly unused.
    fn forget_oldest(&self) {
        self.recent.take();
        let mut origins = self.origins.borrow_mut();
        let unused = origins.iter().filter(|(_, state)| Rc::strong_count(state) == 1 && state.open() == 0);
        let Some(origin) = unused.min_by_key(|(_, state)| state.used_at.get()).map(|(origin, _)| origin.clone()) else {
            return;
        };
        if let Some(state) = origins.remove(&origin) {
            self.forgotten.set(self.forgotten.get().plus(state.counts()));
        }
    }

    /// Fetches that go on although nobody reads them.
    #[cfg(test)]
    pub fn unread(&self) -> usize {
        self.unread_total.get()
    }

    pub fn stats(&self) -> Stats {
        let origins = self.origins.borrow();
        // A group has no connections of its own.
        let origins = origins.values().filter(|state| group_name(&state.origin().host).is_none());
        Stats { origins: origins.map(|state| state.stats()).collect(), forgotten: self.forgotten.get() }
    }
}

/// An origin that is asked, where fetches that nobody reads are counted.
pub struct AskedOrigin {
    state: Rc<OriginState>,
    unread_total: Rc<Cell<usize>>,
    per_origin_max: usize,
    max: usize,
}

impl AskedOrigin {
    /// A permit for a fetch to go on although nobody reads it; `None` when as many do as may.
    pub fn unread(&self) -> Option<Unread> {
        let (of_origin, total) = (&self.state.unread, &self.unread_total);
        if of_origin.get() >= self.per_origin_max || total.get() >= self.max {
            return None;
        }
        of_origin.set(of_origin.get() + 1);
        total.set(total.get() + 1);
        Some(Unread { state: Rc::clone(&self.state), total: Rc::clone(total) })
    }
}

/// A fetch that nobody reads, as long as this lives.
pub struct Unread {
    state: Rc<OriginState>,
    total: Rc<Cell<usize>>,
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.state.unread.set(self.state.unread.get() - 1);
        self.total.set(self.total.get() - 1);
    }
}
