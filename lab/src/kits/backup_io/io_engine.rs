//! Ways to transfer one block to a device or from it.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::FileExt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use hugeleaf_io::{Direction, Ring, lock_memory, unlock_memory};

use super::devices::{DeviceRange, retry};
use super::error::BackupIoError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IoMode {
    /// Direct I/O: the kernel looks up and holds each page for the duration of the transfer.
    Direct,
    /// The buffer is locked before and unlocked after each transfer, as in the published driver.
    Lock,
    Uring,
    /// io_uring on memory that is registered, and thus pinned, once.
    UringRegistered,
}

impl IoMode {
    pub const ALL: [IoMode; 4] = [
        IoMode::Direct,
        IoMode::Lock,
        IoMode::Uring,
        IoMode::UringRegistered,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            IoMode::Direct => "direct",
            IoMode::Lock => "lock",
            IoMode::Uring => "uring",
            IoMode::UringRegistered => "uring-registered",
        }
    }

    pub const fn is_ring(self) -> bool {
        matches!(self, IoMode::Uring | IoMode::UringRegistered)
    }
}

impl fmt::Display for IoMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for IoMode {
    type Err = String;

    fn from_str(text: &str) -> Result<IoMode, String> {
        let found = IoMode::ALL.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| {
            format!("'{text}' is not a mode; write direct, lock, uring or uring-registered")
        })
    }
}

pub(crate) struct CompletedBlock<'b> {
    pub(crate) index: u64,
    pub(crate) buffer: &'b mut [u8],
    /// Time from the start of the transfer to its end.
    pub(crate) io: Duration,
    pub(crate) lock: Duration,
}

/// Transfers in one direction between an area and memory.
pub(crate) trait IoEngine<'b> {
    fn start(&mut self, index: u64, buffer: &'b mut [u8]) -> Result<(), BackupIoError>;
    /// Waits for a transfer to end; `None` if none is in flight.
    fn next(&mut self) -> Result<Option<CompletedBlock<'b>>, BackupIoError>;
    fn flying(&self) -> usize;
}

const fn name(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
    }
}

/// One transfer at a time, by pread(2) and pwrite(2).
pub(crate) struct SyncEngine<'b> {
    pub(crate) area: &'b DeviceRange,
    pub(crate) direction: Direction,
    pub(crate) lock: bool,
    done: Option<CompletedBlock<'b>>,
}

impl<'b> SyncEngine<'b> {
    pub(crate) const fn new(
        area: &'b DeviceRange,
        direction: Direction,
        lock: bool,
    ) -> SyncEngine<'b> {
        SyncEngine {
            area,
            direction,
            lock,
            done: None,
        }
    }
}

impl<'b> IoEngine<'b> for SyncEngine<'b> {
    fn start(&mut self, index: u64, buffer: &'b mut [u8]) -> Result<(), BackupIoError> {
        let mut lock = Duration::ZERO;
        if self.lock {
            let began = Instant::now();
            lock_memory(buffer)?;
            lock += began.elapsed();
        }
        let began = Instant::now();
        let (file, offset) = (self.area.file(), self.area.offset_of(index));
        let moved = match self.direction {
            Direction::Read => retry(|| file.read_at(buffer, offset)),
            Direction::Write => retry(|| file.write_at(buffer, offset)),
        };
        let io = began.elapsed();
        if self.lock {
            let began = Instant::now();
            unlock_memory(buffer)?;
            lock += began.elapsed();
        }
        self.area.judge(name(self.direction), index, moved)?;
        self.done = Some(CompletedBlock {
            index,
            buffer,
            io,
            lock,
        });
        Ok(())
    }

    fn next(&mut self) -> Result<Option<CompletedBlock<'b>>, BackupIoError> {
        Ok(self.done.take())
    }

    fn flying(&self) -> usize {
        usize::from(self.done.is_some())
    }
}

/// Several transfers at a time, through a ring.
pub(crate) struct UringEngine<'r, 'b> {
    pub(crate) ring: &'r mut Ring<'b>,
    pub(crate) area: &'b DeviceRange,
    pub(crate) direction: Direction,
    began: BTreeMap<u64, Instant>,
}

impl<'r, 'b> UringEngine<'r, 'b> {
    pub(crate) const fn new(
        ring: &'r mut Ring<'b>,
        area: &'b DeviceRange,
        direction: Direction,
    ) -> UringEngine<'r, 'b> {
        UringEngine {
            ring,
            area,
            direction,
            began: BTreeMap::new(),
        }
    }
}

impl<'b> IoEngine<'b> for UringEngine<'_, 'b> {
    fn start(&mut self, index: u64, buffer: &'b mut [u8]) -> Result<(), BackupIoError> {
        self.began.insert(index, Instant::now());
        let offset = self.area.offset_of(index);
        self.ring
            .start(self.direction, self.area.file(), offset, buffer, index)?;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<CompletedBlock<'b>>, BackupIoError> {
        let Some(ended) = self.ring.wait()? else {
            return Ok(None);
        };
        let index = ended.tag;
        let io = self
            .began
            .remove(&index)
            .map_or(Duration::ZERO, |at| at.elapsed());
        self.area.judge(name(self.direction), index, ended.result)?;
        Ok(Some(CompletedBlock {
            index,
            buffer: ended.buffer,
            io,
            lock: Duration::ZERO,
        }))
    }

    fn flying(&self) -> usize {
        self.ring.flying()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for mode in IoMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert!("fast".parse::<IoMode>().is_err());
    }
}
