//! Memory of processes, as it is remembered: whose it is, where, and how much of it was held.

use std::collections::HashMap;

use hugeleaf_host::{Process, ProcessError, Root};
use hugeleaf_sys::Pid;
use hugeleaf_units::{Bytes, Range};
use serde::{Deserialize, Serialize};

/// Identity of a process: its id can be reused, but not together with the moment at which it started and the
/// places of its program's code, stack and arguments (proc(5)). Holds for one boot, PID namespace and time namespace.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Who {
    pub pid: Pid,
    start_ticks: u64,
    image: [u64; 4],
}

impl Who {
    /// # Errors
    /// [`ProcessError::Gone`] where it is not there any more.
    pub fn of(root: &Root, pid: Pid) -> Result<Who, ProcessError> {
        let (start_ticks, image) = hugeleaf_host::process::identity(root, pid)?;
        Ok(Who {
            pid,
            start_ticks,
            image,
        })
    }

    /// Returns true while it runs, and runs this program.
    pub fn is_there(&self, root: &Root) -> bool {
        Who::of(root, self.pid).is_ok_and(|now| now == *self)
    }

    /// Returns true where its program's addresses are shown: one that is being killed has none any more.
    pub(crate) const fn has_addresses(&self) -> bool {
        self.image[0] != 0
    }

    /// Tells whether it is the same process, which may have become another program.
    pub(crate) fn is_same_process(&self, other: &Who) -> bool {
        (self.pid, self.start_ticks) == (other.pid, other.start_ticks)
    }
}

impl From<&Process> for Who {
    fn from(process: &Process) -> Who {
        Who {
            pid: process.pid,
            start_ticks: process.start_ticks,
            image: process.image,
        }
    }
}

/// Ranges of a process's memory, which mean nothing without the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    pub who: Who,
    /// In order of address.
    pub ranges: Vec<Range>,
}

/// Device and inode, with whether it is a SysV segment: those number their inodes by themselves,
/// on the same device as other shared memory.
pub type ObjectId = (u32, u32, u64, bool);

/// A block: the process (0 of memory that several map), the address or the offset, and the object.
pub(crate) type Spot = (Pid, u64, ObjectId);

/// Memory that blocks held when they were split. A block may become huge again while it holds as much: then it gets back
/// its size. Memory that its process freed since would be filled up again for good.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Footprint(HashMap<Spot, Bytes>);

impl Footprint {
    /// `None` of a block that was not split.
    pub fn of(&self, block: Spot) -> Option<Bytes> {
        self.0.get(&block).copied()
    }

    /// Keeps the largest amount where several processes map the block.
    pub(crate) fn add(&mut self, block: Spot, held: Bytes) {
        let known = self.0.entry(block).or_default();
        *known = held.max(*known);
    }

    /// Takes over blocks that were split later.
    pub fn renew(&mut self, later: &Footprint) {
        self.0.extend(&later.0);
    }
}

/// Adds a range behind the others; one that begins where the last ends becomes a part of that.
pub(crate) fn push_joined(ranges: &mut Vec<Range>, next: Range) {
    if let Some(last) = ranges.last_mut()
        && last.end() == next.start()
        && let Ok(joined) = Range::new(last.start(), next.end())
    {
        *last = joined;
        return;
    }
    ranges.push(next);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_killed_shows_no_addresses() {
        let who = |image| Who {
            image,
            ..Who::default()
        };
        assert!(!who([0; 4]).has_addresses());
        assert!(who([0x40_0000, 0x40_1000, 1, 2]).has_addresses());
        // The kernel shows this to users who may not see addresses.
        assert!(who([1, 1, 0, 0]).has_addresses());
    }
}
