//! Tables of counters that begin as zeros and take memory only where they are written.

use std::sync::atomic::AtomicU64;

/// So many zeros. The allocator has pages for them that nobody has touched, and this does not touch them either.
pub(crate) fn zeros(count: usize) -> Box<[AtomicU64]> {
    vec![0u64; count].into_iter().map(AtomicU64::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn they_are_as_many_as_asked_for_and_zero() {
        let table = zeros(1_000);
        assert_eq!(table.len(), 1_000);
        assert!(table.iter().all(|count| count.load(Ordering::Relaxed) == 0));
    }
}
