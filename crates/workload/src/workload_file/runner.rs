//! The environment of a workload: a separate folder, an unprivileged account, and full cleanup.
//!
//! As root, every command runs in separate PID, mount and IPC namespaces. When the command or this process ends for any reason, all its
//! processes end and all its mounts disappear. `/tmp` and `/dev/shm` belong to the stage and are removed with it. Commands run as `nobody`
//! unless the file requires root. Without root, commands end with this process. Their leftover processes are found by a mark in the
//! environment and ended.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io::{self, BufRead, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hugeleaf_host::demand::user_account::PasswdEntry;
use hugeleaf_host::{ResolvedTarget, Root, Target};
use hugeleaf_sys::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::needs::search_path;
use super::output_metrics::LoadOutput;
use super::resource_usage::UsageCounters;
use super::spec::{Script, WorkloadSpec};
use crate::child::{nobody, wait};

pub type Variables = [(String, String)];

/// Interval between checks of a running command and of the stop flag.
const LOOK: Duration = Duration::from_millis(200);

/// Maximum size of the retained end of a command's output, in bytes.
const KEPT: usize = 8 << 20;

/// Deadline for a server's regular shutdown.
const PATIENCE: Duration = Duration::from_secs(60);

/// Deadline for an early end, short enough that a load and its server both end within the time limit of a signal.
const EARLY_END_LIMIT: Duration = Duration::from_secs(2);

/// Exit status of a command that this host does not support, as in test programs.
const LACKING: i32 = 77;

/// Returns true for environment variables that are kept: those that configure access to package registries.
fn is_kept(name: &OsStr) -> bool {
    const ENDS: [&str; 2] = ["_proxy", "_PROXY"];
    const BEGINS: [&str; 5] = [
        "PIP_",
        "npm_config_",
        "SSL_CERT_",
        "NODE_EXTRA_CA_CERTS",
        "REQUESTS_CA_BUNDLE",
    ];
    let name = name.to_string_lossy();
    BEGINS.iter().any(|begin| name.starts_with(begin)) || ENDS.iter().any(|end| name.ends_with(end))
}

const FOLDER: &str = "hugeleaf-lab-";

/// Environment variable that marks all processes of a stage.
const MARK: &str = "HUGELEAF_WORKLOAD";

#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{what} ended with {status}: {said}")]
    Failed {
        what: &'static str,
        status: String,
        said: String,
    },
    #[error("{said}")]
    Lacking { said: String },
    #[error("{what} took longer than its limit of {} s: {said}", limit.as_secs())]
    TooLong {
        what: &'static str,
        limit: Duration,
        said: String,
    },
    #[error("stopped on request")]
    Stopped,
}

/// Observer of a running load; receives the root process of the load or of its server.
pub type LoadObserver<'a> = &'a mut dyn FnMut(u32);

/// A folder with a workload's data, removed when dropped.
#[derive(Debug)]
pub struct Runner<'a> {
    described: &'a WorkloadSpec,
    folder: PathBuf,
    account: Option<PasswdEntry>,
    is_isolated: bool,
    own: Option<PrivateMounts>,
    mark: String,
    stop: &'a AtomicBool,
    /// Held for the life of this process, so that the folder of a killed process can be recognised.
    _lock: OwnedFd,
}

#[derive(Debug)]
pub struct RunningServer {
    started: StartedCommand,
}

#[derive(Debug)]
struct StartedCommand {
    what: &'static str,
    child: Child,
    printed: Arc<Mutex<OutputTail>>,
    is_isolated: bool,
}

#[derive(Debug, Default)]
struct OutputTail {
    bytes: Vec<u8>,
    is_ended: bool,
}

impl<'a> Runner<'a> {
    pub fn new(
        described: &'a WorkloadSpec,
        below: &Path,
        stop: &'a AtomicBool,
    ) -> Result<Runner<'a>, RunnerError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let account = match described.needs.root {
            true => None,
            false => nobody().map_err(io_of("/etc/passwd"))?,
        };
        remove_abandoned(below);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{}-{number}", described.name, std::process::id());
        let folder = below.join(format!("{FOLDER}{mark}"));
        let mut builder = fs::DirBuilder::new();
        let shown = folder.display().to_string();
        builder.mode(0o755).create(&folder).map_err(io_of(&shown))?;
        let lock = locked(&folder).map_err(|errno| io_of(&shown)(errno.into()))?;
        // From here on, dropping the stage removes the folder.
        let mut stage = Runner {
            described,
            folder,
            account,
            is_isolated: rustix::process::geteuid().is_root() && can_isolate(),
            own: None,
            mark,
            stop,
            _lock: lock,
        };
        stage.create_folders().map_err(io_of(&shown))?;
        if stage.is_isolated {
            stage.own = PrivateMounts::mounted(&stage.folder).ok();
        }
        Ok(stage)
    }

    pub fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// Returns a warning about files that commands may leave behind, if this host does not allow private folders.
    pub fn shared_folders_warning(&self) -> Option<&'static str> {
        match &self.own {
            Some(own) if own.has_tmp => None,
            Some(_) => Some(
                "Commands shared /tmp with the host, whose kernel has no overlay file system: their files there remain.",
            ),
            None => Some(
                "Commands shared /tmp and /dev/shm with the host; private ones require root and mount namespaces. Their files there remain.",
            ),
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a new folder, which goes at the end"
    )]
    fn create_folders(&self) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o755).create(self.work())?;
        builder.create(self.files())?;
        builder.create(self.folder.join(OVERLAY_DIR))?;
        for (name, text) in &self.described.files {
            let file = self.files().join(name);
            fs::write(&file, text)?;
            fs::set_permissions(&file, Permissions::from_mode(0o755))?;
        }
        match &self.account {
            Some(PasswdEntry { uid, gid, .. }) => chown(self.work(), Some(*uid), Some(*gid)),
            None => Ok(()),
        }
    }

    /// Runs a command behind `start_with` to its end and calls `watch` meanwhile.
    pub fn run(
        &self,
        (what, script): (&'static str, &Script),
        (variables, start_with): (&Variables, &[OsString]),
        server: Option<&RunningServer>,
        watch: LoadObserver<'_>,
    ) -> Result<LoadOutput, RunnerError> {
        let root = Root::live();
        let server = server.and_then(RunningServer::pid);
        let before = UsageCounters::now(&root, server);
        let began = Instant::now();
        let mut started = self.started(what, &script.run, variables, start_with)?;
        let status = loop {
            if started.has_ended(LOOK) {
                break started.status()?;
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(RunnerError::Stopped);
            }
            if began.elapsed() > script.limit {
                return Err(RunnerError::TooLong {
                    what,
                    limit: script.limit,
                    said: started.output_tail(),
                });
            }
            if let Some(pid) = server.or_else(|| started.inner()) {
                watch(pid);
            }
        };
        let seconds = began.elapsed().as_secs_f64();
        let counted = UsageCounters::now(&root, server).since(&before);
        if status.code() == Some(LACKING) {
            return Err(RunnerError::Lacking {
                said: started.output_tail(),
            });
        }
        if !status.success() {
            return Err(RunnerError::Failed {
                what,
                status: status.to_string(),
                said: started.output_tail(),
            });
        }
        Ok(LoadOutput {
            printed: started.printed(),
            seconds,
            counted,
        })
    }

    /// Starts the server behind `start_with` and waits until it answers.
    pub fn start(
        &self,
        variables: &Variables,
        start_with: &[OsString],
    ) -> Result<Option<RunningServer>, RunnerError> {
        let Some(server) = &self.described.server else {
            return Ok(None);
        };
        let began = Instant::now();
        let mut started = self.started("server", &server.run, variables, start_with)?;
        let ready = Script {
            run: server.ready.clone(),
            limit: Duration::from_secs(10),
        };
        loop {
            if started.has_ended(Duration::from_millis(50)) {
                return Err(RunnerError::Failed {
                    what: "server",
                    status: started.status()?.to_string(),
                    said: started.output_tail(),
                });
            }
            match self.run(("ready", &ready), (variables, &[]), None, &mut |_| {}) {
                Ok(_) => break,
                Err(RunnerError::Stopped) => return Err(RunnerError::Stopped),
                Err(_) if began.elapsed() < server.limit => {}
                Err(error) => {
                    let said = format!("{error}; the server printed: {}", started.output_tail());
                    return Err(RunnerError::TooLong {
                        what: "server",
                        limit: server.limit,
                        said,
                    });
                }
            }
        }
        Ok(Some(RunningServer { started }))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "ended by its limit, in `Started`"
    )]
    fn started(
        &self,
        what: &'static str,
        script: &str,
        variables: &Variables,
        start_with: &[OsString],
    ) -> Result<StartedCommand, RunnerError> {
        let (reader, writer) = io::pipe().map_err(io_of("a pipe"))?;
        let mut command = self.command(script, variables, start_with);
        let other = writer.try_clone().map_err(io_of("a pipe"))?;
        command.stdin(Stdio::null()).stdout(writer).stderr(other);
        let child = command.spawn().map_err(io_of("setpriv"))?;
        // Closes this process's writing ends, so that only the child holds them.
        drop(command);
        let printed = Arc::new(Mutex::new(OutputTail::default()));
        let tail = Arc::clone(&printed);
        std::thread::spawn(move || keep_end(reader, &tail));
        Ok(StartedCommand {
            what,
            child,
            printed,
            is_isolated: self.is_isolated,
        })
    }

    /// Returns a shell command that runs as the stage's account and ends with this process.
    fn command(&self, script: &str, variables: &Variables, start_with: &[OsString]) -> Command {
        let mut words: Vec<OsString> = ["setpriv", "--pdeathsig", "KILL"].map(Into::into).into();
        if let Some(own) = &self.own {
            let pid = own.holder.id();
            words.extend(
                ["nsenter", "--target", &pid.to_string(), "--mount", "--root"].map(Into::into),
            );
            // A process that enters a mount namespace starts at the root folder.
            words.extend(["--", "sh", "-c", "cd \"$0\" && exec \"$@\""].map(Into::into));
            words.push(self.work().into());
        }
        if self.is_isolated {
            words.extend(ISOLATED.map(Into::into));
        }
        words.extend_from_slice(start_with);
        if let Some(PasswdEntry { uid, gid, .. }) = &self.account {
            let ids = [format!("--reuid={uid}"), format!("--regid={gid}")];
            words.push("setpriv".into());
            words.extend(ids.map(Into::into));
            // A change of account clears the parent-death signal (prctl(2)), so it is set again.
            words.extend(["--clear-groups", "--pdeathsig", "KILL"].map(Into::into));
        }
        words.extend(["sh", "-eu", "-c", script].map(Into::into));
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| is_kept(name)))
            .env("PATH", search_path())
            .env("LC_ALL", "C")
            .env("HOME", self.work())
            .env("TMPDIR", self.work())
            .env("work", self.work())
            .env("files", self.files())
            .env(MARK, &self.mark)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.work());
        // Ctrl-C at the terminal is for this process only.
        command.process_group(0);
        command
    }

    /// Ends leftover processes of this stage. With namespaces there are none.
    fn sweep(&self) {
        if self.is_isolated {
            return;
        }
        let mark = format!("{MARK}={}\0", self.mark);
        let root = Root::live();
        for name in root.list("proc").or_default() {
            let pid = name.parse().ok().and_then(rustix::process::Pid::from_raw);
            // The handle comes first, so that the environment read next belongs to the same process.
            let Some(handle) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
                continue;
            };
            let environment = root.read_bytes(format!("proc/{name}/environ"));
            let is_ours = environment.is_ok_and(|environment| {
                let mut windows = environment.windows(mark.len());
                windows.any(|window| window == mark.as_bytes())
            });
            if is_ours {
                let _ = pidfd_send_signal(&handle, Signal::KILL);
            }
        }
    }
}

/// A mount namespace with private `/dev/shm` and `/tmp`. All commands of a stage enter it, so that a server and its load share them. It
/// ends with its holder and the processes in it.
#[derive(Debug)]
struct PrivateMounts {
    holder: Child,
    has_tmp: bool,
}

/// The stage's folder that receives files written to `/tmp`, as the holder sees it.
const OVERLAY_DIR: &str = "over";

/// Script that mounts both and stays until its input ends. `/tmp` is an overlay over the host's, whose files stay visible because a
/// workload may name a program there. A stage folder inside `/tmp` is mounted again.
const MOUNT_SCRIPT: &str = include_str!("hold.sh");

impl PrivateMounts {
    #[expect(
        clippy::disallowed_methods,
        reason = "no question: it holds the mounts until the stage ends"
    )]
    fn mounted(folder: &Path) -> io::Result<PrivateMounts> {
        let words = [
            "--pdeathsig",
            "KILL",
            "unshare",
            "--mount",
            "--propagation=private",
        ];
        let mut holder = Command::new("setpriv")
            .args(words)
            .args(["sh", "-eu", "-c", MOUNT_SCRIPT, "sh"])
            .arg(folder)
            .env("PATH", search_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let mut said = String::new();
        let read = match holder.stdout.take() {
            Some(out) => io::BufReader::new(out).read_line(&mut said),
            None => Ok(0),
        };
        let own = PrivateMounts {
            holder,
            has_tmp: said == "both\n",
        };
        match read? {
            0 => Err(io::Error::other("no mounts")),
            _ => Ok(own),
        }
    }
}

impl Drop for PrivateMounts {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Opens and locks a folder; fails if another process holds it.
fn locked(folder: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(folder, flags, Mode::empty())?;
    rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive)?;
    Ok(opened)
}

/// Removes stage folders of killed processes. Only folders of the own account are removed, because in a world-writable folder anyone can
/// create one of that name.
fn remove_abandoned(below: &Path) {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(below).into_iter().flatten().flatten() {
        let is_named = entry.file_name().to_string_lossy().starts_with(FOLDER);
        let is_own = || entry.metadata().is_ok_and(|m| m.is_dir() && m.uid() == own);
        if is_named
            && is_own()
            && let Ok(_lock) = locked(&entry.path())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        self.sweep();
        // The mounts are below the folder, so they must end first.
        self.own = None;
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Command that creates a PID namespace with its own `/proc`; all its processes end with the first. Mounts and System V segments are
/// private too, because a killed PostgreSQL leaves a segment.
const ISOLATED: [&str; 8] = [
    "unshare",
    "--ipc",
    "--pid",
    "--fork",
    "--kill-child=KILL",
    "--mount-proc",
    "--propagation=private",
    "--",
];

/// Returns true if this host allows namespaces; a container may not.
#[expect(clippy::disallowed_methods, reason = "`unshare … true` ends at once")]
fn can_isolate() -> bool {
    let mut command = Command::new(ISOLATED[0]);
    let quiet = || Stdio::null();
    command.args(&ISOLATED[1..]).arg("true");
    let status = command
        .stdin(quiet())
        .stdout(quiet())
        .stderr(quiet())
        .status();
    status.is_ok_and(|status| status.success())
}

impl RunningServer {
    pub fn pid(&self) -> Option<u32> {
        self.started.inner()
    }

    /// Ends the server: first by a regular shutdown, then by a kill.
    ///
    /// # Errors
    /// The server had already ended, so it crashed.
    pub fn stop(mut self) -> Result<(), RunnerError> {
        if self.started.has_ended(Duration::ZERO) {
            return Err(RunnerError::Failed {
                what: "server",
                status: self.started.status()?.to_string(),
                said: self.started.output_tail(),
            });
        }
        self.started.inner().into_iter().for_each(terminate);
        wait(&mut self.started.child, PATIENCE);
        Ok(())
    }
}

impl StartedCommand {
    /// Returns the process that the shell became. With namespaces it is a child of the started process.
    fn inner(&self) -> Option<u32> {
        let pid = self.child.id();
        if !self.is_isolated {
            return Some(pid);
        }
        let children = Root::live().read(format!("proc/{pid}/task/{pid}/children"));
        let children = children.known()?;
        children.split_whitespace().next()?.parse().ok()
    }

    /// Sends SIGTERM to the whole tree, because a shell as first process of a PID namespace ignores it.
    fn ask_all_to_end(&self) {
        let tree = self
            .inner()
            .map(|pid| Target::Tree(Pid(pid)).resolve(&Root::live()));
        let all = tree
            .and_then(Result::ok)
            .map_or_else(Vec::new, ResolvedTarget::all);
        all.into_iter().for_each(|pid| terminate(pid.0));
    }

    fn has_ended(&self, time: Duration) -> bool {
        let Ok(handle) = pidfd_open(
            rustix::process::Pid::from_child(&self.child),
            PidfdFlags::empty(),
        ) else {
            return true;
        };
        let time = Timespec::try_from(time).ok();
        let mut fds = [PollFd::new(&handle, PollFlags::IN)];
        matches!(poll(&mut fds, time.as_ref()), Ok(1))
    }

    fn status(&mut self) -> Result<ExitStatus, RunnerError> {
        self.child.wait().map_err(io_of(self.what))
    }

    /// Returns the complete output.
    #[expect(
        clippy::disallowed_methods,
        reason = "between two looks at a child, within the deadline"
    )]
    fn printed(&self) -> String {
        let began = Instant::now();
        loop {
            let tail = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
            // A leftover process may hold the pipe open.
            if tail.is_ended || began.elapsed() > Duration::from_secs(1) {
                return String::from_utf8_lossy(&tail.bytes).into_owned();
            }
            drop(tail);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn output_tail(&self) -> String {
        const LINES: usize = 3;
        let printed = self.printed();
        let lines = printed.lines().rev().filter(|line| !line.trim().is_empty());
        let mut last: Vec<&str> = lines.take(LINES).collect();
        last.reverse();
        match last.is_empty() {
            true => "no output".to_owned(),
            false => last.join(" / "),
        }
    }
}

impl Drop for StartedCommand {
    /// Ends a running command: asks the process tree first, then kills it.
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.ask_all_to_end();
            if wait(&mut self.child, EARLY_END_LIMIT).is_some() {
                return;
            }
            let group = rustix::process::Pid::from_child(&self.child);
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn terminate(pid: u32) {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let Some(handle) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) {
        let _ = pidfd_send_signal(&handle, Signal::TERM);
    }
}

fn keep_end(mut reader: PipeReader, tail: &Mutex<OutputTail>) {
    let mut part = vec![0; 64 << 10];
    loop {
        let read = reader.read(&mut part);
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(0) => break tail.is_ended = true,
            Ok(n) => {
                tail.bytes.extend_from_slice(&part[..n]);
                let much = tail.bytes.len().saturating_sub(KEPT);
                if much > KEPT / 2 {
                    tail.bytes.drain(..much);
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break tail.is_ended = true,
        }
    }
}

fn io_of(what: &str) -> impl Fn(io::Error) -> RunnerError {
    move |source| RunnerError::Io {
        what: what.to_owned(),
        source,
    }
}
