//! The host under test: locked while a test runs, and restored afterwards.

use std::path::Path;

use hugeleaf_sys::{HostLock, Kernel, effective_uid, lock_host};

use crate::kernel::{chosen, node_memory, nodes, number, pool_file, pool_sizes};
use crate::not_run;

/// The original value of a setting.
struct Restore {
    path: String,
    /// Value that was read.
    before: String,
    /// Text to write that restores the value.
    write: String,
}

/// The host, locked.
pub struct Host {
    /// Huge page size of THP, in bytes.
    pub huge: u64,
    /// Base page size, in bytes.
    pub base: u64,
    restore: Vec<Restore>,
    _lock: HostLock,
}

impl Host {
    /// Locks the host if a test can run: as root, with THP and MADV_COLLAPSE. Prints why if not.
    pub fn new(test: &str) -> Option<Host> {
        let kernel = Kernel::new();
        let why = if effective_uid() != 0 {
            "needs root"
        } else if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            "needs a kernel with transparent huge pages"
        } else if !kernel.supports_collapse() {
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

    /// Writes a setting, which is restored at the end; returns false if it cannot be written.
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

    /// Returns true if advised memory gets huge pages at its first touch.
    pub fn gives_at_touch(&self) -> bool {
        chosen("/sys/kernel/mm/transparent_hugepage/enabled").as_deref() != Some("never")
    }

    /// Provides free pages in a pool, on one node or anywhere; returns the number obtained.
    pub fn pool(&mut self, size: u64, node: Option<u32>, pages: u64) -> u64 {
        let of_pool = |name| number(pool_file(size, node, name)).unwrap_or(0);
        let used = of_pool("nr_hugepages") - of_pool("free_hugepages");
        // The file counts surplus pages, which would become persistent if that number were written back.
        let lasting = of_pool("nr_hugepages") - of_pool("surplus_hugepages");
        let wanted = (used + pages).to_string();
        if self.set(&pool_file(size, node, "nr_hugepages"), &wanted)
            && let Some(restore) = self.restore.last_mut()
        {
            restore.write = lasting.to_string();
        }
        of_pool("free_hugepages")
    }

    /// Returns the pool size that equals THP, or the smallest one.
    pub fn pool_size(&self) -> Option<u64> {
        let sizes = pool_sizes();
        let same = sizes.iter().find(|size| **size == self.huge);
        same.or(sizes.first()).copied()
    }

    /// Returns the free memory of a node, in bytes.
    pub fn free_on(node: u32) -> u64 {
        node_memory(node, "MemFree").unwrap_or(0)
    }

    /// Returns the nodes that have this much free memory, with some to spare.
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
