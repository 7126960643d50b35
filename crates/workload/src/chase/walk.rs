//! Writes the path into memory, and reads along it.
#![allow(unsafe_code)]
//! # Safety
//! The first word of each cache line of the working set holds the address of another such line. All
//! words are written before the first is read. They are in memory that the [`ChaseWalk`] owns, which is
//! private to this process, mapped and populated until the walk is dropped. No other code has its
//! addresses.

use hugeleaf_units::Bytes;

use super::cycle::ChaseCycle;
use super::memory::ChaseMemory;

#[derive(Debug)]
pub struct ChaseWalk {
    memory: ChaseMemory,
    lines: u64,
    at: u64,
}

impl ChaseWalk {
    /// Writes a path through the first `length` bytes of `memory`, one read per `line` bytes, in an
    /// order drawn from `seed`. This writes the whole range, so all of it is warm afterwards.
    ///
    /// A `length` beyond the memory means all of it. `line` is rounded up to a multiple of the size
    /// of an address.
    pub fn lay(memory: ChaseMemory, length: Bytes, line: Bytes, seed: u64) -> ChaseWalk {
        let word = size_of::<u64>() as u64;
        let line = line.get().max(1).next_multiple_of(word);
        let start = memory.range().start();
        let length = length.min(memory.range().len());
        let lines = (length.get() / line).max(1);
        let cycle = ChaseCycle::new(lines, seed);
        for number in 0..lines {
            let next = start + cycle.after(number) * line;
            let at = (start + number * line) as *mut u64;
            // SAFETY: `number * line` plus a word is within the memory, which is mapped, writable
            // and owned by this walk. `line` is a multiple of a word and the start that of a page,
            // so the address is aligned.
            unsafe { at.write(next) };
        }
        ChaseWalk {
            memory,
            lines,
            at: start,
        }
    }

    /// Follows the path for `hops` lines, from the position of the last call.
    pub fn go(&mut self, hops: u64) {
        let mut at = self.at;
        for _ in 0..hops {
            // SAFETY: `at` is the start of a line that `lay` wrote, and its first word is the
            // address of another one. Volatile, so that no read is omitted or reordered.
            at = unsafe { (at as *const u64).read_volatile() };
        }
        self.at = at;
    }

    /// Returns the number of lines, which is also the number of hops in one cycle.
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    pub const fn memory(&self) -> &ChaseMemory {
        &self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chase::PageArm;
    use hugeleaf_host::{Root, read_memory_facts};
    use hugeleaf_sys::Kernel;

    #[test]
    fn once_around_comes_back_and_meets_every_line() {
        let host = read_memory_facts(&Root::live(), &Kernel::new()).unwrap();
        let length = Bytes(host.base_page.bytes().get() * 3);
        let memory = ChaseMemory::take(PageArm::base(&host), length, &host).unwrap();
        let mut walk = ChaseWalk::lay(memory, length, Bytes(64), 3);
        let start = walk.at;
        assert_eq!(walk.lines(), length.get() / 64);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..walk.lines() {
            walk.go(1);
            assert!(walk.memory().range().contains(walk.at));
            seen.insert(walk.at);
        }
        assert_eq!(walk.at, start);
        assert_eq!(seen.len() as u64, walk.lines());
    }
}
