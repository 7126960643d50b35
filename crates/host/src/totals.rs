//! Sums over processes in which a shared page counts once. Pure.

use std::collections::BTreeMap;

use hugeleaf_units::{Bytes, PageKind};

use crate::model::{Held, Host, Process, Segment};

/// What a host's processes hold in all, by page size, each page once: told by the kernel's own
/// counters (`/proc/meminfo` and the pools), not by adding up processes.
pub fn of_host(host: &Host) -> Vec<Held> {
    let m = &host.memory;
    let known = |f: &crate::Fact<Bytes>| f.get().unwrap_or_default();
    let pmd_mapped = known(&m.anon_huge) + known(&m.shmem_pmd_mapped) + known(&m.file_pmd_mapped);
    let mapped = known(&m.anon) + known(&m.mapped);
    let mut table = Vec::new();
    Held::add(
        &mut table,
        host.base_page,
        PageKind::Base,
        mapped - pmd_mapped,
    );
    if let Some(pmd) = host.pmd_page.get() {
        Held::add(&mut table, pmd, PageKind::Thp, pmd_mapped);
    }
    for pool in host.pools.iter().filter(|p| p.node.is_none()) {
        if let (Some(total), Some(free)) = (pool.total.get(), pool.free.get()) {
            let used = total.of(pool.size) - free.of(pool.size);
            Held::add(&mut table, pool.size, PageKind::Hugetlb, used);
        }
    }
    table
}

/// What some processes hold together, by page size, from their segments: of an object that
/// several of them map, the largest view counts; memory that a parent and its children still
/// share after fork counts once.
pub fn of_processes(processes: &[Process]) -> Vec<Held> {
    let mut largest: BTreeMap<Key, Vec<Held>> = BTreeMap::new();
    let mut table = Vec::new();
    for process in processes {
        for segment in &process.segments {
            let (own, common) = split(segment);
            for held in own {
                Held::add(&mut table, held.size, held.kind, held.bytes);
            }
            let seen = largest.entry(key(segment)).or_default();
            if sum(&common) > sum(seen) {
                *seen = common;
            }
        }
    }
    for held in largest.into_values().flatten() {
        Held::add(&mut table, held.size, held.kind, held.bytes);
    }
    table
}

/// An object and the place in it; for private memory, the address it has had since before fork.
type Key = ((u32, u32, u64), u64);

const fn key(segment: &Segment) -> Key {
    match segment.object {
        (0, 0, 0) => ((0, 0, 0), segment.range.start()),
        object => (object, segment.offset),
    }
}

fn sum(table: &[Held]) -> Bytes {
    table.iter().map(|h| h.bytes).sum()
}

/// What is the process's own in a segment, and what it may have in common with others.
fn split(segment: &Segment) -> (Vec<Held>, Vec<Held>) {
    if segment.shared {
        return (Vec::new(), segment.by_page_size.clone());
    }
    // The kernel tells how much is shared, not on which pages: take it from the smallest first.
    let mut common_left = segment.shared_with_others;
    let (mut own, mut common) = (Vec::new(), Vec::new());
    for held in &segment.by_page_size {
        let shared = held.bytes.min(common_left);
        common_left = common_left - shared;
        Held::add(&mut common, held.size, held.kind, shared);
        Held::add(&mut own, held.size, held.kind, held.bytes - shared);
    }
    (own, common)
}
