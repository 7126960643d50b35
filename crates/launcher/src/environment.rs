//! Environment variables for the started program. This module must not read the host.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use hugeleaf_host::RunSettings;
use hugeleaf_units::{Bytes, Failure, Ladder};
use hugeleaf_verdict::run_policy::{ResolvedPolicy, SANITIZER_OPTION};

use crate::library_file::PreloadLibrary;

const PRELOAD: &str = "LD_PRELOAD";
const SANITIZER: &str = "ASAN_OPTIONS";
const SQLITE: &str = "HUGELEAF_SQLITE";

/// Size of SQLite's page cache, and the library that provides it.
#[derive(Debug, Clone)]
pub struct SqliteCacheSettings {
    pub library: PathBuf,
    pub size: Bytes,
    pub ladder: Ladder,
}

/// Returns the variables to set for a program into which `library` is loaded; `None` if its loader must not load it.
/// With `sqlite`, a second library is loaded.
pub fn variables(
    settled: &ResolvedPolicy,
    library: Option<PathBuf>,
    sqlite: Option<&SqliteCacheSettings>,
) -> Result<Vec<(&'static str, OsString)>, Failure> {
    let before = |name| std::env::var_os(name).unwrap_or_default();
    let mut all = Vec::new();
    if let Some(library) = library {
        check_path(&library)?;
        let mut list = vec![library.as_path()];
        if let Some(sqlite) = sqlite {
            check_path(&sqlite.library)?;
            list.push(&sqlite.library);
            let value = format!("{};{}", sqlite.size.get(), sqlite.ladder);
            all.push((SQLITE, value.into()));
        }
        all.push((PRELOAD, preload(&list, &before(PRELOAD))));
    }
    all.push((RunSettings::VARIABLE, settled.settings.to_string().into()));
    // Its children need this too: a program built with the address sanitizer exits at once if another library is loaded
    // before the sanitizer's.
    all.push((SANITIZER, sanitizer(&before(SANITIZER))));
    Ok(all)
}

/// Checks the path for separators: ld.so(8) separates the list by blanks and colons, without quoting.
fn check_path(library: &Path) -> Result<(), Failure> {
    let bytes = library.as_os_str().as_bytes();
    let separates = |b: &u8| *b == b':' || b.is_ascii_whitespace();
    if !bytes.iter().any(separates) {
        return Ok(());
    }
    Err(Failure::missing(
        format!(
            "run: {}: LD_PRELOAD cannot name a path with a blank or a colon",
            library.display()
        ),
        "set XDG_CACHE_HOME to a folder without them, or HUGELEAF_RUN_LIBRARY to a copy",
    ))
}

/// Returns the list with our libraries first, then the previous entries. If `run` was started under `run`, the libraries
/// of the outer one are removed.
fn preload(libraries: &[&Path], before: &OsStr) -> OsString {
    let names: Vec<&[u8]> = { libraries.iter() }
        .map(|library| library.as_os_str().as_bytes())
        .collect();
    let mut list = names.join(&b':');
    let others = before
        .as_bytes()
        .split(|b| *b == b':' || b.is_ascii_whitespace())
        .filter(|path| !path.is_empty() && !is_ours(path));
    for other in others {
        list.push(b':');
        list.extend(other);
    }
    OsString::from_vec(list)
}

fn is_ours(path: &[u8]) -> bool {
    PreloadLibrary::is_one(path.rsplit(|b| *b == b'/').next().unwrap_or_default())
}

/// Returns the sanitizer's options plus the one that permits a library before it. A value that the user has set is kept.
fn sanitizer(before: &OsStr) -> OsString {
    let key = SANITIZER_OPTION.split('=').next().unwrap_or_default();
    let bytes = before.as_bytes();
    let is_set = bytes
        .split(|b| matches!(b, b':' | b',' | b' '))
        .any(|option| option.starts_with(key.as_bytes()));
    let mut options = before.to_owned();
    if !is_set {
        if !options.is_empty() {
            options.push(":");
        }
        options.push(SANITIZER_OPTION);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_preloaded_stays_and_an_outer_run_goes() {
        let ours = Path::new("/var/cache/hugeleaf/libhugeleaf_run-1.so");
        let list = |before: &str| preload(&[ours], OsStr::new(before)).into_string().unwrap();
        assert_eq!(list(""), ours.display().to_string());
        assert_eq!(
            list(
                "/lib/a.so /lib/b.so:libhugeleaf_run.so:/x/libhugeleaf_run-2.so:/x/libhugeleaf_sqlite-3.so"
            ),
            format!("{}:/lib/a.so:/lib/b.so", ours.display())
        );
    }

    #[test]
    fn sanitizer_options_are_added_to() {
        let options = |before: &str| sanitizer(OsStr::new(before)).into_string().unwrap();
        assert_eq!(options(""), "verify_asan_link_order=0");
        assert_eq!(options("log_path=x"), "log_path=x:verify_asan_link_order=0");
        assert_eq!(
            options("a=1:verify_asan_link_order=1"),
            "a=1:verify_asan_link_order=1"
        );
    }

    #[test]
    fn paths_that_ld_preload_cannot_name() {
        assert!(check_path(Path::new("/a/b.so")).is_ok());
        for path in ["/a b/c.so", "/a:b/c.so", "/a\tb/c.so"] {
            assert!(check_path(Path::new(path)).is_err(), "{path}");
        }
    }
}
