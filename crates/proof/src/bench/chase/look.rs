//! Which pages the memory of a point is on.

use hugeleaf_host::process::orders::split_by_folio;
use hugeleaf_host::{Held, Host, Looking, Root, read_process};
use hugeleaf_sys::{RealKernel, own_pid};
use hugeleaf_units::{Bytes, Range};
use hugeleaf_workload::{ChaseMemory, PageArm};

use crate::bench::BenchError;
use crate::subject::SizeHeld;

/// What was seen.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Seen {
    pub(super) pages: Vec<SizeHeld>,
    pub(super) verified: bool,
    pub(super) note: Option<String>,
}

impl Seen {
    /// The first of two that is not as it should be; else the later one.
    pub(super) fn worse(before: Option<Seen>, now: Seen) -> Seen {
        match before {
            Some(seen) if !seen.verified => seen,
            _ => now,
        }
    }
}

/// Reads back which pages the first `length` bytes are on, and holds them against the arm.
pub(super) fn look(
    memory: &ChaseMemory,
    arm: PageArm,
    length: Bytes,
    (root, host): (&Root, &Host),
) -> Result<Seen, BenchError> {
    let pages = match memory.pages(length)? {
        Some(pages) => Ok(pages),
        None => held_by_folio(memory.range(), root, host),
    };
    Ok(match pages {
        Ok(table) => judge(&table, arm, length, memory),
        Err(reason) => Seen {
            pages: Vec::new(),
            verified: false,
            note: Some(reason),
        },
    })
}

/// Transparent huge pages below the full size are reported by the flags of page frames, to root.
pub(in crate::bench) fn held_by_folio(
    range: Range,
    root: &Root,
    host: &Host,
) -> Result<Vec<Held>, String> {
    let kernel = RealKernel::new();
    let mut process = read_process(root, &kernel, host, own_pid(), Looking::Segments)
        .map_err(|e| e.to_string())?;
    process
        .segments
        .retain(|segment| segment.range.intersect(range) == Some(segment.range));
    split_by_folio(root, host, &mut process)
        .map_err(|e| format!("cannot be determined from base pages: {e} (root may read it)"))?;
    let held = process.segments.iter().flat_map(|s| &s.by_page_size);
    let mut table = Vec::new();
    for h in held {
        Held::add(&mut table, h.size, h.kind, h.bytes);
    }
    Ok(table)
}

fn judge(table: &[Held], arm: PageArm, length: Bytes, memory: &ChaseMemory) -> Seen {
    let is_right = |held: &&Held| (held.size, held.kind) == (arm.size, arm.kind);
    let right: Bytes = table.iter().filter(is_right).map(|h| h.bytes).sum();
    let all: Bytes = table.iter().map(|h| h.bytes).sum();
    // Memory is whole pages, so there may be more of it than the working set.
    let all = all.max(length);
    let verified = right == all;
    let note = (!verified).then(|| {
        let why = memory.why().map_or_else(String::new, |w| format!(": {w}"));
        format!(
            "{} of {all} were not on {arm}{why}",
            all.saturating_sub(right)
        )
    });
    Seen {
        pages: SizeHeld::all(table),
        verified,
        note,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_host::read_memory_facts;
    use hugeleaf_units::PageKind;

    #[test]
    fn memory_on_other_pages_or_not_there_is_told() {
        let host = read_memory_facts(&Root::live(), &RealKernel::new()).unwrap();
        let base = PageArm::base(&host);
        let length = Bytes(host.base_page.bytes().get() * 4);
        let memory = ChaseMemory::take(base, length, &host).unwrap();
        let table = memory.pages(length).unwrap().unwrap();
        assert!(judge(&table, base, length, &memory).verified);
        let large = PageArm {
            size: "2M".parse().unwrap(),
            kind: PageKind::Thp,
        };
        let seen = judge(&table, large, length, &memory);
        assert!(!seen.verified);
        let expected = format!("{length} of {length} were not on thp:2M");
        assert_eq!(seen.note, Some(expected));
        // Half of it was swapped out: what is there is right, and it is not all.
        let half = Bytes(length.get() / 2);
        let there = memory.pages(half).unwrap().unwrap();
        let seen = judge(&there, base, length, &memory);
        assert!(!seen.verified && seen.note.unwrap().starts_with(&half.to_string()));
    }
}
