//! Counters summed over all CPUs: the available events of the CPU's vendor ([`hugeleaf_perf::processor`]),
//! counted in groups. A host without them is reported as "not on this host".

use hugeleaf_perf::processor::{Processor, ProcessorEvent};
use hugeleaf_perf::{CounterGroups, CounterKind, CounterScope, ScaledCounts};
use hugeleaf_sys::{Errno, SysError};

use super::permissions::{PerfRestrictions, is_not_here, refusal};
use crate::model::{HardwareCounter, SourceState};
use crate::tables::share;

/// The sum of all counters whose name begins with this and an underscore.
const WALK_CYCLES: &str = "page_walk_cycles";

#[derive(Debug, Default)]
pub struct ProcessorCounters {
    events: Vec<ProcessorEvent>,
    by_cpu: Vec<CounterGroups>,
    guards: PerfRestrictions,
}

impl ProcessorCounters {
    pub fn open(
        processor: &Processor,
        cpus: &[u32],
        guards: &PerfRestrictions,
    ) -> ProcessorCounters {
        let events = processor.events();
        let kinds: Vec<CounterKind> = events.iter().map(|event| event.kind).collect();
        let by_cpu = cpus.iter().map(|cpu| {
            let groups = CounterGroups::open(CounterScope::Cpu(*cpu), &kinds);
            // A counter that fails to start has no count, which is detected at the end.
            let _ = groups.enable();
            groups
        });
        ProcessorCounters {
            by_cpu: by_cpu.collect(),
            events,
            guards: guards.clone(),
        }
    }

    pub fn finish(self) -> Vec<HardwareCounter> {
        let by_cpu: Vec<Vec<Result<ScaledCounts, SysError>>> =
            self.by_cpu.iter().map(CounterGroups::read).collect();
        let mut counters: Vec<HardwareCounter> = self
            .events
            .iter()
            .enumerate()
            .map(|(at, event)| {
                let own = by_cpu.iter().map(|cpu| cpu[at].clone());
                summed(event, own.collect(), &self.guards)
            })
            .collect();
        if !counters.is_empty() {
            counters.push(walk_cycles(&counters));
        }
        counters
    }
}

/// Returns the sum of an event over all CPUs, or the reason for its absence.
fn summed(
    event: &ProcessorEvent,
    by_cpu: Result<Vec<ScaledCounts>, SysError>,
    guards: &PerfRestrictions,
) -> HardwareCounter {
    let counter = HardwareCounter {
        name: event.event.name().to_owned(),
        event: event.name.to_owned(),
        ..HardwareCounter::default()
    };
    let counts = match by_cpu {
        Ok(counts) => counts,
        Err(error) => {
            let state = state_of(&error, guards);
            return HardwareCounter { state, ..counter };
        }
    };
    let enabled: u64 = counts.iter().map(|c| c.enabled_nanos).sum();
    let running: u64 = counts.iter().map(|c| c.running_nanos).sum();
    let running_share = share(running, enabled).or(Some(0.0));
    // Without a register on one CPU, the count there and thus the sum is unknown.
    if counts.iter().any(|c| c.running_nanos == 0) {
        return HardwareCounter {
            state: SourceState::refused(
                "it was never scheduled: other users occupy the hardware counters",
                "stop other users of the counters: perf, and the kernel's watchdog (sysctl \
                 kernel.nmi_watchdog=0)",
            ),
            running_share,
            ..counter
        };
    }
    let value: f64 = counts.iter().flat_map(|c| &c.values).sum();
    if value <= 0.0 {
        return HardwareCounter {
            state: SourceState::not_here(
                "it stayed at 0: this CPU or its hypervisor opens the event but does not count it",
            ),
            running_share,
            ..counter
        };
    }
    #[allow(clippy::cast_possible_truncation)] // positive, and a count
    let value = Some(value.round() as u64);
    HardwareCounter {
        value,
        running_share,
        ..counter
    }
}

/// Returns the cycles of all kinds of page walks; unknown if one kind is.
fn walk_cycles(counters: &[HardwareCounter]) -> HardwareCounter {
    let prefix = format!("{WALK_CYCLES}_");
    let of = |prefix: &str| -> Vec<&HardwareCounter> {
        let own = counters.iter().filter(|c| c.name.starts_with(prefix));
        own.collect()
    };
    let parts = of(&prefix);
    let names: Vec<&str> = parts.iter().map(|c| c.event.as_str()).collect();
    let sum = HardwareCounter {
        name: WALK_CYCLES.to_owned(),
        event: names.join(" + "),
        ..HardwareCounter::default()
    };
    if parts.is_empty() {
        let reason = match of("page_walks_").is_empty() {
            true => "no event is known for this CPU",
            false => "this CPU counts walks, not their cycles",
        };
        let state = SourceState::not_here(reason);
        return HardwareCounter { state, ..sum };
    }
    let states = parts.iter().map(|c| c.state.clone());
    let mut refused = states.filter(|state| *state != SourceState::Used);
    HardwareCounter {
        state: refused.next().unwrap_or_default(),
        value: parts.iter().map(|c| c.value).sum(),
        running_share: parts
            .iter()
            .filter_map(|c| c.running_share)
            .reduce(f64::min),
        ..sum
    }
}

fn state_of(error: &SysError, guards: &PerfRestrictions) -> SourceState {
    // The kernel reports a machine without counters with several errors.
    if is_not_here(error.errno) {
        let reason = match error.errno {
            Errno::OPNOTSUPP | Errno::NOENT | Errno::NODEV => {
                "the CPU has no such counter (virtual machines often have none)"
            }
            _ => "the CPU does not support this event",
        };
        return SourceState::not_here(reason);
    }
    let refused = refusal(error, guards);
    SourceState::refused(refused.message, refused.remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_perf::processor::{CYCLES, HardwareEvent};

    const ZEN: &str = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n";

    fn counted(value: f64, running_nanos: u64) -> ScaledCounts {
        ScaledCounts {
            values: vec![value],
            enabled_nanos: 100,
            running_nanos,
        }
    }

    fn sum(counts: &[ScaledCounts]) -> HardwareCounter {
        summed(&CYCLES, Ok(counts.to_vec()), &PerfRestrictions::default())
    }

    #[test]
    fn a_sum_of_parts() {
        let part = |name: &str, event: &str, value| HardwareCounter {
            name: name.to_owned(),
            event: event.to_owned(),
            value,
            running_share: Some(1.0),
            ..HardwareCounter::default()
        };
        let mut counters = vec![
            part("page_walk_cycles_loads", "a", Some(3)),
            part("page_walk_cycles_code", "b", Some(4)),
        ];
        let sum = walk_cycles(&counters);
        assert_eq!((sum.value, sum.event.as_str()), (Some(7), "a + b"));
        counters[0].value = None;
        assert_eq!(walk_cycles(&counters).value, None);
        // If only walks are counted, cycles are unknown, not 0.
        let walks = walk_cycles(&[part("page_walks_data", "c", Some(9))]);
        assert_eq!(walks.value, None);
        assert!(format!("{:?}", walks.state).contains("not their cycles"));
        assert!(format!("{:?}", walk_cycles(&[]).state).contains("is known"));
    }

    #[test]
    fn what_never_had_a_register_on_some_cpu_is_no_number() {
        let all = sum(&[counted(10.0, 100), counted(20.0, 50)]);
        assert_eq!((all.value, all.running_share), (Some(30), Some(0.75)));
        let some = sum(&[counted(10.0, 100), counted(0.0, 0)]);
        assert_eq!(some.value, None);
        let SourceState::Refused { reason, remedy } = some.state else {
            panic!("{some:?}");
        };
        assert!(reason.contains("never scheduled") && remedy.contains("nmi_watchdog"));
    }

    #[test]
    fn what_stood_at_zero_is_not_shown_as_zero() {
        let zero = sum(&[counted(0.0, 100), counted(0.0, 100)]);
        assert_eq!(zero.value, None);
        assert!(matches!(zero.state, SourceState::NotHere { .. }));
    }

    #[test]
    fn a_refusal_is_of_the_event_that_was_refused() {
        let error = SysError::new(
            "perf_event_open",
            "of all processes on CPU 0",
            Errno::ACCESS,
        );
        let refused = summed(&CYCLES, Err(error), &PerfRestrictions::default());
        assert!(matches!(refused.state, SourceState::Refused { .. }));
        assert_eq!((refused.value, refused.running_share), (None, None));
    }

    /// Each counter has a number or a reason on every host.
    #[test]
    fn each_counter_has_a_number_or_a_reason() {
        let zen = Processor::parse(ZEN);
        let counters = ProcessorCounters::open(&zen, &[0], &PerfRestrictions::default());
        let work: u64 = (0..1_000_000u64).fold(0, |a, b| a ^ b.wrapping_mul(a | 1));
        assert!(work != 1);
        let counters = counters.finish();
        let names: Vec<&str> = counters.iter().map(|c| c.name.as_str()).collect();
        for name in [
            HardwareEvent::Cycles.name(),
            HardwareEvent::DataWalks.name(),
            WALK_CYCLES,
        ] {
            assert!(names.contains(&name), "{name}");
        }
        for counter in counters {
            match counter.state {
                SourceState::Used => assert!(counter.value.is_some(), "{}", counter.name),
                SourceState::NotHere { reason } | SourceState::Refused { reason, .. } => {
                    assert!(!reason.is_empty() && counter.value.is_none());
                }
                SourceState::Off => panic!("{} is off", counter.name),
            }
        }
    }
}
