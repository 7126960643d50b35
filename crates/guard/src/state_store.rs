//! Keeps the state in a file, so that a restart continues with it.

use std::path::{Path, PathBuf};

use hugeleaf_host::Root;
use hugeleaf_sys::{OnExisting, rename, write_whole};
use serde::{Deserialize, Serialize};

use crate::state::GuardState;

#[derive(Debug, Serialize, Deserialize)]
struct SavedState {
    schema: u64,
    /// Boot id and namespaces for which process ids and times since boot are valid.
    boot: String,
    state: GuardState,
}

#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    boot: String,
    last: Vec<u8>,
}

impl StateFile {
    /// Opens a file and reads its state. An unreadable or invalid file is moved aside for a new state, and the
    /// reason is returned.
    pub fn open(root: &Root, path: &Path) -> (StateFile, GuardState, Option<String>) {
        let boot = root.read("proc/sys/kernel/random/boot_id");
        let boot = boot.known().map_or("", |id| id.trim());
        let namespace = |name: &str| {
            let link = std::fs::read_link(root.path(format!("proc/self/ns/{name}")));
            link.map_or_else(|_| String::new(), |link| link.display().to_string())
        };
        let mut file = StateFile {
            path: path.to_owned(),
            boot: format!("{boot} {} {}", namespace("pid"), namespace("time")),
            last: Vec::new(),
        };
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) => {
                let is_new = error.kind() == std::io::ErrorKind::NotFound;
                let why = (!is_new).then(|| format!("{}: {error}", path.display()));
                return (file, GuardState::default(), why);
            }
        };
        match serde_json::from_slice::<SavedState>(&bytes) {
            Ok(kept) if kept.schema == 1 => {
                let mut state = kept.state;
                file.last = bytes;
                if kept.boot != file.boot {
                    // Verdicts outlive a reboot, processes do not.
                    state.tracks.clear();
                    state.pools.forget_boot();
                    state.fragmented.worked();
                    state.short_until = std::time::Duration::ZERO;
                }
                for track in state.tracks.values_mut() {
                    // The job has ended with the previous guard.
                    track.job = None;
                    track.keep_intended(track.closer_at.unwrap_or_default());
                }
                (file, state, None)
            }
            other => {
                let why = other
                    .err()
                    .map_or_else(|| "unknown schema".to_owned(), |e| e.to_string());
                let mut aside = path.as_os_str().to_owned();
                aside.push(".bad");
                let kept = rename(path, Path::new(&aside)).is_ok();
                let what = if kept { "renamed to .bad" } else { "kept" };
                let why = format!(
                    "{}: {why}; the file was {what}, and the state starts empty",
                    path.display()
                );
                (file, GuardState::default(), Some(why))
            }
        }
    }

    /// Writes the state atomically if it has changed.
    ///
    /// # Errors
    /// The write failed; the old file is still there.
    pub fn save(&mut self, state: &GuardState) -> Result<(), String> {
        let kept = SavedState {
            schema: 1,
            boot: self.boot.clone(),
            state: state.clone(),
        };
        let bytes = serde_json::to_vec(&kept).map_err(|e| e.to_string())?;
        if bytes == self.last {
            return Ok(());
        }
        write_whole(&self.path, &bytes, OnExisting::Replaced).map_err(|e| e.to_string())?;
        self.last = bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{JobKind, TreeRecord};
    use hugeleaf_host::ForkTreeId;
    use hugeleaf_mover::{ProcessIdentity, ProcessRanges};
    use hugeleaf_units::{Bytes, Range};

    fn host(boot: &str) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let random = dir.path().join("proc/sys/kernel/random");
        std::fs::create_dir_all(&random).unwrap();
        std::fs::write(random.join("boot_id"), boot).unwrap();
        let root = Root::at(dir.path());
        (dir, root)
    }

    fn state() -> GuardState {
        let mut state = GuardState::default();
        let id = ForkTreeId {
            pid: 7,
            start_ticks: 9,
        };
        let track = TreeRecord {
            job: Some(JobKind::Promote),
            moves: 3,
            ..TreeRecord::default()
        };
        state.tracks.insert(id, track);
        state.counts.promotions = 3;
        state
    }

    #[test]
    fn a_restart_knows_what_was_done() {
        let (dir, root) = host("one");
        let path = dir.path().join("state.json");
        let (mut file, empty, problem) = StateFile::open(&root, &path);
        assert_eq!((empty, problem), (GuardState::default(), None));
        file.save(&state()).unwrap();
        let (_, again, _) = StateFile::open(&root, &path);
        let track = again.tracks.values().next().unwrap();
        assert_eq!(
            (track.job, track.moves, again.counts.promotions),
            (None, 3, 3)
        );
        // After a reboot the ids belong to other processes.
        let (_other, rebooted) = host("two");
        let (_, again, _) = StateFile::open(&rebooted, &path);
        assert_eq!((again.tracks.len(), again.counts.promotions), (0, 3));
    }

    #[test]
    fn a_promotion_that_was_ended_by_force_counts_as_made() {
        let (dir, root) = host("one");
        let path = dir.path().join("state.json");
        let (mut file, ..) = StateFile::open(&root, &path);
        let mut state = state();
        let memory = ProcessRanges {
            who: ProcessIdentity::default(),
            ranges: vec![Range::new(0, 1 << 30).unwrap()],
        };
        let track = state.tracks.values_mut().next().unwrap();
        track.intended = vec![memory.clone()];
        file.save(&state).unwrap();
        let (_, again, _) = StateFile::open(&root, &path);
        let track = again.tracks.values().next().unwrap();
        let moved = track.moved.as_ref().unwrap();
        assert_eq!(
            (&moved.memory, moved.bytes),
            (&vec![memory], Bytes(1 << 30))
        );
        assert!(track.intended.is_empty());
    }

    /// A file of an earlier version, which judged each test alone.
    #[test]
    fn an_older_file_goes_on() {
        let (dir, root) = host("one");
        let path = dir.path().join("state.json");
        let (mut file, ..) = StateFile::open(&root, &path);
        file.save(&state()).unwrap();
        let mut text: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        text["state"]["remembered"] = serde_json::json!([{
            "group": "redis.service", "name": "redis-server", "file": null, "held_bytes": 1000, "kernel": "6.18",
            "proven": {"verdict": "slower", "ratio": 0.9, "low": 0.88, "high": 0.92, "pairs": 12, "metric": "x", "at": 0},
            "reverted": true,
        }]);
        std::fs::write(&path, text.to_string()).unwrap();
        let (_, again, problem) = StateFile::open(&root, &path);
        assert_eq!(problem, None);
        let known = &again.remembered[0];
        assert_eq!(known.evidence, crate::Evidence::default());
        assert_eq!(known.again_in(86_400).as_secs(), 181 * 86_400);
        // A clock that was set back delays the next attempt, but not forever.
        assert_eq!(known.again_in(-86_400).as_secs(), 182 * 86_400);
    }

    #[test]
    fn a_file_that_is_none_is_put_aside() {
        for bad in [
            "",
            "{",
            "[]",
            "{\"schema\":2,\"boot\":\"\",\"state\":{}}",
            "\u{0}\u{1}",
        ] {
            let (dir, root) = host("one");
            let path = dir.path().join("state.json");
            std::fs::write(&path, bad).unwrap();
            let (mut file, state, problem) = StateFile::open(&root, &path);
            assert_eq!(state, GuardState::default());
            assert!(problem.unwrap().contains(".bad"), "{bad}");
            file.save(&state).unwrap();
            assert!(dir.path().join("state.json.bad").exists());
        }
    }

    #[test]
    fn what_cannot_be_written_leaves_the_old_one() {
        let (dir, root) = host("one");
        let (mut file, ..) = StateFile::open(&root, &dir.path().join("no/state.json"));
        assert!(file.save(&state()).unwrap_err().contains("no"));
    }
}
