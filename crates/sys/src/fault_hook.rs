//! The gate in front of system calls, and the calls that manage memory of this process.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hugeleaf_units::{Bytes, PageSize, Range};

use crate::advice::Advice;
use crate::host_file_changes::HostChange;
use crate::pagemap::{PageMap, PageScanDetail};
use crate::process::{Pid, PidFd};
use crate::{Errno, SysError};

/// The calls that [`MemorySyscalls`] makes, for a [`SyscallGate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryCall {
    /// mmap(2) of address space only.
    ReserveAddresses,
    /// mmap(2) of private anonymous memory.
    MapPrivate,
    /// mmap(2) of a file in memory.
    MapFile,
    /// mmap(2) of a file in memory, only to reserve its pages.
    Reserve,
    /// mmap(2) that removes the pages of a part.
    Clear,
    /// madvise(2).
    Advise(Advice),
    /// madvise(2) with MADV_DONTFORK.
    DontFork,
    /// madvise(2) with MADV_DONTNEED.
    Discard,
    /// mbind(2).
    Bind,
    /// mlock(2).
    Lock,
    /// memfd_create(2).
    Create,
    /// ftruncate(2).
    SetLength,
    /// fallocate(2).
    Allocate,
    /// fallocate(2) with FALLOC_FL_PUNCH_HOLE.
    Punch,
    /// fcntl(2) with F_ADD_SEALS.
    Seal,
    /// fstat(2), fstatfs(2) and fcntl(2) with F_GET_SEALS.
    Look,
    Duplicate,
    /// sendmsg(2).
    Send,
    /// recvmsg(2).
    Receive,
}

/// The calls of a [`Kernel`](crate::Kernel) on processes, for a [`SyscallGate`].
#[derive(Debug, Clone, Copy)]
pub enum ProcessCall<'a> {
    /// pidfd_open(2).
    PidfdOpen(Pid),
    /// poll(2) on a pidfd.
    HasExited(&'a PidFd),
    /// process_madvise(2).
    Madvise(&'a PidFd, &'a [Range], Advice),
    /// process_madvise(2) on less than a huge page, to check if a mapping can be collapsed.
    Collapses(&'a PidFd, Range),
    /// Reading a part of an open page map.
    PageMap(&'a File, Range, PageScanDetail),
    /// ptrace(2).
    SwitchThpOn(&'a PidFd),
    /// Opening the file that splits huge pages.
    OpenSplit(Option<&'a Path>),
    Split(&'a PidFd, Range),
    /// process_vm_readv(2).
    MapIn(&'a PidFd, Range),
    /// process_vm_writev(2).
    Populate(&'a PidFd, &'a [Range]),
    /// Touching pages of this process.
    Fetch(PageSize, u64),
    /// Collapsing memory of this process, to drain the lists of new pages.
    Drain(PageSize),
    /// Probing for MADV_COLLAPSE; an error means that the kernel does not have it.
    KnowsCollapse,
    /// Probing for process_madvise(2); an error means that the kernel does not have it.
    KnowsProcessMadvise,
    Sleep(Duration),
}

/// The answer of a [`SyscallGate`] in place of the kernel's.
#[derive(Debug)]
pub enum GateReply {
    /// The call succeeded and returns nothing.
    Done,
    /// The kernel processed this many bytes.
    Bytes(Bytes),
    /// The descriptor of a pidfd, or of the file that splits huge pages.
    Descriptor(OwnedFd),
    /// The state of pages.
    PageMap(PageMap),
}

/// Intercepts the calls of a [`Kernel`](crate::Kernel) and of a [`MemorySyscalls`]. A test refuses or observes calls here.
/// The embedded workload answers calls on its own memory. The default of each method passes the call on.
pub trait SyscallGate: Send + Sync + std::fmt::Debug {
    /// Called before each call of a [`MemorySyscalls`].
    ///
    /// # Errors
    /// The error that the call returns instead.
    fn pass(&self, _: MemoryCall) -> Result<(), Errno> {
        Ok(())
    }

    /// Called before each call on processes. `None` passes the call on.
    ///
    /// # Errors
    /// The error that the call returns instead.
    fn process(&self, _: ProcessCall<'_>) -> Result<Option<GateReply>, Errno> {
        Ok(None)
    }

    /// Called before each change of the host. `None` passes the change on.
    fn host(&self, _: HostChange<'_>) -> Option<Result<(), SysError>> {
        None
    }

    /// Returns the time to use instead of the kernel's.
    fn now(&self, kernels: Duration) -> Duration {
        kernels
    }
}

/// The calls that manage memory of this process.
#[derive(Debug, Clone, Default)]
pub struct MemorySyscalls {
    gate: Option<Arc<dyn SyscallGate>>,
}

impl MemorySyscalls {
    pub fn new() -> MemorySyscalls {
        MemorySyscalls::default()
    }

    pub fn behind(gate: Arc<dyn SyscallGate>) -> MemorySyscalls {
        MemorySyscalls { gate: Some(gate) }
    }

    /// Makes a call unless the gate refuses it.
    pub(crate) fn call<T>(
        &self,
        call: MemoryCall,
        name: &'static str,
        subject: impl FnOnce() -> String,
        make: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, SysError> {
        let passed = self.gate.as_ref().map_or(Ok(()), |gate| gate.pass(call));
        passed
            .and_then(|()| make())
            .map_err(|errno| SysError::new(name, subject(), errno))
    }
}
