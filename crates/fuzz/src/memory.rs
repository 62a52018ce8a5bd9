//! How much memory a thread holds: decoders must not let a length field decide about that.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting for each thread. It refuses single allocations above [`REFUSED`].
struct Counting;

/// Size of an allocation (bytes) that fails, which ends the process, instead of taking the machine's memory.
const REFUSED: usize = 1 << 30;

thread_local! {
    /// Bytes that this thread holds. Negative when it frees what another one allocated.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    let held = HELD.get() + change;
    HELD.set(held);
    MOST.set(MOST.get().max(held));
}

// SAFETY: everything is handed on to the system's allocator unchanged, or refused with a null pointer, which the
// contract allows. The counters are plain cells without destructors, so touching them neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > REFUSED {
            return std::ptr::null_mut();
        }
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() > REFUSED {
            return std::ptr::null_mut();
        }
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract of `dealloc`; `at` came from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size > REFUSED {
            return std::ptr::null_mut();
        }
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller keeps the contract of `realloc`; `at` came from the system's allocator.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Runs `work`; gives the most bytes that this thread held during it, beyond what it held before.
pub(crate) fn most_held(work: impl FnOnce()) -> usize {
    let before = HELD.get();
    MOST.set(before);
    work();
    usize::try_from(MOST.get() - before).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::most_held;

    #[test]
    fn allocations_are_counted_and_given_back() {
        let work = || drop((Vec::<u8>::with_capacity(5_000_000), vec![0u8; 3_000_000]));
        assert!((8_000_000..8_001_000).contains(&most_held(work)));
        assert!(most_held(|| ()) == 0);
    }
}
