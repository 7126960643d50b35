//! The layout of a data space: its pages, and whether neighbours are neighbours in memory.

use hugeleaf_host::{Host, Root};
use hugeleaf_units::Bytes;
use hugeleaf_workload::PageArm;
use hugeleaf_workload::mover::{IoMemory, IoPages};
use serde::{Deserialize, Serialize};

use crate::bench::BenchError;
use crate::bench::chase::held_by_folio;
use crate::rows::{Layout, Place, Results};
use crate::subject::SizeHeld;

/// The physical layout that memory was found to have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhysicalLayout {
    /// By page size, as the kernel maps it.
    pub pages: Vec<SizeHeld>,
    /// Extents of neighbouring frames in a block, mean: how many a device has to address one by
    /// one. Missing where frames are hidden from this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pieces_a_block: Option<f64>,
    /// Whether all of it was seen to be on the pages of its arm, and scattered where it should be.
    pub verified: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl PhysicalLayout {
    /// As a result keeps it.
    pub(in crate::bench) fn layout(&self, arm: &str, at: &[Place], when: &str) -> Layout {
        Layout {
            arm: arm.to_owned(),
            at: at.to_vec(),
            when: when.to_owned(),
            round: None,
            pages: self.pages.clone(),
            extents_a_block: self.pieces_a_block,
            verified: Some(self.verified),
            note: self.note.clone(),
        }
    }
}

/// Puts the looks at an arm's memory into a result; gives the first that was not as it should be.
pub(in crate::bench) fn add_looks<'a>(
    results: &mut Results,
    arm: &str,
    at: &[Place],
    looks: [(&str, &'a Option<PhysicalLayout>); 2],
) -> Option<&'a PhysicalLayout> {
    let looks = looks.map(|(when, seen)| Some((when, seen.as_ref()?)));
    let looks = || looks.iter().flatten();
    let layouts = looks().map(|(when, seen)| seen.layout(arm, at, when));
    results.layouts.extend(layouts);
    looks().map(|(_, seen)| *seen).find(|seen| !seen.verified)
}

/// Reads it back.
pub(in crate::bench) fn look(
    memory: &IoMemory,
    block: Bytes,
    root: &Root,
    host: &Host,
) -> Result<PhysicalLayout, BenchError> {
    let seen = memory.look(block)?;
    let arm = memory.pages().mapped(host);
    let held = match seen.held {
        Some(held) => Ok(held),
        None => held_by_folio(memory.range(), root, host),
    };
    let (pages, mut note) = match held {
        Ok(held) => {
            let right = held
                .iter()
                .filter(|h| (h.size, h.kind) == (arm.size, arm.kind));
            let right: Bytes = right.map(|h| h.bytes).sum();
            let all: Bytes = held.iter().map(|h| h.bytes).sum();
            let missing = all.saturating_sub(right);
            let note =
                (!missing.is_zero()).then(|| format!("{missing} of {all} were not on {arm}"));
            (SizeHeld::all(&held), note)
        }
        Err(reason) => (Vec::new(), Some(reason)),
    };
    if note.is_none() {
        note = astray(memory.pages(), seen.pieces_a_block, arm, block, host);
    }
    Ok(PhysicalLayout {
        pages,
        pieces_a_block: seen.pieces_a_block,
        verified: note.is_none(),
        note,
    })
}

/// Whether frames are laid out as the arm has them. Pure.
fn astray(
    pages: IoPages,
    pieces: Option<f64>,
    arm: PageArm,
    block: Bytes,
    host: &Host,
) -> Option<String> {
    /// So much of what would be perfect is enough.
    const ENOUGH: f64 = 0.9;
    let count = |size: hugeleaf_units::PageSize| {
        u32::try_from(size.pages_for(block).get()).map_or(f64::INFINITY, f64::from)
    };
    let Some(pieces) = pieces else {
        return match pages {
            IoPages::Scattered | IoPages::Split => {
                Some("the layout of its frames is shown to root only".to_owned())
            }
            IoPages::Pages(_) => None,
        };
    };
    match pages {
        IoPages::Scattered if pieces < count(host.base_page) * ENOUGH => Some(format!(
            "{pieces:.1} extents a block of {block} instead of {}: not all of it is scattered",
            count(host.base_page)
        )),
        IoPages::Split if pieces > 1.0 / ENOUGH => Some(format!(
            "{pieces:.1} extents a block of {block}: not all of it is contiguous"
        )),
        IoPages::Pages(_) if !arm.is_base() && pieces > count(arm.size) / ENOUGH => Some(format!(
            "{pieces:.1} extents a block of {block}: more than pages"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_host::read_memory_facts;
    use hugeleaf_sys::RealKernel;
    use hugeleaf_units::PageKind;

    #[test]
    fn frames_that_lie_otherwise_are_told() {
        let mut host = read_memory_facts(&Root::live(), &RealKernel::new()).unwrap();
        host.base_page = "4K".parse().unwrap();
        let block = Bytes::from_kib(256);
        let base = PageArm::base(&host);
        let of = |pages, pieces| astray(pages, pieces, base, block, &host);
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
        let of = |pieces| astray(IoPages::Pages(large), pieces, large, block, &host);
        assert_eq!((of(Some(4.0)), of(None)), (None, None));
        assert!(of(Some(60.0)).is_some());
    }
}
