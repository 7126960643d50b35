//! A connection that speaks lines, over TCP or a Unix socket, with a time by which each answer must be there and a
//! bound on its length: what a server says never grows this process.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::server::{PATIENCE, ServerError};

/// No answer is longer.
const LONGEST: usize = 256 << 10;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp { host: String, port: u16 },
    Unix(String),
}

impl Place {
    /// `/path/to.sock`, `host`, `host:port`, `[address]:port`.
    pub(crate) fn parse(text: &str, port: u16) -> Result<Place, String> {
        if text.starts_with('/') {
            return Ok(Place::Unix(text.to_owned()));
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, digits)) if !host.ends_with(':') => {
                let number = digits.parse().map_err(|_| "this is no port".to_owned())?;
                (host, number)
            }
            _ => (text, port),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        match !host.is_empty() && host.chars().all(is_part) {
            true => Ok(Place::Tcp {
                host: host.to_owned(),
                port,
            }),
            false => Err("this is no address".into()),
        }
    }

    /// As it is shown.
    pub(crate) fn shown(&self) -> String {
        match self {
            Place::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Place::Tcp { host, port } => format!("{host}:{port}"),
            Place::Unix(path) => path.clone(),
        }
    }
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn limit(&self, time: Duration) -> std::io::Result<()> {
        // 0 would be no limit at all.
        let time = Some(time.max(Duration::from_millis(1)));
        match self {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(time)?;
                stream.set_write_timeout(time)
            }
            Stream::Unix(stream) => {
                stream.set_read_timeout(time)?;
                stream.set_write_timeout(time)
            }
        }
    }

    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(into),
            Stream::Unix(stream) => stream.read(into),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }
}

/// A connection.
pub(crate) struct Wire {
    shown: String,
    stream: Stream,
    /// What was read and not taken yet.
    buffer: Vec<u8>,
    /// How much of the present answer was taken.
    taken: usize,
    patience: Duration,
    until: Instant,
}

impl Wire {
    pub(crate) fn connect(place: &Place) -> Result<Wire, ServerError> {
        let shown = place.shown();
        let fail = |e: std::io::Error| failed(&shown, PATIENCE, &e);
        let stream = match place {
            Place::Unix(path) => Stream::Unix(UnixStream::connect(path).map_err(fail)?),
            Place::Tcp { host, port } => {
                let mut found = (host.as_str(), *port).to_socket_addrs().map_err(fail)?;
                let address = found.next();
                let address =
                    address.ok_or_else(|| ServerError::new(format!("{shown}: no such host")))?;
                Stream::Tcp(TcpStream::connect_timeout(&address, PATIENCE).map_err(fail)?)
            }
        };
        Ok(Wire::of(stream, shown, PATIENCE))
    }

    /// Over what is connected already.
    pub(crate) fn over(stream: UnixStream, shown: &str, patience: Duration) -> Wire {
        Wire::of(Stream::Unix(stream), shown.to_owned(), patience)
    }

    fn of(stream: Stream, shown: String, patience: Duration) -> Wire {
        Wire {
            shown,
            stream,
            buffer: Vec::new(),
            taken: 0,
            patience,
            until: Instant::now() + patience,
        }
    }

    /// Sends a request, whose answer must be there in time and is bounded.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), ServerError> {
        self.until = Instant::now() + self.patience;
        self.taken = 0;
        self.stream
            .limit(self.patience)
            .and_then(|()| self.stream.write_all(bytes))
            .map_err(|e| self.failed(&e))
    }

    /// A line, without its end.
    pub(crate) fn line(&mut self) -> Result<String, ServerError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                self.taken += line.len();
                let text = String::from_utf8_lossy(&line);
                return Ok(text.trim_end_matches(['\r', '\n']).to_owned());
            }
            self.fill()?;
        }
    }

    /// So many bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<String, ServerError> {
        while self.buffer.len() < count {
            if count > LONGEST {
                return Err(self.too_long());
            }
            self.fill()?;
        }
        let bytes: Vec<u8> = self.buffer.drain(..count).collect();
        self.taken += count;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn too_long(&self) -> ServerError {
        ServerError::new(format!("{}: its answer is too long", self.shown))
    }

    fn fill(&mut self) -> Result<(), ServerError> {
        if self.taken + self.buffer.len() > LONGEST {
            return Err(self.too_long());
        }
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late(&self.shown, self.patience));
        }
        let mut some = [0; 8 << 10];
        let read = self
            .stream
            .limit(left)
            .and_then(|()| self.stream.read(&mut some));
        match read {
            Ok(0) => Err(ServerError::new(format!(
                "{}: it closed the connection",
                self.shown
            ))),
            Ok(count) => {
                self.buffer.extend_from_slice(&some[..count]);
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(()),
            Err(e) => Err(self.failed(&e)),
        }
    }

    fn failed(&self, error: &std::io::Error) -> ServerError {
        failed(&self.shown, self.patience, error)
    }
}

fn late(shown: &str, patience: Duration) -> ServerError {
    ServerError::late(format!("{shown}: no answer in {} s", patience.as_secs()))
}

fn failed(shown: &str, patience: Duration, error: &std::io::Error) -> ServerError {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => late(shown, patience),
        _ => ServerError::new(format!("{shown}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    fn serve(answer: impl Fn(&mut TcpStream) + Send + 'static) -> Place {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || answer(&mut listener.accept().unwrap().0));
        Place::Tcp {
            host: "127.0.0.1".into(),
            port,
        }
    }

    #[test]
    fn an_endless_answer_is_cut_off() {
        let place = serve(|stream| while stream.write_all(&[b'x'; 4096]).is_ok() {});
        let mut wire = Wire::connect(&place).unwrap();
        wire.send(b"stats\r\n").unwrap();
        let error = wire.line().unwrap_err();
        assert!(error.what.contains("too long"), "{error}");
        assert!(wire.buffer.len() <= LONGEST + (8 << 10));
    }

    #[test]
    fn endless_lines_are_cut_off_too() {
        let place = serve(|stream| while stream.write_all(b"STAT a 1\r\n").is_ok() {});
        let mut wire = Wire::connect(&place).unwrap();
        wire.send(b"stats\r\n").unwrap();
        let error = std::iter::repeat_with(|| wire.line()).find_map(Result::err);
        assert!(error.unwrap().what.contains("too long"));
        assert!(wire.bytes(LONGEST + 1).is_err());
    }

    #[test]
    fn addresses() {
        let tcp = |host: &str, port| Place::Tcp {
            host: host.into(),
            port,
        };
        assert_eq!(Place::parse("a.b", 7), Ok(tcp("a.b", 7)));
        assert_eq!(Place::parse("[::1]:8", 7), Ok(tcp("::1", 8)));
        assert_eq!(Place::parse("/run/a", 7), Ok(Place::Unix("/run/a".into())));
        for bad in ["", "a b", "user:pass@host", "a:99999"] {
            assert!(Place::parse(bad, 7).is_err(), "{bad}");
        }
    }
}
