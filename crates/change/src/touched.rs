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
use hugeleaf_units::Bytes;

/// What `clear_refs` takes for all pages.
const ALL: &str = "1";

/// How much was touched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Touched {
    /// Bytes a second, each page once.
    pub bytes_per_second: f64,
    /// Time in the two walks: what it took of a processor at most.
    pub cost: Duration,
}

/// Watches what a process touches for `time`.
///
/// # Errors
/// Why its bits could not be cleared or read; that it ended meanwhile.
pub fn touched(
    kernel: &dyn Kernel,
    root: &Root,
    pid: Pid,
    time: Duration,
) -> Result<Touched, String> {
    let before = identity(root, pid).map_err(|e| e.to_string())?;
    let path = root.path(format!("proc/{pid}/clear_refs"));
    let began = kernel.now();
    write_value(&path, ALL).map_err(|e| e.to_string())?;
    let from = kernel.now();
    kernel.sleep(time);
    let to = kernel.now();
    let span = to.saturating_sub(from).max(Duration::from_millis(1));
    let referenced = referenced(root, pid)?;
    let cost = from.saturating_sub(began) + kernel.now().saturating_sub(to);
    match identity(root, pid) {
        Ok(after) if after == before => Ok(Touched {
            bytes_per_second: referenced.as_f64() / span.as_secs_f64(),
            cost,
        }),
        _ => Err(format!("process {pid} ended meanwhile")),
    }
}

fn referenced(root: &Root, pid: Pid) -> Result<Bytes, String> {
    match root.parse_lines(format!("proc/{pid}/smaps_rollup"), read_smaps_lines) {
        Fact::Known(all) => Ok(all.iter().map(|e: &SmapsEntry| e.counts.referenced).sum()),
        Fact::Absent => Err(format!("process {pid} ended meanwhile")),
        Fact::Unreadable(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_sys::{RealKernel, effective_uid, own_pid};

    #[test]
    fn what_is_touched_is_counted() {
        if effective_uid() != 0 {
            println!("not run: what_is_touched_is_counted: needs root");
            return;
        }
        let (kernel, root) = (RealKernel::new(), Root::live());
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
    fn nobody_touches_nothing() {
        let (kernel, root) = (RealKernel::new(), Root::live());
        assert!(touched(&kernel, &root, Pid(u32::MAX / 2), Duration::ZERO).is_err());
    }
}
