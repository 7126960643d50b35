//! Which private memory is worth huge pages: judged by how the program used what it was given.
//!
//! A huge page is resident whole as soon as one byte of it is touched. So a program that touches
//! a part of each mapping that it makes would grow many times, and whether it does cannot be seen
//! in advance. Mappings of a size tend to be used alike: they are distinguished by kind here (sizes in
//! powers of four, the heap, heaps of malloc's threads, commits). Of each kind some are
//! remembered when they are handed out (`record`), and looked at later (`look`). A kind is on
//! small pages until 15 of 16 pages of what was looked at were used; what is on small pages and
//! full is moved later (`sweep`), so no coverage is lost by waiting, but time is: each page is touched
//! small and then copied. So a kind of which nothing is known, and one that is used for the most
//! part, have huge pages as well while everything together is used as a whole.
//!
//! What is handed out on huge pages and was not looked at yet is bounded (`credit`), so that a
//! program that changes its ways grows by no more than that. The exceptions are mappings that are
//! large by themselves: a program may make a few of them and ask for nothing any more, so the
//! first four are taken as used until a look says otherwise.
//!
//! # Safety
//!
//! The table of kinds is mapped once, and stays.
//!
//! Everything is a hint: two threads at once may mix two samples into one, which is then looked at
//! in vain. Who names a size, or makes it mandatory, is not judged.

#![allow(unsafe_code)]

use crate::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::calls::{self, Advice, flag};
use crate::sample::{Files, Found, How, Scratch};
use crate::state::{Lock, RESIDENT, down, growing, settings, stood_aside, up};

/// The heap that grows by `brk`.
pub const HEAP: usize = SIZES;
pub const ARENA: usize = SIZES + 1;
/// Memory that was reserved and is made usable in parts.
pub const COMMIT: usize = SIZES + 2;
pub const KINDS: usize = SIZES + 3;
const SIZES: usize = 8;

const SAMPLES: usize = 32;
/// Mappings that are large by themselves, taken as used before the first of them is looked at.
const FIRST: usize = 4;
/// Of so many pages one may be unused.
const PARTS: usize = 16;

/// Something that was handed out and is to be looked at.
struct Sample {
    start: AtomicUsize,
    length: AtomicUsize,
    /// Bytes of its kind that it stands for; the lowest bit: they were handed out on huge pages.
    weight: AtomicUsize,
    /// Used pages when it was last looked at.
    used: AtomicUsize,
    /// Bytes of it that were found unused: it is used in part, and no more of it than before.
    spare: AtomicUsize,
}

struct Kind {
    samples: [Sample; SAMPLES],
    next: AtomicUsize,
    /// Bytes handed out since the last sample.
    since: AtomicUsize,
    /// Bytes on huge pages that no look has met yet, and in how many mappings.
    unseen: AtomicUsize,
    count: AtomicUsize,
    /// Bytes that were found used, and found unused; both are halved now and then.
    used: AtomicUsize,
    unused: AtomicUsize,
}

/// Where the kinds are: mapped when the process has asked for some memory, because most programs
/// never do and would pay for a mapping more. Zero: samples are not taken yet.
static TABLE: AtomicUsize = AtomicUsize::new(0);

fn all() -> &'static [Kind] {
    let table = TABLE.load(Relaxed) as *const [Kind; KINDS];
    // SAFETY: null, or what `watch` mapped, which stays; zeros are valid.
    unsafe { table.as_ref() }.map_or(&[], |kinds| kinds.as_slice())
}

/// One look at a time.
pub static LOCK: Lock = Lock::new();

/// The kind of a mapping of its own: by its length, from 16K on in powers of four.
#[inline(always)]
pub fn kind_of(length: usize) -> usize {
    let bits = (usize::BITS - length.saturating_sub(1).leading_zeros()) as usize;
    (bits.saturating_sub(13) / 2).min(SIZES - 1)
}

/// Whether anything is judged at all: not where larger pages were asked for by name.
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
    let length = size_of::<[Kind; KINDS]>();
    if let Some(at) = calls::map_new(length, flag::MEMORY, flag::PRIVATE) {
        TABLE.store(at, Relaxed);
    }
}

/// Whether samples are taken: from the first look on.
#[inline(always)]
pub fn is_watching() -> bool {
    TABLE.load(Relaxed) != 0
}

/// Bytes that may be on huge pages without having been looked at.
pub fn credit() -> usize {
    4 * settings().pmd + RESIDENT.load(Relaxed) / 12
}

/// Whether something is to be on huge pages from its first touch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// No: it is not used as a whole, or that is not known.
    Small,
    Large,
    /// Its kind is used as a whole, but too much was not looked at yet.
    Short,
}

/// What is to become of the next `length` bytes of a kind.
pub fn judgement(kind: usize, length: usize) -> Judgement {
    let settings = settings();
    let large = |yes| match yes {
        true => Judgement::Large,
        false => Judgement::Small,
    };
    if !judging() {
        return large(growing() || length >= settings.data_after);
    }
    if !settings.touch || stood_aside() {
        return Judgement::Small;
    }
    let Some(kind) = all().get(kind) else {
        return large(length >= settings.data_after);
    };
    let (used, unused) = kind.known();
    // Of a kind that is used for the most part a little is lost, which the others make up for.
    // All kinds are added up only where this one does not decide.
    let is_mostly_used = unused <= used / 2;
    if !is_dense((used, unused)) && (!is_mostly_used || !is_dense(known())) {
        return Judgement::Small;
    }
    if length >= settings.data_after && kind.count.load(Relaxed) < FIRST {
        return Judgement::Large;
    }
    // What nothing is known of is taken to be as the rest.
    let is_as_the_rest = || {
        let all = known();
        is_mostly_used && is_dense(all) && all.0 >= 4 * settings.pmd
    };
    if !growing() || used < settings.pmd && !is_as_the_rest() {
        return Judgement::Small;
    }
    // One at a time where as much of its kind was found used, however long it is.
    let one = kind.unseen.load(Relaxed) == 0 && length <= used;
    if one || unseen() + length <= credit() {
        return Judgement::Large;
    }
    Judgement::Short
}

/// Bytes on huge pages that no look has met yet.
fn unseen() -> usize {
    all().iter().map(|kind| kind.unseen.load(Relaxed)).sum()
}

/// Bytes of all kinds that were found used, and found unused.
fn known() -> (usize, usize) {
    (all().iter()).fold((0, 0), |(used, unused), kind| {
        let (more, spare) = kind.known();
        (used + more, unused + spare)
    })
}

/// Whether what was found unused is little compared with what was found used.
fn is_dense((used, unused): (usize, usize)) -> bool {
    unused <= used / (PARTS - 1)
}

/// Takes note that a range of a kind was handed out, and whether on huge pages.
pub fn record(kind: usize, start: usize, length: usize, large: bool) {
    record_as(kind, start, length, length, large);
}

/// The same, where more is on huge pages by it than the range itself.
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

/// The newest mapping of a kind of which nothing is known yet: a program that unmaps all that it
/// maps has nothing to be looked at later, so it is looked at when it goes.
static LEAVING: AtomicUsize = AtomicUsize::new(0);

/// Samples since one was waited for; and by how much that is to be rarer: doubled each time that
/// nothing was learnt.
static PASSED: AtomicUsize = AtomicUsize::new(0);
static RARER: AtomicUsize = AtomicUsize::new(0);

fn wait_for(start: usize) {
    if PASSED.fetch_add(1, Relaxed) >> RARER.load(Relaxed) != 0 {
        PASSED.store(0, Relaxed);
        LEAVING.store(start, Relaxed);
    }
}

/// Takes note that a range is unmapped, before it is.
#[inline(always)]
pub fn unmapped(start: usize, length: usize) {
    if !is_watching() {
        return;
    }
    let Some(kind) = all().get(kind_of(length)) else {
        return;
    };
    kind.gone(length);
    if LEAVING.load(Relaxed) == start && start != 0 && !stood_aside() {
        LEAVING.store(0, Relaxed);
        kind.last_look(start, length);
    }
}

/// Takes note that so much of the heap is returned.
pub fn heap_shrank(bytes: usize) {
    if let Some(kind) = all().get(HEAP) {
        kind.gone(bytes);
    }
}

/// Bytes between two samples: not the same each time, or a program's own rhythm would hide half
/// of what it does.
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

impl Sample {
    fn look(&self, files: &Files, scratch: &mut Scratch) -> Found {
        /// In `used`: all of some blocks was looked at and was zero. It may be used all the same.
        const ZERO: usize = usize::MAX;
        let (start, length) = (self.start.load(Relaxed), self.length.load(Relaxed));
        if self.weight.load(Relaxed) & 1 == 0 {
            return files.look_at(scratch, start, length, How::Pages);
        }
        let found = files.look_at(scratch, start, length, How::Content);
        // A few pages of each block can be missed by a look at a few, and a large mapping is
        // worth another.
        let much = match found {
            Found::Pages { used, of, .. } => used >= of / 2,
            Found::Untouched => false,
            Found::Gone => true,
        };
        if much || length < settings().data_after || self.used.load(Relaxed) == ZERO {
            return found;
        }
        let found = files.look_at(scratch, start, length, How::Thorough);
        if found != Found::Untouched {
            return found;
        }
        self.used.store(ZERO, Relaxed);
        found
    }
}

impl Kind {
    /// Bytes that were found used, and found unused.
    fn known(&self) -> (usize, usize) {
        (self.used.load(Relaxed), self.unused.load(Relaxed))
    }

    /// What is gone cannot turn out to be unused.
    fn gone(&self, bytes: usize) {
        let unseen = self.unseen.load(Relaxed);
        if unseen != 0 {
            self.unseen.store(unseen.saturating_sub(bytes), Relaxed);
        }
    }

    #[cold]
    fn last_look(&self, start: usize, length: usize) {
        let mine = |sample: &&Sample| {
            sample.start.load(Relaxed) == start && sample.length.load(Relaxed) == length
        };
        let Some(sample) = self.samples.iter().find(mine) else {
            return;
        };
        with_files(|files, scratch| {
            let found = sample.look(files, scratch);
            // It will not be used any more than it is.
            match found {
                Found::Pages { used, .. } => sample.used.store(used, Relaxed),
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
            // Its place is needed, and it was never seen used.
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

    /// Looks at what is remembered. What was used as a whole is added up and forgotten; what was
    /// used in part is added up too, and looked at again: the thread that fills it may have waited.
    fn look(&self, files: &Files, scratch: &mut Scratch, above: usize) {
        let (mut unseen, mut count) = (0_usize, 0);
        for sample in &self.samples {
            let (start, length) = (sample.start.load(Relaxed), sample.length.load(Relaxed));
            if start == 0 {
                continue;
            }
            let is_open = start < above && start.saturating_add(length) > above;
            let left = match is_open {
                true => sample.weight.load(Relaxed),
                false => self.judge(sample, sample.look(files, scratch)),
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

    /// Adds up what a sample says once it is used as a whole, or no more of it than at the look
    /// before, or it is gone. Bytes of it that may still turn out to be used or not.
    fn judge(&self, sample: &Sample, found: Found) -> usize {
        let weight = sample.weight.load(Relaxed) & !1;
        let (used, of, parts) = match found {
            Found::Gone => {
                sample.start.store(0, Relaxed);
                return 0;
            }
            Found::Untouched => return weight,
            Found::Pages { used, of, parts } => (used, of.max(1), parts),
        };
        let share = (weight / of).saturating_mul(used);
        let rest = weight.saturating_sub(share);
        let dense = of - used <= of / PARTS;
        // What is filled from one end has one block at most that is begun.
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
        // Zeros in all parts but one may have been written: what holds a length, and an array.
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

    /// What was found unused of a sample is used by now.
    fn take_back(&self, sample: &Sample) {
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

/// Looks at all that is remembered; of the heap below its end.
pub fn look(heap_end: usize) {
    if !judging() {
        return;
    }
    with_files(|files, scratch| {
        for (index, kind) in all().iter().enumerate() {
            let is_heap = index == HEAP;
            kind.look(files, scratch, if is_heap { heap_end } else { usize::MAX });
        }
    });
}

fn with_files(work: impl FnOnce(&Files, &mut Scratch)) {
    let Some(_held) = LOCK.take() else {
        return;
    };
    let files = Files::open();
    Scratch::lend(|scratch| work(&files, scratch));
    files.close();
}

/// Returns to the kernel what a large mapping does not use, and lets what it touches from now on be small.
///
/// The kernel splits a huge page to age a part of it, and of what it splits it keeps no page that
/// is all zero (since Linux 6.12). Nobody can lose a write by it, as by `MADV_DONTNEED`.
fn give_back(start: usize, length: usize) {
    let settings = settings();
    let (Some(mut at), end) = (
        up(start, settings.pmd),
        down(start.saturating_add(length), settings.pmd),
    ) else {
        return;
    };
    calls::advise(start, length, Advice::NoHugePage);
    while at < end {
        calls::advise(at, settings.base, Advice::Cold);
        at += settings.pmd;
    }
}

/// In a forked child: what was handed out before is its parent's too, and says nothing of it.
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
