//! Where changes go: to the kernel, nowhere, or onto a list. Nothing else in this crate acts.

use hugeleaf_sys::{Advice, Kernel, Pid, PidFd, SplitFile, SysError};
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

    /// Splits the huge pages in a range of a process, in all processes that map them; see
    /// [`Kernel::split`]. The process maps them again at once ([`Kernel::map_in`]), as it had them
    /// before; the other processes do so as they touch them.
    ///
    /// # Errors
    /// Those of [`Kernel::split`].
    fn split(&mut self, file: &SplitFile, process: &PidFd, range: Range)
    -> Result<Bytes, SysError>;

    /// Has a process hold pages of its own in ranges where it has the zero page; see
    /// [`Kernel::populate`].
    ///
    /// # Errors
    /// Those of [`Kernel::populate`].
    fn populate(&mut self, process: &PidFd, ranges: &[Range]) -> Result<(), SysError>;

    /// Has a process map a range again that it has in memory; see [`Kernel::map_in`].
    ///
    /// # Errors
    /// Those of [`Kernel::map_in`].
    fn map_in(&mut self, process: &PidFd, range: Range) -> Result<Bytes, SysError>;
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

    fn split(
        &mut self,
        file: &SplitFile,
        process: &PidFd,
        range: Range,
    ) -> Result<Bytes, SysError> {
        self.0.split(file, process, range)?;
        // Where it cannot be done, the process maps them when it touches them.
        let _ = self.0.map_in(process, range);
        Ok(range.len())
    }

    fn populate(&mut self, process: &PidFd, ranges: &[Range]) -> Result<(), SysError> {
        self.0.populate(process, ranges)
    }

    fn map_in(&mut self, process: &PidFd, range: Range) -> Result<Bytes, SysError> {
        self.0.map_in(process, range)
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

    fn split(&mut self, _: &SplitFile, _: &PidFd, range: Range) -> Result<Bytes, SysError> {
        Ok(range.len())
    }

    fn populate(&mut self, _: &PidFd, _: &[Range]) -> Result<(), SysError> {
        Ok(())
    }

    fn map_in(&mut self, _: &PidFd, range: Range) -> Result<Bytes, SysError> {
        Ok(range.len())
    }
}

/// What was asked of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// This advice.
    Advise(Advice),
    /// To split shared huge pages too.
    Split,
    /// To have pages of zeros of its own.
    Populate,
    /// To map memory again.
    MapIn,
}

/// One call that went through a [`Recording`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// On which process.
    pub pid: Pid,
    /// On what.
    pub ranges: Vec<Range>,
    /// What was asked.
    pub action: Action,
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

    fn record(
        &mut self,
        process: &PidFd,
        ranges: &[Range],
        action: Action,
        answer: Result<Bytes, SysError>,
    ) -> Result<Bytes, SysError> {
        self.calls.push(Recorded {
            pid: process.pid(),
            ranges: ranges.to_vec(),
            action,
            answer: answer.clone(),
        });
        answer
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
        self.record(process, ranges, Action::Advise(advice), answer)
    }

    fn split(
        &mut self,
        file: &SplitFile,
        process: &PidFd,
        range: Range,
    ) -> Result<Bytes, SysError> {
        let answer = self.inner.split(file, process, range);
        self.record(process, &[range], Action::Split, answer)
    }

    fn populate(&mut self, process: &PidFd, ranges: &[Range]) -> Result<(), SysError> {
        let all: Bytes = ranges.iter().map(|r| r.len()).sum();
        let answer = self.inner.populate(process, ranges).map(|()| all);
        let answer = self.record(process, ranges, Action::Populate, answer);
        answer.map(|_| ())
    }

    fn map_in(&mut self, process: &PidFd, range: Range) -> Result<Bytes, SysError> {
        let answer = self.inner.map_in(process, range);
        self.record(process, &[range], Action::MapIn, answer)
    }
}
