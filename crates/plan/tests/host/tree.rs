//! A host of plain files below a folder, with steps for it, and snapshots before and after.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hugeleaf_plan::{FollowUp, Step, StepAction};
use tempfile::TempDir;

pub const MARK: &str = "# written by hugeleaf; undone by: hugeleaf undo\n";

/// A host of plain files.
pub struct Tree(pub TempDir);

impl Tree {
    /// A host with systemd, whose fstab does not end in a newline.
    pub fn new() -> Tree {
        let tree = Tree::empty();
        for (path, text) in [
            ("proc/self/mountinfo", "1 1 0:1 / / rw - ext4 none rw\n"),
            ("proc/self/status", "CapEff:\t000001ffffffffff\n"),
            ("proc/sys/vm/hugetlb_shm_group", "0\n"),
            ("proc/sys/kernel/random/boot_id", "one\n"),
            (POOL, "0\n"),
            ("etc/fstab", "# none\nproc /proc proc defaults 0 0"),
            ("etc/sysctl.d/10-mine.conf", "vm.swappiness = 1\n"),
            ("run/systemd/system/.keep", ""),
        ] {
            tree.write(path, text);
        }
        let fstab = tree.path().join("etc/fstab");
        std::fs::set_permissions(fstab, std::fs::Permissions::from_mode(0o640)).unwrap();
        tree
    }

    /// Creates an empty folder, in memory if possible, since every record is synced.
    pub fn empty() -> Tree {
        let memory = Path::new("/dev/shm");
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix("hugeleaf-host-");
        let dir = builder.tempdir_in(memory).or_else(|_| builder.tempdir());
        Tree(dir.unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        let path = self.path().join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    pub fn has(&self, path: &str) -> bool {
        self.path().join(path).exists()
    }

    /// Returns everything except hugeleaf's own folder.
    pub fn snapshot(&self) -> Snapshot {
        snapshot(self.path(), &["var"])
    }
}

pub const POOL: &str = "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages";

/// Files and folders below one, by path: mode, owner, group, content.
pub type Snapshot = BTreeMap<PathBuf, (u32, u32, u32, Option<Vec<u8>>)>;

pub fn snapshot(root: &Path, except: &[&str]) -> Snapshot {
    let mut all = Snapshot::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let short = path.strip_prefix(root).unwrap().to_owned();
            if except.iter().any(|name| short.starts_with(name)) {
                continue;
            }
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let content = match meta.is_dir() {
                true => {
                    open.push(path);
                    None
                }
                false => Some(std::fs::read(&path).unwrap_or_default()),
            };
            all.insert(short, (meta.mode(), meta.uid(), meta.gid(), content));
        }
    }
    all
}

/// Fails with the differences.
#[track_caller]
pub fn assert_same(before: &Snapshot, after: &Snapshot, when: &str) {
    let shown = |(mode, uid, gid, content): &(u32, u32, u32, Option<Vec<u8>>)| {
        let text = content.as_ref().map(|c| String::from_utf8_lossy(c));
        format!("{mode:o} {uid}:{gid} {text:?}")
    };
    let paths: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let differ: Vec<String> = paths
        .into_iter()
        .filter(|path| before.get(*path) != after.get(*path))
        .map(|path| {
            let (a, b) = (before.get(path).map(shown), after.get(path).map(shown));
            format!("{}: {a:?} became {b:?}", path.display())
        })
        .collect();
    assert!(differ.is_empty(), "{when}:\n  {}", differ.join("\n  "));
}

pub fn step(id: &str, path: &str, what: StepAction) -> Step {
    Step {
        id: id.to_owned(),
        what,
        path: path.into(),
        why: format!("why {id}"),
        verify: format!("cat {path}"),
        needs: FollowUp::Nothing,
    }
}

pub fn knob(id: &str, path: &str, value: &str) -> Step {
    let value = value.to_owned();
    step(id, path, StepAction::Knob { value })
}

pub fn pool(pages: u64) -> Step {
    let what = StepAction::Pool {
        size: "2M".parse().unwrap(),
        node: 0,
        pages: hugeleaf_units::Pages(pages),
    };
    step("pool", &format!("/{POOL}"), what)
}

pub fn file(id: &str, path: &str, text: &str) -> Step {
    let text = format!("{MARK}{text}");
    step(id, path, StepAction::File { text, mode: 0o644 })
}

pub fn block(id: &str, path: &str, text: &str) -> Step {
    let text = text.to_owned();
    step(id, path, StepAction::Block { text })
}

pub fn folder(id: &str, path: &str) -> Step {
    step(id, path, StepAction::Folder { mode: 0o755 })
}

/// Returns one step of every kind that plain files can represent: two blocks in one file, files in
/// missing folders, and two files that share such a folder.
pub fn steps() -> Vec<Step> {
    let unit = "/etc/systemd/system/db.service.d/60-hugeleaf.conf";
    vec![
        knob("group", "/proc/sys/vm/hugetlb_shm_group", "26"),
        pool(5),
        folder("point", "/mnt/deep/huge"),
        file(
            "sysctl",
            "/etc/sysctl.d/60-hugeleaf.conf",
            "vm.hugetlb_shm_group = 26\n",
        ),
        file(
            "tmpfiles",
            "/etc/tmpfiles.d/hugeleaf.conf",
            "w /sys - - - - 5\n",
        ),
        file(
            "limits",
            "/etc/security/limits.d/60-hugeleaf.conf",
            "db - memlock 1\n",
        ),
        file(
            "more",
            "/etc/security/limits.d/61-hugeleaf.conf",
            "db - memlock 2\n",
        ),
        block(
            "fstab-a",
            "/etc/fstab",
            "none /mnt/a hugetlbfs defaults 0 0\n",
        ),
        block(
            "fstab-b",
            "/etc/fstab",
            "none /mnt/b hugetlbfs defaults 0 0\n",
        ),
        file("unit", unit, "[Service]\nLimitMEMLOCK=1\n"),
    ]
}
