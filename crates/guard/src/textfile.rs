//! Writes the file of metrics. The owner names its place, and a file system that does not answer (NFS without its
//! server, FUSE) blocks a write for ever. So each write has a thread of its own, and a next one begins when it has ended.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use hugeleaf_sys::{OnExisting, write_whole};

/// Time that a scan waits for a write.
const ANSWER: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Textfile {
    /// The outcome of a write that took longer than a scan waits.
    blocked: Option<Receiver<Result<(), String>>>,
}

impl Textfile {
    /// Replaces the file at `path` as a whole.
    ///
    /// # Errors
    /// The write failed, or it or an earlier one has not ended. The text is not written later then.
    pub(crate) fn write(&mut self, path: &Path, text: String) -> Result<(), String> {
        let at = path.to_owned();
        let act = move || write_whole(&at, text.as_bytes(), OnExisting::Replaced);
        let outcome = self.begin(ANSWER, move || act().map_err(|error| error.to_string()));
        outcome.unwrap_or_else(|| {
            let path = path.display();
            Err(format!(
                "{path}: the file system does not answer; set textfile to a file on another one, or mount it again"
            ))
        })
    }

    /// Returns the outcome; `None` if `act` or an earlier one has not ended.
    fn begin(
        &mut self,
        wait: Duration,
        act: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Option<Result<(), String>> {
        if let Some(blocked) = self.blocked.take()
            && blocked.recv_timeout(Duration::ZERO) == Err(RecvTimeoutError::Timeout)
        {
            self.blocked = Some(blocked);
            return None;
        }
        let (send, outcome) = sync_channel(1);
        let job = move || {
            let _ = send.send(act());
        };
        if let Err(error) = std::thread::Builder::new().spawn(job) {
            return Some(Err(format!("no thread to write metrics: {error}")));
        }
        match outcome.recv_timeout(wait) {
            Ok(outcome) => Some(outcome),
            Err(RecvTimeoutError::Timeout) => {
                self.blocked = Some(outcome);
                None
            }
            Err(RecvTimeoutError::Disconnected) => Some(Err("a fault".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_blocked_write_delays_no_scan_and_is_the_only_one() {
        let mut file = Textfile::default();
        let (end, ended) = channel::<()>();
        let blocks = move || {
            let _ = ended.recv();
            Ok(())
        };
        assert_eq!(file.begin(Duration::ZERO, blocks), None);
        assert_eq!(file.begin(LONG, || panic!("not begun")), None);
        drop(end);
        let works = || Ok(());
        while file.begin(LONG, works) != Some(Ok(())) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_write_replaces_the_file_or_says_why_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.prom");
        let mut file = Textfile::default();
        for text in ["a 1\n", "a 2\n"] {
            assert_eq!(file.write(&path, text.to_owned()), Ok(()));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        let nowhere = folder.path().join("none/metrics.prom");
        let error = file.write(&nowhere, String::new()).unwrap_err();
        assert!(error.contains("none"), "{error}");
    }
}
