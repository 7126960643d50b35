//! The parts of a trace that can be shown separately.

pub(super) mod cost;
pub(super) mod host;
pub(super) mod memory;

use hugeleaf_trace::Trace;

use crate::page::Section;

#[derive(Debug)]
pub struct TracePart {
    pub name: &'static str,
    /// The tables of the part. Findings have none, because they are sentences.
    pub(super) tables: fn(&Trace) -> Vec<Section>,
}

pub static PARTS: [TracePart; 17] = [
    part("intervals", |trace| vec![host::intervals(trace)]),
    part("processes", |trace| vec![cost::processes(trace)]),
    part("threads", |trace| vec![cost::threads(trace)]),
    part("functions", |trace| vec![cost::functions(trace)]),
    part("target-functions", |trace| {
        vec![cost::target_functions(trace)]
    }),
    part("locks", |trace| vec![cost::locks(trace)]),
    part("lock-threads", |trace| {
        vec![cost::lock_threads(trace, None)]
    }),
    part("lock-callers", |trace| {
        vec![cost::lock_callers(trace, None)]
    }),
    part("faults", memory::faults),
    part("pages", memory::pages),
    part("segments", |trace| vec![memory::segments(trace)]),
    part("memory", memory::events),
    part("pins", |trace| vec![cost::pins(trace)]),
    part("io", |trace| vec![host::io(trace)]),
    part("counters", |trace| vec![host::counters(trace)]),
    part("sources", |trace| vec![host::sources(trace)]),
    part(FINDINGS, |_| Vec::new()),
];
pub(super) const FINDINGS: &str = "findings";

const fn part(name: &'static str, tables: fn(&Trace) -> Vec<Section>) -> TracePart {
    TracePart { name, tables }
}

impl TracePart {
    pub fn parse(name: &str) -> Option<&'static TracePart> {
        PARTS.iter().find(|part| part.name == name)
    }
}
