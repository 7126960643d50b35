//! Tests `hugeleaf warm`: files on a hugetlbfs of this host's pool, memory on trial, shortages and signals.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hugeleaf_host::{Host, Root, pool_file, read_memory_facts};
use hugeleaf_sys::Kernel;
use hugeleaf_testkit::host_lock::{self, ExclusiveHost};
use hugeleaf_units::{PageSize, Pages};
use serde_json::Value;

use crate::common::{HUGELEAF, answered, good, hugeleaf, not_run, refused, run};

/// Pages of the test's pool.
const POOL: u64 = 16;

/// This host alone, with a pool of the default size.
struct PoolHost {
    alone: ExclusiveHost,
    page: PageSize,
    folder: tempfile::TempDir,
}

fn facts() -> Host {
    read_memory_facts(&Root::live(), &Kernel::new()).unwrap()
}

impl PoolHost {
    fn new(test: &str) -> Option<PoolHost> {
        let alone = host_lock::alone_as_root(test)?;
        let Some(page) = facts().memory.default_hugetlb_page.get() else {
            not_run(test, "this kernel has no hugetlb");
            return None;
        };
        let file = pool_file(page, None, "nr_hugepages");
        alone.set(&file, POOL);
        if facts().pool(page).map(|pool| pool.available()) != Some(Pages(POOL)) {
            not_run(test, "the pool cannot be filled");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        Some(PoolHost {
            alone,
            page,
            folder,
        })
    }

    fn size(&self, pages: u64) -> String {
        format!("{:#}", Pages(pages).in_bytes(self.page))
    }

    fn mount(&self) -> PathBuf {
        self.folder.path().join("huge")
    }

    /// Runs commands in a mount namespace with a hugetlbfs at [`PoolHost::mount`], which `HUGE` names.
    fn shell(&self, options: &str, commands: &str) -> Output {
        let mount = self.mount();
        std::fs::create_dir_all(&mount).unwrap();
        let script = format!("mount -t hugetlbfs {options} none \"$HUGE\" || exit 99\n{commands}");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        command.env("HUGE", &mount).env("HUGELEAF", HUGELEAF);
        command
            .env("HUGELEAF_TEST_PROGRESS", "1d")
            .output()
            .unwrap()
    }

    fn free(&self) -> Option<Pages> {
        facts().pool(self.page).and_then(|pool| pool.free.get())
    }
}

fn json(output: &Output) -> Value {
    let text = answered(output);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn a_new_file_is_filled_and_kept() {
    let Some(host) = PoolHost::new("a_new_file_is_filled_and_kept") else {
        return;
    };
    let size = host.size(8);
    // The rest of the pool holds a second file as a whole, and the first one again.
    let out = host.shell(
        "",
        &format!(
            "\"$HUGELEAF\" warm \"$HUGE/cache\" --size {size} --json || exit 1\n\
             \"$HUGELEAF\" warm \"$HUGE/cache\" >&2 || exit 2\n\
             stat -c %b,%s,%a \"$HUGE/cache\" >&2"
        ),
    );
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{text}");
    let answer: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(answer["good"], true, "{answer:#}");
    let wanted = Pages(8).in_bytes(host.page).get();
    assert_eq!(answer["pages"][0]["got_bytes"], wanted, "{answer:#}");
    let nodes = answer["nodes"].as_array().unwrap();
    let sum: u64 = nodes
        .iter()
        .map(|node| node["bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(sum, wanted, "{answer:#}");
    assert!(text.contains("on the requested pages."), "{text}");
    let stat = format!("{},{wanted},600", wanted / 512);
    assert!(text.contains(&stat), "all pages are there: {text}");
}

#[test]
fn a_shortage_is_an_answer_and_leaves_no_file() {
    let Some(host) = PoolHost::new("a_shortage_is_an_answer_and_leaves_no_file") else {
        return;
    };
    let size = host.size(POOL + 1);
    let out = host.shell(
        "",
        &format!(
            "\"$HUGELEAF\" warm \"$HUGE/cache\" --size {size} --json; echo $? >&2; ls \"$HUGE\" >&2"
        ),
    );
    assert_eq!(
        String::from_utf8_lossy(&out.stderr),
        "1\n",
        "no file is left"
    );
    let answer: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(answer["can_take"], false);
    assert_eq!(answer["decides"]["id"], "free");
    assert_eq!(answer["decides"]["short_bytes"], host.page.bytes().get());
    assert_eq!(host.free(), Some(Pages(POOL)), "no page was touched");
}

#[test]
fn the_limit_of_the_mount_decides() {
    let Some(host) = PoolHost::new("the_limit_of_the_mount_decides") else {
        return;
    };
    let (limit, half, size) = (host.size(8), host.size(4), host.size(6));
    let out = host.shell(
        &format!("-o size={limit}"),
        &format!(
            "\"$HUGELEAF\" warm \"$HUGE/a\" --size {half} >&2 || exit 2\n\
             \"$HUGELEAF\" warm \"$HUGE/b\" --size {size} --json; echo $?"
        ),
    );
    let text = String::from_utf8_lossy(&out.stdout);
    let text = text.trim_end();
    let (answer, status) = text.rsplit_once('\n').unwrap();
    let answer: Value = serde_json::from_str(answer).unwrap();
    assert_eq!(status, "1");
    assert_eq!(answer["decides"]["id"], "mount-size", "{answer:#}");
    let short = Pages(2).in_bytes(host.page).get();
    assert_eq!(answer["decides"]["short_bytes"], short, "{answer:#}");
}

#[test]
fn a_trial_takes_pool_pages_and_returns_them() {
    let Some(host) = PoolHost::new("a_trial_takes_pool_pages_and_returns_them") else {
        return;
    };
    let nodes = facts().nodes.len() as u64;
    let size = host.size(POOL / nodes * nodes);
    let ladder = format!("hugetlb:{}", host.page);
    let flags = [
        "warm",
        "--size",
        &size,
        "--sizes",
        &ladder,
        "--node-each",
        "--json",
    ];
    let answer = json(&run(&flags));
    assert_eq!(answer["good"], true, "{answer:#}");
    let pages = answer["pages"].as_array().unwrap();
    assert!(
        pages.iter().all(|row| row["kind"] == "hugetlb"),
        "{answer:#}"
    );
    assert!(
        pages
            .iter()
            .all(|row| row["wanted_bytes"] == row["got_bytes"]),
        "{answer:#}"
    );
    assert_eq!(host.free(), Some(Pages(POOL)));
    // Reserved by another program meanwhile: not enough for all of it.
    host.alone
        .set(pool_file(host.page, None, "nr_hugepages"), 1);
    let refused = json(&run(&flags));
    assert_eq!(refused["decides"]["id"], "free", "{refused:#}");
}

/// With THP off, memory would be on base pages. That is refused, or found.
#[test]
fn base_pages_are_never_called_huge() {
    let Some(host) = host_lock::alone_as_root("base_pages_are_never_called_huge") else {
        return;
    };
    let Some(page) = facts().pmd_page.get() else {
        return not_run("base_pages_are_never_called_huge", "this kernel has no THP");
    };
    let (size, ladder) = (format!("{:#}", page.bytes() * 4), format!("thp:{page}"));
    let flags = ["warm", "--size", &size, "--sizes", &ladder, "--json"];
    host.set(Path::new(host_lock::THP).join("enabled"), "madvise");
    let answer = json(&run(&flags));
    assert_eq!(answer["good"], true, "{answer:#}");
    host.set(Path::new(host_lock::THP).join("enabled"), "never");
    let out = run(&flags);
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(json(&out)["decides"]["id"], "page-size");
    // The same for a process for which THP is off, as some launchers do.
    host.set(Path::new(host_lock::THP).join("enabled"), "madvise");
    let python = "import ctypes, os, sys; ctypes.CDLL(None).prctl(41, 1, 0, 0, 0); \
                  os.execv(sys.argv[1], sys.argv[1:])";
    let mut command = Command::new("python3");
    command.args(["-c", python, HUGELEAF]).args(flags);
    let Ok(out) = command.output() else {
        return not_run("base_pages_are_never_called_huge", "no python3");
    };
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    let answer = json(&out);
    assert_eq!(
        (&answer["good"], &answer["pages"][0]["got_bytes"]),
        (&false.into(), &0.into())
    );
}

#[test]
fn wrong_files_and_flags_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "text").unwrap();
    let file = file.to_str().unwrap();
    let missing = folder.path().join("missing");
    let missing = missing.to_str().unwrap();
    for (flags, status, words) in [
        (&["warm"][..], 2, "--size"),
        (&["warm", file], 2, "not a file of a hugetlbfs"),
        (&["warm", missing], 2, "no such file"),
        (
            &["warm", missing, "--size", "2M"],
            2,
            "not a file of a hugetlbfs",
        ),
        (&["warm", missing, "--size", "0"], 2, "nothing to populate"),
        (
            &["warm", missing, "--size", "2M", "--sizes", "2M"],
            2,
            "--sizes",
        ),
        (&["warm", "--size", "0"], 2, "nothing to judge"),
        (
            &["warm", "--size", "2M", "--threads", "0"],
            2,
            "number of threads",
        ),
        (&["warm", "--size", "2M", "--node", "999"], 2, "no node 999"),
        (&["warm", "--size", "2M", "--root", "/tmp"], 2, "--root"),
    ] {
        refused(&run(flags), status, &[words]);
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), "text");
    assert!(!Path::new(missing).exists());
}

#[test]
fn a_signal_ends_it_and_removes_the_file() {
    let test = "a_signal_ends_it_and_removes_the_file";
    let Some(host) = PoolHost::new(test) else {
        return;
    };
    // SIGSTOP makes sure that the signal arrives before the end: the command sees it as soon as it continues.
    let size = host.size(POOL);
    let out = host.shell(
        "",
        &format!(
            "\"$HUGELEAF\" warm \"$HUGE/cache\" --size {size} --threads 1 --json & pid=$!\n\
             while [ ! -e \"$HUGE/cache\" ] && kill -0 $pid 2>/dev/null; do :; done\n\
             kill -STOP $pid; kill -TERM $pid; kill -CONT $pid; wait $pid; echo $? >&2; ls \"$HUGE\" >&2"
        ),
    );
    let answer: Value = serde_json::from_slice(&out.stdout).unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    match answer["stopped"].as_bool() {
        Some(true) => assert_eq!(text, "1\n", "the file was removed: {answer:#}"),
        // It was faster than the signal.
        _ => assert_eq!(text, "0\ncache\n", "{answer:#}"),
    }
    assert_eq!(
        host.free(),
        Some(Pages(POOL)),
        "the pages are back with the mount"
    );
}

#[test]
fn help_names_its_statuses() {
    let help = good(&hugeleaf(&["warm", "--help"]).output().unwrap());
    assert!(
        help.contains("Exit status: 0 all memory is on the requested pages"),
        "{help}"
    );
}
