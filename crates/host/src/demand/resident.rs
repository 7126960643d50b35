//! Programs that are known only by their memory in use: shared segments, and private memory.

use hugeleaf_units::{Bytes, Failure};

use super::service_reader::{
    ServiceReader, held_of, measured_pool, private_segments, shared_objects,
};
use super::source_kind::ProgramRule;
use super::{Demand, EqualMappings, PageSource, Service, ServiceKind};
use crate::model::{PageUsage, Process};

/// Redis and similar servers: all memory is private, and saved by a forked child. A child that
/// touches a page of the pool when none is free gets SIGBUS, so the pool is never used.
pub(super) const REDIS: ProgramRule = ProgramRule {
    kind: ServiceKind::Redis,
    is: |name| matches!(name, "redis-server" | "valkey-server" | "keydb-server"),
    forks: true,
    running: |reader, process, _| {
        let process = reader.segments(process.pid)?;
        let mut service = reader.service(&process, ServiceKind::Redis, &process.name);
        service.demands = private(&process).into_iter().collect();
        Ok(service)
    },
    stopped: |_, _, _| None,
    query: None,
};

/// Groups related processes by their memory in use: shared memory once, private memory each.
pub(super) fn group(
    reader: &ServiceReader<'_>,
    processes: &[&Process],
) -> Result<Service, Failure> {
    let mut read_in = Vec::new();
    let mut failed = None;
    for process in processes {
        match reader.segments(process.pid) {
            Ok(process) => read_in.push(process),
            Err(error) => failed = Some(error),
        }
    }
    let Some(first) = read_in.first() else {
        let nobody = Failure::usage("no process is named", "hugeleaf mem");
        return Err(failed.unwrap_or(nobody));
    };
    // The list of segments lacks those of another IPC namespace, but the mappings show them.
    let mut segments = read_in.iter().flat_map(shared_objects);
    let kind = match segments.any(|segment| segment.name.starts_with("/SYSV")) {
        true => ServiceKind::SysV,
        false => ServiceKind::Other,
    };
    let mut service = reader.service(first, kind, &first.name);
    service.pids = read_in.iter().map(|process| process.pid).collect();
    service.demands = demands(reader, &read_in);
    Ok(service)
}

fn demands(reader: &ServiceReader<'_>, processes: &[Process]) -> Vec<Demand> {
    let pools = reader.host.pools.iter().map(|pool| pool.size);
    let smallest = pools.chain(reader.host.pmd_page.get()).min();
    let least = smallest.map_or(Bytes(u64::MAX), |size| size.bytes());
    let mut seen = Vec::new();
    let mut demands = Vec::new();
    for process in processes {
        for segment in shared_objects(process) {
            let is_new = !seen.contains(&segment.object);
            if is_new && segment.request.hugetlb.is_none() && segment.range.len() >= least {
                seen.push(segment.object);
                let what = format!("shared memory {}", segment.name);
                let mappings = vec![EqualMappings::single(segment.range.len())];
                let source = "the length of the mapping";
                demands.push(Demand {
                    held: Some(held_of(segment)),
                    ..Demand::new(what.trim_end(), mappings, PageSource::Pool, source)
                });
            }
        }
        demands.extend(measured_pool(process));
        demands.extend(private(process).filter(|demand| demand.bytes() >= least));
    }
    demands
}

fn private(process: &Process) -> Option<Demand> {
    let mut held = Vec::new();
    let private = private_segments(process).flat_map(|s| &s.by_page_size);
    PageUsage::add_all(&mut held, private);
    let bytes = PageUsage::total(&held);
    let what = format!("private memory of {}", process.name);
    (!bytes.is_zero()).then(|| Demand {
        held: Some(held),
        ..Demand::new(
            what,
            vec![EqualMappings::single(bytes)],
            PageSource::Thp,
            "resident memory",
        )
    })
}
