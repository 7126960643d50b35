//! Which pages the memory of a point is on.

use hugeleaf_host::process::orders::split_by_folio;
use hugeleaf_host::{Held, Looking, read_process};
use hugeleaf_sys::{RealKernel, own_pid};
use hugeleaf_units::{Bytes, PageKind};
use hugeleaf_workload::{ChaseMemory, PageArm};

use super::Engine;
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
    engine: &Engine<'_>,
) -> Result<Seen, BenchError> {
    let pages = match memory.pages(length)? {
        Some(pages) => Ok(pages),
        None => by_folio(memory, engine),
    };
    Ok(match pages {
        Ok(pages) => {
            let mut table = Vec::new();
            for (size, kind, bytes) in pages {
                Held::add(&mut table, size, kind, bytes);
            }
            judge(&table, arm, memory)
        }
        Err(reason) => Seen {
            pages: Vec::new(),
            verified: false,
            note: Some(reason),
        },
    })
}

/// Transparent huge pages below the full size are told by the flags of page frames, to root.
fn by_folio(
    memory: &ChaseMemory,
    engine: &Engine<'_>,
) -> Result<Vec<(hugeleaf_units::PageSize, PageKind, Bytes)>, String> {
    let (root, host) = (engine.root, engine.host);
    let kernel = RealKernel::new();
    let mut process = read_process(root, &kernel, host, own_pid(), Looking::Segments)
        .map_err(|e| e.to_string())?;
    process
        .segments
        .retain(|segment| segment.range.intersect(memory.range()) == Some(segment.range));
    split_by_folio(root, host, &mut process)
        .map_err(|e| format!("cannot be told from base pages: {e} (root may read it)"))?;
    let held = process.segments.iter().flat_map(|s| &s.by_page_size);
    Ok(held.map(|h| (h.size, h.kind, h.bytes)).collect())
}

fn judge(table: &[Held], arm: PageArm, memory: &ChaseMemory) -> Seen {
    let is_right = |held: &&Held| (held.size, held.kind) == (arm.size, arm.kind);
    let right: Bytes = table.iter().filter(is_right).map(|h| h.bytes).sum();
    let all: Bytes = table.iter().map(|h| h.bytes).sum();
    let verified = right == all && !all.is_zero();
    let note = (!verified).then(|| {
        let why = memory.why().map_or_else(String::new, |w| format!(": {w}"));
        format!(
            "{} of {all} were not on {arm}{why}",
            all.saturating_sub(right)
        )
    });
    Seen {
        pages: table
            .iter()
            .map(|h| SizeHeld::new(h.size, h.kind, h.bytes))
            .collect(),
        verified,
        note,
    }
}
