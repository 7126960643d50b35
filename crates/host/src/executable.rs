//! Facts about a program that is about to be started: the file that finally runs, and the libraries
//! that can be loaded into it.
//!
//! Reads files of the running host by the path a person typed, so it takes no [`crate::Root`]. It
//! must not judge these facts, and starts nothing.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use hugeleaf_sys::{has_file_capabilities, may_run, open_regular};

mod elf;

pub use elf::{Elf, ElfError, parse_elf};

/// Maximum number of `#!` lines that the kernel follows (fs/exec.c, exec_binprm).
const SCRIPTS_FOLLOWED: usize = 4;
/// Maximum length of a `#!` line that the kernel reads (BINPRM_BUF_SIZE).
const SCRIPT_LINE: usize = 256;
/// Interpreter that execvp(3) uses for a file in a format unknown to the kernel.
const SHELL: &str = "/bin/sh";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramFile {
    /// The file whose code runs: the program itself, or the interpreter of a script.
    pub path: PathBuf,
    /// The scripts on the way to it, the one that was typed first.
    pub scripts: Vec<PathBuf>,
    pub format: ExecutableFormat,
    /// Rights of the program that the user who starts it does not have.
    pub privilege: Option<FilePrivilege>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecutableFormat {
    Elf(Elf),
    /// Another format. The kernel may know an interpreter for it (binfmt_misc).
    Other,
    /// Executable but not readable, or with bad headers. Holds the reason.
    Unknown(String),
}

/// Rights that a file gives to its process. The loader then takes no library from the environment
/// (ld.so(8), secure-execution mode).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilePrivilege {
    User(u32),
    Group(u32),
    Capabilities,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// The file does not exist.
    #[error("{}: no such program{}", name.display(), if *on_path { " on PATH" } else { "" })]
    NotFound {
        /// As typed, or the interpreter that a script names.
        name: PathBuf,
        on_path: bool,
    },
    /// The file exists but cannot be run.
    #[error("{}: {reason}", path.display())]
    NotRunnable { path: PathBuf, reason: String },
}

/// Finds the program that starting `name` would run. `name` is a path, or a name that is searched for
/// in `search` (a value of PATH), as execvp(3) does.
///
/// # Errors
/// If there is no such file, or none that may be run.
#[expect(clippy::disallowed_methods, reason = "the program to start")]
pub fn find_program(name: &Path, search: &str) -> Result<ProgramFile, ProgramError> {
    let mut path = find(name, search)?;
    let mut scripts = Vec::new();
    loop {
        let runnable = |reason: String| ProgramError::NotRunnable {
            path: path.clone(),
            reason,
        };
        let Ok(file) = File::open(&path) else {
            return Ok(read_program(path, scripts));
        };
        let interpreter = match start_of(&file).map_err(|e| runnable(e.to_string()))? {
            ExecutableKind::Script(interpreter) => interpreter,
            ExecutableKind::Text => PathBuf::from(SHELL),
            ExecutableKind::Program => return Ok(read_program(path, scripts)),
        };
        if scripts.len() == SCRIPTS_FOLLOWED {
            return Err(runnable("too many nested scripts".to_owned()));
        }
        let next = runnable_file(&interpreter).map_err(|e| match e {
            ProgramError::NotFound { name, .. } => runnable(format!(
                "its first line names {}, which does not exist",
                name.display()
            )),
            other => other,
        })?;
        scripts.push(std::mem::replace(&mut path, next));
    }
}

enum ExecutableKind {
    /// Begins with `#!` and this interpreter.
    Script(PathBuf),
    Text,
    Program,
}

/// Classifies a file by its first bytes. The shell runs a file that is neither a script nor binary.
fn start_of(file: &File) -> std::io::Result<ExecutableKind> {
    let mut head = Vec::with_capacity(SCRIPT_LINE);
    file.take(SCRIPT_LINE as u64).read_to_end(&mut head)?;
    if let Some(rest) = head.strip_prefix(b"#!") {
        let line = rest.split(|b| *b == b'\n').next().unwrap_or_default();
        let word = line
            .split(|b| matches!(b, b' ' | b'\t' | b'\r' | 0))
            .find(|word| !word.is_empty());
        if let Some(word) = word {
            let word = std::ffi::OsStr::from_bytes(word);
            return Ok(ExecutableKind::Script(PathBuf::from(word)));
        }
    }
    let first_line = head.split(|b| *b == b'\n').next().unwrap_or_default();
    Ok(
        match first_line.contains(&0) || head.starts_with(elf::MAGIC) {
            true => ExecutableKind::Program,
            false => ExecutableKind::Text,
        },
    )
}

fn find(name: &Path, search: &str) -> Result<PathBuf, ProgramError> {
    // A name with a slash is not searched for.
    let bytes = name.as_os_str().as_bytes();
    if bytes.is_empty() || bytes.contains(&b'/') {
        return runnable_file(name);
    }
    let mut refused = None;
    for folder in std::env::split_paths(search) {
        // An empty entry is the current folder.
        let folder = match folder.as_os_str().is_empty() {
            true => PathBuf::from("."),
            false => folder,
        };
        match runnable_file(&folder.join(name)) {
            Ok(path) => return Ok(path),
            // execvp(3) continues after EACCES, and returns it if nothing else is found.
            Err(error @ ProgramError::NotRunnable { .. }) => refused = refused.or(Some(error)),
            Err(ProgramError::NotFound { .. }) => {}
        }
    }
    Err(refused.unwrap_or(ProgramError::NotFound {
        name: name.to_owned(),
        on_path: true,
    }))
}

#[expect(clippy::disallowed_methods, reason = "the program to start")]
fn runnable_file(path: &Path) -> Result<PathBuf, ProgramError> {
    let not_runnable = |reason: String| ProgramError::NotRunnable {
        path: path.to_owned(),
        reason,
    };
    let facts = match std::fs::metadata(path) {
        Ok(facts) => facts,
        Err(e) => {
            use std::io::ErrorKind::{NotADirectory, NotFound};
            return Err(match e.kind() {
                NotFound | NotADirectory => ProgramError::NotFound {
                    name: path.to_owned(),
                    on_path: false,
                },
                _ => not_runnable(e.to_string()),
            });
        }
    };
    if !facts.is_file() {
        return Err(not_runnable("is not a file".to_owned()));
    }
    if !may_run(path) {
        return Err(not_runnable("may not be run by this user".to_owned()));
    }
    Ok(path.to_owned())
}

#[expect(clippy::disallowed_methods, reason = "the program to start")]
fn read_program(path: PathBuf, scripts: Vec<PathBuf>) -> ProgramFile {
    ProgramFile {
        privilege: privilege(&path),
        format: File::open(&path).map_or_else(
            |e| ExecutableFormat::Unknown(e.to_string()),
            |f| format_of(&f),
        ),
        path,
        scripts,
    }
}

/// Returns true if a file contains a SQLite that nothing outside of the file can call or configure, for
/// instance `apsw`, or a program that was linked with it. False for a file that cannot be read.
pub fn has_hidden_sqlite(path: &Path) -> bool {
    // The beginning of each database, which SQLite compares with.
    const MARK: &[u8] = b"SQLite format 3\0";
    let Ok(file) = open_regular(path) else {
        return false;
    };
    let is_exported = elf::exports(&|at, length| part_of(&file, at, length), "sqlite3_config");
    !is_exported.unwrap_or(false) && contains(&file, MARK)
}

fn contains(mut file: &File, mark: &[u8]) -> bool {
    let mut buffer = vec![0; 1 << 20];
    let mut kept = 0;
    loop {
        match file.read(&mut buffer[kept..]) {
            Ok(read) if read > 0 => {
                let end = kept + read;
                let mut parts = buffer[..end].split(|byte| *byte == mark[0]).skip(1);
                if parts.any(|part| part.starts_with(&mark[1..])) {
                    return true;
                }
                // The mark may begin here and end in the next part.
                kept = end.min(mark.len());
                buffer.copy_within(end - kept..end, 0);
            }
            _ => return false,
        }
    }
}

/// Reads up to a number of bytes at an offset. Programs of several hundred megabytes are not rare.
fn part_of(file: &File, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let left = file
        .metadata()
        .map_or(0, |facts| facts.len().saturating_sub(offset));
    bytes.resize(usize::try_from(left).unwrap_or(usize::MAX).min(length), 0);
    let got = file.read_at(&mut bytes, offset).unwrap_or(0);
    bytes.truncate(got);
    bytes
}

fn format_of(file: &File) -> ExecutableFormat {
    match elf::parse(&|at, length| part_of(file, at, length)) {
        Ok(elf) => ExecutableFormat::Elf(elf),
        Err(ElfError::NotElf) => ExecutableFormat::Other,
        Err(error) => ExecutableFormat::Unknown(error.to_string()),
    }
}

/// Returns the rights of the file that this process does not have. A setuid file of the same user
/// changes nothing, and root gains nothing by capabilities.
#[expect(clippy::disallowed_methods, reason = "the program to start")]
fn privilege(path: &Path) -> Option<FilePrivilege> {
    const SETUID: u32 = 0o4000;
    const SETGID: u32 = 0o2000;
    let (uid, gid) = hugeleaf_sys::real_ids();
    let facts = std::fs::metadata(path).ok()?;
    // Without execute permission, setgid on a file means mandatory locking.
    let group_runs = facts.mode() & 0o010 != 0;
    if facts.mode() & SETUID != 0 && facts.uid() != uid {
        Some(FilePrivilege::User(facts.uid()))
    } else if facts.mode() & SETGID != 0 && group_runs && facts.gid() != gid {
        Some(FilePrivilege::Group(facts.gid()))
    } else if uid != 0 && has_file_capabilities(path) {
        Some(FilePrivilege::Capabilities)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn write(path: &Path, bytes: &[u8], mode: u32) {
        std::fs::write(path, bytes).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn this_test_is_a_dynamic_program() {
        let exe = std::env::current_exe().unwrap();
        let program = find_program(&exe, "").unwrap();
        assert_eq!(program.path, exe);
        assert_eq!((program.scripts.len(), program.privilege), (0, None));
        let ExecutableFormat::Elf(elf) = program.format else {
            panic!("{:?}", program.format);
        };
        assert!(
            elf.interpreter.is_some() && !elf.needed.is_empty(),
            "{elf:?}"
        );
    }

    #[test]
    fn scripts_are_followed_to_their_interpreter() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        write(&second, b"#! /bin/sh -e\necho\n", 0o755);
        write(
            &first,
            format!("#!{}\n", second.display()).as_bytes(),
            0o755,
        );
        let program = find_program(Path::new("first"), dir.path().to_str().unwrap()).unwrap();
        assert_eq!(program.scripts, [first, second]);
        assert_eq!(program.path, Path::new("/bin/sh"));
        // Without a `#!` line, execvp(3) uses the shell.
        let plain = dir.path().join("plain");
        write(&plain, b"echo hello\n", 0o755);
        assert_eq!(find_program(&plain, "").unwrap().path, Path::new("/bin/sh"));
    }

    #[test]
    fn scripts_that_lead_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let (own, lost) = (dir.path().join("own"), dir.path().join("lost"));
        write(&own, format!("#!{}\n", own.display()).as_bytes(), 0o755);
        write(&lost, b"#!/no/such/interpreter\n", 0o755);
        let error = |path: &Path| find_program(path, "").unwrap_err().to_string();
        assert!(error(&own).contains("too many"), "{}", error(&own));
        assert!(
            error(&lost).contains("/no/such/interpreter"),
            "{}",
            error(&lost)
        );
    }

    #[test]
    fn what_is_missing_and_what_may_not_be_run_differ() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        write(&data, b"x", 0o644);
        let search = format!("/no/such/folder:{}", dir.path().display());
        let find = |name: &str| find_program(Path::new(name), &search);
        assert!(matches!(
            find("none"),
            Err(ProgramError::NotFound { on_path: true, .. })
        ));
        assert!(matches!(
            find("data"),
            Err(ProgramError::NotRunnable { .. })
        ));
        assert!(matches!(find("/"), Err(ProgramError::NotRunnable { .. })));
        assert!(matches!(find(""), Err(ProgramError::NotFound { .. })));
        assert!(matches!(
            find("/no/such/x"),
            Err(ProgramError::NotFound { on_path: false, .. })
        ));
    }

    #[test]
    fn rights_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        write(&path, b"\x7fELF", 0o755);
        assert_eq!(find_program(&path, "").unwrap().privilege, None);
        // The owner's own rights apply, setuid or not.
        write(&path, b"\x7fELF", 0o4755);
        assert_eq!(find_program(&path, "").unwrap().privilege, None);
        if std::os::unix::fs::chown(&path, Some(1), None).is_err() {
            println!("not run: rights_of_the_file: needs root to give a file away");
            return;
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
        let found = find_program(&path, "").unwrap();
        assert_eq!(found.privilege, Some(FilePrivilege::User(1)));
        assert!(
            matches!(found.format, ExecutableFormat::Unknown(_)),
            "{found:?}"
        );
    }
}
