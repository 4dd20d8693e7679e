//! What the workers know together about the way to origins: addresses of names, and what was out of reach of late.

use super::answers::KnownAnswers;
use super::unreachable::Unreachable;
use std::fmt;
use std::sync::Arc;

/// Shared by all workers of a server: what one of them learned by waiting, the others need not wait for.
pub struct Memory {
    pub(super) answers: KnownAnswers,
    pub(super) unreachable: Arc<Unreachable>,
}

/// Bytes of [`Memory::answers`] where nothing else is said.
const DNS_BYTES_MAX: usize = 1 << 20;

impl Memory {
    /// Knows nothing yet; answers of name servers take at most so many bytes.
    pub fn new(dns_bytes_max: usize) -> Memory {
        Memory { answers: KnownAnswers::new(dns_bytes_max), unreachable: Arc::default() }
    }
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::new(DNS_BYTES_MAX)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}
