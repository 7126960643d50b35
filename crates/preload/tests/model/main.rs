//! A model of the library's state while a program grows.
//! It runs the real code of the windows, the judgement, the hugetlb pages and the lock. Threads
//! take turns at each access to shared state, in an order drawn from a seed. In every order:
//!
//! - no memory is handed out twice, and none that is handed out is unmapped or mapped over;
//! - one thread holds the lock, and a thread without it continues without it;
//! - a child forked between any two accesses gets memory, and none of its parent's.
//!
//! The kernel is the real one. The used pages are drawn, because the judgement must handle any
//! result.

#![allow(clippy::unwrap_used)]
#![allow(unsafe_code)] // forks, and memory as mmap hands it out
#![allow(dead_code, unreachable_pub)] // the library's modules, of which parts are used
#![allow(clippy::cast_possible_truncation)] // as in the library

mod atomic;
mod program;
mod refused;
mod schedule;
mod syscalls;

#[path = "../../src/density.rs"]
mod density;
#[path = "../../src/mapping_window.rs"]
mod mapping_window;
#[path = "../../src/placement.rs"]
mod placement;
#[path = "../../src/private_hugetlb.rs"]
mod private_hugetlb;
#[path = "../../src/syscalls.rs"]
mod real;
#[path = "../../src/state.rs"]
mod state;

/// The launcher's decisions are independent of threads.
mod settings {
    pub use hugeleaf_preload::settings::*;
}

/// Files of the process, which the model does not read: results are drawn.
mod range_usage {
    use crate::schedule;

    #[derive(Clone, Copy, PartialEq, Eq)]
    pub enum SampleMethod {
        Pages,
        Content,
        Thorough,
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    pub enum RangeUsage {
        Gone,
        Untouched,
        Pages {
            used: usize,
            of: usize,
            parts: usize,
        },
    }

    pub struct SampleBuffers;

    impl SampleBuffers {
        pub fn lend(work: impl FnOnce(&mut SampleBuffers)) {
            work(&mut SampleBuffers);
        }
    }

    pub struct ProcFiles;

    impl ProcFiles {
        pub fn open() -> ProcFiles {
            ProcFiles
        }

        pub fn close(&self) {}

        pub fn sample_range(
            &self,
            _: &mut SampleBuffers,
            _: usize,
            length: usize,
            _: SampleMethod,
        ) -> RangeUsage {
            let of = length.div_ceil(crate::state::settings().base);
            match schedule::drawn(8) {
                0 => RangeUsage::Gone,
                1 => RangeUsage::Untouched,
                2 => RangeUsage::Pages {
                    used: schedule::drawn(of + 1),
                    of,
                    parts: 2,
                },
                _ => RangeUsage::Pages {
                    used: of,
                    of,
                    parts: 1,
                },
            }
        }
    }
}

/// The heap of a process that has not left the pool.
mod heap {
    pub fn may_use_pools() -> bool {
        true
    }
}
