//! What clients said last, so that what they say again is not read again.

use larder_wire::RequestHead;
use std::cell::RefCell;
use std::net::SocketAddr;

/// Heads of requests that were answered. A client says nearly the same each time, and many clients say the same: what is said
/// again is not read again.
#[derive(Default)]
pub struct Heads([RefCell<Option<Box<RequestHead>>>; HEADS]);

/// So many are kept, each where the port of its client puts it.
const HEADS: usize = 16;

/// A longer head is not worth keeping.
const HEAD_BYTES_MAX: usize = 4 * 1024;

impl Heads {
    /// Reads a head with the help of one before.
    pub fn read<T>(&self, peer: SocketAddr, read: impl FnOnce(&mut Option<Box<RequestHead>>) -> T) -> T {
        read(&mut self.place(peer).borrow_mut())
    }

    /// Keeps a head that was served.
    pub fn keep(&self, peer: SocketAddr, head: Box<RequestHead>) {
        if head.fields.heap_bytes() <= HEAD_BYTES_MAX {
            *self.place(peer).borrow_mut() = Some(head);
        }
    }

    fn place(&self, peer: SocketAddr) -> &RefCell<Option<Box<RequestHead>>> {
        &self.0[usize::from(peer.port()) % HEADS]
    }
}
