//! What clients said last, so that what they say again is neither read nor judged again.

use crate::access::Precedent;
use larder_wire::parse::Parsed;
use larder_wire::{Fault, RequestHead};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::ops::Deref;

/// Heads of requests that were answered. A client says nearly the same each time, and many clients say the same.
#[derive(Default)]
pub struct Heads([RefCell<Kept>; HEADS]);

/// What is kept in one place.
#[derive(Default)]
struct Kept {
    head: Option<Box<RequestHead>>,
    /// Of that head, or of one before it.
    precedent: Option<Box<Precedent>>,
    /// The precedent holds for all that the fields of that head say.
    is_settled: bool,
}

/// A request's head, with what is known of it from the one before.
pub struct Request {
    /// The head.
    pub head: Box<RequestHead>,
    /// The one before it named the same host.
    pub is_host_named_again: bool,
    /// What was found out before, about this host or another.
    pub precedent: Option<Box<Precedent>>,
    /// That holds for all that the fields of this head say.
    pub is_settled: bool,
}

impl Deref for Request {
    type Target = RequestHead;

    fn deref(&self) -> &RequestHead {
        &self.head
    }
}

/// So many are kept, each where the port of its client puts it.
const HEADS: usize = 16;

/// A longer head is not worth keeping.
const HEAD_BYTES_MAX: usize = 4 * 1024;

impl Heads {
    /// Reads a head with the help of one before.
    pub fn read(
        &self,
        peer: SocketAddr,
        read: impl FnOnce(&mut Option<Box<RequestHead>>) -> Result<Parsed<Box<RequestHead>>, Fault>,
    ) -> Result<Parsed<Request>, Fault> {
        let mut kept = self.place(peer).borrow_mut();
        let had = kept.head.is_some();
        Ok(match read(&mut kept.head)? {
            Parsed::Partial => Parsed::Partial,
            Parsed::Complete { head, len } => {
                // A head that serves is taken out.
                let is_said_again = had && kept.head.is_none();
                let named = |before: &RequestHead| before.fields.get("Host") == head.fields.get("Host");
                let is_host_named_again = is_said_again || kept.head.as_deref().is_some_and(named);
                let was_settled = std::mem::take(&mut kept.is_settled);
                let (precedent, is_settled) = (kept.precedent.take(), was_settled && is_said_again);
                Parsed::Complete { head: Request { head, is_host_named_again, precedent, is_settled }, len }
            }
        })
    }

    /// Keeps a head that was served.
    pub fn keep(&self, peer: SocketAddr, request: Request) {
        if request.head.fields.heap_bytes() <= HEAD_BYTES_MAX {
            let Request { head, precedent, is_settled, .. } = request;
            *self.place(peer).borrow_mut() = Kept { head: Some(head), precedent, is_settled };
        }
    }

    fn place(&self, peer: SocketAddr) -> &RefCell<Kept> {
        &self.0[usize::from(peer.port()) % HEADS]
    }
}
