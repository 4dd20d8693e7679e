//! Bodies that outlive their heads: an answer that has begun reads its blocks to the end, though a newer response has taken the
//! place of this one, or it was removed.

use super::ObjectId;
use parking_lot::Mutex;
use std::collections::HashMap;

/// The bodies of a folder whose blocks stay in the index while somebody reads them.
#[derive(Default)]
pub(super) struct KeptBodies {
    bodies: Mutex<HashMap<ObjectId, Kept>>,
}

#[derive(Default)]
struct Kept {
    holders: usize,
    /// The head has gone: the blocks go with the last holder. With the length of the body, where it is known.
    headless: Option<Option<u64>>,
}

impl KeptBodies {
    /// The blocks of this body stay until [`KeptBodies::release`].
    pub(super) fn keep(&self, id: ObjectId) {
        self.bodies.lock().entry(id).or_default().holders += 1;
    }

    /// The head of a body has gone. False where nobody keeps its blocks: they can go now.
    pub(super) fn head_has_gone(&self, id: ObjectId, length: Option<u64>) -> bool {
        let mut bodies = self.bodies.lock();
        let kept = bodies.get_mut(&id);
        kept.is_some_and(|kept| {
            kept.headless = Some(length);
            true
        })
    }

    /// A head of this body was written again: its blocks don't go with the last holder.
    pub(super) fn head_has_come(&self, id: ObjectId) {
        if let Some(kept) = self.bodies.lock().get_mut(&id) {
            kept.headless = None;
        }
    }

    /// A holder leaves. Where it was the last one of a body whose head has gone, the length of the body: its blocks can go.
    pub(super) fn release(&self, id: ObjectId) -> Option<Option<u64>> {
        let mut bodies = self.bodies.lock();
        let kept = bodies.get_mut(&id)?;
        kept.holders -= 1;
        if kept.holders > 0 {
            return None;
        }
        bodies.remove(&id)?.headless
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_go_with_the_last_holder_and_only_when_the_head_has_gone() {
        let kept = KeptBodies::default();
        let (one, two) = (ObjectId(1), ObjectId(2));
        assert!(!kept.head_has_gone(one, Some(7)), "nobody keeps it");
        kept.keep(one);
        kept.keep(one);
        kept.keep(two);
        assert!(kept.head_has_gone(one, Some(7)));
        assert_eq!(kept.release(one), None, "another holder is left");
        assert_eq!(kept.release(one), Some(Some(7)));
        assert_eq!(kept.release(two), None, "its head is there");
        kept.keep(two);
        assert!(kept.head_has_gone(two, Some(7)));
        kept.head_has_come(two);
        assert_eq!(kept.release(two), None, "its head is there again");
        assert!(!kept.head_has_gone(one, None) && !kept.head_has_gone(two, None));
        assert_eq!(kept.release(one), None);
    }
}
