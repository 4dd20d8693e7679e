//! Futures of the store: a value that a thread of the store gives later, or that is there at once.
//! They need no runtime, and may be dropped at any time; what they stand for goes on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::{Condvar, Mutex};

use super::{Put, Refusal};

/// A value that will be there.
#[must_use = "a value that nobody awaits was fetched in vain"]
pub struct Fetching<T> {
    state: State<T>,
}

enum State<T> {
    Here(Option<T>),
    Coming(Arc<Shared<T>>),
}

impl<T> Fetching<T> {
    /// It is there already.
    pub fn ready(value: T) -> Fetching<T> {
        Fetching { state: State::Here(Some(value)) }
    }

    /// It will be given through the second value; if that is dropped first, `otherwise` is.
    pub fn pair(otherwise: T) -> (Fetching<T>, Promise<T>) {
        let shared = Arc::new(Shared { inner: Mutex::default(), given: Condvar::new() });
        (Fetching { state: State::Coming(Arc::clone(&shared)) }, Promise { shared, otherwise: Some(otherwise) })
    }

    /// Waits on this thread: for commands and tests that have no runtime.
    pub fn wait(self) -> T {
        match self.state {
            State::Here(value) => value.expect("a future is not used after its end"),
            State::Coming(shared) => shared.wait(),
        }
    }
}

impl<T: Unpin> Future for Fetching<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match &mut self.state {
            State::Here(value) => Poll::Ready(value.take().expect("a future is not polled after its end")),
            State::Coming(shared) => shared.poll(cx),
        }
    }
}

struct Shared<T> {
    inner: Mutex<Inner<T>>,
    given: Condvar,
}

struct Inner<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

impl<T> Default for Inner<T> {
    fn default() -> Self {
        Inner { value: None, waker: None }
    }
}

impl<T> Shared<T> {
    fn poll(&self, cx: &Context<'_>) -> Poll<T> {
        let mut inner = self.inner.lock();
        if let Some(value) = inner.value.take() {
            return Poll::Ready(value);
        }
        inner.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn wait(&self) -> T {
        let mut inner = self.inner.lock();
        loop {
            if let Some(value) = inner.value.take() {
                return value;
            }
            self.given.wait(&mut inner);
        }
    }
}

/// The side that gives the value: exactly once, whatever happens.
pub struct Promise<T> {
    shared: Arc<Shared<T>>,
    otherwise: Option<T>,
}

impl<T> Promise<T> {
    /// Gives it.
    pub fn give(mut self, value: T) {
        self.otherwise = Some(value);
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let waker = {
            let mut inner = self.shared.inner.lock();
            inner.value = self.otherwise.take();
            inner.waker.take()
        };
        self.shared.given.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The outcome of a put, once it is known. Dropping this does not stop the put.
pub struct Putting {
    outcome: Fetching<Put>,
}

impl Putting {
    /// It is known already that it does not go.
    pub fn refused(why: Refusal) -> Putting {
        Putting { outcome: Fetching::ready(Put::Refused(why)) }
    }

    /// It will be told through the second value.
    pub fn pair() -> (Putting, Promise<Put>) {
        let (outcome, promise) = Fetching::pair(Put::Refused(Refusal::Closed));
        (Putting { outcome }, promise)
    }

    /// Waits on this thread: for commands and tests that have no runtime.
    pub fn wait(self) -> Put {
        self.outcome.wait()
    }
}

impl Future for Putting {
    type Output = Put;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Put> {
        Pin::new(&mut self.outcome).poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_from_another_thread() {
        let (fetching, promise) = Fetching::pair(0);
        let thread = std::thread::spawn(move || promise.give(7));
        assert_eq!(fetching.wait(), 7);
        thread.join().unwrap();
    }

    #[test]
    fn who_awaits_is_woken_and_told() {
        let (mut putting, promise) = Putting::pair();
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(Pin::new(&mut putting).poll(&mut cx), Poll::Pending);
        promise.give(Put::Stored);
        assert_eq!(Pin::new(&mut putting).poll(&mut cx), Poll::Ready(Put::Stored));
    }

    #[test]
    fn a_giver_that_goes_away_gives_what_was_agreed() {
        let (putting, promise) = Putting::pair();
        drop(promise);
        assert_eq!(putting.wait(), Put::Refused(Refusal::Closed));
        let (fetching, promise) = Fetching::pair(Vec::<u8>::new());
        drop(fetching);
        promise.give(vec![1]);
    }
}
