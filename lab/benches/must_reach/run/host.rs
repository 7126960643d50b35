//! The host's part in a sample: a knob turned, a pool filled, memory warmed; and all of it put back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hugeleaf_host::{Root, read_host};
use hugeleaf_sys::{Advice, HostLock, Kernel, Memory, lock_host};
use hugeleaf_units::{Bytes, PageSize};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::Failed;
use crate::setting::Put;

/// The host, locked for as long as this lives.
pub struct Host {
    /// The page of the default pool.
    pub pool: PageSize,
    /// The large page that transparent huge pages make.
    pub huge: PageSize,
    is_asked_to_end: Arc<AtomicBool>,
    _lock: HostLock,
}

impl Host {
    /// Waits for the lock that tests and benchmarks share. `None`, after saying why, where this
    /// cannot be measured.
    pub fn lock(name: &str) -> Result<Option<Host>, Failed> {
        if hugeleaf_sys::effective_uid() != 0 {
            println!("not run: {name}: needs root to set pools and knobs");
            return Ok(None);
        }
        let lock = lock_host(Path::new("/run/lock/hugeleaf.lock"), true)?;
        let host = read_host(&Root::live(), &Kernel::new())?;
        let sizes = (host.memory.default_hugetlb_page.get(), host.pmd_page.get());
        let (Some(pool), Some(huge)) = sizes else {
            println!("not run: {name}: needs hugetlb and transparent huge pages");
            return Ok(None);
        };
        // A signal must not leave the host with a knob turned: it is heard between two samples.
        let is_asked_to_end = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&is_asked_to_end))?;
        }
        Ok(Some(Host {
            pool,
            huge,
            is_asked_to_end,
            _lock: lock,
        }))
    }

    /// Whether a signal came that asks this program to end. What was taken is then written.
    pub fn is_asked_to_end(&self) -> bool {
        self.is_asked_to_end.load(Ordering::Relaxed)
    }

    /// So many bytes in the pool that nobody uses, until the answer is dropped.
    pub fn fill_pool(&self, bytes: Bytes) -> Result<Put, Failed> {
        Put::free_pages(self.pool, bytes)
    }

    /// Touches so much memory and returns it. Memory that was returned to the machine below this
    /// one is expensive the first time it is used again; what was freed a moment ago is what the
    /// sample gets.
    pub fn warm(&self, bytes: Bytes) -> Result<(), Failed> {
        let memory = Memory::new();
        let space = memory.set_aside(self.huge.pages_for(bytes).of(self.huge), self.huge)?;
        let whole = space.range();
        space.map_private(whole)?;
        space.advise(whole, Advice::HugePage)?;
        space.advise(whole, Advice::PopulateWrite)?;
        Ok(())
    }
}
