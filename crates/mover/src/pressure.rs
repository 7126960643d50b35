//! Detects memory shortage of the host, for which the work waits. Reads below [`Root`] and judges
//! by pure functions.

use std::time::Duration;

use hugeleaf_host::system::available;
use hugeleaf_host::system::counters::{PressureResource, read_stalled, read_vmstat};
use hugeleaf_host::{Host, Root};
use hugeleaf_units::{Bytes, PageSize};

/// Share of the time in which other tasks may stall for memory before the work waits.
const STALL_SHARE: f64 = 0.1;

/// Values read at one time; `None` if this host does not report them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PressureSample {
    pub at: Duration,
    /// Time that this program had spent in promotion and demotion calls by then.
    pub own: Duration,
    /// Time since boot in which some task stalled for memory (`/proc/pressure/memory`).
    pub stalled: Option<Duration>,
    /// Available memory (`MemAvailable`).
    pub available: Option<Bytes>,
    /// Direct compactions since boot (`compact_stall` in `/proc/vmstat`).
    pub compactions: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pressure {
    None,
    /// The kernel had to compact memory to find huge pages: slow down.
    Compacting,
    /// Other tasks stall for memory: wait.
    Stalling,
    /// Less memory is available than must remain: wait.
    Low,
}

pub fn sample(root: &Root, at: Duration, own: Duration) -> PressureSample {
    PressureSample {
        at,
        own,
        stalled: read_stalled(root, PressureResource::Memory).get(),
        available: available(root).get(),
        compactions: read_vmstat(root, "compact_stall").get(),
    }
}

/// Judges the time between two samples; `floor` is the memory that must stay available.
pub fn judge(before: &PressureSample, now: &PressureSample, floor: Bytes) -> Pressure {
    if now.available.is_some_and(|available| available < floor) {
        return Pressure::Low;
    }
    // This program's own calls count as stalled if they compact. Only the remainder belongs to
    // other tasks.
    let span = now.at.saturating_sub(before.at);
    let own = now.own.saturating_sub(before.own);
    if let (Some(was), Some(is)) = (before.stalled, now.stalled) {
        let others = is.saturating_sub(was).saturating_sub(own);
        if !span.is_zero() && others.as_secs_f64() / span.as_secs_f64() > STALL_SHARE {
            return Pressure::Stalling;
        }
    }
    match (before.compactions, now.compactions) {
        (Some(was), Some(is)) if is > was => Pressure::Compacting,
        _ => Pressure::None,
    }
}

/// Returns the default for memory that stays available: a fiftieth of the host's memory. At least
/// twice the kernel's own reserve (`min_free_kbytes`) and four huge pages; at most an eighth of the
/// host's memory.
pub fn floor_of(host: &Host, huge: PageSize) -> Bytes {
    let total = host.memory.total.get().unwrap_or_default().get();
    let kept = host.limits.min_free.get().unwrap_or_default().get();
    let wanted = (total / 50)
        .max(kept.saturating_mul(2))
        .max(huge.bytes().get() * 4);
    Bytes(wanted.min((total / 8).max(huge.bytes().get())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> PressureSample {
        PressureSample {
            at: SECOND * seconds,
            available: Some(Bytes(100)),
            ..PressureSample::default()
        }
    }

    #[test]
    fn low_memory_comes_first() {
        assert_eq!(judge(&at(0), &at(1), Bytes(101)), Pressure::Low);
        assert_eq!(judge(&at(0), &at(1), Bytes(100)), Pressure::None);
        let untold = PressureSample {
            available: None,
            ..at(1)
        };
        assert_eq!(judge(&at(0), &untold, Bytes(101)), Pressure::None);
    }

    #[test]
    fn own_calls_are_no_stall_of_others() {
        let before = PressureSample {
            stalled: Some(SECOND),
            ..at(0)
        };
        let stalled = Some(SECOND + SECOND / 5);
        let own = PressureSample {
            stalled,
            own: SECOND / 5,
            ..at(1)
        };
        let others = PressureSample { stalled, ..at(1) };
        assert_eq!(judge(&before, &own, Bytes(0)), Pressure::None);
        assert_eq!(judge(&before, &others, Bytes(0)), Pressure::Stalling);
        // Two equal samples, and a counter that went back, prove nothing.
        assert_eq!(judge(&before, &before, Bytes(0)), Pressure::None);
        assert_eq!(
            judge(
                &others,
                &PressureSample {
                    at: SECOND * 2,
                    ..before
                },
                Bytes(0)
            ),
            Pressure::None
        );
    }

    #[test]
    fn compaction_is_noticed() {
        let (one, two) = (
            PressureSample {
                compactions: Some(1),
                ..at(0)
            },
            PressureSample {
                compactions: Some(2),
                ..at(1)
            },
        );
        assert_eq!(judge(&one, &two, Bytes(0)), Pressure::Compacting);
        assert_eq!(judge(&two, &one, Bytes(0)), Pressure::None);
        assert_eq!(judge(&at(0), &two, Bytes(0)), Pressure::None);
    }
}
