//! Bytes of answers that clients have acknowledged. QUIC tells nobody how far it is, but it lets a piece go once all of it has come.

use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shorter pieces are not counted: an answer of a few bytes needs no measure of its progress.
const COUNTED_BYTES_MIN: usize = 1_024;

/// Counts the bytes of one connection, in pieces of at least a kibibyte.
#[derive(Clone, Default)]
pub struct Acknowledged(Arc<AtomicU64>);

impl Acknowledged {
    /// The bytes so far. Those of streams that were reset are among them.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The same piece, which counts once nobody holds it any more.
    pub fn counted(&self, piece: Bytes) -> Bytes {
        match piece.len() {
            COUNTED_BYTES_MIN.. => Bytes::from_owner(Counted { piece, count: self.clone() }),
            _ => piece,
        }
    }
}

struct Counted {
    piece: Bytes,
    count: Acknowledged,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.count.0.fetch_add(self.piece.len() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_counts_when_its_last_part_goes() {
        let acknowledged = Acknowledged::default();
        let mut piece = acknowledged.counted(vec![1; 2_000].into());
        drop(acknowledged.counted(vec![1; 1_000].into()));
        let part = piece.split_to(500);
        drop(piece);
        assert_eq!(acknowledged.bytes(), 0);
        drop(part);
        assert_eq!(acknowledged.bytes(), 2_000);
    }
}
