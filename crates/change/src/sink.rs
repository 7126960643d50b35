//! Where changes go: to the kernel, nowhere, or onto a list. Nothing else in this crate acts.

use hugeleaf_sys::{Advice, Kernel, Pid, PidFd, SysError};
use hugeleaf_units::{Bytes, Range};

/// Takes every change this crate makes.
pub trait Sink {
    /// Advises on ranges of a process's memory; see [`Kernel::process_madvise`].
    ///
    /// # Errors
    /// Those of process_madvise(2).
    fn advise(
        &mut self,
        process: &PidFd,
        ranges: &[Range],
        advice: Advice,
    ) -> Result<Bytes, SysError>;
}

/// To the kernel.
pub struct Real<'a>(pub &'a dyn Kernel);

impl Sink for Real<'_> {
    fn advise(
        &mut self,
        process: &PidFd,
        ranges: &[Range],
        advice: Advice,
    ) -> Result<Bytes, SysError> {
        self.0.process_madvise(process, ranges, advice)
    }
}

/// Nowhere: every call succeeds and does nothing.
#[derive(Debug, Default)]
pub struct DryRun;

impl Sink for DryRun {
    fn advise(
        &mut self,
        _process: &PidFd,
        ranges: &[Range],
        _advice: Advice,
    ) -> Result<Bytes, SysError> {
        Ok(ranges.iter().map(|r| r.len()).sum())
    }
}

/// One call that went through a [`Recording`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// On which process.
    pub pid: Pid,
    /// On what.
    pub ranges: Vec<Range>,
    /// Which advice.
    pub advice: Advice,
    /// What came back.
    pub answer: Result<Bytes, SysError>,
}

/// Onto a list, and on to another sink.
pub struct Recording<S> {
    inner: S,
    /// The calls so far, first to last.
    pub calls: Vec<Recorded>,
}

impl<S: Sink> Recording<S> {
    /// Records what goes to `inner`.
    pub const fn new(inner: S) -> Recording<S> {
        Recording {
            inner,
            calls: Vec::new(),
        }
    }
}

impl<S: Sink> Sink for Recording<S> {
    fn advise(
        &mut self,
        process: &PidFd,
        ranges: &[Range],
        advice: Advice,
    ) -> Result<Bytes, SysError> {
        let answer = self.inner.advise(process, ranges, advice);
        self.calls.push(Recorded {
            pid: process.pid(),
            ranges: ranges.to_vec(),
            advice,
            answer: answer.clone(),
        });
        answer
    }
}
