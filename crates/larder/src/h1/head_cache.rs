//! Heads of requests that were answered. Of a head whose fields repeat those of an earlier one byte for byte only the request
//! line is parsed, and a memo of the earlier judgement may answer for the rules.

use crate::rules::{JudgeMemo, RefusalMemo};
use larder_wire::parse::Parsed;
use larder_wire::{Fault, RequestHead, hop};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::ops::Deref;

/// Heads of requests that were answered. A client sends nearly the same fields each time, and many clients send equal ones.
#[derive(Default)]
pub struct HeadCache([RefCell<CachedHead>; HEADS]);

#[derive(Default)]
struct CachedHead {
    head: Option<Box<RequestHead>>,
    /// The memo of a judgement of that head, or of an earlier one.
    memo: Option<Box<JudgeMemo>>,
    /// The memo was seen to hold for exactly these fields.
    memo_is_valid: bool,
    /// The memo of a refusal of that head, or of an earlier one.
    refusal: Option<Box<RefusalMemo>>,
    /// That one was seen to hold for exactly these fields.
    refusal_is_valid: bool,
}

/// A request's head, with the memo of an earlier one.
pub struct Request {
    /// The head.
    pub head: Box<RequestHead>,
    /// The head before it named the same host.
    pub host_is_repeated: bool,
    /// The memo of an earlier judgement, for this host or another.
    pub memo: Option<Box<JudgeMemo>>,
    /// The memo was seen to hold for exactly these fields, so that they need not be compared again.
    pub memo_is_valid: bool,
    /// The memo of an earlier refusal.
    pub refusal: Option<Box<RefusalMemo>>,
    /// The memo of the refusal was seen to hold for exactly these fields.
    pub refusal_is_valid: bool,
}

impl Deref for Request {
    type Target = RequestHead;

    fn deref(&self) -> &RequestHead {
        &self.head
    }
}

/// The number of heads that are cached. The port of a client decides which of them it uses.
const HEADS: usize = 16;

/// A longer head is not worth keeping.
const HEAD_BYTES_MAX: usize = 4 * 1024;

impl HeadCache {
    /// Reads a head by `read`, which gets the earlier head and takes it if the fields are the same.
    pub fn read(
        &self,
        peer: SocketAddr,
        read: impl FnOnce(&mut Option<Box<RequestHead>>) -> Result<Parsed<Box<RequestHead>>, Fault>,
    ) -> Result<Parsed<Request>, Fault> {
        let mut cached = self.place(peer).borrow_mut();
        let had = cached.head.is_some();
        Ok(match read(&mut cached.head)? {
            Parsed::Partial => Parsed::Partial,
            Parsed::Complete { mut head, len } => {
                // `read` took the earlier head: the fields are the same.
                let is_repeated = had && cached.head.is_none();
                if !is_repeated {
                    hop::forget_named(&mut head.fields);
                }
                let named = |before: &RequestHead| before.fields.get("Host") == head.fields.get("Host");
                let host_is_repeated = is_repeated || cached.head.as_deref().is_some_and(named);
                let was_valid = std::mem::take(&mut cached.memo_is_valid);
                let was_refused = std::mem::take(&mut cached.refusal_is_valid);
                let (memo, memo_is_valid) = (cached.memo.take(), was_valid && is_repeated);
                let (refusal, refusal_is_valid) = (cached.refusal.take(), was_refused && is_repeated);
                let head = Request { head, host_is_repeated, memo, memo_is_valid, refusal, refusal_is_valid };
                Parsed::Complete { head, len }
            }
        })
    }

    /// Keeps the head of a request that was answered.
    pub fn keep(&self, peer: SocketAddr, request: Request) {
        if request.head.fields.heap_bytes() <= HEAD_BYTES_MAX {
            let Request { head, memo, memo_is_valid, refusal, refusal_is_valid, .. } = request;
            let head = Some(head);
            *self.place(peer).borrow_mut() = CachedHead { head, memo, memo_is_valid, refusal, refusal_is_valid };
        }
    }

    fn place(&self, peer: SocketAddr) -> &RefCell<CachedHead> {
        &self.0[usize::from(peer.port()) % HEADS]
    }
}
