#![expect(clippy::disallowed_methods, reason = "opens the files of a host")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{BufRead, BufReader, Cursor, Error, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hugeleaf_sys::{
    ConfinedFolder, Errno, Pid, UserCredentials, list_at_most, open_regular, read_at_most,
    with_stall_limit,
};
use hugeleaf_units::Bytes;

use crate::fact::{Fact, ReadError};
use crate::parse_helpers::ParseError;

/// Maximum size of a file that is read whole. Files of the kernel are as large as what they list. Files
/// that a program can make long are read by line, or only their beginning.
const LARGEST: Bytes = Bytes(64 << 20);

/// Maximum number of bytes read from a server's files and from lists of names.
const LARGEST_OF_OTHERS: Bytes = Bytes(8 << 20);

/// Maximum number of names in a folder. Folders of the kernel have a limit of their own, the maximum
/// number of processes (`PID_MAX_LIMIT`).
const MOST_NAMES: usize = 1 << 16;
const MOST_PROCESSES: usize = 1 << 22;

/// The folder below which `/proc`, `/sys` and `/etc` are read: `/` for this host, another for a captured
/// one. It is passed from the command line to every reader.
#[derive(Debug, Clone)]
pub struct Root {
    dir: PathBuf,
    /// Files that fail with this error instead of being read, for tests of error arms.
    faults: Arc<BTreeMap<PathBuf, ErrorKind>>,
    /// The reader's own cgroups that a search has found, or has not found.
    own_cgroups: Arc<Mutex<BTreeMap<String, Option<String>>>>,
}

impl Root {
    pub fn live() -> Root {
        Root::at("/")
    }

    /// Returns the root of a host captured below `dir`.
    pub fn at(dir: impl Into<PathBuf>) -> Root {
        Root {
            dir: dir.into(),
            faults: Arc::default(),
            own_cgroups: Arc::default(),
        }
    }

    /// Returns the same root, on which reading `path` (as in `proc/meminfo`) fails. For tests.
    #[must_use]
    pub fn failing(&self, path: impl Into<PathBuf>, error: ErrorKind) -> Root {
        let mut faults = (*self.faults).clone();
        faults.insert(path.into(), error);
        Root {
            dir: self.dir.clone(),
            faults: Arc::new(faults),
            own_cgroups: Arc::default(),
        }
    }

    /// Returns the result of an earlier search for the reader's own cgroup.
    pub(crate) fn kept_cgroup(&self, key: &str) -> Option<Option<String>> {
        self.own_cgroups().get(key).cloned()
    }

    pub(crate) fn keep_cgroup(&self, key: String, found: Option<String>) {
        self.own_cgroups().insert(key, found);
    }

    fn own_cgroups(&self) -> MutexGuard<'_, BTreeMap<String, Option<String>>> {
        let lock = self.own_cgroups.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    /// True if this is the running host, so that system calls apply to it too.
    pub fn is_live(&self) -> bool {
        self.dir == Path::new("/")
    }

    /// Returns the path of a file of this host, given relative to its root.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.dir.join(relative)
    }

    /// Returns the bytes of a regular file of at most 64M. Never blocks.
    ///
    /// # Errors
    /// Those of open(2) and read(2), as the kernel gave them. Also if it is no regular file, if it is
    /// larger, or if the process whose memory it describes does not answer.
    pub fn read_bytes(&self, relative: impl AsRef<Path>) -> std::io::Result<Vec<u8>> {
        self.with_file(relative.as_ref(), |file| read_at_most(file, LARGEST))
    }

    /// Returns the first `most` bytes of a file, for files that a program can make arbitrarily long.
    pub fn beginning(&self, relative: impl AsRef<Path>, most: Bytes) -> Fact<String> {
        let relative = relative.as_ref();
        let read = self.with_file(relative, move |mut file| {
            let mut bytes = Vec::new();
            file.by_ref().take(most.get()).read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        self.fact(relative, read).map(text_of)
    }

    /// Opens a file of a process for reads at offsets. For files of the kernel on a running host.
    ///
    /// # Errors
    /// As [`Root::read_bytes`].
    pub fn open(&self, relative: impl AsRef<Path>) -> std::io::Result<File> {
        self.with_file(relative.as_ref(), File::try_clone)
    }

    /// Opens a file and calls `act` on it. For files on the memory of a process, and for those that belong neither to the
    /// kernel nor to the system ([`is_of_system`]), this happens in another thread, because such a read may block forever.
    pub(crate) fn with_file<T: Send + 'static>(
        &self,
        relative: &Path,
        act: impl FnOnce(&File) -> std::io::Result<T> + Send + 'static,
    ) -> std::io::Result<T> {
        if let Some(kind) = self.faults.get(relative) {
            return Err(Error::from(*kind));
        }
        let path = self.path(relative);
        if !self.is_live() {
            // A captured host is untrusted, so its links stay inside it.
            return act(&ConfinedFolder::new(&self.dir, None)?.open(relative)?);
        }
        if is_of_memory(relative) {
            let at = path.clone();
            let answer = with_stall_limit(&path, move || act(&File::open(at)?));
            return answer.unwrap_or_else(|| Err(stalled_error()));
        }
        match (is_of_kernel(relative), is_of_system(relative)) {
            (true, _) => act(&File::open(path)?),
            (_, true) => act(&open_regular(&path)?),
            _ => answered(&path, move |path| act(&open_regular(path)?)),
        }
    }

    /// Returns the metadata of a file. Links are followed, and one of `/proc/PID` may lead to a file system that does
    /// not answer.
    ///
    /// # Errors
    /// Those of stat(2). The file system does not answer.
    pub fn metadata(&self, relative: impl AsRef<Path>) -> std::io::Result<Metadata> {
        answered(&self.path(relative), Path::metadata)
    }

    /// Returns the path of a file as the kernel names it: absolute, without links.
    ///
    /// # Errors
    /// Those of realpath(3). A file system on the way does not answer.
    pub fn canonical(&self, relative: impl AsRef<Path>) -> std::io::Result<PathBuf> {
        answered(&self.path(relative), Path::canonicalize)
    }

    /// Returns a file as a fact: absent if it does not exist, unreadable with the reason otherwise.
    /// Replaces bytes that are not UTF-8, because names of processes and files may hold any.
    pub fn read(&self, relative: impl AsRef<Path>) -> Fact<String> {
        self.bytes(relative).map(text_of)
    }

    /// Returns the bytes of a file as a fact.
    pub fn bytes(&self, relative: impl AsRef<Path>) -> Fact<Vec<u8>> {
        let relative = relative.as_ref();
        self.fact(relative, self.read_bytes(relative))
    }

    fn fact<T>(&self, relative: &Path, read: std::io::Result<T>) -> Fact<T> {
        match read {
            Ok(value) => Fact::Known(value),
            Err(e) => self.unread(relative, &e),
        }
    }

    /// Parses a file line by line, without holding the whole file in memory.
    pub fn parse_lines<T: Send + 'static>(
        &self,
        relative: impl AsRef<Path>,
        parser: impl FnOnce(&mut dyn BufRead) -> std::io::Result<Result<T, ParseError>> + Send + 'static,
    ) -> Fact<T> {
        let relative = relative.as_ref();
        let parsed = self.with_file(relative, |file| parser(&mut BufReader::new(file)));
        self.fact(relative, parsed)
            .and_then(|parsed| self.parsed(relative, parsed))
    }

    pub(crate) fn parsed<T>(
        &self,
        relative: impl AsRef<Path>,
        parsed: Result<T, ParseError>,
    ) -> Fact<T> {
        match parsed {
            Ok(value) => Fact::Known(value),
            Err(error) => Fact::Unreadable(ReadError::new(self.path(relative), error)),
        }
    }

    /// Opens files as a process sees them, with its rights and below its root, which may differ.
    ///
    /// # Errors
    /// If its root cannot be opened.
    pub fn files_of_process(
        &self,
        pid: Pid,
        rights: UserCredentials,
    ) -> std::io::Result<UntrustedFiles> {
        let link = |of: &str| std::fs::read_link(self.path(format!("proc/{of}")));
        let top = format!("{pid}/root");
        let is_same = !self.is_live()
            || link("self/ns/mnt").ok() == link(&format!("{pid}/ns/mnt")).ok()
                && link(&top).is_ok_and(|root| root == Path::new("/"));
        let folder = match is_same {
            true => self.dir.clone(),
            false => self.path(format!("proc/{top}")),
        };
        self.theirs(&folder, rights)
    }

    /// Opens files of the host that a user controls, with that user's rights.
    ///
    /// # Errors
    /// If the root cannot be opened.
    pub fn files_of_user(&self, rights: UserCredentials) -> std::io::Result<UntrustedFiles> {
        self.theirs(&self.dir, rights)
    }

    fn theirs(&self, folder: &Path, rights: UserCredentials) -> std::io::Result<UntrustedFiles> {
        let rights = self.is_live().then_some(rights);
        let inside = answered(folder, move |folder| ConfinedFolder::new(folder, rights))?;
        Ok(UntrustedFiles {
            root: self.clone(),
            folder: folder.to_owned(),
            inside: Arc::new(inside),
        })
    }

    pub fn parse<T>(
        &self,
        relative: impl AsRef<Path>,
        parser: impl FnOnce(&str) -> Result<T, ParseError>,
    ) -> Fact<T> {
        let relative = relative.as_ref();
        self.read(relative)
            .and_then(|text| self.parsed(relative, parser(&text)))
    }

    /// Returns the sorted names in a folder. Absent if the folder does not exist.
    pub fn list(&self, relative: impl AsRef<Path>) -> Fact<Vec<String>> {
        let relative = relative.as_ref();
        if let Some(kind) = self.faults.get(relative) {
            return self.unread(relative, &std::io::Error::from(*kind));
        }
        let listed = match (self.is_live(), is_of_kernel(relative)) {
            (true, true) => list_at_most(&self.path(relative), MOST_PROCESSES),
            (true, false) if is_of_system(relative) => {
                list_at_most(&self.path(relative), MOST_NAMES)
            }
            (true, false) => answered(&self.path(relative), |path| list_at_most(path, MOST_NAMES)),
            (false, _) => ConfinedFolder::new(&self.dir, None)
                .and_then(|inside| inside.list(relative, MOST_NAMES)),
        };
        self.fact(relative, listed).map(sorted)
    }

    /// Converts a failed read: the file is absent, or unreadable with the reason.
    fn unread<T>(&self, relative: &Path, e: &std::io::Error) -> Fact<T> {
        match e.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Fact::Absent,
            // Files of a process that exits meanwhile answer ESRCH (proc(5)), so it is absent.
            _ if e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Fact::Absent,
            _ => Fact::Unreadable(ReadError::io(self.path(relative), e)),
        }
    }
}

/// Files that an unprivileged user controls: a server's configuration with its includes, the symbol map of
/// JIT-compiled code. Links stay inside that user's root, the user's rights apply, and sizes are limited
/// ([`hugeleaf_sys::ConfinedFolder`]). No call waits for a file system that does not answer.
#[derive(Debug)]
pub struct UntrustedFiles {
    root: Root,
    /// The path of `inside`. A path alone does not tell the files of two containers apart.
    folder: PathBuf,
    inside: Arc<ConfinedFolder>,
}

impl UntrustedFiles {
    /// Calls `act` on a path in the folder.
    fn ask<T: Send + 'static>(
        &self,
        path: &Path,
        act: impl FnOnce(&ConfinedFolder, &Path) -> std::io::Result<T> + Send + 'static,
    ) -> std::io::Result<T> {
        let relative = relative_to_root(path);
        if let Some(kind) = self.root.faults.get(relative) {
            return Err(Error::from(*kind));
        }
        let (inside, path) = (Arc::clone(&self.inside), path.to_owned());
        answered(&self.folder.join(relative), move |_| act(&inside, &path))
    }

    /// Returns a file, by its absolute path, of at most `most` bytes.
    pub fn read_at_most(&self, path: &Path, most: Bytes) -> Fact<String> {
        let relative = relative_to_root(path);
        let read = self.ask(path, move |inside, path| inside.read(path, most));
        self.root.fact(relative, read).map(text_of)
    }

    /// Returns the first 8M of a regular file, by its absolute path, for reading by line.
    pub fn lines(&self, path: &Path) -> Option<impl BufRead + use<>> {
        let read = self.with_file(path, |file| {
            let mut bytes = Vec::new();
            file.take(LARGEST_OF_OTHERS.get()).read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        read.ok().map(Cursor::new)
    }

    /// Returns a file, by its absolute path, of at most 8M.
    pub fn read(&self, path: &Path) -> Fact<String> {
        self.read_at_most(path, LARGEST_OF_OTHERS)
    }

    /// Calls `act` on a regular file that is too large to be read whole.
    ///
    /// # Errors
    /// Those of [`ConfinedFolder::open`] and of `act`. The file system does not answer.
    pub fn with_file<T: Send + 'static>(
        &self,
        path: &Path,
        act: impl FnOnce(&File) -> std::io::Result<T> + Send + 'static,
    ) -> std::io::Result<T> {
        self.ask(path, move |inside, path| act(&inside.open(path)?))
    }

    /// Returns the sorted names in a folder. More than `most` names are an error.
    pub fn list(&self, path: &Path, most: usize) -> Fact<Vec<String>> {
        let relative = relative_to_root(path);
        let listed = self.ask(path, move |inside, path| inside.list(path, most));
        self.root.fact(relative, listed).map(sorted)
    }

    /// Returns the owner (uid, gid) of a path. `None` if it does not exist.
    pub fn owner(&self, path: &Path) -> Option<(u32, u32)> {
        self.ask(path, ConfinedFolder::owner).ok()
    }
}

/// Calls `act` on a path, in another thread, because its file system may never answer (NFS without its server, FUSE).
///
/// # Errors
/// Those of `act`. [`ErrorKind::TimedOut`] if the file system does not answer.
pub(crate) fn answered<T: Send + 'static>(
    path: &Path,
    act: impl FnOnce(&Path) -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    let at = path.to_owned();
    let answer = with_stall_limit(path, move || act(&at));
    answer.unwrap_or_else(|| {
        Err(Error::new(
            ErrorKind::TimedOut,
            "skipped: the file system does not answer",
        ))
    })
}

/// Returns an absolute path as a [`Root`] takes it.
pub(crate) fn relative_to_root(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// True if the kernel itself makes this file. Such a file is regular and never blocks.
fn is_of_kernel(relative: &Path) -> bool {
    relative.starts_with("proc") || relative.starts_with("sys")
}

/// True for the system's own configuration. Without its file system no program starts, so it is read in this thread: a
/// program that links the library gets no extra one.
fn is_of_system(relative: &Path) -> bool {
    ["etc", "lib", "run", "usr"]
        .iter()
        .any(|top| relative.starts_with(top))
}

/// True if opening or reading this file takes the lock on another process's memory. Reads of `self` never
/// wait for it, so a program that links the library gets no extra thread.
fn is_of_memory(relative: &Path) -> bool {
    let mut parts = relative.iter().filter_map(|part| part.to_str());
    let is_process = parts.next() == Some("proc")
        && parts
            .next()
            .is_some_and(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()));
    is_process
        && matches!(
            parts.next(),
            Some(
                "cmdline"
                    | "environ"
                    | "maps"
                    | "smaps"
                    | "smaps_rollup"
                    | "numa_maps"
                    | "pagemap"
                    | "mem"
            )
        )
}

fn stalled_error() -> Error {
    Error::new(
        ErrorKind::TimedOut,
        "skipped: the process is stuck with the lock on its memory held; its stack file there shows the \
         cause",
    )
}

fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn sorted(names: Vec<OsString>) -> Vec<String> {
    let mut names: Vec<String> = names
        .into_iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::file_of;

    #[test]
    fn absent_empty_and_unreadable_differ() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("zero"), "").unwrap();
        let root = Root::at(dir.path());
        assert_eq!(root.read("none"), Fact::Absent);
        assert_eq!(root.read("zero"), Fact::Known(String::new()));
        let denied = root
            .failing("zero", ErrorKind::PermissionDenied)
            .read("zero");
        assert!(denied.error().unwrap().denied);
    }

    #[test]
    fn what_an_ended_process_answers_is_absent() {
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid(ended.id());
        let root = Root::live();
        let has_ended = |state: Fact<String>| state.known().is_some_and(|s| s.contains(") Z"));
        while !has_ended(root.read(file_of(pid, "stat"))) {
            std::thread::yield_now();
        }
        // The zombie's entry exists until it is waited for, and this file answers ESRCH.
        assert!(root.bytes(file_of(pid, "status")).known().is_some());
        assert_eq!(root.bytes(file_of(pid, "smaps_rollup")), Fact::Absent);
        ended.wait().unwrap();
    }

    /// Each call has a name of its own, because a file on which a call is blocked is not asked again.
    #[test]
    fn a_file_system_that_does_not_answer_blocks_no_reader() {
        let test = "root::tests::a_file_system_that_does_not_answer_blocks_no_reader";
        if !hugeleaf_testkit::apart_from_processes(test) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let Some(_dead) = hugeleaf_testkit::HungMount::mount(test, dir.path()) else {
            return;
        };
        let at = |name: &str| dir.path().join(name);
        let is_late = |error: &Error| error.kind() == ErrorKind::TimedOut;
        let is_unread = |error: Option<&ReadError>| {
            error.is_some_and(|error| error.reason.contains("does not answer"))
        };
        let root = Root::live();
        assert!(root.metadata(at("a")).is_err_and(|e| is_late(&e)));
        assert!(root.canonical(at("b")).is_err_and(|e| is_late(&e)));
        let relative = |name: &str| at(name).strip_prefix("/").unwrap().to_owned();
        assert!(is_unread(root.read(relative("c")).error()));
        assert!(is_unread(root.list(relative("d")).error()));
        for uid in [0, hugeleaf_testkit::NOBODY] {
            let rights = UserCredentials {
                uid,
                gid: uid,
                groups: Vec::new(),
            };
            let theirs = root.files_of_user(rights).unwrap();
            let at = |name: &str| at(&format!("{name}-of-{uid}"));
            assert!(is_unread(theirs.read(&at("e")).error()));
            assert!(is_unread(theirs.list(&at("f"), 10).error()));
            assert!(theirs.owner(&at("g")).is_none());
            assert!(theirs.lines(&at("h")).is_none());
            let opened = theirs.with_file(&at("i"), File::try_clone);
            assert!(opened.is_err_and(|e| is_late(&e)));
        }
    }
}
