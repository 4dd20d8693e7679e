//! HTTP dates and the time they are measured in.

/// Whole seconds since 1970-01-01T00:00:00Z. HTTP knows no finer time (RFC 9110 section 5.6.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub u64);

impl Stamp {
    /// Seconds from `earlier` to here; 0 when it is not earlier.
    pub fn since(self, earlier: Stamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This many seconds later.
    pub fn plus(self, seconds: u64) -> Stamp {
        Stamp(self.0.saturating_add(seconds))
    }
}
