//! A connection over TCP or a Unix socket. Each answer has a deadline and a bounded length.

use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::io::read;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, send};

use crate::{Place, Unanswered};

/// The most bytes of an answer, unless a wire is given another bound.
pub const LONGEST: usize = 256 << 10;

/// Connects to the first address that accepts, by the deadline.
fn connect(place: &Place, until: Instant) -> std::io::Result<OwnedFd> {
    let left = || some(until.saturating_duration_since(Instant::now()));
    match place {
        Place::Unix(path) => {
            let address = SocketAddrUnix::new(path.as_str())?;
            let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
            let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
            // Where the server's queue of connections is full, connect(2) waits for this long.
            set_socket_timeout(&socket, Timeout::Send, Some(left()?))?;
            rustix::net::connect(&socket, &address)?;
            Ok(socket)
        }
        Place::Tcp { host, port } => {
            let mut failed = std::io::Error::new(ErrorKind::NotFound, "no such host");
            for address in (host.as_str(), *port).to_socket_addrs()? {
                match TcpStream::connect_timeout(&address, left()?) {
                    Ok(stream) => return Ok(stream.into()),
                    Err(e) => failed = e,
                }
            }
            Err(failed)
        }
    }
}

/// The time left until a deadline; never 0, which would be no limit at all.
fn some(left: Duration) -> std::io::Result<Duration> {
    match left.is_zero() {
        true => Err(ErrorKind::TimedOut.into()),
        false => Ok(left.max(Duration::from_millis(1))),
    }
}

pub struct Wire {
    shown: String,
    socket: OwnedFd,
    /// Bytes that were read and not consumed yet.
    buffer: Vec<u8>,
    taken: usize,
    /// How long the answer to a request may take.
    pub patience: Duration,
    /// The most bytes of an answer.
    pub longest: usize,
    until: Instant,
}

impl Wire {
    /// Connects within `patience`, which each later answer gets as well.
    ///
    /// # Errors
    /// Nobody answers there.
    pub fn connect(place: &Place, patience: Duration) -> Result<Wire, Unanswered> {
        let shown = place.to_string();
        match connect(place, Instant::now() + patience) {
            Ok(socket) => Ok(Wire::of(socket, shown, patience)),
            Err(e) => Err(failed(&shown, patience, &e)),
        }
    }

    /// A connection over a socket that is connected already; errors call it `shown`.
    pub fn over(stream: UnixStream, shown: &str, patience: Duration) -> Wire {
        Wire::of(stream.into(), shown.to_owned(), patience)
    }

    fn of(socket: OwnedFd, shown: String, patience: Duration) -> Wire {
        Wire {
            shown,
            socket,
            buffer: Vec::new(),
            taken: 0,
            patience,
            longest: LONGEST,
            until: Instant::now() + patience,
        }
    }

    /// Sends a request. From here on its answer has [`Wire::patience`] and [`LONGEST`] bytes.
    ///
    /// # Errors
    /// The server is gone, or takes nothing in time.
    pub fn send(&mut self, mut bytes: &[u8]) -> Result<(), Unanswered> {
        self.until = Instant::now() + self.patience;
        self.taken = 0;
        while !bytes.is_empty() {
            match self.timed(|socket| send(socket, bytes, SendFlags::NOSIGNAL))? {
                0 => return Err(self.closed()),
                count => bytes = &bytes[count..],
            }
        }
        Ok(())
    }

    /// The next line of the answer, without its end.
    ///
    /// # Errors
    /// It is not there in time, too long, or the connection broke.
    pub fn line(&mut self) -> Result<String, Unanswered> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                self.taken += line.len();
                let text = String::from_utf8_lossy(&line);
                return Ok(text.trim_end_matches(['\r', '\n']).to_owned());
            }
            self.need()?;
        }
    }

    /// The next `count` bytes of the answer.
    ///
    /// # Errors
    /// As [`Wire::line`].
    pub fn bytes(&mut self, count: usize) -> Result<Vec<u8>, Unanswered> {
        while self.buffer.len() < count {
            if count > self.longest {
                return Err(self.too_long());
            }
            self.need()?;
        }
        self.taken += count;
        Ok(self.buffer.drain(..count).collect())
    }

    /// All bytes of the answer, of a server that then closes the connection.
    ///
    /// # Errors
    /// As [`Wire::line`].
    pub fn rest(&mut self) -> Result<Vec<u8>, Unanswered> {
        while self.fill()? {}
        self.taken += self.buffer.len();
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Reads more of an answer that is not over.
    fn need(&mut self) -> Result<(), Unanswered> {
        match self.fill()? {
            true => Ok(()),
            false => Err(self.closed()),
        }
    }

    /// Reads more; `false` where the connection is closed.
    fn fill(&mut self) -> Result<bool, Unanswered> {
        if self.taken + self.buffer.len() > self.longest {
            return Err(self.too_long());
        }
        let mut some = [0; 8 << 10];
        let count = self.timed(|socket| read(socket, &mut some))?;
        self.buffer.extend_from_slice(&some[..count]);
        Ok(count > 0)
    }

    /// A call that ends by the deadline.
    fn timed(
        &self,
        mut call: impl FnMut(&OwnedFd) -> rustix::io::Result<usize>,
    ) -> Result<usize, Unanswered> {
        let mut once = || -> std::io::Result<usize> {
            let left = some(self.until.saturating_duration_since(Instant::now()))?;
            set_socket_timeout(&self.socket, Timeout::Recv, Some(left))?;
            set_socket_timeout(&self.socket, Timeout::Send, Some(left))?;
            Ok(call(&self.socket)?)
        };
        loop {
            match once() {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                done => return done.map_err(|e| failed(&self.shown, self.patience, &e)),
            }
        }
    }

    fn too_long(&self) -> Unanswered {
        Unanswered::new(format!("{}: its answer is too long", self.shown))
    }

    fn closed(&self) -> Unanswered {
        Unanswered::new(format!("{}: it closed the connection", self.shown))
    }
}

fn failed(shown: &str, patience: Duration, error: &std::io::Error) -> Unanswered {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            Unanswered::late(format!("{shown}: no answer in {} s", patience.as_secs()))
        }
        _ => Unanswered::new(format!("{shown}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn serve(answer: impl Fn(&mut TcpStream) + Send + 'static) -> Place {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || answer(&mut listener.accept().unwrap().0));
        Place::Tcp {
            host: "127.0.0.1".into(),
            port,
        }
    }

    fn asked(place: &Place, patience: Duration) -> Wire {
        let mut wire = Wire::connect(place, patience).unwrap();
        wire.send(b"stats\r\n").unwrap();
        wire
    }

    #[test]
    fn an_endless_answer_is_cut_off() {
        let place = serve(|stream| while stream.write_all(&[b'x'; 4096]).is_ok() {});
        let mut wire = asked(&place, PATIENCE);
        let error = wire.line().unwrap_err();
        assert!(error.what.contains("too long"), "{error}");
        assert!(wire.buffer.len() <= LONGEST + (8 << 10));
    }

    #[test]
    fn endless_lines_are_cut_off_too() {
        let place = serve(|stream| while stream.write_all(b"STAT a 1\r\n").is_ok() {});
        let mut wire = asked(&place, PATIENCE);
        let error = std::iter::repeat_with(|| wire.line()).find_map(Result::err);
        assert!(error.unwrap().what.contains("too long"));
        assert!(wire.bytes(LONGEST + 1).is_err());
    }

    #[test]
    fn silence_is_late() {
        let place = serve(|stream| {
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let error = asked(&place, Duration::from_millis(50)).line().unwrap_err();
        assert!(error.is_late, "{error}");
    }

    /// connect(2) to a Unix socket waits while the queue of connections is full.
    #[test]
    fn a_socket_that_accepts_nobody_is_late() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        let place = Place::Unix(path.to_str().unwrap().to_owned());
        let mut open = Vec::new();
        let error = std::iter::repeat_with(|| Wire::connect(&place, Duration::from_millis(50)))
            .take(10_000)
            .find_map(|wire| wire.map(|wire| open.push(wire)).err());
        assert!(error.unwrap().is_late);
    }
}
