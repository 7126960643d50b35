//! A private mount namespace: `/etc` is a copy, hugeleaf's state is empty, and its mounts are
//! invisible outside. Knobs and pools are the host's, so its lock is held.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};

use hugeleaf_testkit::host_lock::{self, ExclusiveHost};
use tempfile::TempDir;

use crate::common::{NOBODY, has_surplus_pages, not_run};

/// The namespace, and the host's lock. All changes in it are gone when it is dropped.
pub struct Namespace {
    holder: Child,
    pub folder: TempDir,
    pub alone: ExclusiveHost,
}

/// The first argument is the folder, the second an additional setup command of the test.
const SETUP: &str = r#"
set -e
mount --bind "$1/etc" /etc
mount -t tmpfs none /mnt
mount --bind "$1/lib" /var/lib
eval "$2"
echo ready
read -r line
"#;

impl Namespace {
    /// Sets up a namespace; `more` is a shell command that runs in it at the end.
    pub fn new(test: &str, more: &str) -> Option<Namespace> {
        if hugeleaf_sys::effective_uid() != 0 {
            not_run(test, "needs root");
            return None;
        }
        let alone = host_lock::exclusive();
        if has_surplus_pages() {
            not_run(
                test,
                "programs use surplus pages, which undo names as still in use",
            );
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let etc = folder.path().join("etc");
        let copied = Command::new("cp").arg("-a").arg("/etc").arg(&etc).status();
        assert!(copied.unwrap().success());
        std::fs::create_dir(folder.path().join("lib")).unwrap();
        let mut holder = Command::new("unshare")
            .args(["-m", "sh", "-c", SETUP, "sh"])
            .arg(folder.path())
            .arg(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = holder.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        if line != "ready\n" {
            let said = holder.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&said.stderr).into_owned();
            not_run(test, &format!("no mount namespace available: {said}"));
            return None;
        }
        Some(Namespace {
            holder,
            folder,
            alone,
        })
    }

    /// Returns a command in the namespace, otherwise unchanged.
    pub fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["-t", &self.holder.id().to_string(), "-m", "--wd=/"])
            .arg(program)
            .args(args)
            .env_remove("NO_COLOR")
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }

    /// Runs hugeleaf in the namespace.
    pub fn hugeleaf(&self, args: &[&str]) -> Output {
        self.command(env!("CARGO_BIN_EXE_hugeleaf"), args)
            .output()
            .unwrap()
    }

    /// Runs a shell script in the namespace, which must succeed. Returns its output.
    #[track_caller]
    pub fn shell(&self, script: &str) -> String {
        let out = self.command("sh", &["-c", script]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{script}: {said}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Writes a plan for this host into the namespace's folder: some pages, limits and a group for
    /// an ordinary user, and a mount.
    #[track_caller]
    pub fn plan(&self) -> String {
        let file = self.folder.path().join("plan.toml").display().to_string();
        let user = NOBODY.to_string();
        let out = self.hugeleaf(&[
            "plan",
            "--bytes",
            "16M",
            "--name",
            "cache",
            "--user",
            &user,
            "--mount",
            "/mnt/huge",
            "--output",
            &file,
        ]);
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(0), "{said}");
        file
    }

    /// Fails if `/etc` in the namespace differs from its initial state.
    #[track_caller]
    pub fn assert_etc_as_before(&self, when: &str) {
        let etc = self.folder.path().join("etc");
        let out = Command::new("diff")
            .args(["-r", "--no-dereference", "/etc"])
            .arg(&etc)
            .output()
            .unwrap();
        let differ = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{when}:\n{differ}");
    }

    /// Fails if the host's knobs differ from their initial values.
    #[track_caller]
    pub fn assert_knobs_as_before(&self, when: &str) {
        self.alone.assert_as_before(when);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Runs after a failed assertion too, because the host's knobs must be restored.
        let _ = self.hugeleaf(&["undo", "--all", "--even-if-changed"]);
        if let Some(stdin) = self.holder.stdin.as_mut() {
            let _ = stdin.write_all(b"end\n");
        }
        let _ = self.holder.wait();
    }
}
