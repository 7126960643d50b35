//! Preparation of the host for a sample: knobs, pools and warm memory, and the restoration of all of
//! it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hugeleaf_host::{Root, read_host};
use hugeleaf_sys::{Advice, HostLock, Kernel, MemorySyscalls, lock_host};
use hugeleaf_units::{Bytes, PageSize};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::Failed;
use crate::setting::RestoreSetting;

/// The host, locked while this value lives.
pub struct Host {
    /// Page size of the default pool.
    pub pool: PageSize,
    /// Size of transparent huge pages.
    pub huge: PageSize,
    is_asked_to_end: Arc<AtomicBool>,
    _lock: HostLock,
}

impl Host {
    /// Waits for the lock that tests and benchmarks share. Returns `None`, with a printed reason, if
    /// the host cannot be measured.
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
        // Signals are checked between two samples, so that no knob stays changed on the host.
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

    /// Returns true after a signal to end. The samples so far are then written.
    pub fn is_asked_to_end(&self) -> bool {
        self.is_asked_to_end.load(Ordering::Relaxed)
    }

    /// Provides `bytes` free bytes in the pool, until the result is dropped.
    pub fn fill_pool(&self, bytes: Bytes) -> Result<RestoreSetting, Failed> {
        RestoreSetting::free_pages(self.pool, bytes)
    }

    /// Touches `bytes` of memory and frees it. Memory that was returned to the hypervisor is
    /// expensive at its first reuse. The sample then gets memory that was just freed.
    pub fn warm(&self, bytes: Bytes) -> Result<(), Failed> {
        let memory = MemorySyscalls::new();
        let space =
            memory.reserve_addresses(self.huge.pages_for(bytes).in_bytes(self.huge), self.huge)?;
        let whole = space.range();
        space.map_private(whole)?;
        space.advise(whole, Advice::HugePage)?;
        space.advise(whole, Advice::PopulateWrite)?;
        Ok(())
    }
}
