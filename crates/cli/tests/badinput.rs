//! Bad input and faults on the real binary. Each ends in two lines on stderr (the failure and the
//! next step) and exit status 1, 2 or 3, never in a panic or a change to another process.

use hugeleaf_testkit::size;

use crate::common::{
    NOBODY, answered, good, holder, hugeleaf, is_root, not_run, program, public_copy, refused, run,
    works, zombie,
};

/// Commands that read a target.
const READERS: [&str; 2] = ["mem", "why"];
/// Commands that change a target. `--dry-run` must refuse in the same way.
const CHANGERS: [&str; 2] = ["promote", "demote"];

fn commands() -> impl Iterator<Item = &'static str> {
    READERS.into_iter().chain(CHANGERS)
}

/// One more than the highest process id of Linux (proc(5), pid_max).
const NO_PID: &str = "4194305";

#[test]
fn no_such_process() {
    for command in commands() {
        refused(&run(&[command, NO_PID]), 3, &[NO_PID]);
        refused(
            &run(&[command, "no-such-program-here"]),
            3,
            &["no-such-program-here"],
        );
        refused(&run(&[command, &format!("tree:{NO_PID}")]), 3, &[NO_PID]);
    }
}

#[test]
fn a_target_that_is_none() {
    for command in commands() {
        refused(&run(&[command, "tree:postgres"]), 2, &["tree:postgres"]);
        refused(&run(&[command, ""]), 2, &[]);
    }
}

/// A data folder on a file server that is gone. The command must end without being killed.
#[test]
fn a_data_folder_on_a_file_system_that_does_not_answer() {
    let test = "badinput::a_data_folder_on_a_file_system_that_does_not_answer";
    if !hugeleaf_testkit::apart_from_processes(test) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(_dead) = hugeleaf_testkit::HungMount::mount(test, dir.path()) else {
        return;
    };
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    let plan = run(&["plan", "--postgres", data]);
    refused(&plan, 3, &[data, "does not answer", "file server"]);
}

#[test]
fn a_kernel_thread() {
    let comm = std::fs::read_to_string("/proc/2/comm").unwrap_or_default();
    if comm.trim() != "kthreadd" {
        return not_run("a_kernel_thread", "no kernel thread is visible here");
    }
    for command in commands() {
        refused(&run(&[command, "2"]), 3, &["kthreadd", "kernel thread"]);
    }
}

#[test]
fn a_zombie() {
    let dead = zombie();
    for command in commands() {
        refused(&run(&[command, &dead.pid()]), 3, &["zombie", &dead.pid()]);
    }
}

#[test]
fn a_process_of_another_user() {
    use std::os::unix::process::CommandExt;
    if !is_root() {
        return not_run(
            "a_process_of_another_user",
            "needs root to become another user",
        );
    }
    let target = holder(8, None);
    let (_dir, copy) = public_copy();
    for command in commands() {
        let output = program(&copy, &[command, &target.pid()])
            .uid(NOBODY)
            .gid(NOBODY)
            .output()
            .unwrap();
        refused(&output, 3, &[&target.pid()]);
    }
}

/// Reading the own process needs no privilege; changing it needs CAP_SYS_NICE. The answer says how
/// to grant that to the binary alone.
#[test]
fn without_cap_sys_nice() {
    use std::os::unix::process::CommandExt;
    if !is_root() {
        return not_run("without_cap_sys_nice", "needs root to become another user");
    }
    let target = holder(8, Some(NOBODY));
    let (_dir, copy) = public_copy();
    let as_nobody = |args: &[&str]| {
        program(&copy, args)
            .uid(NOBODY)
            .gid(NOBODY)
            .output()
            .unwrap()
    };
    for command in READERS {
        answered(&as_nobody(&[command, &target.pid()]));
    }
    for command in CHANGERS {
        refused(
            &as_nobody(&[command, &target.pid()]),
            3,
            &["cap_sys_nice", "setcap"],
        );
    }
}

fn can_unshare_pids() -> bool {
    is_root() && works("unshare", &["--pid", "--fork", "--mount-proc", "true"])
}

/// From inside a PID namespace with its own /proc, a process outside does not exist.
#[test]
fn a_process_outside_the_own_pid_namespace() {
    if !can_unshare_pids() {
        return not_run(
            "a_process_outside_the_own_pid_namespace",
            "needs root and unshare(1)",
        );
    }
    let target = holder(8, None);
    for command in commands() {
        let output = inside(
            &["--pid", "--fork", "--mount-proc"],
            &[command, &target.pid()],
        );
        refused(&output, 3, &[&target.pid()]);
    }
}

/// If /proc belongs to another PID namespace, its ids differ from those of system calls. Changes
/// must be refused because they would affect another process.
#[test]
fn a_proc_of_another_pid_namespace() {
    if !can_unshare_pids() {
        return not_run(
            "a_proc_of_another_pid_namespace",
            "needs root and unshare(1)",
        );
    }
    let target = holder(8, None);
    for command in CHANGERS {
        let output = inside(&["--pid", "--fork"], &[command, &target.pid()]);
        refused(&output, 3, &[&target.pid()]);
    }
}

/// In the other direction nothing is refused: a process in a child namespace is visible.
#[test]
fn a_process_in_a_pid_namespace_below() {
    if !can_unshare_pids() {
        return not_run(
            "a_process_in_a_pid_namespace_below",
            "needs root and unshare(1)",
        );
    }
    let mut child = crate::common::ChildGuard(
        std::process::Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "sleep", "1000"])
            .stdin(std::process::Stdio::null())
            .spawn()
            .unwrap(),
    );
    let children = format!("/proc/{0}/task/{0}/children", child.pid());
    let mut inner = String::new();
    crate::common::wait_until("the namespace has its first process", || {
        inner = std::fs::read_to_string(&children).unwrap_or_default();
        let inner = inner.trim();
        std::fs::read_to_string(format!("/proc/{inner}/comm")).is_ok_and(|c| c.trim() == "sleep")
    });
    for command in READERS {
        answered(&run(&[command, inner.trim()]));
    }
    child.0.kill().unwrap();
}

/// Runs the binary under unshare(1).
fn inside(flags: &[&str], args: &[&str]) -> std::process::Output {
    std::process::Command::new("unshare")
        .args(flags)
        .arg(env!("CARGO_BIN_EXE_hugeleaf"))
        .args(args)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap()
}

/// With hidepid a hidden process and a missing one look alike, and the error must say so.
#[test]
fn a_proc_that_hides_processes() {
    if !is_root() || !works("unshare", &["--mount", "true"]) || !works("setpriv", &["--version"]) {
        return not_run(
            "a_proc_that_hides_processes",
            "needs root, unshare(1) and setpriv(1)",
        );
    }
    let (_dir, copy) = public_copy();
    // Mount and processes live in separate namespaces, and end with the last command.
    let script = "sleep 1000 & mount -t proc -o hidepid=2 proc /proc && exec setpriv \
                  --reuid 65534 --regid 65534 --clear-groups \"$@\" $!";
    for command in commands() {
        let output = std::process::Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "sh", "-c", script, "sh"])
            .args([copy.to_str().unwrap(), command])
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        refused(&output, 3, &["hidepid"]);
    }
}

/// A full disk behind standard output is reported.
#[test]
fn a_full_disk_under_stdout() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else {
        return not_run("a_full_disk_under_stdout", "no /dev/full");
    };
    let output = hugeleaf(&["completions", "bash"])
        .stdout(full)
        .output()
        .unwrap();
    refused(&output, 3, &["stdout"]);
}

/// A captured host cannot be changed.
#[test]
fn changing_a_captured_host() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    for command in CHANGERS {
        refused(&run(&[command, "1", "--root", root]), 2, &["--root"]);
    }
}

/// Truncates, garbles, empties or extends every file of a captured host. The answer must be a
/// screen or two lines, never a panic.
#[test]
fn damaged_files_of_a_host() {
    damage_everywhere("x86-4k-two-nodes", &[&["status"], &["mem"]]);
}

/// The same for the files of a process.
#[test]
fn damaged_files_of_a_process() {
    let fixture = "why/postgres-stock";
    let folder = crate::common::repository().join("fixtures").join(fixture);
    let question = std::fs::read_to_string(folder.join("question")).unwrap();
    let pid = question.trim().trim_start_matches("why ");
    let tree = format!("tree:{pid}");
    let commands: [&[&str]; 3] = [&["mem"], &["mem", &tree], &["why", pid]];
    // The commands name an existing process.
    good(&run(&["mem", "--root", folder.to_str().unwrap(), &tree]));
    damage_everywhere(fixture, &commands);
}

fn damage_everywhere(fixture: &str, commands: &[&[&str]]) {
    let fixture = crate::common::repository().join("fixtures").join(fixture);
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    let files = copy_tree(&fixture, dir.path());
    assert!(
        files.len() > 20,
        "{} is no captured host",
        fixture.display()
    );
    for (nth, file) in files.iter().enumerate() {
        let healthy = std::fs::read(file).unwrap();
        let damages = damages(&healthy);
        let first = nth % damages.len();
        let some = damages.iter().cycle().skip(first);
        for damaged in some.take(size(1, damages.len())) {
            std::fs::write(file, damaged).unwrap();
            for command in commands {
                let output = hugeleaf(command).args(["--root", root]).output().unwrap();
                match output.status.code() {
                    Some(0 | 1) => {}
                    Some(3) => drop(refused(&output, 3, &[])),
                    other => panic!(
                        "{command:?} ended in {other:?} with {}:\n{}",
                        file.display(),
                        crate::common::stderr(&output)
                    ),
                }
            }
        }
        std::fs::write(file, &healthy).unwrap();
    }
}

fn damages(healthy: &[u8]) -> [Vec<u8>; 5] {
    let half = healthy.len() / 2;
    let garbled = healthy
        .iter()
        .map(|b| if b.is_ascii_digit() { b'x' } else { *b });
    let huge: Vec<u8> = healthy
        .iter()
        .flat_map(|b| {
            if b.is_ascii_digit() {
                vec![b'9'; 9]
            } else {
                vec![*b]
            }
        })
        .collect();
    [
        Vec::new(),
        healthy[..half].to_vec(),
        garbled.collect(),
        huge,
        [healthy, b"\nNewThing: 7 furlongs\n\xff\xfe[\n"].concat(),
    ]
}

/// Copies a folder and returns the copied files.
fn copy_tree(from: &std::path::Path, to: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&target).unwrap();
            files.extend(copy_tree(&entry.path(), &target));
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
            files.push(target);
        }
    }
    files
}

/// Runs an experiment that takes only seconds once it starts.
fn prove(pid: &str, metric: &str, more: &[&str]) -> std::process::Output {
    let dir = tempfile::tempdir().unwrap();
    let quick = ["--for", "1s", "--interval", "100ms", "--settle", "10ms"];
    let output = dir.path().join("result.json");
    let mut command = hugeleaf(&["prove", pid, "--metric", metric]);
    command.args(quick).args(more);
    if !more.contains(&"--output") {
        command.arg("--output").arg(&output);
    }
    command.current_dir(dir.path()).output().unwrap()
}

/// Changing another process's memory needs root.
fn can_change(test: &str) -> bool {
    if !is_root() {
        not_run(test, "needs root (CAP_SYS_NICE)");
    }
    is_root()
}

#[test]
fn a_metric_that_is_none() {
    let held = holder(8, None);
    for metric in [
        "transactions",
        "cmd:",
        "gauge:cmd:true",
        "http://localhost/metrics",
        "mysql:localhost#no-such-name",
    ] {
        refused(&prove(&held.pid(), metric, &[]), 2, &[metric]);
    }
}

#[test]
fn a_metric_that_cannot_be_reached() {
    if !can_change("a_metric_that_cannot_be_reached") {
        return;
    }
    let held = holder(8, None);
    // Port 9 is the discard service, which no host here runs; no server has that socket.
    for (metric, word) in [
        ("redis:127.0.0.1:9", "127.0.0.1:9"),
        ("redis:/no/such.sock", "/no/such.sock"),
        ("postgres:host=/no/such/folder", "/no/such/folder"),
        ("mysql:/no/such.sock", "/no/such.sock"),
        ("http://127.0.0.1:9/metrics#up", "127.0.0.1:9"),
        ("cmd:exit 7", "7"),
        ("cmd:echo many", "many"),
    ] {
        refused(&prove(&held.pid(), metric, &[]), 3, &[word]);
    }
}

#[test]
fn a_metric_that_falls() {
    if !can_change("a_metric_that_falls") {
        return;
    }
    let held = holder(8, None);
    let falling = "cmd:echo $((10000000000000 - $(date +%s%N) / 1000000))";
    refused(&prove(&held.pid(), falling, &[]), 3, &["fell"]);
}

#[test]
fn a_metric_that_stands_still() {
    if !can_change("a_metric_that_stands_still") {
        return;
    }
    let held = holder(8, None);
    refused(&prove(&held.pid(), "cmd:echo 7", &[]), 3, &["stood still"]);
}

/// A result that cannot be written must be reported.
#[test]
fn a_full_disk_under_the_result_file() {
    if !can_change("a_full_disk_under_the_result_file") {
        return;
    }
    let held = holder(8, None);
    let rising = "cmd:date +%s%N";
    refused(
        &prove(
            &held.pid(),
            rising,
            &["--output", "/no/such/folder/result.json"],
        ),
        3,
        &["/no/such/folder"],
    );
    if !std::path::Path::new("/dev/full").exists() {
        return not_run("a_full_disk_under_the_result_file", "no /dev/full");
    }
    refused(
        &prove(&held.pid(), rising, &["--output", "/dev/full"]),
        3,
        &["/dev/full", "No space left"],
    );
}
