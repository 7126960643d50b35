//! Identity of processes, their ranges, and the memory that split blocks held.

use std::collections::HashMap;

use hugeleaf_host::{Process, ProcessError, Root};
use hugeleaf_sys::Pid;
use hugeleaf_units::{Bytes, Range};
use serde::{Deserialize, Serialize};

/// Identity of a process: id, start time, and addresses of code, stack and arguments (proc(5)). An id can be reused, but
/// not with the same start time and addresses. Valid for one boot, PID namespace and time namespace.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct ProcessIdentity {
    pub pid: Pid,
    start_ticks: u64,
    image: [u64; 4],
}

impl ProcessIdentity {
    /// # Errors
    /// [`ProcessError::Gone`] if the process no longer exists.
    pub fn of(root: &Root, pid: Pid) -> Result<ProcessIdentity, ProcessError> {
        let (start_ticks, image) = hugeleaf_host::process::identity(root, pid)?;
        Ok(ProcessIdentity {
            pid,
            start_ticks,
            image,
        })
    }

    /// Returns true while the process runs this program.
    pub fn is_there(&self, root: &Root) -> bool {
        ProcessIdentity::of(root, self.pid).is_ok_and(|now| now == *self)
    }

    /// Returns true if the process shows its program's addresses. A process that is being killed shows none.
    pub(crate) const fn has_addresses(&self) -> bool {
        self.image[0] != 0
    }

    /// Returns true for the same process, even if it executes another program now.
    pub(crate) fn is_same_process(&self, other: &ProcessIdentity) -> bool {
        (self.pid, self.start_ticks) == (other.pid, other.start_ticks)
    }
}

impl From<&Process> for ProcessIdentity {
    fn from(process: &Process) -> ProcessIdentity {
        ProcessIdentity {
            pid: process.pid,
            start_ticks: process.start_ticks,
            image: process.image,
        }
    }
}

/// Ranges of a process's memory, valid only together with the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRanges {
    pub who: ProcessIdentity,
    /// Sorted by address.
    pub ranges: Vec<Range>,
}

/// Device (major, minor), inode, and a flag for SysV segments. Those number their inodes separately, on the same device
/// as other shared memory.
pub type BackingObjectId = (u32, u32, u64, bool);

/// Location of a block: process (0 for memory that several map), address or offset, and object.
pub(crate) type BlockLocation = (Pid, u64, BackingObjectId);

/// Memory that each block held when it was split. A block may become huge again while it holds as much, because it then
/// regains its former size. Otherwise promotion would permanently refill memory that its process freed since.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeldBeforeSplit(HashMap<BlockLocation, Bytes>);

impl HeldBeforeSplit {
    /// Returns `None` for a block that was not split.
    pub fn of(&self, block: BlockLocation) -> Option<Bytes> {
        self.0.get(&block).copied()
    }

    /// Keeps the largest amount if several processes map the block.
    pub(crate) fn add(&mut self, block: BlockLocation, held: Bytes) {
        let known = self.0.entry(block).or_default();
        *known = held.max(*known);
    }

    /// Adds blocks that were split later.
    pub fn renew(&mut self, later: &HeldBeforeSplit) {
        self.0.extend(&later.0);
    }
}

/// Appends a range. A range that begins at the end of the last one is merged into it.
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
        let who = |image| ProcessIdentity {
            image,
            ..ProcessIdentity::default()
        };
        assert!(!who([0; 4]).has_addresses());
        assert!(who([0x40_0000, 0x40_1000, 1, 2]).has_addresses());
        // The kernel shows these values to users without access to addresses.
        assert!(who([1, 1, 0, 0]).has_addresses());
    }
}
