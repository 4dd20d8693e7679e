//! Names of requests: short, in no visible order, and resolved without a table.
//!
//! A request's number consists of its worker and its count there. Its name is that number, scrambled by a key of this
//! process: two requests never have one name, and the next name can't be guessed from one.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

/// The number of a request in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(pub u64);

/// Bits of a number that say which worker.
const WORKER_BITS: u32 = 12;

impl Number {
    /// The first number of a worker; the following ones come by [`Number::next`].
    pub fn first_of(worker: usize) -> Number {
        Number(worker as u64 & ((1 << WORKER_BITS) - 1))
    }

    /// The one after it, of the same worker.
    pub fn next(self) -> Number {
        Number(self.0.wrapping_add(1 << WORKER_BITS))
    }

    /// Which worker had it.
    pub fn worker(self) -> usize {
        (self.0 & ((1 << WORKER_BITS) - 1)) as usize
    }
}

/// The name of a request, as people and logs have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(u64);

/// Digits that are not easily confused.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 13;

impl Id {
    /// Reads what [`Id`] shows.
    pub fn parse(text: &str) -> Option<Id> {
        if text.len() != LENGTH {
            return None;
        }
        let value = text.bytes().try_fold(0u64, |value, byte| {
            let digit = DIGITS.iter().position(|digit| *digit == byte.to_ascii_lowercase())? as u64;
            value.checked_mul(32)?.checked_add(digit)
        });
        value.map(Id)
    }

    /// Appends what [`Display`](fmt::Display) shows.
    pub fn write_to(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.digits());
    }

    fn digits(self) -> [u8; LENGTH] {
        std::array::from_fn(|at| DIGITS[(self.0 >> (5 * (LENGTH - 1 - at))) as usize & 31])
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

/// Gives names by a key of its own.
#[derive(Clone, Debug)]
pub struct Names {
    keys: [u32; 4],
}

impl Default for Names {
    fn default() -> Names {
        let seed = RandomState::new();
        Names { keys: std::array::from_fn(|round| seed.hash_one(round) as u32) }
    }
}

impl Names {
    /// The name of a number.
    pub fn name(&self, number: Number) -> Id {
        let (mut left, mut right) = ((number.0 >> 32) as u32, number.0 as u32);
        for key in self.keys {
            (left, right) = (right, left ^ mixed(right, key));
        }
        Id(u64::from(left) << 32 | u64::from(right))
    }

    /// The number that has this name.
    pub fn number(&self, id: Id) -> Number {
        let (mut left, mut right) = ((id.0 >> 32) as u32, id.0 as u32);
        for key in self.keys.into_iter().rev() {
            (left, right) = (right ^ mixed(left, key), left);
        }
        Number(u64::from(left) << 32 | u64::from(right))
    }
}

/// One round: each bit of the input moves about half of the output.
fn mixed(half: u32, key: u32) -> u32 {
    let mut value = (half ^ key).wrapping_mul(0x85eb_ca6b);
    value = (value ^ value >> 15).wrapping_mul(0xc2b2_ae35);
    value ^ value >> 13
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_back() {
        let names = Names::default();
        let mut seen = std::collections::HashSet::new();
        for worker in [0, 1, 4_095] {
            let mut number = Number::first_of(worker);
            for _ in 0..1_000 {
                number = number.next();
                let id = names.name(number);
                assert!(seen.insert(id));
                assert_eq!(Id::parse(&id.to_string()), Some(id));
                assert_eq!(names.number(id), number);
                assert_eq!(number.worker(), worker);
            }
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for wrong in ["", "0", "http://a.ex/", "zzzzzzzzzzzzz", "00000000000000", "0000000u00000"] {
            assert_eq!(Id::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Id::parse("fzzzzzzzzzzzz"), Some(Id(u64::MAX)));
    }
}
