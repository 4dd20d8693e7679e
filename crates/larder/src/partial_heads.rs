//! Memory that clients hold before their requests are whole: heads under way, counted for all connections of a worker.

use crate::worker::Worker;
use std::cell::Cell;
use std::rc::Rc;

/// What heads under way hold on one worker.
#[derive(Debug, Default)]
pub struct HeadsUnderWay {
    bytes: Cell<usize>,
}

impl HeadsUnderWay {
    /// What they hold together.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }
}

/// What the head under way on one connection holds, for as long as this lives.
#[derive(Default)]
pub struct HeadUnderWay {
    held: usize,
    worker: Option<Rc<Worker>>,
}

/// There is no room for so long a head now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowded;

impl HeadUnderWay {
    /// The head holds so many bytes now; refused when it is too long for how much all heads hold.
    pub fn holds(&mut self, worker: &Rc<Worker>, bytes: usize) -> Result<(), Crowded> {
        let heads = &self.worker.get_or_insert_with(|| Rc::clone(worker)).heads_under_way;
        let others = heads.bytes.get() - self.held;
        heads.bytes.set(others + bytes);
        self.held = bytes;
        let max = worker.shared.config.heads_under_way_bytes_max();
        if bytes > head_bytes_max(others + bytes, max) { Err(Crowded) } else { Ok(()) }
    }
}

impl Drop for HeadUnderWay {
    fn drop(&mut self) {
        if let Some(worker) = &self.worker {
            let heads = &worker.heads_under_way.bytes;
            heads.set(heads.get() - self.held);
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
