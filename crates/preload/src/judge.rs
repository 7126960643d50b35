//! Which private memory is worth huge pages: judged by how the program used what it was given.
//!
//! A huge page is resident whole as soon as one byte of it is touched. So a program that touches
//! a part of each piece that it maps would grow many times, and whether it does cannot be seen
//! in advance. Mappings of a size tend to be used alike: they are apart by kind here (sizes in
//! powers of four, the heap, heaps of malloc's threads, commits). Of each kind some are
//! remembered when they are handed out (`record`), and looked at later (`look`). A kind is on
//! small pages until 15 of 16 pages of what was looked at were used; what is on small pages and
//! full is moved later (`sweep`), so nothing is lost by waiting.
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

use crate::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::calls::{self, Advice, flag};
use crate::heap;
use crate::sample::{Files, Found, How, Scratch};
use crate::state::{Lock, RESIDENT, down, growing, settings, stood_aside, up};

/// The heap that grows by `brk`.
pub const HEAP: usize = SIZES;
/// Heaps of malloc's threads.
pub const ARENA: usize = SIZES + 1;
/// Memory that was reserved and is made usable in parts.
pub const COMMIT: usize = SIZES + 2;
/// As many kinds as there are.
pub const KINDS: usize = SIZES + 3;
const SIZES: usize = 8;

/// Samples of one kind.
const SAMPLES: usize = 32;
/// Mappings that are large by themselves, taken as used before the first of them is looked at.
const FIRST: usize = 4;
/// Of so many pages one may be unused.
const PARTS: usize = 16;

/// Something that was handed out and is to be looked at.
struct Sample {
    /// Its address; zero: the place is free.
    start: AtomicUsize,
    length: AtomicUsize,
    /// Bytes of its kind that it stands for; the lowest bit: they were handed out on huge pages.
    weight: AtomicUsize,
    /// Used pages when it was last looked at.
    used: AtomicUsize,
}

/// What is known of a kind.
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

/// From now on samples are taken.
pub fn watch() {
    if !judging() || is_watching() {
        return;
    }
    let Some(_held) = LOCK.take() else { return };
    if is_watching() {
        return;
    }
    let flags = flag::PRIVATE | flag::ANONYMOUS;
    let length = size_of::<[Kind; KINDS]>();
    // SAFETY: a new mapping.
    let at = unsafe { calls::mmap(0, length, flag::READ | flag::WRITE, flags) };
    if !calls::failed(at) {
        TABLE.store(at as usize, Relaxed);
    }
}

/// Whether samples are taken: from the first look on.
#[inline(always)]
pub fn is_watching() -> bool {
    TABLE.load(Relaxed) != 0
}

/// Bytes of a kind that may be on huge pages without having been looked at.
pub fn credit() -> usize {
    4 * settings().pmd + RESIDENT.load(Relaxed) / 32
}

/// Whether the next `length` bytes of a kind are to be on huge pages from the first touch on.
pub fn large(kind: usize, length: usize) -> bool {
    let settings = settings();
    if !judging() {
        return growing() || length >= settings.data_after;
    }
    if !settings.touch || stood_aside() {
        return false;
    }
    let Some(kind) = all().get(kind) else {
        return length >= settings.data_after;
    };
    let (used, unused) = (kind.used.load(Relaxed), kind.unused.load(Relaxed));
    let dense = unused <= used / (PARTS - 1);
    if length >= settings.data_after && dense && kind.count.load(Relaxed) < FIRST {
        return true;
    }
    if !growing() || !dense || used < settings.pmd {
        return false;
    }
    let unseen = kind.unseen.load(Relaxed);
    let allowed = unseen == 0 || unseen + length <= credit();
    if !allowed {
        SHORT.store(true, Relaxed);
    }
    allowed
}

/// Whether something that is used as a whole got small pages, because too much was not looked at yet.
static SHORT: AtomicBool = AtomicBool::new(false);

/// Whether that was so since the last call: a program that no longer grows, and maps anew what it
/// unmapped, is to be looked at all the same.
pub fn was_short() -> bool {
    SHORT.swap(false, Relaxed)
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
        if kind.known() < settings().pmd {
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
    let unseen = kind.unseen.load(Relaxed);
    if unseen != 0 {
        kind.unseen.store(unseen.saturating_sub(length), Relaxed);
    }
    if LEAVING.load(Relaxed) == start && start != 0 && !stood_aside() {
        LEAVING.store(0, Relaxed);
        kind.last_look(start, length);
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
    /// Bytes of which it is known whether they were used.
    fn known(&self) -> usize {
        self.used
            .load(Relaxed)
            .saturating_add(self.unused.load(Relaxed))
    }

    /// Looks at something that is going to be unmapped.
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
        {
            // Its place is needed, and it was never seen used.
            self.unused.fetch_add(sample.weight.load(Relaxed), Relaxed);
        }
        sample.start.store(0, Relaxed);
        sample.length.store(length, Relaxed);
        sample.weight.store(weight, Relaxed);
        sample.used.store(0, Relaxed);
        sample.start.store(start, Relaxed);
        if weight & 1 != 0 && known.is_none() {
            self.count.fetch_add(1, Relaxed);
        }
    }

    /// Looks at what is remembered; what was used as far as it will be is added up and forgotten.
    fn look(&self, files: &Files, scratch: &mut Scratch, above: usize) {
        let (mut unseen, mut count) = (0_usize, 0);
        for sample in &self.samples {
            let (start, length) = (sample.start.load(Relaxed), sample.length.load(Relaxed));
            if start == 0 {
                continue;
            }
            let weight = sample.weight.load(Relaxed);
            let is_open = start < above && start.saturating_add(length) > above;
            if is_open || !self.judge(sample, sample.look(files, scratch)) {
                if weight & 1 != 0 {
                    unseen = unseen.saturating_add(weight);
                    count += 1;
                }
            } else {
                sample.start.store(0, Relaxed);
            }
        }
        self.unseen.store(unseen, Relaxed);
        self.count.store(count, Relaxed);
        self.forget_slowly();
    }

    /// Whether a sample has said what it can: it is used as a whole, or no more of it than at the
    /// look before, or it is gone.
    fn judge(&self, sample: &Sample, found: Found) -> bool {
        let (used, of, parts) = match found {
            Found::Gone => return true,
            Found::Untouched => return false,
            Found::Pages { used, of, parts } => (used, of.max(1), parts),
        };
        let dense = of - used <= of / PARTS;
        // What is filled from one end has one block at most that is begun.
        let scattered = parts >= 2 && used < of / 2;
        if !dense && !scattered && sample.used.swap(used, Relaxed) != used {
            return false;
        }
        // Zeros in all parts but one may have been written: what holds a length, and an array.
        if !dense && parts >= 2 {
            let (start, length) = (sample.start.load(Relaxed), sample.length.load(Relaxed));
            if sample.weight.load(Relaxed) & 1 != 0 && length >= settings().data_after {
                give_back(start, length);
            }
        }
        let weight = sample.weight.load(Relaxed) & !1;
        let share = (weight / of).saturating_mul(used);
        self.used.fetch_add(share, Relaxed);
        self.unused.fetch_add(weight.saturating_sub(share), Relaxed);
        true
    }

    fn forget_slowly(&self) {
        let (used, unused) = (self.used.load(Relaxed), self.unused.load(Relaxed));
        if used.saturating_add(unused) > 4 * credit() {
            self.used.store(used / 2, Relaxed);
            self.unused.store(unused / 2, Relaxed);
        }
    }
}

/// Looks at all that is remembered.
pub fn look() {
    if !judging() {
        return;
    }
    with_files(|files, scratch| {
        for (index, kind) in all().iter().enumerate() {
            let above = if index == HEAP {
                heap::top()
            } else {
                usize::MAX
            };
            kind.look(files, scratch, above);
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

/// Gives back what a large mapping does not use, and lets what it touches from now on be small.
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
