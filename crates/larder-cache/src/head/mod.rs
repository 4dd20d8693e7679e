//! The head of a response as the cache holds it: a value, with what was decided about it when it arrived.
//!
//! Nothing here knows how a transport writes a head. The bytes that [`StoredHead::encode`] makes are the store's alone.

use crate::policy::{NotStored, Terms};
use crate::tags;
use larder_wire::ResponseHead;
use larder_wire::date::Stamp;
use xxhash_rust::xxh3::xxh3_64;

mod format;

pub use format::{FormatFault, VERSION};

/// A response head ready for use, with what was decided about it when it arrived.
///
/// An answer that is not stored has one too, without [`StoredHead::terms`].
#[derive(Debug)]
pub struct StoredHead {
    /// The head without hop-by-hop fields, `Age` and `Content-Length`.
    pub head: ResponseHead,
    /// Freshness and validators; `None` for an answer that is not stored.
    pub terms: Option<Terms>,
    /// When the response arrived here.
    pub received: Stamp,
    extras: Option<Box<Extras>>,
}

/// Facts that few heads have, in an allocation of their own so that the other heads are smaller.
#[derive(Debug, Default)]
struct Extras {
    not_stored: Option<NotStored>,
    for_asker: Option<ResponseHead>,
    tags: Box<[u64]>,
}

impl StoredHead {
    /// Prepares a head from which the caller has taken the fields that must not be forwarded.
    pub fn new(mut head: ResponseHead, terms: Option<Terms>, received: Stamp) -> StoredHead {
        head.fields.shrink();
        let tags = tags::of(&head.fields);
        StoredHead::tagged(head, terms, received, tags)
    }

    /// Prepares a head whose fields take no more memory than they need, and of whose tags the hashes are known.
    fn tagged(head: ResponseHead, terms: Option<Terms>, received: Stamp, tags: Box<[u64]>) -> StoredHead {
        let extras = (!tags.is_empty()).then(|| Box::new(Extras { tags, ..Extras::default() }));
        StoredHead { head, terms, received, extras }
    }

    /// The head of an answer that is not stored: it is sent once, so its fields stay as they were received.
    pub fn passing(head: ResponseHead, why: Option<NotStored>, received: Stamp) -> StoredHead {
        StoredHead { head, terms: None, received, extras: None }.with_reason(why)
    }

    /// Adds the head that goes to the request that caused the fetch, where that one gets fields which are not stored
    /// (`private="…"`, `no-cache="…"`).
    pub fn with_head_for_asker(mut self, mut head: ResponseHead) -> StoredHead {
        head.fields.shrink();
        self.extras.get_or_insert_default().for_asker = Some(head);
        self
    }

    /// Adds the reason why the response is not stored, where that was decided.
    pub fn with_reason(mut self, why: Option<NotStored>) -> StoredHead {
        if why.is_some() {
            self.extras.get_or_insert_default().not_stored = why;
        }
        self
    }

    /// Why the response is not stored, where that was decided.
    pub fn not_stored(&self) -> Option<NotStored> {
        self.extras.as_ref()?.not_stored
    }

    /// The head that goes to the request that caused the fetch, where it is not [`StoredHead::head`].
    pub fn head_for_asker(&self) -> Option<&ResponseHead> {
        self.extras.as_ref()?.for_asker.as_ref()
    }

    /// Hashes of the tags that its origin gave it, for invalidation.
    pub fn tags(&self) -> &[u64] {
        self.extras.as_ref().map_or(&[], |extras| &extras.tags)
    }

    /// The number that tells the variants of one key apart on disk; 0 for a response that does not vary.
    pub fn variant(&self) -> u64 {
        let vary = self.terms.as_ref().map(|terms| &terms.vary).filter(|vary| !vary.is_empty());
        vary.map_or(0, |vary| xxh3_64(vary.as_bytes()).max(1))
    }

    /// Bytes this head holds in memory, itself included.
    pub fn heap_bytes(&self) -> usize {
        let extras = self.extras.as_ref().map_or(0, |extras| {
            size_of::<Extras>() + extras.for_asker.as_ref().map_or(0, content_bytes) + size_of_val(&*extras.tags)
        });
        size_of::<StoredHead>() + content_bytes(&self.head) + self.terms.as_ref().map_or(0, Terms::heap_bytes) + extras
    }
}

/// Bytes on the heap that a head holds.
fn content_bytes(head: &ResponseHead) -> usize {
    head.reason.heap_bytes() + head.fields.heap_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There are millions of them; an allocator gives 224 bytes for one with its counts.
    #[test]
    fn a_head_is_small() {
        assert!(size_of::<StoredHead>() <= 200, "{}", size_of::<StoredHead>());
    }

    #[test]
    fn the_head_for_the_asker_is_charged_for() {
        let plain = StoredHead::new(ResponseHead::new(200), None, Stamp(0));
        let mut own = ResponseHead::new(200);
        own.fields.push("X-Private", "x".repeat(1_000));
        let before = plain.heap_bytes();
        let with = plain.with_head_for_asker(own);
        assert!(with.heap_bytes() > before + 1_000);
        assert!(with.head_for_asker().is_some_and(|head| head.fields.contains("X-Private")));
        assert!(!with.head.fields.contains("X-Private"));
    }
}
