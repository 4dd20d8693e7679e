//! A value that may be replaced while others read it, where reading costs one relaxed load.
//!
//! Each worker keeps a [`struct@Copy`] of its own. Looking at it is one relaxed load of a number that almost never changes;
//! only when it did is the lock taken. So a request pays no shared write for settings that can be reloaded.

use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A value that all share and that may be replaced.
#[derive(Debug)]
pub struct Live<T> {
    edition: AtomicU64,
    value: Mutex<Arc<T>>,
}

impl<T: Default> Default for Live<T> {
    fn default() -> Live<T> {
        Live::new(T::default())
    }
}

impl<T> Live<T> {
    /// Begins with this value.
    pub fn new(value: T) -> Live<T> {
        Live { edition: AtomicU64::new(1), value: Mutex::new(Arc::new(value)) }
    }

    /// Puts another value in its place and gives the one before. Its holders keep it, and who lets it go last frees it.
    pub fn replace(&self, value: T) -> Arc<T> {
        let mut place = self.value.lock();
        let before = std::mem::replace(&mut *place, Arc::new(value));
        self.edition.fetch_add(1, Ordering::Release);
        before
    }

    /// Which edition holds, from 1.
    pub fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// The value at this moment, for callers without a copy.
    pub fn value(&self) -> Arc<T> {
        Arc::clone(&self.value.lock())
    }
}

/// One thread's copy of a [`Live`] value.
#[derive(Debug)]
pub struct Copy<T> {
    edition: Cell<u64>,
    value: RefCell<Option<Rc<Held<T>>>>,
}

/// A value that one thread holds: counted by the thread for itself, so that no shared count is touched by each use.
#[derive(Debug)]
pub struct Held<T>(Arc<T>);

impl<T> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Default for Copy<T> {
    fn default() -> Copy<T> {
        Copy { edition: Cell::new(0), value: RefCell::new(None) }
    }
}

impl<T> Copy<T> {
    /// Which edition was looked at last.
    pub fn edition(&self) -> u64 {
        self.edition.get()
    }

    /// The value of `live` at this moment.
    pub fn of(&self, live: &Live<T>) -> Rc<Held<T>> {
        let edition = live.edition.load(Ordering::Acquire);
        let mut held = self.value.borrow_mut();
        match &*held {
            Some(value) if self.edition.get() == edition => Rc::clone(value),
            _ => {
                self.edition.set(edition);
                Rc::clone(held.insert(Rc::new(Held(live.value()))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_follows_its_original() {
        let live = Live::new(1);
        let copy = Copy::default();
        let first = copy.of(&live);
        assert!(Rc::ptr_eq(&first, &copy.of(&live)));
        let before = live.replace(2);
        assert_eq!((*before, Arc::strong_count(&before)), (1, 2));
        assert_eq!((**first, **copy.of(&live), *live.value()), (1, 2, 2));
        drop(first);
        assert_eq!(Arc::strong_count(&before), 1);
    }
}
