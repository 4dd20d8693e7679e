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
    /// Of that head.
    precedent: Option<Box<Precedent>>,
}

/// A request's head, with what is known of it from the one before.
pub struct Request {
    /// The head.
    pub head: Box<RequestHead>,
    /// All but its target was said before.
    pub is_said_again: bool,
    /// What was found out then.
    pub precedent: Option<Box<Precedent>>,
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
                let precedent = kept.precedent.take_if(|_| is_said_again);
                Parsed::Complete { head: Request { head, is_said_again, precedent }, len }
            }
        })
    }

    /// Keeps a head that was served.
    pub fn keep(&self, peer: SocketAddr, request: Request) {
        if request.head.fields.heap_bytes() <= HEAD_BYTES_MAX {
            *self.place(peer).borrow_mut() = Kept { head: Some(request.head), precedent: request.precedent };
        }
    }

    fn place(&self, peer: SocketAddr) -> &RefCell<Kept> {
        &self.0[usize::from(peer.port()) % HEADS]
    }
}
