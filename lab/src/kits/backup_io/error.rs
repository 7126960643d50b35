use hugeleaf::MemoryError;
use hugeleaf_proof::bench::BenchError;
use hugeleaf_sys::{Errno, SysError};
use hugeleaf_units::{Bytes, Failure};

use super::block::InvalidBlock;

/// Errors of moving blocks.
#[derive(Debug, thiserror::Error)]
pub enum BackupIoError {
    /// A device failed to transfer a block correctly.
    #[error("{what} {device} at {offset}: {problem}", offset = Bytes(*offset))]
    Block {
        /// `read`, `write`, or a description of the error.
        what: &'static str,
        device: String,
        offset: u64,
        problem: BlockProblem,
    },
    /// The file or device exists and was not made for this run.
    #[error("{0} already exists, and would be overwritten")]
    There(String),
    /// The file system does not support direct I/O.
    #[error("{0}: no direct I/O on this file system")]
    NotDirect(String),
    /// A device cannot transfer blocks of this size.
    #[error("{path} transfers multiples of {step}, and a block of {block} is not one")]
    Alignment {
        path: String,
        step: Bytes,
        block: Bytes,
    },
    /// A device is too small for its threads.
    #[error("{path} has {length}: too little for {threads} threads with {least} each")]
    TooSmall {
        path: String,
        length: Bytes,
        threads: usize,
        least: Bytes,
    },
    /// Space for files could not be allocated.
    #[error("{folder}: no room for {threads} files of {each}: {errno}")]
    NoRoom {
        folder: String,
        threads: usize,
        each: Bytes,
        errno: Errno,
    },
    #[error("{mode} pins {asked} at a time, and this process may pin {most} (RLIMIT_MEMLOCK)")]
    MemlockLimit {
        mode: &'static str,
        asked: Bytes,
        most: Bytes,
    },
    /// A memory-backed device could not be made.
    #[error("a device backed by memory: {0}")]
    Device(SysError),
    #[error("{0}")]
    Sys(#[from] SysError),
    #[error("{0}")]
    Memory(#[from] MemoryError),
    #[error("stopped on request")]
    Stopped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockProblem {
    #[error("{0}")]
    Io(Errno),
    /// A transfer was shorter than a block: transferred and expected bytes.
    #[error("{0} of {1}")]
    Short(Bytes, Bytes),
    /// The data is not the data that was written there.
    #[error("{0}")]
    Wrong(InvalidBlock),
}

impl BlockProblem {
    const fn next(self) -> &'static str {
        match self {
            BlockProblem::Io(Errno::NOSPC) => {
                "free space on it, or name another place: --device DIR"
            }
            BlockProblem::Io(_) => {
                "check its errors: dmesg | tail; or name another device: --device DIR"
            }
            BlockProblem::Short(..) => {
                "no other program may truncate or use it meanwhile; run it again, or name another: \
                 --device DIR"
            }
            BlockProblem::Wrong(_) => {
                "do not trust this device, its driver or this memory before the cause is known: \
                 dmesg | tail; no other program may write to it meanwhile"
            }
        }
    }
}

impl BackupIoError {
    pub fn next(&self) -> String {
        match self {
            BackupIoError::Block { problem, .. } => problem.next().to_owned(),
            BackupIoError::There(_) => {
                "name a folder; or, if all of its contents may be lost: --overwrite".to_owned()
            }
            BackupIoError::NotDirect(_) => {
                "name a folder on a disk (ext4, xfs, btrfs), or: --device memory".to_owned()
            }
            BackupIoError::Alignment { step, .. } => format!("--block {}", block_for(*step)),
            BackupIoError::TooSmall { .. } => {
                "fewer --readers and --writers, a smaller --block, or a larger device".to_owned()
            }
            BackupIoError::NoRoom { .. } => {
                "use less: --size 16M; or another folder: --device DIR".to_owned()
            }
            BackupIoError::MemlockLimit { asked, .. } => format!(
                "raise the limit: ulimit -l {}, or LimitMEMLOCK={} in the unit; root has none",
                asked.get().div_ceil(1024),
                asked.get()
            ),
            BackupIoError::Device(error) => match error.errno {
                Errno::NOENT => "modprobe loop; or name a folder: --device DIR".to_owned(),
                Errno::ACCESS | Errno::PERM => {
                    "run as root, or name a folder: --device DIR".to_owned()
                }
                _ => "name a folder: --device DIR".to_owned(),
            },
            BackupIoError::Sys(error) => remedy_of(error),
            BackupIoError::Memory(error) => error.next(),
            BackupIoError::Stopped => "run it again".to_owned(),
        }
    }
}

impl From<BackupIoError> for BenchError {
    fn from(error: BackupIoError) -> BenchError {
        let failure = match &error {
            BackupIoError::Stopped => return BenchError::Stopped,
            BackupIoError::There(_) | BackupIoError::Alignment { .. } => Failure::usage,
            _ => Failure::missing,
        };
        BenchError::Part(failure(error.to_string(), error.next()))
    }
}

/// Returns a usual block size that is a multiple of `step`.
fn block_for(step: Bytes) -> Bytes {
    const USUAL: Bytes = Bytes::from_kib(256);
    Bytes(USUAL.get().next_multiple_of(step.get().max(1)))
}

fn remedy_of(error: &SysError) -> String {
    match (error.call, error.errno) {
        ("io_uring_setup", Errno::PERM) => {
            "sysctl kernel.io_uring_disabled=0, or leave it out: --mode direct".to_owned()
        }
        ("io_uring_setup", Errno::NOSYS) => {
            "this kernel has no io_uring; leave it out: --mode direct".to_owned()
        }
        ("open(O_DIRECT)", Errno::BUSY) => {
            "it is mounted or in use: name one that is not (lsblk)".to_owned()
        }
        ("open(O_DIRECT)", Errno::NOENT) => "name an existing file or device: ls, lsblk".to_owned(),
        ("open(O_DIRECT)", Errno::ACCESS | Errno::PERM) => {
            "run as root, or name a folder of yours: --device DIR".to_owned()
        }
        (_, Errno::MFILE) => "raise the limit of open files: ulimit -n".to_owned(),
        _ => "hugeleaf status    # limits and pools".to_owned(),
    }
}
