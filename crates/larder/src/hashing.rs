//! Seeds of hash tables whose order of iteration shows: from the system's randomness, and fixed in tests, so that a simulation can
//! be played again.

#[cfg(test)]
use std::hash::{BuildHasherDefault, DefaultHasher};

/// Makes the hashers of a table.
#[cfg(not(test))]
pub type HashState = std::hash::RandomState;

/// Makes the hashers of a table.
#[cfg(test)]
pub type HashState = BuildHasherDefault<DefaultHasher>;
