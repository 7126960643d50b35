//! Watches a program for `run --report FILE`.
//!
//! A thread of the launcher scans the process tree, first after 10 ms, then less and less often, down to once
//! a second. A process is read in full only if it holds more memory than ever before. The library in a
//! process announces its exit, and waits for a last scan.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hugeleaf_host::process::parse_run_settings;
use hugeleaf_host::{Host, Root, all_pids};
use hugeleaf_sys::Pid;
use hugeleaf_units::Failure;
use tempfile::{Builder, TempDir};

use crate::WatchReport;
use crate::process_peaks::WatchedTree;

/// Delay of the first scan, and the longest pause between two.
const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct PreparedWatch {
    folder: TempDir,
    socket: PathBuf,
    listener: UnixListener,
    host: Host,
    before: BTreeSet<Pid>,
}

#[derive(Debug)]
pub struct Watch {
    thread: JoinHandle<WatchReport>,
    events: Sender<WatchMessage>,
    started: Instant,
    _folder: TempDir,
}

#[derive(Debug)]
enum WatchMessage {
    /// A process is about to exit, and waits for the answer.
    Ends(Pid, UnixStream),
    Over,
}

fn no_socket(path: &Path, error: &std::io::Error) -> Failure {
    Failure::missing(
        format!("run: --report: {}: {error}", path.display()),
        "set TMPDIR to a folder that this user may write to and whose name is short",
    )
}

/// Creates a folder in the temporary folder that only this user can enter. It is removed with its content on
/// drop. Its path contains no `;`, which separates settings.
fn private_folder() -> Result<TempDir, Failure> {
    let above = std::env::temp_dir();
    let below = |path: &Path| path.to_str().is_some_and(|p| !p.contains(';'));
    let above = Some(above).filter(|above| below(above));
    let above = above.unwrap_or_else(|| PathBuf::from("/tmp"));
    let mut folder = Builder::new();
    folder
        .prefix("hugeleaf-run-")
        .permissions(Permissions::from_mode(0o700));
    folder
        .tempdir_in(&above)
        .map_err(|error| no_socket(&above, &error))
}

impl PreparedWatch {
    /// Creates the socket and folder that must exist before the program starts.
    pub fn new(root: &Root, host: Host) -> Result<PreparedWatch, Failure> {
        let folder = private_folder()?;
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).map_err(|error| no_socket(&socket, &error))?;
        Ok(PreparedWatch {
            folder,
            socket,
            listener,
            host,
            before: all_pids(root).into_iter().collect(),
        })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Begins to scan the process tree of `pid`. With `finds_sqlite`, the files with code that it maps are searched for
    /// copies of SQLite with hidden functions when it has ended.
    pub fn begin(self, pid: Pid, settings: &str, finds_sqlite: bool) -> Watch {
        let (events, queue) = channel();
        let to_thread = events.clone();
        let listener = self.listener;
        std::thread::spawn(move || listen(&listener, &to_thread));
        // The launcher wrote these settings, so they always parse.
        let settings = parse_run_settings(settings).unwrap_or_default();
        let socket = self.socket.display().to_string();
        let tree = WatchedTree::new(pid, self.before, settings, socket, self.host, finds_sqlite);
        let thread = std::thread::spawn(move || watch(tree, &queue));
        Watch {
            thread,
            events,
            started: Instant::now(),
            _folder: self.folder,
        }
    }
}

/// Forwards the messages of exiting processes. Ends with this program.
fn listen(listener: &UnixListener, events: &Sender<WatchMessage>) {
    for stream in listener.incoming().flatten() {
        // A client that connects and sends nothing must not delay the others.
        let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
        let mut line = String::new();
        let is_read = BufReader::new((&stream).take(32))
            .read_line(&mut line)
            .is_ok();
        let said = line.trim_end().strip_prefix("exit ");
        let said = said.filter(|_| is_read).and_then(|pid| pid.parse().ok());
        // In a PID namespace of its own, a process knows itself by another id than the launcher does.
        if let Some(said) = said
            && let pid = hugeleaf_sys::peer_pid(&stream).unwrap_or(Pid(said))
            && events.send(WatchMessage::Ends(pid, stream)).is_err()
        {
            return;
        }
    }
}

fn watch(mut tree: WatchedTree, events: &Receiver<WatchMessage>) -> WatchReport {
    let mut pause = FIRST;
    let mut next = Instant::now() + pause;
    loop {
        match events.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(WatchMessage::Ends(pid, mut stream)) => {
                tree.ends(pid);
                // The write may fail: the process may have waited long enough and be gone.
                let _ = stream.write_all(b"\n");
            }
            Err(RecvTimeoutError::Timeout) => {
                tree.survey();
                pause = (pause * 2).min(LONGEST);
                next = Instant::now() + pause;
            }
            Ok(WatchMessage::Over) | Err(RecvTimeoutError::Disconnected) => {
                tree.survey();
                return tree.found();
            }
        }
    }
}

impl Watch {
    pub fn finish(self) -> Result<(f64, WatchReport), Failure> {
        let seconds = self.started.elapsed().as_secs_f64();
        let _ = self.events.send(WatchMessage::Over);
        let found = self.thread.join().map_err(|_| {
            Failure::missing(
                "run: --report: scanning the process tree failed",
                "hugeleaf mem PID    # while it runs",
            )
        })?;
        Ok((seconds, found))
    }
}
