//! The collections that a trace measured. Only of these can it show that nothing occurred.

use crate::model::{SourceState, Trace};

hugeleaf_units::named! {
    /// A collection that may be missing on its own. Its name is that of its
    /// [`EventSource`](crate::model::EventSource).
    pub enum Collection {
        CpuSamples = "cpu samples",
        FaultSamples = "page faults",
        Locks = "lock contention",
        MemoryEvents = "memory events",
        DirectIo = "direct i/o",
        Registrations = "io_uring registration",
        LockingCalls = "memory locking calls",
        TlbFlushes = "tlb flushes",
        /// `/proc/stat`, including switches and runnable threads.
        CpuTime = "cpu time",
        /// `/proc/vmstat`, including the counters of the memory management.
        Vmstat = "faults and paging",
        Io = "i/o of threads",
        /// Before and after.
        Memory = "memory by page size",
        Counters = "cpu counters",
    }
}

impl Collection {
    /// The collections of calls that pin or lock memory.
    pub const PINS: [Collection; 3] = [
        Collection::LockingCalls,
        Collection::DirectIo,
        Collection::Registrations,
    ];

    /// True if the collection counts this call that pins (see [`Collection::PINS`]).
    pub fn is_of(self, call: &str) -> bool {
        match self {
            Collection::DirectIo => call.starts_with("direct"),
            Collection::Registrations => call.starts_with("io_uring"),
            Collection::LockingCalls => call.contains("lock"),
            _ => false,
        }
    }

    /// True if the trace holds any data of the collection. Traces of earlier versions lack some of these
    /// sources.
    fn has_data(self, trace: &Trace) -> bool {
        let intervals = || trace.intervals.iter();
        match self {
            Collection::CpuSamples => !trace.samples.is_empty(),
            Collection::FaultSamples => !trace.faults.is_empty(),
            Collection::Locks => !trace.locks.is_empty() || trace.other_locks_count > 0,
            Collection::MemoryEvents => trace.memory_events.iter().any(|e| e.name != "tlb flush"),
            Collection::DirectIo | Collection::Registrations | Collection::LockingCalls => {
                trace.pins.iter().any(|pin| self.is_of(&pin.call))
            }
            Collection::TlbFlushes => trace.memory_events.iter().any(|e| e.name == "tlb flush"),
            Collection::CpuTime => {
                intervals().any(|i| i.user_seconds + i.system_seconds + i.idle_seconds > 0.0)
            }
            Collection::Vmstat => {
                !trace.memory_counters.is_empty() || intervals().any(|i| i.faults > 0)
            }
            Collection::Io => {
                let mut threads = trace.processes.iter().flat_map(|p| &p.threads);
                threads.any(|t| t.io.is_some())
            }
            Collection::Memory => {
                let states = [&trace.memory_before, &trace.memory_after];
                states.iter().any(|state| state.is_some())
            }
            Collection::Counters => trace.counters.iter().any(|c| c.value.is_some()),
        }
    }
}

/// Returns the reason why something was not measured; `None` if it was, so that no data means no events.
pub fn not_measured(trace: &Trace, what: Collection) -> Option<String> {
    let source = trace.sources.iter().find(|s| s.name == what.name());
    match source.map(|s| &s.state) {
        Some(SourceState::Used) => None,
        Some(SourceState::NotHere { reason }) => Some(format!("not on this host: {reason}")),
        Some(SourceState::Refused { reason, remedy }) => {
            Some(format!("refused: {reason}; {remedy}"))
        }
        Some(SourceState::Off) => Some("switched off by a flag".to_owned()),
        None if what.has_data(trace) => None,
        None if what == Collection::Io && trace.target.is_none() => {
            Some("only measured for a target's threads: name a target".to_owned())
        }
        None => Some("this trace has no record of it".to_owned()),
    }
}

pub fn all_not_measured(trace: &Trace) -> Vec<(Collection, String)> {
    let all = Collection::ALL.into_iter();
    all.filter_map(|what| Some((what, not_measured(trace, what)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{EventSource, Interval, Lock};

    #[test]
    fn a_source_says_whether_nothing_means_none() {
        let mut trace = Trace::default();
        for what in Collection::ALL {
            assert!(not_measured(&trace, what).is_some(), "{what:?}");
            trace.sources.push(EventSource {
                name: what.name().to_owned(),
                ..EventSource::default()
            });
            // The source was on, and saw nothing.
            assert_eq!(not_measured(&trace, what), None, "{what:?}");
        }
        assert!(all_not_measured(&trace).is_empty());
        trace.sources[2].state = SourceState::Off;
        assert_eq!(
            all_not_measured(&trace),
            [(Collection::Locks, "switched off by a flag".to_owned())]
        );
    }

    #[test]
    fn a_trace_of_an_earlier_version_is_known_by_what_it_holds() {
        let trace = Trace {
            locks: vec![Lock::default()],
            intervals: vec![Interval {
                idle_seconds: 2.0,
                faults: 1,
                ..Interval::default()
            }],
            ..Trace::default()
        };
        for what in [Collection::Locks, Collection::CpuTime, Collection::Vmstat] {
            assert_eq!(not_measured(&trace, what), None, "{what:?}");
        }
        assert!(not_measured(&trace, Collection::CpuSamples).is_some());
    }
}
