//! Prepares the host as a hostile user would: processes with odd names, servers with trap files, folders of links. A watcher measures the
//! run time and memory of hugeleaf.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hugeleaf_testkit::host_lock::{self, SharedHost};

use crate::common::{NOBODY, children_of, is_root, not_run};

/// Seconds after which a waiting command is killed.
const SECONDS: &str = "30";

/// Maximum waiting time of a command in milliseconds, for other processes and for a CPU. The deadline for silent processes is four seconds
/// in all; a command without a deadline is killed.
const MOST_WAITING: u64 = 15_000;

/// Maximum memory of hugeleaf in KiB, independent of other users' processes.
const MOST_KIB: u64 = 200 << 10;

/// The user's folder, a folder that only root can read, and all started processes.
pub struct Kit {
    folder: tempfile::TempDir,
    actors: Vec<Child>,
    _host: SharedHost,
}

/// Result of a watched command.
#[derive(Debug)]
pub struct Seen {
    pub status: i32,
    pub out: Vec<u8>,
    pub err: Vec<u8>,
}

impl Kit {
    /// Creates a kit without processes; prints the reason and returns `None` if unsupported.
    pub fn new(test: &str) -> Option<Kit> {
        if !is_root() {
            not_run(test, "needs root, which is what a hostile user is after");
            return None;
        }
        // A command that scans all processes would wait for those of another kit.
        if !hugeleaf_testkit::apart_from_processes(&format!("hostile::{test}")) {
            return None;
        }
        let host = host_lock::shared();
        let folder = tempfile::Builder::new()
            .prefix("hugeleaf-hostile-")
            .permissions(std::fs::Permissions::from_mode(0o755))
            .tempdir()
            .unwrap();
        let kit = Kit {
            folder,
            actors: Vec::new(),
            _host: host,
        };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile/actor.c");
        let compiled = Command::new("cc")
            .args(["-O1", "-o"])
            .args([&kit.program(), &source])
            .status();
        if !compiled.is_ok_and(|status| status.success()) {
            not_run(test, "needs a C compiler");
            return None;
        }
        std::fs::create_dir(kit.theirs("")).unwrap();
        chown(kit.theirs(""), Some(NOBODY), Some(NOBODY)).unwrap();
        std::fs::create_dir(kit.roots("")).unwrap();
        std::fs::set_permissions(kit.roots(""), std::fs::Permissions::from_mode(0o700)).unwrap();
        std::fs::write(kit.secret(), "0 7fffffffffff stolen-secret\n").unwrap();
        std::fs::set_permissions(kit.secret(), std::fs::Permissions::from_mode(0o600)).unwrap();
        Some(kit)
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("actor")
    }

    /// Returns a path below the user's folder.
    pub fn theirs(&self, name: &str) -> PathBuf {
        self.folder.path().join("theirs").join(name)
    }

    /// Returns a path below the folder that only root can read.
    pub fn roots(&self, name: &str) -> PathBuf {
        self.folder.path().join("roots").join(name)
    }

    /// Returns a file that only root may read or write.
    pub fn secret(&self) -> PathBuf {
        self.roots("secret")
    }

    /// Creates a folder owned by the user.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.theirs(name);
        std::fs::create_dir_all(&path).unwrap();
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        path
    }

    /// Creates a file owned by the user.
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.theirs(name);
        std::fs::write(&path, text).unwrap();
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        path
    }

    /// Creates a link owned by the user.
    pub fn link(&self, to: &Path, name: &str) -> PathBuf {
        let path = self.theirs(name);
        symlink(to, &path).unwrap();
        std::os::unix::fs::lchown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        path
    }

    /// Creates a FIFO owned by the user, without a writer.
    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.theirs(name);
        let made = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        path
    }

    /// Starts a process of the user in one of the user's folders, with this name and role.
    pub fn start(&mut self, name: &str, what: &str, more: &str, arguments: &[&str], cwd: &Path) {
        let program = self.theirs(name);
        if !program.exists() {
            std::fs::copy(self.program(), &program).unwrap();
            chown(&program, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut child = Command::new(&program)
            .args(arguments)
            .env("HOSTILE", what)
            .env("HOSTILE_MORE", more)
            .current_dir(cwd)
            .uid(NOBODY)
            .gid(NOBODY)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Reads only the word, because children hold the pipe too.
        let mut word = [0; 6];
        let mut out = child.stdout.take().unwrap();
        self.actors.push(child);
        let _ = out.read_exact(&mut word);
        assert_eq!(&word, b"ready\n", "{name} {what}");
    }

    /// Returns the last started process.
    pub fn last(&self) -> u32 {
        self.actors.last().unwrap().id()
    }

    /// Runs a command as root in the user's folder, to its end or its time limit. A killed command or one with too much memory fails the
    /// test.
    #[track_caller]
    pub fn run(&self, program: &str, arguments: &[&str]) -> Seen {
        let report = self.roots("watched");
        let out = Command::new(self.program())
            .args(["watch", SECONDS])
            .arg(&report)
            .arg(program)
            .args(arguments)
            .env("LC_ALL", "C")
            .current_dir(self.theirs(""))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = std::fs::read_to_string(&report).unwrap();
        std::fs::remove_file(&report).unwrap();
        let numbers: Vec<&str> = text.split_whitespace().collect();
        let [status, most, waited] = numbers[..] else {
            panic!("{text}");
        };
        let said = String::from_utf8_lossy(&out.stderr);
        assert_ne!(status, "-1", "{arguments:?} hangs, or was killed: {said}");
        let (most, waited): (u64, u64) = (most.parse().unwrap(), waited.parse().unwrap());
        println!("{most} KiB, waited {waited} ms: {arguments:?}");
        assert!(
            waited < MOST_WAITING,
            "{arguments:?} waited {waited} ms: {said}"
        );
        assert!(most < MOST_KIB, "{arguments:?} had {most} KiB");
        Seen {
            status: status.parse().unwrap(),
            out: out.stdout,
            err: out.stderr,
        }
    }

    /// Runs hugeleaf as root. It must end in time and print neither terminal control characters nor contents of the file that only root may
    /// read.
    #[track_caller]
    pub fn hugeleaf(&self, arguments: &[&str]) -> Seen {
        let seen = self.run(env!("CARGO_BIN_EXE_hugeleaf"), arguments);
        for bytes in [&seen.out, &seen.err] {
            assert_plain(bytes, arguments);
        }
        let status = seen.status;
        // Status 125 of `run` means that nothing was started (env(1)).
        let refused = arguments.first() == Some(&"run") && status == 125;
        assert!(
            refused || (0..=3).contains(&status),
            "{arguments:?}: {status}"
        );
        seen
    }

    /// Returns the users as which the user's servers were started for queries.
    pub fn asked(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.theirs("")).unwrap();
        let notes = names.map(|entry| entry.unwrap().path());
        let notes = notes.filter(|path| path.extension().is_some_and(|e| e == "asked"));
        let texts = notes.map(|path| std::fs::read_to_string(path).unwrap());
        texts
            .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }

    /// Returns the contents of both folders, except files that the user's own programs write.
    pub fn inventory(&self) -> Inventory {
        let mut all = Inventory::new();
        let mut open = vec![self.theirs(""), self.roots("")];
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|e| e == "asked") {
                    continue;
                }
                let meta = std::fs::symlink_metadata(&path).unwrap();
                if meta.is_dir() {
                    open.push(path.clone());
                }
                let facts = (meta.mode(), meta.uid(), meta.len(), meta.mtime_nsec());
                all.insert(path, facts);
            }
        }
        // Ignores folders, whose times change with the notes in them.
        all.retain(|_, facts| facts.0 & 0o170_000 != 0o040_000);
        all
    }
}

/// Path; mode, owner, length and modification time.
pub type Inventory = BTreeMap<PathBuf, (u32, u32, u64, i64)>;

/// Fails and lists the differences.
#[track_caller]
pub fn assert_untouched(before: &Inventory, after: &Inventory) {
    let paths = before.keys().chain(after.keys());
    let differ: Vec<&PathBuf> = paths.filter(|p| before.get(*p) != after.get(*p)).collect();
    assert!(differ.is_empty(), "written: {differ:?}");
}

/// Fails on terminal control characters; tabs and line breaks are allowed.
#[track_caller]
fn assert_plain(bytes: &[u8], arguments: &[&str]) {
    let text = std::str::from_utf8(bytes)
        .unwrap_or_else(|e| panic!("{arguments:?} printed bytes that are no text: {e}"));
    for line in text.lines() {
        let odd = |c: char| (c.is_control() && c != '\t') || c == '\u{202e}';
        assert!(!line.contains(odd), "{arguments:?} printed {line:?}");
        let leak = line.contains("stolen-secret");
        assert!(!leak, "{arguments:?} printed root's own: {line}");
    }
}

impl Drop for Kit {
    fn drop(&mut self) {
        for child in &mut self.actors {
            let id = child.id();
            let mut maps = vec![id];
            maps.extend(children_of(id));
            // Each is the leader of a process group with its children.
            let _ = Command::new("kill")
                .args(["-KILL", "--", &format!("-{id}")])
                .stderr(Stdio::null())
                .status();
            let _ = child.kill();
            let _ = child.wait();
            for pid in maps {
                let _ = std::fs::remove_file(format!("/tmp/perf-{pid}.map"));
            }
        }
    }
}
