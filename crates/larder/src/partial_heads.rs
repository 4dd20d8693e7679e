//! Memory of partial heads, counted over all connections of a worker.

use std::cell::Cell;
use std::rc::Rc;

/// Memory of the partial heads on one worker.
#[derive(Debug, Default)]
pub struct HeadsUnderWay {
    bytes: Cell<usize>,
    bytes_max: usize,
}

impl HeadsUnderWay {
    /// Nothing is held yet; all together may hold so many bytes.
    pub fn new(bytes_max: usize) -> Rc<HeadsUnderWay> {
        Rc::new(HeadsUnderWay { bytes: Cell::new(0), bytes_max })
    }

    /// Bytes that they hold together.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }
}

/// Memory of the partial head on one connection, counted for as long as this lives.
#[derive(Default)]
pub struct HeadUnderWay {
    held: usize,
    heads: Option<Rc<HeadsUnderWay>>,
}

/// There is no room for so long a head now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowded;

impl HeadUnderWay {
    /// Notes how many bytes the head holds now; refuses it when it is too long while all heads hold so much.
    pub fn holds(&mut self, heads: &Rc<HeadsUnderWay>, bytes: usize) -> Result<(), Crowded> {
        let heads = self.heads.get_or_insert_with(|| Rc::clone(heads));
        let others = heads.bytes.get() - self.held;
        heads.bytes.set(others + bytes);
        self.held = bytes;
        if bytes > head_bytes_max(others + bytes, heads.bytes_max) { Err(Crowded) } else { Ok(()) }
    }
}

impl Drop for HeadUnderWay {
    fn drop(&mut self) {
        if let Some(heads) = &self.heads {
            heads.bytes.set(heads.bytes.get() - self.held);
        }
    }
}

/// Room that nearly every head has enough with.
const USUAL_BYTES: usize = 8 * 1024;
const SMALL_BYTES: usize = 4 * 1024;

/// How long a head may be while all of them hold so much. Long ones are refused first, so that those who send long heads
/// slowly leave room for the others; a head that comes in one piece is never under way.
fn head_bytes_max(total: usize, max: usize) -> usize {
    match total {
        _ if total <= max / 2 => usize::MAX,
        _ if total <= max / 4 * 3 => USUAL_BYTES,
        _ if total <= max => SMALL_BYTES,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_heads_are_refused_before_short_ones() {
        let max = 1_000_000;
        let rows = [(500_000, usize::MAX), (500_001, USUAL_BYTES), (750_001, SMALL_BYTES), (1_000_001, 0)];
        for (total, longest) in rows {
            assert_eq!(head_bytes_max(total, max), longest, "{total}");
        }
    }
}
