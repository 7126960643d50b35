//! A sink that fails, or kills this process, at one call.

use std::path::Path;
use std::time::Duration;

use hugeleaf_change::host::{HostSink, RealHost};
use hugeleaf_sys::{Errno, FileLook, SysError};

/// What happens at the chosen call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It fails in this way and does nothing.
    Fail(Errno),
    /// This process is killed before it.
    Kill,
    /// Half of what is written is written, and this process is killed.
    Half,
    /// Half of what is written is written, and the call fails.
    HalfThenFail(Errno),
}

/// The running host, but for one call or more.
pub struct FaultyHost {
    inner: RealHost,
    /// Calls so far, by name and path.
    pub calls: Vec<String>,
    /// Counted from 1: the first call that it befalls, and what.
    at: Option<(usize, Fate)>,
    /// Whether it befalls all calls from there on.
    onwards: bool,
}

impl FaultyHost {
    pub fn counting() -> FaultyHost {
        FaultyHost {
            inner: RealHost,
            calls: Vec::new(),
            at: None,
            onwards: false,
        }
    }

    pub fn at(call: usize, fate: Fate) -> FaultyHost {
        FaultyHost {
            at: Some((call, fate)),
            ..FaultyHost::counting()
        }
    }

    pub fn from(call: usize, fate: Fate) -> FaultyHost {
        FaultyHost {
            onwards: true,
            ..FaultyHost::at(call, fate)
        }
    }

    /// Counts the call. `half` writes the first half of what the call would.
    fn gate(
        &mut self,
        name: &'static str,
        path: &Path,
        half: impl FnOnce(&mut RealHost),
    ) -> Result<(), SysError> {
        self.calls.push(format!("{name} {}", path.display()));
        let number = self.calls.len();
        let Some((at, fate)) = self.at else {
            return Ok(());
        };
        if number != at && !(self.onwards && number > at) {
            return Ok(());
        }
        let fail = |errno| Err(SysError::new(name, path.display().to_string(), errno));
        match fate {
            Fate::Fail(errno) => fail(errno),
            Fate::HalfThenFail(errno) => {
                half(&mut self.inner);
                fail(errno)
            }
            Fate::Kill => die(),
            Fate::Half => {
                half(&mut self.inner);
                die()
            }
        }
    }
}

fn die() -> ! {
    let me = rustix::process::getpid();
    rustix::process::kill_process(me, rustix::process::Signal::KILL).unwrap();
    loop {
        std::thread::park();
    }
}

impl HostSink for FaultyHost {
    fn write_value(&mut self, path: &Path, value: &str) -> Result<(), SysError> {
        self.gate("write", path, |_| {})?;
        self.inner.write_value(path, value)
    }

    fn create_file(
        &mut self,
        path: &Path,
        content: &[u8],
        look: &FileLook,
    ) -> Result<(), SysError> {
        self.gate("create", path, |inner| {
            inner
                .create_file(path, &content[..content.len() / 2], look)
                .unwrap();
        })?;
        self.inner.create_file(path, content, look)
    }

    fn append_to(&mut self, path: &Path, content: &[u8], mode: u32) -> Result<(), SysError> {
        self.gate("append", path, |inner| {
            inner
                .append_to(path, &content[..content.len() / 2], mode)
                .unwrap();
        })?;
        self.inner.append_to(path, content, mode)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), SysError> {
        self.gate("rename", to, |_| {})?;
        self.inner.rename(from, to)
    }

    fn remove_file(&mut self, path: &Path) -> Result<(), SysError> {
        self.gate("remove", path, |_| {})?;
        self.inner.remove_file(path)
    }

    fn make_folder(
        &mut self,
        path: &Path,
        mode: u32,
        owner: Option<(u32, u32)>,
    ) -> Result<(), SysError> {
        self.gate("mkdir", path, |_| {})?;
        self.inner.make_folder(path, mode, owner)
    }

    fn remove_folder(&mut self, path: &Path) -> Result<(), SysError> {
        self.gate("rmdir", path, |_| {})?;
        self.inner.remove_folder(path)
    }

    fn sync_folder(&mut self, path: &Path) -> Result<(), SysError> {
        self.gate("sync", path, |_| {})?;
        self.inner.sync_folder(path)
    }

    fn mount(&mut self, path: &Path, options: &str) -> Result<(), SysError> {
        self.gate("mount", path, |_| {})?;
        self.inner.mount(path, options)
    }

    fn unmount(&mut self, path: &Path) -> Result<(), SysError> {
        self.gate("unmount", path, |_| {})?;
        self.inner.unmount(path)
    }

    fn pause(&mut self, _time: Duration) {}

    fn now(&mut self) -> String {
        "2026-01-02T03:04:05Z".to_owned()
    }
}
