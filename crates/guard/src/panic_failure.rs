//! The error of a guard that a panic ended.

use hugeleaf_units::Failure;

pub(crate) fn fault() -> Failure {
    let next = "report it, with the lines before this one: journalctl -u hugeleaf-guard";
    Failure::missing("a fault in hugeleaf ended the guard", next)
}

#[cfg(test)]
mod tests {

    use std::sync::mpsc::channel;
    use std::time::Duration;

    use hugeleaf_host::{Root, read_host};
    use hugeleaf_sys::Kernel;

    use super::fault;
    use crate::{ConfigFiles, Guard, GuardPaths, GuardStatus, StatusRenderer};

    struct Faulty;

    impl StatusRenderer for Faulty {
        fn page(&self, _path: &str, _status: &GuardStatus) -> Option<(&'static str, Vec<u8>)> {
            None
        }

        fn textfile(&self, _status: &GuardStatus) -> String {
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
        let places = GuardPaths {
            run: at("run"),
            state: Some(at("state")),
            log: Some(at("log")),
        };
        let files = ConfigFiles::named(at("guard.toml"));
        let (send, ended) = channel();
        std::thread::spawn(move || {
            let (root, kernel) = (Root::live(), Kernel::new());
            let host = read_host(&root, &kernel).unwrap();
            let guard = Guard::new(&root, &kernel, &host, files, places).unwrap();
            send.send(guard.run(&Faulty)).unwrap();
        });
        let ended = ended.recv_timeout(Duration::from_secs(60));
        let error = ended.expect("it ends").unwrap_err();
        assert_eq!(error, fault());
    }
}
