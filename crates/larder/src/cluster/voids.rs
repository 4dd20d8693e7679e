//! Keys that requests by way of this node made void (RFC 9111 section 4.4), until their homes were told (decision 121): a home that was not
//! would give back what it has stored.

use std::collections::{HashMap, VecDeque};

/// Keys that are remembered; each takes some 50 bytes. A further one has the oldest forgotten.
const VOID_KEYS_MAX: usize = 1 << 16;

/// The keys, by their place.
#[derive(Debug, Default)]
pub struct Voids {
    /// The number of the last request that made a key void.
    marks: HashMap<u64, u64>,
    /// Those that were noted, the oldest first; a key that was told or noted again meanwhile is passed over.
    noted: VecDeque<(u64, u64)>,
    last: u64,
}

impl Voids {
    /// A request made a key void.
    pub fn note(&mut self, place: u64) {
        self.last += 1;
        self.marks.insert(place, self.last);
        self.noted.push_back((place, self.last));
        // A key that is noted again and again takes the place of no other one.
        while self.marks.len() > VOID_KEYS_MAX
            && let Some((place, mark)) = self.noted.pop_front()
        {
            self.told(place, mark);
        }
        if self.noted.len() > 2 * VOID_KEYS_MAX {
            let marks = &self.marks;
            self.noted.retain(|(place, mark)| marks.get(place) == Some(mark));
        }
    }

    /// The mark of a key that is void.
    pub fn mark_of(&self, place: u64) -> Option<u64> {
        self.marks.get(&place).copied()
    }

    /// The home knows of this mark. One that came meanwhile stays.
    pub fn told(&mut self, place: u64, mark: u64) {
        if self.mark_of(place) == Some(mark) {
            self.marks.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_void_until_its_home_was_told() {
        let mut voids = Voids::default();
        assert_eq!(voids.mark_of(7), None);
        voids.note(7);
        let first = voids.mark_of(7).unwrap();
        // A second request while the home is being told of the first.
        voids.note(7);
        voids.told(7, first);
        let second = voids.mark_of(7).unwrap();
        assert_ne!(first, second);
        voids.told(7, second);
        assert_eq!(voids.mark_of(7), None);
    }

    #[test]
    fn the_oldest_keys_make_room() {
        let mut voids = Voids::default();
        let max = VOID_KEYS_MAX as u64;
        (0..max).for_each(|place| voids.note(place));
        assert!((0..max).all(|place| voids.mark_of(place).is_some()), "no key takes the place of another one");
        voids.note(0);
        voids.note(max);
        assert!(voids.mark_of(0).is_some(), "it was noted again");
        assert_eq!((voids.mark_of(1), voids.mark_of(2).is_some()), (None, true));
        (0..3 * max).for_each(|place| voids.note(place % 3));
        assert!(voids.mark_of(max).is_some(), "three keys that are noted often are three");
        assert!(voids.noted.len() <= 2 * VOID_KEYS_MAX && voids.marks.len() <= VOID_KEYS_MAX);
    }
}
