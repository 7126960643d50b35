//! Counters of the CPU: which there are by what name on Intel, AMD and Arm, and their sums over all
//! CPUs. A host without them is an answer: "not on this host".
//!
//! Numbers of events are those of the makers' manuals: Intel's and AMD's event code and mask as
//! `0xMMEE`, Arm's architectural events by their number.

use hugeleaf_sys::{Errno, PerfCount, PerfEvent, PerfKind, PerfRate, PerfSetup, PerfStack};

use super::refusal::{Guards, is_not_here, refusal};
use crate::model::{Counter, SourceState};

/// Who made the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// Intel, and which generation of page-walk events it has.
    Intel,
    /// AMD, Zen and later.
    Amd,
    /// Arm's own events (Armv8.1 and later).
    Arm,
    /// Another, with the kernel's generic events only.
    Other,
}

/// The maker, from `/proc/cpuinfo`.
pub fn maker_of(cpuinfo: &str) -> Maker {
    let value = |key: &str| {
        cpuinfo.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.trim().to_owned())
        })
    };
    match value("vendor_id").as_deref() {
        Some("GenuineIntel") => Maker::Intel,
        Some("AuthenticAMD" | "HygonGenuine") => Maker::Amd,
        _ if value("CPU implementer").is_some() => Maker::Arm,
        _ => Maker::Other,
    }
}

/// The CPU's model, from `/proc/cpuinfo`.
pub fn model_of(cpuinfo: &str) -> Option<String> {
    cpuinfo.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "model name").then(|| value.trim().to_owned())
    })
}

/// `PERF_TYPE_HARDWARE`, `_HW_CACHE` and `_RAW`.
const HARDWARE: u32 = 0;
const CACHE: u32 = 3;
const RAW: u32 = 4;

/// A generic cache event: what, read, access (0) or miss (1).
const fn cache(what: u64, miss: u64) -> u64 {
    what | miss << 16
}

const DTLB: u64 = 3;
const ITLB: u64 = 4;

/// No event of its own: the sum of those whose names begin with its name.
const SUM_OF_PARTS: &str = "loads, stores and code together";

/// A generic name, the CPU's name, type and config.
type Wanted = (&'static str, &'static str, u32, u64);

/// Cycles and instructions, which every maker's CPUs count.
const EVERYWHERE: [Wanted; 2] = [
    ("cycles", "cycles", HARDWARE, 0),
    ("instructions", "instructions", HARDWARE, 1),
];

const INTEL: [Wanted; 6] = [
    (
        "dtlb_load_misses",
        "DTLB_LOAD_MISSES.MISS_CAUSES_A_WALK",
        CACHE,
        cache(DTLB, 1),
    ),
    (
        "itlb_misses",
        "ITLB_MISSES.MISS_CAUSES_A_WALK",
        CACHE,
        cache(ITLB, 1),
    ),
    (
        "page_walk_cycles_loads",
        "DTLB_LOAD_MISSES.WALK_PENDING",
        RAW,
        0x1008,
    ),
    (
        "page_walk_cycles_stores",
        "DTLB_STORE_MISSES.WALK_PENDING",
        RAW,
        0x1049,
    ),
    (
        "page_walk_cycles_code",
        "ITLB_MISSES.WALK_PENDING",
        RAW,
        0x1085,
    ),
    // The sum of the three, made at the end.
    ("page_walk_cycles", SUM_OF_PARTS, RAW, 0),
];

const AMD: [Wanted; 6] = [
    ("dtlb_load_misses", "ls_l1_d_tlb_miss.all", RAW, 0xff45),
    (
        "dtlb_l2_misses",
        "ls_l1_d_tlb_miss.all_l2_miss",
        RAW,
        0xf045,
    ),
    ("itlb_misses", "bp_l1_tlb_miss_l2_tlb_miss", RAW, 0x0785),
    ("page_walks_data", "ls_tablewalker.dside", RAW, 0x0346),
    ("page_walks_code", "ls_tablewalker.iside", RAW, 0x0c46),
    // Zen counts walks and not their cycles.
    ("page_walk_cycles", "", RAW, 0),
];

const ARM: [Wanted; 5] = [
    ("dtlb_load_misses", "L1D_TLB_REFILL", RAW, 0x05),
    ("itlb_misses", "L1I_TLB_REFILL", RAW, 0x02),
    ("page_walks_data", "DTLB_WALK", RAW, 0x34),
    ("page_walks_code", "ITLB_WALK", RAW, 0x35),
    ("page_walk_cycles", "DTLB_WALK_PERCYC", RAW, 0x8137),
];

const OTHER: [Wanted; 3] = [
    (
        "dtlb_load_misses",
        "dTLB-load-misses",
        CACHE,
        cache(DTLB, 1),
    ),
    ("itlb_misses", "iTLB-load-misses", CACHE, cache(ITLB, 1)),
    ("page_walk_cycles", "", RAW, 0),
];

/// What is counted on a CPU of a maker.
pub fn wanted(maker: Maker) -> Vec<Wanted> {
    let own: &[Wanted] = match maker {
        Maker::Intel => &INTEL,
        Maker::Amd => &AMD,
        Maker::Arm => &ARM,
        Maker::Other => &OTHER,
    };
    [&EVERYWHERE[..], own].concat()
}

/// Counters that run.
#[derive(Debug, Default)]
pub struct Counters {
    all: Vec<(Counter, Vec<PerfEvent>)>,
}

impl Counters {
    /// Opens what there is, on all CPUs, and starts it.
    pub fn open(maker: Maker, cpus: &[u32], guards: &Guards) -> Counters {
        let all = wanted(maker)
            .into_iter()
            .map(|(name, event, kind, config)| {
                let mut counter = Counter {
                    name: name.to_owned(),
                    event: event.to_owned(),
                    ..Counter::default()
                };
                let mut events = Vec::new();
                if event.is_empty() {
                    counter.state = SourceState::NotHere {
                        reason: "this CPU has no such event".to_owned(),
                    };
                    return (counter, events);
                }
                if event == SUM_OF_PARTS {
                    return (counter, events);
                }
                for cpu in cpus {
                    match open(kind, config, *cpu) {
                        Ok(event) => events.push(event),
                        Err(error) => {
                            counter.state = state_of(&error, guards);
                            events.clear();
                            break;
                        }
                    }
                }
                (counter, events)
            })
            .collect();
        Counters { all }
    }

    /// Stops and adds up.
    pub fn finish(self) -> Vec<Counter> {
        let mut counters: Vec<Counter> = self
            .all
            .into_iter()
            .map(|(mut counter, events)| {
                let counts: Vec<PerfCount> = events.iter().filter_map(|e| e.count().ok()).collect();
                if !counts.is_empty() {
                    let (value, share) = scaled(&counts);
                    counter.value = value;
                    counter.running_share = share;
                }
                counter
            })
            .collect();
        add_up(&mut counters);
        counters
    }
}

/// Fills in sums; without its parts a sum is where they are.
fn add_up(counters: &mut [Counter]) {
    let Some(at) = counters.iter().position(|c| c.event == SUM_OF_PARTS) else {
        return;
    };
    let name = format!("{}_", counters[at].name);
    let parts: Vec<&Counter> = counters
        .iter()
        .filter(|c| c.name.starts_with(&name))
        .collect();
    let value: Option<u64> = parts.iter().map(|c| c.value).sum();
    let share = parts
        .iter()
        .filter_map(|c| c.running_share)
        .reduce(f64::min);
    let state = parts
        .iter()
        .map(|c| c.state.clone())
        .find(|state| *state != SourceState::Used)
        .unwrap_or_default();
    let sum = &mut counters[at];
    (sum.value, sum.running_share, sum.state) = (value, share, state);
}

fn open(kind: u32, config: u64, cpu: u32) -> Result<PerfEvent, hugeleaf_sys::SysError> {
    let setup = PerfSetup {
        kind: PerfKind::Raw(kind, config),
        rate: PerfRate::Counted,
        stack: PerfStack::No,
        raw: false,
    };
    let event = PerfEvent::open(&setup, cpu)?;
    event.enable()?;
    Ok(event)
}

fn state_of(error: &hugeleaf_sys::SysError, guards: &Guards) -> SourceState {
    // A machine without counters has none of them; the kernel says so in several ways.
    if is_not_here(error.errno) {
        let reason = match error.errno {
            Errno::OPNOTSUPP | Errno::NOENT | Errno::NODEV => {
                "it gives no such counter (a virtual machine often has none)"
            }
            _ => "its CPU does not know this event",
        };
        return SourceState::NotHere {
            reason: reason.to_owned(),
        };
    }
    let (reason, remedy) = refusal(error, guards);
    SourceState::Refused { reason, remedy }
}

/// The sum, scaled up where events shared a register; nothing where one never had a turn.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
fn scaled(counts: &[PerfCount]) -> (Option<u64>, Option<f64>) {
    let enabled: u64 = counts.iter().map(|c| c.enabled_nanos).sum();
    let running: u64 = counts.iter().map(|c| c.running_nanos).sum();
    if running == 0 || enabled == 0 {
        return (None, Some(0.0));
    }
    let value: f64 = counts
        .iter()
        .filter(|c| c.running_nanos > 0)
        .map(|c| c.value as f64 * (c.enabled_nanos as f64 / c.running_nanos as f64))
        .sum();
    (Some(value as u64), Some(running as f64 / enabled as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makers_are_told_apart() {
        assert_eq!(maker_of("vendor_id\t: GenuineIntel\n"), Maker::Intel);
        assert_eq!(maker_of("vendor_id\t: AuthenticAMD\n"), Maker::Amd);
        assert_eq!(maker_of("CPU implementer\t: 0x41\n"), Maker::Arm);
        assert_eq!(maker_of(""), Maker::Other);
        assert_eq!(model_of("model name : A B\n").as_deref(), Some("A B"));
    }

    /// Each maker answers the same questions.
    #[test]
    fn generic_names_are_the_same_everywhere() {
        for maker in [Maker::Intel, Maker::Amd, Maker::Arm] {
            let names: Vec<_> = wanted(maker).iter().map(|w| w.0).collect();
            for name in [
                "cycles",
                "instructions",
                "dtlb_load_misses",
                "itlb_misses",
                "page_walk_cycles",
            ] {
                assert!(names.contains(&name), "{maker:?} {name}");
            }
        }
    }

    #[test]
    fn a_sum_of_parts() {
        let part = |name: &str, event: &str, value| Counter {
            name: name.to_owned(),
            event: event.to_owned(),
            value,
            ..Counter::default()
        };
        let mut counters = [
            part("page_walk_cycles_loads", "a", Some(3)),
            part("page_walk_cycles_code", "b", Some(4)),
            part("page_walk_cycles", SUM_OF_PARTS, None),
        ];
        add_up(&mut counters);
        assert_eq!(counters[2].value, Some(7));
        counters[0].value = None;
        add_up(&mut counters);
        assert_eq!(counters[2].value, None);
    }

    #[test]
    fn a_count_that_shared_its_register_is_scaled() {
        let count = |value, running_nanos| PerfCount {
            value,
            enabled_nanos: 100,
            running_nanos,
        };
        assert_eq!(
            scaled(&[count(10, 100), count(10, 50)]),
            (Some(30), Some(0.75))
        );
        assert_eq!(scaled(&[count(0, 0)]), (None, Some(0.0)));
    }

    /// Whatever the host has, each counter has a number or says why not.
    #[test]
    fn each_counter_has_a_number_or_a_reason() {
        let counters = Counters::open(Maker::Amd, &[0], &Guards::default()).finish();
        assert!(!counters.is_empty());
        for counter in counters {
            match counter.state {
                SourceState::Used => assert!(counter.running_share.is_some(), "{}", counter.name),
                SourceState::NotHere { reason } | SourceState::Refused { reason, .. } => {
                    assert!(!reason.is_empty() && counter.value.is_none());
                }
                SourceState::Off => panic!("{} is off", counter.name),
            }
        }
    }
}
