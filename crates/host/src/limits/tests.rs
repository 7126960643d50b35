use std::io::ErrorKind;
use std::path::Path;

use hugeleaf_testkit::cgroup::MemoryCgroup;
use hugeleaf_testkit::process::{holder, rerun_test, works};
use hugeleaf_testkit::{eventually, is_root, not_run};
use hugeleaf_units::Bytes;

use super::cgroup_paths::in_hierarchy;
use super::*;
use crate::model::HugetlbLimitKind;
use proptest::prelude::*;

fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
    let (dir, root) = crate::testing::host(files);
    std::fs::create_dir_all(dir.path().join("sys/kernel/mm/hugepages/hugepages-2048kB")).unwrap();
    (dir, root)
}

fn two_mib() -> PageSize {
    "2M".parse().unwrap()
}

fn hugetlb(limits: &ProcessMemoryLimits) -> Vec<&str> {
    limits
        .hugetlb
        .iter()
        .map(|cgroup| cgroup.path.as_str())
        .collect()
}

/// Returns the paths with memory limits, and the room below each if its page cache is reclaimed.
fn memory(limits: &[MemoryLimit]) -> Vec<(&str, u64)> {
    let one = |l: &'_ MemoryLimit| l.room_at_most().get();
    limits.iter().map(|l| (l.path.as_str(), one(l))).collect()
}

#[test]
fn those_of_a_process_and_those_above_it() {
    let files = [
        ("proc/self/mounts", "cgroup2 /cg cgroup2 rw 0 0\n"),
        ("proc/7/cgroup", "0::/a/b\n"),
        (
            "proc/7/limits",
            "Max locked memory         8388608   8388608   bytes\n",
        ),
        ("cg/cgroup.controllers", "hugetlb memory\n"),
        ("cg/cgroup.subtree_control", "hugetlb memory\n"),
        ("cg/a/cgroup.subtree_control", "hugetlb memory\n"),
        ("cg/a/hugetlb.2MB.max", "2097152\n"),
        ("cg/a/hugetlb.2MB.events", "max 3\n"),
        ("cg/a/memory.max", "1000\n"),
        ("cg/a/memory.high", "950\n"),
        ("cg/a/memory.current", "900\n"),
        ("cg/a/memory.stat", "inactive_file 50\nactive_file 20\n"),
        ("cg/a/b/hugetlb.2MB.max", "4194304\n"),
        ("cg/a/b/hugetlb.2MB.rsvd.max", "max\n"),
        ("cg/a/b/memory.max", "2000\n"),
        ("cg/a/b/memory.current", "800\n"),
        ("cg/a/c/hugetlb.2MB.max", "6291456\n"),
        ("cg/a/c/memory.max", "max\n"),
        // The controller is not delegated to this cgroup, so its file is a remnant.
        ("cg/a/c/d/hugetlb.2MB.max", "0\n"),
        ("cg/e/memory.max", "3000\n"),
        ("cg/e/memory.current", "1\n"),
    ];
    let (_dir, root) = host(&files);
    let own = read_limits(&root, 7);
    assert_eq!(hugetlb(&own), ["/a/b", "/a"]);
    assert_eq!(
        memory(&own.memory),
        [("/a/b", 1200), ("/a", 170), ("/a", 120)]
    );
    let throttles: Vec<bool> = own.memory.iter().map(|l| l.only_throttles).collect();
    assert_eq!(throttles, [false, false, true]);
    assert_eq!(own.memory_room(), Fact::Known(Bytes(100)));
    assert_eq!(own.memory_room_at_most(), Some(Bytes(120)));
    assert_eq!(own.memlock, Fact::Known(Bytes(8 << 20)));
    let (cgroup, limit) = own.tightest(two_mib(), HugetlbLimitKind::Faults).unwrap();
    assert_eq!((cgroup.path.as_str(), limit.hits.get()), ("/a", Some(3)));
    assert_eq!(cgroup.folder, "/cg/a");
    assert_eq!(
        own.tightest(two_mib(), HugetlbLimitKind::Reservations),
        None
    );
    assert!(!own.is_in_container);
    assert_eq!(read_limits(&root, 8), ProcessMemoryLimits::default());

    let all = all_hugetlb(&root);
    let all: Vec<&str> = all
        .known()
        .unwrap()
        .iter()
        .map(|c| c.path.as_str())
        .collect();
    assert_eq!(all, ["/a", "/a/b", "/a/c"]);
    assert_eq!(
        memory(&all_memory(&root)),
        [("/a", 170), ("/a", 120), ("/a/b", 1200), ("/e", 2999)]
    );

    let denied = root.failing("cg/a/b/hugetlb.2MB.max", ErrorKind::PermissionDenied);
    let own = read_limits(&denied, 7);
    assert!(
        own.hugetlb[0].hugetlb[0]
            .fault_limit
            .error()
            .unwrap()
            .denied
    );
    let denied = root.failing("proc/self/mounts", ErrorKind::PermissionDenied);
    assert!(all_hugetlb(&denied).error().is_some());
}

/// In a cgroup namespace, the path and the mount begin at the container's own cgroup.
#[test]
fn inside_a_container_the_limits_are_at_the_mount() {
    let files = [
        (
            "proc/self/mountinfo",
            "31 23 0:28 / /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n",
        ),
        ("proc/self/cgroup", "0::/\n"),
        ("proc/9/cgroup", "0::/sub\n"),
        ("proc/10/cgroup", "0::/../other\n"),
        ("sys/fs/cgroup/cgroup.controllers", "hugetlb memory\n"),
        ("sys/fs/cgroup/cgroup.subtree_control", "hugetlb\n"),
        ("sys/fs/cgroup/cgroup.events", "populated 1\n"),
        ("sys/fs/cgroup/hugetlb.2MB.max", "0\n"),
        ("sys/fs/cgroup/memory.max", "1000\n"),
        ("sys/fs/cgroup/memory.current", "400\n"),
        ("sys/fs/cgroup/sub/hugetlb.2MB.max", "2097152\n"),
        ("sys/fs/other/hugetlb.2MB.max", "0\n"),
    ];
    let (_dir, root) = host(&files);
    let own = read_limits(&root, "self");
    assert_eq!(hugetlb(&own), ["/"]);
    assert_eq!(own.hugetlb[0].folder, "/sys/fs/cgroup");
    assert_eq!(own.memory_room(), Fact::Known(Bytes(600)));
    assert!(own.is_in_container);
    assert_eq!(hugetlb(&read_limits(&root, 9)), ["/sub", "/"]);
    // Its cgroup has no path in this namespace.
    assert_eq!(hugetlb(&read_limits(&root, 10)), [""; 0]);
}

/// Without a cgroup namespace the path is that of the host, and only the container's own cgroup is mounted.
#[test]
fn who_owns_a_subtree_cannot_hide_services_behind_it() {
    let below = ["cg/a/user/1", "cg/a/user/2", "cg/a/user/3", "cg/a/user/4"];
    let hands_down = ["cg", "cg/a", "cg/a/user", "cg/z"];
    let (dir, root) = host(&[("proc/self/mounts", "cgroup2 /cg cgroup2 rw 0 0\n")]);
    for folder in below.iter().chain(&["cg/z/service"]) {
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
    }
    for folder in hands_down {
        std::fs::write(
            dir.path().join(folder).join("cgroup.subtree_control"),
            "memory\n",
        )
        .unwrap();
    }
    for mount in mounts(&root, "memory") {
        let mut found = Vec::new();
        each_below(&root, &mount, "memory", 5, |path| {
            found.push(path.to_owned())
        });
        assert_eq!(
            found,
            ["", "/a", "/z", "/a/user", "/z/service", "/a/user/1"]
        );
    }
}

#[test]
fn a_container_that_has_its_own_cgroup_mounted() {
    for (mounts, lines) in [
        (
            "proc/self/mountinfo",
            "9 8 0:7 /docker/abc /cg/huge ro - cgroup cgroup rw,hugetlb\n",
        ),
        (
            "proc/self/mounts",
            "cgroup /cg/huge cgroup rw,hugetlb 0 0\n",
        ),
    ] {
        let (_dir, root) = host(&[
            (mounts, lines),
            ("proc/self/cgroup", "4:cpu:/x\n3:hugetlb:/docker/abc\n"),
            ("cg/huge/hugetlb.2MB.limit_in_bytes", "2097152\n"),
            (
                "cg/huge/hugetlb.2MB.rsvd.limit_in_bytes",
                "9223372036852678656\n",
            ),
        ]);
        let own = read_limits(&root, "self");
        assert_eq!(hugetlb(&own), ["/"], "{mounts}");
        let limit = &own.hugetlb[0].hugetlb[0];
        assert_eq!(limit.fault_limit, Fact::Known(Some(Bytes(2 << 20))));
        assert_eq!(limit.reservation_limit, Fact::Known(None));
        // Detected by its mount, or by its path.
        assert!(own.is_in_container, "{mounts}");
    }
}

#[test]
fn version_1() {
    let files = [
        (
            "proc/self/mounts",
            "cgroup /mnt/huge\\040tlb cgroup rw,hugetlb 0 0\ncgroup /cg/memory cgroup rw,memory 0 0\n",
        ),
        ("proc/self/cgroup", "5:memory:/x\n4:cpu,hugetlb:/a:b\n"),
        (
            "mnt/huge tlb/a:b/hugetlb.2MB.limit_in_bytes",
            "9223372036852678656\n",
        ),
        (
            "mnt/huge tlb/a:b/hugetlb.2MB.rsvd.limit_in_bytes",
            "2097152\n",
        ),
        ("mnt/huge tlb/a:b/hugetlb.2MB.failcnt", "0\n"),
        ("cg/memory/x/memory.limit_in_bytes", "9223372036854771712\n"),
        ("cg/memory/x/memory.usage_in_bytes", "400\n"),
    ];
    let own = read_limits(&host(&files).1, "self");
    assert_eq!((own.hugetlb[0].version, hugetlb(&own)), (1, vec!["/a:b"]));
    let limit = &own.hugetlb[0].hugetlb[0];
    assert_eq!(limit.fault_limit, Fact::Known(None));
    assert_eq!(limit.reservation_limit, Fact::Known(Some(Bytes(2 << 20))));
    assert!(limit.fault_usage.is_absent());
    // Unlimited is a number in version 1.
    assert_eq!(own.memory_room(), Fact::Absent);
    let mut limited = files;
    limited[5].1 = "300\n";
    // Over its limit there is no room. The subtraction must not wrap.
    assert_eq!(
        read_limits(&host(&limited).1, "self").memory_room(),
        Fact::Known(Bytes::ZERO)
    );
}

#[test]
fn no_controller_is_absent() {
    let (_dir, root) = host(&[
        (
            "proc/self/mounts",
            "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
        ),
        ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
    ]);
    assert!(all_hugetlb(&root).is_absent());
    assert_eq!(all_memory(&root), []);
    assert_eq!(
        read_limits(&host(&[]).1, "self"),
        ProcessMemoryLimits::default()
    );
}

/// The reader's cgroup is `/k/burst/p1/c1`, the root of its namespace. It mounts the hierarchy's top.
fn files_of_pod() -> Vec<(&'static str, &'static str)> {
    vec![
        (
            "proc/self/mountinfo",
            "30 20 0:26 /../../../.. /cg ro - cgroup2 cgroup2 rw\n",
        ),
        ("proc/self/cgroup", "0::/\n"),
        ("proc/self/status", "Name:\tx\nPid:\t90\nNSpid:\t90\t7\n"),
        ("proc/8/cgroup", "0::/../c2\n"),
        ("proc/9/cgroup", "0::/../../p2/c3\n"),
        ("proc/10/cgroup", "0::/../../../../system/db.service\n"),
        ("proc/11/cgroup", "0::/sub\n"),
        ("proc/12/cgroup", "0::/../../../../../above\n"),
        ("proc/13/cgroup", "0::/../../../..\n"),
        ("cg/cgroup.controllers", "hugetlb memory\n"),
        ("cg/k/hugetlb.2MB.max", "8388608\n"),
        ("cg/k/burst/p1/c1/cgroup.procs", "7\n"),
        ("cg/k/burst/p1/c1/hugetlb.2MB.max", "0\n"),
        ("cg/k/burst/p1/c1/sub/hugetlb.2MB.max", "0\n"),
        ("cg/k/burst/p1/c2/cgroup.procs", "8\n"),
        ("cg/k/burst/p1/c2/hugetlb.2MB.max", "2097152\n"),
        ("cg/k/burst/p2/c3/cgroup.procs", "9\n90\n"),
        ("cg/k/burst/p2/c3/hugetlb.2MB.max", "4194304\n"),
        // Another pod with the same names, elsewhere.
        ("cg/k/best/p2/c3/cgroup.procs", "70\n"),
        ("cg/k/best/p2/c3/hugetlb.2MB.max", "6291456\n"),
        ("cg/system/db.service/hugetlb.2MB.max", "2097152\n"),
        ("cg/c2/hugetlb.2MB.max", "0\n"),
    ]
}

fn without<'a>(files: &[(&'a str, &'a str)], name: &str) -> Vec<(&'a str, &'a str)> {
    let others = files.iter().filter(|(path, _)| *path != name);
    others.copied().collect()
}

#[test]
fn a_pod_with_a_cgroup_namespace_sees_the_limits_of_others() {
    let files = files_of_pod();
    let (_dir, root) = host(&files);
    let of = |pid: u32| read_limits(&root, pid);
    assert_eq!(hugetlb(&of(8)), ["/k/burst/p1/c2", "/k"]);
    assert_eq!(hugetlb(&of(9)), ["/k/burst/p2/c3", "/k"]);
    assert_eq!(hugetlb(&of(10)), ["/system/db.service"]);
    assert_eq!(
        hugetlb(&of(11)),
        ["/k/burst/p1/c1/sub", "/k/burst/p1/c1", "/k"]
    );
    assert_eq!(hugetlb(&of(12)), [""; 0]);
    assert_eq!(hugetlb(&of(13)), [""; 0]);
    assert_eq!(
        hugetlb(&read_limits(&root, "self")),
        ["/k/burst/p1/c1", "/k"]
    );
    let of_process = |text: &str| placement::of_process(&root, text);
    for (shown, placed) in [
        ("/../c2", Some("/k/burst/p1/c2")),
        ("/../../../../system/db.service", Some("/system/db.service")),
        ("/../../../../../above", Some("/../../../../../above")),
        ("/../../../..", None),
        ("/sub", Some("/sub")),
    ] {
        let found = of_process(&format!("0::{shown}\n"));
        assert_eq!(found.as_deref(), placed, "{shown}");
    }
    assert_eq!(
        in_hierarchy(&root, "/cg/k/burst/p1"),
        Path::new("/k/burst/p1")
    );
}

/// A runtime may mount the container's own cgroup first, and the host's hierarchy over it.
#[test]
fn the_last_mount_at_a_place_counts() {
    let lines =
        "30 20 0:26 / /cg ro - cgroup2 cgroup2 rw\n31 20 0:26 /../.. /cg ro - cgroup2 cgroup2 rw\n";
    let tops: Vec<String> = mounts_in(lines, "memory")
        .into_iter()
        .map(|m| m.top)
        .collect();
    assert_eq!(tops, ["/../.."]);
}

/// Without proof of the reader's own place, no folder is chosen by its name, even if only one has it.
#[test]
fn a_cgroup_without_a_known_place_has_no_limits() {
    let all = files_of_pod();
    for missing in ["cg/k/burst/p1/c1/cgroup.procs", "proc/self/status"] {
        let (_dir, root) = host(&without(&all, missing));
        for pid in [8, 9, 11] {
            assert_eq!(hugetlb(&read_limits(&root, pid)), [""; 0], "{missing}");
        }
        assert_eq!(hugetlb(&read_limits(&root, 10)), ["/system/db.service"]);
        assert!(read_limits(&root, 9).is_in_container);
    }
}

#[test]
fn a_kept_place_must_still_be_the_readers() {
    let (dir, root) = host(&files_of_pod());
    assert_eq!(hugetlb(&read_limits(&root, 8)), ["/k/burst/p1/c2", "/k"]);
    // The reader's whole pod moved, which its own path does not show.
    let at = |name: &str| dir.path().join("cg/k").join(name);
    std::fs::create_dir_all(at("other")).unwrap();
    std::fs::rename(at("burst/p1"), at("other/p1")).unwrap();
    assert_eq!(hugetlb(&read_limits(&root, 8)), ["/k/other/p1/c2", "/k"]);
}

/// Reads limits in a cgroup namespace of its own, in the hierarchy of this host.
#[test]
fn limits_in_a_real_cgroup_namespace() {
    const TEST: &str = "limits::tests::limits_in_a_real_cgroup_namespace";
    const PIDS: &str = "HUGELEAF_TEST_PIDS";
    if let Ok(pids) = std::env::var(PIDS) {
        let root = Root::live();
        let paths: Vec<Vec<String>> = ["self"]
            .into_iter()
            .chain(pids.split(' '))
            .map(|pid| {
                let text = root.read(format!("proc/{pid}/cgroup")).or_default();
                assert!(pid == "self" || text.contains(":/../"), "{pid}: {text}");
                let limits = read_limits(&root, pid).memory;
                limits.into_iter().map(|limit| limit.path).collect()
            })
            .collect();
        let name = |path: &str| path.trim_start_matches('/').to_owned();
        let found: Vec<Vec<String>> = paths
            .iter()
            .map(|paths| paths.iter().map(|path| name(path)).collect())
            .collect();
        let [own, inside, other] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(own, inside);
        assert!(own.len() == 1 && own[0].ends_with("-reader"), "{found:?}");
        assert!(
            other.len() == 1 && other[0].ends_with("-other"),
            "{found:?}"
        );
        return;
    }
    if !is_root() || !works("unshare", &["--cgroup", "true"]) {
        return not_run(TEST, "needs root and unshare (util-linux)");
    }
    let new = |name: &str, mib| {
        let name = format!("hugeleaf-test-{}-{name}", std::process::id());
        MemoryCgroup::new(&name, Bytes::from_mib(mib))
    };
    let (Some(reader), Some(other)) = (new("reader", 200), new("other", 100)) else {
        return not_run(TEST, "needs a memory controller");
    };
    let below = [(&reader, "own"), (&reader, "inside"), (&other, "other")];
    let [own, inside, outside] = below.map(|(cgroup, name)| {
        let folder = cgroup.processes().with_file_name(name);
        std::fs::create_dir(&folder).unwrap();
        folder
    });
    let join = |folder: &Path, pid: u32| {
        std::fs::write(folder.join("cgroup.procs"), pid.to_string()).unwrap();
    };
    let holders = [&inside, &outside].map(|folder| {
        let child = holder(1, None);
        join(folder, child.0.id());
        child
    });
    let pids = format!("{PIDS}={} {}", holders[0].pid(), holders[1].pid());
    let enter = format!(
        "echo $$ > {}/cgroup.procs && exec unshare --cgroup \"$0\" \"$@\"",
        own.display()
    );
    rerun_test(TEST, &["env", &pids, "sh", "-c", &enter]);
    drop(holders);
    for folder in [own, inside, outside] {
        eventually(|| std::fs::remove_dir(&folder).map_err(|e| e.to_string()));
    }
}

proptest! {
    /// Checks that no path and no mount leads to a file outside the mount.
    #[test]
    fn no_path_leaves_the_mount(top in "(/|(/(a|b|\\.\\.)){0,3})", path in "(/(a|b|\\.|\\.\\.)){0,4}") {
        let mount = CgroupMount { version: 2, at: "/cg".to_owned(), top, counts_pools: false };
        let root = Root::at("/nonexistent");
        for below in own_and_above(&root, &mount, &format!("0::{path}\n"), "memory") {
            prop_assert!(!below.contains("..") && (below.is_empty() || below.starts_with('/')));
        }
    }

    #[test]
    fn never_panics(text in "([a-z0-9:/, \\\\-]*\n?)*") {
        let _ = (mounts_in(&text, "memory"), cgroup_in(&text, 2, ""), cgroup_in(&text, 1, "cpu"));
    }
}
