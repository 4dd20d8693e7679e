//! The trait that a transport implements, and the values that it is given: an answer goes out, a request's body comes in.
//! How either is framed is the transport's business.

use crate::env::{Env, PeerFacts};
use crate::page::Page;
use crate::record::{Id, Outcome};
use crate::request_body::Piece;
use crate::socket::OtherSide;
use bytes::Bytes;
use larder_cache::cache::Tier;
use larder_cache::head::StoredHead;
use larder_wire::{Fault, FaultKind, Fields, Host, ResponseHead};
use std::io;
use std::ops::Range;
use std::rc::Rc;

/// The transport of one exchange with a client. A connection of HTTP/1.1 is one, and streams of HTTP/2 and HTTP/3 are.
///
/// An answer is `begin_answer`, any number of body pieces, then `end_answer`; or `break_off` in place of the end. Nothing goes
/// out before it is flushed, unless much has come together.
#[expect(async_fn_in_trait, reason = "all of it stays on one thread")]
pub trait ClientStream {
    /// The context of the worker.
    fn env(&self) -> &Rc<Env>;

    /// The client's connection.
    fn peer(&self) -> &PeerFacts;

    /// Begins the final answer.
    fn begin_answer(&mut self, head: &AnswerHead<'_>);

    /// Whether the final answer has begun. Then an error page would be taken for the rest of that answer.
    fn answer_has_begun(&self) -> bool;

    /// The status and the word of the small answer that the client got because it takes no head as long as the one that was begun; no
    /// body follows, and flushes fail.
    fn refused(&self) -> Option<(u16, &'static str)>;

    /// Hands over an interim head (RFC 9110 section 15.2).
    fn interim(&mut self, head: &ResponseHead);

    /// Whether TLS in a tunnel to this host is intercepted with a certificate of the local CA.
    fn opens_tunnel(&self, host: &Host) -> bool;

    /// Hands over a 200 after which the stream is a tunnel (RFC 9110 section 9.3.6).
    fn open_tunnel(&mut self);

    /// Hands over a 101 after which the protocols of its field `Upgrade` are spoken (RFC 9110 section 15.2.2), or the answer that says
    /// the same on this transport; gives the status.
    fn switch_protocols(&mut self, head: &mut ResponseHead) -> u16;

    /// Whether the client may see what an origin answered to an offer of protocols. Over HTTP/2 a success would be taken for the
    /// opened protocol (RFC 8441 section 5), whatever the origin meant by it.
    fn may_pass_on(&self, _: &ResponseHead) -> bool {
        true
    }

    /// Hands over pieces of the body that are shared with the store.
    fn send(&mut self, pieces: std::vec::Drain<'_, Bytes>);

    /// Hands over a part of a piece that the store has.
    fn send_part(&mut self, piece: &Bytes, part: Range<usize>);

    /// Hands over bytes of a body that are copied.
    fn send_copied(&mut self, bytes: &[u8]);

    /// Ends an answer whose body is whole; trailer fields are sent where the framing allows them.
    fn end_answer(&mut self, trailers: Option<Fields>);

    /// Ends an answer that can't be completed, so that the client sees that it is incomplete (RFC 9112 section 8).
    fn break_off(&mut self);

    /// Announces a body that the client may take slowly: the kernel then holds at most `limits.unsent_bytes_max` of it that are
    /// not sent yet, and half of that where the body comes from memory.
    fn expect_long_body(&mut self, tier: Tier);

    /// The number of bytes that wait to be written.
    fn unwritten_bytes(&self) -> usize;

    /// Writes all bytes that wait, and gives the number of writes: one shows that the client reads as fast as Larder writes.
    async fn flush(&mut self) -> io::Result<usize>;

    /// Writes all bytes that wait, if they are many.
    async fn flush_if_full(&mut self) -> io::Result<()>;

    /// Has this connection written before the next one of the batch is served: it holds one of the few disk buffers.
    fn flush_soon(&mut self);

    /// Gives empty buffers back to the worker before a wait.
    fn lend_buffers(&mut self);

    /// Takes a buffer for an answer that is about to be written.
    fn borrow_buffer(&mut self);

    /// The next piece of the request's body. Cancel-safe.
    async fn next_body_piece(&mut self) -> Result<Piece, BodyEnd>;

    /// Whether the request's body was read to its end.
    fn body_is_over(&mut self) -> bool;

    /// Whether the client has closed the connection, or its direction of it.
    fn other_side(&self) -> OtherSide;
}

/// Why no further piece of a request's body comes.
#[derive(Debug)]
pub enum BodyEnd {
    /// The connection broke.
    Broken,
    /// The client was silent for too long.
    Late,
    /// The request turned out to be malformed, in a version whose streams are reset for that. The word is for the record.
    Malformed(&'static str),
    /// The framing is broken, or the body is longer than permitted.
    Fault(Fault),
}

/// Counts the bytes of one more piece of a request's body; the body may not be longer than `limits.body_bytes_max`.
pub fn count_upload(env: &Env, so_far: &mut u64, piece_bytes: usize) -> Result<(), BodyEnd> {
    *so_far += piece_bytes as u64;
    match env.config().limits.body_bytes_max {
        Some(max) if *so_far > max => {
            Err(BodyEnd::Fault(Fault::client(FaultKind::BodyTooLong, "the body is longer than permitted")))
        }
        _ => Ok(()),
    }
}

/// The head of an answer, as values.
pub struct AnswerHead<'a> {
    /// The status.
    pub status: u16,
    /// The fields of the response.
    pub fields: AnswerFields<'a>,
    /// How much body follows.
    pub body: AnswerBody,
    /// The fields that are made for each answer anew.
    pub dynamic: Dynamic<'a>,
    /// No further request is served on the connection.
    pub is_last: bool,
}

/// The fields of a response that do not depend on the moment.
pub enum AnswerFields<'a> {
    /// Those of a response's head; HTTP/1.1 sends its reason phrase too.
    Response(&'a ResponseHead),
    /// Fields that were put together for this answer.
    Own(&'a Fields),
    /// Those of an error page or another page of Larder's own.
    Page(&'a Page),
}

/// The body of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerBody {
    /// No body. The length is stated in `Content-Length` all the same, as in the answer to a HEAD.
    None(Option<u64>),
    /// A body of this many bytes.
    Known(u64),
    /// A body whose length is not known before its end.
    Unknown,
}

/// The fields that are made for each answer anew: `Age`, `Via`, `Cache-Status`, `Date` of a page, `Larder-Request`.
#[derive(Clone, Copy)]
pub enum Dynamic<'a> {
    /// For a response.
    Response {
        /// `Age` in seconds; `None` where the answer has no such field.
        age: Option<u64>,
        /// The version in which this response came from its origin, for `Via`.
        received: larder_wire::Version,
        /// `Cache-Status`.
        status: CacheStatus<'a>,
        /// The name of the request for `Larder-Request`, where it is to be sent.
        name: Option<Id>,
    },
    /// For a page.
    Page {
        /// The time for `Date`.
        now: larder_wire::date::Stamp,
        /// The detail for `Cache-Status`.
        word: &'static str,
        /// The name of the request for `Larder-Request`, where it is to be sent.
        name: Option<Id>,
    },
}

/// The parameters of this cache's member of `Cache-Status` (RFC 9211), in the words of the record.
#[derive(Clone, Copy)]
pub struct CacheStatus<'a> {
    /// How the answer came about.
    pub outcome: Outcome,
    /// The head of the response.
    pub stored: &'a StoredHead,
    /// Seconds of freshness that are left, where the response came from the store.
    pub ttl: Option<i64>,
}
