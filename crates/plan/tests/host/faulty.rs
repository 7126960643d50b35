//! A kernel that fails, or kills this process, at one change of the host.

use std::path::Path;
use std::sync::{Arc, Mutex};

use hugeleaf_sys::{Errno, GateReply, HostChange, Kernel, ProcessCall, SysError, SyscallGate};

/// Result of the chosen call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockResult {
    /// It fails with this error and does nothing.
    Fail(Errno),
    /// This process is killed before the call.
    Kill,
    /// Half of the data is written, and this process is killed.
    Half,
    /// Half of the data is written, and the call fails.
    HalfThenFail(Errno),
}

/// The running host, with one or more faulty calls.
#[derive(Debug)]
struct Faulty {
    calls: Mutex<Vec<String>>,
    /// The first faulty call, counted from 1, and its result.
    at: Option<(usize, BlockResult)>,
    /// True if all later calls are faulty too.
    onwards: bool,
}

/// A kernel behind such a gate.
pub struct FaultyHost {
    pub kernel: Kernel,
    gate: Arc<Faulty>,
}

impl FaultyHost {
    fn new(at: Option<(usize, BlockResult)>, onwards: bool) -> FaultyHost {
        let gate = Arc::new(Faulty {
            calls: Mutex::default(),
            at,
            onwards,
        });
        let kernel = Kernel::behind(gate.clone());
        FaultyHost { kernel, gate }
    }

    pub fn counting() -> FaultyHost {
        FaultyHost::new(None, false)
    }

    pub fn at(call: usize, fate: BlockResult) -> FaultyHost {
        FaultyHost::new(Some((call, fate)), false)
    }

    pub fn from(call: usize, fate: BlockResult) -> FaultyHost {
        FaultyHost::new(Some((call, fate)), true)
    }

    /// Returns the calls so far, by name and path.
    pub fn calls(&self) -> Vec<String> {
        self.gate.calls.lock().unwrap().clone()
    }
}

/// Writes the first half of the call's data.
fn half(change: HostChange<'_>) {
    let half = match change {
        HostChange::Create(path, content, look) => {
            HostChange::Create(path, &content[..content.len() / 2], look)
        }
        HostChange::Append(path, content, mode) => {
            HostChange::Append(path, &content[..content.len() / 2], mode)
        }
        _ => return,
    };
    half.execute().unwrap();
}

fn name_and_path(change: HostChange<'_>) -> (&'static str, &Path) {
    match change {
        HostChange::Write(path, _) => ("write", path),
        HostChange::Create(path, ..) => ("create", path),
        HostChange::Append(path, ..) => ("append", path),
        HostChange::Rename(_, path) => ("rename", path),
        HostChange::Remove(path) => ("remove", path),
        HostChange::MakeFolder(path, ..) => ("mkdir", path),
        HostChange::RemoveFolder(path) => ("rmdir", path),
        HostChange::SyncFolder(path) => ("sync", path),
        HostChange::Mount(path, _) => ("mount", path),
        HostChange::Unmount(path) => ("unmount", path),
    }
}

impl SyscallGate for Faulty {
    fn host(&self, change: HostChange<'_>) -> Option<Result<(), SysError>> {
        let (name, path) = name_and_path(change);
        let number = {
            let mut calls = self.calls.lock().unwrap();
            calls.push(format!("{name} {}", path.display()));
            calls.len()
        };
        let (at, fate) = self.at?;
        if number != at && !(self.onwards && number > at) {
            return None;
        }
        if matches!(fate, BlockResult::Half | BlockResult::HalfThenFail(_)) {
            half(change);
        }
        match fate {
            BlockResult::Kill | BlockResult::Half => die(),
            BlockResult::Fail(errno) | BlockResult::HalfThenFail(errno) => {
                let subject = path.display().to_string();
                Some(Err(SysError::new(name, subject, errno)))
            }
        }
    }

    /// Waits return at once.
    fn process(&self, call: ProcessCall<'_>) -> Result<Option<GateReply>, Errno> {
        Ok(matches!(call, ProcessCall::Sleep(_)).then_some(GateReply::Done))
    }
}

fn die() -> ! {
    let me = rustix::process::getpid();
    rustix::process::kill_process(me, rustix::process::Signal::KILL).unwrap();
    loop {
        std::thread::park();
    }
}
