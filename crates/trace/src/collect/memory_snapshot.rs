//! Memory before and after, by the readers of `hugeleaf mem`, in the model of a trace.

use hugeleaf_host::memory_totals::host_memory;
use hugeleaf_host::{
    Host, MappingSettings, Pid, Process, ProcessMapping, ReadDetail, Root, ThpAdvice,
    read_all_processes, read_host, read_process,
};
use hugeleaf_sys::Kernel;

use super::interval::held;
use crate::model::{
    EventSource, MemoryState, PoolState, ProcessMemory, SegmentMemory, SourceState,
};
use crate::tables::not_measured::TraceDataKind;

/// Maximum number of target processes with segments: walking page tables takes time.
const LOOKED_AT: usize = 64;

/// Reads the memory of all processes, with the segments of the target's processes.
pub fn read(root: &Root, kernel: &Kernel, target: Option<&[u32]>) -> Option<MemoryState> {
    let host = read_host(root, kernel).ok()?;
    let mut state = MemoryState {
        by_page_size: host_memory(&host).iter().map(held).collect(),
        page_tables_bytes: host.memory.page_tables.get().map(|b| b.get()),
        pools: pools(&host),
        ..MemoryState::default()
    };
    let (processes, _) = read_all_processes(root, kernel, &host);
    let is_target = |pid: Pid| target.is_some_and(|pids| pids.contains(&pid.0));
    let mut looked_at = 0;
    for mut process in processes {
        if is_target(process.pid) && looked_at < LOOKED_AT {
            looked_at += 1;
            match read_process(root, kernel, &host, process.pid, ReadDetail::Segments) {
                Ok(closer) => process = closer,
                Err(error) => state.unread.push((process.pid.0, error.to_string())),
            }
        }
        // Without a target every process belongs to it, and none has segments.
        let in_target = target.is_none() || is_target(process.pid);
        state.processes.push(of_process(&process, in_target));
    }
    Some(state)
}

pub fn source(read: Option<&MemoryState>) -> EventSource {
    let state = match read {
        Some(_) => SourceState::Used,
        None => SourceState::refused(
            "the host's memory could not be read",
            "run hugeleaf status, which names the file",
        ),
    };
    EventSource::new(TraceDataKind::Memory.name(), state)
}

fn pools(host: &Host) -> Vec<PoolState> {
    host.pools
        .iter()
        .filter(|pool| pool.node.is_none())
        .map(|pool| PoolState {
            page_bytes: pool.size.bytes().get(),
            total: pool.total.get().map_or(0, |p| p.0),
            free: pool.free.get().map_or(0, |p| p.0),
            reserved: pool.reserved.get().map_or(0, |p| p.0),
        })
        .collect()
}

fn of_process(process: &Process, in_target: bool) -> ProcessMemory {
    ProcessMemory {
        pid: process.pid.0,
        name: process.name.clone(),
        in_target,
        resident_bytes: process.resident.get(),
        locked_bytes: process.locked.get(),
        pinned_bytes: process.pinned.get(),
        page_tables_bytes: process.page_tables.get(),
        by_page_size: process
            .by_page_size
            .known()
            .map(|table| table.iter().map(held).collect()),
        segments: process
            .segments
            .iter()
            .filter(|s| !s.resident.is_zero())
            .map(of_segment)
            .collect(),
    }
}

fn of_segment(segment: &ProcessMapping) -> SegmentMemory {
    SegmentMemory {
        start: segment.range.start(),
        end: segment.range.end(),
        role: segment.role.name().to_owned(),
        name: segment.name.clone(),
        resident_bytes: segment.resident.get(),
        locked_bytes: segment.locked.get(),
        asked: format_request(&segment.request),
        by_page_size: segment.by_page_size.iter().map(held).collect(),
    }
}

fn format_request(asked: &MappingSettings) -> String {
    match (asked.hugetlb, asked.advised) {
        (Some(size), _) => format!("hugetlb {size}"),
        (None, ThpAdvice::Huge) => "advised huge".to_owned(),
        (None, ThpAdvice::NoHuge) => "advised base".to_owned(),
        (None, ThpAdvice::Nothing) => String::new(),
    }
}
