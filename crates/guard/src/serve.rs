//! A small HTTP server for a few readers on this host: one thread, a bounded number of connections with a deadline each,
//! and one request per connection.
//!
//! `httparse` parses HTTP. Server libraries start a thread per connection or bring a runtime. This server promises that
//! 10,000 connections, half a request, or a reader that never reads cost no more than a connection's buffer. It has three
//! kinds of listeners: loopback, readable for any local user; an address that other hosts reach; and a Unix socket, whose
//! file mode controls who may also give orders.
//!
//! Anyone who reaches a TCP listener may flood it with requests. Readers still get answers: a request is read as soon as its connection
//! is accepted, and with too many connections those without a request are closed first. Scans continue: answers of a
//! TCP listener use a bounded share of a processor and are reused for a moment, and their time is not charged to scans
//! ([`processor_without_answers`]).

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hugeleaf_sys::{process_usage, thread_usage};

use crate::cpu_token_bucket::CpuTokenBucket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::read;
use rustix::net::{SendFlags, Shutdown, SocketFlags, send, shutdown};

use hugeleaf_units::panic_containment::caught;

/// Maximum number of connections per listener; a further one closes another.
const CONNECTIONS: usize = 64;
/// Maximum number of connections that read answers slowly, each of which holds a page in memory.
const SLOW_READERS: usize = 32;
/// Maximum number of connections waiting in the kernel to be accepted.
const BACKLOG: i32 = 2000;
/// Share of a processor for the answers of a TCP listener.
const SHARE: f64 = 0.2;
/// Maximum processor time saved for them.
const SAVED: Duration = Duration::from_millis(200);
/// Time for which an answer over TCP is reused for the same request.
const FRESH: Duration = Duration::from_millis(250);
/// Maximum number of answers kept for reuse.
const KEPT: usize = 16;
const REQUEST: usize = 8 << 10;
const FIELDS: usize = 64;
/// Deadline of a connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for a reader to close after its answer.
const DRAINS: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(500);
/// Maximum number of connections accepted in a row before others are served.
const ACCEPTED: usize = 64;

/// A page with two formats: its path, the type of the other format, and the path of that format.
const OTHER_FORMAT: (&str, &str, &str) = (
    "/metrics",
    "application/openmetrics-text",
    "/metrics/openmetrics",
);

/// Processor time of all threads that answer requests, in nanoseconds.
static ANSWERING: AtomicU64 = AtomicU64::new(0);

/// Returns this process's processor time without answers, because requests must not make scans rare.
pub fn processor_without_answers() -> Duration {
    let answering = Duration::from_nanos(ANSWERING.load(Ordering::Relaxed));
    process_usage().processor().saturating_sub(answering)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpRequest<'a> {
    /// `GET`; over the Unix socket also `POST`.
    pub method: &'a str,
    /// The path without the query; if `Accept` requests the page's other format, the path of that format.
    pub path: &'a str,
    pub query: &'a str,
    pub trusted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpReply {
    pub status: u16,
    pub kind: &'static str,
    pub body: Vec<u8>,
}

impl HttpReply {
    pub fn ok(kind: &'static str, body: impl Into<Vec<u8>>) -> HttpReply {
        HttpReply {
            status: 200,
            kind,
            body: body.into(),
        }
    }

    pub fn refuse(status: u16, why: &str) -> HttpReply {
        HttpReply {
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
            503 => "Service Unavailable",
            505 => "HTTP Version Not Supported",
            _ => "Internal Server Error",
        };
        // Forbid external content, framing and caching.
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

/// Source of requests; does not block.
#[derive(Debug)]
pub enum Listener {
    /// Loopback: any local user may read.
    Tcp(TcpListener),
    /// An address of any kind: whoever reaches it may read. It must answer with nothing that is for this host only.
    Network(TcpListener),
    /// A Unix socket: users with access to its file may read and give orders.
    Unix(UnixListener),
}

impl Listener {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) | Listener::Network(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }

    fn accept(&self) -> rustix::io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::accept_with(self.fd(), flags)
    }

    /// True if connecting needs no rights on this host.
    const fn is_open_to_all(&self) -> bool {
        matches!(self, Listener::Tcp(_) | Listener::Network(_))
    }

    /// Returns the permitted values of `Host`: on loopback the address and localhost, with the port. `None` for any value: a
    /// host has names on the network that it does not know.
    fn hosts(&self) -> Option<Vec<String>> {
        match self {
            Listener::Tcp(listener) => {
                Some(listener.local_addr().map(names_of).unwrap_or_default())
            }
            Listener::Network(_) | Listener::Unix(_) => None,
        }
    }
}

struct HttpConnection {
    socket: OwnedFd,
    trusted: bool,
    until: Instant,
    request: Vec<u8>,
    /// Bytes left to write; `None` while the request is read.
    response: Option<(Rc<[u8]>, usize)>,
    /// True if the response is written completely. Further input is read and dropped, or the kernel would discard data
    /// that the client has not read yet.
    drains: bool,
}

/// State of a listener's thread.
struct ListenerThread<'a> {
    listener: &'a Listener,
    hosts: Option<Vec<String>>,
    answer: &'a dyn Fn(HttpRequest<'_>) -> HttpReply,
    connections: VecDeque<HttpConnection>,
    /// Fresh answers over TCP: request, expiry, bytes.
    kept: Vec<(String, Instant, Rc<[u8]>)>,
    budget: AnswerBudget,
}

/// Processor time of a thread's answers.
struct AnswerBudget {
    at: Instant,
    used: Duration,
    allowance: CpuTokenBucket,
}

impl AnswerBudget {
    fn new() -> AnswerBudget {
        AnswerBudget {
            at: Instant::now(),
            used: thread_usage().processor(),
            // The debt of one long answer is limited to that of a few short ones.
            allowance: CpuTokenBucket::new(SHARE, SAVED, SAVED),
        }
    }

    /// Charges the time used since the last call, and returns the wait before the next answer.
    fn spend(&mut self) -> Duration {
        let (now, used) = (Instant::now(), thread_usage().processor());
        let spent = used.saturating_sub(self.used);
        let nanos = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        ANSWERING.fetch_add(nanos, Ordering::Relaxed);
        self.allowance.earn(now.saturating_duration_since(self.at));
        self.allowance.spend(spent);
        (self.at, self.used) = (now, used);
        self.allowance.wait().min(TICK)
    }
}

/// Serves until `stop` is set. `answer` must be quick, because all other clients wait meanwhile. A fault closes the
/// current connections, and serving continues.
pub fn serve(
    listener: &Listener,
    stop: &AtomicBool,
    answer: &dyn Fn(HttpRequest<'_>) -> HttpReply,
) {
    while caught(|| serve_until(listener, stop, answer)).is_none() {
        pause(TICK);
    }
}

fn serve_until(
    listener: &Listener,
    stop: &AtomicBool,
    answer: &dyn Fn(HttpRequest<'_>) -> HttpReply,
) {
    // The standard library's backlog is so short that a flood would make the kernel drop other connections.
    let _ = rustix::net::listen(listener.fd(), BACKLOG);
    let mut serving = ListenerThread::new(listener, answer);
    while !stop.load(Ordering::Relaxed) {
        serving.once();
        let wait = serving.budget.spend();
        if listener.is_open_to_all() && !wait.is_zero() {
            pause(wait);
        }
    }
}

fn pause(time: Duration) {
    let _ = poll(&mut [], Timespec::try_from(time).ok().as_ref());
}

impl<'a> ListenerThread<'a> {
    fn new(listener: &'a Listener, answer: &'a dyn Fn(HttpRequest<'_>) -> HttpReply) -> Self {
        ListenerThread {
            listener,
            hosts: listener.hosts(),
            answer,
            connections: VecDeque::new(),
            kept: Vec::new(),
            budget: AnswerBudget::new(),
        }
    }

    fn once(&mut self) {
        let (comes, ready) = self.wait();
        for (at, is_ready) in ready.into_iter().enumerate() {
            if is_ready {
                self.go_on(at);
            }
        }
        let now = Instant::now();
        self.connections.retain(|c| c.until > now);
        if comes {
            self.take();
        }
    }

    fn wait(&self) -> (bool, Vec<bool>) {
        let mut fds = vec![PollFd::from_borrowed_fd(self.listener.fd(), PollFlags::IN)];
        for connection in &self.connections {
            let flags = match connection.response {
                Some(_) if !connection.drains => PollFlags::OUT,
                _ => PollFlags::IN,
            };
            fds.push(PollFd::from_borrowed_fd(connection.socket.as_fd(), flags));
        }
        // An interrupted wait counts as one without events.
        let happened = poll(&mut fds, Timespec::try_from(TICK).ok().as_ref()).is_ok();
        let mut events = fds.iter().map(|fd| happened && !fd.revents().is_empty());
        let comes = events.next().unwrap_or(false);
        (comes, events.collect())
    }

    /// Accepts waiting connections, and reads their input.
    fn take(&mut self) {
        for _ in 0..ACCEPTED {
            let socket = match self.listener.accept() {
                Ok(socket) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    // Out of descriptors, or the client is gone. Closing the oldest connection frees a descriptor.
                    self.connections.pop_front();
                    return;
                }
            };
            self.make_room();
            self.connections.push_back(HttpConnection {
                socket,
                trusted: !self.listener.is_open_to_all(),
                until: Instant::now() + PATIENCE,
                request: Vec::new(),
                response: None,
                drains: false,
            });
            self.go_on(self.connections.len() - 1);
        }
    }

    /// Closes the oldest slow reader if there are too many; else, if there are too many connections, the oldest that has
    /// its answer, or if there is none the oldest without a request.
    fn make_room(&mut self) {
        let is_slow = |c: &HttpConnection| c.response.is_some() && !c.drains;
        let oldest = |is: &dyn Fn(&HttpConnection) -> bool| self.connections.iter().position(is);
        let slow = self.connections.iter().filter(|c| is_slow(c)).count();
        let closed = if slow >= SLOW_READERS {
            oldest(&is_slow)
        } else if self.connections.len() >= CONNECTIONS {
            oldest(&|c| c.drains).or_else(|| oldest(&|c| c.response.is_none()))
        } else {
            None
        };
        if let Some(at) = closed {
            self.connections.remove(at);
        }
    }

    fn go_on(&mut self, at: usize) {
        let Some(connection) = self.connections.get_mut(at) else {
            return;
        };
        if connection.response.is_none() {
            let answer = |request: HttpRequest<'_>| reuse(&mut self.kept, request, self.answer);
            connection.response = connection
                .read(self.hosts.as_deref(), answer)
                .map(|bytes| (bytes, 0));
        }
        if connection.go_on().is_break() {
            connection.until = Instant::now();
        }
    }
}

/// Returns the answer to a request, over TCP a recent one if available.
fn reuse(
    kept: &mut Vec<(String, Instant, Rc<[u8]>)>,
    request: HttpRequest<'_>,
    answer: &dyn Fn(HttpRequest<'_>) -> HttpReply,
) -> Rc<[u8]> {
    let bytes = |response: HttpReply| Rc::from(response.bytes());
    if request.trusted {
        return bytes(answer(request));
    }
    let now = Instant::now();
    kept.retain(|(_, until, _)| *until > now);
    let asked = format!("{}?{}", request.path, request.query);
    if let Some((_, _, bytes)) = kept.iter().find(|(known, ..)| *known == asked) {
        return Rc::clone(bytes);
    }
    let response = answer(request);
    let good = response.status == 200;
    let bytes: Rc<[u8]> = bytes(response);
    if good && kept.len() < KEPT {
        kept.push((asked, now + FRESH, Rc::clone(&bytes)));
    }
    bytes
}

impl HttpConnection {
    fn go_on(&mut self) -> ControlFlow<()> {
        match self.drains {
            true => self.drain(),
            false => self.write(),
        }
    }

    /// Returns the answer to the input; `None` while the request is incomplete.
    fn read(
        &mut self,
        hosts: Option<&[String]>,
        answer: impl FnOnce(HttpRequest<'_>) -> Rc<[u8]>,
    ) -> Option<Rc<[u8]>> {
        let refuse = |status, why: &str| Some(Rc::from(HttpReply::refuse(status, why).bytes()));
        let mut buffer = [0; 2048];
        loop {
            match read(&self.socket, &mut buffer) {
                Ok(0) => return refuse(400, "the request is incomplete"),
                Ok(n) => self.request.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return refuse(400, "the connection broke"),
            }
            if self.request.len() > REQUEST {
                break;
            }
        }
        match parse_request(&self.request, self.trusted, hosts) {
            Ok(Some(request)) => Some(answer(request)),
            Ok(None) if self.request.len() > REQUEST => refuse(431, "the request exceeds 8K"),
            Ok(None) => None,
            Err(refused) => Some(Rc::from(refused.bytes())),
        }
    }

    fn write(&mut self) -> ControlFlow<()> {
        let Some((bytes, at)) = &mut self.response else {
            return ControlFlow::Continue(());
        };
        while *at < bytes.len() {
            match send(&self.socket, &bytes[*at..], SendFlags::NOSIGNAL) {
                Ok(0) => return ControlFlow::Break(()),
                Ok(n) => *at += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return ControlFlow::Continue(()),
                Err(_) => return ControlFlow::Break(()),
            }
        }
        self.drains = true;
        self.until = self.until.min(Instant::now() + DRAINS);
        match shutdown(&self.socket, Shutdown::Write) {
            Ok(()) => self.drain(),
            Err(_) => ControlFlow::Break(()),
        }
    }

    fn drain(&mut self) -> ControlFlow<()> {
        let mut buffer = [0; 2048];
        // Read at most one request's length at a time, because others wait.
        for _ in 0..REQUEST / buffer.len() {
            match read(&self.socket, &mut buffer) {
                Ok(0) => return ControlFlow::Break(()),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return ControlFlow::Continue(()),
                Err(_) => return ControlFlow::Break(()),
            }
        }
        ControlFlow::Continue(())
    }
}

/// Parses a request; `None` while it is incomplete, and an error response if it is refused. Accepts any bytes. `hosts` are the
/// permitted values of `Host`, `None` for any.
pub fn parse_request<'a>(
    bytes: &'a [u8],
    trusted: bool,
    hosts: Option<&[String]>,
) -> Result<Option<HttpRequest<'a>>, HttpReply> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => return Ok(None),
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => {
            return Err(HttpReply::refuse(431, "too many header fields"));
        }
        Err(httparse::Error::Version) => {
            return Err(HttpReply::refuse(505, "use HTTP/1.0 or HTTP/1.1"));
        }
        Err(error) => return Err(HttpReply::refuse(400, &error.to_string())),
    }
    let (method, target) = (request.method.unwrap_or(""), request.path.unwrap_or(""));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if hosts.is_some_and(|hosts| !is_for_us(request.headers, hosts)) {
        // A foreign web page whose name resolves to this host must not read the answers (DNS rebinding).
        return Err(HttpReply::refuse(421, "the Host header names another host"));
    }
    let allowed = method == "GET" || (trusted && method == "POST");
    if !allowed {
        return Err(HttpReply::refuse(405, "read-only: use GET"));
    }
    let (of, kind, other) = OTHER_FORMAT;
    let accepts = request.headers.iter();
    let accepts = accepts.filter(|f| f.name.eq_ignore_ascii_case("accept"));
    let mut accepts = accepts.filter_map(|f| std::str::from_utf8(f.value).ok());
    let path = match path == of && accepts.any(|accept| prefers(accept, kind)) {
        true => other,
        false => path,
    };
    Ok(Some(HttpRequest {
        method,
        path,
        query,
        trusted,
    }))
}

/// True if a reader prefers `kind` to plain text or accepts both equally (RFC 9110, 12.5.1).
fn prefers(accept: &str, kind: &str) -> bool {
    let weight = |wanted: &str| {
        let of = |part: &str| {
            let mut words = part.split(';').map(str::trim);
            let is_it = words.next()?.eq_ignore_ascii_case(wanted);
            let mut quality = 1.0;
            for word in words {
                match word.split_once('=') {
                    Some((name, value)) if name.eq_ignore_ascii_case("q") => {
                        quality = value.parse().unwrap_or(0.0);
                    }
                    // Only one version is available.
                    Some((name, value)) if name.eq_ignore_ascii_case("version") => {
                        let plain = wanted == "text/plain" && value == "0.0.4";
                        if !plain && value != "1.0.0" {
                            return None;
                        }
                    }
                    _ => {}
                }
            }
            is_it.then_some(quality)
        };
        accept.split(',').filter_map(of).fold(0.0, f64::max)
    };
    let kind = weight(kind);
    kind > 0.0 && kind >= weight("text/plain")
}

/// True if there is exactly one `Host`, and it is one of `hosts`.
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
