//! Sets the size of a pool, with a bounded number of attempts and compaction between them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hugeleaf_host::Root;
use hugeleaf_sys::{Errno, HostChange, SysError};

use super::ChangeContext;
use super::path_state::{PathState, read_pool};

/// Maximum number of attempts. Each attempt reclaims and compacts; later ones gain from the
/// compaction of the whole node in between.
pub const POOL_ATTEMPTS: u32 = 8;

/// Number of consecutive attempts without gain before giving up.
const MAX_FUTILE_ATTEMPTS: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolResult {
    pub pages: u64,
    pub surplus: u64,
    pub attempts: u32,
}

/// Sets the pool with this `nr_hugepages` file. `caches`: drop clean page caches between attempts.
pub fn set(
    context: &mut ChangeContext<'_>,
    file: &Path,
    wanted: u64,
    caches: bool,
) -> Result<PoolResult, SysError> {
    let (mut result, mut vain) = (now(file)?, 0);
    let begun_with = result.pages;
    while result.attempts < POOL_ATTEMPTS {
        let before = result.pages;
        context
            .kernel
            .change(HostChange::Write(file, &wanted.to_string()))?;
        let attempts = result.attempts + 1;
        result = PoolResult {
            attempts,
            ..now(file)?
        };
        vain = if result.pages > before { 0 } else { vain + 1 };
        let is_stopped = context.stop.load(std::sync::atomic::Ordering::Relaxed);
        // A pool shrinks at the first attempt.
        if result.pages >= wanted || wanted < begun_with || vain > MAX_FUTILE_ATTEMPTS || is_stopped
        {
            break;
        }
        make_room(context, file, caches);
        let pause = Duration::from_millis(100) * attempts;
        context.kernel.wait(pause, context.stop);
    }
    Ok(result)
}

fn now(file: &Path) -> Result<PoolResult, SysError> {
    match read_pool(file)? {
        Some(PathState::Pool { pages, surplus }) => Ok(PoolResult {
            pages,
            surplus,
            attempts: 0,
        }),
        _ => Err(SysError::new(
            "read",
            file.display().to_string(),
            Errno::NOENT,
        )),
    }
}

/// Compacts memory, so that the next attempt finds contiguous memory. Errors are ignored, because
/// the next attempt shows the result.
fn make_room(context: &mut ChangeContext<'_>, file: &Path, caches: bool) {
    if caches {
        // 3 drops page cache, dentries and inodes; the latter hold memory between pages.
        let knob = context.root.path("proc/sys/vm/drop_caches");
        let _ = context.kernel.change(HostChange::Write(&knob, "3"));
    }
    let _ = context
        .kernel
        .change(HostChange::Write(&compactor(context.root, file), "1"));
}

/// Returns the knob that compacts the pool's node, or the whole host if there are no nodes.
fn compactor(root: &Root, file: &Path) -> PathBuf {
    let node = file.ancestors().nth(3).map(|node| node.join("compact"));
    node.filter(|knob| knob.exists())
        .unwrap_or_else(|| root.path("proc/sys/vm/compact_memory"))
}
