//! The way of a coordinator's messages to one agent: a thread of its own that may wait for a socket, so that the coordinator
//! never does. An agent that stops reading thereby holds up no other one.

use crate::control::Channel;
use serde::Serialize;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

/// Bytes of messages that wait for one agent; more are an error. Notes of 100,000 answers a second have 3 MB in each second.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// Messages that wait to be written to one agent.
pub(super) struct Outgoing {
    sender: Option<Sender<Vec<u8>>>,
    waiting: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Outgoing {
    /// Begins to write to this end. `broken` is told once, when a message could not be written; nothing is written after it.
    pub fn start(channel: Arc<Channel>, broken: impl FnOnce(io::Error) + Send + 'static) -> Self {
        let (sender, receiver): (_, Receiver<Vec<u8>>) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let counted = waiting.clone();
        let thread = std::thread::spawn(move || {
            for message in receiver {
                if let Err(error) = channel.send_framed(&message) {
                    return broken(error);
                }
                counted.fetch_sub(message.len(), Relaxed);
            }
        });
        Self { sender: Some(sender), waiting, thread: Some(thread) }
    }

    /// Has a message written after those that wait.
    pub fn send(&self, message: &impl Serialize) -> io::Result<()> {
        let message = Channel::framed(message)?;
        if self.waiting.load(Relaxed) + message.len() > WAITING_BYTES_MAX {
            return Err(io::Error::new(ErrorKind::StorageFull, "it does not take what it is told"));
        }
        self.waiting.fetch_add(message.len(), Relaxed);
        let sent = self.sender.as_ref().map(|sender| sender.send(message));
        // The thread has ended: it has told why.
        sent.and_then(Result::ok).ok_or_else(|| ErrorKind::BrokenPipe.into())
    }

    /// Waits until all is written, or cannot be.
    pub fn end(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
