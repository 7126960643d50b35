use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hugeleaf_sys::{Advice, Errno, Pid, SysError};
use hugeleaf_units::{Bytes, Range};

use crate::OltpError;
use crate::protocol::{Event, LINE_LIMIT, RANGE_LIMIT, Request, Stats};

/// How long an answer may take; the longest honest one is the collapse of a few gigabytes.
const PATIENCE: Duration = Duration::from_secs(120);

/// The parent's end of the control socket. One request at a time; callers on several threads wait
/// for each other.
#[derive(Debug)]
pub struct Client {
    pid: Pid,
    stream: Mutex<BufReader<UnixStream>>,
}

impl Client {
    pub(crate) fn new(pid: Pid, stream: UnixStream) -> Result<Client, OltpError> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client {
            pid,
            stream: Mutex::new(BufReader::new(stream)),
        })
    }

    /// The workload's process id.
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// What it has done so far. The percentiles are of the time since the last call.
    ///
    /// # Errors
    /// The process has ended, is stopped, or makes no sense.
    pub fn stats(&self) -> Result<Stats, OltpError> {
        match self.ask(&Request::Stats)? {
            Event::Stats(stats) => Ok(stats),
            other => Err(self.unexpected(other)),
        }
    }

    /// Has the workload advise on its own memory. Returns the bytes gone through, as
    /// process_madvise(2) counts them; never more than that is known.
    ///
    /// # Errors
    /// As process_madvise(2); ESRCH where the workload has ended, ETIMEDOUT where it does not
    /// answer, EPROTO where its answer makes no sense, EINVAL for an advice that is neither
    /// collapse nor cold and for more ranges than the call takes.
    pub fn advise(&self, ranges: &[Range], advice: Advice) -> Result<Bytes, SysError> {
        let fail = |errno| SysError::new(advice.call_name(), format!("of {}", self.pid), errno);
        if !matches!(advice, Advice::Collapse | Advice::Cold) || ranges.len() > RANGE_LIMIT {
            return Err(fail(Errno::INVAL));
        }
        if ranges.is_empty() {
            return Ok(Bytes::ZERO);
        }
        let request = Request::Advise {
            advice,
            ranges: ranges.to_vec(),
        };
        match self.ask(&request) {
            Ok(Event::Advised(bytes)) => Ok(bytes),
            Ok(Event::Errno(errno)) => Err(fail(Errno::from_raw_os_error(errno))),
            Err(OltpError::Ended { .. }) | Ok(Event::Failed(_)) => Err(fail(Errno::SRCH)),
            Err(OltpError::Silent(_)) => Err(fail(Errno::TIMEDOUT)),
            Ok(_) | Err(_) => Err(fail(Errno::PROTO)),
        }
    }

    /// Sends a request that has no answer.
    pub(crate) fn tell(&self, request: &Request) -> Result<(), OltpError> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        self.send(&mut stream, request)
    }

    /// Waits for the next line.
    pub(crate) fn next(&self) -> Result<Event, OltpError> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        self.receive(&mut stream)
    }

    pub(crate) fn unexpected(&self, event: Event) -> OltpError {
        match event {
            Event::Failed(reason) => OltpError::Ended {
                pid: self.pid.0,
                reason: Some(reason),
            },
            other => OltpError::Answer(other.to_string()),
        }
    }

    fn ask(&self, request: &Request) -> Result<Event, OltpError> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        self.send(&mut stream, request)?;
        self.receive(&mut stream)
    }

    fn send(&self, stream: &mut BufReader<UnixStream>, request: &Request) -> Result<(), OltpError> {
        stream
            .get_mut()
            .write_all(format!("{request}\n").as_bytes())
            .map_err(|e| self.socket_error(e))
    }

    fn receive(&self, stream: &mut BufReader<UnixStream>) -> Result<Event, OltpError> {
        let mut line = String::new();
        stream
            .take(LINE_LIMIT as u64)
            .read_line(&mut line)
            .map_err(|e| self.socket_error(e))?;
        match line.strip_suffix('\n') {
            Some(line) => Event::parse(line).map_err(|bad| OltpError::Answer(bad.0)),
            None => Err(self.ended()),
        }
    }

    fn socket_error(&self, error: std::io::Error) -> OltpError {
        match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => self.ended(),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => OltpError::Silent(PATIENCE.as_secs()),
            _ => OltpError::Socket(error),
        }
    }

    fn ended(&self) -> OltpError {
        OltpError::Ended {
            pid: self.pid.0,
            reason: None,
        }
    }
}
