//! Guests with faults: each is ended, with the last lines of its console as the reason, and leaves nothing running,
//! mounted or on the disk.

// The tests' shared code unwraps too.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The smallest possible guest: no tests, and a kernel that `make test` fetches in any case.
const HOST: &str = "title = 'for the tests of faults'\narchitecture = 'x86-64'\nuserland = 'small'\nmemory = '512M'\n\
    kernel = { suite = 'bookworm', package = 'linux-image-cloud-amd64' }\nprocessors = 1\n";

/// A folder of hosts with one named `faulty`, and a folder for temporary files.
struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new(more: &str) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        for part in ["hosts", "temporary"] {
            std::fs::create_dir(folder.path().join(part)).unwrap();
        }
        std::fs::write(
            folder.path().join("hosts/faulty.toml"),
            format!("{HOST}{more}"),
        )
        .unwrap();
        Scene { folder }
    }

    fn temporary(&self) -> PathBuf {
        self.folder.path().join("temporary")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hugeleaf-vm"));
        command
            .args(arguments)
            .env("HUGELEAF_VM_HOSTS", self.folder.path().join("hosts"))
            .env("TMPDIR", self.temporary());
        command
    }

    /// Runs lines of a shell in the guest. `None`, with a note, if this machine lacks something.
    fn run(&self, test: &str, limit: u64, lines: &str) -> Option<Ran> {
        let limit = limit.to_string();
        let output = self
            .command(&["run", "faulty", "--limit", &limit, "--", lines])
            .output()
            .unwrap();
        let ran = Ran::of(output);
        if ran.status == Some(3) {
            println!("not run: {test}: {}", ran.errors);
            return None;
        }
        assert_nothing_is_left(&self.temporary());
        Some(ran)
    }
}

struct Ran {
    status: Option<i32>,
    printed: String,
    errors: String,
}

impl Ran {
    fn of(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ran {
            status: output.status.code(),
            printed: text(output.stdout),
            errors: text(output.stderr),
        }
    }

    fn assert_ended(&self, why: &str, console: &str) {
        assert_eq!(self.status, Some(125), "{}", self.errors);
        assert!(self.errors.contains(why), "{}", self.errors);
        assert!(self.errors.contains(console), "{}", self.errors);
    }
}

/// Checks that no mount or process names the folder, and that it is empty.
fn assert_nothing_is_left(temporary: &Path) {
    let name = temporary.display().to_string();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&name), "{mounts}");
    let running = running_with(&name);
    assert!(running.is_empty(), "{running:?}");
    let left: Vec<_> = std::fs::read_dir(temporary).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_guest_that_never_answers_is_ended_at_its_limit() {
    let test = "a_guest_that_never_answers_is_ended_at_its_limit";
    let lines = "echo started; echo last words >/dev/console; exec sleep 100000";
    let Some(ran) = Scene::new("").run(test, 60, lines) else {
        return;
    };
    assert_eq!(ran.printed, "started\n");
    ran.assert_ended("did not end within its limit", "last words");
}

#[test]
fn a_guest_that_hangs_at_boot_is_ended_at_its_limit() {
    let test = "a_guest_that_hangs_at_boot_is_ended_at_its_limit";
    // The kernel waits ten seconds after each line of its output.
    let slow = "command-line = ['boot_delay=10000', 'loglevel=7', 'ignore_loglevel']\n";
    let Some(ran) = Scene::new(slow).run(test, 15, "echo started") else {
        return;
    };
    assert_eq!(ran.printed, "");
    ran.assert_ended("did not end within its limit", "last lines");
}

#[test]
fn a_guest_whose_kernel_panics_shows_why() {
    let test = "a_guest_whose_kernel_panics_shows_why";
    let Some(ran) = Scene::new("").run(test, 120, "echo c >/proc/sysrq-trigger") else {
        return;
    };
    ran.assert_ended("its kernel panicked", "sysrq triggered crash");
}

#[test]
fn a_guest_that_goes_down_is_no_success() {
    let test = "a_guest_that_goes_down_is_no_success";
    let Some(ran) = Scene::new("").run(test, 120, "echo o >/proc/sysrq-trigger; sleep 60") else {
        return;
    };
    ran.assert_ended("shut down before the end", "");
}

#[test]
fn a_guest_that_fills_its_disks_says_so_and_ends() {
    let test = "a_guest_that_fills_its_disks_says_so_and_ends";
    let lines =
        "cat /dev/zero >/var/full; rm /var/full; head -c 300M /dev/zero >/out/large; echo after";
    let Some(ran) = Scene::new("").run(test, 180, lines) else {
        return;
    };
    assert!(
        ran.printed.contains("No space left on device"),
        "{}",
        ran.printed
    );
    assert!(
        ran.printed.contains("what is in /out does not fit"),
        "{}",
        ran.printed
    );
    assert_eq!(ran.status, Some(1), "{}", ran.errors);
}

#[test]
fn a_guest_that_never_stops_printing_is_ended() {
    let test = "a_guest_that_never_stops_printing_is_ended";
    let Some(ran) = Scene::new("").run(test, 180, "exec yes 'again and again'") else {
        return;
    };
    ran.assert_ended("printed too much", "");
}

#[test]
fn a_guest_has_no_network() {
    let Some(ran) = Scene::new("").run("a_guest_has_no_network", 120, "ls /sys/class/net") else {
        return;
    };
    assert_eq!((ran.status, ran.printed.as_str()), (Some(0), "lo\n"));
}

#[test]
fn a_run_that_is_interrupted_takes_its_guest_with_it() {
    let test = "a_run_that_is_interrupted_takes_its_guest_with_it";
    let scene = Scene::new("");
    let Some(_) = scene.run(test, 120, "true") else {
        return;
    };
    for signal in ["-TERM", "-KILL"] {
        let mut command = scene.command(&["run", "faulty", "--limit", "120", "--", "sleep 1000"]);
        let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
        while !some_guest_of(&scene.temporary()) {
            assert!(child.try_wait().unwrap().is_none());
            std::thread::yield_now();
        }
        let id = child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().unwrap();
        assert!(sent.success());
        child.wait().unwrap();
        while some_guest_of(&scene.temporary()) {
            std::thread::yield_now();
        }
    }
}

fn some_guest_of(temporary: &Path) -> bool {
    let running = running_with(&temporary.display().to_string());
    running.iter().any(|line| line.contains("qemu-system"))
}

/// Returns the command lines of processes that contain a name.
fn running_with(name: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).into_owned()
    });
    lines.filter(|line| line.contains(name)).collect()
}
