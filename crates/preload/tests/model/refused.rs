//! Placement at an address: if the kernel refuses it, the old mapping stays.

#![allow(clippy::unwrap_used)]
#![allow(unsafe_code)] // memory as mmap hands it out

use hugeleaf_preload::placement::place_hugetlb;
use hugeleaf_preload::state::round_up;
use hugeleaf_preload::syscalls::{self, flag};

const NOTHING: usize = flag::PRIVATE | flag::ANONYMOUS;
const MEMORY: usize = flag::READ | flag::WRITE;

/// Requests more than any pool has. The addresses can be reserved, but the pages are unavailable.
#[test]
fn what_the_pool_refuses_leaves_what_was_there() {
    let memory = syscalls::memory().unwrap();
    for size in [2 << 20, 32 << 20, 512 << 20] {
        let length = round_up(memory + 1, size).unwrap();
        // SAFETY: a new mapping.
        let at = unsafe { syscalls::mmap(0, length + size, 0, NOTHING) };
        assert!(!syscalls::failed(at));
        let at = round_up(at as usize, size).unwrap();
        // SAFETY: inside it; written and read below.
        unsafe {
            assert_eq!(syscalls::mprotect(at, size, MEMORY), 0);
            (at as *mut u8).write_volatile(7);
        }
        assert!(!place_hugetlb(at, length, size, flag::PRIVATE));
        assert!(!place_hugetlb(at, length, size, flag::SHARED));
        // SAFETY: still mapped, which is tested here.
        assert_eq!(unsafe { (at as *mut u8).read_volatile() }, 7);
        // SAFETY: mapped above.
        unsafe { syscalls::munmap(at, length) };
    }
}
