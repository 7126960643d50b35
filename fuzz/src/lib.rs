//! Shared code of the fuzz targets: input as text, and a small captured host in which the input replaces one file at
//! a time.
//!
//! Targets check more than the absence of panics where possible: printed values parse to the same value, and totals are
//! at least their parts.

use std::path::{Path, PathBuf};

/// Bytes of a file as [`hugeleaf_host::Root::read`] hands them to a parser.
pub fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

/// A captured host below a temporary folder. The first byte of an input chooses a file, the rest
/// is what that file holds for one run.
pub struct Tree {
    dir: tempfile::TempDir,
    files: &'static [(&'static str, &'static str)],
}

impl Tree {
    /// Writes the healthy files.
    pub fn new(files: &'static [(&'static str, &'static str)]) -> Tree {
        // In memory where available: every run writes one file.
        let shm = Path::new("/dev/shm");
        let dir = if shm.is_dir() {
            tempfile::tempdir_in(shm)
        } else {
            tempfile::tempdir()
        };
        let tree = Tree {
            dir: dir.expect("a temporary folder"),
            files,
        };
        for (name, content) in files {
            tree.write(name, content.as_bytes());
        }
        tree
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    /// Replaces the chosen file, lets `look` at the tree, and puts the file back.
    pub fn with(&self, data: &[u8], look: impl FnOnce()) {
        let Some((choice, content)) = data.split_first() else {
            return;
        };
        let (name, healthy) = self.files[usize::from(*choice) % self.files.len()];
        self.write(name, content);
        look();
        self.write(name, healthy.as_bytes());
    }

    fn write(&self, name: &str, content: &[u8]) {
        let path = self.dir.path().join(name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).expect("a folder of the tree");
        }
        std::fs::write(path, content).expect("a file of the tree");
    }
}
