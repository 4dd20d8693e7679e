//! The client's side of an exchange as the floors below a transport see it: an answer goes out, a request's body comes in. No
//! word of how either is framed.

use crate::env::{Env, PeerFacts};
use crate::page::Page;
use crate::record::{Id, Outcome};
use crate::request_body::Piece;
use crate::socket::OtherSide;
use bytes::Bytes;
use larder_cache::head::StoredHead;
use larder_wire::{Fault, Fields, Host, ResponseHead};
use std::io;
use std::ops::Range;
use std::rc::Rc;

/// The transport of one exchange with a client. A connection of HTTP/1.1 is one; a stream of HTTP/2 would be another.
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

    /// Whether some of the final answer was handed over already: another one would be taken for its rest.
    fn answer_has_begun(&self) -> bool;

    /// Hands over an interim head (RFC 9110 section 15.2).
    fn interim(&mut self, head: &ResponseHead);

    /// Whether a tunnel to this host is opened with a certificate of the local CA.
    fn opens_tunnel(&self, host: &Host) -> bool;

    /// Hands over a 200 after which the stream is a tunnel (RFC 9110 section 9.3.6).
    fn open_tunnel(&mut self);

    /// Hands over a 101 after which the protocols of its field `Upgrade` are spoken (RFC 9110 section 15.2.2).
    fn switch_protocols(&mut self, head: &mut ResponseHead);

    /// Hands over pieces of the body that are shared with the store.
    fn send(&mut self, pieces: std::vec::Drain<'_, Bytes>);

    /// Hands over a part of a piece that the store has.
    fn send_part(&mut self, piece: &Bytes, part: Range<usize>);

    /// Hands over bytes of a body that are copied.
    fn send_copied(&mut self, bytes: &[u8]);

    /// The body is whole; trailer fields go where the transport has room for them.
    fn end_answer(&mut self, trailers: Option<Fields>);

    /// The answer can't be completed. The client gets an end that it can't take for a proper one (RFC 9112 section 8).
    fn break_off(&mut self);

    /// A body follows that the client may take slowly: from here on the kernel holds only so much of it.
    fn expect_long_body(&mut self);

    /// Bytes that wait to be written.
    fn unwritten_bytes(&self) -> usize;

    /// Writes what waits; gives the number of writes. A client that reads as fast as Larder writes needs one.
    async fn flush(&mut self) -> io::Result<usize>;

    /// Writes when enough waits.
    async fn flush_if_full(&mut self) -> io::Result<()>;

    /// Writes before others are served: a buffer of which there are few waits here.
    fn flush_soon(&mut self);

    /// Gives buffers back to the worker for as long as nothing is to be written.
    fn lend_buffers(&mut self);

    /// Takes a buffer for an answer that is about to be written.
    fn borrow_buffer(&mut self);

    /// The next piece of the request's body. Cancel-safe.
    async fn next_body_piece(&mut self) -> Result<Piece, BodyEnd>;

    /// Whether the request's body was read to its end.
    fn body_is_over(&mut self) -> bool;

    /// The client's direction of the connection.
    fn other_side(&self) -> OtherSide;
}

/// Why no further piece of a request's body comes.
#[derive(Debug)]
pub enum BodyEnd {
    /// The connection broke.
    Broken,
    /// The client was silent for too long.
    Late,
    /// The framing is broken, or the body is longer than permitted.
    Fault(Fault),
}

/// The head of an answer, as values.
pub struct AnswerHead<'a> {
    /// The status.
    pub status: u16,
    /// The fields of the response.
    pub fields: AnswerFields<'a>,
    /// The body that follows.
    pub body: AnswerBody,
    /// The fields of this moment.
    pub dynamic: Dynamic<'a>,
    /// No further request is served on the connection.
    pub is_last: bool,
}

/// The fields of a response that do not depend on the moment.
pub enum AnswerFields<'a> {
    /// Those of a response's head, whose reason phrase goes out too where the transport has room for it.
    Response(&'a ResponseHead),
    /// Those that were put together for this answer.
    Own(&'a Fields),
    /// Those of a page.
    Page(&'a Page),
}

/// The body of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerBody {
    /// None follows; the length to state in spite of that, such as that of the answer to a GET in the answer to its HEAD.
    None(Option<u64>),
    /// So many bytes follow.
    Known(u64),
    /// Bytes follow, their number is not known before their end.
    Unknown,
}

/// The fields that are written anew for each answer.
pub enum Dynamic<'a> {
    /// Of a response.
    Response {
        /// Seconds, where the field is to be there.
        age: Option<u64>,
        /// The version in which this response came from its origin, for `Via`.
        received: larder_wire::Version,
        /// `Cache-Status`.
        status: CacheStatus<'a>,
        /// The name of the request.
        name: Option<Id>,
    },
    /// Of a page.
    Page {
        /// The time.
        now: larder_wire::date::Stamp,
        /// The word for `Cache-Status`.
        word: &'static str,
        /// The name of the request.
        name: Option<Id>,
    },
}

/// The parameters of this cache's member of `Cache-Status` (RFC 9211), in the words of the record.
pub struct CacheStatus<'a> {
    /// How the answer came about.
    pub outcome: Outcome,
    /// The response.
    pub kept: &'a StoredHead,
    /// Seconds of freshness that are left, where the response came from the store.
    pub ttl: Option<i64>,
}
