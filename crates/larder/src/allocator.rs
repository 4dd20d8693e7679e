//! The allocator, and its settings for the memory budget. This file needs `unsafe` code: an allocator is made of it,
//! its options have no other door, and its environment variables are read before `main`.

#![allow(unsafe_code)]

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_long, c_void};

/// mimalloc, called as C programs call it. Its Rust crate asks for an alignment each time: that costs a third more for
/// small blocks, and for those beyond 1 KB a slower path and a larger block. Nearly all blocks are aligned as they must
/// be without that (docs/decisions/016).
#[derive(Debug)]
pub struct Allocator;

/// Blocks of at least so many bytes are aligned to as many, and shorter ones to [`WORD_BYTES`], unasked (`MI_MAX_ALIGN_SIZE`
/// of mimalloc's types.h).
const ALIGNED_BYTES: usize = 16;
const WORD_BYTES: usize = 8;

fn is_aligned_unasked(size: usize, align: usize) -> bool {
    align <= WORD_BYTES || (align <= ALIGNED_BYTES && size >= ALIGNED_BYTES)
}

// SAFETY: all calls go to one allocator, which knows its blocks whichever of its functions gave them. `mi_malloc`, `mi_zalloc`
// and `mi_realloc` do what `malloc`, `calloc` and `realloc` do, null for want of memory included, and align as is said above;
// everything else is left to the crate's own implementation. None of them unwinds.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_aligned_unasked(layout.size(), layout.align()) {
            true => mi_malloc(layout.size()).cast(),
            // SAFETY: the caller's promise is passed on.
            false => unsafe { MiMalloc.alloc(layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_aligned_unasked(layout.size(), layout.align()) {
            true => mi_zalloc(layout.size()).cast(),
            // SAFETY: the caller's promise is passed on.
            false => unsafe { MiMalloc.alloc_zeroed(layout) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on: the block came from here.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        match is_aligned_unasked(new_size, layout.align()) {
            // SAFETY: the caller promises that the block came from here and is not used any more.
            true => unsafe { mi_realloc(block.cast(), new_size).cast() },
            // SAFETY: the caller's promise is passed on.
            false => unsafe { MiMalloc.realloc(block, layout, new_size) },
        }
    }
}

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
// ignores an option that does not exist and touches nothing but the table of options; `mi_collect`, `mi_malloc` and
// `mi_zalloc` may be called at any time by any thread.
unsafe extern "C" {
    safe fn mi_option_set(option: c_int, value: c_long);
    safe fn mi_collect(force: bool);
    safe fn mi_malloc(size: usize) -> *mut c_void;
    safe fn mi_zalloc(size: usize) -> *mut c_void;
    fn mi_realloc(block: *mut c_void, new_size: usize) -> *mut c_void;
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
    // A kernel without this call rounds memory up.
    let _ = rustix::thread::disable_transparent_huge_pages(!allowed);
}

/// Gives back to the system what is freed and held back for later. To be called some times a second by each worker.
pub(crate) fn give_back(memory_bytes: u64) {
    if memory_bytes < HELD_BACK_BYTES_MIN {
        mi_collect(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every size class with every alignment, from both ways, and over a change of size.
    #[test]
    fn blocks_are_aligned_and_keep_their_bytes() {
        for align in [1, 2, 4, 8, 16, 32, 64, 4096] {
            for size in (1..200).chain((200..40_000).step_by(97)) {
                let layout = Layout::from_size_align(size, align).unwrap();
                let larger = Layout::from_size_align(size * 3, align).unwrap();
                // SAFETY: each block is used within its size and freed once, with the layout it has then.
                unsafe {
                    let zeros = Allocator.alloc_zeroed(layout);
                    assert!((0..size).all(|at| *zeros.add(at) == 0));
                    let block = Allocator.alloc(layout);
                    assert!([zeros, block].iter().all(|block| block.addr().is_multiple_of(align)), "{size} to {align}");
                    block.write_bytes(7, size);
                    let block = Allocator.realloc(block, layout, size * 3);
                    assert!(block.addr().is_multiple_of(align), "{size} to {align}");
                    assert!((0..size).all(|at| *block.add(at) == 7));
                    Allocator.dealloc(block, larger);
                    Allocator.dealloc(zeros, layout);
                }
            }
        }
    }
}
