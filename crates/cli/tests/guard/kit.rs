//! Runs a guard in separate folders, and programs for it to watch.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use hugeleaf_sys::Kernel;
use serde_json::Value;

use crate::common::{ChildGuard, is_root, not_run, wait_until, works};
use hugeleaf_testkit::host_lock::{self, ExclusiveHost, HostAccess};

/// Returns the host with unchanged knobs, if other processes' memory can be promoted here.
pub fn can_run(test: &str) -> Option<HostAccess> {
    can_move(test).then(host_lock::advised)
}

/// Returns the host for tests that change knobs or measure.
pub fn can_change(test: &str) -> Option<ExclusiveHost> {
    can_move(test).then(|| {
        let host = host_lock::exclusive();
        host.choose("enabled", "madvise");
        host
    })
}

fn can_move(test: &str) -> bool {
    let why = match (is_root(), Kernel::new().supports_collapse()) {
        (false, _) => "needs root",
        (_, false) => "needs MADV_COLLAPSE, Linux 6.1",
        _ => return true,
    };
    not_run(test, why);
    false
}

/// Returns rules that promote a program of this name at the first scan and ignore other programs.
pub fn rule(name: &str, more: &str) -> String {
    format!(
        "schema = 1\nevery = '1s'\nlisten = 'off'\ncpu = '50%'\npause_cpu = '1000%'\npause_memory = '100%'\n[default]\naction = 'never'\n[[rule]]\nname = '{name}'\naction = 'promote'\n\
         min_bytes = '32M'\nlooks = 1\nbudget = '100%'\n{more}\n"
    )
}

/// Returns the rules of [`rule`] with the guard's pages at `address`.
pub fn listening(rules: &str, address: &str) -> String {
    rules.replace("listen = 'off'", &format!("listen = '{address}'"))
}

/// Returns an unused port.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Returns the path of promtool, if installed.
pub fn promtool() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join("promtool"))
        .find(|file| file.is_file())
}

/// Private folders of a guard.
pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::Builder::new()
            .prefix("hugeleaf-guard-")
            .permissions(std::fs::Permissions::from_mode(0o755))
            .tempdir()
            .unwrap();
        for folder in ["run", "state", "log"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        Place { dir }
    }

    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.dir.path().join(name), text).unwrap();
        self.path(name)
    }

    /// Returns the program with its files in this place.
    pub fn hugeleaf(&self, args: &[&str]) -> Command {
        self.command(Path::new(crate::common::HUGELEAF), args)
    }

    /// Returns the same command under another name.
    pub fn command(&self, path: &Path, args: &[&str]) -> Command {
        let mut command = crate::common::program(path, args);
        command
            .envs(self.folders())
            .env_remove("NOTIFY_SOCKET")
            .env_remove("JOURNAL_STREAM");
        command
    }

    pub fn folders(&self) -> [(&'static str, String); 3] {
        [
            ("RUNTIME_DIRECTORY", self.path("run")),
            ("STATE_DIRECTORY", self.path("state")),
            ("LOGS_DIRECTORY", self.path("log")),
        ]
    }

    /// Mounts a file system of 64K on one of the folders until dropped.
    pub fn small_disk(&self, folder: &str) -> Option<Mounted> {
        let path = self.path(folder);
        works("mount", &["-t", "tmpfs", "-o", "size=64k", "none", &path]).then_some(Mounted(path))
    }
}

/// A mount that ends with the test.
pub struct Mounted(String);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", &self.0]).status();
    }
}

/// A program that the guard may watch.
pub struct Worker {
    child: ChildGuard,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a worker under a separate name.
    pub fn start(place: &Place, name: &str, counter: &str, ratio: f64) -> Worker {
        let program = PathBuf::from(place.path(name));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guard/worker.c");
        let compiled = Command::new("cc")
            .args(["-O1", "-pthread", "-o"])
            .args([program.as_path(), source.as_path()])
            .status()
            .unwrap();
        assert!(compiled.success());
        let mut child = Command::new(&program)
            .args([counter, &ratio.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut worker = Worker {
            child: ChildGuard(child),
            input,
            output: BufReader::new(output),
        };
        worker.hear();
        worker
    }

    /// Starts a worker without a counter that holds this many MiB.
    pub fn grown(place: &Place, name: &str, mebibytes: u32) -> Worker {
        let mut worker = Worker::start(place, name, "-", 1.0);
        worker.tell(&format!("grow {mebibytes}"));
        worker
    }

    fn hear(&mut self) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "ok\n");
    }

    /// Sends a command and waits until it is done; the worker also verifies its memory contents.
    pub fn tell(&mut self, what: &str) {
        writeln!(self.input, "{what}").unwrap();
        self.input.flush().unwrap();
        self.hear();
    }

    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    fn rollup(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid())).unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
            << 10
    }

    /// Returns its memory on huge pages, in bytes.
    pub fn huge(&self) -> u64 {
        self.rollup("AnonHugePages:")
    }

    pub fn resident(&self) -> u64 {
        self.rollup("Rss:")
    }

    pub fn is_stopped_or_traced(&self) -> bool {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let field = |name: &str| {
            text.lines()
                .find_map(|l| l.strip_prefix(name))
                .unwrap()
                .trim()
                .to_owned()
        };
        field("State:").starts_with(['T', 't']) || field("TracerPid:") != "0"
    }
}

/// A running guard.
pub struct Guarding<'a> {
    place: &'a Place,
    child: ChildGuard,
}

impl<'a> Guarding<'a> {
    /// Starts a guard and waits until it answers.
    pub fn start(place: &'a Place, rules: &str) -> Guarding<'a> {
        Guarding::start_as(Path::new(crate::common::HUGELEAF), place, rules)
    }

    /// Starts hugeleaf under another name in the same way.
    pub fn start_as(program: &Path, place: &'a Place, rules: &str) -> Guarding<'a> {
        let guard = Guarding::spawn(program, place, rules);
        let socket = place.path("run/guard.sock");
        wait_until("the guard answers", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
                && guard.try_status().is_some_and(|s| s["schema"] == 2)
        });
        guard
    }

    /// Wraps a guard started in another way and waits for its first scan.
    pub fn of(place: &'a Place, child: Child) -> Guarding<'a> {
        let guard = Guarding {
            place,
            child: ChildGuard(child),
        };
        wait_until("the guard answers", || {
            guard.try_status().is_some_and(|s| s["cost"]["scans"] != 0)
        });
        guard
    }

    /// Starts a guard without waiting for a socket.
    pub fn start_without_socket(place: &'a Place, rules: &str) -> Guarding<'a> {
        Guarding::spawn(Path::new(crate::common::HUGELEAF), place, rules)
    }

    fn spawn(program: &Path, place: &'a Place, rules: &str) -> Guarding<'a> {
        let config = place.write("guard.toml", rules);
        let child: Child = place
            .command(program, &["guard", "--config", &config])
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Guarding {
            place,
            child: ChildGuard(child),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Returns a command that queries the guard.
    pub fn ask(&self, what: &[&str]) -> Command {
        self.place.hugeleaf(&[&["guard"], what].concat())
    }

    fn try_status(&self) -> Option<Value> {
        let output = self.ask(&["status", "--json"]).output().ok()?;
        serde_json::from_slice(&output.stdout).ok()
    }

    pub fn status(&self) -> Value {
        self.try_status().expect("the guard answers")
    }

    /// Returns a program's entry in a status.
    pub fn program<'s>(&self, status: &'s Value, pid: u32) -> Option<&'s Value> {
        status["programs"]
            .as_array()?
            .iter()
            .find(|p| p["pid"] == pid)
    }

    /// Waits until its status meets a condition.
    #[track_caller]
    pub fn wait_for(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        self.wait(what, hugeleaf_testkit::PATIENCE, holds);
    }

    /// Waits longer, for a proof.
    #[track_caller]
    pub fn wait_long_for(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        self.wait(what, Duration::from_secs(400), holds);
    }

    #[track_caller]
    fn wait(&self, what: &str, time: Duration, holds: impl Fn(&Value) -> bool) {
        let start = Instant::now();
        loop {
            let status = self.try_status();
            if status.as_ref().is_some_and(&holds) {
                return;
            }
            let said = status.map_or_else(|| "no answer".to_owned(), |s| format!("{s:#}"));
            assert!(start.elapsed() < time, "never: {what}; {said}");
            hugeleaf_testkit::pause(Duration::from_millis(100), "each question starts a program");
        }
    }

    /// Returns the entries of its log file.
    pub fn log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.place.path("log/guard.jsonl")).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Returns a page that it serves.
    pub fn page(&self, address: &str, path: &str) -> String {
        let mut stream = None;
        wait_until("it listens", || {
            stream = TcpStream::connect(address).ok();
            stream.is_some()
        });
        let mut stream = stream.unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(works("kill", &["-s", name, &pid]));
    }

    /// Ends the guard with SIGTERM, as a service manager does, and waits.
    pub fn end(mut self) {
        self.signal("TERM");
        let status = self.child.0.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    /// Kills the guard with SIGKILL.
    pub fn kill(mut self) {
        self.child.0.kill().unwrap();
        self.child.0.wait().unwrap();
    }
}
