//! Wakers of tasks that wait for a shared state to change.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};

/// Has this task woken, in place of the one that waited there before.
pub fn register(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *place = Some(cx.waker().clone()),
    }
}

/// Wakes the task that waits there.
pub fn wake(place: &mut Option<Waker>) {
    if let Some(waker) = place.take() {
        waker.wake();
    }
}

/// Says to the task of a connection that others have changed its state.
#[derive(Default)]
pub struct Changes {
    waker: RefCell<Option<Waker>>,
    /// The state has changed since the task looked at it.
    is_changed: Cell<bool>,
}

impl Changes {
    /// Has the task look at the state.
    pub fn note(&self) {
        if !self.is_changed.replace(true)
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    /// Whether the state has changed; if not, the task is woken once it has.
    pub fn take(&self, cx: &Context<'_>) -> bool {
        if self.is_changed.take() {
            return true;
        }
        register(&mut self.waker.borrow_mut(), cx);
        false
    }
}
