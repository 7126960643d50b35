//! How much of its memory a process touches: the accessed bits of its page tables are cleared, and counted a while
//! later.
//!
//! The kernel offers this of a whole process only (`clear_refs`, proc(5); `Referenced` of `smaps_rollup`): two walks of
//! its page tables, about 20 ms a gigabyte on base pages, measured with each sample. Idle page tracking could take a
//! part, but is in few kernels, and PAGEMAP_SCAN does not report accessed pages. What it costs the process is a TLB flush
//! and the bits being set again, which a machine without nested paging notices (kernel-notes.md). So it is for rare
//! questions: which of several programs to move first.

use std::time::Duration;

use hugeleaf_host::process::identity;
use hugeleaf_host::process::maps::{SmapsEntry, read_smaps_lines};
use hugeleaf_host::{Fact, Root};
use hugeleaf_sys::{Kernel, Pid, write_value};
use hugeleaf_units::{Bytes, Range};
use hugeleaf_verdict::predict::Seen as Touches;

/// What `clear_refs` takes for all pages.
const ALL: &str = "1";

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Touched {
    /// Bytes a second, each page once.
    pub bytes_per_second: f64,
    /// Time in the two walks: what it took of a processor at most.
    pub cost: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    pub seen: Touches,
    pub cost: Duration,
}

/// Watches what a process touches for `time`.
///
/// # Errors
/// Why its bits could not be cleared or read; that it ended meanwhile.
pub fn touched(kernel: &Kernel, root: &Root, pid: Pid, time: Duration) -> Result<Touched, String> {
    let seen = watch(kernel, root, pid, time, "smaps_rollup")?;
    let referenced: Bytes = seen.entries.iter().map(|e| e.counts.referenced).sum();
    Ok(Touched {
        bytes_per_second: referenced.as_f64() / seen.between.as_secs_f64(),
        cost: seen.cost,
    })
}

/// Watches which base pages of some ranges a process touches for `time`, and for as long as a walk over them takes. The
/// process waits for the first of the two walks where it maps memory or faults meanwhile: the kernel holds its lock
/// (clear_refs_write, fs/proc/task_mmu.c).
pub fn look(
    kernel: &Kernel,
    root: &Root,
    pid: Pid,
    ranges: &[Range],
    time: Duration,
) -> Result<Look, String> {
    let seen = watch(kernel, root, pid, time, "smaps")?;
    let of_ranges = |entry: &&SmapsEntry| {
        ranges
            .iter()
            .any(|r| r.intersect(entry.map.range).is_some())
    };
    let mut all = Touches {
        // Both walks go from low to high addresses: a page's own time ends as much later as it began.
        time: seen.between + seen.cost / 2,
        resident: Bytes::ZERO,
        touched: Bytes::ZERO,
        large: Bytes::ZERO,
    };
    for SmapsEntry { counts, .. } in seen.entries.iter().filter(of_ranges) {
        let small = counts.resident.saturating_sub(counts.pmd_mapped);
        all.resident += small;
        all.touched += counts.referenced.min(small);
        all.large += counts.pmd_mapped + counts.hugetlb;
    }
    Ok(Look {
        seen: all,
        cost: seen.cost,
    })
}

struct Seen {
    between: Duration,
    cost: Duration,
    entries: Vec<SmapsEntry>,
}

fn watch(
    kernel: &Kernel,
    root: &Root,
    pid: Pid,
    time: Duration,
    file: &str,
) -> Result<Seen, String> {
    let before = identity(root, pid).map_err(|e| e.to_string())?;
    let path = root.path(format!("proc/{pid}/clear_refs"));
    let began = kernel.now();
    write_value(&path, ALL).map_err(|e| e.to_string())?;
    let from = kernel.now();
    kernel.sleep(time);
    let to = kernel.now();
    let between = to.saturating_sub(from).max(Duration::from_millis(1));
    let entries = entries(root, pid, file)?;
    let cost = from.saturating_sub(began) + kernel.now().saturating_sub(to);
    match identity(root, pid) {
        Ok(after) if after == before => Ok(Seen {
            between,
            cost,
            entries,
        }),
        _ => Err(format!("process {pid} ended meanwhile")),
    }
}

fn entries(root: &Root, pid: Pid, file: &str) -> Result<Vec<SmapsEntry>, String> {
    match root.parse_lines(format!("proc/{pid}/{file}"), read_smaps_lines) {
        Fact::Known(all) => Ok(all),
        Fact::Absent => Err(format!("process {pid} ended meanwhile")),
        Fact::Unreadable(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_sys::{Kernel, effective_uid, own_pid};

    #[test]
    fn what_is_touched_is_counted() {
        if effective_uid() != 0 {
            println!("not run: what_is_touched_is_counted: needs root");
            return;
        }
        let (kernel, root) = (Kernel::new(), Root::live());
        let mut memory = vec![1u8; 64 << 20];
        let stop = std::sync::atomic::AtomicBool::new(false);
        let ask = |time| touched(&kernel, &root, own_pid(), time).unwrap();
        // Other tests touch memory of this process, too: now and then more than this one.
        let seen = (0..20).find(|_| {
            let idle = ask(Duration::from_millis(300));
            stop.store(false, std::sync::atomic::Ordering::Relaxed);
            let busy = std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        memory
                            .iter_mut()
                            .step_by(4096)
                            .for_each(|byte| *byte = byte.wrapping_add(1));
                    }
                });
                let busy = ask(Duration::from_millis(300));
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
                busy
            });
            busy.bytes_per_second - idle.bytes_per_second > (64 << 20) as f64
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
        let look = |ranges: &[Range]| {
            look(&kernel, &root, own_pid(), ranges, Duration::from_millis(1))
                .unwrap()
                .seen
        };
        let all = look(&[range]);
        assert!(all.resident + all.large >= Bytes(32 << 20), "{all:?}");
        assert!(all.touched <= all.resident && all.time >= Duration::from_millis(1));
        // What was not touched is not counted: a mapping of its own, which nobody else uses.
        assert!(
            all.touched < Bytes((32 << 20) - 64 * page) || all.large > Bytes::ZERO,
            "{all:?}"
        );
        let none = look(&[]);
        assert_eq!(
            (none.resident, none.touched, none.large),
            Default::default()
        );
    }

    #[test]
    fn nobody_touches_nothing() {
        let (kernel, root) = (Kernel::new(), Root::live());
        assert!(touched(&kernel, &root, Pid(u32::MAX / 2), Duration::ZERO).is_err());
    }
}
