//! The knowledge of all workers about the way to origins: addresses of names, and targets that were out of reach of late,
//! origins that were asked for several ranges at once, parents that could not be connected to.

use super::dns_cache::DnsCache;
use super::neighbour_health::ParentHealths;
use super::outages::Outages;
use super::ranges::Ranges;
use super::unreachable::Unreachable;
use std::fmt;
use std::sync::Arc;

/// Shared by all workers of a server, so that one worker need not wait for what another one learned by waiting.
pub struct Memory {
    pub(super) answers: DnsCache,
    pub(super) unreachable: Arc<Unreachable>,
    pub(super) outages: Outages,
    pub(super) ranges: Arc<Ranges>,
    /// Which parents could be connected to.
    pub parents: Arc<ParentHealths>,
}

/// Bytes of [`Memory::answers`] where nothing else is said.
const DNS_BYTES_MAX: usize = 1 << 20;

impl Memory {
    /// Knows nothing yet; answers of name servers take at most so many bytes.
    pub fn new(dns_bytes_max: usize) -> Memory {
        Memory {
            answers: DnsCache::new(dns_bytes_max),
            unreachable: Arc::default(),
            outages: Outages::default(),
            ranges: Arc::default(),
            parents: Arc::default(),
        }
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
