//! What the allocator is told of the memory budget. It needs `unsafe` code: the allocator's options have
//! no other door, and its environment variables are read before `main`.

#![allow(unsafe_code)]

// The static library comes with it, also where it is not the allocator (tests).
use mimalloc as _;
use std::ffi::{c_int, c_long};

/// From this budget on, large pages are worth what they round up.
const LARGE_PAGES_BYTES_MIN: u64 = 1_000_000_000;

/// Below this budget, what the allocator holds back for later is a good part of all memory: up to 25 MB while bodies
/// stream through (docs/decisions/012).
const HELD_BACK_BYTES_MIN: u64 = 256_000_000;

/// Below this budget nothing is held back at all; a miss then costs half as much again.
const NOTHING_HELD_BACK_BYTES_MIN: u64 = 8_000_000;

/// `mi_option_purge_delay` in milliseconds, of mimalloc 2 and 3.
const PURGE_DELAY: c_int = 15;

// SAFETY: these are the signatures of mimalloc.h (versions 2 and 3), where an `enum` is an `int`. `mi_option_set`
// ignores an option that does not exist and touches nothing but the table of options; `mi_collect` may be called at any
// time by any thread.
unsafe extern "C" {
    safe fn mi_option_set(option: c_int, value: c_long);
    safe fn mi_collect(force: bool);
}

/// Runs before anything else: the runtime allocates before `main`, and what is touched before the budget is known would
/// take pages of 2 MB.
// SAFETY: the section is a list of C functions that the loader calls, one after the other, before `main`; what it hands
// them, this one does not look at. It makes one system call and needs nothing that is made ready later.
#[used]
#[unsafe(link_section = ".init_array.00099")]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    large_pages(false);
}

/// For a program that starts others, which would inherit it.
pub(crate) fn begin_with_children() {
    large_pages(true);
}

/// Makes the process as small as its memory budget. Called once, before other threads run: the options have no lock.
pub(crate) fn fit(memory_bytes: u64) {
    if memory_bytes < NOTHING_HELD_BACK_BYTES_MIN {
        mi_option_set(PURGE_DELAY, 0);
    }
    large_pages(memory_bytes >= LARGE_PAGES_BYTES_MIN);
}

/// The allocator asks for pages of 2 MB: with them, a server that holds 10 MB would take 30.
fn large_pages(allowed: bool) {
    // Where that is not known, memory is rounded up.
    let _ = rustix::thread::disable_transparent_huge_pages(!allowed);
}

/// Gives back to the system what is freed and held back for later. To be called some times a second by each worker.
pub(crate) fn give_back(memory_bytes: u64) {
    if memory_bytes < HELD_BACK_BYTES_MIN {
        mi_collect(true);
    }
}
