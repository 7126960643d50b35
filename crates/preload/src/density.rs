//! Decides which private memory gets huge pages, from the program's use of earlier memory.
//!
//! A huge page is completely resident after the first touch of one byte. A program that touches only parts
//! of its mappings would grow many times, and that cannot be predicted. Mappings of similar size tend to
//! be used alike, so they are classified by kind (sizes in powers of four, the heap, heaps of malloc's
//! threads, commits). Some of each kind are recorded when handed out (`record`) and checked later
//! (`check_samples`). A kind stays on base pages until 15 of 16 checked pages were used. Full blocks of base pages
//! are promoted later (`promote_existing`), so waiting costs no coverage but time: each page is first touched as a
//! base page and then copied. So unknown and mostly used kinds also get huge pages while the total usage
//! is dense.
//!
//! The amount handed out on huge pages and not yet checked is bounded (`credit`), which limits the growth
//! of a program that changes its behaviour. Large mappings are an exception: a program may make a few of
//! them and then no more requests, so the first four are assumed used until a check says otherwise.
//!
//! # Safety
//! The table of kinds is mapped once, and stays.
//!
//! Everything is a hint: two threads at once may merge two samples into one, whose check is then useless.
//! Huge pages requested with an explicit size, or made mandatory, are not judged.

#![allow(unsafe_code)]

use crate::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::range_usage::{ProcFiles, RangeUsage, SampleBuffers, SampleMethod};
use crate::state::{Lock, RESIDENT, growing, is_inactive, round_down, round_up, settings};
use crate::syscalls::{self, Advice, flag};

/// The heap that grows by `brk`.
pub const HEAP: usize = SIZES;
pub const ARENA: usize = SIZES + 1;
/// Memory that was reserved and is made usable in parts.
pub const COMMIT: usize = SIZES + 2;
pub const KINDS: usize = SIZES + 3;
const SIZES: usize = 8;

const SAMPLES: usize = 32;
/// Number of large mappings assumed used before the first check.
const FIRST: usize = 4;
/// One of this many pages may be unused.
const PARTS: usize = 16;

/// A range that was handed out and will be checked.
struct SampledRange {
    start: AtomicUsize,
    length: AtomicUsize,
    /// Bytes of its kind that it represents. The lowest bit is set if they are on huge pages.
    weight: AtomicUsize,
    /// Number of used pages at the last check.
    used: AtomicUsize,
    /// Bytes found unused, if it is partly used and no longer growing.
    spare: AtomicUsize,
}

struct SizeClassUsage {
    samples: [SampledRange; SAMPLES],
    next: AtomicUsize,
    /// Bytes handed out since the last sample.
    since: AtomicUsize,
    /// Unchecked bytes on huge pages, and the number of their mappings.
    unseen: AtomicUsize,
    count: AtomicUsize,
    /// Bytes found used and found unused. Both are halved at times.
    used: AtomicUsize,
    unused: AtomicUsize,
}

/// Address of the kinds, mapped after the process has requested some memory.
/// Most programs never do, and save a mapping. Zero: no samples are taken yet.
static TABLE: AtomicUsize = AtomicUsize::new(0);

fn all() -> &'static [SizeClassUsage] {
    let table = TABLE.load(Relaxed) as *const [SizeClassUsage; KINDS];
    // SAFETY: null, or the table that `watch` mapped and never unmaps; zeros are valid.
    unsafe { table.as_ref() }.map_or(&[], |kinds| kinds.as_slice())
}

/// Allows one check at a time.
pub static LOCK: Lock = Lock::new();

/// Returns the kind of a separate mapping by its length, from 16K in powers of four.
#[inline(always)]
pub fn kind_of(length: usize) -> usize {
    let bits = (usize::BITS - length.saturating_sub(1).leading_zeros()) as usize;
    (bits.saturating_sub(13) / 2).min(SIZES - 1)
}

/// Returns true if usage is judged. False if huge pages were requested explicitly.
#[inline(always)]
pub fn judging() -> bool {
    let settings = settings();
    settings.data_after > settings.pmd && !settings.data.mandatory
}

pub fn watch() {
    if !judging() || is_watching() {
        return;
    }
    let Some(_held) = LOCK.take() else { return };
    if is_watching() {
        return;
    }
    let length = size_of::<[SizeClassUsage; KINDS]>();
    if let Some(at) = syscalls::map_new(length, flag::MEMORY, flag::PRIVATE) {
        TABLE.store(at, Relaxed);
    }
}

/// Returns true if samples are taken, from the first check on.
#[inline(always)]
pub fn is_watching() -> bool {
    TABLE.load(Relaxed) != 0
}

/// Returns the number of bytes that may be on huge pages unchecked.
pub fn credit() -> usize {
    4 * settings().pmd + RESIDENT.load(Relaxed) / 12
}

/// The decision about huge pages from the first touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePageDecision {
    /// Base pages: it is partly used, or its usage is unknown.
    Base,
    Huge,
    /// Its kind is used completely, but too many bytes are unchecked.
    NeedsCheck,
}

/// Returns the decision for the next `length` bytes of a kind.
pub fn judgement(kind: usize, length: usize) -> HugePageDecision {
    let settings = settings();
    let large = |yes| match yes {
        true => HugePageDecision::Huge,
        false => HugePageDecision::Base,
    };
    if !judging() {
        return large(growing() || length >= settings.data_after);
    }
    if !settings.touch || is_inactive() {
        return HugePageDecision::Base;
    }
    let Some(kind) = all().get(kind) else {
        return large(length >= settings.data_after);
    };
    let (used, unused) = kind.known();
    // A mostly used kind wastes little, which the others compensate. The total over all kinds is needed
    // only if this kind does not decide.
    let is_mostly_used = unused <= used / 2;
    if !is_dense((used, unused)) && (!is_mostly_used || !is_dense(known())) {
        return HugePageDecision::Base;
    }
    if length >= settings.data_after && kind.count.load(Relaxed) < FIRST {
        return HugePageDecision::Huge;
    }
    // A kind without samples is assumed to be like the rest.
    let is_as_the_rest = || {
        let all = known();
        is_mostly_used && is_dense(all) && all.0 >= 4 * settings.pmd
    };
    if !growing() || used < settings.pmd && !is_as_the_rest() {
        return HugePageDecision::Base;
    }
    // Allow one mapping at a time, of any length up to the bytes of its kind found used.
    let one = kind.unseen.load(Relaxed) == 0 && length <= used;
    if one || unseen() + length <= credit() {
        return HugePageDecision::Huge;
    }
    HugePageDecision::NeedsCheck
}

/// Returns the unchecked bytes on huge pages.
fn unseen() -> usize {
    all().iter().map(|kind| kind.unseen.load(Relaxed)).sum()
}

/// Returns the bytes of all kinds that were found used and found unused.
fn known() -> (usize, usize) {
    (all().iter()).fold((0, 0), |(used, unused), kind| {
        let (more, spare) = kind.known();
        (used + more, unused + spare)
    })
}

/// Returns true if few bytes were unused compared with the used ones.
fn is_dense((used, unused): (usize, usize)) -> bool {
    unused <= used / (PARTS - 1)
}

/// Records a range handed out for a kind, and whether it is on huge pages.
pub fn record(kind: usize, start: usize, length: usize, large: bool) {
    record_as(kind, start, length, length, large);
}

/// Records a range that places more than itself on huge pages.
pub fn record_as(kind: usize, start: usize, length: usize, bytes: usize, large: bool) {
    if large {
        watch();
    }
    let Some(kind) = all().get(kind) else { return };
    if large {
        kind.unseen.fetch_add(bytes, Relaxed);
    }
    let since = kind.since.fetch_add(bytes, Relaxed).saturating_add(bytes);
    if since >= GAP.load(Relaxed) {
        draw_gap();
        kind.since.store(0, Relaxed);
        kind.remember(start, length, since & !1 | usize::from(large));
        let (used, unused) = kind.known();
        if used + unused < settings().pmd {
            wait_for(start);
        }
    }
}

/// The newest mapping of an unknown kind.
/// A program that unmaps everything it maps leaves nothing to check later, so it is checked when unmapped.
static CHECK_ON_UNMAP: AtomicUsize = AtomicUsize::new(0);

/// Samples since the last such check, and its rarity, doubled after each check without result.
static PASSED: AtomicUsize = AtomicUsize::new(0);
static RARER: AtomicUsize = AtomicUsize::new(0);

fn wait_for(start: usize) {
    if PASSED.fetch_add(1, Relaxed) >> RARER.load(Relaxed) != 0 {
        PASSED.store(0, Relaxed);
        CHECK_ON_UNMAP.store(start, Relaxed);
    }
}

/// Records that a range is about to be unmapped.
#[inline(always)]
pub fn unmapped(start: usize, length: usize) {
    if !is_watching() {
        return;
    }
    let Some(kind) = all().get(kind_of(length)) else {
        return;
    };
    kind.forget_unmapped(length);
    if CHECK_ON_UNMAP.load(Relaxed) == start && start != 0 && !is_inactive() {
        CHECK_ON_UNMAP.store(0, Relaxed);
        kind.check_before_unmap(start, length);
    }
}

/// Records that bytes of the heap are returned.
pub fn heap_shrank(bytes: usize) {
    if let Some(kind) = all().get(HEAP) {
        kind.forget_unmapped(bytes);
    }
}

/// Bytes between two samples.
/// It varies, because a fixed gap could match a program's own period and miss half of its mappings.
static GAP: AtomicUsize = AtomicUsize::new(0);

fn draw_gap() {
    static DRAWN: AtomicUsize = AtomicUsize::new(1);
    const MULTIPLIER: usize = 6_364_136_223_846_793_005_usize;
    const MORE: usize = 1_442_695_040_888_963_407;
    let drawn = DRAWN.load(Relaxed);
    let drawn = drawn.wrapping_mul(MULTIPLIER).wrapping_add(MORE);
    DRAWN.store(drawn, Relaxed);
    let middle = credit() / PARTS;
    GAP.store(middle / 2 + (drawn >> 33) % middle.max(1), Relaxed);
}

impl SampledRange {
    fn measure(&self, files: &ProcFiles, scratch: &mut SampleBuffers) -> RangeUsage {
        /// Value of `used` if whole blocks were read and were zero. They may be in use nevertheless.
        const ZERO: usize = usize::MAX;
        let (start, length) = (self.start.load(Relaxed), self.length.load(Relaxed));
        if self.weight.load(Relaxed) & 1 == 0 {
            return files.sample_range(scratch, start, length, SampleMethod::Pages);
        }
        let found = files.sample_range(scratch, start, length, SampleMethod::Content);
        // Checking a few pages can miss a few used ones, so a large mapping gets a second check.
        let much = match found {
            RangeUsage::Pages { used, of, .. } => used >= of / 2,
            RangeUsage::Untouched => false,
            RangeUsage::Gone => true,
        };
        if much || length < settings().data_after || self.used.load(Relaxed) == ZERO {
            return found;
        }
        let found = files.sample_range(scratch, start, length, SampleMethod::Thorough);
        if found != RangeUsage::Untouched {
            return found;
        }
        self.used.store(ZERO, Relaxed);
        found
    }
}

impl SizeClassUsage {
    /// Returns the bytes found used and found unused.
    fn known(&self) -> (usize, usize) {
        (self.used.load(Relaxed), self.unused.load(Relaxed))
    }

    /// Forgets unmapped bytes, which cannot become unused.
    fn forget_unmapped(&self, bytes: usize) {
        let unseen = self.unseen.load(Relaxed);
        if unseen != 0 {
            self.unseen.store(unseen.saturating_sub(bytes), Relaxed);
        }
    }

    #[cold]
    fn check_before_unmap(&self, start: usize, length: usize) {
        let mine = |sample: &&SampledRange| {
            sample.start.load(Relaxed) == start && sample.length.load(Relaxed) == length
        };
        let Some(sample) = self.samples.iter().find(mine) else {
            return;
        };
        with_files(|files, scratch| {
            let found = sample.measure(files, scratch);
            // Its usage will not grow any more.
            match found {
                RangeUsage::Pages { used, .. } => sample.used.store(used, Relaxed),
                _ => RARER.store((RARER.load(Relaxed) + 1).min(12), Relaxed),
            }
            self.judge(sample, found);
            sample.start.store(0, Relaxed);
        });
    }

    fn remember(&self, start: usize, length: usize, weight: usize) {
        let at = self.next.fetch_add(1, Relaxed) % SAMPLES;
        // A mapping that grew is the same one.
        let known = self
            .samples
            .iter()
            .find(|sample| sample.start.load(Relaxed) == start);
        let Some(sample) = known.or(self.samples.get(at)) else {
            return;
        };
        if known.is_none()
            && sample.start.load(Relaxed) != 0
            && sample.weight.load(Relaxed) & 1 != 0
            && sample.spare.load(Relaxed) == 0
        {
            // Its slot is needed, and it was never found used.
            self.unused.fetch_add(sample.weight.load(Relaxed), Relaxed);
        }
        sample.start.store(0, Relaxed);
        sample.length.store(length, Relaxed);
        sample.weight.store(weight, Relaxed);
        sample.used.store(0, Relaxed);
        sample.spare.store(0, Relaxed);
        sample.start.store(start, Relaxed);
        if weight & 1 != 0 && known.is_none() {
            self.count.fetch_add(1, Relaxed);
        }
    }

    /// Checks all samples. A completely used one is counted and forgotten. A partly used one is counted
    /// and checked again, because the thread that fills it may have been waiting.
    fn check_all(&self, files: &ProcFiles, scratch: &mut SampleBuffers, above: usize) {
        let (mut unseen, mut count) = (0_usize, 0);
        for sample in &self.samples {
            let (start, length) = (sample.start.load(Relaxed), sample.length.load(Relaxed));
            if start == 0 {
                continue;
            }
            let is_open = start < above && start.saturating_add(length) > above;
            let left = match is_open {
                true => sample.weight.load(Relaxed),
                false => self.judge(sample, sample.measure(files, scratch)),
            };
            if left != 0 && sample.weight.load(Relaxed) & 1 != 0 {
                unseen = unseen.saturating_add(left);
                count += 1;
            }
        }
        self.unseen.store(unseen, Relaxed);
        self.count.store(count, Relaxed);
        self.forget_slowly();
    }

    /// Counts a sample once it is completely used, unchanged since the last check, or gone.
    /// Returns the bytes whose usage is still open.
    fn judge(&self, sample: &SampledRange, found: RangeUsage) -> usize {
        let weight = sample.weight.load(Relaxed) & !1;
        let (used, of, parts) = match found {
            RangeUsage::Gone => {
                sample.start.store(0, Relaxed);
                return 0;
            }
            RangeUsage::Untouched => return weight,
            RangeUsage::Pages { used, of, parts } => (used, of.max(1), parts),
        };
        let share = (weight / of).saturating_mul(used);
        let rest = weight.saturating_sub(share);
        let dense = of - used <= of / PARTS;
        // Memory filled from one end has at most one partly used block.
        let scattered = parts >= 2 && used < of / 2;
        let same = sample.used.swap(used, Relaxed) == used;
        if sample.spare.load(Relaxed) != 0 {
            if same {
                return 0;
            }
            self.take_back(sample);
        }
        if !dense && !scattered && !same {
            return rest.max(1);
        }
        // Zeros in all parts but one may be used data: a length, followed by an array.
        if !dense && parts >= 2 {
            let (start, length) = (sample.start.load(Relaxed), sample.length.load(Relaxed));
            if sample.weight.load(Relaxed) & 1 != 0 && length >= settings().data_after {
                give_back(start, length);
            }
        }
        self.used.fetch_add(share, Relaxed);
        self.unused.fetch_add(rest, Relaxed);
        match dense {
            true => sample.start.store(0, Relaxed),
            false => sample.spare.store(rest.max(1), Relaxed),
        }
        0
    }

    /// Reverts the count of a sample whose unused bytes have been used since.
    fn take_back(&self, sample: &SampledRange) {
        let spare = sample.spare.swap(0, Relaxed);
        let share = (sample.weight.load(Relaxed) & !1).saturating_sub(spare);
        for (sum, bytes) in [(&self.unused, spare), (&self.used, share)] {
            sum.store(sum.load(Relaxed).saturating_sub(bytes), Relaxed);
        }
    }

    fn forget_slowly(&self) {
        let (used, unused) = self.known();
        if used.saturating_add(unused) > 4 * credit() {
            self.used.store(used / 2, Relaxed);
            self.unused.store(unused / 2, Relaxed);
        }
    }
}

/// Checks all samples. For the heap, only those below its end.
pub fn check_samples(heap_end: usize) {
    if !judging() {
        return;
    }
    with_files(|files, scratch| {
        for (index, kind) in all().iter().enumerate() {
            let is_heap = index == HEAP;
            kind.check_all(files, scratch, if is_heap { heap_end } else { usize::MAX });
        }
    });
}

fn with_files(work: impl FnOnce(&ProcFiles, &mut SampleBuffers)) {
    let Some(_held) = LOCK.take() else {
        return;
    };
    let files = ProcFiles::open();
    SampleBuffers::lend(|scratch| work(&files, scratch));
    files.close();
}

/// Returns the unused pages of a large mapping to the kernel, and lets new touches use base pages.
///
/// The kernel splits a huge page to age a part of it, and frees all-zero pages of the split (since Linux
/// 6.12). Unlike `MADV_DONTNEED`, this cannot lose a write.
fn give_back(start: usize, length: usize) {
    let settings = settings();
    let (Some(mut at), end) = (
        round_up(start, settings.pmd),
        round_down(start.saturating_add(length), settings.pmd),
    ) else {
        return;
    };
    syscalls::advise(start, length, Advice::NoHugePage);
    while at < end {
        syscalls::advise(at, settings.base, Advice::Cold);
        at += settings.pmd;
    }
}

/// Clears the samples in a forked child. They belong to its parent and say nothing about the child.
pub fn leave() {
    LOCK.reopen();
    for kind in all() {
        for sample in &kind.samples {
            sample.start.store(0, Relaxed);
        }
        kind.unseen.store(0, Relaxed);
        kind.count.store(0, Relaxed);
    }
}
