//! A server's limit as its owner set it: the last observed limit that the balancer did not set.
//!
//! The record is kept in the run folder, because a new balancer may find the server at a limit that an earlier one set. It is keyed
//! by the server's own id of its run, so a restarted server starts with the limit of its configuration.

use std::path::PathBuf;

use hugeleaf_sys::{OnExisting, open_regular, read_at_most, write_whole};
use hugeleaf_units::Bytes;
use serde::{Deserialize, Serialize};

/// Maximum length of a record's file.
const LONGEST: Bytes = Bytes::from_kib(4);
/// Maximum number of requested limits that are remembered.
const MOST: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitRecord {
    owner: Bytes,
    /// Limits that the balancer requested since the owner's last change, oldest first. Without an answer in time the server may
    /// still set a later one, so all of them are kept from the observed one on.
    ours: Vec<Bytes>,
}

impl LimitRecord {
    fn observe(&mut self, limit: Bytes) {
        if let Some(at) = self.ours.iter().position(|ours| *ours == limit) {
            self.ours.drain(..at);
        } else if limit != self.owner {
            self.owner = limit;
            self.ours.clear();
        }
    }

    fn request(&mut self, to: Bytes) {
        if self.ours.last() == Some(&to) {
            return;
        }
        self.ours.push(to);
        if self.ours.len() > MOST {
            // The first one may be in force.
            self.ours.remove(1);
        }
    }
}

/// The owner's limit of one server, over all its restarts.
pub(crate) struct OwnerLimitStore {
    /// Folder of the files; `None` to keep no file.
    folder: Option<PathBuf>,
    /// The server's run that was observed last.
    current: Option<(String, LimitRecord)>,
    written: Option<PathBuf>,
}

impl OwnerLimitStore {
    pub(crate) fn new(folder: Option<PathBuf>) -> OwnerLimitStore {
        OwnerLimitStore {
            folder,
            current: None,
            written: None,
        }
    }

    /// Applies the limit observed in a run of the server. Returns the owner's limit. Writes nothing.
    pub(crate) fn observe(&mut self, run: &str, limit: Bytes) -> Bytes {
        let known = self.current.take().filter(|(of, _)| of == run);
        let known = known.map(|(_, limits)| limits).or_else(|| self.read(run));
        let mut limits = known.unwrap_or_else(|| LimitRecord {
            owner: limit,
            ours: Vec::new(),
        });
        limits.observe(limit);
        let owner = limits.owner;
        self.current = Some((run.to_owned(), limits));
        owner
    }

    /// Records a limit that will be requested. The request may follow only after that: otherwise a new balancer would take this
    /// limit for the owner's.
    ///
    /// # Errors
    /// The record cannot be written.
    pub(crate) fn request(&mut self, to: Bytes) -> Result<(), String> {
        let Some((run, limits)) = &self.current else {
            return Ok(());
        };
        let (path, mut limits, run) = (self.path(run), limits.clone(), run.clone());
        limits.request(to);
        if let Some(path) = path {
            let text = toml::to_string(&limits).map_err(|e| e.to_string())?;
            write_whole(&path, text.as_bytes(), OnExisting::Replaced).map_err(|e| e.to_string())?;
            let before = self.written.replace(path.clone());
            if let Some(before) = before.filter(|before| *before != path) {
                // The server's earlier run has ended.
                let _ = std::fs::remove_file(before);
            }
        }
        self.current = Some((run, limits));
        Ok(())
    }

    /// Returns `None` for a run whose id is no plain file name.
    fn path(&self, run: &str) -> Option<PathBuf> {
        let is_plain =
            (1..=64).contains(&run.len()) && run.bytes().all(|b| b.is_ascii_alphanumeric());
        let folder = self.folder.as_ref().filter(|_| is_plain)?;
        Some(folder.join(format!("limit-{run}.toml")))
    }

    fn read(&self, run: &str) -> Option<LimitRecord> {
        let file = open_regular(&self.path(run)?).ok()?;
        let text = String::from_utf8(read_at_most(&file, LONGEST).ok()?).ok()?;
        toml::from_str(&text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn mib(n: u64) -> Bytes {
        Bytes::from_mib(n)
    }

    fn limits(owner: u64, ours: &[u64]) -> LimitRecord {
        LimitRecord {
            owner: mib(owner),
            ours: ours.iter().copied().map(mib).collect(),
        }
    }

    fn seen(mut limits: LimitRecord, limit: u64) -> LimitRecord {
        limits.observe(mib(limit));
        limits
    }

    #[test]
    fn a_limit_that_the_balancer_did_not_set_is_the_owners() {
        assert_eq!(seen(limits(0, &[]), 1024), limits(1024, &[]));
        assert_eq!(seen(limits(128, &[400]), 400), limits(128, &[400]));
        assert_eq!(seen(limits(128, &[400]), 256), limits(256, &[]));
        // A request that has not been executed yet leaves the earlier limit in force.
        assert_eq!(seen(limits(128, &[400]), 128), limits(128, &[400]));
        assert_eq!(
            seen(limits(128, &[400, 300]), 400),
            limits(128, &[400, 300])
        );
        assert_eq!(seen(limits(128, &[400, 300]), 300), limits(128, &[300]));
    }

    #[test]
    fn the_limit_in_force_is_remembered_over_many_refused_requests() {
        let mut limits = limits(128, &[400]);
        for more in 0..100 {
            limits.request(mib(500 + more));
        }
        assert_eq!(limits.ours.len(), MOST);
        assert_eq!(seen(limits, 400).owner, mib(128));
    }

    #[test]
    fn a_record_outlives_a_balancer_and_not_the_servers_run() {
        let dir = tempfile::tempdir().unwrap();
        let new = || OwnerLimitStore::new(Some(dir.path().to_owned()));
        let files = || std::fs::read_dir(dir.path()).unwrap().count();
        let mut first = new();
        assert_eq!(first.observe("a1", mib(128)), mib(128));
        assert_eq!(files(), 0);
        first.request(mib(400)).unwrap();
        let mut second = new();
        assert_eq!(second.observe("a1", mib(400)), mib(128));
        assert_eq!(second.observe("b2", mib(400)), mib(400));
        // Only the current run has a file.
        assert_eq!(first.observe("b2", mib(400)), mib(400));
        first.request(mib(300)).unwrap();
        assert_eq!(files(), 1);
        assert_eq!(new().observe("b2", mib(300)), mib(400));
    }

    #[test]
    fn a_record_that_cannot_be_read_or_written_is_no_permission() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("limit-a1.toml"), "owner = 1").unwrap();
        let mut damaged = OwnerLimitStore::new(Some(dir.path().to_owned()));
        assert_eq!(damaged.observe("a1", mib(400)), mib(400));
        let mut nowhere = OwnerLimitStore::new(Some(dir.path().join("no")));
        nowhere.observe("a1", mib(128));
        assert!(nowhere.request(mib(64)).is_err());
        // No path is made of an id that names another folder.
        let mut odd = OwnerLimitStore::new(Some(dir.path().join("no")));
        odd.observe("../a", mib(128));
        assert_eq!(odd.request(mib(64)), Ok(()));
    }
}
