//! The layout of memory: its page sizes, and the physical contiguity of its frames.

use hugeleaf_host::{Host, PageUsage};
use hugeleaf_proof::bench::{BenchContext, BenchError, held_by_folio, page_mismatch};
use hugeleaf_proof::result_format::PageLayout;
use hugeleaf_units::Bytes;
use hugeleaf_workload::PageArm;

use crate::kits::backup_io::{IoMemory, IoPages};

/// Reads the layout of a data space back, and compares it with the pages of its arm.
pub(super) fn read_layout(
    memory: &IoMemory,
    block: Bytes,
    machine: &BenchContext<'_>,
) -> Result<PageLayout, BenchError> {
    let seen = memory.facts(block)?;
    let arm = memory.pages().mapped(machine.host);
    let held = match seen.held {
        Some(held) => Ok(held),
        None => held_by_folio(memory.range(), machine),
    };
    let (pages, note) = match held {
        Ok(held) => {
            let note = page_mismatch(&held, arm, PageUsage::total(&held));
            (held, note)
        }
        Err(reason) => (Vec::new(), Some(reason)),
    };
    let extents = seen.extents_a_block;
    let note = note.or_else(|| scattered(memory.pages(), extents, arm, block, machine.host));
    Ok(PageLayout {
        extents_a_block: extents,
        verified: Some(note.is_none()),
        note,
        ..PageLayout::new("", &[], "before", pages)
    })
}

/// Returns the difference between the layout of the frames and that of the arm, in words. Pure.
fn scattered(
    pages: IoPages,
    extents: Option<f64>,
    arm: PageArm,
    block: Bytes,
    host: &Host,
) -> Option<String> {
    /// Sufficient part of a perfect layout.
    const ENOUGH: f64 = 0.9;
    let count = |size: hugeleaf_units::PageSize| {
        u32::try_from(size.pages_for(block).get()).map_or(f64::INFINITY, f64::from)
    };
    let Some(extents) = extents else {
        return match pages {
            IoPages::Scattered | IoPages::Split => {
                Some("only root can read the layout of its frames".to_owned())
            }
            IoPages::Pages(_) => None,
        };
    };
    match pages {
        IoPages::Scattered if extents < count(host.base_page) * ENOUGH => Some(format!(
            "{extents:.1} extents a block of {block} instead of {}: not fully scattered",
            count(host.base_page)
        )),
        IoPages::Split if extents > 1.0 / ENOUGH => Some(format!(
            "{extents:.1} extents a block of {block}: not fully contiguous"
        )),
        IoPages::Pages(_) if !arm.is_base() && extents > count(arm.size) / ENOUGH => Some(format!(
            "{extents:.1} extents a block of {block}: more extents than pages"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_host::{Root, read_memory_facts};
    use hugeleaf_sys::Kernel;
    use hugeleaf_units::PageKind;

    #[test]
    fn frames_that_lie_otherwise_are_told() {
        let mut host = read_memory_facts(&Root::live(), &Kernel::new()).unwrap();
        host.base_page = "4K".parse().unwrap();
        let block = Bytes::from_kib(256);
        let base = PageArm::base(&host);
        let of = |pages, extents| scattered(pages, extents, base, block, &host);
        assert_eq!(of(IoPages::Scattered, Some(63.9)), None);
        assert!(
            of(IoPages::Scattered, Some(8.0))
                .unwrap()
                .starts_with("8.0 extents")
        );
        assert!(of(IoPages::Scattered, None).unwrap().contains("root"));
        assert_eq!(of(IoPages::Split, Some(1.0)), None);
        assert!(of(IoPages::Split, Some(4.0)).is_some());
        let large = PageArm {
            size: "64K".parse().unwrap(),
            kind: PageKind::Thp,
        };
        let of = |extents| scattered(IoPages::Pages(large), extents, large, block, &host);
        assert_eq!((of(Some(4.0)), of(None)), (None, None));
        assert!(of(Some(60.0)).is_some());
    }
}
