//! The memory behind granules: the file or kind of memory of each rung, the mappings of this
//! process, and the population and release of pages.
//!
//! Every pool rung has a file of its own, as long as the whole range and empty at first. All other
//! rungs of shared memory have one file together. A granule has the same offset in each file. The
//! file of the first rung is mapped once, over the whole range. One mapping per granule would
//! exceed the kernel's limit of 65530 mappings, since the kernel never merges those of hugetlb
//! files (VM_DONTEXPAND). Only a granule taken on another rung is mapped separately, at that time.
//!
//! An access to a granule that is not held may therefore succeed and allocate a page that is not
//! accounted for. It is an error like a use after free. [`Backing::fill`] detects such pages and
//! removes them first, so that granules read as zeroes when handed out.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use hugeleaf_host::Host;
use hugeleaf_sys::{
    Advice, Errno, HugetlbReservation, MemoryFile, MemorySyscalls, NodePolicy, ReservedAddresses,
    Sharing, SysError,
};
use hugeleaf_units::{Bytes, PageKind, PageSize, Range};

use super::granule_entry::{FallbackCode, GranuleEntry};
use super::ledger::LedgerShape;
use crate::error::{MemoryError, again};
use crate::host_memory::HostMemory;
use crate::ladder_steps::{LadderStep, LadderSteps};
use crate::populate::{is_short, populate};
use crate::thp;

/// Maximum size populated or returned by one call. It bounds the wait of other users of the address
/// space or the file, such as a thread that maps memory or starts a thread.
const CHUNK: Bytes = Bytes::from_mib(8);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GranuleRun {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl GranuleRun {
    pub(crate) fn indices(self) -> std::ops::Range<u32> {
        self.first..self.first + self.count
    }

    pub(crate) const fn single(first: u32) -> GranuleRun {
        GranuleRun { first, count: 1 }
    }

    pub(crate) fn from_indices(numbers: impl IntoIterator<Item = u32>) -> Vec<GranuleRun> {
        let mut runs: Vec<GranuleRun> = Vec::new();
        for index in numbers {
            match runs.last_mut() {
                Some(run) if run.first + run.count == index => run.count += 1,
                _ => runs.push(GranuleRun::single(index)),
            }
        }
        runs
    }
}

#[derive(Debug)]
enum BackingStore {
    File(MemoryFile),
    Anonymous,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilledRun {
    pub(crate) run: GranuleRun,
    pub(crate) step: u8,
    pub(crate) reason: FallbackCode,
}

/// Granules that a rung did not populate, with the reason.
type UnpopulatedRuns = Vec<(GranuleRun, FallbackCode)>;
/// Granules that a rung populated, and those left for the next rung.
type StepFillResult = (Vec<FilledRun>, UnpopulatedRuns);

enum PrefixFillError {
    /// The pool or a limit is short from this granule on.
    Short(u32),
    Failed(MemoryError),
}

impl From<SysError> for PrefixFillError {
    fn from(error: SysError) -> PrefixFillError {
        PrefixFillError::Failed(error.into())
    }
}

/// Returns the mapping of a granule in this process: the store plus one in the high half, the stamp
/// for which its pages are known to be mapped in the low half. 0 is the initial state of the range.
const fn mapping_of(store: usize, stamp: u32) -> u64 {
    (store as u64 + 1) << 32 | stamp as u64
}

const UNKNOWN: u64 = (u8::MAX as u64) << 32;

#[derive(Debug)]
pub(crate) struct Backing {
    pub(crate) space: ReservedAddresses,
    pub(crate) granule: PageSize,
    pub(crate) steps: LadderSteps,
    pub(crate) nodes: NodePolicy,
    stores: Vec<BackingStore>,
    store_of: Vec<usize>,
    local: Vec<AtomicU64>,
    changing: Mutex<()>,
    kept_from_children: bool,
    /// Page size that collapse produces and the page map reports.
    pub(crate) huge: Option<PageSize>,
    pub(crate) base: PageSize,
}

pub(crate) struct BackingPlan<'a> {
    pub(crate) max: Bytes,
    pub(crate) shape: LedgerShape,
    pub(crate) steps: LadderSteps,
    pub(crate) sharing: Sharing,
    pub(crate) nodes: NodePolicy,
    pub(crate) host: &'a Host,
}

impl Backing {
    /// Reserves addresses and creates the files; takes no memory.
    pub(crate) fn create(
        memory: &MemorySyscalls,
        plan: BackingPlan<'_>,
    ) -> Result<Backing, MemoryError> {
        let mut files = Vec::new();
        for pool in pools_of(&plan.steps, plan.sharing) {
            let file = memory.create_file("hugeleaf", plan.max, pool)?;
            memory.seal_length(&file)?;
            files.push(file);
        }
        Backing::over(memory, plan, files)
    }

    /// As [`Backing::create`], over existing files in the order of [`pools_of`].
    pub(crate) fn over(
        memory: &MemorySyscalls,
        plan: BackingPlan<'_>,
        files: Vec<MemoryFile>,
    ) -> Result<Backing, MemoryError> {
        let space = memory.reserve_addresses(plan.max, plan.shape.granule)?;
        let mut stores: Vec<BackingStore> = files.into_iter().map(BackingStore::File).collect();
        if plan.sharing == Sharing::Private && plan.steps.list.iter().any(is_ordinary) {
            stores.push(BackingStore::Anonymous);
        }
        let mut next = 0;
        let ordinary = stores.len().saturating_sub(1);
        let store_of = plan.steps.list.iter().map(|step| match step.kind {
            PageKind::Hugetlb => {
                next += 1;
                next - 1
            }
            _ => ordinary,
        });
        let backing = Backing {
            store_of: store_of.collect(),
            space,
            granule: plan.shape.granule,
            nodes: plan.nodes,
            stores,
            local: (0..plan.shape.granules)
                .map(|_| AtomicU64::new(0))
                .collect(),
            changing: Mutex::new(()),
            kept_from_children: plan.sharing == Sharing::Private && plan.steps.uses_pool(),
            steps: plan.steps,
            huge: plan.host.pmd_page.get(),
            base: plan.host.base_page,
        };
        backing.begin(plan.shape.granules)?;
        Ok(backing)
    }

    /// Maps the first rung's file over the whole range. Private memory is mapped when it is taken,
    /// because mapping all of it at once would count against the overcommit limit.
    fn begin(&self, granules: u32) -> Result<(), MemoryError> {
        let all = GranuleRun {
            first: 0,
            count: granules,
        };
        match self.stores[self.store_of[0]] {
            BackingStore::File(_) => self.map(all, 0)?,
            BackingStore::Anonymous => {
                // Reports a missing node now instead of at the first take.
                self.space.bind(self.space.range(), &self.nodes)?;
                for local in &self.local {
                    local.store(UNKNOWN, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &MemoryFile> {
        self.stores.iter().filter_map(|store| match store {
            BackingStore::File(file) => Some(file),
            BackingStore::Anonymous => None,
        })
    }

    pub(crate) fn part(&self, run: GranuleRun) -> Range {
        let at = self.space.range().start() + self.offset(run.first);
        let length = u64::from(run.count.max(1)) * self.granule.bytes().get();
        Range::new(at, at + length).unwrap_or(self.space.range())
    }

    fn offset(&self, index: u32) -> u64 {
        u64::from(index) * self.granule.bytes().get()
    }

    fn step(&self, step: usize) -> Result<LadderStep, MemoryError> {
        let known = self.steps.list.get(step).copied();
        known.ok_or_else(|| SysError::new("mmap", format!("of rung {step}"), Errno::INVAL).into())
    }

    /// Maps the store of a step, replacing the current mapping.
    fn map(&self, run: GranuleRun, step: usize) -> Result<(), MemoryError> {
        let wanted = self.step(step)?;
        let store = self.store_of[step];
        let part = self.part(run);
        let note = |mapping: u64| {
            for index in run.indices() {
                self.local[index as usize].store(mapping, Ordering::Release);
            }
        };
        // The mapping is unknown until the calls have succeeded.
        note(UNKNOWN);
        match &self.stores[store] {
            BackingStore::File(file) => {
                let offset = self.offset(run.first);
                self.space
                    .map_file(part, file, offset, HugetlbReservation::None)?;
            }
            BackingStore::Anonymous => self.space.map_private(part)?,
        }
        if self.kept_from_children {
            self.space.dont_fork(part)?;
        }
        self.space.bind(part, &self.nodes)?;
        thp::advise(&self.space, part, wanted)?;
        note(mapping_of(store, 0));
        Ok(())
    }

    fn mapped_otherwise(&self, run: GranuleRun, step: usize) -> Vec<GranuleRun> {
        let store = self.store_of[step] as u64 + 1;
        GranuleRun::from_indices(
            run.indices()
                .filter(|index| self.local[*index as usize].load(Ordering::Acquire) >> 32 != store),
        )
    }

    fn map_where_needed(&self, run: GranuleRun, step: usize) -> Result<(), MemoryError> {
        if self.mapped_otherwise(run, step).is_empty() {
            return Ok(());
        }
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        for part in self.mapped_otherwise(run, step) {
            self.map(part, step)?;
        }
        Ok(())
    }

    /// Makes a held granule accessible here. The caller ensures that it stays held.
    ///
    /// # Errors
    /// Errors of the system calls; EFAULT if its pages are gone.
    pub(crate) fn make_ready(&self, index: u32, entry: GranuleEntry) -> Result<(), MemoryError> {
        let (run, step) = (GranuleRun::single(index), usize::from(entry.step));
        self.step(step)?;
        self.map_where_needed(run, step)?;
        if matches!(self.stores[self.store_of[step]], BackingStore::File(_)) {
            // Populates page tables only, so that no access finds the pool short.
            populate(&self.space, self.part(run))?;
        }
        self.note_ready(index, entry);
        Ok(())
    }

    pub(crate) fn is_ready(&self, index: u32, entry: GranuleEntry) -> bool {
        let store = self.store_of.get(usize::from(entry.step)).copied();
        store.is_some_and(|store| {
            let mapping = mapping_of(store, entry.stamp);
            self.local[index as usize].load(Ordering::Acquire) == mapping
        })
    }

    pub(crate) fn note_ready(&self, index: u32, entry: GranuleEntry) {
        if let Some(store) = self.store_of.get(usize::from(entry.step)) {
            let mapping = mapping_of(*store, entry.stamp);
            self.local[index as usize].store(mapping, Ordering::Release);
        }
    }

    /// Populates granules that this process has claimed, on the first rungs that have memory. After
    /// an error, [`Backing::clean`] must free what was populated. `counted` returns the number of
    /// granules known to be on a step.
    ///
    /// # Errors
    /// [`MemoryError::Short`] on a mandatory ladder, [`MemoryError::TooLarge`], system call errors.
    pub(crate) fn fill(
        &self,
        run: GranuleRun,
        first: FallbackCode,
        counted: &dyn Fn(usize) -> u64,
    ) -> Result<Vec<FilledRun>, FillError> {
        let mut filled = Vec::new();
        let mut left = vec![(run, first)];
        for step in 0..self.steps.list.len() {
            for (run, reason) in std::mem::take(&mut left) {
                let on_step = self.fill_on(step, run, reason, counted);
                let on_step = on_step.map_err(FillError::Failed)?;
                filled.extend(on_step.0);
                left.extend(on_step.1);
            }
        }
        match left.first() {
            None => Ok(filled),
            Some((_, reason)) => Err(FillError::Short {
                missing: left.iter().map(|(run, _)| u64::from(run.count)).sum(),
                reason: *reason,
            }),
        }
    }

    fn fill_on(
        &self,
        step: usize,
        run: GranuleRun,
        reason: FallbackCode,
        counted: &dyn Fn(usize) -> u64,
    ) -> Result<StepFillResult, MemoryError> {
        let kind = self.step(step)?;
        self.map_where_needed(run, step)?;
        self.take_strays(run, step, counted)?;
        match kind.kind {
            PageKind::Hugetlb => self.fill_from_pool(step, run, reason),
            _ => self.fill_ordinary(step, run, reason),
        }
    }

    fn filled(&self, run: GranuleRun, step: usize, reason: FallbackCode) -> Option<FilledRun> {
        let step = u8::try_from(step).ok()?;
        (run.count > 0).then_some(FilledRun { run, step, reason })
    }

    fn fill_from_pool(
        &self,
        step: usize,
        run: GranuleRun,
        reason: FallbackCode,
    ) -> Result<StepFillResult, MemoryError> {
        let short_from = match self.fill_prefix(run) {
            Ok(()) => {
                let all = self.filled(run, step, reason);
                return Ok((all.into_iter().collect(), Vec::new()));
            }
            Err(PrefixFillError::Short(index)) => index,
            Err(PrefixFillError::Failed(error)) => return Err(error),
        };
        let count = short_from - run.first;
        let had = self.filled(GranuleRun { count, ..run }, step, reason);
        let rest = GranuleRun {
            first: short_from,
            count: run.count - count,
        };
        self.clean_store(rest, self.store_of[step])?;
        let why = reason.or(FallbackCode::PoolShort);
        Ok((had.into_iter().collect(), vec![(rest, why)]))
    }

    /// Populates granules in order, up to the first that is unavailable.
    fn fill_prefix(&self, run: GranuleRun) -> Result<(), PrefixFillError> {
        for chunk in self.chunks(run) {
            let Err(error) = populate(&self.space, self.part(chunk)) else {
                continue;
            };
            if !is_short(&error) {
                return Err(error.into());
            }
            // Finds the granule that failed. Those before it have their pages and cost little.
            for index in chunk.indices() {
                match populate(&self.space, self.part(GranuleRun::single(index))) {
                    Ok(()) => {}
                    Err(e) if is_short(&e) => return Err(PrefixFillError::Short(index)),
                    Err(e) => return Err(e.into()),
                }
            }
        }
        Ok(())
    }

    fn chunks(&self, run: GranuleRun) -> impl Iterator<Item = GranuleRun> + use<> {
        let most = (CHUNK.get() / self.granule.bytes().get()).max(1);
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let mut at = run.first;
        let end = run.first + run.count;
        std::iter::from_fn(move || {
            let first = at;
            at = at.saturating_add(most).min(end);
            (first < end).then_some(GranuleRun {
                first,
                count: at - first,
            })
        })
    }

    fn fill_ordinary(
        &self,
        step: usize,
        run: GranuleRun,
        reason: FallbackCode,
    ) -> Result<StepFillResult, MemoryError> {
        let kind = self.step(step)?;
        let length = |run: GranuleRun| self.part(run).len();
        let mut left = length(run);
        for chunk in self.chunks(run) {
            HostMemory::check(left)?;
            let part = self.part(chunk);
            if kind.kind == PageKind::Thp && self.is_file(step) {
                self.collapse_holes(part, kind.size)?;
            }
            populate(&self.space, part)?;
            left = left - length(chunk);
        }
        let (large, small) = match kind.kind {
            PageKind::Thp => self.collapse(run, kind)?,
            _ => (vec![run], Vec::new()),
        };
        let done = |run: &GranuleRun| self.filled(*run, step, reason);
        let mut filled: Vec<FilledRun> = large.iter().filter_map(done).collect();
        let mut rest = Vec::new();
        for (run, why) in small {
            let why = reason.or(why);
            if self.steps.mandatory || self.steps.list[step + 1..].iter().any(|s| !is_ordinary(s)) {
                self.clean_store(run, self.store_of[step])?;
                rest.push((run, why));
            } else {
                filled.extend(self.filled(run, step, why));
            }
        }
        Ok((filled, rest))
    }

    fn is_file(&self, step: usize) -> bool {
        matches!(self.stores[self.store_of[step]], BackingStore::File(_))
    }

    /// Collapses blocks while each has only one base page. The kernel refuses a block without a
    /// page table (EINVAL). A block full of base pages is populated twice and copied, which took
    /// five times as long when tried. The result is read back later.
    fn collapse_holes(&self, part: Range, size: PageSize) -> Result<(), SysError> {
        if self.huge != Some(size) {
            return Ok(());
        }
        for block in part.chunks(size) {
            let first = Range::new(block.start(), block.start() + self.base.bytes().get());
            populate(&self.space, first.unwrap_or(block))?;
        }
        let _ = self.space.advise(part, Advice::Collapse);
        Ok(())
    }

    /// Returns the granules on huge pages, and the others with the reason.
    fn collapse(
        &self,
        run: GranuleRun,
        step: LadderStep,
    ) -> Result<(Vec<GranuleRun>, UnpopulatedRuns), MemoryError> {
        let sharing = match self.stores.last() {
            Some(BackingStore::Anonymous) => Sharing::Private,
            _ => Sharing::Shared,
        };
        if self.huge != Some(step.size) {
            let room = HostMemory::read()?;
            let why = thp::knob_of(&room.host, step.size, sharing);
            let why = why
                .as_ref()
                .map_or(FallbackCode::NotReported, FallbackCode::from_fallback);
            return Ok((Vec::new(), vec![(run, why)]));
        }
        if self.is_all_huge(run)? {
            return Ok((vec![run], Vec::new()));
        }
        let (mut large, mut small) = (Vec::new(), Vec::new());
        for index in run.indices() {
            let one = GranuleRun::single(index);
            match self.collapse_one(one, step.size)? {
                None => large.push(index),
                // Private memory is collapsed regardless of the knobs.
                Some(FallbackCode::ThpOff) if sharing == Sharing::Shared => {
                    small.push((one, FallbackCode::KnobOff));
                }
                Some(reason) => small.push((one, reason)),
            }
        }
        Ok((GranuleRun::from_indices(large), small))
    }

    /// Collapses a granule block by block and returns the reason if it is still not on huge pages.
    /// The system calls give the reason, and the page map decides the outcome.
    fn collapse_one(
        &self,
        one: GranuleRun,
        huge: PageSize,
    ) -> Result<Option<FallbackCode>, MemoryError> {
        let mut reason = FallbackCode::NotContiguous;
        for block in self.part(one).chunks(huge) {
            if thp::collapse_one(&self.space, block) == Err(Errno::INVAL) {
                reason = FallbackCode::ThpOff;
            }
        }
        Ok((!self.is_all_huge(one)?).then_some(reason))
    }

    fn is_all_huge(&self, run: GranuleRun) -> Result<bool, MemoryError> {
        let part = self.part(run);
        Ok(thp::huge_in(&thp::read_pages(part)?, part) == part.len())
    }

    /// Removes pages that an access to granules that were not held has left.
    fn take_strays(
        &self,
        run: GranuleRun,
        step: usize,
        counted: &dyn Fn(usize) -> u64,
    ) -> Result<(), MemoryError> {
        let store = self.store_of[step];
        let has_strays = match &self.stores[store] {
            BackingStore::Anonymous => true,
            BackingStore::File(file) => !self.strays_in(store, file, counted)?.is_zero(),
        };
        if has_strays {
            self.clean_store(run, store)?;
        }
        Ok(())
    }

    fn strays_in(
        &self,
        store: usize,
        file: &MemoryFile,
        counted: &dyn Fn(usize) -> u64,
    ) -> Result<Bytes, MemoryError> {
        let steps = (0..self.store_of.len()).filter(|s| self.store_of[*s] == store);
        let counted: u64 = steps.map(counted).sum();
        let counted = Bytes(counted.saturating_mul(self.granule.bytes().get()));
        Ok(self.space.memory().facts(file)?.held - counted)
    }

    /// Returns the file memory without a granule; inaccurate while granules are in transit.
    pub(crate) fn strays(&self, counted: &dyn Fn(usize) -> u64) -> Result<Bytes, MemoryError> {
        let each = self.files().enumerate();
        each.map(|(store, file)| self.strays_in(store, file, counted))
            .sum()
    }

    /// Returns the memory of granules on a step.
    pub(crate) fn clean_on(&self, run: GranuleRun, step: u8) -> Result<(), SysError> {
        match self.store_of.get(usize::from(step)) {
            Some(store) => self.clean_store(run, *store),
            None => self.clean(run),
        }
    }

    /// Returns the memory of granules, regardless of their steps.
    ///
    /// # Errors
    /// As [`Backing::clean_on`]. All memory that could be returned was.
    pub(crate) fn clean(&self, run: GranuleRun) -> Result<(), SysError> {
        let all = (0..self.stores.len()).map(|store| self.clean_store(run, store));
        all.fold(Ok(()), Result::and)
    }

    fn clean_store(&self, run: GranuleRun, store: usize) -> Result<(), SysError> {
        match &self.stores[store] {
            BackingStore::File(file) => self.chunks(run).try_for_each(|chunk| {
                let from = self.offset(chunk.first);
                let Ok(part) = Range::new(from, from + self.part(chunk).len().get()) else {
                    return Ok(());
                };
                again(|| self.space.memory().punch(file, part))
            }),
            BackingStore::Anonymous => {
                let here = store as u64 + 1;
                let mapped = run.indices().filter(|index| {
                    self.local[*index as usize].load(Ordering::Acquire) >> 32 == here
                });
                let mut runs = GranuleRun::from_indices(mapped)
                    .into_iter()
                    .flat_map(|run| self.chunks(run));
                runs.try_for_each(|chunk| again(|| self.space.discard(self.part(chunk))))
            }
        }
    }
}

pub(crate) enum FillError {
    Short { missing: u64, reason: FallbackCode },
    Failed(MemoryError),
}

fn is_ordinary(step: &LadderStep) -> bool {
    step.kind != PageKind::Hugetlb
}

/// Returns the files that the steps need: one per pool, in their order, and a last one for all
/// other rungs of shared memory.
pub(crate) fn pools_of(steps: &LadderSteps, sharing: Sharing) -> Vec<Option<PageSize>> {
    let pools = steps.list.iter().filter(|step| !is_ordinary(step));
    let mut pools: Vec<Option<PageSize>> = pools.map(|step| Some(step.size)).collect();
    if sharing == Sharing::Shared && steps.list.iter().any(is_ordinary) {
        pools.push(None);
    }
    pools
}
