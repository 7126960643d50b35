//! The calls by which this process lays out memory of its own, and the gate before each of them.

use std::sync::Arc;

use crate::advice::Advice;
use crate::{Errno, SysError};

/// The calls that [`Memory`] makes, for a [`Gate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryCall {
    /// mmap(2) of addresses alone.
    SetAside,
    /// mmap(2) of private anonymous memory.
    MapPrivate,
    /// mmap(2) of a file in memory.
    MapFile,
    /// mmap(2) of a file in memory, for its reservation alone.
    Reserve,
    /// mmap(2) that takes pages away from a part.
    Clear,
    /// madvise(2).
    Advise(Advice),
    /// madvise(2) with MADV_DONTFORK.
    KeepFromChildren,
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
    /// Duplicating a descriptor.
    Duplicate,
    /// sendmsg(2).
    Send,
    /// recvmsg(2).
    Receive,
}

/// Asked before each call of a [`Memory`]: a test refuses one, and sees that nothing is lost.
pub trait Gate: Send + Sync + std::fmt::Debug {
    /// Lets the call through.
    ///
    /// # Errors
    /// The answer that the call is to give instead.
    fn pass(&self, call: MemoryCall) -> Result<(), Errno>;
}

/// Lets everything through.
#[derive(Debug)]
struct OpenGate;

impl Gate for OpenGate {
    fn pass(&self, _: MemoryCall) -> Result<(), Errno> {
        Ok(())
    }
}

/// The calls by which this process lays out memory of its own.
#[derive(Debug, Clone)]
pub struct Memory {
    gate: Arc<dyn Gate>,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::new()
    }
}

impl Memory {
    /// The calls as they are.
    pub fn new() -> Memory {
        Memory::behind(Arc::new(OpenGate))
    }

    /// The calls behind a gate.
    pub fn behind(gate: Arc<dyn Gate>) -> Memory {
        Memory { gate }
    }

    pub(crate) fn pass(
        &self,
        call: MemoryCall,
        name: &'static str,
        subject: impl FnOnce() -> String,
    ) -> Result<(), SysError> {
        self.gate
            .pass(call)
            .map_err(|errno| SysError::new(name, subject(), errno))
    }
}
