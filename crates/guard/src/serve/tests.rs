use super::*;
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

fn answer(request: Request<'_>) -> Response {
    match request.path {
        "/large" => Response::ok("text/plain", vec![b'x'; 4 << 20]),
        _ => Response::ok(
            "text/plain",
            format!("{} {} {}", request.method, request.path, request.query),
        ),
    }
}

/// A server on loopback and one on a socket, until dropped.
struct Running {
    address: SocketAddr,
    socket: std::path::PathBuf,
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl Running {
    fn new() -> Running {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("guard.sock");
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let unix = UnixListener::bind(&socket).unwrap();
        tcp.set_nonblocking(true).unwrap();
        unix.set_nonblocking(true).unwrap();
        let address = tcp.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let serving = |listener: Listener| {
            let flag = Arc::clone(&stop);
            std::thread::spawn(move || serve(&listener, &flag, &answer))
        };
        let threads = vec![serving(Listener::Tcp(tcp)), serving(Listener::Unix(unix))];
        Running {
            address,
            socket,
            stop,
            threads,
            _dir: dir,
        }
    }

    fn ask(&self, text: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE * 4)).unwrap();
        let _ = stream.write_all(text.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn get(&self, path: &str) -> String {
        self.ask(&format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n",
            self.address
        ))
    }

    fn over_unix(&self, text: &str) -> String {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

#[test]
fn reads_are_answered() {
    let server = Running::new();
    let said = server.get("/a/b?c=d");
    assert!(
        said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("\r\n\r\nGET /a/b c=d"),
        "{said}"
    );
    assert!(said.contains("frame-ancestors 'none'") && said.contains("nosniff"));
    assert!(
        server
            .over_unix("POST /pause HTTP/1.1\r\n\r\n")
            .ends_with("POST /pause ")
    );
    assert!(
        server
            .over_unix("GET /x HTTP/1.0\r\n\r\n")
            .ends_with("GET /x ")
    );
    let large = server.get("/large");
    assert_eq!(large.len() - large.find("\r\n\r\n").unwrap() - 4, 4 << 20);
}

#[test]
fn all_else_is_refused() {
    let server = Running::new();
    let host = server.address.to_string();
    let cases = [
        (format!("POST / HTTP/1.1\r\nHost: {host}\r\n\r\n"), 405),
        (format!("HEAD / HTTP/1.1\r\nHost: {host}\r\n\r\n"), 405),
        (format!("DELETE / HTTP/1.1\r\nHost: {host}\r\n\r\n"), 405),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".into(), 421),
        (
            "GET / HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n".into(),
            421,
        ),
        ("GET / HTTP/1.1\r\n\r\n".into(), 421),
        (
            format!("GET / HTTP/1.1\r\nHost: {host}\r\nHost: evil\r\n\r\n"),
            421,
        ),
        (format!("GET / HTTP/3.0\r\nHost: {host}\r\n\r\n"), 505),
        ("\u{0}\u{1}\u{2}\r\n\r\n".into(), 400),
        (format!("GET /{} HTTP/1.1\r\n", "a".repeat(REQUEST)), 431),
        (
            format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(FIELDS + 1)),
            431,
        ),
    ];
    for (text, status) in cases {
        let said = server.ask(&text);
        assert!(
            said.starts_with(&format!("HTTP/1.1 {status} ")),
            "{text:.60} {said:.60}"
        );
    }
    let named = format!(
        "GET /ok HTTP/1.1\r\nHost: LOCALHOST:{}\r\n\r\n",
        server.address.port()
    );
    assert!(server.ask(&named).starts_with("HTTP/1.1 200"));
}

#[test]
fn who_stands_still_holds_nobody_up() {
    let server = Running::new();
    let mut still: Vec<TcpStream> = Vec::new();
    for n in 0..200 {
        let mut stream = TcpStream::connect(server.address).unwrap();
        match n % 3 {
            0 => {}
            1 => stream.write_all(b"GET / HT").unwrap(),
            // It asks for much and reads nothing.
            _ => write!(
                stream,
                "GET /large HTTP/1.1\r\nHost: {}\r\n\r\n",
                server.address
            )
            .unwrap(),
        }
        still.push(stream);
    }
    assert!(server.get("/ok").starts_with("HTTP/1.1 200"));
    assert!(
        server
            .over_unix("GET /ok HTTP/1.1\r\n\r\n")
            .starts_with("HTTP/1.1 200")
    );
    // Every one of them ends, the first among them at once.
    let mut first = still.remove(0);
    first.set_read_timeout(Some(PATIENCE * 4)).unwrap();
    assert!(matches!(first.read(&mut [0; 16]), Ok(0) | Err(_)));
}

#[test]
fn a_request_in_drops_is_a_request() {
    let server = Running::new();
    let mut stream = TcpStream::connect(server.address).unwrap();
    let text = format!("GET /slow HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
    for byte in text.as_bytes() {
        stream.write_all(&[*byte]).unwrap();
        stream.flush().unwrap();
    }
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.ends_with("GET /slow "), "{said}");
}

proptest! {
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..600), trusted in any::<bool>()) {
        let hosts = names_of("127.0.0.1:9".parse().unwrap());
        if let Some(response) = respond(&bytes, trusted, &hosts, &answer) {
            let written = response.bytes();
            let head = String::from_utf8_lossy(&written);
            prop_assert!(head.starts_with("HTTP/1.1 "), "{}", head);
        }
    }

    #[test]
    fn only_reads_get_through(method in "[A-Z]{1,8}", path in "/[a-z/?=&%]{0,20}", host in "[a-z0-9.:]{0,20}") {
        let text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let hosts = names_of("127.0.0.1:9".parse().unwrap());
        let response = respond(text.as_bytes(), false, &hosts, &answer).unwrap();
        prop_assert_eq!(response.status == 200, method == "GET" && hosts.contains(&host));
    }
}
