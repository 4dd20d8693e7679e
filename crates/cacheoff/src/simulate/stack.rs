//! Stack distances: how large an LRU cache must be for each request to hit, all sizes in one pass (Mattson 1970).

use std::collections::HashMap;

/// Objects in the order of their last use, with running sums of their bytes.
#[derive(Clone, Debug)]
pub struct Stack {
    /// Where each object was used last, and its bytes.
    last: HashMap<u64, (usize, u64)>,
    /// Sums of bytes by place, as a binary indexed tree.
    sums: Vec<u64>,
    next: usize,
}

impl Stack {
    /// For so many uses.
    pub fn with_capacity(uses: usize) -> Self {
        Self { last: HashMap::new(), sums: vec![0; uses + 1], next: 0 }
    }

    /// Uses an object. `Some` is the bytes of all objects used since its last use, itself included: an LRU cache of
    /// that size hits.
    pub fn touch(&mut self, object: u64, bytes: u64) -> Option<u64> {
        if self.next + 1 >= self.sums.len() {
            self.make_room();
        }
        let place = self.next;
        self.next += 1;
        let before = self.last.insert(object, (place, bytes));
        let distance = before.map(|(at, _)| self.sum(place) - self.sum(at));
        if let Some((at, old)) = before {
            self.add(at, old.wrapping_neg());
        }
        self.add(place, bytes);
        distance
    }

    /// Bytes of all objects.
    #[cfg(test)]
    pub fn bytes(&self) -> u64 {
        self.sum(self.next)
    }

    /// Numbers the places anew, so that old ones are free again.
    fn make_room(&mut self) {
        let mut order: Vec<(usize, u64, u64)> = self.last.iter().map(|(id, (at, bytes))| (*at, *id, *bytes)).collect();
        order.sort_unstable();
        self.sums = vec![0; (2 * order.len()).max(1_024) + 2];
        for (place, (_, object, bytes)) in order.iter().enumerate() {
            self.last.insert(*object, (place, *bytes));
            self.add(place, *bytes);
        }
        self.next = order.len();
    }

    /// Bytes of the places before this one.
    fn sum(&self, place: usize) -> u64 {
        let (mut at, mut sum) = (place, 0u64);
        while at > 0 {
            sum = sum.wrapping_add(self.sums[at]);
            at &= at - 1;
        }
        sum
    }

    fn add(&mut self, place: usize, bytes: u64) {
        let mut at = place + 1;
        while at < self.sums.len() {
            self.sums[at] = self.sums[at].wrapping_add(bytes);
            at += at & at.wrapping_neg();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_is_the_bytes_of_what_was_used_since() {
        for capacity in [0, 3, 100] {
            let mut stack = Stack::with_capacity(capacity);
            let touched =
                [(1, 10), (2, 20), (1, 10), (3, 5), (2, 20), (2, 20)].map(|(id, bytes)| stack.touch(id, bytes));
            assert_eq!(touched, [None, None, Some(30), None, Some(35), Some(20)], "capacity {capacity}");
            assert_eq!(stack.bytes(), 35);
        }
    }
}
