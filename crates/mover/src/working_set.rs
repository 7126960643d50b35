//! Measures how much of its memory a process touches. Clears the accessed bits of its page tables, and counts them some
//! time later.
//!
//! The kernel offers this only for a whole process (`clear_refs`, proc(5); `Referenced` of `smaps_rollup`). It takes two
//! walks of the page tables, about 20 ms per gigabyte on base pages, and the process cannot map memory meanwhile. Idle page
//! tracking could cover a part, but few kernels have it, and PAGEMAP_SCAN does not report accessed pages. So the time of
//! the walk is estimated first ([`walk_time`]). The walk is skipped if it would exceed the allowed lock time ([`MAX_LOCK_TIME`]
//! by default). The process also pays a TLB flush and setting the bits again, which is measurable without nested paging
//! (kernel-notes.md). So use it rarely, e.g. to decide which of several processes to promote first.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hugeleaf_host::process::identity;
use hugeleaf_host::process::maps::{SmapsEntry, read_maps, read_smaps_lines};
use hugeleaf_host::process::proc_parsers::parse_status;
use hugeleaf_host::{Fact, PageRun, PageState, Root};
use hugeleaf_sys::{Kernel, PageScanDetail, Pid, write_value};
use hugeleaf_units::{Bytes, Range};
use hugeleaf_verdict::predict::AccessScan as Touches;

/// Value for `clear_refs` that covers all pages.
const ALL: &str = "1";

/// Longest time that a read may hold the lock on a process's address space by default.
pub const MAX_LOCK_TIME: Duration = Duration::from_millis(5);
/// Upper bound of a walk's time per base page: 70 to 100 ns were measured (kernel-notes.md).
const WALK_TIME_PER_PAGE: Duration = Duration::from_nanos(100);

/// Settings for watching a process.
#[derive(Debug, Clone, Copy)]
pub struct WorkingSetOptions<'a> {
    pub time: Duration,
    /// Longest time that the walk may keep the process from mapping memory.
    pub held: Duration,
    pub stop: &'a AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TouchRate {
    /// Bytes touched per second, each page once.
    pub bytes_per_second: f64,
    /// Time of the two walks, an upper bound of the CPU time used.
    pub cost: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AccessSample {
    pub seen: Touches,
    pub cost: Duration,
}

/// Measures how many bytes a process touches.
///
/// # Errors
/// The process ended meanwhile, or its bits could not be cleared or read.
pub fn measure_touch_rate(
    kernel: &Kernel,
    root: &Root,
    pid: Pid,
    time: WorkingSetOptions<'_>,
) -> Result<TouchRate, String> {
    watch(kernel, root, pid, time, "smaps_rollup").map(|seen| TouchRate {
        bytes_per_second: seen.rate(),
        cost: seen.cost,
    })
}

/// Measures which base pages of some ranges a process touches during a time plus the time of a walk over them. During the
/// first of the two walks the process waits if it maps memory or faults, because the kernel holds its lock
/// (clear_refs_write, fs/proc/task_mmu.c). So nothing is done if a walk would exceed the limit.
pub fn sample(
    kernel: &Kernel,
    root: &Root,
    pid: Pid,
    ranges: &[Range],
    time: WorkingSetOptions<'_>,
) -> Result<AccessSample, String> {
    let seen = watch(kernel, root, pid, time, "smaps")?;
    let of_ranges = |entry: &&SmapsEntry| {
        ranges
            .iter()
            .any(|r| r.intersect(entry.map.range).is_some())
    };
    let mut all = Touches {
        // Both walks go from low to high addresses, so each page's interval is shifted at both ends alike.
        time: seen.between + seen.cost / 2,
        resident: Bytes::ZERO,
        touched: Bytes::ZERO,
        large: Bytes::ZERO,
    };
    for SmapsEntry { counts, .. } in seen.entries.iter().filter(of_ranges) {
        let small = counts.resident - counts.pmd_mapped;
        all.resident += small;
        all.touched += counts.referenced.min(small);
        all.large += counts.pmd_mapped + counts.hugetlb;
    }
    Ok(AccessSample {
        seen: all,
        cost: seen.cost,
    })
}

struct SmapsSample {
    between: Duration,
    cost: Duration,
    entries: Vec<SmapsEntry>,
}

impl SmapsSample {
    /// Returns bytes touched per second, each page once.
    fn rate(&self) -> f64 {
        let referenced: Bytes = self.entries.iter().map(|e| e.counts.referenced).sum();
        referenced.as_f64() / self.between.as_secs_f64()
    }
}

fn watch(
    kernel: &Kernel,
    root: &Root,
    pid: Pid,
    WorkingSetOptions { time, held, stop }: WorkingSetOptions<'_>,
    file: &str,
) -> Result<SmapsSample, String> {
    let before = identity(root, pid).map_err(|e| e.to_string())?;
    may_walk(kernel, root, pid, held)?;
    let path = root.path(format!("proc/{pid}/clear_refs"));
    let began = kernel.now();
    write_value(&path, ALL).map_err(|e| e.to_string())?;
    let from = kernel.now();
    if !kernel.wait(time, stop) {
        return Err("stopped on request".to_owned());
    }
    let to = kernel.now();
    let between = to.saturating_sub(from).max(Duration::from_millis(1));
    let entries = match root.parse_lines(format!("proc/{pid}/{file}"), read_smaps_lines) {
        Fact::Known(all) => all,
        Fact::Absent => return Err(format!("process {pid} ended meanwhile")),
        Fact::Unreadable(error) => return Err(error.to_string()),
    };
    let cost = from.saturating_sub(began) + kernel.now().saturating_sub(to);
    match identity(root, pid) {
        Ok(after) if after == before => Ok(SmapsSample {
            between,
            cost,
            entries,
        }),
        _ => Err(format!("process {pid} ended meanwhile")),
    }
}

/// Checks that a walk over all page tables of a process takes no longer than `held`.
///
/// # Errors
/// The walk would take longer; those of [`walk_time`].
pub fn may_walk(kernel: &Kernel, root: &Root, pid: Pid, held: Duration) -> Result<(), String> {
    let walk = walk_time(kernel, root, pid)?;
    if walk <= held {
        return Ok(());
    }
    let [walk, held] = [walk, held].map(|time| (time.as_secs_f64() * 1e3).ceil());
    Err(format!(
        "a scan would stall process {pid} for {walk} ms when it maps memory; the limit is {held} ms"
    ))
}

/// Returns the longest time of a walk over all page tables of a process, by its number of base pages. They are counted in
/// parts that each hold the process's lock for a short time.
///
/// # Errors
/// The process ended, or may not be read.
pub fn walk_time(kernel: &Kernel, root: &Root, pid: Pid) -> Result<Duration, String> {
    let base = kernel.base_page();
    let pagemap = root.open(format!("proc/{pid}/pagemap"));
    let pagemap = pagemap.map_err(|e| format!("proc/{pid}/pagemap: {e}"))?;
    let maps = root.parse_lines(format!("proc/{pid}/maps"), read_maps);
    let mut small = Bytes::ZERO;
    for mapping in maps.known().into_iter().flatten() {
        let map = kernel.page_map(&pagemap, mapping.range, PageScanDetail::Sizes);
        let Ok(map) = map.map_err(|e| e.to_string()) else {
            continue;
        };
        if !map.huge_known {
            // Before Linux 6.7: at most the resident size.
            let status = root.parse(format!("proc/{pid}/status"), parse_status);
            small = status
                .known()
                .and_then(|status| status.resident)
                .unwrap_or_default();
            break;
        }
        let base = |run: &&PageRun| !run.state.has(PageState::HUGE);
        small += map
            .runs
            .iter()
            .filter(base)
            .map(|run| run.range.len())
            .sum();
    }
    let pages = base.pages_for(small).get();
    Ok(WALK_TIME_PER_PAGE.saturating_mul(u32::try_from(pages).unwrap_or(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_sys::{Kernel, effective_uid, own_pid};
    use hugeleaf_testkit::RepeatingThread;

    /// A watch that is never stopped.
    fn whole(time: Duration, held: Duration) -> WorkingSetOptions<'static> {
        static STOP: AtomicBool = AtomicBool::new(false);
        WorkingSetOptions {
            time,
            held,
            stop: &STOP,
        }
    }

    #[test]
    fn what_is_touched_is_counted() {
        if effective_uid() != 0 {
            println!("not run: what_is_touched_is_counted: needs root");
            return;
        }
        let (kernel, root) = (Kernel::new(), Root::live());
        let mut memory = vec![1u8; 64 << 20];
        // Other tests of this process hold more memory than a scan may walk by default.
        let ask = |time| {
            let time = whole(time, Duration::MAX);
            let seen = watch(&kernel, &root, own_pid(), time, "smaps_rollup");
            seen.unwrap().rate()
        };
        // Other tests of this process touch memory too, sometimes more than this one.
        let seen = (0..20).find(|_| {
            let idle = ask(Duration::from_millis(300));
            let busy = std::thread::scope(|scope| {
                let _toucher = RepeatingThread::start(scope, || {
                    let bytes = memory.iter_mut().step_by(4096);
                    bytes.for_each(|byte| *byte = byte.wrapping_add(1));
                });
                ask(Duration::from_millis(300))
            });
            busy - idle > (64 << 20) as f64
        });
        assert!(seen.is_some());
    }

    #[test]
    fn base_pages_of_some_ranges_are_counted_alone() {
        if effective_uid() != 0 {
            println!("not run: base_pages_of_some_ranges_are_counted_alone: needs root");
            return;
        }
        let (kernel, root) = (Kernel::new(), Root::live());
        let page = kernel.base_page().bytes().get();
        let memory = vec![1u8; 32 << 20];
        let start = memory.as_ptr() as u64;
        let range = Range::new(start, start + memory.len() as u64).unwrap();
        let sampled = |ranges: &[Range]| {
            let time = whole(Duration::from_millis(1), Duration::MAX);
            sample(&kernel, &root, own_pid(), ranges, time)
                .unwrap()
                .seen
        };
        let all = sampled(&[range]);
        assert!(all.resident + all.large >= Bytes(32 << 20), "{all:?}");
        assert!(all.touched <= all.resident && all.time >= Duration::from_millis(1));
        // Untouched memory must not count. It is a mapping of its own that no other test uses.
        assert!(
            all.touched < Bytes((32 << 20) - 64 * page) || all.large > Bytes::ZERO,
            "{all:?}"
        );
        let none = sampled(&[]);
        assert_eq!(
            (none.resident, none.touched, none.large),
            Default::default()
        );
    }

    #[test]
    fn no_scan_is_made_that_would_take_longer_than_allowed() {
        let (kernel, root) = (Kernel::new(), Root::live());
        let mut memory = vec![0u8; 32 << 20];
        let walk = || walk_time(&kernel, &root, own_pid()).unwrap();
        let before = walk();
        let page = usize::try_from(kernel.base_page().bytes().get()).unwrap();
        memory.iter_mut().step_by(page).for_each(|byte| *byte = 1);
        // With huge pages on this host there is nothing to walk; other tests free memory meanwhile.
        assert!(walk() > Duration::ZERO && before > Duration::ZERO);
        let watch = whole(Duration::ZERO, Duration::from_nanos(1));
        let refused = sample(&kernel, &root, own_pid(), &[], watch);
        let error = refused.unwrap_err();
        assert!(error.contains("when it maps memory"), "{error}");
        std::hint::black_box(memory);
    }

    #[test]
    fn nobody_touches_nothing() {
        let (kernel, root) = (Kernel::new(), Root::live());
        let watch = whole(Duration::ZERO, Duration::MAX);
        assert!(measure_touch_rate(&kernel, &root, Pid(u32::MAX / 2), watch).is_err());
    }
}
