//! Extents from a hugetlb pool: reserved by mmap(2) and populated before they are handed out.
//!
//! Each extent is a file of its own and mapped shared, even in private regions. Shared hugetlb
//! memory has no copy-on-write, so a pool that runs short after a fork cannot kill a child. Private
//! regions keep such extents out of children altogether.

use hugeleaf_sys::{
    Errno, HugetlbReservation, MemoryFile, NodePolicy, ReservedAddresses, Sharing, SysError,
};
use hugeleaf_units::{Bytes, PageSize, Pages, Range};

use crate::error::MemoryError;
use crate::extent::FallbackReason;
use crate::host_memory::HostMemory;
use crate::populate::{PopulateError, PopulateMethod, Populator};

pub(crate) struct PoolAllocation {
    /// File that other processes can map. `None` for private memory, and if there were no pages.
    pub(crate) file: Option<MemoryFile>,
    pub(crate) pages: Pages,
    pub(crate) why: Option<FallbackReason>,
}

pub(crate) struct PoolRequest<'a> {
    pub(crate) space: &'a ReservedAddresses,
    pub(crate) offset: u64,
    pub(crate) pages: Pages,
    pub(crate) size: PageSize,
    pub(crate) nodes: &'a NodePolicy,
    /// If private, children get neither the mapping nor the file through its descriptor.
    pub(crate) sharing: Sharing,
}

/// Takes up to the requested number of pages and maps them.
///
/// # Errors
/// Errors of the system calls. A short pool or limit is a result, not an error.
pub(crate) fn take(
    asked: &PoolRequest<'_>,
    room: &HostMemory,
    filler: &mut Populator<'_>,
) -> Result<PoolAllocation, MemoryError> {
    let PoolRequest {
        space, size, nodes, ..
    } = *asked;
    let wanted = asked.pages;
    let memory = space.memory();
    let file = match memory.create_file("hugeleaf", Bytes::ZERO, Some(size)) {
        Ok(file) => file,
        // The kernel lists the size but has no pool for it, or hugetlbfs is missing.
        Err(e) if matches!(e.errno, Errno::NODEV | Errno::INVAL | Errno::NOENT) => {
            return Ok(PoolAllocation {
                file: None,
                pages: Pages(0),
                why: Some(FallbackReason::NoSuchSize { size }),
            });
        }
        Err(e) => return Err(e.into()),
    };
    let pool_file = PoolFile { asked, file: &file };
    let mut pages = pool_file.reserve(wanted)?;
    let mut short_at_fault = false;
    while pages.get() > 0 {
        let part = pool_file.part(pages)?;
        space.bind(part, nodes)?;
        match filler.populate(space, part, size, PopulateMethod::FromPool) {
            Ok(()) => break,
            // All pages are reserved, so a limit on faults or the policy refused one.
            Err(PopulateError::NoPage(_)) => {
                short_at_fault = true;
                pages = pool_file.shrink(pages)?;
            }
            Err(other) => return Err(other.into()),
        }
    }
    let why = (pages < wanted).then(|| FallbackReason::PoolShort {
        size,
        wanted,
        got: pages,
        limited_by: limit_of(asked, room, short_at_fault),
    });
    if pages.get() == 0 {
        return Ok(PoolAllocation {
            file: None,
            pages,
            why,
        });
    }
    memory.seal_length(&file)?;
    Ok(PoolAllocation {
        // Private memory needs only the mapping. A child would hold the pages by descriptor.
        file: (asked.sharing == Sharing::Shared).then_some(file),
        pages,
        why,
    })
}

fn limit_of(asked: &PoolRequest<'_>, room: &HostMemory, short_at_fault: bool) -> String {
    let (had, limited_by) = room.pool(asked.size);
    let could = had
        .get()
        .is_some_and(|bytes| bytes >= asked.pages.in_bytes(asked.size));
    let by_cgroup = limited_by.starts_with("cgroup") && !could;
    match (short_at_fault && !by_cgroup, could) {
        (true, _) if *asked.nodes != NodePolicy::Inherit => "nodes".to_owned(),
        (_, true) => "taken meanwhile".to_owned(),
        (_, false) => limited_by,
    }
}

struct PoolFile<'a> {
    asked: &'a PoolRequest<'a>,
    file: &'a MemoryFile,
}

impl PoolFile<'_> {
    fn part(&self, pages: Pages) -> Result<Range, MemoryError> {
        let PoolRequest {
            space,
            offset,
            size,
            ..
        } = *self.asked;
        let length = pages.in_bytes(size);
        space.part(offset, length).ok_or_else(|| {
            let error = SysError::new("mmap", length.to_string(), Errno::INVAL);
            MemoryError::Sys(error)
        })
    }

    /// Reserves up to `wanted` pages and maps them. The answer of mmap(2) decides, because it
    /// counts the pool, overcommit and the cgroup's reservation limit at once. A reservation stays
    /// with the file after munmap(2), so each attempt only adds to it.
    fn reserve(&self, wanted: Pages) -> Result<Pages, MemoryError> {
        let memory = self.asked.space.memory();
        let (mut had, mut refused) = (0, wanted.get() + 1);
        let mut attempt = wanted.get();
        while attempt > had && attempt < refused {
            let length = Pages(attempt).in_bytes(self.asked.size);
            memory.set_length(self.file, length)?;
            match memory.reserve(self.file, length) {
                Ok(()) => had = attempt,
                Err(e) if matches!(e.errno, Errno::NOMEM | Errno::NOSPC) => refused = attempt,
                Err(e) => return Err(e.into()),
            }
            attempt = had + (refused - had) / 2;
        }
        self.settle(Pages(had))?;
        Ok(Pages(had))
    }

    /// Truncates the file to `pages`, which it holds or has reserved, and maps exactly those.
    fn settle(&self, pages: Pages) -> Result<(), MemoryError> {
        let memory = self.asked.space.memory();
        memory.set_length(self.file, pages.in_bytes(self.asked.size))?;
        if pages.get() > 0 {
            let part = self.part(pages)?;
            let space = self.asked.space;
            space.map_file(part, self.file, 0, HugetlbReservation::All)?;
            if self.asked.sharing == Sharing::Private {
                // Done at once: a child forked by another thread in between would hold the pages.
                space.dont_fork(part)?;
            }
        }
        Ok(())
    }

    /// Keeps the pages at the start of the file that are present, after a page was unavailable.
    fn shrink(&self, pages: Pages) -> Result<Pages, MemoryError> {
        let part = self.part(pages)?;
        let memory = self.asked.space.memory();
        let present = memory.facts(self.file)?.held;
        let kept = present.get() / self.asked.size.bytes().get();
        let kept = Pages(kept.min(pages.get() - 1));
        self.asked.space.clear(part)?;
        self.settle(kept)?;
        Ok(kept)
    }
}
