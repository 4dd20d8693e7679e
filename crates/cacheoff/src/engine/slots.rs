//! Numbered places for connections. A place that is used again has another generation, so that an event or a timer for
//! the one before does not reach the one after.

/// Places.
#[derive(Debug)]
pub struct Slots<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

/// A place and its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// The place.
    pub place: u32,
    /// Its generation.
    pub generation: u32,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// Puts something into a free place.
    pub fn insert(&mut self, value: T) -> Slot {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let entry = &mut self.places[place as usize];
        // Generations have 24 bits in tokens.
        *entry = ((entry.0 + 1) & 0xff_ffff, Some(value));
        Slot { place, generation: entry.0 }
    }

    /// Takes something out of its place.
    pub fn remove(&mut self, slot: Slot) -> Option<T> {
        let entry = self.places.get_mut(slot.place as usize).filter(|entry| entry.0 == slot.generation)?;
        let value = entry.1.take()?;
        self.free.push(slot.place);
        Some(value)
    }

    /// The value of a slot that is still of this generation.
    pub fn at(&mut self, slot: Slot) -> Option<&mut T> {
        self.places.get_mut(slot.place as usize).filter(|entry| entry.0 == slot.generation)?.1.as_mut()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(place, (generation, value))| {
            Some((Slot { place: place as u32, generation: *generation }, value.as_ref()?))
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

impl Slot {
    /// As a token of the poll; `kind` has four bits.
    pub fn token(self, kind: u64) -> u64 {
        kind << 56 | u64::from(self.generation) << 32 | u64::from(self.place)
    }

    /// The kind and the place of a token.
    pub fn of_token(token: u64) -> (u64, Self) {
        (token >> 56, Self { place: token as u32, generation: (token >> 32) as u32 & 0xff_ffff })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_used_again_is_another_one() {
        let mut slots = Slots::default();
        let first = slots.insert('a');
        assert_eq!(Slot::of_token(first.token(3)), (3, first));
        assert_eq!(slots.remove(first), Some('a'));
        let second = slots.insert('b');
        assert_eq!((first.place, slots.len()), (second.place, 1));
        assert_eq!(slots.at(first), None);
        assert_eq!(slots.at(second), Some(&mut 'b'));
    }
}
