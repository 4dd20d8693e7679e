//! Things that are compiled from a text and in use: whoever reads the text again, as a reload does, has them without compiling.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Compiled things by their texts. Those that nobody uses any more are forgotten.
pub(crate) struct Interned<K, V>(Mutex<Known<K, V>>);

struct Known<K, V> {
    all: HashMap<K, Weak<V>>,
    /// So many entries are looked through for such as nobody uses.
    full_at: usize,
}

/// Fewer entries are not looked through.
const FULL_AT_LEAST: usize = 8;

impl<K: Eq + Hash, V> Interned<K, V> {
    pub(crate) fn new() -> Interned<K, V> {
        Interned(Mutex::new(Known { all: HashMap::new(), full_at: FULL_AT_LEAST }))
    }

    /// The thing of this text that is in use, else the one that `compile` makes.
    pub(crate) fn get<Q, E>(&self, text: &Q, compile: impl FnOnce(&Q) -> Result<V, E>) -> Result<Arc<V>, E>
    where
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
    {
        if let Some(there) = self.known().all.get(text).and_then(Weak::upgrade) {
            return Ok(there);
        }
        // Compiling may take long, and others need not wait for it. Two who compile the same have one each.
        let made = Arc::new(compile(text)?);
        let mut known = self.known();
        if known.all.len() >= known.full_at {
            known.all.retain(|_, thing| thing.strong_count() > 0);
            known.full_at = FULL_AT_LEAST.max(2 * known.all.len());
        }
        known.all.insert(text.to_owned(), Arc::downgrade(&made));
        Ok(made)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known<K, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_in_use_is_compiled_once_and_one_out_of_use_is_forgotten() {
        let (things, mut compiled) = (Interned::<String, usize>::new(), 0);
        let mut get = |text: &str| {
            let made = things.get(text, |text| {
                compiled += 1;
                text.parse::<usize>()
            });
            (made, compiled)
        };
        let (kept, times) = get("7");
        assert_eq!((kept.clone(), times), (Ok(Arc::new(7)), 1));
        assert_eq!(get("7").1, 1);
        assert!(get("seven").0.is_err());
        for number in 0..10_000 {
            assert_eq!(get(&number.to_string()).0, Ok(Arc::new(number)));
        }
        assert!(things.known().all.len() <= 2 * FULL_AT_LEAST, "{}", things.known().all.len());
        assert!(Arc::ptr_eq(&kept.unwrap(), &things.get("7", |_| Err(())).unwrap()));
        assert_eq!(things.get("8", |_| Err(())), Err(()));
    }
}
