//! Threads that check passwords and tokens: a check takes up to seconds on purpose, and no worker waits for it.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use tokio::sync::oneshot;

/// Checks that wait for a thread. Further ones are refused.
const QUEUE_MAX: usize = 256;

/// Threads at most.
const THREADS_MAX: usize = 4;

type Check = Box<dyn FnOnce() + Send>;

/// The threads, which begin with the first check and end with the server.
#[derive(Default)]
pub(super) struct Verifier {
    queue: Mutex<Option<SyncSender<Check>>>,
}

/// Too many checks wait, or there is no thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Busy;

impl Verifier {
    /// Runs a check on one of the threads.
    pub async fn run<T: Send + 'static>(&self, check: impl FnOnce() -> T + Send + 'static) -> Result<T, Busy> {
        let (send, receive) = oneshot::channel();
        let job: Check = Box::new(move || {
            // Nobody waits for the check of a client that has left.
            if !send.is_closed() {
                let _ = send.send(check());
            }
        });
        self.queue()?.try_send(job).map_err(|_| Busy)?;
        receive.await.map_err(|_| Busy)
    }

    fn queue(&self) -> Result<SyncSender<Check>, Busy> {
        let mut queue = self.queue.lock();
        if let Some(queue) = &*queue {
            return Ok(queue.clone());
        }
        let (send, receive) = sync_channel::<Check>(QUEUE_MAX);
        let receive = Arc::new(Mutex::new(receive));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for number in 0..cores.div_ceil(2).clamp(1, THREADS_MAX) {
            let receive = Arc::clone(&receive);
            let name = format!("passwords-{number}");
            std::thread::Builder::new().name(name).spawn(move || work(&receive)).map_err(|_| Busy)?;
        }
        *queue = Some(send.clone());
        Ok(send)
    }
}

fn work(checks: &Mutex<Receiver<Check>>) {
    loop {
        let check = checks.lock().recv();
        match check {
            // A check that meets a broken invariant takes no thread with it.
            Ok(check) => drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(check))),
            Err(_) => return,
        }
    }
}
