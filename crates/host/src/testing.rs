//! Captured hosts of a few files, for tests.

use crate::root::Root;

/// Makes a host of these files, by path and text. Dropping the folder removes it.
pub fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let root = Root::at(dir.path());
    (dir, root)
}
