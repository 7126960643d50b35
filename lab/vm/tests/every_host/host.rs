//! The host under test: locked while a test runs, and put back as it was.

use std::path::Path;

use hugeleaf_sys::{HostLock, Kernel, effective_uid, lock_host};

use crate::kernel::{chosen, node_memory, nodes, number, pool_file, pool_sizes};
use crate::not_run;

/// A setting as it was found.
struct Restore {
    path: String,
    /// What it said.
    before: String,
    /// What is written so that it says that again.
    write: String,
}

/// The host, locked.
pub struct Host {
    /// The large page that the kernel makes of base pages, in bytes.
    pub huge: u64,
    /// The base page, in bytes.
    pub base: u64,
    restore: Vec<Restore>,
    _lock: HostLock,
}

impl Host {
    /// Where a test can be run at all: as root, with THP and MADV_COLLAPSE. Says why where not.
    pub fn new(test: &str) -> Option<Host> {
        let kernel = Kernel::new();
        let why = if effective_uid() != 0 {
            "needs root"
        } else if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            "needs a kernel with transparent huge pages"
        } else if !kernel.knows_collapse() {
            "needs MADV_COLLAPSE, Linux 6.1"
        } else {
            let folder = Path::new("/run/lock");
            std::fs::create_dir_all(folder).unwrap();
            return Some(Host {
                huge: number("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").unwrap(),
                base: kernel.base_page().bytes().get(),
                restore: Vec::new(),
                _lock: lock_host(&folder.join("hugeleaf.lock"), true).unwrap(),
            });
        };
        not_run(test, why);
        None
    }

    /// Writes a setting, and puts it back at the end; false where it cannot be written.
    pub fn set(&mut self, path: &str, value: &str) -> bool {
        let Some(before) = chosen(path) else {
            return false;
        };
        if std::fs::write(path, value).is_err() {
            return false;
        }
        self.restore.push(Restore {
            path: path.to_owned(),
            write: before.clone(),
            before,
        });
        true
    }

    /// Whether memory gets huge pages at its first touch where it is advised.
    pub fn gives_at_touch(&self) -> bool {
        chosen("/sys/kernel/mm/transparent_hugepage/enabled").as_deref() != Some("never")
    }

    /// That many pages in a pool that nobody uses, on one node or anywhere; as many as were got.
    pub fn pool(&mut self, size: u64, node: Option<u32>, pages: u64) -> u64 {
        let of_pool = |name| number(pool_file(size, node, name)).unwrap_or(0);
        let used = of_pool("nr_hugepages") - of_pool("free_hugepages");
        // The file counts pages that overcommit added, which would stay if that number were written back.
        let lasting = of_pool("nr_hugepages") - of_pool("surplus_hugepages");
        let wanted = (used + pages).to_string();
        if self.set(&pool_file(size, node, "nr_hugepages"), &wanted)
            && let Some(restore) = self.restore.last_mut()
        {
            restore.write = lasting.to_string();
        }
        of_pool("free_hugepages")
    }

    /// The size of the pool whose pages are as large as THP, or the smallest there is.
    pub fn pool_size(&self) -> Option<u64> {
        let sizes = pool_sizes();
        let same = sizes.iter().find(|size| **size == self.huge);
        same.or(sizes.first()).copied()
    }

    /// Free memory of a node, in bytes.
    pub fn free_on(node: u32) -> u64 {
        node_memory(node, "MemFree").unwrap_or(0)
    }

    /// The nodes that could give so much memory now, with some to spare.
    pub fn nodes_with(bytes: u64) -> Vec<u32> {
        let mut nodes = nodes();
        nodes.retain(|node| Host::free_on(*node) > bytes + bytes / 2);
        nodes
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for Restore {
            path,
            before,
            write,
        } in self.restore.iter().rev()
        {
            let put = std::fs::write(path, write);
            let now = chosen(path);
            if !std::thread::panicking() {
                assert_eq!(now.as_ref(), Some(before), "{path}: {put:?}");
            }
        }
    }
}
