//! Replies of hooks that a worker has read before. Most hooks decide one of a few things, and say it byte for byte as they did the last
//! time: to compare those bytes costs less than to read their JSON, to decode a page in it and to say in words what was decided. That
//! nothing is remembered about requests by this is the difference to `memo`: the process was asked, and has replied.

use super::Decided;
use crate::hashing::HashState;
use crate::mount::Hooks;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Replies of one stage that are known at once, per worker. Each has one place, which it shares with others that are forgotten for it.
const REPLIES_MAX: usize = 64;

/// A longer reply is read anew each time.
const REPLY_BYTES_MAX: usize = 1_024;

/// The replies of one stage that a worker knows.
pub struct KnownReplies<E> {
    /// Empty until the first one comes.
    places: Vec<Option<KnownReply<E>>>,
    hashing: HashState,
}

struct KnownReply<E> {
    /// The version that replied, with the hooks that were called: places of hooks mean others in another version.
    hooks: Arc<Hooks>,
    called: Box<[u16]>,
    json: Box<[u8]>,
    decided: Decided<E>,
}

impl<E> Default for KnownReplies<E> {
    fn default() -> KnownReplies<E> {
        KnownReplies { places: Vec::new(), hashing: HashState::default() }
    }
}

impl<E> KnownReplies<E> {
    /// The decision that this reply to a call of these hooks is.
    pub fn find(&self, (hooks, called): (&Arc<Hooks>, &[u16]), json: &[u8]) -> Option<Decided<E>> {
        let known = self.places.get(self.place(json))?.as_ref()?;
        let is_same = *known.json == *json && *known.called == *called && Arc::ptr_eq(&known.hooks, hooks);
        is_same.then(|| known.decided.clone())
    }

    /// Knows a reply from now on.
    pub fn keep(&mut self, (hooks, called): (&Arc<Hooks>, &[u16]), json: &[u8], decided: &Decided<E>) {
        if json.len() > REPLY_BYTES_MAX {
            return;
        }
        if self.places.is_empty() {
            self.places.resize_with(REPLIES_MAX, || None);
        }
        let (hooks, called, json) = (Arc::clone(hooks), called.into(), Box::from(json));
        let place = self.place(&json);
        self.places[place] = Some(KnownReply { hooks, called, json, decided: decided.clone() });
    }

    fn place(&self, json: &[u8]) -> usize {
        (self.hashing.hash_one(json) % REPLIES_MAX as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HookNote, RequestEffects};
    use super::*;
    use crate::mount::Stage;
    use std::rc::Rc;

    fn decided(hooks: &Hooks, key: &str) -> Decided<RequestEffects> {
        let effects = Rc::new(RequestEffects { key: vec![key.to_owned()], ..RequestEffects::default() });
        Decided { effects, note: HookNote::begin(Stage::Request, hooks, &[0]), until: None }
    }

    #[test]
    fn a_reply_is_known_by_its_bytes_its_hooks_and_their_version() {
        let (hooks, others, mut known) =
            (Arc::new(Hooks::default()), Arc::new(Hooks::default()), KnownReplies::default());
        let find = |known: &KnownReplies<RequestEffects>, hooks: &Arc<Hooks>, called: &[u16], json: &[u8]| {
            known.find((hooks, called), json).map(|decided| decided.effects.key[0].clone())
        };
        assert_eq!(find(&known, &hooks, &[0], b""), None, "nothing is known yet");
        known.keep((&hooks, &[0]), b"{}", &decided(&hooks, "a"));
        assert_eq!(find(&known, &hooks, &[0], b"{}").as_deref(), Some("a"));
        for (hooks, called, json) in
            [(&hooks, &[0][..], &b"{ }"[..]), (&hooks, &[0, 1], b"{}"), (&hooks, &[1], b"{}"), (&others, &[0], b"{}")]
        {
            assert_eq!(find(&known, hooks, called, json), None, "{called:?} {json:?}");
        }
        known.keep((&others, &[0]), b"{}", &decided(&others, "b"));
        assert_eq!(find(&known, &others, &[0], b"{}").as_deref(), Some("b"));
        assert_eq!(find(&known, &hooks, &[0], b"{}"), None, "the version of before is forgotten for it");
    }

    #[test]
    fn no_more_replies_are_known_than_there_is_room_for() {
        let (hooks, mut known) = (Arc::new(Hooks::default()), KnownReplies::default());
        for number in 0..REPLIES_MAX * 20 {
            let json = number.to_string();
            known.keep((&hooks, &[0]), json.as_bytes(), &decided(&hooks, &json));
            let found = known.find((&hooks, &[0]), json.as_bytes()).unwrap();
            assert_eq!(found.effects.key[0], json);
        }
        assert_eq!(known.places.len(), REPLIES_MAX);
        let long = vec![b' '; REPLY_BYTES_MAX + 1];
        known.keep((&hooks, &[0]), &long, &decided(&hooks, "long"));
        assert!(known.find((&hooks, &[0]), &long).is_none());
        known.keep((&hooks, &[0]), &long[1..], &decided(&hooks, "short"));
        assert!(known.find((&hooks, &[0]), &long[1..]).is_some());
    }
}
