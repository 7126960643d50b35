use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hugeleaf_sys::{Advice, Errno, Pid, SysError};
use hugeleaf_units::{Bytes, Range};

use crate::child::{ChildError, line, parse, say};
use crate::protocol::{LINE_LIMIT, RANGE_LIMIT, WorkloadMessage, WorkloadRequest, WorkloadStats};

/// Deadline for an answer; the longest valid one takes the collapse of a few gigabytes.
const PATIENCE: Duration = Duration::from_secs(120);

/// The parent's end of the control socket. It sends one request at a time; callers on several
/// threads wait for each other.
#[derive(Debug)]
pub struct ControlClient {
    pid: Pid,
    stream: Mutex<BufReader<UnixStream>>,
}

impl ControlClient {
    pub(crate) fn new(pid: Pid, stream: UnixStream) -> Result<ControlClient, ChildError> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(ControlClient {
            pid,
            stream: Mutex::new(BufReader::new(stream)),
        })
    }

    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns the counters so far. The percentiles cover the time since the last call.
    pub fn stats(&self) -> Result<WorkloadStats, ChildError> {
        match self.ask(&WorkloadRequest::Stats)? {
            WorkloadMessage::Stats(stats) => Ok(stats),
            other => Err(self.unexpected(other)),
        }
    }

    /// Makes the workload advise its own memory. Returns the processed bytes as process_madvise(2)
    /// counts them; no further detail is known.
    ///
    /// # Errors
    /// As process_madvise(2); ESRCH if the workload has ended, ETIMEDOUT if it does not answer,
    /// EPROTO for an invalid answer. EINVAL for an advice other than collapse or cold, and for more
    /// ranges than the call takes.
    pub fn advise(&self, ranges: &[Range], advice: Advice) -> Result<Bytes, SysError> {
        let fail = |errno| SysError::new(advice.call_name(), format!("of {}", self.pid), errno);
        if !matches!(advice, Advice::Collapse | Advice::Cold) || ranges.len() > RANGE_LIMIT {
            return Err(fail(Errno::INVAL));
        }
        if ranges.is_empty() {
            return Ok(Bytes::ZERO);
        }
        let request = WorkloadRequest::Advise {
            advice,
            ranges: ranges.to_vec(),
        };
        match self.ask(&request) {
            Ok(WorkloadMessage::Advised(bytes)) => Ok(bytes),
            Ok(WorkloadMessage::Errno(errno)) => {
                Err(fail(Errno::from_raw_os_error(errno.get().into())))
            }
            Err(ChildError::Ended { .. }) | Ok(WorkloadMessage::Failed(_)) => {
                Err(fail(Errno::SRCH))
            }
            Err(ChildError::Silent(_)) => Err(fail(Errno::TIMEDOUT)),
            Ok(_) | Err(_) => Err(fail(Errno::PROTO)),
        }
    }

    pub(crate) fn tell(&self, request: &WorkloadRequest) -> Result<(), ChildError> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        self.send(&mut stream, request)
    }

    pub(crate) fn next(&self) -> Result<WorkloadMessage, ChildError> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        self.receive(&mut stream)
    }

    pub(crate) fn unexpected(&self, event: WorkloadMessage) -> ChildError {
        match event {
            WorkloadMessage::Failed(reason) => ChildError::Ended {
                pid: self.pid,
                reason: Some(reason),
            },
            other => ChildError::Answer(line(&other)),
        }
    }

    fn ask(&self, request: &WorkloadRequest) -> Result<WorkloadMessage, ChildError> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        self.send(&mut stream, request)?;
        self.receive(&mut stream)
    }

    fn send(
        &self,
        stream: &mut BufReader<UnixStream>,
        request: &WorkloadRequest,
    ) -> Result<(), ChildError> {
        say(stream.get_mut(), request).map_err(|e| self.socket_error(e))
    }

    fn receive(&self, stream: &mut BufReader<UnixStream>) -> Result<WorkloadMessage, ChildError> {
        let mut line = String::new();
        stream
            .take(LINE_LIMIT as u64)
            .read_line(&mut line)
            .map_err(|e| self.socket_error(e))?;
        match line.strip_suffix('\n') {
            Some(line) => parse(line),
            None => Err(self.ended()),
        }
    }

    fn socket_error(&self, error: std::io::Error) -> ChildError {
        match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => self.ended(),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => ChildError::Silent(PATIENCE.as_secs()),
            _ => ChildError::Pipe(error),
        }
    }

    fn ended(&self) -> ChildError {
        ChildError::Ended {
            pid: self.pid,
            reason: None,
        }
    }
}
