//! The library compared with the bare system calls: populating, reading, and moving granules.
#![allow(unsafe_code)]
//! # Safety
//! A path is laid through memory that this program has just populated and owns until the samples are
//! taken; every address in it is inside.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hugeleaf::{
    Bytes, Component, Elastic, ElasticOptions, Granule, PageSize, Range, Region, RegionOptions,
};
use hugeleaf_host::{Root, read_host};
use hugeleaf_sys::{
    Advice, HugetlbReservation, Kernel, MemoryFile, MemorySyscalls, ReservedAddresses,
};

use crate::record::{Record, median, paired};
use crate::setting::{RestoreSetting, pages};
use crate::{Failed, Mode};

/// Sizes, and numbers of repetitions.
struct Sizes {
    populate: Bytes,
    populate_pairs: usize,
    read: Bytes,
    read_pairs: usize,
    hops: u64,
    moved: Bytes,
    move_pairs: usize,
    steps: u64,
}

impl Sizes {
    const fn of(mode: Mode) -> Sizes {
        match mode {
            Mode::Full => Sizes {
                populate: Bytes::from_mib(8 << 10),
                populate_pairs: 16,
                read: Bytes::from_mib(1 << 10),
                read_pairs: 40,
                hops: 4_000_000,
                moved: Bytes::from_mib(1 << 10),
                move_pairs: 12,
                steps: 1_000_000,
            },
            Mode::Smoke => Sizes {
                populate: Bytes::from_mib(64),
                populate_pairs: 1,
                read: Bytes::from_mib(16),
                read_pairs: 1,
                hops: 100_000,
                moved: Bytes::from_mib(16),
                move_pairs: 1,
                steps: 200,
            },
        }
    }
}

/// Runs the benchmark.
pub fn run(mode: Mode, out: &Path) -> Result<(), Failed> {
    if hugeleaf_sys::effective_uid() != 0 {
        println!("not run: region: needs root to set up pools");
        return Ok(());
    }
    let lock = Path::new("/run/lock/hugeleaf.lock");
    let _lock = hugeleaf_sys::lock_host(lock, true)?;
    let host = read_host(&Root::live(), &Kernel::new())?;
    let (Some(pool), Some(huge)) = (host.memory.default_hugetlb_page.get(), host.pmd_page.get())
    else {
        println!("not run: region: needs hugetlb and transparent huge pages");
        return Ok(());
    };
    let sizes = Sizes::of(mode);
    populate(&sizes, pool, huge, out)?;
    read(&sizes, pool, host.base_page, out)?;
    elastic(&sizes, pool, out)
}

fn seconds(work: impl FnOnce() -> Result<Box<dyn std::any::Any>, Failed>) -> Result<f64, Failed> {
    let start = Instant::now();
    let made = work()?;
    let took = start.elapsed().as_secs_f64();
    drop(made);
    Ok(took)
}

type Work<'a> = (&'static str, Box<dyn FnMut() -> Result<f64, Failed> + 'a>);

/// Runs every arm once a round in random order; a first round, not stored, warms the memory.
fn rounds(arms: &mut [Work<'_>], rounds: usize) -> Result<Vec<Vec<f64>>, Failed> {
    let mut samples = vec![Vec::new(); arms.len()];
    for round in 0..=rounds {
        let mut order: Vec<usize> = (0..arms.len()).collect();
        fastrand::shuffle(&mut order);
        for at in order {
            let sample = (arms[at].1)()?;
            if round > 0 {
                samples[at].push(sample);
            }
        }
    }
    Ok(samples)
}

/// Stores the samples of arms, and the ratio of the first arm to each other arm.
fn keep(
    record: &mut Record,
    what: &str,
    unit: &str,
    arms: &[Work<'_>],
    samples: &[Vec<f64>],
    ratio: impl Fn(f64, f64) -> f64,
) {
    for ((label, _), samples) in arms.iter().zip(samples) {
        record.figure(format!("{what}, {label}, median {unit}"), median(samples));
        record.arm(format!("{what}, {label}"), unit, samples);
    }
    for (other, theirs) in arms.iter().zip(samples).skip(1) {
        let ratios: Vec<f64> = samples[0]
            .iter()
            .zip(theirs)
            .map(|(ours, theirs)| ratio(*ours, *theirs))
            .collect();
        let [low, middle, high] = paired(ratios);
        let name = format!("{what}, {} over {}", arms[0].0, other.0);
        record.figure(name, vec![low, middle, high]);
    }
}

fn populate(sizes: &Sizes, pool: PageSize, huge: PageSize, out: &Path) -> Result<(), Failed> {
    let mut record = Record::new("region-populate", "make bench");
    let threads = std::thread::available_parallelism()?.get();
    let length = sizes.populate;
    for (what, page, from_pool) in [("reserved", pool, true), ("transparent", huge, false)] {
        let _pool = from_pool
            .then(|| RestoreSetting::free_pages(page, length))
            .transpose()?;
        let kind = if from_pool { "hugetlb" } else { "thp" };
        let ladder = format!("{kind}:{page}!").parse()?;
        let options = RegionOptions::new(length, ladder);
        let options = match from_pool {
            true => options.shared(),
            false => options,
        };
        // Free memory may have been returned to the hypervisor, and is then expensive at its first
        // reuse. The next sample therefore gets memory that was just freed.
        let warm = || -> Result<(), Failed> {
            if !from_pool {
                Bare::map(length, page, false)?.populate(threads)?;
            }
            Ok(())
        };
        let bare = |threads| {
            warm()?;
            seconds(|| {
                Ok(Box::new(
                    Bare::map(length, page, from_pool)?.populate(threads)?,
                ))
            })
        };
        let mut arms: [Work<'_>; 3] = [
            (
                "Region",
                Box::new(|| {
                    warm()?;
                    seconds(|| Ok(Box::new(Region::new(&options)?)))
                }),
            ),
            ("bare loop of as many threads", Box::new(|| bare(threads))),
            match from_pool {
                true => (
                    "one mmap with MAP_POPULATE",
                    Box::new(|| map_populate(length)),
                ),
                // Advice comes after mmap, so MAP_POPULATE would take base pages.
                false => ("bare loop of one thread", Box::new(|| bare(1))),
            },
        ];
        let samples = rounds(&mut arms, sizes.populate_pairs)?;
        // Ratio of bytes a second, the inverse of time.
        keep(
            &mut record,
            what,
            "seconds",
            &arms,
            &samples,
            |ours, theirs| theirs / ours,
        );
    }
    record.figure("bytes", length.get());
    record.figure("threads", threads);
    record.write(out)?;
    Ok(())
}

/// Returns the seconds of one mmap(2) that populates pages of the default pool.
fn map_populate(length: Bytes) -> Result<f64, Failed> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    let length = usize::try_from(length.get())?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | MapFlags::HUGETLB | MapFlags::POPULATE;
    let start = Instant::now();
    // SAFETY: a new mapping at an address of the kernel's choice, unmapped below and touched by
    // none.
    let at = unsafe { mmap_anonymous(std::ptr::null_mut(), length, access, flags) }?;
    let took = start.elapsed().as_secs_f64();
    // SAFETY: as above.
    unsafe { munmap(at, length) }?;
    Ok(took)
}

/// Memory by the system calls alone.
struct Bare {
    space: ReservedAddresses,
    file: Option<MemoryFile>,
}

impl Bare {
    fn map(length: Bytes, page: PageSize, from_pool: bool) -> Result<Bare, Failed> {
        let memory = MemorySyscalls::new();
        let space = memory.reserve_addresses(length, page)?;
        let part = space.range();
        let file = match from_pool {
            true => {
                let file = memory.create_file("bare", length, Some(page))?;
                space.map_file(part, &file, 0, HugetlbReservation::All)?;
                Some(file)
            }
            false => {
                space.map_private(part)?;
                space.advise(part, Advice::HugePage)?;
                None
            }
        };
        Ok(Bare { space, file })
    }

    /// Populates a share per thread, in chunks. One call holds the lock on the address space until
    /// it ends, so with one call per thread the threads would run one after the other.
    fn populate(self, threads: usize) -> Result<Bare, Failed> {
        let space = &self.space;
        let whole = space.range();
        let share = whole.len().get() / threads as u64;
        let shares = (0..threads as u64).map(|n| whole.start() + n * share);
        std::thread::scope(|scope| {
            let workers: Vec<_> = shares
                .filter_map(|start| Range::new(start, start + share).ok())
                .map(|part| scope.spawn(move || populate_chunks(space, part)))
                .collect();
            for worker in workers {
                worker.join().map_err(|_| "a thread ended early")??;
            }
            Ok(())
        })
        .map(|()| self)
    }
}

/// Bytes that one call of the bare loop populates.
const CHUNK: Bytes = Bytes::from_mib(32);

fn populate_chunks(space: &ReservedAddresses, part: Range) -> Result<(), hugeleaf_sys::SysError> {
    let chunk = PageSize::new(CHUNK).expect("a power of two");
    for chunk in part.chunks(chunk) {
        space.advise(chunk, Advice::PopulateWrite)?;
    }
    Ok(())
}

/// Bytes between two reads: no processor has a longer cache line.
const LINE: u64 = 128;

/// Lays one cycle through all lines of some memory, in random order. Each line contains the offset
/// of the next, so the path is independent of the address of the mapping.
fn lay(memory: Range, seed: u64) {
    let lines = memory.len().get() / LINE;
    let mut order: Vec<u32> = (0..u32::try_from(lines).unwrap_or(u32::MAX)).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut order);
    for (at, line) in order.iter().enumerate() {
        let next = u64::from(order[(at + 1) % order.len()]) * LINE;
        let address = memory.start() + u64::from(*line) * LINE;
        // SAFETY: a whole line inside memory that the caller owns; lines are aligned.
        unsafe { (address as *mut u64).write(next) };
    }
}

/// Returns the seconds of `hops` reads from `start` on, each at the offset read before.
fn walk(start: u64, offset: &mut u64, hops: u64) -> f64 {
    let began = Instant::now();
    let mut at = *offset;
    for _ in 0..hops {
        // SAFETY: `lay` wrote the offset of another line there.
        at = unsafe { ((start + at) as *const u64).read_volatile() };
    }
    *offset = at;
    began.elapsed().as_secs_f64()
}

/// Maps the pages of a region once more by mmap(2) alone. The pages are the same, because different
/// physical pages can differ in speed.
fn plain(region: &Region, align: PageSize) -> Result<ReservedAddresses, Failed> {
    let memory = MemorySyscalls::new();
    let space = memory.reserve_addresses(region.len(), align)?;
    let mut descriptors: Vec<i32> = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let is_ours = std::fs::read_link(entry.path())
            .is_ok_and(|link| link.starts_with("/memfd:hugeleaf (deleted)"));
        if is_ours {
            descriptors.push(entry.file_name().to_string_lossy().parse()?);
        }
    }
    // Extents are made in the order of their addresses.
    descriptors.sort_unstable();
    let mut at = 0;
    for descriptor in descriptors {
        let file = MemoryFile::from_fd(hugeleaf_sys::duplicate_raw(descriptor)?);
        let length = memory.facts(&file)?.length;
        let part = space
            .part(at, length)
            .ok_or("files longer than the region")?;
        space.map_file(part, &file, 0, HugetlbReservation::None)?;
        at += length.get();
    }
    if at != region.len().get() {
        return Err("files shorter than the region".into());
    }
    space.advise(space.range(), Advice::PopulateWrite)?;
    Ok(space)
}

/// Reads through regions and through plain mappings on pages of the same sizes.
fn read(sizes: &Sizes, pool: PageSize, base: PageSize, out: &Path) -> Result<(), Failed> {
    let mut record = Record::new("region-read", "make bench");
    let length = sizes.read;
    let half = Bytes(pool.round_down(length.get() / 2));
    for (what, reserved) in [("uniform", length), ("mosaic", half)] {
        let _pool = RestoreSetting::free_pages(pool, reserved)?;
        let ladder = format!("hugetlb:{pool},{base}").parse()?;
        let region = Region::new(&RegionOptions::new(length, ladder).shared())?;
        for extent in region.extents()? {
            println!("  {what}: {extent}");
        }
        let plain = plain(&region, pool)?;
        lay(region.range(), 7);
        let (ours, theirs) = (region.range().start(), plain.range().start());
        let (mut here, mut there) = (0, 0);
        let mut arms: [Work<'_>; 2] = [
            ("Region", Box::new(|| Ok(walk(ours, &mut here, sizes.hops)))),
            (
                "plain mappings",
                Box::new(|| Ok(walk(theirs, &mut there, sizes.hops))),
            ),
        ];
        let samples = rounds(&mut arms, sizes.read_pairs)?;
        keep(
            &mut record,
            what,
            "seconds",
            &arms,
            &samples,
            |ours, theirs| ours / theirs,
        );
    }
    record.figure("bytes", length.get());
    record.figure("reads a sample", sizes.hops);
    record.write(out)?;
    Ok(())
}

/// Measures the wall-clock seconds of moving granules from one component to another, and back.
fn elastic(sizes: &Sizes, pool: PageSize, out: &Path) -> Result<(), Failed> {
    let mut record = Record::new("region-elastic", "make bench");
    let still = pool.pages_for(Bytes(sizes.moved.get() / 16)).in_bytes(pool);
    // Twice: the bare calls have pages of their own.
    let _pool = RestoreSetting::free_pages(pool, sizes.moved + sizes.moved + still)?;
    let free = pages(pool, "free_hugepages")?;
    let ladder = format!("hugetlb:{pool}!").parse()?;
    let options = ElasticOptions::new(sizes.moved + still, ladder).shared();
    let elastic = Elastic::new(&options)?;
    let [from, to, other] = [
        elastic.component("buffer pool", true)?,
        elastic.component("sort heap", true)?,
        elastic.component("read meanwhile", true)?,
    ];
    let count = usize::try_from(pool.pages_for(sizes.moved).get())?;
    let read = elastic.take_many(other, usize::try_from(pool.pages_for(still).get())?)?;
    let lines = lines_of(&elastic, &read, pool)?;
    let quiet = longest_gap(&lines, || {
        std::thread::sleep(Duration::from_secs(2));
        Ok(())
    })?;
    record.figure("longest gap between reads, nothing moved, seconds", quiet);
    let mut held = elastic.take_many(from, count)?;
    let gap = longest_gap(&lines, || {
        for pair in [(from, to), (to, from)].repeat(sizes.move_pairs) {
            held = moved(&elastic, pair.0, pair.1, &held)?;
        }
        Ok(())
    })?;
    record.figure("longest gap between reads, granules moved, seconds", gap);
    elastic.give_back(from, &held)?;
    let bare = Bare::map(sizes.moved, pool, true)?;
    {
        let mut arms: [Work<'_>; 2] = [
            (
                "Elastic",
                Box::new(|| {
                    let held = elastic.take_many(from, count)?;
                    let start = Instant::now();
                    let now = moved(&elastic, from, to, &held)?;
                    let took = start.elapsed().as_secs_f64();
                    elastic.give_back(to, &now)?;
                    Ok(took)
                }),
            ),
            (
                "bare system calls",
                Box::new(|| bare.punch_and_take_again()),
            ),
        ];
        let samples = rounds(&mut arms, sizes.move_pairs)?;
        keep(
            &mut record,
            "moving",
            "seconds",
            &arms,
            &samples,
            |ours, theirs| ours / theirs,
        );
    }
    drop(bare);
    steps(&mut record, &elastic, [from, to], count / 2, sizes.steps)?;
    drop(elastic);
    let left = free - pages(pool, "free_hugepages")?;
    record.figure("pages not accounted for", left);
    record.figure("bytes moved", sizes.moved.get());
    record.write(out)?;
    Ok(())
}

fn moved(
    elastic: &Elastic,
    from: Component,
    to: Component,
    held: &[Granule],
) -> Result<Vec<Granule>, Failed> {
    elastic.give_back(from, held)?;
    Ok(elastic.take_many(to, held.len())?)
}

impl Bare {
    /// Returns the seconds to free all pages and populate them again, by one call each.
    fn punch_and_take_again(&self) -> Result<f64, Failed> {
        let file = self.file.as_ref().ok_or("no file")?;
        let whole = Range::new(0, self.space.range().len().get())?;
        let start = Instant::now();
        self.space.memory().punch(file, whole)?;
        self.space
            .advise(self.space.range(), Advice::PopulateWrite)?;
        Ok(start.elapsed().as_secs_f64())
    }
}

/// Returns the addresses of one line in each base page of some granules.
fn lines_of(elastic: &Elastic, granules: &[Granule], page: PageSize) -> Result<Vec<u64>, Failed> {
    let mut lines = Vec::new();
    for granule in granules {
        let start = elastic.address(*granule)? as u64;
        lines.extend(
            (0..page.bytes().get() / LINE)
                .step_by(32)
                .map(|n| start + n * LINE),
        );
    }
    Ok(lines)
}

/// Returns the longest time between two reads of some lines, by a thread that does nothing else,
/// while `work` runs.
fn longest_gap(lines: &[u64], work: impl FnOnce() -> Result<(), Failed>) -> Result<f64, Failed> {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            let mut before = Instant::now();
            while !ended.load(Ordering::Relaxed) {
                for line in lines {
                    // SAFETY: inside a granule that is held until the reader has ended.
                    unsafe { (*line as *const u64).read_volatile() };
                    let now = Instant::now();
                    longest = longest.max(now - before);
                    before = now;
                }
            }
            longest
        });
        let done = work();
        ended.store(true, Ordering::Relaxed);
        let longest = reader.join().map_err(|_| "the reader ended early")?;
        done.map(|()| longest.as_secs_f64())
    })
}

/// Takes and returns one granule at a time, at random, for two components.
fn steps(
    record: &mut Record,
    elastic: &Elastic,
    components: [Component; 2],
    most: usize,
    steps: u64,
) -> Result<(), Failed> {
    // Few, so that the same pages are reused.
    let most = most.clamp(1, 64);
    let mut random = fastrand::Rng::with_seed(11);
    let mut held: [Vec<Granule>; 2] = [Vec::new(), Vec::new()];
    let start = Instant::now();
    for _ in 0..steps {
        let who = random.usize(0..2);
        let mine = &mut held[who];
        let take = mine.is_empty() || mine.len() < most && random.bool();
        if take {
            mine.push(elastic.take(components[who])?);
        } else {
            let granule = mine.swap_remove(random.usize(0..mine.len()));
            elastic.give_back(components[who], &[granule])?;
        }
    }
    record.figure("random steps", steps);
    record.figure("random steps, seconds", start.elapsed().as_secs_f64());
    for (component, held) in components.iter().zip(&held) {
        elastic.give_back(*component, held)?;
    }
    Ok(())
}
