//! Buffers for bytes that pass: read from disk, sent, and let go. One that is used again at once is in the processor's
//! cache still, needs no zeros and no allocator.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use super::BLOCK_BYTES;

/// A block, or a head of usual length with its body; and a size that the allocator gives without rounding up.
pub(super) const SPARE_BYTES: usize = BLOCK_BYTES as usize + 16 * 1024;

/// Buffers of one length that come back when their last byte was let go.
pub(super) struct Spares {
    free: Mutex<Vec<Box<[u8]>>>,
    lent: AtomicUsize,
    lent_max: usize,
}

/// No more are kept when nobody has them: what one client may have at a time.
const IDLE_MAX: usize = 16;

/// Where bytes are read into.
#[derive(Clone, Copy)]
pub(super) enum Room<'a> {
    /// An allocation of their own length: they may stay.
    Own,
    /// A buffer that is used again: they pass.
    Spare(&'a Arc<Spares>),
}

/// Room for a read.
pub(super) enum Buffer {
    Own(Vec<u8>),
    Spare(Lent, usize),
}

/// A buffer that goes home.
pub(super) struct Lent {
    bytes: Box<[u8]>,
    home: Arc<Spares>,
}

impl Spares {
    /// At most so many are lent at a time; who wants one more gets an allocation.
    pub(super) fn new(lent_max: usize) -> Arc<Spares> {
        Arc::new(Spares { free: Mutex::default(), lent: AtomicUsize::new(0), lent_max })
    }

    /// Whether there are so many that one client may have several.
    pub(super) fn has_plenty(&self) -> bool {
        self.lent.load(Ordering::Relaxed) < self.plenty()
    }

    fn plenty(&self) -> usize {
        self.lent_max * 3 / 4
    }

    fn take(self: &Arc<Spares>) -> Option<Lent> {
        let more = |lent| (lent < self.lent_max).then_some(lent + 1);
        self.lent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let free = self.free.lock().pop();
        let bytes = free.unwrap_or_else(|| vec![0; SPARE_BYTES].into());
        Some(Lent { bytes, home: Arc::clone(self) })
    }

    fn give_back(&self, bytes: Box<[u8]>) {
        self.lent.fetch_sub(1, Ordering::Relaxed);
        let mut free = self.free.lock();
        if free.len() < self.plenty().min(IDLE_MAX) {
            free.push(bytes);
        }
    }
}

impl Room<'_> {
    /// For a read of so many bytes.
    pub(super) fn buffer(self, len: usize) -> Buffer {
        let lent = match self {
            Room::Spare(spares) if len <= SPARE_BYTES => spares.take(),
            _ => None,
        };
        lent.map_or_else(|| Buffer::Own(vec![0; len]), |lent| Buffer::Spare(lent, len))
    }
}

impl Buffer {
    /// All of it.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        match self {
            Buffer::Own(bytes) => bytes,
            Buffer::Spare(lent, len) => &mut lent.bytes[..*len],
        }
    }

    /// The first `len` bytes of it, to be shared.
    pub(super) fn into_bytes(self, len: usize) -> Bytes {
        match self {
            Buffer::Own(mut bytes) => {
                bytes.truncate(len);
                bytes.into()
            }
            Buffer::Spare(lent, most) => {
                let mut bytes = Bytes::from_owner(lent);
                bytes.truncate(len.min(most));
                bytes
            }
        }
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.give_back(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_when_its_last_byte_was_let_go() {
        let spares = Spares::new(1);
        let mut buffer = Room::Spare(&spares).buffer(10);
        buffer.bytes().copy_from_slice(b"0123456789");
        let place = buffer.bytes().as_ptr();
        let bytes = buffer.into_bytes(7);
        let part = bytes.slice(3..);
        drop(bytes);
        assert!(matches!(Room::Spare(&spares).buffer(10), Buffer::Own(_)), "there is one, and somebody has it");
        assert!(!spares.has_plenty());
        assert_eq!(part, &b"3456"[..]);
        drop(part);
        let mut again = Room::Spare(&spares).buffer(SPARE_BYTES);
        assert_eq!((again.bytes().as_ptr(), again.bytes().len()), (place, SPARE_BYTES));
        assert!(matches!(Room::Spare(&spares).buffer(1), Buffer::Own(_)));
        drop(again);
        assert!(matches!(Room::Spare(&spares).buffer(SPARE_BYTES + 1), Buffer::Own(_)), "too long for one");
        assert!(matches!(Room::Own.buffer(1), Buffer::Own(_)));
        let many = Spares::new(8);
        let mut held: Vec<_> = (0..6).map(|_| Room::Spare(&many).buffer(1)).collect();
        assert!(!many.has_plenty());
        held.pop();
        assert!(many.has_plenty());
        held.extend((0..3).map(|_| Room::Spare(&many).buffer(1)));
        drop(held);
        assert_eq!(many.free.lock().len(), 6, "what is more than plenty is given back");
    }
}
