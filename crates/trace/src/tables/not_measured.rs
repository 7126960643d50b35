//! The collections that a trace measured. Only of these can it show that nothing occurred.

use crate::model::{SourceState, Trace};

hugeleaf_units::named! {
    /// A collection that may be missing on its own. Its name is that of its
    /// [`EventSource`](crate::model::EventSource).
    pub enum TraceDataKind {
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

impl TraceDataKind {
    /// The collections of calls that pin or lock memory.
    pub const PINS: [TraceDataKind; 3] = [
        TraceDataKind::LockingCalls,
        TraceDataKind::DirectIo,
        TraceDataKind::Registrations,
    ];

    /// True if the collection counts this call that pins (see [`TraceDataKind::PINS`]).
    pub fn is_of(self, call: &str) -> bool {
        match self {
            TraceDataKind::DirectIo => call.starts_with("direct"),
            TraceDataKind::Registrations => call.starts_with("io_uring"),
            TraceDataKind::LockingCalls => call.contains("lock"),
            _ => false,
        }
    }

    /// True if the trace holds any data of the collection. Traces of earlier versions lack some of these
    /// sources.
    fn has_data(self, trace: &Trace) -> bool {
        let intervals = || trace.intervals.iter();
        match self {
            TraceDataKind::CpuSamples => !trace.samples.is_empty(),
            TraceDataKind::FaultSamples => !trace.faults.is_empty(),
            TraceDataKind::Locks => !trace.locks.is_empty() || trace.other_locks_count > 0,
            TraceDataKind::MemoryEvents => {
                trace.memory_events.iter().any(|e| e.name != "tlb flush")
            }
            TraceDataKind::DirectIo
            | TraceDataKind::Registrations
            | TraceDataKind::LockingCalls => trace.pins.iter().any(|pin| self.is_of(&pin.call)),
            TraceDataKind::TlbFlushes => trace.memory_events.iter().any(|e| e.name == "tlb flush"),
            TraceDataKind::CpuTime => {
                intervals().any(|i| i.user_seconds + i.system_seconds + i.idle_seconds > 0.0)
            }
            TraceDataKind::Vmstat => {
                !trace.memory_counters.is_empty() || intervals().any(|i| i.faults > 0)
            }
            TraceDataKind::Io => {
                let mut threads = trace.processes.iter().flat_map(|p| &p.threads);
                threads.any(|t| t.io.is_some())
            }
            TraceDataKind::Memory => {
                let states = [&trace.memory_before, &trace.memory_after];
                states.iter().any(|state| state.is_some())
            }
            TraceDataKind::Counters => trace.counters.iter().any(|c| c.value.is_some()),
        }
    }
}

/// Returns the reason why something was not measured; `None` if it was, so that no data means no events.
pub fn not_measured(trace: &Trace, what: TraceDataKind) -> Option<String> {
    let source = trace.sources.iter().find(|s| s.name == what.name());
    match source.map(|s| &s.state) {
        Some(SourceState::Used) => None,
        Some(SourceState::NotHere { reason }) => Some(format!("not on this host: {reason}")),
        Some(SourceState::Refused { reason, remedy }) => {
            Some(format!("refused: {reason}; {remedy}"))
        }
        Some(SourceState::Off) => Some("switched off by a flag".to_owned()),
        None if what.has_data(trace) => None,
        None if what == TraceDataKind::Io && trace.target.is_none() => {
            Some("only measured for a target's threads: name a target".to_owned())
        }
        None => Some("this trace has no record of it".to_owned()),
    }
}

pub fn all_not_measured(trace: &Trace) -> Vec<(TraceDataKind, String)> {
    let all = TraceDataKind::ALL.into_iter();
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
        for what in TraceDataKind::ALL {
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
            [(TraceDataKind::Locks, "switched off by a flag".to_owned())]
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
        for what in [
            TraceDataKind::Locks,
            TraceDataKind::CpuTime,
            TraceDataKind::Vmstat,
        ] {
            assert_eq!(not_measured(&trace, what), None, "{what:?}");
        }
        assert!(not_measured(&trace, TraceDataKind::CpuSamples).is_some());
    }
}
