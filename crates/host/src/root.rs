use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fact::{Fact, ReadError};
use crate::parse::ParseError;

/// The folder below which `/proc`, `/sys` and `/etc` are read: `/` for this host, another for a
/// captured one. It goes from the command line to the last reader.
#[derive(Debug, Clone)]
pub struct Root {
    dir: PathBuf,
    /// Files that fail with this error instead of being read: for tests of every error arm.
    faults: Arc<BTreeMap<PathBuf, ErrorKind>>,
}

impl Root {
    /// This host.
    pub fn live() -> Root {
        Root::at("/")
    }

    /// A host captured below `dir`.
    pub fn at(dir: impl Into<PathBuf>) -> Root {
        Root {
            dir: dir.into(),
            faults: Arc::default(),
        }
    }

    /// The same root, where reading `path` (as in `proc/meminfo`) fails. For tests.
    #[must_use]
    pub fn failing(&self, path: impl Into<PathBuf>, error: ErrorKind) -> Root {
        let mut faults = (*self.faults).clone();
        faults.insert(path.into(), error);
        Root {
            dir: self.dir.clone(),
            faults: Arc::new(faults),
        }
    }

    /// Whether this is the running host, so that system calls speak of it too.
    pub fn is_live(&self) -> bool {
        self.dir == Path::new("/")
    }

    /// Where a file of this host lies, given relative to its root.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.dir.join(relative)
    }

    /// The bytes of a file.
    ///
    /// # Errors
    /// Those of open(2) and read(2), as the kernel gave them.
    pub fn read_bytes(&self, relative: impl AsRef<Path>) -> std::io::Result<Vec<u8>> {
        let relative = relative.as_ref();
        if let Some(kind) = self.faults.get(relative) {
            return Err(std::io::Error::from(*kind));
        }
        let mut bytes = Vec::new();
        std::fs::File::open(self.path(relative))?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// A file as a fact: absent where it does not exist, unreadable with the reason otherwise.
    /// Bytes that are not UTF-8 are replaced: names of processes and files may hold any.
    pub fn read(&self, relative: impl AsRef<Path>) -> Fact<String> {
        self.bytes(relative)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The bytes of a file as a fact.
    pub fn bytes(&self, relative: impl AsRef<Path>) -> Fact<Vec<u8>> {
        let relative = relative.as_ref();
        match self.read_bytes(relative) {
            Ok(bytes) => Fact::Known(bytes),
            Err(e) => self.unread(relative, &e),
        }
    }

    /// A file read and parsed.
    pub fn parse<T>(
        &self,
        relative: impl AsRef<Path>,
        parser: impl FnOnce(&str) -> Result<T, ParseError>,
    ) -> Fact<T> {
        let relative = relative.as_ref();
        self.read(relative).and_then(|text| match parser(&text) {
            Ok(value) => Fact::Known(value),
            Err(error) => Fact::Unreadable(ReadError::Parse {
                path: self.path(relative),
                error,
            }),
        })
    }

    /// The names in a folder, sorted; absent where the folder does not exist.
    pub fn list(&self, relative: impl AsRef<Path>) -> Fact<Vec<String>> {
        let relative = relative.as_ref();
        if let Some(kind) = self.faults.get(relative) {
            return self.unread(relative, &std::io::Error::from(*kind));
        }
        match std::fs::read_dir(self.path(relative)) {
            Ok(entries) => {
                let mut names: Vec<String> = entries
                    .filter_map(|e| Some(e.ok()?.file_name().to_string_lossy().into_owned()))
                    .collect();
                names.sort();
                Fact::Known(names)
            }
            Err(e) => self.unread(relative, &e),
        }
    }

    /// What a failed read says: not there, or not readable and why.
    fn unread<T>(&self, relative: &Path, e: &std::io::Error) -> Fact<T> {
        match e.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Fact::Absent,
            kind => Fact::Unreadable(ReadError::Io {
                path: self.path(relative),
                reason: e.to_string(),
                denied: kind == ErrorKind::PermissionDenied,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(denied.error().unwrap().is_denied());
    }
}
