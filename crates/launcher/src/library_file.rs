//! Location of the library that is loaded into programs. This program contains it and writes it to a file that
//! only the owner can change, because a writer of this file could run code in every started program.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hugeleaf_sys::{OnExisting, effective_uid, is_mounted_noexec, write_whole};
use hugeleaf_units::Failure;

#[derive(Debug, Clone, Copy)]
pub struct PreloadLibrary {
    name: &'static str,
    variable: &'static str,
    /// Content of the library file; empty if none was built for this architecture.
    bytes: &'static [u8],
}

impl PreloadLibrary {
    /// Returns the library that `run` loads.
    pub const fn run(bytes: &'static [u8]) -> PreloadLibrary {
        PreloadLibrary {
            name: "libhugeleaf_run",
            variable: "HUGELEAF_RUN_LIBRARY",
            bytes,
        }
    }

    pub const fn sqlite(bytes: &'static [u8]) -> PreloadLibrary {
        PreloadLibrary {
            name: "libhugeleaf_sqlite",
            variable: "HUGELEAF_SQLITE_LIBRARY",
            bytes,
        }
    }

    /// True if the file name is one of hugeleaf's libraries, of any version.
    pub(super) fn is_one(file: &[u8]) -> bool {
        let names = [
            PreloadLibrary::run(b"").name,
            PreloadLibrary::sqlite(b"").name,
        ];
        file.ends_with(b".so") && names.iter().any(|name| file.starts_with(name.as_bytes()))
    }
}
/// Folder of root's copy, which other users may load.
const SYSTEM: &str = "/var/cache/hugeleaf";
const FOLDER: &str = "hugeleaf";

/// Write permission of group and others.
const FOREIGN_WRITE: u32 = 0o022;

/// Returns the path of the library. Writes the file if needed, except in a dry run. Empty bytes mean that none was
/// built for this architecture.
///
/// # Errors
/// No folder is writable only by this user or root.
pub fn place(library: &PreloadLibrary, is_dry: bool) -> Result<PathBuf, Failure> {
    let path = match existing(library)? {
        Some(path) if is_dry => return Ok(path),
        Some(path) => path,
        None if is_dry => return Ok(own_folder(library)?.join(file_name(library))),
        None => write_to(&own_folder(library)?, library)?,
    };
    if is_mounted_noexec(&path).unwrap_or(false) {
        let why = "its file system is mounted noexec, so no program can load it";
        return Err(refuse(library, &path, why));
    }
    Ok(path)
}

/// Returns an existing file: the one named in the variable, the one installed next to this program, or root's
/// copy.
fn existing(library: &PreloadLibrary) -> Result<Option<PathBuf>, Failure> {
    if let Some(named) = std::env::var_os(library.variable).filter(|v| !v.is_empty()) {
        return check_named(library.variable, PathBuf::from(named)).map(Some);
    }
    if library.bytes.is_empty() {
        return Err(Failure::missing(
            "run: this build of hugeleaf has no preload library",
            format!(
                "build it for Linux on glibc, or set {} to the library",
                library.variable
            ),
        ));
    }
    let installed = std::env::current_exe().ok().and_then(|exe| {
        let folder = exe.parent()?.parent()?.join("lib").join(FOLDER);
        Some(folder.join(format!("{}.so", library.name)))
    });
    let system = Path::new(SYSTEM).join(file_name(library));
    let mut known = installed.into_iter().chain([system]);
    Ok(known.find(|path| is_sound(path, library.bytes)))
}

fn check_named(variable: &str, path: PathBuf) -> Result<PathBuf, Failure> {
    let wrong = |reason: String| {
        Failure::missing(
            format!("run: {variable}={}: {reason}", path.display()),
            format!("give the absolute path of the library, or unset {variable}"),
        )
    };
    if !path.is_absolute() {
        return Err(wrong("is not an absolute path".to_owned()));
    }
    match fs::metadata(&path) {
        Err(error) => Err(wrong(error.to_string())),
        Ok(facts) if !facts.is_file() => Err(wrong("is not a file".to_owned())),
        Ok(_) => Ok(path),
    }
}

/// True if a file contains the library and only root or this user can change it.
fn is_sound(path: &Path, library: &[u8]) -> bool {
    let trusted = |path: &Path| fs::metadata(path).is_ok_and(|facts| is_ours(&facts));
    trusted(path) && path.parent().is_some_and(trusted) && holds(path, library)
}

fn holds(path: &Path, library: &[u8]) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes == library)
}

fn is_ours(facts: &Metadata) -> bool {
    let owner = facts.uid();
    (owner == 0 || owner == effective_uid()) && facts.mode() & FOREIGN_WRITE == 0
}

/// Returns a file name derived from the content, so that several versions can coexist and a file never changes
/// under a running program. The FNV-1a hash is only a name; files are compared in full.
fn file_name(library: &PreloadLibrary) -> String {
    let bytes = library.bytes.iter();
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{}-{hash:016x}.so", library.name)
}

fn own_folder(library: &PreloadLibrary) -> Result<PathBuf, Failure> {
    if effective_uid() == 0 {
        return Ok(PathBuf::from(SYSTEM));
    }
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    // The base directory specification says to ignore values that are not absolute paths.
    let variable = |name| variable(name).filter(|path| path.is_absolute());
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    cache.map(|path| path.join(FOLDER)).ok_or_else(|| {
        Failure::missing(
            "run: no folder for the library: neither XDG_CACHE_HOME nor HOME is set",
            elsewhere(library),
        )
    })
}

fn refuse(library: &PreloadLibrary, path: &Path, why: impl std::fmt::Display) -> Failure {
    let path = path.display();
    Failure::missing(format!("run: {path}: {why}"), elsewhere(library))
}

fn elsewhere(library: &PreloadLibrary) -> String {
    format!(
        "set {} to a copy that only you can change, or XDG_CACHE_HOME to another folder",
        library.variable
    )
}

fn write_to(folder: &Path, library: &PreloadLibrary) -> Result<PathBuf, Failure> {
    make(folder).map_err(|error| refuse(library, folder, error))?;
    let folder = fs::canonicalize(folder).map_err(|error| refuse(library, folder, error))?;
    check_folder(&folder, library)?;
    let path = folder.join(file_name(library));
    match fs::symlink_metadata(&path) {
        Ok(facts) if !facts.is_file() || !is_ours(&facts) => {
            return Err(foreign(&path, &facts, library));
        }
        Ok(_) if holds(&path, library.bytes) => return Ok(path),
        _ => {}
    }
    // Write atomically, because another launcher may write the same file. The umask does not apply here either.
    write_whole(&path, library.bytes, OnExisting::Replaced)
        .map_err(|error| refuse(library, &path, error.reason()))?;
    fs::set_permissions(&path, Permissions::from_mode(0o644))
        .map_err(|error| refuse(library, &path, error))?;
    Ok(path)
}

fn make(folder: &Path) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let mode = if effective_uid() == 0 { 0o755 } else { 0o700 };
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(folder)?;
    // The umask may have removed permissions that others need to read root's copy.
    fs::set_permissions(folder, Permissions::from_mode(mode))
}

/// Refuses a folder that others can change or replace.
fn check_folder(folder: &Path, library: &PreloadLibrary) -> Result<(), Failure> {
    const WORLD_WRITE: u32 = 0o002;
    for (depth, path) in folder.ancestors().enumerate() {
        let facts = fs::metadata(path).map_err(|error| refuse(library, path, error))?;
        let owner = facts.uid();
        let mask = match depth {
            0 => FOREIGN_WRITE,
            _ => WORLD_WRITE,
        };
        let owned = owner == 0 || owner == effective_uid();
        if !owned || facts.mode() & mask != 0 {
            return Err(foreign(path, &facts, library));
        }
    }
    Ok(())
}

fn foreign(path: &Path, facts: &Metadata, library: &PreloadLibrary) -> Failure {
    let (owner, mode) = (facts.uid(), facts.mode() & 0o7777);
    let why = format!("other users can change it (owner {owner}, mode {mode:o})");
    refuse(library, path, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a folder without a world-writable ancestor, unlike the system's temporary folders.
    fn folder() -> Option<tempfile::TempDir> {
        let above = std::env::current_exe().ok()?.parent()?.to_owned();
        let dir = tempfile::tempdir_in(above).ok()?;
        match check_folder(
            &fs::canonicalize(dir.path()).ok()?,
            &PreloadLibrary::run(b""),
        ) {
            Ok(()) => Some(dir),
            Err(failure) => {
                println!("not run: library: no folder that others cannot change: {failure:?}");
                None
            }
        }
    }

    #[test]
    fn written_once_and_whole() {
        let Some(dir) = folder() else { return };
        let folder = dir.path().join("a/hugeleaf");
        let path = write_to(&folder, &PreloadLibrary::run(b"library")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"library");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
        let inode = fs::metadata(&path).unwrap().ino();
        assert_eq!(
            write_to(&folder, &PreloadLibrary::run(b"library")).unwrap(),
            path
        );
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode, "written again");
        // Another version is written next to it. A damaged file is replaced, not modified.
        assert_ne!(
            write_to(&folder, &PreloadLibrary::run(b"newer")).unwrap(),
            path
        );
        fs::write(&path, b"damaged").unwrap();
        assert_eq!(
            write_to(&folder, &PreloadLibrary::run(b"library")).unwrap(),
            path
        );
        assert_eq!(fs::read(&path).unwrap(), b"library");
        assert_ne!(fs::metadata(&path).unwrap().ino(), inode);
        let names = fs::read_dir(&folder).unwrap().count();
        assert_eq!(names, 2, "parts are left behind");
    }

    #[test]
    fn what_others_could_change_is_refused() {
        let Some(dir) = folder() else { return };
        let folder = dir.path().join("hugeleaf");
        let path = write_to(&folder, &PreloadLibrary::run(b"library")).unwrap();
        let refused = |what: &Path| {
            let failure = write_to(&folder, &PreloadLibrary::run(b"library")).unwrap_err();
            let text = format!("{failure:?}");
            assert!(text.contains(&what.display().to_string()), "{text}");
        };
        for (what, mode) in [
            (&path, 0o666),
            (&path, 0o664),
            (&folder, 0o775),
            (&folder, 0o777),
        ] {
            let before = fs::metadata(what).unwrap().mode();
            fs::set_permissions(what, Permissions::from_mode(mode)).unwrap();
            refused(&fs::canonicalize(what).unwrap());
            fs::set_permissions(what, Permissions::from_mode(before)).unwrap();
        }
        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        refused(&fs::canonicalize(dir.path()).unwrap());
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        refused(
            &fs::canonicalize(&folder)
                .unwrap()
                .join(path.file_name().unwrap()),
        );
    }

    #[test]
    fn temporary_folders_of_everybody_are_refused() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let failure =
            write_to(&dir.path().join("x"), &PreloadLibrary::run(b"library")).unwrap_err();
        assert!(
            format!("{failure:?}").contains("other users can change"),
            "{failure:?}"
        );
    }
}
