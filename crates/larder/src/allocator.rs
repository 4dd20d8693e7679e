//! What the allocator is told of the memory budget. It is the one place of the tree with `unsafe` code: the allocator's
//! options have no other door, and its environment variables are read before `main`.

#![allow(unsafe_code)]

// The static library comes with it, also where it is not the allocator (tests).
use mimalloc as _;
use std::ffi::{c_int, c_long};

/// From this budget on, large pages are worth what they round up.
const LARGE_PAGES_BYTES_MIN: u64 = 1_000_000_000;

/// Below this budget, what the allocator holds back for the next 10 ms is a good part of all memory: 10 MB with a budget
/// of 4 MB. It costs up to a fifth of the CPU of a miss (docs/decisions/012), so larger budgets do without.
const HELD_BACK_BYTES_MIN: u64 = 64_000_000;

/// How long freed pages are held back below that.
const HELD_BACK_MS: c_long = 1;

/// `mi_option_purge_delay` in milliseconds, of mimalloc 2 and 3.
const PURGE_DELAY: c_int = 15;

// SAFETY: these are the signatures of mimalloc.h (versions 2 and 3), where an `enum` is an `int`. Both functions take
// any option number: they ignore those that do not exist, and touch nothing but the table of options.
unsafe extern "C" {
    safe fn mi_option_set(option: c_int, value: c_long);
    safe fn mi_option_get(option: c_int) -> c_long;
}

/// Makes the process as small as its memory budget. Called once, before other threads run: the options have no lock.
pub(crate) fn fit(memory_bytes: u64) {
    if memory_bytes < HELD_BACK_BYTES_MIN && mi_option_get(PURGE_DELAY) > HELD_BACK_MS {
        mi_option_set(PURGE_DELAY, HELD_BACK_MS);
    }
    // The allocator asks for pages of 2 MB: a server that holds 10 MB would take 30. Children inherit this, so a
    // `larder run` leaves it alone.
    if memory_bytes < LARGE_PAGES_BYTES_MIN {
        // Where that is not known, memory is rounded up.
        let _ = rustix::thread::disable_transparent_huge_pages(true);
    }
}
