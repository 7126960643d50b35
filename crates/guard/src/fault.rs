//! Contains panics: one ends the part that has it, and others never wait for that part.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use hugeleaf_units::Failure;

pub(crate) use hugeleaf_units::FAULT;

/// Runs a part that is restarted or given up as a whole if it panics; returns `None` then.
pub(crate) fn caught<T>(part: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(part)).ok()
}

pub(crate) fn fault() -> Failure {
    let next = "report it, with the lines before this one: journalctl -u hugeleaf-guard";
    Failure::new("a fault in hugeleaf ended the guard", next)
}

/// Sets a flag if the thread that holds it panics, so that other threads stop too.
pub(crate) struct StopsOthers<'a>(pub &'a AtomicBool);

impl Drop for StopsOthers<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use hugeleaf_host::{Root, read_host};
    use hugeleaf_sys::Kernel;

    use crate::{Files, Guard, GuardError, Places, Status, Views};

    struct Faulty;

    impl Views for Faulty {
        fn page(&self, _path: &str, _status: &Status) -> Option<(&'static str, Vec<u8>)> {
            None
        }

        fn metrics(&self, _status: &Status) -> String {
            panic!("expected by a test")
        }
    }

    /// Another thread serves the socket, and must not keep the process alive.
    #[test]
    fn a_fault_in_the_loop_ends_the_guard() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let rules = format!(
            "schema = 1\nlisten = 'off'\ntextfile = '{}'\n",
            at("metrics").display()
        );
        std::fs::write(at("guard.toml"), rules).unwrap();
        let places = Places {
            run: at("run"),
            state: at("state"),
            log: at("log"),
        };
        let files = Files::named(at("guard.toml"));
        let (send, ended) = channel();
        std::thread::spawn(move || {
            let (root, kernel) = (Root::live(), Kernel::new());
            let host = read_host(&root, &kernel).unwrap();
            let guard = Guard::new(&root, &kernel, &host, files, places).unwrap();
            send.send(guard.run(&Faulty)).unwrap();
        });
        let ended = ended.recv_timeout(Duration::from_secs(60));
        let error = ended.expect("it ends").unwrap_err();
        assert!(matches!(error, GuardError::Failed(_)), "{error}");
        assert!(error.to_string().contains("a fault"), "{error}");
    }

    #[test]
    fn a_fault_stops_the_threads_beside_it() {
        let stop = AtomicBool::new(false);
        let beside = caught(|| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let _others = StopsOthers(&stop);
                    panic!("expected by a test");
                });
                while !stop.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            });
        });
        assert!(beside.is_none());
    }
}
