//! Which pages the memory of a point is on.

use hugeleaf_host::Held;
use hugeleaf_units::Bytes;
use hugeleaf_workload::{ChaseMemory, PageArm};

use crate::bench::layout::{astray, held_by_folio};
use crate::bench::{BenchError, Machine};

/// What was seen.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Seen {
    pub(super) pages: Vec<Held>,
    /// Why it is not as it should be.
    pub(super) note: Option<String>,
}

impl Seen {
    /// The first of two that is not as it should be; else the later one.
    pub(super) fn worse(before: Option<Seen>, now: Seen) -> Seen {
        before.filter(|seen| seen.note.is_some()).unwrap_or(now)
    }
}

/// Reads back which pages the first `length` bytes are on, and holds them against the arm.
pub(super) fn look(
    memory: &ChaseMemory,
    arm: PageArm,
    length: Bytes,
    machine: &Machine<'_>,
) -> Result<Seen, BenchError> {
    let pages = match memory.pages(length)? {
        Some(pages) => Ok(pages),
        None => held_by_folio(memory.range(), machine),
    };
    Ok(match pages {
        Ok(pages) => judge(pages, arm, length, memory),
        Err(reason) => Seen {
            pages: Vec::new(),
            note: Some(reason),
        },
    })
}

fn judge(pages: Vec<Held>, arm: PageArm, length: Bytes, memory: &ChaseMemory) -> Seen {
    // Memory is whole pages, so there may be more of it than the working set.
    let astray = astray(&pages, arm, Held::total(&pages).max(length));
    let why = || memory.why().map_or_else(String::new, |w| format!(": {w}"));
    Seen {
        note: astray.map(|astray| astray + &why()),
        pages,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_host::{Root, read_memory_facts};
    use hugeleaf_sys::RealKernel;
    use hugeleaf_units::PageKind;

    #[test]
    fn memory_on_other_pages_or_not_there_is_told() {
        let host = read_memory_facts(&Root::live(), &RealKernel::new()).unwrap();
        let base = PageArm::base(&host);
        let length = Bytes(host.base_page.bytes().get() * 4);
        let memory = ChaseMemory::take(base, length, &host).unwrap();
        let table = memory.pages(length).unwrap().unwrap();
        assert_eq!(judge(table.clone(), base, length, &memory).note, None);
        let large = PageArm {
            size: "2M".parse().unwrap(),
            kind: PageKind::Thp,
        };
        let seen = judge(table, large, length, &memory);
        let expected = format!("{length} of {length} were not on thp:2M");
        assert_eq!(seen.note, Some(expected));
        // Half of it was swapped out: what is there is right, and it is not all.
        let half = Bytes(length.get() / 2);
        let there = memory.pages(half).unwrap().unwrap();
        let seen = judge(there, base, length, &memory);
        assert!(seen.note.unwrap().starts_with(&half.to_string()));
    }
}
