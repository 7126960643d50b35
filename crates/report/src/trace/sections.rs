//! The parts of a trace that can be shown separately.

pub(super) mod intervals_and_io;
pub(super) mod memory;
pub(super) mod profile_and_locks;

use hugeleaf_trace::Trace;

use crate::document::Section;

#[derive(Debug)]
pub struct TraceSection {
    pub name: &'static str,
    /// The tables of the part. Findings have none, because they are sentences.
    pub(super) tables: fn(&Trace) -> Vec<Section>,
}

pub static PARTS: [TraceSection; 17] = [
    part("intervals", |trace| {
        vec![intervals_and_io::intervals(trace)]
    }),
    part("processes", |trace| {
        vec![profile_and_locks::processes(trace)]
    }),
    part("threads", |trace| vec![profile_and_locks::threads(trace)]),
    part("functions", |trace| {
        vec![profile_and_locks::functions(trace)]
    }),
    part("target-functions", |trace| {
        vec![profile_and_locks::target_functions(trace)]
    }),
    part("locks", |trace| vec![profile_and_locks::locks(trace)]),
    part("lock-threads", |trace| {
        vec![profile_and_locks::lock_threads(trace, None)]
    }),
    part("lock-callers", |trace| {
        vec![profile_and_locks::lock_callers(trace, None)]
    }),
    part("faults", memory::faults),
    part("pages", memory::pages),
    part("segments", |trace| vec![memory::segments(trace)]),
    part("memory", memory::events),
    part("pins", |trace| vec![profile_and_locks::pins(trace)]),
    part("io", |trace| vec![intervals_and_io::io(trace)]),
    part("counters", |trace| vec![intervals_and_io::counters(trace)]),
    part("sources", |trace| vec![intervals_and_io::sources(trace)]),
    part(FINDINGS, |_| Vec::new()),
];
pub(super) const FINDINGS: &str = "findings";

const fn part(name: &'static str, tables: fn(&Trace) -> Vec<Section>) -> TraceSection {
    TraceSection { name, tables }
}

impl TraceSection {
    pub fn parse(name: &str) -> Option<&'static TraceSection> {
        PARTS.iter().find(|part| part.name == name)
    }
}
