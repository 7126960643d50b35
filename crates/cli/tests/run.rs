//! Tests `hugeleaf run` on real programs: their environment, their exit statuses, messages for
//! programs that cannot load the library, and the library's location.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{
    ChildGuard, NOBODY, good, hugeleaf, is_root, not_run, public_copy, refused, repository, stderr,
    stdout, wait_until, works,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Returns `hugeleaf run` without environment variables that affect it.
fn run_command(args: &[&str]) -> Command {
    let mut command = hugeleaf(&["run"]);
    command.args(args);
    for name in ["LDR_CNTRL", "LARGE_PAGE_DATA", "LD_PRELOAD", "ASAN_OPTIONS"] {
        command.env_remove(name);
    }
    command
}

fn run(args: &[&str]) -> Output {
    run_command(args).output().unwrap()
}

/// Parses variables as env(1) prints them.
fn variables(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Returns the settings that a program finds.
fn settings(args: &[&str]) -> BTreeMap<String, String> {
    let output = run(&[args, &["--", "env"]].concat());
    let found = variables(&stdout(&output));
    let value = found.get("HUGELEAF_RUN").unwrap_or_else(|| {
        panic!("no settings; stderr:\n{}", stderr(&output));
    });
    value
        .split(';')
        .filter_map(|item| item.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// Returns the size of a full THP in bytes; `None` if the host has none.
fn pmd() -> Option<u64> {
    let text =
        std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").ok()?;
    text.trim().parse().ok()
}

/// Compiles a C program into `folder`; prints a reason and returns `None` without a compiler.
fn compiled(test: &str, folder: &Path, flags: &[&str]) -> Option<PathBuf> {
    let source = folder.join("program.c");
    std::fs::write(
        &source,
        "#include <stdio.h>\nint main(void) { puts(\"ran\"); return 5; }\n",
    )
    .unwrap();
    let binary = folder.join("program");
    let done = Command::new("cc")
        .arg("-o")
        .args([&binary, &source])
        .args(flags)
        .stderr(Stdio::null())
        .status();
    if done.is_ok_and(|status| status.success()) {
        return Some(binary);
    }
    not_run(test, &format!("cc cannot build with {flags:?}"));
    None
}

#[test]
fn a_program_finds_the_settings_and_nothing_is_said() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let output = run(&["--", "env"]);
    let found = variables(&good(&output));
    assert!(found["LD_PRELOAD"].contains("libhugeleaf_run"), "{found:?}");
    assert_eq!(found["ASAN_OPTIONS"], "verify_asan_link_order=0");
    let settings = settings(&[]);
    assert_eq!(settings["v"], "1");
    assert_eq!(settings["text"], "base");
    assert_eq!(settings["asked_data"], "auto");
    if let Some(pmd) = pmd() {
        assert_eq!(settings["pmd"], pmd.to_string());
        assert_eq!(settings["data"], "thp");
        assert_eq!(settings["data_after"], (16 * pmd).to_string());
    }
}

#[test]
fn flags_reach_the_program() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let Some(pmd) = pmd() else {
        return not_run("flags_reach_the_program", "no THP here");
    };
    let size = pmd.to_string();
    let found = settings(&[
        "--data",
        &size,
        "--shm",
        "base",
        "--stack",
        &size,
        "--text",
        &size,
        "--reserve",
        "1M",
        "--only",
        "postgres",
        "env",
    ]);
    assert_eq!(found["data"], "thp");
    assert_eq!(found["data_after"], size);
    assert_eq!(found["shm"], "base");
    assert_eq!(found["text"], "thp");
    // Applies to this program only, not to its children.
    assert_eq!(found["reserve"], "0".repeat("1048576".len()));
    assert_eq!(found["only"], "postgres:env");
    assert!(!found.contains_key("shm_after"), "{found:?}");
    let mandatory = settings(&["--shm", &format!("thp:{pmd}!")]);
    assert_eq!(mandatory["shm"], "thp,!");
}

#[test]
fn what_was_in_the_environment_stays() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let output = run_command(&["--", "env"])
        .env("LD_PRELOAD", "libm.so.6")
        .env("ASAN_OPTIONS", "abort_on_error=1")
        .output()
        .unwrap();
    let found = variables(&stdout(&output));
    assert!(found["LD_PRELOAD"].ends_with(".so:libm.so.6"), "{found:?}");
    assert_eq!(
        found["ASAN_OPTIONS"],
        "abort_on_error=1:verify_asan_link_order=0"
    );
}

/// The inner one takes effect, and the library is loaded once.
#[test]
fn run_under_run() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let own = env!("CARGO_BIN_EXE_hugeleaf");
    let output = run(&[
        "--data", "base", "--", own, "run", "--shm", "base", "--", "env",
    ]);
    let found = variables(&good(&output));
    assert_eq!(found["LD_PRELOAD"].matches("libhugeleaf_run").count(), 1);
    assert!(
        found["HUGELEAF_RUN"].contains("asked_data=auto;asked_shm=base"),
        "{found:?}"
    );
}

#[test]
fn it_becomes_the_program() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let mut child = run_command(&["--", "sh", "-c", "echo $$; exit 7"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    assert_eq!(said.trim(), child.id().to_string());
    assert_eq!(child.wait().unwrap().code(), Some(7));
    // Name and arguments stay as typed.
    let seen = good(&run(&["--", "cat", "/proc/self/cmdline"]));
    assert_eq!(seen, "cat\0/proc/self/cmdline\0");
}

#[test]
fn a_signal_that_ends_the_program_is_seen() {
    let _host = hugeleaf_testkit::host_lock::shared();
    for extra in [&[][..], &["--report", "-"]] {
        let output = run(&[extra, &["--", "sh", "-c", "kill -USR1 $$"]].concat());
        assert_eq!(output.status.signal(), Some(10), "{extra:?}: {output:?}");
    }
}

/// Service managers ignore SIGPIPE, and shells may block signals. The program must inherit that
/// state.
#[test]
fn signals_are_as_they_were() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let seen = |trap: &str, launcher: &str| {
        let script = format!("{trap} exec {launcher} grep -E 'Sig(Ign|Blk|Cgt)' /proc/self/status");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        stdout(&output)
    };
    let own = env!("CARGO_BIN_EXE_hugeleaf");
    for trap in [
        "",
        "trap '' PIPE;",
        "trap '' HUP USR1;",
        "trap '' PIPE HUP;",
    ] {
        for launcher in [
            format!("{own} run --"),
            format!("{own} run --report /dev/null --"),
        ] {
            assert_eq!(
                seen(trap, &launcher),
                seen(trap, "env"),
                "{trap} {launcher}"
            );
        }
    }
}

/// The C library catches signal 33 once a program has a second thread. hugeleaf has one if it reads a cgroup hierarchy that is mounted
/// outside `/sys`, where a file system may not answer.
#[test]
fn signals_of_the_c_library_stay_ignored() {
    const TEST: &str = "signals_of_the_c_library_stay_ignored";
    // Shells and coreutils cannot ignore these signals, because the C library refuses.
    const IGNORE: &str = "import ctypes, os, sys
number = {'x86_64': 13, 'aarch64': 134}[os.uname().machine]
action = (ctypes.c_size_t * 8)(1)
for signal in (32, 33):
    assert ctypes.CDLL(None).syscall(number, signal, action, None, ctypes.c_size_t(8)) == 0
os.execvp(sys.argv[1], sys.argv[1:])";
    const MOUNT: &str = "mount -t cgroup2 none \"$0\" && exec \"$@\"";
    let tools = ["python3", "unshare"].map(|name| hugeleaf_testkit::find_program(&[name]));
    let [Some(python), Some(unshare)] = tools else {
        return not_run(TEST, "needs python3 and unshare (util-linux)");
    };
    if !is_root() {
        return not_run(TEST, "needs root");
    }
    let _host = hugeleaf_testkit::host_lock::shared();
    let folder = tempfile::tempdir().unwrap();
    let ignored = |launcher: &[&str]| {
        let mut command = Command::new(&unshare);
        command.args(["-m", "sh", "-c", MOUNT]).arg(folder.path());
        command.arg(&python).args(["-c", IGNORE]).args(launcher);
        let output = command
            .args(["grep", "SigIgn", "/proc/self/status"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        stdout(&output)
    };
    let own = env!("CARGO_BIN_EXE_hugeleaf");
    let plain = ignored(&["env"]);
    let mask = plain.split_whitespace().last().unwrap();
    let mask = u64::from_str_radix(mask, 16).unwrap();
    assert_eq!(mask >> 31 & 3, 3, "{plain}");
    for launcher in [
        &[own, "run", "--"][..],
        &[own, "run", "--report", "/dev/null", "--"],
    ] {
        assert_eq!(ignored(launcher), plain, "{launcher:?}");
    }
}

#[test]
fn statuses_of_env() {
    let _host = hugeleaf_testkit::host_lock::shared();
    refused(
        &run(&["--", "no-such-program"]),
        127,
        &["no-such-program", "PATH"],
    );
    refused(
        &run(&["--", "/no/such/program"]),
        127,
        &["/no/such/program"],
    );
    refused(&run(&["--", "/"]), 126, &["is not a file"]);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::write(&data, "text").unwrap();
    refused(
        &run(&["--", data.to_str().unwrap()]),
        126,
        &["may not be run"],
    );
    for args in [
        &["--no-such-flag", "--", "true"][..],
        &["--data", "3M", "--", "true"],
        &["--data", "auto!", "--", "true"],
        &["--numa", "everywhere", "--", "true"],
        &["--only", "/bin/sh", "--", "true"],
        &["--json", "--", "true"],
        &["--root", "/somewhere", "--", "true"],
        &[],
    ] {
        refused(&run(args), 125, &[]);
    }
}

/// Existing files that cannot be executed give the status of env(1).
#[test]
fn files_that_the_kernel_refuses() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let dir = tempfile::tempdir().unwrap();
    let broken = dir.path().join("broken");
    std::fs::write(&broken, b"\x7fELF\x02\x01\x01\0nothing").unwrap();
    std::fs::set_permissions(&broken, Permissions::from_mode(0o755)).unwrap();
    let flag = "-Wl,--dynamic-linker=/no/such/ld-linux.so.2";
    let lost = compiled("files_that_the_kernel_refuses", dir.path(), &[flag]);
    for path in [Some(broken), lost].into_iter().flatten() {
        let path = path.to_str().unwrap();
        let status = Command::new("env").arg(path).output().unwrap().status;
        assert_eq!(run(&["--", path]).status.code(), status.code(), "{path}");
    }
}

#[test]
fn what_must_be_had_and_is_not_is_refused() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let Some(pmd) = pmd() else {
        return not_run("what_must_be_had_and_is_not_is_refused", "no THP here");
    };
    let larger = format!("thp:{}!", pmd * 2);
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("mark");
    let touch = ["--", "touch", mark.to_str().unwrap()];
    let output = run(&[&["--data", &larger], &touch[..]].concat());
    refused(&output, 125, &["--data", "is required"]);
    let output = run(&[&["--reserve", "1024T"], &touch[..]].concat());
    refused(&output, 125, &["--reserve", "available"]);
    let output = run(&[&["--numa", "bind=1023"], &touch[..]].concat());
    refused(&output, 125, &["1023", "name nodes that it has: 0"]);
    assert!(!mark.exists(), "the program ran all the same");
}

#[test]
fn nodes_that_there_are() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !Path::new("/sys/devices/system/node/node0").exists() {
        return not_run("nodes_that_there_are", "this kernel has no NUMA");
    }
    // The program's own maps show the policy.
    let text = good(&run(&[
        "--numa",
        "bind=0",
        "--",
        "cat",
        "/proc/self/numa_maps",
    ]));
    assert!(text.lines().all(|line| line.contains("bind:0")), "{text}");
    let text = good(&run(&[
        "--numa",
        "prefer=0",
        "--",
        "cat",
        "/proc/self/numa_maps",
    ]));
    assert!(
        text.contains("prefer:0") || text.contains("prefer=0"),
        "{text}"
    );
}

/// An unavailable page kind prints one line with reason and remedy, and the program runs.
#[test]
fn what_is_known_not_to_be_had_is_one_line() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let Some(pmd) = pmd() else {
        return not_run("what_is_known_not_to_be_had_is_one_line", "no THP here");
    };
    let larger = (pmd * 2).to_string();
    let output = run(&["--data", &larger, "--stack", &larger, "--", "echo", "ran"]);
    assert_eq!(stdout(&output), "ran\n");
    assert_eq!(output.status.code(), Some(0));
    let said = stderr(&output);
    assert_eq!(said.lines().count(), 1, "{said}");
    for word in [
        "hugeleaf: run: --data",
        "--stack",
        "is unavailable, because",
        "next: ",
    ] {
        assert!(said.contains(word), "'{word}' is missing in: {said}");
    }
}

#[test]
fn ldr_cntrl_by_flag_and_by_variable() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let text = "TEXTPSIZE=4K@STACKPSIZE=4K@SHMPSIZE=4K@LARGE_PAGE_DATA=N";
    let expected = "LDR_CNTRL        VALUE  FLAG\n\
                    TEXTPSIZE           4K  --text base\n\
                    STACKPSIZE          4K  --stack base\n\
                    SHMPSIZE            4K  --shm base\n\
                    LARGE_PAGE_DATA      N  --data base\n";
    let by_flag = run(&["--ldr-cntrl", text, "--", "env"]);
    assert_eq!(stderr(&by_flag), expected);
    let by_variable = run_command(&["--", "env"])
        .env("LDR_CNTRL", text)
        .output()
        .unwrap();
    assert_eq!(stderr(&by_variable), expected);
    let found = variables(&stdout(&by_variable));
    assert!(found["HUGELEAF_RUN"].contains(";data=base;shm=base;stack=base;text=base;"));
    // A flag takes precedence, and the table says so.
    let beaten = run(&["--data", "auto", "--ldr-cntrl", text, "--", "env"]);
    assert!(
        stderr(&beaten).contains("--data auto (the flag)"),
        "{}",
        stderr(&beaten)
    );
    assert!(variables(&stdout(&beaten))["HUGELEAF_RUN"].contains("asked_data=auto"));
    // The flag replaces the variables.
    let replaced = run_command(&["--ldr-cntrl", "", "--", "true"])
        .env("LDR_CNTRL", "nonsense")
        .output()
        .unwrap();
    good(&replaced);
}

#[test]
fn ldr_cntrl_that_is_refused() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let with = |name: &str, value: &str| {
        run_command(&["--", "true"])
            .env(name, value)
            .output()
            .unwrap()
    };
    refused(
        &with("LDR_CNTRL", "DATAPSIZE=16M@LARGE_PAGE_DATA=Y"),
        125,
        &["DATAPSIZE", "LARGE_PAGE_DATA"],
    );
    refused(
        &with("LDR_CNTRL", "MAXDATA=0x80000000"),
        125,
        &["MAXDATA", "STACKPSIZE", "SHMPSIZE"],
    );
    refused(
        &with("LDR_CNTRL", "DATAPSIZE=2M"),
        125,
        &["DATAPSIZE=2M", "4K, 64K, 16M, 16G"],
    );
    refused(
        &with("LARGE_PAGE_DATA", "maybe"),
        125,
        &["LARGE_PAGE_DATA=maybe"],
    );
    let both = run_command(&["--", "true"])
        .env("LDR_CNTRL", "DATAPSIZE=64K")
        .env("LARGE_PAGE_DATA", "Y")
        .output()
        .unwrap();
    refused(&both, 125, &["DATAPSIZE", "LARGE_PAGE_DATA"]);
}

/// It runs, and one line names the missing features and the remaining options.
#[test]
fn a_static_program() {
    let _host = hugeleaf_testkit::host_lock::shared();
    const TEST: &str = "a_static_program";
    let dir = tempfile::tempdir().unwrap();
    let Some(binary) = compiled(TEST, dir.path(), &["-static"]) else {
        return;
    };
    let binary = binary.to_str().unwrap();
    let output = run(&["--", binary]);
    assert_eq!(
        (stdout(&output).as_str(), output.status.code()),
        ("ran\n", Some(5))
    );
    let said = stderr(&output);
    assert_eq!(said.lines().count(), 1, "{said}");
    for word in [binary, "statically", "hugeleaf promote "] {
        assert!(said.contains(word), "'{word}' is missing in: {said}");
    }
    // `--only` excludes it, so there is no message.
    let output = run(&["--only", "another", "--", binary]);
    assert_eq!(stderr(&output), "");
    if let Some(pmd) = pmd() {
        let must = format!("thp:{pmd}!");
        refused(
            &run(&["--shm", &must, "--", binary]),
            125,
            &["statically", "is required"],
        );
    }
}

/// A script is judged by its interpreter.
#[test]
fn a_script_of_a_static_interpreter() {
    let _host = hugeleaf_testkit::host_lock::shared();
    const TEST: &str = "a_script_of_a_static_interpreter";
    let dir = tempfile::tempdir().unwrap();
    let Some(binary) = compiled(TEST, dir.path(), &["-static"]) else {
        return;
    };
    let script = dir.path().join("script");
    std::fs::write(&script, format!("#!{}\n", binary.display())).unwrap();
    std::fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let output = run(&["--", script.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(5));
    assert!(
        stderr(&output).contains("statically"),
        "{}",
        stderr(&output)
    );
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    refused(
        &run(&["--", script.to_str().unwrap()]),
        126,
        &["/no/such/interpreter"],
    );
    std::fs::write(&script, "echo by the shell\n").unwrap();
    assert_eq!(
        good(&run(&["--", script.to_str().unwrap()])),
        "by the shell\n"
    );
}

/// A program whose loader has musl's name gets no LD_PRELOAD.
#[test]
fn a_program_of_another_libc() {
    let _host = hugeleaf_testkit::host_lock::shared();
    const TEST: &str = "a_program_of_another_libc";
    let Some(loader) = own_loader() else {
        return not_run(TEST, "the loader of this libc is not known");
    };
    let dir = tempfile::tempdir().unwrap();
    let musl = dir.path().join("ld-musl-test.so.1");
    symlink(&loader, &musl).unwrap();
    let flag = format!("-Wl,--dynamic-linker={}", musl.display());
    let Some(binary) = compiled(TEST, dir.path(), &[&flag]) else {
        return;
    };
    let output = run(&["--", binary.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(5));
    assert!(
        stderr(&output).contains("ld-musl-test.so.1"),
        "{}",
        stderr(&output)
    );
    let shown = good(&run(&["--dry-run", "--", binary.to_str().unwrap()]));
    assert!(!shown.contains("LD_PRELOAD"), "{shown}");
    assert!(shown.contains("HUGELEAF_RUN=v=1"), "{shown}");
}

/// Returns the loader of the shell.
fn own_loader() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    let mut loaders = paths.filter(|path| path.contains("/ld-"));
    loaders.next().map(PathBuf::from)
}

#[test]
fn a_program_with_the_address_sanitizer() {
    let _host = hugeleaf_testkit::host_lock::shared();
    const TEST: &str = "a_program_with_the_address_sanitizer";
    let dir = tempfile::tempdir().unwrap();
    let Some(binary) = compiled(TEST, dir.path(), &["-fsanitize=address"]) else {
        return;
    };
    let output = run(&["--", binary.to_str().unwrap()]);
    assert_eq!(
        (stdout(&output).as_str(), output.status.code()),
        ("ran\n", Some(5))
    );
    let said = stderr(&output);
    assert!(
        said.lines().count() == 1 && said.contains("sanitizer"),
        "{said}"
    );
    // Started by another program it inherits the library, and still starts.
    let script = format!("{}; exit $?", binary.display());
    let output = run(&["--", "sh", "-c", &script]);
    assert_eq!(
        (stdout(&output).as_str(), output.status.code()),
        ("ran\n", Some(5)),
        "{output:?}"
    );
}

#[test]
fn nothing_is_loaded_into_setuid_programs() {
    let _host = hugeleaf_testkit::host_lock::shared();
    const TEST: &str = "nothing_is_loaded_into_setuid_programs";
    if !is_root() {
        return not_run(TEST, "needs root to give a file away");
    }
    let dir = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o755))
        .tempdir()
        .unwrap();
    let copy = dir.path().join("env");
    assert!(
        Command::new("cp")
            .args(["/usr/bin/env".as_ref(), copy.as_path()])
            .status()
            .unwrap()
            .success()
    );
    chown(&copy, Some(NOBODY), None).unwrap();
    std::fs::set_permissions(&copy, Permissions::from_mode(0o4755)).unwrap();
    let output = run(&["--", copy.to_str().unwrap()]);
    assert!(output.status.success());
    assert!(
        !stdout(&output).contains("LD_PRELOAD"),
        "{}",
        stdout(&output)
    );
    let said = stderr(&output);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("setuid") && said.contains("hugeleaf promote"),
        "{said}"
    );
}

#[test]
fn dry_run_starts_nothing_and_shows_all() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("mark");
    let args = [
        "--dry-run",
        "--shm",
        "base",
        "--",
        "touch",
        mark.to_str().unwrap(),
    ];
    let text = good(&run(&args));
    assert!(!mark.exists());
    for word in [
        "HUGELEAF_RUN=v=1;",
        "LD_PRELOAD=/",
        "ROLE",
        "unchanged",
        "asked_shm=base",
    ] {
        assert!(text.contains(word), "'{word}' is missing in:\n{text}");
    }
    let json: Value =
        serde_json::from_str(&good(&run(&[&["--json"], &args[..]].concat()))).unwrap();
    assert_eq!(json["schema"], 2);
    assert_eq!(json["command"][0], "touch");
    let shm = json["roles"]
        .as_array()
        .unwrap()
        .iter()
        .find(|r| r["role"] == "shm")
        .unwrap();
    assert_eq!(shm["asked"], "base");
    assert_eq!(shm["tries"], serde_json::json!([]));
    assert!(json["environment"]["HUGELEAF_RUN"].is_string());
    assert!(!mark.exists());
}

/// A policy can be tried on a captured host.
#[test]
fn dry_run_on_a_captured_host() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let dry = |fixture: &str, args: &[&str]| {
        let root = repository().join("fixtures").join(fixture);
        let args = [
            &["--dry-run", "--root", root.to_str().unwrap()],
            args,
            &["--", "server"],
        ];
        run_command(&args.concat())
            .env("HUGELEAF_RUN_LIBRARY", env!("CARGO_BIN_EXE_hugeleaf"))
            .output()
            .unwrap()
    };
    let text = good(&dry("arm64-64k", &[]));
    assert!(text.contains("base=65536;pmd=536870912"), "{text}");
    let text = good(&dry("neither-kind", &["--data", "2M"]));
    assert!(
        text.contains("this kernel has no transparent huge pages"),
        "{text}"
    );
    refused(
        &dry("neither-kind", &["--data", "2M!"]),
        125,
        &["is required"],
    );
    let text = good(&dry("no-thp", &[]));
    assert!(
        text.contains(";data=base;") && !text.contains("pmd="),
        "{text}"
    );
}

#[test]
fn a_library_of_ones_own() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let with = |path: &str| {
        run_command(&["--", "env"])
            .env("HUGELEAF_RUN_LIBRARY", path)
            .output()
            .unwrap()
    };
    refused(&with("relative.so"), 125, &["relative.so", "absolute path"]);
    refused(&with("/no/such/library.so"), 125, &["/no/such/library.so"]);
    refused(&with("/"), 125, &["is not a file"]);
    let dir = tempfile::tempdir().unwrap();
    for name in ["with blank.so", "with:colon.so"] {
        let path = dir.path().join(name);
        std::fs::write(&path, "").unwrap();
        refused(&with(path.to_str().unwrap()), 125, &["blank or a colon"]);
    }
}

/// Runs a script as root in a private mount namespace with an empty /var/cache; XDG_CACHE_HOME is a
/// folder there that belongs to nobody. Prints a reason and returns `None` if unavailable.
fn with_empty_cache(test: &str, script: &str) -> Option<Output> {
    let whole = format!(
        "mount -t tmpfs -o mode=755 none /var/cache && mkdir /var/cache/nobody && \
         chown {NOBODY} /var/cache/nobody && echo ready && {script}"
    );
    let (_dir, binary) = public_copy();
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &whole, "sh"])
        .arg(&binary)
        .env_remove("LD_PRELOAD")
        .env("XDG_CACHE_HOME", "/var/cache/nobody")
        .env(
            "NOBODY",
            format!("setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups"),
        )
        .current_dir("/")
        .output();
    match output {
        Ok(output) if stdout(&output).starts_with("ready\n") => Some(output),
        Ok(output) => {
            not_run(test, &format!("no mount namespace: {}", stderr(&output)));
            None
        }
        Err(error) => {
            not_run(test, &format!("unshare: {error}"));
            None
        }
    }
}

#[test]
fn root_keeps_the_library_for_everybody() {
    let _host = hugeleaf_testkit::host_lock::shared();
    const TEST: &str = "root_keeps_the_library_for_everybody";
    let script = "umask 077; $1 run -- env && stat -c 'mode=%a owner=%u' /var/cache/hugeleaf \
                  /var/cache/hugeleaf/* && $NOBODY $1 run -- env && ls /var/cache/nobody | wc -l";
    let Some(output) = with_empty_cache(TEST, script) else {
        return;
    };
    let text = good(&output);
    assert_eq!(
        text.matches("LD_PRELOAD=/var/cache/hugeleaf/libhugeleaf_run-")
            .count(),
        2,
        "{text}"
    );
    assert!(
        text.contains("mode=755 owner=0\nmode=644 owner=0\n"),
        "{text}"
    );
    assert!(
        text.ends_with("\n0\n"),
        "the user wrote a copy of its own:\n{text}"
    );
}

#[test]
fn where_a_user_keeps_the_library() {
    let _host = hugeleaf_testkit::host_lock::shared();
    const TEST: &str = "where_a_user_keeps_the_library";
    let script = "$NOBODY $1 run -- env && cd /var/cache/nobody/hugeleaf && stat -c 'mode=%a' . *";
    let Some(output) = with_empty_cache(TEST, script) else {
        return;
    };
    let text = good(&output);
    assert!(
        text.contains("LD_PRELOAD=/var/cache/nobody/hugeleaf/libhugeleaf_run-"),
        "{text}"
    );
    assert!(text.ends_with("mode=700\nmode=644\n"), "{text}");
    // Uses HOME if there is no folder for caches.
    let script = "unset XDG_CACHE_HOME; export HOME=/var/cache/nobody; $NOBODY $1 run -- env";
    let text = good(&with_empty_cache(TEST, script).unwrap());
    assert!(
        text.contains("LD_PRELOAD=/var/cache/nobody/.cache/hugeleaf/"),
        "{text}"
    );
}

/// A user who could change the file would run code in every program.
#[test]
fn a_place_that_others_can_change_is_refused() {
    let _host = hugeleaf_testkit::host_lock::shared();
    const TEST: &str = "a_place_that_others_can_change_is_refused";
    for (prepare, words) in [
        ("chmod 777 /var/cache/nobody", "other users can change"),
        (
            "mkdir -m 777 /var/cache/nobody/hugeleaf",
            "other users can change",
        ),
        ("export XDG_CACHE_HOME=/tmp", "other users can change"),
        ("chown 0 /var/cache/nobody", "Permission denied"),
        (
            "unset XDG_CACHE_HOME HOME",
            "neither XDG_CACHE_HOME nor HOME",
        ),
        (
            "mount -t tmpfs -o noexec,mode=700,uid=65534 none /var/cache/nobody",
            "noexec",
        ),
    ] {
        let script = format!("{prepare}; $NOBODY $1 run -- echo ran");
        let Some(output) = with_empty_cache(TEST, &script) else {
            return;
        };
        refused(&output, 125, &[words, "HUGELEAF_RUN_LIBRARY"]);
        assert!(!stdout(&output).contains("ran"), "{prepare}");
    }
}

/// Starts a launcher that waits for a report, and the program under it.
fn launched(script: &str) -> (ChildGuard, Pid) {
    use std::os::unix::process::CommandExt;
    let mut child = run_command(&["--report", "/dev/null", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        // A separate group, because SIGTSTP has no effect in a group without a shell.
        .process_group(0)
        .spawn()
        .unwrap();
    let mut ready = [0u8; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    assert_eq!(&ready, b"ready\n");
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    (ChildGuard(child), pid)
}

/// Returns true if this process, and thus its children, ignores a signal (`SigIgn` of proc(5)).
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .unwrap();
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    mask >> (signal.as_raw() - 1) & 1 == 1
}

#[test]
fn with_a_report_signals_are_passed_on() {
    let _host = hugeleaf_testkit::host_lock::shared();
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::WINCH, "WINCH"),
    ] {
        if is_ignored(signal) {
            // A shell cannot trap a signal that was ignored at its start (nohup, a background job).
            not_run(
                &format!("the part of with_a_report_signals_are_passed_on with {name}"),
                "it is ignored here",
            );
            continue;
        }
        let script = format!("trap 'exit 9' {name}; echo ready; while :; do sleep 0.01; done");
        let (mut launcher, pid) = launched(&script);
        kill_process(pid, signal).unwrap();
        assert_eq!(launcher.0.wait().unwrap().code(), Some(9), "{name}");
    }
}

/// The launcher of a stopped job is seen as stopped, and both continue together.
#[test]
fn with_a_report_it_stops_with_the_program() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let (mut launcher, pid) = launched("echo ready; while :; do sleep 0.01; done");
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", launcher.pid())).unwrap();
        stat.rsplit(')').next().unwrap().trim().chars().next()
    };
    kill_process(pid, Signal::TSTP).unwrap();
    wait_until("the launcher is stopped", || state() == Some('T'));
    kill_process(pid, Signal::CONT).unwrap();
    wait_until("the launcher goes on", || state() != Some('T'));
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(launcher.0.wait().unwrap().signal(), Some(15));
}

#[test]
fn with_a_report_statuses_are_the_programs() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let status = |args: &[&str]| {
        run(&[&["--report", "/dev/null", "--"], args].concat())
            .status
            .code()
    };
    assert_eq!(status(&["sh", "-c", "exit 42"]), Some(42));
    assert_eq!(status(&["true"]), Some(0));
    assert_eq!(status(&["no-such-program"]), Some(127));
    assert_eq!(status(&["/"]), Some(126));
}

/// Children of the program inherit the policy.
#[test]
fn children_inherit_the_policy() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let output = run(&["--data", "base", "--", "sh", "-c", "sh -c env; true"]);
    let found = variables(&good(&output));
    assert!(
        found["HUGELEAF_RUN"].contains("asked_data=base"),
        "{found:?}"
    );
    assert!(works("true", &[]));
}

/// Fills a database, queries it, and prints the answer and the names of its own threads.
const PYTHON: &str = "\
import glob, sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute('CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, text TEXT)')
rows = ((None, '%0200d' % n) for n in range(50000))
database.executemany('INSERT INTO t VALUES (?, ?)', rows)
database.commit()
print(*database.execute('SELECT count(*), sum(id) FROM t WHERE text > 0').fetchone())
print(*(open(name).read().strip() for name in glob.glob('/proc/self/task/*/comm')))
";

#[test]
fn sqlite_of_a_program_gets_one_cache() {
    let _host = hugeleaf_testkit::host_lock::shared();
    const TEST: &str = "sqlite_of_a_program_gets_one_cache";
    let works = Command::new("python3")
        .args(["-c", "import sqlite3"])
        .output();
    if !works.is_ok_and(|output| output.status.success()) {
        return not_run(TEST, "no python3 with sqlite3");
    }
    let folder = tempfile::tempdir().unwrap();
    let answer = |name: &str, flags: &[&str]| {
        let file = folder.path().join(name);
        let program = ["--", "python3", "-c", PYTHON, file.to_str().unwrap()];
        good(&run(&[flags, &program].concat()))
    };
    let (ours, own) = (answer("ours", &["--sqlite", "64M"]), answer("own", &[]));
    let rows = |text: &str| text.lines().next().map(str::to_owned);
    assert_eq!(rows(&ours), Some("50000 1250025000".to_owned()), "{ours}");
    assert_eq!(rows(&ours), rows(&own));
    // The thread that divides memory among databases; the kernel truncates its name to 15 bytes.
    assert!(ours.contains("hugeleaf-manage"), "{ours}");
    assert!(!own.contains("hugeleaf-manage"), "{own}");
    let small = run(&["--sqlite", "1M", "--", "true"]);
    refused(&small, 125, &["--sqlite 1M is too small", "--sqlite 2G"]);
    let large = run(&["--sqlite", "900T", "--", "true"]);
    refused(&large, 125, &["--sqlite 900T exceeds the", "give less"]);
    let dry = good(&run(&["--dry-run", "--sqlite", "64M", "--", "true"]));
    assert!(dry.contains("HUGELEAF_SQLITE=67108864;"), "{dry}");
}
