//! Limits of the admin listener and of the control socket: connections at a time, and costly requests at a time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections that wait for a request or take an answer. When there are more, the oldest one is closed: a client that
/// sends its request at once is answered, however many others send nothing.
const WAITING_MAX: usize = 256;

/// Requests at a time that take a while to answer. Further ones are answered 503.
const ASKING_MAX: usize = 64;

/// Requests for the documentation at a time. They need no token, and so take no permits of those that do.
const READING_MAX: usize = 16;

/// The limits of one listener. The control socket, which only the owner can open, has limits of its own, so that
/// clients of the admin listener can't lock the owner out.
#[derive(Clone)]
pub(super) struct Doorway {
    waiting: Rc<Waiting>,
    asking: Arc<Semaphore>,
    reading: Arc<Semaphore>,
}

#[derive(Default)]
struct Waiting {
    /// Connections by the order in which they began to wait.
    tickets: RefCell<BTreeMap<u64, oneshot::Sender<()>>>,
    next: Cell<u64>,
}

impl Doorway {
    pub(super) fn new() -> Doorway {
        let [asking, reading] = [ASKING_MAX, READING_MAX].map(|most| Arc::new(Semaphore::new(most)));
        Doorway { waiting: Rc::default(), asking, reading }
    }

    /// A connection begins to wait for its client.
    pub(super) fn wait(&self) -> Wait {
        let mut tickets = self.waiting.tickets.borrow_mut();
        while tickets.len() >= WAITING_MAX
            && let Some((_, longest)) = tickets.pop_first()
        {
            let _ = longest.send(());
        }
        let (send_off, sent_off) = oneshot::channel();
        let number = self.waiting.next.get();
        self.waiting.next.set(number + 1);
        tickets.insert(number, send_off);
        Wait { waiting: Rc::clone(&self.waiting), number, sent_off }
    }

    /// The permit for a costly request; `None` when there are too many.
    pub(super) fn ask(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.asking).try_acquire_owned().ok()
    }

    /// The permit for a part of the documentation; `None` when there are too many.
    pub(super) fn read(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.reading).try_acquire_owned().ok()
    }
}

/// A connection waits for its client for as long as this lives.
pub(super) struct Wait {
    waiting: Rc<Waiting>,
    number: u64,
    sent_off: oneshot::Receiver<()>,
}

impl Wait {
    /// The result of `client`, or `None` when a newer connection needed the place first.
    pub(super) async fn until<T>(mut self, client: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = client => Some(done),
            _ = &mut self.sent_off => None,
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.waiting.tickets.borrow_mut().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_has_waited_for_the_longest_time_goes_first() {
        let doorway = Doorway::new();
        let mut waits: Vec<Wait> = (0..WAITING_MAX).map(|_| doorway.wait()).collect();
        let (first, second) = (waits.remove(0), waits.remove(0));
        drop(waits.pop());
        waits.push(doorway.wait());
        assert_eq!(first.until(async { 1 }).await, Some(1), "there was room");
        waits.push(doorway.wait());
        waits.push(doorway.wait());
        assert_eq!(second.until(std::future::pending::<()>()).await, None);
        assert!(waits.iter_mut().all(|wait| wait.sent_off.try_recv().is_err()));
        drop(waits);
        assert!(doorway.waiting.tickets.borrow().is_empty());
    }

    #[test]
    fn questions_have_a_limit() {
        let doorway = Doorway::new();
        let asking: Vec<_> = (0..ASKING_MAX).map(|_| doorway.ask().unwrap()).collect();
        assert!(doorway.ask().is_none());
        let reading: Vec<_> = (0..READING_MAX).map(|_| doorway.read().unwrap()).collect();
        assert!(doorway.read().is_none());
        drop((asking, reading));
        assert!(doorway.read().is_some());
        assert!(doorway.ask().is_some());
    }
}
