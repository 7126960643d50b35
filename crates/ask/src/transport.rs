//! A connection over TCP or a Unix socket. Every transfer belongs to a [`Deadline`] ([`Exchange`]), with one deadline and
//! one length limit for everything that a server sends in answer.

use std::io::{Error, ErrorKind};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use hugeleaf_sys::Deadline;
use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, ioctl_fionbio, read};
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, send};

use crate::{Endpoint, QueryError};

/// Default limit of an answer in bytes.
pub const DEFAULT_MAX_BYTES: usize = 256 << 10;

/// Interval of connection attempts to a server with a full backlog.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

fn socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
}

/// Connects to the first address that accepts.
#[expect(clippy::disallowed_methods, reason = "the gate: none of these waits")]
fn connect(place: &Endpoint, question: Deadline<'_>) -> Result<OwnedFd, Error> {
    match place {
        Endpoint::Unix(path) => {
            let address = SocketAddrUnix::new(path.as_str())?;
            let socket = socket(AddressFamily::UNIX)?;
            loop {
                match rustix::net::connect(&socket, &address) {
                    Ok(()) => return Ok(socket),
                    Err(Errno::AGAIN) => question.wait(&mut [], RETRY_INTERVAL)?,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Endpoint::Tcp { host, port } => {
            let addresses = addresses(host, *port, question)?;
            let mut failed = Error::new(ErrorKind::NotFound, "no such host");
            for (at, address) in addresses.iter().enumerate() {
                match connect_to(address, question.share_for(addresses.len() - at)) {
                    Ok(socket) => return Ok(socket),
                    Err(e) => failed = e,
                }
            }
            Err(failed)
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the gate: none of these waits")]
fn addresses(host: &str, port: u16, question: Deadline<'_>) -> Result<Vec<SocketAddr>, Error> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    let host = host.to_owned();
    // A DNS lookup may take half a minute.
    question.run_detached(move || Ok((host.as_str(), port).to_socket_addrs()?.collect()))?
}

#[expect(clippy::disallowed_methods, reason = "the gate: none of these waits")]
fn connect_to(address: &SocketAddr, question: Deadline<'_>) -> Result<OwnedFd, Error> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket(family)?;
    match rustix::net::connect(&socket, address) {
        Ok(()) => return Ok(socket),
        Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    question.until_ready(PollFd::new(&socket, PollFlags::OUT))?;
    socket_error(&socket)??;
    Ok(socket)
}

/// A connection without a pending query.
pub struct Transport {
    shown: String,
    socket: OwnedFd,
    /// Bytes that were read but not consumed.
    buffer: Vec<u8>,
}

impl Transport {
    /// # Errors
    /// The server cannot be reached.
    pub fn connect(place: &Endpoint, question: Deadline<'_>) -> Result<Transport, QueryError> {
        let shown = place.to_string();
        match connect(place, question) {
            Ok(socket) => Ok(Transport::new(socket, shown)),
            Err(e) => Err(failed(&shown, question, &e)),
        }
    }

    /// Wraps a connected socket. Errors name it `shown`.
    pub fn from_stream(stream: UnixStream, shown: &str) -> Transport {
        let socket: OwnedFd = stream.into();
        // Every socket supports this call.
        let _ = ioctl_fionbio(&socket, true);
        Transport::new(socket, shown.to_owned())
    }

    fn new(socket: OwnedFd, shown: String) -> Transport {
        Transport {
            shown,
            socket,
            buffer: Vec::new(),
        }
    }

    /// Begins an exchange. Its answers together are limited to [`DEFAULT_MAX_BYTES`] bytes.
    pub fn begin_exchange<'a>(&'a mut self, question: Deadline<'a>) -> Exchange<'a> {
        Exchange {
            wire: self,
            question,
            taken: 0,
            max_bytes: DEFAULT_MAX_BYTES,
        }
    }
}

/// A pending query on a connection.
pub struct Exchange<'a> {
    wire: &'a mut Transport,
    question: Deadline<'a>,
    taken: usize,
    /// Maximum size of all answers in bytes.
    pub max_bytes: usize,
}

impl Exchange<'_> {
    /// # Errors
    /// The server is gone, or accepts nothing in time.
    pub fn send(&mut self, mut bytes: &[u8]) -> Result<(), QueryError> {
        while !bytes.is_empty() {
            let sent = self.timed(PollFlags::OUT, |socket| {
                send(socket, bytes, SendFlags::NOSIGNAL)
            });
            match sent? {
                0 => return Err(self.closed()),
                count => bytes = &bytes[count..],
            }
        }
        Ok(())
    }

    /// Returns the next line of the answer, without its line end.
    ///
    /// # Errors
    /// The line is late or too long, or the connection broke.
    pub fn line(&mut self) -> Result<String, QueryError> {
        loop {
            let buffer = &mut self.wire.buffer;
            if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                self.taken += line.len();
                let text = String::from_utf8_lossy(&line);
                return Ok(text.trim_end_matches(['\r', '\n']).to_owned());
            }
            self.need()?;
        }
    }

    /// Returns the next `count` bytes of the answer.
    ///
    /// # Errors
    /// Errors of [`Exchange::line`].
    pub fn bytes(&mut self, count: usize) -> Result<Vec<u8>, QueryError> {
        while self.wire.buffer.len() < count {
            if count > self.max_bytes {
                return Err(self.too_long());
            }
            self.need()?;
        }
        self.taken += count;
        Ok(self.wire.buffer.drain(..count).collect())
    }

    /// Returns all bytes of an answer that ends when the server closes the connection.
    ///
    /// # Errors
    /// Errors of [`Exchange::line`].
    pub fn rest(&mut self) -> Result<Vec<u8>, QueryError> {
        while self.fill()? {}
        self.taken += self.wire.buffer.len();
        Ok(std::mem::take(&mut self.wire.buffer))
    }

    /// Reads more of an incomplete answer.
    fn need(&mut self) -> Result<(), QueryError> {
        match self.fill()? {
            true => Ok(()),
            false => Err(self.closed()),
        }
    }

    /// Reads more. Returns `false` if the connection is closed.
    fn fill(&mut self) -> Result<bool, QueryError> {
        if self.taken + self.wire.buffer.len() > self.max_bytes {
            return Err(self.too_long());
        }
        let mut some = [0; 8 << 10];
        let count = self.timed(PollFlags::IN, |socket| read(socket, &mut some))?;
        self.wire.buffer.extend_from_slice(&some[..count]);
        Ok(count > 0)
    }

    /// Repeats a call on the socket until it does not block, or the question ends.
    fn timed(
        &self,
        ready: PollFlags,
        mut call: impl FnMut(&OwnedFd) -> rustix::io::Result<usize>,
    ) -> Result<usize, QueryError> {
        let socket = &self.wire.socket;
        let mut until_done = || -> Result<usize, Error> {
            loop {
                // Check the deadline even if bytes trickle in, so that no call ever blocks.
                self.question.remaining()?;
                match call(socket) {
                    Ok(count) => return Ok(count),
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => self.question.until_ready(PollFd::new(socket, ready))?,
                    Err(error) => return Err(error.into()),
                }
            }
        };
        until_done().map_err(|e| failed(&self.wire.shown, self.question, &e))
    }

    fn too_long(&self) -> QueryError {
        QueryError::new(format!("{}: the answer is too long", self.wire.shown))
    }

    fn closed(&self) -> QueryError {
        QueryError::new(format!(
            "{}: the server closed the connection",
            self.wire.shown
        ))
    }
}

fn failed(shown: &str, question: Deadline<'_>, error: &Error) -> QueryError {
    match error.kind() {
        ErrorKind::TimedOut => {
            let seconds = question.time().as_secs();
            QueryError::timeout(format!("{shown}: no answer in {seconds} s"))
        }
        _ => QueryError::new(format!("{shown}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicBool, Ordering};

    const PATIENCE: Duration = Duration::from_secs(10);
    const SHORT: Duration = Duration::from_millis(50);

    fn serve(answer: impl Fn(&mut TcpStream) + Send + 'static) -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || answer(&mut listener.accept().unwrap().0));
        Endpoint::Tcp {
            host: "127.0.0.1".into(),
            port,
        }
    }

    fn asked<T>(
        place: &Endpoint,
        question: Deadline<'_>,
        read: impl FnOnce(&mut Exchange<'_>) -> T,
    ) -> T {
        let mut wire = Transport::connect(place, question).unwrap();
        let mut exchange = wire.begin_exchange(question);
        exchange.send(b"stats\r\n").unwrap();
        read(&mut exchange)
    }

    #[test]
    fn an_endless_answer_is_cut_off() {
        let place = serve(|stream| while stream.write_all(&[b'x'; 4096]).is_ok() {});
        asked(&place, Deadline::new(PATIENCE), |exchange| {
            let error = exchange.line().unwrap_err();
            assert!(error.what.contains("too long"), "{error}");
            assert!(exchange.wire.buffer.len() <= DEFAULT_MAX_BYTES + (8 << 10));
        });
    }

    #[test]
    fn endless_lines_are_cut_off_too() {
        let place = serve(|stream| while stream.write_all(b"STAT a 1\r\n").is_ok() {});
        asked(&place, Deadline::new(PATIENCE), |exchange| {
            let error = std::iter::repeat_with(|| exchange.line()).find_map(Result::err);
            assert!(error.unwrap().what.contains("too long"));
            assert!(exchange.bytes(DEFAULT_MAX_BYTES + 1).is_err());
        });
    }

    #[test]
    fn silence_is_late() {
        let place = serve(|stream| {
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let error = asked(&place, Deadline::new(SHORT), |asked| asked.line()).unwrap_err();
        assert!(error.timed_out, "{error}");
    }

    /// The server sends a byte now and then. The deadline covers the whole answer.
    #[test]
    fn a_server_that_trickles_is_late_and_can_be_left() {
        let trickle = || {
            serve(|stream| {
                while stream.write_all(b"x").is_ok() {
                    hugeleaf_testkit::pause(Duration::from_millis(2), "the rate of bytes");
                }
            })
        };
        let error = asked(&trickle(), Deadline::new(SHORT), |asked| asked.line()).unwrap_err();
        assert!(error.timed_out, "{error}");
        let error = asked(&trickle(), Deadline::new(SHORT), |asked| asked.rest()).unwrap_err();
        assert!(error.timed_out, "{error}");
        let stop = AtomicBool::new(false);
        let error = std::thread::scope(|scope| {
            let question = Deadline::new(PATIENCE * 60).with_stop(&stop);
            let waits = scope.spawn(move || asked(&trickle(), question, |asked| asked.line()));
            stop.store(true, Ordering::Relaxed);
            waits.join()
        });
        // Stopped before or after the connection is established.
        assert!(error.is_err() || error.is_ok_and(|e| e.unwrap_err().what.ends_with("stopped")));
    }

    /// connect(2) to a Unix socket blocks while the backlog is full.
    #[test]
    fn a_socket_that_accepts_nobody_is_late() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        let place = Endpoint::Unix(path.to_str().unwrap().to_owned());
        let mut open = Vec::new();
        let error = std::iter::repeat_with(|| Transport::connect(&place, Deadline::new(SHORT)))
            .take(10_000)
            .find_map(|wire| wire.map(|wire| open.push(wire)).err());
        assert!(error.unwrap().timed_out);
    }
}
