//! A contiguous address range on the best page sizes available.

use hugeleaf_sys::{Errno, MemoryFile, PageMap, PageState, ReservedAddresses, Sharing, may_lock};
use hugeleaf_units::{Bytes, Ladder, PageKind, PageSize, Pages, Range, Rung};

use crate::error::MemoryError;
use crate::extent::{Extent, FallbackReason};
use crate::host_memory::HostMemory;
use crate::ladder_steps::{LadderStep, LadderSteps};
use crate::options::RegionOptions;
use crate::populate::{Populator, ProgressCallback};
use crate::{hugetlb, populate, thp};

/// A part of a region that was allocated in one step.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) range: Range,
    pub(crate) step: LadderStep,
    /// File that other processes map; `None` for private memory outside the pools.
    pub(crate) file: Option<MemoryFile>,
    pub(crate) why: Option<FallbackReason>,
}

/// A contiguous, populated address range on the page sizes of its ladder; freed when dropped.
///
/// The region is uniform if the first rung provides all of it. Otherwise it is a mosaic with the
/// fewest extents: largest pages first, base pages last. A block for which the kernel finds no
/// contiguous memory stays on base pages in place. The region never moves, and mremap(2) must not
/// be used on it.
///
/// # Children
/// Children inherit shared regions through fork(2). Private regions are copied on write, as all
/// private memory is. While both processes live, a write to a transparent huge page copies one base
/// page. That block is then on base pages in the process that wrote, and [`Region::extents`]
/// reports it.
///
/// A private region whose ladder names a pool (`hugetlb:2M`) is not inherited: the child has a gap
/// there. An access to the gap raises SIGSEGV in the child and does not affect the parent. A copy
/// of reserved pages would have to come from the pool, and a short pool would kill the child at a
/// later write. The child must not use its copy of the region: its own mappings may be placed in
/// the gap. [`Region::extents`] returns [`MemoryError::NotInherited`] there, and a drop has no effect.
///
/// # Trust
/// A process that attaches a shared region can write to it and can remove its pages
/// (`MADV_REMOVE`). The kernel has no seal against removal that leaves memory writable. A later
/// access then takes a new zero page, or raises SIGBUS if the pool has none. Share a region only
/// with processes that you trust with its contents. A forged handle is refused before it is used.
///
/// # Examples
/// ```
/// use hugeleaf::{Bytes, Region, RegionOptions};
///
/// // A buffer pool of 4M: huge pages as far as there are any, then base pages.
/// let region = Region::new(&RegionOptions::new(Bytes::from_mib(4), "2M".parse()?))?;
/// // SAFETY: the first byte is in the region, and no other thread uses it.
/// unsafe {
///     region.as_ptr().write(7);
///     assert_eq!(region.as_ptr().read(), 7);
/// }
///
/// for extent in region.extents()? {
///     println!("{extent}");
/// }
/// println!(
///     "{:.0} % of {} on huge pages, requested {}",
///     region.coverage()? * 100.0,
///     region.len(),
///     region.ladder(),
/// );
/// # assert!(!region.is_empty() && region.range().len() == region.len());
/// # assert_eq!(region.sharing(), hugeleaf::Sharing::Private);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Region {
    pub(crate) space: ReservedAddresses,
    pub(crate) allocations: Vec<Allocation>,
    pub(crate) asked: Rung,
    pub(crate) ladder: Ladder,
    pub(crate) sharing: Sharing,
    pub(crate) base: PageSize,
    pub(crate) huge: Option<PageSize>,
}

impl Region {
    /// Allocates and populates memory, and locks it if requested.
    ///
    /// # Errors
    /// [`MemoryError`]. No memory is kept then.
    pub fn new(options: &RegionOptions) -> Result<Region, MemoryError> {
        Region::with_progress(options, &mut |_, _| {})
    }

    /// As [`Region::new`], with progress reports. `progress` receives the populated and the total
    /// bytes, about 20 times a second and at the end.
    ///
    /// # Errors
    /// As [`Region::new`].
    ///
    /// # Examples
    /// ```
    /// use hugeleaf::{Bytes, Region, RegionOptions};
    ///
    /// let options = RegionOptions::new(Bytes::from_mib(8), "2M".parse()?);
    /// let mut last = Bytes::ZERO;
    /// let region = Region::with_progress(&options, &mut |populated, total| {
    ///     println!("{populated} of {total} populated");
    ///     last = populated;
    /// })?;
    /// assert_eq!(last, region.len());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_progress(
        options: &RegionOptions,
        progress: ProgressCallback<'_>,
    ) -> Result<Region, MemoryError> {
        let room = HostMemory::read()?;
        let steps = LadderSteps::of(&options.ladder, options.sharing, &room.host)?;
        check(options, &steps, &room)?;
        let filler = Populator::new(options.threads, options.length, progress);
        // Addresses are aligned to the largest size that may be mapped.
        let sizes = steps.list.iter().map(|step| step.size);
        let align = sizes.max().unwrap_or(room.host.base_page);
        let space = options.memory.reserve_addresses(options.length, align)?;
        let mut builder = Builder {
            options,
            room: &room,
            populator: filler,
            space: &space,
            allocations: Vec::new(),
            at: 0,
            why: steps.dropped.first().cloned(),
        };
        builder.all(&steps)?;
        let allocations = builder.allocations;
        let region = Region {
            space,
            allocations,
            asked: options.ladder.rungs()[0],
            ladder: options.ladder.clone(),
            sharing: options.sharing,
            base: room.host.base_page,
            huge: room.host.pmd_page.get(),
        };
        if options.sharing == Sharing::Private && steps.uses_pool() {
            region.space.dont_fork(region.range())?;
        }
        if options.locked {
            region.lock()?;
        }
        Ok(region)
    }

    /// Returns the address of the first byte. It is valid for reads and writes of [`Region::len`]
    /// bytes while the region lives. The caller must prevent data races.
    pub const fn as_ptr(&self) -> *mut u8 {
        self.space.as_ptr()
    }

    /// Returns the length in bytes; never 0.
    pub const fn len(&self) -> Bytes {
        self.space.range().len()
    }

    /// Always false.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Returns the address range.
    pub const fn range(&self) -> Range {
        self.space.range()
    }

    /// Returns the requested ladder.
    pub const fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    /// Returns the sharing: private, or attachable by other processes.
    pub const fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// Returns the extents in address order. They are read from the page map at each call, because
    /// the kernel may split and collapse transparent huge pages at any time. Shared memory that
    /// this process has not mapped yet is mapped first. That allocates only page tables, and reads
    /// swapped-out pages back.
    ///
    /// # Errors
    /// [`MemoryError::NotInherited`]; errors of reading `/proc/self/pagemap`.
    pub fn extents(&self) -> Result<Vec<Extent>, MemoryError> {
        if !self.space.is_here() {
            return Err(MemoryError::NotInherited);
        }
        let mut extents = Vec::new();
        for allocation in &self.allocations {
            match allocation.step.kind {
                PageKind::Hugetlb => extents.push(Extent {
                    range: allocation.range,
                    requested: self.asked,
                    page: allocation.step.size,
                    kind: PageKind::Hugetlb,
                    resident: self.held(allocation)?,
                    why: self.fallback_reason(allocation, allocation.step.size, PageKind::Hugetlb),
                }),
                _ => self.add_extents(allocation, &mut extents)?,
            }
        }
        Ok(extents)
    }

    /// Returns the coverage: the share on pages larger than the base page, from 0 to 1.
    ///
    /// # Errors
    /// As [`Region::extents`].
    pub fn coverage(&self) -> Result<f64, MemoryError> {
        let extents = self.extents()?;
        let large = extents.iter().filter(|e| e.kind != PageKind::Base);
        let large: Bytes = large.map(|e| e.range.len()).sum();
        Ok(large.share_of(self.len()).unwrap_or(0.0))
    }

    /// Returns the memory that an allocation holds. It is less than the length only if a process
    /// that shares the allocation punched a hole in it.
    fn held(&self, allocation: &Allocation) -> Result<Bytes, MemoryError> {
        let length = allocation.range.len();
        match &allocation.file {
            Some(file) => Ok(self.space.memory().facts(file)?.held.min(length)),
            None => Ok(length),
        }
    }

    fn pages_of(&self, allocation: &Allocation) -> Result<PageMap, MemoryError> {
        let map = thp::read_pages(allocation.range)?;
        let length = allocation.range.len();
        if allocation.file.is_none() || present(&map) >= length || self.held(allocation)? < length {
            return Ok(map);
        }
        // Pages that cannot be mapped are reported as not resident.
        let _ = populate::populate_in_steps(&self.space, allocation.range, allocation.step.size);
        Ok(thp::read_pages(allocation.range)?)
    }

    /// Adds the extents of an allocation outside the pools, split by whether a huge page maps them.
    fn add_extents(
        &self,
        allocation: &Allocation,
        extents: &mut Vec<Extent>,
    ) -> Result<(), MemoryError> {
        let map = self.pages_of(allocation)?;
        let mut found = thp::by_page(&map, allocation.range, self.asked, self.base, self.huge);
        for extent in &mut found {
            extent.why = match self.fallback_reason(allocation, extent.page, extent.kind) {
                Some(FallbackReason::Split { size }) if !map.huge_known => {
                    Some(FallbackReason::NotReported { size })
                }
                why => why,
            };
        }
        extents.append(&mut found);
        Ok(())
    }

    fn fallback_reason(
        &self,
        allocation: &Allocation,
        page: PageSize,
        kind: PageKind,
    ) -> Option<FallbackReason> {
        // The kernel uses the largest enabled pages, so it may give more than the request.
        if page >= self.asked.size && self.asked.kind.is_none_or(|asked| asked == kind) {
            return None;
        }
        if self.asked.size == self.base {
            return None;
        }
        if let Some(why) = &allocation.why {
            return Some(why.clone());
        }
        // The whole allocation was on its own page size when it was made.
        let size = allocation.step.size;
        Some(if page < size {
            FallbackReason::Split { size }
        } else {
            FallbackReason::Attached
        })
    }

    fn lock(&self) -> Result<(), MemoryError> {
        let ordinary = |allocation: &&Allocation| allocation.step.kind != PageKind::Hugetlb;
        for allocation in self.allocations.iter().filter(ordinary) {
            self.space.lock(allocation.range).map_err(|error| {
                let limited = matches!(error.errno, Errno::NOMEM | Errno::PERM | Errno::AGAIN);
                // Memory that is already locked counts too, and only mlock(2) knows the total.
                match may_lock().filter(|_| limited) {
                    Some(limit) => MemoryError::MemlockLimit {
                        asked: allocation.range.len(),
                        limit,
                    },
                    None => error.into(),
                }
            })?;
        }
        Ok(())
    }
}

/// Returns the part of a range that is resident and mapped.
pub(crate) fn present(map: &PageMap) -> Bytes {
    let present = (map.runs.iter()).filter(|run| run.state.has(PageState::PRESENT));
    present.map(|run| run.range.len()).sum()
}

/// Refuses impossible requests before any memory is taken.
fn check(
    options: &RegionOptions,
    steps: &LadderSteps,
    room: &HostMemory,
) -> Result<(), MemoryError> {
    let length = options.length;
    if length.is_zero() {
        return Err(MemoryError::Empty);
    }
    let least = match (steps.mandatory, steps.list.last()) {
        (true, Some(last)) => last.size,
        _ => room.host.base_page,
    };
    if !least.divides(length.get()) {
        return Err(MemoryError::NotAMultiple {
            length,
            page: least,
        });
    }
    room.check_nodes(&options.nodes)?;
    let mut pools = Bytes::ZERO;
    let mut ordinary = false;
    for step in &steps.list {
        match step.kind {
            PageKind::Hugetlb => match room.pool(step.size).0.get() {
                Some(bytes) => pools += bytes,
                None => return Ok(()),
            },
            _ => ordinary = true,
        }
    }
    let rest = length - pools;
    if !ordinary || rest.is_zero() {
        return Ok(());
    }
    HostMemory::check(rest)?;
    match (options.locked, may_lock()) {
        (true, Some(limit)) if rest > limit => {
            Err(MemoryError::MemlockLimit { asked: rest, limit })
        }
        _ => Ok(()),
    }
}

struct Builder<'a> {
    options: &'a RegionOptions,
    room: &'a HostMemory,
    populator: Populator<'a>,
    space: &'a ReservedAddresses,
    allocations: Vec<Allocation>,
    at: u64,
    why: Option<FallbackReason>,
}

impl Builder<'_> {
    fn all(&mut self, steps: &LadderSteps) -> Result<(), MemoryError> {
        for step in &steps.list {
            let left = Bytes(self.options.length.get() - self.at);
            if left.is_zero() {
                break;
            }
            let whole = Pages(left.get() / step.size.bytes().get());
            if whole.get() == 0 {
                self.why
                    .get_or_insert(FallbackReason::Remainder { size: step.size });
                continue;
            }
            match step.kind {
                PageKind::Hugetlb => self.pool(*step, whole)?,
                kind => self.non_pool(*step, whole, kind == PageKind::Thp)?,
            }
            let left = self.options.length.get() - self.at;
            if left > 0 && left < step.size.bytes().get() {
                self.why = Some(FallbackReason::Remainder { size: step.size });
            }
        }
        let missing = Bytes(self.options.length.get() - self.at);
        let missing = missing + self.split_of_mandatory(steps)?;
        match missing.is_zero() {
            true => Ok(()),
            false => Err(MemoryError::Short {
                ladder: self.options.ladder.clone(),
                asked: self.options.length,
                missing,
                why: self.why.clone().unwrap_or(FallbackReason::ThpOff),
            }),
        }
    }

    fn pool(&mut self, step: LadderStep, wanted: Pages) -> Result<(), MemoryError> {
        let wanted = hugetlb::PoolRequest {
            space: self.space,
            offset: self.at,
            pages: wanted,
            size: step.size,
            nodes: &self.options.nodes,
            sharing: self.options.sharing,
        };
        let taken = hugetlb::take(&wanted, self.room, &mut self.populator)?;
        let before = self.why.take();
        if taken.pages.get() > 0 {
            let range = self.part(taken.pages.in_bytes(step.size))?;
            self.add(range, step, taken.file, before.clone());
        }
        // The first reason explains why the rest differs from the request.
        self.why = before.or(taken.why);
        Ok(())
    }

    fn non_pool(&mut self, step: LadderStep, whole: Pages, huge: bool) -> Result<(), MemoryError> {
        let range = self.part(whole.in_bytes(step.size))?;
        let (options, host) = (self.options, &self.room.host);
        let sharing = options.sharing;
        let file = thp::take(self.space, range, step, options, host, &mut self.populator)?;
        let mut why = self.why.clone();
        if huge {
            let knob = thp::knob_of(&self.room.host, step.size, sharing);
            let small = match self.room.host.pmd_page.get() == Some(step.size) {
                true => match thp::collapse(self.space, range, step.size)? {
                    // Private memory is collapsed regardless of the knobs; shared memory is not.
                    Some(FallbackReason::ThpOff) if sharing == Sharing::Shared => {
                        knob.or(Some(FallbackReason::ThpOff))
                    }
                    why => why,
                },
                false => Some(knob.unwrap_or(FallbackReason::NotReported { size: step.size })),
            };
            why = why.or(small);
        }
        self.add(range, step, file, why);
        Ok(())
    }

    fn part(&self, length: Bytes) -> Result<Range, MemoryError> {
        self.space
            .part(self.at, length)
            .ok_or(MemoryError::TooLarge {
                asked: length,
                available: self.space.range().len(),
                limited_by: "reserved addresses".to_owned(),
            })
    }

    fn add(
        &mut self,
        range: Range,
        step: LadderStep,
        file: Option<MemoryFile>,
        why: Option<FallbackReason>,
    ) {
        self.at += range.len().get();
        self.allocations.push(Allocation {
            range,
            step,
            file,
            why,
        });
    }

    /// Returns the part of a mandatory region that ended up on base pages.
    fn split_of_mandatory(&mut self, steps: &LadderSteps) -> Result<Bytes, MemoryError> {
        let mut small = Bytes::ZERO;
        let thp = |allocation: &&Allocation| allocation.step.kind == PageKind::Thp;
        for allocation in self
            .allocations
            .iter()
            .filter(thp)
            .filter(|_| steps.mandatory)
        {
            let map = thp::read_pages(allocation.range)?;
            small += allocation.range.len() - thp::huge_in(&map, allocation.range);
            self.why = self.why.take().or_else(|| allocation.why.clone());
        }
        Ok(small)
    }
}
