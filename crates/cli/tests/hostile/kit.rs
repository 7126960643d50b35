//! What a hostile user prepares: processes of odd names, servers whose files are traps, folders of
//! links; and a watcher that says how long hugeleaf took among them and how much memory it had.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hugeleaf_testkit::host::{self, Shared};

use crate::common::{NOBODY, children_of, is_root, not_run};

/// A command that waits for somebody is killed after this.
const SECONDS: &str = "30";

/// Milliseconds that a command may wait: for others, and for a processor. Those of others that never answer are waited
/// for four seconds in all; whoever waits for them without an end is killed.
const MOST_WAITING: u64 = 15_000;

/// What hugeleaf may hold, in KiB, whatever the processes of others are like.
const MOST_KIB: u64 = 200 << 10;

/// The user's own folder, a folder that only root sees, and all that was started.
pub struct Kit {
    folder: tempfile::TempDir,
    actors: Vec<Child>,
    _host: Shared,
}

/// What a watched command came to.
#[derive(Debug)]
pub struct Seen {
    pub status: i32,
    pub out: Vec<u8>,
    pub err: Vec<u8>,
}

impl Kit {
    /// A kit without processes; `None` where it cannot be, which is said.
    pub fn new(test: &str) -> Option<Kit> {
        if !is_root() {
            not_run(test, "needs root, which is what a hostile user is after");
            return None;
        }
        // A command that looks at all processes would wait for those of another kit.
        if !hugeleaf_testkit::apart_from_processes(&format!("hostile::{test}")) {
            return None;
        }
        let host = host::shared();
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

    /// A path below the user's folder.
    pub fn theirs(&self, name: &str) -> PathBuf {
        self.folder.path().join("theirs").join(name)
    }

    /// A path below the folder that only root may look into.
    pub fn roots(&self, name: &str) -> PathBuf {
        self.folder.path().join("roots").join(name)
    }

    /// A file that only root may read or write.
    pub fn secret(&self) -> PathBuf {
        self.roots("secret")
    }

    /// Makes a folder of the user's.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.theirs(name);
        std::fs::create_dir_all(&path).unwrap();
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        path
    }

    /// Makes a file of the user's.
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.theirs(name);
        std::fs::write(&path, text).unwrap();
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        path
    }

    /// Makes a link of the user's.
    pub fn link(&self, to: &Path, name: &str) -> PathBuf {
        let path = self.theirs(name);
        symlink(to, &path).unwrap();
        std::os::unix::fs::lchown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        path
    }

    /// Makes a pipe of the user's that nobody writes to.
    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.theirs(name);
        let made = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        path
    }

    /// Starts a process of the user's in a folder of his: under this name, doing `what`.
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
        // To the end of the word only: its children have the pipe as well.
        let mut word = [0; 6];
        let mut out = child.stdout.take().unwrap();
        self.actors.push(child);
        let _ = out.read_exact(&mut word);
        assert_eq!(&word, b"ready\n", "{name} {what}");
    }

    /// The process that was started last.
    pub fn last(&self) -> u32 {
        self.actors.last().unwrap().id()
    }

    /// Runs a command as root in the user's folder, to its end or that of its time. A command that
    /// had to be killed, or had too much memory, fails the test.
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

    /// hugeleaf as root, which must end by itself, and print nothing that a terminal obeys and
    /// nothing of the file that only root may read.
    #[track_caller]
    pub fn hugeleaf(&self, arguments: &[&str]) -> Seen {
        let seen = self.run(env!("CARGO_BIN_EXE_hugeleaf"), arguments);
        for bytes in [&seen.out, &seen.err] {
            assert_plain(bytes, arguments);
        }
        let status = seen.status;
        // `run` says by a status of its own that nothing was started (env(1)).
        let refused = arguments.first() == Some(&"run") && status == 125;
        assert!(
            refused || (0..=3).contains(&status),
            "{arguments:?}: {status}"
        );
        seen
    }

    /// Whom servers of the user's were started as, when they were asked about their settings.
    pub fn asked(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.theirs("")).unwrap();
        let notes = names.map(|entry| entry.unwrap().path());
        let notes = notes.filter(|path| path.extension().is_some_and(|e| e == "asked"));
        let texts = notes.map(|path| std::fs::read_to_string(path).unwrap());
        texts
            .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }

    /// What there is in both folders, without what the user's own programs write.
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
        // The times of folders are those of the notes in them.
        all.retain(|_, facts| facts.0 & 0o170_000 != 0o040_000);
        all
    }
}

/// Path; mode, owner, length, when it was written.
pub type Inventory = BTreeMap<PathBuf, (u32, u32, u64, i64)>;

/// Fails with what differs.
#[track_caller]
pub fn assert_untouched(before: &Inventory, after: &Inventory) {
    let paths = before.keys().chain(after.keys());
    let differ: Vec<&PathBuf> = paths.filter(|p| before.get(*p) != after.get(*p)).collect();
    assert!(differ.is_empty(), "written: {differ:?}");
}

/// Nothing in it that a terminal obeys: of all control characters only tabs and ends of lines.
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
            // Each is the leader of a group of its own, which has its children.
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
