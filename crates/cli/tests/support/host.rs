//! The host as it was: locked while a test runs, recorded before, restored and verified after.

use std::path::{Path, PathBuf};

use hugeleaf_sys::{HostLock, lock_host};

/// Files whose content a test may change, by name below their folders.
const FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";
const KNOBS: [&str; 4] = [
    "enabled",
    "shmem_enabled",
    "hugepages-64kB/enabled",
    "hugepages-2048kB/shmem_enabled",
];

/// The host, locked. Dropping it puts the knobs back, and fails where that did not work.
pub struct HostGuard {
    before: Vec<(PathBuf, String)>,
    _lock: HostLock,
}

impl HostGuard {
    /// Waits for the host's lock and records its knobs.
    pub fn lock() -> HostGuard {
        let lock = lock_host(Path::new("/run/lock/hugeleaf.lock"), true).unwrap();
        let before = KNOBS
            .iter()
            .map(|name| Path::new(FOLDER).join(name))
            .filter_map(|path| Some((path.clone(), chosen(&path)?)))
            .collect();
        HostGuard {
            before,
            _lock: lock,
        }
    }

    /// Chooses a value of a knob.
    pub fn choose(&self, knob: &str, value: &str) {
        let path = Path::new(FOLDER).join(knob);
        assert!(
            self.before.iter().any(|(known, _)| *known == path),
            "{knob} was not recorded"
        );
        std::fs::write(&path, value).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}

impl Drop for HostGuard {
    fn drop(&mut self) {
        for (path, value) in &self.before {
            if chosen(path).as_ref() != Some(value) {
                let _ = std::fs::write(path, value);
            }
            if !std::thread::panicking() {
                assert_eq!(chosen(path).as_ref(), Some(value), "{}", path.display());
            }
        }
    }
}

/// The value between brackets, or the whole line where there are none.
fn chosen(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let inside = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    Some(inside.map_or(text.trim(), |(value, _)| value).to_owned())
}
