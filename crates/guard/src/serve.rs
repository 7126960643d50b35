//! A small server for a few readers on this host: one thread, a bounded number of connections, each with a time by
//! which it has to be done, one request a connection.
//!
//! HTTP is parsed by `httparse`. The servers that there are as libraries start a thread for each connection or bring
//! a runtime with them; here it is a promise that 10,000 connections, half of a request, or a reader that never reads
//! cost no more than a connection's buffer. Two kinds of listeners share it: loopback, where any local user may read,
//! and a Unix socket, whose file's mode says who may also order something.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::read;
use rustix::net::{SendFlags, Shutdown, SocketFlags, send, shutdown};

/// So many connections of a listener at once; one more ends the oldest.
const CONNECTIONS: usize = 32;
const REQUEST: usize = 8 << 10;
const FIELDS: usize = 64;
/// By when a connection has to be done.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a reader has to go once it has its answer.
const DRAINS: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(500);
/// So many connections are taken in a row before others are served.
const ACCEPTED: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// `GET` or, over the Unix socket alone, `POST`.
    pub method: &'a str,
    /// The path, without what stands behind `?`.
    pub path: &'a str,
    pub query: &'a str,
    pub trusted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub kind: &'static str,
    pub body: Vec<u8>,
}

impl Response {
    pub fn ok(kind: &'static str, body: impl Into<Vec<u8>>) -> Response {
        Response {
            status: 200,
            kind,
            body: body.into(),
        }
    }

    pub fn refuse(status: u16, why: &str) -> Response {
        Response {
            status,
            kind: "text/plain; charset=utf-8",
            body: format!("{why}\n").into_bytes(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            421 => "Misdirected Request",
            431 => "Request Header Fields Too Large",
            505 => "HTTP Version Not Supported",
            _ => "Internal Server Error",
        };
        // Nothing is loaded from anywhere, and nobody frames it or keeps it.
        let head = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
             Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src \
             'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'\r\n{}\r\n",
            self.status,
            self.kind,
            self.body.len(),
            if self.status == 405 {
                "Allow: GET\r\n"
            } else {
                ""
            },
        );
        [head.as_bytes(), &self.body].concat()
    }
}

/// Where requests come from; does not block.
#[derive(Debug)]
pub enum Listener {
    /// Loopback: any local user, who may read.
    Tcp(TcpListener),
    /// A Unix socket: whom its file lets in, who may order as well.
    Unix(UnixListener),
}

impl Listener {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }

    fn accept(&self) -> rustix::io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::accept_with(self.fd(), flags)
    }

    /// What `Host` may say: the address, and localhost, with the port.
    fn hosts(&self) -> Vec<String> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().map(names_of).unwrap_or_default(),
            Listener::Unix(_) => Vec::new(),
        }
    }
}

struct Connection {
    socket: OwnedFd,
    trusted: bool,
    until: Instant,
    request: Vec<u8>,
    /// What is left to write; `None` while the request is read.
    response: Option<(Vec<u8>, usize)>,
    /// Whether all is written: what the other end still sends is read and dropped, or the kernel would take back
    /// what it has not read yet.
    drains: bool,
}

#[derive(PartialEq, Eq)]
enum Goes {
    On,
    Over,
}

/// Serves until `stop` is set. `answer` must be quick: nobody else is served meanwhile.
pub fn serve(listener: &Listener, stop: &AtomicBool, answer: &dyn Fn(Request<'_>) -> Response) {
    let hosts = listener.hosts();
    let mut connections: VecDeque<Connection> = VecDeque::new();
    while !stop.load(Ordering::Relaxed) {
        let (comes, ready) = wait(listener, &connections);
        for (connection, is_ready) in connections.iter_mut().zip(ready) {
            if is_ready && connection.go_on(&hosts, answer) == Goes::Over {
                connection.until = Instant::now();
            }
        }
        let now = Instant::now();
        connections.retain(|c| c.until > now);
        if comes {
            take(&mut connections, listener);
        }
    }
}

fn wait(listener: &Listener, connections: &VecDeque<Connection>) -> (bool, Vec<bool>) {
    let mut fds = vec![PollFd::from_borrowed_fd(listener.fd(), PollFlags::IN)];
    for connection in connections {
        let flags = match connection.response {
            Some(_) if !connection.drains => PollFlags::OUT,
            _ => PollFlags::IN,
        };
        fds.push(PollFd::from_borrowed_fd(connection.socket.as_fd(), flags));
    }
    let timeout = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(TICK.subsec_nanos()),
    };
    // An interrupted wait is one in which nothing happened.
    let happened = poll(&mut fds, Some(&timeout)).is_ok();
    let mut events = fds.iter().map(|fd| happened && !fd.revents().is_empty());
    let comes = events.next().unwrap_or(false);
    (comes, events.collect())
}

/// Takes who waits. Beyond what there may be the oldest ends: who comes is served before who stands still.
fn take(connections: &mut VecDeque<Connection>, listener: &Listener) {
    for _ in 0..ACCEPTED {
        let socket = match listener.accept() {
            Ok(socket) => socket,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(_) => {
                // Out of descriptors, or gone already: what holds them is older than this.
                connections.pop_front();
                return;
            }
        };
        if connections.len() >= CONNECTIONS {
            connections.pop_front();
        }
        connections.push_back(Connection {
            socket,
            trusted: matches!(listener, Listener::Unix(_)),
            until: Instant::now() + PATIENCE,
            request: Vec::new(),
            response: None,
            drains: false,
        });
    }
}

impl Connection {
    fn go_on(&mut self, hosts: &[String], answer: &dyn Fn(Request<'_>) -> Response) -> Goes {
        if self.drains {
            return self.drain();
        }
        if self.response.is_none() {
            match self.read(hosts, answer) {
                Some(response) => self.response = Some((response.bytes(), 0)),
                None => return Goes::On,
            }
        }
        self.write()
    }

    fn read(
        &mut self,
        hosts: &[String],
        answer: &dyn Fn(Request<'_>) -> Response,
    ) -> Option<Response> {
        let mut buffer = [0; 2048];
        loop {
            match read(&self.socket, &mut buffer) {
                Ok(0) => return Some(Response::refuse(400, "the request ended in the middle")),
                Ok(n) => self.request.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Some(Response::refuse(400, "the connection broke")),
            }
            if self.request.len() > REQUEST {
                break;
            }
        }
        let answered = respond(&self.request, self.trusted, hosts, answer);
        if answered.is_none() && self.request.len() > REQUEST {
            return Some(Response::refuse(431, "a request of more than 8K"));
        }
        answered
    }

    fn write(&mut self) -> Goes {
        let Some((bytes, at)) = &mut self.response else {
            return Goes::On;
        };
        while *at < bytes.len() {
            match send(&self.socket, &bytes[*at..], SendFlags::NOSIGNAL) {
                Ok(0) => return Goes::Over,
                Ok(n) => *at += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Goes::On,
                Err(_) => return Goes::Over,
            }
        }
        self.drains = true;
        self.until = self.until.min(Instant::now() + DRAINS);
        match shutdown(&self.socket, Shutdown::Write) {
            Ok(()) => self.drain(),
            Err(_) => Goes::Over,
        }
    }

    fn drain(&mut self) -> Goes {
        let mut buffer = [0; 2048];
        // No more than a request's length at a time: others wait.
        for _ in 0..REQUEST / buffer.len() {
            match read(&self.socket, &mut buffer) {
                Ok(0) => return Goes::Over,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Goes::On,
                Err(_) => return Goes::Over,
            }
        }
        Goes::On
    }
}

/// The answer to the bytes of a request; `None` while more is to come. Total: any bytes may come.
pub fn respond(
    bytes: &[u8],
    trusted: bool,
    hosts: &[String],
    answer: &dyn Fn(Request<'_>) -> Response,
) -> Option<Response> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => {
            return Some(Response::refuse(431, "too many header fields"));
        }
        Err(httparse::Error::Version) => {
            return Some(Response::refuse(505, "HTTP/1.0 or HTTP/1.1"));
        }
        Err(error) => return Some(Response::refuse(400, &error.to_string())),
    }
    let (method, target) = (request.method.unwrap_or(""), request.path.unwrap_or(""));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if !trusted && !is_for_us(request.headers, hosts) {
        // A page elsewhere whose name leads here must not read what is shown here (DNS rebinding).
        return Some(Response::refuse(
            421,
            "this host is asked for by another name",
        ));
    }
    let allowed = method == "GET" || (trusted && method == "POST");
    if !allowed {
        return Some(Response::refuse(405, "there is nothing here but to read"));
    }
    Some(answer(Request {
        method,
        path,
        query,
        trusted,
    }))
}

/// Exactly one `Host`, and one of these.
fn is_for_us(fields: &[httparse::Header<'_>], hosts: &[String]) -> bool {
    let mut named = fields
        .iter()
        .filter(|f| f.name.eq_ignore_ascii_case("host"));
    let (Some(host), None) = (named.next(), named.next()) else {
        return false;
    };
    let host = std::str::from_utf8(host.value).unwrap_or("").trim();
    hosts.iter().any(|ours| ours.eq_ignore_ascii_case(host))
}

fn names_of(address: SocketAddr) -> Vec<String> {
    let port = address.port();
    let mut names = vec![
        address.to_string(),
        format!("localhost:{port}"),
        format!("127.0.0.1:{port}"),
        format!("[::1]:{port}"),
    ];
    if port == 80 {
        names.extend(["localhost", "127.0.0.1", "[::1]"].map(str::to_owned));
    }
    names
}

#[cfg(test)]
mod tests;
