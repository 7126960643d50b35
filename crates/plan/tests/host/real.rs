//! Tests the running host's own knobs, pools and mounts, with an /etc and a journal of the test.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hugeleaf_host::{Root, read_host};
use hugeleaf_plan::host_changes::{StepState, UndoOptions, UndoSelection};
use hugeleaf_plan::{Step, StepAction};
use hugeleaf_sys::Kernel;
use hugeleaf_testkit::host_lock::{ExclusiveHost, exclusive};
use hugeleaf_units::{Bytes, PageSize, Pages};

use super::faulty::FaultyHost;
use super::kills::{Steps, killed};
use super::tree::{Tree, assert_same, file, folder, knob, snapshot, step};
use super::{apply_to, options, state, undo_in, undo_newest};

const THP: &str = "/sys/kernel/mm/transparent_hugepage";
const NODE: &str = "/sys/devices/system/node/node0/hugepages";

/// Returns the sizes with pools on this host, smallest first, with their folders.
fn pool_sizes() -> Vec<(PageSize, PathBuf)> {
    let size_of = |path: &Path| {
        let name = path.file_name()?.to_str()?;
        let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
        PageSize::new(Bytes::from_kib(kib.parse().ok()?)).ok()
    };
    let folders = std::fs::read_dir(NODE).into_iter().flatten().flatten();
    let paths = folders.map(|entry| entry.path());
    let mut sizes: Vec<_> = paths
        .filter_map(|path| Some((size_of(&path)?, path)))
        .collect();
    sizes.sort();
    sizes
}

/// Returns the smallest size with a pool on this host.
fn pool_size() -> Option<(PageSize, PathBuf)> {
    pool_sizes().into_iter().next()
}

/// Returns a group, a pool, a mount, THP knobs and files, as far as this host has them.
///
/// The killed child makes the same list, so it must not depend on values that the steps change.
pub fn steps() -> Vec<Step> {
    let mut steps = vec![knob("group", "/proc/sys/vm/hugetlb_shm_group", "4711")];
    if let Some((size, path)) = pool_size() {
        let what = StepAction::Pool {
            size,
            node: 0,
            pages: Pages(6),
        };
        let path = path.join("nr_hugepages");
        steps.push(step("pool", &path.display().to_string(), what));
        steps.push(folder("point", "/mnt/huge"));
        let options = format!("pagesize={size},mode=0770,gid=4711");
        steps.push(step("mount", "/mnt/huge", StepAction::Mount { options }));
    }
    for name in ["shmem_enabled", "khugepaged/pages_to_scan", "enabled"] {
        let path = format!("{THP}/{name}");
        let value = match name {
            "enabled" => "never",
            "shmem_enabled" => "advise",
            _ => "8192", // not a page size
        };
        if Path::new(&path).exists() {
            steps.push(knob(name, &path, value));
        }
    }
    steps.push(file("sysctl", "/etc/sysctl.d/60-hugeleaf.conf", "x\n"));
    steps
}

/// A root whose /proc and /sys are the host's.
struct Host {
    tree: Tree,
    _alone: ExclusiveHost,
    before: Before,
}

type Values = BTreeMap<PathBuf, String>;

struct Before {
    values: Values,
    tree: super::tree::Snapshot,
    mounts: String,
}

impl Host {
    fn new(test: &str) -> Option<Host> {
        if hugeleaf_sys::effective_uid() != 0 {
            println!("not run: {test}: needs root");
            return None;
        }
        if hugeleaf_sys::metadata_at(Path::new(THP)).ok()?.is_none() {
            println!("not run: {test}: needs transparent huge pages");
            return None;
        }
        let alone = exclusive();
        let writable = hugeleaf_sys::probe_write(Path::new("/proc/sys/vm/hugetlb_shm_group"));
        if let Err(error) = writable {
            println!("not run: {test}: {error}");
            return None;
        }
        let tree = Tree::empty();
        for name in ["proc", "sys"] {
            std::os::unix::fs::symlink(format!("/{name}"), tree.path().join(name)).unwrap();
        }
        tree.write("etc/fstab", "none\n");
        let host = Host {
            before: Before {
                values: values(),
                tree: tree_of(tree.path()),
                mounts: std::fs::read_to_string("/proc/self/mountinfo").unwrap(),
            },
            tree,
            _alone: alone,
        };
        Some(host)
    }

    /// Returns a host whose pools, if any, are unused, so that they can have any size.
    fn with_pool(test: &str) -> Option<Host> {
        let host = Host::new(test)?;
        let facts = read_host(&Root::live(), &Kernel::new()).unwrap();
        if facts.pools.iter().any(|pool| pool.used() > Pages(0)) {
            println!("not run: {test}: needs pools of which nobody uses pages");
            return None;
        }
        Some(host)
    }

    fn path(&self) -> &Path {
        self.tree.path()
    }

    #[track_caller]
    fn assert_as_before(&self, when: &str) {
        let now = values();
        let differ: Vec<String> = self
            .before
            .values
            .keys()
            .chain(now.keys())
            .filter(|path| self.before.values.get(*path) != now.get(*path))
            .map(|path| {
                let (a, b) = (self.before.values.get(path), now.get(path));
                format!("{}: {a:?} became {b:?}", path.display())
            })
            .collect();
        assert!(differ.is_empty(), "{when}:\n  {}", differ.join("\n  "));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert_eq!(self.before.mounts, mounts, "{when}");
        assert_same(&self.before.tree, &tree_of(self.path()), when);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // After a failed assertion too, the host must be as before.
        let _ = undo_in(
            self.path(),
            &Kernel::new(),
            UndoSelection::All,
            UndoOptions::default(),
        );
    }
}

fn tree_of(root: &Path) -> super::tree::Snapshot {
    snapshot(root, &["proc", "sys", "var"])
}

/// Returns all of /proc/sys and the huge page settings of /sys, without counters, which change all the time.
fn values() -> Values {
    const COUNTERS: [&str; 16] = [
        "/proc/sys/fs/dentry-state",
        "/proc/sys/fs/file-nr",
        "/proc/sys/fs/inode-nr",
        "/proc/sys/fs/inode-state",
        "/proc/sys/fs/aio-nr",
        "/proc/sys/fs/quota",
        "/proc/sys/fs/binfmt_misc",
        "/proc/sys/kernel/random",
        "/proc/sys/kernel/ns_last_pid",
        "/proc/sys/kernel/pty/nr",
        "/proc/sys/kernel/tainted",
        "/proc/sys/kernel/keys",
        "/proc/sys/net",
        "/sys/kernel/mm/transparent_hugepage/khugepaged/pages_collapsed",
        "/sys/kernel/mm/transparent_hugepage/khugepaged/full_scans",
        "/proc/sys/debug",
    ];
    let mut all = Values::new();
    let mut open: Vec<PathBuf> = ["/proc/sys", THP, "/sys/kernel/mm/hugepages", NODE]
        .iter()
        .map(PathBuf::from)
        .collect();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            let is_counter = COUNTERS.iter().any(|name| path.starts_with(name));
            if is_counter || path.components().any(|c| c.as_os_str() == "stats") {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else if let Ok(bytes) = std::fs::read(&path) {
                all.insert(path, String::from_utf8_lossy(&bytes).into_owned());
            }
        }
    }
    assert!(all.len() > 50, "{} values", all.len());
    all
}

#[test]
fn the_host_is_changed_and_put_back_to_the_byte() {
    let name = "the_host_is_changed_and_put_back_to_the_byte";
    let Some(host) = Host::with_pool(name) else {
        return;
    };
    let steps = steps();
    let outcome = apply_to(host.path(), &Kernel::new(), &steps, &options()).unwrap();
    assert!(outcome.is_good(), "{outcome:#?}");
    assert_eq!(state(&outcome.steps, "group"), StepState::Done);
    let group = std::fs::read_to_string("/proc/sys/vm/hugetlb_shm_group").unwrap();
    assert_eq!(group, "4711\n");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    if let Some((_, pool)) = pool_size() {
        let pages = std::fs::read_to_string(pool.join("nr_hugepages")).unwrap();
        assert_eq!(pages, "6\n");
        assert!(
            mounts.contains("mnt/huge rw") && mounts.contains("gid=4711"),
            "{mounts}"
        );
    }
    let again = apply_to(host.path(), &Kernel::new(), &steps, &options()).unwrap();
    assert_eq!(again.id, None, "{again:#?}");
    let undone = undo_newest(host.path(), &Kernel::new());
    assert!(undone.unwrap()[0].is_good());
    host.assert_as_before("undone");
    undo_newest(host.path(), &Kernel::new()).unwrap();
    host.assert_as_before("undone twice");
}

#[test]
fn killed_at_any_call_the_host_is_put_back_to_the_byte() {
    let Some(host) = Host::new("killed_at_any_call_the_host_is_put_back_to_the_byte") else {
        return;
    };
    let steps = steps();
    let sink = FaultyHost::counting();
    apply_to(host.path(), &sink.kernel, &steps, &options()).unwrap();
    let applying = sink.calls().len();
    let sink = FaultyHost::counting();
    undo_newest(host.path(), &sink.kernel).unwrap();
    let undoing = sink.calls().len();
    for at in 1..=applying {
        killed("apply", Steps::Real, at, at % 2 == 0, host.path());
        undo_newest(host.path(), &Kernel::new()).unwrap();
        host.assert_as_before(&format!("apply killed at call {at}"));
    }
    for at in 1..=undoing {
        apply_to(host.path(), &Kernel::new(), &steps, &options()).unwrap();
        killed("undo", Steps::Real, at, at % 2 == 0, host.path());
        undo_newest(host.path(), &Kernel::new()).unwrap();
        host.assert_as_before(&format!("undo killed at call {at}"));
    }
}

#[test]
fn a_mount_that_is_in_use_stays_and_goes_later() {
    let Some(host) = Host::new("a_mount_that_is_in_use_stays_and_goes_later") else {
        return;
    };
    if pool_size().is_none() {
        println!("not run: a_mount_that_is_in_use_stays_and_goes_later: needs hugetlb");
        return;
    }
    apply_to(host.path(), &Kernel::new(), &steps(), &options()).unwrap();
    let open = std::fs::File::create(host.path().join("mnt/huge/file")).unwrap();
    let undone = undo_newest(host.path(), &Kernel::new());
    let undone = undone.unwrap();
    assert_eq!(state(&undone[0].steps, "mount"), StepState::Busy);
    assert_eq!(state(&undone[0].steps, "group"), StepState::Restored);
    assert!(!undone[0].finished);
    drop(open);
    undo_newest(host.path(), &Kernel::new()).unwrap();
    host.assert_as_before("undone again");
}

#[test]
fn a_pool_in_use_shrinks_when_its_user_lets_go() {
    let name = "a_pool_in_use_shrinks_when_its_user_lets_go";
    let Some(host) = Host::with_pool(name) else {
        return;
    };
    let Some((size, pool)) = pool_size() else {
        println!("not run: {name}: needs hugetlb");
        return;
    };
    apply_to(host.path(), &Kernel::new(), &steps(), &options()).unwrap();
    // Two pages of a file on the mount, which exist until it is removed.
    let path = host.path().join("mnt/huge/held");
    let held = std::fs::File::create(&path).unwrap();
    let length = Pages(2).in_bytes(size).get();
    rustix::fs::fallocate(&held, rustix::fs::FallocateFlags::empty(), 0, length).unwrap();
    let what = |pages| StepAction::Pool {
        size,
        node: 0,
        pages: Pages(pages),
    };
    let smaller = step(
        "pool",
        &pool.join("nr_hugepages").display().to_string(),
        what(1),
    );
    let outcome = apply_to(host.path(), &Kernel::new(), &[smaller], &options()).unwrap();
    let shrunk = outcome.steps.iter().find(|s| s.id == "pool").unwrap();
    assert_eq!(shrunk.state, StepState::InUse, "{outcome:#?}");
    assert!(
        shrunk.note.as_ref().unwrap().starts_with("1 pages"),
        "{outcome:#?}"
    );
    assert!(!outcome.is_good());
    drop(held);
    std::fs::remove_file(&path).unwrap();
    undo_in(
        host.path(),
        &Kernel::new(),
        UndoSelection::All,
        UndoOptions::default(),
    )
    .unwrap();
    host.assert_as_before("undone");
}

#[test]
fn a_pool_larger_than_memory_says_what_is_missing() {
    let name = "a_pool_larger_than_memory_says_what_is_missing";
    let Some(host) = Host::new(name) else { return };
    // A pool of the largest size with one page more than memory holds. Such a page is unavailable anyway, so no
    // memory is reclaimed for it.
    let Some((size, pool)) = largest() else {
        println!("not run: {name}: needs a page size that memory holds few of");
        return;
    };
    let what = StepAction::Pool {
        size,
        node: 0,
        pages: Pages(1),
    };
    let steps = [step(
        "giant",
        &pool.join("nr_hugepages").display().to_string(),
        what,
    )];
    let outcome = apply_to(host.path(), &Kernel::new(), &steps, &options()).unwrap();
    let giant = &outcome.steps[0];
    if giant.state == StepState::Done {
        println!("not run: {name}: a page of {size} is available");
    } else {
        // The memory's users are not read below a root whose /proc is a link; other tests cover that.
        let shortage = giant.shortage.as_ref().unwrap();
        assert_eq!(shortage.missing, Pages(1));
    }
    undo_in(
        host.path(),
        &Kernel::new(),
        UndoSelection::All,
        UndoOptions::default(),
    )
    .unwrap();
    host.assert_as_before("undone");
}

fn largest() -> Option<(PageSize, PathBuf)> {
    let mut sizes = pool_sizes();
    sizes.pop().filter(|_| !sizes.is_empty())
}
