use super::*;
use hugeleaf_testkit::RepeatingThread;
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

fn answer(request: HttpRequest<'_>) -> HttpReply {
    match request.path {
        "/fault" => panic!("expected by a test"),
        "/large" => HttpReply::ok("text/plain", vec![b'x'; 4 << 20]),
        _ => HttpReply::ok(
            "text/plain",
            format!("{} {} {}", request.method, request.path, request.query),
        ),
    }
}

/// A server on loopback, one for the network and one on a socket, until dropped.
struct Running {
    address: SocketAddr,
    network: SocketAddr,
    socket: std::path::PathBuf,
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl Running {
    fn new() -> Running {
        Running::after(|_| {})
    }

    /// Starts to serve once `first` has used its address on loopback.
    fn after(first: impl FnOnce(SocketAddr)) -> Running {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("guard.sock");
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let all = TcpListener::bind("0.0.0.0:0").unwrap();
        let unix = UnixListener::bind(&socket).unwrap();
        tcp.set_nonblocking(true).unwrap();
        all.set_nonblocking(true).unwrap();
        unix.set_nonblocking(true).unwrap();
        let address = tcp.local_addr().unwrap();
        let network = SocketAddr::from(([127, 0, 0, 2], all.local_addr().unwrap().port()));
        first(address);
        let stop = Arc::new(AtomicBool::new(false));
        let serving = |listener: Listener| {
            let flag = Arc::clone(&stop);
            std::thread::spawn(move || serve(&listener, &flag, &answer))
        };
        let threads = vec![
            serving(Listener::Tcp(tcp)),
            serving(Listener::Network(all)),
            serving(Listener::Unix(unix)),
        ];
        Running {
            address,
            network,
            socket,
            stop,
            threads,
            _dir: dir,
        }
    }

    fn ask(&self, text: &str) -> String {
        Running::ask_at(self.address, text)
    }

    fn ask_at(address: SocketAddr, text: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
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

/// On the network a host has names that it does not know. Nobody there gives orders.
#[test]
fn the_network_reads_under_any_name_and_gives_no_orders() {
    let server = Running::new();
    for (text, status) in [
        ("GET /a HTTP/1.1\r\nHost: node-7.example:9646\r\n\r\n", 200),
        ("GET /a HTTP/1.1\r\nHost: [2001:db8::7]:9646\r\n\r\n", 200),
        ("GET /a HTTP/1.0\r\n\r\n", 200),
        ("POST /pause HTTP/1.1\r\nHost: node-7.example\r\n\r\n", 405),
        ("PUT /a HTTP/1.1\r\nHost: node-7.example\r\n\r\n", 405),
        ("GET /a HTTP/3.0\r\n\r\n", 505),
        ("\u{0}\u{1}\u{2}\r\n\r\n", 400),
        ("\u{16}\u{3}\u{1}", 400),
        (&format!("GET /{} HTTP/1.1\r\n", "a".repeat(REQUEST)), 431),
    ] {
        let said = Running::ask_at(server.network, text);
        assert!(
            said.starts_with(&format!("HTTP/1.1 {status} ")),
            "{text:.60} {said:.60}"
        );
    }
}

#[test]
fn who_stands_still_holds_nobody_up() {
    let server = Running::new();
    for address in [server.address, server.network] {
        stand_still(&server, address);
    }
}

fn stand_still(server: &Running, address: SocketAddr) {
    let mut still: Vec<TcpStream> = Vec::new();
    for n in 0..200 {
        let mut stream = TcpStream::connect(address).unwrap();
        match n % 3 {
            0 => {}
            1 => stream.write_all(b"GET / HT").unwrap(),
            // It requests much and reads nothing.
            _ => write!(stream, "GET /large HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap(),
        }
        still.push(stream);
    }
    let said = Running::ask_at(
        address,
        &format!("GET /ok HTTP/1.1\r\nHost: {address}\r\n\r\n"),
    );
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    assert!(
        server
            .over_unix("GET /ok HTTP/1.1\r\n\r\n")
            .starts_with("HTTP/1.1 200")
    );
    // Every connection is closed.
    let mut first = still.remove(0);
    first.set_read_timeout(Some(PATIENCE * 4)).unwrap();
    assert!(matches!(first.read(&mut [0; 16]), Ok(0) | Err(_)));
}

/// Every client with a request is answered, regardless of the number of clients.
#[test]
fn all_who_have_asked_are_answered() {
    let mut asking = Vec::new();
    let _server = Running::after(|address| {
        for n in 0..100 {
            let mut stream = TcpStream::connect(address).unwrap();
            if n % 2 == 0 {
                write!(stream, "GET /{n} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
            }
            asking.push(stream);
        }
    });
    for (n, mut stream) in asking.into_iter().enumerate().step_by(2) {
        stream.set_read_timeout(Some(PATIENCE * 4)).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert!(said.ends_with(&format!("GET /{n} ")), "{n}: {said}");
    }
}

/// A client may be held up between connecting and its request: those that have their answers are closed first.
#[test]
fn who_is_about_to_ask_is_closed_last() {
    let folder = tempfile::tempdir().unwrap();
    let listener = Listener::Unix(UnixListener::bind(folder.path().join("socket")).unwrap());
    let connection = |drains: bool| HttpConnection {
        socket: UnixStream::pair().unwrap().0.into(),
        trusted: false,
        until: Instant::now() + PATIENCE,
        request: Vec::new(),
        response: drains.then(|| (Rc::from([]), 0)),
        drains,
    };
    let mut serving = ListenerThread::new(&listener, &answer);
    for has_answer in std::iter::once(false).chain([true; CONNECTIONS * 2]) {
        serving.make_room();
        serving.connections.push_back(connection(has_answer));
        assert!(!serving.connections[0].drains);
    }
    assert_eq!(serving.connections.len(), CONNECTIONS);
    // If no connection has its answer, the oldest is closed.
    serving.connections = (0..CONNECTIONS).map(|_| connection(false)).collect();
    serving.connections[0].request = b"GET /".to_vec();
    serving.make_room();
    assert!(serving.connections[0].request.is_empty());
}

/// A reader gets each answer while two others send requests as fast as they can and read nothing.
#[test]
fn a_flood_locks_nobody_out() {
    let server = Running::new();
    for address in [server.address, server.network] {
        flood(address);
    }
}

fn flood(address: SocketAddr) {
    std::thread::scope(|scope| {
        let flood = |path| {
            let mut open = VecDeque::new();
            RepeatingThread::start(scope, move || {
                let Ok(mut stream) = TcpStream::connect(address) else {
                    return;
                };
                let _ = write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
                open.push_back(stream);
                if open.len() > 50 {
                    open.pop_front();
                }
            })
        };
        let _floods = ["/large", "/small"].map(flood);
        for n in 0..20 {
            let asked = format!("GET /{n} HTTP/1.1\r\nHost: {address}\r\n\r\n");
            let said = Running::ask_at(address, &asked);
            assert!(said.ends_with(&format!("GET /{n} ")), "{n}: {said}");
        }
    });
}

/// A flood costs one answer per moment, and a share of a processor that is not charged to scans.
#[test]
fn answers_are_given_again_and_accounted_for() {
    let made = std::cell::Cell::new(0);
    let make = |request: HttpRequest<'_>| {
        made.set(made.get() + 1);
        answer(request)
    };
    fn request(path: &str, trusted: bool) -> HttpRequest<'_> {
        HttpRequest {
            method: "GET",
            path,
            query: "",
            trusted,
        }
    }
    let mut kept = Vec::new();
    for _ in 0..1000 {
        reuse(&mut kept, request("/a", false), &make);
    }
    // A slow machine may need several reuse periods.
    assert!(made.get() < 500, "{}", made.get());
    made.set(0);
    for path in ["/a", "/a", "/b"] {
        // A trusted client sees the result of its orders at once.
        reuse(&mut kept, request(path, true), &make);
    }
    assert_eq!(made.get(), 3);
    for n in 0..100 {
        let path = format!("/{n}");
        reuse(&mut kept, request(&path, false), &make);
    }
    assert!(kept.len() <= KEPT);

    let before = ANSWERING.load(Ordering::Relaxed);
    let mut budget = AnswerBudget::new();
    let used = thread_usage();
    while thread_usage().since(used).processor() < SAVED * 2 {
        std::hint::black_box(vec![1u8; 1 << 16]);
    }
    let wait = budget.spend();
    assert!(wait > Duration::ZERO);
    let charged = Duration::from_nanos(ANSWERING.load(Ordering::Relaxed) - before);
    assert!(charged >= SAVED * 2, "{charged:?}");
}

/// Headers of metrics readers: Prometheus 2.42 and 3.5, VictoriaMetrics, curl, a browser.
#[test]
fn a_reader_gets_the_format_that_it_asks_for() {
    let open = "application/openmetrics-text";
    for (accept, is_open) in [
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            true,
        ),
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            true,
        ),
        (
            "application/vnd.google.protobuf;q=0.7,text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
            false,
        ),
        ("text/plain;version=0.0.4;q=1,*/*;q=0.1", false),
        ("text/plain, application/openmetrics-text; q=0.2", false),
        ("application/openmetrics-text; q=0", false),
        ("application/openmetrics-text", true),
        ("application/openmetrics-text;version=2.0.0", false),
        ("text/html,application/xhtml+xml,*/*;q=0.8", false),
        ("*/*", false),
        ("", false),
    ] {
        assert_eq!(prefers(accept, open), is_open, "{accept}");
        let text =
            format!("GET /metrics HTTP/1.1\r\nHost: localhost:9\r\nAccept: {accept}\r\n\r\n");
        let hosts = names_of("127.0.0.1:9".parse().unwrap());
        let path = parse_request(text.as_bytes(), false, Some(&hosts))
            .unwrap()
            .unwrap()
            .path;
        assert_eq!(path == "/metrics/openmetrics", is_open, "{accept}");
    }
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
        match parse_request(&bytes, trusted, Some(&hosts).filter(|_| !trusted).map(|hosts| &**hosts)) {
            Ok(Some(request)) => prop_assert!(trusted || request.method == "GET"),
            Ok(None) => {}
            Err(refused) => prop_assert!(refused.status >= 400),
        }
    }

    #[test]
    fn only_reads_get_through(method in "[A-Z]{1,8}", path in "/[a-z/?=&%]{0,20}", host in "[a-z0-9.:]{0,20}") {
        let text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let hosts = names_of("127.0.0.1:9".parse().unwrap());
        let asked = parse_request(text.as_bytes(), false, Some(&hosts));
        prop_assert_eq!(asked.is_ok(), method == "GET" && hosts.contains(&host));
    }
}

#[test]
fn a_fault_in_an_answer_ends_that_connection_alone() {
    let server = Running::new();
    for _ in 0..2 {
        assert_eq!(server.get("/fault"), "");
        assert!(server.get("/a").ends_with("GET /a "));
    }
}
