//! Tells which of many streams have become readable, as the kernel's descriptor does for sockets: once for each time that
//! something comes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The streams that have become readable and were not looked at yet. Clones are the same list.
#[derive(Clone, Default)]
pub struct Readiness(Rc<RefCell<Ready>>);

#[derive(Default)]
struct Ready {
    /// Numbers of streams, and whether they have ended.
    numbers: VecDeque<(usize, bool)>,
    waker: Option<Waker>,
}

impl Readiness {
    /// A stream has become readable, or has ended.
    pub fn is_ready(&self, number: usize, is_ended: bool) {
        let mut ready = self.0.borrow_mut();
        match ready.numbers.iter_mut().find(|(own, _)| *own == number) {
            Some((_, has_ended)) => *has_ended |= is_ended,
            None => ready.numbers.push_back((number, is_ended)),
        }
        ready.waker.take().into_iter().for_each(Waker::wake);
    }

    /// Takes the first of them, with whether it has ended.
    pub fn next(&self) -> Option<(usize, bool)> {
        self.0.borrow_mut().numbers.pop_front()
    }

    /// Waits until there is one.
    pub fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        let mut ready = self.0.borrow_mut();
        if ready.numbers.is_empty() {
            ready.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}
