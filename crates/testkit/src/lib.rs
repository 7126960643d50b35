//! Shared code of the tests: the host lock, servers, waiting, processes, terminals and facts.
//!
//! A dev-dependency of every crate whose tests act on the running host. The product must not depend
//! on it. It never starts, stops or contacts a server other than the test's own.
//!
//! Main types: [`host_lock::ExclusiveHost`], [`host_lock::SharedHost`], [`server::Server`],
//! [`postgresql::PostgresServer`], [`mariadb::MariadbServer`], [`redis_server::RedisServer`],
//! [`jvm::Jvm`], [`process::ChildGuard`].

// Tests and their helpers fail by panicking.
#![allow(clippy::unwrap_used)]

pub mod cgroup;
pub mod guide_commands;
pub mod healthy_host_fixture;
pub mod host_lock;
mod hung_mount;
pub mod jvm;
#[cfg(feature = "clients")]
pub mod load;
pub mod mariadb;
pub mod postgresql;
pub mod process;
pub mod process_facts;
pub mod redis_server;
mod repeating_thread;
pub mod server;
#[cfg(feature = "terminal")]
pub mod terminal;
mod wait;

use std::path::{Path, PathBuf};

pub use hung_mount::HungMount;
pub use process::{ChildGuard, CommandOutput, NOBODY, apart_from_processes, in_own_process};
pub use repeating_thread::RepeatingThread;
pub use wait::{PATIENCE, eventually, pause, until, until_at_most};

/// Returns true if the long forms of the tests run: `make test-all` sets `HUGELEAF_TEST_ALL=1`.
pub fn all() -> bool {
    std::env::var_os("HUGELEAF_TEST_ALL").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Returns the size of a loop for the short or the long form of a test.
pub fn size<T>(short: T, long: T) -> T {
    if all() { long } else { short }
}

/// Like [`size()`], with a third size if `HUGELEAF_SOAK` requests hours.
pub fn size_or_soak<T>(short: T, long: T, soak: T) -> T {
    match std::env::var_os("HUGELEAF_SOAK") {
        Some(_) => soak,
        None => size(short, long),
    }
}

/// Returns true, and prints the reason, if the test runs only in `make test-all`.
pub fn left_to_all(test: &str) -> bool {
    if !all() {
        not_run(test, "only in make test-all");
    }
    !all()
}

/// Reports a test that cannot run here, with the reason; scripts count these lines as ignored
/// tests.
pub fn not_run(test: &str, why: &str) {
    println!("not run: {test}: {why}");
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub fn repository() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap().to_owned()
}

/// Returns every file below a folder, relative to it.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(folder).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// Returns the first installed program, by name (on PATH or in server folders) or by path.
pub fn find_program(candidates: &[&str]) -> Option<PathBuf> {
    const ALSO: [&str; 3] = ["/usr/sbin", "/usr/libexec", "/usr/local/sbin"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    candidates.iter().find_map(|name| {
        std::env::split_paths(&path)
            .chain(ALSO.map(PathBuf::from))
            .map(|folder| folder.join(name))
            .find(|file| file.is_file())
    })
}
